"""All groups that have members, and their timers. A group without members is forgotten: its offsets are rows.

Generations of a group that is made anew begin at the seconds of the log's time: above all that it had before, as long
as it was rebalanced less than once a second, so that a commit which names an old generation stays refused after a
restart.
"""

from collections.abc import Callable
from typing import Final

from oncelog import limits
from oncelog.protocols.kafka.codes import Code
from oncelog.protocols.kafka.groups.group import Answers, Group, State
from oncelog.protocols.kafka.log import Cancellable, Log

NS_PER_MS: Final = 1_000_000
EPOCH_S: Final = 1_700_000_000
"""Generations are counted from here: the numbers stay small, and below 2**31 until 2091."""


class Coordinator:
    """One per server."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._groups: dict[str, Group] = {}
        self._timers: dict[str, tuple[float, Cancellable]] = {}
        self._generation_last = 0
        """The highest generation of a group that was forgotten in this life of the server."""

    def now_ms(self) -> float:
        """The log's time: one clock for everything."""
        return self._log.now_ns() / NS_PER_MS

    def get(self, group_id: str) -> Group | None:
        """A group that has members, or had a moment ago."""
        return self._groups.get(group_id)

    def groups(self) -> list[Group]:
        """All of them."""
        return list(self._groups.values())

    def opened(self, group_id: str) -> Group | None:
        """The group, made if it is not there; None if there are too many."""
        group = self._groups.get(group_id)
        if group is None:
            if len(self._groups) >= limits.KAFKA_GROUPS_MAX:
                return None
            generation = max(self._generation_last, int(self.now_ms() / 1000) - EPOCH_S)
            group = self._groups[group_id] = Group(group_id, generation)
        return group

    def happen(self, group: Group, answers: Answers, tell: Callable[[Answers], None]) -> None:
        """Something changed in a group: tell those who waited, and look when time has to act."""
        self._watch(group, tell)
        tell(answers)

    def _watch(self, group: Group, tell: Callable[[Answers], None]) -> None:
        due_ms = group.due_ms()
        timer = self._timers.get(group.group_id)
        if timer is not None and timer[0] == due_ms:
            return
        if timer is not None:
            timer[1].cancel()
            del self._timers[group.group_id]
        if due_ms is not None:
            delay_ms = max(1.0, due_ms - self.now_ms())
            self._timers[group.group_id] = (due_ms, self._log.later(delay_ms, lambda: self._tick(group, tell)))
        elif group.state is State.EMPTY and not group.pending:
            self._generation_last = max(self._generation_last, group.generation)
            self._groups.pop(group.group_id, None)

    def _tick(self, group: Group, tell: Callable[[Answers], None]) -> None:
        self._timers.pop(group.group_id, None)
        self.happen(group, group.tick(self.now_ms()), tell)

    def may_commit(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> Code:
        """Whether offsets of the group may be saved by this client. One that names no generation may if the group has
        no members: it assigns its partitions itself."""
        group = self._groups.get(group_id)
        if group is None or not group.members:
            if generation < 0 and not member_id:
                return Code.NONE
            return Code.UNKNOWN_MEMBER_ID if generation >= 0 else Code.NONE
        if generation < 0 and not member_id:
            return Code.UNKNOWN_MEMBER_ID
        code = group.check(member_id, instance_id, generation)
        if code is Code.NONE:
            # A commit shows that the member is alive, as a heartbeat does.
            group.heartbeat(self.now_ms(), member_id, instance_id, generation)
        if code is Code.NONE and group.state is State.COMPLETING:
            return Code.REBALANCE_IN_PROGRESS
        return code

    def may_commit_in_txn(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> Code:
        """The same for offsets in a transaction (KIP-447). Clients that say nothing of themselves are let through."""
        if generation < 0 and not member_id:
            return Code.NONE
        group = self._groups.get(group_id)
        if group is None or not group.members:
            return Code.UNKNOWN_MEMBER_ID if member_id else Code.ILLEGAL_GENERATION
        return group.check(member_id, instance_id, generation)
