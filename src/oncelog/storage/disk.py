"""The disk as storage sees it: one flat directory of named files. Owns every system call on journal files.

A `Disk` hands out `File` objects. A file is closed when the last reference to it goes, never by name: a reader that
is inside `pread` while another thread recycles the segment must not find its descriptor number given to a new file.

What the three implementations (`PosixDisk`, `MemoryDisk`, `testing.sim_disk.SimDisk`) promise alike:

- a write is visible to every later `pread` at once, and survives a crash only after `fdatasync` of that file returned;
- a created, renamed or removed name survives a crash only after `sync_directory` returned;
- failures are `OSError`; nothing is retried here, since a second fdatasync after a failed one proves nothing.
"""

import errno
import fcntl
import os
from collections.abc import Sequence
from typing import Final, Protocol

from oncelog.errors import DirectoryInUse, DiskFault, DiskFull, StorageError
from oncelog.limits import PWRITEV_BUFFERS_MAX

Buffer = bytes | bytearray | memoryview
"""Bytes to be written. A memoryview must be one of single bytes, so that `len` is its size."""

LOCK_NAME: Final = "lock"

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What a full disk says, or a quota."""


class File(Protocol):
    """One open file. Its three methods may be called from any thread."""

    def pwritev(self, buffers: Sequence[Buffer], position: int, /) -> int:
        """Write at most `PWRITEV_BUFFERS_MAX` buffers; returns the bytes written, which may be fewer than given."""

    def pread(self, length: int, position: int, /) -> bytes:
        """Read `length` bytes, fewer only at the end of the file."""

    def fdatasync(self) -> None:
        """Return once everything written to this file before the call is on the device."""


class Disk(Protocol):
    """One directory."""

    def names(self) -> list[str]:
        """Names of the files, sorted. Not one instant: a rename meanwhile may show neither or both names."""

    def open(self, name: str, *, create: bool = False) -> File:
        """An existing file (`FileNotFoundError` otherwise), or with `create` a new one (`FileExistsError`)."""

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def sync_directory(self) -> None:
        """Return once every name created, renamed or removed before the call is so on the device."""

    def has_room(self, size: int, /) -> bool:
        """Whether so many bytes more may fit: False spares the try. True promises nothing."""

    def close(self) -> None:
        """Give the directory back. Files handed out earlier stay readable."""


def disk_error(error: OSError, what: str, file: str = "", position: int = -1) -> StorageError:
    """What a failure means to those above: `DiskFull`, which may pass, or `DiskFault`."""
    if error.errno in NO_SPACE:
        return DiskFull(what, file=file, position=position, hint="free space on the device; reads go on")
    return DiskFault(f"{what}: {error.strerror}", file=file, position=position, hint="check the device")


def write_all(file: File, buffers: Sequence[Buffer], position: int) -> None:
    """Write all of `buffers`, continuing after short writes. On `OSError` an unknown part was written."""
    for first in range(0, len(buffers), PWRITEV_BUFFERS_MAX):
        chunk = buffers[first : first + PWRITEV_BUFFERS_MAX]
        remaining = sum(map(len, chunk))
        while remaining:
            written = file.pwritev(chunk, position)
            if written <= 0:
                # POSIX allows it; treating it as progress would spin for ever.
                raise OSError(errno.EIO, "the disk accepted no byte")
            position += written
            remaining -= written
            if remaining:
                chunk = _unwritten(chunk, written)


def _unwritten(buffers: Sequence[Buffer], written: int) -> list[Buffer]:
    """What is left of `buffers` after the first `written` bytes."""
    for index, buffer in enumerate(buffers):
        if written < len(buffer):
            return [memoryview(buffer)[written:], *buffers[index + 1 :]]
        written -= len(buffer)
    return []


class PosixFile:
    """A descriptor that closes itself with its last reference."""

    __slots__ = ("_descriptor", "_direct")

    def __init__(self, descriptor: int, *, direct: bool = False) -> None:
        self._descriptor = descriptor
        self._direct = direct
        """Past the page cache, as long as the file system takes what it is given that way."""

    def pwritev(self, buffers: Sequence[Buffer], position: int, /) -> int:
        try:
            return os.pwritev(self._descriptor, buffers, position)
        except OSError as error:
            if not self._direct or error.errno != errno.EINVAL:
                raise
        # Not aligned as this device wants it: nothing was written. Go through the cache from here on.
        self._direct = False
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
        return os.pwritev(self._descriptor, buffers, position)

    def pread(self, length: int, position: int, /) -> bytes:
        return os.pread(self._descriptor, length, position)

    def fdatasync(self) -> None:
        os.fdatasync(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)


class PosixDisk:
    """A directory of a real file system.

    The writer holds a lock on the file `lock` until `close`; a second writer gets `DirectoryInUse`. The lock belongs
    to the open descriptor, so a child made by plain fork would keep it: start children with exec. A read-only disk
    takes no lock: other processes read durable frames beside the writer.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self._path = os.fspath(path)
        self._read_only = read_only
        self._lock = -1
        if not read_only:
            self._make_directory()
        self._directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if not read_only:
            try:
                self._take_lock()
            except BaseException:
                os.close(self._directory)
                raise

    def _make_directory(self) -> None:
        if os.path.isdir(self._path):
            return
        os.makedirs(self._path)
        # The new directory is itself a name in its parent, and as volatile as any other name until synced.
        parent = os.open(os.path.dirname(os.path.abspath(self._path)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)

    def _take_lock(self) -> None:
        try:
            lock = os.open(LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644, dir_fd=self._directory)
        except OSError as error:
            # It names the file within a directory that whoever reads this would have to guess.
            raise type(error)(error.errno, error.strerror, os.path.join(self._path, LOCK_NAME)) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise DirectoryInUse(
                "another process writes to this directory", file=self._path, hint="stop it, or choose another directory"
            ) from None
        self._lock = lock

    def names(self) -> list[str]:
        with os.scandir(self._directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_file() and entry.name != LOCK_NAME)

    def open(self, name: str, *, create: bool = False) -> PosixFile:
        flags = (os.O_RDONLY if self._read_only else os.O_RDWR) | os.O_CLOEXEC
        if not create:
            return PosixFile(os.open(name, flags, dir_fd=self._directory))
        # A new file is filled with zeros and seldom read soon. Past the page cache that costs 0.1 µs of CPU per KB,
        # through it 0.6 to 3, and the journal's own fdatasync is held up less.
        descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=self._directory)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_DIRECT)
        except OSError:
            return PosixFile(descriptor)
        return PosixFile(descriptor, direct=True)

    def open_direct(self, name: str, *, synced: bool = True) -> PosixFile:
        """An existing file that is written past the page cache, each write on the device when it returns: nothing is
        left to sync, unless it is not to be `synced`. `OSError` if the file system has no such thing. A device that
        wants larger blocks than it is given gets them through the page cache, as much synced."""
        flags = os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC | (os.O_DSYNC if synced else 0)
        return PosixFile(os.open(name, flags, dir_fd=self._directory), direct=True)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self._directory, dst_dir_fd=self._directory)

    def remove(self, name: str) -> None:
        os.remove(name, dir_fd=self._directory)

    def sync_directory(self) -> None:
        os.fsync(self._directory)

    def has_room(self, size: int, /) -> bool:
        state = os.fstatvfs(self._directory)
        return state.f_bavail * state.f_frsize >= size

    def close(self) -> None:
        """Idempotent, so that an unwinding start-up may call it too."""
        directory, self._directory = self._directory, -1
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)
        if directory >= 0:
            os.close(directory)


