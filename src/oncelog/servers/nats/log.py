"""The engine, as far as this face uses it: one place to change when the engine's interface does."""

from collections.abc import Callable
from typing import Any, NamedTuple

from oncelog.core import batch as codec
from oncelog.core.command import (
    Columns,
    Command,
    ConsumerUpdate,
    DeleteConsumer,
    DeleteRecords,
    SetConsumer,
    Trim,
    UpdateConsumers,
)
from oncelog.core.outcome import Confirmed, OffsetGone, Outcome, Refusal, each_outcome
from oncelog.core.rows import Cursor, Topic
from oncelog.engine.damage import damaged
from oncelog.engine.engine import Engine
from oncelog.engine.read_view import StreamView
from oncelog.engine.reads import ReadResult
from oncelog.errors import BatchInvalid, Corruption, StorageError
from oncelog.servers.counts import Counts

Told = Callable[[Outcome], None]
CURSOR_SCOPE = "nats:"


class Record(NamedTuple):
    """One record as the face needs it."""

    offset: int
    time_ns: int
    key: bytes | None
    value: bytes
    headers: Any


class SavedConsumer(NamedTuple):
    """A consumer as the log keeps it."""

    name: str
    topic: str
    partition: int
    row: Cursor


class Storable(NamedTuple):
    """A message as it is to be stored."""

    key: bytes
    payload: bytes
    headers: tuple[tuple[str, bytes | None], ...] = ()
    message_id: bytes = b""


class Piece(NamedTuple):
    """Part of a stream: records in order; what is missing up to `next` is a hole."""

    records: list[Record]
    next: int
    stable: int
    floor: int


class Log:
    """Reads and writes of one server."""

    def __init__(self, engine: Engine, counts: Counts) -> None:
        self.engine = engine
        self.counts = counts
        self.is_closed = False
        """The face has stopped: nothing of it reaches the engine any more."""

    def now_ns(self) -> int:
        """The log's time."""
        return self.engine.now_ns()

    def submit(self, command: Command, told: Told) -> None:
        """Any command."""
        if self.is_closed:
            return

        def counted(outcome: Outcome) -> None:
            self._count(outcome)
            told(outcome)

        self.engine.submit(command, counted)

    def _count(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Confirmed):
            self.counts.other(outcome)
        elif outcome.exceptions is None:
            self.counts.confirmed(outcome)
        else:
            self.counts.confirms += 1
            self.counts.records += outcome.next - outcome.first
            for one in outcome.exceptions.values():
                self._count(one)

    def topic(self, name: str) -> Topic | None:
        """As readers see it; None also if its row cannot be read, which is said aloud."""
        try:
            return self.engine.lookups.topic(name)
        except StorageError as error:
            self._say(error, name)
            return None

    def _say(self, error: StorageError, topic: str = "") -> None:
        self.counts.other(damaged(error), topic)

    def topics(self) -> list[Topic]:
        """All of them, but for those whose row is damaged: they are named, and end nothing."""
        found: list[Topic] = []
        after = ""
        skipped: list[Corruption] = []
        while True:
            page = self.engine.lookups.topics("", after, 1_000, skipped)
            found += [row for _, row in page.rows]
            if page.next is None:
                for error in skipped:
                    self._say(error)
                return found
            after = page.next

    def floor(self, stream_id: int) -> int:
        """The first retained offset."""
        stream = self._stream(stream_id)
        return 0 if stream is None else stream.floor

    def _stream(self, stream_id: int) -> StreamView | None:
        try:
            return self.engine.lookups.stream(stream_id)
        except StorageError as error:
            self._say(error)
            return None

    def stable(self, stream_id: int) -> int:
        """The end for readers."""
        stream = self._stream(stream_id)
        return 0 if stream is None else stream.stable

    def read(
        self, topic: str, partition: int, offset: int, bytes_max: int, found: Callable[[Piece | Refusal], None]
    ) -> None:
        """Records from `offset` on."""

        def decoded(result: ReadResult | Refusal) -> None:
            if isinstance(result, OffsetGone):
                found(Piece([], result.floor, result.floor + 1, result.floor))
                return
            if isinstance(result, Refusal):
                found(result)
                return
            records: list[Record] = []
            for batch in result.batches:
                try:
                    records += _records(batch.base_offset, batch.batch)
                except BatchInvalid:
                    continue
            if records and records[0].offset < offset:
                records = [record for record in records if record.offset >= offset]
            found(Piece(records, result.next_offset, result.stable, result.floor))

        self.engine.read(topic, partition, offset, bytes_max, decoded)

    def wait(self, topic: str, partition: int, offset: int, wake: Callable[[], None]) -> Any:
        """Call `wake` once there is something at or after `offset`; None if there is already."""
        try:
            return self.engine.wait(topic, partition, offset, wake)
        except StorageError as error:
            self._say(error, topic)
            return damaged(error)

    def cancel(self, waiter: Any) -> None:
        """End a wait."""
        self.engine.cancel(waiter)

    # --- writes ----------------------------------------------------------------------------------------------------

    def append_each(
        self, topic: str, partition: int, messages: list[Storable], told: Callable[[list[Outcome]], None]
    ) -> None:
        """Messages that stand or fall alone; one answer for each."""
        columns = Columns(
            topic,
            partition,
            [each.payload for each in messages],
            message_ids=[each.message_id for each in messages] if any(each.message_id for each in messages) else None,
            keys=[each.key for each in messages],
            headers=[each.headers for each in messages] if any(each.headers for each in messages) else None,
        )
        self.submit(columns, lambda outcome: told(each_outcome(outcome, columns)))

    def trim(self, topic: str, partition: int, floor: int, told: Told) -> None:
        """Raise the floor."""
        self.submit(Trim(topic, partition, floor, force=True), told)

    def delete(self, topic: str, partition: int, ranges: list[int], told: Told) -> None:
        """Remove single records."""
        self.submit(DeleteRecords(topic, partition, ranges), told)

    def set_consumer(self, name: str, topic: str, partition: int, start: int, text: bytes, told: Told) -> None:
        """Make a consumer that begins at `start`, or give it another configuration; its place stays then."""
        self.submit(SetConsumer(CURSOR_SCOPE + name, topic, partition, config=text, start=start), told)

    def update_consumers(self, updates: list[ConsumerUpdate], told: Told) -> None:
        """What consumers confirmed and what was delivered to them, all in one command."""
        self.submit(UpdateConsumers(updates), told)

    def delete_consumer(self, name: str, topic: str, partition: int, told: Told) -> None:
        """Forget a consumer."""
        self.submit(DeleteConsumer(CURSOR_SCOPE + name, [(topic, partition)]), told)

    def consumers(self, told: Callable[[list[SavedConsumer]], None]) -> None:
        """All consumers of this face."""
        found: list[SavedConsumer] = []

        def page(rows: list[Any], after: Any) -> None:
            for row in rows:
                name = row.name.removeprefix(CURSOR_SCOPE)
                found.append(SavedConsumer(name, row.topic, row.partition, row.cursor))
            if after is None:
                told(found)
            else:
                ask(after)

        def ask(after: Any) -> None:
            try:
                self.engine.lookups.cursors(CURSOR_SCOPE, after, 1_000, page)
            except StorageError as error:
                self._say(error)
                told(found)

        ask(None)


def _records(base: int, batch: bytes) -> list[Record]:
    return [
        Record(base + delta, timestamp_ms * 1_000_000, key, value or b"", headers)
        for delta, timestamp_ms, key, value, headers in codec.decode(batch)
    ]
