"""Producer sequences: the table reached pair by pair, `judge` against a dumb reference, and the promises P2 and P5.

The reference below is written from the documents, dialect by dialect, without the table and its situations. Rows are
built by `advance` alone, so that every row compared is one that the log can hold.
"""

import itertools
from collections.abc import Iterator

import msgspec
import pytest

from oncelog.core.flat import Producer, ProducerClaim, Written
from oncelog.core.names import known_claim_refused
from oncelog.core.producer import (
    ACCEPT_BY_EPOCH,
    NOT_TOLD,
    TABLE,
    Dialect,
    Kind,
    SequenceMode,
    Situation,
    advance,
    classify,
    dialect_of,
    find_flaw,
    having_waited,
    is_early,
    is_next,
    judge,
    remember,
    waits_for_zero,
)
from oncelog.core.row_codec import decode_row, encode_row
from oncelog.core.rows import Table
from oncelog.core.verdict import (
    OFFSET_UNKNOWN,
    Accept,
    BadClaim,
    Conflict,
    Duplicate,
    EpochAhead,
    EpochMustStartAtZero,
    Fenced,
    Gap,
    ModeMismatch,
    Overlap,
    Verdict,
)
from oncelog.limits import CLAIM_DIGEST_BYTES_MAX

RECORDS, REQUESTS, RISING = SequenceMode
WRAP = 2**31 - 1
RED, BLUE = b"red-red-red-red-", b"blue-blue-blue--"


# --- building rows and claims -----------------------------------------------------------------------------------


def claim_of(mode: int, epoch: int, first: int, last: int = -1, **more: object) -> ProducerClaim:
    return ProducerClaim("p", epoch, first, first if last < 0 else last, mode, **more)  # type: ignore[arg-type]


def row_of(mode: int, epoch: int, ranges: list[tuple[int, int]], **more: object) -> Producer:
    """The row after these batches, written in this epoch; the n-th one went to offsets [100 n, 100 n + 7)."""
    row: Producer | None = None
    for number, (first, last) in enumerate(ranges):
        row = advance(row, claim_of(mode, epoch, first, last, **more), epoch, 100 * number, 100 * number + 7, number)
    assert row is not None
    return row


def singles(count: int, start: int = 0) -> list[tuple[int, int]]:
    return [(number, number) for number in range(start, start + count)]


def fence_row(mode: int, epoch: int) -> Producer:
    """An epoch that fences and has seen no write."""
    return Producer(epoch, mode, -1, 0, ())


def rows() -> Iterator[Producer | None]:
    """Every shape of row that the small domain can tell apart."""
    yield None
    for mode in SequenceMode:
        for epoch in (0, 1, 2):
            yield fence_row(mode, epoch)
            for ranges in (
                singles(1),
                singles(3),
                singles(6),
                singles(7),
                [(0, 2), (3, 3)],
                [(2, 3)],
                [(4, 4), (5, 7)],
            ):
                yield row_of(mode, epoch, ranges, digest=RED)
        yield row_of(mode, 1, singles(2))
    yield row_of(RISING, 1, [(1, 2), (5, 5)], digest=RED)
    for epoch, session in itertools.product((2, 3), ("", "mine")):
        for ranges in (singles(1), singles(6), singles(7), [(0, 1), (2, 2)], [(3, 3)]):
            yield row_of(REQUESTS, epoch, ranges, managed=True, session=session, digest=RED)
            row = row_of(REQUESTS, epoch, ranges, managed=True, session=session, digest=RED)
            yield row.replaced(displaced=("before", "other"))
    yield fence_row(REQUESTS, 2).replaced(session="mine")
    yield row_of(RECORDS, 1, [(WRAP - 2, WRAP - 1)])
    yield row_of(RECORDS, 1, [(WRAP - 3, WRAP - 1), (WRAP, WRAP)])
    yield row_of(RECORDS, 1, [(WRAP - 1, 1), (2, 2)])


