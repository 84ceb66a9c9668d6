"""Single calls: appends that are idempotent without being asked, retries and how they end, every path."""

import asyncio
import math
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from oncelog.client import (
    AnswerUnreadable,
    AsyncClient,
    CommitAppend,
    CommitProducer,
    CommitRecord,
    ConditionFailed,
    CursorEquals,
    CursorMove,
    EpochEquals,
    ExpectedTail,
    IdKnown,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    PublishStage,
    StreamNew,
    Unreachable,
    calls,
)
from oncelog.client.connection import Connection
from tests.client.peer import CUT, FakeLog, Peer, Reply, Request, Script, answer, json_answer, problem, run


def calling(script: Script, call: Callable[[AsyncClient], Awaitable[object]]) -> tuple[object, list[Request]]:
    """The result of one call, and the requests that it made."""

    async def main() -> tuple[object, list[Request]]:
        async with Peer(script) as peer, AsyncClient(peer.url, request_timeout_ms=300) as client:
            return await call(client), peer.requests

    return run(main())


# --- appends -----------------------------------------------------------------------------------------------------


def test_an_append_without_an_id_gets_one_and_is_written_once() -> None:
    log = FakeLog()
    lost = iter([True, True])

    def script(request: Request) -> Reply:
        told = log(request)
        return CUT if next(lost, False) else told

    result, requests = calling(script, lambda client: client.append("a", {"x": 1}))
    assert len(requests) == 3
    assert len({request.headers["stream-message-id"] for request in requests}) == 1
    assert log.values("a") == [b'{"x":1}']
    assert (result.offset, result.next_offset, result.duplicate) == (0, 1, True)  # type: ignore[attr-defined]


def test_every_append_has_an_id_of_its_own() -> None:
    log = FakeLog()

    async def twice(client: AsyncClient) -> object:
        return [await client.append("a", 1), await client.append("a", 1)]

    calling(log, twice)
    assert log.values("a") == [b"1", b"1"]


def test_an_append_carries_what_it_is_told() -> None:
    async def call(client: AsyncClient) -> object:
        stream = client.stream("a/b c", "text/plain")
        return await stream.append(
            "hello", message_id="m", partition=3, expected_tail=41, order_key="k1", close=True
        )  # fmt: skip

    _, (request,) = calling(lambda request: answer(204, Stream_Next_Offset="0000000000000042"), call)
    assert (request.method, request.path, request.query) == ("POST", "/v1/stream/a/b c", {"partition": "3"})
    assert request.body == b"hello"
    wanted = {
        "content-type": "text/plain",
        "stream-message-id": "m",
        "if-match": '"0000000000000041"',
        "stream-seq": "k1",
        "stream-closed": "true",
    }
    assert wanted.items() <= request.headers.items()


def test_an_append_with_a_key_is_a_raw_batch() -> None:
    log = FakeLog()
    _, (request,) = calling(log, lambda client: client.append("a", 1, key="k", headers={"h": b"v"}, timestamp_ms=5))
    assert request.headers["content-type"] == "application/vnd.oncelog.batches"
    assert log.values("a") == [b"1"]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda client: client.append("a", 1, message_id=5), TypeError),
        (lambda client: client.append("a", 1, message_id=0), TypeError),
        (lambda client: client.append("a", [math.nan]), ValueError),
        (lambda client: client.commit([CommitAppend("a", [{"x": math.inf}])]), ValueError),
        (lambda client: client.commit([CommitAppend("a", [CommitRecord(math.nan)])]), ValueError),
    ],
)
def test_what_cannot_be_meant_is_refused_before_it_is_sent(
    call: Callable[[AsyncClient], Awaitable[object]], error: type[Exception]
) -> None:
    async def refused(client: AsyncClient) -> object:
        with pytest.raises(error, match=r"a message id is text|no NaN and no infinity"):
            await call(client)
        return None

    _, requests = calling(FakeLog(), refused)
    assert requests == []


def test_a_failed_condition_is_told_with_its_numbers() -> None:
    async def call(client: AsyncClient) -> object:
        with pytest.raises(ConditionFailed) as caught:
            await client.stream("a").append(1, expected_tail=4)
        return caught.value.number("tail")

    tail, _ = calling(lambda request: problem(412, "tail_mismatch", expected=4, tail=9), call)
    assert tail == 9


