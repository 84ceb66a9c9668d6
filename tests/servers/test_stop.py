"""Stopping: what was accepted is answered, what was confirmed is there, nobody waits for ever."""

import signal
import threading
import time
from pathlib import Path

import pytest

from tests.servers.process import process
from tests.servers.running import Running, running
from tests.servers.talking import Client, Headers, request

TYPE = {"Content-Type": "text/plain"}


class Writer(threading.Thread):
    """A client that writes one numbered line after another, several in flight, until it is cut off."""

    IN_FLIGHT = 16

    def __init__(self, port: int, name: str) -> None:
        super().__init__(name=name)
        self.client = Client(port)
        self.confirmed = 0
        self.going = threading.Event()
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            self._write()
        except (ConnectionError, ValueError) as _cut:
            pass
        except AssertionError as error:
            # An answer that ends in the middle of its head is no answer.
            if str(error).partition("\n")[0] != "b''":
                self.failed = error
        finally:
            self.client.close()

    def _write(self) -> None:
        sent = 0
        while True:
            while sent - self.confirmed < self.IN_FLIGHT:
                line = f"{self.name}:{sent}\n".encode()
                headers: Headers = {"Producer-Id": self.name, "Producer-Epoch": 0, "Producer-Seq": sent}
                self.client.send(request("POST", "/v1/stream/lines", line, headers))
                sent += 1
            assert self.client.answer().status == 200
            self.confirmed += 1
            if self.confirmed > 50:
                self.going.set()


