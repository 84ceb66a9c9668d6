"""`needs`: which rows must be loaded before a command can be decided or an entry replayed.

Keys depend on rows (a name leads to a stream, a stream to a chunk of holes), so the caller asks again until nothing
is missing: each round names only keys that are not in the state yet. Ids are asked for once, when the rows are there
(`ids`); rows that a found id leads to are part of the next round.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from oncelog.core import command as c
from oncelog.core import cursor as cursor_rules
from oncelog.core import entry as e
from oncelog.core import holes, message_id
from oncelog.core.rows import Key, Stream, Table, TableKey, chunk_of
from oncelog.core.state import NO_STREAM, State


class _Wanted:
    """Collects the keys that are not loaded."""

    __slots__ = ("missing", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self.missing: list[TableKey] = []

    def row(self, table: Table, key: Key) -> bool:
        """True if the row is loaded (it may still be absent)."""
        if key in self.state.tables[table]:
            return True
        self.missing.append((table, key))
        return False

    def stream(self, topic: str, partition: int) -> Stream | None:
        """The stream of a name, as far as it is loaded."""
        if not self.row(Table.TOPIC, topic):
            return None
        row = self.state.topics[topic]
        if row is None or not 0 <= partition < len(row.stream_ids):
            return None
        if not self.row(Table.STREAM, row.stream_ids[partition]):
            return None
        return self.state.streams[row.stream_ids[partition]]

    def chunks(self, stream: Stream, first: int, next_: int) -> None:
        """The holes among [first, next_)."""
        for number in range(chunk_of(first), chunk_of(max(first, next_ - 1)) + 1):
            self.row(Table.HOLES, (stream.stream_id, number))

    def walk(self, walk: Callable[[], object]) -> None:
        """A walk over chunks that stops at the first one that is not loaded."""
        try:
            walk()
        except holes.ChunkMissing as missing:
            self.missing.append((Table.HOLES, missing.key))

    def found_id(self, stream: Stream, message_id_: bytes) -> None:
        """The rows that say whether a found id still counts and whether its record is gone."""
        value = self.state.find_id(message_id.id_hash(stream, message_id_)) if message_id_ else None
        if value is None:
            return
        _, stream_id, offset, _, _ = message_id.unpack(value)
        if self.row(Table.STREAM, stream_id):
            stored = self.state.streams[stream_id]
            if stored is not None and stored.hole_count:
                self.row(Table.HOLES, (stream_id, chunk_of(offset)))

    def moves(self, moves: Iterable[c.CursorMove]) -> None:
        """Streams and cursors of moves."""
        for move in moves:
            stream = self.stream(move.topic, move.partition)
            if stream is not None:
                self.row(Table.CURSOR, (move.name, stream.stream_id))


def needs(state: State, command: c.Command) -> list[TableKey]:
    """The next keys to load; empty when `decide` may be called (once `ids` were loaded too)."""
    wanted = _Wanted(state)
    _NEEDS[type(command)](wanted, command)
    return wanted.missing


def _append(wanted: _Wanted, command: c.Append) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is None:
        return
    if command.claim is not None:
        wanted.row(Table.PRODUCER, (stream.stream_id, command.claim.name))
    if command.txn_id:
        wanted.row(Table.TXN, command.txn_id)
    wanted.found_id(stream, command.message_id)


def _append_each(wanted: _Wanted, command: c.AppendEach) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is not None:
        for record in command.records:
            wanted.found_id(stream, record.message_id)


def _commit(wanted: _Wanted, command: c.Commit) -> None:
    for append in command.appends:
        stream = wanted.stream(append.topic, append.partition)
        if stream is not None:
            wanted.found_id(stream, append.message_id)
    for condition in command.conditions:
        if isinstance(condition, c.ExpectNew):
            if wanted.row(Table.TOPIC, condition.topic) and (topic := wanted.state.topics[condition.topic]):
                for stream_id in topic.stream_ids:
                    wanted.row(Table.STREAM, stream_id)
            continue
        stream = wanted.stream(condition.topic, condition.partition)
        if stream is None:
            continue
        if isinstance(condition, c.ExpectCursor):
            wanted.row(Table.CURSOR, (condition.name, stream.stream_id))
        elif isinstance(condition, c.ExpectEpoch):
            wanted.row(Table.PRODUCER, (stream.stream_id, condition.producer))
        elif isinstance(condition, c.ExpectId):
            wanted.found_id(stream, condition.message_id)
    wanted.moves(command.cursors)
    if command.commit_id:
        wanted.row(Table.REMEMBERED, (command.scope, command.commit_id))
    if command.claim is not None:
        wanted.row(Table.PRODUCER, (NO_STREAM, command.claim.name))


def _whole_topic(wanted: _Wanted, command: c.AddPartitions | c.ConfigureTopic | c.DeleteTopic) -> None:
    if wanted.row(Table.TOPIC, command.name) and (topic := wanted.state.topics[command.name]) is not None:
        for stream_id in topic.stream_ids:
            wanted.row(Table.STREAM, stream_id)


def _topic_name(wanted: _Wanted, command: c.CreateTopic | c.GetTopic) -> None:
    wanted.row(Table.TOPIC, command.name)


def _close(wanted: _Wanted, command: c.CloseStream) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is not None and command.claim is not None:
        wanted.row(Table.PRODUCER, (stream.stream_id, command.claim.name))


def _trim(wanted: _Wanted, command: c.Trim) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is not None:
        wanted.walk(lambda: holes.step_over(wanted.state, stream, command.floor))


def _delete_records(wanted: _Wanted, command: c.DeleteRecords) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is None or cursor_rules.ranges_refused(command.ranges, stream.stable, stream.stream_id) is not None:
        return
    for at in range(0, len(command.ranges), 2):
        wanted.chunks(stream, command.ranges[at], command.ranges[at + 1])


def _application(wanted: _Wanted, command: c.OpenApplication | c.OpenStage | c.GetApplication) -> None:
    if command.application:
        wanted.row(Table.APPLICATION, command.application)


def _append_stage(wanted: _Wanted, command: c.AppendStage) -> None:
    if wanted.row(Table.STAGE, command.stage_id):
        stage = wanted.state.stages[command.stage_id]
        if stage is not None and stage.application:
            wanted.row(Table.APPLICATION, stage.application)


def _stages(wanted: _Wanted, command: c.DropStages | c.ExpireStages) -> None:
    for stage_id in command.stage_ids:
        wanted.row(Table.STAGE, stage_id)


def _publish(wanted: _Wanted, command: c.Publish) -> None:
    wanted.row(Table.APPLICATION, command.application)
    for item in command.stages:
        wanted.stream(item.topic, item.partition)
        wanted.row(Table.STAGE, item.stage_id)
    wanted.moves(command.cursors)


def _move_cursors(wanted: _Wanted, command: c.MoveCursors) -> None:
    wanted.moves(command.moves)


def _confirm_cursor(wanted: _Wanted, command: c.ConfirmCursor) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is None or not wanted.row(Table.CURSOR, (command.name, stream.stream_id)):
        return
    if cursor_rules.ranges_refused(command.ranges, stream.stable, stream.stream_id) is None:
        cursor = wanted.state.cursors[(command.name, stream.stream_id)]
        wanted.walk(lambda: cursor_rules.confirmed_after(wanted.state, stream, cursor, command.ranges))


def _cursor(wanted: _Wanted, command: c.DeleteCursor | c.GetCursor) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is None or not wanted.row(Table.CURSOR, (command.name, stream.stream_id)):
        return
    cursor = wanted.state.cursors[(command.name, stream.stream_id)]
    if cursor is not None:
        wanted.walk(lambda: holes.step_over(wanted.state, stream, max(cursor.frontier, stream.floor)))


def _init_producer(wanted: _Wanted, command: c.InitProducer) -> None:
    if command.txn_id:
        _ending(wanted, command.txn_id)


def _ending(wanted: _Wanted, txn_id: str) -> None:
    """A txn may end: its streams, its producer's rows there, the chunks its markers and aborted ranges fall into."""
    if not wanted.row(Table.TXN, txn_id):
        return
    txn = wanted.state.txns[txn_id]
    if txn is None:
        return
    for stream_id, ranges in txn.streams.items():
        if not wanted.row(Table.STREAM, stream_id):
            continue
        stream = wanted.state.streams[stream_id]
        if stream is None:
            continue
        wanted.row(Table.PRODUCER, (stream_id, f"kafka:{txn.producer_id}"))
        wanted.row(Table.HOLES, (stream_id, chunk_of(stream.tail)))
        for at in range(0, len(ranges), 2):
            wanted.chunks(stream, ranges[at], ranges[at + 1])
    for name, stream_id, _, _ in txn.pending:
        wanted.row(Table.STREAM, stream_id)
        wanted.row(Table.CURSOR, (name, stream_id))