def claims() -> Iterator[ProducerClaim]:
    """Every claim of the small domain, unsound ones included."""
    ranges = [(first, last) for first in range(9) for last in range(first, min(first + 3, 9))]
    wraps = [(first, last) for first in (WRAP - 1, WRAP, 0) for last in (WRAP, 0, 1, 2)] + [
        (WRAP - 2, WRAP - 1),
        (3, 2),
    ]
    for epoch, digest in itertools.product(range(-1, 4), (b"", RED, BLUE)):
        for first, last in [*ranges, *wraps]:
            for mode in SequenceMode:
                yield ProducerClaim("p", epoch, first, last, mode, digest)
            yield ProducerClaim("p", epoch, first, last, REQUESTS, digest, start_any=True)
            for session in ("", "mine", "other"):
                yield ProducerClaim("p", epoch, first, last, REQUESTS, digest, True, session)
    yield from (claim_of(RECORDS, 0, 5, start_any=True), claim_of(RISING, 0, 5, start_any=True))
    yield claim_of(REQUESTS, -1, 5, start_any=True, managed=True, session="mine")
    for first, digest in itertools.product(range(7), (RED, BLUE)):
        yield claim_of(REQUESTS, -1, first, start_any=True, managed=True, digest=digest)


# --- the dumb reference -----------------------------------------------------------------------------------------


def remembered(row: Producer, claim: ProducerClaim) -> tuple[bytes, int, int] | None:
    for batch in row.batches:
        first, last, digest, first_offset, next_offset, outcome = batch.fields()
        if (first, last) == (claim.first, claim.last):
            assert outcome is None
            return digest, first_offset, next_offset
    return None


def duplicate(row: Producer, claim: ProducerClaim) -> Duplicate:
    batch = remembered(row, claim)
    places = (OFFSET_UNKNOWN, OFFSET_UNKNOWN) if batch is None else batch[1:]
    return Duplicate(*places, row.epoch, row.last)


def unsound(claim: ProducerClaim) -> bool:
    top = WRAP if claim.mode == RECORDS else 2**53 - 1
    if not (0 <= claim.first <= top and 0 <= claim.last <= top):
        return True
    if claim.managed:
        blind = claim.session == "" and claim.digest == b""
        return blind or claim.epoch == 0 or claim.last < claim.first or claim.mode != REQUESTS
    return claim.epoch < 0 or (claim.last < claim.first and claim.mode != RECORDS)


def expect_kafka(row: Producer | None, claim: ProducerClaim) -> Verdict:
    """Kafka's rules in Kafka's order."""
    if row is None:
        return Accept(claim.epoch, True)
    same_epoch = claim.epoch == row.epoch
    if same_epoch and row.batches and row.mode != RECORDS:
        return ModeMismatch(row.mode, RECORDS)
    if same_epoch and remembered(row, claim):
        return duplicate(row, claim)
    if claim.epoch < row.epoch:
        return Fenced(row.epoch, claim.epoch)
    if claim.epoch > row.epoch:
        return Accept(claim.epoch, True) if claim.first == 0 else Gap(0, claim.first)
    following = (row.last + 1) % 2**31
    return Accept(row.epoch, False) if claim.first == following else Gap(following, claim.first)


def expect_in_epoch(row: Producer, claim: ProducerClaim) -> Verdict:
    """REQUESTS and RISING once the epoch is known to be the current one."""
    if row.batches and row.mode != claim.mode:
        return ModeMismatch(row.mode, claim.mode)
    if claim.last <= row.last:
        batch = remembered(row, claim)
        if batch and batch[0] and claim.digest and batch[0] != claim.digest:
            return Conflict(claim.first, batch[0], claim.digest)
        return duplicate(row, claim)
    if claim.first <= row.last:
        return Overlap(row.last, claim.first, claim.last)
    if claim.first == row.last + 1 or claim.mode == RISING:
        return Accept(row.epoch, False)
    return Gap(row.last + 1, claim.first)


def expect_client_epochs(row: Producer | None, claim: ProducerClaim) -> Verdict:
    free_start = claim.mode == RISING or claim.first == 0
    if row is None:
        return Accept(claim.epoch, True) if free_start or claim.start_any else Gap(0, claim.first)
    if claim.epoch < row.epoch:
        return Fenced(row.epoch, claim.epoch)
    if claim.epoch > row.epoch:
        return Accept(claim.epoch, True) if free_start else EpochMustStartAtZero(claim.epoch, claim.first)
    return expect_in_epoch(row, claim)


