"""What the index is to everyone else: the reading side, the writing side, and the builder between them.

The index is derived: every byte of it follows from the journal, and losing it costs a rebuild. It knows the rows of
`core.rows`, the ids of `core.message_id`, and the place of every batch, all as of one `Position`.

Two implementations keep the same promises: `LmdbIndex`/`LmdbWriter` on disk, `MemoryIndex` for both sides.

Invariants:
- Rows, places, ids and position change in one atomic step. Whoever sees a position sees everything up to it.
- A reader may see more than the position its last `refresh` returned, never less.
"""

from pathlib import Path
from typing import Final, Protocol

import msgspec

from oncelog.core.row_codec import encode_key
from oncelog.core.rows import Key, Table
from oncelog.core.state import Row
from oncelog.errors import Corruption

KEY_BYTES_MAX: Final = 510
"""LMDB takes keys of up to 511 bytes, and one is the table's number."""

REBUILD_HINT: Final = "remove the index directory: it is derived, and the next start rebuilds it from the journal"


def index_damage(what: str, path: Path, position: int) -> Corruption:
    """Damage of a file of the index."""
    return Corruption(what, file=str(path), position=position, hint=REBUILD_HINT)


NOTHING_INDEXED: Final = -1
"""`Position.group` of an empty index: group numbers start at 1."""

WHOLE_EXTENT: Final = 2**64 - 1
"""As a floor in `Changes.cuts`: no row of the extent is needed any more."""


class Position(msgspec.Struct, gc=False, array_like=True):
    """How far the index is, and the counters that no row holds, as of there."""

    group: int = NOTHING_INDEXED
    entry_number: int = 0
    time_ns: int = 0
    next_id: int = 1
    next_producer_id: int = 1

    @property
    def after(self) -> int | None:
        """Where reading the journal goes on: behind this group, or from the front."""
        return None if self.group == NOTHING_INDEXED else self.group


class Changes(msgspec.Struct):
    """What one commit of the index holds. Bytes, not objects: a row changed later must not change what is stored."""

    before: Position
    """What the changes were computed from. A writer refuses them if the index stands elsewhere."""
    position: Position
    rows: list[tuple[Table, bytes, bytes | None]]
    """(table, encoded key, encoded row); None removes the row."""
    places: dict[int, bytearray]
    """Extent -> packed rows that go behind those it has, ascending by first offset."""
    moved: dict[int, list[bytes]]
    """Extent -> packed rows that replace the row of the same first offset, or stand beside it if there is none."""
    cuts: dict[int, int]
    """Extent -> floor: rows that end at or below it go, and with a link the whole extent that it names."""
    ids: dict[bytes, bytes]


class Index(Protocol):
    """What the server reads."""

    def refresh(self) -> Position:
        """Look at the newest commit."""

    def get(self, table: Table, key: Key) -> Row | None:
        """A fresh object. A key that no row can have (too long, not text) is absent, never an error."""

    def find_ids(self, hashes: list[bytes]) -> dict[bytes, bytes]:
        """The packed values of those ids that are known."""

    def places_from(self, extent: int, offset: int, limit: int) -> list[bytes]:
        """The packed row with the largest first offset that is not above `offset`, and those that follow, at most
        `limit`; from the first row on if none begins so early."""

    def scan(
        self,
        table: Table,
        after: Key | None,
        limit: int,
        prefix: str = "",
        skipped: list[Corruption] | None = None,
    ) -> list[tuple[Key, Row]]:
        """Rows in order of key, behind `after`. `prefix` is of a key that begins with text. Raises Corruption at a row
        that is damaged; if `skipped` is given, puts it there and goes on."""

    def close(self) -> None: ...


class IndexWriter(Protocol):
    """What the builder writes."""

    def commit(self, changes: Changes) -> None:
        """All of it or nothing. Raises `DiskFull` if there is no room, and may then be asked again."""

    def maintain(self) -> bool:
        """One step of work that changes nothing a reader can see, such as merging; False if there is none."""

    def close(self) -> None: ...


class Done(msgspec.Struct, gc=False, tag=True):
    """The index reaches this far."""

    group: int
    entry_number: int
    journal_bytes: int
    """Journal payload bytes replayed since the last `Done`."""


class Full(msgspec.Struct, gc=False, tag=True):
    """No room. The builder tries again by itself; meanwhile the index falls behind."""

    reason: str


class Died(msgspec.Struct, gc=False, tag=True):
    """The builder is gone and will answer nothing more."""

    reason: str
    exit_code: int


Reply = Done | Full | Died


class IndexBuilder(Protocol):
    """Keeps the index up to date, in this process (`InlineBuilder`) or beside it (`ChildBuilder`)."""

    def request(self, group: int) -> None:
        """Index everything up to `group`, which must be durable. Requests may be repeated and overtake each other."""

    def fileno(self) -> int:
        """Becomes readable when `replies` has something; -1 if replies are there as soon as `request` returns."""

    def replies(self) -> list[Reply]:
        """What happened since the last call, without waiting."""

    def restart(self) -> None:
        """Begin anew after `Died`; `fileno` may be another one then."""

    def stop(self) -> None:
        """End it. What is not committed is built again at the next start."""


def index_key(table: Table, key: Key) -> bytes | None:
    """The bytes of a key as the index stores it; None if no row can have such a key."""
    for part in key if isinstance(key, tuple) else (key,):
        if isinstance(part, str):
            if "\0" in part:
                return None
        elif not 0 <= part < 1 << 64:
            return None
    try:
        data = encode_key(table, key)
    except UnicodeEncodeError:
        return None
    return data if len(data) <= KEY_BYTES_MAX else None
