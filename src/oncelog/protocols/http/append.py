"""POST and PUT on a stream: records in, one command out, and its outcome as the dialect of the request tells it.

A body becomes records by its own content type: JSON arrays are one record per element, raw batches are taken as they
are, anything else is one record. That the stream holds this type is for core to say.
"""

from collections.abc import Sequence
from typing import Final

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import Append, CloseStream, Columns, CreateTopic
from oncelog.core.content_type import ANY, BATCHES, JSON, media_type
from oncelog.core.message_id import content_digest, values_digest
from oncelog.core.outcome import (
    Outcome,
    Refusal,
    TopicDone,
)
from oncelog.core.rows import TopicConfig
from oncelog.errors import BatchInvalid
from oncelog.protocols.http import answers
from oncelog.protocols.http.actions import Action, Done, Submit
from oncelog.protocols.http.append_command import append_of_values
from oncelog.protocols.http.claims import (
    Dialect,
    HeaderInvalid,
    claim_of,
    refuse_misspelt,
    refuse_unconditional,
    text_of,
)
from oncelog.protocols.http.json_body import JsonInvalid, TooManyElements, elements
from oncelog.protocols.http.offsets import spelled
from oncelog.protocols.http.refusal_map import problem_of
from oncelog.protocols.http.request import Body, Request
from oncelog.protocols.http.session import Session
from oncelog.protocols.http.target import digits
from oncelog.protocols.http.write_answers import ANSWERS, AppendAnswer, CloseAnswer

_NOT_BUILT: Final = (b"stream-forked-from", b"stream-ttl", b"stream-expires-at")

_NEED_CONTENT: Final = (b"if-match", b"stream-message-id", b"idempotency-key", b"stream-seq")

_TYPES: Final[dict[bytes, tuple[str, str]]] = {}
_TYPES_MAX: Final = 256


def content_type_of(headers: dict[bytes, bytes]) -> tuple[str, str]:
    """(as it was sent, media type); empty if absent. The few that are in use are looked up, not parsed again."""
    raw = headers.get(b"content-type")
    if raw is None:
        return "", ""
    known = _TYPES.get(raw)
    if known is None:
        if not all(32 <= byte < 127 for byte in raw):
            raise HeaderInvalid("Content-Type is printable ASCII")
        text = raw.decode()
        known = (text, media_type(text))
        if len(raw) <= limits.MEDIA_TYPE_CACHED_CHARS_MAX:
            if len(_TYPES) >= _TYPES_MAX:
                _TYPES.clear()
            _TYPES[raw] = known
    return known


def is_closing(headers: dict[bytes, bytes]) -> bool:
    """Only `true` counts, in any case; anything else is as if the header were absent."""
    value = headers.get(b"stream-closed")
    return value is not None and value.lower() == b"true"


# --- POST ----------------------------------------------------------------------------------------------------------


def post(request: Request, topic: str, partition: int, session: Session, *, strict: bool) -> Action:
    """Append, close, or both."""
    headers = request.headers
    refuse_misspelt(headers)
    refuse_unconditional(headers)
    body = request.body
    closes = b"stream-closed" in headers and is_closing(headers)
    if not body:
        if not closes:
            asked = headers.get(b"stream-closed", b"")[:40].decode("latin-1")
            detail = f"Stream-Closed must be true to close the stream, not {asked!r}; " if asked else ""
            detail += "an append has a body"
            return _bad("empty_body", detail, "to close the stream, send Stream-Closed: true")
        for name in _NEED_CONTENT:
            if name in headers:
                raise HeaderInvalid(f"{name.decode()} belongs to an append; a close without content takes none")
        claim, dialect = claim_of(headers, topic, partition, content_digest(b""), session, strict=strict)
        return Submit(CloseStream(topic, partition, claim), CloseAnswer(dialect))
    sent_type, kind = content_type_of(headers)
    if not sent_type:
        return _bad("content_type_missing", "an append has a Content-Type: that of the stream")
    values: Sequence[bytes] = ()
    if kind == BATCHES:
        batch, count = raw_batch(body)
        claim, dialect = claim_of(headers, topic, partition, b"", session, strict=strict)
        message_id, expected_tail, order_key = _conditions(headers)
        digest = b""
        if claim is not None or message_id:
            digest = values_digest(codec.decode_values(batch))
            claim = None if claim is None else claim.replaced(digest=digest)
        command: Append | Columns = Append(
            topic, partition, batch, count, digest, claim, message_id, expected_tail, order_key, close=closes
        )
    else:
        if kind == JSON:
            values = elements(body)
            if not values:
                return _bad("empty_array", "[] holds no record", "send at least one element")
            digest = values_digest(values)
        else:
            values = (bytes(body),)
            digest = content_digest(body)
        claim, dialect = claim_of(headers, topic, partition, digest, session, strict=strict)
        message_id, expected_tail, order_key = _conditions(headers)
        columns = append_of_values(topic, partition, values, digest, claim, message_id, sent_type)
        columns.close = closes
        if expected_tail >= 0:
            columns.expected_tails = (expected_tail,)
        if order_key:
            columns.order_keys = (order_key,)
        command = columns
    if expected_tail < 0 and (dialect != Dialect.X or claim is None or claim.session):
        return Submit(command, ANSWERS[dialect])
    answer = AppendAnswer(dialect)
    answer.etag = expected_tail >= 0
    if claim is not None and dialect == Dialect.X and not claim.session:
        answer.claim, answer.session, answer.topic, answer.partition = claim, session, topic, partition
    return Submit(command, answer)