# --- retries -----------------------------------------------------------------------------------------------------


def test_a_busy_server_is_asked_again_after_the_pause_it_names() -> None:
    answers = iter([problem(503, "overloaded", retryable=True), problem(507, "no_room", retryable=True)])
    health = json_answer({"status": "ok", "durability": "fdatasync", "version": "1", "entry": 7})
    result, requests = calling(lambda request: next(answers, health), lambda client: client.health())
    assert len(requests) == 3
    assert result.entry == 7  # type: ignore[attr-defined]


def test_a_server_that_stays_busy_is_told_as_such() -> None:
    async def call(client: AsyncClient) -> object:
        with pytest.raises(Overloaded):
            await client.append("a", 1)
        return None

    _, requests = calling(lambda request: problem(503, "overloaded", retryable=True), call)
    assert len(requests) > 1


def test_a_pause_beyond_the_time_is_not_waited_for() -> None:
    async def call(client: AsyncClient) -> object:
        with pytest.raises(Overloaded):
            await client.health()
        return None

    _, requests = calling(lambda request: answer(503, Retry_After=3600), call)
    assert len(requests) == 1


def test_a_write_without_an_answer_is_of_unknown_outcome_and_a_read_unreachable() -> None:
    async def call(client: AsyncClient) -> object:
        with pytest.raises(OutcomeUnknown):
            await client.append("a", 1)
        with pytest.raises(Unreachable):
            await client.health()
        return None

    calling(lambda request: CUT, call)


