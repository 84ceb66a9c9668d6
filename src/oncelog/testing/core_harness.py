"""A log without disk, clock or loop: the core alone, driven the way the engine drives it, with every step checked.

Each command goes the whole way: `needs` and loading from encoded rows, `decide`, the entry codec, `apply`. On that way
the harness asserts what must hold for every command whatsoever:

- `decide` changes neither the state nor the command, and deciding twice gives the same;
- the entry fits, and comes back equal from its bytes;
- a second state, which sees nothing but the decoded entries and loads by `touched_by`, has the same rows;
- no answer or entry given out earlier has changed since.

By default all rows are dropped before every command, so that a key which `needs` forgot is a KeyError.
"""

import pickle
from collections import deque

import msgspec

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core import needs
from oncelog.core.append import as_entry
from oncelog.core.apply import apply
from oncelog.core.audit import audit
from oncelog.core.columns import decide_columns
from oncelog.core.command import Append, Columns, Command, CreateTopic
from oncelog.core.decide import decide
from oncelog.core.entry import Appended, Entry
from oncelog.core.flat import ProducerClaim
from oncelog.core.message_id import content_digest, values_digest
from oncelog.core.outcome import Outcome, TopicDone
from oncelog.core.producer import SequenceMode
from oncelog.core.row_codec import decode_key, decode_row, encode_key, encode_row
from oncelog.core.rows import Table, TableKey, TopicConfig
from oncelog.core.state import State
from oncelog.core.touches import is_loaded
from oncelog.storage.entry_codec import GROUP_HEADER, decode_group, encode_entry

MS = 1_000_000
DAY = 24 * 3600 * 1000 * MS
START_NS = 1_700_000_000_000 * MS

