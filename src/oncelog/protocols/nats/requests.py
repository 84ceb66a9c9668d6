"""A pull request's body, and what a client says about a delivery: acks of every kind."""

from typing import Any, Final, NamedTuple

import msgspec

ACK_PREFIX: Final = "$JS.ACK."
WAITS_MAX: Final = 10**18


class Pull(msgspec.Struct, kw_only=True):
    """`$JS.API.CONSUMER.MSG.NEXT`."""

    batch: int = 0
    expires: int = 0
    no_wait: bool = False
    max_bytes: int = 0
    idle_heartbeat: int = 0
    group: str = ""
    id: str = ""
    min_pending: int = 0
    min_ack_pending: int = 0
    priority: int = 0


def pull_of(body: bytes) -> Pull | str:
    """The request, or what is wrong with it. An empty body asks for one message; a number for so many."""
    if not body:
        return Pull(batch=1)
    if body[:1] == b"{":
        try:
            pull = msgspec.json.decode(body, type=Pull)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return str(error)
        if pull.batch <= 0:
            pull.batch = 1
        if pull.idle_heartbeat and not pull.expires:
            return "heartbeat requires expires"
        if 0 < pull.expires < pull.idle_heartbeat * 2:
            return "heartbeat value too large"
        if not 0 <= pull.expires < WAITS_MAX or pull.idle_heartbeat < 0:
            return "expires and idle_heartbeat are nanoseconds"
        return pull
    text = body.strip()
    if text.isdigit() and len(text) < 10:
        return Pull(batch=max(1, int(text)))
    return "the body is neither JSON nor a number"


class Ack(NamedTuple):
    """What a client says about one delivery."""

    kind: str
    """`ack`, `nak`, `progress`, `term` or `next`."""
    delay_ns: int = 0
    pull: Pull | None = None


class AckPlace(NamedTuple):
    """Which delivery an ack is about."""

    stream: str
    consumer: str
    sequence: int


def ack_place(subject: str) -> AckPlace | None:
    """`$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>`, or the longer form
    with domain and account before the stream."""
    tokens = subject.split(".")
    if len(tokens) >= 11:
        tokens = tokens[:2] + tokens[4:]
    if len(tokens) < 9:
        return None
    sequence = tokens[5]
    if not (sequence.isascii() and sequence.isdigit() and len(sequence) < 20):
        return None
    return AckPlace(tokens[2], tokens[3], int(sequence))


def ack_of(body: bytes) -> Ack | None:
    """None for a body that means nothing."""
    if not body or body.startswith(b"+ACK"):
        return Ack("ack")
    if body.startswith(b"-NAK"):
        return Ack("nak", _delay(body[4:].strip()))
    if body.startswith(b"+WPI"):
        return Ack("progress")
    if body.startswith(b"+TERM"):
        return Ack("term")
    if body.startswith(b"+NXT"):
        pull = pull_of(body[4:].strip())
        return Ack("next", 0, Pull(batch=1) if isinstance(pull, str) else pull)
    return None


def _delay(body: bytes) -> int:
    if not body:
        return 0
    try:
        fields: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    delay = fields.get("delay") if isinstance(fields, dict) else None
    return int(min(delay, WAITS_MAX)) if isinstance(delay, int | float) and delay > 0 else 0
