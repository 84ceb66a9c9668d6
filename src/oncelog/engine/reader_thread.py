"""The reader's thread: waits for the disk so that the loop does not, for records that have left the page cache.

Work is done in its order, and touches only the journal's files. What comes of it is told on the loop's thread. Bytes
that are damaged, or cannot be read, are told to whoever wanted them: only writes and syncs that fail end the process.
So does an exception that nobody expected, from the loop's thread like every other.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from oncelog.core.outcome import Damaged, Refusal
from oncelog.engine.guard import Fatal
from oncelog.engine.writer import Post
from oncelog.errors import StorageError

T = TypeVar("T")


def damaged(error: StorageError) -> Damaged:
    """A failed read as its reader is told it."""
    return Damaged(error.what, error.file, error.position)


class ReaderThread:
    """One thread, and what waits for it."""

    def __init__(self, post: Post, failed: Fatal) -> None:
        self._post = post
        self._failed = failed
        self._pool = ThreadPoolExecutor(1, "oncelog-reader")

    def ask(self, work: Callable[[], T], told: Callable[[T | Refusal], None]) -> None:
        """Do `work` on the thread, then tell its result, or the damage that it met, on the loop's."""
        self._pool.submit(work).add_done_callback(partial(self._done, told))

    def _done(self, told: Callable[[T | Refusal], None], future: "Future[T]") -> None:
        error = future.exception()
        if error is None:
            self._post(told, future.result())
        elif isinstance(error, StorageError):
            self._post(told, damaged(error))
        else:
            self._post(self._failed, error)

    def stop(self) -> None:
        """Finish what was asked and end."""
        self._pool.shutdown()
