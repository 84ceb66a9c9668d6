"""Appends through the whole core: retries by id and by sequence, conflicts, the order of checks, bounds."""

import pytest

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import (
    Append,
    CloseStream,
    Columns,
    CreateTopic,
    DeleteRecords,
    DeleteTopic,
    GetProducer,
    GetReceipt,
    Trim,
)
from oncelog.core.entry import RENEWS, Appended, Claimed, Compound
from oncelog.core.flat import ProducerClaim
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import (
    BatchRefused,
    ClaimInvalid,
    Confirmed,
    ContentTypeMismatch,
    Fenced,
    IdConflict,
    NameInvalid,
    NotFound,
    OrderKeyNotRising,
    Outcome,
    ProducerFound,
    ReceiptFound,
    SequenceConflict,
    SequenceGap,
    StreamClosedRefusal,
    TailMismatch,
    TooLarge,
    TopicDone,
    TopicMissing,
    each_outcome,
)
from oncelog.core.rows import TopicConfig
from oncelog.testing.core_harness import CoreHarness, records, requests, rising

BATCH = codec.encode_one(b"value", 1)


@pytest.fixture(params=["rows dropped before every command", "rows kept"])
def log(request: pytest.FixtureRequest) -> CoreHarness:
    harness = CoreHarness()
    harness.keep_loaded = request.param == "rows kept"
    harness.create("t")
    return harness


def confirmed(outcome: object) -> Confirmed:
    assert isinstance(outcome, Confirmed), outcome
    return outcome


def test_appends_are_dense_from_zero(log: CoreHarness) -> None:
    assert confirmed(log.append("t", b"a")).first == 0
    second = confirmed(log.append("t", b"b", b"c"))
    assert (second.first, second.next) == (1, 3)


# --- P2, P3: ids -------------------------------------------------------------------------------------------------


def test_retry_by_id_gets_the_original_offset_also_after_restart(log: CoreHarness) -> None:
    first = confirmed(log.append("t", b"a", message_id=b"m1"))
    log.append("t", b"b")
    log.restart()
    again = confirmed(log.append("t", b"a", message_id=b"m1"))
    assert (again.first, again.next, again.duplicate, again.gone) == (first.first, first.next, True, False)
    assert again.time_ns == log.now_ns
    assert log.last_entry is None


def test_same_id_with_other_content_is_refused_with_both_digests(log: CoreHarness) -> None:
    log.append("t", b"a", message_id=b"m1")
    assert log.append("t", b"b", message_id=b"m1") == IdConflict(2, 0, content_digest(b"a"), content_digest(b"b"))
    assert log.last_entry is None


def test_id_of_one_stream_is_free_in_another(log: CoreHarness) -> None:
    log.create("u")
    log.append("t", b"a", message_id=b"m1")
    assert not confirmed(log.append("u", b"other", message_id=b"m1")).duplicate


def test_batch_under_one_id_is_one_effect(log: CoreHarness) -> None:
    first = confirmed(log.append("t", b"a", b"b", b"c", message_id=b"m"))
    again = confirmed(log.append("t", b"a", b"b", b"c", message_id=b"m"))
    assert (again.first, again.next, again.duplicate) == (first.first, first.next, True)


