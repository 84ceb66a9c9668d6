"""The atomic commit: appends to any streams, conditions, cursor moves, ids and one producer claim, in one entry (P4).

Duplicates come first: a known commit id, a known sequence, or message ids that are all known with equal content give
the first outcome again, whatever the conditions say now. A commit of which only some ids are known is refused: taking
the rest would tear it. A duplicate by commit id or by message ids uses up the sequence; one by sequence alone remembers
no new commit id. A sequence that comes too early is told so before anything else: it is used up in its turn.

Records that are all known by their ids need not have come from this commit: another consumer may have derived the same
ones. If the commit has a claim of its own, an id or a sequence, and that is new, so is the commit: its cursors are
moved where they are still behind, and for that its conditions must hold and its producer must not be fenced. Known by
nothing but its message ids it may as well be a retry, long after: then a cursor is moved only under a condition on that
cursor (`ExpectCursor`), which a retry finds broken; else it is a duplicate, and nothing is done.
"""

from typing import Final

import msgspec
from xxhash import xxh3_128

from oncelog.core import batch as codec
from oncelog.core import holes, message_id
from oncelog.core.append import append_refused, id_refused, judged_against, packed_id
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
from oncelog.core.content_type import batch_refused
from oncelog.core.cursor import moved
from oncelog.core.entry import Appended, Claimed, ClaimRemembered, Compound, Entry, IdsUsed, Operation
from oncelog.core.fact_columns import facts_in, holds_facts
from oncelog.core.flat import ProducerClaim, Stream
from oncelog.core.memory import floor_of, is_known_claim, known_id, known_producer, removed_ns, use_counts
from oncelog.core.message_id import RETAINED
from oncelog.core.outcome import (
    BatchRefused,
    ClaimConflict,
    ClaimInvalid,
    CommitConfirmed,
    ConditionFailed,
    EnvelopeInvalid,
    IdConflict,
    Outcome,
    PartlyDuplicate,
    Refusal,
    ShardMismatch,
    StreamClosedRefusal,
    TopicMissing,
)
from oncelog.core.producer import judge
from oncelog.core.refuse import refusal_of
from oncelog.core.rows import FOREVER, JCS, Cursor, Remembered
from oncelog.core.seen import duplicate_of_id
from oncelog.core.state import NO_STREAM, State
from oncelog.core.subjects import SubjectRows, is_current, joined, keys_in, rows_of, too_many, written
from oncelog.core.verdict import Accept, Duplicate, EpochMustStartAtZero, Gap
from oncelog.errors import BatchInvalid

Decision = tuple[Entry | None, Outcome]

SOME_NAMED: Final = (
    "some appends carry a message id and others do not: give every one an id, or the commit an id or a producer"
)

_PRESENCE: Final = ("absent", "present")


def append_digest(append: CommitAppend) -> bytes:
    """The digest of one batch's content: given by the face, else over its values."""
    return append.digest or message_id.values_digest(codec.decode_values(append.batch))


def commit_digest(command: Commit, digests: list[bytes]) -> bytes:
    """What makes two commits the same: streams, contents and cursor moves, in order. Conditions do not count."""
    digest = xxh3_128()
    for append, content in zip(command.appends, digests, strict=True):
        name = append.topic.encode()
        digest.update(b"a%d:%b:%d:%d:%d:" % (len(name), name, append.partition, append.count, len(content)))
        digest.update(content)
    for move in command.cursors:
        for text in (move.name, move.topic, move.metadata):
            digest.update(b"c%d:%b" % (len(text.encode()), text.encode()))
        digest.update(b":%d:%d:%d" % (move.partition, move.frontier, move.pinned))
    return digest.digest()


class _Known(msgspec.Struct, gc=False):
    """What is there already of a commit all of whose appends carry known ids."""

    outcome: list[int]
    used: list[tuple[bytes, bytes]]
    """Hash and value of ids whose record is gone: their memory starts anew."""


