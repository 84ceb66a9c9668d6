"""Txn commands: from the verdicts of `core.txn` to entries.

Ending a txn is one entry: a marker in every stream it wrote to, holes over what was aborted, the release of each
stream's stable offset, the pending cursors, fences, and the txn's own row. So it becomes visible whole, at one instant
(P4), and there is no half-ended txn to repair after a crash.
"""

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.append import kafka_name
from oncelog.core.command import AddToTxn, EndTxn, ExpireTxn, InitProducer, TxnCursors, WriteMarker
from oncelog.core.cursor import given
from oncelog.core.entry import (
    CONTROL,
    Appended,
    Compound,
    CursorMoved,
    Entry,
    HolesAdded,
    Operation,
    ProducerFenced,
    ProducerIdsTaken,
    TxnAdded,
    TxnOffsets,
    TxnReleased,
    TxnSet,
)
from oncelog.core.names import entry_refused
from oncelog.core.outcome import (
    CommitConfirmed,
    OffsetsCommitted,
    Outcome,
    Refusal,
    TooLarge,
    TopicMissing,
    TxnDone,
    TxnRefused,
)
from oncelog.core.producer import SequenceMode
from oncelog.core.refuse import refusal_of_txn
from oncelog.core.rows import Cause
from oncelog.core.state import State
from oncelog.core.txn import Action, Txn, TxnEvent, TxnRefusal, TxnState, TxnVerdict, judge, next_txn

Decision = tuple[Entry | None, Outcome]

_CHANGES_NOTHING = (Action.REFUSE, Action.NOTHING, Action.REPEAT)
_ENDS = {
    Action.END_COMMIT: True,
    Action.END_ABORT: False,
    Action.BUMP_AND_ABORT: False,
    Action.TIME_OUT: False,
}
"""Actions that end the open txn, and whether they commit it."""

COORDINATOR_EPOCH = 1
"""There is one coordinator and it never changes. Not 0, so that a marker of somebody who was never told our epoch is
refused."""


def decide_init(state: State, command: InitProducer, now_ns: int) -> Decision:
    """A producer id for everyone who asks; with a txn id also its epoch, and the end of whoever held it."""
    if not command.txn_id:
        producer_id = state.next_producer_id
        return Compound(now_ns, [ProducerIdsTaken(producer_id + 1)]), TxnDone(producer_id, 0)
    txn = state.txns[command.txn_id]
    verdict = judge(
        txn,
        TxnEvent.INIT,
        producer_id=command.producer_id,
        epoch=command.epoch,
        now_ns=now_ns,
        timeout_ms=command.timeout_ms,
        reject_timeout=command.reject_timeout,
        timeouts=command.timeouts,
    )
    if verdict.action in _CHANGES_NOTHING:
        return None, refusal_of_txn(verdict) or TxnDone(verdict.producer_id, verdict.epoch)
    operations: list[Operation] = []
    fresh = state.next_producer_id
    if verdict.producer_id < 0:
        operations.append(ProducerIdsTaken(fresh + 1))
    operations += _end_operations(state, txn, verdict, now_ns)
    row = next_txn(txn, verdict, txn_id=command.txn_id, now_ns=now_ns, fresh_producer_id=fresh)
    assert row is not None
    operations.append(TxnSet(command.txn_id, row))
    return Compound(now_ns, operations), refusal_of_txn(verdict) or TxnDone(row.producer_id, row.epoch)


def decide_add(state: State, command: AddToTxn, now_ns: int) -> Decision:
    """Streams and groups that the txn will touch: all of them or none."""
    stream_ids, refusal = _named_streams(state, command.streams)
    if refusal is not None:
        return None, refusal
    txn = state.txns[command.txn_id]
    verdict = judge(
        txn,
        TxnEvent.WRITE if command.verify_only else TxnEvent.ADD,
        producer_id=command.producer_id,
        epoch=command.epoch,
        now_ns=now_ns,
        txn_id=command.txn_id,
        streams=stream_ids,
        groups=command.groups,
    )
    if verdict.action in _CHANGES_NOTHING or verdict.action is Action.WRITE:
        return None, refusal_of_txn(verdict) or TxnDone(verdict.producer_id, verdict.epoch)
    assert txn is not None
    starts = verdict.action is Action.START
    added = _added(state, txn, stream_ids, command.groups, starts=starts)
    streams = [*([] if starts else txn.streams), *added.streams]
    groups = [*([] if starts else txn.groups), *added.groups]
    refusal = _txn_refused(streams, groups, [] if starts else txn.pending, command.streams_max)
    if refusal is not None:
        return None, refusal
    return Compound(now_ns, [added]), TxnDone(verdict.producer_id, verdict.epoch)


