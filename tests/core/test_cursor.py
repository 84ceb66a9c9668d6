"""Cursors: contiguous frontiers, confirms out of order, holes stepped over, never past open data (P8)."""

from itertools import permutations

import pytest

from oncelog import limits
from oncelog.core.command import (
    AddToTxn,
    ConfirmCursor,
    CursorMove,
    DeleteCursor,
    DeleteRecords,
    DeleteTopic,
    EndTxn,
    GetCursor,
    InitProducer,
    MoveCursors,
    Trim,
)
from oncelog.core.entry import Compound, ConsumerChanged
from oncelog.core.outcome import (
    ClaimInvalid,
    CommitConfirmed,
    CursorDone,
    CursorPinned,
    NameInvalid,
    OffsetAhead,
    Outcome,
    StreamDone,
    TooLarge,
    TopicMissing,
    TxnDone,
)
from oncelog.core.rows import Cursor
from oncelog.testing.core_harness import CoreHarness, records


@pytest.fixture(params=["rows dropped before every command", "rows kept"])
def log(request: pytest.FixtureRequest) -> CoreHarness:
    harness = CoreHarness()
    harness.keep_loaded = request.param == "rows kept"
    harness.create("t")
    harness.append("t", *[b"%d" % number for number in range(10)])
    return harness


def confirm(log: CoreHarness, *ranges: int, pinned: bool = False) -> tuple[int, list[int]]:
    return stands(log.run(ConfirmCursor("c", "t", 0, list(ranges), pinned)))


def stands(outcome: Outcome) -> tuple[int, list[int]]:
    assert isinstance(outcome, CursorDone), outcome
    assert outcome.cursor is not None
    return outcome.cursor.frontier, outcome.cursor.confirmed


def look(log: CoreHarness) -> tuple[int, list[int]]:
    return stands(log.run(GetCursor("c", "t", 0)))


def open_txn(log: CoreHarness) -> int:
    """A txn on stream 2; its producer id."""
    started = log.run(InitProducer("x"))
    assert isinstance(started, TxnDone)
    log.run(AddToTxn("x", started.producer_id, 0, [("t", 0)]))
    return started.producer_id


# --- confirms ----------------------------------------------------------------------------------------------------


def test_frontier_moves_over_the_contiguous_part_only(log: CoreHarness) -> None:
    assert confirm(log, 0, 2) == (2, [])
    assert confirm(log, 4, 6) == (2, [4, 6])
    assert confirm(log, 8, 9) == (2, [4, 6, 8, 9])
    assert confirm(log, 6, 8) == (2, [4, 9])
    assert confirm(log, 2, 4) == (9, [])


@pytest.mark.parametrize("order", list(permutations([(0, 2), (2, 7), (5, 9), (9, 10)])))
def test_ranges_in_any_order_end_at_the_same_frontier(order: tuple[tuple[int, int], ...]) -> None:
    log = CoreHarness()
    log.create("t")
    log.append("t", *[b"x"] * 10)
    for first, next_ in order:
        frontier, above = confirm(log, first, next_)
    assert (frontier, above) == (10, [])


def test_confirming_again_changes_nothing(log: CoreHarness) -> None:
    confirm(log, 0, 2, 4, 6)
    assert confirm(log, 0, 1, 4, 5) == (2, [4, 6])
    assert log.last_entry is None


def test_hole_confirms_itself(log: CoreHarness) -> None:
    log.run(DeleteRecords("t", 0, [2, 4]))
    assert confirm(log, 0, 2) == (4, [])
    log.run(DeleteRecords("t", 0, [4, 5]))
    assert look(log) == (5, [])
    confirm(log, 6, 7)
    log.run(DeleteRecords("t", 0, [5, 6]))
    assert look(log) == (7, []), "the frontier steps over the hole and over what was confirmed behind it"


def test_hole_at_the_very_beginning_is_stepped_over(log: CoreHarness) -> None:
    log.run(DeleteRecords("t", 0, [0, 3]))
    assert confirm(log, 5, 6) == (3, [5, 6])


def test_holes_across_chunks_are_stepped_over() -> None:
    log = CoreHarness()
    log.create("t")
    chunk = 1 << limits.HOLE_CHUNK_BITS
    log.append("t", *[b""] * (2 * chunk + 10))
    log.run(DeleteRecords("t", 0, [1, 2 * chunk + 5]))
    assert confirm(log, 0, 1) == (2 * chunk + 5, [])
    trimmed = log.run(Trim("t", 0, 1))
    assert isinstance(trimmed, StreamDone)
    assert trimmed.floor == 2 * chunk + 5


def test_frontier_starts_at_the_floor(log: CoreHarness) -> None:
    log.run(Trim("t", 0, 4))
    assert confirm(log, 5, 6) == (4, [5, 6])
    log.run(Trim("t", 0, 5))
    assert look(log) == (6, [])


