"""`apply`: fold one entry into the state. The sole mutator; no rule is decided here.

It uses the entry and the rows it names, nothing else: recovery, the index builder and `verify` run this same code.
Every row that it touches must have been loaded (`core.needs.touched_by` lists them for a replay; when a command was
just decided they are there already).
"""

from collections.abc import Callable
from typing import Any, Final

from oncelog import limits
from oncelog.core import holes, message_id
from oncelog.core.consumer_row import change_row, copied, settle
from oncelog.core.entry import (
    CLOSES,
    CONTROL,
    MANY_CLAIMS,
    PACKED_ID,
    RENEWS,
    TRANSACTIONAL,
    Appended,
    ApplicationSet,
    Carried,
    CarriedCounters,
    CarriedIds,
    Claimed,
    ClaimRemembered,
    ConsumerChanged,
    ConsumerSet,
    CursorDeleted,
    CursorMoved,
    CursorSet,
    Entry,
    HolesAdded,
    IdsUsed,
    Moved,
    Operation,
    PartitionsAdded,
    ProducerFenced,
    ProducerIdsTaken,
    StageAppended,
    StageDropped,
    StageOpened,
    StagePublished,
    StreamClosed,
    SubjectsSet,
    SubjectsWritten,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    Trimmed,
    TxnAdded,
    TxnOffsets,
    TxnOffsetsDropped,
    TxnReleased,
    TxnSet,
)
from oncelog.core.flat import Producer, Stream
from oncelog.core.jetstream_name import base_name
from oncelog.core.producer import advance, remember, written_elsewhere
from oncelog.core.row_codec import decode_row
from oncelog.core.rows import (
    Cause,
    Cursor,
    Holder,
    HoleChunk,
    Key,
    Named,
    Pending,
    Remembered,
    Stage,
    Subject,
    Table,
    Topic,
)
from oncelog.core.state import NO_STREAM, State, copied_txn
from oncelog.core.txn import Txn, TxnState, merge_range

_TOPIC: Final = int(Table.TOPIC)
_STREAM: Final = int(Table.STREAM)
_PRODUCER: Final = int(Table.PRODUCER)


def apply(state: State, entry: Entry) -> None:
    """Make an entry true. Before: it is the next one. After: `state.entry_number` counts it."""
    assert entry.time_ns >= state.time_ns, "append times never decrease"
    state.time_ns = entry.time_ns
    if type(entry) is Appended:
        _appended(state, entry, entry.time_ns)
    else:
        for operation in entry.operations:  # type: ignore[union-attr]
            _APPLY[type(operation)](state, operation, entry.time_ns)
    state.entry_number += 1


def _stream(state: State, stream_id: int) -> Stream:
    """A stream that is about to change."""
    stream = state.streams[stream_id]
    assert stream is not None, f"stream {stream_id} is not there"
    state.touched[_STREAM].add(stream_id)
    state.changed_streams.add(stream_id)
    return stream


def _touch(state: State, table: Table, key: Key) -> None:
    state.touched[table].add(key)


def _appended(state: State, op: Appended, time_ns: int) -> None:
    stream_id = op.stream_id
    stream = state.streams[stream_id]
    assert stream is not None, f"stream {stream_id} is not there"
    state.touched[_STREAM].add(stream_id)
    state.changed_streams.add(stream_id)
    first = op.first
    assert first == stream.tail, f"stream {stream_id}: append at {first}, tail is {stream.tail}"
    next_ = first + op.count
    stream.tail = next_
    stream.time_ns = time_ns
    stream.add_bytes(len(op.batch))
    flags = op.flags
    claim = op.claim
    if claim is not None:
        key = (stream_id, claim.name)
        producer = None if flags & RENEWS else state.producers[key]
        after = advance(producer, claim, op.epoch, first, next_, time_ns)
        if after is not producer:
            state.producers[key] = after
        state.touched[_PRODUCER].add(key)
    if op.ids:
        _remember_ids(state, op.ids, stream_id, first, time_ns)
    if op.order_key:
        stream.order_key = op.order_key
    if flags:
        if flags & MANY_CLAIMS:
            _claims_of_run(state, op, time_ns)
        if flags & CLOSES:
            stream.closed = True
        if flags & CONTROL:
            _add_holes(state, stream, first, next_, Cause.CONTROL, -1)
        if flags & TRANSACTIONAL:
            _written_in_txn(state, stream, op.txn_id, first, next_)


