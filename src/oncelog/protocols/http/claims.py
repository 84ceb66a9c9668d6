"""Producer headers to a claim, in both dialects. Malformed ones are refused here; what a claim is worth, core says."""

from enum import IntEnum
from typing import Final

from oncelog import limits
from oncelog.core.flat import ProducerClaim
from oncelog.core.producer import NOT_TOLD, SequenceMode, waits_for_zero
from oncelog.protocols.http.session import Key, Session

SCOPE: Final = "http:"
X_SCOPE: Final = "x:"

_REQUESTS: Final = int(SequenceMode.REQUESTS)
_RISING: Final = int(SequenceMode.RISING)


NAMES_REMEMBERED_MAX: Final = 10_000
_names: Final[dict[bytes, str]] = {}


PRODUCER_HEADERS: Final = frozenset(
    (b"producer-id", b"producer-epoch", b"producer-seq", b"producer-mode", b"producer-session")
)
X_HEADERS: Final = frozenset(
    (b"x-producer-id", b"x-producer-seq", b"x-producer-session", b"x-producer-epoch", b"x-producer-mode")
)
"""The last of each belongs to the other dialect alone: whoever sends it means a claim that it would not get."""

_MEANT: Final = {
    b"stream-messageid": "Stream-Message-Id",
    b"x-stream-message-id": "Stream-Message-Id",
    b"x-message-id": "Stream-Message-Id",
    b"nats-msg-id": "Stream-Message-Id",
    b"message-id": "Stream-Message-Id",
    b"stream-message-key": "Stream-Message-Id",
    b"x-idempotency-key": "Idempotency-Key",
    b"idempotency-id": "Idempotency-Key",
    b"idempotencykey": "Idempotency-Key",
    b"stream-idempotency-key": "Idempotency-Key",
    b"idempotency_key": "Idempotency-Key",
    b"stream-sequence": "Stream-Seq",
    b"stream-producer-id": "Producer-Id",
    b"producer-name": "Producer-Id",
    b"producer-sequence": "Producer-Seq",
    b"x-producer-sequence": "X-Producer-Seq",
}
"""Names that are surely meant as a claim, and are none: ignored, the retry of such a write would be stored twice."""

OF_ONE_APPEND: Final = tuple(
    sorted(PRODUCER_HEADERS | X_HEADERS | {b"stream-message-id", b"stream-seq", b"if-match", b"stream-closed"})
)
"""Headers that say something of the one append that a request is."""

_NO_CONDITIONS: Final = frozenset((b"if-none-match", b"if-modified-since", b"if-unmodified-since"))
"""Conditions of HTTP that no write can have here: ignored, it would be done against its sender's word."""


class Dialect(IntEnum):
    """Whose headers a request carries, and so whose headers its answer gets."""

    PLAIN = 0
    PRODUCER = 1
    X = 2


class HeaderInvalid(Exception):
    """A header that cannot be read: names it and says what it may be."""


def text_of(headers: dict[bytes, bytes], name: bytes) -> str | None:
    """A header as text; None if it is absent."""
    raw = headers.get(name)
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise HeaderInvalid(f"{name.decode()} is UTF-8 text") from None


def _number(headers: dict[bytes, bytes], name: bytes) -> int:
    raw = headers.get(name, b"")
    if not raw.isdigit() or len(raw) > limits.HTTP_DIGITS_MAX:
        raise HeaderInvalid(f"{name.decode()} is a whole number in digits, not {raw[:40].decode('latin-1')!r}")
    return int(raw)


def _scoped(headers: dict[bytes, bytes]) -> str:
    """The name of a producer as core knows it. The same few come again and again."""
    raw = headers.get(b"producer-id", b"")
    name = _names.get(raw)
    if name is None:
        name = SCOPE + (text_of(headers, b"producer-id") or "")
        if len(_names) >= NAMES_REMEMBERED_MAX:
            _names.clear()
        if len(raw) <= limits.PRODUCER_NAME_BYTES_MAX:
            _names[raw] = name
    return name


def refuse_misspelt(headers: dict[bytes, bytes]) -> None:
    """Raises HeaderInvalid for a claim under a name that it does not have."""
    if not _MEANT.keys().isdisjoint(headers):
        name = next(name for name in headers if name in _MEANT)
        raise HeaderInvalid(f"{name.decode().title()} is no claim here: {_MEANT[name]} is")


