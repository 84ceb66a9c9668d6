"""The engine over all ways to write a group: past the page cache by the kernel or by a thread, and through it."""

import asyncio
import errno
import fcntl
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from oncelog import limits
from oncelog.core.command import GetStream
from oncelog.core.outcome import Confirmed, Outcome, Refusal
from oncelog.engine.engine import Engine
from oncelog.engine.open import open_engine
from oncelog.engine.reader import Reader, ReadPlan
from oncelog.engine.reads import ReadResult
from oncelog.errors import DiskFault
from oncelog.storage.disk import Buffer, PosixDisk
from oncelog.storage.journal import Journal, OpenGroup
from oncelog.storage.kernel_writes import KernelWrites
from oncelog.storage.mirror import CAN_BE_SHARED
from tests.engine.opening import (
    PATIENCE_S,
    SETTINGS,
    append,
    append_of,
    checkpoint,
    make_topic,
    opened,
    read_all,
    until,
)
from tests.storage.test_kernel_writes import needs_kernel_writes

__all__ = ["needs_kernel_writes"]  # a fixture

HANGS_S = 5 * limits.POLL_HANG_MS / 1_000
"""Longer than anybody looks for a write without a pause."""

TURNS = 100
"""Of the loop, in which an engine that went on would have answered."""


def refused(*_arguments: object) -> NoReturn:
    raise OSError(22, "Invalid argument")


@pytest.mark.parametrize("ways", ["dd", "dc", "cd", "cc", "dt", "td", "tc", "ct"])
def test_every_start_finds_what_was_written_either_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ways: str
) -> None:
    """d: directly, by the kernel where it can, t: always by the thread, c: through the page cache. Segments change and
    the index is built on the way."""
    values: list[bytes] = []

    async def write(way: str) -> None:
        async with opened(tmp_path / "log") as engine:
            assert (engine._journal.mirror is None) == (way == "c" or not CAN_BE_SHARED)
            if not values:
                await make_topic(engine, "a")
            for number in range(60):
                value = b"%s %d " % (way.encode(), number) * 1000
                await append(engine, "a", value)
                values.append(value)
            assert read_all(engine, "a") == list(enumerate(values))
            await checkpoint(engine)
            assert read_all(engine, "a") == list(enumerate(values))

    for way in ways:
        with monkeypatch.context() as patched:
            if way == "c":
                patched.setattr(PosixDisk, "open_direct", refused)
            if way == "t":
                patched.setattr(KernelWrites, "__init__", refused)
            asyncio.run(write(way))


@pytest.mark.skipif(not CAN_BE_SHARED, reason="journals of this machine write through the page cache")
def test_what_the_mirror_holds_is_read_on_the_loop_and_the_rest_on_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    fetch = Reader.fetch

    def noted(reader: Reader, plan: ReadPlan) -> object:
        threads.append(threading.current_thread())
        return fetch(reader, plan)

    async def first_start() -> None:
        async with opened(tmp_path / "log") as engine:
            await make_topic(engine, "a")
            await append(engine, "a", b"old")

    async def second_start() -> None:
        async with opened(tmp_path / "log") as engine:
            await append(engine, "a", b"new")
            for offset in (1, 0):
                told: asyncio.Future[ReadResult | Refusal] = asyncio.get_running_loop().create_future()
                engine.reads.read_soon("a", 0, offset, limits.MIB, told.set_result)
                assert isinstance(await told, ReadResult)

    asyncio.run(first_start())
    monkeypatch.setattr(Reader, "fetch", noted)
    asyncio.run(second_start())
    assert [thread is threading.main_thread() for thread in threads] == [True, False]


# --- groups that the kernel writes -----------------------------------------------------------------------------------


