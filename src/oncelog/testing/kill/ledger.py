"""The ledger: what was asked of the log, what it answered, and therefore what must be in it.

Every record has an identity, `writer:number:part`, that is part of its value, so a record found in the log says who
sent it and as part of what. A unit is what must become visible whole: a batch, a commit, a txn, a publish.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final
from zlib import crc32

Identity = bytes
Place = tuple[int, int]
"""(stream id, offset)"""

EXAMPLES_MAX: Final = 20
"""Findings that are described; the rest is only counted."""

_VALUE_BYTES_MAX: Final = 900
_LARGE_EVERY: Final = 64
_LARGE_BYTES: Final = 12_000
"""One value in `_LARGE_EVERY` is large, so that groups end at ever new places of a segment."""


def value_of(identity: Identity, salt: bytes = b"") -> bytes:
    """The whole value that belongs to an identity: sizes vary, and a changed byte is noticed."""
    head = identity + b"|"
    sum_ = crc32(identity)
    size = _LARGE_BYTES if sum_ % _LARGE_EVERY == 0 else sum_ % _VALUE_BYTES_MAX
    return head + (salt + head) * (size // len(head))


def identity_of(value: bytes) -> Identity:
    return value.partition(b"|")[0]


class Fate(Enum):
    """What must be true of a unit."""

    OPEN = "open"  # asked and not answered yet
    VISIBLE = "visible"  # confirmed
    ABSENT = "absent"  # refused, aborted or never published
    EITHER = "either"  # its client gave up before the answer: whole or not at all


class Unit:
    """What must become visible whole, or not at all."""

    __slots__ = ("fate", "identities", "name")

    def __init__(self, name: str, identities: Sequence[Identity]) -> None:
        self.name = name
        self.identities = tuple(identities)
        self.fate = Fate.OPEN


class CursorMoved:
    """A cursor move that is part of a unit."""

    __slots__ = ("cursor", "frontier", "unit")

    def __init__(self, cursor: tuple[str, str, int], frontier: int, unit: Unit) -> None:
        self.cursor = cursor
        self.frontier = frontier
        self.unit = unit


class Findings:
    """What should not be. All zero in a sound log."""

    def __init__(self) -> None:
        self.lost = 0
        self.doubled = 0
        self.torn = 0
        self.refused = 0
        self.aborted_visible = 0
        self.misordered = 0
        self.changed = 0
        self.examples: list[str] = []

    def add(self, kind: str, what: str) -> None:
        """Count one finding, and describe it if there is room."""
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(f"{kind}: {what}")

    def counts(self) -> dict[str, int]:
        return {name: count for name, count in vars(self).items() if isinstance(count, int)}

    @property
    def total(self) -> int:
        return sum(self.counts().values())


class Ledger:
    """Everything that the writers know."""

    def __init__(self) -> None:
        self.unit_of: dict[Identity, Unit] = {}
        self.place_of: dict[Identity, Place] = {}
        """As confirmed. Records of a unit without places are only known to be somewhere."""
        self.cursor_moves: list[CursorMoved] = []
        """In the order in which they were asked for."""
        self.tails: dict[int, int] = {}
        """Stream id -> the offset below which something was confirmed."""
        self.findings = Findings()
        self.confirmed = 0
        self.duplicates = 0
        self.retried = 0

    def unit(self, name: str, identities: Sequence[Identity]) -> Unit:
        """A new unit, or the one that has these identities already."""
        known = self.unit_of.get(identities[0])
        if known is not None:
            assert known.identities == tuple(identities)
            return known
        unit = Unit(name, identities)
        for identity in identities:
            assert identity not in self.unit_of
            self.unit_of[identity] = unit
        return unit

    def placed(self, unit: Unit, identities: Iterable[Identity], stream_id: int, first: int, next_: int) -> None:
        """The log says that these records are at [first, next_)."""
        unit.fate = Fate.VISIBLE
        offset = first
        for identity in identities:
            known = self.place_of.setdefault(identity, (stream_id, offset))
            if known != (stream_id, offset):
                self.findings.add("lost", f"{identity!r} confirmed at {known} and then at {(stream_id, offset)}")
            offset += 1
        if offset != next_:
            self.findings.add("lost", f"{unit.name} confirmed as [{first}, {next_}), expected up to {offset}")
        self.tails[stream_id] = max(self.tails.get(stream_id, 0), next_)

    def refused(self, unit_name: str, outcome: object) -> None:
        """A correct request was not confirmed."""
        self.findings.add("refused", f"{unit_name}: {outcome}")
