"""Every refusal of the core as an HTTP answer: status, words, hint. One total map; a test asks for every refusal.

The numbers of a refusal become members of the problem, so that a program need not read the words. Stream ids stay
inside: a client knows names.
"""

from typing import Final, NamedTuple

from oncelog.core import outcome as o
from oncelog.core.producer import NOT_TOLD
from oncelog.protocols.http import answers

RETRY_AFTER: Final = b"Retry-After: 1\r\n"


class Rule(NamedTuple):
    """How a refusal is told: what is so, and what to do about it. Both may name the refusal's fields."""

    status: int
    detail: str
    hint: str
    code: str = ""
    """If it is another one than the refusal's own."""


RULES: Final[dict[type[o.Refusal], Rule]] = {
    o.NameInvalid: Rule(
        400, "the name {name!r} cannot be used: {reason}", "choose another one; the reason says what is allowed"
    ),
    o.TopicMissing: Rule(
        404,
        "there is no partition {partition} of {topic!r}",
        "PATCH /v1/topics/<topic> with more partitions lets a topic grow; GET tells how many it has",
    ),
    o.TopicExists: Rule(409, "{topic!r} is there already, and {reason}", "GET /v1/topics/<topic> shows its settings"),
    o.ContentTypeMismatch: Rule(409, "the stream holds {expected}, not {received}", "send the stream's Content-Type"),
    o.StreamClosedRefusal: Rule(
        409, "the stream is closed; its end is {tail}", "read what it holds; new records need a stream of another name"
    ),
    o.SequenceGap: Rule(
        409, "sequence {received} came, {expected} is next", "send the missing requests first, in their order"
    ),
    o.EpochNotAtZero: Rule(
        400,
        "a new epoch begins with sequence {expected}, and {received} came",
        "begin with {expected}, or go on in the epoch before: GET /v1/producers/<topic>/<name>, of commits "
        "/v1/commit/producers/<name>, tells where it stands",
    ),
    o.Fenced: Rule(403, "epoch {current} of this producer exists", "another run has taken over: stop this one"),
    o.SequenceConflict: Rule(
        409,
        "sequence {sequence} was used for other content",
        "a retry must send the same bytes; new content, a new number",
    ),
    o.ClaimInvalid: Rule(
        400,
        "this cannot be accepted: {reason}",
        "change what the reason names; sent again as it is, it is refused again",
    ),
    o.IdConflict: Rule(
        409, "the message id was used for other content, stored at {offset}", "a new message needs a new id"
    ),
    o.ClaimConflict: Rule(409, "{claim_id!r} was used for other content", "another commit needs another id"),
    o.PartlyDuplicate: Rule(
        409,
        "{known} of the appends are stored already under their message ids and {new} are not known",
        "nothing was written now: ask for the receipts of the ids, then send what is missing alone",
    ),
    o.TailMismatch: Rule(
        412, "the stream ends at {tail}, not at {expected}", "read on from the expected offset, then try again"
    ),
    o.OrderKeyNotRising: Rule(
        409,
        "Stream-Seq {received!r} does not come after {last!r}",
        "send one that sorts behind the last, byte by byte; nothing was written",
    ),
    o.ConditionFailed: Rule(
        409,
        "condition {number} ({condition}) expected {expected}, there is {actual}",
        "nothing was written: look at what is there, then commit again with what you found",
    ),
    o.TooLarge: Rule(
        413,
        "{what}: {received} is over the limit of {limit}",
        "stay within {limit}; docs/limits.md says why it is there",
    ),
    o.SubjectMismatch: Rule(
        412, "the last record of {subject!r} is at {last}, not at {expected}", "read it, then decide"
    ),
    o.SubjectsBehind: Rule(503, "subjects are indexed up to {subjects_next}, the tail is {tail}", "try again"),
    o.NatsNameTaken: Rule(
        409, "the JetStream name {nats_name!r} of {topic!r} is that of {by!r}", "choose another name, or a nats_name"
    ),
    o.EnvelopeInvalid: Rule(409, "the record is no fact: {reason}", "docs/protocols/bsfg.md says what a fact is"),
    o.BatchRefused: Rule(
        400, "the records cannot be stored: {reason}", "correct them and send them all again; none of them was stored"
    ),
    o.NoRoom: Rule(
        507,
        "the disk has no room for {needed_bytes} bytes",
        "free room for a whole segment (storage.segment_bytes); nothing was done, reads go on",
    ),
    o.Overloaded: Rule(
        503,
        "requests of {waiting_bytes} bytes wait; the limit is {limit}",
        "try again in a moment",
    ),
    o.Damaged: Rule(
        500, "{what}, in {file} at byte {position}", "stop the server and run oncelog verify on its directory"
    ),
    o.Stopping: Rule(503, "the server stops", "try again when it is back; nothing was done"),
    o.OffsetAhead: Rule(
        400,
        "offset {offset} is beyond the end, which is {limit}",
        "name one from 0 to {limit}, where it ends now",
    ),
    o.OffsetGone: Rule(410, "offset {offset} was removed; the stream begins at {floor}", "read on from Stream-Floor"),
    o.EntryAhead: Rule(
        400,
        "entry {entry} is not there yet; the last one is {last}",
        "name one that GET /v1/cut told, {last} at most for now",
    ),
    o.NotACut: Rule(
        409, "entry {entry} became visible together with others", "ask for entry {before} or {after}, or take a cut"
    ),
    o.ConsumerExists: Rule(409, "consumer {name!r} has another configuration", "choose another name"),
    o.CursorPinned: Rule(409, "cursor {cursor!r} is pinned at {frontier}, below {asked}", "use force to trim past it"),
    o.StageMissing: Rule(
        404,
        "stage {stage_id} is unknown, published or expired",
        "GET /v1/applications/<name> tells which batch was published last; else open another stage and fill it again",
    ),
    o.StageBusy: Rule(503, "stage {stage_id} was written to meanwhile", "publish again when all of it is staged"),
    o.StageCountMismatch: Rule(
        409,
        "stage {stage_id} holds {actual} records, not {expected}",
        "go on at {actual} if all of them are yours; else drop it and fill another one",
    ),
    o.ApplicationFenced: Rule(
        403, "driver {current} of {application!r} exists", "a newer driver has taken over: stop this one"
    ),
    o.ApplicationBatchRefused: Rule(
        409,
        "{application!r}: batch {received_batch} came, {expected_batch} is next: {reason}",
        "publish batch {expected_batch} of query {query!r}; accept_new_query begins another query on purpose",
    ),
    o.TxnRefused: Rule(
        409,
        "the transaction cannot do this: {reason}",
        "end it and begin another; the reason is what its state forbids",
    ),
    o.NotFound: Rule(404, "no such {what}", "names are exact"),
    o.ShardMismatch: Rule(
        409, "the streams lie in shards {first_shard} and {other_shard}", "write to the streams of one shard at a time"
    ),
}

