"""Segments: names, addresses, the header sector, and reading one file. Owns what a segment file looks like.

The journal is an endless address space cut into segments of a fixed size S. Segment s covers the addresses
[s*S, (s+1)*S) and lives in the file `segment-<s, 12 digits>`. Sector 0 of every file is its header:

    byte  size  field
       0     8  magic, b"ONCELOGJ"
       8     4  format version, 1
      12     4  CRC32C of the whole sector with this field zero
      16     8  segment bytes, S
      24    16  identity of the journal: random, equal in all its files, not shown to clients
      40   472  zero

The header names no segment, so it is written and synced once, when the file is prepared, and stays true when a spare
becomes a segment or a segment a spare: changing over is a rename and a directory sync, and no written sector of a
file is needed twice. Frames follow from sector 1. Group number = address // 512, so group 0 does not exist.

Other names: `spare-<n>` is a whole file that waits to become a segment; its content means nothing. `unready-<n>` is a
spare whose zeros are not synced yet; recovery removes it.

Invariant: the segments present are contiguous. They are added at the end and dropped at the front one at a time, with
a directory sync in between, so a gap is damage.
"""

import base64
import functools
import hashlib
import mmap
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from oncelog.errors import Corruption, DiskFault, OncelogError, StorageError
from oncelog.limits import (
    FRAME_ALIGN_BYTES,
    READ_AHEAD_BYTES,
    SEGMENT_BYTES_MIN,
    SEGMENT_FILES_OPEN_MAX,
    SPARE_PIECE_BYTES,
)
from oncelog.storage.disk import Disk, File, write_all
from oncelog.storage.frame import FRAME_HEADER_BYTES, FRAME_MAGIC, Frame, claimed_bytes, unpack_frame
from oncelog.storage.mirror import Mirror

SEGMENT_MAGIC: Final = b"ONCELOGJ"
FORMAT_VERSION: Final = 1
IDENTITY_BYTES: Final = 16
SEGMENT_HEADER: Final = Struct("<8sIIQ16s")
RESTORE_HINT: Final = "nothing was changed; put the file back, or the whole log from a copy (docs/guarantees.md)"

SEGMENT_HEADER_BYTES: Final = FRAME_ALIGN_BYTES
"""The header owns a whole sector: the first frame must not share one with it."""

_DIGITS: Final = 12
_LISTINGS_MAX: Final = 3

assert SEGMENT_HEADER.size <= SEGMENT_HEADER_BYTES


class GroupGone(OncelogError, LookupError):
    """The group lies before the first retained segment: look its records up again, they were moved or trimmed."""

    def __init__(self, group: int, first_group: int) -> None:
        self.group = group
        self.first_group = first_group
        super().__init__(f"group {group} is gone, the journal starts at {first_group}")


class SegmentHeader(NamedTuple):
    segment_bytes: int
    identity: bytes

    def pack(self) -> bytes:
        head = SEGMENT_HEADER.pack(SEGMENT_MAGIC, FORMAT_VERSION, 0, self.segment_bytes, self.identity)
        sector = head.ljust(SEGMENT_HEADER_BYTES, b"\0")
        return sector[:12] + crc32c(sector).to_bytes(4, "little") + sector[16:]

    @classmethod
    def unpack(cls, sector: bytes, name: str) -> "SegmentHeader":
        """Raises `Corruption` if the sector is not what `pack` wrote, `StorageError` if a later version wrote it."""
        if len(sector) != SEGMENT_HEADER_BYTES or not sector.startswith(SEGMENT_MAGIC):
            raise Corruption("segment header missing", file=name, position=0, hint=RESTORE_HINT)
        _, version, crc, segment_bytes, identity = SEGMENT_HEADER.unpack_from(sector)
        if crc32c(sector[:12] + bytes(4) + sector[16:]) != crc:
            raise Corruption("segment header does not match its checksum", file=name, position=0, hint=RESTORE_HINT)
        if version != FORMAT_VERSION:
            raise StorageError(
                f"journal format version {version} is not known", file=name, hint="it was written by a newer oncelog"
            )
        return cls(segment_bytes, identity)


def segment_bytes_valid(segment_bytes: int) -> bool:
    return segment_bytes >= SEGMENT_BYTES_MIN and segment_bytes % FRAME_ALIGN_BYTES == 0


