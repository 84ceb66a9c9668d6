"""Pipelining: answers belong to requests by order, and the end of a connection is told to everyone who waits."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable
from functools import partial

import pytest

from oncelog.client.connection import Address, Connection, connect, parse_address
from oncelog.client.errors import ConnectionLost
from oncelog.client.wire import Answer, Head
from tests.client.peer import CUT, Heard, Peer, Reply, Request, answer, run


def request(path: str) -> bytes:
    return Head("GET", path, "h", {}).bodiless()


async def connected(peer: Peer) -> Connection:
    return await connect(parse_address(peer.url), 5)


def test_answers_come_to_their_requests_in_order() -> None:
    async def main() -> None:
        async with Peer(lambda request: answer(200, request.path.encode())) as peer:
            connection = await connected(peer)
            answers = await asyncio.gather(*(connection.request(request(f"/{n}"), 5) for n in range(50)))
            assert [answer.body for answer in answers] == [b"/%d" % n for n in range(50)]
            assert peer.connection_count == 1
            await connection.close()

    run(main())


def test_requests_leave_before_the_first_is_answered() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def hold(request: Request) -> Reply:
            await gate.wait()
            return answer(200)

        async with Peer(hold) as peer:
            connection = await connected(peer)
            waiting = [asyncio.create_task(connection.request(request(f"/{n}"), 5)) for n in range(5)]
            await peer.came(5)
            gate.set()
            await asyncio.gather(*waiting)
            await connection.close()

    run(main())


def test_every_unanswered_request_learns_of_the_end_in_order() -> None:
    async def main() -> None:
        heard = Heard()

        def script(request: Request) -> Reply:
            return answer(200) if request.path == "/0" else CUT

        async with Peer(script) as peer:
            connection = await connected(peer)
            for number in range(4):
                connection.send(request(f"/{number}"), partial(heard, number), 5)
            await heard.until(4)
        assert [number for number, _ in heard] == [0, 1, 2, 3]
        assert isinstance(heard[0][1], Answer)
        for _, got in heard[1:]:
            assert isinstance(got, ConnectionLost)
            assert got.sent
        assert not connection.open

    run(main())


def test_a_request_that_never_left_says_so() -> None:
    async def main() -> None:
        heard = Heard()
        async with Peer(lambda request: answer(200)) as peer:
            connection = await connected(peer)
            connection.send(request("/"), heard, 5)
            await connection.close()
        (lost,) = heard
        assert isinstance(lost, ConnectionLost)
        assert not lost.sent

    run(main())


def test_silence_ends_the_connection() -> None:
    async def main() -> None:
        never = asyncio.Event()

        async def hold(request: Request) -> Reply:
            await never.wait()
            return CUT

        async with Peer(hold) as peer:
            connection = await connected(peer)
            with pytest.raises(ConnectionLost, match="silent"):
                await connection.request(request("/"), 0.02)

    run(main())


def test_silence_is_counted_from_the_request_not_from_the_answer_before() -> None:
    async def main() -> None:
        async with Peer(lambda request: answer(200)) as peer:
            connection = await connected(peer)
            loop = asyncio.get_running_loop()
            await connection.request(request("/"), 0.05)
            idle = loop.create_future()
            loop.call_later(0.04, idle.set_result, None)
            await idle
            # The watch of the first request fires while this one is young.
            gate = asyncio.Event()
            loop.call_later(0.03, gate.set)

            def late(request: Request) -> Awaitable[Reply]:
                async def reply() -> Reply:
                    await gate.wait()
                    return answer(200)

                return reply()

            peer.script = late
            await connection.request(request("/"), 5)
            await connection.close()

    run(main())


def test_a_request_that_could_wait_longer_leaves_no_longer_patience_behind() -> None:
    async def main() -> None:
        never = asyncio.Event()

        async def hold_the_second(request: Request) -> Reply:
            if request.path == "/second":
                await never.wait()
            return answer(200)

        async with Peer(hold_the_second) as peer:
            connection = await connected(peer)
            await connection.request(request("/first"), 3_600)
            with pytest.raises(ConnectionLost, match=r"silent for 0\.02 s"):
                async with asyncio.timeout(5):
                    await connection.request(request("/second"), 0.02)

    run(main())


def test_who_stops_waiting_drops_the_answer_and_no_other() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def hold(request: Request) -> Reply:
            await gate.wait()
            return answer(200, request.path.encode())

        async with Peer(hold) as peer:
            connection = await connected(peer)
            first = asyncio.create_task(connection.request(request("/first"), 5))
            second = asyncio.create_task(connection.request(request("/second"), 5))
            await peer.came(2)
            first.cancel()
            gate.set()
            assert (await second).body == b"/second"
            assert first.cancelled()
            await connection.close()

    run(main())


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (answer(200) + answer(200), "nobody asked"),
        (b"nonsense\r\n\r\n", "cannot be read"),
    ],
)
def test_a_server_out_of_policy_loses_the_connection(reply: bytes, reason: str) -> None:
    async def main() -> None:
        heard = Heard()
        async with Peer(lambda request: reply) as peer:
            connection = await connected(peer)
            connection.send(request("/"), heard, 5)
            await peer.until(lambda: len(peer.requests) == 1 and not peer.sides)
            assert not connection.open
            if reason == "cannot be read":
                assert reason in str(heard[0])

    run(main())


def test_a_server_that_closes_after_an_answer_gets_no_more_requests() -> None:
    async def main() -> None:
        async with Peer(lambda request: answer(200, Connection="close")) as peer:
            connection = await connected(peer)
            assert (await connection.request(request("/"), 5)).status == 200
            with pytest.raises(ConnectionLost):
                await connection.request(request("/"), 5)

    run(main())


def test_no_server_is_a_connection_lost_with_nothing_sent() -> None:
    async def main() -> None:
        peer = Peer(lambda request: answer(200))
        await peer.listen()
        await peer.stop()
        with pytest.raises(ConnectionLost, match="no connection") as caught:
            await connected(peer)
        assert not caught.value.sent

    run(main())


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), [Errno 111] Connect call"),
            "Connection refused",
        ),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "[SSL: WRONG_VERSION_NUMBER] wrong"),
        (OSError("no route"), "no route"),
    ],
)
def test_why_there_is_no_connection_is_said_in_words(
    monkeypatch: pytest.MonkeyPatch, error: OSError, said: str
) -> None:
    async def main() -> None:
        async def fail(*_: object, **__: object) -> object:
            raise error

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fail)
        with pytest.raises(ConnectionLost) as caught:
            await connect(Address("h", 1, None), 5)
        assert str(caught.value).startswith(f"no connection to h:1: {said}")

    run(main())


@pytest.mark.parametrize("url", ["127.0.0.1", "ftp://a", "http://", "http://a/path", "http://a?x=1", "http://u@a"])
def test_an_address_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        parse_address(url)


def test_addresses_are_read() -> None:
    assert parse_address("http://host") == Address("host", 4437, None)
    assert parse_address("127.0.0.1:1") == Address("127.0.0.1", 1, None)
    assert parse_address("[::1]:80") == Address("::1", 80, None)
    assert parse_address("http://[::1]:80/").host_header == "[::1]:80"
    secure = parse_address("https://host")
    assert (secure.port, secure.tls is None) == (443, False)