def _txn_ends(wanted: _Wanted, command: c.EndTxn | c.ExpireTxn) -> None:
    _ending(wanted, command.txn_id)


def _add_to_txn(wanted: _Wanted, command: c.AddToTxn) -> None:
    wanted.row(Table.TXN, command.txn_id)
    for topic, partition in command.streams:
        wanted.stream(topic, partition)


def _txn_cursors(wanted: _Wanted, command: c.TxnCursors) -> None:
    wanted.row(Table.TXN, command.txn_id)
    wanted.moves(command.moves)


def _get_stream(wanted: _Wanted, command: c.GetStream) -> None:
    wanted.stream(command.topic, command.partition)


def _get_receipt(wanted: _Wanted, command: c.GetReceipt) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is not None:
        wanted.found_id(stream, command.message_id)


def _get_producer(wanted: _Wanted, command: c.GetProducer) -> None:
    stream_id = NO_STREAM
    if command.topic:
        stream = wanted.stream(command.topic, command.partition)
        if stream is None:
            return
        stream_id = stream.stream_id
    wanted.row(Table.PRODUCER, (stream_id, command.name))


def _get_txn(wanted: _Wanted, command: c.GetTxn) -> None:
    wanted.row(Table.TXN, command.txn_id)


_NEEDS: Final[dict[type[c.Command], Callable[[_Wanted, Any], None]]] = {
    c.Append: _append,
    c.AppendEach: _append_each,
    c.Commit: _commit,
    c.CreateTopic: _topic_name,
    c.AddPartitions: _whole_topic,
    c.ConfigureTopic: _whole_topic,
    c.DeleteTopic: _whole_topic,
    c.CloseStream: _close,
    c.Trim: _trim,
    c.DeleteRecords: _delete_records,
    c.OpenApplication: _application,
    c.OpenStage: _application,
    c.AppendStage: _append_stage,
    c.DropStages: _stages,
    c.Publish: _publish,
    c.MoveCursors: _move_cursors,
    c.ConfirmCursor: _confirm_cursor,
    c.DeleteCursor: _cursor,
    c.InitProducer: _init_producer,
    c.AddToTxn: _add_to_txn,
    c.TxnCursors: _txn_cursors,
    c.EndTxn: _txn_ends,
    c.ExpireTxn: _txn_ends,
    c.ExpireStages: _stages,
    c.GetTopic: _topic_name,
    c.GetStream: _get_stream,
    c.GetReceipt: _get_receipt,
    c.GetProducer: _get_producer,
    c.GetCursor: _cursor,
    c.GetTxn: _get_txn,
    c.GetApplication: _application,
}


