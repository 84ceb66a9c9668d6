"""How the server ends a connection: whatever the client is still sending, it gets to read all that it was answered."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from unittest import mock

import pytest

from oncelog import limits
from oncelog.limits import KIB, MIB
from oncelog.servers import ending
from tests.servers.running import Running, running
from tests.servers.talking import PATIENCE_S, Client, request
from tests.servers.test_stop import TYPE, stopped

MUCH: Final = 16 * MIB
"""More than the kernel holds for a server that does not read."""


@pytest.fixture
def path(topic: str) -> str:
    return f"/v1/stream/{topic}"


class Sender(threading.Thread):
    """Sends the same bytes again and again, whatever comes, until it is cut off or has enough."""

    def __init__(self, client: Client, data: bytes) -> None:
        super().__init__(name="sender", daemon=True)
        self._client = client
        self._data = data
        self._enough = threading.Event()
        self.was_cut = False
        self.start()

    def run(self) -> None:
        try:
            while not self._enough.is_set():
                self._client.send(self._data)
        except ConnectionError:
            self.was_cut = True

    def ends(self) -> None:
        self._enough.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()


@contextlib.contextmanager
def lingering(ms: int) -> Iterator[None]:
    """For how long a connection is read on."""
    with mock.patch.object(limits, "LINGER_MS", ms):
        yield


# --- a stop --------------------------------------------------------------------------------------------------------


def is_stopping(server: Running) -> bool:
    return server.server.listener.is_stopping


def test_all_that_was_stored_is_answered_to_clients_that_send_on_through_the_stop(tmp_path: Path, topic: str) -> None:
    """They read late and in small pieces, so that most answers are still on the server's side when it stops."""
    paths = [f"/v1/stream/{topic}-{number}" for number in range(3)]
    with running(tmp_path, stop_ms=20_000) as server:
        for path in paths:
            server.ask("PUT", path, headers=TYPE)
        clients = [server.client(receive_bytes=4096) for _ in paths]
        senders = [
            Sender(client, request("POST", path, b"x") * 1_000) for client, path in zip(clients, paths, strict=True)
        ]
        server.until(lambda: server.server.counts.confirms > 10_000)
        server.begin_stop()
        server.until(lambda: is_stopping(server))
        answered = [client.drain().count(b"HTTP/1.1 204 ") for client in clients]
        for client, sender in zip(clients, senders, strict=True):
            sender.ends()
            client.close()
    with running(tmp_path) as server:
        assert [server.tail(path.removeprefix("/v1/stream/")) for path in paths] == answered


def test_large_body_that_comes_in_during_the_stop_is_thrown_away_and_the_write_before_it_answered(
    tmp_path: Path, path: str
) -> None:
    with running(tmp_path, stop_ms=20_000) as server, server.client() as client:
        server.ask("PUT", path, headers=TYPE)
        body = request("POST", path, b"y" * 3 * MIB)
        with server.slow_disk():
            client.send(request("POST", path, b"x") + body[: 1 * MIB])
            server.until(lambda: server.server.body_budget.bytes_used > 1 * MIB)
            server.begin_stop()
            server.until(lambda: is_stopping(server))
            client.send(body[1 * MIB :] + body * 5)
        assert client.answer().next_offset == 1  # on a busy machine it may be out before the stop has begun
        assert client.drain() == b""
        server.stop()
        assert server.server.body_budget.bytes_used == 0
    with running(tmp_path) as server:
        assert server.ask("GET", path).body == b"x"


def test_client_that_sends_all_before_it_reads_gets_its_large_answers_in_the_stop(path: str) -> None:
    """It cannot read before the server has taken what it sends; the server says no more before it reads."""
    with running(stop_ms=20_000) as server, server.client(receive_bytes=64 * KIB) as client:
        server.ask("PUT", path, headers=TYPE)
        server.ask("POST", path, b"x" * MIB)
        client.send(request("GET", path) * 16)
        server.until(lambda: any(connection.is_stalled for connection in server.server.connections))
        sender = threading.Thread(target=client.send, args=(b"x" * MUCH,))
        sender.start()
        server.begin_stop()
        sender.join(PATIENCE_S)
        assert not sender.is_alive()
        for _ in range(16):
            assert client.answer().body == b"x" * MIB
        assert client.drain() == b""


def test_idle_connections_are_closed_at_once_when_the_server_stops(path: str) -> None:
    with running(stop_ms=20_000) as server:
        clients = [server.client() for _ in range(20)]
        for client in clients:
            assert client.ask("GET", "/health").status == 200
        connections = server.on_loop(lambda: list(server.server.connections))
        server.until(lambda: all(ending._has_all(connection.transport) for connection in connections))

        def finish() -> list[bool]:
            server.server.listener.is_stopping = True
            for connection in connections:
                connection.active_at -= 2 * ending.QUIET_MS / 1000
                connection.finish()
            return [connection.transport.is_closing() for connection in connections]

        assert server.on_loop(finish) == [True] * 20
        for client in clients:
            client.close()
        # A look at thousands of connections may come to one that has gone since it began.
        server.until(lambda: not server.server.connections)
        server.on_loop(lambda: server.server.listener._look_at(iter(connections)))


