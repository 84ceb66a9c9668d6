"""A group: what one fdatasync covers, while it is filled and until everybody who waits for it has an answer."""

from collections.abc import Callable
from typing import Final

from oncelog import limits
from oncelog.core.outcome import Outcome
from oncelog.engine.read_view import ViewChanges
from oncelog.storage.entry_codec import GROUP_HEADER
from oncelog.storage.journal import OpenGroup

Reply = Callable[[Outcome], None]

JOIN_BYTES_MAX: Final = 16 * limits.KIB
"""Batches up to this size are copied into one buffer per group; larger ones are written from where they are."""


class Group:
    """What one fdatasync will cover, and who waits for it."""

    __slots__ = (
        "answers",
        "buffers",
        "changes",
        "entry_count",
        "gated_count",
        "last_entry",
        "number",
        "open",
        "payload_bytes",
        "reserved",
        "room",
    )

    def __init__(self, open_group: OpenGroup) -> None:
        self.open = open_group
        self.number = open_group.group
        self.reserved = open_group.reserved
        self.room = open_group.room - GROUP_HEADER.size
        """Bytes that may still join."""
        self.buffers: list[bytes] = []
        self.payload_bytes = GROUP_HEADER.size
        self.entry_count = 0
        self.last_entry = 0
        self.answers: list[tuple[Reply, Outcome]] = []
        self.gated_count = 0
        """Of those, the ones that brought no entry: queries, duplicates, refusals."""
        self.changes: ViewChanges | None = None
        """For readers; None until the group was handed over to be written."""


def writers_of(group: Group) -> int:
    """How many of those who wait for the group have written something in it."""
    return len(group.answers) - group.gated_count


def joined(head: bytes, buffers: list[bytes]) -> list[bytes]:
    """Neighbouring small buffers as one: the kernel takes 1,024 pieces at most, and each costs."""
    out: list[bytes] = []
    run: list[bytes] = [head]
    for buffer in buffers:
        if len(buffer) <= JOIN_BYTES_MAX:
            run.append(buffer)
        else:
            out.append(b"".join(run))
            out.append(buffer)
            run = []
    if run:
        out.append(b"".join(run))
    return out
