"""Txns through the whole core: one entry ends them (P4), stable moves only then, aborted data is never seen (P6)."""

import pytest

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import (
    AddToTxn,
    CreateTopic,
    CursorMove,
    DeleteTopic,
    EndTxn,
    ExpireTxn,
    GetCursor,
    GetStream,
    GetTxn,
    InitProducer,
    Trim,
    TxnCursors,
)
from oncelog.core.entry import Appended, Compound, HolesAdded, ProducerFenced, TxnReleased, TxnSet
from oncelog.core.outcome import (
    ClaimInvalid,
    CommitConfirmed,
    Confirmed,
    CursorDone,
    Fenced,
    NameInvalid,
    NotFound,
    OffsetsCommitted,
    Outcome,
    SequenceGap,
    StreamDone,
    TooLarge,
    TopicMissing,
    TxnDone,
    TxnFound,
    TxnRefused,
)
from oncelog.core.row_codec import decode_row, encode_key, encode_row
from oncelog.core.rows import Cause, HoleChunk, Table, TopicConfig
from oncelog.core.txn import Txn, TxnState
from oncelog.testing.core_harness import MS, CoreHarness, records, requests

PID = 1


@pytest.fixture(params=["rows dropped before every command", "rows kept"])
def log(request: pytest.FixtureRequest) -> CoreHarness:
    harness = CoreHarness()
    harness.keep_loaded = request.param == "rows kept"
    harness.create("a")  # stream 2
    harness.create("b")  # stream 4
    assert harness.run(InitProducer("x")) == TxnDone(PID, 0)
    return harness


def add(log: CoreHarness, *topics: str, groups: list[str] | None = None, epoch: int = 0) -> Outcome:
    return log.run(AddToTxn("x", PID, epoch, [(topic, 0) for topic in topics], groups or []))


def write(log: CoreHarness, topic: str, sequence: int, *values: bytes, epoch: int = 0) -> Outcome:
    values = values or (b"v",)
    return log.append(topic, *values, claim=records(PID, sequence, epoch, len(values)), txn_id="x")


def end(log: CoreHarness, commit: bool, epoch: int = 0) -> Outcome:
    return log.run(EndTxn("x", PID, epoch, commit))


def where(log: CoreHarness, topic: str) -> tuple[int, int]:
    """(stable, tail)."""
    outcome = log.run(GetStream(topic))
    assert isinstance(outcome, StreamDone), outcome
    return outcome.stable, outcome.tail


def holes(log: CoreHarness, stream_id: int) -> list[int]:
    row = log.rows.tables[Table.HOLES].get(encode_key(Table.HOLES, (stream_id, 0)))
    if row is None:
        return []
    chunk = decode_row(Table.HOLES, row)
    assert isinstance(chunk, HoleChunk)
    return chunk.holes


def txn_row(log: CoreHarness) -> Txn:
    outcome = log.run(GetTxn("x"))
    assert isinstance(outcome, TxnFound), outcome
    return outcome.txn


# --- writing -----------------------------------------------------------------------------------------------------


def test_stable_stays_at_the_first_open_offset_until_the_end(log: CoreHarness) -> None:
    log.append("a", b"before")
    add(log, "a")
    assert where(log, "a") == (1, 1), "naming a stream opens nothing there"
    write(log, "a", 0)
    log.append("a", b"plain, behind the open txn")
    write(log, "a", 1)
    assert where(log, "a") == (1, 4)
    end(log, True)
    assert where(log, "a") == (5, 5), "the marker has an offset of its own"
    log.replay_all()


def test_write_to_a_stream_that_the_txn_does_not_name_is_refused(log: CoreHarness) -> None:
    add(log, "a")
    assert write(log, "b", 0) == TxnRefused("NOT_IN_TXN", PID, 0)
    assert where(log, "b") == (0, 0)


def test_write_without_an_open_txn_is_refused(log: CoreHarness) -> None:
    assert write(log, "a", 0) == TxnRefused("NOT_IN_TXN", PID, 0)
    assert log.append("a", claim=records(PID, 0), txn_id="nobody") == TxnRefused("MAPPING")
    assert log.append("a", txn_id="x") == TxnRefused("MAPPING")
    assert log.append("a", claim=records(99, 0), txn_id="x") == TxnRefused("MAPPING", PID, 0)


