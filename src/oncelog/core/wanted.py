"""Collects the keys that a command or an entry needs and the state does not have. Reads the state, nothing else."""

from collections.abc import Callable, Iterable, Sequence

from oncelog.core import command as c
from oncelog.core import holes, message_id
from oncelog.core.flat import Stream
from oncelog.core.rows import Key, Table, TableKey, chunk_of
from oncelog.core.state import State


class Wanted:
    """Collects the keys that are not loaded."""

    __slots__ = ("missing", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self.missing: list[TableKey] = []

    def row(self, table: Table, key: Key) -> bool:
        """True if the row is loaded (it may still be absent)."""
        if key in self.state.tables[table]:
            return True
        self.missing.append((table, key))
        return False

    def stream(self, topic: str, partition: int) -> Stream | None:
        """The stream of a name, as far as it is loaded."""
        if not self.row(Table.TOPIC, topic):
            return None
        row = self.state.topics[topic]
        if row is None or not 0 <= partition < len(row.stream_ids):
            return None
        if not self.row(Table.STREAM, row.stream_ids[partition]):
            return None
        return self.state.streams[row.stream_ids[partition]]

    def chunks(self, stream: Stream, first: int, next_: int) -> None:
        """The holes among [first, next_)."""
        for number in range(chunk_of(first), chunk_of(max(first, next_ - 1)) + 1):
            self.row(Table.HOLES, (stream.stream_id, number))

    def walk(self, walk: Callable[[], object]) -> None:
        """A walk over chunks that stops at the first one that is not loaded."""
        try:
            walk()
        except holes.ChunkMissing as missing:
            self.missing += [(Table.HOLES, key) for key in missing.keys]

    def found_id(self, stream: Stream, message_id_: bytes) -> None:
        """The rows that say whether a found id still counts and whether its record is gone."""
        value = self.state.find_id(message_id.id_hash(stream, message_id_)) if message_id_ else None
        if value is None:
            return
        _, stream_id, offset, _, _ = message_id.unpack(value)
        if self.row(Table.STREAM, stream_id):
            stored = self.state.streams[stream_id]
            if stored is not None and stored.hole_count:
                self.row(Table.HOLES, (stream_id, chunk_of(offset)))

    def producer(self, stream_id: int, name: str) -> None:
        """A producer's row, and the streams that tell whether what it wrote is still there."""
        if self.row(Table.PRODUCER, (stream_id, name)):
            producer = self.state.producers[(stream_id, name)]
            if producer is not None:
                for written in producer.batches:
                    self.outcome(written.outcome or ())

    def outcome(self, outcome: Sequence[int]) -> None:
        """The streams of a flat (stream, first, next) outcome."""
        for stream_id in outcome[::3]:
            self.row(Table.STREAM, stream_id)

    def moves(self, moves: Iterable[c.CursorMove]) -> None:
        """Streams and cursors of moves."""
        for move in moves:
            stream = self.stream(move.topic, move.partition)
            if stream is not None:
                self.row(Table.CURSOR, (move.name, stream.stream_id))
