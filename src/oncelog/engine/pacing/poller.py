"""The loop looks instead of sleeping, while what it waits for is surely near.

A processor that goes to sleep takes as long to wake up as a quick disk takes for a third of a sync, and an append of a
writer that is alone slept four times: for the request, in the writer's thread, for that thread, and its client for the
answer. So there are two things that the loop looks for without sleeping:

- the end of a write, when everybody who writes waits for it, so that there is nothing else to do. The kernel writes the
  group by itself (`storage/kernel_writes.py`) and no thread has to wake up. Whoever comes meanwhile is served as ever,
  and a disk that hangs hangs nobody.
- the next request, for a moment after an answer, if the last one came as soon.

Between two looks the processor is offered to others. A machine that is busy is told by a look that comes late: then
nothing is looked for, and groups go by the thread, for a while and, if it was no exception, for ever longer. Bounds
and their reasons: `POLL_*` in `limits.py`.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Final

from oncelog import limits
from oncelog.engine.group import Group
from oncelog.engine.guard import Guard
from oncelog.engine.pacing.writer import WriteSeconds
from oncelog.storage.journal import Journal
from oncelog.storage.kernel_writes import WriteNotTaken

_REQUEST_S: Final = limits.POLL_US_MAX / 1_000_000
_WRITE_S: Final = limits.POLL_WRITE_US_MAX / 1_000_000
_REST_S_MIN: Final = limits.POLL_REST_MS_MIN / 1_000
_REST_S_MAX: Final = limits.POLL_REST_MS_MAX / 1_000
_LOOKS_PER_TURN: Final = 3
_HANG_S: Final = limits.POLL_HANG_MS / 1_000


class Poller:
    """For one engine, on its loop's thread. The clock is in seconds."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        journal: Journal,
        seconds: WriteSeconds,
        done: Callable[[Group], None],
        give_back: Callable[[Group], None],
        guard: Guard,
        clock: Callable[[], float],
    ) -> None:
        self._loop = loop
        self._journal = journal
        self._seconds = seconds
        self._done = done
        self._give_back = give_back
        self._guard = guard
        self._clock = clock
        self._group: Group | None = None
        """What the kernel is writing."""
        self._begun = 0.0
        self._answered_at = 0.0
        """When the last answers were given, if nothing has come since; else 0."""
        self._comes_soon = False
        """The last request after an answer did."""
        self._until = 0.0
        self._rests_until = 0.0
        self._rest_s = 0.0
        self._writes = 0
        """Since the last rest."""
        self._is_looking = False

    def write(self, group: Group) -> bool:
        """Have the kernel write a sealed group; `done` is called when it is durable, or `give_back` if the thread must
        write it after all. False if it is for the thread at once."""
        now = self._clock()
        if now < self._rests_until or self._seconds.last > _WRITE_S:
            return False
        if not self._journal.start(group.open, group.buffers):
            return False
        self._group, self._begun = group, now
        self._look()
        return True

    def answered(self) -> None:
        """Everybody who waited has an answer."""
        self._answered_at = now = self._clock()
        if self._comes_soon and now >= self._rests_until:
            self._until = now + _REQUEST_S
            self._look()

    def came(self) -> None:
        """There is something to decide: how soon did it come?"""
        if self._answered_at:
            self._comes_soon = self._clock() - self._answered_at < _REQUEST_S
            self._answered_at = self._until = 0.0

    def stop(self) -> None:
        """Look for nothing any more."""
        self._group = None
        self._until = 0.0
        self._comes_soon = False

    def _look(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        with self._guard:
            now = self._clock()
            group = self._group
            if group is not None:
                if self._is_written(group):
                    self._wrote(group)
                elif self._group is group and now - self._begun > _HANG_S:
                    self._loop.call_later(_HANG_S, self._turn)
                    return
            elif now >= self._until:
                self._is_looking = False
                return
            else:
                os.sched_yield()
                if self._clock() - now > _WRITE_S:
                    self._rest()
            self._loop.call_soon(self._turn)

    def _is_written(self, group: Group) -> bool:
        """A few looks: a turn of the loop takes longer than one, and nobody waits for so little."""
        is_written = self._journal.is_written
        try:
            for _ in range(_LOOKS_PER_TURN):
                if is_written():
                    return True
                os.sched_yield()
        except WriteNotTaken:
            self._group = None
            self._rest()
            self._give_back(group)
        return False

    def _wrote(self, group: Group) -> None:
        seconds = self._clock() - self._begun
        self._group = None
        self._seconds.add(seconds)
        self._writes += 1
        if seconds > _WRITE_S:
            self._rest()
        self._done(group)

    def _rest(self) -> None:
        """A look came late. Every disk is slow now and then; where it is the rule, ever longer rests."""
        is_rule = self._writes < limits.POLL_WRITES_MIN
        self._rest_s = min(2 * self._rest_s, _REST_S_MAX) if is_rule and self._rest_s else _REST_S_MIN
        self._rests_until = self._clock() + self._rest_s
        self._until = 0.0
        self._writes = 0
