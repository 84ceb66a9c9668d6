"""An exception that nobody expected ends the engine like a failed disk: told once, nothing confirmed after it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from oncelog import limits
from oncelog.core.command import CreateTopic, GetStream, InitProducer
from oncelog.core.outcome import Confirmed, Outcome, TopicDone, TxnDone
from oncelog.engine.engine import Engine
from oncelog.engine.open import EXIT_BUG
from oncelog.storage.disk import MemoryDisk, MemoryFile
from oncelog.storage.journal import Journal
from oncelog.testing.kill.engine_client import EngineDied
from oncelog.testing.kill.messages import Read, ReadDone
from tests.engine.opening import append, append_of, checkpoint, done, make_topic, opened_over, read_all, until
from tests.engine.test_engine_process import started

TURNS = 100
"""Of the loop, in which an engine that went on would have answered."""

# Lets the first COUNT groups through, then raises in the writer's thread what no disk raises.
BROKEN_WRITER = """
import runpy
from oncelog.storage.journal import Journal
left = {count}
real = Journal.write
def broken(*arguments):
    global left
    left -= 1
    if left < 0:
        raise RuntimeError("a bug in the writer")
    real(*arguments)
Journal.write = broken
runpy.run_module("oncelog.testing.kill.engine_process", run_name="__main__", alter_sys=True)
"""


class Bug(Exception):
    """What nobody expected."""


def broken(*_arguments: object, **_fields: object) -> NoReturn:
    raise Bug


class GatedFile(MemoryFile):
    """A file of a `GatedDisk`."""

    __slots__ = ("_gate",)

    def __init__(self, gate: threading.Event) -> None:
        super().__init__()
        self._gate = gate

    def fdatasync(self) -> None:
        self._gate.wait()


class GatedDisk(MemoryDisk):
    """A disk whose syncs take until the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        if create:
            super().open(name, create=True)
            self._files[name] = GatedFile(self.gate)
        return super().open(name)