def segment_name(segment: int) -> str:
    return f"segment-{segment:0{_DIGITS}d}"


def spare_name(number: int) -> str:
    return f"spare-{number:0{_DIGITS}d}"


def unready_name(number: int) -> str:
    return f"unready-{number:0{_DIGITS}d}"


class Listing(NamedTuple):
    """The journal's files by kind, each sorted by number. Files with other names are not ours and are left alone."""

    segments: list[int]
    spares: list[int]
    unready: list[int]
    missing: tuple[int, ...] = ()
    """Segments that are not there, between others that are."""


def list_files(disk: Disk) -> Listing:
    """The files that are there."""
    for _ in range(_LISTINGS_MAX):
        numbers: dict[str, list[int]] = {"segment": [], "spare": [], "unready": []}
        for name in disk.names():
            kind, _, digits = name.partition("-")
            if kind in numbers and len(digits) == _DIGITS and digits.isdecimal():
                numbers[kind].append(int(digits))
        segments = numbers["segment"]
        if not segments or segments[-1] - segments[0] == len(segments) - 1:
            return Listing(segments, numbers["spare"], numbers["unready"])
        # A listing is not one instant. Beside a writer that drops segments, one may show segment 1 as it was before
        # and segment 2 as it is after. Only a gap that stays is damage.
    missing = tuple(segment for segment in range(segments[0], segments[-1]) if segment not in segments)
    return Listing(segments, numbers["spare"], numbers["unready"], missing)


def segment_missing(segment: int) -> Corruption:
    """How it is told."""
    return Corruption("segment missing", file=segment_name(segment), hint=RESTORE_HINT)


def prepare_file(disk: Disk, name: str, header: SegmentHeader) -> None:
    """Write a new zero-filled, synced file. Its name is durable only after the caller's directory sync.

    Zeros are written, not merely allocated: fdatasync over blocks written before needs no commit of the file system's
    own journal and costs half. On `OSError` a partial file is left for the caller to remove.
    """
    file = disk.open(name, create=True)
    position = 0
    while position < header.segment_bytes:
        size = min(SPARE_PIECE_BYTES, header.segment_bytes - position)
        # Memory of its own from mmap is aligned, as a write past the page cache must be, and already zero.
        piece = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if position == 0:
            piece[:SEGMENT_HEADER_BYTES] = header.pack()
        write_all(file, [memoryview(piece)], position)
        file.fdatasync()
        position += size


LOG_ID_BYTES: Final = 16


def log_id(identity: bytes) -> str:
    """What a log calls itself to clients: made with its journal, never changed. The identity itself stays unknown to
    them, since it makes the checksums of frames."""
    digest = hashlib.sha256(b"oncelog log id\0" + identity).digest()[:LOG_ID_BYTES]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


