"""Where streams stood: at an entry, or at a time. For those who want to read up to, or from, a moment that has passed.

Places of a stream ascend by entry and by append time alike (a published stage is one place, of the entry that
published it), so each stream is halved until the border is found. Nothing is kept for this beside the places.

Two limits. Entries of one group become visible at one instant, so an entry in the middle of a group is no cut, and is
refused with its neighbours. And what a txn wrote counts from where it was written, not from where it was committed: a
txn that was open at the moment is on both sides of the border. A batch that the cleaner will have moved lies in a newer
group than its entry's: it has to count by its time, which it keeps (there is no cleaner yet).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from oncelog.core.outcome import EntryAhead, NotACut, Refusal
from oncelog.engine.cut import CutStream
from oncelog.engine.read_view import StreamView
from oncelog.engine.reader import Reader
from oncelog.storage.entry_codec import GROUP_HEADER
from oncelog.storage.index.places import Place
from oncelog.storage.journal import Journal

IsAfter = Callable[[Place], bool]


class Stood(NamedTuple):
    """Records below `offset` were there; those from it on came later. Never below what is retained."""

    topic: str
    partition: int
    stream: StreamView
    offset: int
    is_floor: bool
    """Nothing that is retained was there: the border may lie below, among what was trimmed."""


def at_time(reader: Reader, streams: list[CutStream], time_ns: int) -> Iterator[Stood]:
    """Before the first record that was appended at `time_ns` or later."""
    for found in streams:
        yield _stood(found, *border(reader, found.stream, lambda place: place.time_ns >= time_ns))


def at_entry(
    reader: Reader, journal: Journal, streams: list[CutStream], entry: int, last_entry: int
) -> Iterator[Stood | Refusal]:
    """Behind the records of `entry` and all before it. A refusal ends it."""
    if entry > last_entry:
        yield EntryAhead(entry, last_entry)
        return
    for found in streams:
        offset, before = border(reader, found.stream, lambda place: _first_entry(journal, place.group) > entry)
        if before is not None:
            # The one group that may hold entries on both sides; read whole, so its checksum is looked at.
            first, count = GROUP_HEADER.unpack_from(journal.payload(before.group))
            if entry < first + count - 1:
                yield NotACut(entry, first - 1, first + count - 1)
                return
        yield _stood(found, offset, before)


def _first_entry(journal: Journal, group: int) -> int:
    first: int = GROUP_HEADER.unpack(journal.read(group, 0, GROUP_HEADER.size))[0]
    return first


def _stood(found: CutStream, offset: int, before: Place | None) -> Stood:
    return Stood(found.topic, found.partition, found.stream, offset, found.stream.floor > 0 and before is None)


def border(reader: Reader, stream: StreamView, is_after: IsAfter) -> tuple[int, Place | None]:
    """(the first readable offset whose place is after, the last place that is not)."""
    low, high = stream.floor, stream.stable
    before: Place | None = None
    while low < high:
        place = reader.row_of(stream.stream_id, (low + high) // 2)
        if is_after(place):
            high = max(low, place.first)
        else:
            low, before = min(high, place.next), place
    return low, before
