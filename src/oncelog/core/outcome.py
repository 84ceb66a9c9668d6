"""Outcomes: every answer that a command can get. A refusal is a value with the numbers in it, never an exception.

Closed sets: `Done` is what a command may bring about, `Refusal` why it may be left undone. Each refusal says whether
the same command can succeed later (`retryable`) and has a stable `code` that faces and metrics use. A duplicate is not
refused: it gets the first outcome again with `duplicate` set.
"""

from typing import ClassVar

import msgspec

from oncelog.core.flat import Columns
from oncelog.core.flat import Confirmed as Confirmed
from oncelog.core.rows import Application, Cursor, Topic
from oncelog.core.txn import Txn


class CommitConfirmed(msgspec.Struct, gc=False):
    """A commit, a publish or a txn end took effect whole. `outcome` is flat (stream, first, next)."""

    outcome: list[int]
    duplicate: bool = False
    epoch: int = -1
    sequence: int = -1


def each_outcome(outcome: "Outcome", command: Columns) -> list["Outcome"]:
    """The answer to each value of a command whose values stand alone, as if it had come by itself."""
    count, claims = len(command.values), command.claims
    if not isinstance(outcome, Confirmed) or count == 1:
        return [outcome] * count
    told: list[Outcome] = []
    offset = outcome.first
    for number in range(count):
        one = None if outcome.exceptions is None else outcome.exceptions.get(number)
        if one is None:
            claim = None if claims is None else claims[number]
            epoch, sequence = (-1, -1) if claim is None else (claim.epoch, claim.last)
            closed = outcome.closed and number == count - 1
            one = Confirmed(
                outcome.stream_id, offset, offset + 1, outcome.time_ns, False, False, epoch, sequence, closed
            )
        if isinstance(one, Confirmed) and not one.duplicate:
            offset = one.next
        told.append(one)
    return told


class TopicDone(msgspec.Struct, gc=False):
    """The topic is as asked; `changed` is False if it already was."""

    topic_id: int
    stream_ids: list[int]
    changed: bool
    tail: int = 0
    """Of partition 0, when a topic is made or agreed with."""
    closed: bool = False


class StreamDone(msgspec.Struct, gc=False):
    """Where the stream stands."""

    stream_id: int
    floor: int
    stable: int
    tail: int
    closed: bool
    changed: bool = False
    epoch: int = -1
    sequence: int = -1
    """Highest sequence accepted from this producer; -1 without a producer claim."""
    subjects_next: int = -1
    """Up to where its subjects are indexed, when that was asked."""


class StageDone(msgspec.Struct, gc=False):
    """Where the stage stands."""

    stage_id: int
    count: int
    expires_ns: int
    duplicate: bool = False


class ApplicationDone(msgspec.Struct, gc=False):
    """What the log remembers of a Spark application, and the fence its new driver holds."""

    fence: int
    query: str
    batch: int
    source_end: bytes


class CursorDone(msgspec.Struct, gc=False):
    """Where the cursor stands; None if there is none."""

    cursor: Cursor | None
    pending: tuple[str, ...] = ()
    """The open txns that will move it when they commit."""


class OffsetsCommitted(msgspec.Struct, gc=False):
    """One answer per offset, in order: None for one that was stored."""

    answers: "list[Refusal | None]"


class ConsumerPlace(msgspec.Struct, gc=False):
    """Where a consumer stands after an update."""

    frontier: int
    delivered: int
    waiting: int
    """How many records were delivered and are not confirmed."""
    ranges: int
    """How many ranges are confirmed above the frontier."""


class ConsumersUpdated(msgspec.Struct, gc=False):
    """One answer per update, in order."""

    answers: "list[ConsumerPlace | Refusal]"


class TxnDone(msgspec.Struct, gc=False):
    """A txn call succeeded; ids and epoch are the ones to use from now on."""

    producer_id: int
    epoch: int


class ReceiptFound(msgspec.Struct, gc=False):
    """What became of a message id."""

    stream_id: int
    first: int
    next: int
    digest: bytes
    time_ms: int
    gone: bool


class SubjectFound(msgspec.Struct, gc=False):
    """How often a subject was written, and where; `subjects_next` is how far the index reaches."""

    count: int
    first: int
    last: int
    subjects_next: int


class ProducerFound(msgspec.Struct, gc=False):
    """What a restarted producer asks: epoch, last sequence, and where its last batch is (-1 unknown)."""

    epoch: int
    last_sequence: int
    first: int
    next: int
    used_ns: int


class TopicFound(msgspec.Struct, gc=False):
    """A topic's row."""

    topic: Topic


class TxnFound(msgspec.Struct, gc=False):
    """A txn's row."""

    txn: Txn


class ApplicationFound(msgspec.Struct, gc=False):
    """A Spark application's row."""

    application: Application


