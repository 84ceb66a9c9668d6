"""The calls about facts: AppendFact, FetchFacts, ConfirmReceipt, GetReceipt.

Each is a generator (`zone.Steps`): it asks for one thing after the other and never looks at a clock or a socket.
"""

from typing import Any, Final

from oncelog.core import batch as codec
from oncelog.core import facts
from oncelog.core.command import Columns, ConfirmCursor, GetCursor, GetStream, SetConsumer
from oncelog.core.command import GetReceipt as GetReceiptCommand
from oncelog.core.content_type import JSON
from oncelog.core.facts import Attachment, CheckedFact, Fact, FactInvalid
from oncelog.core.outcome import (
    Confirmed,
    CursorDone,
    IdConflict,
    NotFound,
    OffsetAhead,
    OffsetGone,
    ReceiptFound,
    Refusal,
    StreamDone,
    TopicMissing,
)
from oncelog.core.rows import Cursor
from oncelog.errors import BatchInvalid
from oncelog.limits import CURSOR_NAME_BYTES_MAX, KIB, MIB
from oncelog.protocols.bsfg import objects
from oncelog.protocols.bsfg.connect import RpcError
from oncelog.protocols.bsfg.messages import Message
from oncelog.protocols.bsfg.policy import Caller, may_append, may_consume, may_get
from oncelog.protocols.bsfg.refusal_map import error_of
from oncelog.protocols.bsfg.zone import CLOSED, CONSUMER_SCOPE, FACT_CONFIG, Find, Steps, Zone, appended

FETCH_LIMIT_MAX: Final = 1_000
"""Facts of one page. A page is also bounded in bytes; this bounds the work of encoding it."""
FETCH_LIMIT_DEFAULT: Final = 100
FETCH_BYTES_MAX: Final = 2 * MIB
"""Stored bytes of one page; one fact comes even if it is larger."""
FETCH_READ_BYTES: Final = 256 * KIB
"""What one look at the log reads; a page may take several."""
CONFIRM_SEQUENCES_MAX: Final = 10_000
"""Sequences of one ConfirmReceipt: ten full pages."""


def append_fact(zone: Zone, caller: Caller, request: Message) -> Steps:
    """Append a fact, once."""
    fact = fact_from(request)
    may_append(caller, fact.from_zone, fact.subject)
    try:
        record = facts.record_of(fact)
    except FactInvalid as invalid:
        raise RpcError("invalid_argument", str(invalid)) from None
    topic = zone.stream_for(fact.subject)
    if zone.is_full_because and not (yield from _is_known(topic, record.message_id)):
        text = f"{zone.is_full_because}. Nothing was written; send the fact again later."
        raise RpcError("resource_exhausted", text)
    if fact.attachments:
        yield from objects.attached(fact.attachments)
    command = Columns(
        topic,
        0,
        [record.value],
        [record.digest],
        message_ids=[record.message_id],
        content_type=JSON,
        keys=[record.key],
        headers=[record.headers],
        timestamps_ms=[record.timestamp_ms],
    )
    command.facts = [CheckedFact(record.message_id, record.digest)]
    outcome = yield from appended(zone, command, FACT_CONFIG)
    outcome = alone(outcome)
    if isinstance(outcome, IdConflict):
        raise _conflict(zone, fact, outcome)
    if not isinstance(outcome, Confirmed):
        raise error_of(outcome, f"the fact {fact.message_id!r} was not appended")
    answer: Message = {"stream": topic, "sequence": outcome.first + 1, "duplicate": outcome.duplicate}
    if outcome.duplicate:
        answer["stream"], _ = zone.name_of(outcome.stream_id)
        stored = None if outcome.gone else (yield from stored_fact(answer["stream"], outcome.first))
        answer["envelope_differences"] = [] if stored is None else facts.differences(stored, fact)
    return answer


def _is_known(topic: str, message_id: bytes) -> Any:
    """Steps that return whether an id was appended: a retry is answered also where nothing new is taken."""
    receipt = yield GetReceiptCommand(topic, 0, message_id)
    return isinstance(receipt, ReceiptFound)


def alone(outcome: Any) -> Any:
    """The outcome of the only value of a columns command: a duplicate and a refusal stand among the exceptions."""
    if isinstance(outcome, Confirmed) and outcome.exceptions:
        return next(iter(outcome.exceptions.values()))
    return outcome


def _conflict(zone: Zone, fact: Fact, conflict: IdConflict) -> RpcError:
    stream, _ = zone.name_of(conflict.stream_id)
    sequence = conflict.offset + 1
    detail = {
        "message_id": fact.message_id,
        "stream": stream,
        "sequence": sequence,
        "stored_digest": conflict.stored_digest.hex(),
        "received_digest": conflict.claimed_digest.hex(),
    }
    where = f"it is stored with other content as sequence {sequence:,} of {stream}"
    text = f"conflicting_duplicate: message_id {fact.message_id!r} is taken; {where}. Nothing was written."
    return RpcError("already_exists", text, detail=("ConflictDetail", detail))


