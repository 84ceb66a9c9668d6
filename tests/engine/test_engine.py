"""The engine as its callers see it, over a real directory and in memory."""

import asyncio
import errno
from pathlib import Path

import pytest

from oncelog import limits
from oncelog.core.command import (
    AddToTxn,
    Append,
    AppendStage,
    CloseStream,
    Commit,
    CommitAppend,
    CursorMove,
    DeleteRecords,
    EndTxn,
    GetCursor,
    GetProducer,
    GetStream,
    GetTopic,
    GetTxn,
    InitProducer,
    MoveCursors,
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
    CursorDone,
    NoRoom,
    OffsetAhead,
    OffsetGone,
    Outcome,
    Overloaded,
    StageDone,
    StreamDone,
    TooLarge,
    TopicFound,
    TopicMissing,
    TxnDone,
    TxnFound,
)
from oncelog.core.producer import ProducerClaim, SequenceMode
from oncelog.core.txn import NS_PER_MS, TxnState
from oncelog.engine.engine import Engine, ReadResult, Settings
from oncelog.engine.follow import Waiter
from oncelog.engine.store import open_store
from oncelog.errors import Corruption, DirectoryInUse, DiskFault
from oncelog.storage.disk import MemoryDisk, MemoryFile
from oncelog.storage.index.builder import Builder, InlineBuilder
from oncelog.storage.index.child import journal_directory
from oncelog.storage.index.interface import Full, Reply
from oncelog.storage.index.memory_index import MemoryIndex
from oncelog.storage.journal import JournalReader
from tests.engine.opening import (
    PATIENCE_S,
    SETTINGS,
    append,
    append_of,
    checkpoint,
    done,
    make_topic,
    not_expected,
    opened,
    opened_over,
    read_all,
    until,
)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_ns = 1_700_000_000 * 1_000_000_000

    def __call__(self) -> int:
        return self.now_ns

    def pass_ms(self, ms: int) -> None:
        self.now_ns += ms * NS_PER_MS


@pytest.fixture(params=["directory", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "log" if request.param == "directory" else None


async def begin_txn(engine: Engine, topic: str) -> TxnDone:
    who = await done(engine, InitProducer("t"), TxnDone)
    return await done(engine, AddToTxn("t", who.producer_id, who.epoch, [(topic, 0)]), TxnDone)


def txn_write(who: TxnDone, topic: str, sequence: int, value: bytes) -> Append:
    claim = ProducerClaim(f"kafka:{who.producer_id}", who.epoch, sequence, sequence, SequenceMode.RECORDS)
    return append_of(topic, value, claim=claim, txn_id="t")


# --- opening and closing -----------------------------------------------------------------------------------------


def test_second_engine_on_a_directory_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "log") as engine:
            await make_topic(engine, "a")
            with pytest.raises(DirectoryInUse):
                async with opened(tmp_path / "log"):
                    pass
            assert (await append(engine, "a", b"x")).first == 0
        async with opened(tmp_path / "log") as engine:
            assert read_all(engine, "a") == [(0, b"x")]

    asyncio.run(scenario())


def test_engine_says_what_a_confirm_has_behind_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "log") as engine:
            assert engine.durability == "fdatasync"
        async with opened(None) as engine:
            assert engine.durability == "none"

    asyncio.run(scenario())


