"""Two indexes side by side: what was rebuilt from the journal, and the items of the one on disk.

Both sides come in the same order, so one walk over both finds every difference, with the memory of one item each.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from oncelog.core.flat import Stream
from oncelog.core.rows import Table
from oncelog.storage.index.dump import EXTENT, Item, Kind
from oncelog.storage.index.interface import Index
from oncelog.storage.index.lmdb_index import describe_key, row_key
from oncelog.storage.index.places import Place, first_of, next_of

DIFFERENCES_MAX: Final = 20
"""After so many it is clear that the index must be rebuilt; a million lines would not say more."""


class WholeIndex(Index, Protocol):
    """An index that can be read from one end to the other."""

    def all_rows(self) -> Iterable[tuple[int, bytes, bytes]]: ...

    def all_places(self) -> Iterable[tuple[int, bytes]]: ...

    def all_ids(self) -> Iterable[tuple[bytes, bytes]]: ...


def whole_items(index: WholeIndex) -> Iterator[Item]:
    """Everything in an index but its position, as `dump` orders it."""
    for table, key, row in index.all_rows():
        yield Kind.ROW, row_key(Table(table), key), row
    for extent, place in index.all_places():
        yield Kind.PLACE, EXTENT.pack(extent), place
    for id_hash, value in index.all_ids():
        yield Kind.ID, id_hash, value


def differences(rebuilt: WholeIndex, stored: Iterator[Item]) -> Iterator[str]:
    """What the index on disk has otherwise, one sentence each, at most DIFFERENCES_MAX."""
    expected = _retained(rebuilt, whole_items(rebuilt))
    actual = _retained(rebuilt, stored)
    found = 0
    left, right = next(expected, None), next(actual, None)
    while (left is not None or right is not None) and found < DIFFERENCES_MAX:
        if right is None or (left is not None and _order(left) < _order(right)):
            assert left is not None
            yield f"missing: {_describe(left)}"
            found += 1
            left = next(expected, None)
        elif left is None or _order(right) < _order(left):
            yield f"not in the journal: {_describe(right)}"
            found += 1
            right = next(actual, None)
        else:
            if left[2] != right[2]:
                yield f"other than the journal says: {_describe(left)}"
                found += 1
            left, right = next(expected, None), next(actual, None)


def _order(item: Item) -> tuple[int, bytes, int]:
    kind, key, value = item
    return kind, key, first_of(value) if kind is Kind.PLACE else 0


def _retained(rebuilt: WholeIndex, items: Iterator[Item]) -> Iterator[Item]:
    """Leave out places below a stream's floor: they go when the builder gets to it, and nobody asks for them."""
    extent = -1
    floor = 0
    for item in items:
        kind, key, value = item
        if kind is Kind.PLACE:
            if EXTENT.unpack(key)[0] != extent:
                (extent,) = EXTENT.unpack(key)
                row = rebuilt.get(Table.STREAM, extent)
                floor = row.floor if isinstance(row, Stream) else 0
            if next_of(value) <= floor:
                continue
        yield item


def _describe(item: Item) -> str:
    kind, key, value = item
    if kind is Kind.PLACE:
        place = Place.unpack(value)
        return f"the place of offset {place.first} of extent {EXTENT.unpack(key)[0]} (group {place.group})"
    if kind is Kind.ID:
        return f"message id {key.hex()}"
    return describe_key(key)
