"""Retention: floors rise by the age, the size and the count that a topic allows.

Topics with a limit are known from the start (a slice of all topics is looked through at every check until all were) and
then from every group that changes a topic. At each check the floor of some streams is worked out and handed in as an
ordinary `Trim`, so it is an entry like any other and a replay needs no clock. The core clamps it at open transactions
and pinned consumers; this module knows which consumer held a stream back.

- Age: records whose append time is more than `retention_ms` ago. A heap says when each stream is next due.
- Size: at least `retention_bytes` of stored batches stay. Sizes are added up once, in steps of a 64th of the limit.
- Count: `retention_records` records stay, holes not counted.

Streams are looked at again after they have changed, a bounded number per check, oldest first.
"""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple

from oncelog import limits
from oncelog.core.command import Trim
from oncelog.core.outcome import Outcome, StreamDone
from oncelog.core.rows import Key, Table, Topic, TopicConfig
from oncelog.engine.read_view import ReadView, StreamView, ViewChanges
from oncelog.engine.reader import Reader
from oncelog.engine.seek import border
from oncelog.engine.timers import Deadlines
from oncelog.errors import Corruption, StorageError
from oncelog.storage.index.interface import Index

NS_PER_MS = 1_000_000
Submit = Callable[[Trim, Callable[[Outcome], None]], object]


def has_limit(config: TopicConfig) -> bool:
    """Whether records of the topic go by themselves."""
    return bool(config.retention_ms or config.retention_bytes or config.retention_records)


class HeldBack(NamedTuple):
    """A stream that keeps more than its topic allows."""

    topic: str
    partition: int
    floor: int
    """Where it stands."""
    wanted: int
    """Where it should stand."""


class _Sizes:
    """The stored bytes of one stream from its floor on, added up in steps."""

    __slots__ = ("counted_to", "steps", "total")

    def __init__(self, floor: int) -> None:
        self.counted_to = floor
        self.steps: deque[tuple[int, int]] = deque()
        """(offset at which the step ends, its bytes)."""
        self.total = 0

    def add(self, next_: int, size: int, step_bytes: int) -> None:
        """One more batch."""
        self.counted_to = next_
        self.total += size
        if self.steps and self.steps[-1][1] < step_bytes:
            size += self.steps.pop()[1]
        self.steps.append((next_, size))

    def floor_for(self, floor: int, bytes_max: int) -> int:
        """The highest floor that leaves at least `bytes_max` bytes."""
        while self.steps and self.steps[0][0] <= floor:
            self.total -= self.steps.popleft()[1]
        self.counted_to = max(self.counted_to, floor)
        left = self.total
        for end, size in self.steps:
            if left - size < bytes_max:
                break
            left -= size
            floor = end
        return floor


class _Watched:
    """A stream of a topic that has a limit."""

    __slots__ = ("config", "partition", "sizes", "topic")

    def __init__(self, topic: str, partition: int, config: TopicConfig) -> None:
        self.topic = topic
        self.partition = partition
        self.config = config
        self.sizes: _Sizes | None = None


