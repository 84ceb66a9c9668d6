"""Readers: what a query reads is settled at the driver from one cut, and fetched by the executors.

A range that was planned can be read again as long as it is retained: offsets are dense and records never change. A
streaming query that is restarted asks for the very range it had journaled, and gets it without anything being looked up
but the streams' floors, and that the topics are still the same ones: offsets are told with the time their topic was
made, and every answer to an executor tells that time too.

The streaming reader lives in one process beside the driver as long as the query runs. What it remembers is no truth: it
may be started again at any time, and then knows nothing.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from oncelog.client import OffsetGone
from oncelog.client.models import StoodAt
from oncelog.core import batch as codec
from oncelog.spark import planning, source_end
from oncelog.spark.driver_notes import forget_starts, note_start
from oncelog.spark.link import Link
from oncelog.spark.options import Offsets, OptionError, Place, Places, ReadOptions, places_of, told_places
from oncelog.spark.planning import Range, Standing

SAMPLE_RECORDS_MAX: Final = 10_000
"""Records whose size is looked at to turn a limit in bytes into one in records."""


class Split(InputPartition):  # type: ignore[misc, unused-ignore]
    """One range, for one task."""

    def __init__(self, range_: Range) -> None:
        super().__init__(tuple(range_))
        self.range = range_


def _standing(link: Link, options: ReadOptions) -> Standing:
    """Where the wanted streams stand, all at one instant."""
    subscription = options.subscription
    return planning.standing_of(link.cut(*subscription.topics), subscription)


def _looked_up(link: Link, place: Place, standing: Standing, *, fail_on_data_loss: bool) -> Offsets | None:
    """What only the server knows of a place; None where there is nothing to ask."""
    topics = list(standing)
    if place.kind == "group":
        places, _ = _group_places(link, place.group)
        return planning.continued(places, planning.created_in(standing), fail_on_data_loss=fail_on_data_loss)
    if place.kind == "cut":
        streams = link.offsets_at(*topics, entry=place.number)
        if fail_on_data_loss and (trimmed := [stream.topic for stream in streams if stream.is_floor]):
            raise planning.OffsetLost(
                f"{sorted(set(trimmed))} were trimmed, and what lies between the cut and their first record cannot be "
                "told from what lay before it; failOnDataLoss=false begins with the first record"
            )
        return _by_partition(streams)
    if place.kind == "time":
        return _by_partition(link.offsets_at(*topics, time_ms=place.number))
    found: Offsets = {}
    if place.kind == "times":
        # One question for each time: mostly they are all the same.
        for time_ms in sorted({time_ms for times in place.offsets.values() for time_ms in times.values()}):
            for topic, partitions in _by_partition(link.offsets_at(*topics, time_ms=time_ms)).items():
                times = place.offsets.get(topic, {})
                wanted = {number: at for number, at in partitions.items() if times.get(number) == time_ms}
                found.setdefault(topic, {}).update(wanted)
    return found


def _by_partition(streams: Sequence[StoodAt]) -> Offsets:
    found: Offsets = {}
    for stream in streams:
        found.setdefault(stream.topic, {})[stream.partition] = stream.offset
    return found


def _group_places(link: Link, application: str) -> tuple[Places, bytes]:
    """What the application has read, and the server's bytes that say so."""
    held = link.application(application)
    if held is None or not held.source_end:
        return Places({}, {}), b""
    return source_end.places_in(held.source_end), held.source_end


def _read(split: InputPartition, options: ReadOptions) -> Iterator[Any]:
    from oncelog.spark.columns import record_batches

    if not isinstance(split, Split):
        # Spark makes an empty partition if it was given none, and has it read.
        assert split.value is None
        return iter(())
    return record_batches(
        split.range,
        options.columns,
        options.url,
        options.request_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
    )


