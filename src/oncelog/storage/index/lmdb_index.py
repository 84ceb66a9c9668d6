"""The index on disk, reading side: one LMDB environment beside the runs of message ids, as of one commit.

Everything of the environment is in its main table, told apart by the first byte of the key:

    0..8    rows: table number, key of `core.row_codec`        -> row
    0x80    places: extent u64, first offset u64, big endian   -> up to PLACES_PER_VALUE packed rows of that extent
    0xff    the meta value: format version, position, named runs of ids, number of the next run

Every value ends with the CRC32C of key and value, checked on every read: LMDB checks nothing, and a page written to a
failing device must be named, not served. Runs of ids carry their own checksums.

One process writes (`lmdb_writer.py`); any number read. A read transaction lasts for one call, so a reader never keeps
old pages from being reused.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any, Final

import lmdb
import msgspec
from crc32c import crc32c

from oncelog.core.flat import Stream
from oncelog.core.row_codec import decode_key, decode_row
from oncelog.core.rows import Key, Table, Topic, TopicConfig
from oncelog.core.state import Row
from oncelog.errors import Corruption, DiskFault, DiskFull, StorageError
from oncelog.storage.disk import disk_error
from oncelog.storage.index.id_run_file import RunInfo, RunMissing
from oncelog.storage.index.id_runs import IdRuns
from oncelog.storage.index.interface import REBUILD_HINT, Position, index_key
from oncelog.storage.index.places import PLACE_BYTES, row_at_or_before, split_rows

MAP_BYTES: Final = 1 << 40
"""Address space, not memory and not disk: far more than any index, so that it never has to be enlarged."""

DATA_NAME: Final = "data.mdb"

PLACES_PER_VALUE: Final = 84
"""A full value takes one page for itself: 49 bytes per place on disk. Half of it would stay inline, two to a page, and
LMDB splits such pages in the middle, which leaves every second one half empty: 103 bytes (measured)."""

_LMDB_META: Final = Struct("<16xI20xI92xQQ")
"""Of a meta page: magic, page size, last page, transaction."""
_LMDB_MAGIC: Final = 0xBEEFC0DE
_META_PAGE_BYTES: Final = 4096
_UNWRITTEN_PAGES_MAX: Final = 256

PLACES_PREFIX: Final = b"\x80"
META_KEY: Final = b"\xff"
META_VERSION: Final = 1
_PLACE_KEY: Final = Struct(">cQQ")
PLACE_KEY_BYTES: Final = _PLACE_KEY.size
_CRC: Final = Struct("<I")
CRC_BYTES: Final = _CRC.size
_PREFIXES: Final = tuple(bytes([table]) for table in Table)
_CONFIGS_MAX: Final = 1024

assert PLACES_PREFIX[0] > max(Table)


class Meta(msgspec.Struct, array_like=True):
    """What one commit says about itself."""

    version: int = META_VERSION
    position: Position = msgspec.field(default_factory=Position)
    runs: list[RunInfo] = []
    next_run: int = 1


_decode_meta: Final = msgspec.msgpack.Decoder(Meta).decode
_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode


def check_length(path: Path) -> None:
    """Raise Corruption if the file is shorter than its meta pages say. LMDB maps it without a look: the first access
    behind its end would kill the process (SIGBUS).

    A file may lack its very last pages without harm: those that a transaction took and gave back were never written.
    They are added here as zeros, so that nothing maps what is not there; what should have been in them does not match
    its checksum.
    """
    try:
        with path.open("rb+" if os.access(path, os.W_OK) else "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                return
            page_bytes, last_page = _META_PAGE_BYTES, -1
            for number in range(2):
                file.seek(number * page_bytes)
                meta = file.read(_LMDB_META.size)
                if len(meta) < _LMDB_META.size:
                    raise Corruption("the index is cut short", file=str(path), position=size, hint=REBUILD_HINT)
                magic, page_bytes, last, _ = _LMDB_META.unpack(meta)
                if magic != _LMDB_MAGIC or page_bytes < _META_PAGE_BYTES:
                    raise Corruption("the index is no LMDB file", file=str(path), position=0, hint=REBUILD_HINT)
                last_page = max(last_page, last)
            wanted = (last_page + 1) * page_bytes
            if size < wanted - _UNWRITTEN_PAGES_MAX * page_bytes:
                what = f"the index is cut short: it has {size:,} bytes and not {wanted:,}"
                raise Corruption(what, file=str(path), position=size, hint=REBUILD_HINT)
            if size < wanted and file.writable():
                os.ftruncate(file.fileno(), wanted)
    except FileNotFoundError:
        return
    except OSError as error:
        raise disk_error(error, "cannot read the index", str(path)) from error


def open_environment(directory: Path, *, write: bool, lock: bool = True, durable: bool = True) -> Any:
    """The environment in `directory`. A process may have it open once."""
    check_length(directory / DATA_NAME)
    try:
        if not write and lock and not (directory / DATA_NAME).exists():
            # A reader cannot open what is not there yet, and a new log has no builder yet.
            lmdb.open(os.fspath(directory), map_size=MAP_BYTES).close()
        return lmdb.open(
            os.fspath(directory), map_size=MAP_BYTES, readonly=not write, lock=lock, sync=durable, max_spare_txns=4
        )
    except lmdb.Error as error:
        raise storage_error(error, directory) from error


def storage_error(error: Exception, directory: Path) -> StorageError:
    """What LMDB says, in our words."""
    file = str(directory / DATA_NAME)
    if isinstance(error, (lmdb.DiskError, lmdb.MapFullError)):
        return DiskFull("no room for the index", file=file, hint="free space on the device; reads go on")
    damaged = (
        lmdb.CorruptedError,
        lmdb.PageNotFoundError,
        lmdb.PanicError,
        lmdb.InvalidError,
        lmdb.VersionMismatchError,
        lmdb.CursorFullError,
        lmdb.IncompatibleError,
        lmdb.BadValsizeError,
    )
    if isinstance(error, damaged):
        return Corruption(f"the index is damaged: {error}", file=file, hint=REBUILD_HINT)
    return DiskFault(f"the index cannot be used: {error}", file=file, hint="check the device")


def seal(key: bytes, value: bytes | bytearray) -> bytes:
    """A value as it is stored under `key`."""
    return bytes(value) + _CRC.pack(crc32c(value, crc32c(key)))


def unseal(key: bytes, value: bytes, directory: Path) -> bytes:
    """The value that was stored under `key`. Raises `Corruption` if the bytes are others."""
    content = value[:-CRC_BYTES]
    if len(value) < CRC_BYTES or _CRC.unpack(value[-CRC_BYTES:])[0] != crc32c(content, crc32c(key)):
        what = f"a value of the index does not match its checksum: {describe_key(key)}"
        raise Corruption(what, file=str(directory / DATA_NAME), hint=REBUILD_HINT)
    return content


def describe_key(key: bytes) -> str:
    """A stored key in words, whatever its bytes are."""
    if key == META_KEY:
        return "the meta value"
    if key.startswith(PLACES_PREFIX) and len(key) == PLACE_KEY_BYTES:
        _, extent, first = _PLACE_KEY.unpack(key)
        return f"places of extent {extent} from offset {first}"
    if key and key[0] < len(Table):
        table = Table(key[0])
        try:
            return f"table {table.name}, key {decode_key(table, key[1:])!r}"
        except ValueError:
            return f"table {table.name}, key bytes {key[1:].hex()}"
    return f"key bytes {key.hex()}"


def row_key(table: Table, data: bytes) -> bytes:
    return _PREFIXES[table] + data


def place_key(extent: int, first: int) -> bytes:
    return _PLACE_KEY.pack(PLACES_PREFIX, extent, first)


def extent_of(key: bytes) -> int | None:
    """The extent of a place key; None if it is none."""
    return _PLACE_KEY.unpack(key)[1] if len(key) == PLACE_KEY_BYTES and key.startswith(PLACES_PREFIX) else None


def read_meta(transaction: Any, directory: Path) -> Meta:
    """The newest commit's own words; those of an empty index if there is none."""
    value = transaction.get(META_KEY)
    if value is None:
        return Meta()
    content = unseal(META_KEY, value, directory)
    try:
        meta = _decode_meta(content)
    except msgspec.DecodeError as error:
        raise _of_another_version(directory) from error
    if meta.version != META_VERSION:
        raise _of_another_version(directory)
    return meta


