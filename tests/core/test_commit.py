"""The atomic commit: whole or not at all (P4), every kind of condition, every kind of duplicate."""

import pytest

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import (
    CloseStream,
    Command,
    Commit,
    CommitAppend,
    Condition,
    CreateTopic,
    CursorMove,
    DeleteCursor,
    DeleteRecords,
    DeleteTopic,
    ExpectCursor,
    ExpectEpoch,
    ExpectId,
    ExpectNew,
    ExpectTail,
    GetCursor,
    GetProducer,
    GetStream,
    MoveCursors,
    Trim,
)
from oncelog.core.entry import Claimed, ClaimRemembered, Compound, IdsUsed
from oncelog.core.flat import ProducerClaim, Stream
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import (
    BatchRefused,
    ClaimConflict,
    ClaimInvalid,
    CommitConfirmed,
    ConditionFailed,
    Confirmed,
    CursorDone,
    Fenced,
    IdConflict,
    NameInvalid,
    NotFound,
    OffsetAhead,
    Outcome,
    PartlyDuplicate,
    ProducerFound,
    SequenceConflict,
    SequenceGap,
    ShardMismatch,
    StreamClosedRefusal,
    StreamDone,
    TooLarge,
    TopicMissing,
)
from oncelog.core.producer import SequenceMode
from oncelog.core.row_codec import decode_row, encode_key, encode_row
from oncelog.core.rows import FOREVER, Table, TopicConfig
from oncelog.testing.core_harness import CoreHarness, requests


@pytest.fixture(params=["rows dropped before every command", "rows kept"])
def log(request: pytest.FixtureRequest) -> CoreHarness:
    harness = CoreHarness()
    harness.keep_loaded = request.param == "rows kept"
    harness.create("a", 2)  # streams 2 and 3
    harness.create("b")  # stream 5
    return harness


def put(topic: str, *values: bytes, partition: int = 0, message_id: bytes = b"") -> CommitAppend:
    return CommitAppend(topic, partition, codec.encode_values(values, 1), len(values), b"", message_id)


def claim(sequence: int, epoch: int = 0) -> ProducerClaim:
    return ProducerClaim("commit:p", epoch, sequence, sequence, int(SequenceMode.REQUESTS))


def tail(log: CoreHarness, topic: str, partition: int = 0) -> int:
    outcome = log.run(GetStream(topic, partition))
    assert isinstance(outcome, StreamDone)
    return outcome.tail


def frontier(log: CoreHarness, name: str, topic: str) -> int | None:
    outcome = log.run(GetCursor(name, topic, 0))
    assert isinstance(outcome, CursorDone)
    return None if outcome.cursor is None else outcome.cursor.frontier


def refused(log: CoreHarness, command: Commit) -> Outcome:
    """Refused, and nothing was written."""
    outcome = log.run(command)
    assert log.last_entry is None
    return outcome


def test_commit_over_streams_lists_every_offset_and_is_one_entry(log: CoreHarness) -> None:
    entries = len(log.journal)
    outcome = log.run(Commit([put("a", b"1", b"2"), put("b", b"3"), put("a", b"4"), put("a", b"5", partition=1)]))
    assert outcome == CommitConfirmed([2, 0, 2, 5, 0, 1, 2, 2, 3, 3, 0, 1])
    assert len(log.journal) == entries + 1
    log.replay_all()


def test_commit_moves_cursors_up_to_what_it_appends_itself(log: CoreHarness) -> None:
    log.run(Commit([put("a", b"1", b"2")], cursors=[CursorMove("c", "a", 0, 2, "note")]))
    assert frontier(log, "c", "a") == 2
    over = Commit([put("a", b"3")], cursors=[CursorMove("c", "a", 0, 4)])
    assert refused(log, over) == OffsetAhead(2, 4, 3, cursor_number=0)
    assert tail(log, "a") == 2


