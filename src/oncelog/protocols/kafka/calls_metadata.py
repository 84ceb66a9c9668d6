"""What a client asks before it reads or writes: versions, brokers, topics, coordinators, offsets."""

from typing import Any, Final

from oncelog.core.command import CreateTopic
from oncelog.core.outcome import Outcome, Refusal, TopicExists
from oncelog.core.rows import Topic
from oncelog.protocols.kafka import offered
from oncelog.protocols.kafka.broker import LEADER_EPOCH, NODE_ID, Broker
from oncelog.protocols.kafka.codes import Code
from oncelog.protocols.kafka.refusal_map import code_of
from oncelog.protocols.kafka.session import Call
from oncelog.protocols.kafka.topic_settings import can_spell, config_of

EARLIEST: Final = -2
LATEST: Final = -1
LARGEST_TIME: Final = -3

GROUP: Final = 0
TRANSACTION: Final = 1

ALL_OPERATIONS: Final = -2147483648
"""Authorized operations were not asked for, or nobody restricts them."""


def api_versions(_broker: Broker, call: Call) -> None:
    """Everything that is offered."""
    message = call.request()
    call.session.software = f"{message['client_software_name']} {message['client_software_version']}".strip()
    call.answer({"error_code": Code.NONE, "api_keys": _offered()})


def unknown_api_versions(call: Call) -> None:
    """In the layout of version 0, which everybody reads, with the range in which to ask again."""
    api = offered.TABLED[offered.API_VERSIONS]
    first, last = api.versions
    own = [{"api_key": api.key, "min_version": first, "max_version": last}]
    call.answer_body([api.encode_response(0, {"error_code": Code.UNSUPPORTED_VERSION, "api_keys": own})])


def _offered() -> list[dict[str, int]]:
    return [
        {"api_key": key, "min_version": first, "max_version": last}
        for key, (first, last) in sorted(offered.ADVERTISED.items())
    ]


def broker_row(call: Call) -> dict[str, Any]:
    """The one broker, at the address that this client shall use."""
    host, port = call.session.endpoint
    return {"node_id": NODE_ID, "host": host, "port": port}


def topic_uuid(topic: Topic) -> bytes:
    """Kafka's topic id from ours, which is never used again either."""
    return b"oncelog\0" + topic.topic_id.to_bytes(8, "big")


# --- topics ----------------------------------------------------------------------------------------------------


def metadata(broker: Broker, call: Call) -> None:
    """Topics and their partitions. A topic that is asked for by name and missing is made, if that is wanted."""
    message = call.request()
    asked = message["topics"]
    if asked is None or (call.version == 0 and not asked):
        topics = [topic for topic in broker.log.topics() if can_spell(topic.name)]
        _answer_metadata(broker, call, [_topic_row(topic) for topic in topics])
        return
    making = _Making(broker, call, asked)
    making.begin(auto_create=bool(message["allow_auto_topic_creation"]) and broker.settings.auto_create)


class _Making:
    """A Metadata request, until the topics that it brings about are made."""

    def __init__(self, broker: Broker, call: Call, asked: list[dict[str, Any]]) -> None:
        self._broker = broker
        self._call = call
        self._asked = asked
        self._failed: dict[str, Code] = {}
        self._missing = 0
        self._has_begun = False

    def begin(self, *, auto_create: bool) -> None:
        names = dict.fromkeys(each["name"] for each in self._asked if each["name"] is not None)
        for name in names:
            if not can_spell(name):
                self._failed[name] = Code.INVALID_TOPIC_EXCEPTION
            elif auto_create and self._broker.log.topic(name) is None:
                self._missing += 1
                command = CreateTopic(name, self._broker.settings.default_partitions, config_of({}))
                self._broker.log.submit(command, self._reply(name))
        self._has_begun = True
        self._finish()

    def _reply(self, name: str) -> Any:
        def made(outcome: Outcome) -> None:
            # Somebody else may have made it meanwhile, with other settings: it is there all the same.
            if isinstance(outcome, Refusal) and not isinstance(outcome, TopicExists):
                self._failed[name] = code_of(outcome)
            self._missing -= 1
            self._finish()

        return made

    def _finish(self) -> None:
        if self._missing or not self._has_begun or self._call.session.is_over:
            return
        by_id = {topic_uuid(topic): topic for topic in self._broker.log.topics()} if self._asks_by_id() else {}
        rows = []
        for each in self._asked:
            name, uuid = each["name"], each["topic_id"]
            topic = by_id.get(uuid) if name is None else self._broker.log.topic(name)
            if name in self._failed:
                rows.append({"error_code": self._failed[name], "name": name, "partitions": []})
            elif topic is None:
                code = Code.UNKNOWN_TOPIC_OR_PARTITION if name is not None else _UNKNOWN_TOPIC_ID
                rows.append({"error_code": code, "name": name, "topic_id": uuid or bytes(16), "partitions": []})
            else:
                rows.append(_topic_row(topic))
        _answer_metadata(self._broker, self._call, rows)

    def _asks_by_id(self) -> bool:
        return any(each["name"] is None for each in self._asked)


