"""Appends to one stream: the flat shape, and the records of one read that stand or fall alone.

Order of checks: duplicates first, then conditions, then the rest, so that a retry of a success is
always a success, also on a closed stream. A message id is asked before a producer's sequence: the id is what meets
across faces. When an id is known but the sequence is new, the sequence is used up all the same (`Claimed`), or the
producer's next one would look like a gap.

A write inside a txn carries no message id, no order key and closes nothing: these take effect at once and could not be
taken back by an abort; the retry of an aborted record would be answered as a duplicate, and lost.
"""

from typing import Final

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core import message_id, names
from oncelog.core.command import Append, AppendEach, AppendValue, EachRecord
from oncelog.core.content_type import ANY, batch_refused, is_json, is_same_type, json_flaw
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
from oncelog.core.flat import Producer, ProducerClaim, Stream
from oncelog.core.memory import is_gone, known_id, known_producer, living, surely_living, use_counts
from oncelog.core.outcome import (
    BatchRefused,
    ClaimInvalid,
    Confirmed,
    ContentTypeMismatch,
    EachConfirmed,
    IdConflict,
    OrderKeyNotRising,
    Outcome,
    Refusal,
    StreamClosedRefusal,
    TailMismatch,
    TooLarge,
    TopicMissing,
    TxnRefused,
)
from oncelog.core.producer import judge
from oncelog.core.refuse import refusal_of, refusal_of_txn
from oncelog.core.state import State
from oncelog.core.txn import TxnEvent, TxnRefusal
from oncelog.core.txn import judge as judge_txn
from oncelog.core.verdict import Accept, Duplicate, EpochMustStartAtZero, Gap

Decision = tuple[Entry | None, Outcome]

_BATCH_BYTES_MAX: Final = limits.BATCH_BYTES_MAX
_BATCH_RECORDS_MAX: Final = limits.BATCH_RECORDS_MAX
_KAFKA: Final = "kafka:"
_ANY: Final = ANY

EACH_RECORD_BYTES: Final = 96
"""What one record of an `AppendEach` may need beside its texts: its framing in the batch, and its id in the entry."""


def decide_append(state: State, command: Append, now_ns: int) -> Decision:
    """One batch to one stream. The hot path: every look-up and call counts here."""
    topic = state.topics[command.topic]
    partition = command.partition
    if topic is None or not 0 <= partition < len(topic.stream_ids):
        return None, names.command_refused(command) or TopicMissing(command.topic, partition)
    stream_id = topic.stream_ids[partition]
    stream = state.streams[stream_id]
    assert stream is not None, "a topic's streams are there"
    txn_id = command.txn_id
    ids = b""
    if command.message_id or txn_id:
        decision, ids = _named(state, stream, command, now_ns)
        if decision is not None:
            return decision
    claim = command.claim
    flags = 0
    epoch = sequence = -1
    refusal: Refusal | None = None
    if claim is not None:
        producer = row = state.producers[stream_id, claim.name]
        if row is not None and not surely_living(stream, row):
            producer = living(state, stream, row, now_ns)
            flags = RENEWS if producer is None else 0
        verdict = judge(producer, claim)
        if type(verdict) is Accept:
            epoch, sequence = verdict.epoch, claim.last
            refusal = names.claim_refused(claim) if verdict.new_epoch else names.known_claim_refused(claim)
        elif type(verdict) is Duplicate:
            return _sequence_again(stream, verdict, ids, command.digest, now_ns)
        elif (again := _closed_again(stream, producer, command, claim)) is not None:
            return None, again
        else:
            refusal = refusal_of(verdict)  # type: ignore[arg-type]
    count, batch, content_type, order_key = command.count, command.batch, command.content_type, command.order_key
    if (
        content_type
        or order_key
        or stream.closed
        or command.expected_tail >= 0
        or not 0 < count <= _BATCH_RECORDS_MAX
        or not 0 < len(batch) <= _BATCH_BYTES_MAX
    ):
        told = _stream_refuses(stream, command)
        # A request that came too early is told so, not that its condition fails: that is judged when it is its turn.
        if refusal is None or not isinstance(told, TailMismatch | OrderKeyNotRising):
            refusal = told or refusal
    if not content_type and stream.config.content_type != _ANY:
        refusal = refusal or batch_refused(stream.config.content_type, batch)
    if refusal is None and (txn_id or stream.open_txns):
        refusal = _txn_refuses(state, stream, command, now_ns)
    if refusal is not None:
        return None, refusal
    closes = command.close
    if closes:
        flags |= CLOSES
    if txn_id:
        flags |= TRANSACTIONAL
    first = stream.tail
    entry = Appended(stream_id, first, count, batch, now_ns, flags, claim, epoch, ids, order_key, txn_id)
    return entry, Confirmed(stream_id, first, first + count, now_ns, False, False, epoch, sequence, closes)