def test_write_with_another_epoch_is_refused(log: CoreHarness) -> None:
    add(log, "a")
    assert write(log, "a", 0, epoch=1) == TxnRefused("FENCED", PID, 0)
    assert add(log, "a", epoch=1) == TxnRefused("FENCED", PID, 0)
    assert end(log, True, epoch=1) == TxnRefused("FENCED", PID, 0)


def test_plain_write_by_a_producer_with_an_open_txn_is_refused(log: CoreHarness) -> None:
    add(log, "a")
    write(log, "a", 0)
    assert log.append("a", claim=records(PID, 1)) == TxnRefused("INVALID_STATE")
    assert isinstance(log.append("a", claim=records(PID + 10, 0)), Confirmed)
    assert isinstance(log.append("a", claim=requests("http:p", 0)), Confirmed)
    end(log, True)
    assert isinstance(log.append("a", claim=records(PID, 1)), Confirmed)


def test_retried_write_is_a_duplicate_also_after_the_end(log: CoreHarness) -> None:
    add(log, "a")
    first = write(log, "a", 0, b"1", b"2")
    assert isinstance(first, Confirmed)
    assert write(log, "a", 5) == SequenceGap(2, 5)
    end(log, True)
    again = write(log, "a", 0, b"1", b"2")
    assert isinstance(again, Confirmed)
    assert (again.first, again.next, again.duplicate) == (0, 2, True)
    assert write(log, "a", 2) == TxnRefused("NOT_IN_TXN", PID, 0), "a late write must not open a txn nobody ends"


def test_write_in_a_txn_carries_nothing_that_an_abort_could_not_take_back(log: CoreHarness) -> None:
    add(log, "a")
    for outcome in (
        log.append("a", claim=records(PID, 0), txn_id="x", message_id=b"m"),
        log.append("a", claim=records(PID, 0), txn_id="x", order_key="k"),
        log.append("a", claim=records(PID, 0), txn_id="x", close=True),
    ):
        assert isinstance(outcome, ClaimInvalid)
        assert log.last_entry is None


# --- ending ------------------------------------------------------------------------------------------------------


def test_commit_ends_everything_in_one_entry(log: CoreHarness) -> None:
    log.append("b", b"input")
    add(log, "a", "b", groups=["g"])
    write(log, "a", 0)
    write(log, "b", 0)
    log.run(TxnCursors("x", PID, 0, "g", [CursorMove("g", "b", 0, 1, "note")]))
    assert log.run(GetCursor("g", "b", 0)) == CursorDone(None, ("x",))
    entries = len(log.journal)
    assert end(log, True) == TxnDone(PID, 0)
    assert len(log.journal) == entries + 1
    assert (where(log, "a"), where(log, "b")) == ((2, 2), (3, 3))
    assert holes(log, 2) == [1, 2, Cause.CONTROL, -1]
    assert holes(log, 4) == [2, 3, Cause.CONTROL, -1]
    cursor = log.run(GetCursor("g", "b", 0))
    assert isinstance(cursor, CursorDone)
    assert cursor.cursor is not None
    assert (cursor.cursor.frontier, cursor.cursor.metadata) == (1, "note")
    assert txn_row(log).state is TxnState.COMPLETE_COMMIT


def test_abort_turns_exactly_its_own_records_into_holes(log: CoreHarness) -> None:
    add(log, "a", groups=["g"])
    write(log, "a", 0, b"1", b"2")
    log.append("a", b"plain")
    write(log, "a", 2)
    log.run(TxnCursors("x", PID, 0, "g", [CursorMove("g", "b", 0, 0)]))
    end(log, False)
    assert holes(log, 2) == [0, 2, Cause.ABORTED, PID, 3, 4, Cause.ABORTED, PID, 4, 5, Cause.CONTROL, -1]
    assert log.run(GetCursor("g", "b", 0)) == CursorDone(None), "pending cursors move on commit only"
    assert where(log, "a") == (5, 5)
    assert log.run(Trim("a", 0, 1)) == StreamDone(2, 2, 5, 5, False, True)
    log.replay_all()


