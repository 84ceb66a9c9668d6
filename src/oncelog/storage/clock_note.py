"""The clock note: the log's time, written down beside the journal about once an hour and at a clean stop.

A log that is idle writes no entries, so its last entry may be months old though its server ran all the time. The note
tells a start what time it was when the server was last alive: a wall clock far ahead of it is not believed. The note
is no truth: if it is missing or unreadable, the last entry counts alone.

File `clock` in the data directory: nanoseconds since 1970 in decimal digits, and a line end.
"""

import contextlib
import os
from pathlib import Path

NAME = "clock"
_DIGITS_MAX = 19


def read_clock_note(directory: Path) -> int:
    """The time noted last; 0 if there is none."""
    try:
        text = (directory / NAME).read_bytes().strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() and len(text) <= _DIGITS_MAX else 0


def write_clock_note(directory: Path, now_ns: int) -> None:
    """Replace the note. What a disk refuses here is no harm to the log, and the journal will say so."""
    new = directory / f"{NAME}.new"
    with contextlib.suppress(OSError):
        new.write_text(f"{now_ns}\n")
        os.replace(new, directory / NAME)
