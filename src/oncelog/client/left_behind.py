"""Records of a producer that nobody waited for: their number is told when it is collected or the process ends.

A producer that is left without `close` or `flush` takes with it what it had not sent, and an exit code of 0 says
nothing of that. It is not flushed then: that could take as long as the server likes, and what comes of it nobody would
hear. So the loss is told, as a RuntimeWarning at the line that made the producer: Python shows those on stderr unless
it is told otherwise.

A finalizer holds a `Tally` and never the producer, nor anything that may lead to it, such as an option's callback or an
error with its traceback: a producer that nobody uses any more goes as it would without one.
"""

import os
import sys
import warnings
import weakref
from typing import Final

_HERE: Final = os.path.dirname(__file__) + os.sep


class Tally:
    """Counts of one producer. Each is written by one thread alone."""

    def __init__(self, topic: str, producer_id: str) -> None:
        self.topic = topic
        self.producer_id = producer_id
        self.taken_count = 0
        """Records that `append` took."""
        self.settled_count = 0
        """Those of them that were confirmed, or failed."""
        self.unheard_count = 0
        """Those that failed without an `on_error` to hear of it."""
        self.cause = ""
        """Why the producer stopped, in words."""
        self.error_told = False
        """A call has raised the first error, or what followed from it."""
        self.place = caller_place()
        self._pid = os.getpid()

    @property
    def owed_count(self) -> int:
        """Records that are not confirmed, and nobody knows."""
        return self.taken_count - self.settled_count + (0 if self.error_told else self.unheard_count)

    def tell(self) -> None:
        """The last word."""
        # A forked child has a copy of the producer and none of its records.
        if not (owed := self.owed_count) or os.getpid() != self._pid:
            return
        stopped = f", having stopped: {self.cause}" if self.cause else ""
        warnings.warn_explicit(
            f"producer {self.producer_id!r} of {self.topic!r} was left with {owed:,} of {self.taken_count:,} records "
            f"not confirmed{stopped}. They are lost, but for what was under way. Call close() or flush() before "
            "leaving, or use the producer in a with block",
            RuntimeWarning,
            *self.place,
        )


def watch(producer: object, tally: Tally) -> None:
    """Tells what is owed when the producer is collected, or when the process ends."""
    weakref.finalize(producer, tally.tell)


def caller_place() -> tuple[str, int]:
    """File and line of whoever called the client."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
