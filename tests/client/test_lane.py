"""The numbering of one partition, without a network: every answer in every place, and what follows from it."""

from itertools import pairwise, product
from typing import Unpack

import pytest

import oncelog.client.lane as lane_module
from oncelog.client.batches import BatchResult, Confirmation, Failure, PendingBatch, Settled
from oncelog.client.dialect import DurableStreamsDialect, Identity, XDialect, dialect_of
from oncelog.client.errors import (
    AnswerUnreadable,
    Conflict,
    DeadLettered,
    Fenced,
    IdConflict,
    Malformed,
    NotFound,
    Overloaded,
    ProducerStopped,
    Refused,
    SequenceConflict,
    SequenceGap,
    StreamClosed,
    TooLarge,
)
from oncelog.client.lane import CONTENT_CODES, NEVER, Lane
from oncelog.client.options import ProducerOptions, ProducerSettings
from oncelog.client.packing import RECORD_BYTES_MAX, Form, Item, Packer, cost
from oncelog.core import outcome
from oncelog.limits import BATCH_RECORDS_MAX
from oncelog.protocols.http import refusal_map
from tests.client.peer import problem
from tests.client.test_errors import BEFORE_COMMANDS, refusal

OVERLOADED = Overloaded(503, "overloaded", "", {"retryable": True})
FENCED = Fenced(403, "fenced", "", {"current": 9})
MISSING = NotFound(404, "topic_missing", "", {})
BAD = Malformed(400, "batch_refused", "", {})
CONFLICT = SequenceConflict(409, "sequence_conflict", "", {})


def gap(expected: int, received: int = -1) -> SequenceGap:
    return SequenceGap(409, "sequence_gap", "", {"expected": expected, "received": received})


def lane_of(**options: Unpack[ProducerOptions]) -> Lane:
    options.setdefault("retry_backoff_ms", 0)
    settings = ProducerSettings(**options)
    return Lane(0, Packer("application/json"), settings, dialect_of(settings))


def put(lane: Lane, *values: int, now: float = 0) -> None:
    for value in values:
        item = b"%d" % value
        lane.put(item, cost(item), now)


def sent(lane: Lane, now: float = 0, *, eager: bool = True) -> list[PendingBatch]:
    """Fills, and takes all that may leave now."""
    lane.fill(now, eager=eager)
    batches = []
    while (batch := lane.take(now)) is not None:
        batches.append(batch)
    assert not lane.ready(now)
    return batches


def ok(batch: PendingBatch, *, duplicate: bool = False) -> Confirmation:
    return Confirmation(1, 100 + batch.seq, duplicate)


def established(**options: Unpack[ProducerOptions]) -> Lane:
    """A lane whose batch 0 is confirmed, one record a batch."""
    options["max_batch_records"] = 1
    lane = lane_of(**options)
    put(lane, 0)
    (first,) = sent(lane)
    lane.confirmed(first, ok(first), 0)
    assert lane.drain()[0] == [BatchResult(0, 1, 99, 100, 1, False)]
    return lane


def flying(count: int = 5, **options: Unpack[ProducerOptions]) -> tuple[Lane, list[PendingBatch]]:
    """An established lane with batches 1 to count in flight."""
    lane = established(**options)
    put(lane, *range(1, count + 1))
    batches = sent(lane)
    assert [batch.seq for batch in batches] == list(range(1, count + 1))
    return lane, batches


def is_burying(lane: Lane) -> bool:
    return lane.burial is not None


def seqs(settled: list[Settled]) -> list[tuple[str, int]]:
    """("ack" or the error's name, sequence) of each."""
    return [
        (type(one.error).__name__, one.batch.seq) if isinstance(one, Failure) else ("ack", one.seq) for one in settled
    ]


# --- forming batches ---------------------------------------------------------------------------------------------


def test_the_first_batch_travels_alone_then_five_are_in_flight() -> None:
    lane = lane_of(max_batch_records=1)
    put(lane, *range(10))
    (first,) = sent(lane)
    assert (first.seq, lane.window) == (0, 1)
    lane.confirmed(first, ok(first), 0)
    assert [batch.seq for batch in sent(lane)] == [1, 2, 3, 4, 5]