TXN_FENCED: Final = Rule(
    403,
    "a newer holder of this transactional id exists: epoch {epoch}",
    "another run has taken over, or the transaction timed out: begin again, or stop this run",
    code="txn_fenced",
)
TXN_CONCURRENT: Final = Rule(
    409,
    "the transaction of the holder before was ended just now",
    "send the same request again",
    code="txn_concurrent",
)
TXN_UNKNOWN: Final = Rule(
    404,
    "no transaction of this id and producer id is known",
    "begin answers the producer id and the epoch that every other call carries",
    code="txn_unknown",
)

NO_TOPIC: Final = Rule(
    404, "there is no stream {topic!r}", "create it first: PUT the stream's URL, or stream(…).create() in Python"
)
"""Of a missing partition 0: every topic has one, so there is no topic."""

NO_PRODUCER: Final = RULES[o.NotFound]._replace(
    hint="names are exact, and a producer is looked for in one scope: http, x, kafka or commit"
)

ID_CONFLICT_OF_MANY: Final = RULES[o.IdConflict]._replace(
    detail="the message id {message_id!r} of {topic!r} partition {partition} was used for other content, stored at "
    "{offset}"
)

BELOW: Final = Rule(
    400,
    "{what}: {received} is too small; the least is {least}, the most {limit}",
    "send {least} or more",
    code="too_small",
)
"""Of a bound that has two ends, the lower one."""

IS_CLOSED: Final = RULES[o.TopicExists]._replace(
    hint="the stream is closed and takes no more records; HEAD tells where it ends. For new ones use another name"
)
IS_OPEN: Final = RULES[o.TopicExists]._replace(
    hint="the stream is open: a PUT without Stream-Closed agrees with it, a POST with Stream-Closed: true closes it"
)

