"""Producer headers to a claim, in both dialects. Malformed ones are refused here; what a claim is worth, core says."""

from enum import IntEnum
from typing import Final

from oncelog.core.producer import NOT_TOLD, ProducerClaim, SequenceMode
from oncelog.protocols.http.session import Key, Session
from oncelog.protocols.http.target import digits

SCOPE: Final = "http:"
X_SCOPE: Final = "x:"

_REQUESTS: Final = int(SequenceMode.REQUESTS)
_RISING: Final = int(SequenceMode.RISING)


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
    text = text_of(headers, name)
    number = None if text is None else digits(text)
    if number is None:
        raise HeaderInvalid(f"{name.decode()} is a whole number in digits, not {(text or '')[:40]!r}")
    return number


def claim_of(
    headers: dict[bytes, bytes], topic: str, partition: int, digest: bytes, session: Session, *, strict: bool
) -> tuple[ProducerClaim | None, Dialect]:
    """The claim of a request, and the dialect of its answer. Raises HeaderInvalid."""
    named = b"producer-id" in headers or b"producer-epoch" in headers or b"producer-seq" in headers
    x_named = b"x-producer-id" in headers or b"x-producer-seq" in headers
    if not named and not x_named:
        return None, Dialect.PLAIN
    if named and x_named:
        raise HeaderInvalid("Producer-… and X-Producer-… are two dialects: use one of them")
    if named:
        return _producer_claim(headers, digest), Dialect.PRODUCER
    return _x_claim(headers, topic, partition, digest, session, strict=strict), Dialect.X


def _producer_claim(headers: dict[bytes, bytes], digest: bytes) -> ProducerClaim:
    name = text_of(headers, b"producer-id")
    if not name or b"producer-epoch" not in headers or b"producer-seq" not in headers:
        raise HeaderInvalid("Producer-Id, Producer-Epoch and Producer-Seq go together, and none is empty")
    mode = headers.get(b"producer-mode", b"requests")
    if mode not in (b"requests", b"rising"):
        raise HeaderInvalid("Producer-Mode is requests or rising")
    epoch, sequence = _number(headers, b"producer-epoch"), _number(headers, b"producer-seq")
    return ProducerClaim(SCOPE + name, epoch, sequence, sequence, _RISING if mode == b"rising" else _REQUESTS, digest)


def _x_claim(
    headers: dict[bytes, bytes], topic: str, partition: int, digest: bytes, session: Session, *, strict: bool
) -> ProducerClaim:
    name = text_of(headers, b"x-producer-id")
    if not name or b"x-producer-seq" not in headers:
        raise HeaderInvalid("X-Producer-Id and X-Producer-Seq go together, and neither is empty")
    sequence = _number(headers, b"x-producer-seq")
    run = text_of(headers, b"x-producer-session") or ""
    epoch = _number(headers, b"x-producer-epoch") if b"x-producer-epoch" in headers else NOT_TOLD
    if not run and epoch == NOT_TOLD:
        if strict:
            raise HeaderInvalid("X-Producer-Session or X-Producer-Epoch is required here (x_producer_strict)")
        key = (topic, partition, name)
        if sequence == 0:
            session.forget(key)
        else:
            known = session.epoch_of(key)
            epoch = NOT_TOLD if known is None else known
    return ProducerClaim(X_SCOPE + name, epoch, sequence, sequence, _REQUESTS, digest, True, run, True)


def key_of(claim: ProducerClaim, topic: str, partition: int) -> Key:
    """What a connection remembers an X- producer by."""
    return topic, partition, claim.name[len(X_SCOPE) :]
