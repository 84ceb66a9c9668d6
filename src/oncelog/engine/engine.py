"""The engine: one event loop, one writer, one journal. The shell around `CommitLoop` that owns threads and time.

Start order: lock and recover (blocking), then threads, then timers. Stop order: take no more commands, write what was
taken, prove, checkpoint the index, stop threads, close files. A failed write or sync ends the process: nothing that
was not confirmed by the disk is ever confirmed to anybody, and there is no retry (`fatal`). A failed read is told to
its reader.
"""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from oncelog import limits
from oncelog.core.command import Command, Publish
from oncelog.core.names import command_refused
from oncelog.core.outcome import Outcome, Refusal, Stopping
from oncelog.core.rows import JCS
from oncelog.core.txn import DEFAULT_TIMEOUTS, TxnTimeouts
from oncelog.engine.clock import LogClock
from oncelog.engine.commit_loop import CommitLoop
from oncelog.engine.damage import damaged
from oncelog.engine.follow import Follow
from oncelog.engine.generations import Generations
from oncelog.engine.group import Group, Reply, writers_of
from oncelog.engine.guard import Fatal, Guard
from oncelog.engine.index_building import IndexBuilding
from oncelog.engine.intake import Intake
from oncelog.engine.left import Left
from oncelog.engine.lookups import Lookups
from oncelog.engine.pacing.pacing import Pacing
from oncelog.engine.reader_thread import ReaderThread
from oncelog.engine.reads import Reads
from oncelog.engine.retention import Retention
from oncelog.engine.spare_keeper import SpareKeeper
from oncelog.engine.staged_ids import completed, newest_group, of_facts, plans_of
from oncelog.engine.statistics import Durability, Statistics
from oncelog.engine.store import Store
from oncelog.engine.timers import Expiry
from oncelog.errors import DiskFull, StorageError
from oncelog.storage.allocator import give_back
from oncelog.storage.index.interface import IndexBuilder
from oncelog.storage.segment import segment_name


class Settings(msgspec.Struct, gc=False):
    """What an engine is opened with."""

    segment_bytes: int = limits.SEGMENT_BYTES_DEFAULT
    checkpoint_bytes: int = limits.CHECKPOINT_BYTES
    txn_timeouts: TxnTimeouts = DEFAULT_TIMEOUTS
    clock_settle_ms: int = limits.CLOCK_SETTLE_MS
    clock_jump_max_ms: int = limits.CLOCK_JUMP_MAX_MS
    cache_bytes: int = limits.ROWS_CACHED_BYTES
    hold_ms: int = limits.HOLD_MS
    accept_clock: bool = False
    """Open the log also if the wall clock is further ahead of it than it may jump."""


