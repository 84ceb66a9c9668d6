"""What the server tells and is told in JSON, by the names of `docs/protocols/http.md`. Unknown members are ignored."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from oncelog.client.json_values import json_of

Struct = msgspec.Struct

Scope = Literal["http", "x", "kafka", "commit"]
"""Whose producers: names of different scopes never meet."""


class TopicInfo(Struct, frozen=True):
    """A topic and its settings."""

    name: str
    partitions: int
    content_type: str = ""
    dedupe_floor_ms: int = 0
    duplicate_window_ms: int = 0
    id_zone: str = ""
    created_ms: int = 0
    retention_ms: int = 0
    retention_bytes: int = 0
    retention_records: int = 0


class StreamInfo(Struct, frozen=True):
    """Where a partition stands: records are in [floor, tail), those below stable are visible."""

    topic: str
    partition: int
    floor: int
    stable: int
    tail: int
    closed: bool
    content_type: str = ""
    time_ms: int = 0
    created_ms: int = 0
    """When the topic was made: offsets of an earlier topic of this name say nothing about it. 0: not told."""


class StreamPage(Struct, frozen=True):
    """Some streams; `next` is the `after` of the next page, None behind the last."""

    streams: list[StreamInfo]
    next: str | None


class Cut(Struct, frozen=True):
    """Where streams stood at one instant."""

    entry: int
    time_ms: int
    streams: list[StreamInfo]


class StoodAt(Struct, frozen=True):
    """Where a partition stood: records below `offset` were there. Never below what is retained."""

    topic: str
    partition: int
    offset: int
    floor: int
    stable: int
    is_floor: bool = False
    """Nothing that is retained was there: the place may lie below, among what was trimmed."""


class StoodPage(Struct, frozen=True):
    """Where partitions stood."""

    streams: list[StoodAt]


class ProducerInfo(Struct, frozen=True):
    """What the server remembers of a producer. -1: none, or no longer known."""

    name: str
    scope: str
    epoch: int
    last_sequence: int
    first: int
    next: int
    used_ms: int


class ProducerPage(Struct, frozen=True):
    """Some producers of a stream."""

    producers: list[ProducerInfo]
    next: str | None


class CursorInfo(Struct, frozen=True):
    """A consumer's place: everything below `frontier` is processed, and the `confirmed` ranges above it."""

    name: str
    topic: str
    partition: int
    frontier: int
    confirmed: tuple[tuple[int, int], ...] = ()
    metadata: str = ""
    pinned: bool = False
    used_ms: int = 0
    lag: int | None = None
    """Committed records that are not processed, in listings."""
    lag_ms: int | None = None
    """The age of the oldest of them."""


class TxnInfo(Struct, frozen=True):
    """A transaction. `holds` are the streams that it holds back, and from where."""

    txn_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int | None
    ends_ms: int | None
    updated_ms: int
    groups: list[str]
    partitions: list[dict[str, str | int]]
    holds: list[dict[str, str | int]]


class CursorPage(Struct, frozen=True):
    """Some cursors."""

    cursors: list[CursorInfo]
    next: str | None


class ReceiptProducer(Struct, frozen=True):
    """Who wrote a record."""

    name: str
    epoch: int
    sequence: int


class Receipt(Struct, frozen=True):
    """What became of a message id."""

    topic: str
    partition: int
    first: int
    next: int
    digest: str
    time_ms: int
    removed: bool
    producer: ReceiptProducer | None = None


class Application(Struct, frozen=True):
    """A Spark application: its fence, and the batch it published last."""

    fence: int
    query: str
    batch: int
    source_end: bytes


class Stage(Struct, frozen=True):
    """Records that were uploaded and are not published yet."""

    stage_id: int
    count: int
    expires_ms: int
    duplicate: bool = False


