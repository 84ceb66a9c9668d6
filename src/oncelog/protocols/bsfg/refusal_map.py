"""What the core refuses, as Connect errors: one table, total over all refusals."""

from typing import Final

from oncelog.core import outcome as o
from oncelog.protocols.bsfg.connect import RpcError

CODES: Final[dict[type[o.Refusal], str]] = {
    o.NameInvalid: "invalid_argument",
    o.TopicMissing: "not_found",
    o.TopicExists: "failed_precondition",
    o.ContentTypeMismatch: "failed_precondition",
    o.StreamClosedRefusal: "failed_precondition",
    o.SequenceGap: "aborted",
    o.EpochNotAtZero: "failed_precondition",
    o.Fenced: "permission_denied",
    o.SequenceConflict: "already_exists",
    o.ClaimInvalid: "invalid_argument",
    o.IdConflict: "already_exists",
    o.ClaimConflict: "already_exists",
    o.PartlyDuplicate: "already_exists",
    o.TailMismatch: "aborted",
    o.OrderKeyNotRising: "aborted",
    o.ConditionFailed: "aborted",
    o.TooLarge: "invalid_argument",
    o.SubjectMismatch: "failed_precondition",
    o.SubjectsBehind: "unavailable",
    o.NatsNameTaken: "failed_precondition",
    o.EnvelopeInvalid: "invalid_argument",
    o.BatchRefused: "invalid_argument",
    o.NoRoom: "resource_exhausted",
    o.Overloaded: "unavailable",
    o.Damaged: "data_loss",
    o.Stopping: "unavailable",
    o.OffsetAhead: "out_of_range",
    o.OffsetGone: "out_of_range",
    o.EntryAhead: "out_of_range",
    o.NotACut: "failed_precondition",
    o.CursorPinned: "failed_precondition",
    o.ConsumerExists: "already_exists",
    o.StageMissing: "not_found",
    o.StageBusy: "unavailable",
    o.StageCountMismatch: "failed_precondition",
    o.ApplicationFenced: "permission_denied",
    o.ApplicationBatchRefused: "failed_precondition",
    o.TxnRefused: "failed_precondition",
    o.NotFound: "not_found",
    o.ShardMismatch: "failed_precondition",
}


INSIDE: Final = frozenset(("stream_id", "first_known_stream_id", "outcome"))
"""Numbers that mean nothing to a client."""


def error_of(refusal: o.Refusal, what: str = "") -> RpcError:
    """The error that a refusal is answered with; `what` says what was asked."""
    numbers = ", ".join(
        f"{name} {value!r}"
        for name in refusal.__struct_fields__
        if name not in INSIDE and (value := getattr(refusal, name)) not in (None, "") and not isinstance(value, bytes)
    )
    again = " Nothing was done; send the same request again." if refusal.retryable else ""
    text = f"{refusal.code}: {what or 'the log refused it'}"
    return RpcError(CODES[type(refusal)], f"{text} ({numbers}).{again}" if numbers else f"{text}.{again}")
