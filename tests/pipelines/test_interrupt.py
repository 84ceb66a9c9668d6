"""Ctrl-C, wherever it comes: one line, one exit code, and nothing of what it interrupts."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from oncelog.cli.pipeline_run import INTERRUPTED
from tests.pipelines.topics import filled, name, numbers
from tests.spark.serving import Proxy, Server, proxied

PROGRAM = "from oncelog.cli.main import main; main()"

NOTES = ("starting Spark", "planning", "landing: ")
"""What a run says that nobody watches."""


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with proxied(server) as proxy:
        yield proxy


def begun(*words: object) -> "subprocess.Popen[str]":
    """A session of its own: Ctrl-C goes to Java and the workers of Spark as well."""
    command = [sys.executable, "-c", PROGRAM, "pipeline", *(str(word) for word in words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def interrupted(process: "subprocess.Popen[str]") -> tuple[int, str, list[str]]:
    """Exit code, stdout, and what it says beside its notes."""
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)
    return process.returncode, stdout, [line for line in stderr.splitlines() if not line.startswith(NOTES)]


def line_of(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def test_interrupt_while_spark_starts_is_one_line(server: Server, tmp_path: Path) -> None:
    topic = filled(server.url, name("starts"), numbers(0, 5))
    with begun("land", topic, tmp_path / "table", "--url", server.url, "--master", "local[1]") as process:
        assert line_of(process.stderr) == "starting Spark\n"
        assert interrupted(process) == (1, "", [f"oncelog: {INTERRUPTED}"])


def test_interrupt_while_a_schema_is_inferred_is_one_line(server: Server, proxy: Proxy, tmp_path: Path) -> None:
    topic = filled(server.url, name("planned"), numbers(0, 5))
    held = proxy.trap(f"GET /v1/stream/{topic}", "hold", count=100)
    with begun("land", topic, tmp_path / "table", "--url", proxy.url, "--master", "local[1]") as process:
        held.wait()
        assert interrupted(process) == (1, "", [f"oncelog: {INTERRUPTED}"])
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize(("trigger", "code"), [("available_now", 1), ("1 second", 0)])
def test_interrupt_within_a_batch_is_the_ordinary_end_of_an_endless_run(
    server: Server, proxy: Proxy, tmp_path: Path, trigger: str, code: int
) -> None:
    topic, table = filled(server.url, name("batch"), numbers(0, 5)), tmp_path / "table"
    held = proxy.trap(f"GET /v1/stream/{topic}", "hold", count=100)
    words = ["land", topic, table, "--schema", "n int", "--trigger", trigger, "--url", proxy.url]
    with begun(*words, "--master", "local[1]") as process:
        held.wait()
        ended, stdout, said = interrupted(process)
    assert ended == code
    assert stdout.startswith("0 rows in, 0 out, 0 batches")
    assert said == ([f"oncelog: {INTERRUPTED}"] if code else [])
    assert not list((table / "_oncelog" / "checkpoints").glob("*")), "a run removes its own checkpoint"
