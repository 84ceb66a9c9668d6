"""Reads of an engine: what is in memory, or likely to be, on the loop, the rest on the reader's thread.

Plans are made on the loop's thread, from what readers may see; the thread only reads the journal's files. Damage, and
a disk that cannot be read, are told to whoever reads and end nothing: the rest of the log can still be read.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple

from oncelog import limits
from oncelog.core.empty_batch import empty_batch
from oncelog.core.outcome import Damaged, Refusal, TopicMissing
from oncelog.engine.damage import damaged
from oncelog.engine.follow import Follow, Waiter, Wake
from oncelog.engine.guard import Guard
from oncelog.engine.left import NOTHING_LEFT, Left, left_of
from oncelog.engine.lookups import Lookups
from oncelog.engine.provenance import WrittenBy, written_by
from oncelog.engine.read_view import StreamView
from oncelog.engine.reader import ReadBatch, Reader, ReadPlan, Way
from oncelog.engine.reader_thread import Asked, ReaderThread
from oncelog.engine.seek import Stood, at_entry, at_time
from oncelog.engine.store import Store
from oncelog.engine.time_seek import OffsetAt, TimeSeek
from oncelog.engine.wait_many import Awaited, ManyWait
from oncelog.errors import StorageError
from oncelog.storage.segment import RESTORE_HINT, GroupGone


class ReadResult(NamedTuple):
    """What a read found. Offsets that are missing between batches are holes."""

    batches: list[ReadBatch]
    next_offset: int
    stable: int
    tail: int
    floor: int
    closed: bool
    aborted: tuple[tuple[int, int], ...] = ()
    """Of Kafka's committed reads: (producer id, first offset) of what was aborted among them."""


