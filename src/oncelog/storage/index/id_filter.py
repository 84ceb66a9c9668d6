"""Filters of the id runs: Bloom filters in which an id has all its bits in one 64-bit word, and their files.

Owns the bits: which word and which mask belong to a hash, the filter file, writing it in one pass, opening it. Knows
nothing about rows or runs. Specified in docs/format/id-runs.md.

An id belongs to one word, chosen by the first four bytes of its hash, and sets five bits of it, chosen by bytes 8 and
9. At 2 bytes per id a word serves four ids on average, and a fresh id passes for a known one in 0.5 % of all tests (3
bits: 0.9 %; 4: 0.6 %; 6: no gain).

Invariants:
- No false negatives. A bit lost on disk would be one, and so a duplicate accepted: the words are checked against their
  CRC whenever a file is opened.
- The word number never decreases with the hash, so a filter is written front to back from sorted hashes. Building
  the filter of 50 M ids needs a slice of memory, not 100 MB, and a full disk is an error of write, not a dead mapping.
"""

import contextlib
import errno
import mmap
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from oncelog.errors import DiskFault, DiskFull
from oncelog.storage.index.interface import index_damage

Words = npt.NDArray[np.uint64]

HEADER_BYTES: Final = 64
"""A multiple of 8, so that the words that follow can be mapped and read as 64-bit numbers."""

CRC_RESIDUE: Final = 0x48674BC7
"""CRC32C of any bytes followed by their own CRC32C, whatever it was started from: one call checks, without slicing."""

IDS_PER_WORD: Final = 4
"""64 bits for 4 ids: the 2 bytes per id of the design."""

MASK_BITS: Final = 5
MASK_COUNT: Final = 8192
"""Fewer masks make two ids of one word alike more often (here 0.05 %); more fall out of the processor's cache."""

PATTERN_MASK: Final = MASK_COUNT - 1

split_hash = struct.Struct(">I4xH6x").unpack
"""hash -> (prefix, pattern): the word is `prefix * words >> 32`, the mask `MASKS[pattern & PATTERN_MASK]`."""

_MAGIC: Final = b"ONCEIDF1"
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<8sIIQQQQQI")
_CHECK_BYTES: Final = 1 << 20

assert sys.byteorder == "little", "words and fences are mapped as they lie on disk"
assert _HEADER.size == HEADER_BYTES - 4


