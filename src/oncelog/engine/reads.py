"""Reads of an engine: what is in memory, or likely to be, on the loop, the rest on the reader's thread.

Plans are made on the loop's thread, from what readers may see; the thread only reads the journal's files. Damage, and
a disk that cannot be read, are told to whoever reads and end nothing: the rest of the log can still be read.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from oncelog import limits
from oncelog.core.outcome import Damaged, Refusal, TopicMissing
from oncelog.engine.damage import damaged
from oncelog.engine.follow import Follow, Waiter, Wake
from oncelog.engine.guard import Guard
from oncelog.engine.lookups import Lookups
from oncelog.engine.provenance import WrittenBy, written_by
from oncelog.engine.reader import ReadBatch, Reader, ReadPlan
from oncelog.engine.reader_thread import Asked, ReaderThread
from oncelog.engine.seek import Stood, at_entry, at_time
from oncelog.engine.store import Store
from oncelog.errors import StorageError
from oncelog.storage.segment import GroupGone


class ReadResult(NamedTuple):
    """What a read found. Offsets that are missing between batches are holes."""

    batches: list[ReadBatch]
    next_offset: int
    stable: int
    tail: int
    floor: int
    closed: bool


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
        self.bytes_planned = 0
        """Stored bytes that reads were planned to fetch since the start."""

    def read(
        self, topic: str, partition: int, offset: int, bytes_max: int = limits.MIB, *, uncommitted: bool = False
    ) -> ReadResult | Refusal:
        """Batches from `offset` on. Blocks for the disk if they are not in the page cache."""
        plan = self._plan(topic, partition, offset, bytes_max, uncommitted=uncommitted)
        if isinstance(plan, Refusal):
            return plan
        return _result(plan, *self.reader.fetch(plan), uncommitted=uncommitted)

    def _plan(
        self, topic: str, partition: int, offset: int, bytes_max: int, *, uncommitted: bool
    ) -> ReadPlan | Refusal:
        row = self._view.topic(topic)
        if row is None or not 0 <= partition < len(row.stream_ids):
            return TopicMissing(topic, partition)
        stream = self._view.stream(row.stream_ids[partition])
        if stream is None:
            return TopicMissing(topic, partition)
        plan = self.reader.plan(stream, offset, bytes_max, uncommitted=uncommitted)
        if isinstance(plan, ReadPlan):
            self.bytes_planned += sum(part.length for part in plan.parts)
        return plan

    def read_soon(
        self,
        topic: str,
        partition: int,
        offset: int,
        bytes_max: int,
        found: Callable[[ReadResult | Refusal], None],
    ) -> Asked[ReadResult] | None:
        """As `read`, told to `found`: at once if the place is likely to be in the page cache, else once a thread has
        read it, unless what is returned is cancelled before."""
        try:
            plan = self._plan(topic, partition, offset, bytes_max, uncommitted=False)
            told: ReadResult | Refusal | None = plan if isinstance(plan, Refusal) else None
            if isinstance(plan, ReadPlan) and (not plan.parts or self._is_recent(plan.parts[0].group)):
                told = _result(plan, *self.reader.fetch(plan), uncommitted=False)
        except StorageError as error:
            told = damaged(error)
        # Outside of the `try`: what the reader does with it is not a fault of what was read.
        if told is not None:
            found(told)
            return None
        cold = plan
        assert isinstance(cold, ReadPlan)
        return self.thread.ask(
            lambda: _result(cold, *self.reader.fetch(cold), uncommitted=False), found, batches=len(cold.parts)
        )

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
        return age_bytes < limits.HTTP_READ_RECENT_BYTES and self._journal.is_in_memory(group)

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

    def wait(self, topic: str, partition: int, offset: int, wake: Wake) -> Waiter | Refusal | None:
        """Call `wake` when there is something to read at or after `offset`; None if there is already."""
        row = self._view.topic(topic)
        if row is None or not 0 <= partition < len(row.stream_ids):
            return TopicMissing(topic, partition)
        return self._follow.wait(row.stream_ids[partition], offset, wake)

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
        self._look_further(wanted, [], len(streams), told)

    def _look_further(
        self,
        wanted: Iterator[Stood | Refusal],
        found: list[Stood],
        count: int,
        told: Callable[[list[Stood] | Refusal], None],
    ) -> None:
        """One slice of `stood`."""
        with self._guard:
            refusal: Refusal | None = None
            try:
                for each in islice(wanted, limits.SEEKS_PER_SLICE):
                    if isinstance(each, Refusal):
                        refusal = each
                        break
                    found.append(each)
            except StorageError as error:
                refusal = damaged(error)
            if refusal is not None:
                told(refusal)
            elif len(found) < count:
                self._loop.call_soon(self._look_further, wanted, found, count, told)
            else:
                told(found)


def _result(plan: ReadPlan, batches: list[ReadBatch], next_offset: int, *, uncommitted: bool) -> ReadResult:
    stream = plan.stream
    # A closed stream with an open txn is not at its end yet: what the txn commits is still to come.
    ended = stream.closed and (uncommitted or stream.stable == stream.tail)
    return ReadResult(batches, next_offset, stream.stable, stream.tail, stream.floor, ended)