def expect_managed(row: Producer | None, claim: ProducerClaim) -> Verdict:
    """The X- dialect."""
    told = claim.epoch != NOT_TOLD
    if row is None:
        if told:
            return EpochAhead(0, claim.epoch)
        return Accept(1, True) if claim.first == 0 or claim.start_any else Gap(0, claim.first)
    if told and claim.epoch > row.epoch:
        return EpochAhead(row.epoch, claim.epoch)
    first_again = claim.digest == row.epoch_first_digest and row.epoch_batch_count - 1 <= 5
    if told and claim.epoch < row.epoch:
        answer_lost = claim.epoch + 1 == row.epoch and claim.first == 0 and row.last >= 0
        mine = claim.session == row.session if claim.session else first_again
        return expect_in_epoch(row, claim) if answer_lost and mine else Fenced(row.epoch, claim.epoch)
    if claim.session and claim.session != row.session:
        if claim.session in row.displaced:
            return Fenced(row.epoch, claim.epoch)
        if claim.first == 0:
            return Accept(row.epoch + 1, True)
        return Fenced(row.epoch, claim.epoch) if told else Gap(0, claim.first)
    if not claim.session and claim.first == 0 and not first_again:
        return Accept(row.epoch + 1, True)
    verdict = expect_in_epoch(row, claim)
    if claim.session or told or not 1 <= claim.first == claim.last <= 4:
        return verdict
    # It names no run, and may be of a new one whose 0 is on its way.
    if type(verdict) is Duplicate and not remembered(row, claim):
        known = dict(enumerate(row.early_digests, start=1)).get(claim.first, b"")
        if known != claim.digest:
            verdict = Conflict(claim.first, known, claim.digest)
    return Gap(0, claim.first) if type(verdict) is Conflict and not claim.start_any else verdict


def expect(row: Producer | None, claim: ProducerClaim) -> Verdict:
    if claim.managed:
        return expect_managed(row, claim)
    return expect_kafka(row, claim) if claim.mode == RECORDS else expect_client_epochs(row, claim)


# --- the whole small domain -------------------------------------------------------------------------------------

ALL_ROWS = list(rows())
ALL_CLAIMS = list(claims())
SOUND_CLAIMS = [claim for claim in ALL_CLAIMS if not unsound(claim)]


def test_judge_equals_the_reference_and_changes_nothing() -> None:
    before = repr([ALL_ROWS, ALL_CLAIMS, ACCEPT_BY_EPOCH])
    for row in ALL_ROWS:
        for claim in ALL_CLAIMS:
            verdict = judge(row, claim)
            if unsound(claim):
                assert type(verdict) is BadClaim, (row, claim)
            else:
                assert verdict == expect(row, claim), (row, claim)
    assert repr([ALL_ROWS, ALL_CLAIMS, ACCEPT_BY_EPOCH]) == before


def test_table_is_reached_in_every_pair_and_never_left() -> None:
    reached = {(dialect_of(claim), classify(row, claim)) for row in ALL_ROWS for claim in SOUND_CLAIMS}
    assert reached == set(TABLE)


def test_table_names_every_dialect_situation_and_kind() -> None:
    assert {dialect for dialect, _ in TABLE} == set(Dialect)
    assert {situation for _, situation in TABLE} == set(Situation)
    assert set(TABLE.values()) == set(Kind)


def test_every_accepted_claim_retried_at_once_is_a_duplicate_with_its_offsets() -> None:
    """P2, and P5 on the way: the epoch stored never falls."""
    accepted = 0
    for row in ALL_ROWS:
        for claim in SOUND_CLAIMS:
            verdict = judge(row, claim)
            if type(verdict) is not Accept:
                continue
            accepted += 1
            copy = row.replaced() if row is not None else None
            assert row is None or verdict.epoch >= row.epoch
            assert verdict.new_epoch == (row is None or verdict.epoch > row.epoch)
            after = advance(copy, claim, verdict.epoch, 4000, 4007, 9)
            assert judge(after, claim) == Duplicate(4000, 4007, verdict.epoch, claim.last), (row, claim)
            assert (after.epoch, after.mode, after.last, after.used_ns) == (verdict.epoch, claim.mode, claim.last, 9)
    assert accepted > 5_000


def test_a_fenced_epoch_is_never_accepted_again() -> None:
    """P5: whatever row there is, a claim that names a lower epoch is not taken."""
    for row in ALL_ROWS:
        if row is None:
            continue
        for claim in SOUND_CLAIMS:
            if NOT_TOLD < claim.epoch < row.epoch:
                verdict = judge(row, claim)
                # A managed run may name the epoch before its own when it never saw the answer (see `classify`).
                assert type(verdict) is not Accept if claim.managed else type(verdict) is Fenced, (row, claim)