def _named_streams(state: State, names: list[tuple[str, int]]) -> tuple[list[int], Refusal | None]:
    """Their ids, in order; a refusal that names every one that is not there."""
    found = [(name, state.stream(*name)) for name in names]
    missing = list(dict.fromkeys(name for name, stream in found if stream is None))
    if missing:
        (topic, partition), *others = missing
        return [], TopicMissing(topic, partition, also=tuple(others) or None)
    return [stream.stream_id for _, stream in found if stream is not None], None


def _added(state: State, txn: Txn, stream_ids: list[int], groups: list[str], *, starts: bool) -> TxnAdded:
    """What is new for the txn. The stream with the shortest patience decides how long the txn may hold back its stable
    offset."""
    patience_ms = limits.TXN_TIMEOUT_MS_MAX
    for stream_id in stream_ids:
        stream = state.streams[stream_id]
        assert stream is not None
        patience_ms = min(patience_ms, stream.config.txn_timeout_ms_max)
    new_streams = [stream_id for stream_id in dict.fromkeys(stream_ids) if starts or stream_id not in txn.streams]
    new_groups = [group for group in dict.fromkeys(groups) if starts or group not in txn.groups]
    return TxnAdded(txn.txn_id, new_streams, new_groups, patience_ms, starts)


def _txn_refused(
    streams: list[int], groups: list[str], pending: list[tuple[str, int, int, str]], streams_max: int
) -> Refusal | None:
    """Whether the txn names more than the entry that ends it could hold. Every stretch it may yet write counts now:
    a txn that was let in must be able to end."""
    most = limits.COMMIT_APPENDS_MAX
    for what, count, bound in (
        ("streams", len(streams), min(streams_max, most)),
        ("groups", len(groups), most),
        ("moves", len(pending), most),
    ):
        if count > bound:
            return TooLarge(f"{what} in one txn", bound, count)
    size = limits.TXN_RANGES_MAX * limits.TXN_RANGE_BYTES + limits.TXN_STREAM_BYTES * len(streams)
    size += sum(8 + len(group.encode()) for group in groups)
    for name, _, _, metadata in pending:
        size += 64 + len(name.encode()) + len(metadata.encode())
    return entry_refused("txn", size)


def decide_cursors(state: State, command: TxnCursors, now_ns: int) -> Decision:
    """Cursor moves that come true if the txn commits: each is answered alone."""
    txn = state.txns[command.txn_id]
    verdict = judge(
        txn,
        TxnEvent.OFFSETS,
        producer_id=command.producer_id,
        epoch=command.epoch,
        now_ns=now_ns,
        txn_id=command.txn_id,
        groups=[command.group],
    )
    if (refusal := refusal_of_txn(verdict)) is not None:
        return None, refusal
    assert txn is not None
    answers: list[Refusal | None] = []
    moves: list[tuple[str, int, int, str]] = []
    for move in command.moves:
        operation, refusal = given(state, move)
        answers.append(refusal)
        if operation is not None:
            moves.append((move.name, operation.stream_id, operation.frontier, operation.metadata))
    if not moves:
        return None, OffsetsCommitted(answers)
    renewed = {move[:2] for move in moves}
    pending = [move for move in txn.pending if move[:2] not in renewed] + moves
    refusal = _txn_refused(list(txn.streams), txn.groups, pending, limits.COMMIT_APPENDS_MAX)
    if refusal is not None:
        return None, refusal
    return Compound(now_ns, [TxnOffsets(command.txn_id, moves)]), OffsetsCommitted(answers)


def decide_end(state: State, command: EndTxn, now_ns: int) -> Decision:
    """Commit or abort. A retry of the same end succeeds again."""
    txn = state.txns[command.txn_id]
    verdict = judge(
        txn,
        TxnEvent.COMMIT if command.commit else TxnEvent.ABORT,
        producer_id=command.producer_id,
        epoch=command.epoch,
        now_ns=now_ns,
        txn_id=command.txn_id,
    )
    return _finish(state, txn, verdict, now_ns)


