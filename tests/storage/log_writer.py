"""A log written by one thread, command by command: the shortest way from commands to a journal with meaning in it.

`write_everything` uses every kind of entry at least once, so that what stands on it (index, rebuild, verify) meets them
all. No clock, no chance: two runs write the same bytes.
"""

from collections.abc import Iterable

from oncelog.core import batch as codec
from oncelog.core import needs
from oncelog.core.apply import apply
from oncelog.core.command import (
    AddPartitions,
    AddToTxn,
    Append,
    AppendStage,
    CloseStream,
    Columns,
    Command,
    Commit,
    CommitAppend,
    ConfigureTopic,
    ConfirmCursor,
    CreateTopic,
    CursorMove,
    DeleteCursor,
    DeleteRecords,
    DeleteTopic,
    DropStages,
    EndTxn,
    InitProducer,
    MoveCursors,
    OpenApplication,
    OpenStage,
    Publish,
    PublishItem,
    Trim,
    TxnCursors,
)
from oncelog.core.decide import decide
from oncelog.core.entry import Carried, CarriedCounters, CarriedIds, Compound, Entry, Moved
from oncelog.core.flat import ProducerClaim
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import ApplicationDone, Outcome, Refusal, StageDone, TxnDone
from oncelog.core.producer import SequenceMode
from oncelog.core.row_codec import encode_row
from oncelog.core.rows import Table, TopicConfig
from oncelog.core.state import State
from oncelog.storage.disk import Disk
from oncelog.storage.entry_codec import GROUP_HEADER, encode_entry
from oncelog.storage.index.interface import Index
from oncelog.storage.index.memory_index import MemoryIndex
from oncelog.storage.index.places import Places
from oncelog.storage.journal import Journal

SEGMENT_BYTES = 16 * 1024
START_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_000_000