def test_an_answer_that_trickles_does_not_outlast_the_time_of_the_call() -> None:
    async def main() -> None:
        peer: Peer

        async def trickle(request: Request) -> Reply:
            (side,) = peer.sides

            def drip(drops: bytes) -> None:
                if not side.transport.is_closing():
                    side.transport.write(drops)
                    asyncio.get_running_loop().call_later(0.02, drip, b"a")

            drip(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            await asyncio.Event().wait()
            return CUT

        async with Peer(trickle) as peer, AsyncClient(peer.url, request_timeout_ms=200) as client:
            async with asyncio.timeout(5):
                with pytest.raises(OutcomeUnknown, match="not whole in time"):
                    await client.append("a", 1)
            await peer.until(lambda: not peer.sides)
            async with asyncio.timeout(5):
                with pytest.raises(Unreachable):
                    await client.health()

    run(main())


def test_connecting_does_not_outlast_the_time_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> Connection:
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> None:
        monkeypatch.setattr(calls, "connect", never)
        async with AsyncClient(request_timeout_ms=50) as client, asyncio.timeout(5):
            with pytest.raises(Unreachable, match="no connection in time"):
                await client.append("a", 1)

    run(main())


def test_a_server_that_is_not_there_is_unreachable_also_for_writes() -> None:
    async def main() -> None:
        peer = Peer(lambda request: CUT)
        await peer.listen()
        await peer.stop()
        async with AsyncClient(peer.url, request_timeout_ms=50) as client:
            with pytest.raises(Unreachable):
                await client.append("a", 1)

    run(main())


def test_a_closed_client_asks_nothing() -> None:
    async def main() -> None:
        client = AsyncClient()
        await client.close()
        with pytest.raises(Unreachable, match="closed"):
            await client.health()

    run(main())


def test_a_write_under_way_when_the_client_closes_is_of_unknown_outcome_and_a_read_unreachable() -> None:
    async def main() -> None:
        async def hold(request: Request) -> Reply:
            await asyncio.Event().wait()
            return CUT

        async with Peer(hold) as peer:
            client = AsyncClient(peer.url)
            under_way = asyncio.gather(client.append("a", 1), client.stream("a").head(), return_exceptions=True)
            await peer.came(1)
            await client.close()
            write, read = await under_way
            assert isinstance(write, OutcomeUnknown), write
            assert isinstance(read, Unreachable), read
            assert "the client is closed" in str(write)
            assert "the client is closed" in str(read)

    run(main())


def test_a_client_that_closes_while_it_connects_leaves_no_connection_and_tells_the_call() -> None:
    async def main() -> None:
        async def hold(request: Request) -> Reply:
            await asyncio.Event().wait()
            return CUT

        async with Peer(hold) as peer:
            client = AsyncClient(peer.url)
            under_way = asyncio.gather(client.append("a", 1), client.health(), return_exceptions=True)
            await asyncio.sleep(0)
            await client.close()
            assert [type(outcome) for outcome in await under_way] == [Unreachable, Unreachable]
            await peer.until(lambda: peer.connection_count == 1 and not peer.sides)
            assert peer.requests == []

    run(main())


def test_many_calls_share_one_connection() -> None:
    async def main() -> None:
        log = FakeLog()
        async with Peer(log) as peer, AsyncClient(peer.url) as client:
            await asyncio.gather(*(client.append("a", number) for number in range(50)))
            assert peer.connection_count == 1
        assert sorted(int(value) for value in log.values("a")) == list(range(50))

    run(main())


def test_headers_of_the_client_go_with_every_request() -> None:
    async def main() -> None:
        async with (
            Peer(lambda request: answer(200)) as peer,
            AsyncClient(peer.url, headers={"Authorization": "Bearer t"}) as client,
        ):
            await client.metrics()
            assert peer.requests[0].headers["authorization"] == "Bearer t"
            assert peer.requests[0].headers["host"] == peer.url.removeprefix("http://")

    run(main())


@pytest.mark.parametrize(("reply", "is_error"), [(answer(204), False), (problem(404, "topic_missing"), True)])
def test_a_delete_whose_answer_was_lost_may_find_nothing(reply: bytes, is_error: bool) -> None:
    async def once(client: AsyncClient) -> object:
        await client.delete_topic("a")
        return None

    if is_error:
        with pytest.raises(NotFound):
            calling(lambda request: reply, once)
    lost = iter([CUT])
    calling(lambda request: next(lost, reply), once)


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_proxy_that_gives_up_leaves_a_write_of_unknown_outcome_and_a_read_without_harm(status: int) -> None:
    async def call(client: AsyncClient) -> object:
        with pytest.raises(OutcomeUnknown, match=str(status)):
            await client.append("a", 1)
        with pytest.raises(Overloaded):
            await client.health()
        return None

    calling(lambda request: answer(status), call)


def test_a_delete_that_a_proxy_gave_up_on_may_find_nothing() -> None:
    replies = iter([answer(504)])
    calling(lambda request: next(replies, problem(404, "topic_missing")), lambda client: client.delete_topic("a"))


@pytest.mark.parametrize(
    ("first", "maybe_done"), [(CUT, True), (answer(504), True), (problem(503, "overloaded", retryable=True), False)]
)
def test_a_refusal_says_whether_an_attempt_before_it_may_have_been_done(first: Reply, maybe_done: bool) -> None:
    async def call(client: AsyncClient) -> object:
        with pytest.raises(NotFound) as caught:
            await client.append("a", 1)
        return caught.value.maybe_done

    replies = iter([first])
    assert calling(lambda request: next(replies, problem(404, "topic_missing")), call)[0] is maybe_done


def test_an_answer_of_another_shape_is_unreadable() -> None:
    async def call(client: AsyncClient) -> object:
        with pytest.raises(AnswerUnreadable):
            await client.health()
        return None

    calling(lambda request: json_answer({"something": "else"}), call)


REDIRECT = answer(301, b"moved", Location="https://elsewhere/")
PAGE = answer(200, b"<html></html>", Content_Type="text/html")


@pytest.mark.parametrize("reply", [REDIRECT, PAGE, answer(202), answer(304)], ids=["redirect", "page", "202", "304"])
@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.append("a", 1),
        lambda c: c.stream("a").append(1, close=True),
        lambda c: c.stream("a").create(),
        lambda c: c.stream("a").close(),
        lambda c: c.stream("a").head(),
        lambda c: c.delete_topic("a"),
        lambda c: c.create_topic("a"),
        lambda c: c.grow_topic("a", 3),
        lambda c: c.configure_topic("a", dedupe_floor_ms=5),
        lambda c: c.move_cursor("c", "a", 5),
        lambda c: c.delete_cursor("c", "a"),
        lambda c: c.drop_stages([1]),
        lambda c: c.trim("a", 1),
        lambda c: c.commit([CommitAppend("a", [1])]),
    ],
)
def test_what_somebody_else_answers_is_no_success(
    call: Callable[[AsyncClient], Awaitable[object]], reply: bytes
) -> None:
    with pytest.raises(AnswerUnreadable):
        calling(lambda request: reply, call)