def test_commit_of_cursors_alone_is_allowed_and_of_nothing_is_not(log: CoreHarness) -> None:
    log.append("a", b"x")
    assert log.run(Commit([], cursors=[CursorMove("c", "a", 0, 1)])) == CommitConfirmed([])
    assert frontier(log, "c", "a") == 1
    assert isinstance(refused(log, Commit([], [ExpectTail("a", 0, 1)])), ClaimInvalid)


# --- conditions --------------------------------------------------------------------------------------------------

CASES: list[tuple[Condition, Condition, ConditionFailed]] = [
    (ExpectTail("b", 0, 1), ExpectTail("b", 0, 2), ConditionFailed("expected_tail", 1, "2", "1")),
    (ExpectNew("a"), ExpectNew("b"), ConditionFailed("stream_new", 1, "new", "written")),
    (ExpectNew("never made"), ExpectNew("b"), ConditionFailed("stream_new", 1, "new", "written")),
    (ExpectCursor("c", "b", 0, 1), ExpectCursor("c", "b", 0, 0), ConditionFailed("cursor_equals", 1, "0", "1")),
    (ExpectCursor("no", "b", 0, 0), ExpectCursor("no", "b", 0, 1), ConditionFailed("cursor_equals", 1, "1", "0")),
    (ExpectId("b", 0, b"m", True), ExpectId("b", 0, b"m", False), ConditionFailed("id", 1, "absent", "present")),
    (ExpectId("b", 0, b"n", False), ExpectId("b", 0, b"n", True), ConditionFailed("id", 1, "present", "absent")),
    (ExpectEpoch("b", 0, "http:p", 4), ExpectEpoch("b", 0, "http:p", 3), ConditionFailed("epoch_equals", 1, "3", "4")),
    (
        ExpectEpoch("b", 0, "http:q", -1),
        ExpectEpoch("b", 0, "http:q", 0),
        ConditionFailed("epoch_equals", 1, "0", "-1"),
    ),
]


@pytest.mark.parametrize(("holds", "fails", "answer"), CASES, ids=[repr(case[1]) for case in CASES])
def test_one_failing_condition_on_a_stream_not_written_writes_nothing(
    log: CoreHarness, holds: Condition, fails: Condition, answer: ConditionFailed
) -> None:
    log.append("b", b"x", message_id=b"m", claim=requests("http:p", 0, epoch=4, content=b"x"))
    log.run(MoveCursors([CursorMove("c", "b", 0, 1)]))
    everything = Commit([put("a", b"1")], [holds, fails], [CursorMove("c", "b", 0, 0)], "id", claim(0))
    assert refused(log, everything) == answer
    assert tail(log, "a") == 0
    assert frontier(log, "c", "b") == 1
    assert log.run(GetProducer("", 0, "commit:p")) == NotFound("producer")
    everything.conditions = [holds]
    assert isinstance(log.run(everything), CommitConfirmed)


def test_condition_on_a_topic_that_is_not_there_is_refused(log: CoreHarness) -> None:
    assert refused(log, Commit([put("a", b"1")], [ExpectTail("no", 0, 0)])) == TopicMissing("no")
    assert refused(log, Commit([put("a", b"0"), put("no", b"1")])) == TopicMissing("no", append_number=1)
    moves = [CursorMove("c", "a", 0, 0), CursorMove("c", "no", 0, 0)]
    assert refused(log, Commit([put("a", b"1")], cursors=moves)) == TopicMissing("no", cursor_number=1)


def test_cursor_condition_takes_every_place_that_is_the_same_to_a_consumer(log: CoreHarness) -> None:
    log.append("b", b"0", b"1", b"2", b"3")
    log.run(MoveCursors([CursorMove("c", "b", 0, 1)]))
    log.run(DeleteRecords("b", 0, [1, 3]))
    assert frontier(log, "c", "b") == 3
    for place in (1, 2, 3):
        assert isinstance(log.run(Commit([put("a", b"1")], [ExpectCursor("c", "b", 0, place)])), CommitConfirmed)
    for place in (0, 4, -1):
        failed = refused(log, Commit([put("a", b"1")], [ExpectCursor("c", "b", 0, place)]))
        assert failed == ConditionFailed("cursor_equals", 0, str(place), "3")


