"""Atomic batches (seed 000) as a state machine: members come in, and a commit gives the whole batch or an error.

A batch is open from its first member until a commit, a mistake or its timeout. Nothing of it is stored while it is
open. What is checked when it is committed (expectations, duplicates, limits) is the stream's business, not this file's.

    open, member n+1        stays open; a zero-byte acknowledgement if it has a reply
    open, gap               ends: error 10176, advisory `incomplete`
    open, above the limit   ends: error 10199, advisory `large`
    open, commit            ends: the batch is handed to the stream
    open, 10 s of silence   ends: no reply, advisory `timeout`
    unknown, sequence 1     opens, unless too many are open (10210)
    unknown, another        error 10176 (10199 above the limit); a commit may be a retry: `Lost`
"""

from typing import Final, NamedTuple

from oncelog import limits as bounds
from oncelog.protocols.nats import errors
from oncelog.protocols.nats import headers as header_blocks
from oncelog.protocols.nats.bounds import API_LEVEL
from oncelog.protocols.nats.errors import ApiError
from oncelog.protocols.nats.headers import Headers

ID: Final = "Nats-Batch-Id"
SEQUENCE: Final = "Nats-Batch-Sequence"
COMMIT: Final = "Nats-Batch-Commit"
PREFIX: Final = "Nats-Batch-"
REQUIRED_LEVEL: Final = "Nats-Required-Api-Level"
MEMBER_BYTES: Final = 200
"""What a member costs in memory beside its texts."""

TIMEOUT: Final = "timeout"
INCOMPLETE: Final = "incomplete"
LARGE: Final = "large"
UNSUPPORTED: Final = "unsupported"


class Limits(NamedTuple):
    """What a server allows."""

    messages: int = bounds.NATS_BATCH_MESSAGES_MAX
    per_stream: int = bounds.NATS_BATCHES_PER_STREAM_MAX
    total: int = bounds.NATS_BATCHES_MAX
    timeout_ms: int = bounds.NATS_BATCH_TIMEOUT_MS
    bytes: int = bounds.NATS_BATCH_BYTES_MAX
    open_bytes: int = bounds.NATS_BATCHES_OPEN_BYTES_MAX


class Member(NamedTuple):
    """One message of a batch."""

    subject: str
    headers: Headers
    payload: bytes


class Accepted(NamedTuple):
    """The member is kept; a zero-byte acknowledgement goes to its reply subject."""


class Ready(NamedTuple):
    """The batch is whole: store it."""

    batch_id: str
    members: list[Member]


class Lost(NamedTuple):
    """A commit of a batch that is not open: a retry if the batch was committed before, else incomplete."""

    batch_id: str
    messages: int
    last: Member | None
    """None: an end-of-batch marker, which has no content."""


class Refused(NamedTuple):
    """The error, and the reason of the advisory if the batch was abandoned by it."""

    error: ApiError
    reason: str = ""


Result = Accepted | Ready | Lost | Refused


class _Open:
    __slots__ = ("bytes", "deadline_ns", "members")

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.bytes = 0
        self.deadline_ns = 0


