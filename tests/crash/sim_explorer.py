"""Cuts the power at every changing disk call of a workload, in every way that the disk may survive it, and judges.

A run is watched rather than repeated: the simulated disk shows itself at each call, every state that a power cut could
leave there is opened by an engine of its own, and the run goes on. Calls that only make things durable are not cut
at: what may survive before a sync is what the call before it left, and afterwards nothing is in doubt.

For every survivor:
- it opens (no crash is mistaken for damage, P9), at an entry that no answer and no reader was ahead of (P1, P12);
- all that it knows equals, byte for byte, what the engine knew at that entry (P4: groups are whole; P10: replay);
- readers see what they saw before, and what is written as one is whole (P4, P6);
- clients that repeat what was confirmed get the same places again, those that repeat what was not end up with the
  contents of a run without a crash: nothing lost, nothing doubled (P1, P2).
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from oncelog import limits
from oncelog.core.command import Append, Columns, Commit, GetReceipt, GetStream, GetTopic
from oncelog.core.outcome import Refusal, TopicMissing
from oncelog.storage.index.memory_index import MemoryIndex
from oncelog.testing.sim_disk import SimDisk, crash_states, lose_all
from oncelog.testing.sim_engine import Answer, Contents, IndexAfterCrash, SimClock, SimEngine, WatchedDisk
from oncelog.testing.sim_image import Image
from tests.crash.sim_operations import (
    Checkpoint,
    Client,
    Operation,
    check_whole,
    is_retried_safely,
    places_of,
    run,
    run_step,
    set_up,
)

FATES = tuple(IndexAfterCrash)
_SYNCS = ("fdatasync", "sync_directory")


@contextmanager
def nothing_cached() -> Iterator[None]:
    """Rows leave memory as soon as the index has them, so that every one is loaded again."""
    with mock.patch.object(limits, "ROWS_CACHED_MAX", 0):
        yield


class Base:
    """A log with something in it, closed cleanly: where every workload starts."""

    def __init__(self, *, near_end: bool = False, indexed: bool = True) -> None:
        """`near_end`: the segment is almost full, so that the workload changes over to the next one."""
        self.disk = WatchedDisk()
        engine = SimEngine(self.disk)
        set_up(engine)
        while near_end and engine.journal.stats.used_bytes % engine.segment_bytes < engine.segment_bytes - 1536:
            engine.prove()
        engine.close()
        self.clock_ns = engine.clock.now_ns
        self.index = engine.index_after(IndexAfterCrash.KEPT if indexed else IndexAfterCrash.LOST)

    def open(self) -> SimEngine:
        return _opened(WatchedDisk.of(self.disk), self.index, self.clock_ns)


def _opened(disk: SimDisk, index: MemoryIndex, clock_ns: int) -> SimEngine:
    return SimEngine(disk, index=copy.deepcopy(index), clock=SimClock(clock_ns), salt=2)


class Explorer:
    """One workload from one base."""

    def __init__(
        self,
        base: Base,
        operations: tuple[Operation, ...],
        *,
        together: bool,
        recovery: bool = False,
        states_max: int = 16,
        samples: int = 6,
    ) -> None:
        self.operations = operations
        self.together = together
        self.recovery = recovery
        """Also cut the power at every call of every recovery."""
        self.states_max = states_max
        self.samples = samples
        self.survivors = 0
        self._base = base
        self._history: dict[int, Image] = {}
        self._needs_entry = 0
        """The highest entry that an answer was given for."""
        self._checked_calls = -1
        self._durable_entry = 0

    def explore(self) -> int:
        """The whole workload, with a cut at every call. Returns how many survivors were judged."""
        undisturbed = self._base.open()
        run(undisturbed, self._clients(), together=self.together)
        self._expected = undisturbed.contents()
        self._live = engine = self._base.open()
        self.clients = self._clients()
        self._remember()
        engine.commits.on_entry = lambda _entry: self._remember()
        engine.on_answer = self._at_answer
        engine.on_built = self._check_live
        assert isinstance(engine.disk, WatchedDisk)
        engine.disk.watch = self._at_call
        if self.together:
            run(engine, self.clients, together=True)
        else:
            self._run_with_probes()
        engine.prove()
        engine.close()
        engine.disk.watch = None
        self._check_live()
        assert engine.contents() == self._expected
        self._judge_all()
        return self.survivors

    def _clients(self) -> list[Client]:
        return [Client(operation, number) for number, operation in enumerate(self.operations)]

    def _run_with_probes(self) -> None:
        """One command per group. While it is in flight the same command comes again, and others ask about it."""
        engine = self._live
        for client in self.clients:
            while (step := client.next_step) is not None:
                run_step(engine, client)
                if engine.seal():
                    assert not isinstance(step, Checkpoint)
                    if is_retried_safely(step):
                        engine.submit(step)
                    for topic in ("a", "b", "c", f"new{client.number}"):
                        engine.submit(GetStream(topic))
                        engine.submit(GetTopic(topic))
                    if isinstance(step, Append) and step.message_id:
                        engine.submit(GetReceipt(step.topic, 0, step.message_id))
                engine.flush()

    # --- the watched run -------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        image = self._live.image()
        self._history[image.entry_number] = image

    def _at_call(self, call: str) -> None:
        if call in _SYNCS:
            return
        self._check_live()
        self._judge_all()

    def _at_answer(self, answer: Answer) -> None:
        """Nothing is answered that the worst power cut at this moment would undo (P12)."""
        self._needs_entry = max(self._needs_entry, answer.needs_entry)
        if self._live.disk.calls != self._checked_calls:
            self._checked_calls = self._live.disk.calls
            self._check_live()
            survivor = self._live.crash(lose_all)
            self._durable_entry = survivor.commits.state.entry_number
            assert survivor.contents() == self._live.contents(), "readers saw what a power cut undoes"
        assert answer.needs_entry <= self._durable_entry, f"answered before it was durable: {answer}"

    def _check_live(self) -> None:
        """What is in memory, sealed, in the index or evicted: together it is always all there is."""
        image = self._live.image()
        difference = self._history[image.entry_number].difference(image)
        assert not difference, f"the running engine lost or changed something: {difference}"
        check_whole(self._live.contents(), self.clients)

    # --- judging ---------------------------------------------------------------------------------------------------

    def _judge_all(self) -> None:
        visible = self._live.contents()
        for disk in crash_states(self._live.disk, states_max=self.states_max, samples=self.samples):
            self._judge(disk, FATES[self.survivors % len(FATES)], visible)
            self.survivors += 1

    def _judge(self, disk: SimDisk, fate: IndexAfterCrash, visible: Contents) -> None:
        index = self._live.index_after(fate)
        engine = _opened(WatchedDisk.of(disk), index, self._live.clock.now_ns)
        entry_number = engine.commits.state.entry_number
        assert entry_number >= self._needs_entry, "a confirmed write is lost, or an answer ran ahead"
        assert entry_number >= self._live.view.entry_number, "readers saw what a power cut undoes"
        difference = self._history[entry_number].difference(engine.image())
        assert not difference, f"recovery came to another state: {difference}"
        contents = engine.contents()
        check_whole(contents, self.clients)
        if entry_number == self._live.view.entry_number:
            assert contents == visible, "readers saw what is not in the log"
        if self.recovery:
            self._cut_recovery(disk, index, engine.image())
        clients = [client.fork() for client in self.clients]
        self._repeat_confirmed(engine)
        run(engine, clients, together=self.together)
        assert engine.contents() == self._expected, "lost or doubled"

    def _repeat_confirmed(self, engine: SimEngine) -> None:
        for answer in self._live.answers:
            if not is_retried_safely(answer.command) or isinstance(answer.outcome, Refusal):
                continue
            again = engine.execute(answer.command)
            if isinstance(again, TopicMissing):
                assert again.topic in _topics_of(answer), "refused for another reason"
                assert (again.topic, 0) not in engine.contents()
                continue
            assert places_of(answer.command, again) == places_of(answer.command, answer.outcome), (
                f"{answer.command}: first {answer.outcome}, {again}"
            )

    def _cut_recovery(self, disk: SimDisk, index: MemoryIndex, image: Image) -> None:
        """P10: wherever recovery itself is cut, the next one comes to the same end."""
        watched = WatchedDisk.of(disk)

        def cut(call: str) -> None:
            if call not in _SYNCS:
                for survivor in crash_states(watched, states_max=6, samples=4):
                    again = _opened(survivor, index, self._live.clock.now_ns)
                    difference = image.difference(again.image())
                    assert not difference, f"a recovery cut at {call} came to another end: {difference}"

        watched.watch = cut
        _opened(watched, index, self._live.clock.now_ns)


def _topics_of(answer: Answer) -> set[str]:
    command = answer.command
    match command:
        case Append() | Columns():
            return {command.topic}
        case Commit():
            return {append.topic for append in command.appends}
        case _:
            return set()