@pytest.mark.parametrize("mode", SequenceMode)
def test_every_short_history_writes_each_sequence_of_an_epoch_once(mode: SequenceMode) -> None:
    """All orders of up to four claims, repeats included: one effect per (epoch, sequence), epochs never fall."""
    alphabet = [
        claim_of(mode, epoch, first, last) for epoch in (0, 1) for first, last in ((0, 0), (1, 1), (0, 1), (2, 3))
    ]
    for history in itertools.product(alphabet, repeat=4):
        row: Producer | None = None
        written: list[tuple[int, int]] = []
        for claim in history:
            verdict = judge(row, claim)
            if type(verdict) is Accept:
                written += [(verdict.epoch, sequence) for sequence in range(claim.first, claim.last + 1)]
                row = advance(row, claim, verdict.epoch, 0, 1, 0)
        assert len(written) == len(set(written)), history
        assert [epoch for epoch, _ in written] == sorted(epoch for epoch, _ in written)


# --- stories ----------------------------------------------------------------------------------------------------


def test_kafka_five_in_flight_retried_in_any_order_get_their_own_offsets() -> None:
    """KAFKA-5494: the duplicate's offset is the original one for all five, not only for the last."""
    row = row_of(RECORDS, 0, [(number * 10, number * 10 + 9) for number in range(7)])
    for number in (4, 6, 2, 5, 3):
        claim = claim_of(RECORDS, 0, number * 10, number * 10 + 9)
        assert judge(row, claim) == Duplicate(number * 100, number * 100 + 7, 0, 69)
    assert judge(row, claim_of(RECORDS, 0, 10, 19)) == Gap(70, 10)
    assert judge(row, claim_of(RECORDS, 0, 20, 28)) == Gap(70, 20), "the range must match exactly"


def test_kafka_sequence_wraps_to_zero_and_the_wrapped_batch_is_remembered() -> None:
    row = row_of(RECORDS, 0, [(WRAP - 4, WRAP - 1)])
    assert judge(row, claim_of(RECORDS, 0, WRAP + 1)) == BadClaim("first sequence out of range", WRAP + 1)
    assert judge(row, claim_of(RECORDS, 0, WRAP, WRAP + 1)) == BadClaim("last sequence out of range", WRAP + 1)
    across = claim_of(RECORDS, 0, WRAP, 1)
    assert judge(row, across) == Accept(0, False)
    row = advance(row, across, 0, 50, 53, 1)
    assert judge(row, across) == Duplicate(50, 53, 0, 1)
    assert judge(row, claim_of(RECORDS, 0, 2)) == Accept(0, False)
    exact = row_of(RECORDS, 0, [(WRAP, WRAP)])
    assert judge(exact, claim_of(RECORDS, 0, 0)) == Accept(0, False)
    assert judge(exact, claim_of(RECORDS, 0, 7)) == Gap(0, 7)
    assert judge(exact, claim_of(RECORDS, 0, WRAP + 1)) == BadClaim("first sequence out of range", WRAP + 1)


def test_kafka_epoch_bumped_by_a_marker_fences_before_anything_is_written_in_it() -> None:
    """KAFKA-6119: the row holds the new epoch without a batch; the zombie is out, the next holder starts at 0."""
    row = fence_row(RECORDS, 5)
    assert judge(row, claim_of(RECORDS, 4, 0)) == Fenced(5, 4)
    assert judge(row, claim_of(RECORDS, 5, 3)) == Gap(0, 3)
    assert judge(row, claim_of(RECORDS, 5, 0)) == Accept(5, False)
    assert judge(row, claim_of(RECORDS, 32767, 0)) == Accept(32767, True)
    assert judge(row, claim_of(RECORDS, 32768, 0)) == BadClaim("epoch out of range", 32768)


@pytest.mark.parametrize("first", [0, 3])
def test_first_write_of_a_fence_epoch_makes_the_row_that_a_new_producer_would_have(first: int) -> None:
    claim = claim_of(RISING, 5, first, managed=True, session="mine", digest=RED)
    assert advance(fence_row(RECORDS, 5), claim, 5, 40, 41, 2) == advance(None, claim, 5, 40, 41, 2)


