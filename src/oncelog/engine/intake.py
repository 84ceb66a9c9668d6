"""Where commands come in: the few steps between a face and the commit loop, taken for every command.

Compiled with the rest of the path of an append (`tools/compiled.py`), which is why it stands apart from the engine.
"""

from collections.abc import Callable

from oncelog.core.command import Command
from oncelog.engine.commit_loop import CommitLoop
from oncelog.engine.group import Reply
from oncelog.engine.guard import Fatal


class Intake:
    """One per engine. Has a turn of the loop asked for when there is something to decide or to write."""

    __slots__ = ("_call_soon", "_commits", "_fail", "_flush", "has_failed", "is_scheduled", "is_stopping")

    def __init__(
        self, commits: CommitLoop, call_soon: Callable[..., object], flush: Callable[[], None], fail: Fatal
    ) -> None:
        self._commits = commits
        self._call_soon = call_soon
        self._flush = flush
        self._fail = fail
        self.is_scheduled = False
        """`flush` will be called in this turn of the loop or the next."""
        self.is_stopping = False
        """No command is taken any more."""
        self.has_failed = False
        """What is in memory may be half applied: nobody is told anything from it."""

    def submit(self, command: Command, reply: Reply) -> bool:
        """Take a command; `reply` is called with its outcome once that is durable. Dropping the caller changes nothing:
        the command stands, only its answer goes nowhere. True if commands wait: whoever reads sockets should pause."""
        assert not self.is_stopping, "no command is taken while the engine stops"
        if self.has_failed:
            return False
        try:
            self._commits.submit(command, reply)
        except BaseException as error:  # as the guard does, without its price on the hot path
            self._fail(error)
            raise
        if not self.is_scheduled and self._commits.wants_turn:
            self.schedule()
        return self._commits.waiting > 0

    def schedule(self) -> None:
        """Have `flush` called, sockets being read before that."""
        self.is_scheduled = True
        self._call_soon(self._flush)
