"""How a producer's claim is spelled in headers, and what an answer says about it. Two dialects, one set of rules.

X: the server counts epochs. A run names itself by a random session, so that its first request can be told from its
retry; from the first answer on it names the epoch too, so that a server that has forgotten it refuses instead of
starting anew. A resumed run names the epoch alone: it continues a session it does not know.

durable-streams: the client counts epochs; a restart comes with a higher one.
"""

from typing import Final, NamedTuple, Protocol

from oncelog.client.batches import Confirmation
from oncelog.client.errors import AnswerUnreadable, Refused, refusal_of
from oncelog.client.models import Scope
from oncelog.client.options import ProducerSettings, new_session
from oncelog.client.wire import Answer, header_line

EPOCH_UNKNOWN: Final = -1
OFFSET_UNKNOWN: Final = -1


class Identity(NamedTuple):
    """Under what a partition's sequence counts at present."""

    session: str
    """Empty: none is sent."""
    epoch: int
    """EPOCH_UNKNOWN until the server has told it."""


class Dialect(Protocol):
    """A way to spell claims."""

    scope: Scope
    """Where `GET /v1/producers` finds the producer."""

    def fixed(self, producer_id: str) -> dict[str, str | int]:
        """Headers of every request."""

    def claim(self, identity: Identity, sequence: int) -> bytes:
        """Header lines of one request."""

    def first_identity(self, settings: ProducerSettings) -> Identity:
        """Of a producer that starts at sequence 0."""

    def resumed_identity(self, settings: ProducerSettings, epoch: int) -> Identity:
        """Of a producer that continues an epoch."""

    def fresh_identity(self, identity: Identity) -> Identity:
        """One that fences `identity`, copies of its requests that still wander included."""


class XDialect:
    """`X-Producer-Id`, `-Seq`, `-Session`, `-Epoch`."""

    scope: Scope = "x"

    def fixed(self, producer_id: str) -> dict[str, str | int]:
        return {"X-Producer-Id": producer_id}

    def claim(self, identity: Identity, sequence: int) -> bytes:
        lines = b"X-Producer-Seq: %d\r\n" % sequence
        if identity.session:
            lines += header_line("X-Producer-Session", identity.session)
        if identity.epoch != EPOCH_UNKNOWN:
            lines += b"X-Producer-Epoch: %d\r\n" % identity.epoch
        return lines

    def first_identity(self, settings: ProducerSettings) -> Identity:
        return Identity(settings.session or new_session(), EPOCH_UNKNOWN)

    def resumed_identity(self, settings: ProducerSettings, epoch: int) -> Identity:
        # Another session in mid-sequence would be fenced; without one, the epoch and the next sequence are the claim.
        return Identity(settings.session or "", epoch)

    def fresh_identity(self, identity: Identity) -> Identity:  # noqa: ARG002
        return Identity(new_session(), EPOCH_UNKNOWN)


class DurableStreamsDialect:
    """`Producer-Id`, `-Epoch`, `-Seq`."""

    scope: Scope = "http"

    def fixed(self, producer_id: str) -> dict[str, str | int]:
        return {"Producer-Id": producer_id}

    def claim(self, identity: Identity, sequence: int) -> bytes:
        return b"Producer-Epoch: %d\r\nProducer-Seq: %d\r\n" % (identity.epoch, sequence)

    def first_identity(self, settings: ProducerSettings) -> Identity:
        return Identity("", settings.epoch)

    def resumed_identity(self, settings: ProducerSettings, epoch: int) -> Identity:  # noqa: ARG002
        return Identity("", epoch)

    def fresh_identity(self, identity: Identity) -> Identity:
        return Identity("", identity.epoch + 1)


def dialect_of(settings: ProducerSettings) -> Dialect:
    """The one that was asked for."""
    return XDialect() if settings.dialect == "x" else DurableStreamsDialect()


def confirmed(answer: Answer) -> Answer:
    """A success of an append that only a server of the protocol can have sent. Raises AnswerUnreadable.

    It says where the record is, or that it was there before: a duplicate may be so old that its place is forgotten. A
    200 that says neither is the page of a proxy, and the record is nowhere.
    """
    headers = answer.headers
    has_place = "stream-next-offset" in headers or "x-stream-offset" in headers
    has_epoch = "producer-epoch" in headers or "x-producer-epoch" in headers
    is_known = answer.flag("stream-duplicate") or (answer.status == 204 and has_epoch)
    if answer.status not in (200, 201, 204) or not (has_place or is_known):
        raise AnswerUnreadable(
            f"status {answer.status}, and nothing that says where the record is: no server of this protocol answers an "
            "append so; nothing is confirmed"
        )
    return answer


def verdict_of(answer: Answer) -> Confirmation | Refused | AnswerUnreadable:
    """What an answer to a claim means."""
    if answer.status >= 400:
        refusal = refusal_of(answer)
        return (
            AnswerUnreadable(f"no server of this protocol answers so, and nothing is confirmed: {refusal}")
            if refusal.is_foreign
            else refusal
        )
    try:
        confirmed(answer)
    except AnswerUnreadable as error:
        return error
    epoch = answer.number("x-producer-epoch")
    if epoch < 0:
        epoch = answer.number("producer-epoch")
    last = answer.number("x-stream-offset")
    next_offset = last + 1 if last >= 0 else answer.number("stream-next-offset")
    return Confirmation(epoch, next_offset, answer.status == 204 or answer.flag("stream-duplicate"))
