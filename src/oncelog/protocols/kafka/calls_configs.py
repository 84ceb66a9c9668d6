"""Settings of topics and of the broker: described by Kafka's names, changed where they are stored."""

from typing import Any, Final

from oncelog.core.command import ConfigureTopic
from oncelog.core.outcome import Outcome, Refusal
from oncelog.core.rows import Topic
from oncelog.protocols.kafka.broker import NODE_ID, Broker
from oncelog.protocols.kafka.codes import Code
from oncelog.protocols.kafka.gather import Gather
from oncelog.protocols.kafka.refusal_map import code_of, text_of
from oncelog.protocols.kafka.session import Call
from oncelog.protocols.kafka.topic_settings import (
    SETTINGS,
    can_spell,
    canonical,
    config_of,
    refused,
    set_values,
    value_of,
)

TOPIC: Final = 2
BROKER: Final = 4

FROM_TOPIC: Final = 1
FROM_BROKER: Final = 4
FROM_DEFAULT: Final = 5
"""Kafka's ConfigSource."""

SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations of IncrementalAlterConfigs."""


def describe_configs(broker: Broker, call: Call) -> None:
    """Topics and this broker."""
    message = call.request()
    call.answer({"results": [_described(broker, each, message) for each in message["resources"]]})


def _described(broker: Broker, asked: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    kind, name = asked["resource_type"], asked["resource_name"]
    row: dict[str, Any] = {"resource_type": kind, "resource_name": name, "error_code": Code.NONE}
    row["configs"] = []
    if kind == TOPIC:
        topic = broker.log.topic(name) if can_spell(name) else None
        if topic is None:
            return row | {"error_code": Code.UNKNOWN_TOPIC_OR_PARTITION, "error_message": f"there is no topic {name!r}"}
        values = _topic_values(topic)
    elif kind == BROKER:
        if name not in ("", str(NODE_ID)):
            return row | {"error_code": Code.INVALID_REQUEST, "error_message": f"there is no broker {name!r}"}
        values = _broker_values(broker)
    else:
        return row | {"error_code": Code.INVALID_REQUEST, "error_message": f"resources of type {kind} have no settings"}
    wanted = asked["configuration_keys"]
    for key, (value, source, type_, about) in values.items():
        if wanted is not None and key not in wanted:
            continue
        synonyms = [{"name": key, "value": value, "source": source}] if message["include_synonyms"] else []
        row["configs"].append(
            {
                "name": key,
                "value": value,
                "read_only": kind == BROKER,
                "is_default": source == FROM_DEFAULT,
                "config_source": source,
                "synonyms": synonyms,
                "config_type": type_,
                "documentation": about if message["include_documentation"] else None,
            }
        )
    return row


_Value = tuple[str, int, int, str]


def _topic_values(topic: Topic) -> dict[str, _Value]:
    out: dict[str, _Value] = {}
    for name, setting in SETTINGS.items():
        value, is_set = value_of(topic, name)
        out[name] = (value, FROM_TOPIC if is_set else FROM_DEFAULT, setting.type, setting.about)
    return out


def _broker_values(broker: Broker) -> dict[str, _Value]:
    settings = broker.settings
    texts = {
        "broker.id": (str(NODE_ID), 3, "The only broker"),
        "node.id": (str(NODE_ID), 3, "The only broker"),
        "auto.create.topics.enable": (str(settings.auto_create).lower(), 1, "Metadata makes topics that are missing"),
        "num.partitions": (str(settings.default_partitions), 3, "Partitions of a topic that nobody says more about"),
        "default.replication.factor": ("1", 3, "There is one copy"),
        "transaction.max.timeout.ms": (str(settings.timeouts.max_timeout_ms), 3, "Longest timeout of a transaction"),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": (
            str(settings.timeouts.check_interval_ms),
            3,
            "How often transactions are looked at whose time is up",
        ),
    }
    return {name: (value, FROM_BROKER, type_, about) for name, (value, type_, about) in texts.items()}


def alter_configs(broker: Broker, call: Call) -> None:
    """Replace all settings of a topic."""
    message = call.request()
    altering = _Altering(broker, call, validate_only=message["validate_only"])
    for each in message["resources"]:
        values = {config["name"]: config["value"] for config in each["configs"]}
        altering.change(each, lambda _topic, values=values: values)
    altering.finish()


def incremental_alter_configs(broker: Broker, call: Call) -> None:
    """Change single settings of a topic."""
    message = call.request()
    altering = _Altering(broker, call, validate_only=message["validate_only"])
    for each in message["resources"]:
        altering.change(each, lambda topic, configs=each["configs"]: _changed(topic, configs))
    altering.finish()


def _changed(topic: Topic, configs: list[dict[str, Any]]) -> dict[str, str | None] | str:
    """The settings after the change; or what is wrong with it."""
    values = set_values(topic)
    for each in configs:
        name, value, operation = canonical(each["name"]), each["value"], each["config_operation"]
        if operation == DELETE:
            values.pop(name, None)
        elif operation == SET:
            values[name] = value
        elif name == "cleanup.policy" and operation in (APPEND, SUBTRACT):
            if (operation == APPEND) != (value == "delete"):
                return f"cleanup.policy: {value!r} is not supported; supported: delete"
        else:
            return f"{name} is not a list: operation {operation} does not apply to it"
    return values


class _Altering:
    """The resources of one request."""

    def __init__(self, broker: Broker, call: Call, *, validate_only: bool) -> None:
        self._broker = broker
        self._gather = Gather(broker.log, call)
        self._validate_only = validate_only
        self._rows: list[dict[str, Any]] = []

    def change(self, asked: dict[str, Any], values_of: Any) -> None:
        """One resource."""
        kind, name = asked["resource_type"], asked["resource_name"]
        row: dict[str, Any] = {"resource_type": kind, "resource_name": name, "error_code": Code.NONE}
        row["error_message"] = None
        self._rows.append(row)
        if kind != TOPIC:
            row["error_code"] = Code.INVALID_REQUEST
            row["error_message"] = "only settings of topics can be changed; the server's are in its configuration"
            return
        topic = self._broker.log.topic(name) if can_spell(name) else None
        if topic is None:
            row["error_code"], row["error_message"] = Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}"
            return
        values = values_of(topic)
        wrong = None if isinstance(values, str) else refused(values)
        if isinstance(values, str) or wrong is not None:
            row["error_code"] = Code.INVALID_CONFIG
            row["error_message"] = values if wrong is None else wrong.problem
            return
        if not self._validate_only:
            self._gather.submit(ConfigureTopic(name, config_of(values, topic.config)), self._told(row))

    def _told(self, row: dict[str, Any]) -> Any:
        def told(outcome: Outcome) -> None:
            if isinstance(outcome, Refusal):
                row["error_code"], row["error_message"] = code_of(outcome), text_of(outcome)

        return told

    def finish(self) -> None:
        """All resources were named."""
        self._gather.finish(lambda: {"responses": self._rows})
