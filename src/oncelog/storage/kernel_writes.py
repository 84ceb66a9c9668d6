"""Writes that the kernel carries out by itself: Linux's asynchronous I/O, one write and its sync at a time.

A thread that waits for the disk has to wake up when it is handed a group, and the loop when the thread is done: on a
processor that has gone to sleep meanwhile each takes about as long as a third of the sync. Here the loop hands the
group to the kernel and looks now and then how far it is. Neither `start` nor `is_done` waits for the disk: a write that
could not be handed over without waiting is refused (RWF_NOWAIT) and is then for a thread. (One thing is waited for: a
file system that is frozen, for a snapshot. Writes wait for its thaw before they look at any flag.)

It takes two requests, a write past the page cache and then an fdatasync, and not one write that is synced (O_DSYNC):
the kernel finishes such a write on a worker bound to the processor that took the disk's interrupt, where it waits up
to 4 ms behind whatever is busy there. A plain write over blocks that were written before is finished by the interrupt
itself (on recent kernels; elsewhere it is as slow, and then left to the thread), and an fdatasync is done by a worker
on the processor of whoever asked for it. So whoever looks must give that processor away between two looks
(`sched_yield`), and whoever has other work to do had better use a thread.

Structures and numbers are those of linux/aio_abi.h and of x86-64, which the mirror asks for too. By hand, because the
libraries for it copy what they are given to memory that a write past the page cache does not take.
"""

import ctypes
import errno
import os
from typing import Any, Final

_IO_SETUP, _IO_DESTROY, _IO_GETEVENTS, _IO_SUBMIT = (ctypes.c_long(number) for number in (206, 207, 208, 209))
_PWRITE, _FDSYNC = 1, 3
_ONE, _NONE_AT_LEAST = ctypes.c_long(1), ctypes.c_long(0)

_HEAD, _TAIL, _MAGIC, _RING_FIELDS = 2, 3, 4, 5
_RING_MAGIC = 0xA10A10A1
"""A context's number is the address of its ring of events, which begins with these fields (struct aio_ring): whether
there is one can be seen without a call, as libaio does."""

_NOWAIT: Final = 8
"""RWF_NOWAIT: rather refuse than wait for a lock, for the page cache, or for room in the device's queue."""

_call: Final = ctypes.CDLL(None, use_errno=True).syscall


class _Request(ctypes.Structure):
    """struct iocb."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("memory", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("position", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("event_descriptor", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """struct io_event."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


assert ctypes.sizeof(_Request) == 64
assert ctypes.sizeof(_Event) == 32


class WriteNotTaken(OSError):
    """The kernel gives the write back: it may be written in another way. `is_final` if the next one would be, too."""

    @property
    def is_final(self) -> bool:
        return self.errno != errno.EAGAIN


_NOT_TAKEN: Final = frozenset({errno.EAGAIN, errno.EINVAL, errno.EOPNOTSUPP})
"""Results of a write of which nothing was done: it would have to wait, it is not aligned as the device wants it, the
file system does not know the flag."""


class KernelWrites:
    """At most one write is under way. Failures are `OSError`; nothing is retried."""

    def __init__(self, descriptor: int) -> None:
        """Raises `OSError` if the kernel has no such thing, or cannot sync this file that way."""
        context = ctypes.c_uint64(0)
        _check(_call(_IO_SETUP, _ONE, ctypes.byref(context)), "io_setup")
        self._context = context
        self._event = _Event()
        self._write = _Request(opcode=_PWRITE, rw_flags=_NOWAIT)
        self._sync = _Request(opcode=_FDSYNC)
        # Made once: making them takes as long as the call.
        self._write_list = ctypes.byref(ctypes.pointer(self._write))
        self._sync_list = ctypes.byref(ctypes.pointer(self._sync))
        self._event_list = ctypes.byref(self._event)
        ring = (ctypes.c_uint32 * _RING_FIELDS).from_address(context.value)
        self._ring: memoryview | None = None
        if ring[_MAGIC] == _RING_MAGIC:
            self._ring = memoryview(ring).cast("B").cast("I")
        self._is_syncing = True
        self._sync.descriptor = descriptor
        try:
            self._submit(self._sync_list)
            while not self.is_done():
                os.sched_yield()
        except OSError:
            self.close()
            raise

    def start(self, descriptor: int, memory: int, size: int, position: int) -> None:
        """Write `size` bytes at the address `memory` to a file that is open past the page cache, and sync it. They must
        stay as they are until `is_done`. Raises `WriteNotTaken`, as `is_done` may."""
        write = self._write
        write.descriptor, write.memory, write.size, write.position = descriptor, memory, size, position
        self._sync.descriptor = descriptor
        self._is_syncing = False
        self._submit(self._write_list)

    def is_done(self) -> bool:
        """Whether what was started is on the device."""
        ring = self._ring
        if ring is not None and ring[_HEAD] == ring[_TAIL]:
            return False
        found = _call(_IO_GETEVENTS, self._context, _NONE_AT_LEAST, _ONE, self._event_list, None)
        if found != 1:
            if found and ctypes.get_errno() != errno.EINTR:  # a signal breaks off a look that finds nothing
                _check(found, "io_getevents")
            return False
        result = self._event.result
        if result < 0:
            if -result in _NOT_TAKEN and not self._is_syncing:
                raise WriteNotTaken(-result, os.strerror(-result))
            raise OSError(-result, os.strerror(-result))
        if self._is_syncing:
            return True
        if result != self._write.size:
            raise OSError(errno.EIO, f"the disk took {result} of {self._write.size} bytes")
        self._is_syncing = True
        self._submit(self._sync_list)
        return False

    def close(self) -> None:
        """Waits for what is under way: the kernel reads the memory until then."""
        self._ring = None  # it is no memory of ours any more
        _call(_IO_DESTROY, self._context)

    def _submit(self, requests: Any) -> None:
        """What is refused here was not begun. (If it is the sync, the bytes may be written once more.)"""
        taken = _call(_IO_SUBMIT, self._context, _ONE, requests)
        if taken != 1:
            code = ctypes.get_errno() if taken < 0 else errno.EAGAIN
            raise WriteNotTaken(code, f"io_submit: {os.strerror(code)}")


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result
