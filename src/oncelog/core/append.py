"""Appends to one stream: the rules, for a batch that came ready and for every value of `columns`.

Order of checks: duplicates first, then conditions, then the rest, so that a retry of a success is
always a success, also on a closed stream. A message id is asked before a producer's sequence: the id is what meets
across faces. When an id is known but the sequence is new, the sequence is used up all the same (`Claimed`), or the
producer's next one would look like a gap.

A write inside a txn carries no message id, no order key and closes nothing: these take effect at once and could not be
taken back by an abort; the retry of an aborted record would be answered as a duplicate, and lost.
"""

from collections.abc import Callable, Sequence
from typing import Final

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core import message_id, names
from oncelog.core.command import Append
from oncelog.core.content_type import is_json, is_same_type, values_refused
from oncelog.core.entry import (
    CLOSES,
    PACKED_ID,
    RENEWS,
    TRANSACTIONAL,
    Appended,
    Claimed,
    Compound,
    Entry,
    IdsUsed,
    Operation,
)
from oncelog.core.fact_columns import holds_facts
from oncelog.core.flat import Producer, ProducerClaim, Stream
from oncelog.core.memory import known_producer, use_counts
from oncelog.core.message_id import id_hash
from oncelog.core.outcome import (
    BatchRefused,
    ClaimInvalid,
    Confirmed,
    ContentTypeMismatch,
    EnvelopeInvalid,
    IdConflict,
    OrderKeyNotRising,
    Outcome,
    Refusal,
    StreamClosedRefusal,
    SubjectMismatch,
    SubjectsBehind,
    TailMismatch,
    TooLarge,
    TopicMissing,
    TxnRefused,
)
from oncelog.core.producer import judge
from oncelog.core.refuse import refusal_of, refusal_of_txn
from oncelog.core.seen import Seen
from oncelog.core.state import State
from oncelog.core.subjects import is_current, keys_in, mismatch, rows_of, too_many, written
from oncelog.core.txn import TxnEvent, TxnRefusal
from oncelog.core.txn import judge as judge_txn
from oncelog.core.verdict import Accept, Duplicate, EpochMustStartAtZero, Gap
from oncelog.errors import BatchInvalid

Decision = tuple[Entry | None, Outcome]

_KAFKA: Final = "kafka:"
_CONDITIONS: Final = (TailMismatch, OrderKeyNotRising, SubjectMismatch, SubjectsBehind)


class Unit:
    """What stands or falls as one: a ready batch, one value, or values that come together."""

    __slots__ = (
        "batch_bytes",
        "claim",
        "close",
        "content_type",
        "count",
        "digest",
        "expected_subjects",
        "expected_tail",
        "flaw",
        "id_hash",
        "message_id",
        "order_key",
        "record_bytes",
        "txn_id",
        "values",
    )

    def __init__(
        self,
        count: int,
        batch_bytes: int,
        values: Callable[[], Sequence[bytes | None]],
        digest: bytes,
        claim: ProducerClaim | None,
        message_id: bytes,
        id_hash: bytes,
        expected_tail: int,
        order_key: str,
        content_type: str,
        close: bool,
        txn_id: str = "",
        flaw: str = "",
        record_bytes: int = 0,
        expected_subjects: Sequence[tuple[str, int]] = (),
    ) -> None:
        self.count = count
        self.batch_bytes = batch_bytes
        self.values = values
        """Asked only if somebody has to look at them."""
        self.digest = digest
        self.claim = claim
        self.message_id = message_id
        self.id_hash = id_hash
        self.expected_tail = expected_tail
        self.order_key = order_key
        self.content_type = content_type
        self.close = close
        self.txn_id = txn_id
        self.flaw = flaw
        """What is wrong with its records themselves."""
        self.record_bytes = record_bytes
        """Its largest record, or all of a ready batch."""
        self.expected_subjects = expected_subjects


class Judged:
    """What comes of a unit: it is appended under this epoch and with these flags, or it has an answer already."""

    __slots__ = ("answer", "epoch", "flags", "operations")

    def __init__(
        self, answer: Outcome | None, epoch: int = -1, flags: int = 0, operations: list[Operation] | None = None
    ) -> None:
        self.answer = answer
        self.epoch = epoch
        self.flags = flags
        self.operations: list[Operation] = operations or []
        """What changes beside or instead of the append."""