def decide_commit(state: State, command: Commit, now_ns: int) -> Decision:
    """All of it, or none of it."""
    if not command.appends and not command.cursors:
        return None, ClaimInvalid("nothing is named to be done: a commit appends records or moves a cursor")
    claim = command.claim
    digest = b""
    claims = bool(command.commit_id) or claim is not None
    refusal = _appends_refused(state, command, claims=claims)
    if refusal is not None:
        return None, refusal
    digests: list[bytes] = []
    try:
        for append in command.appends:
            digests.append(append_digest(append) if claims or append.message_id else b"")
    except BatchInvalid as error:
        return None, BatchRefused(str(error), append_number=len(digests))
    if claims:
        digest = commit_digest(command, digests)
        if claim is not None and not claim.digest:
            claim = claim.replaced(digest=digest)
    claimed, again, early = _claimed(state, claim, now_ns)
    if early:
        assert again is not None
        return None, again
    known_commit = _known_commit(state, command, digest, now_ns)
    if isinstance(known_commit, ClaimConflict):
        return None, known_commit
    if known_commit is not None:
        entry, told = _again(state, command, known_commit, claimed, now_ns)
        if isinstance(again, CommitConfirmed):  # its sequence is known as well: the producer is told where it stands
            told.epoch, told.sequence = again.epoch, again.sequence
        return entry, told
    if isinstance(again, CommitConfirmed):
        return None, again
    streams, refusal = _streams(state, command)
    if refusal is not None:
        return None, refusal
    named, refusal = _named(command, streams, digests, claims=claims)
    if refusal is not None:
        return None, again or refusal
    known, refusal = _known_ids(state, named, streams, now_ns)
    if refusal is None and known is not None:
        moves, refusal = _moves_left(state, command, is_new=claims)
        if moves or refusal is not None:
            refusal = again or _conditions_refuse(state, command.conditions, now_ns) or refusal
        if refusal is not None and claims:
            return None, refusal
        return _all_known(state, command, claimed, known, [] if refusal else moves, digest, now_ns)
    refusal = (
        again or refusal or _closed(streams) or _undecodable(command, streams) or _content_refused(command, streams)
    )
    refusal = refusal or _conditions_refuse(state, command.conditions, now_ns)
    if refusal is not None:
        return None, refusal
    return _build(state, command, streams, named, claimed, digest, now_ns)


def _appends_refused(state: State, command: Commit, *, claims: bool) -> Refusal | None:
    named = sum(bool(append.message_id or append.ids) or _brings_facts(state, append) for append in command.appends)
    if not claims and 0 < named < len(command.appends):
        # Its retry could not be told from a commit of which some part is known: it would have to be refused.
        return ClaimInvalid(SOME_NAMED)
    for number, append in enumerate(command.appends):
        refusal = append_refused(append.batch, append.count)
        if append.message_id:
            refusal = refusal or id_refused(append.message_id, append.digest or b"\0" * message_id.DIGEST_BYTES)
        if refusal is not None:
            refusal.append_number = number
            return refusal
    return None


def _brings_facts(state: State, append: CommitAppend) -> bool:
    """Whether its records have ids by themselves."""
    topic = state.topics[append.topic]
    return topic is not None and topic.config.digest == JCS


def _claimed(
    state: State, claim: ProducerClaim | None, now_ns: int
) -> tuple[Claimed | None, CommitConfirmed | Refusal | None, bool]:
    """(the operation that uses up the claim, but for its outcome; the answer if the claim is not new; whether that is
    because it came too early)."""
    if claim is None:
        return None, None, False
    producer, renews = judged_against(state, None, claim, now_ns)
    verdict = judge(producer, claim)
    if isinstance(verdict, Accept):
        return Claimed(NO_STREAM, claim, verdict.epoch, [], renews), None, False
    if isinstance(verdict, Duplicate):
        outcome = [] if isinstance(verdict.first_offset, int) else list(verdict.first_offset)
        return None, CommitConfirmed(outcome, True, verdict.epoch, verdict.last), False
    return None, refusal_of(verdict), isinstance(verdict, Gap | EpochMustStartAtZero) and not renews