def decide_marker(state: State, command: WriteMarker, now_ns: int) -> Decision:
    """An administrator's abort ends and fences the whole txn. Where no txn is open, an abort has nothing to do, as a
    commit has of one that was committed; an open txn is committed by its own producer alone."""
    producer_id, epoch = command.producer_id, command.epoch
    if 0 <= command.coordinator_epoch < COORDINATOR_EPOCH:
        return None, TxnRefused(TxnRefusal.COORDINATOR_FENCED.name, producer_id, epoch)
    stream_ids, refusal = _named_streams(state, command.streams)
    if refusal is not None:
        return None, refusal
    holder = state.holders[producer_id]
    txn = None if holder is None else state.txns[holder.txn_id]
    if txn is None or (txn.state is TxnState.ONGOING and not any(id_ in txn.streams for id_ in stream_ids)):
        return None, TxnDone(producer_id, epoch)
    if command.commit:
        if txn.state is TxnState.COMPLETE_COMMIT:
            return None, TxnDone(producer_id, epoch)
        return None, TxnRefused(TxnRefusal.INVALID_STATE.name, txn.producer_id, txn.epoch)
    verdict = judge(txn, TxnEvent.KILL, producer_id=producer_id, epoch=epoch, now_ns=now_ns)
    return _finish(state, txn, verdict, now_ns)


def decide_expire(state: State, command: ExpireTxn, now_ns: int) -> Decision:
    """A timer: end what is overdue, forget what was idle for too long, leave everything else."""
    txn = state.txns[command.txn_id]
    if txn is None:
        return None, CommitConfirmed([])
    for event in (TxnEvent.TIMEOUT, TxnEvent.EXPIRE):
        verdict = judge(
            txn,
            event,
            producer_id=txn.producer_id,
            epoch=txn.epoch,
            now_ns=now_ns,
            fence_on_timeout=command.fence,
        )
        if verdict.action is not Action.NOTHING:
            return _finish(state, txn, verdict, now_ns, markers=command.markers)
    return None, CommitConfirmed([])


def _finish(state: State, txn: Txn | None, verdict: TxnVerdict, now_ns: int, *, markers: bool = True) -> Decision:
    if verdict.action in _CHANGES_NOTHING:
        return None, refusal_of_txn(verdict) or TxnDone(verdict.producer_id, verdict.epoch)
    assert txn is not None
    operations = _end_operations(state, txn, verdict, now_ns, markers=markers)
    row = next_txn(txn, verdict, txn_id=txn.txn_id, now_ns=now_ns)
    operations.append(TxnSet(txn.txn_id, row))
    return Compound(now_ns, operations), TxnDone(verdict.producer_id, verdict.epoch)


def _end_operations(
    state: State, txn: Txn | None, verdict: TxnVerdict, now_ns: int, *, markers: bool = True
) -> list[Operation]:
    """Everything that ending the open txn brings about, but for its own row."""
    commit = _ENDS.get(verdict.action)
    if commit is None:
        return []
    assert txn is not None
    operations: list[Operation] = []
    marker = codec.encode_marker(txn.producer_id, verdict.epoch, commit, COORDINATOR_EPOCH, now_ns // 1_000_000)
    for stream_id, ranges in txn.streams.items():
        stream = state.streams[stream_id]
        if stream is None or stream.deleted_ns:
            continue
        if verdict.epoch > txn.epoch:
            name = kafka_name(txn.producer_id)
            operations.append(ProducerFenced(stream_id, name, verdict.epoch, int(SequenceMode.RECORDS)))
        if not ranges:
            continue
        if not commit:
            # Without a marker to come, a reader may not be told to drop what this producer wrote: it would never stop.
            aborted_by = txn.producer_id if markers else -1
            operations.append(HolesAdded(stream_id, ranges.copy(), int(Cause.ABORTED), aborted_by))
        if markers:
            operations.append(Appended(stream_id, stream.tail, 1, marker, now_ns, CONTROL))
        operations.append(TxnReleased(stream_id, txn.producer_id))
    if commit:
        operations += _pending_cursors(state, txn)
    return operations


def _pending_cursors(state: State, txn: Txn) -> list[Operation]:
    """The moves that waited for the commit. They are a group's own word, as if it had committed them now."""
    moves: list[Operation] = []
    for name, stream_id, offset, metadata in txn.pending:
        stream = state.streams[stream_id]
        if stream is None or stream.deleted_ns:
            continue
        old = state.cursors[(name, stream_id)]
        pinned = old is not None and old.pinned
        moves.append(CursorMoved(name, stream_id, offset, metadata, pinned, given=True))
    return moves
