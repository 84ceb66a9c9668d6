"""Appends to one stream: the flat shape, and the records of one read that stand or fall alone.

Order of checks (DESIGN section 5): duplicates first, then conditions, then the rest, so that a retry of a success is
always a success, also on a closed stream. A message id is asked before a producer's sequence: the id is what meets
across faces. When an id is known but the sequence is new, the sequence is used up all the same (`Claimed`), or the
producer's next one would look like a gap.
"""

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core import message_id
from oncelog.core.command import Append, AppendEach
from oncelog.core.entry import CLOSES, TRANSACTIONAL, Appended, Claimed, Compound, Entry, IdsUsed, Operation
from oncelog.core.outcome import (
    BatchRefused,
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
from oncelog.core.producer import Accept, Duplicate, Producer, expired, judge
from oncelog.core.refuse import refusal_of
from oncelog.core.rows import FOREVER, Stream, chunk_of
from oncelog.core.state import NO_STREAM, State
from oncelog.core.txn import TxnEvent, TxnRefusal
from oncelog.core.txn import judge as judge_txn

Decision = tuple[Entry | None, Outcome]


def known_producer(state: State, stream: Stream | None, name: str, now_ns: int) -> Producer | None:
    """The producer's row, unless it is forgotten: at max(removal of its last record, last use) + the dedupe floor.

    `apply` asks the same question with the entry's time, so that both see the same row.
    """
    producer = state.producers[(NO_STREAM if stream is None else stream.stream_id, name)]
    if producer is None:
        return None
    if stream is None:
        floor_ms = limits.DEDUPE_FLOOR_MS_DEFAULT
    else:
        floor_ms = stream.config.dedupe_floor_ms
        newest = producer.batches[-2] if producer.batches else -1
        if floor_ms == FOREVER or (type(newest) is int and newest >= stream.floor) or stream.open_txns:
            return producer
    return None if expired(producer, now_ns, floor_ms * 1_000_000) else producer


def known_id(state: State, stream: Stream, id_hash: bytes, now_ns: int) -> bytes | None:
    """The packed value of an id that still counts."""
    value = state.find_id(id_hash)
    if value is None:
        return None
    stored = state.streams[message_id.unpack(value)[1]]
    return value if message_id.is_remembered(value, stream, stored, now_ns) else None


def is_gone(state: State, stream_id: int, offset: int) -> bool:
    """Was the record at this place removed?"""
    stored = state.streams[stream_id]
    if stored is None or not stored.hole_count or offset < stored.floor:
        return message_id.is_gone(stored, offset, None)
    return message_id.is_gone(stored, offset, state.holes[(stream_id, chunk_of(offset))])


def duplicate_of_id(state: State, value: bytes, digest: bytes) -> Confirmed | IdConflict:
    """The answer to a known id: its first outcome, or a conflict (P3)."""
    stored_digest, stream_id, offset, time_ms, count = message_id.unpack(value)
    if stored_digest != digest:
        return IdConflict(stream_id, offset, stored_digest, digest)
    gone = is_gone(state, stream_id, offset)
    return Confirmed(stream_id, offset, offset + count, time_ms * 1_000_000, duplicate=True, gone=gone)


def decide_append(state: State, command: Append, now_ns: int) -> Decision:
    """One batch to one stream."""
    stream = state.stream(command.topic, command.partition)
    if stream is None:
        return None, TopicMissing(command.topic, command.partition)
    claim = command.claim
    id_hash = b""
    if command.message_id:
        id_hash = message_id.id_hash(stream, command.message_id)
        value = known_id(state, stream, id_hash, now_ns)
        if value is not None:
            return _known_id_again(state, stream, command, id_hash, value, now_ns)
    epoch = -1
    verdict_refusal: Refusal | None = None
    if claim is not None:
        producer = known_producer(state, stream, claim.name, now_ns)
        verdict = judge(producer, claim)
        if isinstance(verdict, Accept):
            epoch = verdict.epoch
        elif isinstance(verdict, Duplicate):
            return None, _duplicate_of_sequence(stream, verdict)
        else:
            verdict_refusal = refusal_of(verdict)
    refusal = _stream_refuses(stream, command) or verdict_refusal
    if refusal is None and (command.txn_id or stream.open_txns):
        refusal = _txn_refuses(state, stream, command, now_ns)
    if refusal is not None:
        return None, refusal
    time_ns = state.append_time(now_ns)
    flags = (CLOSES if command.close else 0) | (TRANSACTIONAL if command.txn_id else 0)
    ids = b"%b%b\x00\x00\x00\x00%b" % (id_hash, command.digest, command.count.to_bytes(4, "little")) if id_hash else b""
    entry = Appended(
        stream.stream_id,
        stream.tail,
        command.count,
        command.batch,
        time_ns,
        flags,
        claim,
        epoch,
        ids,
        command.order_key,
        command.txn_id,
    )
    return entry, Confirmed(
        stream.stream_id,
        stream.tail,
        stream.tail + command.count,
        time_ns,
        False,
        False,
        epoch,
        -1 if claim is None else claim.last,
        command.close,
    )


def _stream_refuses(stream: Stream, command: Append) -> Refusal | None:
    """What the stream itself has against this append."""
    if stream.closed:
        return StreamClosedRefusal(stream.stream_id, stream.tail)
    if command.content_type and command.content_type != stream.config.content_type:
        return ContentTypeMismatch(stream.config.content_type, command.content_type)
    if command.expected_tail >= 0 and command.expected_tail != stream.tail:
        return TailMismatch(stream.stream_id, command.expected_tail, stream.tail)
    if command.order_key and command.order_key <= stream.order_key:
        return OrderKeyNotRising(stream.order_key, command.order_key)
    return append_refused(command.batch, command.count, command.message_id, command.digest)


def append_refused(batch: bytes, count: int, id_: bytes, digest: bytes) -> Refusal | None:
    """Bounds that hold for every append, alone or in a commit."""
    if len(batch) > limits.ENTRY_BYTES_MAX - limits.ENTRY_OVERHEAD_BYTES:
        return TooLarge("batch bytes", limits.ENTRY_BYTES_MAX - limits.ENTRY_OVERHEAD_BYTES, len(batch))
    if count < 1:
        return BatchRefused("a batch holds at least one record")
    if id_:
        if len(id_) > limits.MESSAGE_ID_BYTES_MAX:
            return TooLarge("message id bytes", limits.MESSAGE_ID_BYTES_MAX, len(id_))
        if count > message_id.COUNT_MAX:
            return TooLarge("records under one message id", message_id.COUNT_MAX, count)
        if len(digest) != message_id.DIGEST_BYTES:
            return BatchRefused("a message id needs a digest of the content")
    return None


def _txn_refuses(state: State, stream: Stream, command: Append, now_ns: int) -> Refusal | None:
    """A txn batch must belong to an open txn that names this stream; any other must not come from an open txn."""
    claim = command.claim
    if not command.txn_id:
        open_here = stream.open_txns or {}
        if claim is not None and any(claim.name == kafka_name(producer_id) for producer_id in open_here):
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
    if verdict.refusal is not None:
        return TxnRefused(verdict.refusal.name, verdict.producer_id, verdict.epoch)
    assert txn is not None
    ranges = sum(len(flat) // 2 for flat in txn.streams.values())
    if ranges >= limits.TXN_RANGES_MAX:
        return TooLarge("stretches in one txn", limits.TXN_RANGES_MAX, ranges)
    return None


def kafka_name(producer_id: int) -> str:
    """The scoped name of a Kafka producer id."""
    return f"kafka:{producer_id}"


def _duplicate_of_sequence(stream: Stream, verdict: Duplicate) -> Confirmed:
    first, next_ = verdict.first_offset, verdict.next_offset
    stream_id = stream.stream_id
    if not isinstance(first, int):  # the sequence was used by a known message id, whose record may lie elsewhere
        stream_id, first, next_ = first[:3]
    return Confirmed(
        stream_id, first, next_, 0, True, False, verdict.epoch, verdict.last, stream.closed and next_ == stream.tail
    )


def _known_id_again(
    state: State, stream: Stream, command: Append, id_hash: bytes, value: bytes, now_ns: int
) -> Decision:
    answer = duplicate_of_id(state, value, command.digest)
    if isinstance(answer, IdConflict):
        return None, answer
    operations: list[Operation] = []
    if answer.gone:
        operations.append(IdsUsed(id_hash, value))
    claim = command.claim
    if claim is not None:
        producer = known_producer(state, stream, claim.name, now_ns)
        verdict = judge(producer, claim)
        if isinstance(verdict, Accept):
            outcome = [answer.stream_id, answer.first, answer.next]
            answer.epoch, answer.sequence = verdict.epoch, claim.last
            operations.append(Claimed(stream.stream_id, claim, answer.epoch, outcome))
        elif isinstance(verdict, Duplicate):
            answer.epoch, answer.sequence = verdict.epoch, verdict.last
    return (Compound(state.append_time(now_ns), operations) if operations else None), answer


def decide_each(state: State, command: AppendEach, now_ns: int) -> Decision:
    """Many records to one stream: duplicates and conflicts are left out before encoding, the rest is one batch."""
    stream = state.stream(command.topic, command.partition)
    if stream is None:
        return None, TopicMissing(command.topic, command.partition)
    time_ns = state.append_time(now_ns)
    answers: list[Confirmed | Refusal] = []
    records: list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = []
    ids: list[bytes] = []
    in_batch: dict[bytes, tuple[bytes, int]] = {}
    used: list[bytes] = []
    for record in command.records:
        answer: Confirmed | Refusal | None = None
        id_hash = digest = b""
        if record.message_id:
            if len(record.message_id) > limits.MESSAGE_ID_BYTES_MAX:
                answers.append(TooLarge("message id bytes", limits.MESSAGE_ID_BYTES_MAX, len(record.message_id)))
                continue
            digest = message_id.content_digest(record.value or b"")
            id_hash = message_id.id_hash(stream, record.message_id)
            answer = _repeated(state, stream, id_hash, digest, in_batch, now_ns)
            if isinstance(answer, Confirmed) and answer.gone:
                used.append(id_hash)
        if answer is None and stream.closed:
            answer = StreamClosedRefusal(stream.stream_id, stream.tail)
        if answer is None:
            number = len(records)
            offset = stream.tail + number
            timestamp_ms = record.timestamp_ms or time_ns // 1_000_000
            records.append((number, timestamp_ms, record.key, record.value, record.headers))
            answer = Confirmed(stream.stream_id, offset, offset + 1, time_ns)
            if id_hash:
                in_batch[id_hash] = (digest, offset)
                ids.append(b"%b%b%b\x01\x00\x00\x00" % (id_hash, digest, number.to_bytes(4, "little")))
        answers.append(answer)
    batch = codec.encode(records) if records else b""
    if records and (refusal := append_refused(batch, len(records), b"", b"")) is not None:
        return None, refusal
    operations: list[Operation] = []
    if records:
        operations.append(
            Appended(stream.stream_id, stream.tail, len(records), batch, time_ns, ids=b"".join(ids)),
        )
    if used:
        operations.append(IdsUsed(b"".join(used), b"".join(_stored(state, hash_) for hash_ in used)))
    if not operations:
        return None, EachConfirmed(answers)
    if len(operations) == 1 and isinstance(operations[0], Appended):
        return operations[0], EachConfirmed(answers)
    return Compound(time_ns, operations), EachConfirmed(answers)


def _stored(state: State, id_hash: bytes) -> bytes:
    value = state.find_id(id_hash)
    assert value is not None
    return value


def _repeated(
    state: State,
    stream: Stream,
    id_hash: bytes,
    digest: bytes,
    in_batch: dict[bytes, tuple[bytes, int]],
    now_ns: int,
) -> Confirmed | IdConflict | None:
    """The answer if the id was seen before, in the log or earlier in the same read."""
    earlier = in_batch.get(id_hash)
    if earlier is not None:
        if earlier[0] != digest:
            return IdConflict(stream.stream_id, earlier[1], earlier[0], digest)
        return Confirmed(stream.stream_id, earlier[1], earlier[1] + 1, state.append_time(now_ns), duplicate=True)
    value = known_id(state, stream, id_hash, now_ns)
    return None if value is None else duplicate_of_id(state, value, digest)
