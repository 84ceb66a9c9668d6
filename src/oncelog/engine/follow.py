"""Waking readers: one callback per waiting reader, called once there is something to deliver, or nothing ever will be.

A hole wakes no reader of committed data: such a waiter is woken when a record that may be delivered lies at or after
its offset below `stable`. The two other ways of reading are shown markers and aborted records, so any offset below
their end wakes them. All are woken when records that they waited for were trimmed before they saw them, or when the
stream is closed or deleted.
"""

from collections.abc import Callable, Iterable

from oncelog.engine.read_view import ReadView
from oncelog.engine.reader import Way

Wake = Callable[[], None]


class Waiter:
    """One reader waiting at one offset."""

    __slots__ = ("offset", "stream_id", "wake", "way")

    def __init__(self, stream_id: int, offset: int, wake: Wake, way: Way) -> None:
        self.stream_id = stream_id
        self.offset = offset
        self.wake = wake
        self.way = way


class Follow:
    """Waiters by stream."""

    def __init__(self, view: ReadView) -> None:
        self._view = view
        self._waiters: dict[int, dict[Waiter, None]] = {}

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiters.values()))

    def wait(self, stream_id: int, offset: int, wake: Wake, way: Way = Way.COMMITTED) -> Waiter | None:
        """Call `wake` later; None if there is something to read right now."""
        waiter = Waiter(stream_id, offset, wake, way)
        if self._is_ready(waiter):
            return None
        self._waiters.setdefault(stream_id, {})[waiter] = None
        return waiter

    def cancel(self, waiter: Waiter) -> None:
        """The reader has gone."""
        waiters = self._waiters.get(waiter.stream_id)
        if waiters is not None and waiter in waiters:
            del waiters[waiter]
            if not waiters:
                del self._waiters[waiter.stream_id]

    def changed(self, stream_ids: Iterable[int]) -> None:
        """These streams have changed for readers."""
        if not self._waiters:
            return
        for stream_id in stream_ids:
            waiters = self._waiters.get(stream_id)
            if waiters is None:
                continue
            ready = [waiter for waiter in waiters if self._is_ready(waiter)]
            for waiter in ready:
                self.cancel(waiter)
            for waiter in ready:
                waiter.wake()

    def _is_ready(self, waiter: Waiter) -> bool:
        stream = self._view.stream(waiter.stream_id)
        if stream is None or waiter.offset < stream.floor or (stream.closed and stream.stable == stream.tail):
            return True
        if waiter.way is not Way.COMMITTED:
            return waiter.offset < waiter.way.end_of(stream)
        waiter.offset = self._view.first_live(stream, waiter.offset) if waiter.offset < stream.stable else waiter.offset
        return waiter.offset < stream.stable
