"""Where streams stood: every entry and every time of a random history, against a ledger of what was seen then."""

import asyncio
import random
from pathlib import Path

import pytest

from oncelog.core import batch as codec
from oncelog.core.command import (
    AppendStage,
    Commit,
    CommitAppend,
    OpenApplication,
    OpenStage,
    Publish,
    PublishItem,
    Trim,
)
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import ApplicationDone, CommitConfirmed, EntryAhead, NotACut, Refusal, StageDone
from oncelog.engine.engine import Engine
from oncelog.engine.seek import Stood
from oncelog.testing.sim_disk import SimDisk
from tests.engine.opening import TIMESTAMP_MS, append, append_of, done, make_topic, opened, opened_over

TOPICS = ["a", "b", "c"]
Ends = dict[str, int]


class Clock:
    """Stands until it is moved."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def __call__(self) -> int:
        return self.now_ns


async def stood(engine: Engine, entry: int | None = None, time_ns: int = 0) -> Ends | Refusal:
    future: asyncio.Future[list[Stood] | Refusal] = asyncio.get_running_loop().create_future()
    engine.reads.stood(TOPICS, future.set_result, entry=entry, time_ns=time_ns)
    found = await future
    if isinstance(found, Refusal):
        return found
    for each in found:
        assert each.is_floor == (each.stream.floor > 0 and each.offset == each.stream.floor)
    return {each.topic: each.offset for each in found}


def seen(engine: Engine) -> Ends:
    return {each.topic: each.stream.stable for each in engine.lookups.cut(TOPICS).streams}


async def write_something(engine: Engine, rng: random.Random) -> None:
    kind = rng.randrange(4)
    values = [b"x" * rng.randrange(1, 400) for _ in range(rng.randrange(1, 5))]
    batch = codec.encode_values(values, TIMESTAMP_MS)
    if kind == 0:
        appends = [CommitAppend(topic, 0, batch, len(values)) for topic in rng.sample(TOPICS, 2)]
        await done(engine, Commit(appends), CommitConfirmed)
    elif kind == 1:
        await publish(engine, rng.choice(TOPICS), batch, len(values))
    else:
        # Several at once become one group.
        many = [append_of(rng.choice(TOPICS), *values) for _ in range(rng.randrange(1, 4))]
        await asyncio.gather(*(engine.execute(command) for command in many))


async def publish(engine: Engine, topic: str, batch: bytes, count: int) -> None:
    """A stage of two batches, published: one place of the stream, whatever it holds."""
    fence = (await done(engine, OpenApplication("app"), ApplicationDone)).fence
    stage = await done(engine, OpenStage("app", fence), StageDone)
    for at in (0, count):
        await done(engine, AppendStage(stage.stage_id, at, batch, count, content_digest(batch)), StageDone)
    item = PublishItem(stage.stage_id, topic, 0, 2 * count)
    await done(engine, Publish([item], "app", fence, f"q{fence}", 0, accept_new_query=True), CommitConfirmed)


@pytest.mark.parametrize("seed", range(4))
def test_every_entry_and_every_time_of_a_history(seed: int) -> None:

    async def run() -> None:
        rng = random.Random(seed)
        clock = Clock()
        async with opened_over(SimDisk(), clock=clock) as engine:
            for topic in TOPICS:
                await make_topic(engine, topic)
            by_entry: dict[int, Ends] = {engine.view.entry_number: seen(engine)}
            before_time: list[tuple[int, Ends]] = []
            for _ in range(120):
                if rng.randrange(3) == 0:
                    clock.now_ns += rng.randrange(1, 5_000_000)
                    before_time.append((clock.now_ns, seen(engine)))
                await write_something(engine, rng)
                by_entry[engine.view.entry_number] = seen(engine)
            first, last = min(by_entry), engine.view.entry_number
            for entry in range(first, last + 1):
                found = await stood(engine, entry)
                if entry in by_entry:
                    assert found == by_entry[entry], f"entry {entry}"
                elif isinstance(found, NotACut):
                    assert found.before < entry < found.after
                else:
                    # Inside a publish's several entries: nobody was looking, and nothing became visible.
                    later = min(number for number in by_entry if number > entry)
                    earlier = max(number for number in by_entry if number < entry)
                    assert found in (by_entry[earlier], by_entry[later])
            for time_ns, ends in before_time:
                assert await stood(engine, time_ns=time_ns) == ends
            assert await stood(engine, time_ns=clock.now_ns + 1) == seen(engine)
            assert await stood(engine, time_ns=0) == dict.fromkeys(TOPICS, 0)

    asyncio.run(run())


def test_entry_that_is_not_there_yet() -> None:

    async def run() -> None:
        async with opened(None) as engine:
            await make_topic(engine, "a")
            last = engine.view.entry_number
            assert await stood(engine, last) == {"a": 0}
            assert await stood(engine, last + 1) == EntryAhead(last + 1, last)

    asyncio.run(run())


def test_entry_amid_a_group_names_its_neighbours() -> None:

    async def run() -> None:
        async with opened(None) as engine:
            await make_topic(engine, "a")
            before = engine.view.entry_number
            await asyncio.gather(*(engine.execute(append_of("a", b"x")) for _ in range(3)))
            assert engine.view.entry_number == before + 3, "one group: all three came before the first was written"
            assert await stood(engine, before + 1) == NotACut(before + 1, before, before + 3)
            assert await stood(engine, before + 3) == {"a": 3}

    asyncio.run(run())


def test_what_was_trimmed_is_not_pointed_to(tmp_path: Path) -> None:

    async def run() -> None:
        async with opened(tmp_path) as engine:
            await make_topic(engine, "a")
            entries = []
            for number in range(50):
                await append(engine, "a", b"%d" % number)
                entries.append(engine.view.entry_number)
            await engine.execute(Trim("a", 0, 20))
            assert await stood(engine, entries[4]) == {"a": 20}
            assert await stood(engine, entries[30]) == {"a": 31}

    asyncio.run(run())


def test_looks_into_the_index_and_in_front_of_it(tmp_path: Path) -> None:
    """After a restart all places are in the index; new ones are in memory."""

    async def run() -> None:
        ends: dict[int, int] = {}
        async with opened(tmp_path) as engine:
            await make_topic(engine, "a")
            for number in range(300):
                await append(engine, "a", bytes(500))
                ends[engine.view.entry_number] = number + 1
        async with opened(tmp_path) as engine:
            for number in range(300, 400):
                await append(engine, "a", bytes(500))
                ends[engine.view.entry_number] = number + 1
            for entry, end in ends.items():
                assert await stood(engine, entry) == {"a": end}

    asyncio.run(run())
