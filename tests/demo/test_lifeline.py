"""What the demo has started ends with it, also when a kill -9 leaves nobody to clean up."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from oncelog.demo import driver
from oncelog.demo.faces.face import Told
from oncelog.demo.processes import session_members

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="the system does not tell of others' processes"
)

GONE_WITHIN_S = 30

SERVER = """
import asyncio, sys
from pathlib import Path
from oncelog.demo.server import Server

async def demo():
    server = Server(Path(sys.argv[1]) / "data")
    await server.start()
    print(server._process.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(demo())
"""

PROCESS = """
import asyncio, sys
from pathlib import Path
from oncelog.demo.processes import Process

async def demo():
    process = Process("it", sys.argv[2], sys.argv[3], Path(sys.argv[1]) / "said.txt")
    running = asyncio.create_task(process.run())
    while not process.is_running:
        await asyncio.sleep(0)
    print(process._process.pid, flush=True)
    await running

asyncio.run(demo())
"""


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def outlived_by(*arguments: str, count: int) -> list[int]:
    """Which of `count` processes are still there after their demo was killed, although they had time to go."""
    with subprocess.Popen([sys.executable, "-c", *arguments], stdout=subprocess.PIPE) as demo:
        try:
            assert demo.stdout is not None
            session = int(demo.stdout.readline())
            # The index builder has a session of its own.
            children = Path(f"/proc/{session}/task/{session}/children").read_text().split()
            watched = {os.pidfd_open(pid): pid for pid in (session, *map(int, children))}
            assert len(watched) == count
        finally:
            demo.kill()
    try:
        return [pid for file, pid in watched.items() if not select.select([file], [], [], GONE_WITHIN_S)[0]]
    finally:
        for file in watched:
            os.close(file)
        for pid in session_members(session):
            os.kill(pid, signal.SIGKILL)


def test_server_and_its_index_builder_end_with_the_demo(tmp_path: Path) -> None:
    assert outlived_by(SERVER, str(tmp_path), count=2) == []


def test_producer_that_waits_for_an_answer_ends_with_the_demo(tmp_path: Path, silent: str) -> None:
    told = Told({"http": silent.removeprefix("http://")}, "ids", "ids-0", 1, 0, 10, str(tmp_path / "ledger.jsonl"))
    arguments = ("oncelog.demo.producer", msgspec.json.encode(told).decode())
    assert outlived_by(PROCESS, str(tmp_path), *arguments, count=1) == []


def test_producer_and_driver_are_killed_when_their_stdin_ends(tmp_path: Path, silent: str) -> None:
    """Whatever they wait for, and not only when they want to say something."""
    pytest.importorskip("pyspark", reason="without it a driver ends by itself")
    for told, module in (
        (
            Told({"http": silent.removeprefix("http://")}, "ids", "ids-0", 1, 0, 10, str(tmp_path / "ledger.jsonl")),
            "producer",
        ),
        (driver.Told(silent, silent, str(tmp_path), 1, str(tmp_path / "report.html"), 1, 1.0), "driver"),
    ):
        ended = subprocess.run(
            [sys.executable, "-m", f"oncelog.demo.{module}", msgspec.json.encode(told).decode()],
            stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True, check=False,
        )  # fmt: skip
        assert ended.returncode == -signal.SIGKILL, ended.stderr


def test_process_that_was_started_by_hand_takes_nobody_along() -> None:
    waits = "import time; from oncelog.demo.lifeline import hold; hold(); time.sleep(600)"
    shell = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" </dev/null; echo "ended with $?"', sys.executable, waits],
        stdout=subprocess.PIPE,
        timeout=GONE_WITHIN_S,
        start_new_session=True,
        check=True,
    )
    assert shell.stdout.split()[-1] == b"%d" % (128 + signal.SIGKILL)