def test_http_sequence_retried_with_other_bytes_conflicts_only_while_remembered() -> None:
    row = row_of(REQUESTS, 3, singles(7), digest=RED)
    assert judge(row, claim_of(REQUESTS, 3, 2, digest=BLUE)) == Conflict(2, RED, BLUE)
    assert judge(row, claim_of(REQUESTS, 3, 2)) == Duplicate(200, 207, 3, 6)
    assert judge(row, claim_of(REQUESTS, 3, 1, digest=BLUE)) == Duplicate(OFFSET_UNKNOWN, OFFSET_UNKNOWN, 3, 6)


def test_http_last_sequence_of_53_bits_is_taken_and_the_one_after_is_not_a_number() -> None:
    row = row_of(REQUESTS, 0, [(2**53 - 2, 2**53 - 2)])
    assert judge(row, claim_of(REQUESTS, 0, 2**53 - 1)) == Accept(0, False)
    assert judge(row, claim_of(REQUESTS, 0, 2**53)) == BadClaim("first sequence out of range", 2**53)
    assert judge(row, claim_of(REQUESTS, 2**53, 0)) == BadClaim("epoch out of range", 2**53)


def test_rising_takes_a_file_position_and_refuses_half_a_duplicate() -> None:
    row = row_of(RISING, 0, [(10, 19), (35, 40)], digest=RED)
    assert judge(row, claim_of(RISING, 0, 900)) == Accept(0, False)
    assert judge(row, claim_of(RISING, 0, 10, 19, digest=RED)) == Duplicate(0, 7, 0, 40)
    assert judge(row, claim_of(RISING, 0, 12, 14, digest=RED)) == Duplicate(OFFSET_UNKNOWN, OFFSET_UNKNOWN, 0, 40)
    assert judge(row, claim_of(RISING, 0, 38, 44)) == Overlap(40, 38, 44)


def test_mode_is_fixed_within_an_epoch_and_free_in_the_next() -> None:
    row = row_of(REQUESTS, 0, singles(2))
    assert judge(row, claim_of(RISING, 0, 2)) == ModeMismatch(REQUESTS, RISING)
    assert judge(row, claim_of(RISING, 1, 77)) == Accept(1, True)
    changed = advance(row, claim_of(RISING, 1, 77), 1, 5, 6, 1)
    assert (changed.mode, changed.last, len(changed.batches)) == (RISING, 77, 1)


def test_managed_restart_whose_answer_was_lost_is_a_duplicate_though_it_names_the_old_epoch() -> None:
    row = row_of(REQUESTS, 4, singles(3), managed=True, session="old run", digest=RED)
    restart = claim_of(REQUESTS, 4, 0, managed=True, session="new run", digest=BLUE)
    assert judge(row, restart) == Accept(5, True)
    row = advance(row, restart, 5, 60, 61, 1)
    assert judge(row, restart) == Duplicate(60, 61, 5, 0)
    old_run = claim_of(REQUESTS, 4, 3, managed=True, session="old run", digest=RED)
    assert judge(row, old_run) == Fenced(5, 4)
    assert judge(row, old_run.replaced(epoch=NOT_TOLD)) == Fenced(5, NOT_TOLD)


def test_managed_run_that_was_displaced_before_it_heard_its_answer_is_fenced_and_not_a_restart() -> None:
    row = advance(None, first := claim_of(REQUESTS, -1, 0, managed=True, session="a", digest=RED), 1, 0, 1, 1)
    for epoch, session in enumerate(("b", "c", "d", "e"), 2):
        assert judge(row, first) == (Duplicate(0, 1, 1, 0) if row.session == "a" else Fenced(epoch - 1, -1))
        claim = claim_of(REQUESTS, -1, 0, managed=True, session=session, digest=BLUE)
        assert judge(row, claim) == Accept(epoch, True)
        row = advance(row, claim, epoch, epoch, epoch + 1, epoch)
    assert row.displaced == ("a", "b", "c", "d")
    assert judge(row, first) == Fenced(5, -1)
    later = advance(row, claim_of(REQUESTS, -1, 0, managed=True, session="f", digest=RED), 6, 9, 10, 9)
    assert later.displaced == ("b", "c", "d", "e"), "the oldest is forgotten"


