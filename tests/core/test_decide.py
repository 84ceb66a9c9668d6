"""The closed sets are total, refusals explain themselves, and no operation is larger than its bound says."""

from typing import get_args

import msgspec
import pytest

from oncelog import limits
from oncelog.core import apply, decide, names, needs, touches
from oncelog.core import command as c
from oncelog.core import entry as e
from oncelog.core.flat import ProducerClaim, Stream
from oncelog.core.outcome import Done, Outcome, Refusal
from oncelog.core.row_codec import decode_key, decode_row, encode_key, encode_row
from oncelog.core.rows import Application, Cause, Cursor, HoleChunk, Key, Remembered, Stage, Table, Topic, TopicConfig
from oncelog.core.state import Row, State
from oncelog.core.txn import Txn, TxnState
from oncelog.storage.entry_codec import encode_entry
from oncelog.testing.core_harness import START_NS

HUGE = 2**62


def test_every_command_is_named_checked_needed_and_decided() -> None:
    commands = set(get_args(c.Command))
    assert len(commands) == 39
    assert set(decide._DECIDE) == commands
    assert set(needs._NEEDS) == commands
    assert set(names._CHECKS) == commands
    assert all(isinstance(kind.urgent, bool) for kind in commands)


def test_every_operation_is_encoded_touched_and_applied() -> None:
    operations = set(get_args(e.Operation))
    assert set(e.OPERATIONS.values()) == operations
    assert set(touches._TOUCHES) == operations
    assert set(apply._APPLY) == operations


def test_every_refusal_has_its_own_code() -> None:
    refusals = Refusal.__subclasses__()
    assert len({refusal.code for refusal in refusals}) == len(refusals)
    assert Refusal in get_args(Outcome)
    assert set(get_args(Done)) | {Refusal} == set(get_args(Outcome))


def test_time_never_runs_backwards() -> None:
    state = State()
    state.topics["t"] = state.topics["u"] = state.nats_names["t"] = state.nats_names["u"] = None
    entry, _ = decide.decide(state, c.CreateTopic("t"), START_NS)
    assert entry is not None
    apply.apply(state, entry)
    later, _ = decide.decide(state, c.CreateTopic("u"), START_NS - 10**9)
    assert later is not None
    assert later.time_ns == START_NS


def test_entry_out_of_order_is_a_bug() -> None:
    state = State()
    state.streams[1] = Stream(1, 1, 0, TopicConfig())
    with pytest.raises(AssertionError, match="append at 5"):
        apply.apply(state, e.Appended(1, 5, 1, b"x", START_NS))
    apply.apply(state, e.Appended(1, 0, 1, b"x", START_NS))
    with pytest.raises(AssertionError, match="never decrease"):
        apply.apply(state, e.Appended(1, 1, 1, b"x", START_NS - 1))


# --- sizes -------------------------------------------------------------------------------------------------------


def size(*operations: e.Operation) -> int:
    return len(b"".join(encode_entry(e.Compound(START_NS, list(operations))))) - 17


def test_no_operation_is_larger_than_its_bound() -> None:
    outcome = [HUGE, HUGE, HUGE]
    appended = size(e.Appended(HUGE, HUGE, 2**31, b"", START_NS, 15, ids=b"i" * 40), e.IdsUsed(b"h" * 16, b"v" * 40))
    assert appended + 2 * len(msgspec.msgpack.encode(outcome)) < limits.COMMIT_APPEND_BYTES
    moved = size(e.CursorSet("n", HUGE, Cursor(HUGE, [], "m", True, HUGE)))
    assert moved < limits.COMMIT_APPEND_BYTES
    published = size(e.StagePublished(HUGE, HUGE, HUGE, HUGE))
    assert published + len(msgspec.msgpack.encode(outcome)) < limits.PUBLISHED_STAGE_BYTES
    known = size(e.HolesAdded(HUGE, [HUGE, HUGE], 3)) + size(e.IdsUsed(b"h" * 16, b"v" * 40))
    assert known < limits.PUBLISHED_ID_BYTES
    assert limits.STAGES_PER_PUBLISH_MAX * size(e.StageDropped(HUGE)) < limits.ENTRY_BYTES_MAX
    ended = size(
        e.ProducerFenced(HUGE, f"kafka:{HUGE}", 32767, 0),
        e.HolesAdded(HUGE, [], 1, HUGE),
        e.Appended(HUGE, HUGE, 1, b"m" * 78, START_NS, 1),
        e.TxnReleased(HUGE, HUGE),
    )
    assert ended < limits.TXN_STREAM_BYTES
    assert len(msgspec.msgpack.encode([HUGE, HUGE])) <= limits.TXN_RANGE_BYTES
    deleted = e.HolesAdded(HUGE, [HUGE] * limits.DELETE_OFFSETS_MAX, 2)
    assert size(deleted) < limits.ENTRY_BYTES_MAX


