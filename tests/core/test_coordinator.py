"""What Kafka's coordinator offers beside the txn itself: offsets of groups, markers, verification, bounds."""

import msgspec
import pytest

from oncelog import limits
from oncelog.core.command import (
    AddToTxn,
    CommitOffsets,
    CursorMove,
    EndTxn,
    ExpireTxn,
    GetCursor,
    GetStream,
    GetTxn,
    InitProducer,
    Trim,
    TxnCursors,
    WriteMarker,
)
from oncelog.core.entry import Compound, TxnAdded, TxnOffsets
from oncelog.core.outcome import (
    CursorDone,
    Fenced,
    OffsetsCommitted,
    Outcome,
    StreamDone,
    TooLarge,
    TopicMissing,
    TxnDone,
    TxnFound,
    TxnRefused,
)
from oncelog.core.row_codec import encode_key, encode_row
from oncelog.core.rows import Table
from oncelog.core.txn import Txn, TxnState, TxnTimeouts
from oncelog.testing.core_harness import CoreHarness, records

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


def write(log: CoreHarness, topic: str, sequence: int, epoch: int = 0) -> Outcome:
    return log.append(topic, b"v", claim=records(PID, sequence, epoch), txn_id="x")


def end(log: CoreHarness, commit: bool, epoch: int = 0) -> Outcome:
    return log.run(EndTxn("x", PID, epoch, commit))


def where(log: CoreHarness, topic: str) -> tuple[int, int]:
    """(stable, tail)."""
    outcome = log.run(GetStream(topic))
    assert isinstance(outcome, StreamDone), outcome
    return outcome.stable, outcome.tail


def txn_row(log: CoreHarness) -> Txn:
    outcome = log.run(GetTxn("x"))
    assert isinstance(outcome, TxnFound), outcome
    return outcome.txn


# --- offsets of groups, beside txns ------------------------------------------------------------------------------


def offset_of(log: CoreHarness, topic: str, name: str = "g") -> tuple[int, tuple[str, ...]]:
    """(frontier, waiting txns)."""
    found = log.run(GetCursor(name, topic, 0))
    assert isinstance(found, CursorDone)
    return (-1 if found.cursor is None else found.cursor.frontier), found.pending


def test_offset_commit_takes_any_offset_and_answers_each(log: CoreHarness) -> None:
    moves = [CursorMove("g", "a", 0, 150, "note"), CursorMove("g", "no", 3, 1), CursorMove("g", "b", 0, -1)]
    outcome = log.run(CommitOffsets(moves))
    assert isinstance(outcome, OffsetsCommitted)
    assert outcome.answers[:2] == [None, TopicMissing("no", 3)]
    assert isinstance(outcome.answers[2], TooLarge)
    assert offset_of(log, "a") == (150, ())
    log.run(CommitOffsets([CursorMove("g", "a", 0, 0)]))
    assert offset_of(log, "a") == (0, ()), "also backwards"
    log.replay_all()


def test_offset_of_a_group_is_shown_as_it_was_given(log: CoreHarness) -> None:
    """A floor or a hole does not move what the client said."""
    log.append("a", b"1", b"2", b"3")
    log.run(CommitOffsets([CursorMove("g", "a", 0, 1)]))
    log.run(Trim("a", 0, 2))
    assert offset_of(log, "a") == (1, ())


def test_offset_commit_after_a_waiting_one_wins_over_it(log: CoreHarness) -> None:
    add(log, "a", groups=["g"])
    log.run(TxnCursors("x", PID, 0, "g", [CursorMove("g", "a", 0, 7), CursorMove("g", "b", 0, 8)]))
    assert (offset_of(log, "a"), offset_of(log, "b")) == ((-1, ("x",)), (-1, ("x",)))
    log.run(CommitOffsets([CursorMove("g", "a", 0, 3)]))
    assert (offset_of(log, "a"), offset_of(log, "b")) == ((3, ()), (-1, ("x",)))
    end(log, True)
    assert (offset_of(log, "a"), offset_of(log, "b")) == ((3, ()), (8, ()))
    log.replay_all()


