"""Names and sizes: what a command may be called and how much of it one entry can hold. The one place for both.

Names are index keys. `needs` must not ask the index for a name that no key can spell, and `decide` must not look it up,
so both ask `command_refused` first; it looks at the command alone. What fits here fits the entry: every text that an
entry carries has a bound in `limits`, and commands that carry lists of things are weighed before they are decided.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from oncelog import limits
from oncelog.core import command as c
from oncelog.core.content_type import BATCHES, media_type
from oncelog.core.flat import ProducerClaim
from oncelog.core.jetstream_name import is_spelled
from oncelog.core.outcome import NameInvalid, Refusal, StageMissing, TooLarge, TopicMissing
from oncelog.core.rows import APPEND_TIME, CREATE_TIME, FOREVER, JCS, RAW, TopicConfig

ROW_ID_MAX: Final = 2**63 - 1
"""Stream and stage ids are 64 bits in keys; half of them is more than will ever be given out."""


def text_bytes(text: str) -> int:
    """How long the text is in UTF-8; -1 if it cannot be spelled there (a lone surrogate)."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return -1


def text_refused(what: str, text: str, bytes_max: int) -> Refusal | None:
    """Any text that an entry carries: it can be spelled, and it is not too long."""
    size = text_bytes(text)
    if size < 0:
        return NameInvalid(ascii(text), f"a {what} is Unicode text")
    return TooLarge(f"{what} bytes", bytes_max, size) if size > bytes_max else None


def name_refused(what: str, name: str, bytes_max: int, *, empty: bool = False) -> Refusal | None:
    """A name that is part of an index key: not empty unless `empty`, and no NUL, which ends it there."""
    if "\0" in name or not (name or empty):
        article = "an" if what[0] in "aeiou" else "a"
        return NameInvalid(name, f"{article} {what} holds at least one character and no NUL")
    return text_refused(what, name, bytes_max)


def topic_name_refused(name: str) -> Refusal | None:
    """Names of new topics are also paths on some faces: printable, and no way up."""
    refusal = name_refused("topic name", name, limits.TOPIC_NAME_BYTES_MAX)
    if refusal is None and (not name.isprintable() or any(part in ("", ".", "..") for part in name.split("/"))):
        return NameInvalid(name, "printable, no empty, '.' or '..' path segment")
    return refusal


def cursor_name_refused(name: str) -> Refusal | None:
    """Cursors and consumer groups."""
    return name_refused("cursor name", name, limits.CURSOR_NAME_BYTES_MAX)


def claim_refused(claim: ProducerClaim | None) -> Refusal | None:
    """The texts of a producer claim; its numbers are judged by `core.producer`."""
    if claim is None:
        return None
    refusal = name_refused("scoped producer name", claim.name, limits.PRODUCER_NAME_BYTES_MAX)
    refusal = refusal or text_refused("producer session", claim.session, limits.PRODUCER_SESSION_BYTES_MAX)
    if refusal is None and len(claim.digest) > limits.CLAIM_DIGEST_BYTES_MAX:
        return TooLarge("claim digest bytes", limits.CLAIM_DIGEST_BYTES_MAX, len(claim.digest))
    return refusal


def known_claim_refused(claim: ProducerClaim) -> Refusal | None:
    """As `claim_refused`, of a producer whose row is there: its name was looked at when it was new."""
    if not claim.session and len(claim.digest) <= limits.CLAIM_DIGEST_BYTES_MAX:
        return None
    return claim_refused(claim)


def content_type_refused(content_type: str) -> Refusal | None:
    """What a topic or a stage holds: it stands in their rows, and faces tell it."""
    if len(content_type) > limits.TOPIC_CONFIG_BYTES_MAX:
        return TooLarge("content type bytes", limits.TOPIC_CONFIG_BYTES_MAX, len(content_type))
    if not content_type or not content_type.isascii() or not content_type.isprintable():
        return NameInvalid(ascii(content_type), "a content type is printable ASCII: faces put it into a header")
    if media_type(content_type) == BATCHES:
        return NameInvalid(content_type, "raw batches are a way to send records, not what a stream holds")
    return None


