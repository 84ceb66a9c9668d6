"""The options of `format("oncelog")`, checked once and turned into values. Names are those of Spark's Kafka connector.

Spark hands options over as text and without regard to case. What is wrong with one is said here, with its name,
before anything is read or written.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from oncelog.limits import KIB, MIB, STAGE_TTL_MS_MAX
from oncelog.spark.option_names import Use, wrong_name

URL_VARIABLE: Final = "ONCELOG_URL"

REQUEST_TIMEOUT_MS_DEFAULT: Final = 120_000
"""One call with all its retries. A server that is killed and started again answers well within it."""

TRIGGER_DELAY_DEFAULT: Final = "15m"
"""How long a batch waits for its least number of offsets, as in Spark's Kafka source."""

_TIME: Final = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
"""Units of a time as Spark spells it; a number alone is in milliseconds."""

BATCH_BYTES_MOST: Final = 3 * MIB
"""Rows of one batch, whatever is asked for: the server's largest batch, with room for what stands around them."""

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""In the order of Spark's Kafka source."""

HEADERS: Final = "headers"

Offsets = dict[str, dict[int, int]]
"""Topic → partition → offset."""

CREATED: Final = "created"
"""Beside a topic's partitions: when it was made. A topic that is deleted and made again has another time, and offsets
of the one say nothing about the other."""


class Places(NamedTuple):
    """Offsets, and of which topics: a name alone does not say it."""

    offsets: Offsets
    created: dict[str, int]
    """Topic → when it was made, in milliseconds. Not in it: not known, as in checkpoints of earlier versions."""


EARLIEST: Final = -2
LATEST: Final = -1
"""In JSON offsets, as Kafka has them."""


