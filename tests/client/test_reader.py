"""Reading: catch-up, waiting at the end, lost connections, trimmed offsets, cursors."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

import oncelog.client.reader as reader_module
from oncelog.client import NOW, START, AnswerUnreadable, AsyncClient, AsyncReader, OffsetGone, Record, Unreachable
from oncelog.core import batch as codec
from tests.client.peer import CUT, Peer, Reply, Request, Script, answer, json_answer, problem, run

BATCHES = "application/vnd.oncelog.batches"


class FakeStream:
    """A stream of one-letter records in batches of `batch_records`, with what a reader may ask of it."""

    def __init__(self, values: str = "", *, batch_records: int = 2, floor: int = 0) -> None:
        self.values = values
        self.batch_records = batch_records
        self.floor = floor
        self.closed = False
        self.more = asyncio.Condition()
        self.cursor: int | None = None

    async def add(self, values: str, *, closed: bool = False) -> None:
        async with self.more:
            self.values += values
            self.closed = closed
            self.more.notify_all()

    async def __call__(self, request: Request) -> Reply:
        if request.path.startswith("/v1/cursors/"):
            return self._cursor(request)
        spelled = request.query["offset"]
        tail = len(self.values)
        offset = {"-1": self.floor, "now": tail}.get(spelled)
        offset = int(spelled) if offset is None else offset
        if offset < self.floor:
            return problem(410, "offset_gone", floor=self.floor, offset=offset)
        if request.query.get("live") == "long-poll":
            async with self.more:
                await self.more.wait_for(lambda: len(self.values) > offset or self.closed)
        return self._found(offset)

    def _found(self, offset: int) -> Reply:
        tail = len(self.values)
        first = offset - offset % self.batch_records  # a batch may begin before what was asked for
        part = self.values[first : first + self.batch_records].encode()
        next_offset = min(tail, first + self.batch_records)
        headers: dict[str, str | int] = {"Stream_Next_Offset": f"{next_offset:016d}", "Stream_Cursor": "77"}
        if next_offset == tail:
            headers["Stream_Up_To_Date"] = "true"
            if self.closed:
                headers["Stream_Closed"] = "true"
        if offset == tail:
            return answer(204, **headers)
        batch = codec.encode_values([bytes([byte]) for byte in part], 5)
        return answer(200, b"".join(codec.stamp(batch, first)), Content_Type=BATCHES, **headers)

    def _cursor(self, request: Request) -> Reply:
        if request.method == "PUT":
            self.cursor = msgspec.json.decode(request.body)["frontier"]
            return answer(204)
        if self.cursor is None:
            return problem(404, "not_found")
        return json_answer({"name": "c", "topic": "a", "partition": 0, "frontier": self.cursor})


@asynccontextmanager
async def reading(
    script: Script, *, offset: int = START, request_timeout_ms: float = 60_000
) -> AsyncIterator[tuple[Peer, AsyncReader]]:
    """A reader that ends at the end."""
    async with (
        Peer(script) as peer,
        AsyncClient(peer.url, request_timeout_ms=request_timeout_ms) as client,
        client.reader("a", offset=offset, live=False) as reader,
    ):
        yield peer, reader


def test_catching_up_gives_every_record_once_and_ends() -> None:
    async def main() -> None:
        async with Peer(FakeStream("abcdefg")) as peer, AsyncClient(peer.url) as client:
            async with client.reader("a", live=False) as reader:
                records = [record async for record in reader]
                assert "".join((record.value or b"").decode() for record in records) == "abcdefg"
                assert records[3] == Record(3, 5, None, b"d", ())
                assert (reader.offset, reader.up_to_date, reader.closed) == (7, True, False)
                assert [record async for record in reader] == []
            assert peer.requests[0].headers["accept"] == BATCHES
            assert all("live" not in request.query for request in peer.requests)

    run(main())


@pytest.mark.parametrize("offset", range(8))
def test_reading_begins_at_the_offset_asked_for(offset: int) -> None:
    async def main() -> None:
        async with reading(FakeStream("abcdefg", batch_records=3), offset=offset) as (_, reader):
            assert "".join([str(record.value or b"", "ascii") async for record in reader]) == "abcdefg"[offset:]

    run(main())


def test_the_place_moves_with_what_was_handed_out() -> None:
    async def main() -> None:
        async with reading(FakeStream("abcd", batch_records=4)) as (peer, reader):
            assert reader.offset == START
            await anext(reader)
            assert reader.offset == 1
            # What was fetched and not handed out is not fetched again, and not skipped either.
            assert [record.offset for record in await reader.read()] == [1, 2, 3]
            assert (reader.offset, len(peer.requests)) == (4, 1)
            assert await reader.read() == []

    run(main())


def test_a_live_reader_waits_for_records_and_ends_when_the_stream_does() -> None:
    async def main() -> None:
        stream = FakeStream("ab")
        async with Peer(stream) as peer, AsyncClient(peer.url) as client, client.reader("a") as reader:
            seen: list[int] = []

            async def follow() -> None:
                async for record in reader:
                    seen.append(record.offset)

            following = asyncio.create_task(follow())
            await peer.until(lambda: any("live" in request.query for request in peer.requests))
            await stream.add("cde")
            await stream.add("f", closed=True)
            await following
            assert seen == [0, 1, 2, 3, 4, 5]
            assert reader.closed
            assert any(request.query.get("cursor") == "77" for request in peer.requests)

    run(main())


def test_a_reader_from_now_sees_only_what_comes_later() -> None:
    async def main() -> None:
        stream = FakeStream("ab")
        async with Peer(stream) as peer, AsyncClient(peer.url) as client, client.reader("a", offset=NOW) as reader:
            first = asyncio.create_task(anext(reader))
            await peer.until(lambda: any("live" in request.query for request in peer.requests))
            await stream.add("c")
            assert (await first).offset == 2
            # The wait named the end by its number: what comes between two waits is not missed.
            assert [request.query["offset"] for request in peer.requests][:2] == ["now", "0000000000000002"]

    run(main())


def test_lost_connections_and_a_busy_server_cost_no_record() -> None:
    async def main() -> None:
        stream = FakeStream("abcdefghij")
        replies = iter([CUT, problem(503, "overloaded", retryable=True), None] * 10)

        async def trouble(request: Request) -> Reply:
            reply = next(replies)
            return await stream(request) if reply is None else reply

        async with reading(trouble) as (_, reader):
            assert [record.offset async for record in reader] == list(range(10))

    run(main())


def test_a_server_that_is_gone_ends_the_reading_and_it_can_go_on() -> None:
    async def main() -> None:
        async with reading(FakeStream("abcd"), request_timeout_ms=100) as (peer, reader):
            assert (await anext(reader)).offset == 0
            assert (await anext(reader)).offset == 1
            await peer.stop()
            with pytest.raises(Unreachable):
                await anext(reader)
            await peer.listen()
            assert [record.offset async for record in reader] == [2, 3]

    run(main())


@pytest.mark.parametrize("instead", ["silence", "cut", "refusal"])
def test_a_wait_that_nothing_answers_is_asked_for_again_while_the_server_is_there(
    monkeypatch: pytest.MonkeyPatch, instead: str
) -> None:
    """A server may be told to hold a long-poll for an hour, and a proxy in between may end it sooner."""
    monkeypatch.setattr(reader_module, "LONG_POLL_S", 0.02)

    async def main() -> None:
        stream = FakeStream("ab")

        async def idle(request: Request) -> Reply:
            if "live" not in request.query or instead == "silence":
                return await stream(request)
            return CUT if instead == "cut" else problem(503, "overloaded", retryable=True)

        async with (
            Peer(idle) as peer,
            AsyncClient(peer.url, request_timeout_ms=30) as client,
            client.reader("a") as reader,
        ):
            assert len(await reader.read()) == 2
            waiting = asyncio.create_task(reader.read())
            await peer.until(lambda: sum("live" in request.query for request in peer.requests) > 4 or waiting.done())
            assert not waiting.done()
            await stream.add("c")
            assert [record.offset for record in await waiting] == [2]
            # What followed each wait came over a connection that does not hang in the wait.
            live = [number for number, request in enumerate(peer.requests) if "live" in request.query][:4]
            assert all("live" not in peer.requests[number + 1].query for number in live)
            if instead == "silence":
                assert all(peer.requests[number].connection < peer.requests[number + 1].connection for number in live)

    run(main())


def test_a_server_that_is_silent_to_everything_is_given_up_by_a_reader_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader_module, "LONG_POLL_S", 0.02)

    async def main() -> None:
        stream = FakeStream("ab")
        dead = asyncio.Event()

        async def script(request: Request) -> Reply:
            if dead.is_set():
                await asyncio.Event().wait()
            return await stream(request)

        async with (
            Peer(script) as peer,
            AsyncClient(peer.url, answer_timeout_ms=20, request_timeout_ms=100) as client,
            client.reader("a") as reader,
        ):
            assert len(await reader.read()) == 2
            dead.set()
            with pytest.raises(Unreachable, match=r"silent|not whole in time"):
                await reader.read()

    run(main())


def test_a_trimmed_offset_is_told_or_skipped() -> None:
    async def main() -> None:
        async with Peer(FakeStream("abcdef", floor=4)) as peer, AsyncClient(peer.url) as client:
            async with client.reader("a", offset=1, live=False) as reader:
                with pytest.raises(OffsetGone) as caught:
                    await reader.read()
                assert caught.value.floor == 4
            async with client.reader("a", offset=1, live=False, on_gone="skip") as reader:
                assert [record.offset async for record in reader] == [4, 5]

    run(main())


def test_a_cursor_keeps_the_place_over_readers() -> None:
    async def main() -> None:
        stream = FakeStream("abcd")
        async with Peer(stream) as peer, AsyncClient(peer.url) as client:
            async with client.reader("a", live=False, cursor="c") as reader:
                await reader.save()
                saved = [stream.cursor]
                for _ in range(3):
                    await anext(reader)
                await reader.save()
                saved.append(stream.cursor)
                assert saved == [None, 3]  # before anything was read there is nothing to save
            async with client.reader("a", live=False, cursor="c") as reader:
                assert [record.offset async for record in reader] == [3]
            async with client.reader("a") as reader:
                with pytest.raises(ValueError, match="no cursor"):
                    await reader.save()

    run(main())


def test_a_wait_that_is_given_up_does_not_hold_up_the_next_read() -> None:
    async def main() -> None:
        stream = FakeStream("ab")
        async with Peer(stream) as peer, AsyncClient(peer.url) as client, client.reader("a") as reader:
            assert len(await reader.read()) == 2
            waiting = asyncio.create_task(reader.read())
            await peer.until(lambda: any("live" in request.query for request in peer.requests))
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting
            assert await reader.read(wait=False) == []
            assert peer.connection_count == 2

    run(main())


@pytest.mark.parametrize(
    "reply",
    [
        answer(200, b"[1]", Content_Type="application/json", Stream_Next_Offset="1"),
        answer(200, b"", Content_Type=BATCHES),
        answer(200, b"xyz", Content_Type=BATCHES, Stream_Next_Offset="0000000000000001", Stream_Up_To_Date="true"),
    ],
)
def test_an_answer_without_record_batches_is_refused(reply: bytes) -> None:
    async def main() -> None:
        async with reading(lambda request: reply) as (_, reader):
            with pytest.raises(AnswerUnreadable):
                await reader.read()

    run(main())


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"offset": -3}, ValueError, "START, NOW or counts from 0, not -3"),
        ({"offset": "abc"}, TypeError, "START, NOW or a whole number, not str"),
        ({"offset": 1.0}, TypeError, "not float"),
        ({"offset": None}, TypeError, "not NoneType"),
        ({"on_gone": "foo"}, ValueError, "'raise' or 'skip', not 'foo'"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused_at_once(
    given: dict[str, Any], error: type[Exception], said: str
) -> None:
    async def main() -> None:
        async with AsyncClient() as client:
            with pytest.raises(error, match=said):
                client.reader("a", **given)

    run(main())