@pytest.mark.parametrize(
    ("reply", "is_written"),
    [
        (answer(204), False),
        (answer(200), False),
        (answer(204, Stream_Next_Offset="0000000000000007"), True),
        (answer(204, Stream_Next_Offset="7_of_another_server"), True),
        (answer(204, Stream_Duplicate="true"), True),
    ],
)
def test_an_append_is_confirmed_by_what_only_such_a_server_says(reply: bytes, is_written: bool) -> None:
    if is_written:
        result, _ = calling(lambda request: reply, lambda client: client.append("a", 1))
        assert result.next_offset in (7, -1)  # type: ignore[attr-defined]
    else:
        with pytest.raises(AnswerUnreadable, match="nothing is confirmed"):
            calling(lambda request: reply, lambda client: client.append("a", 1))


def test_unchanged_is_an_answer_for_who_asks_so() -> None:
    async def call(client: AsyncClient) -> object:
        with pytest.raises(AnswerUnreadable, match="304"):
            await client.call("GET", "/v1/stream/a")
        return (await client.call("GET", "/v1/stream/a", headers={"If-None-Match": '"1"'})).status

    assert calling(lambda request: answer(304), call)[0] == 304


# --- streams -----------------------------------------------------------------------------------------------------


def test_a_stream_is_created_looked_at_closed_and_deleted() -> None:
    def script(request: Request) -> Reply:
        match request.method:
            case "PUT":
                return answer(201, Stream_Next_Offset="0000000000000000")
            case "HEAD":
                head = {"Content_Type": "text/plain", "Stream_Next_Offset": "0000000000000042", "Stream_Floor": 7}
                return answer(200, Stream_Closed="true", **head)  # type: ignore[arg-type]
            case "POST":
                return answer(204, Stream_Next_Offset="0000000000000042")
        return answer(204)

    async def call(client: AsyncClient) -> object:
        stream = client.stream("a", "text/plain")
        assert await stream.create(partitions=4, closed=True)
        head = await stream.head(partition=1)
        assert (head.content_type, head.next_offset, head.floor, head.closed) == ("text/plain", 42, 7, True)
        assert await stream.close() == 42
        await stream.delete()
        return None

    _, requests = calling(script, call)
    assert [request.method for request in requests] == ["PUT", "HEAD", "POST", "DELETE"]
    created = requests[0].headers
    assert (created["stream-partitions"], created["stream-closed"], created["content-type"]) == (
        "4",
        "true",
        "text/plain",
    )


def test_looking_at_a_missing_stream_says_so() -> None:
    async def call(client: AsyncClient) -> object:
        with pytest.raises(NotFound, match="there is no stream 'a'"):
            await client.stream("a").head()
        with pytest.raises(NotFound, match="there is no partition 3 of 'a'"):
            await client.stream("a").head(partition=3)
        return None

    calling(lambda request: answer(404), call)


# --- every path ----------------------------------------------------------------------------------------------------

STREAM = {"topic": "a", "partition": 0, "floor": 0, "stable": 5, "tail": 5, "closed": False}
STOOD = {"topic": "a", "partition": 0, "offset": 3, "floor": 0, "stable": 5}
PRODUCER = {"name": "p", "scope": "x", "epoch": 1, "last_sequence": 4, "first": 0, "next": 5, "used_ms": 9}
CURSOR = {
    "name": "c",
    "topic": "a",
    "partition": 0,
    "frontier": 5,
    "confirmed": [[7, 9]],
    "metadata": "",
    "pinned": False,
}
STAGE = {"stage_id": 3, "count": 2, "expires_ms": 9, "duplicate": False}
APPLICATION = {"fence": 2, "query": "q", "batch": 4, "source_end": "AAE="}
COMMITTED = {"outcome": [{"topic": "a", "partition": 0, "first": 1, "next": 2}], "duplicate": False, "producer": None}
RECEIPT = {"topic": "a", "partition": 0, "first": 1, "next": 2, "digest": "ab", "time_ms": 9, "removed": False}

CHANGED = {"name": "a", "partitions": 1}
NOTHING = answer(204)

Call = Callable[[AsyncClient], Awaitable[object]]