class Retention:
    """Of one engine, on its loop's thread."""

    def __init__(self, view: ReadView, index: Index, reader: Reader, submit: Submit) -> None:
        self._view = view
        self._index = index
        self._reader = reader
        self._submit = submit
        self._watched: dict[int, _Watched] = {}
        self._of_topic: dict[str, list[int]] = {}
        self._changed: dict[int, None] = {}
        self._ages = Deadlines[int]()
        self._scanned_to: Key | None = None
        self._is_scanned = False
        self.held_back: dict[int, HeldBack] = {}
        """Streams that a pinned consumer keeps from being trimmed."""
        self.trims_total = 0
        self._batches_left = 0
        for name, topic in list(view.topics.items()):
            self._topic_changed(name, topic, 0)

    def changed(self, changes: ViewChanges, now_ns: int) -> None:
        """A group is durable."""
        for name, topic in changes.topics.items():
            self._topic_changed(name, topic, now_ns)
        if self._watched:
            self._note(changes.streams)

    def _note(self, stream_ids: Iterable[int]) -> None:
        watched = self._watched
        for stream_id in stream_ids:
            found = watched.get(stream_id)
            if found is not None and (found.config.retention_bytes or found.config.retention_records):
                self._changed[stream_id] = None

    def _topic_changed(self, name: str, topic: Topic | None, now_ns: int) -> None:
        for stream_id in self._of_topic.pop(name, ()):
            del self._watched[stream_id]
            self._changed.pop(stream_id, None)
            self._ages.remove(stream_id)
            self.held_back.pop(stream_id, None)
        if topic is None or not has_limit(topic.config):
            return
        self._of_topic[name] = list(topic.stream_ids)
        for partition, stream_id in enumerate(topic.stream_ids):
            self._watched[stream_id] = _Watched(name, partition, topic.config)
            self._changed[stream_id] = None
            if topic.config.retention_ms:
                self._ages.set(stream_id, now_ns)

    # --- checks ----------------------------------------------------------------------------------------------------

    def check(self, now_ns: int) -> None:
        """Look at the streams that are due, a bounded number of them."""
        if not self._is_scanned:
            with suppress(StorageError):  # the next check tries again
                self._scan(now_ns)
        for stream_id in self._ages.take(now_ns):
            self._changed[stream_id] = None
        self._batches_left = limits.RETENTION_BATCHES_PER_CHECK
        for stream_id in list(islice(self._changed, limits.RETENTION_STREAMS_PER_CHECK)):
            if self._batches_left <= 0:
                return
            del self._changed[stream_id]
            try:
                self._look_at(stream_id, now_ns)
            except StorageError:
                continue  # the stream is damaged: a reader of it reports that; it is looked at when it changes

    def _scan(self, now_ns: int) -> None:
        """Some more of the topics that the index had when the log was opened."""
        damaged: list[Corruption] = []  # a reader of such a topic reports it
        rows = self._index.scan(Table.TOPIC, self._scanned_to, limits.RETENTION_TOPICS_PER_CHECK, "", damaged)
        self._is_scanned = not rows
        for key, row in rows:
            self._scanned_to = key
            assert isinstance(row, Topic)
            if has_limit(row.config) and row.name not in self._of_topic:
                self._topic_changed(row.name, self._view.topic(row.name), now_ns)

    def _look_at(self, stream_id: int, now_ns: int) -> None:
        watched = self._watched[stream_id]
        stream = self._view.stream(stream_id)
        if stream is None:
            return
        config = watched.config
        wanted = stream.floor
        if config.retention_ms:
            earliest_ns = now_ns - config.retention_ms * NS_PER_MS
            wanted, _ = border(self._reader, stream, lambda place: place.time_ns >= earliest_ns)
            self._ages.set(stream_id, self._due_ns(stream, wanted, now_ns, config.retention_ms * NS_PER_MS))
        if config.retention_records:
            wanted = max(wanted, self._floor_by_count(stream, config.retention_records))
        if config.retention_bytes:
            wanted = max(wanted, self._floor_by_size(stream, watched))
        if wanted > stream.floor:
            command = Trim(watched.topic, watched.partition, wanted, as_far_as_allowed=True)
            self.trims_total += 1
            self._submit(command, partial(self._trimmed, stream_id, wanted))
        else:
            self.held_back.pop(stream_id, None)

    def _due_ns(self, stream: StreamView, floor: int, now_ns: int, age_ns: int) -> int:
        """When the oldest record that stays will be too old."""
        if floor >= stream.stable:
            return now_ns + age_ns
        return max(self._reader.row_of(stream.stream_id, floor).time_ns + age_ns, now_ns) + NS_PER_MS

    def _floor_by_count(self, stream: StreamView, records: int) -> int:
        """The highest floor that leaves so many records below stable."""
        floor, missing = stream.stable, records
        while missing > 0 and floor > stream.floor:
            end, floor = floor, max(stream.floor, floor - missing)
            holes = self._view.holes_between(stream, floor, end)
            missing -= end - floor - sum(min(next_, end) - max(first, floor) for first, next_, _, _ in holes)
        return floor

    def _floor_by_size(self, stream: StreamView, watched: _Watched) -> int:
        bytes_max = watched.config.retention_bytes
        sizes = watched.sizes
        if sizes is None:
            sizes = watched.sizes = _Sizes(stream.floor)
        batches = self._reader.batches(stream, max(sizes.counted_to, stream.floor), stream.stable)
        for base_offset, place in islice(batches, self._batches_left):
            self._batches_left -= 1
            sizes.add(base_offset + place.count, place.length, bytes_max // 64)
        if sizes.counted_to < stream.stable:
            self._changed[stream.stream_id] = None
        return sizes.floor_for(stream.floor, bytes_max)

    def _trimmed(self, stream_id: int, wanted: int, outcome: Outcome) -> None:
        watched = self._watched.get(stream_id)
        if watched is None:
            return
        if isinstance(outcome, StreamDone) and outcome.floor < wanted:
            self.held_back[stream_id] = HeldBack(watched.topic, watched.partition, outcome.floor, wanted)
        else:
            self.held_back.pop(stream_id, None)
