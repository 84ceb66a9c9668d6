"""The input of `oncelog append`: its lines, which of them are records, and what to tell when it ends early.

Every refusal in the middle of an input names a line of it, since that is what its owner can look at: a batch, and a
place within one, are ours alone.
"""

import contextlib
import io
import os
import stat
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Self

from oncelog.cli import exits
from oncelog.cli.lines import lines_of
from oncelog.cli.screen import counted, end, say
from oncelog.client.packing import RECORD_BYTES_MAX
from oncelog.core.content_type import json_flaw


class LineInvalid(Exception):
    """A line that cannot be a record: says which, and why."""

    def __init__(self, line: int, flaw: str) -> None:
        super().__init__(f"line {line:,} {flaw}")
        self.line = line


class InputLost(Exception):
    """The input cannot be read any further: says why."""


def is_stdin(path: Path | None) -> bool:
    return path is None or str(path) == "-"


class Source:
    """Lines of a file or of stdin, counted for the progress bar as they are read."""

    def __init__(self, path: Path | None, *, skips_blank: bool) -> None:
        self.skips_blank = skips_blank
        """Blank lines are left out, and are no records."""
        self.is_json = skips_blank
        """Every record must be JSON."""
        self.total_bytes: int | None = None
        self.bytes = 0
        self.lines = 0
        self.is_open = False
        """All was read, and the last line has no end: another program may still be writing it."""
        self.is_typed = False
        """A user types it on the terminal."""
        self.is_pipe = False
        """A pipe or a terminal: the length of the input is not known."""
        self._path = path
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        if self._path is None or is_stdin(self._path):
            self._file = sys.stdin.buffer
            self.is_typed = sys.stdin.isatty()
            if self.is_typed:
                say("every line is a record; Ctrl-D ends", "dim")
            with contextlib.suppress(io.UnsupportedOperation):  # no file of the system's
                self.is_pipe = self.is_typed or _is_pipe(os.fstat(self._file.fileno()))
            return self
        try:
            self._file = self._path.open("rb")
            found = os.fstat(self._file.fileno())
        except OSError as error:
            end(exits.USAGE, f"cannot read {self._path}: {error.strerror or error}")
        self.total_bytes, self.is_pipe = found.st_size or None, _is_pipe(found)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None and not is_stdin(self._path):
            self._file.close()

    def __iter__(self) -> Iterator[bytes]:
        assert self._file is not None
        for line in self._readable(self._file):
            self.bytes += len(line) + 1
            self.lines += 1
            if len(line) > RECORD_BYTES_MAX:
                raise LineInvalid(self.lines, f"has over {RECORD_BYTES_MAX:,} bytes, more than a record may have")
            if self.is_json and (line.strip() or not self.skips_blank) and (problem := json_flaw(line)):
                if not line.strip():
                    problem = "it is blank (--json-lines leaves such lines out)"
                raise LineInvalid(self.lines, f"is not JSON: {problem}")
            yield line

    def _readable(self, file: BinaryIO) -> Iterator[bytes]:
        """Its lines. An error of the system that arises here belongs to the input."""
        try:
            self.is_open = yield from lines_of(file, RECORD_BYTES_MAX)
        except OSError as error:
            name = "stdin" if is_stdin(self._path) else str(self._path)
            raise InputLost(f"cannot read {name}: {error.strerror or error}") from None


def _is_pipe(found: os.stat_result) -> bool:
    return stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode)


class SoFar:
    """How far an input has come, for the message when it ends early."""

    def __init__(self) -> None:
        self.stored = 0
        """Records of this run that are on disk, also if another run stored them."""
        self.before = 0
        """Lines that an earlier run has stored."""
        self.next_line = 1
        """The first that is not known to be stored, counted as people do."""
        self.waits = False
        """A batch was sent, and is not answered."""
        self._records_before_blanks: deque[int] = deque()
        self._blanks_passed = 0

    def left_out(self, records: int) -> None:
        """A blank line came behind so many records."""
        self._records_before_blanks.append(records)

    def record_stored(self, records: int) -> None:
        """So many records are on disk, the first ones of the input."""
        blanks = self._records_before_blanks
        while blanks and blanks[0] <= records:
            blanks.popleft()
            self._blanks_passed += 1
        self.next_line = records + self._blanks_passed + 1

    def told(self, at_line: int = 0, *, is_sure: bool = True) -> str:
        """What is stored, and which line is the next if it is not `at_line`, which the message names already.

        Not `is_sure`: what was sent last may be stored too.
        """
        if not self.stored:
            said = "nothing was stored" if is_sure else "nothing is confirmed"
        else:
            at_least = "" if is_sure else "at least "
            said = f"{at_least}{counted(self.stored, 'line')} {'is' if self.stored == 1 else 'are'} stored"
        if not is_sure or self.next_line in (1, at_line):
            return said
        return f"{said}, line {self.next_line:,} is the next"

    def interrupted(self, *, is_named: bool) -> str:
        """The same behind Ctrl-C: a named import can be resumed if there is something to go on behind."""
        if not is_named:
            return self.told(is_sure=not self.waits)
        said = self.told(self.next_line)
        if self.waits:
            return f"{said if self.stored else 'nothing is confirmed'}, --resume goes on behind what is stored"
        if self.stored:
            return f"{said}, --resume goes on behind {'it' if self.stored == 1 else 'them'}"
        if self.before:
            return f"{said} by this run, --resume goes on behind the {counted(self.before, 'line')} stored before"
        return said
