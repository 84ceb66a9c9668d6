"""The engine as its callers see it, over a real directory and in memory."""

import asyncio
import errno
from pathlib import Path

import pytest

from oncelog import limits
from oncelog.core.command import (
    AppendStage,
    CursorMove,
    DeleteRecords,
    GetCursor,
    GetProducer,
    GetStream,
    GetTopic,
    GetTxn,
    MoveCursors,
    OpenStage,
    one_value,
)
from oncelog.core.flat import ProducerClaim
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import (
    CommitConfirmed,
    Confirmed,
    CursorDone,
    NoRoom,
    Outcome,
    Overloaded,
    StageDone,
    StreamDone,
    TooLarge,
    TopicFound,
    TopicMissing,
    TxnFound,
)
from oncelog.core.producer import SequenceMode
from oncelog.core.txn import NS_PER_MS, TxnState
from oncelog.engine.engine import Engine, Settings
from oncelog.engine.store import open_store
from oncelog.errors import DirectoryInUse, DiskFault
from oncelog.storage.disk import MemoryDisk, MemoryFile
from oncelog.storage.index.builder import Builder, InlineBuilder
from oncelog.storage.index.interface import Full, Reply
from oncelog.storage.index.memory_index import MemoryIndex
from oncelog.storage.journal_reader import JournalReader
from tests.engine.opening import (
    PATIENCE_S,
    SETTINGS,
    append,
    append_of,
    begin_txn,
    checkpoint,
    done,
    make_topic,
    not_expected,
    opened,
    opened_over,
    read_all,
    txn_write,
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
            assert engine.statistics().durability == "fdatasync"
        async with opened(None) as engine:
            assert engine.statistics().durability == "none"

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
            assert engine.statistics().replayed_entries == 0
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


@pytest.mark.parametrize("topic", ["a", "missing"], ids=["written", "refused"])
def test_close_ends_with_appends_of_the_same_turn(topic: str) -> None:
    """Nothing else happens that could wake it: a refused one makes no group."""

    async def scenario() -> None:
        outcomes: list[Outcome] = []
        async with opened(None) as engine:
            await make_topic(engine, "a")
            await until(lambda: engine._journal.spares_missing <= 0)
            engine.submit(one_value(topic, 0, b"x"), outcomes.append)
        assert [type(outcome) for outcome in outcomes] == [Confirmed if topic == "a" else TopicMissing]

    asyncio.run(scenario())


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
            groups, used = engine.commits.groups_total, engine.statistics().journal.used_bytes
            engine._tick()
            assert engine.commits.idle, "it was not idle for long enough"
            monkeypatch.setattr(limits, "PROOF_IDLE_MS", 0)
            engine._tick()
            await until(lambda: engine.commits.idle)
            assert engine.commits.groups_total == groups + 1
            assert engine.statistics().journal.used_bytes > used
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
            clock.pass_ms(limits.TXN_CHECK_INTERVAL_MS)
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


# --- callers -----------------------------------------------------------------------------------------------------


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


def test_every_face_hears_that_nobody_waits_any_more() -> None:
    async def scenario() -> None:
        async with opened(None) as engine:
            await make_topic(engine, "a")
            heard: list[str] = []
            leave_first = engine.when_none_waits(lambda: heard.append("first"))
            engine.when_none_waits(lambda: heard.append("second"))

            async def wait_once() -> None:
                engine.commits.held = True
                outcomes: list[Outcome] = []
                assert engine.submit(append_of("a", b"x"), outcomes.append), "whoever reads sockets is told to pause"
                assert engine.statistics().waiting_commands == 1
                heard.clear()
                engine.commits.held = False
                engine._take_waiting()
                await until(lambda: bool(outcomes))

            await wait_once()
            assert heard == ["first", "second"]
            leave_first()
            await wait_once()
            assert heard == ["second"]

    asyncio.run(scenario())


@pytest.mark.from_source
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

    def restart(self) -> None:
        raise AssertionError("it never dies")

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
            await until(lambda: engine.statistics().journal.spares == limits.SPARES_WANTED)
            disk.failing = True
            outcomes: list[Outcome] = []
            engine.submit(append_of("a", b"doubtful"), outcomes.append)
            await until(lambda: bool(errors))
            assert outcomes == []
            assert read_all(engine, "a") == [(0, b"durable")]

    asyncio.run(scenario())
    assert [type(error) for error in errors] == [DiskFault]
    assert "injected" in str(errors[0])
