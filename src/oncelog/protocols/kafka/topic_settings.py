"""Topic settings by Kafka's names: which there are, what they accept, and where they are stored.

They are stored word for word among the attributes of the topic (`kafka.<name>`), so that every face shows the same
topic. Retention is stored and described; the cleaner carries it out.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from oncelog import limits
from oncelog.core.rows import Topic, TopicConfig

PREFIX: Final = "kafka."
TIMESTAMP_TYPE: Final = "message.timestamp.type"
BYTES_MAX: Final = "max.message.bytes"
MESSAGE_ID_HEADER: Final = "message_id_header"
LOG_APPEND_TIME: Final = "LogAppendTime"

_SPELLED: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def can_spell(name: str) -> bool:
    """Whether Kafka clients accept this as the name of a topic."""
    return _SPELLED.fullmatch(name) is not None and name not in (".", "..")


def _integer(least: int, most: int) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        try:
            number = int(value)
        except ValueError:
            return f"{value!r} is not a whole number"
        return None if least <= number <= most else f"{number} is out of range ({least} to {most})"

    return check


def _one_of(*values: str) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        return None if value in values else f"{value!r} is not supported; supported: {', '.join(values)}"

    return check


def _anything(_value: str) -> str | None:
    return None


class TopicSetting(NamedTuple):
    """One setting of a topic."""

    default: str
    check: Callable[[str], str | None]
    """What is wrong with a value; None if nothing is."""
    type: int
    """Kafka's ConfigType: 1 boolean, 2 string, 3 int, 5 long, 6 double, 7 list."""
    about: str


_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1

SETTINGS: Final[dict[str, TopicSetting]] = {
    "cleanup.policy": TopicSetting(
        "delete", _one_of("delete"), 7, "Old records are deleted; compaction is not offered"
    ),
    "compression.type": TopicSetting(
        "producer", _one_of("producer"), 2, "Batches are stored as the producer sent them"
    ),
    "retention.ms": TopicSetting("-1", _integer(-1, _LONG_MAX), 5, "Age at which records may be deleted; -1 is never"),
    "retention.bytes": TopicSetting(
        "-1", _integer(-1, _LONG_MAX), 5, "Size of a partition beyond which old records may be deleted; -1 is never"
    ),
    "delete.retention.ms": TopicSetting("86400000", _integer(0, _LONG_MAX), 5, "Of compaction, which is not offered"),
    BYTES_MAX: TopicSetting(str(limits.BATCH_BYTES_MAX), _integer(0, _INT_MAX), 3, "Largest batch in bytes"),
    TIMESTAMP_TYPE: TopicSetting("CreateTime", _one_of("CreateTime", LOG_APPEND_TIME), 2, "Whose time records have"),
    "min.insync.replicas": TopicSetting("1", _integer(1, _INT_MAX), 3, "There is one replica; every write is synced"),
    "segment.bytes": TopicSetting(
        "1073741824", _integer(14, _INT_MAX), 3, "Accepted and not used: all topics share one journal"
    ),
    "segment.ms": TopicSetting(
        "604800000", _integer(1, _LONG_MAX), 5, "Accepted and not used: all topics share one journal"
    ),
    "flush.messages": TopicSetting("1", _integer(1, _LONG_MAX), 5, "Every write is synced before it is confirmed"),
    "flush.ms": TopicSetting(str(_LONG_MAX), _integer(0, _LONG_MAX), 5, "Every write is synced before it is confirmed"),
    "unclean.leader.election.enable": TopicSetting("false", _one_of("true", "false"), 1, "There is one replica"),
    "message.timestamp.difference.max.ms": TopicSetting(str(_LONG_MAX), _integer(0, _LONG_MAX), 5, "Not limited"),
    "file.delete.delay.ms": TopicSetting("60000", _integer(0, _LONG_MAX), 5, "Accepted and not used"),
    "min.cleanable.dirty.ratio": TopicSetting("0.5", _anything, 6, "Of compaction, which is not offered"),
    MESSAGE_ID_HEADER: TopicSetting(
        "false", _one_of("true", "false"), 1, "The header oncelog.message-id of a record is its message id"
    ),
}

_ALIASES: Final = {f"kafka.{MESSAGE_ID_HEADER}": MESSAGE_ID_HEADER, "oncelog.message_id_header": MESSAGE_ID_HEADER}


class SettingRefused(NamedTuple):
    """A setting that cannot be stored."""

    name: str
    problem: str


def canonical(name: str) -> str:
    """The name under which a setting is known here."""
    return _ALIASES.get(name, name)


def refused(changes: Mapping[str, str | None]) -> SettingRefused | None:
    """What is wrong with these settings; None if they can be stored."""
    for name, value in changes.items():
        setting = SETTINGS.get(canonical(name))
        if setting is None:
            return SettingRefused(name, f"there is no topic setting {name!r}")
        if value is None:
            return SettingRefused(name, f"{name} has no value")
        problem = setting.check(value)
        if problem is not None:
            return SettingRefused(name, f"{name}: {problem}")
    return None


_RETENTION: Final = {"retention.ms": "retention_ms", "retention.bytes": "retention_bytes"}
"""Settings that every face shares: the topic has fields of its own for them, in which 0 is no limit."""


def config_of(values: Mapping[str, str | None], base: TopicConfig | None = None) -> TopicConfig:
    """The configuration of a topic with these settings of Kafka, and everything else as in `base`."""
    base = base or TopicConfig()
    kept = {name: value for name, value in base.attributes.items() if not name.startswith(PREFIX)}
    chosen = {canonical(name): value for name, value in values.items() if value is not None}
    limits_ = {field: _limit(chosen.pop(name, "-1")) for name, field in _RETENTION.items()}
    attributes = kept | {PREFIX + name: value for name, value in chosen.items()}
    return msgspec.structs.replace(base, attributes=attributes, **limits_)


def _limit(value: str) -> int:
    """Kafka's 0 is as little as possible, its -1 is no limit."""
    return 0 if int(value) < 0 else max(1, int(value))


def set_values(topic: Topic) -> dict[str, str | None]:
    """The settings of Kafka that were set on a topic."""
    values: dict[str, str | None] = {
        name.removeprefix(PREFIX): value for name, value in topic.config.attributes.items() if name.startswith(PREFIX)
    }
    for name, field in _RETENTION.items():
        if limit := getattr(topic.config, field):
            values[name] = str(limit)
    return values


def value_of(topic: Topic, name: str) -> tuple[str, bool]:
    """(value, whether it was set on the topic)."""
    if name in _RETENTION:
        limit = getattr(topic.config, _RETENTION[name])
        return (str(limit), True) if limit else (SETTINGS[name].default, False)
    stored = topic.config.attributes.get(PREFIX + name)
    return (SETTINGS[name].default, False) if stored is None else (stored, True)


class Rules(NamedTuple):
    """What the door asks of a topic."""

    bytes_max: int
    log_append_time: bool
    message_ids: bool


_DEFAULT_RULES: Final = Rules(limits.BATCH_BYTES_MAX, False, False)


def rules_of(topic: Topic | None) -> Rules:
    """The settings that decide about appended batches."""
    if topic is None or not topic.config.attributes:
        return _DEFAULT_RULES
    bytes_max = min(int(value_of(topic, BYTES_MAX)[0]), limits.BATCH_BYTES_MAX)
    is_append_time = value_of(topic, TIMESTAMP_TYPE)[0] == LOG_APPEND_TIME
    return Rules(bytes_max, is_append_time, value_of(topic, MESSAGE_ID_HEADER)[0] == "true")
