"""A full disk refuses writes, keeps reading, and takes writes again once there is room."""

import asyncio
import errno

import pytest

from oncelog import limits
from oncelog.core.command import DeleteRecords, GetStream
from oncelog.core.outcome import Confirmed, NoRoom, Outcome, StreamDone
from oncelog.engine.engine import Engine, Settings
from oncelog.limits import KIB, SPARES_WANTED
from oncelog.storage.disk import MemoryDisk, MemoryFile
from oncelog.storage.index.interface import Full, Reply
from tests.engine.opening import append, append_of, done, make_topic, opened_over, read_all, until

SETTINGS = Settings(segment_bytes=16 * KIB, checkpoint_bytes=64 * KIB)


class FullDisk(MemoryDisk):
    """A disk that can be full: what is there can be written to, nothing new can be made."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        if create and self.full:
            raise OSError(errno.ENOSPC, "no space left")
        return super().open(name, create=create)


class FullIndex:
    """A builder that never has room. Implements `IndexBuilder`."""

    def __init__(self) -> None:
        self.requests = 0

    def request(self, group: int) -> None:
        self.requests += 1

    def fileno(self) -> int:
        return -1

    def replies(self) -> list[Reply]:
        return [Full("no space left")]

    def restart(self) -> None:
        raise AssertionError("it never dies")

    def stop(self) -> None:
        return None


async def fill(engine: Engine) -> int:
    """Append until there is no room; how many were confirmed."""
    count = 0
    while isinstance(outcome := await engine.execute(append_of("a", bytes(1_000))), Confirmed):
        assert outcome.first == count
        count += 1
    assert isinstance(outcome, NoRoom)
    assert outcome.retryable
    return count


async def with_all_spares(engine: Engine) -> None:
    await until(lambda: engine.statistics().journal.spares == SPARES_WANTED)


def test_full_disk_refuses_writes_serves_reads_and_recovers() -> None:
    async def scenario() -> None:
        disk = FullDisk()
        async with opened_over(disk, settings=SETTINGS) as engine:
            await make_topic(engine, "a")
            await with_all_spares(engine)
            disk.full = True
            count = await fill(engine)
            assert count > 20, "the spares were used first"
            assert len(read_all(engine, "a")) == count
            # What makes room, or ends things, may use the reserve.
            assert isinstance(await engine.execute(DeleteRecords("a", 0, [0, 1])), StreamDone)
            assert isinstance(await engine.execute(append_of("a", b"x")), NoRoom)
            assert (await done(engine, GetStream("a"), StreamDone)).tail == count
            engine._tick()  # looks again, and finds no room
            await until(lambda: engine.commits.disk_full)
            disk.full = False
            engine._tick()
            await until(lambda: not engine.commits.disk_full)
            await with_all_spares(engine)
            assert (await append(engine, "a", b"x")).first == count
            assert len(read_all(engine, "a")) == count

    asyncio.run(scenario())


def test_writes_that_wait_for_a_segment_are_refused_when_there_will_be_none_also_while_stopping() -> None:
    outcomes: list[Outcome] = []

    async def scenario() -> None:
        disk = FullDisk()
        async with opened_over(disk, settings=SETTINGS) as engine:
            await make_topic(engine, "a")
            await with_all_spares(engine)
            disk.full = True
            for _ in range(200):
                engine.submit(append_of("a", bytes(1_000)), outcomes.append)
            # And close at once, while most of them wait.

    asyncio.run(scenario())
    confirmed = [outcome for outcome in outcomes if isinstance(outcome, Confirmed)]
    assert len(outcomes) == 200
    assert 20 < len(confirmed) < 100
    assert all(isinstance(outcome, NoRoom) for outcome in outcomes[len(confirmed) :])


def test_full_disk_survives_a_restart_with_what_was_confirmed() -> None:
    async def scenario() -> None:
        disk = FullDisk()
        async with opened_over(disk, settings=SETTINGS) as engine:
            await make_topic(engine, "a")
            await with_all_spares(engine)
            disk.full = True
            count = await fill(engine)
        async with opened_over(disk, settings=SETTINGS) as engine:
            assert len(read_all(engine, "a")) == count
            await until(lambda: engine.commits.disk_full)
            disk.full = False
            engine._tick()
            await with_all_spares(engine)
            assert (await append(engine, "a", b"x")).first == count

    asyncio.run(scenario())


def test_index_without_room_stops_neither_writes_nor_a_clean_stop() -> None:
    builder = FullIndex()

    async def scenario() -> None:
        async with opened_over(MemoryDisk(), settings=SETTINGS, builder=builder) as engine:
            await make_topic(engine, "a")
            for number in range(150):
                assert (await append(engine, "a", bytes(1_000))).first == number
            assert builder.requests == 1
            assert len(read_all(engine, "a")) == 150

    asyncio.run(scenario())


def test_proof_that_found_no_room_is_given_once_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PROOF_IDLE_MS", 0)

    async def scenario() -> None:
        disk = FullDisk()
        async with opened_over(disk, settings=SETTINGS) as engine:
            await make_topic(engine, "a")
            await make_topic(engine, "b")
            await append(engine, "b", *[b"x"] * 1_000)
            await with_all_spares(engine)
            disk.full = True
            await fill(engine)
            deletes = (DeleteRecords("b", 0, [offset, offset + 1]) for offset in range(1_000))
            while isinstance(outcome := await engine.execute(next(deletes)), StreamDone):
                pass
            assert isinstance(outcome, NoRoom), "the reserve is used up as well"
            last = engine._journal.durable_group
            await until(lambda: engine.commits.idle)
            engine._tick()
            await until(lambda: engine.commits.disk_full)
            assert engine._journal.durable_group == last
            disk.full = False
            engine._tick()
            await until(lambda: not engine.commits.disk_full)
            engine._tick()
            await until(lambda: engine._journal.durable_group > last)

    asyncio.run(scenario())
