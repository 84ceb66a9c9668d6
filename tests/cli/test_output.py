"""Output that cannot be written is one line and exit code 1; output that nobody reads any more is silence."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.cli import exits
from tests.cli.running import PROGRAM, begun, done, environment, run, serving

FULL = Path("/dev/full")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving("--in-memory", "--http", "127.0.0.1:0") as server:
        done("append", "t", "--create", url=server.url, given=b"value\n" * 5_000)
        yield server.url


@pytest.mark.skipif(not FULL.exists(), reason="the system has no disk that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    [["read", "t"], ["read", "t", "--json"], ["streams"], ["streams", "--json"], ["--version"], ["--help"]],
)
def test_full_disk_is_told_in_one_line(url: str, arguments: list[str], unbuffered: str) -> None:
    with FULL.open("wb") as full:
        result = subprocess.run(
            [PROGRAM, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(url) | {"PYTHONUNBUFFERED": unbuffered},
            timeout=60,
            check=False,
        )
    assert result.stderr.decode() == f"oncelog: cannot write the output: {os.strerror(28)}\n"
    assert result.returncode == exits.REFUSED


@pytest.mark.parametrize(
    "arguments", [["read", "t"], ["streams"], ["streams", "--json"], ["verify", ""], ["receipts", "t", "i"]]
)
def test_pipe_that_nobody_reads_is_silence(url: str, arguments: list[str]) -> None:
    done("append", "t", "v", "--id", "i", url=url)
    with begun(*(argument or url for argument in arguments), url=url) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_other_errors_of_the_system_are_not_taken_for_it(url: str, tmp_path: Path) -> None:
    result = run("append", "t", "--file", str(tmp_path), url=url)
    assert result.returncode == exits.USAGE
    assert result.stderr.decode() == f"oncelog: cannot read {tmp_path}: Is a directory\n"