def test_epoch_condition_sees_a_forgotten_producer_as_unknown(log: CoreHarness) -> None:
    log.append("b", claim=requests("http:p", 0, epoch=4))
    log.run(Trim("b", 0, 1))
    log.pass_ms(limits.DEDUPE_FLOOR_MS_DEFAULT)
    assert isinstance(log.run(Commit([put("a", b"1")], [ExpectEpoch("b", 0, "http:p", -1)])), CommitConfirmed)


def test_conditions_compare_with_the_state_before_the_commit(log: CoreHarness) -> None:
    conditions: list[Condition] = [ExpectTail("a", 0, 0), ExpectNew("a"), ExpectId("a", 0, b"m", False)]
    assert isinstance(log.run(Commit([put("a", b"1", message_id=b"m")], conditions)), CommitConfirmed)


# --- commit ids --------------------------------------------------------------------------------------------------


def test_retry_by_commit_id_gets_the_full_outcome_whatever_the_conditions_say_now(log: CoreHarness) -> None:
    command = Commit([put("a", b"1"), put("b", b"2")], [ExpectTail("a", 0, 0)], [CursorMove("c", "a", 0, 1)], "id")
    first = log.run(command)
    log.run(MoveCursors([CursorMove("c", "a", 0, 0)]))
    log.run(CloseStream("a"))
    log.restart()
    assert log.run(command) == CommitConfirmed([2, 0, 1, 5, 0, 1], duplicate=True)
    assert first == CommitConfirmed([2, 0, 1, 5, 0, 1])
    assert log.last_entry is None
    assert frontier(log, "c", "a") == 0


def test_commit_id_with_other_content_is_a_conflict(log: CoreHarness) -> None:
    log.run(Commit([put("a", b"1")], commit_id="id"))
    for other in (
        Commit([put("a", b"2")], commit_id="id"),
        Commit([put("b", b"1")], commit_id="id"),
        Commit([put("a", b"1")], cursors=[CursorMove("c", "a", 0, 0)], commit_id="id"),
    ):
        outcome = refused(log, other)
        assert isinstance(outcome, ClaimConflict)
        assert outcome.outcome == [2, 0, 1]
        assert outcome.stored_digest != outcome.claimed_digest
    scoped = Commit([put("a", b"2")], commit_id="id", scope="nats")
    assert log.run(scoped) == CommitConfirmed([2, 1, 2])


def test_commit_id_is_remembered_while_its_records_exist_and_then_for_the_floor(log: CoreHarness) -> None:
    command = Commit([put("a", b"1"), put("b", b"2")], commit_id="id")
    log.run(command)
    log.run(Trim("a", 0, 1))
    log.pass_ms(5 * limits.DEDUPE_FLOOR_MS_DEFAULT)
    assert log.run(command) == CommitConfirmed([2, 0, 1, 5, 0, 1], duplicate=True)
    log.run(Trim("b", 0, 1))
    log.pass_ms(limits.DEDUPE_FLOOR_MS_DEFAULT - 1)
    assert log.run(command) == CommitConfirmed([2, 0, 1, 5, 0, 1], duplicate=True)
    assert isinstance(log.last_entry, Compound)
    assert isinstance(log.last_entry.operations[0], ClaimRemembered), "its use starts its memory anew"
    log.pass_ms(limits.DEDUPE_FLOOR_MS_DEFAULT - 1)
    assert log.run(command) == CommitConfirmed([2, 0, 1, 5, 0, 1], duplicate=True)
    log.pass_ms(limits.DEDUPE_FLOOR_MS_DEFAULT)
    assert log.run(command) == CommitConfirmed([2, 1, 2, 5, 1, 2])