class Writes:
    """Who writes the groups; and a gate for those that the kernel writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_kernel = 0
        self.by_thread = 0
        self.is_held = False
        self.error: OSError | None = None
        start, is_done, write = KernelWrites.start, KernelWrites.is_done, Journal.write

        def started(writes: KernelWrites, file: int, *what: int) -> None:
            flags = fcntl.fcntl(file, fcntl.F_GETFL)
            assert flags & os.O_DIRECT
            assert not flags & os.O_DSYNC, "the kernel would finish it on a worker that others hold up"
            self.by_kernel += 1
            start(writes, file, *what)

        def looked(writes: KernelWrites) -> bool:
            if self.error is not None:
                raise self.error
            return not self.is_held and is_done(writes)

        def written(journal: Journal, group: OpenGroup, buffers: list[Buffer]) -> None:
            self.by_thread += 1
            write(journal, group, buffers)

        monkeypatch.setattr(KernelWrites, "start", started)
        monkeypatch.setattr(KernelWrites, "is_done", looked)
        monkeypatch.setattr(Journal, "write", written)

    def forget(self) -> None:
        self.by_kernel = self.by_thread = 0


@pytest.fixture
def writes(needs_kernel_writes: None, monkeypatch: pytest.MonkeyPatch) -> Writes:
    """No write is too slow for the loop, however busy the machine is."""
    monkeypatch.setattr("oncelog.engine.pacing.poller._WRITE_S", float(PATIENCE_S))
    return Writes(monkeypatch)


async def give_way() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def hang() -> None:
    """So long that the loop looks for the disk only now and then."""
    loop = asyncio.get_running_loop()
    end = loop.time() + HANGS_S
    await until(lambda: loop.time() > end)


def test_groups_of_a_writer_alone_are_left_to_the_kernel(tmp_path: Path, writes: Writes) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "log") as engine:
            await make_topic(engine, "a")
            writes.forget()
            for number in range(20):
                await append(engine, "a", b"%d" % number)
            assert (writes.by_kernel, writes.by_thread) == (20, 0)
            assert engine._pacing.seconds.count == engine.commits.groups_total
            assert engine._pacing.seconds.last > 0
            assert engine._journal._written_group == engine._journal.durable_group
        assert (writes.by_kernel, writes.by_thread) == (20, 1), "the proof of a clean stop"
        async with opened(tmp_path / "log") as engine:
            assert read_all(engine, "a") == [(number, b"%d" % number) for number in range(20)]

    asyncio.run(scenario())


def test_groups_that_all_of_several_writers_wait_for_are_left_to_the_kernel(tmp_path: Path, writes: Writes) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "log") as engine:
            await make_topic(engine, "a", 8)

            async def write(partition: int) -> None:
                for number in range(10):
                    await append(engine, "a", b"%d" % number, partition=partition)

            writes.forget()
            await asyncio.gather(*(write(partition) for partition in range(8)))
            assert (writes.by_kernel, writes.by_thread) == (10, 0), "each time with all of them"
            for partition in range(8):
                assert read_all(engine, "a", partition) == [(number, b"%d" % number) for number in range(10)]

    asyncio.run(scenario())


def test_group_that_somebody_may_still_join_is_for_the_thread(tmp_path: Path, writes: Writes) -> None:
    """Whoever comes while it is written finds a loop with nothing else to do but to take him."""

    async def scenario() -> None:
        async with opened(tmp_path / "log") as engine:
            await make_topic(engine, "a")
            await asyncio.gather(append(engine, "a", b"one"), append(engine, "a", b"other"))
            writes.forget()
            await append(engine, "a", b"only one of them comes back")
            assert (writes.by_kernel, writes.by_thread) == (0, 1)
            await append(engine, "a", b"and again")
            assert (writes.by_kernel, writes.by_thread) == (1, 1)

    asyncio.run(scenario())


def test_disk_that_hangs_hangs_nobody(tmp_path: Path, writes: Writes) -> None:
    """P12: what is under way is neither answered nor seen. All that is older is."""
    outcomes: list[Outcome] = []

    async def scenario() -> None:
        async with opened(tmp_path / "log") as engine:
            await make_topic(engine, "a")
            await append(engine, "a", b"old")
            writes.forget()
            writes.is_held = True
            engine.submit(append_of("a", b"held"), outcomes.append)
            for wait in (give_way, hang, give_way):
                await wait()
                engine.submit(GetStream("a"), outcomes.append)
                engine.submit(append_of("a", b"later"), outcomes.append)
                assert read_all(engine, "a") == [(0, b"old")]
                assert [name for name, _ in engine.lookups.topics("", "", 10).rows] == ["a"]
                told: asyncio.Future[ReadResult | Refusal] = asyncio.get_running_loop().create_future()
                engine.reads.read_soon("a", 0, 0, limits.MIB, told.set_result)
                assert isinstance(await told, ReadResult)
            assert outcomes == []
            assert (writes.by_kernel, writes.by_thread) == (1, 0)
            writes.is_held = False
            await until(lambda: len(outcomes) == 7)
            assert [outcome.first for outcome in outcomes if isinstance(outcome, Confirmed)] == [1, 2, 3, 4]
            assert read_all(engine, "a") == list(enumerate([b"old", b"held", *[b"later"] * 3]))

    asyncio.run(scenario())


@asynccontextmanager
async def opened_to_fail(directory: Path, errors: list[BaseException]) -> AsyncIterator[Engine]:
    # What the guard raises on arrives here as well; the loop would only log it.
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, _context: None)
    engine = open_engine(directory, loop, settings=SETTINGS, fatal=errors.append)
    async with asyncio.timeout(PATIENCE_S):
        yield engine
        await engine.close()


@pytest.mark.parametrize("hangs_first", [False, True])
def test_failure_of_what_the_kernel_writes_ends_the_engine(tmp_path: Path, writes: Writes, hangs_first: bool) -> None:
    errors: list[BaseException] = []
    outcomes: list[Outcome] = []

    async def scenario() -> None:
        async with opened_to_fail(tmp_path / "log", errors) as engine:
            await make_topic(engine, "a")
            await append(engine, "a", b"old")
            writes.forget()
            writes.is_held = True
            engine.submit(append_of("a", b"lost"), outcomes.append)
            await (hang if hangs_first else give_way)()
            assert errors == []
            writes.error = OSError(errno.EIO, "Input/output error")
            await until(lambda: bool(errors))
            writes.error = None
            writes.is_held = False
            for command in (append_of("a", b"later"), GetStream("a")):
                engine.submit(command, outcomes.append)
            await give_way()
            assert [type(error) for error in errors] == [DiskFault]
            assert outcomes == []
            assert read_all(engine, "a") == [(0, b"old")]
            assert (writes.by_kernel, writes.by_thread) == (1, 0), "nothing is tried again"
        async with opened(tmp_path / "log") as engine:
            assert read_all(engine, "a")[:1] == [(0, b"old")]
            await append(engine, "a", b"new")

    asyncio.run(scenario())


def test_group_that_the_kernel_writes_is_answered_before_the_engine_ends(tmp_path: Path, writes: Writes) -> None:
    outcomes: list[Outcome] = []

    async def scenario() -> None:
        errors: list[BaseException] = []
        engine = open_engine(tmp_path / "log", asyncio.get_running_loop(), settings=SETTINGS, fatal=errors.append)
        async with asyncio.timeout(PATIENCE_S):
            await make_topic(engine, "a")
            writes.is_held = True
            engine.submit(append_of("a", b"held"), outcomes.append)
            await give_way()
            engine.submit(append_of("a", b"behind it"), outcomes.append)
            closing = asyncio.create_task(engine.close())
            await hang()
            assert not closing.done()
            assert outcomes == []
            writes.is_held = False
            await closing
            assert [type(outcome) for outcome in outcomes] == [Confirmed, Confirmed]
            assert errors == []
        async with opened(tmp_path / "log") as engine:
            assert read_all(engine, "a") == [(0, b"held"), (1, b"behind it")]

    asyncio.run(scenario())


@pytest.mark.parametrize("ends_first", ["write", "engine"])
def test_engine_that_failed_while_the_kernel_wrote_confirms_nothing(
    tmp_path: Path, writes: Writes, ends_first: str
) -> None:
    errors: list[BaseException] = []
    outcomes: list[Outcome] = []
    strays: list[dict[str, Any]] = []

    async def scenario() -> None:
        async with opened_to_fail(tmp_path / "log", errors) as engine:
            await make_topic(engine, "a")
            writes.is_held = True
            engine.submit(append_of("a", b"under way"), outcomes.append)
            await give_way()
            bug = RuntimeError("a bug")
            engine._fail(bug)
            if ends_first == "write":
                writing = engine.commits._in_flight
                assert writing is not None
                writes.is_held = False
                await until(lambda: engine._journal._written_group == writing.number)
            await give_way()
            asyncio.get_running_loop().set_exception_handler(lambda _loop, context: strays.append(context))
        await hang()
        assert strays == [], "nobody looks any more"
        assert errors == [bug]
        assert outcomes == []

    asyncio.run(scenario())