def test_server_that_was_told_to_stay_does_not_end_with_its_terminal() -> None:
    with process(nohup=True, in_memory=True) as server:
        server.tell_to_stop(signal.SIGHUP)
        assert server.ask("GET", "/health").status == 200
        server.tell_to_stop()
        assert server.ended() == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_loses_nothing_that_was_confirmed_and_ends_with_0(tmp_path: Path, number: signal.Signals) -> None:
    with process(data=str(tmp_path / "log")) as server:
        assert server.ask("PUT", "/v1/stream/lines", headers=TYPE).status == 201
        writers = [Writer(server.port, f"w{number}") for number in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            assert writer.going.wait(30)
        server.tell_to_stop(number)
        assert server.ended() == (0, "")
        for writer in writers:
            writer.join(30)
            assert writer.failed is None
    with running(tmp_path / "log") as after:
        found: dict[str, list[int]] = {writer.name: [] for writer in writers}
        offset = "-1"
        while True:
            answer = after.ask("GET", f"/v1/stream/lines?offset={offset}")
            for line in answer.body.decode().splitlines():
                name, _, sequence = line.partition(":")
                found[name].append(int(sequence))
            offset = answer.headers["stream-next-offset"]
            if "stream-up-to-date" in answer.headers:
                break
        for writer in writers:
            there = found[writer.name]
            assert there == list(range(len(there))), "exactly once, in order"
            assert writer.confirmed <= len(there) <= writer.confirmed + Writer.IN_FLIGHT


def test_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with process(data=str(tmp_path / "log"), http__stop_ms=60_000) as server:
        server.ask("PUT", "/v1/stream/a", headers=TYPE)
        with Client(server.port) as client:
            # A request that never ends keeps nobody; one that waits for its turn keeps the first stop busy.
            client.send(request("GET", "/v1/stream/a?offset=now&live=sse"))
            assert client.head().status == 200
            server.tell_to_stop()
            server.tell_to_stop()
            code, errors = server.ended()
        assert code in (0, -signal.SIGTERM), errors


# --- what is in line when it stops ---------------------------------------------------------------------------------


@pytest.fixture
def path(topic: str) -> str:
    return f"/v1/stream/{topic}"


def stopped(server: Running) -> float:
    """Seconds until it has stopped."""
    began = time.monotonic()
    server.stop()
    return time.monotonic() - began


def test_long_poll_and_event_stream_end_when_the_server_stops(path: str) -> None:
    with running(stop_ms=20_000) as server, server.client() as poll, server.client() as events:
        server.ask("PUT", path, headers=TYPE)
        poll.send(request("GET", f"{path}?offset=now&live=long-poll"))
        events.send(request("GET", f"{path}?offset=now&live=sse"))
        assert events.head().status == 200
        assert b"upToDate" in events.chunk()
        server.until(lambda: sum(map(len, server.engine.follow._waiters.values())) == 2)
        server.begin_stop()
        answer = poll.answer()
        assert (answer.status, answer.headers["connection"]) == (204, "close")
        assert events.chunk() == b"", "the last chunk: the client knows that it has everything"
        assert poll.is_cut
        assert events.is_cut
        assert stopped(server) < 10


@pytest.mark.parametrize("live", ["long-poll", "sse"])
@pytest.mark.parametrize("count", [1, 3])
def test_live_reads_in_line_behind_a_write_do_not_hold_up_the_stop(path: str, live: str, count: int) -> None:
    """They begin when it is their turn, and by then there is nothing left to wait for."""
    with running(stop_ms=5_000) as server, server.client() as client:
        server.ask("PUT", path, headers=TYPE)
        with server.slow_disk():
            client.send(request("POST", path, b"x") + request("GET", f"{path}?offset=1&live={live}") * count)
            server.until(lambda: any(len(connection.slots) == 1 + count for connection in server.server.connections))
            server.begin_stop()
            server.until(lambda: server.server.listener.is_stopping)
        assert client.answer().next_offset == 1
        for _ in range(count):
            assert client.answer().status == (200 if live == "sse" else 204)
        assert client.is_cut
        assert stopped(server) < 4


def test_write_is_answered_however_long_the_disk_takes(path: str) -> None:
    with running(stop_ms=20_000) as server, server.client() as client:
        server.ask("PUT", path, headers=TYPE)
        with server.slow_disk():
            client.send(request("POST", path, b"x"))
            server.until(lambda: any(connection.slots for connection in server.server.connections))
            server.begin_stop()
            server.until(lambda: server.server.listener.is_stopping)
        answer = client.answer()
        assert (answer.next_offset, answer.headers["connection"]) == (1, "close")


def test_nothing_is_confirmed_before_it_is_durable(path: str) -> None:
    with running() as server, server.client() as client, server.client() as reader:
        server.ask("PUT", path, headers=TYPE)
        reader.send(request("GET", f"{path}?offset=0&live=long-poll"))
        server.until(lambda: bool(server.engine.follow._waiters))
        with server.slow_disk():
            client.send(request("POST", path, b"x"))
            server.until(lambda: any(connection.slots for connection in server.server.connections))
            assert server.ask("GET", path).body == b""
            assert server.ask("HEAD", path).next_offset == 0
            assert server.waiters() == 1
        assert client.answer().next_offset == 1
        assert reader.answer().body == b"x"


def test_held_request_is_told_to_come_back_when_the_server_stops(path: str) -> None:
    with running(early_hold_ms=60_000) as server, server.client() as client:
        server.ask("PUT", path, headers=TYPE)
        client.send(request("POST", path, b"x", {"Producer-Id": "p", "Producer-Epoch": 0, "Producer-Seq": 2}))
        server.until(lambda: bool(server.server.early.held))
        server.begin_stop()
        answer = client.answer()
        assert (answer.status, answer.code, answer.headers["connection"]) == (503, "stopping", "close")
        assert answer.json["retryable"]
        assert stopped(server) < 10


def test_half_a_request_is_dropped_when_the_server_stops(path: str) -> None:
    with running() as server, server.client() as client:
        server.ask("PUT", path, headers=TYPE)
        client.send(request("POST", path, b"x" * 100)[:-1])
        server.until(lambda: any(connection.request_at for connection in server.server.connections))
        server.begin_stop()
        assert client.is_cut
        assert stopped(server) < 10


def test_client_that_never_reads_is_cut_when_the_server_stops(path: str) -> None:
    with running(stop_ms=200) as server, server.client(receive_bytes=4096) as client:
        server.ask("PUT", path, headers=TYPE)
        for _ in range(4):
            server.ask("POST", path, b"x" * 1_000_000)
        client.send(request("GET", path) * 20)
        server.until(lambda: any(connection.is_stalled for connection in server.server.connections))
        assert stopped(server) < 10


def test_nobody_can_connect_while_the_server_stops(path: str) -> None:
    with running(stop_ms=20_000) as server, server.client() as client:
        assert client.ask("GET", "/health").status == 200
        server.begin_stop()
        assert client.is_cut
        server._thread.join(30)
        with pytest.raises(ConnectionRefusedError):
            server.client()


def test_writes_in_flight_are_answered_when_the_server_stops(tmp_path: Path, path: str) -> None:
    count = 20
    with running(tmp_path, stop_ms=20_000) as server, server.client() as client:
        server.ask("PUT", path, headers=TYPE)
        with server.slow_disk():
            client.send(request("POST", path, b"x") * count)
            server.until(lambda: any(len(connection.slots) == count for connection in server.server.connections))
            server.begin_stop()
            server.until(lambda: server.server.listener.is_stopping)
        answers = [client.answer() for _ in range(count)]
        assert [answer.next_offset for answer in answers] == list(range(1, count + 1))
        assert [answer.headers.get("connection") for answer in answers] == [None] * (count - 1) + ["close"]
        assert client.is_cut
    with running(tmp_path) as server:
        assert server.ask("GET", path).body == b"x" * count, "what was confirmed, and nothing else"


def test_restart_on_the_same_directory_has_everything(tmp_path: Path, path: str) -> None:
    for round_ in range(3):
        with running(tmp_path) as server:
            server.ask("PUT", path, headers=TYPE)
            assert server.ask("POST", path, b"%d" % round_).next_offset == round_ + 1
            assert server.ask("GET", path).body == b"012"[: round_ + 1]
