"""Making, growing, deleting and trimming topics."""

from typing import Any

from oncelog import limits
from oncelog.core.command import AddPartitions, CreateTopic, DeleteTopic, Trim
from oncelog.core.outcome import Outcome, Refusal, StreamDone, TopicDone
from oncelog.protocols.kafka.broker import Broker
from oncelog.protocols.kafka.calls_metadata import topic_uuid
from oncelog.protocols.kafka.codes import Code
from oncelog.protocols.kafka.gather import Gather
from oncelog.protocols.kafka.refusal_map import code_of, text_of
from oncelog.protocols.kafka.session import Call
from oncelog.protocols.kafka.topic_settings import SETTINGS, can_spell, config_of, refused

NOT_SET = -1


def create_topics(broker: Broker, call: Call) -> None:
    """Each topic alone. A replication factor above 1 is accepted: there is one copy, on one node."""
    message = call.request()
    gather = Gather(broker.log, call)
    rows: list[dict[str, Any]] = []
    names = [topic["name"] for topic in message["topics"]]
    for topic in message["topics"]:
        row: dict[str, Any] = {"name": topic["name"]}
        rows.append(row)
        problem = _create_refused(broker, topic)
        if names.count(topic["name"]) > 1:
            problem = (Code.INVALID_REQUEST, "the topic is named twice in one request")
        partitions = len(topic["assignments"]) or topic["num_partitions"]
        if partitions == NOT_SET:
            partitions = broker.settings.default_partitions
        if problem is not None:
            row["error_code"], row["error_message"] = problem
            continue
        row |= {"error_code": Code.NONE, "num_partitions": partitions, "replication_factor": 1}
        row["configs"] = _configs_of(topic)
        if not message["validate_only"]:
            config = config_of({each["name"]: each["value"] for each in topic["configs"]})
            gather.submit(CreateTopic(topic["name"], partitions, config), _created(broker, row))
    gather.finish(lambda: {"topics": rows})


def _create_refused(broker: Broker, topic: dict[str, Any]) -> tuple[Code, str] | None:
    name, count = topic["name"], topic["num_partitions"]
    if not can_spell(name):
        return Code.INVALID_TOPIC_EXCEPTION, f"{name!r}: letters, digits, '.', '_' and '-', at most 249 of them"
    if broker.log.topic(name) is not None:
        return Code.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists"
    if topic["assignments"]:
        if count != NOT_SET or topic["replication_factor"] != NOT_SET:
            return Code.INVALID_REQUEST, "assignments stand beside a number of partitions or replicas; give one of them"
        numbers = sorted(each["partition_index"] for each in topic["assignments"])
        if numbers != list(range(len(numbers))):
            return Code.INVALID_REPLICA_ASSIGNMENT, "the assigned partitions are not 0 to n - 1"
    elif count != NOT_SET and not 1 <= count <= limits.KAFKA_PARTITIONS_MAX:
        return Code.INVALID_PARTITIONS, f"{count} partitions; 1 to {limits.KAFKA_PARTITIONS_MAX:,} are possible"
    elif topic["replication_factor"] != NOT_SET and topic["replication_factor"] < 1:
        return Code.INVALID_REPLICATION_FACTOR, f"replication factor {topic['replication_factor']}"
    wrong = refused({each["name"]: each["value"] for each in topic["configs"]})
    return None if wrong is None else (Code.INVALID_CONFIG, wrong.problem)


def _configs_of(topic: dict[str, Any]) -> list[dict[str, Any]]:
    chosen = {each["name"]: each["value"] for each in topic["configs"]}
    return [
        {"name": name, "value": chosen.get(name, setting.default), "config_source": 1 if name in chosen else 5}
        for name, setting in SETTINGS.items()
    ]


def _created(broker: Broker, row: dict[str, Any]) -> Any:
    def told(outcome: Outcome) -> None:
        if isinstance(outcome, Refusal):
            row["error_code"], row["error_message"] = code_of(outcome), text_of(outcome)
        elif isinstance(outcome, TopicDone):
            if not outcome.changed:
                row["error_code"] = Code.TOPIC_ALREADY_EXISTS
            topic = broker.log.topic(row["name"])
            row["topic_id"] = bytes(16) if topic is None else topic_uuid(topic)

    return told