def test_commit_id_on_a_fact_stream_is_never_forgotten(log: CoreHarness) -> None:
    (stream_id,) = log.create("facts", config=TopicConfig(dedupe_floor_ms=FOREVER))
    command = Commit([put("facts", b"1")], commit_id="id")
    log.run(command)
    log.run(Trim("facts", 0, 1))
    log.pass_ms(500 * limits.DEDUPE_FLOOR_MS_DEFAULT)
    assert log.run(command) == CommitConfirmed([stream_id, 0, 1], duplicate=True)
    assert log.last_entry is None


# --- one producer claim ------------------------------------------------------------------------------------------


def test_retry_by_sequence_of_commits_gets_the_full_outcome(log: CoreHarness) -> None:
    command = Commit([put("a", b"1"), put("b", b"2")], claim=claim(0))
    assert log.run(command) == CommitConfirmed([2, 0, 1, 5, 0, 1], False, 0, 0)
    log.restart()
    assert log.run(command) == CommitConfirmed([2, 0, 1, 5, 0, 1], True, 0, 0)
    assert log.last_entry is None
    assert log.run(GetProducer("", 0, "commit:p")) == ProducerFound(0, 0, -1, -1, log.now_ns)


def test_sequence_of_commits_refuses_gap_fence_and_other_content(log: CoreHarness) -> None:
    log.run(Commit([put("a", b"1")], claim=claim(0)))
    assert refused(log, Commit([put("a", b"2")], claim=claim(2))) == SequenceGap(1, 2)
    assert isinstance(refused(log, Commit([put("a", b"other")], claim=claim(0))), SequenceConflict)
    log.run(Commit([put("a", b"2")], claim=claim(0, epoch=1)))
    assert refused(log, Commit([put("a", b"3")], claim=claim(1))) == Fenced(1, 0)


def test_known_commit_id_with_a_new_sequence_uses_the_sequence_up(log: CoreHarness) -> None:
    log.run(Commit([put("a", b"1")], commit_id="id"))
    again = log.run(Commit([put("a", b"1")], commit_id="id", claim=claim(0)))
    assert again == CommitConfirmed([2, 0, 1], True, 0, 0)
    assert log.run(Commit([put("a", b"2")], claim=claim(1))) == CommitConfirmed([2, 1, 2], False, 0, 1)


def test_retry_by_commit_id_is_told_where_its_producer_stands(log: CoreHarness) -> None:
    first = Commit([put("a", b"1")], commit_id="id", claim=claim(0))
    log.run(first)
    log.run(Commit([put("a", b"2")], claim=claim(1)))
    assert log.run(first) == CommitConfirmed([2, 0, 1], True, 0, 1)
    assert not log.wrote()
    log.run(Commit([put("a", b"3")], claim=claim(0, epoch=1)))
    assert log.run(first) == CommitConfirmed([2, 0, 1], True), "a fenced claim is told nothing, the commit is known"


def test_claims_of_commits_outlive_the_topic_they_wrote_to_for_the_floor(log: CoreHarness) -> None:
    command = Commit([put("a", b"1")], commit_id="id")
    log.run(command)
    log.run(Commit([put("a", b"2")], claim=claim(0, epoch=7)))
    log.pass_ms(5 * limits.DEDUPE_FLOOR_MS_DEFAULT)
    log.run(DeleteTopic("a"))
    (stream_id, _) = log.create("a", 2)
    log.pass_ms(limits.DEDUPE_FLOOR_MS_DEFAULT - 1)
    assert refused(log, Commit([put("a", b"2")], claim=claim(0))) == Fenced(7, 0)
    assert log.run(command) == CommitConfirmed([2, 0, 1], duplicate=True)
    log.pass_ms(1)
    again = Commit([put("a", b"2")], claim=claim(0))
    assert log.run(again) == CommitConfirmed([stream_id, 0, 1], False, 0, 0)
    log.pass_ms(limits.DEDUPE_FLOOR_MS_DEFAULT - 1)
    assert log.run(command) == CommitConfirmed([stream_id, 1, 2])


def test_commit_producer_is_forgotten_a_floor_after_its_last_records_are_gone(log: CoreHarness) -> None:
    log.run(Commit([put("a", b"1"), put("b", b"2")], claim=claim(0, epoch=7)))
    log.pass_ms(5 * limits.DEDUPE_FLOOR_MS_DEFAULT)
    assert refused(log, Commit([put("a", b"3")], claim=claim(0))) == Fenced(7, 0)
    log.run(Trim("a", 0, 1))
    log.run(Trim("b", 0, 1))
    log.pass_ms(limits.DEDUPE_FLOOR_MS_DEFAULT)
    assert log.run(Commit([put("a", b"3")], claim=claim(0))) == CommitConfirmed([2, 1, 2], False, 0, 0)
    log.replay_all()


# --- message ids -------------------------------------------------------------------------------------------------


def test_commit_whose_ids_are_all_known_is_a_duplicate_and_uses_its_claims_up(log: CoreHarness) -> None:
    log.append("a", b"1", message_id=b"m1")
    log.append("b", b"2", message_id=b"m2")
    command = Commit([put("a", b"1", message_id=b"m1"), put("b", b"2", message_id=b"m2")], [ExpectTail("a", 0, 0)])
    assert log.run(command) == CommitConfirmed([2, 0, 1, 5, 0, 1], duplicate=True)
    assert not log.wrote()
    command.commit_id, command.claim = "id", claim(0)
    assert log.run(command) == CommitConfirmed([2, 0, 1, 5, 0, 1], True, 0, 0)
    assert isinstance(log.last_entry, Compound)
    assert [type(op) for op in log.last_entry.operations] == [Claimed, ClaimRemembered]
    assert log.run(command) == CommitConfirmed([2, 0, 1, 5, 0, 1], True, 0, 0)
    assert not log.wrote()


def derived(name: str, frontier: int, *conditions: Condition, commit_id: str = "") -> Commit:
    """What any consumer derives from the first records of b: the same record under the same id, and its own place."""
    cursors = [CursorMove(name, "b", 0, frontier)]
    return Commit([put("a", b"1", message_id=b"m1")], list(conditions), cursors, commit_id=commit_id)


@pytest.mark.parametrize("commit_id", ["", "id"])
def test_second_consumer_that_derives_the_same_records_gets_on(log: CoreHarness, commit_id: str) -> None:
    """1. Two consumers read b and derive the same record under the same id, each with its cursor. 2. The second finds
    it there. Had its cursor stayed where it was, it would have read the same records for ever."""
    log.append("b", b"x", b"y")
    assert log.run(derived("one", 1)) == CommitConfirmed([2, 0, 1])
    command = derived("two", 1, ExpectCursor("two", "b", 0, 0), commit_id=commit_id)
    assert log.run(command) == CommitConfirmed([2, 0, 1], duplicate=True)
    assert (frontier(log, "one", "b"), frontier(log, "two", "b")) == (1, 1)
    assert log.run(command) == CommitConfirmed([2, 0, 1], duplicate=True), "a retry, whatever its condition says now"
    assert not log.wrote()
    assert tail(log, "a") == 1
    log.replay_all()


def test_commit_known_by_nothing_but_its_ids_may_be_a_retry_and_moves_nothing(log: CoreHarness) -> None:
    log.append("b", b"x", b"y")
    log.run(derived("one", 1))
    for command in (derived("two", 1), derived("two", 1, ExpectCursor("one", "b", 0, 1))):
        assert log.run(command) == CommitConfirmed([2, 0, 1], duplicate=True)
        assert not log.wrote()
    assert frontier(log, "two", "b") is None


