"""One run of remembered message ids: its format, and reading its rows. Specified in docs/format/id-runs.md.

A run is immutable: whoever has it open may go on reading when it is removed, descriptors keep the bytes until the last
use ends. Its rows ascend strictly by hash. Which runs are live is not said here, and no run is written here
(`id_merge`).
"""

import os
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from oncelog.errors import Corruption, DiskFault
from oncelog.storage.index.id_filter import CRC_RESIDUE, Filter, Words, disk_faults
from oncelog.storage.index.interface import REBUILD_HINT, index_damage

Rows = npt.NDArray[np.void]
"""Rows as an array of `ROW`."""

HASH_BYTES: Final = 16
VALUE: Final = struct.Struct("<16sQQQ")
"""The value of a row: digest, stream id, offset, time and record count in one word. `core.message_id` packs it."""

ROW: Final = np.dtype(
    [
        ("high", ">u8"),
        ("low", ">u8"),
        ("digest", "V16"),
        ("stream", "<u8"),
        ("offset", "<u8"),
        ("time_and_count", "<u8"),
    ]
)
"""One row, 56 bytes. `high` and `low` are the halves of the hash, big-endian, so that they order as the bytes do."""

BLOCK_ROWS: Final = 73
"""As many rows as fill one page: a cold look-up costs one page, and no block needs padding but the last."""

PAGE_BYTES: Final = 4096
SLICE_ROWS: Final = 1 << 17
"""Rows in hand at one time while merging or checking: 7 MB, some 40 MB with every temporary, however long the runs."""

PAIR: Final = np.dtype([("hash", "V16"), ("value", "V40")])
BLOCK: Final = np.dtype(
    [("hash", "V16", (BLOCK_ROWS,)), ("value", "V40", (BLOCK_ROWS,)), ("ordinal", "<u4"), ("crc", "<u4")]
)
_VALUES_AT: Final = BLOCK_ROWS * HASH_BYTES
HEADER: Final = struct.Struct("<8sIIQQQQ16s16s")
FOOTER: Final = struct.Struct("<8sQI")
_FOOTER_BYTES: Final = FOOTER.size + 4
MAGIC: Final = b"ONCEIDR1"
MAGIC_END: Final = b"1RDIECNO"
VERSION: Final = 1
NAME: Final = re.compile(r"ids-(\d{12})\.(run|filter|span)")

assert ROW.itemsize == PAIR.itemsize == HASH_BYTES + VALUE.size
assert BLOCK.itemsize == PAGE_BYTES


class RunInfo(msgspec.Struct, gc=False, array_like=True):
    """What the index commit stores to name a run."""

    number: int
    """Names the files. Never used twice in one directory."""
    oldest: int
    newest: int
    """Ages in the run, both inclusive: the numbers under which its rows were first written."""
    count: int
    bytes_total: int
    """Size of all its files."""
    span_oldest: int
    """The span filter holds every id of the ages span_oldest..newest; equal to `oldest`, it adds nothing."""
    span_count: int
    span_capacity: int
    """Ids in the span filter, and how many it has room for; 0 if there is none."""


class RunMissing(Corruption):
    """A named run has no file. If the index names other runs by now, it was merged away; if not, it is damage."""


def file_of(directory: Path, number: int, kind: str) -> Path:
    return directory / f"ids-{number:012d}.{kind}"


def joined(parts: Sequence[Rows]) -> Rows:
    # As plain bytes: to join big-endian fields numpy would turn them into native ones, and so turn the hashes around.
    return np.concatenate([part.view(PAIR) for part in parts]).view(ROW)


def halves(rows: Rows) -> tuple[Words, Words]:
    return rows["high"].astype(np.uint64), rows["low"].astype(np.uint64)