class Watched:
    """An engine with one durable record, what it was told to say, and what ended it."""

    def __init__(self, engine: Engine, disk: GatedDisk, errors: list[BaseException]) -> None:
        self.engine = engine
        self.disk = disk
        self.errors = errors
        self.outcomes: list[Outcome] = []

    async def put_in_flight(self) -> None:
        """A group that the disk is busy with."""
        self.disk.gate.clear()
        self.engine.submit(append_of("a", b"in flight"), self.outcomes.append)
        await until(lambda: self.engine.commits._in_flight is not None)

    async def land(self) -> None:
        """The disk is done with it, and the loop had every chance to say so."""
        writing = self.engine.commits._in_flight
        assert writing is not None
        self.disk.gate.set()
        await until(lambda: self.engine._journal._written_group == writing.open.group)
        await self.give_way()

    async def give_way(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def assert_ended(self, *, told: int = 0) -> None:
        """One fatal, and neither what was under way nor what comes later is answered or revealed."""
        engine = self.engine
        for command in (GetStream("a"), append_of("a", b"later"), GetStream("nowhere")):
            engine.submit(command, self.outcomes.append)
        await self.give_way()
        assert [type(error) for error in self.errors] == [Bug]
        assert len(self.outcomes) == told
        assert len(read_all(engine, "a")) == 1 + told


@asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    errors: list[BaseException] = []
    disk = GatedDisk()
    # What the guard raises on arrives here as well; the loop would only log it.
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    async with opened_over(disk, fatal=errors.append) as engine:
        await make_topic(engine, "a")
        await append(engine, "a", b"durable")
        await until(lambda: engine.statistics().journal.spares == limits.SPARES_WANTED)
        try:
            yield Watched(engine, disk, errors)
        finally:
            disk.gate.set()


@pytest.mark.from_source
@pytest.mark.parametrize("step", ["decide", "apply", "encode_entry"])
def test_bug_in_a_step_of_a_command_ends_it(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with watched() as log:
            await log.put_in_flight()
            monkeypatch.setattr(f"oncelog.engine.commit_loop.{step}", broken)
            with pytest.raises(Bug):
                log.engine.submit(append_of("a", b"x"), log.outcomes.append)
            monkeypatch.undo()
            await log.land()
            await log.assert_ended()

    asyncio.run(scenario())


@pytest.mark.from_source
def test_group_that_was_open_when_a_bug_struck_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was half applied must not be counted in: the next start would not know what to make of it."""

    async def scenario() -> None:
        async with watched() as log:
            written = log.engine._journal._written_group
            log.engine.submit(append_of("a", b"open"), log.outcomes.append)
            monkeypatch.setattr("oncelog.engine.commit_loop.apply", broken)
            with pytest.raises(Bug):
                log.engine.submit(append_of("a", b"x"), log.outcomes.append)
            monkeypatch.undo()
            await log.assert_ended()
            assert log.engine._journal._written_group == written

    asyncio.run(scenario())


def test_bug_in_a_reply_ends_it_and_those_behind_are_told_nothing() -> None:
    async def scenario() -> None:
        async with watched() as log:
            await log.put_in_flight()
            log.engine.submit(GetStream("a"), broken)
            log.engine.submit(GetStream("a"), log.outcomes.append)
            await log.land()
            await log.assert_ended(told=1)

    asyncio.run(scenario())


def test_bug_in_a_reply_that_nothing_held_back_ends_it() -> None:
    async def scenario() -> None:
        async with watched() as log:
            with pytest.raises(Bug):
                log.engine.submit(GetStream("a"), broken)
            await log.assert_ended()

    asyncio.run(scenario())


def test_bug_while_the_timer_looks_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with watched() as log:
            engine = log.engine
            await done(engine, InitProducer("t"), TxnDone)
            engine.commits.state.txns.clear()
            await log.put_in_flight()
            monkeypatch.setattr(engine, "_clock", lambda: 2 * limits.TXN_ID_EXPIRY_MS * 1_000_000)
            monkeypatch.setattr(engine.commits._index, "get", broken)
            with pytest.raises(Bug):
                engine._tick()
            monkeypatch.undo()
            await log.land()
            await log.assert_ended()

    asyncio.run(scenario())


def test_bug_when_the_index_was_built_ends_it() -> None:
    class BrokenIndex:
        refresh = staticmethod(broken)

    async def scenario() -> None:
        async with watched() as log:
            generations: Any = log.engine.generations
            real, generations._index = generations._index, BrokenIndex()
            generations.seal()
            generations.group_durable()
            await until(lambda: bool(log.errors))
            generations._index = real
            await log.assert_ended()

    asyncio.run(scenario())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("method", ["write", "prepare"])
def test_bug_in_a_thread_ends_it(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with watched() as log:
            monkeypatch.setattr(Journal, method, broken)
            if method == "write":
                log.engine.submit(append_of("a", b"x"), log.outcomes.append)
            else:
                log.engine._spares.ask()
            await until(lambda: bool(log.errors))
            await log.assert_ended()

    asyncio.run(scenario())


def test_engine_without_a_bug_goes_on() -> None:
    """What the other tests wait for in vain does come."""

    async def scenario() -> None:
        async with watched() as log:
            await log.put_in_flight()
            log.engine.submit(GetStream("a"), log.outcomes.append)
            await log.land()
            assert len(log.outcomes) == 2
            await checkpoint(log.engine)
            assert (await append(log.engine, "a", b"x")).first == 2
            assert log.errors == []

    asyncio.run(scenario())


def test_bug_in_the_writer_ends_the_process_with_70_and_a_traceback(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    confirmed = 0
    with started(directory, script=BROKEN_WRITER.format(count=8)) as engine:
        assert isinstance(engine.ask(CreateTopic("a")), TopicDone)
        try:
            while isinstance(engine.ask(append_of("a", b"%d" % confirmed)), Confirmed):
                confirmed += 1
            pytest.fail("an append was neither confirmed nor fatal")
        except EngineDied:
            assert confirmed > 0
        assert engine.wait() == EXIT_BUG == 70
        assert "Traceback (most recent call last)" in engine.stderr
        assert "RuntimeError: a bug in the writer" in engine.stderr
        assert "this is a bug" in engine.stderr
    with started(directory) as engine:
        found = engine.ask(Read("a", 0, 0))
        assert isinstance(found, ReadDone)
        assert [value for _, value in found.records] == [b"%d" % number for number in range(confirmed)]
        assert engine.stop() == 0
