"""Consumer groups as a state machine: who is a member, which generation holds, who is fenced."""

from typing import Any

import pytest

from oncelog.protocols.kafka.codes import Code
from oncelog.protocols.kafka.groups.group import INITIAL_DELAY_MS, Answers, Group, Join, State

SESSION_MS = 10_000
REBALANCE_MS = 30_000


def join(member: str = "", instance: str | None = None, *names: str, **more: Any) -> Join:
    protocols = tuple((name, f"{name} of {member}".encode()) for name in names or ("range",))
    chosen = {"needs_member_id": False, "can_skip_assignment": True, "session_ms": SESSION_MS} | more
    return Join(
        member,
        instance,
        "client",
        "/host",
        chosen["session_ms"],
        REBALANCE_MS,
        chosen.get("protocol_type", "consumer"),
        chosen.get("protocols", protocols),
        chosen["needs_member_id"],
        chosen["can_skip_assignment"],
    )


def told(answers: Answers) -> dict[Any, dict[str, Any]]:
    return {answer.token: answer.fields for answer in answers}


def stable(*members: str, instances: bool = False, protocols: tuple[str, ...] = ("range",)) -> tuple[Group, float]:
    """A group of these members, the first one leading; and the time."""
    group = Group("g", 100)
    for member in members:
        assert group.join(0, member, join("", member if instances else None, *protocols), member) == []
    joined = told(group.tick(INITIAL_DELAY_MS))
    assert set(joined) == set(members)
    leader = joined[members[0]]["leader"]
    assert {row["member_id"] for row in joined[leader]["members"]} == set(members)
    now = INITIAL_DELAY_MS + 1.0
    for member in members:
        if member != leader:
            assert sync(group, now, member) == {}
    synced = sync(group, now, leader, [(member, member.encode()) for member in members])
    assert {member: fields["assignment"] for member, fields in synced.items()} == {m: m.encode() for m in members}
    assert group.state is State.STABLE
    return group, now


def sync(
    group: Group, now: float, member: str, given: list[tuple[str, bytes]] | None = None, generation: int | None = None
) -> dict[Any, dict[str, Any]]:
    generation = group.generation if generation is None else generation
    return told(group.sync(now, member, member, None, generation, ("consumer", None), given or []))


def test_members_that_start_together_need_one_rebalance() -> None:
    group, _ = stable("a", "b", "c")
    assert group.generation == 101
    assert group.leader == "a"


def test_a_newcomer_is_told_its_id_first_and_one_that_gives_up_leaves_nothing() -> None:
    group = Group("g", 1)
    answer = told(group.join(0, "t", join(needs_member_id=True), "fresh"))["t"]
    assert (answer["error_code"], answer["member_id"]) == (Code.MEMBER_ID_REQUIRED, "fresh")
    assert group.members == {}
    group.tick(SESSION_MS)
    assert group.pending == {}
    assert told(group.join(SESSION_MS, "t", join("fresh"), ""))["t"]["error_code"] == Code.UNKNOWN_MEMBER_ID


def test_a_new_member_makes_all_rejoin_and_gets_its_share() -> None:
    group, now = stable("a", "b")
    assert group.join(now, "c", join(), "c") == []
    assert group.heartbeat(now, "a", None, 101) == Code.REBALANCE_IN_PROGRESS
    assert group.join(now, "a", join("a"), "") == []
    joined = told(group.join(now, "b", join("b"), ""))
    assert {fields["generation_id"] for fields in joined.values()} == {102}
    assert sync(group, now, "b", generation=101)["b"]["error_code"] == Code.ILLEGAL_GENERATION
    assert group.check("b", None, 101) == Code.ILLEGAL_GENERATION


def test_a_member_that_does_not_rejoin_in_time_is_out() -> None:
    group, now = stable("a", "b")
    group.join(now, "c", join(), "c")
    group.join(now, "a", join("a"), "")
    group.heartbeat(now + SESSION_MS - 1, "b", None, 101)
    joined: dict[Any, dict[str, Any]] = {}
    while not joined:
        due = group.due_ms()
        assert due is not None
        assert due <= now + REBALANCE_MS
        joined = told(group.tick(due))
    assert set(joined) == {"a", "c"}
    assert group.check("b", None, 102) == Code.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_out_after_its_session() -> None:
    group, now = stable("a", "b")
    assert group.due_ms() == now + SESSION_MS
    group.heartbeat(now + 5_000, "a", None, 101)
    group.tick(now + SESSION_MS)
    assert set(group.members) == {"a"}
    assert group.state is State.PREPARING