class OpenBatches:
    """What the batches of all streams share."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.count = 0
        self.bytes = 0


class Batches:
    """The open batches of one stream."""

    def __init__(self, shared: OpenBatches) -> None:
        self._shared = shared
        self._open: dict[str, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def take(self, member: Member, now_ns: int) -> Result:
        """One message that names a batch. The caller has checked that the stream allows batches."""
        limits = self._shared.limits
        batch_id = header_blocks.first(member.headers, ID) or ""
        if not batch_id or len(batch_id) > bounds.NATS_BATCH_ID_CHARACTERS_MAX:
            return Refused(errors.BATCH_ID_INVALID)
        sequence = _sequence(member.headers)
        if sequence is None:
            return Refused(errors.BATCH_SEQUENCE_MISSING)
        commit = header_blocks.first(member.headers, COMMIT)
        is_marker = commit == "eob"
        size = sequence - 1 if is_marker else sequence
        batch = self._open.get(batch_id)
        if batch is None:
            if sequence != 1:
                return self._unknown(batch_id, size, member, commit)
            if len(self._open) >= limits.per_stream or self._shared.count >= limits.total:
                return Refused(errors.BATCH_TOO_MANY)
            batch = self._open[batch_id] = _Open()
            self._shared.count += 1
        if commit is not None and commit not in ("1", "eob"):
            self._end(batch_id)
            return Refused(errors.BATCH_COMMIT_INVALID)
        if not level_suffices(member.headers):
            self._end(batch_id)
            return Refused(errors.API_LEVEL, UNSUPPORTED)
        batch.deadline_ns = now_ns + limits.timeout_ms * 1_000_000
        if sequence != len(batch.members) + 1 or (sequence == 1 and is_marker):
            self._end(batch_id)
            return Refused(errors.BATCH_INCOMPLETE, INCOMPLETE)
        if size > limits.messages:
            self._end(batch_id)
            return Refused(errors.batch_too_large(limits.messages), LARGE)
        if not is_marker:
            refused = self._keep(batch_id, batch, member)
            if refused is not None:
                return refused
        if commit is None:
            return Accepted()
        self._end(batch_id)
        members = batch.members
        if is_marker:
            last = members[-1]
            members[-1] = last._replace(headers=[*last.headers, (COMMIT, "1")])
        return Ready(batch_id, members)

    def _unknown(self, batch_id: str, size: int, member: Member, commit: str | None) -> Result:
        if size > self._shared.limits.messages:
            return Refused(errors.batch_too_large(self._shared.limits.messages))
        if commit == "eob":
            return Lost(batch_id, size, None)
        if commit == "1":
            return Lost(batch_id, size, member)
        return Refused(errors.BATCH_INCOMPLETE)

    def _keep(self, batch_id: str, batch: _Open, member: Member) -> Refused | None:
        texts = sum(len(name) + len(value) for name, value in member.headers)
        size = MEMBER_BYTES + len(member.subject) + len(member.payload) + texts
        if batch.bytes + size > self._shared.limits.bytes or self._shared.bytes + size > self._shared.limits.open_bytes:
            self._end(batch_id)
            return Refused(errors.MESSAGE_TOO_LARGE, LARGE)
        headers = [(name, value) for name, value in member.headers if name.lower() != REQUIRED_LEVEL.lower()]
        batch.members.append(member._replace(headers=headers))
        batch.bytes += size
        self._shared.bytes += size
        return None

    def _end(self, batch_id: str) -> None:
        batch = self._open.pop(batch_id)
        self._shared.count -= 1
        self._shared.bytes -= batch.bytes

    def abandon(self, batch_id: str) -> bool:
        """The batch is dropped because a member of it was refused; False if it is not open."""
        if batch_id not in self._open:
            return False
        self._end(batch_id)
        return True

    def expired(self, now_ns: int) -> list[str]:
        """Ids of the batches that have been silent for too long; they are dropped."""
        due = [batch_id for batch_id, batch in self._open.items() if batch.deadline_ns <= now_ns]
        for batch_id in due:
            self._end(batch_id)
        return due

    def drop_all(self) -> list[str]:
        """Ids of all open batches; they are dropped."""
        dropped = list(self._open)
        for batch_id in dropped:
            self._end(batch_id)
        return dropped


def names_batch(headers: Headers) -> bool:
    """Whether a message belongs to a batch."""
    return header_blocks.first(headers, ID) is not None


def level_suffices(headers: Headers) -> bool:
    """Whether this server has the API level that a message requires. `eob` needs 3, which is the server's own."""
    asked = header_blocks.first(headers, REQUIRED_LEVEL)
    if not asked:
        return True
    return asked.isascii() and asked.isdigit() and len(asked) < 10 and int(asked) <= API_LEVEL


def _sequence(headers: Headers) -> int | None:
    text = header_blocks.first(headers, SEQUENCE)
    if not text or not (text.isascii() and text.isdigit()) or len(text) > 19:
        return None
    return int(text)
