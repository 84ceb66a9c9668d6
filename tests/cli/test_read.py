"""How `oncelog read` ends when it is interrupted."""

import asyncio
import signal
import sys
from typing import Any

import pytest

from oncelog.cli import exits, read
from tests.cli.running import run_here


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
