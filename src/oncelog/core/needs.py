"""`needs`: which rows must be loaded before a command can be decided or an entry replayed.

Keys depend on rows (a name leads to a stream, a stream to a chunk of holes), so the caller asks again until nothing
is missing: each round names only keys that are not in the state yet. Ids are asked for once, when the rows are there
(`ids`); rows that a found id leads to are part of the next round. For a replay ask `touched_by`.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from oncelog import limits
from oncelog.core import command as c
from oncelog.core import cursor as cursor_rules
from oncelog.core import holes, message_id
from oncelog.core import stream as stream_rules
from oncelog.core.append import kafka_name
from oncelog.core.commit import commit_ids, frontiers
from oncelog.core.fact_columns import as_columns, holds_facts, prepared
from oncelog.core.flat import Stream
from oncelog.core.jetstream_name import base_name, rows_asked
from oncelog.core.names import claim_refused, command_refused, consumer_refused, move_refused
from oncelog.core.rows import Cursor, Table, TableKey, TopicConfig, chunk_of
from oncelog.core.state import NO_STREAM, State
from oncelog.core.subjects import is_current, keys_in, subject_of
from oncelog.core.touches import touched_by
from oncelog.core.wanted import Wanted
from oncelog.errors import BatchInvalid

__all__ = ["ids", "needs", "touched_by"]


def needs(state: State, command: c.Command) -> list[TableKey]:
    """The next keys to load; empty when `decide` may be called (once `ids` were loaded too)."""
    wanted = Wanted(state)
    _NEEDS[type(command)](wanted, command)
    # A name that no key can spell is refused by `decide`, which then looks nothing up. What is loaded was spelled
    # before, so only a command with something missing has to be looked at.
    if wanted.missing and command_refused(command) is not None:
        return []
    return wanted.missing


def _append(wanted: Wanted, command: c.Append) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is not None and holds_facts(stream):
        asked = as_columns(command)
        if isinstance(asked, c.Columns):
            _columns(wanted, asked)
    elif stream is not None:
        if command.claim is not None:
            wanted.producer(stream.stream_id, command.claim.name)
        wanted.found_id(stream, command.message_id)
        _subjects(wanted, stream, command.batch)
    if command.txn_id:
        wanted.row(Table.TXN, command.txn_id)


def _subjects(wanted: Wanted, stream: Stream, batch: bytes) -> None:
    """The rows of the subjects in a ready batch, where they are indexed."""
    if is_current(stream):
        with contextlib.suppress(BatchInvalid):
            _subject_rows(wanted, stream, map(subject_of, keys_in(batch)))


def _subject_rows(wanted: Wanted, stream: Stream, subjects: Iterable[str]) -> None:
    for subject in dict.fromkeys(subjects):
        wanted.row(Table.SUBJECT, (stream.stream_id, subject))


def _columns(wanted: Wanted, command: c.Columns) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is None:
        return
    for claim in command.claims or ():
        # A name that no table can hold is refused for its value alone.
        if claim is not None and ((stream.stream_id, claim.name) in wanted.state.producers or not claim_refused(claim)):
            wanted.producer(stream.stream_id, claim.name)
    for id_ in prepared(stream, command).message_ids or ():
        wanted.found_id(stream, id_)
    if is_current(stream):
        keys = command.keys if command.keys is not None else [None]
        expected = [one[0] for one in command.expected_subjects or () if one is not None]
        _subject_rows(wanted, stream, [*map(subject_of, keys), *expected])
    key = (command.batch_scope, command.batch_id)
    if command.batch_id and wanted.row(Table.REMEMBERED, key) and (row := wanted.state.remembered[key]) is not None:
        wanted.outcome(row.outcome)
        if (stored := wanted.state.streams.get(row.outcome[0])) is not None and stored.hole_count:
            wanted.row(Table.HOLES, (stored.stream_id, chunk_of(row.outcome[1])))


def _commit(wanted: Wanted, command: c.Commit) -> None:
    for append in command.appends:
        stream = wanted.stream(append.topic, append.partition)
        if stream is not None:
            for id_ in commit_ids(stream, append):
                wanted.found_id(stream, id_)
            _subjects(wanted, stream, append.batch)
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
            if wanted.row(Table.CURSOR, (condition.name, stream.stream_id)):
                _frontiers(wanted, stream, condition.name)
        elif isinstance(condition, c.ExpectEpoch):
            wanted.producer(stream.stream_id, condition.producer)
        elif isinstance(condition, c.ExpectId):
            wanted.found_id(stream, condition.message_id)
    wanted.moves(command.cursors)
    key = (command.scope, command.commit_id)
    if command.commit_id and wanted.row(Table.REMEMBERED, key) and (row := wanted.state.remembered[key]) is not None:
        wanted.outcome(row.outcome)
    if command.claim is not None:
        wanted.producer(NO_STREAM, command.claim.name)


def _frontiers(wanted: Wanted, stream: Stream, name: str) -> None:
    cursor = wanted.state.cursors[(name, stream.stream_id)]
    wanted.walk(lambda: frontiers(wanted.state, stream, cursor))


def _whole_topic(wanted: Wanted, command: c.AddPartitions | c.ConfigureTopic | c.DeleteTopic) -> None:
    if wanted.row(Table.TOPIC, command.name) and (topic := wanted.state.topics[command.name]) is not None:
        for stream_id in topic.stream_ids:
            wanted.row(Table.STREAM, stream_id)
        if isinstance(command, c.AddPartitions) and command.partitions <= limits.PARTITIONS_MAX:
            _nats_names(wanted, base_name(command.name, topic.config), command.partitions)
        elif isinstance(command, c.ConfigureTopic):
            asked = command.changes.get("nats_name") if command.config is None else command.config.nats_name
            config = TopicConfig(nats_name=topic.config.nats_name if asked is None else str(asked))
            _nats_names(wanted, base_name(command.name, config), len(topic.stream_ids))


def _nats_names(wanted: Wanted, base: str, partitions: int) -> None:
    """The topics that may have a JetStream name that this one asks for."""
    for asked in rows_asked(base, partitions):
        if wanted.row(Table.NATS_NAME, asked) and (row := wanted.state.nats_names[asked]) is not None:
            wanted.row(Table.TOPIC, row.topic)


def _topic_name(wanted: Wanted, command: c.GetTopic) -> None:
    wanted.row(Table.TOPIC, command.name)


def _create(wanted: Wanted, command: c.CreateTopic) -> None:
    if not wanted.row(Table.TOPIC, command.name):
        return
    if (topic := wanted.state.topics[command.name]) is not None:
        wanted.row(Table.STREAM, topic.stream_ids[0])
    elif 1 <= command.partitions <= limits.PARTITIONS_MAX and command_refused(command) is None:
        _nats_names(wanted, base_name(command.name, command.config), command.partitions)


def _close(wanted: Wanted, command: c.CloseStream) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is not None and command.claim is not None:
        wanted.producer(stream.stream_id, command.claim.name)


def _trim(wanted: Wanted, command: c.Trim) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is None or command.floor <= stream.floor:
        return
    if command.floor <= stream.stable or command.as_far_as_allowed:
        wanted.walk(lambda: stream_rules.first_pin(wanted.state, stream))
        state = wanted.state
        wanted.walk(lambda: holes.step_over(state, stream, stream_rules.allowed_floor(state, stream, command)))


def _delete_records(wanted: Wanted, command: c.DeleteRecords) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is None or stream_rules.deletion_refused(stream, command.ranges) is not None:
        return
    for at in range(0, len(command.ranges), 2):
        wanted.chunks(stream, command.ranges[at], command.ranges[at + 1])


def _begin_subjects(wanted: Wanted, command: c.BeginSubjects) -> None:
    wanted.stream(command.topic, command.partition)


def _index_subjects(wanted: Wanted, command: c.IndexSubjects) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is not None and command.first == stream.subjects_next:
        for subject, *_ in command.subjects:
            if subject_of(subject.encode("utf-8", "surrogatepass")) == subject:
                wanted.row(Table.SUBJECT, (stream.stream_id, subject))


def _get_subject(wanted: Wanted, command: c.GetSubject) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is not None and stream.subjects_next >= 0:
        wanted.row(Table.SUBJECT, (stream.stream_id, command.subject))


def _application(wanted: Wanted, command: c.OpenApplication | c.OpenStage | c.GetApplication) -> None:
    if command.application:
        wanted.row(Table.APPLICATION, command.application)


def _append_stage(wanted: Wanted, command: c.AppendStage) -> None:
    if wanted.row(Table.STAGE, command.stage_id):
        stage = wanted.state.stages[command.stage_id]
        if stage is not None and stage.application:
            wanted.row(Table.APPLICATION, stage.application)


def _stages(wanted: Wanted, command: c.DropStages | c.ExpireStages) -> None:
    for stage_id in command.stage_ids:
        wanted.row(Table.STAGE, stage_id)


def _publish(wanted: Wanted, command: c.Publish) -> None:
    wanted.row(Table.APPLICATION, command.application)
    named: list[tuple[Stream, c.PublishItem]] = []
    added: dict[int, int] = {}
    for item in command.stages:
        stream = wanted.stream(item.topic, item.partition)
        wanted.row(Table.STAGE, item.stage_id)
        if stream is not None:
            first = stream.tail + added.get(stream.stream_id, 0)
            added[stream.stream_id] = added.get(stream.stream_id, 0) + item.count
            if item.ids:
                # Each may turn out to be known, and its record a hole from the start.
                wanted.chunks(stream, first, first + item.count)
                named.append((stream, item))
    wanted.moves(command.cursors)
    if wanted.missing:
        return  # there are thousands of ids: looked at when all else is there
    for stream, item in named:
        for _, id_, _ in item.ids or ():
            wanted.found_id(stream, id_)


def _move_cursors(wanted: Wanted, command: c.MoveCursors) -> None:
    wanted.moves(command.moves)


def _commit_offsets(wanted: Wanted, command: c.CommitOffsets) -> None:
    for key in _given(wanted, command.moves):
        if wanted.row(Table.PENDING, key) and (row := wanted.state.pending[key]) is not None:
            for txn_id in row.txn_ids:
                wanted.row(Table.TXN, txn_id)


def _given(wanted: Wanted, moves: list[c.CursorMove]) -> Iterator[tuple[str, int]]:
    """The cursors of moves that are answered alone, as far as their streams are there."""
    for move in moves:
        if move_refused(move) is None and (stream := wanted.stream(move.topic, move.partition)) is not None:
            key = (move.name, stream.stream_id)
            wanted.row(Table.CURSOR, key)
            yield key


def _confirm_cursor(wanted: Wanted, command: c.ConfirmCursor) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is None or not wanted.row(Table.CURSOR, (command.name, stream.stream_id)):
        return
    if cursor_rules.ranges_refused(command.ranges, stream.stable, stream.stream_id) is None:
        cursor = wanted.state.cursors[(command.name, stream.stream_id)]
        wanted.walk(lambda: cursor_rules.confirmed_after(wanted.state, stream, cursor, command.ranges))


def _cursor(wanted: Wanted, command: c.DeleteCursor | c.GetCursor) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is None or not wanted.row(Table.CURSOR, (command.name, stream.stream_id)):
        return
    wanted.row(Table.PENDING, (command.name, stream.stream_id))
    cursor = wanted.state.cursors[(command.name, stream.stream_id)]
    if cursor is not None:
        wanted.walk(lambda: cursor_rules.as_told(wanted.state, stream, cursor))


def _consumer(wanted: Wanted, name: str, topic: str, partition: int) -> tuple[Stream | None, Cursor | None]:
    """The stream and the row of a consumer, as far as they are loaded."""
    stream = wanted.stream(topic, partition) if topic else None
    if topic and stream is None:
        return None, None
    key = (name, NO_STREAM if stream is None else stream.stream_id)
    return stream, wanted.state.cursors[key] if wanted.row(Table.CURSOR, key) else None


def _set_consumer(wanted: Wanted, command: c.SetConsumer) -> None:
    stream, cursor = _consumer(wanted, command.name, command.topic, command.partition)
    if stream is not None:
        placed = cursor if cursor is not None else Cursor(command.start, [])
        wanted.walk(lambda: cursor_rules.as_told(wanted.state, stream, placed))


def _update_consumers(wanted: Wanted, command: c.UpdateConsumers) -> None:
    for update in command.updates:
        if consumer_refused(update.name, update.topic, update.partition) is not None:
            continue
        stream, cursor = _consumer(wanted, update.name, update.topic, update.partition)
        if stream is None or cursor is None or not stream.hole_count:
            continue
        if update.confirm and cursor_rules.ranges_refused(update.confirm, stream.stable, stream.stream_id) is not None:
            continue
        # Whatever the updates before it left: every place that a frontier or a range may stop at.
        wanted.walk(lambda: cursor_rules.confirmed_after(wanted.state, stream, cursor, []))  # noqa: B023
        for offset in (*update.confirm[1::2], *cursor.confirmed[1::2]):
            wanted.walk(lambda: holes.step_over(wanted.state, stream, offset))  # noqa: B023


def _delete_consumer(wanted: Wanted, command: c.DeleteConsumer) -> None:
    for topic, partition in command.streams:
        _consumer(wanted, command.name, topic, partition)


def _get_cursor(wanted: Wanted, command: c.GetCursor) -> None:
    if command.topic:
        _cursor(wanted, command)
    else:
        _consumer(wanted, command.name, "", 0)


def _init_producer(wanted: Wanted, command: c.InitProducer) -> None:
    if command.txn_id:
        _ending(wanted, command.txn_id)


def _ending(wanted: Wanted, txn_id: str, *, aborts: bool = True) -> None:
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
        wanted.row(Table.PRODUCER, (stream_id, kafka_name(txn.producer_id)))
        wanted.row(Table.HOLES, (stream_id, chunk_of(stream.tail)))
        for at in range(0, len(ranges) if aborts else 0, 2):
            wanted.chunks(stream, ranges[at], ranges[at + 1])
    for name, stream_id, _, _ in txn.pending:
        wanted.row(Table.STREAM, stream_id)
        wanted.row(Table.CURSOR, (name, stream_id))
        wanted.row(Table.PENDING, (name, stream_id))


def _end_txn(wanted: Wanted, command: c.EndTxn) -> None:
    _ending(wanted, command.txn_id, aborts=not command.commit)


def _write_marker(wanted: Wanted, command: c.WriteMarker) -> None:
    for topic, partition in command.streams:
        wanted.stream(topic, partition)
    if wanted.row(Table.HOLDER, command.producer_id) and (row := wanted.state.holders[command.producer_id]) is not None:
        _ending(wanted, row.txn_id)


def _expire_txn(wanted: Wanted, command: c.ExpireTxn) -> None:
    _ending(wanted, command.txn_id)


def _add_to_txn(wanted: Wanted, command: c.AddToTxn) -> None:
    wanted.row(Table.TXN, command.txn_id)
    for topic, partition in command.streams:
        wanted.stream(topic, partition)


def _txn_cursors(wanted: Wanted, command: c.TxnCursors) -> None:
    wanted.row(Table.TXN, command.txn_id)
    for key in _given(wanted, command.moves):
        wanted.row(Table.PENDING, key)


def _get_stream(wanted: Wanted, command: c.GetStream) -> None:
    wanted.stream(command.topic, command.partition)


def _get_receipt(wanted: Wanted, command: c.GetReceipt) -> None:
    stream = wanted.stream(command.topic, command.partition)
    if stream is not None:
        wanted.found_id(stream, command.message_id)


def _get_producer(wanted: Wanted, command: c.GetProducer) -> None:
    stream_id = NO_STREAM
    if command.topic:
        stream = wanted.stream(command.topic, command.partition)
        if stream is None:
            return
        stream_id = stream.stream_id
    wanted.producer(stream_id, command.name)


def _get_txn(wanted: Wanted, command: c.GetTxn) -> None:
    wanted.row(Table.TXN, command.txn_id)


_NEEDS: Final[dict[type[c.Command], Callable[[Wanted, Any], None]]] = {
    c.Append: _append,
    c.Columns: _columns,
    c.Commit: _commit,
    c.CreateTopic: _create,
    c.AddPartitions: _whole_topic,
    c.ConfigureTopic: _whole_topic,
    c.DeleteTopic: _whole_topic,
    c.CloseStream: _close,
    c.Trim: _trim,
    c.DeleteRecords: _delete_records,
    c.BeginSubjects: _begin_subjects,
    c.IndexSubjects: _index_subjects,
    c.GetSubject: _get_subject,
    c.OpenApplication: _application,
    c.OpenStage: _application,
    c.AppendStage: _append_stage,
    c.DropStages: _stages,
    c.Publish: _publish,
    c.MoveCursors: _move_cursors,
    c.CommitOffsets: _commit_offsets,
    c.ConfirmCursor: _confirm_cursor,
    c.SetConsumer: _set_consumer,
    c.UpdateConsumers: _update_consumers,
    c.DeleteConsumer: _delete_consumer,
    c.DeleteCursor: _cursor,
    c.InitProducer: _init_producer,
    c.AddToTxn: _add_to_txn,
    c.TxnCursors: _txn_cursors,
    c.EndTxn: _end_txn,
    c.WriteMarker: _write_marker,
    c.ExpireTxn: _expire_txn,
    c.ExpireStages: _stages,
    c.GetTopic: _topic_name,
    c.GetStream: _get_stream,
    c.GetReceipt: _get_receipt,
    c.GetProducer: _get_producer,
    c.GetCursor: _get_cursor,
    c.GetTxn: _get_txn,
    c.GetApplication: _application,
}


# --- message ids ---------------------------------------------------------------------------------------------------


def ids(state: State, command: c.Command) -> list[bytes]:
    """The hashes of all ids that a command names. Its streams must be loaded."""
    if isinstance(command, c.Append | c.Columns):
        stream = _stream_of(state, command.topic, command.partition)
        return (
            [] if stream is None else [message_id.id_hash(stream, id_) for id_ in _append_ids(stream, command) if id_]
        )
    kind = type(command)
    if kind is c.GetReceipt:
        stream = _stream_of(state, command.topic, command.partition)  # type: ignore[union-attr]
        name = command.message_id  # type: ignore[union-attr]
        return [message_id.id_hash(stream, name)] if stream is not None and name else []
    if kind is c.Publish:
        return [
            message_id.id_hash(stream, id_)
            for item in command.stages  # type: ignore[union-attr]
            if item.ids and (stream := _stream_of(state, item.topic, item.partition)) is not None
            for _, id_, _ in item.ids
        ]
    if isinstance(command, c.Commit):
        hashes: list[bytes] = []
        for append in command.appends:
            if (stream := _stream_of(state, append.topic, append.partition)) is not None:
                hashes += [message_id.id_hash(stream, id_) for id_ in commit_ids(stream, append)]
        for condition in command.conditions:
            if isinstance(condition, c.ExpectId) and condition.message_id:
                if (stream := _stream_of(state, condition.topic, condition.partition)) is not None:
                    hashes.append(message_id.id_hash(stream, condition.message_id))
        return hashes
    return []


def _append_ids(stream: Stream, command: c.Append | c.Columns) -> Sequence[bytes]:
    """The message ids of an append; of a fact topic, those of its facts."""
    if isinstance(command, c.Columns):
        return prepared(stream, command).message_ids or ()
    if not holds_facts(stream):
        return (command.message_id,)
    asked = as_columns(command)
    return prepared(stream, asked).message_ids or () if isinstance(asked, c.Columns) else ()


def _stream_of(state: State, topic: str, partition: int) -> Stream | None:
    """As `State.stream`; a name that was not loaded, since no key can spell it, is the name of no stream."""
    row = state.topics.get(topic)
    if row is None or not 0 <= partition < len(row.stream_ids):
        return None
    return state.streams.get(row.stream_ids[partition])
