"""Commands: everything that can be asked of the log. Closed set; a query is a command that yields no entry.

Commands name topics and partitions, never stream ids: a name may be deleted and made again between two requests, and
the core, which decides in one order, is the only place that can say what it means now.
"""

from typing import ClassVar, Literal

import msgspec

from oncelog import limits
from oncelog.core.flat import Columns as Columns
from oncelog.core.flat import ProducerClaim
from oncelog.core.flat import one_value as one_value
from oncelog.core.rows import TopicConfig
from oncelog.core.txn import DEFAULT_TIMEOUTS, TxnTimeouts

# --- topics and streams --------------------------------------------------------------------------------------------


class CreateTopic(msgspec.Struct, gc=False):
    """Make a topic, or agree with the one that is there. Its first content is part of its making: of a retry, what is
    there counts."""

    name: str
    partitions: int = 1
    config: TopicConfig = msgspec.field(default_factory=TopicConfig)
    batch: bytes = b""
    """First records of partition 0; empty for none."""
    count: int = 0
    close: bool = False
    """Closed from the start, all partitions."""
    urgent: ClassVar[bool] = False


class AddPartitions(msgspec.Struct, gc=False):
    """Let a topic grow to `partitions`."""

    name: str
    partitions: int
    urgent: ClassVar[bool] = False


class ConfigureTopic(msgspec.Struct, gc=False):
    """Replace a topic's settings: all of them, or those that are named."""

    name: str
    config: TopicConfig | None = None
    changes: dict[str, str | int] = {}
    """Names of `TopicConfig` and new values, over what is there; without `config`."""
    urgent: ClassVar[bool] = False


class DeleteTopic(msgspec.Struct, gc=False):
    """Unlink a name."""

    name: str
    urgent: ClassVar[bool] = True


class CloseStream(msgspec.Struct, gc=False):
    """Accept no further append. Closing a closed stream succeeds."""

    topic: str
    partition: int = 0
    claim: ProducerClaim | None = None
    urgent: ClassVar[bool] = False


class Trim(msgspec.Struct, gc=False):
    """Raise the floor. Never past a pinned cursor unless `force`."""

    topic: str
    partition: int
    floor: int
    force: bool = False
    as_far_as_allowed: bool = False
    """As retention does it: up to the first pinned cursor, or to `stable`, instead of being refused for it."""
    urgent: ClassVar[bool] = True


class DeleteRecords(msgspec.Struct, gc=False):
    """Turn single records into holes. `ranges` is flat (first, next), sorted and disjoint."""

    topic: str
    partition: int
    ranges: list[int]
    subjects: list[tuple[str, int, int, int]] = []
    """Where subjects are indexed: (subject, count, first, last) of those that change, as they are afterwards."""
    urgent: ClassVar[bool] = True


class BeginSubjects(msgspec.Struct, gc=False):
    """Index the subjects of a stream from now on; an empty one is indexed at once. Beginning twice succeeds."""

    topic: str
    partition: int = 0
    urgent: ClassVar[bool] = False


class IndexSubjects(msgspec.Struct, gc=False):
    """The subjects of records [first, next), which were written without telling them."""

    topic: str
    partition: int
    first: int
    next: int
    subjects: list[tuple[str, int, int, int]]
    """(subject, count, first offset, last offset), each subject once."""
    urgent: ClassVar[bool] = False


# --- appends -------------------------------------------------------------------------------------------------------


class Append(msgspec.Struct, gc=False):
    """One ready batch to one stream."""

    topic: str
    partition: int
    batch: bytes
    """Encoded, format 2; bytes that came from outside were skimmed by the face."""
    count: int
    digest: bytes = b""
    """Of the content (`message_id.content_digest`); required with a message id, compared for a producer claim."""
    claim: ProducerClaim | None = None
    message_id: bytes = b""
    expected_tail: int = -1
    order_key: str = ""
    content_type: str = ""
    """What the face says the records are, having looked at them; empty if it has not looked."""
    close: bool = False
    txn_id: str = ""
    urgent: ClassVar[bool] = False


