"""A real server, and the program run against it as a user runs it."""

import contextlib
import http.server
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from typer.testing import CliRunner

from oncelog.cli.main import app

PROGRAM = str(Path(sys.executable).with_name("oncelog"))

READY = re.compile(r"ready http=(?P<address>\S+) (?:\w+=\S+ )*durability=(?P<durability>\S+) data=(?P<data>.+)\n")


class Server:
    """`oncelog serve`, started and ready."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--any-port", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = READY.fullmatch(line)
        if match is None:
            self.process.kill()
            raise AssertionError(f"not ready: {line!r} {self.process.communicate()[1]}")
        self.address = match["address"]
        self.addresses = dict(re.findall(r" (\w+)=(\S+)", line.partition(" durability=")[0]))
        """By face."""
        self.durability = match["durability"]
        self.data = match["data"]
        self.url = f"http://{self.address}"

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ends it by a signal; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.communicate(timeout=60)
        return self.process.returncode


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[Server]:
    """A server for as long as the block."""
    server = Server(*arguments)
    try:
        yield server
    finally:
        server.stop(signal.SIGKILL)


@contextlib.contextmanager
def answering(answer: Callable[[str], tuple[int, str, bytes]]) -> Iterator[str]:
    """The address of a server that gives `answer(path)`, as (status, content type, body), to whatever it is asked."""

    class Scripted(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, kind, body = answer(self.path.partition("?")[0])
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Nothing: the test says what it needs."""

    with standing(Scripted) as url:
        yield url


@contextlib.contextmanager
def standing(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server of somebody else."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def environment(url: str) -> dict[str, str]:
    return {**os.environ, "ONCELOG_URL": url, "COLUMNS": "80", "TERM": "xterm"}


def run(*arguments: str, url: str = "", given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The program with these arguments, and `given` on its stdin."""
    return subprocess.run(
        [PROGRAM, *arguments], input=given, capture_output=True, env=environment(url), timeout=60, check=False
    )


def run_here(*arguments: str, url: str = "", given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The same without a process of its own, which takes a second to start: for a rule asked about in many ways,
    by a test that has also run the program."""
    result = CliRunner().invoke(app, arguments, input=given, env=environment(url))
    assert isinstance(result.exception, SystemExit | None), result.exception
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout_bytes, result.stderr_bytes)


def done_here(*arguments: str, url: str, given: bytes = b"") -> str:
    """What it says, if it ends with 0."""
    result = run_here(*arguments, url=url, given=given)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode()


def done(*arguments: str, url: str, given: bytes = b"") -> str:
    """What it says, if it ends with 0."""
    result = run(*arguments, url=url, given=given)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode()


@contextlib.contextmanager
def on_terminal(*arguments: str, url: str, stdout: BinaryIO | None = None) -> Iterator[int]:
    """The program, running on a terminal of its own, with its stdout elsewhere if told; the descriptor of our end."""
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [PROGRAM, *arguments], stdin=theirs, stdout=stdout or theirs, stderr=theirs, env=environment(url)
        ) as process:
            os.close(theirs)
            yield ours
            process.wait(60)
    finally:
        os.close(ours)


def shown(ours: int, until: bytes = b"") -> bytes:
    """What a terminal shows, up to `until` or until the program has ended."""
    seen = b""
    with contextlib.suppress(OSError):  # as Linux says that nobody has the other end any more
        while not (until and until in seen) and (more := os.read(ours, 65_536)):
            seen += more
    return seen


def json_lines(output: str) -> list[Any]:
    return [msgspec.json.decode(line) for line in output.splitlines()]


def begun(*arguments: str, url: str) -> "subprocess.Popen[bytes]":
    """The program, running, with pipes for stdin and stdout."""
    return subprocess.Popen(
        [PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(url),
    )