def refuse_unconditional(headers: dict[bytes, bytes]) -> None:
    """Raises HeaderInvalid for a condition that no write can have."""
    for name in _NO_CONDITIONS.intersection(headers):
        raise HeaderInvalid(f"{name.decode().title()} is no condition of a write here: If-Match with an offset is")


def refuse_of_one_append(headers: dict[bytes, bytes], why: str) -> None:
    """Raises HeaderInvalid for a claim or a condition on a request that is no append: ignored, a delete would be done
    against its sender's word. Not for Idempotency-Key, which some clients send with everything: what is no append has
    the same effect again by itself."""
    refuse_misspelt(headers)
    refuse_unconditional(headers)
    for name in OF_ONE_APPEND:
        if name in headers:
            raise HeaderInvalid(f"{name.decode().title()} is for one append; {why}")


def claim_of(
    headers: dict[bytes, bytes], topic: str, partition: int, digest: bytes, session: Session, *, strict: bool
) -> tuple[ProducerClaim | None, Dialect]:
    """The claim of a request, and the dialect of its answer. Raises HeaderInvalid."""
    # Any of them: a header that was misspelled or left out must not turn a claim into a plain append.
    named = not PRODUCER_HEADERS.isdisjoint(headers)
    x_named = not X_HEADERS.isdisjoint(headers)
    if not named and not x_named:
        return None, Dialect.PLAIN
    if named and x_named:
        raise HeaderInvalid("Producer-… and X-Producer-… are two dialects: use one of them")
    if named:
        return _producer_claim(headers, digest), Dialect.PRODUCER
    return _x_claim(headers, topic, partition, digest, session, strict=strict), Dialect.X


def _producer_claim(headers: dict[bytes, bytes], digest: bytes) -> ProducerClaim:
    if not headers.get(b"producer-id") or b"producer-epoch" not in headers or b"producer-seq" not in headers:
        raise HeaderInvalid("Producer-Id, Producer-Epoch and Producer-Seq go together, and none is empty")
    if b"producer-session" in headers:
        raise HeaderInvalid("Producer-Session is not known here: a new run takes a higher Producer-Epoch")
    mode = _REQUESTS
    if b"producer-mode" in headers:
        if headers[b"producer-mode"] not in (b"requests", b"rising"):
            raise HeaderInvalid("Producer-Mode is requests or rising")
        mode = _RISING if headers[b"producer-mode"] == b"rising" else _REQUESTS
    epoch, sequence = _number(headers, b"producer-epoch"), _number(headers, b"producer-seq")
    return ProducerClaim(_scoped(headers), epoch, sequence, sequence, mode, digest)


def _x_claim(
    headers: dict[bytes, bytes], topic: str, partition: int, digest: bytes, session: Session, *, strict: bool
) -> ProducerClaim:
    name = text_of(headers, b"x-producer-id")
    if not name or b"x-producer-seq" not in headers:
        raise HeaderInvalid("X-Producer-Id and X-Producer-Seq go together, and neither is empty")
    if b"x-producer-mode" in headers:
        raise HeaderInvalid("X-Producer-Mode is not known here: this dialect counts requests")
    sequence = _number(headers, b"x-producer-seq")
    run = text_of(headers, b"x-producer-session")
    if run == "":
        raise HeaderInvalid("X-Producer-Session is empty: name the run, or leave it out")
    run = run or ""
    epoch = _number(headers, b"x-producer-epoch") if b"x-producer-epoch" in headers else NOT_TOLD
    key = (topic, partition, name)
    if run or epoch != NOT_TOLD:
        session.named(key, run)
    elif strict:
        raise HeaderInvalid("X-Producer-Session or X-Producer-Epoch is required here (x_producer_strict)")
    elif sequence == 0:
        session.forget(key)
    else:
        run = session.run_of(key)
        if not run:
            known = session.epoch_of(key)
            epoch = NOT_TOLD if known is None else known
    claim = ProducerClaim(X_SCOPE + name, epoch, sequence, sequence, _REQUESTS, digest, True, run)
    # Without a session a run may begin anywhere; its first sequences wait for a 0 before that is taken to be so.
    claim.start_any = not run and not waits_for_zero(claim)
    return claim


def key_of(claim: ProducerClaim, topic: str, partition: int) -> Key:
    """What a connection remembers an X- producer by."""
    return topic, partition, claim.name[len(X_SCOPE) :]