def test_marker_is_a_control_batch_of_the_producer(log: CoreHarness) -> None:
    add(log, "a")
    write(log, "a", 0)
    end(log, True)
    assert isinstance(log.last_entry, Compound)
    markers = [op for op in log.last_entry.operations if isinstance(op, Appended)]
    header = codec.skim(markers[0].batch)
    assert (header.producer_id, header.producer_epoch, header.record_count) == (PID, 0, 1)
    assert header.attributes & codec.CONTROL


def test_retried_end_succeeds_again_and_the_other_end_is_refused(log: CoreHarness) -> None:
    add(log, "a")
    write(log, "a", 0)
    end(log, True)
    assert end(log, True) == TxnDone(PID, 0)
    assert log.last_entry is None
    assert end(log, False) == TxnRefused("INVALID_STATE", PID, 0)
    assert log.run(EndTxn("nobody", 5, 0, True)) == TxnRefused("MAPPING")
    assert log.run(EndTxn("", 5, 0, True)) == TxnRefused("ID_EMPTY")


def test_txn_that_wrote_nothing_leaves_no_marker(log: CoreHarness) -> None:
    add(log, "a")
    end(log, True)
    assert where(log, "a") == (0, 0)


def test_last_pending_move_of_a_cursor_wins(log: CoreHarness) -> None:
    log.append("a", b"1", b"2", b"3")
    add(log, groups=["g"])
    for place in (3, 1, 2):
        log.run(TxnCursors("x", PID, 0, "g", [CursorMove("g", "a", 0, place)]))
    end(log, True)
    cursor = log.run(GetCursor("g", "a", 0))
    assert isinstance(cursor, CursorDone)
    assert cursor.cursor is not None
    assert cursor.cursor.frontier == 2


def test_pending_cursors_need_their_group_and_take_any_offset(log: CoreHarness) -> None:
    add(log, "a", groups=["g"])
    write(log, "a", 0)
    assert log.run(TxnCursors("x", PID, 0, "h", [])) == TxnRefused("NOT_IN_TXN", PID, 0)
    moves = [
        CursorMove("g", "a", 0, 150),
        CursorMove("g", "no", 0, 1),
        CursorMove("g", "b", 0, -1),
        CursorMove("g", "b", 0, 2, "m" * 5000),
        CursorMove("g\0", "b", 0, 2),
        CursorMove("g", "a" * 500, 0, 2),
    ]
    outcome = log.run(TxnCursors("x", PID, 0, "g", moves))
    assert isinstance(outcome, OffsetsCommitted)
    kinds = [type(answer) for answer in outcome.answers]
    assert kinds == [type(None), TopicMissing, TooLarge, TooLarge, NameInvalid, TopicMissing]
    assert log.run(GetCursor("g", "a", 0)) == CursorDone(None, ("x",))
    end(log, True)
    cursor = log.run(GetCursor("g", "a", 0))
    assert isinstance(cursor, CursorDone)
    assert cursor.cursor is not None
    assert (cursor.cursor.frontier, cursor.cursor.given, cursor.pending) == (150, True, ())
    assert log.run(GetCursor("g", "b", 0)) == CursorDone(None)
    log.replay_all()


def test_next_txn_of_the_same_id_starts_clean(log: CoreHarness) -> None:
    add(log, "a")
    write(log, "a", 0)
    end(log, True)
    add(log, "b")
    assert txn_row(log).streams == {4: []}
    assert write(log, "a", 1) == TxnRefused("NOT_IN_TXN", PID, 0)
    write(log, "b", 0)
    end(log, False)
    assert (where(log, "a"), where(log, "b")) == ((2, 2), (2, 2))


def test_two_txns_hold_stable_at_the_older_one(log: CoreHarness) -> None:
    assert log.run(InitProducer("y")) == TxnDone(2, 0)
    log.run(AddToTxn("y", 2, 0, [("a", 0)]))
    add(log, "a")
    write(log, "a", 0)
    log.append("a", claim=records(2, 0), txn_id="y")
    assert where(log, "a") == (0, 2)
    end(log, True)
    assert where(log, "a") == (1, 3)
    log.run(EndTxn("y", 2, 0, True))
    assert where(log, "a") == (4, 4)


def test_end_after_its_topic_was_deleted_succeeds(log: CoreHarness) -> None:
    log.append("b", b"1")
    add(log, "a", "b", groups=["g"])
    write(log, "a", 0)
    write(log, "b", 0)
    log.run(TxnCursors("x", PID, 0, "g", [CursorMove("g", "b", 0, 1)]))
    log.run(DeleteTopic("b"))
    log.create("b")
    assert end(log, True) == TxnDone(PID, 0)
    assert (where(log, "a"), where(log, "b")) == ((2, 2), (0, 0))
    assert log.run(GetCursor("g", "b", 0)) == CursorDone(None)
    log.replay_all()


