"""The mirror: the newest bytes of the journal in memory that the index builder's process shares.

Groups that are written past the page cache are nowhere but on the disk afterwards, and whoever follows the writer
would read every byte back from there. So a group is laid out here first, written from here, and read from here until a
later one takes its place. The byte at journal address a lies at a modulo the mirror's size; what wraps is two pieces.

A memory file: one page of header, then the ring. The header is three numbers of 64 bits, in the machine's own order:

    0  first       the mirror holds nothing below it: where the journal ended when the mirror was made
    1  reserved    end of the newest group laid out; what lies more than the ring's size below it may be overwritten
    2  durable     end of the newest group that is known to be on disk; nothing at or above it is read (P12)

One writer, many readers, no lock. The writer raises `reserved` before it touches the ring; a reader copies and then
looks at `reserved` again, and takes what it copied for nothing if that had moved past it. This stands on the order of
memory that x86-64 keeps: stores are seen in their order, loads are done in theirs. Within a process the interpreter's
lock gives more than that.

Between the last group of a segment and the first of the next lie addresses that nobody writes: there the ring holds
what was written a lap before. No frame is ever seen in it, since every frame names its own address.
"""

import ctypes
import mmap
import os
import platform
from collections.abc import Sequence
from typing import Final

from oncelog.limits import FRAME_ALIGN_BYTES, MIRROR_BYTES
from oncelog.storage.disk import Buffer

HEADER_BYTES: Final = mmap.PAGESIZE
"""A whole page: the ring behind it then begins on one, as writes past the page cache must."""

CAN_BE_SHARED: Final = platform.machine() == "x86_64"
"""Whether the processor keeps the order of memory that readers in other processes stand on."""

_FIRST, _RESERVED, _DURABLE = range(3)
_COUNTERS_BYTES: Final = 3 * 8

assert MIRROR_BYTES % HEADER_BYTES == 0


class Mirror:
    """One end of it: the journal's, which writes, or a reader's. The memory lives as long as anybody has it mapped."""

    def __init__(self, descriptor: int, *, read_only: bool) -> None:
        """Takes the descriptor over. Raises `OSError`."""
        self._descriptor = descriptor
        access = mmap.ACCESS_READ if read_only else mmap.ACCESS_WRITE
        memory = memoryview(mmap.mmap(descriptor, 0, access=access))
        self._counters = memory[:_COUNTERS_BYTES].cast("Q")
        self._ring = memory[HEADER_BYTES:]
        self.size = len(self._ring)
        self._memory = 0 if read_only else ctypes.addressof(ctypes.c_char.from_buffer(self._ring))

    @classmethod
    def made(cls, first: int, size: int = MIRROR_BYTES) -> "Mirror":
        """A new one for a journal that goes on at address `first`. Raises `OSError`."""
        assert size % FRAME_ALIGN_BYTES == 0
        descriptor = os.memfd_create("oncelog-mirror")
        try:
            os.ftruncate(descriptor, HEADER_BYTES + size)
        except OSError:
            os.close(descriptor)
            raise
        mirror = cls(descriptor, read_only=False)
        for counter in (_FIRST, _RESERVED, _DURABLE):
            mirror._counters[counter] = first
        return mirror

    def fileno(self) -> int:
        """What another process maps. It must be handed on by name: it is closed on exec."""
        return self._descriptor

    # --- the writer ------------------------------------------------------------------------------------------------

    def lay_out(self, address: int, buffers: Sequence[Buffer]) -> None:
        """Put a group where it belongs. Nobody reads it before `set_durable`. The newest may be put there once more."""
        size = sum(map(len, buffers))
        assert address >= self._counters[_RESERVED] or (
            address >= self._counters[_DURABLE] and address + size == self._counters[_RESERVED]
        )
        assert size <= self.size
        self._counters[_RESERVED] = address + size
        at = address % self.size
        for buffer in buffers:
            room = self.size - at
            if len(buffer) <= room:
                self._ring[at : at + len(buffer)] = buffer
            else:
                view = memoryview(buffer)
                self._ring[at:] = view[:room]
                self._ring[: len(buffer) - room] = view[room:]
            at = (at + len(buffer)) % self.size

    def pieces(self, address: int, length: int) -> list[memoryview]:
        """What was laid out there, to be written: one piece, or two if it wraps."""
        at = address % self.size
        if at + length <= self.size:
            return [self._ring[at : at + length]]
        return [self._ring[at:], self._ring[: at + length - self.size]]

    def is_whole(self, address: int, length: int) -> bool:
        """Whether so much lies there in one piece."""
        return address % self.size + length <= self.size

    def memory_of(self, address: int) -> int:
        """Where in this process's memory it lies. The kernel may read there for as long as this object lives."""
        return self._memory + address % self.size

    def set_durable(self, address: int) -> None:
        """Everything below `address` that was laid out is on disk."""
        assert self._counters[_DURABLE] <= address <= self._counters[_RESERVED]
        self._counters[_DURABLE] = address

    # --- readers ---------------------------------------------------------------------------------------------------

    def holds(self, address: int) -> bool:
        """Whether what lies at a durable address can be read here, for now."""
        counters = self._counters
        return address >= counters[_FIRST] and address + self.size >= counters[_RESERVED]

    def read(self, address: int, length: int) -> bytes | None:
        """A copy of [address, address + length); None if some of it is not held, or is not durable."""
        if address + length > self._counters[_DURABLE] or length > self.size or not self.holds(address):
            return None
        at = address % self.size
        data = bytes(self._ring[at : at + length])
        if len(data) < length:
            data += bytes(self._ring[: length - len(data)])
        # Asked again: in another process the writer goes on meanwhile.
        return data if self.holds(address) else None

    def __del__(self) -> None:
        os.close(self._descriptor)
