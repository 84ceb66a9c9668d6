"""Publishing stages whose records carry message ids: read from the disk, judged once, known everywhere after."""

import asyncio
from pathlib import Path
from unittest import mock

import pytest

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import AppendStage, OpenApplication, OpenStage, Publish, PublishItem
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import (
    ApplicationDone,
    CommitConfirmed,
    Confirmed,
    Damaged,
    IdConflict,
    Outcome,
    StageBusy,
    StageCountMismatch,
    StageDone,
    StageMissing,
    TooLarge,
)
from oncelog.core.record import MESSAGE_ID_HEADER
from oncelog.engine.engine import Engine, Settings
from oncelog.errors import BatchInvalid
from oncelog.storage.verify import verify
from tests.engine.opening import TIMESTAMP_MS, append_of, done, make_topic, opened, opened_over, read_all, until
from tests.engine.test_faults_end_it import GatedDisk

Named = tuple[bytes | None, bytes]
"""A message id and a value."""


def batch_of(records: list[Named]) -> bytes:
    return codec.encode(
        [
            (number, TIMESTAMP_MS, None, value, ((MESSAGE_ID_HEADER, id_),) if id_ is not None else ())
            for number, (id_, value) in enumerate(records)
        ]
    )


async def staged(engine: Engine, *batches: list[Named]) -> tuple[int, int]:
    """(stage, fence) with these batches."""
    fence = (await done(engine, OpenApplication("app"), ApplicationDone)).fence
    stage = await done(engine, OpenStage("app", fence), StageDone)
    at = 0
    for records in batches:
        batch = batch_of(records)
        command = AppendStage(stage.stage_id, at, batch, len(records), content_digest(batch))
        at = (await done(engine, command, StageDone)).count
    return stage.stage_id, fence


async def publish(engine: Engine, stage: tuple[int, int], count: int, batch: int = 0) -> Outcome:
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    item = PublishItem(stage[0], "a", 0, count, named=True)
    engine.publish(Publish([item], "app", stage[1], "q", batch), future.set_result)
    return await future


@pytest.mark.parametrize("where", ["directory", "memory"])
def test_known_ids_are_left_out_and_fresh_ones_are_known_to_all(tmp_path: Path, where: str) -> None:
    directory = tmp_path if where == "directory" else None

    async def scenario() -> None:
        async with opened(directory) as engine:
            await make_topic(engine, "a")
            first = append_of("a", b"one", digest=content_digest(b"one"), message_id=b"1")
            await done(engine, first, Confirmed)
            stage = await staged(
                engine, [(b"1", b"one"), (b"2", b"two"), (None, b"free")], [(b"2", b"two"), (b"3", b"x")]
            )
            assert isinstance(await publish(engine, stage, 5), CommitConfirmed)
            assert read_all(engine, "a") == [(0, b"one"), (2, b"two"), (3, b"free"), (5, b"x")]
            again = append_of("a", b"x", digest=content_digest(b"x"), message_id=b"3")
            answer = await done(engine, again, Confirmed)
            assert (answer.first, answer.duplicate) == (5, True)
            replay = await publish(engine, stage, 5)
            assert isinstance(replay, CommitConfirmed)
            assert replay.duplicate

    asyncio.run(scenario())
    if directory is not None:
        assert verify(directory).is_sound


def test_ids_are_known_after_a_restart(tmp_path: Path) -> None:
    async def write() -> None:
        async with opened(tmp_path) as engine:
            await make_topic(engine, "a")
            stage = await staged(engine, [(b"%d" % number, b"v%d" % number) for number in range(500)])
            assert isinstance(await publish(engine, stage, 500), CommitConfirmed)

    async def again() -> None:
        async with opened(tmp_path) as engine:
            stage = await staged(engine, [(b"%d" % number, b"v%d" % number) for number in range(490, 510)])
            assert isinstance(await publish(engine, stage, 20, 1), CommitConfirmed)
            assert [offset for offset, _ in read_all(engine, "a", offset=490)] == [*range(490, 500), *range(510, 520)]

    asyncio.run(write())
    asyncio.run(again())


def test_conflict_publishes_nothing() -> None:
    async def scenario() -> None:
        async with opened(None) as engine:
            await make_topic(engine, "a")
            stage = await staged(engine, [(b"1", b"one"), (b"1", b"other")])
            outcome = await publish(engine, stage, 2)
            assert outcome == IdConflict(2, 0, content_digest(b"one"), content_digest(b"other"), "1", "a", 0)
            assert read_all(engine, "a") == []

    asyncio.run(scenario())