class Reads:
    """Everything that reads records, on the loop's thread unless it says otherwise."""

    def __init__(
        self,
        store: Store,
        lookups: Lookups,
        follow: Follow,
        thread: ReaderThread,
        loop: asyncio.AbstractEventLoop,
        guard: Guard,
    ) -> None:
        self._view = store.view
        self._journal = store.journal
        self._lookups = lookups
        self._follow = follow
        self._loop = loop
        self._guard = guard
        self.reader = Reader(store.view, store.index, store.places, store.journal)
        self.thread = thread
        self._time_seek = TimeSeek(self.reader, store.view, store.journal, thread)
        self.count = 0
        self.bytes_planned = 0
        """Stored bytes that reads were planned to fetch since the start."""

    def resolve(self, topic: str, partition: int) -> StreamView | TopicMissing:
        """Where the stream of a name stands for readers."""
        row = self._view.topic(topic)
        if row is None or not 0 <= partition < len(row.stream_ids):
            return TopicMissing(topic, partition)
        return self._view.stream(row.stream_ids[partition]) or TopicMissing(topic, partition)

    def read(
        self, topic: str, partition: int, offset: int, bytes_max: int = limits.MIB, way: Way = Way.COMMITTED
    ) -> ReadResult | Refusal:
        """Batches from `offset` on. Blocks for the disk if they are not in the page cache."""
        for left in reversed(range(limits.READ_PLANS_MAX)):
            plan = self._plan(topic, partition, offset, bytes_max, way)
            if isinstance(plan, Refusal):
                return plan
            with suppress(GroupGone):  # then the next plan knows where its records are now
                return _result(plan, *self.reader.fetch(plan))
            if not left:
                return _lost(plan)
        raise AssertionError("the last round returns")

    def _plan(self, topic: str, partition: int, offset: int, bytes_max: int, way: Way) -> ReadPlan | Refusal:
        stream = self.resolve(topic, partition)
        if isinstance(stream, TopicMissing):
            return stream
        plan = self.reader.plan(stream, offset, bytes_max, way)
        if isinstance(plan, ReadPlan):
            self.count += 1
            self.bytes_planned += sum(part.length for part in plan.parts)
        return plan

    def read_soon(
        self,
        topic: str,
        partition: int,
        offset: int,
        bytes_max: int,
        found: Callable[[ReadResult | Refusal], None],
        way: Way = Way.COMMITTED,
    ) -> Asked[ReadResult] | None:
        """As `read`; the result goes to `found`: at once if the place is likely to be in the page cache, else once a
        thread has read it, unless what is returned is cancelled before."""
        try:
            plan = self._plan(topic, partition, offset, bytes_max, way)
            told: ReadResult | Refusal | None = plan if isinstance(plan, Refusal) else None
            if isinstance(plan, ReadPlan) and (not plan.parts or self._is_recent(plan.parts[0].group)):
                told = _result(plan, *self.reader.fetch(plan))
        except GroupGone:
            told = self.read(topic, partition, offset, bytes_max, way)
        except StorageError as error:
            told = damaged(error)
        # Outside of the `try`: what the reader does with it is not a fault of what was read.
        if told is not None:
            found(self._past_lost_files(topic, partition, way, told))
            return None
        cold = plan
        assert isinstance(cold, ReadPlan)
        # Segments that were recycled while this waited, or was read: what is left is planned anew, by the same object,
        # so that whoever holds it can still cancel it.
        return self.thread.ask(
            partial(_carry_out, self.reader, cold),
            lambda result: found(self._past_lost_files(topic, partition, way, result)),
            batches=len(cold.parts),
            plan_again=_Again(partial(self._plan, topic, partition, offset, bytes_max, way), self.reader),
        )

    def _past_lost_files(
        self, topic: str, partition: int, way: Way, result: ReadResult | Refusal
    ) -> ReadResult | Refusal:
        """Of damage that is a whole file: where the records behind the file begin, so that a reader gets over it in one
        step and not in one per batch."""
        if not isinstance(result, Damaged) or result.next < 0:
            return result
        stream = self.resolve(topic, partition)
        if isinstance(stream, TopicMissing):
            return result
        try:
            for base_offset, place in self.reader.batches(stream, result.next, way.end_of(stream)):
                if not self._journal.is_unreadable(place.group):
                    break
                result.next = base_offset + place.count
        except StorageError:
            pass  # the next read reports that
        return result

    def undecodable(self, stream_id: int, offset: int, why: str) -> Damaged:
        """How a batch that was found whole, and still cannot be decoded, is told: the one that begins at `offset`."""
        what = f"the batch at offset {offset} cannot be decoded: {why}"
        try:
            place = self.reader.place_of(stream_id, offset)
        except StorageError:
            place = None  # whatever keeps us from finding it: there is damage to be told already
        if place is None:
            return Damaged(what, "", -1)
        return Damaged(what, *self._journal.where(place.group, place.at), offset + place.count)

    def _is_recent(self, group: int) -> bool:
        age_bytes = self._journal.bytes_between(group, self._journal.durable_group)
        return age_bytes < limits.READ_RECENT_BYTES and self._journal.is_in_memory(group)

    def who_wrote(self, stream_id: int, offset: int, told: Callable[[WrittenBy | Refusal | None], None]) -> None:
        """Tell who wrote the record at `offset`, which must be readable; None if it had no producer, or is gone."""
        try:
            place = self.reader.place_of(stream_id, offset)
        except StorageError as error:
            told(damaged(error))
            return
        if place is None:
            told(None)
            return

        def looked_up() -> WrittenBy | None:
            try:
                return written_by(self._journal.payload(place.group), place.at, offset - place.first)
            except GroupGone:
                return None

        self.thread.ask(looked_up, told)

    def wait(
        self, topic: str, partition: int, offset: int, wake: Wake, way: Way = Way.COMMITTED
    ) -> Waiter | Refusal | None:
        """Call `wake` when there is something to read at or after `offset`; None if there is already."""
        stream = self.resolve(topic, partition)
        if isinstance(stream, TopicMissing):
            return stream
        return self._follow.wait(stream.stream_id, offset, wake, way)

    def wait_many(self, places: list[Awaited], bytes_min: int, wait_ms: int, wake: Wake) -> ManyWait | None:
        """Call `wake` once these streams together have so many bytes from their offsets on, when one of them cannot be
        read there, or when the time is up (`wait_many.py`). None if it is so already, or `wait_ms` is 0."""
        many = ManyWait(self.reader, self._follow, self.resolve, bytes_min, wake)
        return many if many.begin(places, self._loop, wait_ms) else None

    def offset_at(
        self,
        topic: str,
        partition: int,
        time_ms: int,
        found: Callable[[OffsetAt | Refusal], None],
        *,
        by_record: bool = False,
    ) -> None:
        """The first committed record at or behind a time: of its append, or its own timestamp (`time_seek.py`)."""
        stream = self.resolve(topic, partition)
        if isinstance(stream, TopicMissing):
            found(stream)
        elif by_record:
            self._time_seek.by_record(stream, time_ms, found)
        else:
            result: OffsetAt | Refusal
            try:
                result = self._time_seek.by_append(stream, time_ms)
            except StorageError as error:
                result = damaged(error)
            found(result)

    def left(self, topic: str, partition: int, offset: int, now_ns: int) -> Left:
        """How much is left for a consumer that stands at `offset` (`left.py`)."""
        stream = self.resolve(topic, partition)
        if isinstance(stream, TopicMissing):
            return NOTHING_LEFT
        return left_of(self._view, self.reader, stream, offset, now_ns)

    def stood(
        self,
        topics: list[str] | None,
        told: Callable[[list[Stood] | Refusal], None],
        *,
        entry: int | None = None,
        time_ns: int = 0,
    ) -> None:
        """Where streams stood at an entry, or else at a time. Looked up in slices: a log may have many streams."""
        try:
            streams = self._lookups.cut(topics).streams
        except StorageError as error:
            told(damaged(error))
            return
        if entry is None:
            wanted: Iterator[Stood | Refusal] = at_time(self.reader, streams, time_ns)
        else:
            wanted = at_entry(self.reader, self._journal, streams, entry, self._view.entry_number)
        self._look_further(
            wanted, [], len(streams), told, partial(self.stood, topics, told, entry=entry, time_ns=time_ns)
        )

    def _look_further(
        self,
        wanted: Iterator[Stood | Refusal],
        found: list[Stood],
        count: int,
        told: Callable[[list[Stood] | Refusal], None],
        again: Callable[[], None],
    ) -> None:
        """One slice of `stood`; `again` begins anew."""
        with self._guard:
            refusal: Refusal | None = None
            try:
                for each in islice(wanted, limits.SEEKS_PER_SLICE):
                    if isinstance(each, Refusal):
                        refusal = each
                        break
                    found.append(each)
            except GroupGone:
                self._loop.call_soon(again)  # the floor was raised over what was to be looked at
                return
            except StorageError as error:
                refusal = damaged(error)
            if refusal is not None:
                told(refusal)
            elif len(found) < count:
                self._loop.call_soon(self._look_further, wanted, found, count, told, again)
            else:
                told(found)


