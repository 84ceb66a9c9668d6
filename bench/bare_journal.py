"""The least that a group commit costs in Python: the yardstick beside which `bench engine` shows CPU figures.

A header and a checksum per record, one thread that writes and syncs what came in meanwhile, answers by callback.
Nothing is decided, indexed or remembered. The machine of the day makes absolute CPU figures worth little: the same
engine took 12 and 20 µs per append on two days. What it takes beside this, in the same run, stays.
"""

import asyncio
import os
import queue
import threading
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from oncelog.core.command import Columns
from oncelog.core.outcome import Confirmed
from oncelog.engine.group import Reply
from oncelog.storage.disk import PosixDisk
from oncelog.storage.segment import SegmentHeader, prepare_file

_HEADER = Struct("<QII")
FILE_BYTES = 512 << 20
NAME = "bare"


class BareJournal:
    """Stands in for an engine as far as the load generator needs one."""

    def __init__(self, directory: Path, loop: asyncio.AbstractEventLoop) -> None:
        disk = PosixDisk(directory)
        prepare_file(disk, NAME, SegmentHeader(FILE_BYTES, bytes(16)))
        disk.close()
        self._handle = os.open(directory / NAME, os.O_WRONLY)
        self._loop = loop
        self._position = 0
        self._number = 0
        self._frames: list[bytes | bytearray] = []
        self._replies: list[Reply] = []
        self._is_writing = self._is_scheduled = False
        self.groups = 0
        self._work: queue.SimpleQueue[tuple[list[bytes | bytearray], list[Reply]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(self, command: Columns, reply: Reply) -> None:
        """Take one record."""
        value = command.values[0] or b""
        self._number += 1
        self._frames += (_HEADER.pack(self._number, len(value), crc32c(value)), value)
        self._replies.append(reply)
        if not self._is_writing and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        if self._replies:
            self._is_writing = True
            self._work.put((self._frames, self._replies))
            self._frames, self._replies = [], []

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            frames, replies = work
            data = b"".join(frames)
            if self._position + len(data) > FILE_BYTES:
                self._position = 0
            os.pwritev(self._handle, [data], self._position)
            os.fdatasync(self._handle)
            self._position += -(-len(data) // 4096) * 4096
            self._loop.call_soon_threadsafe(self._done, replies)

    def _done(self, replies: list[Reply]) -> None:
        self._is_writing = False
        self.groups += 1
        self._flush()
        for reply in replies:
            reply(Confirmed(1, 0, 1))

    def close(self) -> None:
        """End the thread and close the file."""
        self._work.put(None)
        self._thread.join()
        os.close(self._handle)