class OptionError(ValueError):
    """An option is missing, unreadable, or asks for what cannot be done."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which streams are read: topics by name, single partitions, or every topic whose name matches."""

    topics: tuple[str, ...] = ()
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Only these of a topic; all if it is not in here."""
    pattern: str = ""

    def wants(self, topic: str, partition: int) -> bool:
        """Whether the stream is one of them."""
        if self.pattern:
            return re.fullmatch(self.pattern, topic) is not None
        return partition in self.partitions.get(topic, (partition,)) and topic in self.topics


@dataclass(frozen=True, slots=True)
class Place:
    """Where a read begins or ends."""

    kind: Literal["earliest", "latest", "offsets", "group", "cut", "time", "times"]
    offsets: Offsets = field(default_factory=dict)
    """Of kind times: milliseconds instead of offsets."""
    created: dict[str, int] = field(default_factory=dict)
    """Of offsets: which topics they are of, where that was told along."""
    group: str = ""
    number: int = 0
    """The entry of a cut, or the milliseconds of a time."""
    latest_if_none: bool = False
    """Of times: where nothing is as new, the end is meant; otherwise that is an error."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a source."""

    url: str
    subscription: Subscription
    starting: Place
    ending: Place
    fail_on_data_loss: bool
    min_partitions: int
    """At least so many Spark partitions, by cutting large ranges; 0: one for each stream."""
    partition_records_max: int
    offsets_per_trigger_max: int
    bytes_per_trigger_max: int
    offsets_per_trigger_min: int
    """A batch waits until there are so many; 0: it waits for nothing."""
    trigger_delay_s_max: float
    """It waits no longer than this."""
    columns: tuple[str, ...]
    request_timeout_ms: int


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a sink."""

    url: str
    application: str
    """Empty: to be derived."""
    topic: str
    partition: int
    """-1: by key, or spread."""
    delivery: Literal["staged", "direct"]
    accept_new_query: bool
    stage_ttl_ms: int
    create_partitions: int
    """Topics that do not exist are created with so many; 0: they are refused."""
    content_type: str
    """Of topics that are created."""
    source_tracking: bool
    checkpoint: str
    txn_version: int
    """-1: the write is not one of a numbered series."""
    batch_bytes: int
    request_timeout_ms: int


def read_options(options: Mapping[str, str], *uses: Use) -> ReadOptions:
    """OptionError says what is wrong. `uses`: what is to be read so, if that is known; names are held to it."""
    _check_names(options, uses or ("batch read", "streaming read"))
    return ReadOptions(
        url=_url(options),
        subscription=_subscription(options),
        starting=_time_place(options, "starting") or _place(options, "startingOffsets", "earliest"),
        ending=_time_place(options, "ending") or _place(options, "endingOffsets", "latest"),
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        min_partitions=_number(options, "minPartitions", 0, 0, 1_000_000),
        partition_records_max=_number(options, "maxRecordsPerPartition", 0, 0),
        offsets_per_trigger_max=_number(options, "maxOffsetsPerTrigger", 0, 0),
        bytes_per_trigger_max=_number(options, "maxBytesPerTrigger", 0, 0),
        offsets_per_trigger_min=_least_offsets(options),
        trigger_delay_s_max=_time_s(options, "maxTriggerDelay", TRIGGER_DELAY_DEFAULT),
        columns=columns_of(options),
        request_timeout_ms=_number(options, "requestTimeoutMs", REQUEST_TIMEOUT_MS_DEFAULT, 1),
    )


def write_options(options: Mapping[str, str], *uses: Use) -> WriteOptions:
    """OptionError says what is wrong. `uses`: as above."""
    _check_names(options, uses or ("batch write", "streaming write"))
    delivery = options.get("delivery", "staged").lower()
    if delivery not in ("staged", "direct"):
        raise OptionError(f"delivery is 'staged' or 'direct', not {delivery!r}")
    if _flag(options, "asyncProgressTrackingEnabled", False):
        raise OptionError(
            "asyncProgressTrackingEnabled: a batch may then be run again with other input under the same number, "
            "so exactly-once cannot be kept; turn it off"
        )
    version = options.get("txnVersion")
    if (version is None) != ("txnAppId" not in options):
        raise OptionError("txnAppId and txnVersion are given together")
    tracking = options.get("sourceTracking", "checkpoint").lower()
    if tracking not in ("checkpoint", "none"):
        raise OptionError(f"sourceTracking is 'checkpoint' or 'none', not {tracking!r}")
    return WriteOptions(
        url=_url(options),
        application=options.get("txnAppId") or options.get("application") or options.get("queryName") or "",
        topic=options.get("topic", ""),
        partition=_number(options, "partition", -1, 0, 2**31 - 1),
        delivery="direct" if delivery == "direct" else "staged",
        accept_new_query=_flag(options, "acceptNewQuery", False),
        stage_ttl_ms=_number(options, "stageTtlMs", 0, 0, STAGE_TTL_MS_MAX),
        create_partitions=_number(options, "createPartitions", 0, 0, 10_000),
        content_type=options.get("contentType", "application/octet-stream"),
        source_tracking=tracking == "checkpoint",
        checkpoint=options.get("checkpointLocation", ""),
        txn_version=-1 if version is None else _number(options, "txnVersion", 0, 0, 2**53 - 1),
        batch_bytes=_number(options, "batchBytes", MIB, KIB, BATCH_BYTES_MOST),
        request_timeout_ms=_number(options, "requestTimeoutMs", REQUEST_TIMEOUT_MS_DEFAULT, 1),
    )


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of a source, in the order of its schema. Needs no server and no subscription."""
    known = (*COLUMNS, HEADERS)
    if "columns" in options:
        named = [name.strip().lower() for name in options["columns"].split(",") if name.strip()]
        spelled = {name.lower(): name for name in known}
        unknown = [name for name in named if name not in spelled]
        if unknown or not named or len(set(named)) != len(named):
            raise OptionError(f"columns: {options['columns']!r} is not a list of some of {', '.join(known)}")
        return tuple(spelled[name] for name in named)
    return known if _flag(options, "includeHeaders", False) else COLUMNS


def _check_names(options: Mapping[str, str], uses: Sequence[Use]) -> None:
    wrong = wrong_name(options, uses)
    if wrong is not None:
        raise OptionError(wrong)


def _url(options: Mapping[str, str]) -> str:
    url = options.get("url") or options.get("servers") or os.environ.get(URL_VARIABLE, "")
    if not url:
        raise OptionError(f"url: say where the server is, as http://host:port (or set {URL_VARIABLE} at the driver)")
    if "," in url:
        raise OptionError(f"url: {url!r} names several servers, and the log has one")
    return url if "://" in url else f"http://{url}"


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"{name} is true or false, not {text!r}")
    return text.strip().lower() == "true"


def _number(options: Mapping[str, str], name: str, default: int, low: int, high: int = 2**63 - 1) -> int:
    text = options.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise OptionError(f"{name} is a number, not {text!r}") from None
    if not low <= value <= high:
        raise OptionError(f"{name} is between {low:,} and {high:,}, not {value:,}")
    return value


def _least_offsets(options: Mapping[str, str]) -> int:
    least = _number(options, "minOffsetsPerTrigger", 0, 0)
    most = _number(options, "maxOffsetsPerTrigger", 0, 0)
    if most and least > most:
        raise OptionError(f"minOffsetsPerTrigger is {least:,} and maxOffsetsPerTrigger {most:,}: no batch can be both")
    return least


def _time_s(options: Mapping[str, str], name: str, default: str) -> float:
    text = options.get(name, default)
    match = _TIME.fullmatch(text.strip().lower())
    if match is None:
        raise OptionError(f"{name} is a time such as 30s, 15m or 500ms, not {text!r}")
    return int(match[1]) * _SECONDS[match[2] or ""]