class _Again:
    """Plans a read anew whose records were recycled under it, a few times at most: if they are nowhere, the front of
    the journal was lost, and not trimmed."""

    __slots__ = ("_left", "_plan", "_reader")

    def __init__(self, plan: Callable[[], ReadPlan | Refusal], reader: Reader) -> None:
        self._plan = plan
        self._reader = reader
        self._left = limits.READ_PLANS_MAX

    def __call__(self) -> Callable[[], ReadResult] | Refusal:
        self._left -= 1
        try:
            plan = self._plan()
        except StorageError as error:
            return damaged(error)
        if isinstance(plan, Refusal):
            return plan
        return partial(_carry_out, self._reader, plan) if self._left else _lost(plan)


def _lost(plan: ReadPlan) -> Damaged:
    part = plan.parts[0]
    what = f"the batch at offset {part.base_offset} lies before the first segment that is there ({RESTORE_HINT})"
    return Damaged(what, "", -1, part.base_offset + part.count)


def _carry_out(reader: Reader, plan: ReadPlan) -> ReadResult:
    return _result(plan, *reader.fetch(plan))


def _result(plan: ReadPlan, batches: list[ReadBatch], next_offset: int) -> ReadResult:
    stream = plan.stream
    if plan.way is not Way.COMMITTED:
        _cover_holes_at_the_end(plan, batches, next_offset)
    # A closed stream with an open txn is not at its end yet: what the txn commits is still to come.
    ended = stream.closed and (plan.way is Way.UNCOMMITTED or stream.stable == stream.tail)
    return ReadResult(batches, next_offset, stream.stable, stream.tail, stream.floor, ended, plan.aborted)


def _cover_holes_at_the_end(plan: ReadPlan, batches: list[ReadBatch], next_offset: int) -> None:
    """Kafka clients take their next offset from the last batch, so one without records stands for holes behind it."""
    fetched = {part.base_offset: part.base_offset + part.count for part in plan.parts}
    end = fetched[batches[-1].base_offset] if batches else plan.offset
    while end < next_offset:
        batch, behind = empty_batch(end, next_offset)
        batches.append(ReadBatch(end, batch))
        end = behind
