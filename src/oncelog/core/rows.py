"""Rows: what the log remembers, one class per table, and the keys they are found by.

A row is the derived state of one thing; the journal is the truth. Only `core.apply` changes rows. They are stored in
the index as they stand here (positional MessagePack), so a field may be added at the end with a default and never be
removed or reordered.

Invariants that `core.audit` checks: floor <= stable <= tail; a stage's count equals its batches; holes in a chunk are
sorted, disjoint and inside the chunk; at most five batches per producer.
"""

from enum import IntEnum
from typing import Final

import msgspec

from oncelog import limits


class Table(IntEnum):
    """The tables of the state. Numbers are part of the index format and of `carried` entries."""

    TOPIC = 0  # key: name
    STREAM = 1  # key: stream id
    PRODUCER = 2  # key: (stream id, scoped name); stream 0 for a claim on a commit
    CURSOR = 3  # key: (cursor name, stream id)
    TXN = 4  # key: txn id
    STAGE = 5  # key: stage id
    APPLICATION = 6  # key: application name
    REMEMBERED = 7  # key: (scope, id)
    HOLES = 8  # key: (stream id, chunk number)
    PENDING = 9  # key: (cursor name, stream id)
    HOLDER = 10  # key: producer id
    NATS_NAME = 11  # key: JetStream name of a topic
    SUBJECT = 12  # key: (stream id, subject without the stream's prefix)


Key = str | int | tuple[int, str] | tuple[str, int] | tuple[str, str] | tuple[int, int]
TableKey = tuple[Table, Key]

FOREVER: Final = -1
"""As `dedupe_floor_ms`: ids and producers are never forgotten (fact streams)."""


RAW: Final = "raw"
"""As `TopicConfig.digest`: over the bytes of the value."""

JCS: Final = "jcs"
"""As `TopicConfig.digest`: over the RFC 8785 form of the fact that a record is (`core.facts`)."""

CREATE_TIME: Final = "create"
APPEND_TIME: Final = "append"
"""As `TopicConfig.timestamp_type`."""


class Cause(IntEnum):
    """Why an offset is a hole."""

    CONTROL = 0  # a txn marker
    ABORTED = 1  # written by a txn that was aborted
    DELETED = 2  # deleted by a client
    DUPLICATE = 3  # published under a message id that was known


class TopicConfig(msgspec.Struct, gc=False, array_like=True, omit_defaults=False):
    """What a topic was created with. Two creations agree iff these are equal."""

    content_type: str = "application/octet-stream"
    dedupe_floor_ms: int = limits.DEDUPE_FLOOR_MS_DEFAULT
    duplicate_window_ms: int = 0
    """If above 0, ids are remembered for exactly this long instead of by the floor."""
    id_zone: str = ""
    """If set, message ids are unique over all topics of this zone instead of per stream."""
    txn_timeout_ms_max: int = limits.TXN_TIMEOUT_MS_MAX
    attributes: dict[str, str] = {}
    """Settings that only a face understands, kept word for word."""
    retention_ms: int = 0
    """If above 0, records go once their append is so long ago."""
    retention_bytes: int = 0
    """If above 0, the oldest records of a partition go while at least so many stored bytes stay."""
    retention_records: int = 0
    """If above 0, so many records of a partition stay, and the oldest go."""
    digest: str = RAW
    """What an id's content is compared by: RAW, the value's bytes; JCS, the fact that every record of the topic is."""
    record_bytes_max: int = 0
    """If above 0, the largest record, with key and headers, and the largest ready batch."""
    timestamp_type: str = CREATE_TIME
    """Whose time a record carries: that of its writer, or that of its append."""
    nats_name: str = ""
    """Its JetStream name; empty: its own name, as far as JetStream can spell it."""
    producer_idle_ms: int = 0
    """If above 0, a producer is forgotten after so long without a write, although its records are there."""


class Topic(msgspec.Struct, gc=False, array_like=True):
    """A name and its partitions. Deleting removes this row; ids are never reused."""

    topic_id: int
    name: str
    stream_ids: list[int]
    config: TopicConfig
    created_ns: int


class HoleChunk(msgspec.Struct, gc=False, array_like=True):
    """The holes among HOLE_CHUNK_OFFSETS neighbouring offsets: flat (first, next, cause, producer id), sorted."""

    holes: list[int]


class Cursor(msgspec.Struct, gc=False, array_like=True):
    """A consumer: its saved place, and what its face keeps with it. Everything below `frontier` is processed;
    `confirmed` lies above it."""

    frontier: int
    confirmed: list[int]
    """Flat half-open ranges (first, next), sorted, disjoint, never touching: confirmed out of order."""
    metadata: str = ""
    pinned: bool = False
    used_ns: int = 0
    given: bool = False
    """The frontier is the client's own word, as a Kafka group's offset is: it may lie beyond the tail, and answers show
    it as it was given."""
    created_ns: int = 0
    config: bytes = b""
    """Settings of the face that made it, which alone understands them."""
    gate: str = ""
    """A word that the consumer's face sets and asks, such as `closed`: it means nothing to the log."""
    delivered: int = 0
    """Everything below it was delivered at least once, or skipped."""
    sequence: int = 0
    """The number of the last delivery, as the face counts them."""
    waiting: dict[int, tuple[int, int, int]] = {}
    """Delivered and not confirmed: offset -> (delivery count, deadline ns, number of the last delivery)."""


class Pending(msgspec.Struct, gc=False, array_like=True):
    """The open txns that will move a cursor when they commit, oldest first."""

    txn_ids: list[str]


class Holder(msgspec.Struct, gc=False, array_like=True):
    """The txn id that a producer id belongs to."""

    txn_id: str


class Named(msgspec.Struct, gc=False, array_like=True):
    """The topic that a JetStream name belongs to."""

    topic: str


class Subject(msgspec.Struct, gc=False, array_like=True):
    """How often a subject was written in its stream, where first and where last."""

    count: int
    first: int
    last: int


class Stage(msgspec.Struct, gc=False, array_like=True):
    """An extent that is in no stream yet: durable and invisible until it is published or expires."""

    stage_id: int
    application: str
    fence: int
    count: int
    stored_bytes: int
    expires_ns: int
    ttl_ms: int
    last_first: int = -1
    last_digest: bytes = b""
    """The newest append, so that its retry is recognised."""
    content_type: str = ""


class Application(msgspec.Struct, gc=False, array_like=True):
    """A Spark application: who may publish, what it published last, and how far its sources had been read."""

    fence: int
    query: str = ""
    batch: int = -1
    source_end: bytes = b""
    outcome: list[int] = []
    """Flat (stream, first, next) of the last published batch."""
    used_ns: int = 0


class Remembered(msgspec.Struct, gc=False, array_like=True):
    """The outcome of a claim that has an id of its own: a commit id, a batch id."""

    digest: bytes
    outcome: list[int]
    """Flat (stream, first, next)."""
    used_ns: int
    floor_ms: int


def chunk_of(offset: int) -> int:
    """The number of the hole chunk that `offset` lies in."""
    return offset >> limits.HOLE_CHUNK_BITS
