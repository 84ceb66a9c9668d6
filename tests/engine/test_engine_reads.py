"""Reads of an engine as its callers see them: what wakes, what is seen, where a stream ends, what damage says."""

import asyncio
from pathlib import Path
from unittest import mock

import pytest

from oncelog import limits
from oncelog.core.command import (
    AddToTxn,
    AppendStage,
    CloseStream,
    Commit,
    CommitAppend,
    DeleteRecords,
    EndTxn,
    GetStream,
    OpenApplication,
    OpenStage,
    Publish,
    PublishItem,
    Trim,
)
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import (
    ApplicationDone,
    CommitConfirmed,
    Confirmed,
    Damaged,
    OffsetAhead,
    OffsetGone,
    Outcome,
    Refusal,
    StageDone,
    StreamDone,
    TopicMissing,
    TxnDone,
)
from oncelog.engine.engine import Engine, Settings
from oncelog.engine.follow import Waiter
from oncelog.engine.reader import Way
from oncelog.engine.reads import ReadResult
from oncelog.errors import BatchInvalid, Corruption
from oncelog.storage.index.child import journal_directory
from tests.engine.opening import (
    SETTINGS,
    append,
    append_of,
    begin_txn,
    checkpoint,
    done,
    make_topic,
    opened,
    read_all,
    txn_write,
    until,
)

# --- readers -----------------------------------------------------------------------------------------------------


def test_reader_wakes_for_records_and_not_for_holes(place: Path | None) -> None:
    async def scenario() -> None:
        async with opened(place) as engine:
            await make_topic(engine, "a")
            woken: list[str] = []
            assert isinstance(engine.reads.wait("a", 0, 0, lambda: woken.append("record")), Waiter)
            who = await begin_txn(engine, "a")
            await done(engine, txn_write(who, "a", 0, b"aborted"), Confirmed)
            await done(engine, EndTxn("t", who.producer_id, who.epoch, commit=False), TxnDone)
            assert woken == []
            assert (await done(engine, GetStream("a"), StreamDone)).stable == 2
            await append(engine, "a", b"x")
            assert woken == ["record"]
            assert engine.reads.wait("a", 0, 0, lambda: None) is None, "there is something to read already"
            gone = engine.reads.wait("a", 0, 3, lambda: woken.append("cancelled"))
            assert isinstance(gone, Waiter)
            engine.follow.cancel(gone)
            engine.reads.wait("a", 0, 3, lambda: woken.append("closed"))
            await done(engine, CloseStream("a"), StreamDone)
            assert woken == ["record", "closed"]
            assert isinstance(engine.reads.wait("nowhere", 0, 0, lambda: None), TopicMissing)

    asyncio.run(scenario())


def test_cut_never_tears_a_commit_over_two_topics(place: Path | None) -> None:
    seen: set[int] = set()

    async def scenario() -> None:
        async with opened(place) as engine:
            await make_topic(engine, "a")
            await make_topic(engine, "b")
            batch = append_of("a", b"x").batch
            finished = 0

            def reply(outcome: Outcome) -> None:
                nonlocal finished
                assert isinstance(outcome, CommitConfirmed)
                finished += 1
                look()

            def look() -> None:
                cut = engine.lookups.cut(["a", "b"])
                first, second = (found.stream.stable for found in cut.streams)
                assert first == second
                seen.add(first)

            for number in range(400):
                engine.submit(Commit([CommitAppend("a", 0, batch, 1), CommitAppend("b", 0, batch, 1)]), reply)
                look()
                if number % 20 == 0:
                    await asyncio.sleep(0)
            await until(lambda: finished == 400)
            assert [found.topic for found in engine.lookups.cut().streams] == ["a", "b"]

    asyncio.run(scenario())
    assert max(seen) == 400
    assert len(seen) > 2, "the cuts were taken while commits were on their way"


def test_nothing_is_readable_before_it_is_durable() -> None:
    async def scenario() -> None:
        async with opened(None) as engine:
            await make_topic(engine, "a")
            outcomes: list[Outcome] = []
            engine.submit(append_of("a", b"x"), outcomes.append)
            engine.submit(GetStream("a"), outcomes.append)
            assert outcomes == []
            assert read_all(engine, "a") == []
            await until(lambda: len(outcomes) == 2)
            assert read_all(engine, "a") == [(0, b"x")]

    asyncio.run(scenario())


# --- reads over the index ----------------------------------------------------------------------------------------


async def write_with_holes_and_links(engine: Engine) -> tuple[dict[int, bytes], int]:
    """A stream with everything that a read can meet. Returns its records by offset, and its tail."""
    records: dict[int, bytes] = {}

    async def add(*values: bytes) -> None:
        first = (await append(engine, "a", *values)).first
        records.update(enumerate(values, first))

    for number in range(150):
        await add(*(b"%d/%d" % (number, part) * 20 for part in range(3)))
    for first, next_ in ((4, 5), (9, 12), (13, 17), (440, 443)):  # inside a batch, a whole one, across two
        await done(engine, DeleteRecords("a", 0, [first, next_]), StreamDone)
        for offset in range(first, next_):
            del records[offset]
    who = await begin_txn(engine, "a")
    for commit, value in ((False, b"aborted"), (True, b"committed")):
        if commit:
            await done(engine, AddToTxn("t", who.producer_id, who.epoch, [("a", 0)]), TxnDone)
        written = await done(engine, txn_write(who, "a", int(commit), value), Confirmed)
        await done(engine, EndTxn("t", who.producer_id, who.epoch, commit), TxnDone)
        if commit:
            records[written.first] = value
    application = await done(engine, OpenApplication("app"), ApplicationDone)
    for batch in range(3):
        items: list[PublishItem] = []
        staged: list[bytes] = []
        for task in range(2):
            stage = await done(engine, OpenStage("app", application.fence), StageDone)
            for at in range(0, 90, 3):
                values = [b"staged/%d/%d/%d" % (batch, task, at + part) for part in range(3)]
                command = append_of("a", *values)
                digest = content_digest(b"".join(values))
                await done(engine, AppendStage(stage.stage_id, at, command.batch, 3, digest), StageDone)
                staged += values
            items.append(PublishItem(stage.stage_id, "a", 0, 90))
        published = await done(engine, Publish(items, "app", application.fence, "q", batch), CommitConfirmed)
        records.update(enumerate(staged, published.outcome[1]))
        await add(b"after")
    # A hole inside what was published by reference.
    middle = published.outcome[1] + 100
    await done(engine, DeleteRecords("a", 0, [middle, middle + 2]), StreamDone)
    del records[middle], records[middle + 1]
    await done(engine, Trim("a", 0, 7), StreamDone)
    tail = (await done(engine, GetStream("a"), StreamDone)).tail
    return {offset: value for offset, value in records.items() if offset >= 7}, tail


def assert_reads(engine: Engine, records: dict[int, bytes], tail: int) -> None:
    for offset in [*range(7, tail, 11), *range(7, 20), tail]:
        expected = [(at, value) for at, value in sorted(records.items()) if at >= offset]
        assert read_all(engine, "a", offset=offset) == expected, offset
    assert isinstance(engine.reads.read("a", 0, 6), OffsetGone)
    assert isinstance(engine.reads.read("a", 0, tail + 1), OffsetAhead)
    assert isinstance(engine.reads.read("a", 1, 0), TopicMissing)


