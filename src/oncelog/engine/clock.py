"""The time of the log: append times, timeouts, retention, what is remembered.

While a server runs, time is CLOCK_BOOTTIME: it goes on in suspend and no step of the wall clock changes it. It is drawn
towards the wall clock by at most 1 ms per second, so it never runs backwards and never stands still.

If the wall clock stays ahead for `settle_ms` without a break, it was set right for good: the log takes it over in one
forward step. A step above `jump_max_ms` is not taken: it would make the log forget ids and trim records that are young.
A wall clock that was set back is never followed by a step; the log then runs ahead of it.

At a start there is no earlier CLOCK_BOOTTIME to go on from. Time begins with the wall clock, or with the newest time
that the log knows (`last_known_ns`) if that is later.
"""

import time
from collections.abc import Callable
from typing import Final

from oncelog import limits
from oncelog.errors import StorageError

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
_BOOTTIME: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_PULL: Final = 1_000
"""A thousandth of the time that passes: 1 ms per second."""


class ClockRefused(StorageError):
    """The wall clock is too far ahead of the log to be believed."""


def check_clock(last_known_ns: int, jump_max_ms: int) -> None:
    """Raise ClockRefused if the wall clock is further ahead of a log that has a time than it may jump."""
    ahead_ns = time.time_ns() - last_known_ns
    if last_known_ns and ahead_ns > jump_max_ms * NS_PER_MS:
        what = (
            f"the clock of this machine says {_spell(time.time_ns())}, {days(ahead_ns)} after the log's last time, "
            f"{_spell(last_known_ns)}; the limit is {days(jump_max_ms * NS_PER_MS)}. "
            "With a wrong clock the log would forget ids and trim records"
        )
        raise ClockRefused(what, hint="set the clock right, or start with --accept-clock if it is right")


def days(ns: int) -> str:
    """A stretch of time in words."""
    seconds = abs(ns) / NS_PER_S
    return f"{seconds / 86_400:,.1f} days" if seconds >= 86_400 else f"{seconds:,.1f} s"


def _spell(ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(ns // NS_PER_S))


class LogClock:
    """Nanoseconds since 1970 by the log's own time, never decreasing, from `last_known_ns` on. Call it about once a
    second at least: what it was not called for it has not seen."""

    def __init__(
        self,
        last_known_ns: int,
        *,
        settle_ms: int = limits.CLOCK_SETTLE_MS,
        jump_max_ms: int = limits.CLOCK_JUMP_MAX_MS,
        write_note: Callable[[int], None] = lambda _now_ns: None,
    ) -> None:
        self._write_note = write_note
        self._settle_ns = settle_ms * NS_PER_MS
        self._jump_max_ns = jump_max_ms * NS_PER_MS
        self._boot_ns = time.clock_gettime_ns(_BOOTTIME)
        self._noted_ns = self._boot_ns
        self._now_ns = max(time.time_ns(), last_known_ns)
        self._pull_left = 0
        self._ahead_since_ns: int | None = None
        """By CLOCK_BOOTTIME: since when the wall clock is ahead without a break."""
        self._has_refused = False
        self.skew_ns = self._now_ns - time.time_ns()
        """How far the log is ahead of the wall clock, when it was last asked; below 0 if it is behind."""
        self.steps = 0
        """How often a wall clock that stayed ahead was taken over."""
        self.on_notice: Callable[[str], None] = lambda _text: None
        """Called with what an operator should know."""

    def note_is_due(self) -> bool:
        """Whether the time should be noted beside the journal; True once per interval."""
        if self._boot_ns - self._noted_ns < limits.CLOCK_NOTE_INTERVAL_S * NS_PER_S:
            return False
        self._noted_ns = self._boot_ns
        return True

    def note(self) -> None:
        """Write the time down. May run on another thread."""
        self._write_note(self._now_ns)

    def __call__(self) -> int:
        boot_ns = time.clock_gettime_ns(_BOOTTIME)
        wall_ns = time.time_ns()
        passed_ns = boot_ns - self._boot_ns
        self._boot_ns = boot_ns
        now_ns = self._now_ns + passed_ns
        skew_ns = now_ns - wall_ns
        if skew_ns:
            pull = self._pull_left + passed_ns
            most = pull // _PULL
            self._pull_left = pull - most * _PULL
            pulled = min(most, skew_ns) if skew_ns > 0 else max(-most, skew_ns)
            now_ns -= pulled
            skew_ns -= pulled
        if skew_ns < -limits.CLOCK_STEP_NS_MIN:
            now_ns = self._followed(now_ns, wall_ns, boot_ns)
            skew_ns = now_ns - wall_ns
        else:
            self._ahead_since_ns = None
            self._has_refused = False
        self._now_ns = now_ns
        self.skew_ns = skew_ns
        return now_ns

    def _followed(self, now_ns: int, wall_ns: int, boot_ns: int) -> int:
        """The time when the wall clock is ahead: its own if it has stayed so for long enough."""
        if self._ahead_since_ns is None:
            self._ahead_since_ns = boot_ns
        if boot_ns - self._ahead_since_ns < self._settle_ns or self._has_refused:
            return now_ns
        ahead_ns = wall_ns - now_ns
        if ahead_ns > self._jump_max_ns:
            self._has_refused = True
            self.on_notice(
                f"the clock of this machine is {days(ahead_ns)} ahead of the log and stays there; the limit for a step "
                f"is {days(self._jump_max_ns)}. The log keeps its own time. Set the clock right, or restart with "
                "--accept-clock if it is right"
            )
            return now_ns
        self._ahead_since_ns = None
        self.steps += 1
        self.on_notice(f"the log's time was set forward by {days(ahead_ns)}, to the clock of this machine")
        return wall_ns