def test_write_to_a_topic_made_anew_is_not_in_the_txn(log: CoreHarness) -> None:
    add(log, "a")
    log.run(DeleteTopic("a"))
    log.create("a")
    assert write(log, "a", 0) == TxnRefused("NOT_IN_TXN", PID, 0)


# --- fencing and time (P5, P7) -----------------------------------------------------------------------------------


def test_init_while_a_txn_is_open_fences_and_aborts_in_one_entry(log: CoreHarness) -> None:
    add(log, "a")
    write(log, "a", 0)
    entries = len(log.journal)
    assert log.run(InitProducer("x")) == TxnRefused("CONCURRENT", PID, 1)
    assert len(log.journal) == entries + 1
    assert isinstance(log.last_entry, Compound)
    kinds = [type(op) for op in log.last_entry.operations]
    assert kinds == [ProducerFenced, HolesAdded, Appended, TxnReleased, TxnSet]
    assert where(log, "a") == (2, 2)
    assert write(log, "a", 1) == Fenced(1, 0)
    assert end(log, True) == TxnRefused("FENCED", PID, 1)
    assert log.append("a", claim=records(PID, 1)) == Fenced(1, 0), "nor outside a txn"
    assert log.run(InitProducer("x")) == TxnDone(PID, 2)
    add(log, "a", epoch=2)
    assert isinstance(write(log, "a", 0, epoch=2), Confirmed)


def test_abandoned_txn_ends_exactly_at_its_timeout(log: CoreHarness) -> None:
    add(log, "a")
    write(log, "a", 0)
    log.pass_ms(limits.TXN_TIMEOUT_MS_DEFAULT - 1)
    assert log.run(ExpireTxn("x")) == CommitConfirmed([])
    assert log.last_entry is None
    log.pass_ms(1)
    assert log.run(ExpireTxn("x")) == TxnDone(PID, 1)
    assert where(log, "a") == (2, 2)
    assert holes(log, 2) == [0, 1, Cause.ABORTED, PID, 1, 2, Cause.CONTROL, -1]
    assert end(log, True) == TxnRefused("FENCED", PID, 1)
    assert write(log, "a", 1) == Fenced(1, 0)
    log.run(ExpireTxn("x"))
    assert log.last_entry is None


def test_timeout_without_fence_keeps_the_epoch_and_refuses_until_the_abort_is_seen(log: CoreHarness) -> None:
    add(log, "a")
    write(log, "a", 0)
    log.pass_ms(limits.TXN_TIMEOUT_MS_DEFAULT)
    assert log.run(ExpireTxn("x", fence=False)) == TxnDone(PID, 0)
    assert write(log, "a", 1) == TxnRefused("NOT_IN_TXN", PID, 0)
    assert add(log, "a") == TxnRefused("INVALID_STATE", PID, 0)
    assert end(log, True) == TxnRefused("INVALID_STATE", PID, 0)
    assert end(log, False) == TxnDone(PID, 0)
    assert add(log, "a") == TxnDone(PID, 0)
    assert isinstance(write(log, "a", 1), Confirmed)


def test_timeout_without_markers_makes_holes_and_moves_stable(log: CoreHarness) -> None:
    add(log, "a")
    write(log, "a", 0)
    log.append("a", b"plain")
    log.pass_ms(limits.TXN_TIMEOUT_MS_DEFAULT)
    log.run(ExpireTxn("x", markers=False))
    assert where(log, "a") == (2, 2)
    assert holes(log, 2) == [0, 1, Cause.ABORTED, -1]


def test_stream_with_little_patience_shortens_the_timeout(log: CoreHarness) -> None:
    log.run(CreateTopic("quick", 1, TopicConfig(txn_timeout_ms_max=2000)))
    add(log, "a", "quick")
    log.pass_ms(1999)
    log.run(ExpireTxn("x"))
    assert log.last_entry is None
    log.pass_ms(1)
    assert log.run(ExpireTxn("x")) == TxnDone(PID, 1)


