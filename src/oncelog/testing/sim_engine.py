"""The engine without threads, on a simulated disk and a clock that stands still: every step is taken by the caller.

`SimEngine` wires the same parts as `engine.Engine` (recovery, commit loop, generations, index builder, timers, reader)
and does by explicit calls what there is done by threads: a group is sealed, written, revealed and answered in four
steps, and commands may arrive between any two of them. It decides nothing itself.

What it adds is for the judge. Every answer is kept with the number of the last entry that had been appended when it
was decided (`Answer.needs_entry`): nothing may be answered that a power cut at that moment could undo (P12).
Two engines that stand at the same entry must have equal images, however they came there (P10; `sim_image`).
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import NamedTuple, TypeVar

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import Columns, Command
from oncelog.core.entry import Entry
from oncelog.core.outcome import Outcome, Refusal
from oncelog.core.txn import TxnTimeouts
from oncelog.engine.commit_loop import CommitLoop
from oncelog.engine.cut import take_cut
from oncelog.engine.follow import Follow
from oncelog.engine.generations import Generations
from oncelog.engine.group import Group, Reply
from oncelog.engine.index_building import catch_up
from oncelog.engine.read_view import StreamView
from oncelog.engine.reader import Reader, Way
from oncelog.engine.store import Store, open_store
from oncelog.engine.timers import Expiry
from oncelog.errors import DiskFault, DiskFull, StorageError
from oncelog.storage.index.builder import Builder, InlineBuilder
from oncelog.storage.index.interface import Done
from oncelog.storage.index.memory_index import MemoryIndex
from oncelog.storage.journal_reader import JournalReader
from oncelog.testing.sim_disk import CHANGING_CALLS, Choose, Fault, SimDisk, keep_all, lose_all
from oncelog.testing.sim_image import Image, image_of

T = TypeVar("T")

START_NS = 1_700_000_000_000_000_000
NS_PER_MS = 1_000_000


class IndexAfterCrash(Enum):
    """What a crash leaves of the index, which is derived and may be anything that it once was."""

    KEPT = auto()
    """As its last checkpoint left it."""
    OLD = auto()
    """One checkpoint earlier: the last one did not reach the disk."""
    LOST = auto()
    """Nothing: it is built again from the journal."""


class SimClock:
    """Time passes when the caller says so."""

    def __init__(self, now_ns: int = START_NS) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    def advance_ms(self, ms: int) -> None:
        """May go backwards, as clocks do."""
        self.now_ns += ms * NS_PER_MS


class WatchedDisk(SimDisk):
    """A `SimDisk` that shows itself at every changing call, when the call's own effect may or may not survive."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self.watch: Callable[[str], None] | None = None

    def _crash_if(self, fault: Fault | None) -> None:
        if self.watch is not None and self.history[-1] in CHANGING_CALLS:
            self.watch(self.history[-1])
        super()._crash_if(fault)

    @staticmethod
    def of(disk: SimDisk) -> "WatchedDisk":
        """A copy of a disk on which everything is synced."""
        watched = WatchedDisk(capacity_bytes=disk.capacity_bytes)
        for name, file in disk.crash(keep_all)._names.items():
            file._disk = watched
            watched._names[name] = watched._durable_names[name] = file
        return watched


class Pending:
    """A command that was submitted. It has an `outcome` once it was answered."""

    __slots__ = ("_engine", "_then", "command", "needs_entry", "outcome")

    def __init__(self, engine: "SimEngine", command: Command) -> None:
        self._engine = engine
        self.command = command
        self.outcome: Outcome | None = None
        self.needs_entry = -1
        """The last entry appended when it was decided, its own included; -1 until then."""
        self._then: Callable[[Outcome], None] | None = None

    def __call__(self, outcome: Outcome) -> None:
        assert self.outcome is None, "a command is answered once"
        self.outcome = outcome
        self._engine._answered(self)
        if self._then is not None:
            self._then(outcome)

    def then(self, tell: Callable[[Outcome], None]) -> None:
        """Call `tell` with the outcome, at once if it is there."""
        self._then = tell
        if self.outcome is not None:
            tell(self.outcome)


