"""How a call is attempted: retries and pauses, its time, closing under way, and answers of somebody else."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from oncelog.client import (
    AnswerUnreadable,
    AsyncClient,
    Client,
    ClientError,
    CommitAppend,
    CommitProducer,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    Unreachable,
    calls,
    packing,
)
from oncelog.client.connection import Connection, parse_address
from oncelog.client.errors import ConnectionLost, Refused
from oncelog.client.producer import AsyncIdempotentProducer
from oncelog.client.stream import AsyncStream
from tests.client.peer import CUT, FakeLog, Peer, Reply, Request, answer, calling, json_answer, problem, run


async def hold(_request: Request) -> Reply:
    """Never answers."""
    await asyncio.Event().wait()
    return CUT


# --- retries -----------------------------------------------------------------------------------------------------


def test_a_busy_server_is_asked_again_after_the_pause_it_names() -> None:
    answers = iter([problem(503, "overloaded", retryable=True), problem(507, "no_room", retryable=True)])
    health = json_answer({"status": "ok", "durability": "fdatasync", "version": "1", "entry": 7})
    result, requests = calling(lambda request: next(answers, health), lambda client: client.health())
    assert len(requests) == 3
    assert result.entry == 7  # type: ignore[attr-defined]


def test_who_has_somebody_waiting_is_told_what_each_attempt_came_to() -> None:
    causes: list[ClientError] = []
    no_room = problem(507, "no_room", retryable=True)

    async def main() -> None:
        answers = iter([no_room, CUT, json_answer({}), no_room, CUT, answer(400)])
        async with Peer(lambda request: next(answers)) as peer:
            timeouts = calls.Timeouts(connect_s=5, silence_s=5, request_s=5)
            caller = calls.Caller(parse_address(peer.url), {}, timeouts, causes.append)
            await caller.call("GET", "/")
            producer = AsyncIdempotentProducer(AsyncStream(caller, "t"), producer_id="p")
            await producer.append("a")
            with pytest.raises(Refused):
                await producer.close()
            await caller.close()

    run(main())
    assert [str(cause) for cause in causes[:2]] == [
        "507 no_room: as the script says",
        "the server closed the connection",
    ]
    assert [type(cause) for cause in causes] == [type(causes[0]), ConnectionLost] * 2


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


def test_headers_of_a_call_come_before_those_of_the_client_in_any_spelling() -> None:
    async def main() -> None:
        given = {"content-type": "of/client", "HOST": "virtual", "X-Other": "1"}
        async with Peer(FakeLog()) as peer, AsyncClient(peer.url, headers=given) as client:
            await client.append("a", 1)
            headers = peer.requests[0].headers
            assert headers["content-type"] == "application/json"
            assert (headers["host"], headers["x-other"]) == ("virtual", "1")
            assert peer.requests[0].header_count == len(headers), "each of them once"

    run(main())


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "Connection", "Expect"])
def test_headers_about_the_message_are_the_clients_own(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        AsyncClient("http://h:1", headers={name: "1"})


FOREIGN_404S = [
    answer(404, b"<html>none</html>", Content_Type="text/html"),
    answer(404, b'{"message":"no route"}', Content_Type="application/json"),
    answer(404),
]


@pytest.mark.parametrize("foreign", FOREIGN_404S)
@pytest.mark.parametrize("lost", [CUT, answer(524)])
def test_a_delete_is_not_done_because_somebody_else_says_404(lost: bytes, foreign: bytes) -> None:
    replies = iter([lost])

    async def once(client: AsyncClient) -> object:
        with pytest.raises(NotFound) as caught:
            await client.delete_topic("a")
        assert caught.value.maybe_done
        return None

    calling(lambda request: next(replies, foreign), once)


@pytest.mark.parametrize("headers", [{"Content_Type": "text/html"}, {"Content_Type": "text/plain"}, {}])
def test_a_page_that_is_not_found_is_no_missing_stream(headers: dict[str, str]) -> None:
    async def once(client: AsyncClient) -> object:
        with pytest.raises(NotFound) as caught:
            await client.stream("a").head()
        assert caught.value.code == "http_404"
        return None

    calling(lambda request: answer(404, **headers), once)


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


@pytest.mark.parametrize("status", [500, 502, 503, 504, 520, 524, 599])
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


@pytest.mark.parametrize(
    "reply",
    [REDIRECT, PAGE, answer(202), answer(304), answer(501), answer(505)],
    ids=["redirect", "page", "202", "304", "501", "505"],
)
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


# --- a write of unknown outcome says which one it is ---------------------------------------------------------------


def test_an_append_of_unknown_outcome_names_its_id_and_with_it_is_not_doubled() -> None:
    log = FakeLog()
    mute = [True]

    def script(request: Request) -> Reply:
        written = log(request)
        return CUT if mute[0] else written

    async def call(client: AsyncClient) -> object:
        with pytest.raises(OutcomeUnknown) as caught:
            await client.append("a/b", {"n": 1}, key="k", partition=3)
        error = caught.value
        assert (error.topic, error.partition, error.commit_id) == ("a/b", 3, None)
        assert error.message_id is not None
        assert f"receipt('a/b', '{error.message_id}', partition=3)" in str(error)
        mute[0] = False
        result = await client.append("a/b", {"n": 1}, key="k", partition=3, message_id=error.message_id)
        assert (result.duplicate, result.message_id) == (True, error.message_id)
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "now_ms", lambda: 5)  # the small log compares times too; the server does not
        calling(script, call)
    assert len(log.values("a/b", 3)) == 1


def test_a_commit_of_unknown_outcome_names_its_id() -> None:
    async def call(client: AsyncClient) -> object:
        with pytest.raises(OutcomeUnknown) as caught:
            await client.commit([CommitAppend("a", [1])])
        error = caught.value
        assert error.commit_id is not None
        assert (error.topic, error.partition, error.message_id) == (None, None, None)
        assert f"commit_id='{error.commit_id}'" in str(error)
        with pytest.raises(OutcomeUnknown) as again:
            await client.commit([CommitAppend("a", [1])], commit_id=error.commit_id)
        assert again.value.commit_id == error.commit_id
        with pytest.raises(OutcomeUnknown, match=r"commit_producer_info\('p'\) .* sequence 7") as numbered:
            await client.commit([CommitAppend("a", [1])], producer=CommitProducer("p", 0, 7))
        assert (numbered.value.commit_id, numbered.value.producer_id, numbered.value.sequence) == (None, "p", 7)
        return error.commit_id

    commit_id, requests = calling(lambda request: CUT, call)
    sent = [msgspec.json.decode(request.body).get("commit_id") for request in requests]
    assert set(sent) == {commit_id, None}


@pytest.mark.parametrize(
    ("replies", "kind"),
    [
        ([answer(302, Location="http://elsewhere/")], AnswerUnreadable),
        ([answer(200, b"<html>")], AnswerUnreadable),
        ([answer(501, b"<html>")], AnswerUnreadable),
        ([CUT, problem(404, "topic_missing")], NotFound),  # written, perhaps, and deleted since
    ],
)
def test_whatever_leaves_a_write_open_names_it(replies: list[Reply], kind: type[ClientError]) -> None:
    async def main() -> None:
        waiting = iter(replies)
        async with Peer(lambda request: next(waiting)) as peer, AsyncClient(peer.url) as client:
            with pytest.raises(kind, match=r"receipt\('a', 'mine', partition=0\)") as caught:
                await client.append("a", 1, message_id="mine")
            assert (caught.value.message_id, caught.value.topic, caught.value.partition) == ("mine", "a", 0)

    run(main())


def test_an_error_after_which_nothing_is_open_names_no_write() -> None:
    async def call(client: AsyncClient) -> object:
        with pytest.raises(NotFound) as caught:
            await client.append("a", 1, message_id="mine")
        assert (caught.value.message_id, caught.value.topic) == (None, None)
        assert "receipt" not in str(caught.value)
        return None

    calling(lambda request: problem(404, "topic_missing"), call)


def test_an_append_that_pauses_when_the_client_closes_still_names_its_id() -> None:
    async def main() -> None:
        async with Peer(lambda request: answer(503, Retry_After=20)) as peer:
            client = await asyncio.to_thread(Client, peer.url)
            under_way = asyncio.create_task(asyncio.to_thread(client.append, "a", 1, message_id="mine"))
            await peer.came(1)
            # Its answer has been read when a later call on the same connection is answered.
            peer.script = lambda request: json_answer(
                {"status": "ok", "durability": "fdatasync", "version": "1", "entry": 7}
            )
            await asyncio.to_thread(client.health)
            await asyncio.to_thread(client.close)
            with pytest.raises(OutcomeUnknown, match="the client is closed") as caught:
                await under_way
            assert caught.value.message_id == "mine"

    run(main())
