"""Records that have long left the page cache are read on a thread: the same answers, whatever happens meanwhile."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from oncelog import limits
from oncelog.engine.reader_thread import HANDED_MAX
from oncelog.limits import KIB
from tests.servers.running import Running, running
from tests.servers.talking import Client, request

TYPE = {"Content-Type": "text/plain"}


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Everything counts as long ago."""
    directory: Path = tmp_path_factory.mktemp("log")
    old = mock.patch.object(limits, "READ_RECENT_BYTES", -1)
    with old, running(directory, long_poll_ms=300, read_bytes_max=2 * KIB) as server:
        yield server


@pytest.fixture
def path(cold: Running, topic: str) -> str:
    path = f"/v1/stream/{topic}"
    with cold.client() as client:
        client.send(request("PUT", path, headers=TYPE))
        client.send(b"".join(request("POST", path, b"%04d" % number * 25) for number in range(100)))
        assert client.answer().status == 201
        for _ in range(100):
            assert client.answer().status == 204
    return path


WHOLE = b"".join(b"%04d" % number * 25 for number in range(100))


def test_catch_up_in_pieces_is_everything(cold: Running, path: str) -> None:
    found, offset = b"", "-1"
    with cold.client() as client:
        while True:
            answer = client.ask("GET", f"{path}?offset={offset}")
            found += answer.body
            offset = answer.headers["stream-next-offset"]
            if "stream-up-to-date" in answer.headers:
                break
    assert found == WHOLE


def test_pipelined_reads_and_writes_are_answered_in_order(cold: Running, path: str) -> None:
    with cold.client() as client:
        client.send((request("GET", f"{path}?offset=0") + request("HEAD", path)) * 50)
        for _ in range(50):
            assert WHOLE.startswith(client.answer().body)
            assert client.answer(head=True).next_offset == 100


def test_live_reads_catch_up(cold: Running, path: str) -> None:
    with cold.client() as client:
        client.send(request("GET", f"{path}?offset=99&live=long-poll") + request("GET", f"{path}?offset=-1&live=sse"))
        assert client.answer().body == b"0099" * 25
        assert client.head().status == 200
        found = b""
        while len(found) < len(WHOLE):
            data, _, control = client.chunk().partition(b"\n\n")
            assert control.startswith(b"event: control")
            found += data.removeprefix(b"event: data\ndata:")
        assert found == WHOLE


@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
@pytest.mark.parametrize("leave", ["close", "reset", "delete"])
def test_what_happens_while_the_thread_reads(cold: Running, path: str, live: str, leave: str) -> None:
    """The thread is held while the client goes, or the stream does."""
    go_on = threading.Event()
    cold.on_loop(lambda: cold.engine.reads.thread.ask(lambda: go_on.wait(30), lambda _: None))
    client = Client(cold.port)
    try:
        client.send(request("GET", f"{path}?offset=0{live}"))
        cold.until(lambda: any(connection.slots for connection in cold.server.connections))
        if leave == "delete":
            assert cold.ask("DELETE", path).status == 204
        elif leave == "reset":
            client.reset()
            cold.until(lambda: not any(connection.slots for connection in cold.server.connections))
        else:
            client.close()
    finally:
        go_on.set()
    if leave == "delete":
        assert client.head().status in (200, 404)
        client.close()
    cold.until(lambda: not cold.server.connections)
    assert cold.waiters() == 0
    assert cold.ask("GET", "/health").status == 200


def hold(cold: Running) -> threading.Event:
    """The thread has its hands full until the event."""
    go_on = threading.Event()

    def fill() -> None:
        for _ in range(HANDED_MAX):
            cold.engine.reads.thread.ask(lambda: go_on.wait(30), lambda _: None)

    cold.on_loop(fill)
    return go_on


@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
def test_reads_of_clients_that_have_gone_are_not_carried_out(cold: Running, path: str, live: str) -> None:
    thread = cold.engine.reads.thread
    go_on = hold(cold)
    try:
        clients = [Client(cold.port) for _ in range(20)]
        for client in clients:
            client.send(request("GET", f"{path}?offset=0{live}"))
        cold.until(lambda: thread.waiting == len(clients))
        for client in clients:
            client.reset()
        cold.until(lambda: thread.waiting == 0)
    finally:
        go_on.set()


def test_clients_that_send_nothing_more_let_others_pass_and_are_answered(cold: Running, path: str) -> None:
    thread = cold.engine.reads.thread
    go_on = hold(cold)
    try:
        silent = [Client(cold.port) for _ in range(20)]
        for client in silent:
            client.send(request("GET", f"{path}?offset=0"))
            client.socket.shutdown(socket.SHUT_WR)
        cold.until(lambda: len(thread._put_off) == len(silent))
        with cold.client() as other:
            other.send(request("GET", f"{path}?offset=0"))
            cold.until(lambda: len(thread._waiting) == 1)
            go_on.set()
            assert other.answer().status == 200
    finally:
        go_on.set()
    for client in silent:
        assert client.answer().status == 200
        client.close()


def test_more_reads_than_may_wait_are_told_to_come_back(cold: Running, path: str) -> None:
    thread = cold.engine.reads.thread
    go_on = hold(cold)
    with mock.patch.object(limits, "READS_WAITING_BYTES_MAX", 1), cold.client() as client:
        try:
            client.send(request("GET", f"{path}?offset=0"))
            cold.until(lambda: thread.waiting == 1)
            refused = cold.ask("GET", f"{path}?offset=1")
            assert (refused.status, refused.code, refused.headers["retry-after"]) == (503, "overloaded", "1")
        finally:
            go_on.set()
        assert client.answer().status == 200


def test_stop_waits_for_a_read_in_progress(tmp_path: Path, topic: str) -> None:
    path = f"/v1/stream/{topic}"
    with (
        mock.patch.object(limits, "READ_RECENT_BYTES", -1),
        running(tmp_path) as server,
        server.client() as client,
    ):
        server.ask("PUT", path, b"x", TYPE)
        go_on = threading.Event()
        server.on_loop(lambda: server.engine.reads.thread.ask(lambda: go_on.wait(30), lambda _: None))
        client.send(request("GET", path))
        server.until(lambda: any(connection.slots for connection in server.server.connections))
        server.begin_stop()
        server.until(lambda: server.server.listener.is_stopping)
        go_on.set()
        assert client.answer().body == b"x"


def test_receipt_asks_the_journal_who_wrote_it(cold: Running, path: str, topic: str) -> None:
    headers = {"Producer-Id": "p", "Producer-Epoch": "2", "Producer-Seq": "0", "Stream-Message-Id": "m"}
    assert cold.ask("POST", path, b"x", headers).status == 200
    with cold.client() as client:
        client.send(request("GET", f"/v1/receipts/{topic}/m") + request("GET", "/health"))
        assert client.answer().json["producer"] == {"name": "http:p", "epoch": 2, "sequence": 0}
        assert client.answer().status == 200