def _claims_of_run(state: State, op: Appended, time_ns: int) -> None:
    stream_id, first, producers, touched = op.stream_id, op.first, state.producers, state.touched[_PRODUCER]
    for number, epoch, claim in op.claims:
        key = (stream_id, claim.name)
        row = producers[key]
        after = advance(row, claim, epoch, first + number, first + number + 1, time_ns)
        if after is not row:
            producers[key] = after
        touched.add(key)


def _remember_ids(state: State, ids: bytes, stream_id: int, first: int, time_ns: int) -> None:
    state.ids.update(message_id.packed_each(PACKED_ID.iter_unpack(ids), stream_id, first, time_ns))


def _written_in_txn(state: State, stream: Stream, txn_id: str, first: int, next_: int) -> None:
    txn = state.txns[txn_id]
    assert txn is not None, f"txn {txn_id!r} is not there"
    merge_range(txn.streams.setdefault(stream.stream_id, []), first, next_)
    if stream.open_txns is None:
        stream.open_txns = {}
    stream.open_txns.setdefault(txn.producer_id, first)
    _touch(state, Table.TXN, txn_id)


def _add_holes(state: State, stream: Stream, first: int, next_: int, cause: int, producer_id: int) -> None:
    for number, begin, end in holes.split_by_chunk(first, next_):
        key = (stream.stream_id, number)
        chunk = state.holes[key]
        if chunk is None:
            chunk = state.holes[key] = HoleChunk([])
        were_aborted = holes.change(chunk, begin, end, cause, producer_id)
        stream.hole_count += end - begin - were_aborted
        _touch(state, Table.HOLES, key)
        state.changed_holes.setdefault(key, []).extend((begin, end, int(cause), producer_id))


def _new_stream(state: State, stream_id: int, topic: Topic, partition: int) -> None:
    state.streams[stream_id] = Stream(stream_id, topic.topic_id, partition, topic.config, topic=topic.name)
    state.touched[_STREAM].add(stream_id)
    state.changed_streams.add(stream_id)
    state.next_id = max(state.next_id, stream_id + 1)


def _topic(state: State, name: str) -> Topic:
    topic = state.topics[name]
    assert topic is not None, f"topic {name!r} is not there"
    state.touched[_TOPIC].add(name)
    state.changed_topics.add(name)
    return topic


def _topic_created(state: State, op: TopicCreated, time_ns: int) -> None:
    topic = state.topics[op.name] = Topic(op.topic_id, op.name, list(op.stream_ids), op.config, time_ns)
    state.touched[_TOPIC].add(op.name)
    state.changed_topics.add(op.name)
    state.next_id = max(state.next_id, op.topic_id + 1)
    _name(state, base_name(op.name, op.config), op.name)
    for partition, stream_id in enumerate(op.stream_ids):
        _new_stream(state, stream_id, topic, partition)


def _partitions_added(state: State, op: PartitionsAdded, _time_ns: int) -> None:
    topic = _topic(state, op.name)
    for stream_id in op.stream_ids:
        _new_stream(state, stream_id, topic, len(topic.stream_ids))
        topic.stream_ids.append(stream_id)


def _name(state: State, nats_name: str, topic: str) -> None:
    """A JetStream name is that of this topic from now on; of none, if that is empty."""
    state.nats_names[nats_name] = Named(topic) if topic else None
    _touch(state, Table.NATS_NAME, nats_name)


def _topic_configured(state: State, op: TopicConfigured, _time_ns: int) -> None:
    topic = _topic(state, op.name)
    before, after = base_name(op.name, topic.config), base_name(op.name, op.config)
    if before != after:
        _name(state, before, "")
        _name(state, after, op.name)
    topic.config = op.config
    for stream_id in op.stream_ids:
        _stream(state, stream_id).config = op.config


def _topic_deleted(state: State, op: TopicDeleted, time_ns: int) -> None:
    _name(state, base_name(op.name, _topic(state, op.name).config), "")
    state.topics[op.name] = None
    for stream_id in op.stream_ids:
        stream = _stream(state, stream_id)
        stream.deleted_ns = time_ns
        stream.closed = True
        stream.open_txns = None


def _stream_closed(state: State, op: StreamClosed, _time_ns: int) -> None:
    _stream(state, op.stream_id).closed = True


def _trimmed(state: State, op: Trimmed, time_ns: int) -> None:
    stream = _stream(state, op.stream_id)
    assert stream.floor < op.floor <= stream.stable
    stream.floor = op.floor
    marks = stream.trim_marks or []
    marks += (op.floor, time_ns)
    floor_ns = stream.config.dedupe_floor_ms * 1_000_000
    # Of the marks that no remembered id can ask about any more the newest stays: without it, what lies below would
    # count as removed by the next trim, and forgotten ids would come back.
    while floor_ns >= 0 and len(marks) > 2 and time_ns - marks[3] >= floor_ns:
        del marks[:2]
    if len(marks) > 2 * limits.TRIM_MARKS_MAX:
        # Joined with the stretch above it, which was removed later: its ids are remembered for longer.
        oldest = 2 if 0 <= floor_ns <= time_ns - marks[1] else 0
        del marks[oldest : oldest + 2]
    stream.trim_marks = marks


