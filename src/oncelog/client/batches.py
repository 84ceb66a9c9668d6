"""Batches on their way: what a producer numbers, and what callers hear of them."""

from enum import IntEnum
from typing import NamedTuple

import msgspec

from oncelog.client.errors import ClientError, Refused
from oncelog.client.packing import Form, Item, ProducerRecord


class BatchResult(msgspec.Struct, frozen=True, gc=False):
    """A confirmed batch."""

    seq: int
    epoch: int
    first_offset: int
    """-1 for a duplicate so old that the server no longer knows its place."""
    next_offset: int
    count: int
    duplicate: bool
    partition: int = 0


class Confirmation(NamedTuple):
    """What a success says."""

    epoch: int
    """-1 if the answer does not tell."""
    next_offset: int
    """Behind the batch's last record; -1 for a duplicate so old that its place is forgotten."""
    duplicate: bool


class BatchState(IntEnum):
    """See `oncelog.client.lane`."""

    WAITING = 0
    SENT = 1
    HELD = 2
    CONFIRMED = 3
    REFUSED = 4


class PendingBatch:
    """A batch that is not confirmed: what `on_error` is given."""

    __slots__ = (
        "attempts", "body", "bytes", "count", "error", "first_attempt_s", "form", "items", "maybe_written",
        "partition", "put_off", "result", "seq", "state", "strayed",
    )  # fmt: skip

    def __init__(self, partition: int, seq: int, form: Form, items: list[Item], size: int, body: bytes) -> None:
        self.partition = partition
        self.seq = seq
        self.form = form
        self.items = items
        self.count = len(items)
        self.bytes = size
        self.body = body
        self.attempts = 0
        """How often it was put on a connection."""
        self.maybe_written = False
        """An attempt was lost without an answer that can be read, and no later answer has settled what became of it."""
        self.strayed = False
        """An attempt was lost: a copy may still wait at the server, under this number."""
        self.first_attempt_s = 0.0
        self.state = BatchState.WAITING
        self.result: Confirmation | None = None
        self.error: ClientError | None = None
        self.put_off: Refused | None = None
        """The last "not now" or "not before that one" of the server itself, which did nothing with the batch."""

    @property
    def records(self) -> list[ProducerRecord]:
        """The records, encoded, in order."""
        return [ProducerRecord(item) if isinstance(item, bytes) else item for item in self.items]

    @property
    def message_id(self) -> str:
        """Of the only record, if it has one."""
        first = self.items[0]
        return "" if isinstance(first, bytes) else first.message_id

    def __repr__(self) -> str:
        return f"PendingBatch(seq={self.seq}, count={self.count}, attempts={self.attempts}, {self.state.name})"


class Failure(NamedTuple):
    """A batch that will not be confirmed."""

    error: ClientError
    batch: PendingBatch


Settled = BatchResult | Failure
