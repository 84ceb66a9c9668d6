"""The outcome of a write as the dialect of its request tells it."""

from typing import Final

from oncelog.core.flat import ProducerClaim
from oncelog.core.outcome import (
    Confirmed,
    Fenced,
    Outcome,
    Refusal,
    SequenceGap,
    StreamClosedRefusal,
    StreamDone,
    TailMismatch,
)
from oncelog.protocols.http import answers
from oncelog.protocols.http.actions import Render
from oncelog.protocols.http.claims import Dialect, key_of
from oncelog.protocols.http.offsets import spelled
from oncelog.protocols.http.refusal_map import problem_of
from oncelog.protocols.http.session import Session

# Nearly every append is answered by one of these three: filled in one go, so they spell the offset themselves.
_PLAIN: Final = answers.head(204) + b"Stream-Next-Offset: %016d\r\n\r\n"
_PRODUCER: Final = (
    answers.head(200)
    + b"Stream-Next-Offset: %016d\r\nProducer-Epoch: %d\r\nProducer-Seq: %d\r\nContent-Length: 0\r\n\r\n"
)
_X: Final = (
    answers.head(201)
    + b"Stream-Next-Offset: %016d\r\nX-Producer-Epoch: %d\r\nX-Stream-Offset: %08d\r\nContent-Length: 0\r\n\r\n"
)


def _plain_answer(outcome: Outcome) -> bytes:
    if type(outcome) is Confirmed and not (outcome.duplicate or outcome.closed):
        return _PLAIN % outcome.next
    return AppendAnswer(Dialect.PLAIN)(outcome)


def _producer_answer(outcome: Outcome) -> bytes:
    if type(outcome) is Confirmed and not (outcome.duplicate or outcome.closed):
        return _PRODUCER % (outcome.next, outcome.epoch, outcome.sequence)
    return AppendAnswer(Dialect.PRODUCER)(outcome)


def _x_answer(outcome: Outcome) -> bytes:
    if type(outcome) is Confirmed and not (outcome.duplicate or outcome.closed) and outcome.epoch >= 0:
        return _X % (outcome.next, outcome.epoch, outcome.next - 1)
    return AppendAnswer(Dialect.X)(outcome)


ANSWERS: Final[dict[Dialect, Render]] = {
    Dialect.PLAIN: _plain_answer,
    Dialect.PRODUCER: _producer_answer,
    Dialect.X: _x_answer,
}
"""Of appends that nothing more has to be known of than their dialect."""


class AppendAnswer:
    """The outcome of an append in the words of its dialect, whatever comes with it."""

    __slots__ = ("claim", "dialect", "etag", "partition", "session", "topic")

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.etag = False
        self.claim: ProducerClaim | None = None
        """Set if the connection is to remember its epoch; then so are the next three."""
        self.session: Session | None = None
        self.topic = ""
        self.partition = 0

    def __call__(self, outcome: Outcome) -> bytes:
        if type(outcome) is not Confirmed:
            assert isinstance(outcome, Refusal), outcome
            return refused(outcome, self.dialect)
        headers: dict[str, str | int] = {}
        known = outcome.next >= 0
        if known:
            headers["Stream-Next-Offset"] = spelled(outcome.next)
        if outcome.duplicate:
            headers["Stream-Duplicate"] = "true"
        if outcome.gone:
            headers["Stream-Gone"] = "true"
        if outcome.closed:
            headers["Stream-Closed"] = "true"
        if self.etag and known:
            headers["ETag"] = f'"{spelled(outcome.next)}"'
        status = 204
        if self.dialect == Dialect.PRODUCER:
            status = 204 if outcome.duplicate else 200
            if outcome.epoch >= 0:
                headers["Producer-Epoch"] = outcome.epoch
                headers["Producer-Seq"] = outcome.sequence
        elif self.dialect == Dialect.X:
            status = 204 if outcome.duplicate else 201
            if outcome.epoch >= 0:
                headers["X-Producer-Epoch"] = outcome.epoch
            if known:
                headers["X-Stream-Offset"] = f"{outcome.next - 1:08d}"
            if self.session is not None and self.claim is not None and outcome.epoch >= 0:
                self.session.used(key_of(self.claim, self.topic, self.partition), outcome.epoch)
        return answers.empty(status, answers.lines(headers))


class CloseAnswer:
    """The outcome of a close without content."""

    __slots__ = ("dialect",)

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def __call__(self, outcome: Outcome) -> bytes:
        if not isinstance(outcome, StreamDone):
            assert isinstance(outcome, Refusal), outcome
            return refused(outcome, self.dialect)
        headers: dict[str, str | int] = {"Stream-Next-Offset": spelled(outcome.tail)}
        if outcome.closed:
            headers["Stream-Closed"] = "true"
        if outcome.epoch >= 0 and not outcome.changed:
            headers["Stream-Duplicate"] = "true"
        if outcome.epoch >= 0:
            if self.dialect == Dialect.X:
                headers["X-Producer-Epoch"] = outcome.epoch
            else:
                headers |= {"Producer-Epoch": outcome.epoch, "Producer-Seq": outcome.sequence}
        # In the X- dialect what is new is told by the status, as of an append.
        status = 201 if self.dialect == Dialect.X and outcome.changed else 204
        return answers.empty(status, answers.lines(headers))


def refused(refusal: Refusal, dialect: Dialect) -> bytes:
    """A refused write, with the headers that its dialect promises."""
    headers: dict[str, str | int] = {}
    match refusal:
        case SequenceGap() if dialect == Dialect.X:
            headers = {"X-Expected-Seq": refusal.expected, "X-Received-Seq": refusal.received}
        case SequenceGap():
            headers = {"Producer-Expected-Seq": refusal.expected, "Producer-Received-Seq": refusal.received}
        case Fenced() if dialect == Dialect.X:
            headers = {"X-Error": "stale-epoch", "X-Current-Epoch": refusal.current}
        case Fenced():
            headers = {"Producer-Epoch": refusal.current}
        case StreamClosedRefusal():
            headers = {"Stream-Closed": "true", "Stream-Next-Offset": spelled(refusal.tail)}
        case TailMismatch():
            headers = {"ETag": f'"{spelled(refusal.tail)}"', "Stream-Next-Offset": spelled(refusal.tail)}
    return problem_of(refusal, answers.lines(headers) if headers else b"")