def test_a_leader_that_never_brings_the_assignment_is_out() -> None:
    group = Group("g", 1)
    for member in ("a", "b"):
        group.join(0, member, join(), member)
    group.tick(INITIAL_DELAY_MS)
    sync(group, 300, "b")
    group.heartbeat(20_000, "a", None, 2)
    group.heartbeat(29_000, "a", None, 2)
    answers = told(group.tick(INITIAL_DELAY_MS + REBALANCE_MS))
    assert answers["b"]["error_code"] == Code.REBALANCE_IN_PROGRESS
    assert set(group.members) == {"b"}


def test_a_member_that_leaves_makes_the_others_rejoin_and_the_last_one_empties_the_group() -> None:
    group, now = stable("a", "b")
    assert group.leave(now, "a", None)[0] == Code.NONE
    assert group.heartbeat(now, "b", None, 101) == Code.REBALANCE_IN_PROGRESS
    assert group.leave(now, "a", None)[0] == Code.UNKNOWN_MEMBER_ID
    assert group.leave(now, "b", None)[0] == Code.NONE
    assert group.state is State.EMPTY
    assert group.due_ms() is None


def test_a_static_member_comes_back_without_a_rebalance_and_its_old_self_is_fenced() -> None:
    group, now = stable("a", "b", instances=True)
    generation = group.generation
    answer = told(group.join(now, "t", join("", "b", protocols=group.members["b"].join.protocols), "b2"))["t"]
    assert (answer["error_code"], answer["generation_id"], answer["member_id"]) == (Code.NONE, generation, "b2")
    assert group.state is State.STABLE
    assert sync(group, now, "b2")["b2"]["assignment"] == b"b"
    assert group.check("b", "b", generation) == Code.FENCED_INSTANCE_ID
    assert group.check("b", None, generation) == Code.UNKNOWN_MEMBER_ID
    assert told(group.join(now, "t", join("b", "b"), ""))["t"]["error_code"] == Code.FENCED_INSTANCE_ID


def test_a_static_leader_that_comes_back_is_not_asked_to_assign_anew() -> None:
    group, now = stable("a", "b", instances=True)
    protocols = group.members["a"].join.protocols
    new = told(group.join(now, "t", join("", "a", protocols=protocols), "a2"))["t"]
    assert new["skip_assignment"]
    assert new["leader"] == "a2"
    old = told(group.join(now, "t", join("", "a", protocols=protocols, can_skip_assignment=False), "a3"))["t"]
    assert old["leader"] != "a3"
    assert old["members"] == []


def test_a_static_member_keeps_its_place_while_it_is_away() -> None:
    group, now = stable("a", "b", instances=True)
    group.join(now, "c", join(), "c")
    group.join(now, "a", join("a", "a"), "")
    for moment in range(5_000, 31_000, 5_000):
        group.heartbeat(now + moment, "b", "b", 101)
    joined = told(group.tick(now + REBALANCE_MS))
    assert set(joined) == {"a", "c"}
    assert "b" in group.members


def test_the_assignor_is_one_that_all_know_and_most_prefer() -> None:
    group = Group("g", 1)
    group.join(0, "a", join("", None, "cooperative-sticky", "range"), "a")
    group.join(0, "b", join("", None, "range", "cooperative-sticky"), "b")
    group.join(0, "c", join("", None, "range"), "c")
    joined = told(group.tick(INITIAL_DELAY_MS))
    assert {fields["protocol_name"] for fields in joined.values()} == {"range"}
    answer = told(group.join(300, "d", join("", None, "roundrobin"), "d"))["d"]
    assert answer["error_code"] == Code.INCONSISTENT_GROUP_PROTOCOL


def test_a_join_whose_answer_was_lost_gets_it_again() -> None:
    group = Group("g", 1)
    group.join(0, "first", join(), "a")
    group.tick(INITIAL_DELAY_MS)
    again = told(group.join(300, "second", join("a", None, protocols=group.members["a"].join.protocols), ""))
    assert again["second"]["generation_id"] == 2
    assert group.state is State.COMPLETING


def test_a_cooperative_member_rejoins_twice_and_nobody_is_out() -> None:
    group, now = stable("a", "b", protocols=("cooperative-sticky",))
    for generation in (102, 103):
        changed = (("cooperative-sticky", b"owns less %d" % generation),)
        group.join(now, "a", join("a", None, protocols=changed), "")
        joined = told(group.join(now, "b", join("b", None, protocols=changed), ""))
        assert {fields["generation_id"] for fields in joined.values()} == {generation}
        sync(group, now, "b")
        assert set(sync(group, now, "a", [("a", b"x"), ("b", b"y")])) == {"a", "b"}
    assert group.state is State.STABLE


@pytest.mark.parametrize("session_ms", [0, 999, 30 * 60 * 1_000 + 1])
def test_a_session_timeout_out_of_range_is_refused(session_ms: int) -> None:
    answer = told(Group("g", 1).join(0, "t", join(session_ms=session_ms), "a"))["t"]
    assert answer["error_code"] == Code.INVALID_SESSION_TIMEOUT