def config_refused(config: TopicConfig) -> Refusal | None:
    """Settings that every row of the topic repeats, and times that the rules can reckon with."""
    size = 0
    for text in (
        config.content_type,
        config.id_zone,
        config.nats_name,
        *config.attributes,
        *config.attributes.values(),
    ):
        if (bytes_ := text_bytes(text)) < 0:
            return NameInvalid(ascii(text), "settings are Unicode text")
        size += bytes_
    if size > limits.TOPIC_CONFIG_BYTES_MAX:
        return TooLarge("bytes of a topic's settings", limits.TOPIC_CONFIG_BYTES_MAX, size)
    if (refusal := content_type_refused(config.content_type)) is not None:
        return refusal
    if not FOREVER <= config.dedupe_floor_ms <= limits.SEQUENCE_MAX:
        return TooLarge("dedupe floor ms (-1 is for ever)", limits.SEQUENCE_MAX, config.dedupe_floor_ms, FOREVER)
    if not 0 <= config.duplicate_window_ms <= limits.SEQUENCE_MAX:
        return TooLarge("duplicate window ms", limits.SEQUENCE_MAX, config.duplicate_window_ms, least=0)
    for what, retention in (
        ("retention ms (0 is for ever)", config.retention_ms),
        ("retention bytes (0 is no limit)", config.retention_bytes),
        ("retention records (0 is no limit)", config.retention_records),
    ):
        if not 0 <= retention <= limits.SEQUENCE_MAX:
            return TooLarge(what, limits.SEQUENCE_MAX, retention, least=0)
    if (refusal := _kind_refused(config)) is not None:
        return refusal
    timeout_ms = config.txn_timeout_ms_max
    if not limits.TXN_TIMEOUT_MS_MIN <= timeout_ms <= limits.TXN_TIMEOUT_MS_MAX:
        least = limits.TXN_TIMEOUT_MS_MIN
        return TooLarge("txn timeout ms of a topic", limits.TXN_TIMEOUT_MS_MAX, timeout_ms, least)
    return None


def _kind_refused(config: TopicConfig) -> Refusal | None:
    """Settings that say what the records of a topic are."""
    if config.digest not in (RAW, JCS):
        return NameInvalid(config.digest, f"a digest is {RAW} or {JCS}")
    if config.timestamp_type not in (CREATE_TIME, APPEND_TIME):
        return NameInvalid(config.timestamp_type, f"a timestamp type is {CREATE_TIME} or {APPEND_TIME}")
    if config.nats_name and not is_spelled(config.nats_name):
        return NameInvalid(config.nats_name, "a JetStream name is up to 255 printable characters, none of ' .*>/\\\\'")
    if config.digest == JCS and not (
        config.id_zone and config.dedupe_floor_ms == FOREVER and not config.duplicate_window_ms
    ):
        return NameInvalid(config.digest, "facts have an id zone, and their ids are remembered for ever")
    for what, number in (
        ("largest record (0 is no limit)", config.record_bytes_max),
        ("producer idle ms (0 is never)", config.producer_idle_ms),
    ):
        if not 0 <= number <= limits.SEQUENCE_MAX:
            return TooLarge(what, limits.SEQUENCE_MAX, number, least=0)
    return None


SETTINGS: Final = {
    name: type(getattr(TopicConfig(), name)) for name in TopicConfig.__struct_fields__ if name != "attributes"
}
"""What can be changed one by one, and what it is."""


def moves_bytes(moves: Iterable[c.CursorMove]) -> int:
    """What cursor moves may need in one entry."""
    return sum(len(m.name.encode()) + len(m.metadata.encode()) + limits.COMMIT_APPEND_BYTES for m in moves)


def entry_refused(what: str, size: int) -> Refusal | None:
    """Whether something of this estimated size is too much for one entry."""
    return TooLarge(f"bytes of one {what}", limits.BATCH_BYTES_MAX, size) if size > limits.BATCH_BYTES_MAX else None


# --- one check per command -----------------------------------------------------------------------------------------


def command_refused(command: c.Command) -> Refusal | None:
    """Why no table could hold, or no entry could carry, what this command names. Looks at no state."""
    return _CHECKS[type(command)](command)


def _topic(name: str, partition: int = 0) -> Refusal | None:
    """A name that no table can hold is the name of no topic."""
    fits = name.isascii() and "\0" not in name and len(name) <= limits.TOPIC_NAME_BYTES_MAX
    if fits or name_refused("topic name", name, limits.TOPIC_NAME_BYTES_MAX, empty=True) is None:
        return None
    return TopicMissing(name, partition)


def _first(refusals: Iterable[Refusal | None]) -> Refusal | None:
    return next((refusal for refusal in refusals if refusal is not None), None)


def _txn_id(txn_id: str) -> Refusal | None:
    return name_refused("txn id", txn_id, limits.TXN_ID_BYTES_MAX, empty=True)


