"""Threads that wait for the disk so that the loop does not: one writes groups, one keeps spare segments ready. (Groups
that everybody waits for are left to the kernel, without a thread: `poller.py`.)

Neither does CPU work worth mentioning: the system calls release the interpreter. A failure is handed to the loop,
which ends the process; the threads never retry.
"""

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from oncelog.engine.group import Group
from oncelog.engine.guard import Fatal, Guard
from oncelog.errors import DiskFull, StorageError
from oncelog.storage.journal import Journal

Post = Callable[..., object]
"""Runs a callback on the loop's thread: `loop.call_soon_threadsafe`."""


class WriteSeconds:
    """How long writing and syncing took. Only who has written the last group adds to it."""

    __slots__ = ("count", "last", "total")

    def __init__(self) -> None:
        self.count = 0
        self.last = 0.0
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.last = seconds
        self.total += seconds


class GroupWriter:
    """Writes and syncs one group at a time, in order."""

    def __init__(self, journal: Journal, post: Post, done: Callable[[Group], None], failed: Fatal) -> None:
        self._journal = journal
        self._post = post
        self._done = done
        self._failed = failed
        self._groups: queue.SimpleQueue[Group | None] = queue.SimpleQueue()
        self.seconds = WriteSeconds()
        self._thread = threading.Thread(target=self._run, name="oncelog-writer", daemon=True)
        self._thread.start()

    def write(self, group: Group) -> None:
        """Hand over a sealed group; `done` is posted when it is durable."""
        self._groups.put(group)

    def stop(self) -> None:
        """Finish what was handed over and end."""
        self._groups.put(None)
        self._thread.join()

    def _run(self) -> None:
        with suppress(StorageError), Guard(lambda error: self._post(self._failed, error)):
            while (group := self._groups.get()) is not None:
                begun = time.perf_counter()
                self._journal.write(group.open, group.buffers)
                self.seconds.add(time.perf_counter() - begun)
                self._post(self._done, group)


class SpareKeeper:
    """Keeps pre-written segments ready, and says when the disk is full or has room again."""

    def __init__(
        self,
        journal: Journal,
        post: Post,
        ready: Callable[[], None],
        full: Callable[[DiskFull], None],
        failed: Fatal,
    ) -> None:
        self._journal = journal
        self._post = post
        self._ready = ready
        self._full = full
        self._failed = failed
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="oncelog-spares", daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Look whether a spare is missing."""
        self._asked.put(True)

    def stop(self) -> None:
        """Finish the segment at hand and end. The next start goes on with the spares that are there."""
        self._stopping = True
        self._asked.put(False)
        self._thread.join()

    def _run(self) -> None:
        with suppress(StorageError), Guard(lambda error: self._post(self._failed, error)):
            while self._asked.get():
                try:
                    while not self._stopping and self._journal.prepare():
                        self._post(self._ready)
                except DiskFull as error:
                    self._post(self._full, error)