def stored_fact(topic: str, offset: int) -> Any:
    """Steps that return the fact at an offset; None if there is none any more."""
    found = yield Find(topic, offset, 1)
    if isinstance(found, Refusal):
        return None
    for at, fact, _ in _facts_in(found, offset):
        return fact if at == offset else None
    return None


# --- consumers -----------------------------------------------------------------------------------------------------


def consumer_of(request: Message) -> str:
    """The scoped name of the consumer that a request names."""
    name: str = request.get("consumer_name", "")
    if not name:
        raise RpcError("invalid_argument", "consumer_name: it is missing; a consumer keeps its place under its name.")
    if len(name.encode()) > CURSOR_NAME_BYTES_MAX - len(CONSUMER_SCOPE) or not name.isprintable():
        most = CURSOR_NAME_BYTES_MAX - len(CONSUMER_SCOPE)
        raise RpcError("invalid_argument", f"consumer_name: it is printable text of at most {most} bytes.")
    return CONSUMER_SCOPE + name


def stream_of(request: Message) -> str:
    """The fact topic that a request names."""
    stream: str = request.get("stream", "") or facts.OPERATIONAL
    if stream not in facts.TOPICS:
        raise RpcError("invalid_argument", f"stream: {stream[:80]!r} is none of {', '.join(facts.TOPICS)}.")
    return stream


def fetch_facts(_zone: Zone, caller: Caller, request: Message) -> Steps:
    """A page of facts after what the consumer has confirmed. Facts that do not leave the zone for this caller are
    confirmed on the way: to its consumer they are as if they were not there."""
    consumer, topic = consumer_of(request), stream_of(request)
    may_consume(caller, request["consumer_name"], topic)
    limit = request.get("limit", 0) or FETCH_LIMIT_DEFAULT
    if limit > FETCH_LIMIT_MAX:
        raise RpcError("invalid_argument", f"limit: {limit:,}; the limit is {FETCH_LIMIT_MAX:,}. Fetch several pages.")
    cursor = yield from place_of(consumer, topic, caller.peer.start if caller.peer else "first")
    if cursor is None:
        return {"facts": []}
    if cursor.gate == CLOSED:
        name = consumer.removeprefix(CONSUMER_SCOPE)
        raise RpcError("failed_precondition", f"the gate of consumer {name!r} is closed. Open it: POST /bsfg/gate.")
    page, hidden = yield from _page(cursor, topic, limit, caller)
    if hidden:
        done = yield ConfirmCursor(consumer, topic, 0, _ranges(hidden), pinned=True)
        if isinstance(done, Refusal):
            raise error_of(done, "facts for others cannot be stepped over")
    return {"facts": page}


def _page(cursor: Cursor, topic: str, limit: int, caller: Caller) -> Any:
    """Steps that return (facts of one page, sequences before its end that the caller does not get)."""
    page: list[Message] = []
    hidden: list[int] = []
    size = 0
    offset = _unconfirmed(cursor.frontier, cursor.confirmed)
    while True:
        found = yield Find(topic, offset, FETCH_READ_BYTES)
        if isinstance(found, OffsetAhead | OffsetGone):
            return page, hidden  # deleted and made again, or trimmed, since: the next call begins anew
        if isinstance(found, Refusal):
            raise error_of(found, f"facts of {topic} cannot be read")
        for at, fact, bytes_ in _facts_in(found, offset):
            if at != _unconfirmed(at, cursor.confirmed):
                continue
            if not may_get(caller, fact.subject):
                hidden.append(at + 1)
                continue
            if page and size + bytes_ > FETCH_BYTES_MAX:
                return page, hidden
            page.append({"sequence": at + 1, **message_of(fact)})
            size += bytes_
            if len(page) == limit:
                return page, hidden
        offset = _unconfirmed(max(offset, found.next_offset), cursor.confirmed)
        if offset >= found.stable or len(hidden) >= CONFIRM_SEQUENCES_MAX:
            return page, hidden


def place_of(consumer: str, topic: str, start: str) -> Any:
    """Steps that return where a consumer stands; it is made, and holds back truncation, when it is first asked for.
    None if the topic has no fact yet."""
    done = yield GetCursor(consumer, topic, 0)
    if isinstance(done, CursorDone) and done.cursor is None:
        first = 0
        if start == "next" and isinstance(stream := (yield GetStream(topic, 0)), StreamDone):
            first = stream.stable
        done = yield SetConsumer(consumer, topic, 0, pinned=True, start=first, how="create")
    if isinstance(done, TopicMissing):
        return None
    if not isinstance(done, CursorDone):
        raise error_of(done, "the consumer's place cannot be read")
    return done.cursor


def _unconfirmed(offset: int, confirmed: list[int]) -> int:
    """The first offset from `offset` on that lies in no confirmed range."""
    for at in range(0, len(confirmed), 2):
        if confirmed[at] <= offset < confirmed[at + 1]:
            return confirmed[at + 1]
    return offset