def _mask_table() -> Words:
    """The masks, a function of their number alone: splitmix64 of it, as ten 6-bit fields, until five bits are set."""
    x = np.arange(1, MASK_COUNT + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    masks = np.zeros(MASK_COUNT, dtype=np.uint64)
    for field in range(10):
        bit = np.uint64(1) << ((x >> np.uint64(6 * field)) & np.uint64(63))
        masks |= np.where(np.bitwise_count(masks) < MASK_BITS, bit, np.uint64(0))
    return masks


MASK_ARRAY: Final = _mask_table()
MASKS: Final[list[int]] = MASK_ARRAY.tolist()


@contextlib.contextmanager
def disk_faults(path: Path) -> Iterator[None]:
    """Turn what the operating system says about a file into our storage errors, with the file's name."""
    try:
        yield
    except OSError as fault:
        if fault.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull("no room", file=str(path)) from fault
        raise DiskFault(fault.strerror or str(fault), file=str(path)) from fault


def create_exclusive(path: Path) -> int:
    """A new file. An existing one is never written over: a reader may have it open."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)


def write_whole(fd: int, data: bytes | memoryview) -> None:
    """Write all of it; the kernel may take less than it was given."""
    left = memoryview(data).cast("B")
    while left:
        left = left[os.write(fd, left) :]


def sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def slots_of(prefix: Words, word_count: int) -> Words:
    return (prefix * np.uint64(word_count)) >> np.uint64(32)


class FilterHeader:
    """What a filter file says about itself."""

    __slots__ = ("id_count", "newest", "number", "oldest", "word_count", "words_crc")

    def __init__(self, number: int, word_count: int, id_count: int, oldest: int, newest: int, words_crc: int) -> None:
        self.number = number
        self.word_count = word_count
        self.id_count = id_count
        """Ids in the filter; some twice, when several runs were added."""
        self.oldest = oldest
        self.newest = newest
        """The ages whose ids are in the filter, both inclusive."""
        self.words_crc = words_crc

    def pack(self) -> bytes:
        head = _HEADER.pack(
            _MAGIC,
            _VERSION,
            MASK_BITS,
            self.number,
            self.word_count,
            self.id_count,
            self.oldest,
            self.newest,
            self.words_crc,
        )
        return head + crc32c(head).to_bytes(4, "little")

    @classmethod
    def read(cls, fd: int, path: Path) -> "FilterHeader":
        head = os.pread(fd, HEADER_BYTES, 0)
        if len(head) != HEADER_BYTES or crc32c(head) != CRC_RESIDUE:
            raise index_damage("filter header damaged", path, 0)
        magic, version, bits, number, word_count, id_count, oldest, newest, words_crc = _HEADER.unpack_from(head)
        if magic != _MAGIC or version != _VERSION or bits != MASK_BITS:
            raise index_damage(f"not a filter of version {_VERSION}", path, 0)
        size = os.fstat(fd).st_size
        if word_count == 0 or size != HEADER_BYTES + 8 * word_count:
            raise index_damage(f"filter of {word_count} words has {size} bytes", path, size)
        return cls(number, word_count, id_count, oldest, newest, words_crc)


class FilterWriter:
    """Writes one filter file from hashes in ascending order, optionally starting from the words of another filter.

    Nobody may use the file before `finish` returned and its directory was synced.
    """

    def __init__(self, path: Path, number: int, capacity: int, base: Path | None = None) -> None:
        self.path = path
        self._number = number
        self._word_count = max(1, -(-capacity // IDS_PER_WORD))
        self._id_count = 0
        self._slot = 0
        """The word in `_carry`: words before it are in the file, those after it are untouched."""
        self._carry = np.uint64(0)
        self._crc = 0
        self._base_fd = -1
        self._base_crc = 0
        self._fd = create_exclusive(path)
        try:
            if base is not None:
                self._base_path = base
                self._base_fd = os.open(base, os.O_RDONLY | os.O_CLOEXEC)
                self._base = FilterHeader.read(self._base_fd, base)
                # The masks of an id are the same in every filter, the words only when there are equally many.
                self._word_count = self._base.word_count
                self._id_count = self._base.id_count
            write_whole(self._fd, bytes(HEADER_BYTES))
        except BaseException:
            self.abandon()
            raise

    def add(self, high: Words, low: Words) -> None:
        """Add hashes, given as their two big-endian halves. Before: none is smaller than any added earlier."""
        if len(high) == 0:
            return
        slots = slots_of(high >> np.uint64(32), self._word_count)
        masks = MASK_ARRAY[(low >> np.uint64(48)) & np.uint64(PATTERN_MASK)]
        starts = np.flatnonzero(np.concatenate(([True], slots[1:] != slots[:-1])))
        words = np.zeros(int(slots[-1]) - self._slot + 1, dtype=np.uint64)
        words[slots[starts] - np.uint64(self._slot)] = np.bitwise_or.reduceat(masks, starts)
        words[0] |= self._carry
        self._write(words[:-1])
        # The next hash may fall into the same word, so the last one waits.
        self._carry = words[-1]
        self._id_count += len(high)

    def finish(self, oldest: int, newest: int) -> int:
        """Write what is left and sync. Returns the size of the file; it covers the ages given."""
        tail = np.zeros(self._word_count - self._slot, dtype=np.uint64)
        tail[0] |= self._carry
        self._write(tail)
        if self._base_fd >= 0 and self._base_crc != self._base.words_crc:
            raise index_damage("filter words damaged", self._base_path, HEADER_BYTES)
        header = FilterHeader(self._number, self._word_count, self._id_count, oldest, newest, self._crc)
        os.pwrite(self._fd, header.pack(), 0)
        os.fdatasync(self._fd)
        self._close()
        return HEADER_BYTES + 8 * self._word_count

    def abandon(self) -> None:
        """Leave nothing behind. The error that led here is the one worth reporting."""
        self._close()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _write(self, words: Words) -> None:
        if self._base_fd >= 0 and len(words):
            base = os.pread(self._base_fd, 8 * len(words), HEADER_BYTES + 8 * self._slot)
            if len(base) != 8 * len(words):
                raise index_damage("filter cut short", self._base_path, 8 * self._slot)
            self._base_crc = crc32c(base, self._base_crc)
            words = words | np.frombuffer(base, dtype=np.uint64)
        data = words.tobytes()
        self._crc = crc32c(data, self._crc)
        write_whole(self._fd, data)
        self._slot += len(words)

    def _close(self) -> None:
        for fd in (self._fd, self._base_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._base_fd = -1


class Filter:
    """A filter file, mapped. Stays usable after the file was removed; the mapping goes with the last reference."""

    __slots__ = ("array", "header", "word_count", "words")

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.header = FilterHeader.read(fd, path)
            _check_words(fd, path, self.header)
            # Populated, because a page fault inside a look-up would stall the loop of the server; the check has just
            # brought the pages into memory.
            mapping = mmap.mmap(fd, 0, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ)
        finally:
            os.close(fd)
        self.word_count = self.header.word_count
        self.words: memoryview = memoryview(mapping)[HEADER_BYTES:].cast("Q")
        self.array: Words = np.frombuffer(self.words, dtype=np.uint64)

    def may_hold(self, high: Words, low: Words) -> npt.NDArray[np.bool_]:
        """For every hash whether it may have been added; never false for one that was."""
        masks = MASK_ARRAY[(low >> np.uint64(48)) & np.uint64(PATTERN_MASK)]
        held: npt.NDArray[np.bool_] = (self.array[slots_of(high >> np.uint64(32), self.word_count)] & masks) == masks
        return held


def _check_words(fd: int, path: Path, header: FilterHeader) -> None:
    buffer = bytearray(_CHECK_BYTES)
    position, crc = HEADER_BYTES, 0
    while got := os.preadv(fd, [buffer], position):
        crc = crc32c(memoryview(buffer)[:got], crc)
        position += got
    if crc != header.words_crc:
        raise index_damage("filter words damaged", path, HEADER_BYTES)