def test_batches_grow_while_requests_are_in_flight() -> None:
    lane = lane_of()
    put(lane, 0)
    (first,) = sent(lane)
    put(lane, 1, 2, 3)
    assert sent(lane) == []
    lane.confirmed(first, ok(first), 0)
    (second,) = sent(lane)
    assert (second.count, second.body) == (3, b"[1,2,3]")


def test_a_batch_ends_at_its_bytes_its_records_and_where_the_form_changes() -> None:
    lane = lane_of(max_batch_bytes=1024)
    packer = Packer("application/json")
    big = b'"%b"' % (b"x" * 700)
    keyed = packer.item(1, "k")
    lone = packer.item(2, message_id="m")
    for item in (big, big, b"1", b"2", keyed, keyed, lone, lone, b"3"):
        lane.put(item, cost(item), 0)
    counts = []
    while lane.pending_count:
        (batch,) = sent(lane)[:1]
        counts.append((batch.count, batch.message_id))
        lane.confirmed(batch, ok(batch), 0)
        for other in list(lane.batches):
            counts.append((other.count, other.message_id))
            lane.confirmed(other, ok(other), 0)
    assert counts == [(1, ""), (3, ""), (2, ""), (1, "m"), (1, "m"), (1, "")]


def test_a_record_above_the_batch_bytes_goes_alone() -> None:
    lane = lane_of(max_batch_bytes=1024)
    big = b'"%b"' % (b"x" * 5000)
    lane.put(big, cost(big), 0)
    put(lane, 1)
    assert [batch.count for batch in sent(lane)] == [1]


def test_lingering_waits_for_time_or_bytes_or_a_flush() -> None:
    lane = lane_of(linger_ms=100, max_batch_bytes=1024)
    put(lane, 1, now=1.0)
    assert sent(lane, 1.05, eager=False) == []
    assert lane.due(1.05) == pytest.approx(1.1)
    (batch,) = sent(lane, 1.1, eager=False)
    lane.confirmed(batch, ok(batch), 0)
    put(lane, 2, now=2.0)
    assert sent(lane, 2.0, eager=False) == []
    assert len(sent(lane, 2.0, eager=True)) == 1
    put(lane, *range(30), now=3.0)
    assert [batch.count for batch in sent(lane, 3.0, eager=False)] == [20]


# --- claims ------------------------------------------------------------------------------------------------------


def test_x_claims_name_the_session_and_from_the_first_answer_on_the_epoch() -> None:
    lane = lane_of(session="s", max_batch_records=1)
    put(lane, 0, 1)
    (first,) = sent(lane)
    assert lane.claim(first) == b"X-Producer-Seq: 0\r\nX-Producer-Session: s\r\n"
    lane.confirmed(first, Confirmation(7, 1, False), 0)
    (second,) = sent(lane)
    assert lane.claim(second) == b"X-Producer-Seq: 1\r\nX-Producer-Session: s\r\nX-Producer-Epoch: 7\r\n"


def test_a_resumed_producer_names_the_epoch_alone_and_pipelines_at_once() -> None:
    lane = lane_of(max_batch_records=1)
    lane.resume(epoch=3, last_sequence=41)
    put(lane, 0, 1)
    first, second = sent(lane)
    assert lane.claim(first) == b"X-Producer-Seq: 42\r\nX-Producer-Epoch: 3\r\n"
    assert second.seq == 43


def test_a_resumed_producer_keeps_a_session_that_it_was_given() -> None:
    lane = lane_of(session="s")
    lane.resume(epoch=3, last_sequence=41)
    assert lane.identity == Identity("s", 3)


def test_durable_streams_claims_name_epoch_and_sequence() -> None:
    lane = lane_of(dialect="durable-streams", epoch=5)
    put(lane, 0)
    (first,) = sent(lane)
    assert lane.claim(first) == b"Producer-Epoch: 5\r\nProducer-Seq: 0\r\n"


