"""Requests that came before their turn: held for a moment, so that pipelined requests may overtake each other.

A producer with five requests in flight on several connections cannot say which arrives first. Core answers "gap" to the
one that is early; here the gap is kept back while the missing ones may still be on their way. Bounded in distance, time
and bytes. No rule lives here: the same command is simply submitted again, when it may be its turn, and a last time when
its time is up: what was missing then, or whether it is fenced by now, is another thing than when it came.

A request that is sent again while its first copy waits waits too. It is no earlier than that one, which will be
carried out even if its client has gone: refused, the write would be done all the same.
"""

from collections.abc import Callable
from typing import Protocol

from oncelog import limits
from oncelog.core.command import Append, CloseStream, Columns, Command, Commit
from oncelog.core.flat import ProducerClaim
from oncelog.core.outcome import (
    CommitConfirmed,
    Confirmed,
    EpochNotAtZero,
    Outcome,
    SequenceGap,
    Stopping,
    StreamDone,
)
from oncelog.core.producer import having_waited, is_early, waits_for_zero
from oncelog.engine.weight import size_of

Key = tuple[str, int, str]

Early = SequenceGap | EpochNotAtZero
"""Refusals of what may only have come too early."""


Claiming = Append | Columns | CloseStream | Commit
"""Commands that may carry a producer's claim."""


class Timer(Protocol):
    """What `call_later` returns."""

    def cancel(self) -> None: ...


class Held:
    """One early request."""

    __slots__ = ("bytes_", "command", "reply", "reply_last", "sequence", "timer")

    def __init__(
        self,
        command: Claiming,
        sequence: int,
        reply: Callable[[Outcome], None],
        reply_last: Callable[[Outcome], None],
    ) -> None:
        self.command = command
        self.sequence = sequence
        self.reply = reply
        self.reply_last = reply_last
        self.bytes_ = size_of(command)
        self.timer: Timer


class EarlyRequests:
    """All requests that wait for their turn, by producer."""

    def __init__(
        self,
        submit: Callable[[Command, Callable[[Outcome], None]], object],
        call_later: Callable[[float, Callable[[], None]], Timer],
        call_soon: Callable[..., object],
        hold_ms: int,
    ) -> None:
        self._submit = submit
        self._call_later = call_later
        self._call_soon = call_soon
        self._hold_s = hold_ms / 1000
        self.held: dict[Key, dict[int, list[Held]]] = {}
        """By producer and sequence, copies of one request in their order; empty nearly always."""
        self._bytes = 0

    def hold(
        self,
        command: Command,
        gap: Early,
        reply: Callable[[Outcome], None],
        reply_last: Callable[[Outcome], None],
    ) -> bool:
        """Keep a refused request for a moment; False if its gap is to be told now. `reply` gets what comes of it once
        it is its turn, `reply_last` what comes of it if its turn does not come in time."""
        if not isinstance(command, Claiming) or command.claim is None:
            return False
        held = Held(command, gap.received, reply, reply_last)
        has_room = self._bytes + held.bytes_ <= limits.HTTP_EARLY_BYTES_MAX
        if not self._hold_s or not has_room or not is_early(gap.expected, gap.received):
            if waits_for_zero(command.claim):
                self._call_soon(self._decide_for_good, held)
                return True
            return False
        waiting = self.held.setdefault(_key(command, command.claim), {})
        waiting.setdefault(held.sequence, []).append(held)
        self._bytes += held.bytes_
        held.timer = self._call_later(self._hold_s, lambda: self._give_up(held))
        return True

    def taken(self, command: Command, outcome: Outcome) -> None:
        """A command was answered. If it used up a producer's sequence, the one behind it may be waiting."""
        if not isinstance(command, Claiming) or command.claim is None:
            return
        if not isinstance(outcome, Confirmed | StreamDone | CommitConfirmed):
            return
        for held in list(self.held.get(_key(command, command.claim), {}).get(outcome.sequence + 1, ())):
            self._let_go(held)
            # Not at once: whoever tells us is in the middle of answers.
            self._call_soon(self._submit, held.command, held.reply)

    def give_up_all(self) -> None:
        """The server stops: everyone is told to come back, and nobody waits any more."""
        self._hold_s = 0.0
        for held in self.waiting():
            self._let_go(held)
            held.reply(Stopping())

    def waiting(self) -> list[Held]:
        """All of them."""
        return [held for waiting in self.held.values() for copies in waiting.values() for held in copies]

    def _give_up(self, held: Held) -> None:
        self._let_go(held)
        self._decide_for_good(held)

    def _decide_for_good(self, held: Held) -> None:
        """Whatever comes of it now is the answer."""
        command = held.command
        assert command.claim is not None
        claim = having_waited(command.claim)
        if isinstance(command, Columns):
            command.claims = (claim,)
        else:
            command.claim = claim
        self._submit(command, held.reply_last)

    def _let_go(self, held: Held) -> None:
        held.timer.cancel()
        assert held.command.claim is not None
        key = _key(held.command, held.command.claim)
        waiting = self.held[key]
        copies = waiting[held.sequence]
        copies.remove(held)
        self._bytes -= held.bytes_
        if not copies:
            del waiting[held.sequence]
        if not waiting:
            del self.held[key]


def _key(command: Claiming, claim: ProducerClaim) -> Key:
    """A producer of commits has no stream of its own."""
    return ("", 0, claim.name) if isinstance(command, Commit) else (command.topic, command.partition, claim.name)