GONE_ON = [MoveCursors([CursorMove("one", "b", 0, 2)])]
REWOUND = [MoveCursors([CursorMove("one", "b", 0, 0)])]
MADE_AGAIN = [DeleteTopic("b"), CreateTopic("b")]


@pytest.mark.parametrize(
    ("since", "conditions"),
    [
        (GONE_ON, []),
        (REWOUND, []),
        ([DeleteCursor("one", "b", 0)], []),
        ([DeleteTopic("b")], []),
        (MADE_AGAIN, []),
        # Rewound or deleted it would stand again where the condition wants it: that is a consumer that begins anew.
        (GONE_ON, [ExpectCursor("one", "b", 0, 0)]),
        ([DeleteTopic("b")], [ExpectCursor("one", "b", 0, 0)]),
        (MADE_AGAIN, [ExpectCursor("one", "b", 0, 0)]),
    ],
)
def test_retry_by_ids_succeeds_and_moves_nothing_whatever_became_of_its_cursor(
    log: CoreHarness, since: list[Command], conditions: list[Condition]
) -> None:
    log.append("b", b"x", b"y")
    command = derived("one", 1, *conditions)
    log.run(command)
    for change in since:
        log.run(change)
    assert log.run(command) == CommitConfirmed([2, 0, 1], duplicate=True)
    assert not log.wrote()


def test_new_commit_of_known_records_throws_no_cursor_back(log: CoreHarness) -> None:
    log.append("b", b"x", b"y", b"z")
    log.run(derived("one", 1))
    log.run(MoveCursors([CursorMove("one", "b", 0, 3)]))
    assert log.run(derived("one", 2, commit_id="id")) == CommitConfirmed([2, 0, 1], duplicate=True)
    assert frontier(log, "one", "b") == 3
    log.run(MoveCursors([CursorMove("one", "b", 0, 0)]))
    log.run(Trim("b", 0, 2))
    assert log.run(derived("one", 2, commit_id="id 2")) == CommitConfirmed([2, 0, 1], duplicate=True)
    assert isinstance(log.last_entry, Compound)
    assert [type(op) for op in log.last_entry.operations] == [ClaimRemembered], "the floor is beyond it already"


def test_known_records_move_every_cursor_that_is_behind_to_where_its_last_move_says(log: CoreHarness) -> None:
    log.append("b", b"x", b"y", b"z")
    log.run(derived("one", 1))
    cursors = [CursorMove("two", "b", 0, 3), CursorMove("three", "b", 0, 2), CursorMove("two", "b", 0, 1)]
    command = Commit([put("a", b"1", message_id=b"m1")], cursors=cursors, commit_id="id")
    log.run(command)
    assert (frontier(log, "two", "b"), frontier(log, "three", "b")) == (1, 2)
    log.run(command)
    assert not log.wrote()


def test_known_records_move_a_cursor_only_as_any_commit_would(log: CoreHarness) -> None:
    """What is still to be done is new: conditions must hold for it, the producer must not be fenced (P5), and the
    place must be there (P8)."""
    log.append("b", b"x", b"y")
    log.run(derived("one", 1))
    late = derived("two", 1, ExpectCursor("two", "b", 0, 1), commit_id="id")
    assert refused(log, late) == ConditionFailed("cursor_equals", 0, "1", "0")
    assert refused(log, derived("two", 3, commit_id="id")) == OffsetAhead(5, 3, 2, cursor_number=0)
    log.run(Commit([put("a", b"2")], claim=claim(0, epoch=7)))
    fenced = derived("two", 1)
    fenced.claim = claim(0)
    assert refused(log, fenced) == Fenced(7, 0)
    assert frontier(log, "two", "b") is None
    fenced = derived("one", 1)
    fenced.claim = claim(0)
    assert log.run(fenced) == CommitConfirmed([2, 0, 1], duplicate=True), "nothing is left to do: it is a retry"


