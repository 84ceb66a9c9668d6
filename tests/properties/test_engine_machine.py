"""Random commands, steps, power cuts and restarts: the engine equals a dumb ledger, and never runs ahead of the disk.

The ledger is asked when a command is handed in, and copied at every entry. So it is known what readers must see at
the entry that was revealed last, and what must be left after a power cut at any entry.
"""

import contextlib
import random
from itertools import accumulate

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from oncelog.core import batch as codec
from oncelog.core.command import (
    AddToTxn,
    Append,
    AppendStage,
    CloseStream,
    Columns,
    Command,
    Commit,
    CommitAppend,
    ConfirmCursor,
    CreateTopic,
    DeleteRecords,
    DeleteTopic,
    EndTxn,
    ExpectTail,
    GetStream,
    InitProducer,
    OpenApplication,
    OpenStage,
    Publish,
    PublishItem,
    Trim,
    one_value,
)
from oncelog.core.flat import ProducerClaim
from oncelog.core.message_id import content_digest
from oncelog.core.producer import SequenceMode
from oncelog.testing.sim_disk import SimCrash, keep_all, lose_all
from oncelog.testing.sim_engine import Answer, IndexAfterCrash, SimEngine, WatchedDisk
from tests.crash.sim_explorer import nothing_cached
from tests.properties.engine_ledger import REFUSED, Ledger, Seen, seen

TOPICS = st.sampled_from(["a", "b", "c"])
TXNS = st.sampled_from(["t1", "t2"])
SMALL = st.integers(0, 12)
TXN_TIMEOUT_MS = 5_000
STAGE_TTL_MS = 4_000
CHECKPOINT_BYTES = 4 * 1024


def _batch(*values: bytes) -> bytes:
    return codec.encode_values(values, 1)


