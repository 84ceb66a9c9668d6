"""Producer sequences: is this claim new, a duplicate, or to be refused?

Owns the rule of P2 and P5 for claims by sequence, for all faces: one table, `TABLE`, from (dialect, situation) to the
kind of verdict. `judge` reads and never changes anything; `advance` is the only function here that changes a
`Producer`, and only `apply` calls it. Both use their arguments alone, so replaying an entry gives the same row.

Four dialects share the table. RECORDS follows Kafka's broker; REQUESTS is
the durable-streams protocol; MANAGED is REQUESTS with epochs owned by the server (the X- headers);
RISING takes any higher sequence, so that a file line or a database position can be the sequence.

Invariants of a row: the epoch never falls, `last` never falls within an epoch except by Kafka's wrap, the remembered
batches all belong to the current epoch, and one mode holds for a whole epoch.

What ends the promise: a row is forgotten after the dedupe floor. In MANAGED, a client run that was displaced before it
learned its epoch is fenced when it sends its sequence 0 again, because the sessions of the last few displaced runs are
kept; one that was displaced by more runs than are kept, or that names no session, looks like one more restart. A client
that names neither session nor epoch is told from an earlier run by content alone: the digests of the first five batches
of an epoch are kept for it.
"""

from enum import IntEnum
from typing import Final, assert_never

from oncelog.core.flat import Producer, ProducerClaim, Written
from oncelog.core.state import NO_STREAM
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
    Place,
    Verdict,
)
from oncelog.limits import (
    CLAIM_DIGEST_BYTES_MAX,
    EARLY_AHEAD_MAX,
    KAFKA_FENCE_EPOCH_MAX,
    KAFKA_SEQUENCE_MAX,
    PRODUCER_BATCHES_REMEMBERED,
    PRODUCER_SESSIONS_DISPLACED,
    SEQUENCE_MAX,
)

NOT_TOLD: Final = -1
"""`ProducerClaim.epoch` of a managed claim whose client named no epoch."""

EARLY_SEQUENCE_MAX: Final = PRODUCER_BATCHES_REMEMBERED - 1
"""Sequences 1 to this may be in flight together with the sequence 0 of their run."""

MANAGED_EPOCH_FIRST: Final = 1
"""The X- dialect numbers epochs from 1."""


class SequenceMode(IntEnum):
    """What a sequence counts. Fixed for a whole epoch."""

    RECORDS = 0
    """Kafka: counts records, 32 bits, wraps to 0; a retry must name exactly one of the remembered batches."""
    REQUESTS = 1
    """durable-streams: one per request, 53 bits, no gaps."""
    RISING = 2
    """Gap-tolerant, 53 bits: higher is new, lower or equal is a duplicate."""


ACCEPT_BY_EPOCH: Final = tuple(Accept(epoch, False) for epoch in range(64))
"""The common verdict, the next sequence of the current epoch, made once per small epoch. Shared: never change one."""


class Dialect(IntEnum):
    """Whose rules. The first three have the numbers of `SequenceMode`."""

    RECORDS = 0
    REQUESTS = 1
    RISING = 2
    MANAGED = 3


class Situation(IntEnum):
    """How a sound claim stands to the row, before any rule is applied. Exactly one holds."""

    UNKNOWN_AT_ZERO = 0  # no row, the claim starts at 0
    UNKNOWN_LATER = 1  # no row, it starts elsewhere
    UNKNOWN_ANYWHERE = 2  # no row, it starts elsewhere and says that it may
    UNKNOWN_TOLD = 3  # no row, yet the client names a server-owned epoch
    EPOCH_BELOW = 4
    EPOCH_ABOVE_AT_ZERO = 5
    EPOCH_ABOVE_LATER = 6
    RESTART = 7  # managed: another run of the client begins at 0
    STRAY = 8  # managed: a session that was displaced, or that names the epoch of another
    # All below: the current epoch.
    OTHER_MODE = 9
    REMEMBERED = 10  # exactly one of the remembered batches, content equal or not compared
    REMEMBERED_OTHER_CONTENT = 11
    OLD = 12  # wholly at or below last, but not a remembered batch
    ACROSS = 13  # begins at or below last, ends above
    NEXT = 14
    AHEAD = 15
    OUT_OF_ORDER = 16  # RECORDS, neither remembered nor next: on a circle old and ahead cannot be told apart
    RESTART_LATER = 17  # managed: another session, not displaced, in mid-sequence: its 0 may be on its way
    OTHER_RUN_MAYBE = 18  # managed: no run named, one of the first sequences, other content; it has not waited for a 0
    OLD_OTHER_CONTENT = 19  # managed: the same once it has waited, and of a batch that is not among the last five