_UNKNOWN_TOPIC_ID: Final = 100


def _topic_row(topic: Topic) -> dict[str, Any]:
    return {
        "error_code": Code.NONE,
        "name": topic.name,
        "topic_id": topic_uuid(topic),
        "is_internal": False,
        "partitions": [partition_row(partition) for partition in range(len(topic.stream_ids))],
    }


def partition_row(partition: int) -> dict[str, Any]:
    """One partition: its only replica is here."""
    return {
        "error_code": Code.NONE,
        "partition_index": partition,
        "leader_id": NODE_ID,
        "leader_epoch": LEADER_EPOCH,
        "replica_nodes": [NODE_ID],
        "isr_nodes": [NODE_ID],
        "offline_replicas": [],
    }


def _answer_metadata(broker: Broker, call: Call, rows: list[dict[str, Any]]) -> None:
    call.answer(
        {
            "brokers": [broker_row(call)],
            "cluster_id": broker.settings.cluster_id,
            "controller_id": NODE_ID,
            "topics": rows,
        }
    )


def describe_topic_partitions(broker: Broker, call: Call) -> None:
    """Topics in the order of their names, page by page."""
    message = call.request()
    names = sorted({each["name"] for each in message["topics"]})
    if not names:
        names = [topic.name for topic in broker.log.topics() if can_spell(topic.name)]
    cursor = message["cursor"]
    first_name, first_partition = ("", 0) if cursor is None else (cursor["topic_name"], cursor["partition_index"])
    room = max(1, min(message["response_partition_limit"], 2_000))
    rows: list[dict[str, Any]] = []
    next_cursor = None
    for name in names:
        if name < first_name:
            continue
        topic = broker.log.topic(name) if can_spell(name) else None
        if topic is None:
            code = Code.UNKNOWN_TOPIC_OR_PARTITION if can_spell(name) else Code.INVALID_TOPIC_EXCEPTION
            rows.append({"error_code": code, "name": name, "partitions": []})
            continue
        if room <= 0:
            next_cursor = {"topic_name": name, "partition_index": 0}
            break
        first = first_partition if name == first_name else 0
        last = min(len(topic.stream_ids), first + room)
        row = _topic_row(topic)
        row["partitions"] = row["partitions"][first:last]
        rows.append(row)
        room -= last - first
        if last < len(topic.stream_ids):
            next_cursor = {"topic_name": name, "partition_index": last}
            break
    call.answer({"topics": rows, "next_cursor": next_cursor})


# --- brokers ---------------------------------------------------------------------------------------------------


def describe_cluster(broker: Broker, call: Call) -> None:
    """One broker, which is also the controller."""
    message = call.request()
    row = broker_row(call)
    row["broker_id"] = row.pop("node_id")
    call.answer(
        {
            "cluster_id": broker.settings.cluster_id,
            "controller_id": NODE_ID,
            "brokers": [row],
            "endpoint_type": message["endpoint_type"],
        }
    )