@pytest.mark.parametrize("how", ["commit", "abort", "init", "timeout", "marker"])
def test_nothing_waits_for_a_txn_that_ended(log: CoreHarness, how: str) -> None:
    assert log.run(InitProducer("y")) == TxnDone(2, 0)
    add(log, "a", groups=["g"])
    log.run(AddToTxn("y", 2, 0, [("a", 0)], ["g"]))
    for txn_id, producer_id in (("x", PID), ("y", 2)):
        log.run(TxnCursors(txn_id, producer_id, 0, "g", [CursorMove("g", "a", 0, 7)]))
    assert offset_of(log, "a") == (-1, ("x", "y"))
    if how == "init":
        log.run(InitProducer("x"))
    elif how == "timeout":
        log.pass_ms(limits.TXN_TIMEOUT_MS_DEFAULT)
        log.run(ExpireTxn("x"))
    elif how == "marker":
        log.run(WriteMarker(PID, 0, False, [("a", 0)]))
    else:
        end(log, how == "commit")
    assert offset_of(log, "a") == (7 if how == "commit" else -1, ("y",))
    log.replay_all()


# --- markers from outside ----------------------------------------------------------------------------------------


def test_abort_by_an_administrator_ends_and_fences_the_whole_txn_in_one_entry(log: CoreHarness) -> None:
    add(log, "a", "b")
    write(log, "a", 0)
    write(log, "b", 0)
    entries = len(log.journal)
    assert log.run(WriteMarker(PID, 0, False, [("a", 0)])) == TxnDone(PID, 1)
    assert len(log.journal) == entries + 1
    assert (where(log, "a"), where(log, "b")) == ((2, 2), (2, 2)), "also where it was not asked for"
    assert write(log, "a", 1) == Fenced(1, 0)
    assert end(log, True) == TxnRefused("FENCED", PID, 1)
    assert log.run(WriteMarker(PID, 1, False, [("a", 0)])) == TxnDone(PID, 1), "once more changes nothing"
    assert not log.wrote()
    assert log.run(InitProducer("x")) == TxnDone(PID, 2)
    log.replay_all()


def test_commit_marker_for_an_open_txn_is_refused(log: CoreHarness) -> None:
    add(log, "a")
    write(log, "a", 0)
    assert log.run(WriteMarker(PID, 0, True, [("a", 0)])) == TxnRefused("INVALID_STATE", PID, 0)
    assert where(log, "a") == (0, 1)
    end(log, True)
    assert log.run(WriteMarker(PID, 0, True, [("a", 0)])) == TxnDone(PID, 0)
    assert not log.wrote()


def test_marker_for_nothing_that_is_open_changes_nothing(log: CoreHarness) -> None:
    assert log.run(WriteMarker(77, 0, False, [("a", 0)])) == TxnDone(77, 0)
    assert log.run(WriteMarker(PID, 0, False, [("a", 0)])) == TxnDone(PID, 0)
    add(log, "a")
    write(log, "a", 0)
    assert log.run(WriteMarker(PID, 0, False, [("b", 0)])) == TxnDone(PID, 0), "the txn does not touch this stream"
    assert log.run(WriteMarker(PID, 0, False, [("no", 0), ("b", 0), ("no", 1)])) == TopicMissing(
        "no", 0, also=(("no", 1),)
    )
    assert not log.wrote()


@pytest.mark.parametrize("epoch", [1, 4])
def test_marker_with_another_epoch_than_the_open_txn_is_refused(log: CoreHarness, epoch: int) -> None:
    for held in range(2):
        log.run(InitProducer("x", producer_id=PID, epoch=held))
    add(log, "a", epoch=2)
    write(log, "a", 0, epoch=2)
    assert log.run(WriteMarker(PID, epoch, False, [("a", 0)])) == TxnRefused("FENCED", PID, 2)