PATHS: list[tuple[Call, str, object, object]] = [
    (
        lambda c: c.create_topic("a/b", content_type=""),
        "PUT /v1/topics/a/b",
        {"partitions": 1, "content_type": ""},
        CHANGED,
    ),
    (lambda c: c.topic("a"), "GET /v1/topics/a", None, {"name": "a", "partitions": 1}),
    (lambda c: c.grow_topic("a", 4), "PATCH /v1/topics/a", {"partitions": 4}, CHANGED),
    (lambda c: c.configure_topic("a", dedupe_floor_ms=-1), "PATCH /v1/topics/a", {"dedupe_floor_ms": -1}, CHANGED),
    (lambda c: c.trim("a", 5), "POST /v1/topics/a/trim", {"partition": 0, "floor": 5, "force": False}, STREAM),
    (
        lambda c: c.delete_records("a", [(1, 2)]),
        "POST /v1/topics/a/delete-records",
        {"partition": 0, "ranges": [[1, 2]]},
        STREAM,
    ),
    (lambda c: c.streams("a", limit=5), "GET /v1/streams?prefix=a&limit=5", None, {"streams": [STREAM], "next": "b"}),
    (lambda c: c.cut(), "GET /v1/cut", None, {"entry": 1, "time_ms": 2, "streams": [STREAM]}),
    (lambda c: c.cut("a", "ä&"), "GET /v1/cut?topic=ä&", None, {"entry": 1, "time_ms": 2, "streams": []}),
    (lambda c: c.call("GET", "/v1/any", {"partition": 2}), "GET /v1/any?partition=2", None, {}),
    (lambda c: c.offsets_at("a", entry=7), "GET /v1/offsets?entry=7&topic=a", None, {"streams": [STOOD]}),
    (lambda c: c.offsets_at(time_ms=7), "GET /v1/offsets?time_ms=7", None, {"streams": []}),
    (lambda c: c.receipt("a", "id/1"), "GET /v1/receipts/a/id/1?partition=0", None, RECEIPT),
    (lambda c: c.producer_info("a", "p"), "GET /v1/producers/a/p?partition=0&scope=x", None, PRODUCER),
    (lambda c: c.commit_producer_info("p"), "GET /v1/commit/producers/p", None, PRODUCER),
    (lambda c: c.producers("a"), "GET /v1/producers?topic=a&partition=0", None, {"producers": [], "next": None}),
    (lambda c: c.cursors(after="b"), "GET /v1/cursors?after=b", None, {"cursors": [CURSOR], "next": None}),
    (lambda c: c.cursor("c", "a"), "GET /v1/cursors/c/a?partition=0", None, CURSOR),
    (
        lambda c: c.move_cursor("c", "a", 5, metadata="m"),
        "PUT /v1/cursors/c/a?partition=0",
        {"frontier": 5, "metadata": "m", "pinned": False},
        NOTHING,
    ),
    (lambda c: c.delete_cursor("c", "a"), "DELETE /v1/cursors/c/a?partition=0", None, NOTHING),
    (lambda c: c.open_application("app"), "POST /v1/applications/app", {}, APPLICATION),
    (lambda c: c.application("app"), "GET /v1/applications/app", None, APPLICATION),
    (
        lambda c: c.open_stage("app", 2, content_type="application/json"),
        "POST /v1/stages",
        {"application": "app", "fence": 2, "ttl_ms": 0, "content_type": "application/json"},
        STAGE,
    ),
    (lambda c: c.drop_stages([3]), "POST /v1/stages/drop", {"stage_ids": [3]}, NOTHING),
    (
        lambda c: c.publish("app", 2, "q", 5, [PublishStage(3, "a", 2)], source_end=b"\x00\x01"),
        "POST /v1/publish",
        {
            "application": "app",
            "fence": 2,
            "query": "q",
            "batch": 5,
            "stages": [{"stage_id": 3, "topic": "a", "count": 2, "partition": 0, "message_ids": False}],
            "source_start": "",
            "source_end": "AAE=",
            "accept_new_query": False,
            "cursors": [],
        },
        COMMITTED,
    ),
    (lambda c: c.health(), "GET /health", None, {"status": "ok", "durability": "none", "version": "1", "entry": 2}),
    (lambda c: c.metrics(), "GET /metrics", None, {}),
    (lambda c: c.openapi(), "GET /v1/openapi.json", None, {"openapi": "3.1.0"}),
]  # fmt: skip