def test_managed_sequence_zero_without_session_is_a_retry_until_five_batches_follow() -> None:
    again = claim_of(REQUESTS, NOT_TOLD, 0, managed=True, digest=RED)
    for count, verdict in (
        (1, Duplicate(0, 7, 1, 0)),
        (5, Duplicate(0, 7, 1, 4)),
        (6, Duplicate(OFFSET_UNKNOWN, OFFSET_UNKNOWN, 1, 5)),
        (7, Accept(2, True)),
    ):
        assert judge(row_of(REQUESTS, 1, singles(count), managed=True, digest=RED), again) == verdict
    other = again.replaced(digest=BLUE)
    assert judge(row_of(REQUESTS, 1, singles(1), managed=True, digest=RED), other) == Accept(2, True)


def test_managed_epoch_that_began_in_mid_sequence_never_swallows_a_restart_with_equal_content() -> None:
    row = row_of(REQUESTS, 1, [(7, 7)], managed=True, digest=RED)
    assert judge(row, claim_of(REQUESTS, NOT_TOLD, 0, managed=True, digest=RED)) == Accept(2, True)


@pytest.mark.parametrize(
    ("claim", "number"),
    [
        (claim_of(3, 0, 0), 3),
        (claim_of(-1, 0, 0), -1),
        (claim_of(RISING, 1, 0, managed=True, digest=RED), RISING),
        (claim_of(RECORDS, 1, 0, managed=True, digest=RED), RECORDS),
        (claim_of(REQUESTS, 0, 0, managed=True, digest=RED), 0),
        (claim_of(REQUESTS, -2, 0, managed=True, digest=RED), -2),
        (claim_of(REQUESTS, 1, 6, managed=True), 6),
        (claim_of(REQUESTS, -1, 0), -1),
        (claim_of(REQUESTS, 0, -5, 3), -5),
        (claim_of(REQUESTS, 0, 5, 3), 3),
        (claim_of(RISING, 0, 3, 2**53), 2**53),
        (claim_of(RECORDS, 0, 3, WRAP + 1), WRAP + 1),
    ],
)
def test_unsound_claim_is_refused_with_the_number_that_is_wrong(claim: ProducerClaim, number: int) -> None:
    flaw = find_flaw(claim)
    assert flaw is not None
    assert flaw.number == number
    for row in (None, row_of(REQUESTS, 0, singles(1)), fence_row(RISING, 0)):
        assert judge(row, claim) == flaw


def test_next_sequence_at_a_small_epoch_allocates_no_verdict() -> None:
    row, claim = row_of(RECORDS, 7, singles(1)), claim_of(RECORDS, 7, 1)
    assert judge(row, claim) is judge(row, claim)
    far = row_of(REQUESTS, len(ACCEPT_BY_EPOCH), singles(1))
    assert judge(far, claim_of(REQUESTS, len(ACCEPT_BY_EPOCH), 1)) == Accept(len(ACCEPT_BY_EPOCH), False)


def test_row_comes_back_from_messagepack_as_it_was() -> None:
    """A commit over many streams carries a tuple; it must not come back as a list."""
    row = row_of(REQUESTS, 1, singles(6), managed=True, session="s", digest=RED)
    row = remember(row, claim_of(REQUESTS, 1, 6, digest=BLUE), 1, Written(6, 6, BLUE, 0, 0, (3, 10, 12, 8, 0, 1)), 5)
    assert decode_row(Table.PRODUCER, encode_row(row)) == row
    nowhere = remember(row.replaced(), claim_of(REQUESTS, 1, 7), 1, Written(7, 7, b"", 0, 0, ()), 5)
    assert decode_row(Table.PRODUCER, encode_row(nowhere)) == nowhere, "a commit that wrote nothing went nowhere"
    verdict = judge(row, claim_of(REQUESTS, 1, 6, digest=BLUE))
    assert verdict == Duplicate((3, 10, 12, 8, 0, 1), 0, 1, 6)