GIVEN_WATCHED = 64
"""How many answers and entries are watched for later changes: far more than a group in flight has."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Rows:
    """Encoded rows and ids: what an index would hold."""

    def __init__(self) -> None:
        self.tables: list[dict[bytes, bytes]] = [{} for _ in Table]
        self.ids: dict[bytes, bytes] = {}

    def load(self, state: State, missing: list[TableKey]) -> None:
        """Bring rows in, each as a fresh object."""
        for table, key in missing:
            data = self.tables[table].get(encode_key(table, key))
            state.tables[table][key] = None if data is None else decode_row(table, data)

    def save(self, state: State) -> None:
        """Take over what was touched."""
        for table in Table:
            for key in state.touched[table]:
                row = state.tables[table][key]
                if row is None:
                    self.tables[table].pop(encode_key(table, key), None)
                else:
                    self.tables[table][encode_key(table, key)] = encode_row(row)
            state.touched[table].clear()
        self.ids.update(state.ids)
        state.ids.clear()

    def everything(self, state: State) -> None:
        """Load all there is."""
        for table in Table:
            for key, row in self.tables[table].items():
                state.tables[table][decode_key(table, key)] = decode_row(table, row)


def snapshot(state: State) -> dict[object, bytes]:
    """All that a state holds, as bytes."""
    rows: dict[object, bytes] = {
        (table, key): b"" if row is None else encode_row(row)
        for table in Table
        for key, row in state.tables[table].items()
    }
    for id_hash, value in state.ids.items():
        rows[id_hash] = value
    rows["counters"] = _encode((state.entry_number, state.time_ns, state.next_id, state.next_producer_id))
    rows["touched"] = _encode([len(keys) for keys in state.touched])
    return rows


def counters(state: State) -> tuple[int, int, int, int]:
    """What no row holds."""
    return state.entry_number, state.time_ns, state.next_id, state.next_producer_id


def emptied(state: State) -> State:
    """The same log with no row loaded: what a restart leaves."""
    fresh = State()
    fresh.entry_number, fresh.time_ns, fresh.next_id, fresh.next_producer_id = counters(state)
    return fresh


class CoreHarness:
    """One log. `now_ns` is its clock; nothing but the caller moves it."""

    def __init__(self) -> None:
        self.now_ns = START_NS
        self.state = State()
        self.rows = Rows()
        self.follower = State()
        self.follower_rows = Rows()
        self.journal: list[bytes] = []
        self.keep_loaded = False
        """True: rows stay in memory between commands, as in a running engine."""
        self.last_entry: Entry | None = None
        self._given: deque[tuple[object, bytes]] = deque(maxlen=GIVEN_WATCHED)
        """Answers and entries given out, and what they were then. Pickled: a refusal may quote a name that no UTF-8
        can spell."""

    def wrote(self) -> bool:
        """Whether the last command made an entry."""
        return self.last_entry is not None

    def pass_ms(self, ms: int) -> None:
        """Let time pass."""
        self.now_ns += ms * MS

    def run(self, command: Command) -> Outcome:
        """The whole way of one command, and its answer."""
        if not self.keep_loaded:
            self.restart()
        state = self.state
        self._load(command)
        before, asked = snapshot(state), pickle.dumps(command)
        entry, outcome = decide(state, command, self.now_ns)
        again = decide(state, command, self.now_ns)
        assert snapshot(state) == before, "decide changed the state"
        assert pickle.dumps(command) == asked, "decide changed the command"
        assert again == (entry, outcome), "deciding twice gives two answers"
        self._given.append((outcome, pickle.dumps(outcome)))
        self.last_entry = entry
        if entry is not None:
            self._enter(entry)
        state.ids_loaded.clear()
        state.changed_streams.clear()
        state.changed_topics.clear()
        state.changed_holes.clear()
        for given, bytes_then in self._given:
            assert pickle.dumps(given) == bytes_then, f"changed after it was given out: {given}"
        return outcome

    def run_columns(self, commands: list[Columns]) -> list[Outcome]:
        """Commands for one stream that are decided together: their answers."""
        if not self.keep_loaded:
            self.restart()
        state = self.state
        for command in reversed(commands):
            self._load(command)
        for command in commands:
            for id_hash in needs.ids(state, command):
                if id_hash in self.rows.ids:
                    state.ids_loaded[id_hash] = self.rows.ids[id_hash]
        before, asked = snapshot(state), pickle.dumps(commands)
        decided = decide_columns(state, commands, None, self.now_ns)
        assert decide_columns(state, commands, None, self.now_ns) == decided, "deciding twice gives two answers"
        assert snapshot(state) == before, "decide changed the state"
        assert pickle.dumps(commands) == asked, "decide changed a command"
        operations, answers = decided
        self._given.append((answers, pickle.dumps(answers)))
        self.last_entry = as_entry(operations, max(self.now_ns, state.time_ns))
        if self.last_entry is not None:
            self._enter(self.last_entry)
        state.ids_loaded.clear()
        return answers

    def _load(self, command: Command) -> None:
        state = self.state
        while missing := needs.needs(state, command):
            self.rows.load(state, missing)
        for id_hash in needs.ids(state, command):
            if id_hash in self.rows.ids:
                state.ids_loaded[id_hash] = self.rows.ids[id_hash]
        while missing := needs.needs(state, command):
            self.rows.load(state, missing)

    def _enter(self, entry: Entry) -> None:
        data = b"".join(encode_entry(entry))
        assert len(data) <= limits.ENTRY_BYTES_MAX, f"an entry of {len(data)} bytes"
        self._given.append((entry, pickle.dumps(entry)))
        self.journal.append(data)
        decoded = decode_one(data, len(self.journal))
        assert decoded == entry, "the entry does not come back from its bytes"
        apply(self.state, entry)
        self.rows.save(self.state)
        replay(self.follower, self.follower_rows, decoded)
        assert self.follower_rows.tables == self.rows.tables, "replaying an entry gives other rows than applying it"
        assert self.follower_rows.ids == self.rows.ids
        assert counters(self.follower) == counters(self.state)

    def restart(self) -> None:
        """Forget everything that is in memory."""
        self.state = emptied(self.state)
        self.follower = emptied(self.follower)

    def replay_all(self) -> None:
        """Rebuild from the journal alone, twice, and compare; then ask the audit."""
        rebuilt: list[Rows] = []
        for _ in range(2):
            state, rows = State(), Rows()
            for number, data in enumerate(self.journal, start=1):
                replay(state, rows, decode_one(data, number))
            assert rows.tables == self.rows.tables
            assert rows.ids == self.rows.ids
            assert counters(state) == counters(self.state)
            rebuilt.append(rows)
        whole = emptied(self.state)
        rebuilt[0].everything(whole)
        assert audit(whole) == []

    # --- short forms for tests -----------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1, config: TopicConfig | None = None) -> list[int]:
        """A topic; its stream ids."""
        outcome = self.run(CreateTopic(name, partitions, config or TopicConfig()))
        assert isinstance(outcome, TopicDone), outcome
        return outcome.stream_ids

    def append(
        self,
        topic: str,
        *values: bytes,
        partition: int = 0,
        message_id: bytes = b"",
        claim: ProducerClaim | None = None,
        expected_tail: int = -1,
        order_key: str = "",
        content_type: str = "",
        close: bool = False,
        txn_id: str = "",
    ) -> Outcome:
        """One batch with these values."""
        values = values or (b"value",)
        digest = values_digest(values)
        return self.run(
            Append(
                topic,
                partition,
                codec.encode_values(values, 1),
                len(values),
                digest,
                claim,
                message_id,
                expected_tail,
                order_key,
                content_type,
                close,
                txn_id,
            )
        )


def decode_one(data: bytes, number: int) -> Entry:
    """The entry of these bytes, read as the only one of a group."""
    (found,) = decode_group(GROUP_HEADER.pack(number, 1) + data)
    assert found[0] == number
    return found[2]


def replay(state: State, rows: Rows, entry: Entry) -> None:
    """What recovery does with one entry."""
    if not isinstance(entry, Appended) or not is_loaded(state, entry):
        while missing := needs.touched_by(state, entry):
            rows.load(state, missing)
    apply(state, entry)
    rows.save(state)


def requests(name: str, sequence: int, epoch: int = 0, content: bytes = b"value") -> ProducerClaim:
    """A claim as the durable-streams protocol makes it: one sequence per request."""
    return ProducerClaim(name, epoch, sequence, sequence, int(SequenceMode.REQUESTS), content_digest(content))


def records(producer_id: int, first: int, epoch: int = 0, count: int = 1) -> ProducerClaim:
    """A claim as Kafka makes it: sequences count records."""
    return ProducerClaim(f"kafka:{producer_id}", epoch, first, first + count - 1, int(SequenceMode.RECORDS))


def rising(name: str, sequence: int, epoch: int = 0) -> ProducerClaim:
    """A gap-tolerant claim."""
    return ProducerClaim(name, epoch, sequence, sequence, int(SequenceMode.RISING))
