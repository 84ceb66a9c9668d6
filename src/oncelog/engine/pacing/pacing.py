"""Pacing: when a group leaves and who writes it.

    waits   before a group is sealed: stays it open for those who were just answered? (`hold.py`)
    write   a sealed group: by the kernel, with the loop looking for its end (`poller.py`), if everybody who writes
            waits for it, so that there is nothing else to do; else by a thread (`writer.py`)
    done    called on the loop's thread when the group is durable, whoever wrote it

`durable` and `answered` say how it went on. Nobody outside of this folder knows which of them wrote a group.
"""

import asyncio
import time
from collections.abc import Callable

from oncelog.engine.group import Group
from oncelog.engine.guard import Fatal, Guard
from oncelog.engine.pacing.hold import GroupHold
from oncelog.engine.pacing.poller import Poller
from oncelog.engine.pacing.writer import GroupWriter, WriteSeconds
from oncelog.storage.journal import Journal


class Pacing:
    """For one engine, on its loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        journal: Journal,
        done: Callable[[Group], None],
        guard: Guard,
        failed: Fatal,
    ) -> None:
        self._hold = GroupHold(time.perf_counter)
        self._writer = GroupWriter(journal, loop.call_soon_threadsafe, done, failed)
        self._poller = Poller(loop, journal, self._writer.seconds, done, self._writer.write, guard, time.perf_counter)
        self._all_wait = False
        self.came = self._poller.came
        """There is something to decide."""
        self.durable = self._hold.answered
        """A group is durable: so many writers are answered by it, and so many wait in the open one. (0, 0): there was
        nothing to write, as after retries and refusals, so whoever was expected is not."""
        self.answered = self._poller.answered
        """Everybody who waited has an answer."""

    @property
    def seconds(self) -> WriteSeconds:
        """How long groups take on the disk."""
        return self._writer.seconds

    def waits(self, count: int) -> bool:
        """Whether the group that `count` have joined stays open for now. Ask again soon."""
        return self._hold.waits(count, self._writer.seconds.last)

    def leaves(self, count: int) -> None:
        """The group that `count` have joined is being sealed."""
        self._hold.left()
        self._all_wait = self._hold.is_complete(count)

    def write(self, group: Group) -> None:
        """Write a sealed group; `done` is called when it is durable."""
        if not (self._all_wait and self._poller.write(group)):
            self._writer.write(group)

    def write_alone(self, group: Group) -> None:
        """The same of a group that nobody waits for."""
        self._writer.write(group)

    def stop(self) -> None:
        """Finish what was handed over and end."""
        self._poller.stop()
        self._writer.stop()