def test_every_producer_object_is_a_session_of_its_own() -> None:
    assert lane_of().identity.session != lane_of().identity.session


def test_a_fresh_identity_fences_the_one_before() -> None:
    before = Identity("s", 4)
    assert DurableStreamsDialect().fresh_identity(before) == Identity("", 5)
    fresh = XDialect().fresh_identity(before)
    assert (fresh.session != "s", fresh.epoch) == (True, -1)


# --- answers -----------------------------------------------------------------------------------------------------


def test_confirmations_settle_in_order_with_their_offsets() -> None:
    lane, batches = flying()
    for batch in batches:
        lane.confirmed(batch, ok(batch, duplicate=batch.seq == 3), 0)
    settled, freed = lane.drain()
    assert settled == [BatchResult(seq, 1, 99 + seq, 100 + seq, 1, seq == 3) for seq in range(1, 6)]
    assert freed == sum(batch.bytes for batch in batches)
    assert lane.pending_count == 0
    assert lane.due(0) == NEVER


OLD_DUPLICATE = Confirmation(-1, -1, True)


def test_an_old_duplicate_of_a_lost_attempt_has_no_offsets() -> None:
    lane, (batch,) = flying(1)
    lane.lost(batch, sent=True, now=0)
    assert sent(lane) == [batch]
    lane.confirmed(batch, OLD_DUPLICATE, 0)
    assert lane.drain()[0] == [BatchResult(1, 1, -1, -1, 1, True)]


@pytest.mark.parametrize("unsent", [False, True])
def test_an_old_duplicate_of_what_was_never_lost_is_somebody_elses(unsent: bool) -> None:
    lane, batches = flying(3)
    if unsent:  # it never left, so no copy of it can have been written
        for batch in batches:
            lane.lost(batch, sent=False, now=0)
        assert sent(lane) == batches
    for batch in batches:
        lane.confirmed(batch, OLD_DUPLICATE, 0)
    assert seqs(lane.drain()[0]) == [("SequenceConflict", 1), ("ProducerStopped", 2), ("ProducerStopped", 3)]
    assert lane.ended


@pytest.mark.parametrize("status", [500, 502, 504, 524, 599])
def test_a_status_that_a_proxy_may_have_given_leaves_the_outcome_open(status: int) -> None:
    lane, (batch,) = flying(1)
    lane.refused(batch, Overloaded(status, f"http_{status}", "", {}), 0)
    assert batch.maybe_written
    assert sent(lane, 99) == [batch]
    lane.confirmed(batch, OLD_DUPLICATE, 0)
    assert lane.drain()[0] == [BatchResult(1, 1, -1, -1, 1, True)]


def test_records_that_cannot_be_packed_stop_the_lane_and_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(packer: Packer, form: Form, items: list[Item]) -> bytes:
        raise TypeError("a bug")

    lane, (batch,) = flying(1)
    put(lane, 7, 8)
    with monkeypatch.context() as patch:
        patch.setattr(Packer, "body", broken)
        assert sent(lane) == []
    assert not lane.ended  # batch 1 is unanswered: its outcome is waited for
    lane.confirmed(batch, ok(batch), 0)
    settled, freed = lane.drain()
    assert seqs(settled) == [("ack", 1), ("ProducerStopped", 2)]
    failure = settled[1]
    assert isinstance(failure, Failure)
    assert "cannot be packed: TypeError('a bug')" in str(failure.error)
    assert failure.batch.items == [b"7", b"8"]
    assert (lane.ended, lane.pending_count, lane.due(0)) == (True, 0, NEVER)
    assert freed == batch.bytes + cost(b"7") + cost(b"8")


@pytest.mark.parametrize("kind", [*refusal_map.RULES, *BEFORE_COMMANDS])
def test_dead_letters_are_made_of_refused_content_alone(kind: type[outcome.Refusal] | tuple[int, str]) -> None:
    status, code = kind if isinstance(kind, tuple) else (refusal_map.RULES[kind].status, kind.code)
    retryable = not isinstance(kind, tuple) and kind.retryable
    lane, (batch,) = flying(1, dead_letter="dead")
    lane.refused(batch, refusal(problem(status, code, retryable=retryable)), 0)
    assert is_burying(lane) is (code in CONTENT_CODES)