# --- message ids ---------------------------------------------------------------------------------------------------


def ids(state: State, command: c.Command) -> list[bytes]:
    """The hashes of all ids that a command names. Its streams must be loaded."""
    kind = type(command)
    if kind is c.Append or kind is c.GetReceipt:
        stream = state.stream(command.topic, command.partition)  # type: ignore[union-attr]
        name = command.message_id  # type: ignore[union-attr]
        return [message_id.id_hash(stream, name)] if stream is not None and name else []
    if kind is c.AppendEach:
        stream = state.stream(command.topic, command.partition)  # type: ignore[union-attr]
        if stream is None:
            return []
        records = command.records  # type: ignore[union-attr]
        return [message_id.id_hash(stream, record.message_id) for record in records if record.message_id]
    if kind is c.Commit:
        named = [(a.topic, a.partition, a.message_id) for a in command.appends]  # type: ignore[union-attr]
        conditions = command.conditions  # type: ignore[union-attr]
        named += [(x.topic, x.partition, x.message_id) for x in conditions if isinstance(x, c.ExpectId)]
        return [
            message_id.id_hash(stream, name)
            for topic, partition, name in named
            if name and (stream := state.stream(topic, partition)) is not None
        ]
    return []


# --- replay --------------------------------------------------------------------------------------------------------