class Kind(IntEnum):
    """What the table answers; each becomes one verdict type with its numbers."""

    ACCEPT = 0
    ACCEPT_NEW_EPOCH = 1
    DUPLICATE = 2
    GAP = 3
    FENCED = 4
    CONFLICT = 5
    EPOCH_MUST_START_AT_ZERO = 6
    EPOCH_AHEAD = 7
    MODE_MISMATCH = 8
    OVERLAP = 9


_RECORDS, _REQUESTS, _RISING, _MANAGED = Dialect.RECORDS, Dialect.REQUESTS, Dialect.RISING, Dialect.MANAGED

TABLE: Final[dict[tuple[Dialect, Situation], Kind]] = {
    # Kafka lets an unknown producer start anywhere (KIP-360), does not compare content, and knows one refusal for
    # everything out of order, a new epoch that does not start at 0 included.
    (_RECORDS, Situation.UNKNOWN_AT_ZERO): Kind.ACCEPT_NEW_EPOCH,
    (_RECORDS, Situation.UNKNOWN_LATER): Kind.ACCEPT_NEW_EPOCH,
    (_RECORDS, Situation.UNKNOWN_ANYWHERE): Kind.ACCEPT_NEW_EPOCH,
    (_RECORDS, Situation.EPOCH_BELOW): Kind.FENCED,
    (_RECORDS, Situation.EPOCH_ABOVE_AT_ZERO): Kind.ACCEPT_NEW_EPOCH,
    (_RECORDS, Situation.EPOCH_ABOVE_LATER): Kind.GAP,
    (_RECORDS, Situation.OTHER_MODE): Kind.MODE_MISMATCH,
    (_RECORDS, Situation.REMEMBERED): Kind.DUPLICATE,
    (_RECORDS, Situation.REMEMBERED_OTHER_CONTENT): Kind.DUPLICATE,
    (_RECORDS, Situation.NEXT): Kind.ACCEPT,
    (_RECORDS, Situation.OUT_OF_ORDER): Kind.GAP,
    # durable-streams: the client declares epochs, every epoch starts at 0, a lower sequence is always a duplicate.
    (_REQUESTS, Situation.UNKNOWN_AT_ZERO): Kind.ACCEPT_NEW_EPOCH,
    (_REQUESTS, Situation.UNKNOWN_LATER): Kind.GAP,
    (_REQUESTS, Situation.UNKNOWN_ANYWHERE): Kind.ACCEPT_NEW_EPOCH,
    (_REQUESTS, Situation.EPOCH_BELOW): Kind.FENCED,
    (_REQUESTS, Situation.EPOCH_ABOVE_AT_ZERO): Kind.ACCEPT_NEW_EPOCH,
    (_REQUESTS, Situation.EPOCH_ABOVE_LATER): Kind.EPOCH_MUST_START_AT_ZERO,
    (_REQUESTS, Situation.OTHER_MODE): Kind.MODE_MISMATCH,
    (_REQUESTS, Situation.REMEMBERED): Kind.DUPLICATE,
    (_REQUESTS, Situation.REMEMBERED_OTHER_CONTENT): Kind.CONFLICT,
    (_REQUESTS, Situation.OLD): Kind.DUPLICATE,
    (_REQUESTS, Situation.ACROSS): Kind.OVERLAP,
    (_REQUESTS, Situation.NEXT): Kind.ACCEPT,
    (_REQUESTS, Situation.AHEAD): Kind.GAP,
    # RISING differs from REQUESTS in one thing: there are no gaps, neither at the start nor in between.
    (_RISING, Situation.UNKNOWN_AT_ZERO): Kind.ACCEPT_NEW_EPOCH,
    (_RISING, Situation.UNKNOWN_LATER): Kind.ACCEPT_NEW_EPOCH,
    (_RISING, Situation.UNKNOWN_ANYWHERE): Kind.ACCEPT_NEW_EPOCH,
    (_RISING, Situation.EPOCH_BELOW): Kind.FENCED,
    (_RISING, Situation.EPOCH_ABOVE_AT_ZERO): Kind.ACCEPT_NEW_EPOCH,
    (_RISING, Situation.EPOCH_ABOVE_LATER): Kind.ACCEPT_NEW_EPOCH,
    (_RISING, Situation.OTHER_MODE): Kind.MODE_MISMATCH,
    (_RISING, Situation.REMEMBERED): Kind.DUPLICATE,
    (_RISING, Situation.REMEMBERED_OTHER_CONTENT): Kind.CONFLICT,
    (_RISING, Situation.OLD): Kind.DUPLICATE,
    (_RISING, Situation.ACROSS): Kind.OVERLAP,
    (_RISING, Situation.NEXT): Kind.ACCEPT,
    (_RISING, Situation.AHEAD): Kind.ACCEPT,
    # The server owns the epochs: a client can fall behind them but never run ahead. Who names a session begins at 0, or
    # a 0 that comes second, because it was overtaken or refused, would be taken for an old one and be lost; who names
    # none may begin anywhere. A displaced session is fenced rather than told "expected 0": if it obeyed such a gap by
    # starting over, it would displace its successor.
    (_MANAGED, Situation.UNKNOWN_AT_ZERO): Kind.ACCEPT_NEW_EPOCH,
    (_MANAGED, Situation.UNKNOWN_LATER): Kind.GAP,
    (_MANAGED, Situation.UNKNOWN_ANYWHERE): Kind.ACCEPT_NEW_EPOCH,
    (_MANAGED, Situation.UNKNOWN_TOLD): Kind.EPOCH_AHEAD,
    (_MANAGED, Situation.EPOCH_BELOW): Kind.FENCED,
    (_MANAGED, Situation.EPOCH_ABOVE_AT_ZERO): Kind.EPOCH_AHEAD,
    (_MANAGED, Situation.EPOCH_ABOVE_LATER): Kind.EPOCH_AHEAD,
    (_MANAGED, Situation.RESTART): Kind.ACCEPT_NEW_EPOCH,
    (_MANAGED, Situation.RESTART_LATER): Kind.GAP,
    # Who names no run may be a new one whose 0 is on its way: so it waits for it. What differs then is refused; to call
    # it a duplicate would lose it.
    (_MANAGED, Situation.OTHER_RUN_MAYBE): Kind.GAP,
    (_MANAGED, Situation.OLD_OTHER_CONTENT): Kind.CONFLICT,
    (_MANAGED, Situation.STRAY): Kind.FENCED,
    (_MANAGED, Situation.OTHER_MODE): Kind.MODE_MISMATCH,
    (_MANAGED, Situation.REMEMBERED): Kind.DUPLICATE,
    (_MANAGED, Situation.REMEMBERED_OTHER_CONTENT): Kind.CONFLICT,
    (_MANAGED, Situation.OLD): Kind.DUPLICATE,
    (_MANAGED, Situation.ACROSS): Kind.OVERLAP,
    (_MANAGED, Situation.NEXT): Kind.ACCEPT,
    (_MANAGED, Situation.AHEAD): Kind.GAP,
}
"""The rule. A pair that is missing cannot occur; a test reaches every pair that is here and no other."""