def test_clients_that_never_end_their_side_are_not_waited_for_when_they_are_silent(path: str) -> None:
    with running(stop_ms=20_000) as server, server.client() as idle, server.client() as waits:
        server.ask("PUT", path, headers=TYPE)
        assert idle.ask("GET", "/health").status == 200
        waits.send(request("GET", f"{path}?offset=now&live=long-poll"))
        server.until(lambda: sum(map(len, server.engine.follow._waiters.values())) == 1)
        assert stopped(server) < 5
        assert waits.answer().status == 204
        assert waits.drain() == idle.drain() == b""


def test_client_that_never_stops_sending_holds_up_the_stop_for_no_longer_than_it_may(path: str) -> None:
    with running(stop_ms=300) as server, server.client() as client:
        server.ask("PUT", path, headers=TYPE)
        sender = Sender(client, request("POST", path, b"x") * 1_000)
        server.until(lambda: server.server.counts.confirms > 1_000)
        assert stopped(server) < 10
        sender.join(PATIENCE_S)
        assert sender.was_cut


# --- any other end -------------------------------------------------------------------------------------------------

GET = b"GET /health HTTP/1.%d\r\nHost: h\r\n%b\r\n"


@pytest.fixture(scope="module")
def tight() -> Iterator[Running]:
    """Looks often, and is quick to call a client slow."""
    with running(sweep_s=0.02, header_deadline_ms=100) as server:
        yield server


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (
            b"POST /v1/stream/a HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
            % (limits.HTTP_DISCARD_BYTES_MAX + 1),
            413,
        ),
        (b"POST /v1/stream/a HTTP/1.1\r\nHost: h\r\nX-Endless: ", 431),
        (b"POST /v1/stream/a HTTP/1.1\r\nHost: h\r\nContent-Length: 17000000\r\nExpect: 200-ok\r\n\r\n", 417),
        (b"no HTTP\r\n\r\n", 400),
        (GET % (1, b"Connection: close\r\n"), 200),
        (GET % (0, b""), 200),
    ],
)
def test_client_that_is_still_sending_reads_the_whole_last_answer(tight: Running, sent: bytes, status: int) -> None:
    with tight.client() as client:
        client.send(sent + b"x" * MUCH)
        answer = client.answer()
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert answer.body
        assert client.drain() == b"", "an end, and no reset"


def test_client_that_is_too_slow_and_then_sends_much_reads_that_it_was(tight: Running) -> None:
    tight.until(lambda: not tight.server.connections)  # those of tests before are gone: the one below is its own
    with lingering(20_000), tight.client() as client:
        client.send(b"GET /health HTTP/1.1\r\nHost: h\r\nX: ")
        tight.until(lambda: any(connection._ending is not None for connection in tight.server.connections))
        client.send(b"x" * MUCH)
        assert client.answer().code == "too_slow"
        assert client.drain() == b""


def test_connection_is_gone_as_soon_as_both_sides_have_ended(tight: Running) -> None:
    tight.until(lambda: not tight.server.connections)
    with lingering(3_600_000):
        for head in (b"Connection: close\r\n", b""):
            with tight.client() as client:
                client.send(GET % (1, head))
                if not head:
                    client.socket.shutdown(socket.SHUT_WR)
                assert client.answer().status == 200
                assert client.drain() == b""
                if head:
                    assert len(tight.server.connections) == 1
                    client.socket.shutdown(socket.SHUT_WR)
                tight.until(lambda: not tight.server.connections)


@pytest.mark.parametrize("sends_on", [False, True])
def test_client_that_does_not_end_its_side_is_closed_before_long(tight: Running, path: str, sends_on: bool) -> None:
    tight.ask("PUT", path, headers=TYPE)
    with lingering(100), tight.client() as client:
        client.send(request("POST", path, b"x", {"Connection": "close"}))
        sender = Sender(client, request("POST", path, b"y") * 100) if sends_on else None
        assert client.answer().next_offset == 1
        tight.until(lambda: not tight.server.connections)
        if sender is not None:
            sender.join(PATIENCE_S)
            assert sender.was_cut
    assert tight.ask("GET", path).body == b"x", "what stands behind the last request is not carried out"


def test_client_that_resets_while_its_connection_ends_does_no_harm(tight: Running) -> None:
    for _ in range(20):
        client = tight.client()
        client.send(b"no HTTP\r\n\r\n" + b"x" * MIB)
        client.reset()
    tight.until(lambda: not tight.server.connections)
    assert tight.ask("GET", "/health").status == 200


def test_nothing_is_said_behind_an_answer_that_turned_out_to_be_the_last(tight: Running, path: str) -> None:
    """Events go bare to HTTP/1.0, so the connection ends with them, although the client wanted to keep it."""
    tight.ask("PUT", path, b"x", {**TYPE, "Stream-Closed": "true"})
    events = f"GET {path}?offset=-1&live=sse HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".encode()
    health = GET % (0, b"Connection: keep-alive\r\n")
    expects = request("POST", path, b"y", {"Expect": "100-continue"})[:-1]
    for before in (b"", health):
        with tight.client() as client:
            client.send(before + events + health * 3 + expects)
            found = client.drain()
            assert found.count(b"HTTP/1.1 200 ") == (2 if before else 1)
            assert found.endswith(b"\n\n")