def test_patience_of_a_stream_is_not_that_of_the_next_txn(log: CoreHarness) -> None:
    log.run(CreateTopic("quick", 1, TopicConfig(txn_timeout_ms_max=2000)))
    add(log, "a", "quick")
    log.run(EndTxn("x", PID, 0, commit=True))
    add(log, "a")
    log.pass_ms(2000)
    log.run(ExpireTxn("x"))
    assert log.last_entry is None
    add(log, "quick")
    log.run(ExpireTxn("x"))
    assert log.last_entry is not None, "it has held back what others write for that long already"


def test_idle_txn_id_is_forgotten_after_its_expiry_and_an_open_one_is_not(log: CoreHarness) -> None:
    log.pass_ms(limits.TXN_ID_EXPIRY_MS - 1)
    log.run(ExpireTxn("x"))
    assert log.last_entry is None
    log.pass_ms(1)
    log.run(ExpireTxn("x"))
    assert log.run(GetTxn("x")) == NotFound("txn")
    assert log.run(ExpireTxn("x")) == CommitConfirmed([])
    assert log.run(InitProducer("x")) == TxnDone(2, 0), "a producer id is never given out twice"


def test_fence_is_not_forgotten_while_a_txn_is_open(log: CoreHarness) -> None:
    log.append("a", claim=requests("http:p", 0, epoch=5))
    log.run(Trim("a", 0, 1))
    log.run(InitProducer("y", timeout_ms=limits.TXN_TIMEOUT_MS_MAX))
    log.run(AddToTxn("y", 2, 0, [("a", 0)]))
    log.append("a", claim=records(2, 0), txn_id="y")
    log.pass_ms(2 * limits.DEDUPE_FLOOR_MS_DEFAULT)
    assert log.append("a", claim=requests("http:p", 0)) == Fenced(5, 0)
    log.run(ExpireTxn("y"))
    assert isinstance(log.append("a", claim=requests("http:p", 0)), Confirmed)


# --- init --------------------------------------------------------------------------------------------------------


def test_producer_ids_are_handed_out_once(log: CoreHarness) -> None:
    assert log.run(InitProducer()) == TxnDone(2, 0)
    assert log.run(InitProducer("y")) == TxnDone(3, 0)
    assert log.run(InitProducer()) == TxnDone(4, 0)
    log.replay_all()


def test_retried_init_of_the_holder_repeats(log: CoreHarness) -> None:
    assert log.run(InitProducer("x", producer_id=PID, epoch=0)) == TxnDone(PID, 1)
    assert log.run(InitProducer("x", producer_id=PID, epoch=0)) == TxnDone(PID, 1)
    assert log.last_entry is None
    assert log.run(InitProducer("x", producer_id=PID, epoch=7)) == TxnRefused("FENCED", PID, 1)


def test_timeout_out_of_range_is_clamped_or_rejected_as_asked(log: CoreHarness) -> None:
    log.run(InitProducer("y", timeout_ms=1))
    outcome = log.run(GetTxn("y"))
    assert isinstance(outcome, TxnFound)
    assert outcome.txn.timeout_ms == limits.TXN_TIMEOUT_MS_MIN
    too_long = InitProducer("z", timeout_ms=limits.TXN_TIMEOUT_MS_MAX + 1, reject_timeout=True)
    assert log.run(too_long) == TxnRefused("TIMEOUT_OUT_OF_RANGE")


def test_epochs_that_run_out_move_on_to_a_fresh_producer_id(log: CoreHarness) -> None:
    for rows in (log.rows, log.follower_rows):
        key = encode_key(Table.TXN, "x")
        row = decode_row(Table.TXN, rows.tables[Table.TXN][key])
        assert isinstance(row, Txn)
        row.epoch = limits.KAFKA_EPOCH_MAX
        rows.tables[Table.TXN][key] = encode_row(row)
    log.restart()
    assert log.run(InitProducer("x")) == TxnDone(2, 0)


