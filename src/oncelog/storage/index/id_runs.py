"""Looking up remembered message ids in the runs that are live. The reading process's side; runs are written by
`id_merge`, and one of them is read by `id_run_file`.

A fresh id, the usual case, must be told from millions of known ones without touching a row: filters say so, and spans,
which cover several runs at once, keep their number small.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from oncelog.storage.index.id_filter import (
    MASK_ARRAY,
    MASKS,
    PATTERN_MASK,
    Filter,
    Words,
    disk_faults,
    split_hash,
)
from oncelog.storage.index.id_merge import merged
from oncelog.storage.index.id_run_file import HASH_BYTES, ROW, Rows, RunFile, RunInfo, RunMissing, file_of
from oncelog.storage.index.interface import REBUILD_HINT, index_damage

_NUMPY_IDS_MIN: Final = 32
_NUMPY_IDS_MAX: Final = 1024
"""Blocks of ids for numpy: below 32 its fixed cost per call loses against plain Python, above 1,024 nothing is won."""


class _OpenRun:
    """A live run: rows and filters."""

    __slots__ = ("file", "filter", "info", "span")

    def __init__(self, directory: Path, info: RunInfo) -> None:
        self.info = info
        self.file = RunFile(directory, info)
        self.filter = self._open_filter(directory, "filter", info.oldest)
        self.span: Filter | None = None
        if info.span_oldest < info.oldest:
            self.span = self._open_filter(directory, "span", info.span_oldest)

    def _open_filter(self, directory: Path, kind: str, oldest: int) -> Filter:
        path = file_of(directory, self.info.number, kind)
        try:
            opened = Filter(path)
        except FileNotFoundError as missing:
            raise RunMissing("filter missing", file=str(path), hint=REBUILD_HINT) from missing
        header = opened.header
        if (header.number, header.oldest, header.newest) != (self.info.number, oldest, self.info.newest):
            raise index_damage("filter is not the one that was named", path, 0)
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
        return merged([run.file for run in self._runs])

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