class Answer(NamedTuple):
    """One answer that left the engine."""

    command: Command
    outcome: Outcome
    needs_entry: int


class ObservedLoop(CommitLoop):
    """The commit loop, telling what it decided on and what it applied."""

    on_entry: Callable[[Entry], None] | None = None

    def _take(self, command: Command, reply: Reply) -> bool:
        if isinstance(reply, Pending):
            # Before, too: an answer that nothing holds back is given inside.
            reply.needs_entry = self.state.entry_number
        taken = super()._take(command, reply)
        if taken and isinstance(reply, Pending):
            reply.needs_entry = self.state.entry_number
        return taken

    def _take_run(self, commands: list[Columns], replies: list[Reply]) -> bool:
        pendings = [reply for reply in replies if isinstance(reply, Pending)]
        for pending in pendings:
            pending.needs_entry = self.state.entry_number
        taken = super()._take_run(commands, replies)
        if taken:
            for pending in pendings:
                pending.needs_entry = self.state.entry_number
        return taken

    def _append(self, group: Group, entry: Entry, buffers: list[bytes], size: int) -> None:
        super()._append(group, entry, buffers, size)
        if self.on_entry is not None:
            self.on_entry(entry)


class PartitionContent(NamedTuple):
    """One stream as a read-committed reader of everything sees it."""

    floor: int
    stable: int
    tail: int
    closed: bool
    records: tuple[tuple[int, bytes | None], ...]
    """(offset, value)."""


Contents = dict[tuple[str, int], PartitionContent]