@pytest.mark.parametrize("ranges", [[], [1], [2, 2], [3, 1], [0, 2, 1, 3], [-1, 2]])
def test_malformed_ranges_are_refused(log: CoreHarness, ranges: list[int]) -> None:
    assert isinstance(log.run(ConfirmCursor("c", "t", 0, ranges)), ClaimInvalid)
    assert log.last_entry is None


def test_ranges_with_nothing_but_holes_between_them_are_one(log: CoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a consumer that is behind by one record could be refused for gaps that nobody can close."""
    monkeypatch.setattr(limits, "CURSOR_CONFIRMED_RANGES_MAX", 2)
    log.run(DeleteRecords("t", 0, [2, 3, 4, 5, 6, 7, 8, 9]))
    assert confirm(log, 1, 2, 3, 4, 5, 6, 7, 8) == (0, [1, 8])
    assert confirm(log, 9, 10) == (0, [1, 10])
    log.run(DeleteRecords("t", 0, [0, 1]))
    assert look(log) == (10, [])


def test_confirm_beyond_the_tail_is_refused(log: CoreHarness) -> None:
    assert log.run(ConfirmCursor("c", "t", 0, [9, 11])) == OffsetAhead(2, 11, 10)


def test_too_many_ranges_above_the_frontier_are_refused() -> None:
    log = CoreHarness()
    log.create("t")
    ranges_max = limits.CURSOR_CONFIRMED_RANGES_MAX
    log.append("t", *[b""] * (2 * ranges_max + 4))
    every_second = [offset for first in range(1, 2 * ranges_max + 2, 2) for offset in (first, first + 1)]
    too_many = log.run(ConfirmCursor("c", "t", 0, every_second))
    assert too_many == TooLarge("ranges above the frontier", ranges_max, ranges_max + 1)
    assert confirm(log, *every_second[:-2])[0] == 0


# --- P8 ----------------------------------------------------------------------------------------------------------


def test_cursor_never_passes_open_data(log: CoreHarness) -> None:
    producer_id = open_txn(log)
    log.append("t", b"open", claim=records(producer_id, 0), txn_id="x")
    log.append("t", b"later")
    assert log.run(MoveCursors([CursorMove("c", "t", 0, 11)])) == OffsetAhead(2, 11, 10)
    assert log.run(ConfirmCursor("c", "t", 0, [0, 11])) == OffsetAhead(2, 11, 10)
    assert confirm(log, 0, 10) == (10, [])
    log.run(EndTxn("x", producer_id, 0, True))
    assert confirm(log, 10, 12) == (13, []), "the marker is a hole"


def test_read_uncommitted_consumer_may_pass_open_data(log: CoreHarness) -> None:
    producer_id = open_txn(log)
    log.append("t", b"open", claim=records(producer_id, 0), txn_id="x")
    assert log.run(MoveCursors([CursorMove("c", "t", 0, 11)], uncommitted=True)) == CommitConfirmed([])
    assert log.run(MoveCursors([CursorMove("c", "t", 0, 12)], uncommitted=True)) == OffsetAhead(2, 12, 11)
    assert look(log) == (11, [])


def test_aborted_data_is_stepped_over(log: CoreHarness) -> None:
    producer_id = open_txn(log)
    log.append("t", b"open", claim=records(producer_id, 0), txn_id="x")
    confirm(log, 0, 10)
    log.run(EndTxn("x", producer_id, 0, False))
    assert look(log) == (12, [])


# --- moves -------------------------------------------------------------------------------------------------------


def test_move_goes_anywhere_that_exists_also_backwards(log: CoreHarness) -> None:
    for place in (10, 3, 0):
        assert log.run(MoveCursors([CursorMove("c", "t", 0, place, "note")])) == CommitConfirmed([])
        cursor = log.run(GetCursor("c", "t", 0))
        assert cursor == CursorDone(
            Cursor(place, [], "note", False, log.now_ns, created_ns=log.now_ns, delivered=place)
        )
    assert log.run(MoveCursors([CursorMove("c", "t", 0, -1)])) == OffsetAhead(2, -1, 10)


def test_moves_are_all_or_none(log: CoreHarness) -> None:
    moves = [CursorMove("c", "t", 0, 3), CursorMove("d", "t", 0, 99)]
    assert log.run(MoveCursors(moves)) == OffsetAhead(2, 99, 10)
    assert log.run(GetCursor("c", "t", 0)) == CursorDone(None)
    assert log.run(MoveCursors([])) == CommitConfirmed([])
    assert log.last_entry is None


def test_confirm_keeps_the_metadata_of_a_move(log: CoreHarness) -> None:
    log.run(MoveCursors([CursorMove("c", "t", 0, 3, "note")]))
    confirm(log, 3, 5)
    cursor = log.run(GetCursor("c", "t", 0))
    assert cursor == CursorDone(Cursor(5, [], "note", False, log.now_ns, created_ns=log.now_ns, delivered=5))


def test_new_topic_of_an_old_name_meets_no_old_cursor(log: CoreHarness) -> None:
    confirm(log, 0, 5)
    log.run(DeleteTopic("t"))
    assert log.run(GetCursor("c", "t", 0)) == TopicMissing("t")
    log.create("t")
    assert log.run(GetCursor("c", "t", 0)) == CursorDone(None)


def test_deleted_cursor_is_gone_and_deleting_twice_succeeds(log: CoreHarness) -> None:
    confirm(log, 0, 5, pinned=True)
    assert log.run(DeleteCursor("c", "t", 0)) == CursorDone(None)
    assert log.run(GetCursor("c", "t", 0)) == CursorDone(None)
    assert log.run(DeleteCursor("c", "t", 0)) == CursorDone(None)
    assert log.last_entry is None
    assert isinstance(log.run(Trim("t", 0, 8)), StreamDone), "its pin is gone too"


# --- pins --------------------------------------------------------------------------------------------------------


def test_trim_never_passes_a_pinned_cursor_unless_told(log: CoreHarness) -> None:
    confirm(log, 0, 3, pinned=True)
    log.run(MoveCursors([CursorMove("ahead", "t", 0, 9, pinned=True), CursorMove("free", "t", 0, 1)]))
    assert log.run(Trim("t", 0, 4)) == CursorPinned("c", 3, 4)
    assert isinstance(log.run(Trim("t", 0, 3)), StreamDone)
    assert isinstance(log.run(Trim("t", 0, 5, force=True)), StreamDone)
    assert log.run(Trim("t", 0, 6)) == CursorPinned("c", 5, 6)
    assert confirm(log, 5, 6, pinned=True) == (6, [])
    assert isinstance(log.run(Trim("t", 0, 6)), StreamDone)


def test_pin_steps_over_holes(log: CoreHarness) -> None:
    confirm(log, 0, 3, pinned=True)
    log.run(DeleteRecords("t", 0, [3, 6]))
    assert isinstance(log.run(Trim("t", 0, 6)), StreamDone)
    assert log.run(Trim("t", 0, 7)) == CursorPinned("c", 6, 7)


def test_cursor_that_is_no_longer_pinned_holds_nothing_back(log: CoreHarness) -> None:
    confirm(log, 0, 3, pinned=True)
    confirm(log, 0, 3, pinned=False)
    assert isinstance(log.run(Trim("t", 0, 8)), StreamDone)


# --- names and bounds --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "c" * 401])
def test_cursor_name_that_no_table_holds_is_refused_everywhere(log: CoreHarness, name: str) -> None:
    for command in (
        ConfirmCursor(name, "t", 0, [0, 1]),
        MoveCursors([CursorMove(name, "t", 0, 0)]),
        GetCursor(name, "t", 0),
        DeleteCursor(name, "t", 0),
    ):
        assert isinstance(log.run(command), NameInvalid | TooLarge)
        assert log.last_entry is None


def test_each_bound_of_moves_is_refused(log: CoreHarness) -> None:
    assert isinstance(log.run(MoveCursors([CursorMove("c", "t", 0, 0, "m" * 4097)])), TooLarge)
    assert isinstance(log.run(MoveCursors([CursorMove("c", "t", 0, 0, "\ud800")])), NameInvalid)
    small = [CursorMove(f"c{number}", "t", 0, 0) for number in range(limits.COMMIT_APPENDS_MAX + 1)]
    assert isinstance(log.run(MoveCursors(small)), TooLarge)
    large = [CursorMove(f"c{number}", "t", 0, 0, "m" * 4096) for number in range(1000)]
    assert isinstance(log.run(MoveCursors(large)), TooLarge)
    assert log.run(MoveCursors(large[:900])) == CommitConfirmed([])
    for command in (ConfirmCursor("c", "no", 0, [0, 1]), MoveCursors([CursorMove("c", "no", 0, 0)])):
        assert log.run(command) == TopicMissing("no")


def test_answer_shares_nothing_with_the_entry(log: CoreHarness) -> None:
    outcome = log.run(ConfirmCursor("c", "t", 0, [2, 3]))
    assert isinstance(outcome, CursorDone)
    assert outcome.cursor is not None
    assert isinstance(log.last_entry, Compound)
    (operation,) = log.last_entry.operations
    assert isinstance(operation, ConsumerChanged)
    assert operation.confirmed is not outcome.cursor.confirmed
