"""Places: where each batch lies in the journal. Owns the packed row, and the rows that are newer than the index.

A place is 48 bytes, little endian, found by (extent, offset):

    byte  size  field
       0     8  first offset of the batch, within its extent
       8     8  group
      16     8  byte in the group's payload where the batch begins; of a link: the extent that it stands for
      24     8  append time, ns
      32     4  count of offsets
      36     4  bytes of the batch; of a link: 0
      40     4  flags: CONTROL 1, LINK 2
      44     4  zero

A stream's own extent has the stream's id, and offsets within it are the stream's. A published stage is one row of the
stream, a link: offset `first + n` of the stream is offset n of the stage's extent, which is taken whole.

Rows stay packed. As tuples the 60,000 rows of one checkpoint would be 20 MB and work for the collector.
"""

from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import Final

import msgspec

from oncelog.core.batch import ATTRIBUTES_AT
from oncelog.core.batch import CONTROL as BATCH_CONTROL
from oncelog.core.entry import (
    CONTROL as ENTRY_CONTROL,
)
from oncelog.core.entry import (
    Appended,
    Compound,
    Entry,
    Moved,
    Operation,
    StageAppended,
    StageDropped,
    StagePublished,
    TopicDeleted,
    Trimmed,
)
from oncelog.storage.index.interface import WHOLE_EXTENT

PLACE: Final = Struct("<QQQQIIII")
PLACE_BYTES: Final = PLACE.size
CONTROL: Final = 1
LINK: Final = 2

_FIRST: Final = Struct("<Q")
_GROUP_AT: Final = 8
_COUNT_AT: Final = 32
_COUNT: Final = Struct("<I")
_pack: Final = PLACE.pack
_first_of: Final = _FIRST.unpack_from

assert PLACE_BYTES == 48
assert CONTROL == ENTRY_CONTROL, "the flag is copied as it is"


class Place(msgspec.Struct, gc=False):
    """One row taken apart."""

    first: int
    group: int
    at: int
    time_ns: int
    count: int
    length: int
    flags: int
    reserved: int = 0

    @staticmethod
    def unpack(row: bytes) -> "Place":
        return Place(*PLACE.unpack(row))

    @property
    def next(self) -> int:
        return self.first + self.count


# --- packed rows in order of their first offset ------------------------------------------------------------------


def row_at_or_before(rows: bytes | bytearray, offset: int) -> int:
    """The byte where the row with the largest first offset <= `offset` begins; -1 if there is none."""
    low, high = 0, len(rows) // PLACE_BYTES
    # Reads crowd at the tail: look there before halving.
    if high and _first_of(rows, (high - 1) * PLACE_BYTES)[0] <= offset:
        return (high - 1) * PLACE_BYTES
    while low < high:
        middle = (low + high) // 2
        if _first_of(rows, middle * PLACE_BYTES)[0] <= offset:
            low = middle + 1
        else:
            high = middle
    return (low - 1) * PLACE_BYTES if low else -1


def first_of(row: bytes | bytearray, at: int = 0) -> int:
    """The first offset of the row that begins at byte `at`."""
    first: int = _first_of(row, at)[0]
    return first


def next_of(row: bytes | bytearray, at: int = 0) -> int:
    """The offset behind the row that begins at byte `at`."""
    first: int = _first_of(row, at)[0]
    return first + int(_COUNT.unpack_from(row, at + _COUNT_AT)[0])


def put_row(rows: bytearray, row: bytes) -> None:
    """Replace the row of the same first offset, or insert it where it belongs."""
    first = first_of(row)
    at = row_at_or_before(rows, first)
    if at >= 0 and first_of(rows, at) == first:
        rows[at : at + PLACE_BYTES] = row
    else:
        at = at + PLACE_BYTES if at >= 0 else 0
        rows[at:at] = row


def split_rows(rows: bytes | bytearray, begin: int = 0) -> list[bytes]:
    """The rows from byte `begin` on, one by one."""
    return [bytes(rows[at : at + PLACE_BYTES]) for at in range(begin, len(rows), PLACE_BYTES)]


def links_in(rows: bytes | bytearray) -> list[int]:
    """The extents that the links among these rows name."""
    return [place[2] for place in PLACE.iter_unpack(rows) if place[6] & LINK]


# --- what is newer than the index ----------------------------------------------------------------------------------