def _known_commit(state: State, command: Commit, digest: bytes, now_ns: int) -> Remembered | ClaimConflict | None:
    if not command.commit_id:
        return None
    row = state.remembered[(command.scope, command.commit_id)]
    if row is None or not is_known_claim(state, row, now_ns):
        return None
    if row.digest != digest:
        return ClaimConflict(command.commit_id, list(row.outcome), row.digest, digest)
    return row


def _again(
    state: State, command: Commit, row: Remembered, claimed: Claimed | None, now_ns: int
) -> tuple[Entry | None, CommitConfirmed]:
    """A known commit id: the first outcome. Once its records are gone, its use keeps it in memory."""
    operations = _use_up(claimed, row.outcome)
    if row.floor_ms != FOREVER and removed_ns(state, row.outcome) != RETAINED:
        operations.append(
            ClaimRemembered(command.scope, command.commit_id, row.digest, list(row.outcome), row.floor_ms)
        )
    return _decision(operations, row.outcome, True, claimed, now_ns)


def _use_up(claimed: Claimed | None, outcome: list[int]) -> list[Operation]:
    if claimed is None:
        return []
    return [Claimed(NO_STREAM, claimed.claim, claimed.epoch, list(outcome), claimed.renews)]


def _decision(
    operations: list[Operation], outcome: list[int], duplicate: bool, claimed: Claimed | None, now_ns: int
) -> tuple[Entry | None, CommitConfirmed]:
    epoch, sequence = (-1, -1) if claimed is None else (claimed.epoch, claimed.claim.last)
    entry = Compound(now_ns, operations) if operations else None
    return entry, CommitConfirmed(list(outcome), duplicate, epoch, sequence)


def _streams(state: State, command: Commit) -> tuple[list[Stream], Refusal | None]:
    streams: list[Stream] = []
    for number, append in enumerate(command.appends):
        stream = state.stream(append.topic, append.partition)
        if stream is None:
            return [], TopicMissing(append.topic, append.partition, append_number=number)
        if streams and stream.shard != streams[0].shard:
            return [], ShardMismatch(streams[0].shard, stream.shard, append_number=number)
        streams.append(stream)
    return streams, None


Id = tuple[int, bytes, bytes, int]
"""(record number, hash of the message id, digest, record count) of one id of an append."""


def commit_ids(stream: Stream, append: CommitAppend) -> list[bytes]:
    """The message ids of one append; none if it will be refused for them."""
    if holds_facts(stream):
        found = facts_in(append.batch)
        return [] if isinstance(found, Refusal) else [id_ for _, id_, _ in found]
    return [append.message_id] if append.message_id else [id_ for _, id_, _ in append.ids]


def _named(
    command: Commit, streams: list[Stream], digests: list[bytes], *, claims: bool
) -> tuple[list[list[Id]], Refusal | None]:
    """The ids of every append."""
    named: list[list[Id]] = []
    for number, (append, stream, digest) in enumerate(zip(command.appends, streams, digests, strict=True)):
        ids, refusal = _ids_of(stream, append, digest)
        if refusal is not None:
            refusal.append_number = number
            return [], refusal
        named.append(ids)
    covered = sum(id_[3] for ids in named for id_ in ids)
    if not claims and 0 < covered < sum(append.count for append in command.appends):
        return [], ClaimInvalid(SOME_NAMED)
    return named, None


def _ids_of(stream: Stream, append: CommitAppend, digest: bytes) -> tuple[list[Id], Refusal | None]:
    """The ids of one append."""
    if holds_facts(stream):
        found = facts_in(append.batch)
        if isinstance(found, Refusal):
            return [], found
        if append.message_id and [id_ for _, id_, _ in found] != [append.message_id]:
            return [], EnvelopeInvalid("the commit names another message id than the fact. Send the same, or none.")
        return [(number, message_id.id_hash(stream, id_), told, 1) for number, id_, told in found], None
    if append.message_id:
        return [(0, message_id.id_hash(stream, append.message_id), digest, append.count)], None
    ids: list[Id] = []
    last = -1
    for number, id_, told in append.ids:
        if (refusal := id_refused(id_, told)) is not None:
            return [], refusal
        if not last < number < append.count or not id_:
            return [], ClaimInvalid("ids of records are named in the order of the records, each once")
        last = number
        ids.append((number, message_id.id_hash(stream, id_), told, 1))
    return ids, None


