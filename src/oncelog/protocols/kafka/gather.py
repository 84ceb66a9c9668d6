"""Several commands behind one request: their answers are gathered, and it is answered when all are there."""

from collections.abc import Callable
from functools import partial
from typing import Any

from oncelog.core.command import Command
from oncelog.core.outcome import Outcome
from oncelog.protocols.kafka.log import Log
from oncelog.protocols.kafka.session import Call


class Gather:
    """The commands of one request. Submit all, then call `finish`."""

    def __init__(self, log: Log, call: Call) -> None:
        self._log = log
        self._call = call
        self._open = 0
        self._answer: Callable[[], dict[str, Any]] | None = None

    def submit(self, command: Command, told: Callable[[Outcome], None]) -> None:
        """Carry out one more; `told` gets its outcome."""
        self._open += 1
        self._log.submit(command, partial(self._done, told))

    def expect(self) -> Callable[[Callable[[], None]], None]:
        """Something else is awaited: call what is returned with what is to be done then."""
        self._open += 1
        return lambda note: self._done(lambda _outcome: note(), None)

    def finish(self, answer: Callable[[], dict[str, Any]]) -> None:
        """All are submitted. `answer` makes the response once every outcome was told."""
        self._answer = answer
        self._look()

    def _done(self, told: Callable[[Any], None], outcome: Outcome | None) -> None:
        told(outcome)
        self._open -= 1
        self._look()

    def _look(self) -> None:
        if self._open == 0 and self._answer is not None and not self._call.session.is_over:
            self._call.answer(self._answer())
