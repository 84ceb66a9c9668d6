"""The JSON bodies of commits, cursors, stages and publishes as core commands."""

import base64
import binascii
from typing import Any, Final

import msgspec

from oncelog.core import batch as codec
from oncelog.core import command as c
from oncelog.core.flat import ProducerClaim
from oncelog.core.producer import SequenceMode
from oncelog.protocols.http.request import Body

COMMIT_SCOPE = "commit:"


class BodyInvalid(Exception):
    """A JSON body that does not say what its path asks for: names the member and what it may be."""


class _Base64(msgspec.Struct, forbid_unknown_fields=True):
    base64: str


class RecordBody(msgspec.Struct, forbid_unknown_fields=True):
    """One record of a JSON body."""

    value: str | None = None
    json: msgspec.Raw = msgspec.Raw()
    base64: str | None = None
    key: str | _Base64 | None = None
    headers: dict[str, str | _Base64 | None] = {}
    timestamp_ms: int = 0


class _Append(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    records: list[RecordBody]
    partition: int = 0
    message_id: str | msgspec.UnsetType = msgspec.UNSET


class _Condition(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    topic: str = ""
    partition: int = 0
    tail: int | None = None
    name: str | None = None
    frontier: int | None = None
    message_id: str | None = None
    present: bool | None = None
    producer: str | None = None
    epoch: int | None = None


class CursorBody(msgspec.Struct, forbid_unknown_fields=True):
    """A cursor and where it goes."""

    name: str
    topic: str
    frontier: int
    partition: int = 0
    metadata: str = ""
    pinned: bool = False


class _Producer(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    epoch: int
    sequence: int


class _Commit(msgspec.Struct, forbid_unknown_fields=True):
    appends: list[_Append] = []
    conditions: list[_Condition] = []
    cursors: list[CursorBody] = []
    commit_id: str | msgspec.UnsetType = msgspec.UNSET
    producer: _Producer | None = None


class _Stage(msgspec.Struct, forbid_unknown_fields=True):
    stage_id: int
    topic: str
    count: int
    partition: int = 0
    message_ids: bool = False


class _Publish(msgspec.Struct, forbid_unknown_fields=True):
    application: str
    fence: int
    query: str
    batch: int
    stages: list[_Stage] = []
    source_start: str = ""
    source_end: str = ""
    accept_new_query: bool = False
    cursors: list[CursorBody] = []


def parsed(body: Body, kind: type[Any]) -> Any:
    """A body of this shape. Raises BodyInvalid."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BodyInvalid(str(error)) from None
    except RecursionError:
        raise BodyInvalid("nested too deeply") from None


def commit_of(body: Body, now_ms: int) -> c.Commit:
    """The commit."""
    asked: _Commit = parsed(body, _Commit)
    claim = None
    if asked.producer is not None:
        sequence = asked.producer.sequence
        _named("producer.name", asked.producer.name)
        name = COMMIT_SCOPE + asked.producer.name
        claim = ProducerClaim(name, asked.producer.epoch, sequence, sequence, int(SequenceMode.REQUESTS))
    return c.Commit(
        [_append(number, append, now_ms) for number, append in enumerate(asked.appends)],
        [_condition(number, condition) for number, condition in enumerate(asked.conditions)],
        [move_of(cursor) for cursor in asked.cursors],
        _named("commit_id", asked.commit_id),
        claim,
    )


def publish_of(body: Body) -> c.Publish:
    """The publish."""
    asked: _Publish = parsed(body, _Publish)
    return c.Publish(
        [
            c.PublishItem(stage.stage_id, stage.topic, stage.partition, stage.count, stage.message_ids)
            for stage in asked.stages
        ],
        asked.application,
        asked.fence,
        asked.query,
        asked.batch,
        from_base64("source_start", asked.source_start),
        from_base64("source_end", asked.source_end),
        asked.accept_new_query,
        [move_of(cursor) for cursor in asked.cursors],
    )


def move_of(cursor: CursorBody) -> c.CursorMove:
    """Where a cursor goes."""
    return c.CursorMove(cursor.name, cursor.topic, cursor.partition, cursor.frontier, cursor.metadata, cursor.pinned)


def from_base64(member: str, text: str) -> bytes:
    """Bytes that JSON cannot carry."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BodyInvalid(f"{member} is base64: {error}") from None


def _append(number: int, append: _Append, now_ms: int) -> c.CommitAppend:
    if not append.records:
        raise BodyInvalid(f"appends[{number}].records holds at least one record")
    records = [
        record_of(f"appends[{number}].records[{delta}]", delta, record, now_ms)
        for delta, record in enumerate(append.records)
    ]
    message_id = _named(f"appends[{number}].message_id", append.message_id).encode("utf-8", "surrogatepass")
    return c.CommitAppend(append.topic, append.partition, codec.encode(records), len(records), b"", message_id)


def _named(place: str, name: str | msgspec.UnsetType) -> str:
    """What was given, which then is a name: an empty one is a mistake of whoever means to be recognised by it."""
    if name == "":
        raise BodyInvalid(f"{place} is empty: a retry would not be recognised. Name it, or leave it out")
    return "" if name is msgspec.UNSET else name


def record_of(place: str, delta: int, record: RecordBody, now_ms: int) -> codec.Record:
    """The record as the codec takes it. Raises BodyInvalid."""
    raw = bytes(record.json)
    given = (record.value is not None) + bool(raw) + (record.base64 is not None)
    if given != 1:
        raise BodyInvalid(f"{place} has one of value, json and base64, not {given}")
    if record.value is not None:
        value = record.value.encode()
    elif raw:
        value = raw
    else:
        value = from_base64(f"{place}.base64", record.base64 or "")
    if not 0 <= record.timestamp_ms < codec.TIMESTAMP_TAME_MAX:
        raise BodyInvalid(f"{place}.timestamp_ms is out of range")
    headers = tuple((name, _bytes(f"{place}.headers", content)) for name, content in record.headers.items())
    return delta, record.timestamp_ms or now_ms, _bytes(f"{place}.key", record.key), value, headers


def _bytes(place: str, text: str | _Base64 | None) -> bytes | None:
    if isinstance(text, _Base64):
        return from_base64(place, text.base64)
    return None if text is None else text.encode()


_CONDITIONS: Final = frozenset(("expected_tail", "stream_new", "cursor_equals", "id", "epoch_equals"))


def _condition(number: int, condition: _Condition) -> c.Condition:
    topic, partition = condition.topic, condition.partition
    if condition.kind in _CONDITIONS and not topic:
        raise BodyInvalid(f"conditions[{number}] names no topic")
    match condition:
        case _Condition(kind="expected_tail", tail=int(tail)):
            return c.ExpectTail(topic, partition, tail)
        case _Condition(kind="stream_new"):
            return c.ExpectNew(topic)
        case _Condition(kind="cursor_equals", name=str(name), frontier=int(frontier)):
            return c.ExpectCursor(name, topic, partition, frontier)
        case _Condition(kind="id", message_id=str(message_id), present=bool(present)):
            return c.ExpectId(topic, partition, message_id.encode(), present)
        case _Condition(kind="epoch_equals", producer=str(producer), epoch=int(epoch)):
            return c.ExpectEpoch(topic, partition, producer, epoch)
    raise BodyInvalid(
        f"conditions[{number}]: expected_tail has tail; stream_new nothing more; cursor_equals name and frontier; "
        f"id message_id and present; epoch_equals producer and epoch; not {condition.kind[:40]!r}"
    )