class CommitAppend(msgspec.Struct, gc=False):
    """One batch of a commit."""

    topic: str
    partition: int
    batch: bytes
    count: int
    digest: bytes = b""
    message_id: bytes = b""
    ids: list[tuple[int, bytes, bytes]] = []
    """Instead of one id for the batch: (record number, message id, digest) of single records, ascending. Of a fact
    topic the facts say them."""


class ExpectTail(msgspec.Struct, gc=False):
    """The stream's tail is `tail`."""

    kind: ClassVar[str] = "expected_tail"
    topic: str
    partition: int
    tail: int


class ExpectNew(msgspec.Struct, gc=False):
    """No topic of this name exists, or it was never appended to."""

    kind: ClassVar[str] = "stream_new"
    topic: str


class ExpectCursor(msgspec.Struct, gc=False):
    """The cursor's frontier is `frontier`; 0 also if there is no such cursor."""

    kind: ClassVar[str] = "cursor_equals"
    name: str
    topic: str
    partition: int
    frontier: int


class ExpectId(msgspec.Struct, gc=False):
    """The message id is remembered, or is not."""

    kind: ClassVar[str] = "id"
    topic: str
    partition: int
    message_id: bytes
    present: bool


class ExpectEpoch(msgspec.Struct, gc=False):
    """The producer's epoch on this stream is `epoch`; -1 = the producer is unknown there."""

    kind: ClassVar[str] = "epoch_equals"
    topic: str
    partition: int
    producer: str
    epoch: int


Condition = ExpectTail | ExpectNew | ExpectCursor | ExpectId | ExpectEpoch


class CursorMove(msgspec.Struct, gc=False):
    """Put a cursor at `frontier`, as part of a commit, a publish, or alone."""

    name: str
    topic: str
    partition: int
    frontier: int
    metadata: str = ""
    pinned: bool = False


class Commit(msgspec.Struct, gc=False):
    """The richest write: all of it becomes true at one instant, or none of it."""

    appends: list[CommitAppend]
    conditions: list[Condition] = []
    cursors: list[CursorMove] = []
    commit_id: str = ""
    claim: ProducerClaim | None = None
    scope: str = "commit"
    """Whose ids `commit_id` is among: commits and NATS batches never meet."""
    urgent: ClassVar[bool] = False


# --- stages and Spark applications ---------------------------------------------------------------------------------


class OpenApplication(msgspec.Struct, gc=False):
    """A driver starts: it gets a fence above every earlier one."""

    application: str
    urgent: ClassVar[bool] = False


class OpenStage(msgspec.Struct, gc=False):
    """Make an empty stage, owned by an application's current driver or by nobody ("")."""

    application: str = ""
    fence: int = 0
    ttl_ms: int = 0
    """0 = the default."""
    content_type: str = ""
    """What it will hold. A stage that goes into a stream of JSON must have said so."""
    urgent: ClassVar[bool] = False


class AppendStage(msgspec.Struct, gc=False):
    """Add a batch at `at`, which must be the stage's count: so a retry is recognised."""

    stage_id: int
    at: int
    batch: bytes
    count: int
    digest: bytes
    urgent: ClassVar[bool] = False


class DropStages(msgspec.Struct, gc=False):
    """Let go of stages. Unknown ones are skipped: a drop never undoes a publish."""

    stage_ids: list[int]
    urgent: ClassVar[bool] = True


class PublishItem(msgspec.Struct, gc=False):
    """One stage and where it goes."""

    stage_id: int
    topic: str
    partition: int
    count: int
    """What the owner believes the stage holds."""
    named: bool = False
    """Its records carry message ids: they are read from the stage before this is decided."""
    ids: list[tuple[int, bytes, bytes]] | None = None
    """(record number within the stage, message id, digest), ascending: what was read; None if nobody has looked."""
    facts: bool = False
    """What was read are facts, each with its id and digest."""


