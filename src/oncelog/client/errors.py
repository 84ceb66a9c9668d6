"""What can go wrong for a caller of the client: one family, each class a different thing to do next.

`Refused` and its subclasses are answers: the server looked at the request and said no, with a stable `code` and its
numbers in `members`. `Unreachable` means that no answer came and nothing can have been written. `OutcomeUnknown` means
that no answer came and the write may or may not have happened: the third outcome, which only a retry under the same
claim can settle. `docs/client.md` says what each means for the caller.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec

from oncelog.client.wire import Answer
from oncelog.errors import OncelogError


class ClientError(OncelogError):
    """Base of everything that the client raises on purpose.

    If it leaves open whether a write was done, it names the write, by whatever it had: without its id nobody could ask
    for it, nor send it again without doubling it. None for all that there was not.
    """

    topic: str | None = None
    partition: int | None = None
    message_id: str | None = None
    """Of the record: given, or random. `receipt` knows it, and a second append with it is recognised."""
    commit_id: str | None = None
    """The same for a commit; there is no receipt."""
    producer_id: str | None = None
    sequence: int | None = None
    """Of the producer's batch, or commit."""

    def name_write(
        self,
        hint: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        message_id: str | None = None,
        commit_id: str | None = None,
        producer_id: str | None = None,
        sequence: int | None = None,
    ) -> None:
        """Says which write it is about, and adds to its text what to do about that one."""
        self.topic = topic
        self.partition = partition
        self.message_id = message_id
        self.commit_id = commit_id
        self.producer_id = producer_id
        self.sequence = sequence
        self.args = (f"{self} ({hint})",)


class ConnectionLost(ClientError):
    """The connection ended before the answer came. `sent`: the request, or part of it, had left."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class AnswerUnreadable(ClientError):
    """The answer is not what the protocol promises: a proxy's, perhaps. It confirms nothing and denies nothing."""


class Unreachable(ClientError):
    """No answer in time. Nothing was written: the request changes nothing, or it never left."""


class OutcomeUnknown(ClientError):
    """No answer in time, and the write may have happened. Only the same claim, sent again, can tell."""