def test_a_lost_connection_sends_everything_unconfirmed_again_same_numbers_same_bytes() -> None:
    lane, batches = flying()
    lane.confirmed(batches[0], ok(batches[0]), 0)
    before = [(batch.seq, batch.body) for batch in batches[1:]]
    for batch in batches[1:]:
        lane.lost(batch, sent=True, now=0)
    again = sent(lane)
    assert [(batch.seq, batch.body) for batch in again] == before
    assert {batch.attempts for batch in again} == {2}
    assert all(batch.maybe_written for batch in again)


def test_an_overloaded_server_gets_it_again_after_the_pause_it_asked_for() -> None:
    lane, batches = flying(3)
    lane.refused(batches[0], Overloaded(503, "overloaded", "", {}, retry_after_s=2.0), 10)
    assert sent(lane, 10) == []  # answers are outstanding
    lane.refused(batches[1], gap(1, 2), 10)
    lane.refused(batches[2], gap(1, 3), 10)
    assert sent(lane, 11.9) == []
    assert lane.due(10) == pytest.approx(12)
    assert [batch.seq for batch in sent(lane, 12)] == [1, 2, 3]
    assert lane.drain()[0] == []


def test_new_records_wait_while_a_batch_is_held() -> None:
    lane, batches = flying(2)
    lane.refused(batches[0], OVERLOADED, 0)
    put(lane, 9)
    assert sent(lane) == []
    lane.refused(batches[1], OVERLOADED, 0)
    assert [batch.seq for batch in sent(lane)] == [1, 2, 3]


def test_a_confirmation_behind_a_held_batch_waits_for_its_turn() -> None:
    # A lost copy of batch 1 was written, batch 1 itself was told to come later, and batch 2 was accepted.
    lane, (one, two) = flying(2)
    lane.refused(one, OVERLOADED, 0)
    lane.confirmed(two, ok(two), 0)
    assert lane.drain()[0] == []
    (again,) = sent(lane)
    assert again is one
    lane.confirmed(one, ok(one, duplicate=True), 0)
    assert seqs(lane.drain()[0]) == [("ack", 1), ("ack", 2)]


def test_a_gap_is_explained_by_any_earlier_batch_that_is_not_confirmed() -> None:
    lane, (one, two, three) = flying(3)
    lane.refused(one, OVERLOADED, 0)
    lane.refused(two, OVERLOADED, 0)
    lane.refused(three, gap(2, 3), 0)  # a lost copy of 1 was written meanwhile
    assert [batch.seq for batch in sent(lane)] == [1, 2, 3]


@pytest.mark.parametrize("expected", [0, 7, 1])
def test_a_gap_that_nothing_explains_stops_the_lane(expected: int) -> None:
    lane, (one, two) = flying(2)
    lane.refused(one, gap(expected, 1), 0)
    assert sent(lane) == []
    assert lane.drain()[0] == []  # the outcome of batch 2 is still to be heard
    lane.refused(two, gap(expected, 2), 0)
    assert seqs(lane.drain()[0]) == [("SequenceGap", 1), ("ProducerStopped", 2)]
    assert lane.ended


PERMANENT = [FENCED, MISSING, BAD, CONFLICT, gap(0), StreamClosed(409, "stream_closed", "", {})]


