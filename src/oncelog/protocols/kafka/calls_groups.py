"""Membership of consumer groups, and the listings of groups."""

from typing import Any, Final

from oncelog.core.command import DeleteCursor
from oncelog.protocols.kafka.broker import Broker
from oncelog.protocols.kafka.calls_offsets import SCOPE, cursor_name
from oncelog.protocols.kafka.codes import Code
from oncelog.protocols.kafka.gather import Gather
from oncelog.protocols.kafka.groups.group import WIRE_NAMES, Answers, Group, Join, State
from oncelog.protocols.kafka.log import SavedOffset
from oncelog.protocols.kafka.session import Call

NEEDS_MEMBER_ID_FROM: Final = 4
SKIPS_ASSIGNMENT_FROM: Final = 9
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
NO_OPERATIONS: Final = -2147483648


def tell(answers: Answers) -> None:
    """Answer requests that waited; those whose client has gone are dropped."""
    for token, fields in answers:
        call: Call = token
        if not call.session.is_over:
            call.answer(fields)


def join_group(broker: Broker, call: Call) -> None:
    """Answered once the rebalance that it brings about has its members."""
    message = call.request()
    group_id = message["group_id"]
    if not group_id:
        call.answer({"error_code": Code.INVALID_GROUP_ID, "generation_id": -1, "member_id": message["member_id"]})
        return
    group = broker.groups.opened(group_id)
    if group is None:
        call.answer({"error_code": Code.POLICY_VIOLATION, "generation_id": -1, "member_id": message["member_id"]})
        return
    session_ms = message["session_timeout_ms"]
    join = Join(
        message["member_id"],
        message["group_instance_id"],
        call.head.client_id,
        "/" + call.session.peer,
        session_ms,
        message["rebalance_timeout_ms"] if call.version >= 1 else session_ms,
        message["protocol_type"],
        tuple((each["name"], each["metadata"]) for each in message["protocols"]),
        call.version >= NEEDS_MEMBER_ID_FROM,
        call.version >= SKIPS_ASSIGNMENT_FROM,
    )
    fresh = f"{message['group_instance_id'] or call.head.client_id or 'member'}-{broker.log.unique()}"
    broker.groups.happen(group, group.join(broker.groups.now_ms(), call, join, fresh), tell)


def sync_group(broker: Broker, call: Call) -> None:
    """Answered once the leader has brought the assignment."""
    message = call.request()
    group = broker.groups.get(message["group_id"])
    if group is None:
        call.answer({"error_code": Code.UNKNOWN_MEMBER_ID, "assignment": b""})
        return
    answers = group.sync(
        broker.groups.now_ms(),
        call,
        message["member_id"],
        message["group_instance_id"],
        message["generation_id"],
        (message["protocol_type"], message["protocol_name"]),
        [(each["member_id"], each["assignment"]) for each in message["assignments"]],
    )
    broker.groups.happen(group, answers, tell)


def heartbeat(broker: Broker, call: Call) -> None:
    """A member is alive, and learns whether it must rejoin."""
    message = call.request()
    group = broker.groups.get(message["group_id"])
    code = Code.UNKNOWN_MEMBER_ID
    if group is not None:
        now_ms = broker.groups.now_ms()
        code = group.heartbeat(now_ms, message["member_id"], message["group_instance_id"], message["generation_id"])
        broker.groups.happen(group, [], tell)
    call.answer({"error_code": code})


def leave_group(broker: Broker, call: Call) -> None:
    """One member, or several from version 3 on."""
    message = call.request()
    group = broker.groups.get(message["group_id"])
    leaving = (
        message["members"] if call.version >= 3 else [{"member_id": message["member_id"], "group_instance_id": None}]
    )
    rows: list[dict[str, Any]] = []
    answers: Answers = []
    for each in leaving:
        code = Code.UNKNOWN_MEMBER_ID
        if group is not None:
            code, brought = group.leave(broker.groups.now_ms(), each["member_id"], each["group_instance_id"])
            answers += brought
        rows.append(
            {"member_id": each["member_id"], "group_instance_id": each["group_instance_id"], "error_code": code}
        )
    call.answer({"error_code": Code.NONE if call.version >= 3 else rows[0]["error_code"], "members": rows})
    if group is not None:
        broker.groups.happen(group, answers, tell)


