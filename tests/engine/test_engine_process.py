"""What only a process of its own can show: its exit code, what it says last, and the builder that outlives it."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncelog.core.command import CreateTopic
from oncelog.core.outcome import Confirmed, TopicDone
from oncelog.engine.open import EXIT_STORAGE
from oncelog.errors import DirectoryInUse
from oncelog.storage.index.child import index_directory
from oncelog.storage.index.lmdb_writer import take_lock
from oncelog.testing.kill.engine_client import (
    PATIENCE_S,
    EngineDied,
    EngineProcess,
    processes_of,
    wait_for_processes,
)
from oncelog.testing.kill.messages import Read, ReadDone
from tests.engine.opening import SETTINGS, append_of

# Fails every fdatasync after the first COUNT, then runs the engine process as usual.
FAILING_SYNC = """
import errno, os, runpy, sys
left = {count}
real = os.fdatasync
def failing(descriptor):
    global left
    left -= 1
    if left < 0:
        raise OSError(errno.EIO, "Input/output error")
    real(descriptor)
os.fdatasync = failing
runpy.run_module("oncelog.testing.kill.engine_process", run_name="__main__", alter_sys=True)
"""

# The same for writes past the page cache.
FAILING_WRITE = """
import errno, fcntl, os, runpy, sys
left = {count}
real = os.pwritev
def failing(descriptor, buffers, position):
    global left
    left -= bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DSYNC)
    if left < 0:
        raise OSError(errno.EIO, "Input/output error")
    return real(descriptor, buffers, position)
os.pwritev = failing
runpy.run_module("oncelog.testing.kill.engine_process", run_name="__main__", alter_sys=True)
"""

# A file system that takes no writes past the page cache, and then one whose syncs fail.
NO_DIRECT = """
from oncelog.storage.disk import PosixDisk
def refused(disk, name):
    raise OSError(22, "Invalid argument")
PosixDisk.open_direct = refused
"""


@contextmanager
def started(directory: Path, *, script: str = "") -> Iterator[EngineProcess]:
    """A recovered engine, and nothing left of it afterwards."""
    engine = EngineProcess(
        directory, SETTINGS.segment_bytes, SETTINGS.checkpoint_bytes, arguments=("-c", script) if script else ()
    )
    try:
        assert engine.wait_ready(time.monotonic() + PATIENCE_S)
        yield engine
    finally:
        engine.discard()
        assert wait_for_processes(directory)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(NO_DIRECT + FAILING_SYNC, id="sync"),
        pytest.param(FAILING_WRITE, id="direct-write"),
    ],
)
def test_failed_sync_ends_the_process_with_74_and_says_why(tmp_path: Path, script: str) -> None:
    directory = tmp_path / "log"
    with started(directory) as engine:
        assert isinstance(engine.ask(CreateTopic("a")), TopicDone)
        assert engine.stop() == 0
    # Enough for recovery, and for the spares that may be missing; then it fails while appends are in flight.
    confirmed = 0
    with started(directory, script=script.format(count=30)) as engine:
        try:
            while isinstance(engine.ask(append_of("a", b"%d" % confirmed)), Confirmed):
                confirmed += 1
            pytest.fail("an append was neither confirmed nor fatal")
        except EngineDied:
            assert confirmed > 0
        assert engine.wait() == EXIT_STORAGE == 74
        assert "DiskFault" in engine.stderr
        assert "Input/output error" in engine.stderr
    with started(directory) as engine:
        found = engine.ask(Read("a", 0, 0))
        assert isinstance(found, ReadDone)
        # The append whose sync failed may be there or not; everything confirmed is.
        assert [value for _, value in found.records][:confirmed] == [b"%d" % number for number in range(confirmed)]
        assert confirmed <= len(found.records) <= confirmed + 1
        assert engine.stop() == 0


def test_second_process_on_a_directory_says_so_and_ends(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    with started(directory) as first:
        second = EngineProcess(directory, SETTINGS.segment_bytes, SETTINGS.checkpoint_bytes)
        assert second.wait() == 1
        assert "DirectoryInUse" in second.stderr
        assert isinstance(first.ask(CreateTopic("a")), TopicDone)
        assert first.stop() == 0


def test_engine_waits_for_the_index_builder_of_a_killed_one(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    with started(directory) as first:
        assert isinstance(first.ask(CreateTopic("a")), TopicDone)
        count = 0
        while not is_builder_at_work(directory):
            assert isinstance(first.ask(append_of("a", bytes(1_000))), Confirmed)
            count += 1
        (builder,) = set(processes_of(directory)) - {first.pid}
        with frozen(builder):
            first.kill()
            second = EngineProcess(directory, SETTINGS.segment_bytes, SETTINGS.checkpoint_bytes)
            ready_early = second.wait_ready(time.monotonic() + 1.5)
        try:
            assert not ready_early, "it must not read an index that may still change under it"
            assert second.wait_ready(time.monotonic() + PATIENCE_S)
            found = second.ask(Read("a", 0, 0))
            assert isinstance(found, ReadDone)
            assert found.stable == count
            assert second.stop() == 0
        finally:
            second.discard()


def is_builder_at_work(directory: Path) -> bool:
    """Whether the builder has its lock, which it holds for as long as it lives."""
    try:
        os.close(take_lock(index_directory(directory), wait=False))
    except DirectoryInUse:
        return True
    return False


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