class EngineMachine(RuleBasedStateMachine):
    """One engine, one ledger."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.by_entry = {0: self.ledger.copied()}
        self.engine = self._watched(SimEngine(WatchedDisk(), checkpoint_bytes=CHECKPOINT_BYTES))
        self.values = 0
        self.needs_entry = 0

    def _watched(self, engine: SimEngine) -> SimEngine:
        engine.on_answer = self._answered
        return engine

    def _answered(self, answer: Answer) -> None:
        """P12, by the door: and by the disk in `nothing_shown_can_be_undone`."""
        self.needs_entry = max(self.needs_entry, answer.needs_entry)
        assert answer.needs_entry <= self.engine.view.entry_number

    def value(self) -> bytes:
        self.values += 1
        return b"value-%d" % self.values

    def submit(self, command: Command, expected: Seen | None) -> None:
        """Hand in what the ledger has done already, and check the answer whenever it comes."""
        self.hand_in(command, expected)
        self.engine.commits.take_queued()
        if self.engine.commits.waiting:
            self.engine.flush()
        assert self.engine.commits.state.entry_number == self.ledger.entry_number, f"{command}: {expected}"
        self.by_entry[self.ledger.entry_number] = self.ledger.copied()

    def hand_in(self, command: Command, expected: Seen | None) -> None:
        """As `submit`, without a look at what came of it."""

        def check(outcome: object) -> None:
            if expected is not None:
                assert seen(outcome) == expected, f"{command}: {outcome}, expected {expected}"  # type: ignore[arg-type]

        self.engine.submit(command).then(check)

    # --- commands --------------------------------------------------------------------------------------------------

    @initialize()
    def two_topics(self) -> None:
        for name in "ab":
            self.create(name)

    @rule(name=TOPICS)
    def create(self, name: str) -> None:
        self.submit(CreateTopic(name), self.ledger.create(name))

    @rule(name=TOPICS, sure=st.integers(0, 5))
    def delete(self, name: str, sure: int) -> None:
        if sure == 0:
            self.submit(DeleteTopic(name), self.ledger.delete(name))

    @rule(name=TOPICS, sure=st.integers(0, 9))
    def close(self, name: str, sure: int) -> None:
        if sure == 0:
            self.submit(CloseStream(name), self.ledger.close(name))

    @rule(name=TOPICS, count=st.integers(1, 3), size=st.sampled_from([0, 0, 600]))
    def append(self, name: str, count: int, size: int) -> None:
        values = [self.value().ljust(size, b".") for _ in range(count)]
        self.submit(Append(name, 0, _batch(*values), count), self.ledger.append(name, *values))

    @rule(name=TOPICS, count=st.integers(1, 4), claimed=st.booleans(), size=st.sampled_from([0, 0, 600]))
    def append_together(self, name: str, count: int, claimed: bool, size: int) -> None:
        """Records of one turn, the last of them by a producer that may be known. How many share an entry is for the
        engine to say; the ledger is compared after each entry that it made."""
        stream = self.ledger.topics.get(name)
        if stream is None or stream.closed:
            return
        before = self.ledger.entry_number
        after_each: list[Ledger] = []
        for _ in range(count):
            value = self.value().ljust(size, b".")
            self.hand_in(one_value(name, 0, value), self.ledger.append(name, value))
            after_each.append(self.ledger.copied())
        if claimed:
            value, sequence = self.value(), len(stream.sequences.get("http:p", []))
            claim = ProducerClaim("http:p", 0, sequence, sequence, int(SequenceMode.REQUESTS))
            expected = self.ledger.append_by_sequence(name, "http:p", sequence, value)
            self.hand_in(one_value(name, 0, value, claim=claim), expected)
            after_each.append(self.ledger.copied())
        counts: list[int] = []
        self.engine.commits.on_entry = lambda entry: counts.append(entry.count)  # type: ignore[union-attr]
        self.engine.commits.take_queued()
        if self.engine.commits.waiting:
            self.engine.flush()
        self.engine.commits.on_entry = None
        assert sum(counts) == len(after_each)
        for number, total in enumerate(accumulate(counts), start=before + 1):
            self.by_entry[number] = after_each[total - 1]
            self.by_entry[number].entry_number = number
        self.ledger.entry_number = before + len(counts)
        assert self.engine.commits.state.entry_number == self.ledger.entry_number

    @rule(picks=st.lists(st.tuples(TOPICS, st.booleans()), min_size=2, max_size=6), size=st.sampled_from([0, 0, 900]))
    def append_to_several(self, picks: list[tuple[str, bool]], size: int) -> None:
        """Records of one turn for several streams, some with new ids. Those of one stream may share an entry, all are
        in one group then; or each has its own, in their order."""
        streams = self.ledger.topics
        picks = [(name, named) for name, named in picks if name in streams and not streams[name].closed]
        if not picks:
            return
        before = self.ledger.entry_number
        after_each: list[Ledger] = []
        for name, named in picks:
            value = self.value().ljust(size, b".")
            id_ = b"of " + value if named else b""
            expected = self.ledger.append_by_id(name, id_, value) if named else self.ledger.append(name, value)
            self.hand_in(one_value(name, 0, value, content_digest(value), message_id=id_), expected)
            after_each.append(self.ledger.copied())
        self.engine.commits.take_queued()
        if self.engine.commits.waiting:
            self.engine.flush()
        last = self.ledger.entry_number = self.engine.commits.state.entry_number
        assert len({name for name, _ in picks}) <= last - before <= len(picks)
        if last - before < len(picks):
            after_each = after_each[-1:]
        for number, ledger in enumerate(after_each, start=last - len(after_each) + 1):
            ledger.entry_number = number
            self.by_entry[number] = ledger

    @rule(name=TOPICS, number=SMALL, other=st.booleans())
    def append_by_id(self, name: str, number: int, other: bool) -> None:
        value = b"of id %d" % number + (b" but other" if other and number % 4 == 0 else b"")
        command = Append(name, 0, _batch(value), 1, digest=content_digest(value), message_id=b"%d" % number)
        self.submit(command, self.ledger.append_by_id(name, b"%d" % number, value))

    @rule(name=TOPICS, numbers=st.lists(SMALL, min_size=1, max_size=4, unique=True))
    def append_each(self, name: str, numbers: list[int]) -> None:
        """Only fresh ids and known ones that are not gone: one entry or none."""
        stream = self.ledger.topics.get(name)
        if stream is None or stream.closed:
            return
        known = {number: stream.ids.get(b"%d" % number) for number in numbers}
        if any(place and (place[0] < stream.floor or stream.slots[place[0]] is None) for place in known.values()):
            return
        before = self.ledger.entry_number
        answers = [self.ledger.append_by_id(name, b"%d" % number, b"of id %d" % number) for number in numbers]
        if any(answer is REFUSED for answer in answers):
            self.ledger = self.by_entry[before].copied()
            return
        self.ledger.entry_number = min(self.ledger.entry_number, before + 1)
        expected = answers[0]
        if len(answers) > 1:
            again = {number: answer for number, answer in enumerate(answers) if answer[3]}
            tail = len(self.by_entry[before].topics[name].slots)
            told = [again] if again else []
            expected = ("confirmed", tail, tail + len(answers) - len(again), False, *told)
        ids = [b"%d" % number for number in numbers]
        self.submit(Columns(name, 0, [b"of id " + id_ for id_ in ids], message_ids=ids), expected)

    @rule(name=TOPICS, producer=st.sampled_from(["http:p", "http:q"]), step=st.sampled_from([0, 0, 0, -1, -3, 2]))
    def append_by_sequence(self, name: str, producer: str, step: int) -> None:
        stream = self.ledger.topics.get(name)
        sequence = max(0, step + (0 if stream is None else len(stream.sequences.get(producer, []))))
        value = self.value()
        claim = ProducerClaim(producer, 0, sequence, sequence, int(SequenceMode.REQUESTS))
        command = Append(name, 0, _batch(value), 1, claim=claim)
        self.submit(command, self.ledger.append_by_sequence(name, producer, sequence, value))

    @rule(number=SMALL, names=st.permutations(["a", "b", "c"]), tail=st.none() | SMALL)
    def commit(self, number: int, names: list[str], tail: int | None) -> None:
        names, value = names[:2], b"of commit %d" % number
        appends = [CommitAppend(name, 0, _batch(value), 1) for name in names]
        expected = self.ledger.commits.get(f"commit-{number}")
        if expected is not None:
            return  # its content may have been another
        conditions = [] if tail is None else [ExpectTail(names[0], 0, tail)]
        command = Commit(appends, list(conditions), commit_id=f"commit-{number}")
        self.submit(command, self.ledger.commit(f"commit-{number}", names, value, tail))
        self.submit(command, self.ledger.commit(f"commit-{number}", names, value, tail))

    @rule(name=TOPICS, floor=SMALL)
    def trim(self, name: str, floor: int) -> None:
        self.submit(Trim(name, 0, floor), self.ledger.trim(name, floor))

    @rule(name=TOPICS, offset=SMALL)
    def delete_record(self, name: str, offset: int) -> None:
        self.submit(DeleteRecords(name, 0, [offset, offset + 1]), self.ledger.delete_record(name, offset))

    @rule(name=TOPICS, first=SMALL, count=st.integers(1, 3), cursor=st.sampled_from(["x", "y"]))
    def confirm(self, name: str, first: int, count: int, cursor: str) -> None:
        expected = self.ledger.confirm(cursor, name, first, first + count)
        self.submit(ConfirmCursor(cursor, name, 0, [first, first + count]), expected)

    @rule(name=TOPICS)
    def query(self, name: str) -> None:
        stream = self.ledger.topics.get(name)
        self.submit(GetStream(name), REFUSED if stream is None else stream.stands())

    # --- stages ----------------------------------------------------------------------------------------------------

    @rule()
    def open_application(self) -> None:
        if not self.ledger.fence:
            self.ledger.open_application()
            self.submit(OpenApplication("app"), None)

    @rule(stale=st.booleans())
    def open_stage(self, stale: bool) -> None:
        fence = self.ledger.fence - stale
        expected = self.ledger.open_stage(fence, STAGE_TTL_MS, self.engine.clock())
        self.submit(OpenStage("app", fence, STAGE_TTL_MS), expected)

    @rule(pick=SMALL)
    def append_stage(self, pick: int) -> None:
        live = self.ledger.live_stages(self.engine.clock())
        if live:
            stage_id, value = live[pick % len(live)], self.value()
            at = len(self.ledger.stages[stage_id][0])
            command = AppendStage(stage_id, at, _batch(value), 1, content_digest(value))
            self.submit(command, self.ledger.append_stage(stage_id, value, self.engine.clock()))
            self.submit(command, ("stage", stage_id, at + 1, True))

    @precondition(lambda self: self.ledger.fence)
    @rule(name=TOPICS, pick=SMALL, step=st.sampled_from([0, 1, 1, 1, 2]))
    def publish(self, name: str, pick: int, step: int) -> None:
        stage_ids = list(self.ledger.stages) or [999]
        stage_id = stage_ids[pick % len(stage_ids)]
        count = len(self.ledger.stages.get(stage_id, ([], 0, 0))[0])
        batch = self.ledger.published + step
        if batch >= 0:
            command = Publish([PublishItem(stage_id, name, 0, count)], "app", self.ledger.fence, "query", batch)
            self.submit(command, self.ledger.publish(stage_id, name, batch, count, self.engine.clock()))

    # --- txns ------------------------------------------------------------------------------------------------------

    @rule(txn_id=TXNS)
    def init_txn(self, txn_id: str) -> None:
        self.submit(InitProducer(txn_id, TXN_TIMEOUT_MS), self.ledger.init_txn(txn_id))

    @rule(txn_id=TXNS, names=st.lists(TOPICS, min_size=1, max_size=2, unique=True))
    def begin_txn(self, txn_id: str, names: list[str]) -> None:
        """The usual way, so that open txns are common."""
        self.init_txn(txn_id)
        self.add_to_txn(txn_id, names, stale=False)
        for name in names:
            self.write_in_txn(txn_id, name, stale=False)
        self.flush()

    def _identity(self, txn_id: str, stale: bool) -> tuple[str, int, int] | None:
        txn = self.ledger.txns.get(txn_id)
        if txn is None or (stale and not txn.epoch):
            return None
        return txn_id, txn.producer_id, txn.epoch - stale

    @rule(txn_id=TXNS, names=st.lists(TOPICS, min_size=1, max_size=2, unique=True), stale=st.booleans())
    def add_to_txn(self, txn_id: str, names: list[str], stale: bool) -> None:
        identity = self._identity(txn_id, stale)
        if identity is not None:
            expected = self.ledger.add_to_txn(txn_id, identity[2], names, self.engine.clock())
            self.submit(AddToTxn(*identity, [(name, 0) for name in names]), expected)

    @rule(txn_id=TXNS, name=TOPICS, stale=st.sampled_from([False, False, False, True]))
    def write_in_txn(self, txn_id: str, name: str, stale: bool) -> None:
        identity = self._identity(txn_id, stale)
        if identity is None:
            return
        _, producer_id, epoch = identity
        value, sequence = self.value(), self.ledger.next_sequence(txn_id, name, epoch)
        claim = ProducerClaim(f"kafka:{producer_id}", epoch, sequence, sequence, int(SequenceMode.RECORDS))
        command = Append(name, 0, _batch(value), 1, claim=claim, txn_id=txn_id)
        expected = self.ledger.write_in_txn(txn_id, epoch, name, value)
        self.submit(command, expected)
        if expected is not REFUSED:
            self.submit(command, (*expected[:3], True))

    @rule(txn_id=TXNS, commit=st.booleans(), stale=st.sampled_from([False, False, True]))
    def end_txn(self, txn_id: str, commit: bool, stale: bool) -> None:
        identity = self._identity(txn_id, stale)
        if identity is not None and self.ledger.txns[txn_id].state != "empty":
            expected = self.ledger.end_txn(txn_id, identity[2], commit=commit)
            self.submit(EndTxn(*identity, commit), expected)

    # --- steps -----------------------------------------------------------------------------------------------------

    @rule()
    def seal(self) -> None:
        self.engine.seal()

    @precondition(lambda self: self.engine._in_flight is not None)
    @rule(answers=st.booleans())
    def write(self, answers: bool) -> None:
        self.engine.write()
        self.engine.written()
        if answers:
            self.engine.answer()

    @rule(fate=st.sampled_from(IndexAfterCrash), seed=st.integers(0, 1 << 16))
    def power_cut_while_writing(self, fate: IndexAfterCrash, seed: int) -> None:
        """Between pwritev and fdatasync: any sector of the group may be on the disk or not."""
        self.engine.seal()
        if self.engine._in_flight is None:
            return
        disk = self.engine.disk
        assert isinstance(disk, WatchedDisk)
        disk.watch = _cut_before_sync
        with contextlib.suppress(SimCrash):
            self.engine.write()
        disk.watch = None
        self.power_cut(fate, seed, "any")

    @rule()
    def flush(self) -> None:
        self.engine.flush()

    @rule(at_once=st.booleans())
    def checkpoint(self, at_once: bool) -> None:
        self.engine.builds_at_once = at_once
        self.engine.flush()
        if not self.engine.generations.building:
            self.engine.checkpoint()

    @rule(ms=st.sampled_from([1, 900, 2_500]))
    def time_passes(self, ms: int) -> None:
        self.engine.flush()
        now_ns = self.engine.clock() + ms * 1_000_000
        for txn_id in self.ledger.expire_txns(now_ns, TXN_TIMEOUT_MS):
            self.ledger.expire_txn(txn_id)
            self.by_entry[self.ledger.entry_number] = self.ledger.copied()
        self.ledger.expire_stages(now_ns)
        self.by_entry[self.ledger.entry_number] = self.ledger.copied()
        self.engine.tick(ms)
        assert self.engine.commits.state.entry_number == self.ledger.entry_number

    @rule(
        fate=st.sampled_from(IndexAfterCrash),
        seed=st.integers(0, 1 << 16),
        how=st.sampled_from("lose keep any".split()),
    )
    def power_cut(self, fate: IndexAfterCrash, seed: int, how: str) -> None:
        choose = {"lose": lose_all, "keep": keep_all, "any": random.Random(seed).randrange}[how]
        before = self.engine
        after = before.reopen(WatchedDisk.of(before.disk.crash(choose)), fate)
        entry_number = after.commits.state.entry_number
        assert entry_number >= max(self.needs_entry, before.view.entry_number)
        self._went_back_to(entry_number, after)

    @rule(fate=st.sampled_from(IndexAfterCrash))
    def clean_restart(self, fate: IndexAfterCrash) -> None:
        self.engine.close()
        self._went_back_to(self.ledger.entry_number, self.engine.reopen(WatchedDisk.of(self.engine.disk), fate))
        assert fate is not IndexAfterCrash.KEPT or self.engine.store.replayed_entries == 0

    def _went_back_to(self, entry_number: int, engine: SimEngine) -> None:
        self.engine = self._watched(engine)
        self.ledger = self.by_entry[entry_number].copied()
        assert engine.commits.state.entry_number == entry_number

    # --- always ----------------------------------------------------------------------------------------------------

    @invariant()
    def readers_see_the_entry_that_was_revealed_last(self) -> None:
        contents = {place: tuple(content) for place, content in self.engine.contents().items()}
        assert contents == self.by_entry[self.engine.view.entry_number].contents()

    @invariant()
    def nothing_shown_can_be_undone(self) -> None:
        if self.values % 5 == 0:
            survivor = self.engine.crash(lose_all)
            entry_number = survivor.commits.state.entry_number
            assert entry_number >= max(self.needs_entry, self.engine.view.entry_number)
            contents = {place: tuple(content) for place, content in survivor.contents().items()}
            assert contents == self.by_entry[entry_number].contents()


def _cut_before_sync(call: str) -> None:
    if call == "fdatasync":
        raise SimCrash(call)


def test_engine_equals_the_ledger_through_restarts_and_power_cuts() -> None:
    with nothing_cached():
        run_state_machine_as_test(
            EngineMachine, settings=settings(max_examples=200, stateful_step_count=40, deadline=None)
        )