def decide_append(state: State, command: Append, now_ns: int) -> Decision:
    """One ready batch to one stream."""
    topic = state.topics[command.topic]
    partition = command.partition
    if topic is None or not 0 <= partition < len(topic.stream_ids):
        return None, names.command_refused(command) or TopicMissing(command.topic, partition)
    stream = state.streams[topic.stream_ids[partition]]
    assert stream is not None, "a topic's streams are there"
    batch, count, claim, txn_id = command.batch, command.count, command.claim, command.txn_id
    unit = Unit(
        count,
        len(batch),
        lambda: codec.decode_values(batch),
        command.digest,
        claim,
        command.message_id,
        id_hash(stream, command.message_id) if command.message_id else b"",
        command.expected_tail,
        command.order_key,
        command.content_type,
        command.close,
        txn_id,
        record_bytes=len(batch),
    )
    judged = judge_unit(Seen(state, stream, now_ns), unit)
    if judged.answer is not None:
        return as_entry(judged.operations, now_ns), judged.answer
    appended = appended_unit(stream.stream_id, stream.tail, unit, batch, judged, now_ns)
    entry: Entry = appended
    sequence = -1 if claim is None else claim.last
    first = stream.tail
    closes = command.close
    if not txn_id and is_current(stream):
        try:
            rows = rows_of(keys_in(batch), first)
        except BatchInvalid as error:
            return None, BatchRefused(str(error))
        if (refusal := too_many(rows)) is not None:
            return None, refusal
        entry = Compound(now_ns, [appended, written(state, stream, rows, first + count)])
    answer = Confirmed(stream.stream_id, first, first + count, now_ns, False, False, judged.epoch, sequence, closes)
    return entry, answer


def appended_unit(stream_id: int, first: int, unit: Unit, batch: bytes, judged: Judged, now_ns: int) -> Appended:
    """The operation that appends a unit as a batch of its own."""
    flags = judged.flags | (CLOSES if unit.close else 0) | (TRANSACTIONAL if unit.txn_id else 0)
    ids = packed_id(unit.id_hash, unit.digest, 0, unit.count) if unit.id_hash else b""
    entry = Appended(stream_id, first, unit.count, batch, now_ns, flags, unit.claim, judged.epoch, ids)
    entry.order_key, entry.txn_id = unit.order_key, unit.txn_id
    return entry


def as_entry(operations: list[Operation], now_ns: int) -> Entry | None:
    """Operations as one entry; none is none."""
    if len(operations) == 1 and isinstance(operations[0], Appended):
        return operations[0]
    return Compound(now_ns, operations) if operations else None


def judge_unit(seen: Seen, unit: Unit) -> Judged:
    """The rules of an append, for whatever kind of unit. Duplicates come first. What an answer with operations changes
    is noted in `seen`; what is to be appended is the caller's to note."""
    stream, claim = seen.stream, unit.claim
    refusal: Refusal | None = None
    if claim is not None and not seen.knows(claim.name) and (refusal := names.claim_refused(claim)) is not None:
        return Judged(refusal)  # no table can hold such a name
    if unit.txn_id:
        if unit.message_id or unit.order_key or unit.close:
            return Judged(ClaimInvalid("a write inside a txn carries no message id, no order key and closes nothing"))
    elif unit.message_id:
        malformed = id_refused(unit.message_id, unit.digest)
        if malformed is not None:
            return Judged(malformed)
        value = seen.known_id(unit.id_hash)
        if value is not None:
            return _known_id_again(seen, unit, value)
    flags, epoch = 0, -1
    if claim is not None:
        producer, renews = seen.judged_against(claim)
        verdict = judge(producer, claim)
        flags = RENEWS if renews else 0
        if type(verdict) is Accept:
            epoch = verdict.epoch
            refusal = names.claim_refused(claim) if verdict.new_epoch else names.known_claim_refused(claim)
        elif type(verdict) is Duplicate:
            return _sequence_again(seen, unit, verdict)
        elif (again := _closed_again(stream, producer, unit, claim)) is not None:
            return Judged(again)
        else:
            refusal = refusal_of(verdict)  # type: ignore[arg-type]
    told = _stream_refuses(stream, unit)
    for subject, expected in unit.expected_subjects if told is None else ():
        told = told or mismatch(seen.state, seen.row, subject, expected, seen.subjects)
    # A request that came too early is told so, not that its condition fails: that is judged when it is its turn.
    if refusal is None or (told is not None and not isinstance(told, _CONDITIONS)):
        refusal = told or refusal
    if refusal is None and not unit.content_type and is_json(stream.config.content_type):
        refusal = values_refused(unit.values())
    if refusal is None and (unit.txn_id or stream.open_txns):
        refusal = _txn_refuses(seen.state, stream, unit, seen.now_ns)
    return Judged(refusal, epoch, flags)


