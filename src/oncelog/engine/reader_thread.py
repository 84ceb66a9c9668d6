"""The reader's thread: waits for the disk so that the loop does not, for records that have left the page cache.

Work is done in its order, and touches only the journal's files. What comes of it is told on the loop's thread. Bytes
that are damaged, or cannot be read, are told to whoever wanted them: only writes and syncs that fail end the process.
So does an exception that nobody expected, from the loop's thread like every other.

What waits is kept on the loop's side and handed over bit by bit: a client that has gone takes its read with it, and
one that has most likely gone lets the others pass.
"""

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Generic, TypeVar

from oncelog import limits
from oncelog.core.outcome import Overloaded, Refusal, Stopping
from oncelog.engine.damage import damaged
from oncelog.engine.guard import Fatal, Post
from oncelog.errors import StorageError
from oncelog.storage.segment import GroupGone

T = TypeVar("T")


HANDED_MAX: Final = 2
"""The work that the thread is at, and the next, so that it need not wait for the loop between the two."""

PUT_OFF_TURN: Final = 8
"""Of so many turns one belongs to those that were put off: they come last, but they come."""


class Asked(Generic[T]):
    """Work that waits for the thread, or is being done."""

    __slots__ = ("_thread", "is_wanted", "plan_again", "size", "told", "work")

    def __init__(
        self,
        thread: "ReaderThread",
        work: Callable[[], T],
        told: Callable[[T | Refusal], None],
        size: int,
        plan_again: Callable[[], Callable[[], T] | Refusal] | None,
    ) -> None:
        self._thread = thread
        self.work = work
        self.told = told
        self.size = size
        self.plan_again = plan_again
        self.is_wanted = True

    def cancel(self) -> None:
        """Nobody wants it any more: `told` will not be called."""
        self.is_wanted = False
        self._thread.forget(self)
        self.let_go()

    def let_go(self) -> None:
        """Drop what it was made of. Its callback leads to the answer that has this object as its read in progress: a
        cycle, which would keep megabytes alive until the collector comes."""
        self.work = _over
        self.told = _over
        self.plan_again = None

    def put_off(self) -> None:
        """Perhaps nobody wants it any more: others may pass."""
        self._thread.put_off(self)


def _over(*_arguments: object) -> Any:
    raise AssertionError("this read is over")


class ReaderThread:
    """One thread, and what waits for it, in order. All methods are the loop's thread's."""

    def __init__(self, post: Post, failed: Fatal) -> None:
        self._post = post
        self._failed = failed
        self._pool = ThreadPoolExecutor(1, "oncelog-reader")
        self._waiting: OrderedDict[Asked[Any], None] = OrderedDict()
        self._put_off: OrderedDict[Asked[Any], None] = OrderedDict()
        self._waiting_bytes = 0
        self._handed = 0
        self._turn = 0

    @property
    def waiting(self) -> int:
        """How many wait; what was handed over is not counted."""
        return len(self._waiting) + len(self._put_off)

    def ask(
        self,
        work: Callable[[], T],
        told: Callable[[T | Refusal], None],
        *,
        batches: int = 1,
        plan_again: Callable[[], Callable[[], T] | Refusal] | None = None,
    ) -> Asked[T] | None:
        """Do `work`, which reads so many batches, on the thread, then tell its result, or the damage that it met. None
        if too much waits already; `told` knows. If a segment that it reads was recycled meanwhile, `plan_again` says on
        the loop's thread what to do instead."""
        size = batches * limits.READ_PLANNED_BYTES
        if self._waiting_bytes and self._waiting_bytes + size > limits.READS_WAITING_BYTES_MAX:
            told(Overloaded(self._waiting_bytes, limits.READS_WAITING_BYTES_MAX))
            return None
        asked = Asked(self, work, told, size, plan_again)
        self._waiting[asked] = None
        self._waiting_bytes += size
        self._hand_over()
        return asked

    def forget(self, asked: Asked[Any]) -> None:
        """Let go of it if it still waits."""
        for waiting in (self._waiting, self._put_off):
            if asked in waiting:
                del waiting[asked]
                self._waiting_bytes -= asked.size

    def put_off(self, asked: Asked[Any]) -> None:
        """Behind all others, if it still waits."""
        if asked in self._waiting:
            del self._waiting[asked]
            self._put_off[asked] = None

    def _hand_over(self) -> None:
        while self.waiting and self._handed < HANDED_MAX:
            self._turn += 1
            is_their_turn = self._put_off and (not self._waiting or self._turn % PUT_OFF_TURN == 0)
            asked, _ = (self._put_off if is_their_turn else self._waiting).popitem(last=False)
            self._waiting_bytes -= asked.size
            self._handed += 1
            self._pool.submit(asked.work).add_done_callback(partial(self._post, self._done, asked))
            asked.work = _over

    def _done(self, asked: Asked[T], future: "Future[T]") -> None:
        """Back on the loop's thread. The next work leaves before the answer does."""
        self._handed -= 1
        self._hand_over()
        error = future.exception()
        if isinstance(error, GroupGone) and not asked.is_wanted:
            return
        if isinstance(error, GroupGone) and asked.plan_again is not None:
            self._go_again(asked, asked.plan_again())
        elif error is not None and not isinstance(error, StorageError):
            self._failed(error)
        elif asked.is_wanted:
            told = asked.told
            asked.let_go()
            told(future.result() if error is None else damaged(error))

    def _go_again(self, asked: Asked[T], work: Callable[[], T] | Refusal) -> None:
        """The records lie elsewhere by now, or were trimmed."""
        if isinstance(work, Refusal):
            told = asked.told
            asked.let_go()
            told(work)
        else:
            asked.work = work
            self._waiting[asked] = None
            self._waiting_bytes += asked.size
            self._hand_over()

    def stop(self) -> None:
        """Finish what the thread is at, and end. The rest is told that there is nothing more to come."""
        left = [*self._waiting, *self._put_off]
        self._waiting.clear()
        self._put_off.clear()
        self._pool.shutdown()
        for asked in left:
            told = asked.told
            asked.let_go()
            told(Stopping())