class Places:
    """The places of entries that the index may not have yet. Rows stay until `drop_through` says that it has them."""

    __slots__ = ("_extents", "_moved", "_moved_at_random", "_order")

    def __init__(self) -> None:
        self._extents: dict[int, bytearray] = {}
        """Appended rows: ascending by first offset and by group alike."""
        self._moved: dict[int, bytearray] = {}
        """Moved rows, apart from those: ascending by first offset, and mostly by group. They may be far older batches
        than any above, and need not touch each other."""
        self._moved_at_random: set[int] = set()
        """Extents whose moved rows do not ascend by group: they came in another order than their offsets."""
        self._order: deque[int] = deque()
        """The extents that have rows, each once: `drop_through` goes round."""

    def __len__(self) -> int:
        """How many extents have rows."""
        return len(self._order)

    def add_entry(self, entry: Entry, group: int, entry_at: int) -> None:
        """Note every batch of an entry that lies at byte `entry_at` of a group's payload."""
        if type(entry) is Appended:
            # The flat shape, nearly all traffic: 0.5 µs.
            rows = self._extents.get(entry.stream_id)
            if rows is None:
                rows = self._new_extent(entry.stream_id)
            rows += _pack(
                entry.first,
                group,
                entry_at + entry.batch_at,
                entry.time_ns,
                entry.count,
                len(entry.batch),
                entry.flags & CONTROL,
                0,
            )
            return
        assert type(entry) is Compound
        for op in entry.operations:
            self._add_operation(op, entry.time_ns, group, entry_at)

    def _add_operation(self, op: Operation, time_ns: int, group: int, entry_at: int) -> None:
        match op:
            case Appended():
                at, flags = entry_at + op.batch_at, op.flags & CONTROL
                self._add(op.stream_id, _pack(op.first, group, at, time_ns, op.count, len(op.batch), flags, 0))
            case StageAppended():
                at = entry_at + op.batch_at
                self._add(op.stage_id, _pack(op.first, group, at, time_ns, op.count, len(op.batch), 0, 0))
            case StagePublished():
                self._add(op.stream_id, _pack(op.first, group, op.stage_id, time_ns, op.count, 0, LINK, 0))
            case Moved():
                # The batch keeps its append time: a seek by time must not see it as new.
                at = entry_at + op.batch_at
                flags = CONTROL if op.batch[ATTRIBUTES_AT + 1] & BATCH_CONTROL else 0
                self._add_moved(op.extent_id, _pack(op.first, group, at, op.time_ns, op.count, len(op.batch), flags, 0))
            case Trimmed():
                self._cut(op.stream_id, op.floor)
            case StageDropped():
                self._cut(op.stage_id, WHOLE_EXTENT)
            case TopicDeleted():
                for stream_id in op.stream_ids:
                    self._cut(stream_id, WHOLE_EXTENT)
            case _:
                pass  # no other operation holds a batch

    def rows_from(self, extent: int, offset: int, limit: int) -> list[bytes]:
        """The row that holds `offset` and those that follow without a gap, at most `limit`; none if it is not here."""
        rows = self._extents.get(extent, b"")
        at = row_at_or_before(rows, offset)
        found = split_rows(rows[at : at + limit * PLACE_BYTES]) if at >= 0 else []
        if extent in self._moved:
            return self._with_moved(extent, offset, limit, found)
        return found if found and offset < next_of(found[0]) else []

    def drop_through(self, group: int, extents_max: int) -> Iterator[None]:
        """Let go of rows up to `group`, which the index has. Yields after every `extents_max` extents, so that the loop
        never stalls; places may be added and asked for in between."""
        for number in range(len(self._order)):
            if number and number % extents_max == 0:
                yield
            extent = self._order.popleft()
            rows = self._extents.get(extent)
            if rows is not None and not self._moved and first_of(rows, len(rows) - PLACE_BYTES + _GROUP_AT) <= group:
                # All of it, as for most of very many extents: no need to look for a border.
                del self._extents[extent]
            elif self._drop_rows(extent, group):
                self._order.append(extent)

    def _new_extent(self, extent: int) -> bytearray:
        if extent not in self._moved:
            self._order.append(extent)
        rows = self._extents[extent] = bytearray()
        return rows

    def _add(self, extent: int, row: bytes) -> None:
        rows = self._extents.get(extent)
        if rows is None:
            rows = self._new_extent(extent)
        rows += row

    def _add_moved(self, extent: int, row: bytes) -> None:
        rows = self._moved.get(extent)
        if rows is None:
            if extent not in self._extents:
                self._order.append(extent)
            rows = self._moved[extent] = bytearray()
        if rows and first_of(row) <= first_of(rows, len(rows) - PLACE_BYTES):
            self._moved_at_random.add(extent)
            put_row(rows, row)
        else:
            rows += row

    def _cut(self, extent: int, floor: int) -> None:
        """Rows below a floor are not asked for any more; here they simply go with their group."""

    def _with_moved(self, extent: int, offset: int, limit: int, appended: list[bytes]) -> list[bytes]:
        """Appended and moved rows as one run. Of two rows for the same batch the moved one is the newer place."""
        moved = self._moved[extent]
        begin = max(0, row_at_or_before(moved, offset))
        joined = {first_of(row): row for row in appended}
        joined.update((first_of(row), row) for row in split_rows(moved[begin : begin + limit * PLACE_BYTES]))
        run: list[bytes] = []
        for first in sorted(joined):
            row = joined[first]
            if next_of(row) <= offset:
                continue
            if first > offset or len(run) == limit:
                break
            run.append(row)
            offset = next_of(row)
        return run

    def _drop_rows(self, extent: int, group: int) -> bool:
        """Drop rows of one extent up to `group`. True if rows are left."""
        rows = self._extents.get(extent)
        if rows is not None:
            _drop_front(rows, group)
            if not rows:
                del self._extents[extent]
        moved = self._moved.get(extent)
        if moved is not None:
            if extent in self._moved_at_random:
                moved[:] = b"".join(row for row in split_rows(moved) if first_of(row, _GROUP_AT) > group)
            else:
                _drop_front(moved, group)
            if not moved:
                del self._moved[extent]
                self._moved_at_random.discard(extent)
        return (rows is not None and len(rows) > 0) or (moved is not None and len(moved) > 0)


def _drop_front(rows: bytearray, group: int) -> None:
    """Drop rows up to `group`. Before: they ascend by group. A bytearray gives its front up without moving the rest."""
    low, high = 0, len(rows) // PLACE_BYTES
    while low < high:
        middle = (low + high) // 2
        if _first_of(rows, middle * PLACE_BYTES + _GROUP_AT)[0] <= group:
            low = middle + 1
        else:
            high = middle
    del rows[: low * PLACE_BYTES]
