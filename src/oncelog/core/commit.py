"""The atomic commit: appends to any streams, conditions, cursor moves, ids and one producer claim, in one entry (P4).

Duplicates come first: a known commit id, a known sequence, or message ids that are all known with equal content give
the first outcome again, whatever the conditions say now. A commit of which only some ids are known is refused: taking
the rest would tear it.
"""

from xxhash import xxh3_128

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core import message_id
from oncelog.core.append import append_refused, duplicate_of_id, known_id, known_producer
from oncelog.core.command import (
    Commit,
    CommitAppend,
    Condition,
    ExpectCursor,
    ExpectEpoch,
    ExpectId,
    ExpectNew,
    ExpectTail,
)
from oncelog.core.cursor import moved
from oncelog.core.entry import Appended, Claimed, ClaimRemembered, Compound, Entry, Operation
from oncelog.core.outcome import (
    ClaimConflict,
    ClaimInvalid,
    CommitConfirmed,
    ConditionFailed,
    IdConflict,
    Outcome,
    PartlyDuplicate,
    Refusal,
    ShardMismatch,
    StreamClosedRefusal,
    TooLarge,
    TopicMissing,
)
from oncelog.core.producer import Accept, Duplicate, judge
from oncelog.core.refuse import refusal_of
from oncelog.core.rows import FOREVER, Stream
from oncelog.core.state import NO_STREAM, State

Decision = tuple[Entry | None, Outcome]


def append_digest(append: CommitAppend) -> bytes:
    """The digest of one batch's content: given by the face, else over its values."""
    if append.digest:
        return append.digest
    digest = xxh3_128()
    for value in codec.decode_values(append.batch):
        digest.update(b"\x00" if value is None else b"\x01%d:" % len(value))
        digest.update(value or b"")
    return digest.digest()


def commit_digest(command: Commit) -> bytes:
    """What makes two commits the same: streams, contents and cursor moves, in order. Conditions do not count."""
    digest = xxh3_128()
    for append in command.appends:
        name = append.topic.encode()
        digest.update(b"a%d:%b:%d:%d:" % (len(name), name, append.partition, append.count))
        digest.update(append_digest(append))
    for move in command.cursors:
        for text in (move.name, move.topic, move.metadata):
            digest.update(b"c%d:%b" % (len(text.encode()), text.encode()))
        digest.update(b":%d:%d:%d" % (move.partition, move.frontier, move.pinned))
    return digest.digest()


def decide_commit(state: State, command: Commit, now_ns: int) -> Decision:
    """All of it, or none of it."""
    refusal = _malformed(command)
    if refusal is not None:
        return None, refusal
    digest = commit_digest(command) if command.commit_id or command.claim is not None else b""
    again = _known_commit(state, command, digest, now_ns)
    if again is not None:
        return None, again
    epoch = -1
    verdict_refusal: Refusal | None = None
    claim = command.claim
    if claim is not None:
        producer = known_producer(state, None, claim.name, now_ns)
        verdict = judge(producer, claim)
        if isinstance(verdict, Accept):
            epoch = verdict.epoch
        elif isinstance(verdict, Duplicate):
            outcome = [] if isinstance(verdict.first_offset, int) else list(verdict.first_offset)
            return None, CommitConfirmed(outcome, True, verdict.epoch, verdict.last)
        else:
            verdict_refusal = refusal_of(verdict)
    streams, refusal = _streams(state, command)
    if refusal is not None:
        return None, refusal
    known, refusal = _known_ids(state, command, streams, now_ns)
    if refusal is None and known is not None:
        return _all_known(state, command, epoch, known, digest, now_ns)
    refusal = refusal or verdict_refusal or _streams_refuse(command, streams)
    refusal = refusal or _conditions_refuse(state, command.conditions, now_ns)
    if refusal is not None:
        return None, refusal
    return _build(state, command, streams, epoch, digest, now_ns)