@pytest.mark.parametrize("session", ["", "run", "s" * 1_000, "\ud800"])
@pytest.mark.parametrize("digest_bytes", [0, 16, CLAIM_DIGEST_BYTES_MAX, CLAIM_DIGEST_BYTES_MAX + 1])
@pytest.mark.parametrize("managed", [False, True])
def test_texts_of_a_claim_that_is_surely_the_next_need_no_look(session: str, digest_bytes: int, managed: bool) -> None:
    """Runs ask `is_next` alone."""
    row = Producer(0, SequenceMode.REQUESTS, 4, 1, (Written(4, 4, b"", 0, 1),))
    claim = ProducerClaim("http:p", 0, 5, 5, SequenceMode.REQUESTS, bytes(digest_bytes), managed, session)
    assert not is_next(row, claim) or known_claim_refused(claim) is None
    assert is_next(row, claim.replaced(digest=b"", session="", managed=False)), "the rest of it is"


@pytest.mark.parametrize(
    "flat",
    [
        (1,),
        (1, 1, b"", 0),
        (1, 1, b"", 0, 1, 2),
        (1, 1, 5, 0, 1),
        (1, b"", b"", 0, 1),
        (1, 1, b"", b"", 1),
        (1, 1, b"", 0, 1) * 6,
    ],
)
def test_row_with_half_a_batch_is_damage(flat: tuple[object, ...]) -> None:
    row = msgspec.msgpack.encode([0, 1, 1, 5, flat, "", b"", 1, []])
    with pytest.raises(msgspec.ValidationError):
        decode_row(Table.PRODUCER, row)


def test_row_with_a_text_that_is_none_is_damage() -> None:
    with pytest.raises(msgspec.DecodeError, match="UTF-8"):
        decode_row(Table.PRODUCER, b"\x99\x00\x01\x01\x05\x90\xa1\xff\xc4\x00\x01\x90")


def bare(sequence: int, digest: bytes, *, waited: bool = False) -> ProducerClaim:
    """A request of the X- dialect that names neither session nor epoch."""
    return claim_of(REQUESTS, NOT_TOLD, sequence, managed=True, digest=digest, start_any=waited or sequence > 4)


def test_first_sequences_of_a_run_without_a_name_wait_for_its_sequence_0() -> None:
    """Seed 003: five in flight on several connections. 1 arrives before 0."""
    early = bare(1, RED)
    assert judge(None, early) == Gap(0, 1)
    assert waits_for_zero(early)
    assert is_early(0, 1)
    assert judge(None, having_waited(early)) == Accept(1, True), "nobody has sent a 0: it begins here"
    assert not waits_for_zero(having_waited(early))
    row = advance(None, bare(0, BLUE), 1, 0, 1, 0)
    assert judge(row, early) == Accept(1, False)


@pytest.mark.parametrize("count", [5, 9])
def test_another_run_without_a_name_is_told_by_its_content_and_never_taken_for_a_duplicate(count: int) -> None:
    """Whether its batches are among the last five or not."""
    row: Producer | None = None
    for sequence in range(count):
        row = advance(row, bare(sequence, RED), 1, sequence, sequence + 1, sequence)
    assert row is not None
    for sequence in range(1, 5):
        assert type(judge(row, bare(sequence, RED))) is Duplicate, "a retry"
        other = bare(sequence, BLUE)
        assert judge(row, other) == Gap(0, sequence)
        assert judge(row, having_waited(other)) == Conflict(sequence, RED, BLUE)
    row = advance(row, bare(0, BLUE), 2, 100, 101, 100)
    assert judge(row, bare(1, BLUE)) == Accept(2, False)
    assert row.early_digests == (), "each epoch has its own"


def test_sequence_that_its_epoch_never_wrote_is_no_duplicate() -> None:
    """The epoch began at 3, as nobody had sent a 0."""
    row = advance(None, bare(3, RED, waited=True), 1, 0, 1, 0)
    assert row.early_digests == (b"", b"", RED)
    assert judge(row, bare(3, RED)) == Duplicate(0, 1, 1, 3)
    assert judge(row, bare(2, RED)) == Gap(0, 2)
    assert judge(row, bare(2, RED, waited=True)) == Conflict(2, b"", RED)


def test_who_names_a_run_or_an_epoch_does_not_wait() -> None:
    assert not waits_for_zero(claim_of(REQUESTS, NOT_TOLD, 1, managed=True, session="mine"))
    assert not waits_for_zero(claim_of(REQUESTS, 1, 1, managed=True, digest=RED))
    assert not waits_for_zero(claim_of(REQUESTS, NOT_TOLD, 5, managed=True, digest=RED))
    assert not waits_for_zero(claim_of(REQUESTS, 0, 1, digest=RED))