@pytest.mark.parametrize("error", PERMANENT, ids=lambda error: error.code)
@pytest.mark.parametrize("at", range(5))
def test_a_refusal_for_good_fails_that_batch_and_all_later_ones_in_order(error: Refused, at: int) -> None:
    lane, batches = flying(5)
    put(lane, 77, 78)
    for number, batch in enumerate(batches):
        if number < at:
            lane.confirmed(batch, ok(batch), 0)
        elif number == at:
            lane.refused(batch, error, 0)
        else:
            lane.refused(batch, gap(batches[at].seq, batch.seq), 0)
    settled, freed = lane.drain()
    names = [type(error).__name__] + ["ProducerStopped"] * (5 - at)
    assert seqs(settled) == [("ack", n + 1) for n in range(at)] + list(zip(names, range(at + 1, 7), strict=True))
    assert freed == sum(batch.bytes for batch in batches) + 2 * cost(b"77")
    failures = [one for one in settled if isinstance(one, Failure)]
    assert failures[0].error is error
    assert failures[-1].batch.count == 2
    assert [record.value for record in failures[-1].batch.records] == [b"77", b"78"]
    assert (lane.ended, lane.pending_count, lane.due(0)) == (True, 0, NEVER)
    assert sent(lane) == []


def test_a_refusal_behind_a_held_batch_waits_for_it() -> None:
    lane, (one, two, three) = flying(3)
    lane.refused(one, OVERLOADED, 0)
    lane.refused(two, BAD, 0)
    lane.refused(three, gap(1, 3), 0)
    assert sent(lane) == [one]  # nothing behind the refused one
    lane.confirmed(one, ok(one), 0)
    assert seqs(lane.drain()[0]) == [("ack", 1), ("Malformed", 2), ("ProducerStopped", 3)]


def test_a_later_batch_that_was_written_is_told_as_written() -> None:
    # Another run used number 1 for other content; batch 2 then was the next one to the server.
    lane, (one, two) = flying(2)
    lane.refused(one, CONFLICT, 0)
    lane.confirmed(two, ok(two), 0)
    assert seqs(lane.drain()[0]) == [("SequenceConflict", 1), ("ack", 2)]


def test_unanswered_batches_behind_a_refusal_are_of_unknown_outcome() -> None:
    lane, (one, two, three) = flying(3)
    lane.refused(one, FENCED, 0)
    lane.lost(two, sent=True, now=0)
    lane.lost(three, sent=False, now=0)
    settled, _ = lane.drain()
    assert seqs(settled) == [("Fenced", 1), ("OutcomeUnknown", 2), ("ProducerStopped", 3)]
    assert isinstance(settled[2], Failure)
    assert isinstance(settled[2].error, ProducerStopped)
    assert settled[2].error.cause is FENCED


def test_a_fence_after_a_lost_attempt_leaves_open_whether_that_was_written() -> None:
    lane, (one,) = flying(1)
    lane.lost(one, sent=True, now=0)
    sent(lane)
    lane.refused(one, FENCED, 0)
    ((failure),) = lane.drain()[0]
    assert isinstance(failure, Failure)
    assert failure.batch.maybe_written


@pytest.mark.parametrize("error", [gap(0), BAD])
def test_other_refusals_after_a_lost_attempt_tell_that_it_was_not_written(error: Refused) -> None:
    lane, (one,) = flying(1)
    lane.lost(one, sent=True, now=0)
    sent(lane)
    lane.refused(one, error, 0)
    assert not one.maybe_written


def test_the_pauses_double_and_start_over_after_a_success() -> None:
    lane, (one,) = flying(1, retry_backoff_ms=100, retry_backoff_max_ms=300)
    now, pauses = 0.0, []
    for _ in range(4):
        lane.refused(one, OVERLOADED, now)
        pauses.append(lane.due(now) - now)
        now = lane.due(now)
        assert sent(lane, now) == [one]
    assert all(low / 2 <= pause <= low for pause, low in zip(pauses, (0.1, 0.2, 0.3, 0.3), strict=True))
    lane.confirmed(one, ok(one), 0)
    put(lane, 2)
    (two,) = sent(lane, now)
    lane.refused(two, OVERLOADED, now)
    assert lane.due(now) - now <= 0.1


# --- dead letters ------------------------------------------------------------------------------------------------


