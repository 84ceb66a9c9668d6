"""Publishing: what the headers of a message ask for, and the acknowledgement that answers it."""

from typing import Any, Final, NamedTuple

import msgspec

from oncelog.protocols.nats import errors
from oncelog.protocols.nats import headers as header_blocks
from oncelog.protocols.nats.batch import REQUIRED_LEVEL, level_suffices
from oncelog.protocols.nats.errors import ApiError
from oncelog.protocols.nats.headers import Headers

MESSAGE_ID: Final = "Nats-Msg-Id"
EXPECTED_STREAM: Final = "Nats-Expected-Stream"
EXPECTED_LAST_SEQUENCE: Final = "Nats-Expected-Last-Sequence"
EXPECTED_LAST_MSG_ID: Final = "Nats-Expected-Last-Msg-Id"
EXPECTED_SUBJECT_SEQUENCE: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
ROLLUP: Final = "Nats-Rollup"
TTL: Final = "Nats-TTL"


class Wishes(NamedTuple):
    """What a message asks for beside being stored."""

    message_id: bytes = b""
    expected_stream: str | None = None
    last_sequence: int | None = None
    last_msg_id: str | None = None
    subject_sequence: int | None = None
    subject: str | None = None
    """Whose last sequence is expected, if not the message's own."""
    rollup: str = ""
    """`sub` or `all`."""
    ttl_ns: int = 0
    """-1 = never."""

    @property
    def is_guarded(self) -> bool:
        """Whether the stream's state decides about it."""
        return not (self.last_sequence is None and self.subject_sequence is None and self.last_msg_id is None)


PLAIN: Final = Wishes()


def wishes_of(headers: Headers, *, allows_ttl: bool) -> Wishes | ApiError:
    """The wishes of a message, or what is wrong with them whatever the stream holds."""
    if not any(name[:5].lower() == "nats-" for name, _ in headers):
        return PLAIN
    fields = {name.lower(): value for name, value in reversed(headers)}
    if REQUIRED_LEVEL.lower() in fields and not level_suffices(headers):
        return errors.API_LEVEL
    ttl = fields.get(TTL.lower())
    ttl_ns = 0
    if ttl is not None:
        if not allows_ttl:
            return errors.TTL_DISABLED
        parsed = ttl_of(ttl)
        if parsed is None:
            return errors.TTL_INVALID
        ttl_ns = parsed
    sequences: list[int | None] = []
    for name in (EXPECTED_LAST_SEQUENCE, EXPECTED_SUBJECT_SEQUENCE):
        text = fields.get(name.lower())
        sequences.append(_number(text) if text is not None else None)
    subject = fields.get(EXPECTED_SUBJECT.lower())
    if subject is not None and sequences[1] is None:
        return errors.SUBJECT_SEQUENCE_MISSING
    return Wishes(
        fields.get(MESSAGE_ID.lower(), "").encode(),
        fields.get(EXPECTED_STREAM.lower()),
        sequences[0],
        fields.get(EXPECTED_LAST_MSG_ID.lower()) or None,
        sequences[1],
        subject,
        fields.get(ROLLUP.lower(), ""),
        ttl_ns,
    )


def _number(text: str) -> int:
    """A sequence; -1, which no stream has, if it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1


def ttl_of(text: str) -> int | None:
    """Nanoseconds; -1 for `never`; None if it is no time to live of at least a second."""
    if text == "never":
        return -1
    if text.isascii() and text.isdigit() and len(text) < 10:
        seconds = float(text)
    else:
        parsed = _duration(text)
        if parsed is None:
            return None
        seconds = parsed
    if seconds == 0:
        return 0
    return int(seconds * 1e9) if seconds >= 1 else None


_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def _duration(text: str) -> float | None:
    """Go's notation, as in `1h30m`."""
    total, at = 0.0, 0
    while at < len(text):
        end = at
        while end < len(text) and (text[end].isdigit() or text[end] == "."):
            end += 1
        unit = end
        while unit < len(text) and text[unit].isalpha():
            unit += 1
        scale = _UNITS.get(text[end:unit])
        try:
            number = float(text[at:end])
        except ValueError:
            return None
        if scale is None:
            return None
        total += number * scale
        at = unit
    return total if text else None


def ack(stream: str, sequence: int, *, duplicate: bool = False, batch: str = "", count: int = 0) -> bytes:
    """A PubAck."""
    if not duplicate and not batch:
        return b'{"stream":"%b","seq":%d}' % (stream.encode(), sequence)
    fields: dict[str, Any] = {"stream": stream, "seq": sequence}
    if duplicate:
        fields["duplicate"] = True
    if batch:
        fields["batch"], fields["count"] = batch, count
    # Some clients look for the text `"duplicate": true` with its blank, as the real server writes it.
    return msgspec.json.encode(fields).replace(b'"duplicate":true', b'"duplicate": true')


def refusal(stream: str, error: ApiError) -> bytes:
    """An error in place of a PubAck."""
    return msgspec.json.encode({"error": error.fields(), "stream": stream, "seq": 0})


def batch_wish_refused(headers: Headers, *, refuses_ids: bool) -> ApiError | None:
    """Headers that no member of an atomic batch may carry."""
    if header_blocks.first(headers, EXPECTED_LAST_MSG_ID):
        return errors.BATCH_HEADER_UNSUPPORTED
    if refuses_ids and header_blocks.first(headers, MESSAGE_ID):
        return errors.BATCH_HEADER_UNSUPPORTED
    return None