def _open_stage(command: c.OpenStage) -> Refusal | None:
    refusal = name_refused("application name", command.application, limits.APPLICATION_NAME_BYTES_MAX, empty=True)
    return refusal or (content_type_refused(command.content_type) if command.content_type else None)


def _open_application(command: c.OpenApplication | c.GetApplication) -> Refusal | None:
    return name_refused("application name", command.application, limits.APPLICATION_NAME_BYTES_MAX)


def _stages(stage_ids: Iterable[int]) -> Refusal | None:
    return _first(StageMissing(stage_id) for stage_id in stage_ids if not 0 <= stage_id <= ROW_ID_MAX)


def move_refused(move: c.CursorMove) -> Refusal | None:
    """The texts of one cursor move."""
    refusal = _topic(move.topic, move.partition) or cursor_name_refused(move.name)
    return refusal or text_refused("cursor metadata", move.metadata, limits.CURSOR_METADATA_BYTES_MAX)


def _moves(moves: Iterable[c.CursorMove]) -> Refusal | None:
    return _first(map(move_refused, moves))


def _create(command: c.CreateTopic) -> Refusal | None:
    return topic_name_refused(command.name) or config_refused(command.config)


def _configure(command: c.ConfigureTopic) -> Refusal | None:
    unknown = [name for name, value in command.changes.items() if SETTINGS.get(name) is not type(value)]
    if unknown or (command.config is None) == (not command.changes):
        return NameInvalid(", ".join(unknown), f"settings are {', '.join(SETTINGS)}; all of them, or some that change")
    refusal = None if command.config is None else config_refused(command.config)
    return _topic(command.name) or refusal


def _topic_by_name(command: c.AddPartitions | c.DeleteTopic | c.GetTopic) -> Refusal | None:
    return _topic(command.name)


def _stream(command: c.Trim | c.DeleteRecords | c.GetStream | c.GetReceipt) -> Refusal | None:
    return _topic(command.topic, command.partition)


def _append(command: c.Append) -> Refusal | None:
    refusal = _topic(command.topic, command.partition) or claim_refused(command.claim)
    return refusal or _txn_id(command.txn_id) or order_key_refused(command.order_key)


def _columns(command: c.Columns) -> Refusal | None:
    refusal = _topic(command.topic, command.partition)
    if refusal is not None or not command.batch_id:
        return refusal
    refusal = name_refused("batch id", command.batch_id, limits.COMMIT_ID_BYTES_MAX)
    return refusal or name_refused("scope of batch ids", command.batch_scope, limits.CLAIM_SCOPE_BYTES_MAX)


def order_key_refused(order_key: str) -> Refusal | None:
    """The free string that must rise."""
    return text_refused("order key", order_key, limits.ORDER_KEY_BYTES_MAX)


def _close(command: c.CloseStream) -> Refusal | None:
    return _topic(command.topic, command.partition) or claim_refused(command.claim)


def _cursor(command: c.ConfirmCursor | c.DeleteCursor) -> Refusal | None:
    return _topic(command.topic, command.partition) or cursor_name_refused(command.name)


def _move_cursors(command: c.MoveCursors) -> Refusal | None:
    if len(command.moves) > limits.COMMIT_APPENDS_MAX:
        return TooLarge("cursor moves in one command", limits.COMMIT_APPENDS_MAX, len(command.moves))
    return _moves(command.moves) or entry_refused("cursor move", moves_bytes(command.moves))


def _commit_offsets(command: c.CommitOffsets) -> Refusal | None:
    # The names of each move are looked at alone: `core.cursor.given`.
    if len(command.moves) > limits.COMMIT_APPENDS_MAX:
        return TooLarge("offsets in one command", limits.COMMIT_APPENDS_MAX, len(command.moves))
    sound = (move for move in command.moves if move_refused(move) is None)
    return entry_refused("offset commit", 2 * moves_bytes(sound))


def consumer_refused(name: str, topic: str, partition: int) -> Refusal | None:
    """The names of one consumer; an empty topic is that of no stream."""
    return (_topic(topic, partition) if topic else None) or cursor_name_refused(name)


def _get_cursor(command: c.GetCursor) -> Refusal | None:
    return consumer_refused(command.name, command.topic, command.partition)