def test_clean_stop_keeps_everything_and_leaves_nothing_to_replay(tmp_path: Path) -> None:
    id_append = append_of("a", b"id", digest=content_digest(b"id"), message_id=b"m")
    claimed = append_of("a", b"seq", claim=ProducerClaim("http:p", 0, 0, 0, SequenceMode.REQUESTS))
    confirmed: list[Confirmed] = []

    async def write() -> None:
        async with opened(tmp_path / "log") as engine:
            await make_topic(engine, "a")
            for command in (id_append, claimed):
                confirmed.append(await done(engine, command, Confirmed))
            await append(engine, "a", b"x", b"y", b"z")
            await done(engine, DeleteRecords("a", 0, [3, 4]), StreamDone)
            await done(engine, MoveCursors([CursorMove("c", "a", 0, 2)]), CommitConfirmed)

    async def look() -> None:
        async with opened(tmp_path / "log") as engine:
            assert engine.replayed_entries == 0
            assert read_all(engine, "a") == [(0, b"id"), (1, b"seq"), (2, b"x"), (4, b"z")]
            for command, first in zip((id_append, claimed), confirmed, strict=True):
                again = await done(engine, command, Confirmed)
                assert again.duplicate
                assert (again.stream_id, again.first, again.next) == (first.stream_id, first.first, first.next)
            cursor = (await done(engine, GetCursor("c", "a", 0), CursorDone)).cursor
            assert cursor is not None
            assert cursor.frontier == 2
            assert (await append(engine, "a", b"w")).first == 5

    asyncio.run(write())
    asyncio.run(look())


def test_close_writes_what_was_submitted_before_it(place: Path | None) -> None:
    outcomes: list[Outcome] = []

    async def scenario() -> None:
        async with opened(place) as engine:
            await make_topic(engine, "a")
            for number in range(300):
                engine.submit(append_of("a", b"%d" % number), outcomes.append)

    asyncio.run(scenario())
    assert [outcome.first for outcome in outcomes if isinstance(outcome, Confirmed)] == list(range(300))


# --- time --------------------------------------------------------------------------------------------------------


def test_idle_journal_is_proven_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with opened_over(MemoryDisk()) as engine:
            await make_topic(engine, "a")
            groups, used = engine.commits.groups_total, engine.journal_stats.used_bytes
            engine._tick()
            assert engine.commits.idle, "it was not idle for long enough"
            monkeypatch.setattr(limits, "PROOF_IDLE_MS", 0)
            engine._tick()
            await until(lambda: engine.commits.idle)
            assert engine.commits.groups_total == groups + 1
            assert engine.journal_stats.used_bytes > used
            engine._tick()
            await until(lambda: engine.commits.idle)
            assert engine.commits.groups_total == groups + 1, "what is proven needs no second proof"
            await append(engine, "a", b"x")
            engine._tick()
            await until(lambda: engine.commits.idle)
            assert engine.commits.groups_total == groups + 3
            assert read_all(engine, "a") == [(0, b"x")]

    asyncio.run(scenario())


def test_abandoned_txn_is_ended_by_the_timer_and_frees_its_readers() -> None:
    clock = Clock()

    async def scenario() -> None:
        async with opened_over(MemoryDisk(), clock=clock) as engine:
            await make_topic(engine, "a")
            who = await begin_txn(engine, "a")
            await done(engine, txn_write(who, "a", 0, b"open"), Confirmed)
            await append(engine, "a", b"behind")
            assert read_all(engine, "a") == [], "what is open holds back what is behind it"
            clock.pass_ms(limits.TXN_TIMEOUT_MS_DEFAULT - 1)
            engine._tick()
            assert (await done(engine, GetTxn("t"), TxnFound)).txn.state is TxnState.ONGOING
            clock.pass_ms(1)
            engine._tick()
            assert (await done(engine, GetTxn("t"), TxnFound)).txn.state is TxnState.COMPLETE_ABORT
            assert read_all(engine, "a") == [(1, b"behind")]

    asyncio.run(scenario())


def test_abandoned_stage_is_dropped_by_the_timer_and_a_used_one_is_renewed() -> None:
    clock = Clock()

    async def scenario() -> None:
        async with opened_over(MemoryDisk(), clock=clock) as engine:
            await make_topic(engine, "a")
            idle = await done(engine, OpenStage(ttl_ms=1_000), StageDone)
            used = await done(engine, OpenStage(ttl_ms=1_000), StageDone)
            clock.pass_ms(600)
            batch = append_of("a", b"x").batch
            await done(engine, AppendStage(used.stage_id, 0, batch, 1, b"d" * 16), StageDone)
            clock.pass_ms(600)
            engine._tick()
            await done(engine, GetTopic("a"), TopicFound)  # behind whatever the timer has asked for
            stages = engine.commits.state.stages
            assert stages[idle.stage_id] is None
            assert stages[used.stage_id] is not None

    asyncio.run(scenario())


