"""The index in memory: `--in-memory`, simulations, small rebuilds. Both sides in one object.

Everything is kept encoded, and every row handed out is decoded anew: whoever changes a row that it got from here
changes nothing here, exactly as with the index on disk.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from oncelog.core.row_codec import decode_key, decode_row
from oncelog.core.rows import Key, Table
from oncelog.core.state import Row
from oncelog.errors import Corruption
from oncelog.storage.index.interface import WHOLE_EXTENT, Changes, Position, index_key
from oncelog.storage.index.places import PLACE_BYTES, links_in, next_of, put_row, row_at_or_before, split_rows


class MemoryIndex:
    """Implements `Index` and `IndexWriter`."""

    def __init__(self) -> None:
        self._position = Position()
        self._tables: list[dict[bytes, bytes]] = [{} for _ in Table]
        self._sorted: list[list[bytes] | None] = [None for _ in Table]
        """Keys in order, made when a scan asks and dropped when a key comes or goes."""
        self._places: dict[int, bytearray] = {}
        self._ids: dict[bytes, bytes] = {}

    # --- reading -------------------------------------------------------------------------------------------------

    def refresh(self) -> Position:
        return self._position

    def get(self, table: Table, key: Key) -> Row | None:
        data = index_key(table, key)
        row = None if data is None else self._tables[table].get(data)
        return None if row is None else decode_row(table, row)

    def find_ids(self, hashes: list[bytes]) -> dict[bytes, bytes]:
        ids = self._ids
        return {id_hash: ids[id_hash] for id_hash in hashes if id_hash in ids}

    def places_from(self, extent: int, offset: int, limit: int) -> list[bytes]:
        rows = self._places.get(extent, b"")
        begin = max(0, row_at_or_before(rows, offset))
        return split_rows(rows[begin : begin + limit * PLACE_BYTES])

    def scan(
        self,
        table: Table,
        after: Key | None,
        limit: int,
        prefix: str = "",
        skipped: list[Corruption] | None = None,  # noqa: ARG002 - nothing in memory is damaged
    ) -> list[tuple[Key, Row]]:
        keys = self._keys(table)
        head = prefix.encode()
        begin = bisect_left(keys, head)
        if after is not None:
            bound = index_key(table, after)
            assert bound is not None, "a key that an earlier scan returned"
            begin = max(begin, bisect_right(keys, bound))
        found = []
        for data in keys[begin : begin + limit]:
            if not data.startswith(head):
                break
            found.append((decode_key(table, data), decode_row(table, self._tables[table][data])))
        return found

    def close(self) -> None:
        return None

    def _keys(self, table: Table) -> list[bytes]:
        keys = self._sorted[table]
        if keys is None:
            keys = self._sorted[table] = sorted(self._tables[table])
        return keys

    # --- writing -------------------------------------------------------------------------------------------------

    def commit(self, changes: Changes) -> None:
        assert changes.before == self._position, "one builder, and it starts from what is here"
        for table, key, row in changes.rows:
            rows = self._tables[table]
            if row is None:
                if rows.pop(key, None) is not None:
                    self._sorted[table] = None
            else:
                if key not in rows:
                    self._sorted[table] = None
                rows[key] = row
        for extent, added in changes.places.items():
            self._places.setdefault(extent, bytearray()).extend(added)
        for extent, moved in changes.moved.items():
            for place in moved:
                put_row(self._places.setdefault(extent, bytearray()), place)
        for extent, floor in changes.cuts.items():
            self._cut(extent, floor)
        self._ids.update(changes.ids)
        self._position = changes.position

    def maintain(self) -> bool:
        return False

    def _cut(self, extent: int, floor: int) -> None:
        rows = self._places.get(extent)
        if rows is None:
            return
        end = 0
        while end < len(rows) and next_of(rows, end) <= floor:
            end += PLACE_BYTES
        for linked in links_in(rows[:end]):
            self._cut(linked, WHOLE_EXTENT)
        del rows[:end]
        if not rows:
            del self._places[extent]

    # --- everything, in order: for comparisons -------------------------------------------------------------------

    def all_rows(self) -> Iterator[tuple[int, bytes, bytes]]:
        """(table, encoded key, encoded row) in order."""
        for table in Table:
            for key in self._keys(table):
                yield table, key, self._tables[table][key]

    def all_places(self) -> Iterator[tuple[int, bytes]]:
        """(extent, packed row) in order."""
        for extent in sorted(self._places):
            for row in split_rows(self._places[extent]):
                yield extent, row

    def all_ids(self) -> Iterator[tuple[bytes, bytes]]:
        """(hash, value) in order."""
        for id_hash in sorted(self._ids):
            yield id_hash, self._ids[id_hash]
