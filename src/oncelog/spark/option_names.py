"""Which options there are, and for what. A name that is not known is refused: Spark hands every name over, and one that
is misspelt would be as if it had not been given. `startingOffset=latest` would read everything.
"""

import difflib
from collections.abc import Iterable
from typing import Final, Literal

Use = Literal["batch read", "streaming read", "batch write", "streaming write"]

_EVERY: Final[tuple[Use, ...]] = ("batch read", "streaming read", "batch write", "streaming write")
_READS: Final[tuple[Use, ...]] = ("batch read", "streaming read")
_WRITES: Final[tuple[Use, ...]] = ("batch write", "streaming write")

USES: Final[dict[str, tuple[Use, ...]]] = {
    **dict.fromkeys(("url", "servers", "requestTimeoutMs"), _EVERY),
    **dict.fromkeys(
        (
            "subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp",
            "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "failOnDataLoss", "minPartitions",
            "maxRecordsPerPartition", "includeHeaders", "columns",
        ),
        _READS,
    ),
    **dict.fromkeys(("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"), ("batch read",)),
    **dict.fromkeys(
        ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"), ("streaming read",)
    ),
    **dict.fromkeys(
        (
            "topic", "partition", "application", "acceptNewQuery", "delivery", "createPartitions", "contentType",
            "stageTtlMs", "batchBytes",
        ),
        _WRITES,
    ),
    **dict.fromkeys(("txnAppId", "txnVersion"), ("batch write",)),
    **dict.fromkeys(("sourceTracking",), ("streaming write",)),
}  # fmt: skip
"""Option → where it has a meaning."""

OF_SPARK: Final = (
    "path",
    "queryName",
    "checkpointLocation",
    "asyncProgressTrackingEnabled",
    "asyncProgressTrackingCheckpointIntervalMs",
)
"""Spark's own, which come along: `load(path)` and `start(path)` add the first, `queryName()` the second, and the others
are told to the query by the same way as ours. What begins with two underscores is for Spark's inside."""

_SPELLED: Final = {name.lower(): name for name in USES}
_OF_SPARK: Final = frozenset(name.lower() for name in OF_SPARK)


def wrong_name(given: Iterable[str], uses: Iterable[Use]) -> str | None:
    """What is wrong with the first name that cannot be used so; None if all can. Case does not count."""
    wanted = frozenset(uses)
    for name in given:
        known = _SPELLED.get(name.lower())
        if known is None:
            if name.lower() in _OF_SPARK or name.startswith("__"):
                continue
            return f"there is no option {name!r}{_hint(name, wanted)}"
        if wanted.isdisjoint(USES[known]):
            there = " and ".join(f"a {use}" for use in USES[known])
            return f"{known} is an option of {there}, and this is a {' or a '.join(sorted(wanted))}"
    return None


def _hint(name: str, uses: frozenset[Use]) -> str:
    if name.lower() == "kafka.bootstrap.servers":
        return "; the server's address is url"
    if name.lower().startswith("kafka."):
        return ": there is no Kafka client to configure"
    near = difflib.get_close_matches(name.lower(), _SPELLED, n=1)
    if near:
        return f"; did you mean {_SPELLED[near[0]]}?"
    return f"; there are {', '.join(known for known, of in USES.items() if not uses.isdisjoint(of))}"