def test_keys_fit_the_index() -> None:
    longest: dict[Table, Key] = {
        Table.TOPIC: "n" * limits.TOPIC_NAME_BYTES_MAX,
        Table.STREAM: HUGE,
        Table.PRODUCER: (HUGE, "n" * limits.PRODUCER_NAME_BYTES_MAX),
        Table.CURSOR: ("n" * limits.CURSOR_NAME_BYTES_MAX, HUGE),
        Table.TXN: "n" * limits.TXN_ID_BYTES_MAX,
        Table.STAGE: names.ROW_ID_MAX,
        Table.APPLICATION: "n" * limits.APPLICATION_NAME_BYTES_MAX,
        Table.REMEMBERED: ("s" * limits.CLAIM_SCOPE_BYTES_MAX, "n" * limits.COMMIT_ID_BYTES_MAX),
        Table.HOLES: (HUGE, HUGE),
        Table.PENDING: ("n" * limits.CURSOR_NAME_BYTES_MAX, HUGE),
        Table.HOLDER: HUGE,
        Table.NATS_NAME: "n" * 255,
        Table.SUBJECT: (HUGE, "n" * limits.SUBJECT_BYTES_MAX),
    }
    assert set(longest) == set(Table)
    for table, key in longest.items():
        data = encode_key(table, key)
        assert len(data) <= 511 - 16, f"LMDB takes 511 bytes, and the index may put something before {table.name}"
        assert decode_key(table, data) == key


@pytest.mark.parametrize("data", [b"", b"1234567", b"12345678x", b"no end"])
def test_key_that_is_none_is_told(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"table|subsection"):
        decode_key(Table.PRODUCER, data)


ROWS: list[tuple[Table, Row]] = [
    (Table.TOPIC, Topic(1, "t", [2, 3], TopicConfig(attributes={"b": "1", "a": "2"}), START_NS)),
    (Table.STREAM, Stream(2, 1, 0, TopicConfig(), 5, 1, open_txns={7: 3}, trim_marks=[1, START_NS], pins={"c": 2})),
    (Table.CURSOR, Cursor(3, [4, 5], "note", True, START_NS)),
    (Table.TXN, Txn("x", 1, 0, -1, -1, 1000, TxnState.ONGOING, 1, 2, {2: [0, 1]}, ["g"], [("c", 2, 3, "m")])),
    (Table.STAGE, Stage(9, "app", 1, 2, 3, 4, 5, 0, b"d")),
    (Table.APPLICATION, Application(1, "q", 2, b"s", [2, 0, 1], 5)),
    (Table.REMEMBERED, Remembered(b"d", [2, 0, 1], 5, -1)),
    (Table.HOLES, HoleChunk([1, 2, int(Cause.DELETED), -1])),
]


@pytest.mark.parametrize(("table", "row"), ROWS, ids=[table.name for table, _ in ROWS])
def test_row_comes_back_from_its_bytes(table: Table, row: Row) -> None:
    assert decode_row(table, encode_row(row)) == row
    assert encode_row(decode_row(table, encode_row(row))) == encode_row(row)
    with pytest.raises(msgspec.DecodeError):
        decode_row(table, b"\xc1")


def test_producer_row_comes_back_with_its_places() -> None:
    state = State()
    state.streams[2] = Stream(2, 1, 0, TopicConfig())
    state.producers[(0, "commit:p")] = state.producers[(2, "http:p")] = None
    claim = ProducerClaim("commit:p", 0, 0, 0, 1, b"d" * 16)
    apply.apply(state, e.Compound(START_NS, [e.Claimed(0, claim, 0, [2, 0, 1, 3, 4, 5])]))
    own = ProducerClaim("http:p", 0, 0, 0, 1)
    apply.apply(state, e.Compound(START_NS, [e.Claimed(2, own, 0, [2, 7, 8])]))
    for key in ((0, "commit:p"), (2, "http:p")):
        row = state.producers[key]
        assert row is not None
        assert decode_row(Table.PRODUCER, encode_row(row)) == row
    assert state.producers[(0, "commit:p")].batches[-1].outcome == (2, 0, 1, 3, 4, 5)  # type: ignore[union-attr]
    assert state.producers[(2, "http:p")].batches[-1].fields()[3:] == (7, 8, None)  # type: ignore[union-attr]


# --- the cleaner's operations ------------------------------------------------------------------------------------


def test_carried_rows_ids_and_counters_are_taken_over() -> None:
    state = State()
    topic = Topic(1, "t", [2], TopicConfig(), START_NS)
    operations: list[e.Operation] = [
        e.Carried(Table.TOPIC, "t", encode_row(topic)),
        e.Carried(Table.CURSOR, ("c", 2), encode_row(Cursor(1, []))),
        e.Carried(Table.STAGE, 9, b""),
        e.CarriedIds(b"h" * 16, b"v" * 40),
        e.CarriedCounters(10, 20),
        e.Moved(2, 0, 1, b"batch", START_NS),
    ]
    apply.apply(state, e.Compound(START_NS, operations))
    assert state.topics["t"] == topic
    assert state.cursors[("c", 2)] == Cursor(1, [])
    assert state.stages[9] is None
    assert state.ids == {b"h" * 16: b"v" * 40}
    assert (state.next_id, state.next_producer_id) == (10, 20)
    apply.apply(state, e.Compound(START_NS, [e.CarriedCounters(5, 5)]))
    assert (state.next_id, state.next_producer_id) == (10, 20), "counters never go back"