class StreamReplaced(ClientError):
    """The stream that a reader read is no more, and another one has its name. No record of that one was handed out."""

    def __init__(self, topic: str, partition: int, offset: int, read_created_ms: int, created_ms: int) -> None:
        super().__init__(
            f"{topic!r} was deleted and created again, or another server answers: partition {partition} was read up to "
            f"offset {offset} of the stream made at {read_created_ms} (ms since 1970), and the one there now was made "
            f"at {created_ms} (its offsets count anew: make a new reader, from START to read all of it)"
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        """Behind the last record that was handed out, in the stream that is gone."""
        self.read_created_ms = read_created_ms
        """When that one was made."""
        self.created_ms = created_ms
        """When the one was made that has its name now."""


class BufferFull(ClientError):
    """The producer holds `max_pending_bytes` already. The record was not taken."""


class RecordTooLarge(ClientError):
    """The record can never be stored. It was not taken; the producer goes on."""

    def __init__(self, received: int, limit: int) -> None:
        super().__init__(f"a record of {received:,} bytes, at most {limit:,} fit a batch")
        self.received = received
        self.limit = limit


class ProducerStopped(ClientError):
    """The producer takes and sends nothing more. `cause` is the first error, None after `close`."""

    def __init__(self, cause: ClientError | None = None) -> None:
        super().__init__("the producer is closed" if cause is None else f"the producer has stopped: {cause}")
        self.cause = cause


class DeadLettered(ClientError):
    """The batch was refused, and its records are now in the dead-letter stream. The producer goes on."""

    def __init__(self, cause: ClientError, stream: str) -> None:
        super().__init__(f"moved to {stream!r}: {cause}")
        self.cause = cause
        self.stream = stream


# --- answers that say no ---------------------------------------------------------------------------------------


class Refused(ClientError):
    """The server said no. Nothing was written by this request."""

    def __init__(
        self, status: int, code: str, detail: str, members: Mapping[str, object], *, retry_after_s: float = 0.0
    ) -> None:
        hint = members.get("hint")
        super().__init__(f"{status} {code}: {detail}" + (f" ({hint})" if hint else ""))
        self.status = status
        self.code = code
        """Stable, for programs; `http_` and the status if the server gave none."""
        self.detail = detail
        self.members = members
        self.retry_after_s = retry_after_s
        """What the server asked for; 0 if it did not say."""
        self.maybe_done = False
        """An attempt of the same call before this answer got none that can be trusted, and may have been done."""

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        told = self.members.get("retryable")
        return told if isinstance(told, bool) else self.status >= 500 or self.status in RETRYABLE_STATUSES

    @property
    def is_told_retryable(self) -> bool:
        """The server itself says so: nothing was done. A bare status may be that of a proxy which cannot know."""
        return self.members.get("retryable") is True

    @property
    def is_foreign(self) -> bool:
        """Nobody of ours said so, and it will not change: no server of this protocol gives these without a code."""
        return self.status in (501, 505) and not self.has_code

    @property
    def has_code(self) -> bool:
        """Whether the server said more than a status."""
        return self.code != _code_of_status(self.status)

    def number(self, name: str, default: int = -1) -> int:
        """A number of the refusal, such as `expected`."""
        value = self.members.get(name)
        return value if isinstance(value, int) else default


def _code_of_status(status: int) -> str:
    return f"http_{status}"


class Malformed(Refused):
    """400 and its kin: the request itself is wrong."""


class Fenced(Refused):
    """A newer run of this producer or application exists. This one must stop."""

    @property
    def current(self) -> int:
        """The epoch, or fence, that holds now."""
        return self.number("current")


class NotFound(Refused):
    """No such topic, producer, cursor, id, stage."""


class OffsetGone(Refused):
    """The offset was trimmed. The stream begins at `floor` now."""

    @property
    def floor(self) -> int:
        """The first offset that is still there."""
        return self.number("floor")


class Conflict(Refused):
    """409: what is there contradicts the request."""


class SequenceGap(Conflict):
    """Sequences are missing between the server's last and this one."""

    @property
    def expected(self) -> int:
        """The sequence that the server would take."""
        return self.number("expected")

    @property
    def received(self) -> int:
        """The sequence that it was sent."""
        return self.number("received")


class SequenceConflict(Conflict):
    """The sequence was used for other content: two producers share a name, or a source is not deterministic."""


class IdConflict(Conflict):
    """The message id, or commit id, was used for other content."""


class StreamClosed(Conflict):
    """The stream takes no more records."""


class ConditionFailed(Refused):
    """A condition of a commit, or the expected tail of an append, does not hold. Read, decide, try again."""


class TooLarge(Refused):
    """413: over a limit, which `members` name."""


class Overloaded(Refused):
    """503, 507 and the like: nothing was done, the same request may succeed later."""


class Damaged(Refused):
    """500: bytes on the server's disk are not what was written. `members` name the file; an operator must look."""


RETRYABLE_STATUSES: Final = frozenset((408, 425, 429))
"""Below 500, when the server does not say. All that this client sends may be sent twice: a doubtful status is worth it,
and who knows what a proxy of tomorrow says with a 5xx of its own (524: it had passed the request on)."""

_BY_CODE: Final[dict[str, type[Refused]]] = {
    "application_fenced": Fenced,
    "claim_conflict": IdConflict,
    "condition_failed": ConditionFailed,
    "damaged": Damaged,
    "fenced": Fenced,
    "id_conflict": IdConflict,
    "no_room": Overloaded,
    "offset_gone": OffsetGone,
    "overloaded": Overloaded,
    "sequence_conflict": SequenceConflict,
    "sequence_gap": SequenceGap,
    "stopping": Overloaded,
    "too_many_connections": Overloaded,
    "stream_closed": StreamClosed,
    "tail_mismatch": ConditionFailed,
    "too_large": TooLarge,
}

_BY_STATUS: Final[dict[int, type[Refused]]] = {
    400: Malformed,
    403: Fenced,
    404: NotFound,
    409: Conflict,
    410: OffsetGone,
    411: Malformed,
    412: ConditionFailed,
    413: TooLarge,
    414: Malformed,
    415: Malformed,
    422: Malformed,
    431: Malformed,
}

# Numbers that a server may give in headers alone; servers of the durable-streams protocol send no problem document.
_NUMBERS_IN_HEADERS: Final = (
    ("x-expected-seq", "expected"),
    ("producer-expected-seq", "expected"),
    ("x-received-seq", "received"),
    ("producer-received-seq", "received"),
    ("x-current-epoch", "current"),
    ("producer-epoch", "current"),
    ("stream-floor", "floor"),
)


def refusal_of(answer: Answer) -> Refused:
    """The exception for an answer of 400 or above. Only our own server gives a code; without one, a status says what it
    can say of anybody."""
    members = _members(answer)
    for header, name in _NUMBERS_IN_HEADERS:
        number = answer.number(header)
        if number >= 0:
            members.setdefault(name, number)
    code = members.get("code")
    kind = _BY_CODE.get(code) if isinstance(code, str) else None
    if kind is None:
        kind = _BY_STATUS.get(answer.status, Overloaded if answer.status >= 500 else Refused)
        # Without a code the headers tell. With one they do not: other refusals have an `expected` of their own.
        if answer.status == 409 and not isinstance(code, str):
            if "expected" in members and "received" in members:
                kind = SequenceGap
            elif "stream-closed" in answer.headers:
                kind = StreamClosed
        if kind is Fenced and "current" not in members:
            kind = Refused  # somebody's "forbidden": whoever fences says by which epoch
    detail = members.get("detail")
    return kind(
        answer.status,
        code if isinstance(code, str) else _code_of_status(answer.status),
        detail if isinstance(detail, str) else _told_by_others(answer),
        members,
        retry_after_s=max(0.0, float(answer.number("retry-after"))),
    )


def _members(answer: Answer) -> dict[str, object]:
    """The problem document, if the answer has one."""
    if "json" not in answer.headers.get("content-type", ""):
        return {}
    try:
        members = msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        return {}
    return members if isinstance(members, dict) else {}


def _told_by_others(answer: Answer) -> str:
    """What an answer without a problem document says, on one line."""
    if "html" in answer.headers.get("content-type", ""):
        return "a page, such as no server of this protocol sends: is the address right, or did a proxy answer?"
    return " ".join(answer.body[:200].decode(errors="replace").split())


@contextmanager
def naming_appends(topic: str, partition: int, message_id: str) -> Iterator[None]:
    """An error that leaves open whether the append inside was done names it."""
    try:
        yield
    except ClientError as error:
        if leaves_open(error):
            hint = (
                f"receipt({topic!r}, {message_id!r}, partition={partition}) tells whether it was done; an append of "
                f"the same record with message_id={message_id!r} does it once"
            )
            error.name_write(hint, topic=topic, partition=partition, message_id=message_id)
        raise


@contextmanager
def naming_commits(commit_id: str | None, producer_id: str | None, sequence: int | None) -> Iterator[None]:
    """The same for a commit."""
    try:
        yield
    except ClientError as error:
        if leaves_open(error):
            hint = f"the same commit with commit_id={commit_id!r} is done once"
            if commit_id is None:
                hint = f"commit_producer_info({producer_id!r}) tells whether sequence {sequence} was done"
            error.name_write(hint, commit_id=commit_id, producer_id=producer_id, sequence=sequence)
        raise


def leaves_open(error: ClientError) -> bool:
    """Whether the write may have been done all the same."""
    return isinstance(error, OutcomeUnknown | AnswerUnreadable) or (isinstance(error, Refused) and error.maybe_done)
