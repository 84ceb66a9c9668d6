"""The engine as the Kafka protocol sees it: `protocols.kafka.log.Log` carried out by one engine and its loop."""

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import Command
from oncelog.core.flat import Producer, Stream
from oncelog.core.outcome import OffsetAhead, Outcome, Refusal
from oncelog.core.rows import Topic
from oncelog.core.txn import Txn
from oncelog.engine.engine import Engine
from oncelog.engine.read_view import StreamView
from oncelog.engine.reader import Way
from oncelog.engine.reads import ReadResult
from oncelog.engine.time_seek import OffsetAt
from oncelog.engine.wait_many import Awaited
from oncelog.protocols.kafka.aborted import one_for_each
from oncelog.protocols.kafka.log import Cancellable, Found, Place, SavedOffset, StoredBatch

PAGE_ROWS: Final = 1_000
"""Rows of one page of a listing."""

_KAFKA: Final = "kafka:"


class EngineLog:
    """Of one engine."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._lookups = engine.lookups

    def submit(self, command: Command, reply: Callable[[Outcome], None]) -> object:
        return self._engine.submit(command, reply)

    def topic(self, name: str) -> Topic | None:
        return self._lookups.topic(name)

    def topics(self) -> list[Topic]:
        found: list[Topic] = []
        after: str | None = ""
        while after is not None:
            page = self._lookups.topics("", after, PAGE_ROWS)
            found += [topic for _, topic in page.rows]
            after = page.next
        return found

    def stream(self, stream_id: int) -> StreamView | None:
        return self._lookups.stream(stream_id)

    def stream_row(self, stream_id: int) -> Stream | None:
        return self._lookups.stream_row(stream_id)

    # --- reading ---------------------------------------------------------------------------------------------------

    def read(
        self, place: Place, bytes_max: int, *, committed: bool, found: Callable[[Found | Refusal], None]
    ) -> Cancellable | None:
        topic, partition, offset = place

        def on_read(result: ReadResult | Refusal) -> None:
            if isinstance(result, OffsetAhead):
                # Between stable and tail: a reader of committed records waits there.
                found(self._standing(place) or result)
            elif isinstance(result, Refusal):
                found(result)
            else:
                batches = [StoredBatch(batch.base_offset, batch.batch) for batch in result.batches]
                aborted = one_for_each(result.aborted, batches) if result.aborted else ()
                found(Found(batches, result.next_offset, result.stable, result.tail, result.floor, aborted))

        return self._engine.read(topic, partition, offset, bytes_max, on_read, way=_way(committed))

    def _standing(self, place: Place) -> Found | None:
        """Nothing to read yet, at a place that exists."""
        stream = self._resolved(place)
        if stream is None or not stream.floor <= place.offset <= stream.tail:
            return None
        return Found([], place.offset, stream.stable, stream.tail, stream.floor, ())

    def _resolved(self, place: Place) -> StreamView | None:
        row = self._lookups.topic(place.topic)
        if row is None or not 0 <= place.partition < len(row.stream_ids):
            return None
        return self._lookups.stream(row.stream_ids[place.partition])

    def wait(
        self, places: list[Place], *, committed: bool, bytes_min: int, wait_ms: int, wake: Callable[[], None]
    ) -> Cancellable | None:
        awaited = []
        for place in places:
            offset = place.offset
            stream = self._resolved(place)
            if committed and stream is not None and stream.stable < offset <= stream.tail:
                offset = stream.stable  # whatever is committed next is news
            awaited.append(Awaited(place.topic, place.partition, offset, _way(committed)))
        return self._engine.wait_many(awaited, bytes_min, wait_ms, wake)

    def offsets_at(
        self, topic: str, partition: int, time_ms: int, told: Callable[[tuple[int, int] | None], None]
    ) -> None:
        def found(at: OffsetAt | Refusal) -> None:
            told(None if isinstance(at, Refusal) or at.offset < 0 else (at.offset, at.time_ms))

        self._engine.offset_at(topic, partition, time_ms, found, by_record=True)

    def offset_of_latest_time(self, topic: str, partition: int, told: Callable[[tuple[int, int] | None], None]) -> None:
        stream = self._resolved(Place(topic, partition, 0))
        if stream is None or stream.floor >= stream.stable:
            told(None)
        else:
            _LatestTime(self._engine, topic, partition, told).look(stream.floor)

    # --- listings --------------------------------------------------------------------------------------------------

    def saved_offsets(self, prefix: str, told: Callable[[list[SavedOffset]], None]) -> None:
        found: list[SavedOffset] = []

        def on_page(listed: list[Any], next_: Any) -> None:
            found.extend(SavedOffset(each.name, each.topic, each.partition, each.cursor) for each in listed)
            if next_ is None:
                told(found)
            else:
                self._lookups.cursors(prefix, next_, PAGE_ROWS, on_page)

        self._lookups.cursors(prefix, None, PAGE_ROWS, on_page)

    def producers(self, stream_id: int, told: Callable[[list[tuple[str, Producer]]], None]) -> None:
        found: list[tuple[str, Producer]] = []

        def on_page(page: Any) -> None:
            found.extend((key[1], row) for key, row in page.rows)
            if page.next is None:
                told(found)
            else:
                self._lookups.producers(stream_id, _KAFKA, page.next[1], PAGE_ROWS, on_page)

        self._lookups.producers(stream_id, _KAFKA, "", PAGE_ROWS, on_page)

    def txns(self, told: Callable[[list[Txn]], None]) -> None:
        found: list[Txn] = []

        def on_page(page: Any) -> None:
            found.extend(txn for _, txn in page.rows)
            if page.next is None:
                told(found)
            else:
                self._lookups.txns("", page.next, PAGE_ROWS, on_page)

        self._lookups.txns("", "", PAGE_ROWS, on_page)

    # --- time ------------------------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        return self._engine.now_ns()

    def later(self, delay_ms: float, call: Callable[[], None]) -> Cancellable:
        return self._loop.call_later(delay_ms / 1000, call)

    def unique(self) -> str:
        return secrets.token_hex(16)


def _way(committed: bool) -> Way:
    return Way.KAFKA_COMMITTED if committed else Way.UNCOMMITTED


class _LatestTime:
    """Looks for the record with the largest timestamp: through the whole stream, page by page. Timestamps are the
    clients' own and follow no order, and no index is kept for a question that is asked so rarely."""

    def __init__(
        self, engine: Engine, topic: str, partition: int, told: Callable[[tuple[int, int] | None], None]
    ) -> None:
        self._engine = engine
        self._stream = (topic, partition)
        self._told = told
        self._best: tuple[int, int] | None = None

    def look(self, offset: int) -> None:
        """Read the page that begins here."""
        self._engine.read(*self._stream, offset, limits.MIB, partial(self._found, offset))

    def _found(self, offset: int, result: ReadResult | Refusal) -> None:
        if isinstance(result, Refusal):
            self._told(self._best)
            return
        for base_offset, batch in result.batches:
            header = codec.read_header(batch)
            if self._best is None or header.max_timestamp > self._best[1]:
                times = {time_ms: delta for delta, time_ms, *_ in reversed(codec.decode(batch))}
                latest = max(times)
                self._best = (base_offset + times[latest], latest)
        if result.next_offset >= result.stable or result.next_offset <= offset:
            self._told(self._best)
        else:
            self.look(result.next_offset)