def _holes_added(state: State, op: HolesAdded, _time_ns: int) -> None:
    stream = _stream(state, op.stream_id)
    for at in range(0, len(op.ranges), 2):
        _add_holes(state, stream, op.ranges[at], op.ranges[at + 1], op.cause, op.producer_id)


def _claimed(state: State, op: Claimed, time_ns: int) -> None:
    claim = op.claim
    written = written_elsewhere(op.stream_id, claim, op.outcome)
    key = (op.stream_id, claim.name)
    producer = None if op.renews else state.producers[key]
    state.producers[key] = remember(producer, claim, op.epoch, written, time_ns)
    state.touched[_PRODUCER].add(key)


def _producer_fenced(state: State, op: ProducerFenced, time_ns: int) -> None:
    key = (op.stream_id, op.name)
    producer = state.producers[key]
    if producer is None or producer.epoch < op.epoch:
        state.producers[key] = Producer(op.epoch, op.mode, -1, time_ns, ())
        state.touched[_PRODUCER].add(key)


def _cursor_set(state: State, op: CursorSet, _time_ns: int) -> None:
    key = (op.name, op.stream_id)
    state.cursors[key] = copied(op.cursor)
    _touch(state, Table.CURSOR, key)
    _pin(state, op.name, op.stream_id, op.cursor.frontier if op.cursor.pinned else None)


def _cursor_moved(state: State, op: CursorMoved, time_ns: int) -> None:
    key = (op.name, op.stream_id)
    cursor = state.cursors[key]
    if cursor is None:
        cursor = state.cursors[key] = Cursor(0, [], created_ns=time_ns)
    cursor.delivered, cursor.waiting = op.frontier, {}
    cursor.frontier, cursor.confirmed, cursor.metadata = op.frontier, [], op.metadata
    cursor.pinned, cursor.used_ns, cursor.given = op.pinned, time_ns, op.given
    _touch(state, Table.CURSOR, key)
    _pin(state, op.name, op.stream_id, op.frontier if op.pinned else None)


def _consumer_changed(state: State, op: ConsumerChanged, time_ns: int) -> None:
    key = (op.name, op.stream_id)
    cursor = state.cursors[key]
    if cursor is None:
        cursor = state.cursors[key] = Cursor(0, [], created_ns=time_ns)
    change_row(cursor, op, time_ns)
    cursor.pinned = op.pinned
    _touch(state, Table.CURSOR, key)
    _pin(state, op.name, op.stream_id, op.frontier if op.pinned else None)


def _consumer_set(state: State, op: ConsumerSet, time_ns: int) -> None:
    key = (op.name, op.stream_id)
    cursor = state.cursors[key]
    if cursor is None:
        cursor = state.cursors[key] = Cursor(op.frontier, [], created_ns=time_ns, delivered=op.frontier)
    settle(cursor, op, time_ns)
    _touch(state, Table.CURSOR, key)
    if op.stream_id != NO_STREAM:
        _pin(state, op.name, op.stream_id, cursor.frontier if op.pinned else None)


def _subjects_written(state: State, op: SubjectsWritten, _time_ns: int) -> None:
    stream = _stream(state, op.stream_id)
    assert stream.subjects_next in (-1, op.first), f"subjects are indexed to {stream.subjects_next}, not {op.first}"
    stream.subjects_next = op.next
    for subject, count, first, last in op.subjects:
        key = (op.stream_id, subject)
        row = state.subjects[key]
        if row is None:
            state.subjects[key] = Subject(count, first, last)
        else:
            row.count += count
            row.last = last
        _touch(state, Table.SUBJECT, key)


def _subjects_set(state: State, op: SubjectsSet, _time_ns: int) -> None:
    for subject, count, first, last in op.subjects:
        key = (op.stream_id, subject)
        state.subjects[key] = Subject(count, first, last) if count else None
        _touch(state, Table.SUBJECT, key)


def _cursor_deleted(state: State, op: CursorDeleted, _time_ns: int) -> None:
    key = (op.name, op.stream_id)
    state.cursors[key] = None
    _touch(state, Table.CURSOR, key)
    if op.stream_id != NO_STREAM:
        _pin(state, op.name, op.stream_id, None)


