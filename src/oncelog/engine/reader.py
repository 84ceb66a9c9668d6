"""Reads: planned on the loop's thread from the view and the places, carried out anywhere.

A plan names byte ranges of the journal; carrying it out reads them, checks every batch's checksum and what of its
header lies outside of it (P9), drops what is dead and keeps offsets. A read never sees past the view it was planned
with.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

import msgspec

from oncelog.core import batch as codec
from oncelog.core.outcome import OffsetAhead, OffsetGone, Refusal
from oncelog.core.rows import Cause, HoleChunk
from oncelog.engine.read_view import ReadView, StreamView
from oncelog.errors import BatchInvalid, Corruption, StorageError
from oncelog.storage.index.interface import Index
from oncelog.storage.index.places import LINK, Place, Places
from oncelog.storage.journal import Journal
from oncelog.storage.segment import GroupGone

_PLACES_PER_LOOKUP = 256
_HIDDEN = (Cause.DELETED, Cause.DUPLICATE)


class Way(IntEnum):
    """How a stream is read. What was deleted, or was a duplicate, is hidden in all three."""

    COMMITTED = 0
    """Below stable, without markers and aborted records: HTTP, NATS, BSFG, Spark."""
    UNCOMMITTED = 1
    """Below the durable tail, with markers, open and aborted records: a Kafka consumer that asks for it."""
    KAFKA_COMMITTED = 2
    """Below stable, with markers and aborted batches left in and the list of what was aborted, as a Kafka consumer
    expects it: it drops them itself and advances over them."""

    def end_of(self, stream: StreamView) -> int:
        """Where a reader of this stream must stop."""
        return stream.tail if self is Way.UNCOMMITTED else stream.stable


class ReadPart(msgspec.Struct, gc=False):
    """One batch to fetch."""

    base_offset: int
    group: int
    at: int
    length: int
    count: int
    dead: tuple[tuple[int, int], ...]
    """Ranges of offset deltas to leave out."""


class ReadPlan(NamedTuple):
    """What one read will fetch, and where the next one begins."""

    stream: StreamView
    offset: int
    """Where the read begins."""
    parts: list[ReadPart]
    next_offset: int
    """The end for this way of reading if the read reaches it, so that holes at the end are passed."""
    way: Way = Way.COMMITTED
    aborted: tuple[tuple[int, int], ...] = ()
    """Of Kafka's committed reads: (producer id, first offset) of every stretch that was aborted."""


class ReadBatch(NamedTuple):
    """A stored batch; its header's base offset is not the real one: stamp `base_offset` on the way out."""

    base_offset: int
    batch: bytes


def offset_refused(stream_id: int, offset: int, floor: int, limit: int) -> Refusal | None:
    """Whether an offset is one that can be read from."""
    if offset < floor:
        return OffsetGone(stream_id, offset, floor)
    return OffsetAhead(stream_id, offset, limit) if offset > limit else None


def _no_place(extent: int, offset: int) -> Corruption:
    return Corruption(f"no place is known for offset {offset} of extent {extent}", hint="run oncelog verify")


def _up_to_damage(batches: Iterator[tuple[int, Place]]) -> Iterator[tuple[int, Place]]:
    """Those before the first place that cannot be read. It is told to a read that begins with it."""
    is_first = True
    try:
        for batch in batches:
            yield batch
            is_first = False
    except Corruption:
        if is_first:
            raise


