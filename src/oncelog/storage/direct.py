"""The segment in use, open for writing past the page cache: by the writer's thread, and by the kernel itself.

Groups are written from the mirror, where they were laid out before: memory that stays, and that lies as such writes
want it. Each segment has two descriptors. What the thread writes is on the device when the call returns (O_DSYNC). The
kernel's own writes are synced by a request of their own (`kernel_writes.py` says why), so theirs has no such flag.

Used by whoever writes the group, one at a time.
"""

import os
from contextlib import suppress

from oncelog.limits import KERNEL_WRITE_BYTES_MAX
from oncelog.storage.disk import File, PosixDisk, PosixFile
from oncelog.storage.kernel_writes import KernelWrites
from oncelog.storage.mirror import Mirror
from oncelog.storage.segment import segment_name


class DirectSegment:
    """One segment at a time."""

    def __init__(self, disk: PosixDisk, mirror: Mirror, segment: int) -> None:
        """Raises `OSError` if the file system has no such writes."""
        self._disk = disk
        self._mirror = mirror
        self._segment = segment
        self.file: PosixFile | None = disk.open_direct(segment_name(segment))
        """None if it could not be opened: its groups then go through the page cache, and are synced."""
        self._kernel: KernelWrites | None = None
        self._kernel_file: PosixFile | None = None
        with suppress(OSError):
            self._kernel_file = disk.open_direct(segment_name(segment), synced=False)
            self._kernel = KernelWrites(self._kernel_file.fileno())
            self.drop_cached()
        if self._kernel is None:
            self._kernel_file = None

    def file_of(self, segment: int) -> File | None:
        """What groups of `segment` are written to."""
        if segment != self._segment:
            self._segment = segment
            self.file = self._kernel_file = None
            with suppress(OSError):
                self.file = self._disk.open_direct(segment_name(segment))
                if self._kernel is not None:
                    self._kernel_file = self._disk.open_direct(segment_name(segment), synced=False)
        return self.file

    def takes(self, segment: int, address: int, size: int) -> bool:
        """Whether `start` would: small, in one piece, and in the segment that is in use already."""
        return (
            self._kernel is not None
            and self._kernel_file is not None
            and segment == self._segment
            and size <= KERNEL_WRITE_BYTES_MAX
            and self._mirror.is_whole(address, size)
        )

    def start(self, address: int, size: int, position: int) -> None:
        """Have the kernel write and sync what was laid out at `address`. Raises `WriteNotTaken`."""
        assert self._kernel is not None
        assert self._kernel_file is not None
        self._kernel.start(self._kernel_file.fileno(), self._mirror.memory_of(address), size, position)

    def is_done(self) -> bool:
        """Whether what was started is on the device. Raises `WriteNotTaken`, or `OSError`: then nobody knows."""
        assert self._kernel is not None
        return self._kernel.is_done()

    def drop_cached(self) -> None:
        """Recovery has read the segment, and who reads is given more than was asked for: the kernel takes no write of
        its own over pages that are cached. They are clean, since all of it was written past the cache."""
        if self._kernel_file is not None:
            with suppress(OSError):  # it is advice
                os.posix_fadvise(self._kernel_file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def leave_kernel(self) -> None:
        """Its writes are of no use here."""
        if self._kernel is not None:
            self._kernel.close()
        self._kernel = self._kernel_file = None

    def close(self) -> None:
        """Nothing is written any more."""
        self.leave_kernel()
        self.file = None