# --- refusals ----------------------------------------------------------------------------------------------------


class Refusal(msgspec.Struct, gc=False, kw_only=True):
    """Base of everything that leaves the log as it was."""

    code: ClassVar[str] = "refused"
    retryable: ClassVar[bool] = False
    append_number: int | None = None
    """Of a commit: which of its appends is refused, counted from 0."""
    cursor_number: int | None = None
    """The same of its cursor moves."""


class NameInvalid(Refusal):
    """A name that no table can hold."""

    code: ClassVar[str] = "name_invalid"
    name: str
    reason: str


class TopicMissing(Refusal):
    """No topic of this name, or no such partition."""

    code: ClassVar[str] = "topic_missing"
    topic: str
    partition: int = 0
    also: tuple[tuple[str, int], ...] | None = None
    """Others that the same request names and that are not there either."""


class TopicExists(Refusal):
    """The name is taken by a topic with other settings."""

    code: ClassVar[str] = "topic_exists"
    CLOSED: ClassVar[str] = "it is closed"
    OPEN: ClassVar[str] = "it is not closed"
    """Reasons that are no setting: faces say what to do about each."""
    topic: str
    reason: str


class NatsNameTaken(Refusal):
    """Another topic has a JetStream name that this one would have."""

    code: ClassVar[str] = "nats_name_taken"
    topic: str
    nats_name: str
    by: str


class ContentTypeMismatch(Refusal):
    """The stream was made for another type of content."""

    code: ClassVar[str] = "content_type_mismatch"
    expected: str
    received: str


class StreamClosedRefusal(Refusal):
    """The stream takes no more appends; its last offset is `tail` - 1."""

    code: ClassVar[str] = "stream_closed"
    stream_id: int
    tail: int


class SequenceGap(Refusal):
    """A sequence before this one is missing."""

    code: ClassVar[str] = "sequence_gap"
    expected: int
    received: int


class EpochNotAtZero(Refusal):
    """A new epoch begins with sequence 0, and this is another one."""

    code: ClassVar[str] = "epoch_not_at_zero"
    expected: int
    received: int


class Fenced(Refusal):
    """A newer epoch of this producer exists. It never writes under the old one again."""

    code: ClassVar[str] = "fenced"
    current: int
    claimed: int


class SequenceConflict(Refusal):
    """The sequence was used for other content."""

    code: ClassVar[str] = "sequence_conflict"
    sequence: int
    stored_digest: bytes
    claimed_digest: bytes


class ClaimInvalid(Refusal):
    """The claim contradicts itself or the rules of its epoch; nothing could make it valid."""

    code: ClassVar[str] = "claim_invalid"
    EPOCH_NOT_GIVEN: ClassVar[str] = "the epoch was never given out"
    reason: str
    expected: int | None = None
    received: int | None = None
    """None in either: the reason is not about such a number."""


class IdConflict(Refusal):
    """The id was used for other content (P3). Nothing was written."""

    code: ClassVar[str] = "id_conflict"
    stream_id: int
    offset: int
    stored_digest: bytes
    claimed_digest: bytes
    message_id: str | None = None
    """Of a write with many ids: which one, and where its record was to go. Bytes that are no text are told in hex."""
    topic: str | None = None
    partition: int | None = None


class ClaimConflict(Refusal):
    """The commit id or batch id was used for other content."""

    code: ClassVar[str] = "claim_conflict"
    claim_id: str
    outcome: list[int]
    stored_digest: bytes
    claimed_digest: bytes


class PartlyDuplicate(Refusal):
    """Some ids of an all-or-nothing write are stored already and others are not."""

    code: ClassVar[str] = "partly_duplicate"
    known: int
    new: int
    first_known_stream_id: int
    first_known_offset: int


class TailMismatch(Refusal):
    """The stream's tail is not where the writer expected it."""

    code: ClassVar[str] = "tail_mismatch"
    stream_id: int
    expected: int
    tail: int


class SubjectMismatch(Refusal):
    """The last record of a subject is not where the writer expected it; -1 in either: there is none."""

    code: ClassVar[str] = "subject_mismatch"
    subject: str
    expected: int
    last: int


class SubjectsBehind(Refusal):
    """What was written last is not in the index of subjects yet, so that nobody can say where a subject ends."""

    code: ClassVar[str] = "subjects_behind"
    retryable: ClassVar[bool] = True
    stream_id: int
    subjects_next: int
    tail: int


class OrderKeyNotRising(Refusal):
    """The ordering key must be above the last one."""

    code: ClassVar[str] = "order_key_not_rising"
    last: str
    received: str