def test_known_ids_of_gone_records_are_used_again(log: CoreHarness) -> None:
    log.append("a", b"1", message_id=b"m1")
    log.run(Trim("a", 0, 1))
    assert log.run(Commit([put("a", b"1", message_id=b"m1")])) == CommitConfirmed([2, 0, 1], duplicate=True)
    assert isinstance(log.last_entry, Compound)
    assert isinstance(log.last_entry.operations[0], IdsUsed)


def test_partial_duplicate_is_refused_whole(log: CoreHarness) -> None:
    log.append("a", b"1", message_id=b"m1")
    partly = Commit([put("a", b"1", message_id=b"m1"), put("b", b"2", message_id=b"m2")])
    assert refused(log, partly) == PartlyDuplicate(1, 1, 2, 0, append_number=0)
    unnamed = Commit([put("b", b"2"), put("a", b"1", message_id=b"m1")], commit_id="c")
    assert refused(log, unnamed) == PartlyDuplicate(1, 1, 2, 0, append_number=1)
    assert tail(log, "b") == 0


def test_ids_on_some_appends_alone_are_refused_before_there_is_a_success_to_retry(log: CoreHarness) -> None:
    appends = [put("a", b"1", message_id=b"m1"), put("b", b"2")]
    assert isinstance(refused(log, Commit(appends)), ClaimInvalid)
    assert (tail(log, "a"), tail(log, "b")) == (0, 0)
    for commit in (
        Commit(appends, commit_id="c"),
        Commit([put("a", b"3", message_id=b"m3"), put("b", b"4")], claim=requests("http:p", 0)),
    ):
        first = log.run(commit)
        assert isinstance(first, CommitConfirmed)
        again = log.run(commit)
        assert isinstance(again, CommitConfirmed)
        assert (again.duplicate, again.outcome) == (True, first.outcome)


def test_a_fenced_commit_of_which_some_ids_are_known_is_told_that_it_is_fenced(log: CoreHarness) -> None:
    """Not that it is stored in part, and to send the rest alone: it may be stored whole."""
    commit = Commit([put("a", b"1", message_id=b"m1"), put("b", b"2")], claim=requests("http:p", 0))
    assert isinstance(log.run(commit), CommitConfirmed)
    assert isinstance(log.run(Commit([put("a", b"3")], claim=requests("http:p", 0, epoch=1))), CommitConfirmed)
    assert isinstance(refused(log, commit), Fenced)


def test_id_conflict_in_a_commit_is_refused_whole(log: CoreHarness) -> None:
    log.append("a", b"1", message_id=b"m1")
    conflict = refused(log, Commit([put("b", b"2"), put("a", b"x", message_id=b"m1")], commit_id="c"))
    assert conflict == IdConflict(2, 0, content_digest(b"1"), content_digest(b"x"), append_number=1)


def test_one_id_twice_in_one_commit_is_refused(log: CoreHarness) -> None:
    twice = Commit([put("a", b"1", message_id=b"m1"), put("a", b"1", message_id=b"m1")])
    assert isinstance(refused(log, twice), ClaimInvalid)


def test_id_of_a_commit_meets_the_same_id_of_an_append(log: CoreHarness) -> None:
    log.run(Commit([put("a", b"1", message_id=b"m1"), put("b", b"2", b"3", message_id=b"m2")]))
    one = log.append("a", b"1", message_id=b"m1")
    many = log.append("b", b"2", b"3", message_id=b"m2")
    assert isinstance(one, Confirmed)
    assert isinstance(many, Confirmed)
    assert (one.duplicate, many.duplicate, many.first, many.next) == (True, True, 0, 2)


# --- the rest ----------------------------------------------------------------------------------------------------


def test_commit_to_a_closed_stream_writes_nothing_anywhere(log: CoreHarness) -> None:
    log.run(CloseStream("b"))
    assert refused(log, Commit([put("a", b"1"), put("b", b"2")])) == StreamClosedRefusal(5, 0, append_number=1)
    assert tail(log, "a") == 0