# CPython 3.11 takes 0.1 µs to fetch an enum member from its class; the names that every accepted claim passes are
# fetched once.
_MODE_RECORDS: Final = SequenceMode.RECORDS
_MODE_REQUESTS: Final = SequenceMode.REQUESTS
_MODE_RISING: Final = SequenceMode.RISING
_DIALECT_OF_MODE: Final = (_RECORDS, _REQUESTS, _RISING)
_NEXT: Final = Situation.NEXT
_AHEAD: Final = Situation.AHEAD


def is_next(producer: Producer, claim: ProducerClaim) -> bool:
    """Whether the claim is surely the next sequence of the current epoch, as nearly all are, without walking the table,
    and its texts need no look (`names.known_claim_refused`). The smaller of the two sequence bounds keeps this sound
    for every mode, and what it does not catch goes the long way to the same answer."""
    return (
        claim.first == producer.last + 1
        and claim.epoch == producer.epoch
        and claim.mode == producer.mode
        and claim.first <= claim.last <= KAFKA_SEQUENCE_MAX
        and not claim.managed
        and not claim.session
        and len(claim.digest) <= CLAIM_DIGEST_BYTES_MAX
    )


def judge(producer: Producer | None, claim: ProducerClaim) -> Verdict:
    """The verdict on a claim against the row, or against no row. Changes neither."""
    if producer is not None and is_next(producer, claim):
        epoch = producer.epoch
        return ACCEPT_BY_EPOCH[epoch] if epoch < len(ACCEPT_BY_EPOCH) else Accept(epoch, False)
    flaw = find_flaw(claim)
    if flaw is not None:
        return flaw
    situation = classify(producer, claim)
    kind = TABLE[dialect_of(claim), situation]
    return _verdict(kind, situation, producer, claim)