@pytest.mark.parametrize(("call", "target", "body", "reply"), PATHS, ids=[path[1] for path in PATHS])
def test_a_call_is_its_path_and_its_members(call: Call, target: str, body: object, reply: object) -> None:
    _, (request,) = calling(lambda request: reply if isinstance(reply, bytes) else json_answer(reply), call)
    query = "&".join(f"{name}={value}" for name, value in request.query.items())
    assert f"{request.method} {request.path}" + (f"?{query}" if query else "") == target
    assert (msgspec.json.decode(request.body) if request.body else None) == body


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.receipt("a", "m"),
        lambda c: c.producer_info("a", "p"),
        lambda c: c.cursor("c", "a"),
        lambda c: c.application("x"),
        lambda c: c.delete_cursor("c", "a"),
    ],
)
def test_what_may_not_exist_is_none_if_our_server_says_so(call: Call) -> None:
    result, _ = calling(lambda request: problem(404, "not_found"), call)
    assert result is None
    with pytest.raises(NotFound):
        calling(lambda request: answer(404), call)


def test_a_missing_topic_is_always_an_error() -> None:
    with pytest.raises(NotFound):
        calling(lambda request: problem(404, "topic_missing"), lambda client: client.receipt("a", "m"))


def test_stages_take_raw_batches_at_a_count() -> None:
    _, (request,) = calling(lambda request: json_answer(STAGE), lambda client: client.stage_records(3, 0, [b"a", b"b"]))
    assert (request.path, request.query) == ("/v1/stages/3", {"at": "0"})
    assert request.headers["content-type"] == "application/vnd.oncelog.batches"


# --- commits -----------------------------------------------------------------------------------------------------


def test_a_commit_says_everything_by_the_names_of_the_protocol() -> None:
    async def call(client: AsyncClient) -> object:
        return await client.commit(
            [
                CommitAppend("a", [{"n": 1}, "text", b"\x00\x01"], message_id="m"),
                CommitAppend(
                    "b", [CommitRecord(7, key=b"\x00", headers={"h": "v", "n": None}, timestamp_ms=5)], partition=2
                ),
            ],
            cursors=[CursorMove("c", "a", 42)],
            conditions=[
                ExpectedTail("a", 41),
                StreamNew("x"),
                CursorEquals("c", "a", 40),
                IdKnown("a", "m0"),
                EpochEquals("a", "http:p", 1),
            ],
            producer=CommitProducer("shop", 1, 12),
        )

    result, (request,) = calling(lambda request: json_answer(COMMITTED), call)
    assert result.outcome[0].next == 2  # type: ignore[attr-defined]
    assert msgspec.json.decode(request.body) == {
        "appends": [
            {
                "topic": "a",
                "partition": 0,
                "message_id": "m",
                "records": [{"json": {"n": 1}}, {"value": "text"}, {"base64": "AAE="}],
            },
            {
                "topic": "b",
                "partition": 2,
                "records": [
                    {"json": 7, "key": {"base64": "AA=="}, "headers": {"h": "v", "n": None}, "timestamp_ms": 5}
                ],
            },
        ],
        "cursors": [{"name": "c", "topic": "a", "frontier": 42, "partition": 0, "metadata": "", "pinned": False}],
        "conditions": [
            {"kind": "expected_tail", "topic": "a", "tail": 41, "partition": 0},
            {"kind": "stream_new", "topic": "x", "partition": 0},
            {"kind": "cursor_equals", "name": "c", "topic": "a", "frontier": 40, "partition": 0},
            {"kind": "id", "topic": "a", "message_id": "m0", "present": True, "partition": 0},
            {"kind": "epoch_equals", "topic": "a", "producer": "http:p", "epoch": 1, "partition": 0},
        ],
        "producer": {"name": "shop", "epoch": 1, "sequence": 12},
    }  # fmt: skip


def test_a_commit_without_a_claim_gets_an_id_and_keeps_it_over_retries() -> None:
    lost = iter([CUT, CUT])
    _, requests = calling(
        lambda request: next(lost, json_answer(COMMITTED)), lambda client: client.commit([CommitAppend("a", [1])])
    )
    ids = {msgspec.json.decode(request.body)["commit_id"] for request in requests}
    assert (len(requests), len(ids), ids.pop() != "") == (3, 1, True)
