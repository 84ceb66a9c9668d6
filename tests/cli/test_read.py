"""How `oncelog read` ends early: interrupted, or by what the server says in the middle."""

import asyncio
import contextlib
import http.server
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from oncelog.cli import exits, read
from oncelog.client.errors import ClientError, Overloaded, StreamReplaced
from oncelog.client.wire import BATCHES
from oncelog.core import batch as codec
from tests.cli.running import begun, run_here, standing


@pytest.mark.parametrize(
    ("follow", "code", "said"),
    [
        ([], exits.REFUSED, b"oncelog: interrupted; the output may lack records\n"),
        (["--follow"], exits.DONE, b""),
        (["--follow", "--count", "9"], exits.DONE, b""),
    ],
)
def test_interrupt_is_a_failure_unless_the_stream_is_followed(
    monkeypatch: pytest.MonkeyPatch, follow: list[str], code: int, said: bytes
) -> None:
    async def interrupted(*_: Any, **__: Any) -> None:
        sys.stdout.write("first\n")
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()

    monkeypatch.setattr(read, "_read", interrupted)
    result = run_here("read", "t", *follow)
    assert (result.returncode, result.stdout, result.stderr) == (code, b"first\n", said)


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [(StreamReplaced("t", 0, 5, 1, 2), False), (Overloaded(503, "overloaded", "not now", {}), True)],
)
def test_place_in_a_stream_that_is_gone_is_none_in_its_successor(
    monkeypatch: pytest.MonkeyPatch, error: ClientError, goes_on: bool
) -> None:
    async def ended(*arguments: Any, **_: Any) -> None:
        (printed,) = (one for one in arguments if isinstance(one, read.Printed))
        printed.next = 5
        raise error

    monkeypatch.setattr(read, "_read", ended)
    result = run_here("read", "t")
    assert result.returncode == exits.REFUSED
    assert (b"--from 5" in result.stderr) is goes_on


@contextlib.contextmanager
def breaking(status: int, problem: dict[str, Any], until: threading.Event | None = None) -> Iterator[str]:
    """A server of a stream whose records 7 and 8 can be read, and what comes then is answered so; `until` that."""

    class Breaking(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if f"offset={7:016d}" in self.path:
                records = b"".join(codec.stamp(codec.encode_values([b"seven", b"eight"], 1), 7))
                self._answer(200, BATCHES, records, {"Stream-Next-Offset": "9"})
                return
            if until is not None:
                until.wait()
                return
            self._answer(status, "application/problem+json", msgspec.json.encode(problem), {})

        def _answer(self, status: int, kind: str, body: bytes, more: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **more}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the test says what it needs."""

    with standing(Breaking) as url:
        yield url


def problem(code: str, **members: object) -> dict[str, Any]:
    return {"code": code, "detail": "so it is", "hint": "do this", "retryable": False, **members}


@pytest.mark.parametrize(
    ("status", "problem", "code", "said"),
    [
        (400, problem("malformed"), exits.REFUSED, "so it is (do this); --from 9 goes on behind what is printed"),
        (500, problem("damaged"), exits.DAMAGED, "so it is (do this); --from 9 goes on behind what is printed"),
        (500, problem("damaged", next=12), exits.DAMAGED, "so it is (do this); --from 12 reads on behind it"),
        (410, problem("offset_gone", floor=20), exits.REFUSED, "offset 9 is no longer kept: t begins at 20"),
    ],
)
@pytest.mark.parametrize("follow", [[], ["--follow"]])
def test_end_in_the_middle_is_told_with_the_offset_to_go_on_from(
    status: int, problem: dict[str, Any], code: int, said: str, follow: list[str]
) -> None:
    with breaking(status, problem) as url:
        result = run_here("read", "t", "--from", "7", *follow, url=url)
    assert (result.returncode, result.stdout) == (code, b"seven\neight\n")
    assert result.stderr.decode().startswith(f"oncelog: {said}")
    assert result.stderr.count(b"\n") == 1


def test_end_before_the_first_record_names_no_offset_but_that_behind_damage() -> None:
    with breaking(500, problem("damaged")) as url:
        assert run_here("read", "t", "--from", "9", url=url).stderr == b"oncelog: so it is (do this)\n"
    with breaking(500, problem("damaged", next=12)) as url:
        result = run_here("read", "t", "--from", "9", url=url)
    assert result.stderr == b"oncelog: so it is (do this); --from 12 reads on behind it\n"


def test_answer_that_cannot_be_read_is_told_with_the_offset_too() -> None:
    with breaking(200, problem("none")) as url:
        result = run_here("read", "t", "--from", "7", url=url)
    assert result.returncode == exits.UNREACHABLE
    assert result.stderr.decode().endswith("; --from 9 goes on behind what is printed\n")


def test_interrupt_in_the_middle_is_told_with_the_offset() -> None:
    over = threading.Event()
    with breaking(400, problem("malformed"), over) as url:
        try:
            with begun("read", "t", "--from", "7", url=url) as process:
                assert process.stdout is not None
                assert [process.stdout.readline() for _ in range(2)] == [b"seven\n", b"eight\n"]
                process.send_signal(signal.SIGINT)
                _, said = process.communicate(timeout=60)
        finally:
            over.set()
    assert process.returncode == exits.REFUSED
    told = "interrupted; the output may lack records; --from 9 goes on behind what is printed"
    assert said.decode() == f"oncelog: {told}\n"