class MemoryFile:
    """A file that lives and dies with the process."""

    __slots__ = ("_content",)

    def __init__(self) -> None:
        self._content = bytearray()

    def pwritev(self, buffers: Sequence[Buffer], position: int, /) -> int:
        content = self._content
        start = position
        for buffer in buffers:
            if position > len(content):
                content.extend(bytes(position - len(content)))
            content[position : position + len(buffer)] = buffer
            position += len(buffer)
        return position - start

    def pread(self, length: int, position: int, /) -> bytes:
        # Not through a memoryview: while one is alive, a writer on another thread cannot extend the bytearray.
        return bytes(self._content[position : position + length])

    def fdatasync(self) -> None:
        return None


class MemoryDisk:
    """`--in-memory`: the same code above it, and durability none. A process crash is a power cut that loses all."""

    def __init__(self) -> None:
        self._files: dict[str, MemoryFile] = {}

    def names(self) -> list[str]:
        return sorted(self._files)

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        file = self._files.get(name)
        if create:
            if file is not None:
                raise FileExistsError(errno.EEXIST, "file exists", name)
            file = self._files[name] = MemoryFile()
        elif file is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return file

    def rename(self, old: str, new: str) -> None:
        if old not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self._files[new] = self._files.pop(old)

    def remove(self, name: str) -> None:
        if self._files.pop(name, None) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)

    def sync_directory(self) -> None:
        return None

    def has_room(self, _size: int, /) -> bool:
        return True

    def close(self) -> None:
        return None
