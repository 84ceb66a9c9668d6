"""Spares: segment files that are written in advance. Owns the queue of them, and how such a file is made.

fdatasync over blocks that were written before costs half, and a group must not wait for a whole segment of zeros: so a
helper thread keeps `SPARES_WANTED` of them ready. A spare becomes a segment when the first group in it is written, by
`journal.py`, which also says who may take the last one; a segment dropped at the front becomes a spare again.

Who may call what, since there are no locks: the loop's thread takes from the front of `ready`, the helper thread does
everything else. Adding at one end and taking at the other needs none.

Invariants: a name in `ready` is that of a whole, synced file, and so is every `spare-` name that is found after a
crash. Whether the name itself is durable is not known: whoever relies on it syncs the directory first. No number is
given out twice.
"""

import errno
import itertools
import os
from collections import deque
from contextlib import suppress
from typing import Final

from oncelog.limits import SPARES_WANTED
from oncelog.storage.disk import Disk, disk_error
from oncelog.storage.segment import (
    IDENTITY_BYTES,
    SegmentHeader,
    prepare_file,
    segment_bytes_valid,
    segment_name,
    spare_name,
    unready_name,
)

RESERVE_SPARES: Final = 1
"""Spares that ordinary groups leave alone. On a full disk, timers, aborts and cleaning need room to make room."""

assert RESERVE_SPARES < SPARES_WANTED


class Spares:
    """Those of one journal."""

    def __init__(self, disk: Disk, header: SegmentHeader, numbers: list[int]) -> None:
        self._disk = disk
        self._header = header
        self._numbers = itertools.count(max(numbers, default=-1) + 1)
        self.ready = deque(spare_name(number) for number in numbers)
        """Names, the oldest first."""

    def prepare(self) -> bool:
        """Make one ready; False if none is missing. Blocking. After `DiskFull` it may be tried again."""
        if len(self.ready) >= SPARES_WANTED:
            return False
        number = next(self._numbers)
        try:
            _prepare(self._disk, number, self._header)
            # Renamed only when its zeros are synced, so a spare found after a crash is a whole one. Its own name need
            # not be durable: whoever makes a segment of it syncs the directory before relying on one.
            self._disk.rename(unready_name(number), spare_name(number))
        except OSError as error:
            with suppress(OSError):
                self._disk.remove(unready_name(number))
            raise disk_error(error, "cannot prepare a spare segment") from error
        self.ready.append(spare_name(number))
        return True

    def new_name(self) -> str:
        """For a segment that becomes a spare; to be added to `ready` when it is one."""
        return spare_name(next(self._numbers))


def create_first_segment(disk: Disk, segment_bytes: int, salt: int, unready: list[int]) -> None:
    """Segment 0 of a new journal. A crash in between leaves an unready file, or nothing."""
    assert segment_bytes_valid(segment_bytes)
    for number in unready:
        disk.remove(unready_name(number))
    _prepare(disk, 0, SegmentHeader(segment_bytes, salt.to_bytes(IDENTITY_BYTES, "little")))
    disk.rename(unready_name(0), segment_name(0))
    disk.sync_directory()


def _prepare(disk: Disk, number: int, header: SegmentHeader) -> None:
    """Write a whole unready file. After `OSError` the partial one is removed: on a full disk it is the last straw.
    There it is not begun either: tried again and again, it would keep the device busy with zeros."""
    name = unready_name(number)
    if not disk.has_room(header.segment_bytes):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    try:
        prepare_file(disk, name, header)
    except OSError:
        if name in disk.names():
            disk.remove(name)
        raise
