"""Every code that a BSFG call can be answered with, with its meaning and what to do about it."""

from collections.abc import Iterator
from typing import Final

from oncelog.protocols.bsfg.connect import STATUS
from oncelog.protocols.explained import Explained

_ROWS: Final = (
    (
        "invalid_argument",
        "A field is missing, out of range or not what the contract says; the message names it.",
        "Correct the request. Nothing was written.",
    ),
    (
        "already_exists",
        "conflicting_duplicate: the message_id, or the key of the object, is taken by other content.",
        "Compare the digests in the details. Derive ids from the business event; store other content under another id.",
    ),
    (
        "not_found",
        "There is no fact of this message_id, or no object of this name.",
        "Check the name. After a cut, append or store it again: a retry is never stored twice.",
    ),
    (
        "out_of_range",
        "The sequence was never appended.",
        "Confirm sequences that FetchFacts gave. A consumer of one zone cannot confirm at another.",
    ),
    (
        "failed_precondition",
        "An attachment is not there as the fact describes it, the gate is closed, or the topic takes no facts.",
        "Store the object first, or open the gate (oncelog forward gate open).",
    ),
    (
        "permission_denied",
        "The peer may not do this: another zone than its token names, another subject, stream or consumer.",
        "Check the [[peer]] tables of the server. The refusal is in its audit stream.",
    ),
    (
        "unauthenticated",
        "The server has peers configured, and the call has no bearer token of one of them.",
        "Send Authorization: Bearer with the content of the peer's token file.",
    ),
    (
        "resource_exhausted",
        "The unconfirmed bytes of a consumer are above 80 % of their bound, or the disk is full. Nothing was written.",
        "Send it again later. Look why the consumer does not confirm (oncelog forward status).",
    ),
    (
        "unavailable",
        "The server stops, or has too much to write at the moment. Nothing was written.",
        "Send it again.",
    ),
    (
        "deadline_exceeded",
        "Connect-Timeout-Ms has passed. The call may still be carried out.",
        "Send it again as it is: the same message_id gets the first sequence.",
    ),
    (
        "unimplemented",
        "There is no such method, or the encoding of the body is unknown.",
        "The methods are in /bsfg/boundary.proto. Send the body as it is, or with gzip or zstd.",
    ),
    (
        "data_loss",
        "Bytes on disk are not what was written.",
        "Run oncelog verify, and take the content from another zone.",
    ),
    (
        "aborted",
        "Something changed at the same moment.",
        "Send it again.",
    ),
)


def explained() -> Iterator[Explained]:
    """All of them, by code."""
    for code, meaning, what_to_do in sorted(_ROWS):
        yield Explained("bsfg", code, str(STATUS[code]), meaning, what_to_do)