class Health(Struct, frozen=True):
    """The server's word about itself."""

    status: str
    durability: str
    version: str
    entry: int
    writes: str = "accepted"
    """Or refused, with the reason: the disk has no room. It can still be read."""
    reason: str | None = None


# --- commits -----------------------------------------------------------------------------------------------------


class CommitRecord(Struct, frozen=True):
    """One record of a commit. Text stays text, bytes stay bytes, anything else becomes JSON."""

    data: object
    key: str | bytes | None = None
    headers: Mapping[str, str | bytes | None] = {}
    timestamp_ms: int = 0
    """0: the server's time."""


class CommitAppend(Struct, frozen=True):
    """Records for one partition. They may be given bare: text, bytes, or anything that becomes JSON."""

    topic: str
    records: Sequence[object]
    partition: int = 0
    message_id: str | None = None


class CursorMove(Struct, frozen=True):
    """A cursor that advances with the commit."""

    name: str
    topic: str
    frontier: int
    partition: int = 0
    metadata: str = ""
    pinned: bool = False


class ExpectedTail(Struct, frozen=True, tag_field="kind", tag="expected_tail"):
    """The stream ends here."""

    topic: str
    tail: int
    partition: int = 0


class StreamNew(Struct, frozen=True, tag_field="kind", tag="stream_new"):
    """Nothing was ever written to the stream."""

    topic: str
    partition: int = 0


class CursorEquals(Struct, frozen=True, tag_field="kind", tag="cursor_equals"):
    """The cursor stands here."""

    name: str
    topic: str
    frontier: int
    partition: int = 0


class IdKnown(Struct, frozen=True, tag_field="kind", tag="id"):
    """The message id is, or is not, remembered."""

    topic: str
    message_id: str
    present: bool = True
    partition: int = 0


class EpochEquals(Struct, frozen=True, tag_field="kind", tag="epoch_equals"):
    """The producer (`http:name`, `x:name`, `kafka:id`) is in this epoch."""

    topic: str
    producer: str
    epoch: int
    partition: int = 0


Condition = ExpectedTail | StreamNew | CursorEquals | IdKnown | EpochEquals


class CommitProducer(Struct, frozen=True):
    """A producer of commits: its sequence makes the commit idempotent."""

    name: str
    epoch: int
    sequence: int


class CommitPlace(Struct, frozen=True):
    """Where one append of a commit went: offsets [first, next)."""

    topic: str
    partition: int
    first: int
    next: int


class CommitConfirmed(Struct, frozen=True):
    """The producer's numbers in the answer to a commit."""

    epoch: int
    sequence: int


class CommitResult(Struct, frozen=True):
    """A commit that happened. A duplicate has the first outcome, or none if it is so old that it is forgotten."""

    outcome: list[CommitPlace]
    duplicate: bool
    producer: CommitConfirmed | None = None


class PublishStage(Struct, frozen=True):
    """A stage of a publish, and where its records go."""

    stage_id: int
    topic: str
    count: int
    partition: int = 0
    message_ids: bool = False
    """Records carry ids in the header `oncelog.message-id`: those that are known are left out."""


def record_members(record: object) -> dict[str, object]:
    """A record of a commit as JSON tells it."""
    if not isinstance(record, CommitRecord):
        record = CommitRecord(record)
    members: dict[str, object] = {}
    if isinstance(record.data, str):
        members["value"] = record.data
    elif isinstance(record.data, bytes | bytearray | memoryview):
        members["base64"] = bytes(record.data)
    else:
        members["json"] = msgspec.Raw(json_of(record.data))
    if record.key is not None:
        members["key"] = _text_or_base64(record.key)
    if record.headers:
        members["headers"] = {
            name: None if content is None else _text_or_base64(content) for name, content in record.headers.items()
        }
    if record.timestamp_ms:
        members["timestamp_ms"] = record.timestamp_ms
    return members


def _text_or_base64(content: str | bytes) -> object:
    return content if isinstance(content, str) else {"base64": content}
