"""What a stream holds, by subject: one slot per offset with its subject, size and time, and one row per subject.

Built from the stream's records in order. An offset without a record (a hole, trimmed, deleted, hidden by a limit) is
dead. Offsets count from 0; NATS's sequences are one higher.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from oncelog.protocols.nats import subject as subjects

DEAD: Final = 0xFFFF_FFFF
_SCAN: Final = 65_536
_COMPACT_MIN: Final = 65_536


class SubjectRow:
    """One subject."""

    __slots__ = ("count", "first", "last", "name", "number")

    def __init__(self, name: str, number: int, first: int) -> None:
        self.name = name
        self.number = number
        self.count = 0
        self.first = first
        """A lower bound of the first live offset; `Index.first_of` makes it exact."""
        self.last = -1


class Index:
    """Of one stream. Invariant: every live offset lies in [floor, next)."""

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        self.next = floor
        """The first offset that is not known yet."""
        self.count = 0
        self.bytes = 0
        self.rows: dict[str, SubjectRow] = {}
        self._numbers: list[SubjectRow | None] = []
        self._free: list[int] = []
        self._base = floor
        self._subjects = array("I")
        self._sizes = array("I")
        self._times = array("q")

    # --- changes ---------------------------------------------------------------------------------------------------

    def skip_to(self, offset: int) -> None:
        """Offsets below `offset` that nobody has added hold no record."""
        missing = offset - self.next
        if missing <= 0:
            return
        if not self.count:
            self._subjects, self._sizes, self._times = array("I"), array("I"), array("q")
            self._base = self.floor = self.next = offset
            return
        self._subjects.extend(array("I", [DEAD]) * missing)
        self._sizes.extend(array("I", [0]) * missing)
        self._times.extend(array("q", [0]) * missing)
        self.next = offset

    def add(self, offset: int, subject: str, size: int, time_ns: int) -> None:
        """A record; offsets come in order."""
        self.skip_to(offset)
        row = self.rows.get(subject)
        if row is None:
            row = self._row(subject, offset)
        row.count += 1
        row.last = offset
        self._subjects.append(row.number)
        self._sizes.append(size)
        self._times.append(time_ns)
        self.next = offset + 1
        self.count += 1
        self.bytes += size

    def _row(self, subject: str, offset: int) -> SubjectRow:
        if self._free:
            number = self._free.pop()
            row = self._numbers[number] = SubjectRow(subject, number, offset)
        else:
            row = SubjectRow(subject, len(self._numbers), offset)
            self._numbers.append(row)
        self.rows[subject] = row
        return row

    def remove(self, offset: int) -> SubjectRow | None:
        """The record is gone; its subject's row, or None if there was none."""
        at = offset - self._base
        if not 0 <= at < len(self._subjects) or self._subjects[at] == DEAD:
            return None
        row = self._numbers[self._subjects[at]]
        assert row is not None, "a live slot has a subject"
        self._subjects[at] = DEAD
        self.count -= 1
        self.bytes -= self._sizes[at]
        row.count -= 1
        if not row.count:
            del self.rows[row.name]
            self._numbers[row.number] = None
            self._free.append(row.number)
        elif offset == row.last:
            row.last = self._before(row, offset)
        if offset == self.floor:
            self._raise_floor()
        return row

    def _before(self, row: SubjectRow, offset: int) -> int:
        view = self._view()
        high = offset - self._base
        while high > 0:
            low = max(0, high - _SCAN)
            found = np.flatnonzero(view[low:high] == row.number)
            if len(found):
                return self._base + low + int(found[-1])
            high = low
        raise AssertionError("a subject with a count has a record")

    def _raise_floor(self) -> None:
        view = self._view()
        at, size = self.floor - self._base, len(self._subjects)
        while at < size:
            found = np.flatnonzero(view[at : at + _SCAN] != DEAD)
            if len(found):
                at += int(found[0])
                break
            at += _SCAN
        at = min(at, size)
        self.floor = self._base + at
        del view
        if at >= _COMPACT_MIN and at * 2 > size:
            del self._subjects[:at], self._sizes[:at], self._times[:at]
            self._base += at

    # --- questions -------------------------------------------------------------------------------------------------

    def _view(self) -> "np.ndarray[tuple[int], np.dtype[np.uint32]]":
        return np.frombuffer(self._subjects, dtype=np.uint32)

    def subject_at(self, offset: int) -> str | None:
        """The subject of a live offset; None if it is dead."""
        at = offset - self._base
        if not 0 <= at < len(self._subjects) or self._subjects[at] == DEAD:
            return None
        row = self._numbers[self._subjects[at]]
        assert row is not None
        return row.name

    def size_at(self, offset: int) -> int:
        """The size of a live record."""
        return self._sizes[offset - self._base]

    def time_at(self, offset: int) -> int:
        """The time of a live record."""
        return self._times[offset - self._base]

    def first_of(self, row: SubjectRow) -> int:
        """The first live offset of a subject."""
        if self._is(row, row.first):
            return row.first
        row.first = self._scan(max(row.first, self.floor), [row.number])
        return row.first

    def _is(self, row: SubjectRow, offset: int) -> bool:
        at = offset - self._base
        return 0 <= at < len(self._subjects) and self._subjects[at] == row.number

    def matching(self, filters: list[str]) -> list[SubjectRow]:
        """Rows whose subject one of the filters stands for."""
        if not filters:
            return list(self.rows.values())
        if all(subjects.is_literal(each) for each in filters):
            return [row for each in filters if (row := self.rows.get(each)) is not None]
        return [row for name, row in self.rows.items() if subjects.any_matches(filters, name)]

    def next_live(self, offset: int, filters: list[str]) -> int:
        """The first live offset at or after `offset` that matches; `next` if there is none."""
        offset = max(offset, self.floor)
        if offset >= self.next:
            return self.next
        if not filters:
            at = offset - self._base
            return offset if self._subjects[at] != DEAD else self._scan_live(offset)
        subject = self.subject_at(offset)
        if subject is not None and subjects.any_matches(filters, subject):
            return offset
        return self._scan(offset, [row.number for row in self.matching(filters)])

    def _scan_live(self, offset: int) -> int:
        view = self._view()
        at, size = offset - self._base, len(self._subjects)
        while at < size:
            found = np.flatnonzero(view[at : at + _SCAN] != DEAD)
            if len(found):
                return self._base + at + int(found[0])
            at += _SCAN
        return self.next

    def _scan(self, offset: int, numbers: list[int]) -> int:
        if not numbers:
            return self.next
        view = self._view()
        at, size = max(0, offset - self._base), len(self._subjects)
        wanted = np.array(numbers, dtype=np.uint32)
        step = 256
        while at < size:
            piece = view[at : at + step]
            found = np.flatnonzero(piece == wanted[0] if len(wanted) == 1 else np.isin(piece, wanted))
            if len(found):
                return self._base + at + int(found[0])
            at += step
            step = min(_SCAN, step * 4)
        return self.next

    def count_from(self, offset: int, filters: list[str]) -> int:
        """Live records at or after `offset` that match."""
        offset = max(offset, self.floor)
        if offset <= self.floor:
            return self.count if not filters else sum(row.count for row in self.matching(filters))
        piece = self._view()[offset - self._base :]
        if not filters:
            return int(np.count_nonzero(piece != DEAD))
        numbers = [row.number for row in self.matching(filters)]
        return int(np.count_nonzero(np.isin(piece, np.array(numbers, dtype=np.uint32)))) if numbers else 0

    def live(self, first: int, next_: int, filters: list[str] | None = None) -> list[int]:
        """Live offsets in [first, next_) that match, in order."""
        first, next_ = max(first, self.floor), min(next_, self.next)
        if first >= next_:
            return []
        piece = self._view()[first - self._base : next_ - self._base]
        if filters:
            numbers = [row.number for row in self.matching(filters)]
            found = np.flatnonzero(np.isin(piece, np.array(numbers, dtype=np.uint32)))
        else:
            found = np.flatnonzero(piece != DEAD)
        return [first + int(at) for at in found]

    def last_live(self) -> int:
        """The last live offset; -1 if there is none."""
        if not self.count:
            return -1
        view = self._view()
        high = len(view)
        while high > 0:
            low = max(0, high - _SCAN)
            found = np.flatnonzero(view[low:high] != DEAD)
            if len(found):
                return self._base + low + int(found[-1])
            high = low
        return -1

    def last_per_subject(self, filters: list[str], below: int = -1) -> list[int]:
        """The last live offset of every subject that matches, in order; with `below`, of those under it."""
        rows = self.matching(filters)
        if below < 0:
            return sorted(row.last for row in rows)
        found = (row.last if row.last < below else self.last_below(row, below) for row in rows)
        return sorted(offset for offset in found if offset >= 0)

    def last_below(self, row: SubjectRow, below: int) -> int:
        """The last live offset of a subject under `below`; -1 if there is none."""
        if below <= self.floor:
            return -1
        piece = self._view()[: min(below, self.next) - self._base]
        found = np.flatnonzero(piece == row.number)
        return self._base + int(found[-1]) if len(found) else -1

    def last_matching(self, filters: list[str]) -> SubjectRow | None:
        """The row whose last record is the newest among those that match."""
        return max(self.matching(filters), key=lambda row: row.last, default=None)

    def first_at_time(self, time_ns: int) -> int:
        """The first live offset whose record is at or after a time; `next` if there is none."""
        for offset in self._times_from():
            if self._times[offset - self._base] >= time_ns and self._subjects[offset - self._base] != DEAD:
                return offset
        return self.next

    def _times_from(self) -> Iterator[int]:
        return iter(range(self.floor, self.next))

    def older_than(self, time_ns: int) -> int:
        """The first offset from the floor on whose record is at or after a time."""
        offset = self.floor
        while offset < self.next:
            at = offset - self._base
            if self._subjects[at] != DEAD and self._times[at] >= time_ns:
                return offset
            offset += 1
        return self.next

    def dead_between(self, first: int, next_: int) -> list[int]:
        """Offsets in [first, next_) without a record."""
        first, next_ = max(first, self._base), min(next_, self.next)
        if first >= next_:
            return []
        piece = self._view()[first - self._base : next_ - self._base]
        return [first + int(at) for at in np.flatnonzero(piece == DEAD)]

    def each_remove(self, offsets: Iterable[int], removed: Callable[[int, str], None]) -> None:
        """Remove several; `removed` hears offset and subject of each that was there."""
        for offset in offsets:
            subject = self.subject_at(offset)
            if subject is not None:
                self.remove(offset)
                removed(offset, subject)