def advance(
    producer: Producer | None, claim: ProducerClaim, epoch: int, first_offset: int, next_offset: int, now_ns: int
) -> Producer:
    """The row after an accepted claim whose records went to the row's own stream; may be the same object. Only `apply`
    calls this, with the entry's numbers.

    `epoch` is `Accept.epoch`, which for a managed claim differs from `claim.epoch`.
    """
    written = Written(claim.first, claim.last, claim.digest, first_offset, next_offset)
    return remember(producer, claim, epoch, written, now_ns)


def remember(producer: Producer | None, claim: ProducerClaim, epoch: int, written: Written, now_ns: int) -> Producer:
    """The row after an accepted claim, as `advance`, wherever its records went."""
    if producer is None or epoch != producer.epoch:
        assert producer is None or epoch > producer.epoch
        # Batches of the epoch before are dropped: a sequence means something only within its epoch.
        return Producer(
            epoch=epoch,
            mode=claim.mode,
            last=claim.last,
            used_ns=now_ns,
            batches=(written,),
            session=claim.session,
            epoch_first_digest=claim.digest if claim.first == 0 else b"",
            epoch_batch_count=1,
            displaced=_displaced(producer, claim.session),
            early_digests=_with_early_digest((), claim),
        )
    if producer.newest is None:
        # The first write of an epoch that was only a fence so far.
        producer.mode = claim.mode
        producer.session = claim.session
        producer.epoch_first_digest = claim.digest if claim.first == 0 else b""
    producer.early_digests = _with_early_digest(producer.early_digests, claim)
    producer.remember(written)
    producer.last = claim.last
    producer.used_ns = now_ns
    producer.epoch_batch_count += 1
    return producer


def written_elsewhere(stream_id: int, claim: ProducerClaim, outcome: list[int]) -> Written:
    """What a producer's row remembers of a claim that stored nothing itself. A row of a stream keeps its own places as
    two numbers; what a commit did, or what lies in another stream, is kept whole with its stream ids."""
    if stream_id != NO_STREAM and outcome[0] == stream_id:
        return Written(claim.first, claim.last, claim.digest, outcome[1], outcome[2])
    return Written(claim.first, claim.last, claim.digest, 0, 0, tuple(outcome))


def _displaced(producer: Producer | None, session: str) -> tuple[str, ...]:
    """The sessions to keep once `session` holds the epoch."""
    if producer is None or not producer.session or producer.session == session:
        return () if producer is None else producer.displaced
    return (*producer.displaced, producer.session)[-PRODUCER_SESSIONS_DISPLACED:]


def _with_early_digest(digests: tuple[bytes, ...], claim: ProducerClaim) -> tuple[bytes, ...]:
    """The digests of sequences 1 to EARLY_SEQUENCE_MAX of an epoch after this claim; empty where there was none."""
    place = claim.first - 1
    if not claim.managed or claim.first != claim.last or not len(digests) <= place < EARLY_SEQUENCE_MAX:
        return digests
    return digests + (b"",) * (place - len(digests)) + (claim.digest,)


def is_early(expected: int, received: int) -> bool:
    """Whether a claim that was refused for a gap may only have come before others that are on their way."""
    return 0 < received - expected <= EARLY_AHEAD_MAX


def waits_for_zero(claim: ProducerClaim) -> bool:
    """Whether a claim is to be decided once more, for good, after it has waited for a sequence 0 of its run: one of the
    first sequences of a managed client that names neither session nor epoch."""
    return _is_bare_early(claim) and not claim.start_any


def having_waited(claim: ProducerClaim) -> ProducerClaim:
    """The same claim once no sequence 0 has come."""
    return claim.replaced(start_any=True) if _is_bare_early(claim) else claim


def _is_bare_early(claim: ProducerClaim) -> bool:
    return (
        claim.managed
        and not claim.session
        and claim.epoch == NOT_TOLD
        and 1 <= claim.first == claim.last <= EARLY_SEQUENCE_MAX
    )