# --- names and bounds --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("txn_id", ["a\0b", "\ud800", "x" * 401])
def test_txn_id_that_no_table_holds_is_refused_everywhere(log: CoreHarness, txn_id: str) -> None:
    for command in (
        InitProducer(txn_id),
        AddToTxn(txn_id, PID, 0, [("a", 0)]),
        TxnCursors(txn_id, PID, 0, "g", []),
        EndTxn(txn_id, PID, 0, True),
        ExpireTxn(txn_id),
        GetTxn(txn_id),
    ):
        assert isinstance(log.run(command), NameInvalid | TooLarge)
        assert log.last_entry is None
    outcome = log.append("a", claim=records(PID, 0), txn_id=txn_id)
    assert isinstance(outcome, NameInvalid | TooLarge | TxnRefused)


def test_txn_may_not_name_more_than_its_end_can_hold(log: CoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(add(log, "a", groups=["g\0"]), NameInvalid)
    assert add(log, "a", "no") == TopicMissing("no")
    add(log, "a", groups=["g"])
    heavy = [CursorMove(f"g{number}", "a", 0, 0, "m" * 4096) for number in range(400)]
    more = [CursorMove(f"h{number}", "a", 0, 0, "m" * 4096) for number in range(400)]
    assert log.run(TxnCursors("x", PID, 0, "g", heavy)) == OffsetsCommitted([None] * 400)
    assert log.run(TxnCursors("x", PID, 0, "g", heavy)) == OffsetsCommitted([None] * 400), "each replaces itself"
    assert isinstance(log.run(TxnCursors("x", PID, 0, "g", more)), TooLarge)
    assert end(log, True) == TxnDone(PID, 0)
    monkeypatch.setattr(limits, "COMMIT_APPENDS_MAX", 2)
    add(log, "a", groups=["g1", "g2"])
    assert add(log, groups=["g3"]) == TooLarge("groups in one txn", 2, 3)
    log.create("c")
    add(log, "a", "b")
    assert add(log, "c") == TooLarge("streams in one txn", 2, 3)


@pytest.mark.from_source
def test_txn_may_not_write_more_stretches_than_its_end_can_hold(
    log: CoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TXN_RANGES_MAX", 2)
    add(log, "a", "b")
    write(log, "a", 0)
    write(log, "b", 0)
    assert isinstance(write(log, "a", 1), Confirmed), "it makes the last stretch longer"
    log.append("a", b"in between")
    assert write(log, "a", 2) == TooLarge("stretches in one txn", 2, 3)
    assert end(log, False) == TxnDone(PID, 0)
    assert holes(log, 2) == [0, 2, Cause.ABORTED, PID, 3, 4, Cause.CONTROL, -1]


def test_largest_txn_ends_in_one_entry() -> None:
    log = CoreHarness()
    log.keep_loaded = True
    log.state.next_id = log.follower.next_id = 2**62
    log.state.next_producer_id = log.follower.next_producer_id = 2**62
    streams = 500
    log.create("t", streams)
    log.run(InitProducer("x"))
    log.run(AddToTxn("x", 2**62, 0, [("t", partition) for partition in range(streams)]))
    ranges_max = 2 * streams
    for rows in (log.rows, log.follower_rows):
        key = encode_key(Table.TXN, "x")
        row = decode_row(Table.TXN, rows.tables[Table.TXN][key])
        assert isinstance(row, Txn)
        for stream_id in row.streams:
            row.streams[stream_id] = [2**62, 2**62 + 1, 2**62 + 3, 2**62 + 5]
            stream_key = encode_key(Table.STREAM, stream_id)
            stream = decode_row(Table.STREAM, rows.tables[Table.STREAM][stream_key])
            stream.tail = 2**62 + 9  # type: ignore[union-attr]
            stream.open_txns = {2**62: 2**62}  # type: ignore[union-attr]
            rows.tables[Table.STREAM][stream_key] = encode_row(stream)
        rows.tables[Table.TXN][key] = encode_row(row)
    log.restart()
    assert log.run(InitProducer("x")) == TxnRefused("CONCURRENT", 2**62, 1)
    bound = streams * limits.TXN_STREAM_BYTES + ranges_max * limits.TXN_RANGE_BYTES
    assert bound / 2 < len(log.journal[-1]) < bound


def test_txn_found_is_a_copy_that_later_writes_leave_alone(log: CoreHarness) -> None:
    log.keep_loaded = True
    add(log, "a")
    write(log, "a", 0)
    before = txn_row(log)
    write(log, "a", 1)
    assert before.streams == {2: [0, 1]}
    assert txn_row(log).streams == {2: [0, 2]}
    assert log.now_ns - before.started_ns < MS