def _known_ids(
    state: State, named: list[list[Id]], streams: list[Stream], now_ns: int
) -> tuple[_Known | None, Refusal | None]:
    """What is known if every id is; a refusal if only some are, or one conflicts; (None, None) if none."""
    known = _Known([], [])
    seen: set[bytes] = set()
    first_known = (-1, -1, -1)
    count = 0
    for number, (ids, stream) in enumerate(zip(named, streams, strict=True)):
        begin = len(known.outcome)
        for _, id_hash, digest, _ in ids:
            if id_hash in seen:
                return None, ClaimInvalid("one message id stands twice in one commit", append_number=number)
            seen.add(id_hash)
            value = known_id(state, stream, id_hash, now_ns)
            if value is None:
                continue
            answer = duplicate_of_id(state, stream, value, digest)
            if isinstance(answer, IdConflict):
                answer.append_number = number
                return None, answer
            if not count:
                first_known = (number, answer.stream_id, answer.first)
            count += 1
            if len(known.outcome) > begin and known.outcome[-3::2] == [answer.stream_id, answer.first]:
                known.outcome[-1] = answer.next  # the record behind the one before it
            else:
                known.outcome += (answer.stream_id, answer.first, answer.next)
            if answer.gone and use_counts(stream):
                known.used.append((id_hash, value))
    if not count:
        return None, None
    new = sum(len(ids) or 1 for ids in named) - count
    if new:
        return None, PartlyDuplicate(count, new, first_known[1], first_known[2], append_number=first_known[0])
    return known, None


def _moves_left(state: State, command: Commit, *, is_new: bool) -> tuple[list[Operation], Refusal | None]:
    """The cursors that are still behind where the commit puts them; of one that may be a retry only those that it has a
    condition on. Forward only: one that has gone on since is not thrown back. Of a topic that is gone nothing is left
    to move."""
    guarded = {(c.name, c.topic, c.partition) for c in command.conditions if isinstance(c, ExpectCursor)}
    last = {(move.name, move.topic, move.partition): number for number, move in enumerate(command.cursors)}
    operations: list[Operation] = []
    for key, number in last.items():
        move = command.cursors[number]
        stream = state.stream(move.topic, move.partition)
        if stream is None or not (is_new or key in guarded):
            continue
        cursor = state.cursors[(move.name, stream.stream_id)]
        if cursor is None or max(cursor.frontier, stream.floor) < move.frontier:
            operation, refusal = moved(state, move)
            if operation is None:
                assert refusal is not None
                refusal.cursor_number = number
                return [], refusal
            operations.append(operation)
    return operations, None


def _all_known(
    state: State,
    command: Commit,
    claimed: Claimed | None,
    known: _Known,
    moves: list[Operation],
    digest: bytes,
    now_ns: int,
) -> Decision:
    """Every record is there already: nothing is appended; its own claims are used up, cursors that are behind move."""
    operations = moves + _use_up(claimed, known.outcome)
    operations += _remembered(state, command, known.outcome, digest)
    if known.used:
        operations.append(IdsUsed(b"".join(hash_ for hash_, _ in known.used), b"".join(v for _, v in known.used)))
    return _decision(operations, known.outcome, True, claimed, now_ns)


def _remembered(state: State, command: Commit, outcome: list[int], digest: bytes) -> list[Operation]:
    """The commit id, for as long as the most careful of its streams asks."""
    if not command.commit_id:
        return []
    floor_ms = floor_of(state, outcome)
    return [ClaimRemembered(command.scope, command.commit_id, digest, list(outcome), floor_ms)]


