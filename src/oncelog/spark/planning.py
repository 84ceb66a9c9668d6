"""From one cut to the ranges that a read covers, and from ranges to Spark partitions. No server is asked here.

A cut tells where every stream stood at one instant, and commits become visible whole. So ranges that end at a cut hold
every commit whole, over all topics. Limits end a range earlier, and may tear one: the rest comes with the next batch.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from oncelog.client.models import Cut
from oncelog.spark.options import EARLIEST, LATEST, Offsets, Place, Places, Subscription

_log = logging.getLogger(__name__)


class OffsetLost(Exception):
    """Records that the read asks for are no longer there, or never were."""


class Bounds(NamedTuple):
    """Where a stream stands: records in [floor, stable) can be read."""

    floor: int
    stable: int
    created_ms: int = 0
    """When the topic was made; 0: not told."""


class Range(NamedTuple):
    """Records of one stream, [first, next)."""

    topic: str
    partition: int
    first: int
    next: int
    created_ms: int = 0
    """Of which topic of this name; 0: of whichever it is."""

    @property
    def size(self) -> int:
        return self.next - self.first


Standing = dict[str, dict[int, Bounds]]
"""Topic → partition → where it stands."""


def standing_of(cut: Cut, subscription: Subscription) -> Standing:
    """The wanted streams of a cut. OffsetLost if one that was named is not there."""
    standing: Standing = {}
    for stream in cut.streams:
        if subscription.wants(stream.topic, stream.partition):
            standing.setdefault(stream.topic, {})[stream.partition] = Bounds(
                stream.floor, stream.stable, stream.created_ms
            )
    for topic in subscription.topics:
        wanted = subscription.partitions.get(topic, ())
        missing = [str(partition) for partition in wanted if partition not in standing.get(topic, {})]
        if topic not in standing and not wanted:
            raise OffsetLost(f"topic {topic!r} does not exist")
        if missing:
            raise OffsetLost(f"topic {topic!r} has no partition {', '.join(missing)}")
    return standing


def resolved(place: Place, standing: Standing, looked_up: Offsets | None, name: str) -> Offsets:
    """The place as an offset for every stream. `looked_up`: what the server said of a place that only it knows."""
    if place.kind in ("offsets", "times"):
        _check_named(place.offsets, standing, f"{name}ByTimestamp" if place.kind == "times" else name)
    found: Offsets = {}
    for topic, partitions in standing.items():
        found[topic] = {}
        for partition, bounds in partitions.items():
            told = EARLIEST if place.kind == "earliest" else LATEST
            if place.kind == "offsets":
                told = place.offsets[topic][partition]
            elif place.kind not in ("earliest", "latest"):
                # What an application has not seen it has yet to read; and what came after a moment begins there.
                told = (looked_up or {}).get(topic, {}).get(partition, EARLIEST)
            if place.kind in ("time", "times") and told >= bounds.stable and not place.latest_if_none:
                raise OffsetLost(
                    f"{topic!r} partition {partition} has no record as new as that; with "
                    "startingOffsetsByTimestampStrategy=latest the read begins at the end"
                )
            found[topic][partition] = {EARLIEST: bounds.floor, LATEST: bounds.stable}.get(told, told)
    return found


def _check_named(offsets: Offsets, standing: Standing, name: str) -> None:
    named = {(topic, partition) for topic, partitions in offsets.items() for partition in partitions}
    there = {(topic, partition) for topic, partitions in standing.items() for partition in partitions}
    for topic, partition in sorted(there - named):
        raise OffsetLost(f"{name} says nothing of {topic!r} partition {partition}")
    for topic, partition in sorted(named - there):
        raise OffsetLost(f"{name} names {topic!r} partition {partition}, which is not read")


def made_anew(then_ms: int, now_ms: int) -> bool:
    """Whether a topic that was made at one time is another than the one of its name that was made at the other."""
    return then_ms > 0 and now_ms > 0 and then_ms != now_ms


def _told_anew(topic: str, then_ms: int, now_ms: int) -> str:
    return (
        f"the topic {topic!r} was deleted and created again, or another server answers: what was read was made at "
        f"{then_ms} (ms since 1970), and this one at {now_ms}"
    )


def created_in(standing: Standing) -> dict[str, int]:
    """Topic → when it was made, where the server tells."""
    found = {topic: bounds.created_ms for topic, partitions in standing.items() for bounds in partitions.values()}
    return {topic: created_ms for topic, created_ms in found.items() if created_ms > 0}


def continued(begun: Places, now: Mapping[str, int], *, fail_on_data_loss: bool) -> Offsets:
    """Where a read goes on in the topics that are there now. Of one that was made anew nothing was read yet.

    OffsetLost if there is such a one and loss is a failure: what the old one still held was never read.
    """
    kept: Offsets = {}
    for topic, partitions in begun.offsets.items():
        then_ms, now_ms = begun.created.get(topic, 0), now.get(topic, 0)
        if not made_anew(then_ms, now_ms):
            kept[topic] = partitions
            continue
        said = _told_anew(topic, then_ms, now_ms)
        if fail_on_data_loss:
            raise OffsetLost(f"{said}; failOnDataLoss=false begins at the start of the new one")
        _log.warning("%s; the read begins at the start of the new one", said)
    return kept


def of_these(place: Place, standing: Standing, *, fail_on_data_loss: bool) -> Place:
    """The place as the topics that are there have it: offsets may have been told with the topics they are of."""
    there = continued(Places(place.offsets, place.created), created_in(standing), fail_on_data_loss=fail_on_data_loss)
    offsets = {
        topic: there.get(topic, dict.fromkeys(partitions, EARLIEST)) for topic, partitions in place.offsets.items()
    }
    return replace(place, offsets=offsets)


def latest(standing: Standing) -> Places:
    """The end of every stream."""
    offsets = {
        topic: {partition: bounds.stable for partition, bounds in partitions.items()}
        for topic, partitions in standing.items()
    }
    return Places(offsets, created_in(standing))


def ranges_between(start: Offsets, end: Offsets, created: Mapping[str, int] | None = None) -> list[Range]:
    """What lies between two offsets of a query, in the order of names. A stream that is new in `end` begins at 0.

    `created`: which topics those of `end` are.
    """
    ranges: list[Range] = []
    for topic, partitions in sorted(end.items()):
        for partition, next_ in sorted(partitions.items()):
            first = start.get(topic, {}).get(partition, 0)
            if first > next_:
                raise OffsetLost(
                    f"{topic!r} partition {partition}: the read ends at {next_:,}, before {first:,} where it begins. "
                    "The places were given so; or the topic was deleted and created again, or another server answers; "
                    "or the query began at latest or at a time and died in its first batch: begin at offsets"
                )
            if first < next_:
                ranges.append(Range(topic, partition, first, next_, (created or {}).get(topic, 0)))
    return ranges


def within(ranges: Iterable[Range], standing: Standing, *, fail_on_data_loss: bool) -> list[Range]:
    """The ranges as far as they are there. OffsetLost if some is not and loss is a failure."""
    kept: list[Range] = []
    for range_ in ranges:
        bounds = standing.get(range_.topic, {}).get(range_.partition, Bounds(0, 0))
        if made_anew(range_.created_ms, bounds.created_ms):
            said = _told_anew(range_.topic, range_.created_ms, bounds.created_ms)
            if fail_on_data_loss:
                raise OffsetLost(f"{said}; failOnDataLoss=false leaves out what is gone")
            _log.warning("%s; offsets %d to %d of partition %d are left out", said, *range_[2:4], range_.partition)
            continue
        first, next_ = max(range_.first, bounds.floor), min(range_.next, bounds.stable)
        if (first, next_) != (range_.first, range_.next) and fail_on_data_loss:
            raise OffsetLost(
                f"{range_.topic!r} partition {range_.partition} has offsets {bounds.floor:,} to {bounds.stable:,}, and "
                f"{range_.first:,} to {range_.next:,} are asked for; failOnDataLoss=false reads what is there"
            )
        if first < next_:
            kept.append(Range(range_.topic, range_.partition, first, next_, bounds.created_ms))
    return kept


def shares(sizes: Sequence[int], limit: int) -> list[int]:
    """Divides `limit` over sizes, in proportion, never more than a size, and 1 for each as far as it goes.

    The last rule keeps a small stream from starving behind large ones. The sum is min(limit, sum of sizes).
    """
    total = sum(sizes)
    if total <= limit:
        return list(sizes)
    by_size = sorted(range(len(sizes)), key=lambda at: -sizes[at])
    given = [0] * len(sizes)
    for at in by_size[:limit]:
        given[at] = min(1, sizes[at])
    left = limit - sum(given)
    rest = [size - part for size, part in zip(sizes, given, strict=True)]
    rest_total = sum(rest)
    parts = [left * size // rest_total if rest_total else 0 for size in rest]
    for at, part in enumerate(parts):
        given[at] += part
    left -= sum(parts)
    for at in by_size:
        more = min(left, sizes[at] - given[at])
        given[at] += more
        left -= more
    return given


def limited(start: Offsets, end: Offsets, records_max: int) -> Offsets:
    """The end, moved back so that at most `records_max` offsets lie before it."""
    ranges = ranges_between(start, end)
    kept = {topic: dict(partitions) for topic, partitions in end.items()}
    for range_, share in zip(ranges, shares([range_.size for range_ in ranges], records_max), strict=True):
        kept[range_.topic][range_.partition] = range_.first + share
    return kept


def pieces(ranges: Sequence[Range], at_least: int, records_max: int) -> list[Range]:
    """Ranges cut so that there are at least so many, large ones first, and none has more than `records_max`.

    Depends on nothing but its arguments: a batch that is run again is cut the same way.
    """
    total = sum(range_.size for range_ in ranges)
    cut: list[Range] = []
    for range_ in ranges:
        parts = 1
        if at_least > len(ranges):
            parts = max(1, -(-range_.size * at_least // total))
        if records_max > 0:
            parts = max(parts, -(-range_.size // records_max))
        parts = min(parts, range_.size)
        for part in range(parts):
            first = range_.first + range_.size * part // parts
            next_ = range_.first + range_.size * (part + 1) // parts
            cut.append(range_._replace(first=first, next=next_))
    return cut