class Reader:
    """Plans reads."""

    def __init__(self, view: ReadView, index: Index, places: Places, journal: Journal) -> None:
        self._view = view
        self._index = index
        self._places = places
        self._journal = journal

    def plan(self, stream: StreamView, offset: int, bytes_max: int, way: Way = Way.COMMITTED) -> ReadPlan | Refusal:
        """The batches from `offset` on, at least one if there is one, else up to `bytes_max`."""
        limit = way.end_of(stream)
        if (refusal := offset_refused(stream.stream_id, offset, stream.floor, limit)) is not None:
            return refusal
        first = offset
        parts: list[ReadPart] = []
        size = 0
        dense = not stream.hole_count
        loaded: dict[int, HoleChunk | None] = {}
        for base_offset, place in _up_to_damage(self._batches(stream.stream_id, offset, limit)):
            next_ = base_offset + place.count
            dead: tuple[tuple[int, int], ...] = ()
            if not dense or base_offset < stream.floor:
                dead = self.dead(stream, base_offset, next_, way, loaded)
            if dead and dead[0] == (0, place.count):
                offset = next_
                continue
            if parts and size + place.length > bytes_max:
                break
            parts.append(ReadPart(base_offset, place.group, place.at, place.length, place.count, dead))
            size += place.length
            offset = next_
        if way is not Way.KAFKA_COMMITTED or dense or not parts:
            return ReadPlan(stream, first, parts, offset, way)
        return ReadPlan(stream, first, parts, offset, way, self._aborted(stream, parts[0].base_offset, offset))

    def _aborted(self, stream: StreamView, first: int, next_: int) -> tuple[tuple[int, int], ...]:
        return tuple(
            (producer_id, hole_first)
            for hole_first, _, cause, producer_id in self._view.holes_between(stream, first, next_)
            if cause == Cause.ABORTED and producer_id >= 0
        )

    def bytes_from(self, stream: StreamView, offset: int, way: Way, enough: int) -> tuple[int, int]:
        """(bytes of the batches from `offset` on, the offset up to which they were counted): no more are counted once
        there are `enough`. Batches that this way of reading hides are counted as well."""
        size = 0
        for base_offset, place in _up_to_damage(self._batches(stream.stream_id, offset, way.end_of(stream))):
            size += place.length
            offset = base_offset + place.count
            if size >= enough:
                break
        return size, offset

    def dead(
        self,
        stream: StreamView,
        first: int,
        next_: int,
        way: Way,
        loaded: dict[int, HoleChunk | None] | None = None,
    ) -> tuple[tuple[int, int], ...]:
        """Holes inside a batch as ranges of offset deltas, neighbours joined. Only a reader of committed data is not
        shown markers and aborted records; deleted ones and duplicates are hidden from everybody. What was aborted
        without a marker has no producer id: a Kafka consumer could not tell where it ends, so it is hidden as well."""
        dead: list[tuple[int, int]] = []
        if first < stream.floor:
            # Trimmed in the middle of a batch: what is below the floor is gone, also from those who read whole batches.
            dead.append((0, min(stream.floor, next_) - first))
        for hole_first, hole_next, cause, producer_id in self._view.holes_between(stream, first, next_, loaded):
            is_unmarked = way is Way.KAFKA_COMMITTED and cause == Cause.ABORTED and producer_id < 0
            if way is not Way.COMMITTED and cause not in _HIDDEN and not is_unmarked:
                continue
            begin, end = max(hole_first, first, stream.floor) - first, min(hole_next, next_) - first
            if begin >= end:
                continue
            if dead and dead[-1][1] == begin:
                dead[-1] = (dead[-1][0], end)
            else:
                dead.append((begin, end))
        return tuple(dead)

    def _batches(self, extent: int, offset: int, limit: int) -> Iterator[tuple[int, Place]]:
        """(offset of the first record in the stream, place) from the batch that holds `offset` on, links followed."""
        while offset < limit:
            rows = self._places_from(extent, offset)
            if not rows or not rows[0].first <= offset < rows[0].next:
                raise _no_place(extent, offset)
            for row in rows:
                if row.first >= limit:
                    return
                if row.flags & LINK:
                    skipped = max(0, offset - row.first)
                    for relative, place in self._batches(row.at, skipped, min(row.count, limit - row.first)):
                        yield row.first + relative, place
                else:
                    yield row.first, row
                offset = row.first + row.count

    def batches(self, stream: StreamView, offset: int, end: int) -> Iterator[tuple[int, Place]]:
        """(offset of its first record, place) of each batch from the one that holds `offset` on."""
        return self._batches(stream.stream_id, offset, end)

    def place_of(self, stream_id: int, offset: int) -> Place | None:
        """Where the batch that holds a stream's offset lies; None if it was trimmed."""
        stream = self._view.stream(stream_id)
        if stream is None or not stream.floor <= offset < stream.tail:
            return None
        return next((place for _, place in self._batches(stream_id, offset, offset + 1)), None)

    def plan_stage(self, stage_id: int, count: int) -> list[ReadPart]:
        """All batches of a stage. It must hold `count` records."""
        return [
            ReadPart(first, place.group, place.at, place.length, place.count, ())
            for first, place in self._batches(stage_id, 0, count)
        ]

    def row_of(self, stream_id: int, offset: int) -> Place:
        """The stream's own row that holds an offset between floor and tail: of a published stage, the link."""
        packed = self._places.rows_from(stream_id, offset, 1) or self._index.places_from(stream_id, offset, 1)
        row = Place.unpack(packed[0]) if packed else None
        if row is None or not row.first <= offset < row.next:
            raise _no_place(stream_id, offset)
        return row

    def _places_from(self, extent: int, offset: int) -> list[Place]:
        """Some rows from the one that holds `offset` on: from memory if it is there, else from the index."""
        packed = self._places.rows_from(extent, offset, _PLACES_PER_LOOKUP)
        if not packed:
            packed = self._index.places_from(extent, offset, _PLACES_PER_LOOKUP)
        return [Place.unpack(row) for row in packed]

    def fetch(self, plan: ReadPlan) -> tuple[list[ReadBatch], int]:
        """Carry out a plan: its batches, and where the next read begins. Ends before a batch that cannot be read, which
        is told to whoever reads on from there: what lies before it can still be read. Raises GroupGone if the first one
        is not in the journal any more. May run on another thread; touches only the journal's files."""
        batches: list[ReadBatch] = []
        looked_at = 0
        try:
            for part, batch in self._fetched(plan.parts):
                looked_at += 1
                if batch is not None:
                    batches.append(ReadBatch(part.base_offset, batch))
        except StorageError as failed:
            part = plan.parts[looked_at]
            if not batches:
                failed.next_offset = part.base_offset + part.count
                raise
            return batches, part.base_offset
        except GroupGone:
            if not batches:
                raise
            return batches, plan.parts[looked_at].base_offset
        return batches, plan.next_offset

    def fetch_parts(self, parts: list[ReadPart]) -> list[ReadBatch]:
        """All of these batches; raises StorageError if one cannot be read."""
        return [ReadBatch(part.base_offset, batch) for part, batch in self._fetched(parts) if batch is not None]

    def _fetched(self, parts: list[ReadPart]) -> Iterator[tuple[ReadPart, bytes | None]]:
        places = [(part.group, part.at, part.length) for part in parts]
        read: Iterable[bytes]
        try:
            read = self._journal.read_many(places)
        except StorageError:
            # One by one, up to the place that cannot be read: those before it can, and it must be told as itself.
            read = (self._journal.read(*place) for place in places)
        for part, stored in zip(parts, read, strict=True):
            if not codec.check_crc(stored):
                raise self.damage(part, "does not match its checksum")
            if not _is_framed(stored):
                raise self.damage(part, "has another length or format than was written")
            try:
                alive = codec.without(stored, part.dead) if part.dead else stored
            except BatchInvalid as error:
                raise self.damage(part, f"cannot be decoded: {error}") from error
            yield part, alive

    def damage(self, part: ReadPart, what: str) -> Corruption:
        """What is wrong with a batch, and where it lies."""
        file, position = self._journal.where(part.group, part.at)
        what = f"the batch at offset {part.base_offset} {what}"
        return Corruption(what, file=file, position=position, hint="stop and run oncelog verify")


def _is_framed(stored: bytes) -> bool:
    """Length and magic, which the checksum leaves out: readers find the next batch and the records by them."""
    stated = int.from_bytes(stored[codec.BATCH_LENGTH_AT : codec.LEADER_EPOCH_AT], "big")
    return stated + codec.LENGTH_SKIPPED_BYTES == len(stored) and stored[codec.MAGIC_AT] == codec.MAGIC