def _closed(streams: list[Stream]) -> Refusal | None:
    for number, stream in enumerate(streams):
        if stream.closed:
            return StreamClosedRefusal(stream.stream_id, stream.tail, append_number=number)
    return None


def _undecodable(command: Commit, streams: list[Stream]) -> Refusal | None:
    """Where subjects are indexed, keys are looked at."""
    for number, (append, stream) in enumerate(zip(command.appends, streams, strict=True)):
        try:
            if is_current(stream):
                keys_in(append.batch)
        except BatchInvalid as error:
            return BatchRefused(str(error), append_number=number)
    return None


def _content_refused(command: Commit, streams: list[Stream]) -> Refusal | None:
    for number, (append, stream) in enumerate(zip(command.appends, streams, strict=True)):
        refusal = batch_refused(stream.config.content_type, append.batch)
        if refusal is not None:
            refusal.append_number = number
            return refusal
    return None


def _conditions_refuse(state: State, conditions: list[Condition], now_ns: int) -> Refusal | None:
    for number, condition in enumerate(conditions):
        refusal = _condition_fails(state, condition, number, now_ns)
        if refusal is not None:
            return refusal
    return None


def frontiers(state: State, stream: Stream, cursor: Cursor | None) -> tuple[int, int]:
    """The stored frontier and the one past the holes behind it: every place between is the same to a consumer."""
    stored = cursor.frontier if cursor is not None else 0
    return stored, holes.step_over(state, stream, max(stored, stream.floor))


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
    expected: int | str
    actual: int | str
    match condition:
        case ExpectTail():
            expected, actual = condition.tail, stream.tail
        case ExpectCursor():
            stored, actual = frontiers(state, stream, state.cursors[(condition.name, stream.stream_id)])
            expected = actual if stored <= condition.frontier <= actual else condition.frontier
        case ExpectId():
            id_hash = message_id.id_hash(stream, condition.message_id)
            is_known = known_id(state, stream, id_hash, now_ns) is not None
            expected, actual = _PRESENCE[condition.present], _PRESENCE[is_known]
        case ExpectEpoch():
            producer = known_producer(state, stream, condition.producer, now_ns)
            expected, actual = condition.epoch, producer.epoch if producer is not None else -1
    return None if expected == actual else ConditionFailed(kind, number, str(expected), str(actual))


def _build(
    state: State,
    command: Commit,
    streams: list[Stream],
    named: list[list[Id]],
    claimed: Claimed | None,
    digest: bytes,
    now_ns: int,
) -> Decision:
    operations: list[Operation] = []
    outcome: list[int] = []
    added: dict[int, int] = {}
    subjects: dict[int, list[SubjectRows]] = {}
    for append, stream, named_ids in zip(command.appends, streams, named, strict=True):
        first = stream.tail + added.get(stream.stream_id, 0)
        added[stream.stream_id] = added.get(stream.stream_id, 0) + append.count
        ids = b"".join(packed_id(id_hash, told, number, count) for number, id_hash, told, count in named_ids)
        operations.append(Appended(stream.stream_id, first, append.count, append.batch, now_ns, ids=ids))
        outcome += (stream.stream_id, first, first + append.count)
        if is_current(stream):
            subjects.setdefault(stream.stream_id, []).append(rows_of(keys_in(append.batch), first))
    for stream_id, parts in subjects.items():
        rows, indexed = joined(parts), state.streams[stream_id]
        assert indexed is not None
        if (refusal := too_many(rows)) is not None:
            return None, refusal
        operations.append(written(state, indexed, rows, indexed.tail + added[stream_id]))
    for number, move in enumerate(command.cursors):
        stream_row = state.stream(move.topic, move.partition)
        extra = added.get(stream_row.stream_id, 0) if stream_row is not None else 0
        operation, refusal = moved(state, move, extra)
        if operation is None:
            assert refusal is not None
            refusal.cursor_number = number
            return None, refusal
        operations.append(operation)
    operations += _use_up(claimed, outcome)
    operations += _remembered(state, command, outcome, digest)
    return _decision(operations, outcome, False, claimed, now_ns)