def test_a_buried_batch_gives_its_number_to_the_next_when_every_answer_came() -> None:
    lane, (one, two, three) = flying(3, dead_letter="dead")
    lane.refused(one, BAD, 0)
    assert not is_burying(lane)  # not before every answer is in
    lane.refused(two, gap(1, 2), 0)
    lane.refused(three, gap(1, 3), 0)
    assert is_burying(lane)
    put(lane, 4)
    assert sent(lane) == []
    session = lane.identity
    lane.buried("dead", 5)
    settled, _ = lane.drain()
    assert seqs(settled) == [("DeadLettered", 1)]
    again = sent(lane, 5)
    assert [(batch.seq, batch.body) for batch in again] == [(1, b"[2]"), (2, b"[3]"), (3, b"[4]")]
    assert again[:2] == [two, three]
    assert lane.identity == session
    assert two.first_attempt_s == 5


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_buried_batch_changes_the_identity_when_a_copy_of_a_later_one_may_wander(when: str) -> None:
    lane, (one, two) = flying(2, dead_letter="dead")
    if when == "before":
        # Both went out on a connection that ended; the second time the answers come.
        for batch in (one, two):
            lane.lost(batch, sent=True, now=0)
        sent(lane)
        lane.refused(one, BAD, 0)
        lane.refused(two, gap(1, 2), 0)
    else:
        lane.refused(one, BAD, 0)
        lane.lost(two, sent=True, now=0)
    session = lane.identity.session
    lane.buried("dead", 0)
    assert (lane.identity.session != session, lane.identity.epoch) == (True, -1)
    put(lane, 3)
    (again,) = sent(lane)  # a new identity begins at 0, alone
    assert (again, again.seq) == (two, 0)
    lane.confirmed(two, ok(two), 0)
    assert [batch.seq for batch in sent(lane)] == [1]


@pytest.mark.parametrize(
    ("error", "is_buried"),
    [
        (BAD, True),
        (TooLarge(413, "too_large", "", {}), True),
        (IdConflict(409, "id_conflict", "", {}), True),
        (Malformed(415, "http_415", "", {}), True),
        (Malformed(400, "claim_invalid", "", {}), False),
        (Malformed(400, "header_invalid", "", {}), False),
        (Conflict(409, "content_type_mismatch", "", {}), False),
        (StreamClosed(409, "stream_closed", "", {}), False),
        (MISSING, False),
        (FENCED, False),
        (CONFLICT, False),
        (gap(0), False),
    ],
    ids=lambda value: getattr(value, "code", None),
)
def test_only_a_refusal_of_the_content_is_buried(error: Refused, is_buried: bool) -> None:
    lane, (one,) = flying(1, dead_letter="dead")
    lane.refused(one, error, 0)
    assert (lane.burial is one, lane.ended) == (is_buried, not is_buried)


def test_nothing_is_buried_if_the_server_counted_a_later_batch() -> None:
    lane, (one, two) = flying(2, dead_letter="dead")
    lane.refused(one, BAD, 0)
    lane.confirmed(two, ok(two), 0)
    assert lane.burial is None
    assert seqs(lane.drain()[0]) == [("Malformed", 1), ("ack", 2)]


def test_a_burial_that_fails_leaves_the_refusal() -> None:
    lane, (one, two) = flying(2, dead_letter="dead")
    lane.refused(one, BAD, 0)
    lane.refused(two, gap(1, 2), 0)
    lane.burial_failed()
    assert seqs(lane.drain()[0]) == [("Malformed", 1), ("ProducerStopped", 2)]


def test_a_burial_has_no_delivery_timeout_and_ends_before_a_stop_does() -> None:
    lane, (one, two) = flying(2, dead_letter="dead", delivery_timeout_ms=1000)
    lane.refused(one, BAD, 0)
    lane.refused(two, gap(1, 2), 0)
    lane.expire(50)
    lane.stop(FENCED)
    assert lane.drain()[0] == []
    lane.buried("dead", 50)
    assert seqs(lane.drain()[0]) == [("DeadLettered", 1), ("ProducerStopped", 1)]