def _malformed(command: Commit) -> Refusal | None:
    size = len(command.appends) + len(command.conditions) + len(command.cursors)
    if size > limits.COMMIT_APPENDS_MAX:
        return TooLarge("appends, conditions and cursors in one commit", limits.COMMIT_APPENDS_MAX, size)
    if not command.appends and not command.cursors:
        return ClaimInvalid("a commit appends or moves a cursor; use a query to only look")
    if len(command.commit_id.encode()) > limits.COMMIT_ID_BYTES_MAX or "\0" in command.commit_id:
        return TooLarge("commit id bytes", limits.COMMIT_ID_BYTES_MAX, len(command.commit_id.encode()))
    total = sum(len(append.batch) + len(append.message_id) + limits.COMMIT_APPEND_BYTES for append in command.appends)
    total += sum(len(move.metadata) + len(move.name) + limits.COMMIT_APPEND_BYTES for move in command.cursors)
    total += limits.ENTRY_OVERHEAD_BYTES
    if total > limits.ENTRY_BYTES_MAX:
        return TooLarge("bytes of one commit (larger writes go through stages)", limits.ENTRY_BYTES_MAX, total)
    return None


def _known_commit(state: State, command: Commit, digest: bytes, now_ns: int) -> Outcome | None:
    if not command.commit_id:
        return None
    row = state.remembered[(command.scope, command.commit_id)]
    if row is None or (row.floor_ms != FOREVER and now_ns - row.used_ns >= row.floor_ms * 1_000_000):
        return None
    if row.digest != digest:
        return ClaimConflict(command.commit_id, row.outcome, row.digest, digest)
    return CommitConfirmed(list(row.outcome), duplicate=True)


def _streams(state: State, command: Commit) -> tuple[list[Stream], Refusal | None]:
    streams: list[Stream] = []
    for append in command.appends:
        stream = state.stream(append.topic, append.partition)
        if stream is None:
            return [], TopicMissing(append.topic, append.partition)
        if streams and stream.shard != streams[0].shard:
            return [], ShardMismatch(streams[0].shard, stream.shard)
        streams.append(stream)
    return streams, None


def _known_ids(
    state: State, command: Commit, streams: list[Stream], now_ns: int
) -> tuple[list[int] | None, Refusal | None]:
    """The outcome if every append is a known id; a refusal if only some are, or one conflicts; (None, None) if none."""
    outcome: list[int] = []
    seen: dict[bytes, bytes] = {}
    for append, stream in zip(command.appends, streams, strict=True):
        if not append.message_id:
            continue
        id_hash = message_id.id_hash(stream, append.message_id)
        digest = append_digest(append)
        if id_hash in seen:
            return None, ClaimInvalid("one message id stands twice in one commit")
        seen[id_hash] = digest
        value = known_id(state, stream, id_hash, now_ns)
        if value is None:
            continue
        answer = duplicate_of_id(state, value, digest)
        if isinstance(answer, IdConflict):
            return None, answer
        outcome += (answer.stream_id, answer.first, answer.next)
    known = len(outcome) // 3
    if not known:
        return None, None
    if known < len(command.appends):
        return None, PartlyDuplicate(known, len(command.appends) - known, outcome[0], outcome[1])
    return outcome, None


def _all_known(state: State, command: Commit, epoch: int, outcome: list[int], digest: bytes, now_ns: int) -> Decision:
    """Every record is there already: the commit's own claims are used up, nothing is appended, no cursor moves."""
    operations: list[Operation] = []
    if command.claim is not None and epoch >= 0:
        operations.append(Claimed(NO_STREAM, command.claim, epoch, outcome))
    if command.commit_id:
        operations.append(ClaimRemembered(command.scope, command.commit_id, digest, outcome, _floor_ms(state, command)))
    entry = Compound(state.append_time(now_ns), operations) if operations else None
    return entry, CommitConfirmed(outcome, True, epoch, -1 if command.claim is None else command.claim.last)


