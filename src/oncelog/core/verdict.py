"""Verdicts: what `producer.judge` can say of a claim, each with its numbers."""

from typing import Final

import msgspec

Place = int | tuple[int, ...]
"""Where a batch went: its first offset, or for a commit over many streams the flat (stream, first, next, ...)."""

OFFSET_UNKNOWN: Final = -1
"""`Duplicate.first_offset` of a write older than the remembered batches: it happened, its place is forgotten."""


class Accept(msgspec.Struct, gc=False):
    """Write it, and store `epoch`."""

    epoch: int
    new_epoch: bool


class Duplicate(msgspec.Struct, gc=False):
    """Already written. `first_offset` and `next_offset` are what `advance` was given, or OFFSET_UNKNOWN."""

    first_offset: Place
    next_offset: int
    epoch: int
    last: int


class Gap(msgspec.Struct, gc=False):
    """Sequences are missing in between (or, for RECORDS, the claim is older than what is remembered)."""

    expected: int
    received: int


class Fenced(msgspec.Struct, gc=False):
    """A newer epoch exists. `claimed_epoch` is NOT_TOLD when only the session gave the old run away."""

    current_epoch: int
    claimed_epoch: int


class Conflict(msgspec.Struct, gc=False):
    """This sequence was written with other content."""

    sequence: int
    remembered_digest: bytes
    claimed_digest: bytes


class EpochMustStartAtZero(msgspec.Struct, gc=False):
    """A new epoch was opened in mid-sequence."""

    epoch: int
    received: int


class EpochAhead(msgspec.Struct, gc=False):
    """A managed client names an epoch that the server never gave out."""

    current_epoch: int
    claimed_epoch: int


class ModeMismatch(msgspec.Struct, gc=False):
    """The epoch counts something else."""

    mode: int
    claimed_mode: int


class Overlap(msgspec.Struct, gc=False):
    """The claim begins at or before `last` and ends after it: neither a duplicate nor new."""

    last: int
    claimed_first: int
    claimed_last: int


class BadClaim(msgspec.Struct, gc=False):
    """The claim makes no sense whatever the state is: `number` breaks `reason`."""

    reason: str
    number: int


Verdict = (
    Accept | Duplicate | Gap | Fenced | Conflict | EpochMustStartAtZero | EpochAhead | ModeMismatch | Overlap | BadClaim
)
