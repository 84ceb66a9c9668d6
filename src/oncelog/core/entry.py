"""Entries: the facts that the journal holds. Closed set; `storage.entry_codec` gives each its bytes.

An entry is applied whole. It is either one `Appended` on its own (the flat shape: nearly all traffic) or a `Compound`
of several operations that become true at one instant. Operations carry results, not requests: offsets, epochs and ids
are the assigned ones, so replaying needs no rule, only `core.apply`.

Nobody mutates an entry once it was decided, nor keeps a part of it that will change: `apply` copies what it goes on to
change. `batch_at` alone is filled in by the codec.
"""

from struct import Struct
from typing import ClassVar, Final

import msgspec

from oncelog.core.flat import Appended as Appended
from oncelog.core.flat import ProducerClaim
from oncelog.core.rows import Application, Cursor, Table, TopicConfig
from oncelog.core.txn import Txn

CONTROL: Final = 1
"""Flag of `Appended`: a txn marker; its offset is a hole from the start."""
TRANSACTIONAL: Final = 2
"""Flag of `Appended`: part of an open txn."""
CLOSES: Final = 4
"""Flag of `Appended`: the stream is closed by the same fact."""

RENEWS: Final = 8
"""Flag of `Appended`: what was known of the claim's producer had been forgotten, so its row starts anew."""

MANY_CLAIMS: Final = 16
"""Flag of `Appended`: records of several producers share the batch, each with its own claim."""

PACKED_ID: Final = Struct("<16s16sII")
"""One id in `Appended.ids`: hash, digest, record number, record count."""
ID_BYTES: Final = PACKED_ID.size


class TopicCreated(msgspec.Struct, gc=False, array_like=True):
    """A name got its streams."""

    tag: ClassVar[int] = 2

    topic_id: int
    name: str
    stream_ids: list[int]
    config: TopicConfig


class PartitionsAdded(msgspec.Struct, gc=False, array_like=True):
    """A topic grew."""

    tag: ClassVar[int] = 3

    name: str
    stream_ids: list[int]


class TopicConfigured(msgspec.Struct, gc=False, array_like=True):
    """A topic's settings changed, for all its streams at once."""

    tag: ClassVar[int] = 4

    name: str
    stream_ids: list[int]
    config: TopicConfig


class TopicDeleted(msgspec.Struct, gc=False, array_like=True):
    """A name was unlinked. Rows of its streams go lazily."""

    tag: ClassVar[int] = 5

    name: str
    stream_ids: list[int]


class StreamClosed(msgspec.Struct, gc=False, array_like=True):
    """No further append will be accepted."""

    tag: ClassVar[int] = 6

    stream_id: int


class Trimmed(msgspec.Struct, gc=False, array_like=True):
    """The floor rose."""

    tag: ClassVar[int] = 7

    stream_id: int
    floor: int


class HolesAdded(msgspec.Struct, gc=False, array_like=True):
    """Offsets became holes. Ranges are flat (first, next), sorted, and hold no hole of before, except that a deletion
    may cover aborted records."""

    tag: ClassVar[int] = 8

    stream_id: int
    ranges: list[int]
    cause: int
    producer_id: int = -1


class Claimed(msgspec.Struct, gc=False, array_like=True):
    """A producer's sequence is used up by a write that is recorded elsewhere: a commit, or a known message id."""

    tag: ClassVar[int] = 9

    stream_id: int
    claim: ProducerClaim
    epoch: int
    outcome: list[int]
    """Flat (stream, first, next)."""
    renews: bool = False
    """As the flag RENEWS of `Appended`."""


class ProducerFenced(msgspec.Struct, gc=False, array_like=True):
    """Older epochs of this producer never write to this stream again."""

    tag: ClassVar[int] = 10

    stream_id: int
    name: str
    epoch: int
    mode: int


class CursorSet(msgspec.Struct, gc=False, array_like=True):
    """A cursor's whole new value."""

    tag: ClassVar[int] = 11

    name: str
    stream_id: int
    cursor: Cursor


class CursorDeleted(msgspec.Struct, gc=False, array_like=True):
    """A consumer is gone."""

    tag: ClassVar[int] = 12

    name: str
    stream_id: int