class LogWriter:
    """Commands in, groups out. A refusal is a mistake of the test."""

    def __init__(self, disk: Disk, index: Index | None = None, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.journal = Journal.open(disk, segment_bytes=segment_bytes, salt=12345)
        self.index = index or MemoryIndex()
        self.state = State()
        self.places = Places()
        self.now_ns = START_NS
        self.entries: list[Entry] = []
        self._entry_number = 0

    def ask(self, command: Command) -> Outcome:
        """Decide one command; its entry waits for `flush`."""
        state = self.state
        while missing := needs.needs(state, command):
            for table, key in missing:
                state.tables[table][key] = self.index.get(table, key)
        needs.ids(state, command)
        while missing := needs.needs(state, command):
            for table, key in missing:
                state.tables[table][key] = self.index.get(table, key)
        self.now_ns += STEP_NS
        entry, outcome = decide(state, command, self.now_ns)
        assert not isinstance(outcome, Refusal), outcome
        if entry is not None:
            self.add(entry)
        return outcome

    def add(self, entry: Entry) -> None:
        """An entry as it is; it waits for `flush`."""
        apply(self.state, entry)
        self.entries.append(entry)

    def flush(self) -> int:
        """Everything that waits as one group."""
        buffers = [GROUP_HEADER.pack(self._entry_number + 1, len(self.entries))]
        for entry in self.entries:
            buffers += encode_entry(entry)
        while self.journal.prepare():
            pass
        group = self.journal.append(buffers)
        assert group is not None
        at = GROUP_HEADER.size
        for entry in self.entries:
            self.places.add_entry(entry, group, at)
            at += sum(map(len, encode_entry(entry)))
        self._entry_number += len(self.entries)
        self.entries = []
        return group

    def write(self, *commands: Command) -> int:
        """Commands as one group."""
        for command in commands:
            self.ask(command)
        return self.flush()

    def stop(self) -> None:
        """As a clean stop: proof behind the last group."""
        assert self.journal.append(()) is not None
        self.journal.close()


def batch_of(*values: bytes) -> bytes:
    return codec.encode_values(values, START_NS // 1_000_000)


def append(topic: str, *values: bytes, partition: int = 0) -> Append:
    return Append(topic, partition, batch_of(*values), len(values))


def append_id(topic: str, name: bytes) -> Append:
    return Append(topic, 0, batch_of(name), 1, digest=content_digest(name), message_id=name)


def claimed(topic: str, sequence: int) -> Append:
    claim = ProducerClaim("http:p", 0, sequence, sequence, int(SequenceMode.REQUESTS), b"d" * 16)
    return Append(topic, 0, batch_of(b"claimed %d" % sequence), 1, claim=claim)


def write_topics(log: LogWriter) -> None:
    log.write(CreateTopic("a"), CreateTopic("b", 2, TopicConfig(attributes={"x": "y"})), CreateTopic("gone"))
    log.write(append("a", b"0", b"1", b"2"), append("b", b"0", partition=1), append("gone", b"0"))
    log.write(AddPartitions("b", 3), ConfigureTopic("a", TopicConfig(content_type="text/plain")))
    log.write(append_id("a", b"id-1"), claimed("a", 0), claimed("a", 1))
    log.write(Columns("b", 0, [b"e%d" % n for n in range(3)], message_ids=[b"each-%d" % n for n in range(3)]))


def write_txns(log: LogWriter) -> None:
    for commit in (True, False):
        txn_id = f"txn-{commit}"
        txn = log.ask(InitProducer(txn_id))
        assert isinstance(txn, TxnDone)
        identity = (txn_id, txn.producer_id, txn.epoch)
        log.ask(AddToTxn(*identity, [("a", 0), ("b", 0)], ["group"]))
        for topic in "ab":
            claim = ProducerClaim(f"kafka:{txn.producer_id}", txn.epoch, 0, 0, int(SequenceMode.RECORDS))
            log.ask(Append(topic, 0, batch_of(b"in txn"), 1, claim=claim, txn_id=txn_id))
        log.flush()
        log.ask(TxnCursors(*identity, "group", [CursorMove("group", "a", 0, 2)]))
        log.ask(EndTxn(*identity, commit))
        log.flush()


def write_stages(log: LogWriter) -> None:
    application = log.ask(OpenApplication("app"))
    assert isinstance(application, ApplicationDone)
    stages: list[int] = []
    for _ in range(2):
        stage = log.ask(OpenStage("app", application.fence))
        assert isinstance(stage, StageDone)
        stages.append(stage.stage_id)
    log.ask(AppendStage(stages[0], 0, batch_of(b"s0", b"s1"), 2, b"1" * 16))
    log.ask(AppendStage(stages[0], 2, batch_of(b"s2"), 1, b"2" * 16))
    log.ask(AppendStage(stages[1], 0, batch_of(b"dropped"), 1, b"3" * 16))
    log.flush()
    log.write(DropStages([stages[1]]))
    log.write(Publish([PublishItem(stages[0], "b", 0, 3)], "app", application.fence, "q", 0, b"", b"end"))


def write_rest(log: LogWriter) -> None:
    log.write(
        Commit([CommitAppend("a", 0, batch_of(b"c0"), 1), CommitAppend("b", 1, batch_of(b"c1"), 1)], commit_id="c-1"),
        ConfirmCursor("reader", "a", 0, [0, 1, 2, 3], pinned=True),
        MoveCursors([CursorMove("mover", "b", 0, 1), CursorMove("left", "b", 0, 1)]),
        DeleteCursor("left", "b", 0),
    )
    log.write(DeleteRecords("a", 0, [1, 2]), Trim("b", 0, 2), DeleteTopic("gone"), CloseStream("b", 1))
    log.write(append("a", *(b"last %d" % n for n in range(5))))


def write_everything(log: LogWriter) -> None:
    """Every kind of entry, in about twenty groups."""
    for part in (write_topics, write_txns, write_stages, write_rest):
        part(log)
    write_carried(log)


def write_carried(log: LogWriter) -> None:
    """What the cleaner writes: a batch, a row, ids and counters again."""
    stream = log.state.streams[2]
    assert stream is not None
    time_ns = log.state.time_ns
    hashes, values = b"".join(log.state.ids), b"".join(log.state.ids.values())
    log.add(
        Compound(
            time_ns,
            [
                Moved(2, 0, 3, codec.without(batch_of(b"0", b"1", b"2"), [(1, 2)]) or b"", START_NS),
                Carried(Table.STREAM, 2, encode_row(stream)),
                CarriedIds(hashes, values),
                CarriedCounters(log.state.next_id, log.state.next_producer_id),
            ],
        )
    )
    log.flush()


def write_appends(log: LogWriter, topics: Iterable[str], rounds: int) -> None:
    """Plain traffic: ids, sequences and batches over several topics."""
    names = list(topics)
    log.write(*(CreateTopic(name) for name in names))
    for number in range(rounds):
        for name in names:
            log.ask(append(name, b"%d" % number, b"%d+" % number))
            log.ask(append_id(name, b"%d" % number))
            log.ask(claimed(name, number))
        log.flush()
