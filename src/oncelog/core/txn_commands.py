"""Txn commands: from the verdicts of `core.txn` to entries.

Ending a txn is one entry: a marker in every stream it wrote to, holes over what was aborted, the release of each
stream's stable offset, the pending cursors, fences, and the txn's own row. So it becomes visible whole, at one instant
(P4), and there is no half-ended txn to repair after a crash.
"""

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.append import kafka_name
from oncelog.core.command import AddToTxn, EndTxn, ExpireTxn, InitProducer, TxnCursors
from oncelog.core.cursor import moved
from oncelog.core.entry import (
    CONTROL,
    Appended,
    Compound,
    CursorSet,
    Entry,
    HolesAdded,
    Operation,
    ProducerFenced,
    ProducerIdsTaken,
    TxnReleased,
    TxnSet,
)
from oncelog.core.names import entry_refused
from oncelog.core.outcome import (
    CommitConfirmed,
    Outcome,
    Refusal,
    TooLarge,
    TopicMissing,
    TxnDone,
)
from oncelog.core.producer import SequenceMode
from oncelog.core.refuse import refusal_of_txn
from oncelog.core.rows import Cause, Cursor
from oncelog.core.state import State
from oncelog.core.txn import Action, Txn, TxnEvent, TxnVerdict, judge, next_txn

Decision = tuple[Entry | None, Outcome]

_CHANGES_NOTHING = (Action.REFUSE, Action.NOTHING, Action.REPEAT)
_ENDS = {
    Action.END_COMMIT: True,
    Action.END_ABORT: False,
    Action.BUMP_AND_ABORT: False,
    Action.TIME_OUT: False,
}
"""Actions that end the open txn, and whether they commit it."""

COORDINATOR_EPOCH = 0
"""There is one coordinator and it never changes."""


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
    stream_ids: list[int] = []
    for topic, partition in command.streams:
        stream = state.stream(topic, partition)
        if stream is None:
            return None, TopicMissing(topic, partition)
        stream_ids.append(stream.stream_id)
    txn = state.txns[command.txn_id]
    verdict = judge(
        txn,
        TxnEvent.ADD,
        producer_id=command.producer_id,
        epoch=command.epoch,
        now_ns=now_ns,
        txn_id=command.txn_id,
        streams=stream_ids,
        groups=command.groups,
    )
    if verdict.action in _CHANGES_NOTHING:
        return None, refusal_of_txn(verdict) or TxnDone(verdict.producer_id, verdict.epoch)
    row = next_txn(txn, verdict, txn_id=command.txn_id, now_ns=now_ns, streams=stream_ids, groups=command.groups)
    assert row is not None
    for stream_id in stream_ids:
        # The stream with the shortest patience decides how long the txn may hold back its stable offset.
        added = state.streams[stream_id]
        assert added is not None
        row.patience_ms = min(row.patience_ms, added.config.txn_timeout_ms_max)
    if (refusal := _row_refused(row)) is not None:
        return None, refusal
    return Compound(now_ns, [TxnSet(command.txn_id, row)]), TxnDone(row.producer_id, row.epoch)


def _row_refused(row: Txn) -> Refusal | None:
    """Whether the txn names more than the entry that ends it could hold. Every stretch it may yet write counts now:
    a txn that was let in must be able to end."""
    for what, count in (("streams", len(row.streams)), ("groups", len(row.groups)), ("moves", len(row.pending))):
        if count > limits.COMMIT_APPENDS_MAX:
            return TooLarge(f"{what} in one txn", limits.COMMIT_APPENDS_MAX, count)
    size = limits.TXN_RANGES_MAX * limits.TXN_RANGE_BYTES + limits.TXN_STREAM_BYTES * len(row.streams)
    size += sum(8 + len(group.encode()) for group in row.groups)
    for name, _, _, metadata in row.pending:
        size += 64 + len(name.encode()) + len(metadata.encode())
    return entry_refused("txn", size)


def decide_cursors(state: State, command: TxnCursors, now_ns: int) -> Decision:
    """Cursor moves that come true if the txn commits."""
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
    pending: list[tuple[str, int, int, str]] = []
    for move in command.moves:
        operation, refusal = moved(state, move, now_ns)
        if operation is None:
            assert refusal is not None
            return None, refusal
        pending.append((move.name, operation.stream_id, move.frontier, move.metadata))
    row = next_txn(txn, verdict, txn_id=command.txn_id, now_ns=now_ns, pending=pending)
    assert row is not None
    if (refusal := _row_refused(row)) is not None:
        return None, refusal
    return Compound(now_ns, [TxnSet(command.txn_id, row)]), TxnDone(row.producer_id, row.epoch)


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
            operations.append(HolesAdded(stream_id, ranges.copy(), int(Cause.ABORTED), txn.producer_id))
        if markers:
            operations.append(Appended(stream_id, stream.tail, 1, marker, now_ns, CONTROL))
        operations.append(TxnReleased(stream_id, txn.producer_id))
    if commit:
        operations += _pending_cursors(state, txn, now_ns)
    return operations


def _pending_cursors(state: State, txn: Txn, now_ns: int) -> list[Operation]:
    """The last move of each cursor wins, as if they had been made one after another."""
    last = {(name, stream_id): (offset, metadata) for name, stream_id, offset, metadata in txn.pending}
    moves: list[Operation] = []
    for (name, stream_id), (offset, metadata) in last.items():
        stream = state.streams[stream_id]
        if stream is None or stream.deleted_ns:
            continue
        old = state.cursors[(name, stream_id)]
        pinned = old is not None and old.pinned
        moves.append(CursorSet(name, stream_id, Cursor(offset, [], metadata, pinned, now_ns)))
    return moves