def _set_consumer(command: c.SetConsumer) -> Refusal | None:
    refusal = consumer_refused(command.name, command.topic, command.partition)
    refusal = refusal or text_refused("cursor metadata", command.metadata or "", limits.CURSOR_METADATA_BYTES_MAX)
    refusal = refusal or text_refused("gate", command.gate or "", limits.CONSUMER_GATE_BYTES_MAX)
    size = len(command.config or b"")
    if refusal is None and size > limits.CONSUMER_CONFIG_BYTES_MAX:
        return TooLarge("bytes of a consumer's configuration", limits.CONSUMER_CONFIG_BYTES_MAX, size)
    return refusal


def _update_consumers(command: c.UpdateConsumers) -> Refusal | None:
    # The names of each update are looked at alone: `core.consumer`.
    if len(command.updates) > limits.COMMIT_APPENDS_MAX:
        return TooLarge("updates of consumers in one command", limits.COMMIT_APPENDS_MAX, len(command.updates))
    size = sum(10 * (len(one.confirm) + len(one.deliver)) for one in command.updates)
    size += sum(len(one.name) + limits.CONSUMER_UPDATE_BYTES for one in command.updates)
    return entry_refused("update of consumers", size)


def _delete_consumer(command: c.DeleteConsumer) -> Refusal | None:
    if len(command.streams) > limits.COMMIT_APPENDS_MAX:
        return TooLarge("streams in one command", limits.COMMIT_APPENDS_MAX, len(command.streams))
    return _first(consumer_refused(command.name, topic, partition) for topic, partition in command.streams)


def _index_subjects(command: c.IndexSubjects) -> Refusal | None:
    size = sum(limits.COMMIT_APPEND_BYTES + text_bytes(row[0]) for row in command.subjects)
    return _topic(command.topic, command.partition) or entry_refused("index of subjects", size)


def _get_subject(command: c.GetSubject) -> Refusal | None:
    refusal = _topic(command.topic, command.partition)
    return refusal or name_refused("subject", command.subject, limits.SUBJECT_BYTES_MAX)


def _get_producer(command: c.GetProducer) -> Refusal | None:
    refusal = _topic(command.topic, command.partition)
    return refusal or name_refused("producer name", command.name, limits.PRODUCER_NAME_BYTES_MAX)


def _txn(command: c.InitProducer | c.EndTxn | c.ExpireTxn | c.GetTxn) -> Refusal | None:
    return _txn_id(command.txn_id)


def _add_to_txn(command: c.AddToTxn) -> Refusal | None:
    refusal = _txn_id(command.txn_id) or _first(_topic(topic, partition) for topic, partition in command.streams)
    return refusal or _first(cursor_name_refused(group) for group in command.groups)


def _txn_cursors(command: c.TxnCursors) -> Refusal | None:
    return _txn_id(command.txn_id) or cursor_name_refused(command.group)


def _write_marker(command: c.WriteMarker) -> Refusal | None:
    if not 0 <= command.producer_id <= ROW_ID_MAX:
        return TooLarge("producer id", ROW_ID_MAX, command.producer_id, least=0)
    return _first(_topic(topic, partition) for topic, partition in command.streams)


def _condition(condition: c.Condition) -> Refusal | None:
    if isinstance(condition, c.ExpectNew):
        return _topic(condition.topic)
    refusal = _topic(condition.topic, condition.partition)
    if isinstance(condition, c.ExpectCursor):
        return refusal or cursor_name_refused(condition.name)
    if isinstance(condition, c.ExpectEpoch):
        return refusal or name_refused("producer name", condition.producer, limits.PRODUCER_NAME_BYTES_MAX)
    return refusal


def _commit(command: c.Commit) -> Refusal | None:
    size = len(command.appends) + len(command.conditions) + len(command.cursors)
    if size > limits.COMMIT_APPENDS_MAX:
        return TooLarge("appends, conditions and cursors in one commit", limits.COMMIT_APPENDS_MAX, size)
    refusal = name_refused("commit id", command.commit_id, limits.COMMIT_ID_BYTES_MAX, empty=True)
    refusal = refusal or name_refused("commit scope", command.scope, limits.CLAIM_SCOPE_BYTES_MAX)
    refusal = refusal or _first(_topic(append.topic, append.partition) for append in command.appends)
    refusal = refusal or claim_refused(command.claim) or _moves(command.cursors)
    refusal = refusal or _first(_condition(condition) for condition in command.conditions)
    if refusal is not None:
        return refusal
    ids = sum(len(append.ids) for append in command.appends)
    if ids > limits.PUBLISH_IDS_MAX:
        return TooLarge("message ids in one commit", limits.PUBLISH_IDS_MAX, ids)
    total = sum(len(append.batch) + limits.COMMIT_APPEND_BYTES for append in command.appends)
    total += ids * limits.PUBLISHED_ID_BYTES
    return entry_refused("commit (larger writes go through stages)", total + moves_bytes(command.cursors))


