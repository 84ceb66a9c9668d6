"""A disk that cannot be read is told to whoever reads, and ends nothing; a bug on the reader's thread ends it all."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NoReturn
from unittest import mock

import pytest

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import AppendStage, OpenApplication, OpenStage, Publish, PublishItem
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import ApplicationDone, CommitConfirmed, Damaged, StageDone, TopicDone
from oncelog.engine.engine import Engine
from oncelog.engine.provenance import WrittenBy
from oncelog.engine.reader import Reader, ReadPlan
from oncelog.engine.reads import ReadResult
from oncelog.errors import Corruption
from oncelog.storage.disk import MemoryDisk, MemoryFile
from tests.engine.opening import SETTINGS, append, append_of, done, make_topic, opened_over, read_all, until


class UnreadableFile(MemoryFile):
    """A file of an `UnreadableDisk`."""

    __slots__ = ("_disk",)

    def __init__(self, disk: "UnreadableDisk") -> None:
        super().__init__()
        self._disk = disk

    def pread(self, length: int, position: int, /) -> bytes:
        if not self._disk.is_readable or position <= self._disk.bad_at < position + length:
            raise OSError(errno.EIO, "Input/output error")
        return super().pread(length, position)[: max(0, self._disk.ends_at - position)]


class UnreadableDisk(MemoryDisk):
    """Writes go on when reads fail."""

    def __init__(self) -> None:
        super().__init__()
        self.is_readable = True
        self.bad_at = -1
        """A byte of every file that cannot be read."""
        self.ends_at = 1 << 40
        """Where every file has been cut off."""

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        if create:
            super().open(name, create=True)
            self._files[name] = UnreadableFile(self)
        return super().open(name)


@asynccontextmanager
async def unreadable(failed: list[BaseException]) -> AsyncIterator[tuple[Engine, TopicDone, UnreadableDisk]]:
    """An engine with a record at offset 0 of `a`."""
    disk = UnreadableDisk()
    async with opened_over(disk, fatal=failed.append) as engine:
        topic = await make_topic(engine, "a")
        await append(engine, "a", b"x")
        yield engine, topic, disk


def asked(ask: Callable[[Callable[[object], None]], object]) -> Awaitable[object]:
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    ask(future.set_result)
    return future


@pytest.mark.parametrize("what", ["recent", "cold", "receipt", "entry", "publish"])
def test_read_that_the_disk_fails_is_told_to_its_reader_alone(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if what == "cold":
        monkeypatch.setattr(limits, "READ_RECENT_BYTES", -1)
    failed: list[BaseException] = []

    async def scenario() -> None:
        async with unreadable(failed) as (engine, topic, disk):
            fence = (await done(engine, OpenApplication("app"), ApplicationDone)).fence
            stage_id = (await done(engine, OpenStage("app", fence), StageDone)).stage_id
            batch = append_of("a", b"staged").batch
            await done(engine, AppendStage(stage_id, 0, batch, 1, content_digest(b"staged")), StageDone)
            publish = Publish([PublishItem(stage_id, "a", 0, 1, named=True)], "app", fence, "q", 0)

            def ask(told: Callable[[object], None]) -> None:
                match what:
                    case "recent" | "cold":
                        engine.reads.read_soon("a", 0, 0, limits.MIB, told)
                    case "receipt":
                        engine.reads.who_wrote(topic.stream_ids[0], 0, told)
                    case "entry":
                        engine.reads.stood(["a"], told, entry=1)
                    case "publish":
                        engine.publish(publish, told)

            disk.is_readable = False
            told = await asked(ask)
            assert isinstance(told, Damaged)
            assert "Input/output error" in told.what
            await append(engine, "a", b"y")
            disk.is_readable = True
            told = await asked(ask)
            assert not isinstance(told, Damaged)
            assert isinstance(told, CommitConfirmed) == (what == "publish")
            assert read_all(engine, "a")[:2] == [(0, b"x"), (1, b"y")]

    asyncio.run(scenario())
    assert failed == []


@pytest.mark.parametrize(("broken", "reason"), [("bad_at", "Input/output error"), ("ends_at", "cut short")])
def test_read_gives_what_stands_before_the_place_that_cannot_be_read(broken: str, reason: str) -> None:
    """All of them are asked of the disk at once, and one that fails fails them all: none of them was given, and the
    first one, which is sound, was told as the bad one and passed over."""
    failed: list[BaseException] = []

    async def scenario() -> None:
        async with unreadable(failed) as (engine, topic, disk):
            await append(engine, "a", b"sound")
            await append(engine, "a", b"broken 1", b"broken 2")
            at = disk.open("segment-000000000000").pread(SETTINGS.segment_bytes, 0).index(b"broken")
            sound = getattr(disk, broken)
            setattr(disk, broken, at)
            told = await asked(lambda told: engine.reads.read_soon("a", 0, 0, limits.MIB, told))
            assert isinstance(told, ReadResult)
            values = [value for batch in told.batches for value in codec.decode_values(batch.batch)]
            assert (values, told.next_offset) == ([b"x", b"sound"], 2)
            told = await asked(lambda told: engine.reads.read_soon("a", 0, 2, limits.MIB, told))
            assert isinstance(told, Damaged)
            assert reason in told.what
            assert told.next == 4
            assert engine.reads.undecodable(topic.stream_ids[0], 2, "no records").next == 4
            setattr(disk, broken, sound)

    asyncio.run(scenario())
    assert failed == []


def test_receipt_without_a_place_is_damaged() -> None:
    failed: list[BaseException] = []

    async def scenario() -> None:
        async with unreadable(failed) as (engine, topic, _):
            told: list[WrittenBy | object] = []
            with mock.patch.object(Reader, "place_of", side_effect=Corruption("no place is known")):
                engine.reads.who_wrote(topic.stream_ids[0], 0, told.append)
                told.append(engine.reads.undecodable(topic.stream_ids[0], 0, "no records"))
            assert told == [
                Damaged("no place is known", "", -1),
                Damaged("the batch at offset 0 cannot be decoded: no records", "", -1),
            ]

    asyncio.run(scenario())
    assert failed == []


def test_bug_on_the_readers_thread_is_told_on_the_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "READ_RECENT_BYTES", -1)
    threads: list[threading.Thread] = []

    async def scenario() -> None:
        async with opened_over(MemoryDisk(), fatal=lambda _: threads.append(threading.current_thread())) as engine:
            await make_topic(engine, "a")
            await append(engine, "a", b"x")
            asked = threading.Event()

            def broken(_plan: ReadPlan) -> NoReturn:
                asked.wait()
                raise RuntimeError("a bug")

            with mock.patch.object(Reader, "fetch", side_effect=broken):
                engine.reads.read_soon("a", 0, 0, limits.MIB, lambda _: pytest.fail("nobody is told anything"))
                asked.set()
                await until(lambda: bool(threads))

    asyncio.run(scenario())
    assert threads == [threading.main_thread()]
