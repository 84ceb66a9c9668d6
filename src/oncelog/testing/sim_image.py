"""Everything that a log knows, as bytes, wherever it is kept: in the writer's memory, or in the index already.

Two engines that stand at the same entry must have equal images, however they came there: without a break, or through
any number of crashes (P10).
"""

from typing import NamedTuple, TypeVar

from oncelog.core.flat import Stream
from oncelog.core.row_codec import decode_row, encode_row
from oncelog.core.rows import Table
from oncelog.core.state import State
from oncelog.storage.index.interface import index_key
from oncelog.storage.index.memory_index import MemoryIndex
from oncelog.storage.index.places import LINK, Place, Places, split_rows

K = TypeVar("K")


class Image(NamedTuple):
    """Everything the log knows, encoded: the state over the index."""

    entry_number: int
    counters: tuple[int, int, int]
    rows: dict[tuple[int, bytes], bytes]
    ids: dict[bytes, bytes]
    places: dict[tuple[int, int], bytes]
    """Of batches that can still be read."""

    def difference(self, other: "Image") -> str:
        """What to look at first; empty if they are equal."""
        if self.entry_number != other.entry_number or self.counters != other.counters:
            return f"counters {self.entry_number, *self.counters} and {other.entry_number, *other.counters}"
        return (
            _first_difference("row", self.rows, other.rows)
            or _first_difference("id", self.ids, other.ids)
            or _first_difference("place", self.places, other.places)
        )


def _first_difference(kind: str, mine: dict[K, bytes], others: dict[K, bytes]) -> str:
    if mine == others:
        return ""
    key = next(key for key in mine.keys() | others.keys() if mine.get(key) != others.get(key))
    return f"{kind} {key!r}: {mine.get(key)!r} and {others.get(key)!r}"


def image_of(state: State, index: MemoryIndex, places: Places) -> Image:
    """Everything that the writer's private state and the index know together."""
    rows = {(table, key): row for table, key, row in index.all_rows()}
    for table in Table:
        for key, row in state.tables[table].items():
            data = index_key(table, key)
            assert data is not None
            if row is None:
                rows.pop((table, data), None)
            else:
                rows[table, data] = encode_row(row)
    ids = dict(index.all_ids())
    ids.update(state.ids_sealing)
    ids.update(state.ids)
    counters = (state.time_ns, state.next_id, state.next_producer_id)
    return Image(state.entry_number, counters, rows, ids, _readable_places(rows, index, places))


def _readable_places(
    rows: dict[tuple[int, bytes], bytes], index: MemoryIndex, places: Places
) -> dict[tuple[int, int], bytes]:
    """Places of batches at or above their stream's floor, and of stages. What was cut may linger in memory, so only
    what can be reached is compared."""
    found: dict[int, dict[int, bytes]] = {}
    for extent, row in index.all_places():
        found.setdefault(extent, {})[Place.unpack(row).first] = row
    for extent, packed in places._extents.items():
        for row in split_rows(packed):
            found.setdefault(extent, {})[Place.unpack(row).first] = row
    floors: dict[int, int] = {}
    for (table, key), data in rows.items():
        if table == Table.STREAM:
            stream = decode_row(Table.STREAM, data)
            assert isinstance(stream, Stream)
            if not stream.deleted_ns:
                floors[stream.stream_id] = stream.floor
        elif table == Table.STAGE:
            floors[int.from_bytes(key, "big")] = 0
    reachable: dict[tuple[int, int], bytes] = {}
    extents = list(floors)
    while extents:
        extent = extents.pop()
        for first, row in found.get(extent, {}).items():
            place = Place.unpack(row)
            if place.next <= floors.get(extent, 0):
                continue
            reachable[extent, first] = row
            if place.flags & LINK:
                extents.append(place.at)
    return reachable
