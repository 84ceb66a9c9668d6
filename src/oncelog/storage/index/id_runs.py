"""Remembered message ids: immutable runs sorted by hash, written and merged by one process, read by another.

Owns the files of a run (rows, filter, span filter), the merge policy, and lookups. Specified in docs/format/id-runs.md.
Must never decide which runs are live: a run counts only when the index commit names its `RunInfo`; every other file is
a leftover. Must never change a file that anyone could have open.

Invariants:
- A run's rows ascend strictly by hash. Between runs the newer one wins, and newer means the greater age (`newest`), not
  the greater number: a merged run gets a new number but keeps the ages of what it replaced. Live runs share no age.
- When `write_run` or `merge` returns, the files and their names are on the device, so the commit may name them.
- Removing a run that a reader has open is harmless: descriptors and mappings keep the bytes until the last use ends.

Crash stories of the writer:
1. Run written, crash before the commit: nobody names it, `remove_unnamed` takes it away at the next start.
2. Merged run committed, crash before the old runs were removed: they are no longer named, removed likewise.
"""

import contextlib
import os
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from oncelog.errors import Corruption, DiskFault
from oncelog.limits import ID_RUN_IDS_MAX, ID_RUNS_MAX
from oncelog.storage.index.id_filter import (
    CRC_RESIDUE,
    MASK_ARRAY,
    MASKS,
    PATTERN_MASK,
    Filter,
    FilterWriter,
    Words,
    create_exclusive,
    disk_faults,
    split_hash,
    sync_directory,
    write_whole,
)

Rows = npt.NDArray[np.void]
"""Rows as an array of `ROW`."""

HASH_BYTES: Final = 16
VALUE: Final = struct.Struct("<16sQQQ")
"""The value of a row: digest, stream id, offset, time_ms."""

ROW: Final = np.dtype(
    [("high", ">u8"), ("low", ">u8"), ("digest", "V16"), ("stream", "<u8"), ("offset", "<u8"), ("time_ms", "<u8")]
)
"""One row, 56 bytes. `high` and `low` are the halves of the hash, big-endian, so that they order as the bytes do."""

BLOCK_ROWS: Final = 73
"""As many rows as fill one page: a cold look-up costs one page, and no block needs padding but the last."""

PAGE_BYTES: Final = 4096
MERGE_FAN_IN: Final = 8
MERGE_GAIN: Final = 4
"""A merge must make a run at least this many times its largest input, so that no id is rewritten more than
log4(50 M / 60 k) = 5 times; in simulations of up to 100 M ids it was 1.6 to 3.5 times."""

_SPAN_SHARE_MIN: Final = 32
"""A span is copied to be extended; a run under 1/32 of it is not worth 64 bytes of copy per id."""

_SLICE_ROWS: Final = 1 << 17
"""Rows in hand at one time while merging: 7 MB, some 40 MB with every temporary, however long the runs."""

_NUMPY_IDS_MIN: Final = 32
_NUMPY_IDS_MAX: Final = 1024
"""Blocks of ids for numpy: below 32 its fixed cost per call loses against plain Python, above 1,024 nothing is won."""

_PAIR: Final = np.dtype([("hash", "V16"), ("value", "V40")])
_BLOCK: Final = np.dtype(
    [("hash", "V16", (BLOCK_ROWS,)), ("value", "V40", (BLOCK_ROWS,)), ("ordinal", "<u4"), ("crc", "<u4")]
)
_VALUES_AT: Final = BLOCK_ROWS * HASH_BYTES
_HEADER: Final = struct.Struct("<8sIIQQQQ16s16s")
_FOOTER: Final = struct.Struct("<8sQI")
_FOOTER_BYTES: Final = _FOOTER.size + 4
_MAGIC: Final = b"ONCEIDR1"
_MAGIC_END: Final = b"1RDIECNO"
_VERSION: Final = 1
_NAME: Final = re.compile(r"ids-(\d{12})\.(run|filter|span)")

assert ROW.itemsize == _PAIR.itemsize == HASH_BYTES + VALUE.size
assert _BLOCK.itemsize == PAGE_BYTES


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


# --- writing -----------------------------------------------------------------------------------------------------