def find_coordinator(broker: Broker, call: Call) -> None:
    """It is here, for every group and for every transactional id."""
    message = call.request()
    keys = message["coordinator_keys"] if call.version >= 4 else [message["key"]]
    code, problem = Code.NONE, None
    if message["key_type"] not in (GROUP, TRANSACTION):
        code, problem = Code.INVALID_REQUEST, f"key type {message['key_type']}; it may be 0 or 1"
    elif message["key_type"] == TRANSACTION and not broker.settings.transactions:
        code, problem = Code.COORDINATOR_NOT_AVAILABLE, "transactions are switched off on this server"
    rows = []
    for key in keys:
        row = {"key": key, "error_code": code, "error_message": problem}
        if code is Code.NONE and message["key_type"] == TRANSACTION and not broker.may_use(key):
            row["error_code"] = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        row |= broker_row(call) if row["error_code"] == Code.NONE else {"node_id": -1, "host": "", "port": -1}
        rows.append(row)
    call.answer({"coordinators": rows} if call.version >= 4 else rows[0])


# --- offsets ---------------------------------------------------------------------------------------------------


def list_offsets(broker: Broker, call: Call) -> None:
    """Earliest, latest, by record time."""
    message = call.request()
    listing = _Listing(broker, call, committed=message["isolation_level"] == 1)
    for topic in message["topics"]:
        for each in topic["partitions"]:
            listing.ask(topic["name"], each["partition_index"], each["timestamp"], each["current_leader_epoch"])
    listing.started([topic["name"] for topic in message["topics"]])


class _Listing:
    """A ListOffsets request, until every partition is looked up."""

    def __init__(self, broker: Broker, call: Call, *, committed: bool) -> None:
        self._log = broker.log
        self._call = call
        self._committed = committed
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._open = 0
        self._topics: list[str] | None = None

    def ask(self, name: str, partition: int, time_ms: int, leader_epoch: int) -> None:
        """Look one partition up."""
        row: dict[str, Any] = {"partition_index": partition, "error_code": Code.NONE, "leader_epoch": LEADER_EPOCH}
        self._rows.setdefault(name, []).append(row)
        topic = self._log.topic(name) if can_spell(name) else None
        stream = None
        if topic is not None and 0 <= partition < len(topic.stream_ids):
            stream = self._log.stream(topic.stream_ids[partition])
        if stream is None:
            row["error_code"] = Code.UNKNOWN_TOPIC_OR_PARTITION
        elif leader_epoch > LEADER_EPOCH:
            row["error_code"] = Code.UNKNOWN_LEADER_EPOCH
        elif time_ms == LATEST:
            row["offset"] = stream.stable if self._committed else stream.tail
        elif time_ms == EARLIEST:
            row["offset"] = stream.floor
        else:
            self._open += 1
            if time_ms == LARGEST_TIME:
                self._log.offset_of_latest_time(name, partition, self._told(row))
            else:
                self._log.offsets_at(name, partition, time_ms, self._told(row))

    def _told(self, row: dict[str, Any]) -> Any:
        def told(found: tuple[int, int] | None) -> None:
            if found is not None:
                row["offset"], row["timestamp"] = found
            self._open -= 1
            self._finish()

        return told

    def started(self, topics: list[str]) -> None:
        """All were asked."""
        self._topics = topics
        self._finish()

    def _finish(self) -> None:
        if self._topics is None or self._open or self._call.session.is_over:
            return
        topics = [{"name": name, "partitions": self._rows.get(name, [])} for name in dict.fromkeys(self._topics)]
        self._call.answer({"topics": topics})


def offset_for_leader_epoch(broker: Broker, call: Call) -> None:
    """There is one epoch, and it ends where the log does."""
    message = call.request()
    topics = []
    for topic in message["topics"]:
        rows = []
        for each in topic["partitions"]:
            row = broker.log.topic(topic["topic"])
            stream = None
            if row is not None and 0 <= each["partition"] < len(row.stream_ids):
                stream = broker.log.stream(row.stream_ids[each["partition"]])
            answer = {"partition": each["partition"], "error_code": Code.NONE}
            if stream is None:
                answer["error_code"] = Code.UNKNOWN_TOPIC_OR_PARTITION
            elif each["current_leader_epoch"] > LEADER_EPOCH or each["leader_epoch"] > LEADER_EPOCH:
                answer["error_code"] = Code.UNKNOWN_LEADER_EPOCH
            else:
                answer |= {"leader_epoch": LEADER_EPOCH, "end_offset": stream.tail}
            rows.append(answer)
        topics.append({"topic": topic["topic"], "partitions": rows})
    call.answer({"topics": topics})