def _floor_ms(state: State, command: Commit) -> int:
    """A commit id is remembered as long as the most careful of its streams asks."""
    floors = [
        stream.config.dedupe_floor_ms
        for append in command.appends
        if (stream := state.stream(append.topic, append.partition)) is not None
    ]
    if FOREVER in floors:
        return FOREVER
    return max(floors, default=limits.DEDUPE_FLOOR_MS_DEFAULT)


def _streams_refuse(command: Commit, streams: list[Stream]) -> Refusal | None:
    for append, stream in zip(command.appends, streams, strict=True):
        if stream.closed:
            return StreamClosedRefusal(stream.stream_id, stream.tail)
        digest = append_digest(append) if append.message_id else b""
        refusal = append_refused(append.batch, append.count, append.message_id, digest)
        if refusal is not None:
            return refusal
    return None


def _conditions_refuse(state: State, conditions: list[Condition], now_ns: int) -> Refusal | None:
    for number, condition in enumerate(conditions):
        refusal = _condition_fails(state, condition, number, now_ns)
        if refusal is not None:
            return refusal
    return None


def _condition_fails(state: State, condition: Condition, number: int, now_ns: int) -> Refusal | None:
    """None if it holds. Every condition compares with the state before the commit."""
    kind = condition.kind
    if isinstance(condition, ExpectNew):
        topic = state.topics[condition.topic]
        written = topic is not None and any(
            (stream := state.streams[stream_id]) is not None and stream.tail for stream_id in topic.stream_ids
        )
        return ConditionFailed(kind, number, "new", "written") if written else None
    stream = state.stream(condition.topic, condition.partition)
    if stream is None:
        return TopicMissing(condition.topic, condition.partition)
    match condition:
        case ExpectTail():
            expected, actual = condition.tail, stream.tail
        case ExpectCursor():
            cursor = state.cursors[(condition.name, stream.stream_id)]
            expected, actual = condition.frontier, cursor.frontier if cursor is not None else 0
        case ExpectId():
            id_hash = message_id.id_hash(stream, condition.message_id)
            expected, actual = condition.present, known_id(state, stream, id_hash, now_ns) is not None
        case ExpectEpoch():
            producer = state.producers[(stream.stream_id, condition.producer)]
            expected, actual = condition.epoch, producer.epoch if producer is not None else -1
    return None if expected == actual else ConditionFailed(kind, number, str(expected), str(actual))


def _build(state: State, command: Commit, streams: list[Stream], epoch: int, digest: bytes, now_ns: int) -> Decision:
    time_ns = state.append_time(now_ns)
    operations: list[Operation] = []
    outcome: list[int] = []
    added: dict[int, int] = {}
    for append, stream in zip(command.appends, streams, strict=True):
        first = stream.tail + added.get(stream.stream_id, 0)
        added[stream.stream_id] = added.get(stream.stream_id, 0) + append.count
        ids = b""
        if append.message_id:
            id_hash = message_id.id_hash(stream, append.message_id)
            ids = b"%b%b\x00\x00\x00\x00%b" % (id_hash, append_digest(append), append.count.to_bytes(4, "little"))
        operations.append(Appended(stream.stream_id, first, append.count, append.batch, time_ns, ids=ids))
        outcome += (stream.stream_id, first, first + append.count)
    for move in command.cursors:
        stream_row = state.stream(move.topic, move.partition)
        extra = added.get(stream_row.stream_id, 0) if stream_row is not None else 0
        operation, refusal = moved(state, move, time_ns, extra)
        if operation is None:
            assert refusal is not None
            return None, refusal
        operations.append(operation)
    if command.claim is not None:
        operations.append(Claimed(NO_STREAM, command.claim, epoch, outcome))
    if command.commit_id:
        operations.append(ClaimRemembered(command.scope, command.commit_id, digest, outcome, _floor_ms(state, command)))
    sequence = -1 if command.claim is None else command.claim.last
    return Compound(time_ns, operations), CommitConfirmed(outcome, False, epoch, sequence)