class Engine:
    """Everything that a face needs: `submit` and `publish` a command, `read` and `wait` for records; `lookups` has what
    can be asked besides, `statistics` the numbers. Several faces use it at the same time and know nothing of each
    other: whoever reads sockets stops while commands wait (`overloaded`), and goes on when told (`when_none_waits`).
    """

    def __init__(
        self,
        store: Store,
        builder: IndexBuilder,
        loop: asyncio.AbstractEventLoop,
        *,
        settings: Settings,
        durability: Durability,
        fatal: Fatal,
        clock: Callable[[], int] | None = None,
        log_clock: LogClock | None = None,
        close_files: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self.log_clock = log_clock or LogClock(store.state.time_ns)
        self.log_clock.on_notice = self._notice
        self.on_notice: Callable[[str], None] = lambda _text: None
        """Called with what an operator should know."""
        self._clock = clock = clock or self.log_clock
        self._fatal = fatal
        self._guard = Guard(self._fail)
        self._close_files = close_files
        self._durability: Durability = durability
        self._journal = store.journal
        self._index = store.index
        self._building = IndexBuilding(builder, loop, self._built, self._index_full, self._fail, self._notice)
        self._timers = store.timers
        store.timers.timeouts = self.txn_timeouts = settings.txn_timeouts
        """How long txns may take: what faces put into `InitProducer`."""
        self.view = store.view
        self.commits = CommitLoop(store.state, store.journal, store.index, store.places, store.view, clock)
        self.commits.on_applied = store.timers.applied
        self._intake = Intake(self.commits, loop.call_soon, self._flush, self._fail)
        self.submit: Callable[[Command, Reply], bool] = self._intake.submit
        """Take a command (`intake.py`): its outcome is told once it is durable."""
        self.lookups = Lookups(self.commits, store.index, clock)
        self.generations = Generations(
            self.commits,
            store.journal,
            store.index,
            store.places,
            self._building.request,
            store.indexed_group,
            settings.checkpoint_bytes,
            settings.cache_bytes,
        )
        self._replayed_entries = store.replayed_entries
        self._open_for_reading(store)
        self._clean_scheduled = False
        self._hold_ns = settings.hold_ms * 1_000_000
        self._unproven = False
        self._written_at = loop.time()
        self._moved_at_give_back = store.journal.durable_group * limits.FRAME_ALIGN_BYTES
        self._stopped_waiters: list[asyncio.Future[None]] = []
        self._told_none_waits: list[Callable[[], None]] = []
        post, guard = loop.call_soon_threadsafe, self._guard
        self._pacing = Pacing(loop, store.journal, self._written, guard, self._fail)
        self._spares = SpareKeeper(store.journal, post, self._spare_ready, self._disk_full, self._fail)
        self._spares.ask()
        self._timer = loop.call_later(limits.TIMER_CHECK_MS / 1000, self._tick)

    def _open_for_reading(self, store: Store) -> None:
        """What faces read with, and what trims."""
        self.follow = Follow(store.view)
        reader = ReaderThread(self._loop.call_soon_threadsafe, self._fail)
        self.reads = Reads(store, self.lookups, self.follow, reader, self._loop, self._guard)
        self.read = self.reads.read_soon
        """Batches from an offset on, told at once or soon; what is returned can be cancelled."""
        self.offset_at = self.reads.offset_at
        """The first record of a stream at or behind a time."""
        self.wait_many = self.reads.wait_many
        """The same at many streams, for a minimum of bytes and a longest time."""
        self.wait = self.reads.wait
        """Be woken when there is something to read; give what is returned to `cancel` to wait no more."""
        self.cancel = self.follow.cancel
        self.retention = Retention(store.view, store.index, self.reads.reader, self.submit)

    # --- commands --------------------------------------------------------------------------------------------------

    def publish(self, command: Publish, reply: Reply) -> None:
        """As `submit`. The ids that staged records carry are read first, on the reader's thread, once the stages are
        durable: they belong to the command, and `decide` reads no disk."""
        if (refusal := command_refused(command)) is not None:
            reply(refusal)  # it looks at the command alone, so it reveals nothing
            return

        self.commits.gate(partial(self._complete, command, reply))

    def _complete(self, command: Publish, reply: Reply) -> None:
        """Read the ids of a publish, then submit it."""
        try:
            command = of_facts(command, self._is_fact_topic)
            plans = plans_of(command, self.reads.reader, self.lookups.stage_row)
        except StorageError as error:
            reply(damaged(error))
            return
        if newest_group(plans) > self._journal.durable_group:
            # It was written to while the gate was shut: not on disk yet.
            self.commits.gate(partial(self._complete, command, reply))
            return

        def submitted(whole: Publish | Refusal) -> None:
            if isinstance(whole, Refusal):
                reply(whole)
            elif self._intake.is_stopping:
                reply(Stopping())
            else:
                self.submit(whole, reply)

        batches = sum(len(parts or ()) for parts in plans)
        self.reads.thread.ask(
            partial(completed, command, plans, self.reads.reader),
            submitted,
            batches=batches,
            plan_again=partial(self._complete_again, command),
        )

    def _is_fact_topic(self, name: str) -> bool:
        """A topic that is not durable yet is not one: the publish is refused then, and asked again."""
        topic = self.view.topic(name)
        return topic is not None and topic.config.digest == JCS

    def _complete_again(self, command: Publish) -> Callable[[], Publish | Refusal] | Refusal:
        """Staged records were moved while their ids were read."""
        try:
            plans = plans_of(command, self.reads.reader, self.lookups.stage_row)
        except StorageError as error:
            return damaged(error)
        return partial(completed, command, plans, self.reads.reader)

    async def execute(self, command: Command) -> Outcome:
        """As `submit`, for callers that wait for one answer."""
        future: asyncio.Future[Outcome] = self._loop.create_future()

        def reply(outcome: Outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        self.submit(command, reply)
        return await future

    def left(self, topic: str, partition: int, offset: int) -> Left:
        """How much is left for a consumer that stands at `offset`."""
        return self.reads.left(topic, partition, offset, self._clock())

    def now_ns(self) -> int:
        """The log's own time: it never runs back."""
        return self._clock()

    def _notice(self, text: str) -> None:
        self.on_notice(text)

    def statistics(self) -> Statistics:
        """How the engine stands."""
        seconds = self._pacing.seconds
        return Statistics(
            self._durability,
            self.view.entry_number,
            self.commits.groups_total,
            seconds.count,
            seconds.total,
            self.commits.waiting,
            self.commits.waiting_ms(),
            self.generations.lag_bytes,
            self.commits.full,
            self._journal.stats,
            self._replayed_entries,
            len(self.retention.held_back),
            self.reads.count,
            self.follow.waiting,
            self.reads.bytes_planned,
            self.log_clock.skew_ns,
            self.log_clock.steps,
            self._building.restarts,
            [segment_name(segment) for segment in self._journal.missing_segments],
            self._journal.cut_at,
        )

    @property
    def log_id(self) -> str:
        """What the log calls itself to clients; the same after every start."""
        return self._journal.log_id

    @property
    def overloaded(self) -> bool:
        """Commands wait: whoever reads sockets should pause."""
        return self.commits.waiting > 0

    def when_none_waits(self, told: Callable[[], None]) -> Callable[[], None]:
        """Have `told` called each time `overloaded` ends: whoever paused then reads on. Returns what ends that."""
        self._told_none_waits.append(told)
        return partial(self._told_none_waits.remove, told)

    def _flush(self) -> None:
        with self._guard:
            self._intake.is_scheduled = False
            if self._intake.has_failed:
                return
            self._pacing.came()
            commits = self.commits
            if commits.is_writing:
                commits.take_queued()  # the disk is at work meanwhile; what comes of it goes with the next group
                self._check_stopped()
                return
            if not self._intake.is_stopping and self._pacing.waits(commits.joined_count):
                self._intake.schedule()
                return
            self._pacing.leaves(commits.joined_count)
            group = commits.next_group()
            if group is None:
                self._pacing.durable(0, 0)
                self._check_stopped()
                return
            self._unproven = True
            self._pacing.write(group)
            commits.handed_over(group)

    def _written(self, group: Group) -> None:
        """A group is durable. The next one leaves before the answers do, so that the disk is never idle meanwhile."""
        if self._intake.has_failed:
            return  # it is on disk and the next start finds it; this engine confirms nothing any more
        with self._guard:
            assert group.changes is not None
            self._written_at = self._loop.time()
            commits = self.commits
            commits.written(group)
            self._pacing.durable(writers_of(group), commits.joined_count)
            if commits.wants_write and not self._intake.is_scheduled:
                self._flush()
            commits.answer(group)
            self._pacing.answered()
            self.follow.changed(group.changes.streams)
            self.retention.changed(group.changes, self._clock())
            self.generations.group_durable()
            self._take_waiting()
            if self._journal.spares_missing > 0 and not commits.disk_full:
                self._spares.ask()
            self._check_stopped()

    def _take_waiting(self) -> None:
        if self._intake.has_failed:
            return
        if self.commits.waiting:
            self.commits.take_waiting()
            self._tell_if_none_waits()
        if self.commits.wants_write and not self._intake.is_scheduled:
            self._intake.schedule()

    def _tell_if_none_waits(self) -> None:
        if not self.commits.waiting:
            for told in self._told_none_waits:
                self._loop.call_soon(told)

    def _refuse_held(self) -> None:
        """Answer the commands that have waited for too long."""
        if self.commits.waiting and not self._intake.has_failed:
            if self.commits.refuse_waiting(self._clock() - self._hold_ns):
                self._tell_if_none_waits()

    # --- index and memory ------------------------------------------------------------------------------------------

    def _index_full(self) -> None:
        """The index has no room: commands that waited for it are answered as far as they need no entry."""
        self.commits.index_full = True
        self._take_waiting()
        self._check_stopped()

    def _built(self, group: int) -> None:
        self.commits.index_full = False
        self.generations.built(group)
        self._schedule_cleaning()
        self._take_waiting()
        self._check_stopped()

    def _schedule_cleaning(self) -> None:
        if not self._clean_scheduled and self.generations.cleaning:
            self._clean_scheduled = True
            self._loop.call_soon(self._clean)

    def _clean(self) -> None:
        with self._guard:
            self._clean_scheduled = False
            if self._intake.is_stopping:
                return  # `close` frees the rest itself; a new generation must not begin behind its back
            if self.generations.clean():
                self._schedule_cleaning()
            else:
                self.generations.group_durable()

    # --- disk ------------------------------------------------------------------------------------------------------

    def _spare_ready(self) -> None:
        with self._guard:
            self.commits.disk_full = False
            self._take_waiting()
            self._check_stopped()

    def _disk_full(self, _error: DiskFull) -> None:
        """Writes that need a new segment are refused from now on; the next tick looks for room again."""
        with self._guard:
            self.commits.disk_full = True
            self._take_waiting()
            self._check_stopped()

    def _fail(self, error: BaseException) -> None:
        if not self._intake.has_failed:
            self._intake.has_failed = True
            self._timer.cancel()
            self._fatal(error)
            self._check_stopped()

    # --- time ------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Once a second: end what is overdue, prove what stands at the end, look for room on a full disk."""
        with self._guard:
            for command in self._timers.due(self._clock()):
                self.submit(command, partial(self._expired, command))
            self.retention.check(self._clock())
            self._refuse_held()
            if self.commits.disk_full:
                self._spares.ask()
            idle_ms = (self._loop.time() - self._written_at) * 1000
            if self.commits.idle and self._unproven and idle_ms >= limits.PROOF_IDLE_MS:
                self._prove()
            self.generations.evict()
            self._give_back_memory()
            if self.log_clock.note_is_due():
                self.reads.thread.ask(self.log_clock.note, lambda _: None)
            self._schedule_cleaning()
            self._timer = self._loop.call_later(limits.TIMER_CHECK_MS / 1000, self._tick)

    def _give_back_memory(self) -> None:
        """Return memory of large bodies that came or left to the system, once there was enough of it."""
        moved = self.reads.bytes_planned + self._journal.durable_group * limits.FRAME_ALIGN_BYTES
        if moved - self._moved_at_give_back >= limits.HEAP_KEPT_BYTES:
            self._moved_at_give_back = moved
            give_back()

    def _expired(self, command: Expiry, outcome: Outcome) -> None:
        self._timers.answered(command, outcome, self._clock())

    def _prove(self) -> None:
        group = self.commits.proof_group()
        if group is not None:  # else there is no room: the next tick tries again
            self._unproven = False
            self._pacing.write_alone(group)

    # --- stop ------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Write what was taken, prove it, checkpoint the index, and let go of everything."""
        assert not self._intake.is_stopping
        self._intake.is_stopping = True
        self._timer.cancel()
        if not self._intake.has_failed:
            await self._drained()
            if self._unproven:
                self._prove()
                await self._drained()
            await self._checkpointed()
            self.log_clock.note()
        self._pacing.stop()
        self._spares.stop()
        self._building.stop()
        self.reads.thread.stop()
        self._journal.close()
        self._index.close()
        self._close_files()

    async def _drained(self) -> None:
        self.commits.take_queued()
        self._take_waiting()
        while not self.commits.idle and not self._intake.has_failed:
            await self._something_happened()

    async def _checkpointed(self) -> None:
        """Everything into the index, so that the next start replays nothing. If the index has no room, the next start
        replays what is missing."""
        await self._index_idle()
        if self.generations.lag_bytes > 0 and not self.generations.building and not self._intake.has_failed:
            self.generations.seal()
            self.generations.group_durable()
            await self._index_idle()

    async def _index_idle(self) -> None:
        """No generation is being built, or none can be; and nothing is left to free."""
        while self.generations.building and not self._building.full and not self._intake.has_failed:
            await self._something_happened()
        while self.generations.clean():
            pass

    async def _something_happened(self) -> None:
        future = self._loop.create_future()
        self._stopped_waiters.append(future)
        await future

    def _check_stopped(self) -> None:
        """Something happened that `close` may be waiting for."""
        waiters, self._stopped_waiters = self._stopped_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
