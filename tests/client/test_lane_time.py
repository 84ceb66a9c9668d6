"""When a lane gives up, and what it tells of each batch then."""

import pytest

from oncelog.client.batches import BatchState, Failure
from oncelog.client.errors import Overloaded, SequenceGap
from tests.client.test_lane import FENCED, OVERLOADED, flying, gap, ok, put, sent, seqs


def test_after_the_delivery_timeout_the_outcome_is_unknown_and_the_lane_ends() -> None:
    lane, batches = flying(2, delivery_timeout_ms=1000)
    put(lane, 9)
    assert lane.due(0) == pytest.approx(1.0)
    lane.expire(0.999)
    assert not lane.ended
    lane.expire(1.0)
    settled, _ = lane.drain()
    assert seqs(settled) == [("OutcomeUnknown", 1), ("OutcomeUnknown", 2), ("ProducerStopped", 3)]
    assert [one.batch.maybe_written for one in settled if isinstance(one, Failure)] == [True, True, False]
    assert batches[0].state is not BatchState.SENT


def test_what_was_never_sent_is_told_so_with_what_was_in_the_way() -> None:
    lane, (one,) = flying(1, delivery_timeout_ms=1000)
    lane.lost(one, sent=False, now=0.5)
    lane.expire(1.0, "no connection to h:1: refused")
    ((error, batch),) = (one for one in lane.drain()[0] if isinstance(one, Failure))
    assert type(error).__name__ == "OutcomeUnknown"
    assert str(error).endswith("and never sent: nothing of it is written; no connection to h:1: refused")
    assert not batch.maybe_written


def test_what_was_put_off_until_the_end_is_told_with_the_reason() -> None:
    no_room = Overloaded(507, "no_room", "the disk is full", {"retryable": True})
    lane, (one,) = flying(1, delivery_timeout_ms=1000)
    lane.refused(one, OVERLOADED, 0.2)
    assert sent(lane, 0.6) == [one]
    lane.refused(one, no_room, 0.7)
    lane.lost(sent(lane, 0.95)[0], sent=False, now=0.95)
    lane.expire(1.0)
    ((error, batch),) = (one for one in lane.drain()[0] if isinstance(one, Failure))
    assert str(error).endswith(
        "refused whenever it arrived: nothing of it is written; at last 507 no_room: the disk is full"
    )
    assert error.__cause__ is no_room
    assert not batch.maybe_written


def test_what_was_put_off_and_then_lost_may_be_written() -> None:
    lane, (one,) = flying(1, delivery_timeout_ms=1000)
    lane.refused(one, OVERLOADED, 0.2)
    lane.lost(sent(lane, 0.6)[0], sent=True, now=0.7)
    lane.expire(1.0)
    ((error, batch),) = (one for one in lane.drain()[0] if isinstance(one, Failure))
    assert str(error).endswith("was not confirmed within 1000 ms, in 2 attempts")
    assert batch.maybe_written
    assert error.__cause__ is None, "nothing was done with one attempt: that is not the whole truth"


def test_a_lost_copy_that_may_still_come_is_not_told_as_never_written() -> None:
    """1. Batches 1 and 2 are sent, the connection ends, the server has not read them yet. 2. Both are sent again, 1 is
    put off, so 2 is a gap. 3. The time is up. 4. The server reads the first connection to its end, and writes both."""
    lane, (one, two) = flying(2, delivery_timeout_ms=1000)
    lane.lost(one, sent=True, now=0.1)
    lane.lost(two, sent=True, now=0.1)
    assert sent(lane, 0.1) == [one, two]
    lane.refused(one, OVERLOADED, 0.2)
    lane.refused(two, gap(1), 0.2)
    lane.expire(1.0)
    settled, _ = lane.drain()
    assert seqs(settled) == [("OutcomeUnknown", 1), ("OutcomeUnknown", 2)]
    assert [one.batch.maybe_written for one in settled if isinstance(one, Failure)] == [True, True]


def test_a_gap_is_no_silence() -> None:
    lane, (one, two) = flying(2, delivery_timeout_ms=1000)
    lane.refused(two, gap(1), 0.1)
    lane.confirmed(one, ok(one), 0.2)
    lane.lost(sent(lane, 0.6)[0], sent=False, now=0.6)
    lane.expire(9.0)
    failure = lane.drain()[0][-1]
    assert isinstance(failure, Failure)
    assert "refused whenever it arrived" in str(failure.error)
    assert isinstance(failure.error.__cause__, SequenceGap)


def test_the_delivery_timeout_counts_from_the_first_attempt() -> None:
    lane, (one,) = flying(1, delivery_timeout_ms=1000)
    for now in (0.3, 0.6, 0.9):
        lane.lost(one, sent=True, now=now)
        assert sent(lane, now) == [one]
    lane.expire(1.0)
    assert seqs(lane.drain()[0]) == [("OutcomeUnknown", 1)]


def test_a_refusal_that_waits_for_others_is_told_when_their_time_is_up() -> None:
    lane, (one, _) = flying(2, delivery_timeout_ms=1000)
    lane.refused(one, FENCED, 0)
    lane.expire(1.0)
    assert seqs(lane.drain()[0]) == [("Fenced", 1), ("OutcomeUnknown", 2)]


def test_a_lane_that_is_stopped_waits_for_its_answers() -> None:
    lane, (one, two) = flying(2)
    put(lane, 3)
    lane.stop(FENCED)
    assert sent(lane) == []
    assert lane.drain()[0] == []
    lane.confirmed(one, ok(one), 0)
    lane.lost(two, sent=True, now=0)
    assert seqs(lane.drain()[0]) == [("ack", 1), ("OutcomeUnknown", 2), ("ProducerStopped", 3)]


def test_an_abandoned_lane_ends_at_once() -> None:
    lane, _ = flying(1)
    put(lane, 3)
    lane.abandon()
    lane.abandon()
    assert seqs(lane.drain()[0]) == [("OutcomeUnknown", 1), ("ProducerStopped", 2)]