def test_commit_across_shards_has_its_own_refusal() -> None:
    log = CoreHarness()
    log.create("a")
    log.create("b")
    stored = log.rows.tables[Table.STREAM]
    stream = decode_row(Table.STREAM, stored[encode_key(Table.STREAM, 4)])
    assert isinstance(stream, Stream)
    stream.shard = 1
    stored[encode_key(Table.STREAM, 4)] = encode_row(stream)
    assert refused(log, Commit([put("a", b"1"), put("b", b"2")])) == ShardMismatch(0, 1, append_number=1)


def test_each_bound_of_a_commit_is_refused(log: CoreHarness) -> None:
    big = CommitAppend("a", 0, b"x" * (limits.BATCH_BYTES_MAX // 2), 1, b"d" * 16)
    assert isinstance(refused(log, Commit([big, big])), TooLarge)
    assert isinstance(log.run(Commit([big])), CommitConfirmed)
    empty = CommitAppend("a", 0, b"", 1)
    refusal = refused(log, Commit([put("a", b"1"), empty]))
    assert isinstance(refusal, BatchRefused)
    assert refusal.append_number == 1
    many = Commit([put("a", b"1")], [ExpectNew("b")] * limits.COMMIT_APPENDS_MAX)
    assert isinstance(refused(log, many), TooLarge)
    assert isinstance(refused(log, Commit([put("a", b"1", message_id=b"m" * 1025)])), TooLarge)
    short = CommitAppend("a", 0, codec.encode_one(b"1", 1), 1, b"short", b"m")
    assert isinstance(refused(log, Commit([short])), BatchRefused)
    assert isinstance(refused(log, Commit([put("a", b"1")], commit_id="i" * 401)), TooLarge)
    for commit_id in ("a\0b", "\ud800"):
        assert isinstance(refused(log, Commit([put("a", b"1")], commit_id=commit_id)), NameInvalid)
    assert isinstance(refused(log, Commit([put("a", b"1")], commit_id="i", scope="s" * 65)), TooLarge)
    assert isinstance(refused(log, Commit([put("a", b"1")], claim=ProducerClaim("", 0, 0, 0, 1))), NameInvalid)
    for name in ("", "c\0"):
        moves = [CursorMove(name, "a", 0, 0)]
        assert isinstance(refused(log, Commit([put("a", b"1")], cursors=moves)), NameInvalid)
    named: list[Condition] = [ExpectCursor("", "a", 0, 0), ExpectEpoch("a", 0, "", 0)]
    for condition in named:
        assert isinstance(refused(log, Commit([put("a", b"1")], [condition])), NameInvalid)


def test_largest_commit_fits_one_entry() -> None:
    log = CoreHarness()
    log.state.next_id = log.follower.next_id = 2**62  # ids and offsets as long as MessagePack has them
    log.create("n" * 400)
    for rows in (log.rows, log.follower_rows):
        ((key, row),) = rows.tables[Table.STREAM].items()
        stream = decode_row(Table.STREAM, row)
        assert isinstance(stream, Stream)
        stream.tail = 2**62
        rows.tables[Table.STREAM][key] = encode_row(stream)
    batch = codec.encode_one(b"x" * 80, 1)
    appends = [CommitAppend("n" * 400, 0, batch, 1, b"d" * 16, b"m%d" % number) for number in range(9_990)]
    for _ in range(5):
        appends.append(CommitAppend("n" * 400, 0, b"x" * 1000, 1, b"d" * 16))
    moves = [CursorMove("c" * 400, "n" * 400, 0, 0, "m" * 4096)]
    producer = ProducerClaim("p" * 400, -1, 0, 0, 1, b"d" * 32, True, "s" * 400)
    command = Commit(appends, [], moves, "i" * 400, producer, "s" * 64)
    assert isinstance(log.run(command), CommitConfirmed)
    assert len(log.journal[-1]) > 2.5 * limits.MIB