def _pin(state: State, name: str, stream_id: int, frontier: int | None) -> None:
    stream = state.streams[stream_id]
    if stream is None or (frontier is None and name not in (stream.pins or {})):
        return
    if stream.pins is None:
        stream.pins = {}
    if frontier is None:
        del stream.pins[name]
    else:
        stream.pins[name] = frontier
    state.touched[_STREAM].add(stream_id)


def _claim_remembered(state: State, op: ClaimRemembered, time_ns: int) -> None:
    key = (op.scope, op.claim_id)
    state.remembered[key] = Remembered(op.digest, list(op.outcome), time_ns, op.floor_ms)
    _touch(state, Table.REMEMBERED, key)


def _ids_used(state: State, op: IdsUsed, time_ns: int) -> None:
    for number in range(len(op.hashes) // 16):
        value = op.values[number * message_id.VALUE_BYTES : (number + 1) * message_id.VALUE_BYTES]
        state.ids[op.hashes[number * 16 : number * 16 + 16]] = message_id.used_again(value, time_ns)


def _stage_opened(state: State, op: StageOpened, time_ns: int) -> None:
    expires_ns = time_ns + op.ttl_ms * 1_000_000
    state.stages[op.stage_id] = Stage(
        op.stage_id, op.application, op.fence, 0, 0, expires_ns, op.ttl_ms, content_type=op.content_type
    )
    _touch(state, Table.STAGE, op.stage_id)
    state.next_id = max(state.next_id, op.stage_id + 1)


def _stage_appended(state: State, op: StageAppended, time_ns: int) -> None:
    stage = state.stages[op.stage_id]
    assert stage is not None, f"stage {op.stage_id} is not there"
    assert stage.count == op.first, f"stage {op.stage_id}: append at {op.first}, count is {stage.count}"
    stage.last_first, stage.last_digest = op.first, op.digest
    stage.count += op.count
    stage.stored_bytes += len(op.batch)
    stage.expires_ns = time_ns + stage.ttl_ms * 1_000_000
    _touch(state, Table.STAGE, op.stage_id)


def _stage_dropped(state: State, op: StageDropped, _time_ns: int) -> None:
    state.stages[op.stage_id] = None
    _touch(state, Table.STAGE, op.stage_id)


def _stage_published(state: State, op: StagePublished, time_ns: int) -> None:
    stream = _stream(state, op.stream_id)
    assert op.first == stream.tail
    stream.tail += op.count
    stream.time_ns = time_ns
    stage = state.stages[op.stage_id]
    stream.add_bytes(0 if stage is None else stage.stored_bytes)
    if op.ids:
        _remember_ids(state, op.ids, op.stream_id, op.first, time_ns)
    state.stages[op.stage_id] = None
    _touch(state, Table.STAGE, op.stage_id)


def _application_set(state: State, op: ApplicationSet, _time_ns: int) -> None:
    state.applications[op.name] = op.application
    _touch(state, Table.APPLICATION, op.name)


def _txn_set(state: State, op: TxnSet, _time_ns: int) -> None:
    old, new = state.txns[op.txn_id], op.txn
    if old is not None:
        _drop_pending(state, old, {(name, stream_id) for name, stream_id, _, _ in old.pending})
        if new is None or new.producer_id != old.producer_id:
            state.holders[old.producer_id] = None
            _touch(state, Table.HOLDER, old.producer_id)
    if new is not None and (old is None or new.producer_id != old.producer_id):
        state.holders[new.producer_id] = Holder(op.txn_id)
        _touch(state, Table.HOLDER, new.producer_id)
    row = state.txns[op.txn_id] = None if new is None else copied_txn(new)
    _touch(state, Table.TXN, op.txn_id)
    for name, stream_id, _, _ in row.pending if row is not None else ():
        _await_pending(state, op.txn_id, (name, stream_id))


def _open_txn(state: State, txn_id: str) -> Txn:
    """A txn that is about to change."""
    txn = state.txns[txn_id]
    assert txn is not None, f"txn {txn_id!r} is not there"
    _touch(state, Table.TXN, txn_id)
    return txn


def _txn_added(state: State, op: TxnAdded, time_ns: int) -> None:
    txn = _open_txn(state, op.txn_id)
    if op.starts:
        assert not txn.streams
        assert not txn.pending
        txn.state, txn.started_ns, txn.patience_ms = TxnState.ONGOING, time_ns, limits.TXN_TIMEOUT_MS_MAX
    txn.updated_ns = time_ns
    txn.patience_ms = min(txn.patience_ms, op.patience_ms)
    for stream_id in op.streams:
        txn.streams.setdefault(stream_id, [])
    txn.groups.extend(op.groups)


def _txn_offsets(state: State, op: TxnOffsets, time_ns: int) -> None:
    txn = _open_txn(state, op.txn_id)
    txn.updated_ns = time_ns
    last = {(name, stream_id): (name, stream_id, offset, metadata) for name, stream_id, offset, metadata in op.moves}
    txn.pending = [move for move in txn.pending if move[:2] not in last] + list(last.values())
    for key in last:
        _await_pending(state, op.txn_id, key)


def _txn_offsets_dropped(state: State, op: TxnOffsetsDropped, _time_ns: int) -> None:
    _drop_pending(state, _open_txn(state, op.txn_id), set(op.cursors))


def _await_pending(state: State, txn_id: str, key: tuple[str, int]) -> None:
    """The txn has a move of this cursor that waits for its commit."""
    row = state.pending[key]
    if row is None:
        state.pending[key] = Pending([txn_id])
    elif txn_id not in row.txn_ids:
        row.txn_ids.append(txn_id)
    _touch(state, Table.PENDING, key)


def _drop_pending(state: State, txn: Txn, keys: set[tuple[str, int]]) -> None:
    """The txn has no move of these cursors any more."""
    txn.pending = [move for move in txn.pending if move[:2] not in keys]
    for key in keys:
        row = state.pending[key]
        if row is not None and txn.txn_id in row.txn_ids:
            row.txn_ids.remove(txn.txn_id)
            if not row.txn_ids:
                state.pending[key] = None
        _touch(state, Table.PENDING, key)


def _txn_released(state: State, op: TxnReleased, _time_ns: int) -> None:
    stream = _stream(state, op.stream_id)
    if stream.open_txns is not None:
        stream.open_txns.pop(op.producer_id, None)
        if not stream.open_txns:
            stream.open_txns = None


def _producer_ids_taken(state: State, op: ProducerIdsTaken, _time_ns: int) -> None:
    assert op.next_producer_id > state.next_producer_id
    state.next_producer_id = op.next_producer_id


def _moved(_state: State, _op: Moved, _time_ns: int) -> None:
    """Nothing but the place changed, and places are the index's business."""


def _carried(state: State, op: Carried, _time_ns: int) -> None:
    key: Any = tuple(op.key) if isinstance(op.key, (tuple, list)) else op.key
    state.tables[op.table][key] = decode_row(op.table, op.row) if op.row else None
    _touch(state, op.table, key)


def _carried_ids(state: State, op: CarriedIds, _time_ns: int) -> None:
    for number in range(len(op.hashes) // 16):
        value = op.values[number * message_id.VALUE_BYTES : (number + 1) * message_id.VALUE_BYTES]
        state.ids[op.hashes[number * 16 : number * 16 + 16]] = value


def _carried_counters(state: State, op: CarriedCounters, _time_ns: int) -> None:
    state.next_id = max(state.next_id, op.next_id)
    state.next_producer_id = max(state.next_producer_id, op.next_producer_id)


_APPLY: Final[dict[type[Operation], Callable[[State, Any, int], None]]] = {
    Appended: _appended,
    TopicCreated: _topic_created,
    PartitionsAdded: _partitions_added,
    TopicConfigured: _topic_configured,
    TopicDeleted: _topic_deleted,
    StreamClosed: _stream_closed,
    Trimmed: _trimmed,
    HolesAdded: _holes_added,
    Claimed: _claimed,
    ProducerFenced: _producer_fenced,
    CursorSet: _cursor_set,
    CursorDeleted: _cursor_deleted,
    ClaimRemembered: _claim_remembered,
    IdsUsed: _ids_used,
    StageOpened: _stage_opened,
    StageAppended: _stage_appended,
    StageDropped: _stage_dropped,
    StagePublished: _stage_published,
    ApplicationSet: _application_set,
    TxnSet: _txn_set,
    TxnReleased: _txn_released,
    ProducerIdsTaken: _producer_ids_taken,
    Moved: _moved,
    Carried: _carried,
    CarriedIds: _carried_ids,
    CarriedCounters: _carried_counters,
    TxnAdded: _txn_added,
    TxnOffsets: _txn_offsets,
    TxnOffsetsDropped: _txn_offsets_dropped,
    CursorMoved: _cursor_moved,
    ConsumerChanged: _consumer_changed,
    ConsumerSet: _consumer_set,
    SubjectsWritten: _subjects_written,
    SubjectsSet: _subjects_set,
}