def test_the_first_batch_of_all_can_be_buried() -> None:
    lane = lane_of(dead_letter="dead", max_batch_records=1)
    put(lane, 0, 1)
    (first,) = sent(lane)
    lane.refused(first, BAD, 0)
    lane.buried("dead", 0)
    (second,) = sent(lane)
    assert (second.seq, second.body) == (0, b"[1]")
    assert isinstance(lane.drain()[0][0], Failure)


def test_the_error_of_a_buried_batch_names_the_stream_and_the_cause() -> None:
    error = DeadLettered(BAD, "dead")
    assert (error.cause, error.stream) == (BAD, "dead")
    assert "dead" in str(error)


# --- everything at once ------------------------------------------------------------------------------------------

ANSWERS = ("ok", "busy", "bad", "gap", "lost", "unsent")


@pytest.mark.parametrize("answers", list(product(ANSWERS, repeat=3)), ids="-".join)
def test_every_three_answers_settle_every_batch_once_and_in_order(answers: tuple[str, ...]) -> None:
    lane, batches = flying(3)
    put(lane, 4, 5)
    for batch, told in zip(batches, answers, strict=True):
        match told:
            case "ok":
                lane.confirmed(batch, ok(batch), 0)
            case "busy":
                lane.refused(batch, OVERLOADED, 0)
            case "bad":
                lane.refused(batch, BAD, 0)
            case "gap":
                lane.refused(batch, gap(1, batch.seq), 0)
            case _:
                lane.lost(batch, sent=told == "lost", now=0)
    rounds = 0
    while not lane.ended and lane.pending_count:
        rounds += 1
        assert rounds < 5
        for batch in sent(lane):
            lane.confirmed(batch, ok(batch), 0)
    settled, freed = lane.drain()
    told_seqs = [one.batch.seq if isinstance(one, Failure) else one.seq for one in settled]
    assert all(earlier < later for earlier, later in pairwise(told_seqs))
    assert sum(one.batch.count if isinstance(one, Failure) else one.count for one in settled) == 5
    assert freed == 5 * cost(b"1")
    assert lane.ended == any(isinstance(one, Failure) for one in settled)


def test_an_answer_of_somebody_else_ends_the_lane_and_leaves_the_outcome_open() -> None:
    lane, batches = flying(3)
    foreign = AnswerUnreadable("a page")
    lane.confirmed(batches[1], ok(batches[1]), 0)
    lane.unreadable(batches[0], foreign, 0)
    lane.confirmed(batches[2], ok(batches[2]), 0)
    failure, *others = lane.drain()[0]
    assert isinstance(failure, Failure)
    assert (failure.error, failure.batch.seq, failure.batch.maybe_written) == (foreign, 1, True)
    assert [one.seq for one in others if isinstance(one, BatchResult)] == [2, 3]
    assert lane.ended


# --- what the server takes in one request ---------------------------------------------------------------------------


@pytest.mark.parametrize("raw_batches", [False, True])
def test_the_largest_settings_pack_no_more_records_than_the_server_takes(raw_batches: bool) -> None:
    settings = ProducerSettings(max_batch_bytes=RECORD_BYTES_MAX, max_batch_records=BATCH_RECORDS_MAX)
    lane = Lane(0, Packer("application/json", raw_batches=raw_batches), settings, dialect_of(settings))
    put(lane, *[1] * 200_000)
    (first,) = sent(lane)
    assert 1 < first.count < 200_000  # bytes end it first today: each record counts with 48 more
    assert first.count <= BATCH_RECORDS_MAX


def test_the_smallest_records_are_counted_whatever_the_bytes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_module, "RECORD_COST_BYTES", 0)
    settings = ProducerSettings(max_batch_bytes=RECORD_BYTES_MAX, max_batch_records=BATCH_RECORDS_MAX)
    lane = Lane(0, Packer("application/json"), settings, dialect_of(settings))
    for _ in range(BATCH_RECORDS_MAX + 1):
        lane.put(b"1", 1, 0)
    (first,) = sent(lane)
    assert first.count == BATCH_RECORDS_MAX


def test_more_records_than_the_server_takes_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="max_batch_records is between 1 and"):
        ProducerSettings(max_batch_records=BATCH_RECORDS_MAX + 1)
