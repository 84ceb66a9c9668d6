"""The Python client: producers, readers, commits and every other call, for asyncio and for threads.

`AsyncClient` and what it makes belong to one event loop. `Client` is the same for threads. See `docs/client.md`.
"""

from oncelog.client.batches import BatchResult, PendingBatch
from oncelog.client.client import AsyncClient
from oncelog.client.errors import (
    AnswerUnreadable,
    BufferFull,
    ClientError,
    ConditionFailed,
    Conflict,
    ConnectionLost,
    DeadLettered,
    Fenced,
    IdConflict,
    Malformed,
    NotFound,
    OffsetGone,
    OutcomeUnknown,
    Overloaded,
    ProducerStopped,
    RecordTooLarge,
    Refused,
    SequenceConflict,
    SequenceGap,
    StreamClosed,
    TooLarge,
    Unreachable,
)
from oncelog.client.models import (
    CommitAppend,
    CommitProducer,
    CommitRecord,
    CommitResult,
    CursorEquals,
    CursorMove,
    EpochEquals,
    ExpectedTail,
    IdKnown,
    PublishStage,
    StreamNew,
)
from oncelog.client.options import ProducerOptions, ProducerSettings
from oncelog.client.packing import ProducerRecord, Record
from oncelog.client.producer import AsyncIdempotentProducer
from oncelog.client.reader import NOW, START, AsyncReader
from oncelog.client.stream import AppendResult, AsyncStream, StreamHead
from oncelog.client.sync import Client, IdempotentProducer, Reader, Stream

__all__ = [
    "NOW",
    "START",
    "AnswerUnreadable",
    "AppendResult",
    "AsyncClient",
    "AsyncIdempotentProducer",
    "AsyncReader",
    "AsyncStream",
    "BatchResult",
    "BufferFull",
    "Client",
    "ClientError",
    "CommitAppend",
    "CommitProducer",
    "CommitRecord",
    "CommitResult",
    "ConditionFailed",
    "Conflict",
    "ConnectionLost",
    "CursorEquals",
    "CursorMove",
    "DeadLettered",
    "EpochEquals",
    "ExpectedTail",
    "Fenced",
    "IdConflict",
    "IdKnown",
    "IdempotentProducer",
    "Malformed",
    "NotFound",
    "OffsetGone",
    "OutcomeUnknown",
    "Overloaded",
    "PendingBatch",
    "ProducerOptions",
    "ProducerRecord",
    "ProducerSettings",
    "ProducerStopped",
    "PublishStage",
    "Reader",
    "Record",
    "RecordTooLarge",
    "Refused",
    "SequenceConflict",
    "SequenceGap",
    "Stream",
    "StreamClosed",
    "StreamHead",
    "StreamNew",
    "TooLarge",
    "Unreachable",
]