def encode_meta(meta: Meta) -> bytes:
    return seal(META_KEY, _encode(meta))


def _of_another_version(directory: Path) -> StorageError:
    return StorageError("the index has another format", file=str(directory / DATA_NAME), hint=REBUILD_HINT)


def seek_value(cursor: Any, extent: int, offset: int) -> bool:
    """Put the cursor on the value of `extent` with the largest first offset <= `offset`; False if there is none."""
    bound = place_key(extent, offset + 1) if offset + 1 < 1 << 64 else place_key(extent + 1, 0)
    found = cursor.prev() if cursor.set_range(bound) else cursor.last()
    return bool(found) and extent_of(cursor.key()) == extent


class LmdbIndex:
    """Implements `Index`."""

    def __init__(self, directory: Path, *, environment: Any = None, lock: bool = True) -> None:
        """Opens an environment of its own, unless the writer of the same process hands out its one."""
        self._directory = directory
        self._owned = environment is None
        self._environment = open_environment(directory, write=False, lock=lock) if self._owned else environment
        self._runs = IdRuns(directory)
        self._named: list[RunInfo] = []
        self._configs: dict[bytes, TopicConfig] = {}

    def refresh(self) -> Position:
        meta = self._meta()
        while meta.runs != self._named:
            try:
                self._runs.refresh(meta.runs)
                self._named = meta.runs
            except RunMissing:
                # Merged away between the two looks, or lost. Only a list that still names it tells which.
                named, meta = meta.runs, self._meta()
                if meta.runs == named:
                    raise
        return meta.position

    def get(self, table: Table, key: Key) -> Row | None:
        data = index_key(table, key)
        if data is None:
            return None
        stored_key = _PREFIXES[table] + data
        try:
            transaction = self._environment.begin()
            value = transaction.get(stored_key)
            transaction.abort()
        except lmdb.Error as error:
            raise storage_error(error, self._directory) from error
        return None if value is None else self._row(table, stored_key, value)

    def find_ids(self, hashes: list[bytes]) -> dict[bytes, bytes]:
        return self._runs.get_many(hashes)

    def places_from(self, extent: int, offset: int, limit: int) -> list[bytes]:
        rows = bytearray()
        try:
            with self._environment.begin() as transaction, transaction.cursor() as cursor:
                on_value = seek_value(cursor, extent, offset) or cursor.set_range(place_key(extent, 0))
                begin = -1
                while on_value and extent_of(cursor.key()) == extent and len(rows) < limit * PLACE_BYTES:
                    try:
                        value = self._unseal_places(cursor.key(), cursor.value())
                    except Corruption:
                        if rows:
                            break  # what stands before it is sound; who asks from there on is told
                        raise
                    if begin < 0:
                        begin = max(0, row_at_or_before(value, offset))
                        value = value[begin:]
                    rows += value
                    on_value = cursor.next()
        except lmdb.Error as error:
            raise storage_error(error, self._directory) from error
        return split_rows(rows[: limit * PLACE_BYTES])

    def scan(
        self,
        table: Table,
        after: Key | None,
        limit: int,
        prefix: str = "",
        skipped: list[Corruption] | None = None,
    ) -> list[tuple[Key, Row]]:
        head = _PREFIXES[table] + prefix.encode()
        begin = head
        if after is not None:
            bound = index_key(table, after)
            assert bound is not None, "a key that an earlier scan returned"
            begin = max(begin, _PREFIXES[table] + bound)
        found: list[tuple[Key, Row]] = []
        try:
            with self._environment.begin() as transaction, transaction.cursor() as cursor:
                on_row = cursor.set_range(begin)
                if on_row and after is not None and cursor.key() == begin:
                    on_row = cursor.next()
                while on_row and len(found) < limit and cursor.key().startswith(head):
                    key = cursor.key()
                    try:
                        found.append((self._decoded_key(table, key), self._row(table, key, cursor.value())))
                    except Corruption as error:
                        if skipped is None:
                            raise
                        skipped.append(error)
                    on_row = cursor.next()
        except lmdb.Error as error:
            raise storage_error(error, self._directory) from error
        return found

    def close(self) -> None:
        self._runs.refresh(())
        if self._owned:
            self._environment.close()

    # --- everything, in order: for comparisons -------------------------------------------------------------------

    def named_runs(self) -> list[RunInfo]:
        """The runs of ids that the newest commit names."""
        return self._meta().runs

    def all_values(self) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) as stored, in order, checked."""
        previous = b""
        try:
            with self._environment.begin() as transaction, transaction.cursor() as cursor:
                on_value = cursor.first()
                while on_value:
                    key, value = cursor.item()
                    if key <= previous:
                        # A damaged tree can lead round in a circle.
                        what = f"keys do not ascend at {describe_key(key)}"
                        raise Corruption(what, file=str(self._directory / DATA_NAME), hint=REBUILD_HINT)
                    yield key, unseal(key, value, self._directory)
                    previous = key
                    on_value = cursor.next()
        except lmdb.Error as error:
            raise storage_error(error, self._directory) from error

    def all_rows(self) -> Iterator[tuple[int, bytes, bytes]]:
        """(table, encoded key, encoded row) in order."""
        for key, value in self.all_values():
            if key[0] < len(Table):
                yield key[0], key[1:], value

    def all_places(self) -> Iterator[tuple[int, bytes]]:
        """(extent, packed row) in order."""
        for key, value in self.all_values():
            extent = extent_of(key)
            if extent is not None:
                for row in split_rows(value):
                    yield extent, row

    def all_ids(self) -> Iterator[tuple[bytes, bytes]]:
        """(hash, value) in order, as of the last `refresh`."""
        return self._runs.rows()

    # --- values --------------------------------------------------------------------------------------------------

    def _meta(self) -> Meta:
        try:
            with self._environment.begin() as transaction:
                return read_meta(transaction, self._directory)
        except lmdb.Error as error:
            raise storage_error(error, self._directory) from error

    def _unseal_places(self, key: bytes, value: bytes) -> bytes:
        rows = unseal(key, value, self._directory)
        if not rows or len(rows) % PLACE_BYTES:
            raise Corruption(f"{describe_key(key)} are {len(rows)} bytes", file=str(self._directory / DATA_NAME))
        return rows

    def _decoded_key(self, table: Table, key: bytes) -> Key:
        try:
            return decode_key(table, key[1:])
        except ValueError as error:
            file = str(self._directory / DATA_NAME)
            raise Corruption(f"not a key: {describe_key(key)}", file=file, hint=REBUILD_HINT) from error

    def _row(self, table: Table, key: bytes, value: bytes) -> Row:
        try:
            row = decode_row(table, unseal(key, value, self._directory))
        except msgspec.DecodeError as error:
            raise _of_another_version(self._directory) from error
        if type(row) is Stream or type(row) is Topic:
            row.config = self._shared(row.config)
        return row

    def _shared(self, config: TopicConfig) -> TopicConfig:
        """One object for equal settings: a million streams mostly have a handful. Nobody changes a config in place."""
        content = _encode(config)
        shared = self._configs.get(content)
        if shared is None:
            if len(self._configs) >= _CONFIGS_MAX:
                self._configs.clear()
            shared = self._configs[content] = config
        return shared