# --- readers -----------------------------------------------------------------------------------------------------


def test_reader_wakes_for_records_and_not_for_holes(place: Path | None) -> None:
    async def scenario() -> None:
        async with opened(place) as engine:
            await make_topic(engine, "a")
            woken: list[str] = []
            assert isinstance(engine.wait("a", 0, 0, lambda: woken.append("record")), Waiter)
            who = await begin_txn(engine, "a")
            await done(engine, txn_write(who, "a", 0, b"aborted"), Confirmed)
            await done(engine, EndTxn("t", who.producer_id, who.epoch, commit=False), TxnDone)
            assert woken == []
            assert (await done(engine, GetStream("a"), StreamDone)).stable == 2
            await append(engine, "a", b"x")
            assert woken == ["record"]
            assert engine.wait("a", 0, 0, lambda: None) is None, "there is something to read already"
            gone = engine.wait("a", 0, 3, lambda: woken.append("cancelled"))
            assert isinstance(gone, Waiter)
            engine.follow.cancel(gone)
            engine.wait("a", 0, 3, lambda: woken.append("closed"))
            await done(engine, CloseStream("a"), StreamDone)
            assert woken == ["record", "closed"]
            assert isinstance(engine.wait("nowhere", 0, 0, lambda: None), TopicMissing)

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
                cut = engine.cut(["a", "b"])
                first, second = (found.stream.stable for found in cut.streams)
                assert first == second
                seen.add(first)

            for number in range(400):
                engine.submit(Commit([CommitAppend("a", 0, batch, 1), CommitAppend("b", 0, batch, 1)]), reply)
                look()
                if number % 20 == 0:
                    await asyncio.sleep(0)
            await until(lambda: finished == 400)
            assert [found.topic for found in engine.cut().streams] == ["a", "b"]

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


def test_cancelled_caller_drops_the_answer_and_not_the_command(place: Path | None) -> None:
    async def scenario() -> None:
        async with opened(place) as engine:
            await make_topic(engine, "a")
            caller = asyncio.create_task(engine.execute(append_of("a", b"x")))
            await asyncio.sleep(0)
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller
            await append(engine, "a", b"y")
            assert read_all(engine, "a") == [(0, b"x"), (1, b"y")]

    asyncio.run(scenario())


def test_engine_that_must_wait_refuses_what_does_not_fit_and_keeps_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WAITING_BYTES_MAX", 100_000)

    async def scenario() -> None:
        async with opened(None) as engine:
            await make_topic(engine, "a")
            engine.commits.held = True
            outcomes: list[Outcome] = []
            for _ in range(20):
                engine.submit(append_of("a", bytes(10_000)), outcomes.append)
            assert engine.overloaded
            refused = [outcome for outcome in outcomes if isinstance(outcome, Overloaded)]
            assert 8 <= len(refused) == len(outcomes) < 20
            engine.commits.held = False
            engine._take_waiting()
            await until(lambda: len(outcomes) == 20)
            assert engine.commits.waiting == 0
            assert len(read_all(engine, "a")) == 20 - len(refused)

    asyncio.run(scenario())


# --- sizes -------------------------------------------------------------------------------------------------------