class SegmentFiles:
    """Opens segments by number, checks their headers, and does the arithmetic between groups and files.

    May be shared by threads: its only state is a cache. Segment numbers are never used twice, so a cached file can be
    outdated in one way only, that its segment was dropped; what it then reads carries other addresses.
    """

    def __init__(self, disk: Disk, header: SegmentHeader) -> None:
        self.disk = disk
        self.header = header
        self.segment_bytes = header.segment_bytes
        self.identity_crc = crc32c(header.identity)
        self._sectors = header.segment_bytes // FRAME_ALIGN_BYTES
        self.mirror: Mirror | None = None
        """What holds the newest bytes, if they are written past the page cache."""
        self._cached = functools.lru_cache(SEGMENT_FILES_OPEN_MAX)(self._open)

    @classmethod
    def of(cls, disk: Disk, segment: int) -> "SegmentFiles":
        """Size and identity as stored in `segment`: the stored size wins over any configured one."""
        name = segment_name(segment)
        header = SegmentHeader.unpack(_read(disk.open(name), SEGMENT_HEADER_BYTES, 0, name), name)
        if not segment_bytes_valid(header.segment_bytes):
            raise Corruption(f"segment size {header.segment_bytes} is impossible", file=name, position=0)
        return cls(disk, header)

    def file(self, segment: int) -> File:
        """The open file of a segment whose header was checked. `FileNotFoundError` if there is none."""
        return self._cached(segment)

    def _open(self, segment: int) -> File:
        name = segment_name(segment)
        file = self.disk.open(name)
        self.check_header(file, name)
        return file

    def check_header(self, file: File, name: str) -> None:
        """Raises `Corruption` unless the file is a whole one of this journal."""
        header = SegmentHeader.unpack(_read(file, SEGMENT_HEADER_BYTES, 0, name), name)
        if header != self.header:
            raise Corruption("the file belongs to another journal", file=name, position=0)
        # Its size was synced before it got its name. A shorter file lost its end, and with it perhaps groups whose
        # absence would otherwise look like the journal's end.
        if not _read(file, 1, self.segment_bytes - 1, name):
            raise Corruption("the file is shorter than a segment", file=name, hint=RESTORE_HINT)

    def forget(self) -> None:
        """Close cached files, so that the space of a removed segment is given back."""
        self._cached.cache_clear()

    def group_at(self, segment: int, position: int) -> int:
        return segment * self._sectors + position // FRAME_ALIGN_BYTES

    def mirrored(self, segment: int, position: int, length: int) -> bytes | None:
        """Durable bytes of a segment from memory; None if they must be read from its file."""
        if self.mirror is None:
            return None
        return self.mirror.read(segment * self.segment_bytes + position, length)

    def first_group(self, segment: int) -> int:
        return self.group_at(segment, SEGMENT_HEADER_BYTES)

    def locate(self, group: int) -> tuple[int, int]:
        """Segment and position in its file."""
        segment, sector = divmod(group, self._sectors)
        return segment, sector * FRAME_ALIGN_BYTES

    def view(self, segment: int, *, limit: int | None = None) -> "SegmentView":
        return SegmentView(self, segment, self.file(segment), self.segment_bytes if limit is None else limit)


class SegmentView:
    """Reads frames of one segment through a window. A view is a snapshot: make a new one to see newer writes.

    `limit` is where reading ahead stops, the end of what the caller wants. Bytes beyond it are read only as the rest
    of a frame, so a reader that follows the writer does not fetch a window of zeros per group.
    """

    def __init__(self, files: SegmentFiles, segment: int, file: File, limit: int) -> None:
        self.segment = segment
        self.name = segment_name(segment)
        self.file = file
        self._files = files
        self._limit = limit
        self._window = memoryview(b"")
        self._window_first = 0

    def bytes_at(self, position: int, length: int) -> memoryview:
        """`length` bytes, fewer if the file is cut short there."""
        first = position - self._window_first
        if first < 0 or first + length > len(self._window):
            size = max(length, min(READ_AHEAD_BYTES, self._limit - position))
            data = self._files.mirrored(self.segment, position, size)
            if data is None:
                data = _read(self.file, size, position, self.name)
            self._window = memoryview(data)
            self._window_first = position
            first = 0
        return self._window[first : first + length]

    def frame_at(self, position: int) -> Frame | None:
        """The frame that stands at `position`, by the rule at the top of `frame.py`, or None."""
        room_bytes = self._files.segment_bytes - position
        if room_bytes < FRAME_ALIGN_BYTES:
            return None
        group = self._files.group_at(self.segment, position)
        size = claimed_bytes(self.bytes_at(position, FRAME_ALIGN_BYTES), group, room_bytes)
        if size is None:
            return None
        return unpack_frame(self.bytes_at(position, size), self._files.identity_crc)

    def payload_at(self, position: int, frame: Frame) -> bytes:
        return bytes(self.bytes_at(position + FRAME_HEADER_BYTES, frame.payload_bytes))

    def positions_of_magic(self, first: int) -> list[int]:
        """Sectors from `first` on that open with a frame's magic: the only ones where a frame can stand."""
        found = []
        for window_first in range(first, self._files.segment_bytes, READ_AHEAD_BYTES):
            length = min(READ_AHEAD_BYTES, self._files.segment_bytes - window_first)
            window = _read(self.file, length, window_first, self.name)
            place = window.find(FRAME_MAGIC)
            while place >= 0:
                if place % FRAME_ALIGN_BYTES == 0:
                    found.append(window_first + place)
                place = window.find(FRAME_MAGIC, place + 1)
        return found


def _read(file: File, length: int, position: int, name: str) -> bytes:
    try:
        return file.pread(length, position)
    except OSError as error:
        what = f"cannot read: {error.strerror}"
        raise DiskFault(what, file=name, position=position, hint="check the device") from error
