"""Saved offsets of consumer groups: cursors named `kafka:<group>`, kept by the log.

An offset is the client's own word: any offset of 0 or more is stored as given, each partition is answered alone.
"""

from typing import Any, Final

from oncelog.core.command import CommitOffsets, CursorMove, DeleteCursor, GetCursor
from oncelog.core.outcome import CursorDone, OffsetsCommitted, Outcome, Refusal
from oncelog.protocols.kafka.broker import Broker
from oncelog.protocols.kafka.codes import Code
from oncelog.protocols.kafka.gather import Gather
from oncelog.protocols.kafka.log import SavedOffset
from oncelog.protocols.kafka.refusal_map import offset_code
from oncelog.protocols.kafka.session import Call
from oncelog.protocols.kafka.topic_settings import can_spell

SCOPE: Final = "kafka:"
NO_OFFSET: Final = -1


def cursor_name(group_id: str) -> str:
    """The scoped name of a group: other faces' consumers never meet it."""
    return SCOPE + group_id


def moves_of(group_id: str, topics: list[dict[str, Any]]) -> tuple[list[CursorMove], list[dict[str, Any]]]:
    """What a commit asks for, and the rows of its answer, in the same order."""
    name = cursor_name(group_id)
    moves: list[CursorMove] = []
    rows: list[dict[str, Any]] = []
    for topic in topics:
        for each in topic["partitions"]:
            rows.append({"partition_index": each["partition_index"], "error_code": Code.NONE, "topic": topic["name"]})
            moves.append(
                CursorMove(
                    name,
                    topic["name"],
                    each["partition_index"],
                    each["committed_offset"],
                    each["committed_metadata"] or "",
                )
            )
    return moves, rows


def by_topic(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of partitions under their topics, as responses have them."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        topics.setdefault(row["topic"], []).append(row)
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def take_answers(rows: list[dict[str, Any]], outcome: Outcome) -> None:
    """Put the outcome of `CommitOffsets` into the rows."""
    if isinstance(outcome, OffsetsCommitted):
        for row, refusal in zip(rows, outcome.answers, strict=True):
            row["error_code"] = Code.NONE if refusal is None else offset_code(refusal)
    else:
        assert isinstance(outcome, Refusal)
        code = offset_code(outcome)
        for row in rows:
            row["error_code"] = code


def offset_commit(broker: Broker, call: Call) -> None:
    """By a member of the current generation, or by a client that assigns its partitions itself."""
    message = call.request()
    group_id = message["group_id"]
    moves, rows = moves_of(group_id, message["topics"])
    code = broker.groups.may_commit(
        group_id, message["member_id"], message["group_instance_id"], message["generation_id_or_member_epoch"]
    )
    gather = Gather(broker.log, call)
    if code is not Code.NONE:
        for row in rows:
            row["error_code"] = code
    elif moves:
        gather.submit(CommitOffsets(moves), lambda outcome: take_answers(rows, outcome))
    gather.finish(lambda: {"topics": by_topic(rows)})


# --- asking ----------------------------------------------------------------------------------------------------


def offset_fetch(broker: Broker, call: Call) -> None:
    """Of one group, or of several from version 8 on; of named partitions, or of all that have an offset."""
    message = call.request()
    asked = message["groups"] if call.version >= 8 else [message]
    require_stable = message["require_stable"]
    gather = Gather(broker.log, call)
    answers: list[dict[str, Any]] = []
    for group in asked:
        answer = {"group_id": group["group_id"], "error_code": Code.NONE, "rows": []}
        answers.append(answer)
        if group["topics"] is None:
            _ask_all(broker, gather, answer, cursor_name(group["group_id"]))
            continue
        for topic in group["topics"]:
            for partition in topic["partition_indexes"]:
                row = {"partition_index": partition, "topic": topic["name"]} | _nothing_saved()
                answer["rows"].append(row)
                if can_spell(topic["name"]) and partition >= 0:
                    command = GetCursor(cursor_name(group["group_id"]), topic["name"], partition)
                    gather.submit(command, _saved(row, require_stable=require_stable))

    def whole() -> dict[str, Any]:
        for answer in answers:
            answer["topics"] = by_topic(answer.pop("rows"))
        return {"groups": answers} if call.version >= 8 else answers[0]

    gather.finish(whole)


def _ask_all(broker: Broker, gather: Gather, answer: dict[str, Any], name: str) -> None:
    done = gather.expect()
    broker.log.saved_offsets(name, lambda saved: done(lambda: _all_saved(answer, name, saved)))


def _nothing_saved() -> dict[str, Any]:
    return {"committed_offset": NO_OFFSET, "metadata": "", "error_code": Code.NONE, "committed_leader_epoch": -1}


def _saved(row: dict[str, Any], *, require_stable: bool) -> Any:
    def told(outcome: Outcome) -> None:
        if not isinstance(outcome, CursorDone):
            return  # a partition that is not there has no offset, as in Kafka
        if outcome.pending and require_stable:
            row["error_code"] = Code.UNSTABLE_OFFSET_COMMIT
        elif outcome.cursor is not None:
            row["committed_offset"], row["metadata"] = outcome.cursor.frontier, outcome.cursor.metadata

    return told


def _all_saved(answer: dict[str, Any], name: str, saved: list[SavedOffset]) -> None:
    for each in saved:
        if each.name == name and can_spell(each.topic):
            answer["rows"].append(
                {"topic": each.topic, "partition_index": each.partition}
                | _nothing_saved()
                | {"committed_offset": each.cursor.frontier, "metadata": each.cursor.metadata}
            )


# --- deleting --------------------------------------------------------------------------------------------------


def offset_delete(broker: Broker, call: Call) -> None:
    """Offsets of a group that nobody is in."""
    message = call.request()
    group = broker.groups.get(message["group_id"])
    if group is not None and group.members:
        call.answer({"error_code": Code.NON_EMPTY_GROUP, "topics": []})
        return
    name = cursor_name(message["group_id"])
    done = Gather(broker.log, call)
    rows: list[dict[str, Any]] = []
    for topic in message["topics"]:
        for each in topic["partitions"]:
            row = {"topic": topic["name"], "partition_index": each["partition_index"], "error_code": Code.NONE}
            rows.append(row)
            done.submit(DeleteCursor(name, topic["name"], each["partition_index"]), _deleted(row))
    done.finish(lambda: {"error_code": Code.NONE, "topics": by_topic(rows)})


def _deleted(row: dict[str, Any]) -> Any:
    def told(outcome: Outcome) -> None:
        if isinstance(outcome, Refusal):
            row["error_code"] = offset_code(outcome)

    return told