def test_entries_of_4_mib_are_stored_and_larger_ones_refused(tmp_path: Path) -> None:
    settings = Settings(16 * limits.MIB, 8 * limits.MIB)
    largest = bytes(range(256)) * ((limits.BATCH_BYTES_MAX - 1_000) // 256)

    async def scenario() -> None:
        async with opened(tmp_path / "log", settings) as engine:
            await make_topic(engine, "a")
            answers = await asyncio.gather(*(engine.execute(append_of("a", largest, b"%d" % n)) for n in range(6)))
            assert all(isinstance(answer, Confirmed) for answer in answers)
            too_large = await engine.execute(append_of("a", bytes(limits.ENTRY_BYTES_MAX)))
            assert isinstance(too_large, TooLarge)
            values = [value for _, value in read_all(engine, "a")]
            assert values[::2] == [largest] * 6
            assert sorted(values[1::2]) == [b"%d" % n for n in range(6)]

    asyncio.run(scenario())


def test_many_streams_survive_checkpoints_and_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROWS_CACHED_MAX", 50)
    partitions = 1_500

    async def write() -> None:
        async with opened(tmp_path / "log") as engine:
            await make_topic(engine, "a", partitions)
            for turn in range(2):
                commands = [append_of("a", b"%d/%d" % (turn, n), partition=n) for n in range(partitions)]
                answers = await asyncio.gather(*map(engine.execute, commands))
                assert all(isinstance(answer, Confirmed) and answer.first == turn for answer in answers)
                await checkpoint(engine)
                assert len(engine.commits.state.streams) <= 50

    async def look() -> None:
        async with opened(tmp_path / "log") as engine:
            for number in range(0, partitions, 7):
                assert read_all(engine, "a", number) == [(0, b"0/%d" % number), (1, b"1/%d" % number)]

    asyncio.run(write())
    asyncio.run(look())


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
    assert isinstance(engine.read("a", 0, 6), OffsetGone)
    assert isinstance(engine.read("a", 0, tail + 1), OffsetAhead)
    assert isinstance(engine.read("a", 1, 0), TopicMissing)


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
        result = engine.read("a", 0, 0, uncommitted=uncommitted)
        assert isinstance(result, ReadResult)
        return result.closed

    async def scenario() -> None:
        async with opened(place) as engine:
            await make_topic(engine, "a")
            who = await begin_txn(engine, "a")
            await done(engine, txn_write(who, "a", 0, b"open"), Confirmed)
            woken: list[None] = []
            assert isinstance(engine.wait("a", 0, 0, lambda: woken.append(None)), Waiter)
            await done(engine, CloseStream("a"), StreamDone)
            assert (closed(engine), closed(engine, uncommitted=True), woken) == (False, True, [])
            await done(engine, EndTxn("t", who.producer_id, who.epoch, commit), TxnDone)
            assert (closed(engine), closed(engine, uncommitted=True), woken) == (True, True, [None])
            assert read_all(engine, "a") == ([(0, b"open")] if commit else [])

    asyncio.run(scenario())


# --- memory and the index ----------------------------------------------------------------------------------------


def test_queries_for_unknown_names_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROWS_CACHED_MAX", 100)
    outcomes: list[Outcome] = []

    async def scenario() -> None:
        async with opened_over(MemoryDisk()) as engine:
            await make_topic(engine, "a")
            for number in range(10_000):
                engine.submit(GetStream(f"unknown{number}"), outcomes.append)
                engine.submit(GetTxn(f"unknown{number}"), outcomes.append)
                engine.submit(GetProducer("a", 0, f"unknown{number}"), outcomes.append)
            assert len(outcomes) == 30_000
            assert max(map(len, engine.commits.state.tables)) >= 10_000
            engine._tick()
            await until(lambda: not engine.generations.cleaning)
            assert max(map(len, engine.commits.state.tables)) <= 100
            assert (await append(engine, "a", b"x")).first == 0

    asyncio.run(scenario())


class FillingIndex:
    """A builder that has no room until it is given some. Implements `IndexBuilder`."""

    def __init__(self, builder: InlineBuilder) -> None:
        self._builder = builder
        self._group = -1
        self.full = True

    def request(self, group: int) -> None:
        self._group = group

    def fileno(self) -> int:
        return -1

    def replies(self) -> list[Reply]:
        if self.full:
            return [Full("no space left")]
        self._builder.request(self._group)
        return self._builder.replies()

    def stop(self) -> None:
        self._builder.stop()


def test_index_without_room_that_is_too_far_behind_refuses_writes_and_answers_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "INDEX_LAG_BYTES_MAX", 128 * 1024)
    known = append_of("a", b"known", digest=content_digest(b"known"), message_id=b"m")

    async def scenario(*, gets_room: bool) -> None:
        disk = MemoryDisk()
        index = MemoryIndex()
        store = open_store(disk, index, lambda _group: None, segment_bytes=SETTINGS.segment_bytes, salt=1)
        builder = FillingIndex(InlineBuilder(Builder(JournalReader(disk), index, index)))
        loop = asyncio.get_running_loop()
        engine = Engine(store, builder, loop, settings=SETTINGS, durability="none", fatal=not_expected, clock=lambda: 1)
        async with asyncio.timeout(PATIENCE_S):
            await make_topic(engine, "a")
            await done(engine, known, Confirmed)
            count = 1
            while isinstance(outcome := await engine.execute(append_of("a", bytes(1_000))), Confirmed):
                count += 1
            assert isinstance(outcome, NoRoom)
            assert engine.generations.lag_bytes > limits.INDEX_LAG_BYTES_MAX
            assert not engine.overloaded, "nobody waits for what may never come"
            assert (await done(engine, known, Confirmed)).duplicate
            assert (await done(engine, GetStream("a"), StreamDone)).tail == count
            assert len(read_all(engine, "a")) == count
            await done(engine, DeleteRecords("a", 0, [1, 2]), StreamDone)
            assert isinstance(await engine.execute(append_of("a", b"x")), NoRoom)
            if gets_room:
                builder.full = False
                engine._building._hear()  # the builder tries again by itself
                assert (await append(engine, "a", b"x")).first == count
            await engine.close()

    asyncio.run(scenario(gets_room=False))
    asyncio.run(scenario(gets_room=True))


