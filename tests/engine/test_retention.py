"""Retention: floors rise by age, size and count, as entries, never past open transactions and pinned consumers."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.core.command import (
    ConfigureTopic,
    CreateTopic,
    CursorMove,
    DeleteRecords,
    DeleteTopic,
    EndTxn,
    MoveCursors,
)
from oncelog.core.outcome import CommitConfirmed, Confirmed, OffsetGone, StreamDone, TopicDone, TopicMissing, TxnDone
from oncelog.core.rows import TopicConfig
from oncelog.engine.engine import Engine
from oncelog.storage.disk import MemoryDisk
from tests.engine.opening import (
    append,
    append_of,
    begin_txn,
    checkpoint,
    done,
    opened,
    opened_over,
    read_all,
    txn_write,
    until,
)

SECOND_NS = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1_000 * SECOND_NS

    def __call__(self) -> int:
        return self.now_ns

    def pass_s(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND_NS)


def floor(engine: Engine, topic: str = "a") -> int:
    stream = engine.reads.resolve(topic, 0)
    assert not isinstance(stream, TopicMissing)
    return stream.floor


async def settled(engine: Engine) -> None:
    """Check until nothing rises any more: as the timer does, once a second."""
    before = -1
    while before != engine.retention.trims_total or engine.retention._changed:
        before = engine.retention.trims_total
        engine.retention.check(engine.now_ns())
        await asyncio.sleep(0)
        await until(lambda: engine.commits.idle)


async def make(engine: Engine, **settings: int) -> None:
    await done(engine, CreateTopic("a", 1, TopicConfig(**settings)), TopicDone)  # type: ignore[arg-type]


def over_memory(scenario: Callable[[Engine, Clock], object]) -> None:
    """Run it with a clock of its own."""

    async def run() -> None:
        clock = Clock()
        async with opened_over(MemoryDisk(), clock=clock) as engine:
            await scenario(engine, clock)  # type: ignore[misc]

    asyncio.run(run())


def test_records_go_by_age() -> None:
    async def scenario(engine: Engine, clock: Clock) -> None:
        await make(engine, retention_ms=10_000)
        for _ in range(5):
            await append(engine, "a", b"x", b"y")
            clock.pass_s(3)
        await settled(engine)
        # Now 15 s after the first append: those at 0 and 3 s are more than 10 s old.
        assert floor(engine) == 4
        clock.pass_s(0.5)
        await settled(engine)
        assert floor(engine) == 4
        clock.pass_s(3)
        await settled(engine)
        assert floor(engine) == 6
        clock.pass_s(60)
        await settled(engine)
        assert floor(engine) == 10
        await append(engine, "a", b"new")
        await settled(engine)
        assert read_all(engine, "a", offset=10) == [(10, b"new")]
        assert isinstance(engine.reads.read("a", 0, 3), OffsetGone)

    over_memory(scenario)


def test_records_go_by_count_and_holes_do_not_count() -> None:
    async def scenario(engine: Engine, _clock: Clock) -> None:
        await make(engine, retention_records=5)
        await append(engine, "a", *[b"%d" % number for number in range(9)])
        await settled(engine)
        assert floor(engine) == 4
        await done(engine, DeleteRecords("a", 0, [5, 7]), StreamDone)
        await append(engine, "a", b"9", b"10")
        await settled(engine)
        assert [offset for offset, _ in read_all(engine, "a", offset=floor(engine))] == [4, 7, 8, 9, 10]
        await append(engine, "a", b"11")
        await settled(engine)
        assert [offset for offset, _ in read_all(engine, "a", offset=floor(engine))] == [7, 8, 9, 10, 11]

    over_memory(scenario)


def test_records_go_by_size_and_at_least_that_much_stays() -> None:
    async def scenario(engine: Engine, _clock: Clock) -> None:
        one = len(append_of("a", b"x" * 1_000).batch)
        await make(engine, retention_bytes=10 * one)
        for _ in range(25):
            await append(engine, "a", b"x" * 1_000)
        await settled(engine)
        assert floor(engine) == 15
        await append(engine, "a", b"x" * 1_000)
        await settled(engine)
        assert floor(engine) == 16
        await done(engine, ConfigureTopic("a", changes={"retention_bytes": 3 * one + 1}), TopicDone)
        await settled(engine)
        assert floor(engine) == 26 - 4
        await done(engine, ConfigureTopic("a", changes={"retention_bytes": 0}), TopicDone)
        await append(engine, "a", b"x" * 100_000)
        await settled(engine)
        assert floor(engine) == 22

    over_memory(scenario)


def test_an_open_transaction_and_a_pinned_consumer_hold_it_back() -> None:
    async def scenario(engine: Engine, _clock: Clock) -> None:
        await make(engine, retention_records=1)
        await append(engine, "a", *[b"x"] * 4)
        who = await begin_txn(engine, "a")
        await done(engine, txn_write(who, "a", 0, b"open"), Confirmed)
        await append(engine, "a", b"behind", b"behind")
        await done(engine, MoveCursors([CursorMove("slow", "a", 0, 2, pinned=True)]), CommitConfirmed)
        await settled(engine)
        assert floor(engine) == 2
        (held,) = engine.retention.held_back.values()
        assert (held.topic, held.floor, held.wanted) == ("a", 2, 3)
        await done(engine, MoveCursors([CursorMove("slow", "a", 0, 4, pinned=True)]), CommitConfirmed)
        await append(engine, "a", b"behind")
        await settled(engine)
        assert floor(engine) == 3, "one record below stable stays, and the transaction is open at 4"
        assert engine.retention.held_back == {}
        await done(engine, EndTxn("t", who.producer_id, who.epoch, True), TxnDone)
        await append(engine, "a", b"last")
        await settled(engine)
        assert floor(engine) == 4, "the pinned consumer"

    over_memory(scenario)


def test_limits_are_known_again_after_a_restart(tmp_path: Path) -> None:
    async def write(engine: Engine) -> None:
        await make(engine, retention_records=2)
        await done(engine, CreateTopic("gone", 1, TopicConfig(retention_records=1)), TopicDone)
        await done(engine, DeleteTopic("gone"), TopicDone)
        await append(engine, "a", *[b"x"] * 7)
        await checkpoint(engine)

    async def scenario() -> None:
        async with opened(tmp_path / "log") as engine:
            await write(engine)
        async with opened(tmp_path / "log") as engine:
            await settled(engine)
            assert floor(engine) == 5
            assert len(engine.retention._watched) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["retention_ms", "retention_bytes", "retention_records"])
def test_a_limit_below_zero_is_refused(name: str) -> None:
    async def scenario(engine: Engine, _clock: Clock) -> None:
        outcome = await engine.execute(CreateTopic("a", 1, TopicConfig(**{name: -1})))  # type: ignore[arg-type]
        assert type(outcome).__name__ == "TooLarge"

    over_memory(scenario)
