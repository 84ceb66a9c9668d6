"""JetStream names of topics: one per topic, or one per partition of a topic with several; unique in the log.

A topic's name is `nats_name`, or its own name with `_` for every character that JetStream cannot spell. A topic of one
partition has that name; partition n of several has that name, a hyphen and n. Two topics never share one of these
names, so whoever asks for a stream by it finds one stream at most. The table of names has one row per topic, under its
name without a partition; what the names of partitions may meet follows from it.
"""

from typing import Final

from xxhash import xxh3_64_hexdigest

from oncelog.core.outcome import NatsNameTaken, Refusal
from oncelog.core.rows import Topic, TopicConfig
from oncelog.core.state import State

NAME_CHARACTERS_MAX: Final = 255
"""What JetStream takes."""

_UNSPELLED: Final = frozenset(".*>\\/")
_DIGEST_CHARACTERS: Final = 16


def is_spelled(name: str) -> bool:
    """Whether JetStream can spell it."""
    return 0 < len(name) <= NAME_CHARACTERS_MAX and all(_fits(mark) for mark in name)


def _fits(mark: str) -> bool:
    return mark.isprintable() and mark != " " and mark not in _UNSPELLED


def spelled(name: str) -> str:
    """A topic's name as JetStream can spell it. One that is too long ends in a digest of the whole."""
    text = "".join(mark if _fits(mark) else "_" for mark in name)
    if len(text) <= NAME_CHARACTERS_MAX:
        return text
    return f"{text[: NAME_CHARACTERS_MAX - _DIGEST_CHARACTERS - 1]}-{xxh3_64_hexdigest(name.encode())}"


def base_name(name: str, config: TopicConfig) -> str:
    """The name that a topic has a row under."""
    return config.nats_name or spelled(name)


def partition_name(base: str, partition: int, partitions: int) -> str:
    """The name of one partition."""
    return base if partitions == 1 else f"{base}-{partition}"


def numbered(base: str) -> tuple[str, int] | None:
    """The topic's name and the partition, if a name may also be that of a partition."""
    head, hyphen, digits = base.rpartition("-")
    if not (head and hyphen and digits.isascii() and digits.isdigit()) or (digits[0] == "0" and digits != "0"):
        return None
    return head, int(digits)


def rows_asked(base: str, partitions: int) -> list[str]:
    """Names whose rows say whether the names of a topic are free."""
    names = [base]
    if (of_partition := numbered(base)) is not None:
        names.append(of_partition[0])
    if partitions > 1:
        names += [partition_name(base, partition, partitions) for partition in range(partitions)]
    return names


def taken(state: State, name: str, base: str, partitions: int) -> Refusal | None:
    """Whether another topic has one of the names that the topic `name` would have."""

    def other(asked: str) -> Topic | None:
        row = state.nats_names[asked]
        return None if row is None or row.topic == name else state.topics[row.topic]

    if (topic := other(base)) is not None:
        return NatsNameTaken(name, base, topic.name)
    of_partition = numbered(base)
    if partitions == 1 and of_partition is not None and (topic := other(of_partition[0])) is not None:
        if 1 < len(topic.stream_ids) > of_partition[1]:
            return NatsNameTaken(name, base, topic.name)
    for partition in range(partitions if partitions > 1 else 0):
        asked = partition_name(base, partition, partitions)
        if (topic := other(asked)) is not None and len(topic.stream_ids) == 1:
            return NatsNameTaken(name, asked, topic.name)
    return None