# --- failures ----------------------------------------------------------------------------------------------------


def test_read_of_a_damaged_batch_names_the_file_and_the_byte(tmp_path: Path) -> None:
    damaged = append_of("a", b"to be damaged" * 50)

    async def write() -> None:
        async with opened(tmp_path / "log") as engine:
            await make_topic(engine, "a")
            await append(engine, "a", b"intact")
            await done(engine, damaged, Confirmed)

    async def look() -> None:
        async with opened(tmp_path / "log") as engine:
            assert engine.replayed_entries == 0, "the index is kept, so that only the read meets the damage"
            for cold in (False, True):
                with pytest.raises(Corruption, match="offset 1 does not match its checksum") as raised:
                    await engine.read_cold("a", 0, 1) if cold else engine.read("a", 0, 1)
                assert (raised.value.file, raised.value.position) == (segment.name, first)
            intact = engine.read("a", 0, 0, 1)
            assert isinstance(intact, ReadResult)
            assert [batch.base_offset for batch in intact.batches] == [0]

    asyncio.run(write())
    segment = journal_directory(tmp_path / "log") / "segment-000000000000"
    content = bytearray(segment.read_bytes())
    first = content.index(damaged.batch)
    content[first + 300] ^= 0x01
    segment.write_bytes(content)
    asyncio.run(look())


class FailingFile(MemoryFile):
    """A file of a `FailingDisk`."""

    __slots__ = ("_disk",)

    def __init__(self, disk: "FailingDisk") -> None:
        super().__init__()
        self._disk = disk

    def fdatasync(self) -> None:
        if self._disk.failing:
            raise OSError(errno.EIO, "injected")


class FailingDisk(MemoryDisk):
    """A disk whose syncs fail on command."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = False

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        if create:
            super().open(name, create=True)
            self._files[name] = FailingFile(self)
        return super().open(name)


def test_failed_sync_is_fatal_and_reveals_nothing() -> None:
    errors: list[BaseException] = []

    async def scenario() -> None:
        disk = FailingDisk()
        async with opened_over(disk, fatal=errors.append) as engine:
            await make_topic(engine, "a")
            await append(engine, "a", b"durable")
            await until(lambda: engine.journal_stats.spares == limits.SPARES_WANTED)
            disk.failing = True
            outcomes: list[Outcome] = []
            engine.submit(append_of("a", b"doubtful"), outcomes.append)
            await until(lambda: bool(errors))
            assert outcomes == []
            assert read_all(engine, "a") == [(0, b"durable")]

    asyncio.run(scenario())
    assert [type(error) for error in errors] == [DiskFault]
    assert "injected" in str(errors[0])