class _RunWriter:
    """Writes the files of one run from rows in ascending order of hash."""

    def __init__(self, directory: Path, number: int, ages: tuple[int, int], count_max: int, live: Iterable[RunInfo]):
        self._directory = directory
        self._number = number
        self._oldest, self._newest = ages
        self._pending: Rows = np.empty(0, ROW)
        self._count = self._blocks = self._bytes = 0
        self._fences: list[Words] = []
        self._fd = -1
        self._filters: list[FilterWriter] = []
        self._path = file_of(directory, number, "run")
        after, self._span_capacity = _span_of(self._oldest, count_max, live)
        self._span_oldest, self._span_count = (after.span_oldest, after.span_count) if after else (self._oldest, 0)
        try:
            self._fd = create_exclusive(self._path)
            write_whole(self._fd, bytes(PAGE_BYTES))
            self._filters.append(FilterWriter(file_of(directory, number, "filter"), number, count_max))
            if self._span_capacity:
                base = file_of(directory, after.number, "span") if after else None
                span = FilterWriter(file_of(directory, number, "span"), number, self._span_capacity, base)
                self._filters.append(span)
        except BaseException:
            self.abandon()
            raise

    def add(self, rows: Rows) -> None:
        high, low = _halves(rows)
        for writer in self._filters:
            writer.add(high, low)
        rows = _joined([self._pending, rows])
        whole = len(rows) // BLOCK_ROWS * BLOCK_ROWS
        self._write_blocks(rows[:whole])
        self._pending = rows[whole:].copy()

    def finish(self) -> RunInfo:
        """Before: every row was added. After: the files are on the device, their names too."""
        self._write_blocks(self._pending)
        fences = b"".join(fence.tobytes() for fence in self._fences)
        footer = _FOOTER.pack(_MAGIC_END, self._blocks, crc32c(fences, self._number & 0xFFFFFFFF))
        write_whole(self._fd, fences + footer + crc32c(footer).to_bytes(4, "little"))
        # The header comes last, since only now the count is known; nobody looks before the commit names the run.
        os.pwrite(self._fd, self._header(), 0)
        os.fdatasync(self._fd)
        self._bytes = os.fstat(self._fd).st_size
        for filter_writer, oldest in zip(self._filters, (self._oldest, self._span_oldest), strict=False):
            self._bytes += filter_writer.finish(oldest, self._newest)
        sync_directory(self._directory)
        os.close(self._fd)
        self._fd = -1
        return RunInfo(
            number=self._number,
            oldest=self._oldest,
            newest=self._newest,
            count=self._count,
            bytes_total=self._bytes,
            span_oldest=self._span_oldest,
            span_count=self._span_count + self._count,
            span_capacity=self._span_capacity,
        )

    def abandon(self) -> None:
        """Leave nothing behind. The error that led here is the one worth reporting."""
        for filter_writer in self._filters:
            filter_writer.abandon()
        if self._fd >= 0:
            os.close(self._fd)
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _write_blocks(self, rows: Rows) -> None:
        if len(rows) == 0:
            return
        count = -(-len(rows) // BLOCK_ROWS)
        pairs = np.zeros((count, BLOCK_ROWS), _PAIR)
        pairs.reshape(-1)[: len(rows)] = rows.view(_PAIR)
        blocks = np.empty(count, _BLOCK)
        blocks["hash"] = pairs["hash"]
        blocks["value"] = pairs["value"]
        blocks["ordinal"] = np.arange(self._blocks, self._blocks + count)
        data = blocks.view(np.uint8).data
        seed = self._number & 0xFFFFFFFF
        crcs = [crc32c(data[at : at + PAGE_BYTES - 4], seed) for at in range(0, len(data), PAGE_BYTES)]
        blocks["crc"] = crcs
        write_whole(self._fd, data)
        self._fences.append(rows["high"][::BLOCK_ROWS].astype(np.uint64))
        if self._blocks == 0:
            self._smallest = rows[:1].view(_PAIR)["hash"].tobytes()
        self._largest = rows[-1:].view(_PAIR)["hash"].tobytes()
        self._blocks += count
        self._count += len(rows)

    def _header(self) -> bytes:
        smallest, largest = (self._smallest, self._largest) if self._count else (bytes(HASH_BYTES),) * 2
        head = _HEADER.pack(
            _MAGIC, _VERSION, BLOCK_ROWS, self._number, self._oldest, self._newest, self._count, smallest, largest
        )
        head += bytes(PAGE_BYTES - 4 - len(head))
        return head + crc32c(head).to_bytes(4, "little")


def _span_of(oldest: int, count: int, live: Iterable[RunInfo]) -> tuple[RunInfo | None, int]:
    """(the run whose span filter is extended, the capacity) for a new run; capacity 0 if it gets no span.

    A fresh id must pass every filter, and what a filter costs hardly depends on its size. One span for the neighbours
    of similar size replaces up to eight filters by one. It must lack no live run between its ages: that would be a
    false negative. So the run extended is the next older of all live ones, never one that a caller picked.
    """
    after = max((info for info in live if info.newest < oldest), key=lambda info: info.newest, default=None)
    if count == 0:
        return None, 0
    if after is not None and after.span_count + count <= after.span_capacity <= count * _SPAN_SHARE_MIN:
        return after, after.span_capacity
    capacity = min(MERGE_FAN_IN * count, ID_RUN_IDS_MAX)
    # Without room for a second run like this one the span would only repeat the filter.
    return None, capacity if capacity >= 2 * count else 0


def write_run(directory: Path, number: int, rows: Mapping[bytes, bytes], live: Iterable[RunInfo] = ()) -> RunInfo:
    """Write the rows of one checkpoint, hash -> value. `live` are all live runs, for the span filter."""
    keys, values = b"".join(rows), b"".join(rows.values())
    assert len(keys) == HASH_BYTES * len(rows), "every hash has 16 bytes"
    assert len(values) == VALUE.size * len(rows), "every value has 40 bytes"
    hashes, payloads = np.frombuffer(keys, "V16"), np.frombuffer(values, "V40")
    halves = np.frombuffer(keys, ">u8").reshape(-1, 2).astype(np.uint64)
    older = list(live)
    assert all(info.newest < number for info in older), "a fresh run is newer than every live one"
    order = _order(halves[:, 0], halves[:, 1])
    with disk_faults(directory):
        writer = _RunWriter(directory, number, (number, number), len(rows), older)
        try:
            for first in range(0, len(order), _SLICE_ROWS):
                taken = order[first : first + _SLICE_ROWS]
                pairs = np.empty(len(taken), _PAIR)
                pairs["hash"], pairs["value"] = hashes[taken], payloads[taken]
                writer.add(pairs.view(ROW))
            return writer.finish()
        except BaseException:
            writer.abandon()
            raise


def merge(
    directory: Path,
    runs: Sequence[RunInfo],
    number: int,
    keep: Callable[[Rows], npt.NDArray[np.bool_]] | None = None,
    live: Iterable[RunInfo] = (),
) -> RunInfo:
    """Merge neighbouring runs, oldest first, into one that takes their place among the ages. The inputs stay.

    `keep` sees the rows that won (dtype `ROW`) and tells which stay. A dropped row uncovers an older one of the same
    hash in a run outside this merge, so `keep` must drop that one too. `live` are all live runs, for the span filter.
    """
    assert runs, "nothing to merge"
    assert all(a.newest < b.oldest for a, b in pairwise(runs)), "oldest first, no ages in common"
    count_max = sum(info.count for info in runs)
    with disk_faults(directory):
        sources = [_RunFile(directory, info) for info in reversed(runs)]
        writer = _RunWriter(directory, number, (runs[0].oldest, runs[-1].newest), count_max, live)
        try:
            for rows in _merged(sources):
                writer.add(rows if keep is None else rows[keep(rows)])
            return writer.finish()
        except BaseException:
            writer.abandon()
            raise


def plan_merge(infos: Iterable[RunInfo]) -> list[int] | None:
    """Numbers of the runs to merge next, oldest first, or None.

    Takes eight or more neighbours of similar size: together at least four times the largest, at most a full
    generation. Of several choices the one that costs least per run saved. Sizes that never become similar are merged
    all the same once there are too many runs, since every look-up pays for each.
    """
    runs = sorted(infos, key=lambda info: info.newest)
    similar: tuple[float, int, int] | None = None
    cheapest: tuple[float, int, int] | None = None
    for first in range(len(runs)):
        total = largest = 0
        for index in range(first, len(runs)):
            total += runs[index].count
            largest = max(largest, runs[index].count)
            if total > ID_RUN_IDS_MAX:
                break
            length = index + 1 - first
            if length < MERGE_FAN_IN:
                continue
            choice = (total / (length - 1), first, index + 1)
            cheapest = min(cheapest or choice, choice)
            if total >= MERGE_GAIN * largest:
                similar = min(similar or choice, choice)
    chosen = similar or (cheapest if len(runs) > ID_RUNS_MAX else None)
    return None if chosen is None else [info.number for info in runs[chosen[1] : chosen[2]]]


def remove_unnamed(directory: Path, named: Iterable[RunInfo]) -> list[str]:
    """Remove the files of every run that is not named; returns their names. Before: nothing is being written here."""
    numbers = {info.number for info in named}
    removed = []
    with disk_faults(directory):
        for name in sorted(os.listdir(directory)):
            match = _NAME.fullmatch(name)
            if match and int(match[1]) not in numbers:
                os.unlink(directory / name)
                removed.append(name)
    return removed


# --- reading -----------------------------------------------------------------------------------------------------


class _RunFile:
    """The rows of one run, open for reading. Closed with the last reference, never under the feet of a reader."""

    def __init__(self, directory: Path, info: RunInfo | None = None, number: int = 0) -> None:
        self._fd = -1
        self.number = number if info is None else info.number
        self.path = file_of(directory, self.number, "run")
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as missing:
            raise RunMissing("run missing", file=str(self.path)) from missing
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
            high, low = _halves(rows)
            ascends = (high[1:] > high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] > low[:-1]))
            if last >= (int(high[0]), int(low[0])) or not ascends.all():
                raise self._damage("hashes do not ascend", PAGE_BYTES * (1 + first))
            last = int(high[-1]), int(low[-1])
            yield rows, high, low

    def check(self) -> Iterator[tuple[Words, Words]]:
        """Read everything and compare what the file says twice; yields the halves of all hashes."""
        block = 0
        ends: list[bytes] = []
        for rows, high, low in self.slices(_SLICE_ROWS // BLOCK_ROWS):
            fences = high[::BLOCK_ROWS]
            if not np.array_equal(fences, self._fences_array[block : block + len(fences)]):
                raise self._damage("fences are others", self._fences_at + 8 * block)
            block += len(fences)
            hashes = rows.view(_PAIR)["hash"]
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
        blocks = np.frombuffer(data, _BLOCK)
        if not np.array_equal(blocks["ordinal"], np.arange(first, following)):
            raise self._damage("blocks out of order", position)
        pairs = np.empty((len(blocks), BLOCK_ROWS), _PAIR)
        pairs["hash"], pairs["value"] = blocks["hash"], blocks["value"]
        return pairs.reshape(-1)[: self.count - first * BLOCK_ROWS].view(ROW)

    def _read_header(self) -> None:
        head = self._pread(PAGE_BYTES, 0)
        if len(head) != PAGE_BYTES or crc32c(head) != CRC_RESIDUE:
            raise self._damage("run header damaged", 0)
        fields = _HEADER.unpack_from(head)
        magic, version, block_rows, number, self.oldest, self.newest, self.count, self._smallest, self._largest = fields
        if magic != _MAGIC or version != _VERSION or block_rows != BLOCK_ROWS:
            raise self._damage(f"not a run of version {_VERSION}", 0)
        if number != self.number:
            raise self._damage(f"file of run {number}", 0)

    def _read_fences(self) -> None:
        fences_bytes = 8 * self._block_count
        # One byte more than there should be, so that a longer file shows.
        tail = self._pread(fences_bytes + _FOOTER_BYTES + 1, self._fences_at)
        fences, footer = tail[:fences_bytes], tail[fences_bytes:]
        if len(footer) != _FOOTER_BYTES or crc32c(footer) != CRC_RESIDUE:
            raise self._damage("run footer damaged", self._fences_at + fences_bytes)
        magic, block_count, fences_crc = _FOOTER.unpack_from(footer)
        if magic != _MAGIC_END or block_count != self._block_count:
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
        return Corruption(what, file=str(self.path), position=position, hint="rebuild the index from the journal")


class _Source:
    """One run of a merge: the rows read but not yet taken."""

    def __init__(self, run: _RunFile, blocks_each: int) -> None:
        self._slices = run.slices(blocks_each)
        self.more = True
        self._rows: Rows = np.empty(0, ROW)
        self._high: Words = np.empty(0, np.uint64)
        self._low: Words = np.empty(0, np.uint64)

    def fill(self) -> None:
        """After: rows are at hand, or there are no more."""
        while self.more and not len(self._rows):
            following = next(self._slices, None)
            if following is None:
                self.more = False
            else:
                self._rows, self._high, self._low = following

    def last(self) -> tuple[int, int]:
        return int(self._high[-1]), int(self._low[-1])

    def take(self, bound: tuple[int, int] | None) -> tuple[Rows, Words, Words]:
        """Rows up to the bound, which is included; all rows without one."""
        cut = len(self._rows)
        if bound is not None:
            high = np.uint64(bound[0])
            first = int(np.searchsorted(self._high, high, "left"))
            following = int(np.searchsorted(self._high, high, "right"))
            cut = first + int(np.searchsorted(self._low[first:following], np.uint64(bound[1]), "right"))
        taken = self._rows[:cut], self._high[:cut], self._low[:cut]
        self._rows, self._high, self._low = self._rows[cut:], self._high[cut:], self._low[cut:]
        return taken


def _merged(runs: Sequence[_RunFile]) -> Iterator[Rows]:
    """The rows of all runs by hash, one per hash. Before: newest run first. Memory is bounded by `_SLICE_ROWS`."""
    total = sum(run.count for run in runs)
    if total == 0:
        return
    # In proportion to their size, so that the runs, whose hashes are spread alike, come to their ends together.
    sources = [_Source(run, max(1, _SLICE_ROWS * run.count // total // BLOCK_ROWS)) for run in runs]
    while True:
        for source in sources:
            source.fill()
        # Up to the least of the last hashes at hand no run can bring anything new.
        lasts = [source.last() for source in sources if source.more]
        taken = [source.take(min(lasts) if lasts else None) for source in sources]
        high = np.concatenate([part[1] for part in taken])
        low = np.concatenate([part[2] for part in taken])
        order = _order(high, low)
        high, low = high[order], low[order]
        # The order is stable and newer runs come first, so the first of equals is the newest.
        fresh = np.concatenate(([True], (high[1:] != high[:-1]) | (low[1:] != low[:-1])))[: len(order)]
        if len(order):
            yield _joined([part[0] for part in taken])[order[fresh]]
        if not lasts:
            return


def _order(high: Words, low: Words) -> npt.NDArray[np.intp]:
    """The stable order of 128-bit hashes. Halves alone nearly always decide: numpy's merge sort of 64-bit numbers takes
    sorted stretches as they come, a sort by two keys costs five times as much."""
    order = np.argsort(high, kind="stable")
    sorted_high, sorted_low = high[order], low[order]
    if bool(np.any((sorted_high[1:] == sorted_high[:-1]) & (sorted_low[1:] != sorted_low[:-1]))):
        return np.lexsort((low, high))
    return order


def _joined(parts: Sequence[Rows]) -> Rows:
    # As plain bytes: to join big-endian fields numpy would turn them into native ones, and so turn the hashes around.
    return np.concatenate([part.view(_PAIR) for part in parts]).view(ROW)


def _halves(rows: Rows) -> tuple[Words, Words]:
    return rows["high"].astype(np.uint64), rows["low"].astype(np.uint64)


class _OpenRun:
    """A live run: rows and filters."""

    __slots__ = ("file", "filter", "info", "span")

    def __init__(self, directory: Path, info: RunInfo) -> None:
        self.info = info
        self.file = _RunFile(directory, info)
        self.filter = self._open_filter(directory, "filter", info.oldest)
        self.span: Filter | None = None
        if info.span_oldest < info.oldest:
            self.span = self._open_filter(directory, "span", info.span_oldest)

    def _open_filter(self, directory: Path, kind: str, oldest: int) -> Filter:
        path = file_of(directory, self.info.number, kind)
        try:
            opened = Filter(path)
        except FileNotFoundError as missing:
            raise RunMissing("filter missing", file=str(path)) from missing
        header = opened.header
        if (header.number, header.oldest, header.newest) != (self.info.number, oldest, self.info.newest):
            raise Corruption("filter is not the one that was named", file=str(path), position=0)
        return opened


_Span = tuple[memoryview, int, Words, tuple[_OpenRun, ...]]
"""(words, word count, the words for numpy, the runs that they cover, newest first)."""


class IdRuns:
    """Look-ups in the live runs. `refresh` may run in a thread of its own while others look up: it swaps one tuple."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._runs: tuple[_OpenRun, ...] = ()
        """Newest first."""
        self._spans: tuple[_Span, ...] = ()
        """Newest first. Every run is in exactly one."""

    def refresh(self, infos: Iterable[RunInfo]) -> None:
        """Serve exactly these runs from now on. On any error the former ones stay.

        `RunMissing`: the list was read before a merge and is used after the removal. Read the list again.
        """
        known = {run.info.number: run for run in self._runs}
        runs = []
        with disk_faults(self._directory):
            for info in sorted(infos, key=lambda info: info.newest, reverse=True):
                runs.append(known.get(info.number) or _OpenRun(self._directory, info))
        self._spans = tuple(_cover(runs))
        self._runs = tuple(runs)

    def get(self, key: bytes) -> bytes | None:
        """The value of a hash, from the newest run that has it."""
        prefix, pattern = split_hash(key)
        mask = MASKS[pattern & PATTERN_MASK]
        for words, word_count, _, runs in self._spans:
            if words[prefix * word_count >> 32] & mask == mask:
                value = _find_in_span(runs, key, prefix, mask)
                if value is not None:
                    return value
        return None

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of those hashes that are known."""
        if len(keys) < _NUMPY_IDS_MIN:
            return {key: value for key in keys if (value := self.get(key)) is not None}
        found: dict[bytes, bytes] = {}
        spans = self._spans
        for first in range(0, len(keys), _NUMPY_IDS_MAX):
            self._get_block(spans, keys[first : first + _NUMPY_IDS_MAX], found)
        return found

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Every (hash, value) in order of hash; of equal hashes the newest."""
        for rows in self.iter_arrays():
            data = rows.tobytes()
            for at in range(0, len(data), ROW.itemsize):
                yield data[at : at + HASH_BYTES], data[at + HASH_BYTES : at + ROW.itemsize]

    def iter_arrays(self) -> Iterator[Rows]:
        """The same rows as arrays of `ROW`."""
        return _merged([run.file for run in self._runs])

    @staticmethod
    def _get_block(spans: tuple[_Span, ...], keys: Sequence[bytes], found: dict[bytes, bytes]) -> None:
        halves = np.frombuffer(b"".join(keys), ">u4").reshape(-1, 4)
        prefixes = halves[:, 0].astype(np.uint64)
        masks = MASK_ARRAY[(halves[:, 2] >> np.uint32(16)) & np.uint32(PATTERN_MASK)]
        for _, word_count, words, runs in spans:
            held = words[(prefixes * np.uint64(word_count)) >> np.uint64(32)]
            held &= masks
            for index in (held == masks).nonzero()[0].tolist():
                key = keys[index]
                if key not in found:
                    value = _find_in_span(runs, key, int(prefixes[index]), int(masks[index]))
                    if value is not None:
                        found[key] = value


def _find_in_span(runs: tuple[_OpenRun, ...], key: bytes, prefix: int, mask: int) -> bytes | None:
    """A span said that the hash may be in one of its runs: ask their own filters, then the rows."""
    for run in runs:
        run_filter = run.filter
        if run_filter.words[prefix * run_filter.word_count >> 32] & mask == mask:
            value = run.file.find(key)
            if value is not None:
                return value
    return None


def _cover(runs: Sequence[_OpenRun]) -> Iterator[_Span]:
    """Few filters that cover all runs, given newest first: the span of a run spares the older runs that lie within."""
    first = 0
    while first < len(runs):
        run = runs[first]
        following = first + 1
        while following < len(runs) and run.info.span_oldest <= runs[following].info.oldest:
            following += 1
        used = run.filter if run.span is None or following == first + 1 else run.span
        yield used.words, used.word_count, used.array, tuple(runs[first:following])
        first = following


def check_run(path: Path) -> int:
    """Read everything of a run (the path of its `.run` file) and compare it; returns its count of rows."""
    match = _NAME.fullmatch(path.name)
    assert match is not None, "the path of a run"
    number = int(match[1])
    filters: list[tuple[Path, Filter]] = []
    with disk_faults(path):
        run = _RunFile(path.parent, number=number)
        for kind in ("filter", "span"):
            name = file_of(path.parent, number, kind)
            if kind == "filter" or name.exists():
                filters.append((name, Filter(name)))
    for index, (name, opened) in enumerate(filters):
        header = opened.header
        # The filter has the ages of the run, the span may begin earlier.
        wrong_oldest = header.oldest > run.oldest if index else header.oldest != run.oldest
        if header.number != number or header.newest != run.newest or wrong_oldest:
            raise Corruption("filter of another run", file=str(name), position=0)
    count = 0
    for high, low in run.check():
        count += len(high)
        for name, opened in filters:
            if not opened.may_hold(high, low).all():
                raise Corruption("filter lacks an id of its run", file=str(name), position=0)
    return count
