"""Everything that an index on disk holds, as one stream of checked items: `python -m oncelog.storage.index.dump DIR`.

A process of its own, because LMDB maps its file and trusts it: a damaged page can end the process that reads it. The
reader of the stream then sees it end without the END item, and knows.

Item: kind u8, key bytes u32, value bytes u32, key, value. First POSITION, then ROW, PLACE and ID each in order of key,
DAMAGE at most once, at the place where reading stopped, and END.
"""

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import BinaryIO, Final

import msgspec

from oncelog.core.rows import Table
from oncelog.errors import Corruption, StorageError
from oncelog.storage.index.id_run_file import check_run, file_of
from oncelog.storage.index.interface import REBUILD_HINT, Position
from oncelog.storage.index.lmdb_index import DATA_NAME, META_KEY, LmdbIndex, describe_key, extent_of
from oncelog.storage.index.places import PLACE_BYTES, split_rows

_HEAD: Final = Struct("<BII")
EXTENT: Final = Struct(">Q")


class Kind(IntEnum):
    POSITION = 0
    ROW = 1  # key: table number and encoded key
    PLACE = 2  # key: extent; value: one packed row
    ID = 3
    DAMAGE = 4  # value: what, file, position, hint
    END = 5


Item = tuple[Kind, bytes, bytes]


def items_of(directory: Path) -> Iterator[Item]:
    """What the index in `directory` holds. Damage that can be named is an item, not an exception."""
    try:
        with contextlib.closing(LmdbIndex(directory, lock=False)) as index:
            yield Kind.POSITION, b"", msgspec.msgpack.encode(index.refresh())
            for info in index.named_runs():
                check_run(file_of(directory, info.number, "run"))
            for key, value in index.all_values():
                extent = extent_of(key)
                if extent is not None and len(value) % PLACE_BYTES == 0:
                    for row in split_rows(value):
                        yield Kind.PLACE, EXTENT.pack(extent), row
                elif key[0] < len(Table):
                    yield Kind.ROW, key, value
                elif key != META_KEY:
                    raise Corruption(f"nothing is stored under {describe_key(key)}", file=str(directory / DATA_NAME))
            for id_hash, id_value in index.all_ids():
                yield Kind.ID, id_hash, id_value
    except StorageError as error:
        where = (error.what, error.file or str(directory), error.position, error.hint or REBUILD_HINT)
        yield Kind.DAMAGE, b"", msgspec.msgpack.encode(where)
    yield Kind.END, b"", b""


def write_items(directory: Path, out: BinaryIO) -> None:
    for kind, key, value in items_of(directory):
        out.write(_HEAD.pack(kind, len(key), len(value)) + key + value)
    out.flush()


class IndexDump:
    """Runs the other process and reads its items. A context manager, so that the process ends in any case."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process = subprocess.Popen(
            [sys.executable, "-m", "oncelog.storage.index.dump", os.fspath(directory)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout

    def __enter__(self) -> "IndexDump":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        self._out.close()

    def position(self) -> Position:
        """How far the index is: the first item. Raises `Corruption` if it cannot be read."""
        kind, _, value = next(self.items())
        assert kind is Kind.POSITION
        return msgspec.msgpack.decode(value, type=Position)

    def items(self) -> Iterator[Item]:
        """The items that follow, up to the end. Raises `Corruption` where the index is damaged."""
        while True:
            head = self._out.read(_HEAD.size)
            if len(head) < _HEAD.size:
                raise self._ended()
            kind, key_bytes, value_bytes = _HEAD.unpack(head)
            key, value = self._out.read(key_bytes), self._out.read(value_bytes)
            if len(value) < value_bytes:
                raise self._ended()
            if kind == Kind.END:
                return
            if kind == Kind.DAMAGE:
                what, file, position, hint = msgspec.msgpack.decode(value, type=tuple[str, str, int, str])
                raise Corruption(what, file=file, position=position, hint=hint)
            yield Kind(kind), key, value

    def _ended(self) -> Corruption:
        code = self._process.wait()
        how = f"signal {-code}" if code < 0 else f"code {code}"
        what = f"the index cannot be read: the process that read it ended with {how}"
        return Corruption(what, file=str(self._directory / DATA_NAME), hint=REBUILD_HINT)


def main(arguments: list[str]) -> int:
    # It may well crash; nobody wants a terabyte of address space as a core file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    write_items(Path(arguments[0]), sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