def decide_value(state: State, command: AppendValue, now_ns: int) -> Decision:
    """One record alone, as a batch of its own."""
    batch = codec.encode_one(command.value, now_ns // 1_000_000)
    digest, claim, id_ = command.digest, command.claim, command.message_id
    append = Append(command.topic, command.partition, batch, 1, digest, claim, id_, content_type=command.content_type)
    return decide_append(state, append, now_ns)


def _named(state: State, stream: Stream, command: Append, now_ns: int) -> tuple[Decision | None, bytes]:
    """An append with a message id or in a txn: (the decision, if there is one already; the id for the entry)."""
    if command.txn_id:
        if command.message_id or command.order_key or command.close:
            refusal = ClaimInvalid("a write inside a txn carries no message id, no order key and closes nothing")
            return (None, refusal), b""
        return None, b""
    malformed = id_refused(command.message_id, command.digest)
    if malformed is not None:
        return (None, malformed), b""
    id_hash = message_id.id_hash(stream, command.message_id)
    value = known_id(state, stream, id_hash, now_ns)
    if value is not None:
        return _known_id_again(state, stream, command, id_hash, value, now_ns), b""
    return None, packed_id(id_hash, command.digest, 0, command.count)


def packed_id(id_hash: bytes, digest: bytes, number: int, count: int) -> bytes:
    """One id of `Appended.ids`: it names `count` records from the batch's record `number` on."""
    # A count out of bounds is refused a moment later; it must only not raise here.
    return PACKED_ID.pack(id_hash, digest, number, count & 0xFFFFFFFF)


def _stream_refuses(stream: Stream, command: Append) -> Refusal | None:
    """What the stream itself has against this append."""
    if stream.closed:
        return StreamClosedRefusal(stream.stream_id, stream.tail)
    if command.content_type and not is_same_type(command.content_type, stream.config.content_type):
        return ContentTypeMismatch(stream.config.content_type, command.content_type)
    if command.expected_tail >= 0 and command.expected_tail != stream.tail:
        return TailMismatch(stream.stream_id, command.expected_tail, stream.tail)
    if command.order_key:
        if (refusal := names.order_key_refused(command.order_key)) is not None:
            return refusal
        if command.order_key <= stream.order_key:
            return OrderKeyNotRising(stream.order_key, command.order_key)
    return append_refused(command.batch, command.count)


def append_refused(batch: bytes, count: int) -> Refusal | None:
    """Bounds that hold for every batch: alone, in a commit or in a stage."""
    if len(batch) > limits.BATCH_BYTES_MAX:
        return TooLarge("batch bytes", limits.BATCH_BYTES_MAX, len(batch))
    if count > limits.BATCH_RECORDS_MAX:
        return TooLarge("records of one batch", limits.BATCH_RECORDS_MAX, count)
    if count < 1 or not batch:
        return BatchRefused("a batch holds at least one record")
    return None


def id_refused(id_: bytes, digest: bytes) -> Refusal | None:
    """An id that could not be stored, whatever is known of it."""
    if len(id_) > limits.MESSAGE_ID_BYTES_MAX:
        return TooLarge("message id bytes", limits.MESSAGE_ID_BYTES_MAX, len(id_))
    if len(digest) != message_id.DIGEST_BYTES:
        return BatchRefused("a message id needs a digest of the content")
    return None


def _txn_refuses(state: State, stream: Stream, command: Append, now_ns: int) -> Refusal | None:
    """A txn batch must belong to an open txn that names this stream; any other must not come from an open txn."""
    claim = command.claim
    if not command.txn_id:
        if claim is not None and claim.name.startswith(_KAFKA):
            if any(claim.name == kafka_name(producer_id) for producer_id in stream.open_txns or ()):
                return TxnRefused(TxnRefusal.INVALID_STATE.name)
        return None
    txn = state.txns[command.txn_id]
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


def duplicate_of_id(state: State, asked: Stream, value: bytes, digest: bytes) -> Confirmed | IdConflict:
    """The answer to a known id of `asked` or of its zone: its first outcome, or a conflict (P3)."""
    stored_digest, stream_id, offset, time_ms, count = message_id.unpack(value)
    if stored_digest != digest:
        return IdConflict(stream_id, offset, stored_digest, digest)
    gone = is_gone(state, stream_id, offset)
    closed = stream_id == asked.stream_id and asked.closed and offset + count == asked.tail
    return Confirmed(stream_id, offset, offset + count, time_ms * 1_000_000, True, gone, closed=closed)


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


def _sequence_again(stream: Stream, verdict: Duplicate, ids: bytes, digest: bytes, now_ns: int) -> Decision:
    """A sequence that was written before. An id that comes with it, and that nobody knows, is used up all the same:
    its sender is told where it is stored, and may ask for it, or send it again without the sequence."""
    answer = _duplicate_of_sequence(stream, verdict)
    count = answer.next - answer.first
    if not ids or answer.first < 0 or not count:
        return None, answer
    value = message_id.pack(digest, answer.stream_id, answer.first, now_ns, count)
    return Compound(now_ns, [IdsUsed(ids[:16], value)]), answer


def _closed_again(stream: Stream, producer: Producer | None, command: Append, claim: ProducerClaim) -> Confirmed | None:
    """The closing append once more with other bytes: the durable-streams suite names this case and wants a duplicate.
    Nothing can be lost by it: the stream takes no bytes any more, and the answer says that it is closed."""
    if not (stream.closed and command.close) or claim.managed or not claim.digest:
        return None
    verdict = judge(producer, claim.replaced(digest=b""))
    if not isinstance(verdict, Duplicate):
        return None
    answer = _duplicate_of_sequence(stream, verdict)
    return answer if answer.closed else None


def _known_id_again(
    state: State, stream: Stream, command: Append, id_hash: bytes, value: bytes, now_ns: int
) -> Decision:
    answer = duplicate_of_id(state, stream, value, command.digest)
    if isinstance(answer, IdConflict):
        return None, answer
    operations: list[Operation] = []
    if answer.gone and use_counts(stream):
        operations.append(IdsUsed(id_hash, value))
    claim = command.claim
    if claim is not None and names.claim_refused(claim) is None:
        producer, renews = judged_against(state, stream, claim, now_ns)
        verdict = judge(producer, claim)
        if isinstance(verdict, Accept):
            outcome = [answer.stream_id, answer.first, answer.next]
            answer.epoch, answer.sequence = verdict.epoch, claim.last
            operations.append(Claimed(stream.stream_id, claim, answer.epoch, outcome, renews))
        elif isinstance(verdict, Duplicate):
            answer.epoch, answer.sequence = verdict.epoch, verdict.last
        elif isinstance(verdict, Gap | EpochMustStartAtZero) and not renews and _is_there(state, answer.stream_id):
            # Had this very request succeeded before, its sequence would be known: it is early, and must be used up in
            # its turn, or the one behind it would be a gap for ever. Not so if it went to a stream that is deleted:
            # its producers are forgotten with it, while an id of a zone is not. (It may also be of a run that ended
            # since. If it does not say so itself, by session or epoch, nothing tells it from one that is early.)
            return None, refusal_of(verdict)
    return (Compound(now_ns, operations) if operations else None), answer


def _is_there(state: State, stream_id: int) -> bool:
    stream = state.streams[stream_id]
    return stream is not None and not stream.deleted_ns


def judged_against(
    state: State, stream: Stream | None, claim: ProducerClaim, now_ns: int
) -> tuple[Producer | None, bool]:
    """(the row to judge the claim against, whether an acceptance starts that row anew because it was forgotten)."""
    producer = known_producer(state, stream, claim.name, now_ns)
    key = (0 if stream is None else stream.stream_id, claim.name)
    return producer, producer is None and state.producers[key] is not None


# --- records that stand or fall alone ------------------------------------------------------------------------------


class _Each:
    """The records of one `AppendEach`, sorted into new ones, duplicates and refused ones."""

    __slots__ = ("bytes_", "ids", "in_batch", "now_ns", "records", "state", "stream", "used")

    def __init__(self, state: State, stream: Stream, now_ns: int) -> None:
        self.state = state
        self.stream = stream
        self.now_ns = now_ns
        self.records: list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = []
        self.ids: list[bytes] = []
        self.in_batch: dict[bytes, tuple[bytes, int]] = {}
        """Hash -> (digest, offset) of the new ids, so that the second of two in one read is a duplicate."""
        self.used: dict[bytes, bytes] = {}
        """Hash -> value of ids whose record is gone: their memory starts anew."""
        self.bytes_ = 0

    def take(self, record: EachRecord) -> Confirmed | Refusal:
        """The answer to one record; a new one joins the batch."""
        stream = self.stream
        id_hash = digest = b""
        if record.message_id:
            digest = message_id.values_digest([record.value])
            if (refusal := id_refused(record.message_id, digest)) is not None:
                return refusal
            id_hash = message_id.id_hash(stream, record.message_id)
            repeated = self._repeated(id_hash, digest)
            if repeated is not None:
                return repeated
        if stream.closed:
            return StreamClosedRefusal(stream.stream_id, stream.tail)
        if not -codec.TIMESTAMP_TAME_MAX < record.timestamp_ms < codec.TIMESTAMP_TAME_MAX:
            return BatchRefused("a timestamp is out of range")
        if any(names.text_bytes(name) < 0 for name, _ in record.headers):
            return BatchRefused("a header name is Unicode text")
        if is_json(stream.config.content_type) and record.value is not None:
            if (flaw := json_flaw(record.value)) is not None:
                return BatchRefused(f"the stream holds JSON, and the record is none: {flaw}")
        number = len(self.records)
        offset = stream.tail + number
        timestamp_ms = record.timestamp_ms or self.now_ns // 1_000_000
        self.records.append((number, timestamp_ms, record.key, record.value, record.headers))
        self.bytes_ += EACH_RECORD_BYTES + len(record.value or b"") + len(record.key or b"")
        for name, content in record.headers:
            self.bytes_ += 8 + len(name.encode()) + len(content or b"")
        if id_hash:
            self.in_batch[id_hash] = (digest, offset)
            self.ids.append(packed_id(id_hash, digest, number, 1))
        return Confirmed(stream.stream_id, offset, offset + 1, self.now_ns)

    def _repeated(self, id_hash: bytes, digest: bytes) -> Confirmed | IdConflict | None:
        """The answer if the id was seen before, in the log or earlier in the same read."""
        stream_id = self.stream.stream_id
        earlier = self.in_batch.get(id_hash)
        if earlier is not None:
            if earlier[0] != digest:
                return IdConflict(stream_id, earlier[1], earlier[0], digest)
            return Confirmed(stream_id, earlier[1], earlier[1] + 1, self.now_ns, duplicate=True)
        value = known_id(self.state, self.stream, id_hash, self.now_ns)
        if value is None:
            return None
        answer = duplicate_of_id(self.state, self.stream, value, digest)
        if isinstance(answer, Confirmed) and answer.gone and use_counts(self.stream):
            self.used[id_hash] = value
        return answer

    def refused(self) -> Refusal | None:
        """Whether what is new is too much for one entry. Estimated, before anything is encoded."""
        if len(self.records) > limits.BATCH_RECORDS_MAX:
            return TooLarge("records of one batch", limits.BATCH_RECORDS_MAX, len(self.records))
        return names.entry_refused("read", self.bytes_ + EACH_RECORD_BYTES * len(self.used))

    def entry(self) -> Entry | None:
        """What is new as one batch, and the ids that were used again."""
        appended: Appended | None = None
        if self.records:
            stream = self.stream
            batch = codec.encode(self.records)
            appended = Appended(
                stream.stream_id, stream.tail, len(self.records), batch, self.now_ns, ids=b"".join(self.ids)
            )
        if not self.used:
            return appended
        used = IdsUsed(b"".join(self.used), b"".join(self.used.values()))
        return Compound(self.now_ns, [used] if appended is None else [appended, used])


def decide_each(state: State, command: AppendEach, now_ns: int) -> Decision:
    """Many records to one stream: duplicates and conflicts are left out before encoding, the rest is one batch."""
    stream = state.stream(command.topic, command.partition)
    if stream is None:
        return None, TopicMissing(command.topic, command.partition)
    each = _Each(state, stream, now_ns)
    answers = [each.take(record) for record in command.records]
    if (refusal := each.refused()) is not None:
        return None, refusal
    return each.entry(), EachConfirmed(answers)
