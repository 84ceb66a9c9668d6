"""Readers: what a query reads is settled at the driver from one cut, and fetched by the executors.

A range that was planned can be read again as long as it is retained: offsets are dense and records never change. A
streaming query that is restarted asks for the very range it had journaled, and gets it without anything being looked up
but the streams' floors.

The streaming reader lives in one process beside the driver as long as the query runs. What it remembers is no truth: it
may be started again at any time, and then knows nothing.
"""

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

from oncelog.client.models import StoodAt
from oncelog.core import batch as codec
from oncelog.spark import planning, source_end
from oncelog.spark.driver_notes import forget_starts, note_start
from oncelog.spark.link import Link
from oncelog.spark.options import Offsets, OptionError, Place, ReadOptions, offsets_of, told_offsets
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


def _looked_up(link: Link, place: Place, topics: Sequence[str], *, may_not_be_trimmed: bool) -> Offsets | None:
    """What only the server knows of a place; None where there is nothing to ask."""
    if place.kind == "group":
        return _group_offsets(link, place.group)[0]
    if place.kind == "cut":
        streams = link.offsets_at(*topics, entry=place.number)
        if may_not_be_trimmed and (trimmed := [stream.topic for stream in streams if stream.is_floor]):
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


def _group_offsets(link: Link, application: str) -> tuple[Offsets | None, bytes]:
    """What the application has read, and the server's bytes that say so."""
    held = link.application(application)
    if held is None or not held.source_end:
        return None, b""
    return source_end.topics_of(held.source_end), held.source_end


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
            began = _looked_up(link, options.starting, list(standing), may_not_be_trimmed=options.fail_on_data_loss)
            ended = _looked_up(link, options.ending, list(standing), may_not_be_trimmed=False)
        start = planning.resolved(options.starting, standing, began, "startingOffsets")
        end = planning.resolved(options.ending, standing, ended, "endingOffsets")
        ranges = planning.ranges_between(start, end)
        ranges = planning.within(ranges, standing, fail_on_data_loss=options.fail_on_data_loss)
        return [Split(range_) for range_ in planning.pieces(ranges, options.min_partitions,
                                                            options.partition_records_max)]  # fmt: skip

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In an executor."""
        return _read(partition, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc, unused-ignore]
    """The same, as it goes on. Offsets are `{"topic": {"0": 42}}`, as Spark's Kafka source has them."""

    def __init__(self, options: ReadOptions) -> None:
        if options.ending.kind != "latest":
            raise OptionError("endingOffsets: a streaming query has no end")
        self._options = options
        self._link: Link | None = None
        self._available_now = False
        self._target: Offsets | None = None

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
        place = self._options.starting
        standing = _standing(self._linked(), self._options)
        if place.kind == "group":
            looked_up, held = _group_offsets(self._linked(), place.group)
            note_start(place.group, held, standing)
        else:
            strict = self._options.fail_on_data_loss
            looked_up = _looked_up(self._linked(), place, list(standing), may_not_be_trimmed=strict)
            forget_starts(standing)
        return told_offsets(planning.resolved(place, standing, looked_up, "startingOffsets"))

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
        begun = offsets_of(start)
        end = self._end(begun)
        if isinstance(limit, ReadAllAvailable):
            return told_offsets(end)
        if isinstance(limit, ReadMaxRows):
            end = planning.limited(begun, end, limit.max_rows)
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.bytes_per_trigger_max
        if bytes_max:
            end = self._limited_bytes(begun, end, bytes_max)
        return told_offsets(end)

    def _end(self, begun: Offsets) -> Offsets:
        end = self._target
        if end is None:
            end = planning.latest(_standing(self._linked(), self._options))
            if self._available_now:
                self._target = end
        # A stream that is gone, or that the target was taken too early for, keeps its place: an offset never shrinks.
        merged = {topic: dict(partitions) for topic, partitions in begun.items()}
        for topic, partitions in end.items():
            merged.setdefault(topic, {}).update(partitions)
        return merged

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
        body = self._linked().read_raw(range_.topic, range_.partition, range_.first).body
        at = records = 0
        while at < len(body) and records < SAMPLE_RECORDS_MAX:
            header = codec.read_header(body, at)
            at += header.batch_bytes
            records += header.record_count
        return at / records if records else 1.0

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802
        """What the progress of the query shows as latest, for its lag."""
        return told_offsets(planning.latest(_standing(self._linked(), self._options)))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Also for a range of an earlier run, without `latestOffset` being asked before."""
        ranges = planning.ranges_between(offsets_of(start), offsets_of(end))
        if not ranges:
            return []
        options = self._options
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