class Publish(msgspec.Struct, gc=False):
    """Put stages into streams by reference, in this order, in one entry, with the application's progress."""

    stages: list[PublishItem]
    application: str
    fence: int
    query: str
    batch: int
    source_start: bytes = b""
    source_end: bytes = b""
    accept_new_query: bool = False
    cursors: list[CursorMove] = []
    urgent: ClassVar[bool] = False


# --- cursors -------------------------------------------------------------------------------------------------------


class MoveCursors(msgspec.Struct, gc=False):
    """Put cursors where told: Kafka's offset commit. May move backwards."""

    moves: list[CursorMove]
    uncommitted: bool = False
    """A read-uncommitted consumer may have processed what is still open."""
    urgent: ClassVar[bool] = False


class CommitOffsets(msgspec.Struct, gc=False):
    """Offsets that a Kafka group commits: each is the client's own word, stored as it is given, and answered alone. A
    move that waits in a txn for the same cursor no longer counts."""

    moves: list[CursorMove]
    urgent: ClassVar[bool] = False


class ConfirmCursor(msgspec.Struct, gc=False):
    """Confirm ranges, flat (first, next), in any order: the frontier moves over the contiguous part."""

    name: str
    topic: str
    partition: int
    ranges: list[int]
    pinned: bool = False
    urgent: ClassVar[bool] = False


class SetConsumer(msgspec.Struct, gc=False):
    """Make a consumer, or change its settings; what is None stays. With an empty topic it belongs to no stream."""

    name: str
    topic: str = ""
    partition: int = 0
    config: bytes | None = None
    gate: str | None = None
    metadata: str | None = None
    pinned: bool | None = None
    start: int = 0
    """Where a new one begins."""
    how: Literal["set", "create", "update"] = "set"
    """`create` agrees with one that has the same configuration, and refuses another; `update` makes none."""
    urgent: ClassVar[bool] = False


class ConsumerUpdate(msgspec.Struct, gc=False):
    """What one consumer confirmed, and what was delivered to it."""

    name: str
    topic: str
    partition: int = 0
    confirm: list[int] = []
    """Flat ranges (first, next), sorted and disjoint."""
    deliver: list[int] = []
    """Flat (offset, delivery count, deadline ns, sequence), four numbers each: they wait to be confirmed from now on.
    Of one that waits already, the numbers are replaced; a count of 0 ends its wait."""
    delivered: int = -1
    """Where to deliver from next, if that is more than `deliver` says."""
    sequence: int = -1
    """The number of the last delivery, if that is more than `deliver` says."""


class UpdateConsumers(msgspec.Struct, gc=False):
    """Deliveries and confirms of one read of a socket. Each is answered alone."""

    updates: list[ConsumerUpdate]
    urgent: ClassVar[bool] = False


class DeleteConsumer(msgspec.Struct, gc=False):
    """Forget a consumer in these streams, (topic, partition) each, all at once; an empty topic is that of no stream."""

    name: str
    streams: list[tuple[str, int]]
    urgent: ClassVar[bool] = True


class DeleteCursor(msgspec.Struct, gc=False):
    """Forget a consumer."""

    name: str
    topic: str
    partition: int
    urgent: ClassVar[bool] = True


# --- txns ----------------------------------------------------------------------------------------------------------


class InitProducer(msgspec.Struct, gc=False):
    """Get a producer id; with a txn id also fence whoever held it."""

    txn_id: str = ""
    timeout_ms: int | None = None
    """None = the default."""
    producer_id: int = -1
    epoch: int = -1
    reject_timeout: bool = False
    """Kafka's rule for a timeout out of range; otherwise it is clamped."""
    timeouts: TxnTimeouts = DEFAULT_TIMEOUTS
    """The bounds that the server was started with."""
    urgent: ClassVar[bool] = False


class AddToTxn(msgspec.Struct, gc=False):
    """Name partitions and consumer groups that the txn will touch. All or nothing."""

    txn_id: str
    producer_id: int
    epoch: int
    streams: list[tuple[str, int]]
    groups: list[str] = []
    verify_only: bool = False
    """Add nothing: succeed if the open txn names all of them already."""
    streams_max: int = limits.COMMIT_APPENDS_MAX
    """How many streams the server lets one txn name."""
    urgent: ClassVar[bool] = False


