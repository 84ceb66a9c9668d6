"""The thread that keeps spare segments ready, so that the loop does not wait for the disk. A failure is handed to the
loop, which ends the process; the thread never retries."""

import queue
import threading
from collections.abc import Callable
from contextlib import suppress

from oncelog.engine.guard import Fatal, Guard, Post
from oncelog.errors import DiskFull, StorageError
from oncelog.storage.journal import Journal


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