class ClaimRemembered(msgspec.Struct, gc=False, array_like=True):
    """A commit id or batch id and what it did."""

    tag: ClassVar[int] = 13

    scope: str
    claim_id: str
    digest: bytes
    outcome: list[int]
    floor_ms: int


class IdsUsed(msgspec.Struct, gc=False, array_like=True):
    """Ids whose record is gone were asked for again, so that their memory starts anew; or came with a sequence that was
    written before without them. Flat 16-byte hashes."""

    tag: ClassVar[int] = 14

    hashes: bytes
    values: bytes
    """The 40-byte values of before: apply writes them back with the new time, so that replay needs no look-up."""


class StageOpened(msgspec.Struct, gc=False, array_like=True):
    """An extent outside any stream."""

    tag: ClassVar[int] = 15

    stage_id: int
    application: str
    fence: int
    ttl_ms: int
    content_type: str = ""


class StageAppended(msgspec.Struct, gc=False):
    """A batch took [first, first + count) of a stage."""

    tag: ClassVar[int] = 16

    stage_id: int
    first: int
    count: int
    batch: bytes
    digest: bytes
    batch_at: int = -1


class StageDropped(msgspec.Struct, gc=False, array_like=True):
    """Expired, or its owner let go of it."""

    tag: ClassVar[int] = 17

    stage_id: int


class StagePublished(msgspec.Struct, gc=False, array_like=True):
    """A stage became [first, first + count) of a stream, by reference."""

    tag: ClassVar[int] = 18

    stage_id: int
    stream_id: int
    first: int
    count: int
    ids: bytes = b""
    """As `Appended.ids`; record numbers count from the stage's first."""


class ApplicationSet(msgspec.Struct, gc=False, array_like=True):
    """A Spark application's whole new value."""

    tag: ClassVar[int] = 19

    name: str
    application: Application


class TxnSet(msgspec.Struct, gc=False, array_like=True):
    """A txn's whole new value, or its removal."""

    tag: ClassVar[int] = 20

    txn_id: str
    txn: Txn | None


class TxnReleased(msgspec.Struct, gc=False, array_like=True):
    """A producer has no open txn on this stream any more: its stable offset may move."""

    tag: ClassVar[int] = 21

    stream_id: int
    producer_id: int


class ProducerIdsTaken(msgspec.Struct, gc=False, array_like=True):
    """Producer ids below this number were handed out and are never handed out again."""

    tag: ClassVar[int] = 22

    next_producer_id: int


class Moved(msgspec.Struct, gc=False):
    """The cleaner wrote a batch again at the end of the journal: same extent, same offsets, new place."""

    tag: ClassVar[int] = 23

    extent_id: int
    first: int
    count: int
    batch: bytes
    time_ns: int
    batch_at: int = -1


class Carried(msgspec.Struct, gc=False, array_like=True):
    """The cleaner wrote a row again at the end of the journal, since the segment that made it is about to go."""

    tag: ClassVar[int] = 24

    table: Table
    key: str | int | tuple[int | str, int | str]
    row: bytes
    """The row as the index stores it; empty = the row is gone."""


class CarriedIds(msgspec.Struct, gc=False, array_like=True):
    """As `Carried`, for remembered message ids: 16-byte hashes and their 40-byte values."""

    tag: ClassVar[int] = 25

    hashes: bytes
    values: bytes


class CarriedCounters(msgspec.Struct, gc=False, array_like=True):
    """As `Carried`, for the counters that no row holds."""

    tag: ClassVar[int] = 26

    next_id: int
    next_producer_id: int


class TxnAdded(msgspec.Struct, gc=False, array_like=True):
    """A txn begins, or names more streams and groups. Only what is new is stored."""

    tag: ClassVar[int] = 27

    txn_id: str
    streams: list[int]
    groups: list[str]
    patience_ms: int
    starts: bool


class TxnOffsets(msgspec.Struct, gc=False, array_like=True):
    """Cursor moves that come true if the txn commits, each in the place of an earlier one of the same cursor."""

    tag: ClassVar[int] = 28

    txn_id: str
    moves: list[tuple[str, int, int, str]]
    """(cursor name, stream id, offset, metadata)."""