def packed_id(id_hash: bytes, digest: bytes, number: int, count: int) -> bytes:
    """One id of `Appended.ids`: it names `count` records from the batch's record `number` on."""
    # A count out of bounds is refused a moment later; it must only not raise here.
    return PACKED_ID.pack(id_hash, digest, number, count & 0xFFFFFFFF)


def _stream_refuses(stream: Stream, unit: Unit) -> Refusal | None:
    """What the stream itself has against this unit."""
    if stream.closed:
        return StreamClosedRefusal(stream.stream_id, stream.tail)
    if unit.flaw:
        return EnvelopeInvalid(unit.flaw) if holds_facts(stream) else BatchRefused(unit.flaw)
    if 0 < stream.config.record_bytes_max < unit.record_bytes:
        return TooLarge("bytes of one record", stream.config.record_bytes_max, unit.record_bytes)
    if unit.content_type and not is_same_type(unit.content_type, stream.config.content_type):
        return ContentTypeMismatch(stream.config.content_type, unit.content_type)
    if unit.expected_tail >= 0 and unit.expected_tail != stream.tail:
        return TailMismatch(stream.stream_id, unit.expected_tail, stream.tail)
    if unit.order_key:
        if (refusal := names.order_key_refused(unit.order_key)) is not None:
            return refusal
        if unit.order_key <= stream.order_key:
            return OrderKeyNotRising(stream.order_key, unit.order_key)
    return size_refused(unit.batch_bytes, unit.count)


def append_refused(batch: bytes, count: int) -> Refusal | None:
    """Bounds that hold for every batch: alone, in a commit or in a stage."""
    return size_refused(len(batch), count)


def size_refused(batch_bytes: int, count: int) -> Refusal | None:
    """The same, of a batch of this size."""
    if batch_bytes > limits.BATCH_BYTES_MAX:
        return TooLarge("batch bytes", limits.BATCH_BYTES_MAX, batch_bytes)
    if count > limits.BATCH_RECORDS_MAX:
        return TooLarge("records of one batch", limits.BATCH_RECORDS_MAX, count)
    if count < 1 or batch_bytes < 1:
        return BatchRefused("a batch holds at least one record")
    return None


def id_refused(id_: bytes, digest: bytes) -> Refusal | None:
    """An id that could not be stored, whatever is known of it."""
    if len(id_) > limits.MESSAGE_ID_BYTES_MAX:
        return TooLarge("message id bytes", limits.MESSAGE_ID_BYTES_MAX, len(id_))
    if len(digest) != message_id.DIGEST_BYTES:
        return BatchRefused("a message id needs a digest of the content")
    return None


