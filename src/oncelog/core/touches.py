"""`touched_by`: which rows must be loaded before an entry can be replayed. The mirror image of `core.apply`."""

from collections.abc import Callable
from typing import Any, Final

from oncelog.core import entry as e
from oncelog.core.rows import Table, TableKey, chunk_of
from oncelog.core.state import NO_STREAM, State
from oncelog.core.wanted import Wanted


def touched_by(state: State, entry: e.Entry) -> list[TableKey]:
    """The keys that `apply` will touch for this entry and that are not loaded yet."""
    wanted = Wanted(state)
    for operation in entry.operations if isinstance(entry, e.Compound) else (entry,):
        _TOUCHES[type(operation)](wanted, operation)
    return wanted.missing


def is_loaded(state: State, op: e.Appended) -> bool:
    """Whether `apply` finds all that it touches for an append, as it nearly always does: `touched_by` without a list.
    What it is not sure of counts as no."""
    stream_id, producers = op.stream_id, state.producers
    if stream_id not in state.streams or op.flags & (e.TRANSACTIONAL | e.CONTROL):
        return False
    if op.claim is not None and (stream_id, op.claim.name) not in producers:
        return False
    return not op.claims or all((stream_id, claim.name) in producers for _, _, claim in op.claims)


def _touch_appended(wanted: Wanted, op: e.Appended) -> None:
    wanted.row(Table.STREAM, op.stream_id)
    if op.claim is not None:
        wanted.producer(op.stream_id, op.claim.name)
    for _, _, claim in op.claims:
        wanted.producer(op.stream_id, claim.name)
    if op.txn_id:
        wanted.row(Table.TXN, op.txn_id)
    if op.flags & e.CONTROL:
        wanted.row(Table.HOLES, (op.stream_id, chunk_of(op.first)))


def _touch_topic(wanted: Wanted, op: e.PartitionsAdded) -> None:
    wanted.row(Table.TOPIC, op.name)


def _touch_whole_topic(wanted: Wanted, op: e.TopicConfigured | e.TopicDeleted) -> None:
    wanted.row(Table.TOPIC, op.name)
    for stream_id in op.stream_ids:
        wanted.row(Table.STREAM, stream_id)


def _touch_stream(wanted: Wanted, op: e.StreamClosed | e.Trimmed | e.TxnReleased) -> None:
    wanted.row(Table.STREAM, op.stream_id)


def _touch_holes(wanted: Wanted, op: e.HolesAdded) -> None:
    wanted.row(Table.STREAM, op.stream_id)
    for at in range(0, len(op.ranges), 2):
        for number in range(chunk_of(op.ranges[at]), chunk_of(op.ranges[at + 1] - 1) + 1):
            wanted.row(Table.HOLES, (op.stream_id, number))


def _touch_claimed(wanted: Wanted, op: e.Claimed) -> None:
    # `apply` needs the producer's row alone; `verify` also asks whether it was forgotten.
    if op.stream_id != NO_STREAM:
        wanted.row(Table.STREAM, op.stream_id)
    wanted.producer(op.stream_id, op.claim.name)


def _touch_fenced(wanted: Wanted, op: e.ProducerFenced) -> None:
    wanted.row(Table.PRODUCER, (op.stream_id, op.name))


def _touch_cursor(wanted: Wanted, op: e.CursorSet | e.CursorDeleted) -> None:
    if op.stream_id != NO_STREAM:
        wanted.row(Table.STREAM, op.stream_id)


def _touch_moved(wanted: Wanted, op: e.CursorMoved) -> None:
    wanted.row(Table.STREAM, op.stream_id)
    wanted.row(Table.CURSOR, (op.name, op.stream_id))


def _touch_consumer(wanted: Wanted, op: e.ConsumerChanged | e.ConsumerSet) -> None:
    if op.stream_id != NO_STREAM:
        wanted.row(Table.STREAM, op.stream_id)
    wanted.row(Table.CURSOR, (op.name, op.stream_id))


def _touch_subjects(wanted: Wanted, op: e.SubjectsWritten | e.SubjectsSet) -> None:
    wanted.row(Table.STREAM, op.stream_id)
    for subject, *_ in op.subjects:
        wanted.row(Table.SUBJECT, (op.stream_id, subject))


def _touch_txn(wanted: Wanted, op: e.TxnSet | e.TxnAdded) -> None:
    if wanted.row(Table.TXN, op.txn_id) and (txn := wanted.state.txns[op.txn_id]) is not None:
        for name, stream_id, _, _ in txn.pending:
            wanted.row(Table.PENDING, (name, stream_id))


def _touch_offsets(wanted: Wanted, op: e.TxnOffsets | e.TxnOffsetsDropped) -> None:
    wanted.row(Table.TXN, op.txn_id)
    for name, stream_id, *_ in op.moves if isinstance(op, e.TxnOffsets) else op.cursors:
        wanted.row(Table.PENDING, (name, stream_id))


def _touch_stage(wanted: Wanted, op: e.StageAppended) -> None:
    wanted.row(Table.STAGE, op.stage_id)


def _touch_published(wanted: Wanted, op: e.StagePublished) -> None:
    wanted.row(Table.STREAM, op.stream_id)
    wanted.row(Table.STAGE, op.stage_id)


def _touch_nothing(_wanted: Wanted, _op: e.Operation) -> None:
    """The whole new value is in the entry."""


_TOUCHES: Final[dict[type[e.Operation], Callable[[Wanted, Any], None]]] = {
    e.Appended: _touch_appended,
    e.TopicCreated: _touch_nothing,
    e.PartitionsAdded: _touch_topic,
    e.TopicConfigured: _touch_whole_topic,
    e.TopicDeleted: _touch_whole_topic,
    e.StreamClosed: _touch_stream,
    e.Trimmed: _touch_stream,
    e.HolesAdded: _touch_holes,
    e.Claimed: _touch_claimed,
    e.ProducerFenced: _touch_fenced,
    e.CursorSet: _touch_cursor,
    e.CursorDeleted: _touch_cursor,
    e.ClaimRemembered: _touch_nothing,
    e.IdsUsed: _touch_nothing,
    e.StageOpened: _touch_nothing,
    e.StageAppended: _touch_stage,
    e.StageDropped: _touch_nothing,
    e.StagePublished: _touch_published,
    e.ApplicationSet: _touch_nothing,
    e.TxnSet: _touch_txn,
    e.TxnReleased: _touch_stream,
    e.ProducerIdsTaken: _touch_nothing,
    e.Moved: _touch_nothing,
    e.Carried: _touch_nothing,
    e.CarriedIds: _touch_nothing,
    e.CarriedCounters: _touch_nothing,
    e.TxnAdded: _touch_txn,
    e.TxnOffsets: _touch_offsets,
    e.TxnOffsetsDropped: _touch_offsets,
    e.CursorMoved: _touch_moved,
    e.ConsumerChanged: _touch_consumer,
    e.ConsumerSet: _touch_consumer,
    e.SubjectsWritten: _touch_subjects,
    e.SubjectsSet: _touch_subjects,
}
assert set(_TOUCHES) == set(e.OPERATIONS.values()), "every operation says what it touches"