class TxnOffsetsDropped(msgspec.Struct, gc=False, array_like=True):
    """Moves that wait in a txn no longer count: the cursor was moved by a later command outside of it."""

    tag: ClassVar[int] = 29

    txn_id: str
    cursors: list[tuple[str, int]]


class CursorMoved(msgspec.Struct, gc=False, array_like=True):
    """A cursor was put somewhere. What was confirmed above its old place no longer counts; its settings stay."""

    tag: ClassVar[int] = 30

    name: str
    stream_id: int
    frontier: int
    metadata: str = ""
    pinned: bool = False
    given: bool = False
    """As `Cursor.given`."""


class ConsumerChanged(msgspec.Struct, gc=False, array_like=True):
    """A consumer confirmed or was delivered to: only what is new."""

    tag: ClassVar[int] = 31

    name: str
    stream_id: int
    frontier: int
    confirmed: list[int]
    """Flat ranges above the frontier that are new, or longer than before."""
    pinned: bool = False
    delivered: int = 0
    """As `Cursor.delivered`, if it is higher."""
    sequence: int = 0
    waiting: list[int] = []
    """Flat (offset, delivery count, deadline ns, sequence); a count of 0: it waits no more."""


class ConsumerSet(msgspec.Struct, gc=False, array_like=True):
    """The settings of a consumer, which is made if it is not there."""

    tag: ClassVar[int] = 32

    name: str
    stream_id: int
    frontier: int
    """Where a new one begins."""
    config: bytes
    gate: str
    metadata: str
    pinned: bool


class SubjectsWritten(msgspec.Struct, gc=False, array_like=True):
    """The index of subjects reaches `next` now. Begins it, if the stream had none."""

    tag: ClassVar[int] = 33

    stream_id: int
    first: int
    next: int
    subjects: list[tuple[str, int, int, int]]
    """(subject, count, first offset, last offset) of the records between, each subject once."""


class SubjectsSet(msgspec.Struct, gc=False, array_like=True):
    """Rows of subjects as they are now; one with a count of 0 goes."""

    tag: ClassVar[int] = 34

    stream_id: int
    subjects: list[tuple[str, int, int, int]]


Operation = (
    Appended
    | TopicCreated
    | PartitionsAdded
    | TopicConfigured
    | TopicDeleted
    | StreamClosed
    | Trimmed
    | HolesAdded
    | Claimed
    | ProducerFenced
    | CursorSet
    | CursorDeleted
    | ClaimRemembered
    | IdsUsed
    | StageOpened
    | StageAppended
    | StageDropped
    | StagePublished
    | ApplicationSet
    | TxnSet
    | TxnReleased
    | ProducerIdsTaken
    | Moved
    | Carried
    | CarriedIds
    | CarriedCounters
    | TxnAdded
    | TxnOffsets
    | TxnOffsetsDropped
    | CursorMoved
    | ConsumerChanged
    | ConsumerSet
    | SubjectsWritten
    | SubjectsSet
)


class Compound(msgspec.Struct, gc=False):
    """Several operations that become true at one instant."""

    time_ns: int
    operations: list[Operation]


Entry = Appended | Compound

OPERATIONS: Final[dict[int, type[Operation]]] = {
    kind.tag: kind
    for kind in (
        Appended,
        TopicCreated,
        PartitionsAdded,
        TopicConfigured,
        TopicDeleted,
        StreamClosed,
        Trimmed,
        HolesAdded,
        Claimed,
        ProducerFenced,
        CursorSet,
        CursorDeleted,
        ClaimRemembered,
        IdsUsed,
        StageOpened,
        StageAppended,
        StageDropped,
        StagePublished,
        ApplicationSet,
        TxnSet,
        TxnReleased,
        ProducerIdsTaken,
        Moved,
        Carried,
        CarriedIds,
        CarriedCounters,
        TxnAdded,
        TxnOffsets,
        TxnOffsetsDropped,
        CursorMoved,
        ConsumerChanged,
        ConsumerSet,
        SubjectsWritten,
        SubjectsSet,
    )
}
assert len(OPERATIONS) == 34, "two operations share a tag"
