"""Writing runs of message ids and merging them: one process does it, whenever the index is brought up to date.

Owns the merge policy. Must never decide which runs are live: a run counts only when the index commit names its
`RunInfo`; every other file is a leftover. Must never change a file that anyone could have open.

Invariants:
- Between runs the newer one wins, and newer means the greater age (`newest`), not the greater number: a merged run gets
  a new number but keeps the ages of what it replaced. Live runs share no age.
- When `write_run` or `merge` returns, the files and their names are on the device, so the commit may name them.

Crash stories of the writer:
1. Run written, crash before the commit: nobody names it, `remove_unnamed` takes it away at the next start.
2. Merged run committed, crash before the old runs were removed: they are no longer named, removed likewise.
"""

import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from oncelog.limits import ID_RUN_IDS_MAX, ID_RUNS_MAX
from oncelog.storage.index.id_filter import (
    FilterWriter,
    Words,
    create_exclusive,
    disk_faults,
    sync_directory,
    write_whole,
)
from oncelog.storage.index.id_run_file import (
    BLOCK,
    BLOCK_ROWS,
    FOOTER,
    HASH_BYTES,
    HEADER,
    MAGIC,
    MAGIC_END,
    NAME,
    PAGE_BYTES,
    PAIR,
    ROW,
    SLICE_ROWS,
    VALUE,
    VERSION,
    Rows,
    RunFile,
    RunInfo,
    file_of,
    halves,
    joined,
)

MERGE_FAN_IN: Final = 8
MERGE_GAIN: Final = 4
"""A merge must make a run at least this many times its largest input, so that no id is rewritten more than
log4(50 M / 60 k) = 5 times; in simulations of up to 100 M ids it was 1.6 to 3.5 times."""

_SPAN_SHARE_MIN: Final = 32
"""A span is copied to be extended; a run under 1/32 of it is not worth 64 bytes of copy per id."""


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
        high, low = halves(rows)
        for writer in self._filters:
            writer.add(high, low)
        rows = joined([self._pending, rows])
        whole = len(rows) // BLOCK_ROWS * BLOCK_ROWS
        self._write_blocks(rows[:whole])
        self._pending = rows[whole:].copy()

    def finish(self) -> RunInfo:
        """Before: every row was added. After: the files are on the device, their names too."""
        self._write_blocks(self._pending)
        fences = b"".join(fence.tobytes() for fence in self._fences)
        footer = FOOTER.pack(MAGIC_END, self._blocks, crc32c(fences, self._number & 0xFFFFFFFF))
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
        pairs = np.zeros((count, BLOCK_ROWS), PAIR)
        pairs.reshape(-1)[: len(rows)] = rows.view(PAIR)
        blocks = np.empty(count, BLOCK)
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
            self._smallest = rows[:1].view(PAIR)["hash"].tobytes()
        self._largest = rows[-1:].view(PAIR)["hash"].tobytes()
        self._blocks += count
        self._count += len(rows)

    def _header(self) -> bytes:
        smallest, largest = (self._smallest, self._largest) if self._count else (bytes(HASH_BYTES),) * 2
        head = HEADER.pack(
            MAGIC, VERSION, BLOCK_ROWS, self._number, self._oldest, self._newest, self._count, smallest, largest
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
            for first in range(0, len(order), SLICE_ROWS):
                taken = order[first : first + SLICE_ROWS]
                pairs = np.empty(len(taken), PAIR)
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
    """As `merging`, in one go."""
    steps = merging(directory, runs, number, keep, live)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            info: RunInfo = done.value
            return info


def merging(
    directory: Path,
    runs: Sequence[RunInfo],
    number: int,
    keep: Callable[[Rows], npt.NDArray[np.bool_]] | None = None,
    live: Iterable[RunInfo] = (),
) -> Generator[None, None, RunInfo]:
    """Merge neighbouring runs, oldest first, into one that takes their place among the ages. The inputs stay.

    Yields after every slice: the largest merges take most of a minute, in which newer runs may be written and named.
    Closed before its end it leaves nothing behind.

    `keep` sees the rows that won (dtype `ROW`) and tells which stay. A dropped row uncovers an older one of the same
    hash in a run outside this merge, so `keep` must drop that one too. `live` are all live runs, for the span filter.
    """
    assert runs, "nothing to merge"
    assert all(a.newest < b.oldest for a, b in pairwise(runs)), "oldest first, no ages in common"
    count_max = sum(info.count for info in runs)
    with disk_faults(directory):
        sources = [RunFile(directory, info) for info in reversed(runs)]
        writer = _RunWriter(directory, number, (runs[0].oldest, runs[-1].newest), count_max, live)
        try:
            for rows in merged(sources):
                writer.add(rows if keep is None else rows[keep(rows)])
                yield
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


def remove_unnamed(directory: Path, named: Iterable[RunInfo], unfinished: int | None = None) -> list[str]:
    """Remove the files of every run that is not named; returns their names. Before: nothing is being written here, but
    for the run `unfinished`."""
    numbers = {unfinished, *(info.number for info in named)}
    removed = []
    with disk_faults(directory):
        for name in sorted(os.listdir(directory)):
            match = NAME.fullmatch(name)
            if match and int(match[1]) not in numbers:
                os.unlink(directory / name)
                removed.append(name)
    return removed


# --- many runs as one -------------------------------------------------------------------------------------------------


class _Source:
    """One run of a merge: the rows read but not yet taken."""

    def __init__(self, run: RunFile, blocks_each: int) -> None:
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


def merged(runs: Sequence[RunFile]) -> Iterator[Rows]:
    """The rows of all runs by hash, one per hash. Before: newest run first. Memory is bounded by `SLICE_ROWS`."""
    total = sum(run.count for run in runs)
    if total == 0:
        return
    # In proportion to their size, so that the runs, whose hashes are spread alike, come to their ends together.
    sources = [_Source(run, max(1, SLICE_ROWS * run.count // total // BLOCK_ROWS)) for run in runs]
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
            yield joined([part[0] for part in taken])[order[fresh]]
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