def test_reads_over_holes_and_links_are_the_same_from_memory_and_from_the_index(
    place: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROWS_CACHED_MAX", 1)

    async def scenario() -> None:
        async with opened(place, Settings(SETTINGS.segment_bytes, limits.CHECKPOINT_BYTES)) as engine:
            await make_topic(engine, "a")
            records, tail = await write_with_holes_and_links(engine)
            assert_reads(engine, records, tail)
            await checkpoint(engine)
            assert not engine.view.streams
            assert len(engine.commits.state.streams) <= 1
            assert_reads(engine, records, tail)
            # Part from the index, part from memory.
            first = (await append(engine, "a", b"new", b"newer")).first
            records.update({first: b"new", first + 1: b"newer"})
            await done(engine, DeleteRecords("a", 0, [tail - 1, tail]), StreamDone)
            del records[tail - 1]
            assert_reads(engine, records, tail + 2)

    asyncio.run(scenario())


def test_reads_over_holes_and_links_are_the_same_after_a_restart(tmp_path: Path) -> None:
    records: dict[int, bytes] = {}
    tail = 0

    async def write() -> None:
        nonlocal records, tail
        async with opened(tmp_path / "log") as engine:
            await make_topic(engine, "a")
            records, tail = await write_with_holes_and_links(engine)

    async def look() -> None:
        async with opened(tmp_path / "log") as engine:
            assert_reads(engine, records, tail)

    asyncio.run(write())
    asyncio.run(look())


# --- the end of a stream -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_closed_stream_is_at_its_end_only_when_its_last_txn_is(place: Path | None, commit: bool) -> None:
    def closed(engine: Engine, *, uncommitted: bool = False) -> bool:
        result = engine.reads.read("a", 0, 0, way=Way.UNCOMMITTED if uncommitted else Way.COMMITTED)
        assert isinstance(result, ReadResult)
        return result.closed

    async def scenario() -> None:
        async with opened(place) as engine:
            await make_topic(engine, "a")
            who = await begin_txn(engine, "a")
            await done(engine, txn_write(who, "a", 0, b"open"), Confirmed)
            woken: list[None] = []
            assert isinstance(engine.reads.wait("a", 0, 0, lambda: woken.append(None)), Waiter)
            await done(engine, CloseStream("a"), StreamDone)
            assert (closed(engine), closed(engine, uncommitted=True), woken) == (False, True, [])
            await done(engine, EndTxn("t", who.producer_id, who.epoch, commit), TxnDone)
            assert (closed(engine), closed(engine, uncommitted=True), woken) == (True, True, [None])
            assert read_all(engine, "a") == ([(0, b"open")] if commit else [])

    asyncio.run(scenario())


# --- damage ------------------------------------------------------------------------------------------------------


async def read_soon(engine: Engine, topic: str, offset: int) -> ReadResult | Refusal:
    future: asyncio.Future[ReadResult | Refusal] = asyncio.get_running_loop().create_future()
    engine.reads.read_soon(topic, 0, offset, limits.MIB, future.set_result)
    return await future


def test_read_of_a_damaged_batch_names_the_file_and_the_byte(tmp_path: Path) -> None:
    damaged = append_of("a", b"to be damaged" * 50)
    what = "offset 1 does not match its checksum"

    async def write() -> None:
        async with opened(tmp_path / "log") as engine:
            await make_topic(engine, "a")
            await append(engine, "a", b"intact")
            await done(engine, damaged, Confirmed)

    async def look() -> None:
        async with opened(tmp_path / "log") as engine:
            assert engine.statistics().replayed_entries == 0, (
                "the index is kept, so that only the read meets the damage"
            )
            with pytest.raises(Corruption, match=what) as raised:
                engine.reads.read("a", 0, 1)
            assert (raised.value.file, raised.value.position) == (segment.name, first)
            for recent_bytes in (limits.READ_RECENT_BYTES, -1):
                with mock.patch.object(limits, "READ_RECENT_BYTES", recent_bytes):
                    told = await read_soon(engine, "a", 1)
                assert isinstance(told, Damaged)
                assert (told.file, told.position) == (segment.name, first)
                assert what in told.what
            intact = engine.reads.read("a", 0, 0, 1)
            assert isinstance(intact, ReadResult)
            assert [batch.base_offset for batch in intact.batches] == [0]

    asyncio.run(write())
    segment = journal_directory(tmp_path / "log") / "segment-000000000000"
    content = bytearray(segment.read_bytes())
    first = content.index(damaged.batch)
    content[first + 300] ^= 0x01
    segment.write_bytes(content)
    asyncio.run(look())


@pytest.mark.from_source
def test_batch_whose_holes_cannot_be_cut_out_is_damaged(place: Path | None) -> None:
    async def scenario() -> None:
        async with opened(place) as engine:
            await make_topic(engine, "a")
            await append(engine, "a", b"x", b"y")
            await done(engine, DeleteRecords("a", 0, [0, 1]), StreamDone)
            with mock.patch("oncelog.engine.reader.codec.without", side_effect=BatchInvalid("no records", 61)):
                told = await read_soon(engine, "a", 0)
            assert isinstance(told, Damaged)
            assert "the batch at offset 0 cannot be decoded" in told.what

    asyncio.run(scenario())
