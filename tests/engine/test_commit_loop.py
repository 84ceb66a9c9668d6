"""The single writer: groups, the gate, waiting, and what happens at the edges of a segment."""

from unittest import mock

import pytest

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import Append, Command, CreateTopic, GetReceipt, GetStream, Trim
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import Confirmed, IdConflict, NotFound, Overloaded, StreamDone, TooLarge, TopicMissing
from oncelog.testing.sim_disk import lose_all
from oncelog.testing.sim_engine import Pending, SimEngine, WatchedDisk


def opened() -> SimEngine:
    engine = SimEngine(WatchedDisk())
    engine.execute(CreateTopic("a"))
    return engine


def append(value: bytes, *, id_: bytes = b"", expected_tail: int = -1) -> Append:
    return Append(
        "a",
        0,
        codec.encode_values([value], 1),
        1,
        digest=content_digest(value),
        message_id=id_,
        expected_tail=expected_tail,
    )


def step(engine: SimEngine) -> None:
    engine.write()
    engine.written()
    engine.answer()


def firsts(pendings: list[Pending]) -> list[int]:
    """The offsets that were confirmed."""
    return [pending.outcome.first for pending in pendings if isinstance(pending.outcome, Confirmed)]


def test_everything_that_arrives_during_a_sync_is_one_group() -> None:
    engine = opened()
    groups = engine.commits.groups_total
    engine.submit(append(b"0"))
    engine.seal()
    later = [engine.submit(append(b"%d" % number)) for number in range(1, 9)]
    assert not engine.seal(), "group n + 1 leaves only after group n is durable"
    step(engine)
    assert engine.seal()
    step(engine)
    assert firsts(later) == list(range(1, 9))
    assert engine.commits.groups_total == groups + 2


@pytest.mark.parametrize(
    "command",
    [
        GetStream("a"),
        GetReceipt("a", 0, b"id"),
        GetReceipt("a", 0, b"unknown"),
        GetStream("missing"),
        append(b"value", id_=b"id"),
        append(b"other value", id_=b"id"),
        append(b"tail", expected_tail=7),
        Trim("a", 0, 0),
        CreateTopic("a"),
    ],
    ids=["query", "receipt", "not found", "missing", "duplicate", "conflict", "condition", "no change", "agreement"],
)
def test_no_answer_of_any_kind_passes_an_entry_that_is_not_durable(command: Command) -> None:
    """No rule decides whether an answer depends on it: all of them wait."""
    engine = opened()
    first = engine.submit(append(b"value", id_=b"id"))
    open_ = engine.submit(command)
    engine.seal()
    in_flight = engine.submit(command)
    assert [pending.outcome for pending in (first, open_, in_flight)] == [None] * 3
    engine.write()
    assert [pending.outcome for pending in (first, open_, in_flight)] == [None] * 3
    engine.written()
    engine.answer()
    assert all(pending.outcome is not None for pending in (first, open_, in_flight))
    assert [pending.needs_entry for pending in (first, open_, in_flight)] == [2, 2, 2]


def test_an_answer_behind_the_next_group_waits_for_that_one() -> None:
    engine = opened()
    engine.submit(append(b"first"))
    engine.seal()
    second = engine.submit(append(b"second", id_=b"2"))
    duplicate = engine.submit(append(b"second", id_=b"2"))
    conflict = engine.submit(append(b"other", id_=b"2"))
    step(engine)
    assert [pending.outcome for pending in (second, duplicate, conflict)] == [None] * 3
    assert engine.crash(lose_all).contents()["a", 0].tail == 1
    engine.flush()
    assert isinstance(duplicate.outcome, Confirmed)
    assert duplicate.outcome.duplicate
    assert isinstance(conflict.outcome, IdConflict)


def test_without_anything_in_doubt_answers_are_given_at_once() -> None:
    engine = opened()
    assert isinstance(engine.submit(GetStream("a")).outcome, StreamDone)
    assert isinstance(engine.submit(GetStream("b")).outcome, TopicMissing)
    assert isinstance(engine.submit(GetReceipt("a", 0, b"x")).outcome, NotFound)


def test_a_group_ends_where_its_segment_does_and_the_rest_waits_in_order() -> None:
    engine = opened()
    pendings = [engine.submit(append(b"%d" % number * 3000)) for number in range(9)]
    asked = engine.submit(GetStream("a"))
    assert engine.commits.waiting > 0
    engine.flush()
    assert firsts(pendings) == list(range(9))
    assert isinstance(asked.outcome, StreamDone)
    assert asked.outcome.tail == 9, "a query does not overtake commands that wait"
    assert engine.journal.stats.segments > 1
    assert engine.crash(lose_all).contents() == engine.contents()


def test_an_entry_that_no_segment_can_hold_is_refused() -> None:
    engine = opened()
    outcome = engine.execute(append(b"x" * limits.SEGMENT_BYTES_MIN))
    assert isinstance(outcome, TooLarge)
    assert engine.contents()["a", 0].tail == 0
    assert isinstance(engine.execute(append(b"small")), Confirmed)


def test_an_entry_too_large_for_any_segment_is_refused_also_while_a_group_is_open() -> None:
    engine = opened()
    engine.submit(append(b"opens the group"))
    large = engine.submit(append(b"x" * limits.SEGMENT_BYTES_MIN))
    behind = engine.submit(append(b"behind"))
    engine.flush()
    assert isinstance(large.outcome, TooLarge)
    assert isinstance(behind.outcome, Confirmed)


def test_waiting_commands_are_bounded() -> None:
    engine = opened()
    engine.commits.held = True
    with mock.patch.object(limits, "WAITING_BYTES_MAX", 5 * limits.ENTRY_OVERHEAD_BYTES):
        pendings = [engine.submit(append(b"%d" % number)) for number in range(9)]
    overloaded = [pending for pending in pendings if isinstance(pending.outcome, Overloaded)]
    assert 0 < len(overloaded) < 9
    engine.commits.held = False
    engine.flush()
    confirmed = [pending.outcome for pending in pendings if isinstance(pending.outcome, Confirmed)]
    assert [outcome.first for outcome in confirmed] == list(range(9 - len(overloaded)))
    assert engine.contents()["a", 0].tail == len(confirmed)


def test_a_command_that_waits_while_the_index_is_behind_is_decided_when_it_is_taken() -> None:
    engine = opened()
    engine.commits.held = True
    first = engine.submit(append(b"x", expected_tail=0))
    second = engine.submit(append(b"y", expected_tail=0))
    engine.flush()
    assert (first.outcome, second.outcome) == (None, None)
    engine.commits.held = False
    engine.flush()
    assert isinstance(first.outcome, Confirmed)
    assert second.outcome is not None
    assert not isinstance(second.outcome, Confirmed)


def test_a_proof_reveals_and_answers_nothing() -> None:
    engine = opened()
    contents, entry_number = engine.contents(), engine.view.entry_number
    engine.prove()
    assert (engine.contents(), engine.view.entry_number) == (contents, entry_number)
    assert engine.crash(lose_all).contents() == contents


def test_time_of_entries_never_decreases_whatever_the_clock_does() -> None:
    engine = opened()
    times = []
    for ms in (5, -10_000, 3, -1, 20_000):
        engine.clock.advance_ms(ms)
        outcome = engine.execute(append(b"x"))
        assert isinstance(outcome, Confirmed)
        times.append(outcome.time_ns)
    assert times == sorted(times)
    assert engine.crash(lose_all).contents() == engine.contents()
