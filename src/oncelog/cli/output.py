"""Stdout that cannot be written: one line and exit code 1, whatever verb was writing.

A verb opens files and sockets too, and each fails with an `OSError`. To tell an error of stdout from theirs, stdout is
opened once more, over a file that raises `OutputLost`. A pipe without a reader is not a failure and still raises
`BrokenPipeError`.
"""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from oncelog.cli import exits
from oncelog.cli.screen import say

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputLost(Exception):
    """Stdout took no more; says why."""


class _Stdout(io.FileIO):
    """The file behind stdout."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputLost(error.strerror or str(error)) from None


@contextlib.contextmanager
def output_told() -> Iterator[None]:
    """Around the whole program: what a verb has left in the buffer is written here, where an error can still be
    reported."""
    _watch()
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OutputLost as lost:
        discard()
        say(f"oncelog: cannot write the output: {lost}", "red")
        sys.exit(exits.REFUSED)
    except BrokenPipeError:
        # Only of the flush: what a verb meets on its way, Typer ends in the same silence.
        discard()
        sys.exit(exits.REFUSED)


def discard() -> None:
    """Lets go of what is not written: Python flushes stdout once more when it ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _watch() -> None:
    before = sys.stdout
    # It is closed, or a test has replaced it: its owner handles errors.
    if not isinstance(before, io.TextIOWrapper) or not isinstance(before.buffer, io.BufferedWriter | io.FileIO):
        return
    file = _Stdout(before.fileno(), "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(
        file if isinstance(before.buffer, io.FileIO) else io.BufferedWriter(file),
        before.encoding,
        before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )
