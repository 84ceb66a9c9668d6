"""Bytes of answers that clients have not taken yet, for the whole server.

A read may bring megabytes, and a client may take them slowly or never. Every connection alone is bounded (one answer at
a time, and none while it has too much unread), but twenty thousand of them are not. So a read that is to fetch records
enters here first. It is counted with the most that it may bring until its answer is handed to the socket, then with
what the socket has not taken. If the sum would exceed the bound, the read waits in line.

All methods run on the loop's thread.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol


class Holder(Protocol):
    """A connection, as far as the bytes that it holds are concerned."""

    def unsent_bytes(self) -> int:
        """Bytes that were handed to the socket and not taken by it."""
        ...


class UnsentBytes:
    """The sum over all connections, and the reads that wait for room in it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: dict[Holder, int] = {}
        self._waiting: OrderedDict[Holder, tuple[int, Callable[[], None]]] = OrderedDict()
        self.total = 0
        self._is_beginning = False

    @property
    def waiting(self) -> int:
        """Reads that wait for room."""
        return len(self._waiting)

    def enter(self, holder: Holder, size: int, begin: Callable[[], None]) -> None:
        """Call `begin` once `size` more bytes have room; at once if they have it now and nobody waits. A holder has one
        read at a time. One that is larger than the bound begins when nothing else is held."""
        if not self._waiting and self._has_room(holder, size):
            self._hold(holder, size)
            begin()
        else:
            self._waiting[holder] = size, begin

    def settle(self, holder: Holder) -> None:
        """An answer of this holder was handed to the socket, or the socket has taken some of it."""
        if holder in self._held:
            self._hold(holder, holder.unsent_bytes())
            self._begin_waiting()

    def let_go(self, holder: Holder) -> None:
        """The holder is gone."""
        self._waiting.pop(holder, None)
        self.total -= self._held.pop(holder, 0)
        self._begin_waiting()

    def settle_all(self) -> None:
        """A socket does not report every time that it took something: look at all that hold bytes."""
        for holder in list(self._held):
            self.settle(holder)

    def _has_room(self, holder: Holder, size: int) -> bool:
        others = self.total - self._held.get(holder, 0)
        return others == 0 or others + size <= self._bytes_max

    def _hold(self, holder: Holder, size: int) -> None:
        self.total += size - self._held.pop(holder, 0)
        if size:
            self._held[holder] = size

    def _begin_waiting(self) -> None:
        if self._is_beginning:
            return  # a read that was answered at once; the loop below goes on with the next one
        self._is_beginning = True
        while self._waiting:
            holder, (size, begin) = next(iter(self._waiting.items()))
            if not self._has_room(holder, size):
                break
            del self._waiting[holder]
            self._hold(holder, size)
            begin()
        self._is_beginning = False