def delete_topics(broker: Broker, call: Call) -> None:
    """By name, or by id from version 6 on."""
    message = call.request()
    gather = Gather(broker.log, call)
    rows: list[dict[str, Any]] = []
    asked: list[tuple[str | None, bytes]] = [(name, bytes(16)) for name in message["topic_names"]]
    if call.version >= 6:
        asked = [(each["name"], each["topic_id"]) for each in message["topics"]]
    by_id = {topic_uuid(topic): topic.name for topic in broker.log.topics()} if call.version >= 6 else {}
    for name, uuid in asked:
        known = by_id.get(uuid) if name is None else name
        row: dict[str, Any] = {"name": known, "topic_id": uuid, "error_code": Code.NONE}
        rows.append(row)
        if known is None or not can_spell(known) or broker.log.topic(known) is None:
            row["error_code"] = Code.UNKNOWN_TOPIC_OR_PARTITION
            continue
        gather.submit(DeleteTopic(known), _set_code(row))
    gather.finish(lambda: {"responses": rows})


def _set_code(row: dict[str, Any]) -> Any:
    def told(outcome: Outcome) -> None:
        if isinstance(outcome, Refusal):
            row["error_code"], row["error_message"] = code_of(outcome), text_of(outcome)

    return told


def create_partitions(broker: Broker, call: Call) -> None:
    """A topic grows; it never shrinks."""
    message = call.request()
    gather = Gather(broker.log, call)
    rows: list[dict[str, Any]] = []
    for each in message["topics"]:
        row: dict[str, Any] = {"name": each["name"], "error_code": Code.NONE, "error_message": None}
        rows.append(row)
        topic = broker.log.topic(each["name"]) if can_spell(each["name"]) else None
        if topic is None:
            row["error_code"] = Code.UNKNOWN_TOPIC_OR_PARTITION
            continue
        now, wanted = len(topic.stream_ids), each["count"]
        if not now < wanted <= limits.KAFKA_PARTITIONS_MAX:
            row["error_code"] = Code.INVALID_PARTITIONS
            row["error_message"] = f"the topic has {now} partitions; {wanted} were asked for"
        elif each["assignments"] is not None and len(each["assignments"]) not in (0, wanted - now):
            row["error_code"] = Code.INVALID_REPLICA_ASSIGNMENT
        elif not message["validate_only"]:
            gather.submit(AddPartitions(each["name"], wanted), _set_code(row))
    gather.finish(lambda: {"results": rows})


def delete_records(broker: Broker, call: Call) -> None:
    """Raise the floor of partitions; -1 is up to the end."""
    message = call.request()
    gather = Gather(broker.log, call)
    topics = []
    for each in message["topics"]:
        rows: list[dict[str, Any]] = []
        topic = broker.log.topic(each["name"]) if can_spell(each["name"]) else None
        for wanted in each["partitions"]:
            partition, offset = wanted["partition_index"], wanted["offset"]
            row = {"partition_index": partition, "low_watermark": -1, "error_code": Code.NONE}
            rows.append(row)
            stream = None
            if topic is not None and 0 <= partition < len(topic.stream_ids):
                stream = broker.log.stream(topic.stream_ids[partition])
            if stream is None:
                row["error_code"] = Code.UNKNOWN_TOPIC_OR_PARTITION
                continue
            floor = stream.stable if offset == -1 else offset
            if not 0 <= floor <= stream.stable:
                row["error_code"] = Code.OFFSET_OUT_OF_RANGE
            elif floor <= stream.floor:
                row["low_watermark"] = stream.floor
            else:
                gather.submit(Trim(each["name"], partition, floor), _trimmed(row))
        topics.append({"name": each["name"], "partitions": rows})
    gather.finish(lambda: {"topics": topics})


def _trimmed(row: dict[str, Any]) -> Any:
    def told(outcome: Outcome) -> None:
        if isinstance(outcome, StreamDone):
            row["low_watermark"] = outcome.floor
        elif isinstance(outcome, Refusal):
            row["error_code"] = code_of(outcome)

    return told