def _count(item: c.PublishItem) -> Refusal | None:
    if 0 <= item.count <= limits.SEQUENCE_MAX:
        return None
    return TooLarge("records of one stage", limits.SEQUENCE_MAX, item.count, least=0)


def _publish(command: c.Publish) -> Refusal | None:
    if len(command.stages) > limits.STAGES_PER_PUBLISH_MAX:
        return TooLarge("stages in one publish", limits.STAGES_PER_PUBLISH_MAX, len(command.stages))
    if len(command.cursors) > limits.COMMIT_APPENDS_MAX:
        return TooLarge("cursor moves in one publish", limits.COMMIT_APPENDS_MAX, len(command.cursors))
    if len(command.source_end) > limits.APPLICATION_SOURCE_BYTES_MAX:
        return TooLarge("source offset bytes", limits.APPLICATION_SOURCE_BYTES_MAX, len(command.source_end))
    refusal = name_refused("application name", command.application, limits.APPLICATION_NAME_BYTES_MAX, empty=True)
    refusal = refusal or text_refused("query name", command.query, limits.QUERY_NAME_BYTES_MAX)
    refusal = refusal or _first(_topic(item.topic, item.partition) for item in command.stages)
    refusal = refusal or _stages(item.stage_id for item in command.stages) or _moves(command.cursors)
    refusal = refusal or _first(map(_count, command.stages))
    if refusal is not None:
        return refusal
    ids = sum(len(item.ids or ()) for item in command.stages)
    # Before they are read, every record of a stage that has ids counts: the bound must hold for the reading as well.
    most = max(ids, sum(item.count for item in command.stages if item.named))
    if most > limits.PUBLISH_IDS_MAX:
        return TooLarge("records with message ids in one publish", limits.PUBLISH_IDS_MAX, most)
    size = len(command.stages) * limits.PUBLISHED_STAGE_BYTES + ids * limits.PUBLISHED_ID_BYTES
    size += len(command.source_end)
    return entry_refused("publish", size + moves_bytes(command.cursors))


def _append_stage(command: c.AppendStage) -> Refusal | None:
    return _stages((command.stage_id,))


def _drop_stages(command: c.DropStages) -> Refusal | None:
    if len(command.stage_ids) > limits.STAGES_PER_PUBLISH_MAX:
        return TooLarge("stages in one drop", limits.STAGES_PER_PUBLISH_MAX, len(command.stage_ids))
    return _stages(command.stage_ids)


def _expire_stages(command: c.ExpireStages) -> Refusal | None:
    # No bound on the count: a timer has nobody to tell. `decide` drops what one entry holds.
    return _stages(command.stage_ids)


_CHECKS: Final[dict[type[c.Command], Callable[[Any], Refusal | None]]] = {
    c.Append: _append,
    c.Columns: _columns,
    c.Commit: _commit,
    c.CreateTopic: _create,
    c.AddPartitions: _topic_by_name,
    c.ConfigureTopic: _configure,
    c.DeleteTopic: _topic_by_name,
    c.CloseStream: _close,
    c.Trim: _stream,
    c.DeleteRecords: _stream,
    c.BeginSubjects: _stream,
    c.IndexSubjects: _index_subjects,
    c.GetSubject: _get_subject,
    c.OpenApplication: _open_application,
    c.OpenStage: _open_stage,
    c.AppendStage: _append_stage,
    c.DropStages: _drop_stages,
    c.Publish: _publish,
    c.MoveCursors: _move_cursors,
    c.CommitOffsets: _commit_offsets,
    c.SetConsumer: _set_consumer,
    c.UpdateConsumers: _update_consumers,
    c.DeleteConsumer: _delete_consumer,
    c.ConfirmCursor: _cursor,
    c.DeleteCursor: _cursor,
    c.InitProducer: _txn,
    c.AddToTxn: _add_to_txn,
    c.TxnCursors: _txn_cursors,
    c.EndTxn: _txn,
    c.WriteMarker: _write_marker,
    c.ExpireTxn: _txn,
    c.ExpireStages: _expire_stages,
    c.GetTopic: _topic_by_name,
    c.GetStream: _stream,
    c.GetReceipt: _stream,
    c.GetProducer: _get_producer,
    c.GetCursor: _get_cursor,
    c.GetTxn: _txn,
    c.GetApplication: _open_application,
}