def _facts_in(found: Any, first: int) -> Any:
    """(offset, fact, stored bytes) of every record from `first` on."""
    for base_offset, batch in found.batches:
        try:
            offsets, _, keys, values, headers = codec.decode_columns(batch, base_offset=base_offset)
        except BatchInvalid as error:
            raise RpcError("data_loss", f"the batch at sequence {base_offset + 1} cannot be decoded: {error}") from None
        for at, key, value, of_record in zip(offsets, keys, values, headers, strict=True):
            if at < first:
                continue
            try:
                fact = facts.fact_of(key, value, of_record)
            except FactInvalid as error:
                raise RpcError("data_loss", f"the record at sequence {at + 1} is not a fact: {error}") from None
            yield at, fact, len(value or b"") + sum(len(content or b"") for _, content in of_record)


def confirm_receipt(_zone: Zone, caller: Caller, request: Message) -> Steps:
    """Confirm sequences, each alone; the frontier moves over the contiguous part."""
    consumer, topic = consumer_of(request), stream_of(request)
    may_consume(caller, request["consumer_name"], topic)
    sequences: list[int] = [request["sequence"]] if request.get("sequence") else []
    sequences += request.get("sequences", ())
    if not sequences or not min(sequences):
        raise RpcError("invalid_argument", "sequence: it is missing; sequences begin at 1.")
    if len(sequences) > CONFIRM_SEQUENCES_MAX:
        limit = f"the limit is {CONFIRM_SEQUENCES_MAX:,}"
        raise RpcError("invalid_argument", f"sequences: {len(sequences):,} of them; {limit}. Send several calls.")
    done = yield ConfirmCursor(consumer, topic, 0, _ranges(sequences), pinned=True)
    if isinstance(done, OffsetAhead):
        last = f"the last one of {topic} is {done.limit:,}"
        raise RpcError("out_of_range", f"sequence {max(sequences):,} was never appended; {last}. Nothing is confirmed.")
    if not isinstance(done, CursorDone):
        raise error_of(done, "nothing is confirmed")
    assert done.cursor is not None
    return {"frontier": done.cursor.frontier}


def _ranges(sequences: list[int]) -> list[int]:
    """Flat half-open ranges of offsets, neighbours joined."""
    ranges: list[int] = []
    for sequence in sorted(set(sequences)):
        if ranges and ranges[-1] == sequence - 1:
            ranges[-1] = sequence
        else:
            ranges += (sequence - 1, sequence)
    return ranges


def get_receipt(zone: Zone, _caller: Caller, request: Message) -> Steps:
    """What became of a message id."""
    message_id: str = request.get("message_id", "")
    if not message_id:
        raise RpcError("invalid_argument", "message_id: it is missing.")
    found: Any = NotFound("message id")
    for topic in facts.TOPICS:  # ids are of the zone: any of its topics that is there knows them all
        found = yield GetReceiptCommand(topic, 0, message_id.encode())
        if not isinstance(found, TopicMissing):
            break
    if isinstance(found, NotFound | TopicMissing):
        raise RpcError("not_found", f"message_id {message_id!r} was never appended in zone {zone.name}.")
    if not isinstance(found, ReceiptFound):
        raise error_of(found, "the receipt cannot be read")
    stream, _ = zone.name_of(found.stream_id)
    sha256 = ""
    if not found.gone and (stored := (yield from stored_fact(stream, found.first))) is not None:
        sha256 = facts.sha256_of(stored)
    return {
        "stream": stream,
        "sequence": found.first + 1,
        "content_sha256": sha256,
        "digest": found.digest.hex(),
        "appended_at_unix_ms": found.time_ms,
        "removed": found.gone,
    }


# --- messages ------------------------------------------------------------------------------------------------------


def fact_from(request: Message) -> Fact:
    """The fact that a request holds; fields that were not sent are empty."""
    envelope: Message = request.get("envelope") or {}
    fact: Message = request.get("fact") or {}
    attachments = [
        Attachment(
            each.get("bucket", ""),
            each.get("key", ""),
            each.get("digest", ""),
            each.get("size", 0),
            each.get("media_type", ""),
            each.get("file_name", ""),
        )
        for each in request.get("attachments", ())
    ]
    return Fact(
        envelope.get("message_id", ""),
        envelope.get("from_zone", ""),
        envelope.get("to_zone", ""),
        envelope.get("produced_at_unix_ms", 0),
        fact.get("subject", ""),
        fact.get("predicate", ""),
        fact.get("object_json", ""),
        envelope.get("correlation_id", ""),
        envelope.get("causation_id", ""),
        envelope.get("labels", {}),
        envelope.get("object_media_type", ""),
        envelope.get("object_schema", ""),
        tuple(attachments),
    )


_ENVELOPE: Final = (
    "message_id", "from_zone", "to_zone", "produced_at_unix_ms", "correlation_id", "causation_id", "labels",
    "object_media_type", "object_schema",
)  # fmt: skip


def message_of(fact: Fact) -> Message:
    """Envelope, fact and attachments as messages."""
    message: Message = {
        "envelope": {name: value for name in _ENVELOPE if (value := getattr(fact, name))},
        "fact": {"subject": fact.subject, "predicate": fact.predicate, "object_json": fact.object_json},
    }
    if fact.attachments:
        message["attachments"] = [
            {name: value for name in each.__struct_fields__ if (value := getattr(each, name))}
            for each in fact.attachments
        ]
    return message
