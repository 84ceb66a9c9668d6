"""Waiting at many streams at once, for a minimum of bytes, for no longer than a stated time.

The wait ends when the streams together have enough bytes from their offsets on, when one of them cannot be read at its
offset (it is missing or deleted, or the offset lies below the floor or beyond the end), or when the time is up. A
stream that is closed and read to its end never ends a wait: nothing will come, and a client that polls would come back
at once, for ever.

Bytes are counted once: what was counted stays counted, and each stream goes on from there when it changes.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from oncelog.core.outcome import Refusal
from oncelog.engine.follow import Follow, Waiter, Wake
from oncelog.engine.read_view import StreamView
from oncelog.engine.reader import Reader, Way, offset_refused
from oncelog.errors import StorageError


class Awaited(NamedTuple):
    """A place in a stream that somebody waits at."""

    topic: str
    partition: int
    offset: int
    way: Way = Way.COMMITTED


Resolve = Callable[[str, int], StreamView | Refusal]


class ManyWait:
    """One wait at many streams. `wake` is called once, never from within the constructor."""

    __slots__ = ("_counted", "_enough", "_follow", "_reader", "_resolve", "_timer", "_waiters", "_wake", "is_over")

    def __init__(self, reader: Reader, follow: Follow, resolve: Resolve, bytes_min: int, wake: Wake) -> None:
        self._reader = reader
        self._follow = follow
        self._resolve = resolve
        self._enough = bytes_min
        self._wake: Wake | None = wake
        self._counted = 0
        self._waiters: dict[int, Waiter] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.is_over = False

    def begin(self, places: list[Awaited], loop: asyncio.AbstractEventLoop, wait_ms: int) -> bool:
        """Wait; False if there is nothing to wait for, since what was waited for is already so."""
        for number, place in enumerate(places):
            if self._is_enough() or not self._stay(number, place):
                self.cancel()
                return False
        if self._is_enough():
            self.cancel()
            return False
        self._timer = loop.call_later(wait_ms / 1000, self._end)
        return True

    def cancel(self) -> None:
        """Wait no more; `wake` will not be called."""
        self.is_over = True
        self._wake = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for waiter in self._waiters.values():
            self._follow.cancel(waiter)
        self._waiters.clear()

    def _end(self) -> None:
        wake = self._wake
        self.cancel()
        if wake is not None:
            wake()

    def _is_enough(self) -> bool:
        return self._counted >= self._enough

    def _stay(self, number: int, place: Awaited) -> bool:
        """Count what one stream has, and wait for more of it; False if it cannot be read there."""
        stream = self._resolve(place.topic, place.partition)
        if isinstance(stream, Refusal):
            return False
        offset, end = place.offset, place.way.end_of(stream)
        if offset_refused(stream.stream_id, offset, stream.floor, end) is not None:
            return False
        while True:
            if offset < end:
                try:
                    size, offset = self._reader.bytes_from(stream, offset, place.way, self._enough - self._counted)
                except StorageError:
                    return False  # the read that follows reports the damage
                self._counted += size
                if self._is_enough():
                    return True
            if stream.closed and stream.stable == stream.tail:
                return True
            place = place._replace(offset=offset)
            waiter = self._follow.wait(stream.stream_id, offset, partial(self._changed, number, place), place.way)
            if waiter is not None:
                self._waiters[number] = waiter
                return True

    def _changed(self, number: int, place: Awaited) -> None:
        if self.is_over:
            return
        self._waiters.pop(number, None)
        if not self._stay(number, place) or self._is_enough():
            self._end()