def test_marker_of_a_replaced_coordinator_is_refused(log: CoreHarness) -> None:
    add(log, "a")
    write(log, "a", 0)
    assert log.run(WriteMarker(PID, 0, False, [("a", 0)], 0)) == TxnRefused("COORDINATOR_FENCED", PID, 0)
    assert log.run(WriteMarker(PID, 0, False, [("a", 0)], 1)) == TxnDone(PID, 1)


def test_producer_id_leads_to_its_txn_also_after_it_was_rotated(log: CoreHarness) -> None:
    """The id is rotated when its epochs are used up: a marker for the old one must not end the new one's txn."""
    held = encode_row(msgspec.structs.replace(txn_row(log), epoch=limits.KAFKA_EPOCH_MAX - 1))
    for rows in (log.rows, log.follower_rows):
        rows.tables[Table.TXN][encode_key(Table.TXN, "x")] = held
    log.state.txns.clear()
    log.follower.txns.clear()
    log.run(InitProducer("x", producer_id=PID, epoch=limits.KAFKA_EPOCH_MAX - 1))
    rotated = log.run(InitProducer("x", producer_id=PID, epoch=limits.KAFKA_EPOCH_MAX))
    assert rotated == TxnDone(2, 0)
    log.run(AddToTxn("x", 2, 0, [("a", 0)]))
    log.append("a", claim=records(2, 0), txn_id="x")
    assert log.run(WriteMarker(PID, limits.KAFKA_EPOCH_MAX, False, [("a", 0)])) == TxnDone(PID, limits.KAFKA_EPOCH_MAX)
    assert where(log, "a") == (0, 1)
    assert log.run(WriteMarker(2, 0, False, [("a", 0)])) == TxnDone(2, 1)


# --- what else Kafka's coordinator knows -------------------------------------------------------------------------


def test_verification_adds_nothing(log: CoreHarness) -> None:
    verify = AddToTxn("x", PID, 0, [("a", 0)], verify_only=True)
    assert log.run(verify) == TxnRefused("NOT_IN_TXN", PID, 0)
    add(log, "a")
    assert log.run(verify) == TxnDone(PID, 0)
    assert log.run(AddToTxn("x", PID, 0, [("b", 0)], verify_only=True)) == TxnRefused("NOT_IN_TXN", PID, 0)
    assert txn_row(log).streams == {2: []}


def test_every_missing_stream_is_named(log: CoreHarness) -> None:
    assert add(log, "no", "a", "nor") == TopicMissing("no", 0, also=(("nor", 0),))
    assert txn_row(log).state is TxnState.EMPTY


def test_server_may_allow_fewer_streams(log: CoreHarness) -> None:
    asked = AddToTxn("x", PID, 0, [("a", 0), ("b", 0)], streams_max=1)
    assert log.run(asked) == TooLarge("streams in one txn", 1, 2)


def test_timeouts_of_the_server_bound_what_a_client_asks_for(log: CoreHarness) -> None:
    bounds = TxnTimeouts(min_timeout_ms=5_000, max_timeout_ms=30_000)
    for asked, stored in ((None, 30_000), (1, 5_000), (7_000, 7_000), (60_000, 30_000)):
        log.run(InitProducer("y", asked, timeouts=bounds))
        found = log.run(GetTxn("y"))
        assert isinstance(found, TxnFound)
        assert found.txn.timeout_ms == stored
    assert log.run(InitProducer("y", 30_001, reject_timeout=True, timeouts=bounds)) == TxnRefused(
        "TIMEOUT_OUT_OF_RANGE", 2, 3
    )


def test_adding_to_a_txn_stores_only_what_is_new(log: CoreHarness) -> None:
    add(log, "a", groups=["g"])
    add(log, "a", "b", groups=["g", "h"])
    assert isinstance(log.last_entry, Compound)
    assert log.last_entry.operations == [TxnAdded("x", [4], ["h"], limits.TXN_TIMEOUT_MS_MAX, False)]
    log.run(TxnCursors("x", PID, 0, "g", [CursorMove("g", "a", 0, 7)]))
    assert isinstance(log.last_entry, Compound)
    assert log.last_entry.operations == [TxnOffsets("x", [("g", 2, 7, "")])]
    log.replay_all()
