"""Every refusal of the core as an error code of Kafka. One table for all APIs, and what differs for a few of them.

Versions matter for one refusal: a fenced producer is told 90 where the version knows that code, 47 before, and always
47 on the data path, as Kafka does.
"""

from typing import Final

from oncelog.core import outcome as o
from oncelog.core.txn import TxnRefusal
from oncelog.protocols.kafka.codes import Code

_CODES: Final[dict[type[o.Refusal], Code]] = {
    o.NameInvalid: Code.INVALID_TOPIC_EXCEPTION,
    o.TopicMissing: Code.UNKNOWN_TOPIC_OR_PARTITION,
    o.NatsNameTaken: Code.INVALID_TOPIC_EXCEPTION,
    o.ConsumerExists: Code.INVALID_REQUEST,
    o.EnvelopeInvalid: Code.INVALID_RECORD,
    o.TopicExists: Code.TOPIC_ALREADY_EXISTS,
    o.ContentTypeMismatch: Code.INVALID_RECORD,
    o.StreamClosedRefusal: Code.POLICY_VIOLATION,
    o.SequenceGap: Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    o.EpochNotAtZero: Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    o.Fenced: Code.INVALID_PRODUCER_EPOCH,
    o.SequenceConflict: Code.DUPLICATE_SEQUENCE_NUMBER,
    o.ClaimInvalid: Code.INVALID_RECORD,
    o.IdConflict: Code.INVALID_RECORD,
    o.ClaimConflict: Code.INVALID_RECORD,
    o.PartlyDuplicate: Code.INVALID_RECORD,
    o.TailMismatch: Code.INVALID_REQUEST,
    o.OrderKeyNotRising: Code.INVALID_REQUEST,
    o.ConditionFailed: Code.INVALID_REQUEST,
    o.TooLarge: Code.MESSAGE_TOO_LARGE,
    o.SubjectMismatch: Code.INVALID_REQUEST,
    o.SubjectsBehind: Code.INVALID_REQUEST,
    o.NatsNameTaken: Code.INVALID_TOPIC_EXCEPTION,
    o.EnvelopeInvalid: Code.INVALID_RECORD,
    o.BatchRefused: Code.INVALID_RECORD,
    o.NoRoom: Code.KAFKA_STORAGE_ERROR,
    o.Overloaded: Code.THROTTLING_QUOTA_EXCEEDED,
    o.Damaged: Code.CORRUPT_MESSAGE,
    o.Stopping: Code.NOT_LEADER_OR_FOLLOWER,
    o.OffsetAhead: Code.OFFSET_OUT_OF_RANGE,
    o.OffsetGone: Code.OFFSET_OUT_OF_RANGE,
    o.EntryAhead: Code.OFFSET_OUT_OF_RANGE,
    o.NotACut: Code.INVALID_REQUEST,
    o.CursorPinned: Code.POLICY_VIOLATION,
    o.StageMissing: Code.INVALID_REQUEST,
    o.StageBusy: Code.INVALID_REQUEST,
    o.StageCountMismatch: Code.INVALID_REQUEST,
    o.ApplicationFenced: Code.INVALID_REQUEST,
    o.ApplicationBatchRefused: Code.INVALID_REQUEST,
    o.NotFound: Code.UNKNOWN_TOPIC_OR_PARTITION,
    o.ShardMismatch: Code.INVALID_REQUEST,
}
"""Refusals that no command of this face can meet have a code all the same: a test compares the table with the core."""

_TXN_CODES: Final[dict[str, Code]] = {
    TxnRefusal.ID_EMPTY.name: Code.INVALID_REQUEST,
    TxnRefusal.INVALID_STATE.name: Code.INVALID_TXN_STATE,
    TxnRefusal.MAPPING.name: Code.INVALID_PRODUCER_ID_MAPPING,
    TxnRefusal.TIMEOUT_OUT_OF_RANGE.name: Code.INVALID_TRANSACTION_TIMEOUT,
    TxnRefusal.CONCURRENT.name: Code.CONCURRENT_TRANSACTIONS,
    TxnRefusal.FENCED.name: Code.PRODUCER_FENCED,
    TxnRefusal.NOT_IN_TXN.name: Code.TRANSACTION_ABORTABLE,
    "COORDINATOR_FENCED": Code.TRANSACTION_COORDINATOR_FENCED,
}

