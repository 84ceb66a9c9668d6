"""Engines for tests: over a real directory, in memory, or over any disk with any clock; always closed at the end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from oncelog.core import batch as codec
from oncelog.core.command import AddToTxn, Append, Command, CreateTopic, InitProducer
from oncelog.core.flat import ProducerClaim
from oncelog.core.outcome import Confirmed, Refusal, TopicDone, TxnDone
from oncelog.core.producer import SequenceMode
from oncelog.engine.engine import Engine, Settings
from oncelog.engine.open import open_engine, open_in_memory
from oncelog.engine.store import open_store
from oncelog.storage.disk import Disk
from oncelog.storage.index.builder import Builder, InlineBuilder
from oncelog.storage.index.interface import IndexBuilder
from oncelog.storage.index.memory_index import MemoryIndex
from oncelog.storage.journal_reader import JournalReader

SETTINGS = Settings(segment_bytes=256 * 1024, checkpoint_bytes=64 * 1024)
"""Small: segments change and the index is committed within a few hundred appends."""

PATIENCE_S = 30
TIMESTAMP_MS = 1_700_000_000_000

Wanted = TypeVar("Wanted")


def not_expected(error: BaseException) -> None:
    raise error


@asynccontextmanager
async def opened(directory: Path | None, settings: Settings = SETTINGS) -> AsyncIterator[Engine]:
    """An engine over a directory, or in memory if there is none."""
    loop = asyncio.get_running_loop()
    if directory is None:
        engine = open_in_memory(loop, settings=settings, fatal=not_expected)
    else:
        engine = open_engine(directory, loop, settings=settings, fatal=not_expected)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield engine
    finally:
        async with asyncio.timeout(PATIENCE_S):
            await engine.close()


@asynccontextmanager
async def opened_over(
    disk: Disk,
    *,
    clock: Callable[[], int] = lambda: 1,
    settings: Settings = SETTINGS,
    fatal: Callable[[BaseException], object] = not_expected,
    builder: IndexBuilder | None = None,
) -> AsyncIterator[Engine]:
    """An engine over a given disk, its index in memory and built by the given builder."""
    index = MemoryIndex()
    store = open_store(disk, index, lambda _group: None, segment_bytes=settings.segment_bytes, salt=1)
    builder = builder or InlineBuilder(Builder(JournalReader(disk), index, index))
    loop = asyncio.get_running_loop()
    engine = Engine(store, builder, loop, settings=settings, durability="none", fatal=fatal, clock=clock)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield engine
    finally:
        async with asyncio.timeout(PATIENCE_S):
            await engine.close()


async def until(condition: Callable[[], bool]) -> None:
    """Give way until it holds; the engine's own timeout ends a vain wait."""
    while not condition():  # noqa: ASYNC110 - an engine has no event for what tests wait for
        await asyncio.sleep(0)


async def done(engine: Engine, command: Command, wanted: type[Wanted]) -> Wanted:
    """The outcome, which must be of this kind."""
    outcome = await engine.execute(command)
    assert isinstance(outcome, wanted), outcome
    return outcome


async def make_topic(engine: Engine, name: str, partitions: int = 1) -> TopicDone:
    return await done(engine, CreateTopic(name, partitions), TopicDone)


def append_of(topic: str, *values: bytes, partition: int = 0, **fields: Any) -> Append:
    return Append(topic, partition, codec.encode_values(values, TIMESTAMP_MS), len(values), **fields)


async def append(engine: Engine, topic: str, *values: bytes, partition: int = 0) -> Confirmed:
    return await done(engine, append_of(topic, *values, partition=partition), Confirmed)


def read_all(engine: Engine, topic: str, partition: int = 0, offset: int = 0) -> list[tuple[int, bytes]]:
    """(offset, value) of every record from `offset` to the stable end, in several reads."""
    found: list[tuple[int, bytes]] = []
    while True:
        result = engine.reads.read(topic, partition, offset, 20_000)
        assert not isinstance(result, Refusal), result
        for batch in result.batches:
            for delta, _, _, value, _ in codec.decode(batch.batch):
                if batch.base_offset + delta >= offset:
                    found.append((batch.base_offset + delta, value or b""))
        if result.next_offset >= result.stable:
            assert result.next_offset == result.stable
            return found
        assert result.next_offset > offset
        offset = result.next_offset


async def checkpoint(engine: Engine) -> None:
    """Bring the index up to now, and drop what it then has from memory."""
    generations = engine.generations
    await until(lambda: engine.commits.idle and not generations.building and not generations.cleaning)
    generations.seal()
    generations.group_durable()
    await until(lambda: not generations.building and not generations.cleaning)


async def begin_txn(engine: Engine, topic: str) -> TxnDone:
    who = await done(engine, InitProducer("t"), TxnDone)
    return await done(engine, AddToTxn("t", who.producer_id, who.epoch, [(topic, 0)]), TxnDone)


def txn_write(who: TxnDone, topic: str, sequence: int, value: bytes) -> Append:
    claim = ProducerClaim(f"kafka:{who.producer_id}", who.epoch, sequence, sequence, SequenceMode.RECORDS)
    return append_of(topic, value, claim=claim, txn_id="t")
