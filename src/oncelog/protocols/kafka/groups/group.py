"""One consumer group: a state machine without clock, sockets or randomness.

Every event takes the time and returns the answers that it brings about, each with the token of the request it belongs
to. Assignors run in the clients: the group only carries their bytes, so eager and cooperative ones need nothing of
their own here.

    EMPTY        no members; saved offsets may exist
    PREPARING    a rebalance: members rejoin, until all have or the time is up
    COMPLETING   the new generation has begun; the leader's assignment is awaited
    STABLE       every member has its assignment

Invariants: a generation number is used once in the life of a server, and member ids are never given out twice, so
(member, generation) of an old life fences itself. A static member (with an instance id) keeps its place while it is
away, until its session times out.
"""

from enum import IntEnum
from typing import Any, Final, NamedTuple

from oncelog import limits
from oncelog.protocols.kafka.codes import Code

INITIAL_DELAY_MS: Final = 250
"""How long the first rebalance of an empty group waits for more members, so that ten that start together need one."""


class State(IntEnum):
    """See above."""

    EMPTY = 0
    PREPARING = 1
    COMPLETING = 2
    STABLE = 3


WIRE_NAMES: Final = {
    State.EMPTY: "Empty",
    State.PREPARING: "PreparingRebalance",
    State.COMPLETING: "CompletingRebalance",
    State.STABLE: "Stable",
}


class Answer(NamedTuple):
    """What a request that waited is told."""

    token: Any
    fields: dict[str, Any]


Answers = list[Answer]