def _subscription(options: Mapping[str, str]) -> Subscription:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
    if len(given) != 1:
        raise OptionError("give exactly one of subscribe, subscribePattern and assign")
    text = options[given[0]]
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"subscribePattern: {text!r} is not a regular expression: {error}") from None
        return Subscription(pattern=text)
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise OptionError("subscribe: names no topic")
        return Subscription(topics)
    try:
        assigned = {
            topic: tuple(sorted({int(number) for number in numbers})) for topic, numbers in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError):
        raise OptionError(f'assign: {text!r} is not like {{"topic": [0, 1]}}') from None
    return Subscription(tuple(assigned), assigned)


def _place(options: Mapping[str, str], name: str, default: Literal["earliest", "latest"]) -> Place:
    text = options.get(name, default).strip()
    if text.lower() in ("earliest", "latest"):
        return Place("earliest" if text.lower() == "earliest" else "latest")
    if text.lower().startswith("group:"):
        group = text[len("group:") :].strip()
        if not group:
            raise OptionError(f"{name}: group: needs the name of an application")
        return Place("group", group=group)
    if text.lower().startswith("cut:"):
        entry = text[len("cut:") :].strip()
        if not (entry.isascii() and entry.isdigit()):
            raise OptionError(f"{name}: cut: needs the entry number of a cut, as GET /v1/cut tells it, not {entry!r}")
        return Place("cut", number=int(entry))
    try:
        offsets, created = places_of(json.loads(text))
    except ValueError:
        raise OptionError(
            f'{name}: {text!r} is none of earliest, latest, group:<application>, cut:<entry>, {{"topic": {{"0": 42}}}}'
        ) from None
    if any(offset < EARLIEST for partitions in offsets.values() for offset in partitions.values()):
        raise OptionError(f"{name}: an offset counts from 0; -1 is the latest and -2 the earliest")
    return Place("offsets", offsets, created)


def _time_place(options: Mapping[str, str], which: Literal["starting", "ending"]) -> Place | None:
    """A place by time, which wins over one by offsets, as in Spark's Kafka source. Times are milliseconds."""
    whole, single = f"{which}Timestamp", f"{which}OffsetsByTimestamp"
    # A read may always end at the end; that it should begin where nothing is yet is more likely a slip.
    latest_if_none = which == "ending" or _strategy(options) == "latest"
    if whole not in options and single not in options:
        return None
    if whole in options:
        return Place("time", number=_number(options, whole, 0, 0, 2**53 - 1), latest_if_none=latest_if_none)
    try:
        times = parse_offsets(options[single])
    except ValueError:
        raise OptionError(f'{single}: {options[single]!r} is not like {{"topic": {{"0": 1700000000000}}}}') from None
    if any(time_ms < 0 for partitions in times.values() for time_ms in partitions.values()):
        raise OptionError(f"{single}: a time is in milliseconds since 1970, and not negative")
    return Place("times", times, latest_if_none=latest_if_none)


def _strategy(options: Mapping[str, str]) -> str:
    name = "startingOffsetsByTimestampStrategy"
    told = options.get(name, "error").lower()
    if told not in ("error", "latest"):
        raise OptionError(f"{name} is 'error' or 'latest', not {told!r}")
    return told


def parse_offsets(text: str | bytes) -> Offsets:
    """`{"topic": {"0": 42}}`. ValueError if it is something else."""
    return offsets_of(json.loads(text))


def offsets_of(told: object) -> Offsets:
    """The same, from what JSON became."""
    return places_of(told).offsets


def places_of(told: object) -> Places:
    """`{"topic": {"0": 42, "created": 1700000000000}}`, from what JSON became. ValueError if it is something else."""
    if not isinstance(told, dict):
        raise ValueError("offsets are an object of topics")
    found = Places({}, {})
    for topic, partitions in told.items():
        if not isinstance(partitions, dict):
            raise ValueError("a topic's offsets are an object of partitions")
        found.offsets[topic] = {}
        for partition, offset in partitions.items():
            if isinstance(offset, bool) or not isinstance(offset, int):
                raise ValueError("an offset is a whole number")
            if partition == CREATED:
                found.created[topic] = offset
            else:
                found.offsets[topic][int(partition)] = offset
    return found


def told_places(places: Places) -> dict[str, dict[str, int]]:
    """As JSON has them, in a settled order: Spark takes places for equal if their text is."""
    told: dict[str, dict[str, int]] = {}
    for topic, partitions in sorted(places.offsets.items()):
        told[topic] = {str(partition): offset for partition, offset in sorted(partitions.items())}
        if topic in places.created:
            told[topic][CREATED] = places.created[topic]
    return told