# --- listings --------------------------------------------------------------------------------------------------


def describe_groups(broker: Broker, call: Call) -> None:
    """Groups by id. One that has offsets and no members is empty; one that nobody knows is dead."""
    message = call.request()
    broker.log.saved_offsets(SCOPE, lambda saved: _describe(broker, call, message["groups"], saved))


def _describe(broker: Broker, call: Call, asked: list[str], saved: list[SavedOffset]) -> None:
    if call.session.is_over:
        return
    with_offsets = {each.name for each in saved}
    rows = []
    for group_id in asked:
        group = broker.groups.get(group_id)
        row: dict[str, Any] = {"error_code": Code.NONE, "group_id": group_id, "protocol_type": "", "protocol_data": ""}
        row |= {"authorized_operations": NO_OPERATIONS, "members": []}
        if group is not None and (group.members or group.state is not State.EMPTY):
            row |= _described(group)
        elif cursor_name(group_id) in with_offsets:
            row |= {"group_state": "Empty", "protocol_type": CONSUMER}
        else:
            row["group_state"] = "Dead"
        rows.append(row)
    call.answer({"groups": rows})


def _described(group: Group) -> dict[str, Any]:
    protocol = group.protocol if group.state in (State.COMPLETING, State.STABLE) else ""
    return {
        "group_state": WIRE_NAMES[group.state],
        "protocol_type": group.protocol_type,
        "protocol_data": protocol or "",
        "members": [
            {
                "member_id": member.id,
                "group_instance_id": member.join.instance_id,
                "client_id": member.join.client_id,
                "client_host": member.join.client_host,
                "member_metadata": dict(member.join.protocols).get(protocol or "", b""),
                "member_assignment": member.assignment if group.state is State.STABLE else b"",
            }
            for member in group.members.values()
        ],
    }


def list_groups(broker: Broker, call: Call) -> None:
    """Groups with members, and groups that only have offsets."""
    message = call.request()
    broker.log.saved_offsets(SCOPE, lambda saved: _list(broker, call, message, saved))


def _list(broker: Broker, call: Call, message: dict[str, Any], saved: list[SavedOffset]) -> None:
    if call.session.is_over:
        return
    rows: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(each.name for each in saved):
        rows[name.removeprefix(SCOPE)] = {"protocol_type": CONSUMER, "group_state": "Empty"}
    for group in broker.groups.groups():
        if group.members:
            rows[group.group_id] = {"protocol_type": group.protocol_type, "group_state": WIRE_NAMES[group.state]}
    states = {state.lower() for state in message["states_filter"]}
    types = {type_.lower() for type_ in message["types_filter"]}
    listed = [
        row | {"group_id": group_id, "group_type": CLASSIC}
        for group_id, row in sorted(rows.items())
        if (not states or row["group_state"].lower() in states) and (not types or CLASSIC in types)
    ]
    call.answer({"error_code": Code.NONE, "groups": listed})


def delete_groups(broker: Broker, call: Call) -> None:
    """Groups without members: their offsets go."""
    message = call.request()
    broker.log.saved_offsets(SCOPE, lambda saved: _delete(broker, call, message["groups_names"], saved))


def _delete(broker: Broker, call: Call, asked: list[str], saved: list[SavedOffset]) -> None:
    gather = Gather(broker.log, call)
    rows = []
    for group_id in asked:
        group = broker.groups.get(group_id)
        offsets = [each for each in saved if each.name == cursor_name(group_id)]
        code = Code.NONE
        if group is not None and group.members:
            code = Code.NON_EMPTY_GROUP
        elif not offsets:
            code = Code.GROUP_ID_NOT_FOUND
        else:
            for each in offsets:
                gather.submit(DeleteCursor(each.name, each.topic, each.partition), lambda _outcome: None)
        rows.append({"group_id": group_id, "error_code": code})
    gather.finish(lambda: {"results": rows})