def test_stage_that_grows_while_its_ids_are_read_is_not_published() -> None:
    """Asked for with the count that it will have a moment later: nobody has seen the ids of that record."""

    async def scenario() -> None:
        async with opened(None) as engine:
            await make_topic(engine, "a")
            first = append_of("a", b"one", digest=content_digest(b"one"), message_id=b"1")
            await done(engine, first, Confirmed)
            stage = await staged(engine, [(b"9", b"nine")])
            publishing = asyncio.ensure_future(publish(engine, stage, 2))
            await asyncio.sleep(0)
            batch = batch_of([(b"1", b"one")])
            await done(engine, AppendStage(stage[0], 1, batch, 1, content_digest(batch)), StageDone)
            assert await publishing in (StageBusy(stage[0]), StageCountMismatch(stage[0], 2, 1))
            assert read_all(engine, "a") == [(0, b"one")]
            assert isinstance(await publish(engine, stage, 2), CommitConfirmed)
            assert read_all(engine, "a") == [(0, b"one"), (1, b"nine")]

    asyncio.run(scenario())


def test_what_is_not_there_is_told_by_the_rules() -> None:
    async def scenario() -> None:
        async with opened(None) as engine:
            await make_topic(engine, "a")
            _, fence = await staged(engine, [(b"1", b"one")])
            assert await publish(engine, (999, fence), 1) == StageMissing(999)
            over = limits.PUBLISH_IDS_MAX + 1
            assert isinstance(await publish(engine, (999, fence), over), TooLarge)
            with mock.patch("oncelog.engine.engine.plans_of", side_effect=AssertionError("nothing is to be read")):
                assert isinstance(await publish(engine, (999, fence), -1), TooLarge)

    asyncio.run(scenario())


def test_others_are_served_while_the_ids_are_read() -> None:
    """The disk is read on another thread: an append that comes behind the publish does not wait for it to be read."""

    async def scenario() -> None:
        async with opened(None, Settings()) as engine:
            await make_topic(engine, "a")
            await make_topic(engine, "b")
            count = limits.PUBLISH_IDS_MAX
            whole: list[Named] = [(b"%d" % number, b"value") for number in range(count)]
            stage = await staged(engine, *(whole[at : at + 5_000] for at in range(0, count, 5_000)))
            publishing = asyncio.ensure_future(publish(engine, stage, count))
            await done(engine, append_of("b", b"x"), Confirmed)
            assert not publishing.done()
            assert isinstance(await publishing, CommitConfirmed)

    asyncio.run(scenario())


def test_stage_that_cannot_be_decoded_is_damaged_and_not_published() -> None:
    async def scenario() -> None:
        async with opened(None) as engine:
            await make_topic(engine, "a")
            stage = await staged(engine, [(b"1", b"one")])
            with mock.patch("oncelog.engine.staged_ids.ids_in", side_effect=BatchInvalid("no records", 61)):
                outcome = await publish(engine, stage, 1)
            assert isinstance(outcome, Damaged)
            assert f"of stage {stage[0]} cannot be decoded" in outcome.what
            assert outcome.position > 0
            assert isinstance(await publish(engine, stage, 1), CommitConfirmed)

    asyncio.run(scenario())


def test_stage_that_is_written_to_while_others_become_durable_is_waited_for() -> None:
    """The publish waits for one group, and the stage gets its record in the next: that one must be on disk as well."""

    async def scenario() -> None:
        disk = GatedDisk()
        async with opened_over(disk) as engine:
            await make_topic(engine, "a")
            stage = await staged(engine)
            disk.gate.clear()
            engine.submit(append_of("a", b"in flight"), lambda _: None)
            await until(lambda: engine.commits._in_flight is not None)
            publishing = asyncio.ensure_future(publish(engine, stage, 1))
            await asyncio.sleep(0)
            batch = batch_of([(b"1", b"one")])
            engine.submit(AppendStage(stage[0], 0, batch, 1, content_digest(batch)), lambda _: None)
            disk.gate.set()
            assert isinstance(await publishing, CommitConfirmed)
            assert read_all(engine, "a") == [(0, b"in flight"), (1, b"one")]

    asyncio.run(scenario())
