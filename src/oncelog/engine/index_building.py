"""The loop's side of the index builder: ask, hear the answers, notice its death."""

import asyncio
import select
from collections.abc import Callable

from oncelog.engine.guard import Fatal, Guard
from oncelog.errors import DiskFull, StorageError
from oncelog.storage.index.interface import Died, Done, Full, IndexBuilder


class IndexBuilding:
    """Passes requests on and answers back, on the loop's thread."""

    def __init__(
        self,
        builder: IndexBuilder,
        loop: asyncio.AbstractEventLoop,
        built: Callable[[int], None],
        stalled: Callable[[], None],
        failed: Fatal,
    ) -> None:
        self._builder = builder
        self._loop = loop
        self._built = built
        self._stalled = stalled
        self._failed = failed
        self._guard = Guard(failed)
        self.full = ""
        """Why the index cannot grow at the moment; empty if it can."""
        self._watching = builder.fileno() >= 0
        if self._watching:
            loop.add_reader(builder.fileno(), self._hear)

    def request(self, group: int) -> None:
        """Ask for everything up to a durable group."""
        self._builder.request(group)
        if not self._watching:
            # An inline builder is done already; answer later all the same, so that callers see one order of events.
            self._loop.call_soon(self._hear)

    def stop(self) -> None:
        """End the builder."""
        if self._watching:
            self._loop.remove_reader(self._builder.fileno())
        self._builder.stop()

    def _hear(self) -> None:
        with self._guard:
            for reply in self._builder.replies():
                match reply:
                    case Done():
                        self.full = ""
                        self._built(reply.group)
                    case Full():
                        self.full = reply.reason
                        self._stalled()
                    case Died():
                        self._failed(_death(reply))


def catch_up(builder: IndexBuilder, group: int) -> None:
    """Build up to a durable group and wait for it: before anything else runs."""
    builder.request(group)
    while True:
        if builder.fileno() >= 0:
            select.select([builder.fileno()], [], [])
        for reply in builder.replies():
            match reply:
                case Done() if reply.group >= group:
                    return
                case Full():
                    raise DiskFull(f"the index cannot be built: {reply.reason}", hint="make room and start again")
                case Died():
                    raise _death(reply)
                case _:
                    pass


def _death(reply: Died) -> StorageError:
    return StorageError(
        f"the index builder ended with code {reply.exit_code}: {reply.reason}",
        hint="what was confirmed is in the journal: restart, and run oncelog verify if it happens again",
    )
