"""What room the log has on its disk: looked at before a new one is made, and for health and metrics; never on the way
of a write."""

import os
from collections.abc import Callable
from pathlib import Path

from oncelog import limits
from oncelog.engine.engine import Engine
from oncelog.engine.statistics import Statistics
from oncelog.errors import DiskFull
from oncelog.storage.index.child import journal_directory


def refuse_to_begin(directory: Path, segment_bytes: int) -> None:
    """Raises DiskFull if a new log has no room for its first segment. Asked before anything is made: a start that fails
    leaves nothing behind, and to map an index on a file system without a free page may end the process."""
    if has_segments(directory):
        return
    place = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    free = free_bytes(place)
    if free is not None and free < segment_bytes:
        what = f"a new log begins with {segment_bytes} bytes, and {free} are free"
        raise DiskFull(what, file=str(place), hint="make room, or choose another directory")


def has_segments(directory: Path) -> bool:
    """There is a log, and not only what an earlier start got to make."""
    return any(journal_directory(directory).glob("segment-*"))


def why_refused(statistics: Statistics) -> str | None:
    """Why writes are refused for want of room, in words; None while they are taken."""
    if statistics.full == "index":
        behind = statistics.index_lag_bytes
        return f"the disk has no room for the index, which is {behind} bytes behind: make room; reads go on"
    if statistics.full == "disk":
        segment = statistics.journal.segment_bytes
        return f"the disk has no room for another segment: make room for {segment / limits.MIB:g} MiB; reads go on"
    return None


def why_held(statistics: Statistics) -> str | None:
    """Why writes wait, in words; None while they are taken."""
    if statistics.waiting_ms < limits.HOLD_SAID_MS:
        return None
    behind = statistics.index_lag_bytes
    if behind > limits.INDEX_LAG_BYTES_MAX:
        limit = limits.INDEX_LAG_BYTES_MAX
        return f"the index is {behind:,} bytes behind, the limit is {limit:,}: look at the index builder; reads go on"
    return "no further segment of the journal is written yet: look at the disk; reads go on"


class RoomWatch:
    """Says when writes begin to be refused for want of room or to wait, and when they are taken again: whoever runs the
    server may look at its terminal only."""

    def __init__(self, engine: Engine, say: Callable[[str], None]) -> None:
        self._engine = engine
        self._say = say
        self._is_told = False
        self._is_hold_told = False

    def look(self) -> None:
        """Called about once a second."""
        statistics = self._engine.statistics()
        held = why_held(statistics)
        if held is not None and not self._is_hold_told:
            self._say(f"writes wait: {held}")
        elif held is None and self._is_hold_told:
            self._say("writes are taken again")
        self._is_hold_told = held is not None
        reason = why_refused(statistics)
        if reason is not None and not self._is_told:
            self._say(f"large writes are refused, and small ones soon: {reason}")
        elif reason is None and self._is_told:
            self._say("there is room again: writes are taken")
        self._is_told = reason is not None


def free_bytes(directory: Path | None) -> int | None:
    """Free room of the disk that holds the directory; None if there is none, or if it cannot be asked.

    On the loop, although it is a system call on a file system: a local one answers from memory, in a few microseconds.
    One that is reached over a network may keep us waiting, as it does when the loop reads the index there.
    """
    if directory is None:
        return None
    try:
        state = os.statvfs(directory)
    except OSError:
        return None
    return state.f_bavail * state.f_frsize
