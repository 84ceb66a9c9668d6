"""Appends that wait for their group to leave: what comes until then shares a batch, and nobody waits for long."""

import asyncio

from oncelog.core.command import Columns, GetStream, one_value
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import Confirmed, Outcome
from oncelog.engine.engine import Engine
from tests.engine.opening import PATIENCE_S, done, make_topic, opened, read_all, until

WRITERS = 3
TRIES = 50
SLOW_S = 1.0


def record(value: bytes, id_: bytes = b"") -> Columns:
    return one_value("a", 0, value, content_digest(value), None, id_)


async def written_together(engine: Engine) -> None:
    """One group answers all writers, and took so long that the next one is kept open for them."""
    await asyncio.gather(*(engine.execute(record(b"together")) for _ in range(WRITERS)))
    engine._pacing.seconds.last = SLOW_S


async def turns_until_answered(engine: Engine, command: Columns) -> int:
    outcomes: list[Outcome] = []
    engine.submit(command, outcomes.append)
    turns = 0
    while not outcomes:
        await asyncio.sleep(0)
        turns += 1
    assert isinstance(outcomes[0], Confirmed)
    return turns


def test_appends_of_several_turns_are_one_batch_if_their_group_was_kept_open_for_them() -> None:
    asyncio.run(_share_a_batch())


async def _share_a_batch() -> None:
    async with opened(None) as engine:
        await make_topic(engine, "a")
        entries: list[int] = []
        # A machine that stands still for as long as a group is kept open may break one try, not all of them.
        while 1 not in entries and len(entries) < TRIES:
            await written_together(engine)
            before = engine.view.entry_number
            answers = []
            for number in range(WRITERS):
                answers.append(asyncio.ensure_future(engine.execute(record(b"%d" % number))))
                await asyncio.sleep(0)  # a turn of the loop between any two of them
            confirmed = [outcome for outcome in await asyncio.gather(*answers) if isinstance(outcome, Confirmed)]
            entries.append(engine.view.entry_number - before)
            first = confirmed[0].first
            assert [outcome.first for outcome in confirmed] == [first, first + 1, first + 2]
            assert read_all(engine, "a", offset=first) == [(first, b"0"), (first + 1, b"1"), (first + 2, b"2")]
        assert entries[-1] == 1, entries


def test_a_retry_waits_for_those_who_were_answered_once_and_then_no_more() -> None:
    """Nothing is written for a retry, so no group tells anew how many are to be expected."""
    asyncio.run(_retry())


async def _retry() -> None:
    async with opened(None) as engine:
        await make_topic(engine, "a")
        await done(engine, record(b"v", id_=b"m"), Confirmed)
        await written_together(engine)
        before = engine.view.entry_number
        waited = []
        for _ in range(4):
            engine._pacing.seconds.last = SLOW_S
            waited.append(await turns_until_answered(engine, record(b"v", id_=b"m")))
        assert max(waited[1:]) <= 3, waited
        assert engine.view.entry_number == before, "nothing was written"


def test_a_writer_does_not_wait_for_those_who_only_ask() -> None:
    """One writes, many ask beside it: its next write leaves in the turn in which it came."""
    asyncio.run(_asked_beside())


async def _asked_beside() -> None:
    async with opened(None) as engine:
        await make_topic(engine, "a")
        asked: list[Outcome] = []
        first = asyncio.ensure_future(engine.execute(record(b"first")))
        await until(lambda: engine.commits.is_writing)
        for _ in range(20):
            engine.submit(GetStream("a", 0), asked.append)
        await first
        assert len(asked) == 20
        engine._pacing.seconds.last = SLOW_S
        assert engine._pacing._hold.is_complete(1)
        alone = asyncio.ensure_future(engine.execute(record(b"second")))
        await asyncio.sleep(0)
        for _ in range(20):
            engine.submit(GetStream("a", 0), asked.append)
        assert engine.commits.joined_count <= 1
        await alone


def test_append_that_comes_while_a_group_is_written_is_answered_without_anybody_behind_it() -> None:
    asyncio.run(_alone_behind_a_group())


async def _alone_behind_a_group() -> None:
    async with opened(None) as engine:
        await make_topic(engine, "a")
        first = asyncio.ensure_future(engine.execute(record(b"first")))
        await until(lambda: engine.commits.is_writing)
        behind = asyncio.ensure_future(engine.execute(record(b"behind")))
        outcomes = await asyncio.wait_for(asyncio.gather(first, behind), PATIENCE_S / 2)
        assert [outcome.first for outcome in outcomes if isinstance(outcome, Confirmed)] == [0, 1]
