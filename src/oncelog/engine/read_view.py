"""The first door: what readers may see. It changes only when a group has become durable, all of its changes at once.

A row here is newer than the index. What is not here, the index knows as well (it is built from durable groups only),
so dropping a row once the index has it changes nothing. Invariant: nothing in the view was made by an entry above
`entry_number`, and every entry up to it is visible (P4, P12).
"""

from typing import Any, NamedTuple

from mypy_extensions import mypyc_attr

from oncelog import limits
from oncelog.core.flat import Flat, Stream
from oncelog.core.holes import change, find
from oncelog.core.rows import HoleChunk, Table, Topic, chunk_of
from oncelog.core.state import State
from oncelog.storage.index.interface import Index


@mypyc_attr(acyclic=True)
class StreamView(Flat):
    """Where a stream stands for readers."""

    __slots__ = ("closed", "deleted", "floor", "hole_count", "stable", "stream_id", "tail", "time_ns")

    def __init__(
        self,
        stream_id: int,
        floor: int,
        stable: int,
        tail: int,
        closed: bool,
        hole_count: int,
        time_ns: int,
        deleted: bool,
    ) -> None:
        self.stream_id = stream_id
        self.floor = floor
        self.stable = stable
        self.tail = tail
        self.closed = closed
        self.hole_count = hole_count
        self.time_ns = time_ns
        self.deleted = deleted

    def fields(self) -> tuple[Any, ...]:
        return (
            self.stream_id,
            self.floor,
            self.stable,
            self.tail,
            self.closed,
            self.hole_count,
            self.time_ns,
            self.deleted,
        )


class HoleChange(NamedTuple):
    """What a group changes of one chunk of holes: flat (first, next, cause, producer id)."""

    is_whole: bool
    """The view does not have the chunk: these are all of its holes. Else they are added to those that it has."""
    holes: list[int]


class ViewChanges(NamedTuple):
    """What one group will change, taken when it is handed over to be written."""

    streams: dict[int, StreamView]
    topics: dict[str, Topic | None]
    holes: dict[tuple[int, int], HoleChange]


def view_of(row: Stream) -> StreamView:
    """A stream's row as readers see it."""
    return StreamView(
        row.stream_id,
        row.floor,
        row.stable if row.open_txns else row.tail,
        row.tail,
        row.closed,
        row.hole_count,
        row.time_ns,
        row.deleted_ns != 0,
    )


def take_changes(state: State, view: "ReadView") -> ViewChanges:
    """Copy what changed since the group before was handed over; the rows themselves go on changing. A chunk of holes
    that the view has is not copied: it gets what was added, when the group is durable."""
    streams: dict[int, StreamView] = {}
    for stream_id in state.changed_streams:
        row = state.streams[stream_id]
        assert row is not None
        streams[stream_id] = view_of(row)
    state.changed_streams.clear()
    topics: dict[str, Topic | None] = {}
    holes: dict[tuple[int, int], HoleChange] = {}
    if state.changed_topics:
        for name in state.changed_topics:
            topic = state.topics[name]
            topics[name] = topic and Topic(
                topic.topic_id, topic.name, list(topic.stream_ids), topic.config, topic.created_ns
            )
        state.changed_topics.clear()
    if state.changed_holes:
        for key, added in state.changed_holes.items():
            if key in view.holes:
                holes[key] = HoleChange(False, added)
            else:
                chunk = state.holes[key]
                assert chunk is not None
                holes[key] = HoleChange(True, list(chunk.holes))
        state.changed_holes = {}
    return ViewChanges(streams, topics, holes)


class ReadView:
    """Rows newer than the index, over the index."""

    def __init__(self, index: Index, entry_number: int) -> None:
        self._index = index
        self.entry_number = entry_number
        """The last entry that readers see."""
        self.streams: dict[int, StreamView] = {}
        self.topics: dict[str, Topic | None] = {}
        self.holes: dict[tuple[int, int], HoleChunk] = {}
        """Changed in place. The generations drop none that a group in flight will change: its key is touched."""

    def reveal(self, changes: ViewChanges, entry_number: int) -> None:
        """Let readers see a durable group."""
        assert entry_number >= self.entry_number
        self.streams.update(changes.streams)
        if changes.topics:
            self.topics.update(changes.topics)
        if changes.holes:
            for key, change_ in changes.holes.items():
                if change_.is_whole:
                    self.holes[key] = HoleChunk(change_.holes)
                    continue
                chunk, added = self.holes[key], change_.holes
                for at in range(0, len(added), 4):
                    change(chunk, added[at], added[at + 1], added[at + 2], added[at + 3])
        self.entry_number = entry_number

    def stream(self, stream_id: int) -> StreamView | None:
        """Where a stream stands; None if there is none, or it was deleted."""
        view = self.streams.get(stream_id)
        if view is None:
            row = self._index.get(Table.STREAM, stream_id)
            if row is None:
                return None
            assert isinstance(row, Stream)
            view = view_of(row)
        return None if view.deleted else view

    def topic(self, name: str) -> Topic | None:
        """The topic of a name."""
        if name in self.topics:
            return self.topics[name]
        row = self._index.get(Table.TOPIC, name)
        assert row is None or isinstance(row, Topic)
        return row

    def holes_between(
        self, view: StreamView, first: int, next_: int, loaded: dict[int, HoleChunk | None] | None = None
    ) -> list[tuple[int, int, int, int]]:
        """Holes that meet [first, next_), in order: (first, next, cause, producer id). One who asks for many
        stretches in a row, without giving way to the loop, gives `loaded`: it keeps the last chunk, decoded."""
        found: list[tuple[int, int, int, int]] = []
        if not view.hole_count or first >= next_:
            return found
        for number in range(chunk_of(first), chunk_of(next_ - 1) + 1):
            if loaded is None:
                chunk = self._chunk(view.stream_id, number)
            else:
                if number not in loaded:
                    loaded.clear()
                    loaded[number] = self._chunk(view.stream_id, number)
                chunk = loaded[number]
            if chunk is None:
                continue
            flat = chunk.holes
            for at in range(4 * find(chunk, first), len(flat), 4):
                if flat[at] >= next_:
                    break
                found.append((flat[at], flat[at + 1], flat[at + 2], flat[at + 3]))
        return found

    def _chunk(self, stream_id: int, number: int) -> HoleChunk | None:
        chunk = self.holes.get((stream_id, number))
        if chunk is not None:
            return chunk
        row = self._index.get(Table.HOLES, (stream_id, number))
        assert row is None or isinstance(row, HoleChunk)
        return row

    def first_live(self, view: StreamView, offset: int) -> int:
        """The first offset at or after `offset` that may be delivered; `stable` if there is none yet."""
        offset = max(offset, view.floor)
        while view.hole_count and offset < view.stable:
            end = min(view.stable, (chunk_of(offset) + 1) << limits.HOLE_CHUNK_BITS)
            stepped = offset
            for first, next_, _, _ in self.holes_between(view, offset, end):
                if first > stepped:
                    break
                stepped = next_
            if stepped < end:
                return min(stepped, view.stable)
            offset = stepped
        return min(offset, view.stable)
