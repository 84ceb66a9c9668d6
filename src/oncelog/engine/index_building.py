"""The loop's side of the index builder: ask, hear the answers, notice its death."""

import asyncio
import select
from collections.abc import Callable

from oncelog import limits
from oncelog.engine.guard import Fatal, Guard
from oncelog.errors import DiskFull, StorageError
from oncelog.storage.index.interface import Died, Done, Full, IndexBuilder


class IndexBuilding:
    """Passes requests on and answers back, on the loop's thread. A builder that died is started again, a little later
    each time; the engine goes on meanwhile, as far as memory allows (`Generations`). If it dies three times without
    having got further, it will do so again: the engine ends with what it said, which names the entry."""

    def __init__(
        self,
        builder: IndexBuilder,
        loop: asyncio.AbstractEventLoop,
        built: Callable[[int], None],
        stalled: Callable[[], None],
        failed: Fatal,
        on_notice: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._builder = builder
        self._loop = loop
        self._built = built
        self._stalled = stalled
        self._failed = failed
        self._on_notice = on_notice
        self._guard = Guard(failed)
        self.full = ""
        """Why the index cannot grow at the moment; empty if it can."""
        self.restarts = 0
        """How often the builder was started again."""
        self._asked = -1
        self._done = -1
        self._deaths_here = 0
        """Since it got further last."""
        self._restart_timer: asyncio.TimerHandle | None = None
        self._watched = -1
        self._watch()

    def _watch(self) -> None:
        self._watched = self._builder.fileno()
        if self._watched >= 0:
            self._loop.add_reader(self._watched, self._hear)

    def request(self, group: int) -> None:
        """Ask for everything up to a durable group."""
        self._asked = group
        if self._restart_timer is not None:
            return  # it will be asked when it is there again
        self._builder.request(group)
        if self._watched < 0:
            # An inline builder is done already; answer later all the same, so that callers see one order of events.
            self._loop.call_soon(self._hear)

    def stop(self) -> None:
        """End the builder."""
        if self._restart_timer is not None:
            self._restart_timer.cancel()
        elif self._watched >= 0:
            self._loop.remove_reader(self._watched)
        self._builder.stop()

    def _hear(self) -> None:
        with self._guard:
            for reply in self._builder.replies():
                match reply:
                    case Done():
                        self.full = ""
                        if reply.group > self._done:
                            self._done = reply.group
                            self._deaths_here = 0
                        self._built(reply.group)
                    case Full():
                        self.full = reply.reason
                        self._stalled()
                    case Died():
                        self._begin_again(reply)

    def _begin_again(self, reply: Died) -> None:
        is_at_work = self._asked > self._done
        self._deaths_here += is_at_work
        if self._deaths_here >= limits.INDEX_DEATHS_MAX:
            self._failed(_death(reply))
            return
        if self._watched >= 0:
            self._loop.remove_reader(self._watched)
        delay_s = limits.INDEX_RESTART_MS_FIRST / 1000 * 4 ** max(0, self._deaths_here - 1)
        self._on_notice(f"the index builder {_ending(reply)}; it is started again in {delay_s:g} s")
        self._restart_timer = self._loop.call_later(delay_s, self._restart)

    def _restart(self) -> None:
        with self._guard:
            self._restart_timer = None
            self.restarts += 1
            self._builder.restart()
            self._watch()
            if self._asked > self._done:
                self.request(self._asked)


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


def _ending(reply: Died) -> str:
    return f"ended with code {reply.exit_code}: {reply.reason}"


def _death(reply: Died) -> StorageError:
    return StorageError(
        f"the index builder {_ending(reply)}",
        hint="what was confirmed is in the journal: restart, and run oncelog verify if it happens again",
    )
