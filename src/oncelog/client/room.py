"""The bound on what a producer holds: bytes are reserved before a record is taken, and freed when it is settled."""

import asyncio
from collections import deque

from oncelog.client.errors import ClientError


class Room:
    """Bytes in use, and those who wait for some, in the order they came."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._waiters: deque[tuple[asyncio.Future[None], int]] = deque()

    def take(self, size: int) -> bool:
        """Reserves bytes if there is room and nobody waits. A record above the bound is taken when it is alone."""
        if self._waiters or (self.used_bytes > 0 and self.used_bytes + size > self.bytes_max):
            return False
        self.used_bytes += size
        return True

    async def wait(self, size: int) -> None:
        """Returns when the bytes are reserved; raises what `refuse` was given."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (future, size)
        self._waiters.append(waiter)
        try:
            await future
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                self._grant()
            elif not future.cancelled() and future.exception() is None:
                self.free(size)  # reserved, and nobody will use it
            raise

    def free(self, size: int) -> None:
        """Gives bytes back."""
        self.used_bytes -= size
        self._grant()

    def refuse(self, error: ClientError) -> None:
        """Everyone who waits is told that there will be no room."""
        while self._waiters:
            future, _ = self._waiters.popleft()
            if not future.done():
                future.set_exception(error)

    def _grant(self) -> None:
        while self._waiters:
            future, size = self._waiters[0]
            if self.used_bytes > 0 and self.used_bytes + size > self.bytes_max:
                return
            self._waiters.popleft()
            if not future.done():
                self.used_bytes += size
                future.set_result(None)