def _conditions(headers: dict[bytes, bytes]) -> tuple[bytes, int, str]:
    """Message id, If-Match and Stream-Seq; empty, -1 and empty where one is absent."""
    message_id, expected_tail, order_key = b"", -1, ""
    one, other = headers.get(b"stream-message-id"), headers.get(b"idempotency-key")
    if one is not None or other is not None:
        if one is not None and other is not None and one != other:
            raise HeaderInvalid("Stream-Message-Id and Idempotency-Key are two names of one thing and differ")
        message_id = one or other or b""
        if not message_id or not _is_utf8(message_id):
            raise HeaderInvalid("a message id is UTF-8 text and not empty: receipts are asked for by it")
    match = headers.get(b"if-match")
    if match is not None:
        expected_tail = _expected_tail(match)
    if b"stream-seq" in headers:
        # Compared byte by byte: Latin-1 keeps that order.
        order_key = headers[b"stream-seq"].decode("latin-1")
        if not order_key:
            raise HeaderInvalid("Stream-Seq is not empty")
    return message_id, expected_tail, order_key


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _names_any(headers: dict[bytes, bytes], names: tuple[bytes, ...]) -> bool:
    return any(name in headers for name in names)


def _expected_tail(raw: bytes) -> int:
    text = raw.decode("latin-1")
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    tail = digits(text)
    if tail is None:
        raise HeaderInvalid(
            'If-Match is an offset, bare or quoted, as Stream-Next-Offset told it; "*" is not supported'
        )
    return tail


def raw_batch(body: Body) -> tuple[bytes, int]:
    """One record batch as its sender made it, and how many records: looked through, so that every reader can read it
    later."""
    batch = bytes(body)
    header = codec.skim(batch)
    if header.attributes & (codec.TRANSACTIONAL | codec.CONTROL):
        raise BatchInvalid("a batch that a client sends is neither transactional nor a marker", codec.ATTRIBUTES_AT)
    return batch, header.record_count


def _bad(code: str, detail: str, hint: str = "") -> Done:
    return Done(answers.problem(400, code, detail, hint=hint))


# --- PUT -----------------------------------------------------------------------------------------------------------


def put(request: Request, topic: str, now_ms: int) -> Action:
    """Create a stream, with its first content if there is a body."""
    headers = request.headers
    for name in _NOT_BUILT:
        if name in headers:
            detail = f"{name.decode().title()} is not supported by this server yet"
            return Done(answers.problem(501, "not_built", detail))
    if claim_of(headers, topic, 0, b"", Session(), strict=False)[0] is not None or _names_any(headers, _NEED_CONTENT):
        raise HeaderInvalid("a PUT makes a stream; claims and conditions belong to a POST")
    refuse_misspelt(headers)
    refuse_unconditional(headers)
    sent_type, kind = content_type_of(headers)
    sent_type = sent_type or ANY
    partitions = digits(text_of(headers, b"stream-partitions") or "1")
    if partitions is None:
        raise HeaderInvalid("Stream-Partitions is a whole number in digits")
    command = CreateTopic(topic, partitions, TopicConfig(sent_type), close=is_closing(headers))
    if request.body:
        values = elements(request.body) if kind == JSON else [bytes(request.body)]
        if values:
            command.batch, command.count = codec.encode_values(values, now_ms), len(values)
    location = request.target.decode("latin-1").partition("?")[0]
    if location.startswith("/"):  # else the target is in its absolute form
        location = f"http://{text_of(headers, b'host') or 'localhost'}{location}"

    def created(outcome: Outcome) -> bytes:
        if not isinstance(outcome, TopicDone):
            assert isinstance(outcome, Refusal), outcome
            return problem_of(outcome)
        told: dict[str, str | int] = {"Content-Type": sent_type, "Stream-Next-Offset": spelled(outcome.tail)}
        if outcome.changed:
            told["Location"] = location
        if outcome.closed:
            told["Stream-Closed"] = "true"
        return answers.empty(201 if outcome.changed else 200, answers.lines(told))

    return Submit(command, created)


MISTAKES: Final = (HeaderInvalid, JsonInvalid, BatchInvalid)
"""What a request may be refused with before it becomes a command; `mistake` tells it."""


def mistake(error: Exception) -> bytes:
    """The answer to a request that could not be read."""
    if isinstance(error, TooManyElements):
        detail = f"the body is an array of {error.count} elements, over the limit of {limits.BATCH_RECORDS_MAX}"
        numbers = {"limit": limits.BATCH_RECORDS_MAX, "received": error.count}
        return answers.problem(413, "too_many_records", detail, numbers=numbers)
    if isinstance(error, JsonInvalid):
        return answers.problem(400, "json_invalid", f"the body is not JSON: {error}")
    if isinstance(error, BatchInvalid):
        numbers = {"position": error.position}
        return answers.problem(400, "batch_invalid", f"the body is not a record batch: {error}", numbers=numbers)
    return answers.problem(400, "header_invalid", str(error))