def test_receipt_names_place_digest_and_time(log: CoreHarness) -> None:
    log.append("t", b"a", message_id=b"m1")
    receipt = log.run(GetReceipt("t", 0, b"m1"))
    assert receipt == ReceiptFound(2, 0, 1, content_digest(b"a"), log.now_ns // 1_000_000, False)
    assert log.run(GetReceipt("t", 0, b"m2")) == NotFound("message id")
    assert log.run(GetReceipt("nowhere", 0, b"m2")) == TopicMissing("nowhere", 0)


# --- P2, P5: sequences -------------------------------------------------------------------------------------------


def test_retry_by_sequence_gets_the_original_offset_also_after_restart(log: CoreHarness) -> None:
    first = confirmed(log.append("t", claim=requests("http:p", 0)))
    log.append("t", b"other")
    log.restart()
    again = confirmed(log.append("t", claim=requests("http:p", 0)))
    assert (again.first, again.next, again.duplicate) == (first.first, first.next, True)
    assert (again.epoch, again.sequence) == (0, 0)
    assert log.last_entry is None


def test_retry_older_than_five_batches_is_a_duplicate_without_a_place(log: CoreHarness) -> None:
    for sequence in range(7):
        log.append("t", claim=requests("http:p", sequence))
    assert confirmed(log.append("t", claim=requests("http:p", 2))).first == 2
    old = confirmed(log.append("t", claim=requests("http:p", 1)))
    assert (old.first, old.next, old.duplicate) == (-1, -1, True)


def test_kafka_retry_older_than_five_batches_is_out_of_order(log: CoreHarness) -> None:
    for sequence in range(7):
        log.append("t", claim=records(9, sequence))
    assert confirmed(log.append("t", claim=records(9, 2))).duplicate
    assert log.append("t", claim=records(9, 1)) == SequenceGap(7, 1)


def test_gap_conflict_and_fence_are_refused_and_write_nothing(log: CoreHarness) -> None:
    log.append("t", claim=requests("http:p", 0))
    assert log.append("t", claim=requests("http:p", 2)) == SequenceGap(1, 2)
    conflict = log.append("t", b"x", claim=requests("http:p", 0, content=b"x"))
    assert conflict == SequenceConflict(0, content_digest(b"value"), content_digest(b"x"))
    log.append("t", claim=requests("http:p", 0, epoch=1))
    assert log.append("t", claim=requests("http:p", 1)) == Fenced(1, 0)
    assert log.append("t", claim=requests("http:p", 0)) == Fenced(1, 0)
    assert log.last_entry is None


def test_gap_tolerant_sequence_takes_the_higher_and_repeats_the_lower(log: CoreHarness) -> None:
    assert not confirmed(log.append("t", claim=rising("http:p", 100))).duplicate
    assert confirmed(log.append("t", claim=rising("http:p", 250))).first == 1
    assert confirmed(log.append("t", claim=rising("http:p", 250))).first == 1
    assert confirmed(log.append("t", claim=rising("http:p", 99))).first == -1
    other = log.append("t", claim=requests("http:p", 251))
    assert other == ClaimInvalid("an epoch has one mode: this one's is rising, the claim's is requests")


def test_managed_producer_that_restarts_gets_the_next_epoch(log: CoreHarness) -> None:
    def claim(session: str, sequence: int) -> ProducerClaim:
        return ProducerClaim("x:p", -1, sequence, sequence, 1, b"d" * 16, True, session)

    assert confirmed(log.append("t", claim=claim("one", 0))).epoch == 1
    assert confirmed(log.append("t", claim=claim("one", 0))).duplicate
    assert confirmed(log.append("t", claim=claim("two", 0))).epoch == 2
    assert log.append("t", claim=claim("one", 1)) == Fenced(2, -1)


def test_scopes_never_meet(log: CoreHarness) -> None:
    log.append("t", claim=requests("http:1", 0, epoch=5))
    assert confirmed(log.append("t", claim=records(1, 0))).epoch == 0


def test_producer_asks_where_it_stands(log: CoreHarness) -> None:
    assert log.run(GetProducer("t", 0, "http:p")) == NotFound("producer")
    log.append("t", b"other")
    log.append("t", claim=requests("http:p", 0))
    assert log.run(GetProducer("t", 0, "http:p")) == ProducerFound(0, 0, 1, 2, log.now_ns)
    assert log.run(GetProducer("nowhere", 0, "http:p")) == TopicMissing("nowhere")
    assert log.run(GetProducer("", 0, "http:p")) == NotFound("producer")


# --- both claims -------------------------------------------------------------------------------------------------


def test_known_id_with_a_new_sequence_uses_the_sequence_up(log: CoreHarness) -> None:
    log.append("t", b"a", message_id=b"m1")
    again = confirmed(log.append("t", b"a", message_id=b"m1", claim=requests("http:p", 0, content=b"a")))
    assert (again.first, again.duplicate, again.epoch, again.sequence) == (0, True, 0, 0)
    assert isinstance(log.last_entry, Compound)
    assert isinstance(log.last_entry.operations[0], Claimed)
    assert confirmed(log.append("t", b"b", claim=requests("http:p", 1, content=b"b"))).first == 1
    retry = confirmed(log.append("t", b"a", claim=requests("http:p", 0, content=b"a")))
    assert (retry.first, retry.next, retry.duplicate) == (0, 1, True)


def test_known_id_with_a_known_sequence_writes_nothing(log: CoreHarness) -> None:
    log.append("t", b"a", message_id=b"m1", claim=requests("http:p", 0, content=b"a"))
    again = confirmed(log.append("t", b"a", message_id=b"m1", claim=requests("http:p", 0, content=b"a")))
    assert (again.duplicate, again.sequence) == (True, 0)
    assert log.last_entry is None


def test_known_id_of_a_fenced_producer_is_still_a_duplicate_and_uses_nothing_up(log: CoreHarness) -> None:
    log.append("t", b"a", message_id=b"m1")
    log.append("t", claim=requests("http:p", 0, epoch=3))
    again = confirmed(log.append("t", b"a", message_id=b"m1", claim=requests("http:p", 1, epoch=2)))
    assert (again.duplicate, again.epoch) == (True, -1)
    assert log.last_entry is None


# --- order of checks ---------------------------------------------------------------------------------------------


def test_retry_of_a_success_is_a_success_on_a_closed_stream(log: CoreHarness) -> None:
    log.append("t", b"a", message_id=b"m1", claim=requests("http:p", 0, content=b"a"), close=True)
    by_id = confirmed(log.append("t", b"a", message_id=b"m1", close=True))
    assert (by_id.first, by_id.duplicate, by_id.closed) == (0, True, True)
    by_sequence = confirmed(log.append("t", b"a", claim=requests("http:p", 0, content=b"a"), close=True))
    assert (by_sequence.first, by_sequence.duplicate, by_sequence.closed) == (0, True, True)
    assert log.append("t", b"b") == StreamClosedRefusal(2, 1)


def test_retry_of_a_success_is_a_success_whatever_its_conditions_say_now(log: CoreHarness) -> None:
    claim = requests("http:p", 0)
    log.append("t", message_id=b"m1", claim=claim, expected_tail=0, order_key="a")
    log.append("t", b"b")
    assert confirmed(log.append("t", message_id=b"m1", expected_tail=0, order_key="a")).duplicate
    assert confirmed(log.append("t", claim=claim, expected_tail=0, order_key="a", content_type="x/y")).duplicate


def test_closed_comes_before_sequences_and_sequences_before_conditions(log: CoreHarness) -> None:
    late = requests("http:p", 7)
    assert log.append("t", expected_tail=3, claim=late) == SequenceGap(0, 7), "it is early: judged in its turn"
    assert log.append("t", expected_tail=3, claim=requests("http:p", 0)) == TailMismatch(2, 3, 0)
    assert log.append("t", content_type="text/plain", claim=late) == ContentTypeMismatch(
        "application/octet-stream", "text/plain"
    )
    log.run(CloseStream("t"))
    assert log.append("t", expected_tail=3, claim=late) == StreamClosedRefusal(2, 0)


def test_order_key_must_rise(log: CoreHarness) -> None:
    log.append("t", order_key="b")
    assert log.append("t", order_key="b") == OrderKeyNotRising("b", "b")
    assert log.append("t", order_key="a") == OrderKeyNotRising("b", "a")
    assert confirmed(log.append("t", order_key="c")).first == 1


def test_expected_tail_that_holds_is_accepted(log: CoreHarness) -> None:
    assert confirmed(log.append("t", expected_tail=0)).first == 0
    assert log.append("t", expected_tail=0) == TailMismatch(2, 0, 1)


# --- deleting and creating again ---------------------------------------------------------------------------------


def test_new_topic_of_an_old_name_meets_no_old_claim(log: CoreHarness) -> None:
    log.append("t", b"a", message_id=b"m1", claim=requests("http:p", 0, epoch=9))
    log.run(DeleteTopic("t"))
    assert log.append("t", b"a", message_id=b"m1") == TopicMissing("t")
    created = log.run(CreateTopic("t"))
    assert isinstance(created, TopicDone)
    assert created.stream_ids != [2]
    fresh = confirmed(log.append("t", b"other", message_id=b"m1", claim=requests("http:p", 0)))
    assert (fresh.first, fresh.duplicate, fresh.epoch) == (0, False, 0)


# --- records that stand or fall alone ----------------------------------------------------------------------------


def each(log: CoreHarness, *pairs: tuple[bytes, bytes]) -> list[Outcome]:
    command = Columns("t", 0, [value for value, _ in pairs], message_ids=[id_ for _, id_ in pairs])
    return each_outcome(log.run(command), command)


def test_each_record_of_a_read_gets_its_own_answer(log: CoreHarness) -> None:
    log.append("t", b"old", message_id=b"m0")
    answers = each(log, (b"a", b"m1"), (b"old", b"m0"), (b"x", b"m0"), (b"b", b""), (b"a", b"m1"), (b"z", b"m1"))
    places = [(answer.first, answer.duplicate) if isinstance(answer, Confirmed) else answer for answer in answers]
    assert places == [
        (1, False),
        (0, True),
        IdConflict(2, 0, content_digest(b"old"), content_digest(b"x")),
        (2, False),
        (1, True),
        IdConflict(2, 1, content_digest(b"a"), content_digest(b"z")),
    ]
    assert isinstance(log.last_entry, Appended)
    assert codec.decode_values(log.last_entry.batch) == [b"a", b"b"]


def test_read_with_nothing_new_writes_nothing(log: CoreHarness) -> None:
    each(log, (b"a", b"m1"))
    assert [answer for answer in each(log, (b"a", b"m1"), (b"a", b"m1")) if not confirmed(answer).duplicate] == []
    assert log.last_entry is None


def test_id_of_a_read_meets_the_same_id_of_a_single_append(log: CoreHarness) -> None:
    each(log, (b"a", b"m1"))
    assert confirmed(log.append("t", b"a", message_id=b"m1")).duplicate


def test_read_on_a_closed_stream_still_answers_duplicates(log: CoreHarness) -> None:
    log.append("t", b"a", message_id=b"m1", close=True)
    duplicate, refused = each(log, (b"a", b"m1"), (b"b", b"m2"))
    assert confirmed(duplicate).duplicate
    assert refused == StreamClosedRefusal(2, 1)


# --- memory of removed records -----------------------------------------------------------------------------------


def test_duplicate_of_a_trimmed_record_gets_its_offset_and_gone(log: CoreHarness) -> None:
    log.append("t", b"a", message_id=b"m1", claim=requests("http:p", 0, content=b"a"))
    log.append("t", b"b")
    log.run(Trim("t", 0, 1))
    by_id = confirmed(log.append("t", b"a", message_id=b"m1"))
    assert (by_id.first, by_id.duplicate, by_id.gone) == (0, True, True)
    by_sequence = confirmed(log.append("t", b"a", claim=requests("http:p", 0, content=b"a")))
    assert (by_sequence.first, by_sequence.duplicate, by_sequence.gone) == (0, True, True)


def test_duplicate_of_a_deleted_record_gets_its_offset_and_gone(log: CoreHarness) -> None:
    log.append("t", b"a", message_id=b"m1")
    log.append("t", b"b")
    log.run(DeleteRecords("t", 0, [0, 1]))
    again = confirmed(log.append("t", b"a", message_id=b"m1"))
    assert (again.first, again.duplicate, again.gone) == (0, True, True)
    (in_read,) = each(log, (b"a", b"m1"))
    assert confirmed(in_read).gone


def test_producer_is_forgotten_exactly_at_removal_plus_floor(log: CoreHarness) -> None:
    log.append("t", claim=requests("http:p", 0, epoch=4))
    log.pass_ms(30 * 24 * 3600 * 1000)
    assert log.append("t", claim=requests("http:p", 0, epoch=3)) == Fenced(4, 3)
    log.append("t", b"newer")
    log.run(Trim("t", 0, 1))
    log.pass_ms(limits.DEDUPE_FLOOR_MS_DEFAULT - 1)
    assert log.append("t", claim=requests("http:p", 0, epoch=3)) == Fenced(4, 3)
    log.pass_ms(1)
    assert log.run(GetProducer("t", 0, "http:p")) == NotFound("producer")
    fresh = confirmed(log.append("t", claim=requests("http:p", 0, epoch=3)))
    assert (fresh.epoch, fresh.duplicate) == (3, False)
    assert isinstance(log.last_entry, Appended)
    assert log.last_entry.flags & RENEWS
    assert confirmed(log.append("t", claim=requests("http:p", 1, epoch=3))).epoch == 3
    log.replay_all()


def test_producer_is_forgotten_exactly_at_last_use_plus_floor_if_that_is_later(log: CoreHarness) -> None:
    log.append("t", claim=requests("http:p", 0))
    log.run(Trim("t", 0, 1))
    log.pass_ms(1000)
    log.run(CloseStream("t", 0, requests("http:p", 1)))
    log.pass_ms(limits.DEDUPE_FLOOR_MS_DEFAULT - 1)
    assert isinstance(log.run(GetProducer("t", 0, "http:p")), ProducerFound)
    log.pass_ms(1)
    assert log.run(GetProducer("t", 0, "http:p")) == NotFound("producer")


# --- bounds ------------------------------------------------------------------------------------------------------


def refused(log: CoreHarness, **fields: object) -> object:
    command = Append("t", 0, BATCH, 1, b"d" * 16)
    for name, value in fields.items():
        setattr(command, name, value)
    outcome = log.run(command)
    assert log.last_entry is None
    return outcome


def test_each_bound_of_an_append_is_refused_with_its_numbers(log: CoreHarness) -> None:
    assert refused(log, batch=b"x" * (limits.BATCH_BYTES_MAX + 1)) == TooLarge(
        "batch bytes", limits.BATCH_BYTES_MAX, limits.BATCH_BYTES_MAX + 1
    )
    assert refused(log, count=limits.BATCH_RECORDS_MAX + 1) == TooLarge(
        "records of one batch", limits.BATCH_RECORDS_MAX, limits.BATCH_RECORDS_MAX + 1
    )
    assert isinstance(refused(log, count=0), BatchRefused)
    assert isinstance(refused(log, batch=b""), BatchRefused)
    assert isinstance(refused(log, message_id=b"m", digest=b"short"), BatchRefused)
    assert isinstance(refused(log, message_id=b"m", count=2**40), TooLarge)
    assert refused(log, message_id=b"m" * 1025) == TooLarge("message id bytes", 1024, 1025)
    assert refused(log, order_key="k" * 1025) == TooLarge("order key bytes", 1024, 1025)
    assert isinstance(refused(log, order_key="\ud800"), NameInvalid)


def test_each_bound_of_a_claim_is_refused(log: CoreHarness) -> None:
    def claim(name: str = "http:p", digest: bytes = b"", session: str = "") -> ProducerClaim:
        return ProducerClaim(name, 0, 0, 0, 1, digest, False, session)

    name_max = limits.PRODUCER_NAME_BYTES_MAX
    over = "scoped producer name bytes"
    assert refused(log, claim=claim("p" * (name_max + 1))) == TooLarge(over, name_max, name_max + 1)
    assert refused(log, claim=claim("é" * name_max)) == TooLarge(over, name_max, 2 * name_max)
    for name in ("", "a\0b", "\ud800"):
        assert isinstance(refused(log, claim=claim(name)), NameInvalid)
    assert isinstance(refused(log, claim=claim(session="s" * 401)), TooLarge)
    assert isinstance(refused(log, claim=claim(digest=b"d" * 33)), TooLarge)
    assert isinstance(refused(log, claim=ProducerClaim("p", 0, -1, 0, 1)), ClaimInvalid)
    log.append("t", claim=claim())
    assert isinstance(log.append("t", claim=ProducerClaim("http:p", 0, 1, 1, 1, b"d" * 33)), TooLarge)


def test_largest_append_with_every_name_at_its_bound_fits_one_entry(log: CoreHarness) -> None:
    log.create("n" * limits.TOPIC_NAME_BYTES_MAX)
    claim = ProducerClaim("p" * 400, -1, 0, 0, 1, b"d" * 32, True, "s" * 400)
    command = Append(
        "n" * limits.TOPIC_NAME_BYTES_MAX,
        0,
        b"x" * limits.BATCH_BYTES_MAX,
        limits.BATCH_RECORDS_MAX,
        b"d" * 16,
        claim,
        b"m" * limits.MESSAGE_ID_BYTES_MAX,
        order_key="k" * limits.ORDER_KEY_BYTES_MAX,
    )
    assert isinstance(log.run(command), Confirmed)


@pytest.mark.parametrize("name", ["t" * 401, "a\0b", "\ud800", "missing"])
def test_append_to_a_name_that_no_table_holds_is_missing(log: CoreHarness, name: str) -> None:
    assert log.append(name, message_id=b"m") == TopicMissing(name)
    assert log.append("t", partition=1) == TopicMissing("t", 1)
    assert log.append("t", partition=-1) == TopicMissing("t", -1)


# --- ids of a zone -------------------------------------------------------------------------------------------------


def test_zone_id_with_its_old_sequence_is_known_after_its_stream_was_deleted(log: CoreHarness) -> None:
    """Producers are forgotten with the stream and ids of a zone are not: the sequence is no reason to refuse it."""
    zone = TopicConfig(id_zone="z")
    log.create("a", config=zone)
    for sequence in range(3):
        log.append("a", b"other", claim=requests("http:p", sequence))
    stored = confirmed(log.append("a", b"value", message_id=b"m", claim=requests("http:p", 3)))
    log.run(DeleteTopic("a"))
    log.create("a", config=zone)
    again = confirmed(log.append("a", b"value", message_id=b"m", claim=requests("http:p", 3)))
    assert (again.duplicate, again.gone, again.stream_id, again.first) == (True, True, stored.stream_id, 3)


def test_zone_id_of_a_stream_that_is_there_waits_for_its_turn(log: CoreHarness) -> None:
    zone = TopicConfig(id_zone="z")
    log.create("a", config=zone)
    log.create("b", config=zone)
    log.append("a", b"value", message_id=b"m")
    early = log.append("b", b"value", message_id=b"m", claim=requests("http:p", 1))
    assert isinstance(early, SequenceGap)


def test_duplicate_in_another_stream_of_its_zone_does_not_tell_that_the_stream_asked_is_closed(
    log: CoreHarness,
) -> None:
    zone = TopicConfig(id_zone="z")
    log.create("a", config=zone)
    log.create("b", config=zone)
    log.append("a", b"value", message_id=b"m", close=True)
    assert confirmed(log.append("a", b"value", message_id=b"m", close=True)).closed
    assert not confirmed(log.append("b", b"value", message_id=b"m")).closed
