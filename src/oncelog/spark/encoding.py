"""From Spark's Arrow batches to stored batches: one queue per target stream, encoded when it is large enough.

A sink takes the columns of Spark's Kafka sink and one more: `value` (binary or text, required), `key`, `topic`,
`partition`, `headers`, `timestamp`, `message_id`. Rows of one task keep their order in each stream. Nothing is sent
from here.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from oncelog.client.packing import RECORD_BYTES_MAX
from oncelog.client.wire import MESSAGE_ID_HEADER
from oncelog.core import batch as codec
from oncelog.limits import MIB
from oncelog.spark.options import OptionError
from oncelog.spark.routing import hashed_partitions

SINK_COLUMNS: Final = ("value", "key", "topic", "partition", "headers", "timestamp", "message_id")

RECORD_COST_BYTES: Final = 32
"""What stands around a record in a batch, at most, its headers aside."""

HELD_BYTES_MAX: Final = 64 * MIB
"""Rows of all queues of a task. Beyond it the fullest is emptied: a task may write to thousands of streams."""

BATCH_RECORDS: Final = 100_000
"""Rows of one batch: small ones would make a batch that takes long to check."""

_COLUMN_TYPES: Final = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
    "message_id": ("string",),
}


class Target(NamedTuple):
    """A stream that rows go to."""

    topic: str
    partition: int


class Rows(NamedTuple):
    """Rows of one stream. The list of a column that Spark did not send is empty, all others are as long as `values`."""

    values: list[bytes | None]
    keys: list[bytes | None]
    times_ms: list[int]
    headers: list[tuple[tuple[str, bytes | None], ...]]
    ids: list[str]

    def extend(self, more: "Rows") -> None:
        self.values.extend(more.values)
        self.keys.extend(more.keys)
        self.times_ms.extend(more.times_ms)
        self.headers.extend(more.headers)
        self.ids.extend(more.ids)

    def part(self, rows: slice) -> "Rows":
        """Some neighbours."""
        return Rows(self.values[rows], self.keys[rows], self.times_ms[rows], self.headers[rows], self.ids[rows])

    def picked(self, at: list[int]) -> "Rows":
        """Those at these places."""
        return Rows(
            [self.values[row] for row in at],
            [self.keys[row] for row in at] if self.keys else [],
            [self.times_ms[row] for row in at] if self.times_ms else [],
            [self.headers[row] for row in at] if self.headers else [],
            [self.ids[row] for row in at] if self.ids else [],
        )


def no_rows() -> Rows:
    return Rows([], [], [], [], [])


def check_schema(fields: Sequence[tuple[str, str]], *, topic_given: bool) -> None:
    """OptionError if the rows cannot be written. `fields`: name and type as Spark's SQL spells it."""
    names = [name for name, _ in fields]
    for name, kind in fields:
        if name not in SINK_COLUMNS:
            raise OptionError(f"column {name!r}: a sink takes {', '.join(SINK_COLUMNS)}; select them")
        if kind not in _COLUMN_TYPES[name]:
            raise OptionError(f"column {name!r} is {kind}, and must be {' or '.join(_COLUMN_TYPES[name])}; cast it")
    if "value" not in names:
        raise OptionError("there is no column 'value' to write")
    if "topic" not in names and not topic_given:
        raise OptionError("there is neither an option topic nor a column 'topic'")