def _txn_refuses(state: State, stream: Stream, unit: Unit, now_ns: int) -> Refusal | None:
    """A txn batch must belong to an open txn that names this stream; any other must not come from an open txn."""
    claim = unit.claim
    if not unit.txn_id:
        if claim is not None and claim.name.startswith(_KAFKA):
            if any(claim.name == kafka_name(producer_id) for producer_id in stream.open_txns or ()):
                return TxnRefused(TxnRefusal.INVALID_STATE.name)
        return None
    txn = state.txns[unit.txn_id]
    if claim is None:
        return TxnRefused(TxnRefusal.MAPPING.name)
    producer_id = txn.producer_id if txn is not None and claim.name == kafka_name(txn.producer_id) else -1
    verdict = judge_txn(
        txn,
        TxnEvent.WRITE,
        producer_id=producer_id,
        epoch=claim.epoch,
        now_ns=now_ns,
        streams=(stream.stream_id,),
    )
    if (refusal := refusal_of_txn(verdict)) is not None:
        return refusal
    assert txn is not None
    here = txn.streams[stream.stream_id]
    if here and here[-1] == stream.tail:
        return None  # it only makes the last stretch longer
    ranges = sum(len(flat) // 2 for flat in txn.streams.values())
    if ranges >= limits.TXN_RANGES_MAX:
        return TooLarge("stretches in one txn", limits.TXN_RANGES_MAX, ranges + 1)
    return None


def kafka_name(producer_id: int) -> str:
    """The scoped name of a Kafka producer id."""
    return f"{_KAFKA}{producer_id}"


# --- duplicates ----------------------------------------------------------------------------------------------------


def _duplicate_of_sequence(stream: Stream, verdict: Duplicate) -> Confirmed:
    """The first outcome again. `gone` is known from the floor alone: sequences are about writing, not about records."""
    first, next_ = verdict.first_offset, verdict.next_offset
    stream_id = stream.stream_id
    if not isinstance(first, int):  # the sequence was used by a known message id, whose record lies elsewhere
        stream_id, first, next_ = first[:3]
    here = stream_id == stream.stream_id
    gone = here and 0 <= first < stream.floor
    closed = here and stream.closed and next_ == stream.tail
    return Confirmed(stream_id, first, next_, 0, True, gone, verdict.epoch, verdict.last, closed)


def _sequence_again(seen: Seen, unit: Unit, verdict: Duplicate) -> Judged:
    """A sequence that was written before. An id that comes with it, and that nobody knows, is used up all the same:
    its sender is told where it is stored, and may ask for it, or send it again without the sequence."""
    answer = _duplicate_of_sequence(seen.stream, verdict)
    count = answer.next - answer.first
    if not unit.id_hash or answer.first < 0 or not count:
        return Judged(answer)
    value = message_id.pack(unit.digest, answer.stream_id, answer.first, seen.now_ns, count)
    seen.used(unit.id_hash, value)
    return Judged(answer, operations=[IdsUsed(unit.id_hash, value)])


def _closed_again(stream: Stream, producer: Producer | None, unit: Unit, claim: ProducerClaim) -> Confirmed | None:
    """The closing append once more with other bytes: the durable-streams suite names this case and wants a duplicate.
    Nothing can be lost by it: the stream takes no bytes any more, and the answer says that it is closed."""
    if not (stream.closed and unit.close) or claim.managed or not claim.digest:
        return None
    verdict = judge(producer, claim.replaced(digest=b""))
    if not isinstance(verdict, Duplicate):
        return None
    answer = _duplicate_of_sequence(stream, verdict)
    return answer if answer.closed else None


def _known_id_again(seen: Seen, unit: Unit, value: bytes) -> Judged:
    stream, state = seen.stream, seen.state
    answer = seen.first_outcome(value, unit.digest)
    if isinstance(answer, IdConflict):
        return Judged(answer)
    operations: list[Operation] = []
    if answer.gone and use_counts(stream):
        operations.append(IdsUsed(unit.id_hash, value))
    claim = unit.claim
    if claim is not None and names.claim_refused(claim) is None:
        producer, renews = seen.judged_against(claim)
        verdict = judge(producer, claim)
        if isinstance(verdict, Accept):
            outcome = [answer.stream_id, answer.first, answer.next]
            answer.epoch, answer.sequence = verdict.epoch, claim.last
            operations.append(Claimed(stream.stream_id, claim, answer.epoch, outcome, renews))
            seen.claimed(claim, answer.epoch, outcome, renews)
        elif isinstance(verdict, Duplicate):
            answer.epoch, answer.sequence = verdict.epoch, verdict.last
        elif isinstance(verdict, Gap | EpochMustStartAtZero) and not renews and _is_there(state, answer.stream_id):
            # Had this very request succeeded before, its sequence would be known: it is early, and must be used up in
            # its turn, or the one behind it would be a gap for ever. Not so if it went to a stream that is deleted:
            # its producers are forgotten with it, while an id of a zone is not. (It may also be of a run that ended
            # since. If it does not say so itself, by session or epoch, nothing tells it from one that is early.)
            return Judged(refusal_of(verdict))
    if answer.gone and use_counts(stream):
        seen.used(unit.id_hash, value)
    return Judged(answer, operations=operations)


def _is_there(state: State, stream_id: int) -> bool:
    stream = state.streams[stream_id]
    return stream is not None and not stream.deleted_ns


def judged_against(
    state: State, stream: Stream | None, claim: ProducerClaim, now_ns: int
) -> tuple[Producer | None, bool]:
    """(the row to judge the claim against, whether an acceptance starts that row anew because it was forgotten). Of a
    command that changes nothing else of the stream; `stream` is None for the producer of commits."""
    producer = known_producer(state, stream, claim.name, now_ns)
    key = (0 if stream is None else stream.stream_id, claim.name)
    return producer, producer is None and state.producers[key] is not None