class ConditionFailed(Refusal):
    """A condition of a commit does not hold."""

    code: ClassVar[str] = "condition_failed"
    condition: str
    number: int
    """Which condition, counted from 0."""
    expected: str
    actual: str
    """Text in both, since conditions compare unlike things: offsets and epochs in digits; present or absent; new or
    written."""


class TooLarge(Refusal):
    """Out of bounds: which one, how much was asked, how much is allowed."""

    code: ClassVar[str] = "too_large"
    what: str
    limit: int
    received: int
    least: int | None = None
    """Of a bound that has two ends, the lower one: what was asked may be below it."""


class BatchRefused(Refusal):
    """The records cannot be stored as they are."""

    code: ClassVar[str] = "batch_refused"
    reason: str


class EnvelopeInvalid(Refusal):
    """A record of a fact topic is no fact: which field, and what is wrong with it."""

    code: ClassVar[str] = "envelope_invalid"
    reason: str


class NoRoom(Refusal):
    """The disk has no room for another segment. Reads go on; the same write can succeed once there is room."""

    code: ClassVar[str] = "no_room"
    retryable: ClassVar[bool] = True
    needed_bytes: int


class Overloaded(Refusal):
    """Too much waits to be written, or to be read. Try again; nothing was done."""

    code: ClassVar[str] = "overloaded"
    retryable: ClassVar[bool] = True
    waiting_bytes: int
    limit: int


class Damaged(Refusal):
    """Bytes on disk are not what was written (P9), or cannot be read: named, never served."""

    code: ClassVar[str] = "damaged"
    what: str
    file: str
    position: int
    next: int = -1
    """Where reading can go on, behind a batch that cannot be read; -1 if it is not that, or nobody knows."""


class Stopping(Refusal):
    """The server stops. Nothing was done; the same request can succeed once it is back."""

    code: ClassVar[str] = "stopping"
    retryable: ClassVar[bool] = True


class OffsetAhead(Refusal):
    """The offset is beyond what may be named."""

    code: ClassVar[str] = "offset_ahead"
    stream_id: int
    offset: int
    limit: int


class OffsetGone(Refusal):
    """The offset was trimmed."""

    code: ClassVar[str] = "offset_gone"
    stream_id: int
    offset: int
    floor: int


class EntryAhead(Refusal):
    """No entry of this number is visible yet."""

    code: ClassVar[str] = "entry_ahead"
    entry: int
    last: int


class NotACut(Refusal):
    """The entry became visible together with others: nobody ever saw the log end with it."""

    code: ClassVar[str] = "not_a_cut"
    entry: int
    before: int
    after: int


class CursorPinned(Refusal):
    """Trimming would remove what a pinned cursor has not processed."""

    code: ClassVar[str] = "cursor_pinned"
    cursor: str
    frontier: int
    asked: int


class ConsumerExists(Refusal):
    """The name is taken by a consumer with another configuration."""

    code: ClassVar[str] = "consumer_exists"
    name: str


class StageMissing(Refusal):
    """Unknown, published or expired: a stage is used once."""

    code: ClassVar[str] = "stage_missing"
    stage_id: int


class StageBusy(Refusal):
    """The stage was written to while its message ids were being read. Nothing was done."""

    code: ClassVar[str] = "stage_busy"
    retryable: ClassVar[bool] = True
    stage_id: int


class StageCountMismatch(Refusal):
    """The stage does not hold what its owner believes it holds."""

    code: ClassVar[str] = "stage_count_mismatch"
    stage_id: int
    expected: int
    actual: int


class ApplicationFenced(Refusal):
    """A newer driver of this application exists."""

    code: ClassVar[str] = "application_fenced"
    application: str
    current: int
    claimed: int


class ApplicationBatchRefused(Refusal):
    """The batch does not follow what the application published last."""

    code: ClassVar[str] = "application_batch_refused"
    application: str
    query: str
    expected_batch: int
    received_batch: int
    reason: str


class TxnRefused(Refusal):
    """A txn call that its state forbids; `reason` is the name of a `core.txn.TxnRefusal`."""

    code: ClassVar[str] = "txn_refused"
    reason: str
    producer_id: int = -1
    epoch: int = -1


class NotFound(Refusal):
    """A query for something that is not there."""

    code: ClassVar[str] = "not_found"
    what: str


class ShardMismatch(Refusal):
    """The streams of one commit must lie in one shard."""

    code: ClassVar[str] = "shard_mismatch"
    first_shard: int
    other_shard: int


Done = (
    Confirmed
    | CommitConfirmed
    | TopicDone
    | StreamDone
    | StageDone
    | ApplicationDone
    | CursorDone
    | OffsetsCommitted
    | ConsumersUpdated
    | TxnDone
    | ReceiptFound
    | SubjectFound
    | ProducerFound
    | TopicFound
    | TxnFound
    | ApplicationFound
)
Outcome = Done | Refusal
