"""How many descriptors a server may have, and how many connections that makes: one count for `serve`, which lives by
it, and for `doctor`, which foretells it."""

import contextlib
import os
import resource
import sys

from oncelog import limits

FILES_BESIDE_SOCKETS = 512
"""Descriptors for segments, the index, threads and pipes."""


_STANDARD = 3
"""Input, output, errors."""


def keep_standard_ones() -> None:
    """Before any file is opened: whoever starts us without one of the three would have a segment in its place, and what
    is written there as an error, by whatever library, would be written into the log."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < _STANDARD:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115 - for as long as the process lives


def files_wanted(connections: int, listeners: int = 1) -> int:
    """Descriptors for so many connections at once: theirs, those of all that come in one turn to each of the
    listeners, and those of files."""
    return connections + listeners * limits.BACKLOG_MAX + FILES_BESIDE_SOCKETS


def connections_allowed(wanted: int, files: int, listeners: int = 1) -> tuple[int, int]:
    """(connections at once, how many more may come to each listener in one turn of the loop) if this many descriptors
    are all there are. Files have theirs first: clients that took them all would end the server at the next change
    of segment."""
    sockets = files - min(FILES_BESIDE_SOCKETS, files // 2)
    # What comes in one turn is accepted before the first of it is counted and turned away.
    backlog = max(1, min(limits.BACKLOG_MAX, sockets // 8 // listeners))
    return max(1, min(wanted, sockets - listeners * backlog)), backlog


def allow_files(wanted: int) -> int:
    """As many descriptors as the settings may need, as far as the system lets us; returns how many there are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return wanted if soft == resource.RLIM_INFINITY else soft
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
