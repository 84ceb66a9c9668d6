"""A verb that gets no answer says so after a while, once, and with what the last attempt said; else it is silent."""

import contextlib
import http.server
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncelog.cli import exits, patience, remote
from oncelog.cli.append import PIPE_NOTE
from oncelog.client.calls import Timeouts
from tests.cli.running import begun, done, run_here, serving, standing

TOPIC = {"name": "t", "partitions": 1, "content_type": "text/plain"}
NO_ROOM = {"code": "no_room", "detail": "the disk has no room", "hint": "make some", "retryable": True}
CLOSED = {"code": "closed", "detail": "the stream is closed", "retryable": False}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.3)


@pytest.fixture(params=["full", "hanging"])
def full(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that takes no write for a second or so, and then none at all: its disk is full, or it hangs."""
    left, hang = [507] * 7, threading.Event()

    class Full(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if "/producers/" in self.path:
                self._answer(404, {"code": "not_found"})
            else:
                self._answer(200, TOPIC)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if left and request.param == "full":
                self._answer(left.pop(), NO_ROOM)
            else:
                hang.wait(0 if request.param == "full" else 2)
                self._answer(409, CLOSED)

        def _answer(self, status: int, document: dict[str, Any]) -> None:
            body = msgspec.json.encode(document)
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if status == 200 else "application/problem+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the test says what it needs."""

    with standing(Full) as url:
        yield url


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("arguments", "time_s"), [(["v"], 60), (["--producer", "p"], 60), ([], 120)])
def test_write_that_waits_is_told_once_with_the_reason_if_there_is_one(
    request: pytest.FixtureRequest, full: str, arguments: list[str], time_s: int
) -> None:
    result = run_here("append", "t", *arguments, url=full, given=b"" if "v" in arguments else b"one\n")
    assert result.returncode == exits.REFUSED
    waits, ended = result.stderr.decode().splitlines()
    reason = " (507 no_room: the disk has no room (make some))" if "full" in request.node.callspec.id else ""
    assert waits == f"oncelog: no answer from {full} yet{reason}, trying again for up to {time_s} s"
    assert "the stream is closed" in ended


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes a request and never answers."""
    over = threading.Event()

    class Silent(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            over.wait()

        do_POST = do_GET  # noqa: N815

    with standing(Silent) as url:
        yield url
        over.set()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("arguments", [["streams"], ["append", "t", "v"], ["append", "t"], ["read", "t"]])
def test_silence_is_told_before_it_is_given_up(
    silent: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("remote", "read"):
        monkeypatch.setattr(f"oncelog.cli.{module}.TIMEOUTS", Timeouts(connect_s=1, silence_s=2, request_s=1.5))
    result = run_here(*arguments, url=silent)
    assert result.returncode == exits.UNREACHABLE
    waits, ended = result.stderr.decode().splitlines()
    assert waits == f"oncelog: no answer from {silent} yet, trying again for up to 1.5 s"
    assert "no answer" in ended


def test_verb_is_patient_with_a_server_that_starts_again() -> None:
    assert patience.PATIENCE_S >= 2
    assert remote.TIMEOUTS.request_s > 10 * patience.PATIENCE_S


def test_follower_tells_of_a_server_that_is_away_and_goes_on(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    arguments = ("--data", str(tmp_path / "log"), "--http", address)
    with serving(*arguments) as server:
        done("append", "t", "before", "--create", url=server.url)
        follower = begun("read", "t", "--follow", "--count", "2", url=server.url)
        assert follower.stdout is not None
        assert follower.stderr is not None
        assert follower.stdout.readline() == b"before\n"
    try:
        said = follower.stderr.readline().decode()
        assert said.startswith(f"oncelog: no answer from {server.url} yet (")
        assert said.endswith("), trying again for up to 60 s\n")
        with serving(*arguments) as again:
            done("append", "t", "after", url=again.url)
            assert follower.communicate(timeout=60) == (b"after\n", b"")
    finally:
        follower.kill()
        follower.wait()


def test_verb_goes_on_when_nobody_reads_its_notes_any_more(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    arguments = ("--data", str(tmp_path / "log"), "--http", address)
    with serving(*arguments) as server:
        done("append", "t", "v", "--create", url=server.url)
        process = begun("append", "t", "--producer", "p", url=server.url)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == f"{PIPE_NOTE}\n".encode()
    try:
        process.stderr.close()
        process.stdin.write(b"one\ntwo\n")
        process.stdin.close()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(patience.PATIENCE_S + 1)
        with serving(*arguments):
            assert process.stdout.read() == b"2 lines stored at offsets 1 to 2\n"
            assert process.wait(60) == exits.DONE
            process.stdout.close()
    finally:
        process.kill()
        process.wait()


def test_impatient_user_who_interrupts_twice_is_told_what_is_stored_and_no_more() -> None:
    with serving("--in-memory", "--http", "127.0.0.1:0") as server:
        done("append", "t", "v", "--create", url=server.url)
        process = begun("append", "t", url=server.url)
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        done("read", "t", "--follow", "--count", "2", url=server.url)
    with process:
        process.stdin.write(b"two\n")
        process.stdin.flush()
        assert process.stderr.readline().startswith(b"oncelog: no answer from ")
        for _ in range(2):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.send_signal(signal.SIGINT)
                process.wait(1)
        assert process.wait(60) == exits.REFUSED
        # It cannot be known whether the second one got through: who is told that it did not sends it again.
        said = b"oncelog: interrupted; at least 1 line is stored\n"
        assert process.stderr.read() == said
