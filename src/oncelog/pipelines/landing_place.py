"""Where landing begins, and what of a batch is to be landed: the rules about places, apart from files and rows.

The table always says where it begins. The first thing that is committed for a topic is its start, without a file, so
that a run which dies in its first batch leaves no doubt about it: `latest` is looked up once, not with every start.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from oncelog.client import Client
from oncelog.pipelines.lake import Ends, Held, LakeTable, LostRace
from oncelog.pipelines.running import PipelineRefused
from oncelog.spark.checkpoint import CheckpointUnreadable, last_done, sources_at
from oncelog.spark.options import Offsets, offsets_of, parse_offsets
from oncelog.spark.planning import made_anew

START_ATTEMPTS_MAX: Final = 20
"""Commits of a start that others may be quicker than. Each time one of them has done its own, so few are needed."""

EARLIEST: Final = -2
LATEST: Final = -1
"""In place of an offset, as Kafka and the source have it."""


class Standing(msgspec.Struct):
    """A topic as it is in the log."""

    created_ms: int
    bounds: dict[int, tuple[int, int]]
    """Partition → floor and stable offset, all at one instant."""


def standing_of(url: str, topic: str) -> Standing:
    """As it is now. PipelineRefused if there is no such topic."""
    with Client(url) as client:
        streams = client.cut(topic).streams
        if not streams:
            raise PipelineRefused(f"there is no topic {topic!r} at {url}")
    return Standing(streams[0].created_ms, {stream.partition: (stream.floor, stream.stable) for stream in streams})


def begun(lake: LakeTable, topic: str, standing: Standing, starting: str, note: Mapping[str, str]) -> Ends:
    """Where the table ends. It says so itself afterwards, also for what it had nothing of."""
    for _ in range(START_ATTEMPTS_MAX):
        held = lake.held(topic, list(standing.bounds))
        check_same_topic(held, standing.created_ms, topic)
        start = start_of(held.ends, standing, starting, topic)
        if start == held.ends and held.created_ms is not None:
            return start
        held.created_ms = standing.created_ms
        try:
            lake.commit(held, topic, [], start, note)
        except LostRace:
            continue
        return start
    raise PipelineRefused(f"the table's place of {topic!r} is moved by others all the time; stop the other landers")


def looked_at(lake: LakeTable, topic: str, standing: Standing, starting: str, checkpoint: str | None) -> None:
    """Everything that `begun` and the first batch would refuse, before there is a session or a table."""
    held = lake.held(topic, list(standing.bounds)) if lake.is_there() else Held({}, None, None)
    check_same_topic(held, standing.created_ms, topic)
    start = start_of(held.ends, standing, starting, topic)
    if checkpoint is not None:
        check_not_ahead(checkpoint, start, topic)


def check_same_topic(held: Held, created_ms: int, topic: str) -> None:
    """PipelineRefused if the table holds another topic of this name."""
    if held.created_ms is not None and made_anew(held.created_ms, created_ms):
        raise PipelineRefused(
            f"the topic {topic!r} was made anew, or this is another log: the table holds the one that was made at "
            f"{held.created_ms} (ms since 1970), and this one was made at {created_ms}. Land it into another table"
        )


def start_of(held: Ends, standing: Standing, starting: str, topic: str) -> Ends:
    """Where the query begins: where the table ends. A partition that came later begins at its beginning."""
    start: Ends = {}
    given = given_start(starting, topic)
    for partition, (floor, stable) in standing.bounds.items():
        if partition not in held:
            first = floor if held else given(partition, floor, stable)
            start[partition] = max(floor, first)
            continue
        start[partition] = known = held[partition]
        if known > stable:
            raise PipelineRefused(
                f"the table holds {topic!r} partition {partition} up to offset {known:,}, and the log ends at "
                f"{stable:,}: the topic was made anew, or this is another log. Land it into another table"
            )
        if known < floor:
            raise PipelineRefused(
                f"the table holds {topic!r} partition {partition} up to offset {known:,}, and the log begins at "
                f"{floor:,}: {floor - known:,} records were trimmed before they were landed"
            )
    return start


def given_start(starting: str, topic: str) -> Callable[[int, int, int], int]:
    """Partition, floor and stable offset → where it begins. PipelineRefused for what is no start."""
    if starting in ("earliest", "group"):
        return lambda _partition, floor, _stable: floor
    if starting == "latest":
        return lambda _partition, _floor, stable: stable
    try:
        offsets: Offsets = parse_offsets(starting)
    except ValueError:
        raise PipelineRefused(f"starting is earliest, latest or offsets in JSON, not {starting!r}") from None

    def given(partition: int, floor: int, stable: int) -> int:
        offset = offsets.get(topic, {}).get(partition, EARLIEST)
        if offset > stable or offset < EARLIEST:
            raise PipelineRefused(
                f"starting: {topic!r} partition {partition} ends at offset {stable:,}, and {offset:,} was given; "
                f"{EARLIEST} is its beginning, {LATEST} its end"
            )
        return {EARLIEST: floor, LATEST: stable}.get(offset, offset)

    return given


def source_start(checkpoint: str, start: Ends, topic: str) -> Ends:
    """What the source is told to begin at.

    A checkpoint whose first batch was planned and never finished has that batch's end and not its beginning: Spark asks
    the source for it again. If another lander has moved the table beyond that end meanwhile, the batch is empty.
    """
    try:
        (source,) = sources_at(checkpoint, 0).values()
    except CheckpointUnreadable:
        return start
    planned = offsets_of(source).get(topic, {})
    return {partition: min(offset, planned.get(partition, offset)) for partition, offset in start.items()}


def check_not_ahead(checkpoint: str, start: Ends, topic: str) -> None:
    """PipelineRefused if the checkpoint goes on behind where the table ends, whether there is a new record or not.

    Without a new record no batch would come that shows it, and the run would end well with nothing in the table.
    """
    try:
        batch = last_done(checkpoint)
        sources = {} if batch is None else sources_at(checkpoint, batch)
    except CheckpointUnreadable as error:
        raise PipelineRefused(f"the checkpoint cannot be read: {error}") from error
    for source in sources.values():
        try:
            ends = offsets_of(source).get(topic, {})
        except ValueError:
            continue  # a query of another kind: Spark itself refuses it
        for partition, first in ends.items():
            if partition in start and first > start[partition]:
                raise _gap(topic, partition, f"up to offset {start[partition]:,}", first)


def _gap(topic: str, partition: int, holds: str, first: int) -> PipelineRefused:
    return PipelineRefused(
        f"the table holds {topic!r} partition {partition} {holds}, and the checkpoint goes on at {first:,}: "
        "records between would be missing. The checkpoint belongs to another table, or the table was set "
        "back; remove the checkpoint, and landing goes on where the table ends"
    )


def records_to_land(held: Ends, start: Ends, end: Ends, topic: str) -> Ends | None:
    """Partition → first offset that the table lacks. None if it has the whole batch. PipelineRefused for a gap."""
    fresh: Ends = {}
    for partition in end:
        first = start.get(partition, 0)
        # A partition that the table does not know came while the query ran, so it has nothing of it.
        known = held.get(partition, 0)
        if first > known:
            holds = f"up to offset {known:,}" if partition in held else "not at all"
            raise _gap(topic, partition, holds, first)
        fresh[partition] = known
    behind = [partition for partition, offset in end.items() if held.get(partition, -1) < offset]
    return fresh if behind else None


def told(topic: str, ends: Mapping[int, int]) -> str:
    """Offsets of one topic as an option has them."""
    return json.dumps({topic: {str(partition): offset for partition, offset in ends.items()}})