class RunFile:
    """The rows of one run, open for reading. Closed with the last reference, never under the feet of a reader."""

    def __init__(self, directory: Path, info: RunInfo | None = None, number: int = 0) -> None:
        self._fd = -1
        self.number = number if info is None else info.number
        self.path = file_of(directory, self.number, "run")
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as missing:
            raise RunMissing("run missing", file=str(self.path), hint=REBUILD_HINT) from missing
        self._seed = self.number & 0xFFFFFFFF
        self._read_header()
        if info is not None and (info.oldest, info.newest, info.count) != (self.oldest, self.newest, self.count):
            raise self._damage("run is not the one that was named", 0)
        self._block_count = -(-self.count // BLOCK_ROWS)
        self._fences_at = PAGE_BYTES * (1 + self._block_count)
        self._read_fences()
        # Look-ups jump about; read-ahead would fetch pages that nobody wants.
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def find(self, key: bytes) -> bytes | None:
        prefix = int.from_bytes(key[:8], "big")
        ordinal = bisect_right(self._fences, prefix) - 1
        while ordinal >= 0:
            value = self._find_in_block(ordinal, key)
            if value is not None or self._fences[ordinal] < prefix:
                return value
            # The block begins with the same eight bytes: the hash may lie at the end of the one before.
            ordinal -= 1
        return None

    def slices(self, blocks_each: int) -> Iterator[tuple[Rows, Words, Words]]:
        """All rows in order, with the halves of their hashes, some blocks at a time."""
        last = (-1, -1)
        for first in range(0, self._block_count, blocks_each):
            rows = self._read_blocks(first, min(first + blocks_each, self._block_count))
            high, low = halves(rows)
            ascends = (high[1:] > high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] > low[:-1]))
            if last >= (int(high[0]), int(low[0])) or not ascends.all():
                raise self._damage("hashes do not ascend", PAGE_BYTES * (1 + first))
            last = int(high[-1]), int(low[-1])
            yield rows, high, low

    def check(self) -> Iterator[tuple[Words, Words]]:
        """Read everything and compare what the file says twice; yields the halves of all hashes."""
        block = 0
        ends: list[bytes] = []
        for rows, high, low in self.slices(SLICE_ROWS // BLOCK_ROWS):
            fences = high[::BLOCK_ROWS]
            if not np.array_equal(fences, self._fences_array[block : block + len(fences)]):
                raise self._damage("fences are others", self._fences_at + 8 * block)
            block += len(fences)
            hashes = rows.view(PAIR)["hash"]
            ends = [ends[0] if ends else hashes[0].tobytes(), hashes[-1].tobytes()]
            yield high, low
        if ends and ends != [self._smallest, self._largest]:
            raise self._damage("smallest or largest hash is another", 0)

    def _find_in_block(self, ordinal: int, key: bytes) -> bytes | None:
        position = PAGE_BYTES * (1 + ordinal)
        block = self._pread(PAGE_BYTES, position)
        if len(block) != PAGE_BYTES or crc32c(block, self._seed) != CRC_RESIDUE:
            raise self._damage("block damaged", position)
        if block[-8:-4] != ordinal.to_bytes(4, "little"):
            raise self._damage("block of another place", position)
        end = min(BLOCK_ROWS, self.count - ordinal * BLOCK_ROWS) * HASH_BYTES
        at = block.find(key, 0, end)
        while at >= 0:
            if at % HASH_BYTES == 0:
                value_at = _VALUES_AT + at // HASH_BYTES * VALUE.size
                return block[value_at : value_at + VALUE.size]
            # Two neighbouring hashes can spell a third across their border.
            at = block.find(key, at + 1, end)
        return None

    def _read_blocks(self, first: int, following: int) -> Rows:
        position = PAGE_BYTES * (1 + first)
        data = self._pread(PAGE_BYTES * (following - first), position)
        if len(data) != PAGE_BYTES * (following - first):
            raise self._damage("run cut short", position + len(data))
        view = memoryview(data)
        for at in range(0, len(data), PAGE_BYTES):
            if crc32c(view[at : at + PAGE_BYTES], self._seed) != CRC_RESIDUE:
                raise self._damage("block damaged", position + at)
        blocks = np.frombuffer(data, BLOCK)
        if not np.array_equal(blocks["ordinal"], np.arange(first, following)):
            raise self._damage("blocks out of order", position)
        pairs = np.empty((len(blocks), BLOCK_ROWS), PAIR)
        pairs["hash"], pairs["value"] = blocks["hash"], blocks["value"]
        return pairs.reshape(-1)[: self.count - first * BLOCK_ROWS].view(ROW)

    def _read_header(self) -> None:
        head = self._pread(PAGE_BYTES, 0)
        if len(head) != PAGE_BYTES or crc32c(head) != CRC_RESIDUE:
            raise self._damage("run header damaged", 0)
        fields = HEADER.unpack_from(head)
        magic, version, block_rows, number, self.oldest, self.newest, self.count, self._smallest, self._largest = fields
        if magic != MAGIC or version != VERSION or block_rows != BLOCK_ROWS:
            raise self._damage(f"not a run of version {VERSION}", 0)
        if number != self.number:
            raise self._damage(f"file of run {number}", 0)

    def _read_fences(self) -> None:
        fences_bytes = 8 * self._block_count
        # One byte more than there should be, so that a longer file shows.
        tail = self._pread(fences_bytes + _FOOTER_BYTES + 1, self._fences_at)
        fences, footer = tail[:fences_bytes], tail[fences_bytes:]
        if len(footer) != _FOOTER_BYTES or crc32c(footer) != CRC_RESIDUE:
            raise self._damage("run footer damaged", self._fences_at + fences_bytes)
        magic, block_count, fences_crc = FOOTER.unpack_from(footer)
        if magic != MAGIC_END or block_count != self._block_count:
            raise self._damage("run footer is another", self._fences_at + fences_bytes)
        if crc32c(fences, self._seed) != fences_crc:
            raise self._damage("fences damaged", self._fences_at)
        self._fences = memoryview(fences).cast("Q")
        self._fences_array: Words = np.frombuffer(fences, np.uint64)

    def _pread(self, length: int, position: int) -> bytes:
        try:
            return os.pread(self._fd, length, position)
        except OSError as fault:
            raise DiskFault(fault.strerror or str(fault), file=str(self.path), position=position) from fault

    def _damage(self, what: str, position: int) -> Corruption:
        return index_damage(what, self.path, position)


def check_run(path: Path) -> int:
    """Read everything of a run (the path of its `.run` file) and compare it; returns its count of rows."""
    match = NAME.fullmatch(path.name)
    assert match is not None, "the path of a run"
    number = int(match[1])
    filters: list[tuple[Path, Filter]] = []
    with disk_faults(path):
        run = RunFile(path.parent, number=number)
        for kind in ("filter", "span"):
            name = file_of(path.parent, number, kind)
            if kind == "filter" or name.exists():
                filters.append((name, Filter(name)))
    for index, (name, opened) in enumerate(filters):
        header = opened.header
        # The filter has the ages of the run, the span may begin earlier.
        wrong_oldest = header.oldest > run.oldest if index else header.oldest != run.oldest
        if header.number != number or header.newest != run.newest or wrong_oldest:
            raise index_damage("filter of another run", name, 0)
    count = 0
    for high, low in run.check():
        count += len(high)
        for name, opened in filters:
            if not opened.may_hold(high, low).all():
                raise index_damage("filter lacks an id of its run", name, 0)
    return count