def touched_by(state: State, entry: e.Entry) -> list[TableKey]:
    """The keys that `apply` will touch for this entry and that are not loaded yet."""
    wanted = _Wanted(state)
    for operation in entry.operations if isinstance(entry, e.Compound) else (entry,):
        _TOUCHES[type(operation)](wanted, operation)
    return wanted.missing


def _touch_appended(wanted: _Wanted, op: e.Appended) -> None:
    wanted.row(Table.STREAM, op.stream_id)
    if op.claim is not None:
        wanted.row(Table.PRODUCER, (op.stream_id, op.claim.name))
    if op.txn_id:
        wanted.row(Table.TXN, op.txn_id)
    if op.flags & e.CONTROL:
        wanted.row(Table.HOLES, (op.stream_id, chunk_of(op.first)))


def _touch_topic(wanted: _Wanted, op: e.PartitionsAdded) -> None:
    wanted.row(Table.TOPIC, op.name)


def _touch_whole_topic(wanted: _Wanted, op: e.TopicConfigured | e.TopicDeleted) -> None:
    wanted.row(Table.TOPIC, op.name)
    for stream_id in op.stream_ids:
        wanted.row(Table.STREAM, stream_id)


def _touch_stream(wanted: _Wanted, op: e.StreamClosed | e.Trimmed | e.TxnReleased) -> None:
    wanted.row(Table.STREAM, op.stream_id)


def _touch_holes(wanted: _Wanted, op: e.HolesAdded) -> None:
    wanted.row(Table.STREAM, op.stream_id)
    for at in range(0, len(op.ranges), 2):
        for number in range(chunk_of(op.ranges[at]), chunk_of(op.ranges[at + 1] - 1) + 1):
            wanted.row(Table.HOLES, (op.stream_id, number))


def _touch_claimed(wanted: _Wanted, op: e.Claimed) -> None:
    if op.stream_id != NO_STREAM:
        wanted.row(Table.STREAM, op.stream_id)
    wanted.row(Table.PRODUCER, (op.stream_id, op.claim.name))


def _touch_fenced(wanted: _Wanted, op: e.ProducerFenced) -> None:
    wanted.row(Table.PRODUCER, (op.stream_id, op.name))


def _touch_cursor(wanted: _Wanted, op: e.CursorSet | e.CursorDeleted) -> None:
    wanted.row(Table.STREAM, op.stream_id)


def _touch_stage(wanted: _Wanted, op: e.StageAppended) -> None:
    wanted.row(Table.STAGE, op.stage_id)


def _touch_published(wanted: _Wanted, op: e.StagePublished) -> None:
    wanted.row(Table.STREAM, op.stream_id)


def _touch_nothing(_wanted: _Wanted, _op: e.Operation) -> None:
    """The whole new value is in the entry."""


_TOUCHES: Final[dict[type[e.Operation], Callable[[_Wanted, Any], None]]] = {
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
    e.TxnSet: _touch_nothing,
    e.TxnReleased: _touch_stream,
    e.ProducerIdsTaken: _touch_nothing,
    e.Moved: _touch_nothing,
    e.Carried: _touch_nothing,
    e.CarriedIds: _touch_nothing,
    e.CarriedCounters: _touch_nothing,
}
assert set(_TOUCHES) == set(e.OPERATIONS.values()), "every operation says what it touches"