def find_flaw(claim: ProducerClaim) -> BadClaim | None:
    """What is wrong with the claim on its own, if anything."""
    mode = claim.mode
    if not _MODE_RECORDS <= mode <= _MODE_RISING:
        return BadClaim("mode unknown", mode)
    records = mode == _MODE_RECORDS
    epoch_max = KAFKA_FENCE_EPOCH_MAX if records else SEQUENCE_MAX
    sequence_max = KAFKA_SEQUENCE_MAX if records else SEQUENCE_MAX
    if claim.managed:
        if mode != _MODE_REQUESTS:
            return BadClaim("managed epochs go with counted requests only", mode)
        if not (claim.epoch == NOT_TOLD or MANAGED_EPOCH_FIRST <= claim.epoch <= epoch_max):
            return BadClaim("epoch out of range", claim.epoch)
        if not claim.session and not claim.digest:
            # Nothing would tell a retried sequence 0 from a restart.
            return BadClaim("managed claim without session and digest", claim.first)
    elif not 0 <= claim.epoch <= epoch_max:
        return BadClaim("epoch out of range", claim.epoch)
    if not 0 <= claim.first <= sequence_max:
        return BadClaim("first sequence out of range", claim.first)
    if not 0 <= claim.last <= sequence_max:
        return BadClaim("last sequence out of range", claim.last)
    if claim.last < claim.first and not records:
        return BadClaim("last sequence before first", claim.last)
    return None


def dialect_of(claim: ProducerClaim) -> Dialect:
    """Whose rules a sound claim is judged by."""
    return _MANAGED if claim.managed else _DIALECT_OF_MODE[claim.mode]


def classify(producer: Producer | None, claim: ProducerClaim) -> Situation:
    """The one situation that a sound claim is in."""
    if producer is None:
        if claim.managed and claim.epoch != NOT_TOLD:
            return Situation.UNKNOWN_TOLD
        if claim.first == 0:
            return Situation.UNKNOWN_AT_ZERO
        return Situation.UNKNOWN_ANYWHERE if claim.start_any else Situation.UNKNOWN_LATER
    if claim.epoch > producer.epoch:
        return Situation.EPOCH_ABOVE_AT_ZERO if claim.first == 0 else Situation.EPOCH_ABOVE_LATER
    if claim.managed:
        if not _is_same_run(producer, claim):
            if NOT_TOLD < claim.epoch < producer.epoch:
                return Situation.EPOCH_BELOW
            if _is_displaced(producer, claim):
                return Situation.STRAY
            if claim.first == 0:
                return Situation.RESTART
            # The epoch was given to another session: who names both has not got it from us.
            return Situation.RESTART_LATER if claim.epoch == NOT_TOLD else Situation.STRAY
        if NOT_TOLD < claim.epoch < producer.epoch and not _is_retried_restart(producer, claim):
            return Situation.EPOCH_BELOW
    elif claim.epoch < producer.epoch:
        return Situation.EPOCH_BELOW
    if claim.mode != producer.mode and producer.newest is not None:
        return Situation.OTHER_MODE
    situation = _classify_sequence(producer, claim)
    if claim.managed and _is_bare_early(claim) and _has_other_content(producer, claim, situation):
        if not claim.start_any:
            return Situation.OTHER_RUN_MAYBE
        return Situation.OLD_OTHER_CONTENT if situation is Situation.OLD else situation
    return situation


def _has_other_content(producer: Producer, claim: ProducerClaim, situation: Situation) -> bool:
    """Whether this sequence was written in the current epoch with content that is not the claim's, as far as the epoch
    remembers it. A sequence that the epoch never wrote, since it began behind it, counts as other content."""
    if situation is Situation.OLD:
        return claim.digest != _early_digest(producer, claim.first)
    return situation is Situation.REMEMBERED_OTHER_CONTENT


def _early_digest(producer: Producer, sequence: int) -> bytes:
    return producer.early_digests[sequence - 1] if sequence <= len(producer.early_digests) else b""


def _is_same_run(producer: Producer, claim: ProducerClaim) -> bool:
    """Whether a managed claim comes from the client run that holds the current epoch, as far as one can tell."""
    if claim.session:
        return claim.session == producer.session
    if claim.first != 0:
        return True
    # Without a session only content can tell a retried sequence 0 from a restart, and a client that has gone on for
    # more than five batches is not still waiting for its first answer.
    followers = producer.epoch_batch_count - 1
    return claim.digest == producer.epoch_first_digest and followers <= PRODUCER_BATCHES_REMEMBERED