SOMEWHERE: Final = RULES[o.Damaged]._replace(detail="{what}")
"""Of damage that has no byte of its own: between files."""
IN_FILE: Final = RULES[o.Damaged]._replace(detail="{what}, in {file}")
"""Of damage in the index, whose rows move about."""
BEFORE_MORE: Final = RULES[o.Damaged]._replace(
    hint="what lies behind it can be read, from offset {next} on; stop the server and run oncelog verify on its "
    "directory"
)
"""Of a batch: its stream goes on."""

EPOCH_UNKNOWN: Final = RULES[o.ClaimInvalid]._replace(
    hint="the stream was deleted and made again, or another server answers: look what is there, then begin a new run, "
    "without an epoch"
)
"""Of an epoch that the server did not give out: whoever has it got it from somebody."""

BELOW_ZERO: Final = RULES[o.OffsetAhead]._replace(detail="{offset} is no offset: they count from 0")

_INSIDE: Final = frozenset(("stream_id", "first_known_stream_id", "outcome"))

_WHICH: Final = {"append_number": "; it is append {} of the commit", "cursor_number": "; it is cursor {} of the commit"}
"""Counted from 0, as the members are that say the same."""

_UNKNOWN: Final[dict[type[o.Refusal], dict[str, object]]] = {
    o.Damaged: {"file": "", "position": -1, "next": -1},
    o.Fenced: {"claimed": NOT_TOLD},
    o.TxnRefused: {"producer_id": -1, "epoch": -1},
}
"""What some fields hold where there is nothing to tell: damage between files or without a byte of its own, a claim that
named no epoch, a transaction that nobody knows. It stays inside, as None does. Any other -1 is what a client sent."""


def _rule_of(refusal: o.Refusal) -> Rule:
    """The rule of its kind, or of the case within it that asks for other words."""
    match refusal:
        case o.TooLarge(least=int(least), received=received) if received < least:
            return BELOW
        case o.IdConflict(message_id=str()):
            return ID_CONFLICT_OF_MANY
        case o.TopicMissing(partition=0):
            return NO_TOPIC
        case o.TopicExists(reason=o.TopicExists.CLOSED):
            return IS_CLOSED
        case o.TopicExists(reason=o.TopicExists.OPEN):
            return IS_OPEN
        case o.Damaged(file=""):
            return SOMEWHERE
        case o.Damaged(position=-1):
            return IN_FILE
        case o.Damaged(next=int(next_)) if next_ >= 0:
            return BEFORE_MORE
        case o.ClaimInvalid(reason=o.ClaimInvalid.EPOCH_NOT_GIVEN):
            return EPOCH_UNKNOWN
        case o.OffsetAhead(offset=int(offset)) if offset < 0:
            return BELOW_ZERO
        case o.TxnRefused(reason="FENCED"):
            return TXN_FENCED
        case o.TxnRefused(reason="CONCURRENT"):
            return TXN_CONCURRENT
        case o.TxnRefused(reason="MAPPING"):
            return TXN_UNKNOWN
        case o.NotFound(what="producer"):
            return NO_PRODUCER
    return RULES[type(refusal)]


def _told(refusal: o.Refusal) -> dict[str, object]:
    """Its fields, as far as they are known and mean something to a client."""
    unknown = _UNKNOWN.get(type(refusal), {})
    return {
        name: value.hex() if isinstance(value, bytes) else value
        for name in refusal.__struct_fields__
        if name not in _INSIDE and (value := getattr(refusal, name)) is not None and value != unknown.get(name)
    }


def problem_of(refusal: o.Refusal, headers: bytes = b"") -> bytes:
    """The answer to a refused command."""
    rule = _rule_of(refusal)
    fields = _told(refusal)
    which = "".join(_WHICH[name].format(fields[name]) for name in _WHICH if name in fields)
    if refusal.retryable:
        headers += RETRY_AFTER
    return answers.problem(
        rule.status,
        rule.code or refusal.code,
        rule.detail.format(**fields) + which,
        hint=rule.hint.format(**fields),
        retryable=refusal.retryable,
        numbers=fields,
        headers=headers,
    )