class BatchReader(DataSourceReader):  # type: ignore[misc, unused-ignore]
    """Everything between two places, as it stands when the query is planned."""

    def __init__(self, options: ReadOptions) -> None:
        if options.starting.kind == "latest":
            raise OptionError("startingOffsets: a batch query cannot begin at the end")
        if options.ending.kind == "earliest":
            raise OptionError("endingOffsets: a batch query cannot end at the beginning")
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """One cut, cut into pieces."""
        options = self._options
        with Link(options.url, options.request_timeout_ms) as link:
            standing = _standing(link, options)
            began = _looked_up(link, options.starting, standing, fail_on_data_loss=options.fail_on_data_loss)
            ended = _looked_up(link, options.ending, standing, fail_on_data_loss=False)
        starting = planning.of_these(options.starting, standing, fail_on_data_loss=options.fail_on_data_loss)
        # An end in a topic that is gone is none in the one that is there, whatever may be lost.
        ending = planning.of_these(options.ending, standing, fail_on_data_loss=True)
        start = planning.resolved(starting, standing, began, "startingOffsets")
        end = planning.resolved(ending, standing, ended, "endingOffsets")
        ranges = planning.ranges_between(start, end, planning.created_in(standing))
        ranges = planning.within(ranges, standing, fail_on_data_loss=options.fail_on_data_loss)
        return [Split(range_) for range_ in planning.pieces(ranges, options.min_partitions,
                                                            options.partition_records_max)]  # fmt: skip

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In an executor."""
        return _read(partition, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc, unused-ignore]
    """The same, as it goes on.

    Offsets are `{"topic": {"0": 42, "created": 1700000000000}}`: as Spark's Kafka source has them, and which topic of
    that name it is. Checkpoints of earlier versions do not say it; the next batch does.
    """

    def __init__(self, options: ReadOptions) -> None:
        if options.ending.kind != "latest":
            raise OptionError("endingOffsets: a streaming query has no end")
        self._options = options
        self._link: Link | None = None
        self._available_now = False
        self._target: Places | None = None
        self._last_batch_s: float | None = None
        """When a batch was last let go that had waited for its least number of offsets."""

    def __getstate__(self) -> dict[str, Any]:
        # The reader goes to the executors as well; its connection stays here.
        return {**self.__dict__, "_link": None, "_target": None}

    def _linked(self) -> Link:
        if self._link is None:
            self._link = Link(self._options.url, self._options.request_timeout_ms)
        return self._link

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        """Asked for when the checkpoint holds no finished batch.

        Where the server holds the place, what it said is left for the sink, which must prove that it goes on there.
        """
        strict = self._options.fail_on_data_loss
        standing = _standing(self._linked(), self._options)
        created = planning.created_in(standing)
        place = planning.of_these(self._options.starting, standing, fail_on_data_loss=strict)
        looked_up: Offsets | None
        if place.kind == "group":
            places, held = _group_places(self._linked(), place.group)
            looked_up = planning.continued(places, created, fail_on_data_loss=strict)
            note_start(place.group, held, standing)
        else:
            looked_up = _looked_up(self._linked(), place, standing, fail_on_data_loss=strict)
            forget_starts(standing)
        return told_places(Places(planning.resolved(place, standing, looked_up, "startingOffsets"), created))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Nothing is asked here: the target is taken with the first look, so that a start cannot fail in between."""
        self._available_now = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark knows one limit; the second, if both are given, is seen to in `latestOffset`."""
        if self._options.offsets_per_trigger_max:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.bytes_per_trigger_max:
            return ReadMaxBytes(self._options.bytes_per_trigger_max)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, dict[str, int]]:  # noqa: N802
        """The end of the next batch: all that is there, or as much of it as the limits allow."""
        places = places_of(start)
        target = self._wanted_end()
        begun = planning.continued(places, target.created, fail_on_data_loss=self._options.fail_on_data_loss)
        # A stream that is gone, or that the target was taken too early for, keeps its place: an offset never shrinks.
        end = {topic: dict(partitions) for topic, partitions in begun.items()}
        for topic, partitions in target.offsets.items():
            end.setdefault(topic, {}).update(partitions)
        created = {**places.created, **target.created}
        if self._waits(begun, end):
            return start
        if isinstance(limit, ReadAllAvailable):
            return told_places(Places(end, created))
        if isinstance(limit, ReadMaxRows):
            end = planning.limited(begun, end, limit.max_rows)
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.bytes_per_trigger_max
        if bytes_max:
            end = self._limited_bytes(begun, end, bytes_max)
        return told_places(Places(end, created))

    def _waits(self, begun: Offsets, end: Offsets) -> bool:
        """Whether there is too little for a batch yet. A run to the end waits for nothing: no more may come."""
        least = self._options.offsets_per_trigger_min
        if not least or self._available_now:
            return False
        now_s = time.monotonic()
        there = sum(range_.size for range_ in planning.ranges_between(begun, end))
        is_due = self._last_batch_s is None or now_s - self._last_batch_s >= self._options.trigger_delay_s_max
        if there < least and not is_due:
            return True
        self._last_batch_s = now_s
        return False

    def _wanted_end(self) -> Places:
        if self._target is not None:
            return self._target
        end = planning.latest(_standing(self._linked(), self._options))
        if self._available_now:
            self._target = end
        return end

    def _limited_bytes(self, begun: Offsets, end: Offsets, bytes_max: int) -> Offsets:
        """By the size of the first records of each range, so it is met about, not exactly. At least one record."""
        ranges = planning.ranges_between(begun, end)
        sizes = [self._record_bytes(range_) for range_ in ranges]
        total_bytes = sum(range_.size * size for range_, size in zip(ranges, sizes, strict=True))
        if total_bytes <= bytes_max:
            return end
        records = sum(range_.size for range_ in ranges)
        return planning.limited(begun, end, max(1, int(records * bytes_max / total_bytes)))

    def _record_bytes(self, range_: Range) -> float:
        try:
            body = self._linked().read_raw(range_.topic, range_.partition, range_.first).body
        except OffsetGone as gone:
            # A stream that is new to the query begins at 0, and may have been trimmed since.
            body = self._linked().read_raw(range_.topic, range_.partition, gone.floor).body
        at = records = 0
        while at < len(body) and records < SAMPLE_RECORDS_MAX:
            header = codec.read_header(body, at)
            at += header.batch_bytes
            records += header.record_count
        return at / records if records else 1.0

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802
        """What the progress of the query shows as latest, for its lag."""
        return told_places(planning.latest(_standing(self._linked(), self._options)))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Also for a range of an earlier run, without `latestOffset` being asked before."""
        options = self._options
        ended = places_of(end)
        begun = planning.continued(places_of(start), ended.created, fail_on_data_loss=options.fail_on_data_loss)
        ranges = planning.ranges_between(begun, ended.offsets, ended.created)
        if not ranges:
            return []
        standing = _standing(self._linked(), options)
        ranges = planning.within(ranges, standing, fail_on_data_loss=options.fail_on_data_loss)
        cut = planning.pieces(ranges, options.min_partitions, options.partition_records_max)
        return [Split(range_) for range_ in cut]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In an executor."""
        return _read(partition, self._options)

    def stop(self) -> None:
        """The query ended."""
        if self._link is not None:
            self._link.close()
            self._link = None