class TxnCursors(msgspec.Struct, gc=False):
    """Cursor moves that become true when the txn commits: any offset of 0 or more, each answered alone."""

    txn_id: str
    producer_id: int
    epoch: int
    group: str
    moves: list[CursorMove]
    urgent: ClassVar[bool] = False


class EndTxn(msgspec.Struct, gc=False):
    """Commit or abort: one entry with all markers, all cursors and the txn's state."""

    txn_id: str
    producer_id: int
    epoch: int
    commit: bool
    urgent: ClassVar[bool] = True


class WriteMarker(msgspec.Struct, gc=False):
    """A marker that does not come from our own coordinator: an administrator aborts the whole txn of a producer id."""

    producer_id: int
    epoch: int
    commit: bool
    streams: list[tuple[str, int]]
    """A txn that touches none of them is left alone."""
    coordinator_epoch: int = -1
    """-1: an administrator. One from 0 up that is below ours is refused."""
    urgent: ClassVar[bool] = True


# --- timers --------------------------------------------------------------------------------------------------------


class ExpireTxn(msgspec.Struct, gc=False):
    """End a txn whose time is up, or forget one that was idle for too long."""

    txn_id: str
    fence: bool = True
    markers: bool = True
    urgent: ClassVar[bool] = True


class ExpireStages(msgspec.Struct, gc=False):
    """Drop stages whose time is up."""

    stage_ids: list[int]
    urgent: ClassVar[bool] = True


# --- queries -------------------------------------------------------------------------------------------------------


class GetTopic(msgspec.Struct, gc=False):
    """A topic's settings and streams."""

    name: str
    urgent: ClassVar[bool] = True


class GetStream(msgspec.Struct, gc=False):
    """Where a stream stands."""

    topic: str
    partition: int = 0
    urgent: ClassVar[bool] = True


class GetSubject(msgspec.Struct, gc=False):
    """How often a subject was written, and where."""

    topic: str
    partition: int
    subject: str
    urgent: ClassVar[bool] = True


class GetReceipt(msgspec.Struct, gc=False):
    """Was this id taken, where, and with which content?"""

    topic: str
    partition: int
    message_id: bytes
    urgent: ClassVar[bool] = True


class GetProducer(msgspec.Struct, gc=False):
    """What a restarted producer asks. With an empty topic: the producer of commits."""

    topic: str
    partition: int
    name: str
    urgent: ClassVar[bool] = True


class GetCursor(msgspec.Struct, gc=False):
    """A consumer and where it stands. With an empty topic, the one of no stream."""

    name: str
    topic: str
    partition: int
    urgent: ClassVar[bool] = True


class GetTxn(msgspec.Struct, gc=False):
    """A txn's row."""

    txn_id: str
    urgent: ClassVar[bool] = True


class GetApplication(msgspec.Struct, gc=False):
    """A Spark application's row."""

    application: str
    urgent: ClassVar[bool] = True


Command = (
    Append
    | Columns
    | Commit
    | CreateTopic
    | AddPartitions
    | ConfigureTopic
    | DeleteTopic
    | CloseStream
    | Trim
    | DeleteRecords
    | BeginSubjects
    | IndexSubjects
    | OpenApplication
    | OpenStage
    | AppendStage
    | DropStages
    | Publish
    | MoveCursors
    | CommitOffsets
    | ConfirmCursor
    | SetConsumer
    | UpdateConsumers
    | DeleteConsumer
    | DeleteCursor
    | InitProducer
    | AddToTxn
    | TxnCursors
    | EndTxn
    | WriteMarker
    | ExpireTxn
    | ExpireStages
    | GetTopic
    | GetStream
    | GetSubject
    | GetReceipt
    | GetProducer
    | GetCursor
    | GetTxn
    | GetApplication
)