class Join(NamedTuple):
    """What a member says when it joins."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """(assignor, subscription), the preferred one first."""
    needs_member_id: bool
    """The version tells a newcomer its id first (KIP-394), so that one that gives up leaves no member behind."""
    can_skip_assignment: bool


class Member:
    """One member."""

    __slots__ = ("assignment", "due_ms", "id", "join", "join_token", "sync_token")

    def __init__(self, join: Join, member_id: str, due_ms: float) -> None:
        self.id = member_id
        self.join = join
        self.assignment = b""
        self.due_ms = due_ms
        """When its session ends, unless it is heard before."""
        self.join_token: Any = None
        self.sync_token: Any = None

    @property
    def is_waiting(self) -> bool:
        """It has a request here, so it is there."""
        return self.join_token is not None or self.sync_token is not None

    @property
    def bytes_(self) -> int:
        return sum(len(name) + len(content) for name, content in self.join.protocols) + len(self.assignment)


class Group:
    """See the head of the module."""

    def __init__(self, group_id: str, generation: int) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.generation = generation
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader = ""
        self.members: dict[str, Member] = {}
        self.pending: dict[str, float] = {}
        """Ids that were given out and not joined with yet, and until when they count."""
        self._instances: dict[str, str] = {}
        self._join_due_ms = 0.0
        self._join_not_before_ms = 0.0
        self._sync_due_ms = 0.0

    # --- joining ---------------------------------------------------------------------------------------------------

    def join(self, now_ms: float, token: Any, join: Join, fresh_id: str) -> Answers:
        """A member joins, or rejoins. `fresh_id` is its id if it needs one."""
        refused = self._join_refused(join)
        if refused is not None:
            return [_join_failed(token, refused, join.member_id)]
        if join.instance_id is not None and join.member_id == "" and join.instance_id in self._instances:
            return self._replace_static(now_ms, token, join, fresh_id)
        if join.member_id == "":
            if join.needs_member_id and join.instance_id is None:
                self.pending[fresh_id] = now_ms + join.session_ms
                return [_join_failed(token, Code.MEMBER_ID_REQUIRED, fresh_id)]
            return self._add(now_ms, token, join, fresh_id)
        if join.member_id in self.pending:
            del self.pending[join.member_id]
            return self._add(now_ms, token, join, join.member_id)
        return self._rejoin(now_ms, token, join)

    def _join_refused(self, join: Join) -> Code | None:
        if not limits.KAFKA_SESSION_MS_MIN <= join.session_ms <= limits.KAFKA_SESSION_MS_MAX:
            return Code.INVALID_SESSION_TIMEOUT
        if not join.protocols or not join.protocol_type:
            return Code.INCONSISTENT_GROUP_PROTOCOL
        others = [member for member in self.members.values() if member.id != join.member_id]
        if others:
            common = set.intersection(*({name for name, _ in other.join.protocols} for other in others))
            if join.protocol_type != self.protocol_type or not common & {name for name, _ in join.protocols}:
                return Code.INCONSISTENT_GROUP_PROTOCOL
        if join.member_id and join.member_id not in self.members and join.member_id not in self.pending:
            is_fenced = join.instance_id is not None and join.instance_id in self._instances
            return Code.FENCED_INSTANCE_ID if is_fenced else Code.UNKNOWN_MEMBER_ID
        if join.instance_id is not None and join.member_id:
            if self._instances.get(join.instance_id, join.member_id) != join.member_id:
                return Code.FENCED_INSTANCE_ID
        size = sum(member.bytes_ for member in others) + sum(len(content) for _, content in join.protocols)
        is_full = len(others) + len(self.pending) >= limits.KAFKA_GROUP_MEMBERS_MAX
        return Code.POLICY_VIOLATION if is_full or size > limits.KAFKA_GROUP_BYTES_MAX else None

    def _add(self, now_ms: float, token: Any, join: Join, member_id: str) -> Answers:
        member = Member(join, member_id, now_ms + join.session_ms)
        is_first = not self.members and self.state is State.EMPTY
        self.members[member_id] = member
        if join.instance_id is not None:
            self._instances[join.instance_id] = member_id
        member.join_token = token
        if is_first:
            self.protocol_type = join.protocol_type
            self._join_not_before_ms = now_ms + INITIAL_DELAY_MS
        return [*self._rebalance(now_ms), *self._join_complete(now_ms)]

    def _rejoin(self, now_ms: float, token: Any, join: Join) -> Answers:
        member = self.members[join.member_id]
        is_changed = member.join.protocols != join.protocols
        member.join = join
        member.due_ms = now_ms + join.session_ms
        if not is_changed and self.state is State.COMPLETING:
            return [self._joined(member, token)]  # it did not get the answer
        if not is_changed and self.state is State.STABLE and member.id != self.leader:
            return [self._joined(member, token)]
        answers: Answers = []
        if member.join_token is not None:  # it gave the first attempt up
            answers.append(_join_failed(member.join_token, Code.REBALANCE_IN_PROGRESS, member.id))
        member.join_token = token
        return [*answers, *self._rebalance(now_ms), *self._join_complete(now_ms)]

    def _replace_static(self, now_ms: float, token: Any, join: Join, fresh_id: str) -> Answers:
        """A static member is back under a new id; whoever held the old id is fenced. Without a rebalance if the group
        is stable and the member subscribes as before."""
        assert join.instance_id is not None
        old = self.members.pop(self._instances[join.instance_id])
        answers: Answers = []
        if old.join_token is not None:
            answers.append(_join_failed(old.join_token, Code.FENCED_INSTANCE_ID, old.id))
        if old.sync_token is not None:
            answers.append(_sync_failed(old.sync_token, Code.FENCED_INSTANCE_ID))
        member = Member(join, fresh_id, now_ms + join.session_ms)
        member.assignment = old.assignment
        self.members[fresh_id] = member
        self._instances[join.instance_id] = fresh_id
        leader_before = self.leader
        if self.leader == old.id:
            self.leader = fresh_id
        if self.state is State.STABLE and old.join.protocols == join.protocols:
            answer = self._joined(member, token)
            if leader_before == old.id and not join.can_skip_assignment:
                # An old client that is told to lead would assign anew; it is told of a leader that it is not.
                answer.fields.update(leader=leader_before, members=[])
            answer.fields["skip_assignment"] = leader_before == old.id and join.can_skip_assignment
            return [*answers, answer]
        member.join_token = token
        return [*answers, *self._rebalance(now_ms), *self._join_complete(now_ms)]

    def _rebalance(self, now_ms: float) -> Answers:
        """Every member must rejoin."""
        answers: Answers = []
        if self.state is not State.PREPARING:
            for member in self.members.values():
                if member.sync_token is not None:
                    answers.append(_sync_failed(member.sync_token, Code.REBALANCE_IN_PROGRESS))
                    member.sync_token = None
                    member.due_ms = now_ms + member.join.session_ms
            self.state = State.PREPARING
            self._join_due_ms = now_ms + max(member.join.rebalance_ms for member in self.members.values())
        return answers

    def _join_complete(self, now_ms: float) -> Answers:
        """Begin the next generation if everybody is there, or if the time is up."""
        if self.state is not State.PREPARING or now_ms < min(self._join_not_before_ms, self._join_due_ms):
            return []
        absent = [member for member in self.members.values() if member.join_token is None]
        if absent or self.pending:
            if now_ms < self._join_due_ms:
                return []
            for member in absent:
                if member.join.instance_id is None:
                    del self.members[member.id]
        present = [member for member in self.members.values() if member.join_token is not None]
        if not present:
            return self._emptied()
        self.generation += 1
        self.protocol = self._elected()
        if self.leader not in self.members or self.members[self.leader].join_token is None:
            self.leader = present[0].id
        self.state = State.COMPLETING
        self._sync_due_ms = now_ms + max(member.join.rebalance_ms for member in present)
        answers: Answers = []
        for member in present:
            token, member.join_token = member.join_token, None
            member.due_ms = now_ms + member.join.session_ms
            answers.append(self._joined(member, token))
        return answers

    def _emptied(self) -> Answers:
        """Nobody is left."""
        if not self.members:
            self.state = State.EMPTY
            self.generation += 1
            self.protocol, self.leader = None, ""
        return []

    def _elected(self) -> str:
        """The assignor that all know and most prefer."""
        common = set.intersection(*({name for name, _ in member.join.protocols} for member in self.members.values()))
        votes = dict.fromkeys(sorted(common), 0)
        for member in self.members.values():
            preferred = next(name for name, _ in member.join.protocols if name in common)
            votes[preferred] += 1
        return max(votes, key=lambda name: votes[name])

    def _joined(self, member: Member, token: Any) -> Answer:
        members = []
        if member.id == self.leader:
            members = [
                {
                    "member_id": other.id,
                    "group_instance_id": other.join.instance_id,
                    "metadata": dict(other.join.protocols)[self.protocol or ""],
                }
                for other in self.members.values()
            ]
        return Answer(
            token,
            {
                "error_code": Code.NONE,
                "generation_id": self.generation,
                "protocol_type": self.protocol_type,
                "protocol_name": self.protocol or "",
                "leader": self.leader,
                "member_id": member.id,
                "members": members,
            },
        )

    # --- syncing, heartbeats, leaving ------------------------------------------------------------------------------

    def check(self, member_id: str, instance_id: str | None, generation: int) -> Code:
        """Whether this is a member of the current generation."""
        if instance_id is not None and self._instances.get(instance_id, member_id) != member_id:
            return Code.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return Code.UNKNOWN_MEMBER_ID
        return Code.NONE if generation == self.generation else Code.ILLEGAL_GENERATION

    def sync(
        self,
        now_ms: float,
        token: Any,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: list[tuple[str, bytes]],
    ) -> Answers:
        """A member asks for its assignment; the leader brings those of all."""
        code = self.check(member_id, instance_id, generation)
        if code is Code.NONE and self.state in (State.EMPTY, State.PREPARING):
            code = Code.REBALANCE_IN_PROGRESS
        type_, name = protocol
        if code is Code.NONE and (type_ not in (None, self.protocol_type) or name not in (None, self.protocol)):
            code = Code.INCONSISTENT_GROUP_PROTOCOL
        if code is not Code.NONE:
            return [_sync_failed(token, code)]
        member = self.members[member_id]
        member.due_ms = now_ms + member.join.session_ms
        if self.state is State.STABLE:
            return [self._synced(member, token)]
        answers: Answers = []
        if member.sync_token is not None:
            answers.append(_sync_failed(member.sync_token, Code.REBALANCE_IN_PROGRESS))
        member.sync_token = token
        if member_id == self.leader:
            given = dict(assignments)
            self.state = State.STABLE
            for each in self.members.values():
                each.assignment = given.get(each.id, b"")
                if each.sync_token is not None:
                    answers.append(self._synced(each, each.sync_token))
                    each.sync_token = None
                    each.due_ms = now_ms + each.join.session_ms
        return answers

    def _synced(self, member: Member, token: Any) -> Answer:
        fields = {
            "error_code": Code.NONE,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "assignment": member.assignment,
        }
        return Answer(token, fields)

    def heartbeat(self, now_ms: float, member_id: str, instance_id: str | None, generation: int) -> Code:
        """A member is alive."""
        code = self.check(member_id, instance_id, generation)
        if code is Code.NONE:
            member = self.members[member_id]
            member.due_ms = now_ms + member.join.session_ms
            if self.state is State.PREPARING:
                return Code.REBALANCE_IN_PROGRESS
        return code

    def leave(self, now_ms: float, member_id: str, instance_id: str | None) -> tuple[Code, Answers]:
        """A member goes, or an administrator removes a static one by its instance id alone."""
        if instance_id is not None:
            known = self._instances.get(instance_id)
            if known is None:
                return Code.UNKNOWN_MEMBER_ID, []
            if member_id not in ("", known):
                return Code.FENCED_INSTANCE_ID, []
            member_id = known
        if self.pending.pop(member_id, None) is not None:
            return Code.NONE, self._join_complete(now_ms)
        if member_id not in self.members:
            return Code.UNKNOWN_MEMBER_ID, []
        return Code.NONE, self._remove([member_id], now_ms)

    def _remove(self, member_ids: list[str], now_ms: float) -> Answers:
        answers: Answers = []
        for member_id in member_ids:
            member = self.members.pop(member_id)
            if member.join.instance_id is not None:
                self._instances.pop(member.join.instance_id, None)
            if member.join_token is not None:
                answers.append(_join_failed(member.join_token, Code.UNKNOWN_MEMBER_ID, member_id))
            if member.sync_token is not None:
                answers.append(_sync_failed(member.sync_token, Code.UNKNOWN_MEMBER_ID))
        if not self.members:
            return [*answers, *self._emptied()]
        return [*answers, *self._rebalance(now_ms), *self._join_complete(now_ms)]

    # --- time ------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: float) -> Answers:
        """Let time do what it does: sessions end, rebalances do not wait for ever."""
        for member_id in [member_id for member_id, due_ms in self.pending.items() if due_ms <= now_ms]:
            del self.pending[member_id]
        silent = [member.id for member in self.members.values() if member.due_ms <= now_ms and not member.is_waiting]
        if self.state is State.COMPLETING and self._sync_due_ms <= now_ms:
            silent += [member.id for member in self.members.values() if member.sync_token is None]
        answers = self._remove(list(dict.fromkeys(silent)), now_ms) if silent else []
        return [*answers, *self._join_complete(now_ms)]

    def due_ms(self) -> float | None:
        """When `tick` has something to do next; None if nothing is going on."""
        due = [member.due_ms for member in self.members.values() if not member.is_waiting]
        due += self.pending.values()
        if self.state is State.PREPARING:
            due.append(self._join_due_ms)
            if all(member.join_token is not None for member in self.members.values()) and not self.pending:
                due.append(self._join_not_before_ms)
        elif self.state is State.COMPLETING:
            due.append(self._sync_due_ms)
        return min(due, default=None)


def _join_failed(token: Any, code: Code, member_id: str) -> Answer:
    return Answer(token, {"error_code": code, "generation_id": -1, "protocol_name": "", "member_id": member_id})


def _sync_failed(token: Any, code: Code) -> Answer:
    return Answer(token, {"error_code": code, "assignment": b""})