class Queues:
    """Rows by target, until there are enough of them for a batch."""

    def __init__(
        self, topic: str, partition: int, spread: int, partitions_of: Callable[[str], int], *, batch_bytes: int
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._spread = spread
        """Moves on with every record batch: rows without a key go to one partition at a time, in full batches."""
        self._partitions_of = partitions_of
        self._batch_bytes = batch_bytes
        self._rows: dict[Target, Rows] = {}
        self._sizes: dict[Target, list[Any]] = {}
        self._bytes: dict[Target, int] = {}
        self.row_count = 0
        """Rows taken so far: the number of the next one."""

    def add(self, batch: Any, ids: Sequence[str] | None = None) -> Iterator[tuple[Target, Rows]]:
        """Takes a record batch of Spark; yields the queues that are full. `ids`: for rows that bring none."""
        columns = {name: batch.column(number) for number, name in enumerate(batch.schema.names)}
        if ids is not None and "message_id" not in columns:
            columns["message_id"] = pa.array(ids, pa.string())
        rows = _rows_of(columns)
        sizes = _sizes(columns, rows)
        self._spread += 1
        self.row_count += batch.num_rows
        for target, at in self._targets(columns, batch.num_rows):
            mine, of_mine = rows, sizes
            if at is not None:
                mine = rows.picked(at.tolist())
                of_mine = sizes[at]
            self._rows.setdefault(target, no_rows()).extend(mine)
            self._sizes.setdefault(target, []).append(of_mine)
            self._bytes[target] = self._bytes.get(target, 0) + int(of_mine.sum())
            if self._bytes[target] >= self._batch_bytes or len(self._rows[target].values) >= BATCH_RECORDS:
                yield from self._taken(target, whole=False)
        while sum(self._bytes.values()) > HELD_BYTES_MAX:
            yield from self._taken(max(self._bytes, key=self._bytes.__getitem__), whole=True)

    def rest(self) -> Iterator[tuple[Target, Rows]]:
        """What is left, in the order of names."""
        for target in sorted(self._rows):
            yield from self._taken(target, whole=True)

    def _taken(self, target: Target, *, whole: bool) -> Iterator[tuple[Target, Rows]]:
        """Batches from the front of a queue. Unless it is the `whole` queue, what does not fill one stays."""
        rows, sizes = self._rows.pop(target), np.concatenate(self._sizes.pop(target))
        del self._bytes[target]
        ends = np.cumsum(sizes)
        first, count = 0, len(sizes)
        while first < count:
            before = int(ends[first - 1]) if first else 0
            fits = int(np.searchsorted(ends, before + self._batch_bytes, side="right"))
            next_ = max(first + 1, min(fits, first + BATCH_RECORDS))
            if next_ >= count and not whole:
                self._rows[target] = rows.part(slice(first, count))
                self._sizes[target] = [sizes[first:]]
                self._bytes[target] = int(sizes[first:].sum())
                return
            yield target, rows.part(slice(first, next_))
            first = next_

    def _targets(self, columns: dict[str, Any], count: int) -> Iterator[tuple[Target, Any]]:
        """Every target with its rows, ascending; None for all of them."""
        if count == 0:
            return
        if "topic" not in columns:
            yield from self._partitioned(self._topic, columns, None, count)
            return
        topics = columns["topic"].fill_null(self._topic).dictionary_encode()
        codes = np.asarray(topics.indices)
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            if not topic:
                raise OptionError("a row has no topic: column 'topic' is null, and there is no option topic")
            yield from self._partitioned(topic, columns, np.nonzero(codes == code)[0], count)

    def _partitioned(self, topic: str, columns: dict[str, Any], at: Any, count: int) -> Iterator[tuple[Target, Any]]:
        partition_count = self._partitions_of(topic)
        chosen = self._chosen(columns, partition_count, count)
        if chosen is None:
            yield Target(topic, self._spread % partition_count), at
            return
        chosen = np.where(chosen < 0, self._spread % partition_count, chosen)
        if at is not None:
            chosen = chosen[at]
        if int(chosen.max(initial=0)) >= partition_count:
            raise OptionError(f"a row names partition {int(chosen.max())} of {topic!r}, which has {partition_count}")
        for partition in np.unique(chosen).tolist():
            inside = np.nonzero(chosen == partition)[0]
            yield Target(topic, partition), inside if at is None else at[inside]

    def _chosen(self, columns: dict[str, Any], partition_count: int, count: int) -> Any:
        """A partition for each row, -1 where nothing says which; None if nothing says it for any."""
        chosen = None
        # With an id, a row must come to the same stream each time: that is where the id is known.
        for name in ("message_id", "key"):
            if name in columns:
                found = hashed_partitions(_binary(columns[name]), partition_count)
                chosen = found if chosen is None else np.where(found >= 0, found, chosen)
        if "partition" in columns:
            named = np.asarray(columns["partition"].fill_null(-1)).astype(np.int64)
            chosen = named if chosen is None else np.where(named >= 0, named, chosen)
        if self._partition >= 0:
            base = np.full(count, -1) if chosen is None or "partition" not in columns else named
            chosen = np.where(base >= 0, base, self._partition)
        return chosen


def _binary(array: Any) -> Any:
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _bytes_list(array: Any) -> list[bytes | None]:
    # Through numpy, which makes the objects in C; `to_pylist` makes a scalar for each first.
    listed: list[bytes | None] = _binary(array).to_numpy(zero_copy_only=False).tolist()
    return listed


def _rows_of(columns: dict[str, Any]) -> Rows:
    keys: list[bytes | None] = []
    if "key" in columns:
        keys = _bytes_list(columns["key"])
    times_ms: list[int] = []
    if "timestamp" in columns:
        micros = columns["timestamp"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        now_ms = time.time_ns() // 1_000_000
        times_ms = (np.asarray(micros.fill_null(now_ms * 1000)) // 1000).tolist()
    headers: list[tuple[tuple[str, bytes | None], ...]] = []
    if "headers" in columns:
        headers = [
            () if pairs is None else tuple((pair["key"] or "", pair["value"]) for pair in pairs if pair is not None)
            for pairs in columns["headers"].to_pylist()
        ]
    ids: list[str] = columns["message_id"].to_pylist() if "message_id" in columns else []
    if any(not name for name in ids):
        raise OptionError("a row has no message_id: the column is null or empty")
    return Rows(_bytes_list(columns["value"]), keys, times_ms, headers, ids)


def _sizes(columns: dict[str, Any], rows: Rows) -> Any:
    """Bytes of each row, about; a row over the limit is refused."""
    count = len(rows.values)
    sizes = np.full(count, RECORD_COST_BYTES, dtype=np.int64)
    for name in ("value", "key"):
        if name in columns:
            lengths = pa.compute.binary_length(_binary(columns[name])).fill_null(0)
            sizes += np.asarray(lengths).astype(np.int64)
    if rows.ids:
        sizes += len(MESSAGE_ID_HEADER) + np.array([len(name) + 4 for name in rows.ids])
    if rows.headers:
        sizes += np.array([sum(len(name) + len(value or b"") + 12 for name, value in row) for row in rows.headers])
    if count and int(sizes.max()) > RECORD_BYTES_MAX:
        raise OptionError(f"a row of {int(sizes.max()):,} bytes, and a record has at most {RECORD_BYTES_MAX:,}")
    return sizes


def encoded(rows: Rows) -> bytes:
    """One stored batch. Rows without a time get the task's clock; an id goes along as a header."""
    now_ms = time.time_ns() // 1_000_000
    values = rows.values
    keyless = rows.keys.count(None) == len(rows.keys)
    if keyless and not rows.times_ms and not rows.ids and not any(rows.headers) and None not in values:
        return codec.encode_values(values, now_ms)  # type: ignore[arg-type]
    count = len(values)
    keys = rows.keys or [None] * count
    times = rows.times_ms or [now_ms] * count
    headers = rows.headers or [()] * count
    if rows.ids:
        headers = [(*pairs, (MESSAGE_ID_HEADER, name.encode())) for pairs, name in zip(headers, rows.ids, strict=True)]
    return codec.encode(list(zip(range(count), times, keys, values, headers, strict=True)))