class SimEngine:
    """An opened log. Raises `StorageError` where the real engine would end the process, and then stays down."""

    def __init__(
        self,
        disk: SimDisk,
        *,
        index: MemoryIndex | None = None,
        clock: SimClock | None = None,
        salt: int = 1,
        segment_bytes: int = limits.SEGMENT_BYTES_MIN,
        checkpoint_bytes: int = limits.CHECKPOINT_BYTES,
    ) -> None:
        self.disk = disk
        self.index = MemoryIndex() if index is None else index
        self.clock = SimClock() if clock is None else clock
        self.salt = salt
        self.segment_bytes = segment_bytes
        self.checkpoint_bytes = checkpoint_bytes
        self.failed: StorageError | None = None
        self.answers: list[Answer] = []
        self.on_answer: Callable[[Answer], None] | None = None
        self.on_built: Callable[[], None] | None = None
        """Called when the index has grown and what it holds was freed."""
        self.index_before = copy.deepcopy(self.index)
        """The index one checkpoint ago."""
        store = open_store(disk, self.index, self._catch_up, segment_bytes=segment_bytes, salt=salt)
        self._wire(store)
        self.prepare()

    def _catch_up(self, group: int) -> None:
        with _builder_process():
            catch_up(self._new_builder(), group)

    def _new_builder(self) -> InlineBuilder:
        with _builder_process():
            return InlineBuilder(Builder(JournalReader(self.disk), self.index, self.index))

    def _wire(self, store: Store) -> None:
        self.store = store
        self.journal = store.journal
        self.view = store.view
        self.commits = ObservedLoop(store.state, store.journal, self.index, store.places, store.view, self.clock)
        self.commits.on_applied = store.timers.applied
        store.timers.timeouts = TxnTimeouts(check_interval_ms=0)  # at every tick
        self._builder = self._new_builder()
        self.generations = Generations(
            self.commits,
            store.journal,
            self.index,
            store.places,
            self._request,
            store.indexed_group,
            self.checkpoint_bytes,
        )
        self.reader = Reader(store.view, self.index, store.places, store.journal)
        self.follow = Follow(store.view)
        self._in_flight: Group | None = None
        self._unanswered: list[Group] = []
        self._requested: int | None = None
        self._unproven = False
        self.builds_at_once = True
        """Off: the index builder sleeps until `build` is called."""

    # --- commands --------------------------------------------------------------------------------------------------

    def submit(self, command: Command) -> Pending:
        """Hand in a command; it is answered by a later step, or at once if nothing holds its answer back."""
        assert self.failed is None
        pending = Pending(self, command)
        self._guarded(lambda: self.commits.submit(command, pending))
        return pending

    def _answered(self, pending: Pending) -> None:
        assert pending.outcome is not None
        assert pending.needs_entry >= 0 or isinstance(pending.outcome, Refusal), "answered before it was decided"
        answer = Answer(pending.command, pending.outcome, pending.needs_entry)
        self.answers.append(answer)
        if self.on_answer is not None:
            self.on_answer(answer)

    def execute(self, command: Command) -> Outcome:
        """Submit one command and take every step until it is answered."""
        pending = self.submit(command)
        self.flush()
        assert pending.outcome is not None, f"never answered: {command}"
        return pending.outcome

    # --- the four steps of a group ---------------------------------------------------------------------------------

    def seal(self) -> bool:
        """Close the open group. False if there is none, or one is in flight."""
        group = self.commits.next_group()
        if group is None:
            return False
        self.commits.handed_over(group)
        self._in_flight = group
        self._unproven = True
        return True

    def write(self) -> None:
        """Write and sync the group in flight. Nobody is told yet."""
        group = self._in_flight
        assert group is not None
        self._guarded(lambda: self.journal.write(group.open, group.buffers))

    def written(self) -> None:
        """Reveal the group to readers."""
        group = self._in_flight
        assert group is not None
        self._in_flight = None
        self.commits.written(group)
        self._unanswered.append(group)

    def answer(self) -> None:
        """Answer everyone who waited for the groups that were revealed, then do what follows a group."""
        while self._unanswered:
            group = self._unanswered.pop(0)
            assert group.changes is not None
            self.commits.answer(group)
            self.follow.changed(group.changes.streams)
        self._guarded(self.generations.group_durable)
        if self.builds_at_once:
            self.build()
        self._guarded(self.commits.take_waiting)
        if self.journal.spares_missing > 0 and not self.commits.disk_full:
            self.prepare()

    def flush(self) -> None:
        """All four steps until nothing is open or in flight. The next group leaves before the answers do."""
        self.commits.take_waiting()
        while self._in_flight is not None or self.seal():
            self.write()
            self.written()
            self.seal()
            self.answer()
        self.answer()

    # --- what other threads do -------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make spares ready, as far as the disk has room."""
        try:
            while self._guarded(self.journal.prepare):
                self.commits.disk_full = False
        except DiskFull:
            self.commits.disk_full = True
        self._guarded(self.commits.take_waiting)

    def _request(self, group: int) -> None:
        self._requested = group

    def build(self) -> None:
        """The index builder works off what it was asked for, and the memory that it makes free is freed."""
        if self._requested is not None:
            group, self._requested = self._requested, None
            self.index_before = copy.deepcopy(self.index)
            self._guarded(lambda: self._ask_builder(group))
            for reply in self._builder.replies():
                assert isinstance(reply, Done)
                self.generations.built(reply.group)
            while self.generations.clean():
                pass
            if self.on_built is not None:
                self.on_built()

    def _ask_builder(self, group: int) -> None:
        with _builder_process():
            self._builder.request(group)

    def checkpoint(self) -> None:
        """Seal a generation and ask for it. With `builds_at_once` off the index stays where it is until `build`."""
        if not self.generations.building:
            self.generations.seal()
        self.flush()

    def tick(self, ms: int = limits.TIMER_CHECK_MS) -> None:
        """Time passes and the timer looks: what is overdue ends, an idle journal is proven, room is looked for."""
        self.clock.advance_ms(ms)
        for command in self.store.timers.due(self.clock()):
            self._expire(command)
        self.flush()
        if self.commits.disk_full:
            self.prepare()
        if self.commits.idle and self._unproven:
            self.prove()

    def _expire(self, command: Expiry) -> None:
        def reply(outcome: Outcome) -> None:
            self.store.timers.answered(command, outcome, self.clock())

        self._guarded(lambda: self.commits.submit(command, reply))

    def prove(self) -> None:
        """Append an empty group."""
        group = self.commits.proof_group()
        if group is not None:
            self._unproven = False
            self._in_flight = group
            self.write()
            self.written()
            self.answer()

    def close(self) -> None:
        """A clean stop: everything written, proven and in the index."""
        self.flush()
        if self._unproven:
            self.prove()
        self.builds_at_once = True
        self.build()
        if self.generations.lag_bytes > 0:
            self.checkpoint()
        self.journal.close()

    def _guarded(self, step: Callable[[], T]) -> T:
        return _guarded(self, step)

    # --- after a stop ----------------------------------------------------------------------------------------------

    def index_after(self, fate: IndexAfterCrash) -> MemoryIndex:
        """A copy of what a crash now leaves of the index."""
        match fate:
            case IndexAfterCrash.KEPT:
                return copy.deepcopy(self.index)
            case IndexAfterCrash.OLD:
                return copy.deepcopy(self.index_before)
            case IndexAfterCrash.LOST:
                return MemoryIndex()

    def reopen(self, disk: SimDisk, fate: IndexAfterCrash = IndexAfterCrash.KEPT) -> "SimEngine":
        """A new engine on `disk`, a survivor of this one's; this one is left as it is."""
        return SimEngine(
            disk,
            index=self.index_after(fate),
            clock=SimClock(self.clock.now_ns),
            salt=self.salt + 1,
            segment_bytes=self.segment_bytes,
            checkpoint_bytes=self.checkpoint_bytes,
        )

    def crash(self, choose: Choose = lose_all, fate: IndexAfterCrash = IndexAfterCrash.KEPT) -> "SimEngine":
        """Cut the power and open again."""
        return self.reopen(self.disk.crash(choose), fate)

    # --- what is to be seen ----------------------------------------------------------------------------------------

    def read(self, stream: StreamView, way: Way = Way.COMMITTED) -> tuple[tuple[int, bytes | None], ...]:
        """Every record that a reader of one stream gets, with its offset."""
        records: list[tuple[int, bytes | None]] = []
        offset = stream.floor
        while True:
            plan = self.reader.plan(stream, offset, limits.KIB, way)
            assert not isinstance(plan, Refusal)
            for base_offset, batch in self.reader.fetch_parts(plan.parts):
                for delta, _, _, value, _ in codec.decode(batch):
                    # A batch may begin below the floor, or hold what an earlier read returned.
                    if base_offset + delta >= offset:
                        records.append((base_offset + delta, value))
            if not plan.parts or plan.next_offset == offset:
                return tuple(records)
            offset = plan.next_offset

    def contents(self) -> Contents:
        """Every stream, through the door that readers use."""
        found: Contents = {}
        for topic, partition, stream, _ in take_cut(self.view, self.index, None, self.clock()).streams:
            records = self.read(stream)
            found[topic, partition] = PartitionContent(stream.floor, stream.stable, stream.tail, stream.closed, records)
        return found

    def image(self) -> Image:
        """Everything the writer's private state and the index know together."""
        return image_of(self.commits.state, self.index, self.store.places)


@contextmanager
def _builder_process() -> Iterator[None]:
    """The real builder is a process of its own: whatever it dies of reaches the engine as a storage error."""
    try:
        yield
    except OSError as error:
        raise DiskFault(f"the index builder ended: {error.strerror}") from error


def _guarded(engine: SimEngine, step: Callable[[], T]) -> T:
    """A storage error ends the engine, as it ends the process; a full disk does not."""
    try:
        return step()
    except DiskFull:
        raise
    except StorageError as error:
        engine.failed = error
        raise