_TXN_PARTITIONS: Final = "streams in one txn"


def code_of(refusal: o.Refusal) -> Code:
    """The code of a refusal where no API has one of its own."""
    if isinstance(refusal, o.TxnRefused):
        return _TXN_CODES[refusal.reason]
    if isinstance(refusal, o.TooLarge) and refusal.what == _TXN_PARTITIONS:
        return Code.POLICY_VIOLATION
    return _CODES[type(refusal)]


def produce_code(refusal: o.Refusal, version: int) -> Code:
    """On the data path a fenced epoch is 47; what is outside of a transaction is 120 from version 11 on, else 48."""
    code = code_of(refusal)
    if code is Code.PRODUCER_FENCED:
        return Code.INVALID_PRODUCER_EPOCH
    if code is Code.TRANSACTION_ABORTABLE and version < 11:
        return Code.INVALID_TXN_STATE
    if isinstance(refusal, o.Overloaded | o.Stopping):
        return Code.NOT_LEADER_OR_FOLLOWER  # retriable in every client
    return code


def txn_code(refusal: o.Refusal, *, knows_fenced: bool) -> Code:
    """On the coordinator's path: 90 where the version knows it."""
    code = code_of(refusal)
    if code is Code.PRODUCER_FENCED and not knows_fenced:
        return Code.INVALID_PRODUCER_EPOCH
    if code is Code.TRANSACTION_ABORTABLE:
        return Code.INVALID_TXN_STATE
    if isinstance(refusal, o.Overloaded | o.Stopping | o.NoRoom):
        return Code.COORDINATOR_NOT_AVAILABLE  # retriable, and nothing was done
    return code


def offset_code(refusal: o.Refusal) -> Code:
    """Of an offset commit."""
    if isinstance(refusal, o.TooLarge):
        return Code.OFFSET_METADATA_TOO_LARGE if "metadata" in refusal.what else Code.INVALID_COMMIT_OFFSET_SIZE
    if isinstance(refusal, o.Overloaded | o.Stopping | o.NoRoom):
        return Code.COORDINATOR_NOT_AVAILABLE
    return code_of(refusal)


def text_of(refusal: o.Refusal) -> str:
    """What is wrong, with its numbers, for error messages."""
    match refusal:
        case o.NameInvalid():
            return f"{refusal.name!r} is not a valid name: {refusal.reason}"
        case o.TopicMissing():
            return f"there is no topic {refusal.topic!r} with a partition {refusal.partition}"
        case o.TopicExists():
            return f"topic {refusal.topic!r} exists: {refusal.reason}"
        case o.TooLarge():
            return f"{refusal.what}: {refusal.received:,}; the limit is {refusal.limit:,}"
        case o.BatchRefused() | o.ClaimInvalid():
            return refusal.reason
        case o.StreamClosedRefusal():
            return f"the stream is closed at offset {refusal.tail} and takes no more records"
        case o.SequenceGap() | o.EpochNotAtZero():
            return f"sequence {refusal.received}, expected {refusal.expected}"
        case o.Fenced():
            return f"epoch {refusal.claimed}, the current one is {refusal.current}"
        case o.IdConflict():
            return f"message id {refusal.message_id!r} is stored at offset {refusal.offset} with other content"
        case o.NoRoom():
            return f"the disk has no room for {refusal.needed_bytes:,} more bytes"
        case o.Damaged():
            return refusal.what
        case o.TxnRefused():
            return refusal.reason.lower().replace("_", " ")
    return refusal.code.replace("_", " ")
