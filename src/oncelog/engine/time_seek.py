"""The first record of one stream at or behind a time: of its append, or of the record's own timestamp.

Append times ascend with the offsets, so that search halves the places. Timestamps of records are whatever a client
gave them. They are searched in the order of offsets, batch header by batch header, from `RECORD_TIME_AHEAD_MS` before
the wanted time: a record whose timestamp lies further ahead of the time of its append is found only if no other one is.
Control batches and holes are never found.
"""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import NamedTuple

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.outcome import Refusal
from oncelog.core.rows import HoleChunk
from oncelog.engine.damage import damaged
from oncelog.engine.read_view import ReadView, StreamView
from oncelog.engine.reader import Reader, ReadPart, Way
from oncelog.engine.reader_thread import ReaderThread
from oncelog.engine.seek import border
from oncelog.errors import BatchInvalid, StorageError
from oncelog.storage.index.places import CONTROL
from oncelog.storage.journal import Journal


class OffsetAt(NamedTuple):
    """The record that was looked for; offset -1 if there is none."""

    offset: int
    time_ms: int


NONE_SO_LATE = OffsetAt(-1, -1)
Found = Callable[[OffsetAt | Refusal], None]


class TimeSeek:
    """Searches of an engine. All methods run on the loop's thread."""

    def __init__(self, reader: Reader, view: ReadView, journal: Journal, thread: ReaderThread) -> None:
        self._reader = reader
        self._view = view
        self._journal = journal
        self._thread = thread

    def by_append(self, stream: StreamView, time_ms: int) -> OffsetAt:
        """The first record that was appended at `time_ms` or later. Raises StorageError."""
        offset, _ = border(self._reader, stream, lambda place: place.time_ns >= time_ms * 1_000_000)
        offset = self._view.first_live(stream, offset)
        if offset >= stream.stable:
            return NONE_SO_LATE
        return OffsetAt(offset, self._reader.row_of(stream.stream_id, offset).time_ns // 1_000_000)

    def by_record(self, stream: StreamView, time_ms: int, found: Found) -> None:
        """The first record whose timestamp is `time_ms` or later."""
        earliest_ns = max(0, time_ms - limits.RECORD_TIME_AHEAD_MS) * 1_000_000
        try:
            first, _ = border(self._reader, stream, lambda place: place.time_ns >= earliest_ns)
        except StorageError as error:
            found(damaged(error))
            return
        self._search_from(stream, time_ms, first, found)

    def _search_from(self, stream: StreamView, time_ms: int, first: int, found: Found) -> None:
        try:
            parts, next_ = self._slice(stream, first)
        except StorageError as error:
            found(damaged(error))
            return
        if next_ <= first:
            found(NONE_SO_LATE)
            return

        def looked(result: OffsetAt | Refusal) -> None:
            if isinstance(result, OffsetAt) and result.offset < 0:
                self._search_from(stream, time_ms, next_, found)
            else:
                found(result)

        self._thread.ask(
            partial(_first_at, self._reader, self._journal, parts, time_ms, first),
            looked,
            batches=len(parts),
            plan_again=partial(self._again, stream, time_ms, first),
        )

    def _again(self, stream: StreamView, time_ms: int, first: int) -> Callable[[], OffsetAt] | Refusal:
        """The records of a slice were moved, or trimmed."""
        now = self._view.stream(stream.stream_id) or stream
        try:
            parts, _ = self._slice(now, max(first, now.floor))
        except StorageError as error:
            return damaged(error)
        return partial(_first_at, self._reader, self._journal, parts, time_ms, first)

    def _slice(self, stream: StreamView, first: int) -> tuple[list[ReadPart], int]:
        parts: list[ReadPart] = []
        next_ = first
        loaded: dict[int, HoleChunk | None] = {}
        for base_offset, place in islice(self._reader.batches(stream, first, stream.stable), limits.SEEKS_PER_SLICE):
            next_ = base_offset + place.count
            if place.flags & CONTROL:
                continue
            dead = self._reader.dead(stream, base_offset, next_, Way.COMMITTED, loaded)
            parts.append(ReadPart(base_offset, place.group, place.at, place.length, place.count, dead))
        return parts, next_


def _first_at(reader: Reader, journal: Journal, parts: list[ReadPart], time_ms: int, first: int) -> OffsetAt:
    """Runs on the reader's thread. Raises StorageError."""
    for part in parts:
        header = codec.BatchHeader(journal.read(part.group, part.at, codec.HEADER_BYTES), 0)
        if header.max_timestamp < time_ms:
            continue
        for read in reader.fetch_parts([part]):
            try:
                records = codec.decode(read.batch)
            except BatchInvalid as error:
                raise reader.damage(part, f"cannot be decoded: {error}") from error
            for delta, timestamp, *_ in records:
                if timestamp >= time_ms and part.base_offset + delta >= first:
                    return OffsetAt(part.base_offset + delta, timestamp)
    return NONE_SO_LATE