def _is_displaced(producer: Producer, claim: ProducerClaim) -> bool:
    """Whether a claim comes from a run that held an earlier epoch."""
    return claim.session != "" and claim.session in producer.displaced


def _is_retried_restart(producer: Producer, claim: ProducerClaim) -> bool:
    """Whether a claim of the run that holds the epoch names the epoch before it, because it never saw the answer.

    1. The run knows epoch 4 and starts over at sequence 0, naming 4: accepted as epoch 5. 2. The answer is lost.
    3. It sends the same request again, still naming 4. That is a duplicate, not a fenced claim (P2). Sequence 0 was
    written in this epoch, so what follows can only be a duplicate or a refusal: P5 is safe.
    """
    return claim.first == 0 and claim.epoch == producer.epoch - 1 and producer.last >= 0


def _classify_sequence(producer: Producer, claim: ProducerClaim) -> Situation:
    """Where the claim stands within the current epoch. Remembered batches come first, as in Kafka."""
    written = _find_remembered(producer, claim)
    if written is not None:
        if claim.digest and written.digest and claim.digest != written.digest:
            return Situation.REMEMBERED_OTHER_CONTENT
        return Situation.REMEMBERED
    if claim.mode == _MODE_RECORDS:
        return _NEXT if claim.first == _following(producer, claim.mode) else Situation.OUT_OF_ORDER
    if claim.last <= producer.last:
        return Situation.OLD
    if claim.first <= producer.last:
        return Situation.ACROSS
    return _NEXT if claim.first == producer.last + 1 else _AHEAD


def _find_remembered(producer: Producer, claim: ProducerClaim) -> Written | None:
    """The batch with exactly the claimed range."""
    for written in producer.batches:
        if written.first == claim.first and written.last == claim.last:
            return written
    return None


def _following(producer: Producer, mode: int) -> int:
    """The sequence after `last`; Kafka's wraps."""
    return 0 if mode == _MODE_RECORDS and producer.last == KAFKA_SEQUENCE_MAX else producer.last + 1


def _verdict(kind: Kind, situation: Situation, producer: Producer | None, claim: ProducerClaim) -> Verdict:
    """The kind with its numbers."""
    if producer is None:
        if kind is Kind.ACCEPT_NEW_EPOCH:
            return Accept(MANAGED_EPOCH_FIRST if claim.managed else claim.epoch, True)
        if kind is Kind.EPOCH_AHEAD:
            return EpochAhead(MANAGED_EPOCH_FIRST - 1, claim.epoch)
        assert kind is Kind.GAP
        return Gap(0, claim.first)
    match kind:
        case Kind.ACCEPT:
            return Accept(producer.epoch, False)
        case Kind.ACCEPT_NEW_EPOCH:
            return Accept(producer.epoch + 1 if situation is Situation.RESTART else claim.epoch, True)
        case Kind.DUPLICATE:
            written = _find_remembered(producer, claim)
            if written is None:
                return Duplicate(OFFSET_UNKNOWN, OFFSET_UNKNOWN, producer.epoch, producer.last)
            place: Place = written.first_offset if written.outcome is None else written.outcome
            return Duplicate(place, written.next_offset, producer.epoch, producer.last)
        case Kind.GAP:
            new_epoch = situation in (
                Situation.EPOCH_ABOVE_LATER,
                Situation.RESTART_LATER,
                Situation.OTHER_RUN_MAYBE,
            )
            return Gap(0 if new_epoch else _following(producer, claim.mode), claim.first)
        case Kind.FENCED:
            return Fenced(producer.epoch, claim.epoch)
        case Kind.CONFLICT:
            written = _find_remembered(producer, claim)
            digest = _early_digest(producer, claim.first) if written is None else written.digest
            return Conflict(claim.first, digest, claim.digest)
        case Kind.EPOCH_MUST_START_AT_ZERO:
            return EpochMustStartAtZero(claim.epoch, claim.first)
        case Kind.EPOCH_AHEAD:
            return EpochAhead(producer.epoch, claim.epoch)
        case Kind.MODE_MISMATCH:
            return ModeMismatch(producer.mode, claim.mode)
        case Kind.OVERLAP:
            return Overlap(producer.last, claim.first, claim.last)
    assert_never(kind)
