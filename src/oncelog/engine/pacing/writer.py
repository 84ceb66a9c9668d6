"""The thread that writes groups, so that the loop does not wait for the disk. (Groups that everybody waits for are left
to the kernel, without a thread: `poller.py`.)

It does no CPU work worth mentioning: the system calls release the interpreter. A failure is handed to the loop, which
ends the process; the thread never retries.
"""

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from oncelog.engine.group import Group
from oncelog.engine.guard import Fatal, Guard, Post
from oncelog.errors import StorageError
from oncelog.storage.journal import Journal


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
