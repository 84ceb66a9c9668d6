"""Where a table lies: one address that means the same folder to the driver and to every worker.

An address is an absolute path or a URI. A path on a cluster must lead to the same folder on every machine; an object
store (`s3:`, `abfss:`, `gs:`, and `hdfs:`) is the same from everywhere. Both sides reach a store through delta-rs, so
that one set of options (keys, region, endpoint) is enough for files and for commits.

Nothing here trusts what a worker says: `footer_of` and `missing_of` look.
"""

import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

STORE_SCHEMES: Final = ("s3", "s3a", "abfs", "abfss", "az", "adl", "azure", "gs", "hdfs")
"""Addresses that delta-rs knows besides folders."""


class Footer(NamedTuple):
    """What a Parquet file says of itself."""

    size: int
    rows: int


class PlaceUnknown(ValueError):
    """The address is none that a table can have."""


class TablePlace(msgspec.Struct, frozen=True):
    """A table's folder. It travels to the workers, options included."""

    address: str
    """An absolute path, or a URI of an object store."""
    options: dict[str, str] = {}
    """Of the object store, as delta-rs names them."""

    @property
    def folder(self) -> Path | None:
        """The folder, if it is in a file system that is mounted."""
        return None if "://" in self.address else Path(self.address)

    def new_file(self, path: str) -> "NewFile":
        """A file below the place that is not there yet."""
        return _LocalFile(Path(self.address), path) if self.folder is not None else _StoredFile(self, path)

    def replacing_file(self, path: str) -> "NewFile":
        """A file below the place that takes the place of the one that is there, at once, when it is closed."""
        if self.folder is None:
            return _StoredFile(self, path)
        return _LocalFile(self.folder, f".{path}.{uuid.uuid4().hex}", path)

    def size_of(self, path: str) -> int:
        """The size of the file; -1 if it is not there."""
        if self.folder is not None:
            try:
                return (self.folder / path).stat().st_size
            except FileNotFoundError:
                return -1
        (info,) = self.store().get_file_info([path])
        return int(info.size) if info.is_file else -1

    def footer_of(self, path: str) -> Footer | None:
        """What the file says of itself; None if it is not there. Raises pa.ArrowException if it is no Parquet file."""
        if self.folder is not None:
            whole = self.folder / path
            try:
                return Footer(whole.stat().st_size, pq.read_metadata(whole).num_rows)
            except FileNotFoundError:
                return None
        system = self.store()
        (info,) = system.get_file_info([path])
        if not info.is_file:
            return None
        return Footer(int(info.size), pq.read_metadata(path, filesystem=system).num_rows)

    def missing_of(self, paths: Iterable[str]) -> list[str]:
        """Those of the paths below the place at which there is no file."""
        there = self._names()
        return [path for path in paths if path not in there and unquote(path) not in there]

    def relative(self, address: str) -> str:
        """The path below the place of a file that the table names by its whole address."""
        return address.removeprefix(self.address.rstrip("/")).lstrip("/")

    def store(self) -> Any:
        """A file system of pyarrow whose root is the place."""
        from deltalake.fs import DeltaStorageHandler
        from pyarrow import fs

        return fs.PyFileSystem(DeltaStorageHandler(self.address, self.options))

    def _names(self) -> set[str]:
        """Every file below the place, from one listing: a look at each would take a request for each."""
        if self.folder is None:
            from pyarrow import fs

            found = self.store().get_file_info(fs.FileSelector("", recursive=True))
            return {info.path for info in found if info.is_file}
        names: set[str] = set()
        for folder, _, files in os.walk(self.folder):
            below = os.path.relpath(folder, self.folder)
            names.update(file if below == "." else f"{below}/{file}" for file in files)
        return names


def place_of(address: str, options: dict[str, str] | None = None) -> TablePlace:
    """The place of an address as a user writes it. A relative path is below the current folder. Raises PlaceUnknown."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise PlaceUnknown(f"{address} names the host {parts.netloc}; write file:///path for a path")
        return TablePlace(str(Path(unquote(parts.path)).absolute()), dict(options or {}))
    if "://" not in address:
        return TablePlace(str(Path(address).absolute()), dict(options or {}))
    if parts.scheme not in STORE_SCHEMES:
        raise PlaceUnknown(f"{address}: a table is a folder, or in a store ({', '.join(STORE_SCHEMES)})")
    return TablePlace(address.rstrip("/"), dict(options or {}))


# --- writing ---------------------------------------------------------------------------------------------------


class NewFile:
    """Bytes of one file on their way. `close` returns once they cannot be lost; `abandon` leaves no file that counts.

    Parquet's writer is given it as a file of Python, so it has the few methods that such a file needs.
    """

    closed = False

    def write(self, data: Any) -> int:
        """The next bytes."""
        raise NotImplementedError

    def tell(self) -> int:
        """Bytes so far."""
        raise NotImplementedError

    def flush(self) -> None:
        """Parquet's writer asks for it; `close` does what matters."""

    def close(self) -> None:
        """The file is whole."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Nothing refers to the file."""
        raise NotImplementedError


class _LocalFile(NewFile):
    def __init__(self, top: Path, path: str, at_last: str | None = None) -> None:
        self._top = top
        self._whole = top / path
        self._at_last = None if at_last is None else top / at_last
        self._whole.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._whole.open("xb")

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self.closed = True
        self._file.close()
        if self._at_last is not None:
            self._whole.replace(self._at_last)
        sync_folders(self._whole.parent, self._top)

    def abandon(self) -> None:
        self.closed = True
        self._file.close()
        self._whole.unlink(missing_ok=True)


class _StoredFile(NewFile):
    """An upload: the store shows the file once `close` has returned, and not before."""

    def __init__(self, place: TablePlace, path: str) -> None:
        # Below pyarrow's wrapper, which hands over buffers that delta-rs does not take.
        self._upload = place.store().handler._handler.open_output_stream(path)
        self._size = 0

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._upload.write(piece)
        self._size += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        self.closed = True
        self._upload.close()

    def abandon(self) -> None:
        # Not closed, so the store never shows it.
        self.closed = True


def sync_folder(folder: Path) -> None:
    """A name is on disk when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folders(folder: Path, top: Path) -> None:
    """The folder and those above it up to the table's own: each may be new, and stands in the one above."""
    while folder != top:
        sync_folder(folder)
        folder = folder.parent
    sync_folder(top)


def wrong_files(place: TablePlace, told: Iterable[tuple[str, int, int]]) -> list[str]:
    """Looks at every file that the workers say they have written: (path, size, rows). Says what is wrong with each."""
    wrong = []
    for path, size, rows in told:
        try:
            found = place.footer_of(path)
        except (pa.ArrowException, OSError) as error:
            wrong.append(f"{path} cannot be read: {error}")
            continue
        if found is None:
            wrong.append(f"{path} is not there")
        elif found != (size, rows):
            wrong.append(f"{path} has {found.size:,} bytes and {found.rows:,} rows, not {size:,} and {rows:,}")
    return wrong
