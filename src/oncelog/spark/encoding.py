"""From Spark's Arrow batches to stored batches: one queue per target stream, encoded when it is large enough.

A sink takes the columns of Spark's Kafka sink and one more: `value` (binary or text, required), `key`, `topic`,
`partition`, `headers`, `timestamp`, `message_id`. Rows of one task keep their order in each stream. Nothing is sent
from here.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncelog.client.packing import RECORD_BYTES_MAX
from oncelog.core import batch as codec
from oncelog.core.record import MESSAGE_ID_HEADER
from oncelog.limits import MIB
from oncelog.spark.columnar import encoded_columns
from oncelog.spark.options import BATCH_BYTES_MOST, OptionError
from oncelog.spark.routing import hashed_partitions

SINK_COLUMNS: Final = ("value", "key", "topic", "partition", "headers", "timestamp", "message_id")

RECORD_COST_BYTES: Final = 32
"""What stands around a record in a batch, at most, its headers aside."""

HELD_BYTES_MAX: Final = 64 * MIB
"""Rows of all queues of a task. Beyond it the fullest is emptied: a task may write to thousands of streams."""

BATCH_RECORDS: Final = 100_000
"""Rows of one batch: small ones would make a batch that takes long to check."""

Headers = tuple[tuple[str, bytes | None], ...]
"""Of one record."""

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


class Rows:
    """Rows of one stream, as Arrow has them. The lists are for those who need objects, and made when they ask.

    Columns: `value`, and `key`, `time_ms`, `headers`, `message_id` if Spark sent them.
    """

    def __init__(self, columns: Any) -> None:
        self.columns = columns

    def __len__(self) -> int:
        count: int = self.columns.num_rows
        return count

    @property
    def named(self) -> bool:
        """Whether they have message ids."""
        return "message_id" in self.columns.schema.names

    def column(self, name: str) -> Any | None:
        """None if Spark did not send it."""
        return self.columns.column(name) if name in self.columns.schema.names else None

    @cached_property
    def values(self) -> list[bytes | None]:
        return _bytes_list(self.columns.column("value"))

    @cached_property
    def keys(self) -> list[bytes | None]:
        """Empty, as the lists below, if there is no such column."""
        keys = self.column("key")
        return [] if keys is None else _bytes_list(keys)

    @cached_property
    def times_ms(self) -> list[int]:
        times = self.column("time_ms")
        return [] if times is None else np.asarray(times).tolist()

    @cached_property
    def headers(self) -> list[Headers]:
        headers = self.column("headers")
        return [] if headers is None else _header_pairs(headers)

    @cached_property
    def ids(self) -> list[str]:
        ids = self.column("message_id")
        return [] if ids is None else ids.to_pylist()


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
        self._parts: dict[Target, list[Any]] = {}
        self._sizes: dict[Target, list[Any]] = {}
        self._bytes: dict[Target, int] = {}
        self.row_count = 0
        """Rows taken so far: the number of the next one."""

    def add(self, batch: Any, ids: Sequence[str] | None = None) -> Iterator[tuple[Target, Rows]]:
        """Takes a record batch of Spark; yields the queues that are full. `ids`: for rows that bring none."""
        columns = {name: batch.column(number) for number, name in enumerate(batch.schema.names)}
        if ids is not None and "message_id" not in columns:
            columns["message_id"] = pa.array(ids, pa.string())
        rows = _kept(columns)
        sizes = _sizes(Rows(rows))
        self._spread += 1
        self.row_count += batch.num_rows
        for target, at in self._targets(columns, batch.num_rows):
            mine, of_mine = rows, sizes
            if at is not None and len(at) < batch.num_rows:
                mine, of_mine = rows.take(pa.array(at)), sizes[at]
            self._parts.setdefault(target, []).append(mine)
            self._sizes.setdefault(target, []).append(of_mine)
            self._bytes[target] = self._bytes.get(target, 0) + int(of_mine.sum())
            count = sum(len(part) for part in self._sizes[target])
            if self._bytes[target] >= self._batch_bytes or count >= BATCH_RECORDS:
                yield from self._taken(target)
        while sum(self._bytes.values()) > HELD_BYTES_MAX:
            yield from self._taken(max(self._bytes, key=self._bytes.__getitem__))

    def rest(self) -> Iterator[tuple[Target, Rows]]:
        """What is left, in the order of names."""
        for target in sorted(self._parts):
            yield from self._taken(target)

    def _taken(self, target: Target) -> Iterator[tuple[Target, Rows]]:
        """All of a queue, in batches of about equal size: the size that is wanted if there is enough, and less than
        twice that. So what Spark brings at once mostly becomes one batch as it is, and nothing is put together anew."""
        parts, sizes = self._parts.pop(target), np.concatenate(self._sizes.pop(target))
        rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        total = self._bytes.pop(target)
        pieces = max(1, total // self._batch_bytes, -(-total // BATCH_BYTES_MOST))
        piece_bytes = -(-total // pieces)
        ends = np.cumsum(sizes)
        first, count = 0, len(sizes)
        while first < count:
            before = int(ends[first - 1]) if first else 0
            fits = int(np.searchsorted(ends, before + piece_bytes, side="right"))
            next_ = min(max(first + 1, fits), first + BATCH_RECORDS, count)
            yield target, Rows(rows.slice(first, next_ - first))
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
            if int(np.asarray(columns["partition"].fill_null(0)).min(initial=0)) < 0:
                raise OptionError(
                    f"a row names partition {int(named.min())}; they count from 0, and null leaves it to the key"
                )
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


def _header_pairs(array: Any) -> list[Headers]:
    return [
        () if pairs is None else tuple((pair["key"] or "", pair["value"]) for pair in pairs if pair is not None)
        for pairs in array.to_pylist()
    ]


def _kept(columns: dict[str, Any]) -> Any:
    """What is stored of the rows, in one form whatever Spark sent. OptionError if an id is missing."""
    kept = {"value": _binary(columns["value"])}
    if "key" in columns:
        kept["key"] = _binary(columns["key"])
    if "timestamp" in columns:
        micros = columns["timestamp"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        now_ms = time.time_ns() // 1_000_000
        kept["time_ms"] = pa.array(np.asarray(micros.fill_null(now_ms * 1000)) // 1000, pa.int64())
    if "headers" in columns:
        kept["headers"] = columns["headers"]
    if "message_id" in columns:
        ids = columns["message_id"]
        if ids.null_count or (len(ids) and pc.min(pc.binary_length(ids)).as_py() == 0):
            raise OptionError("a row has no message_id: the column is null or empty")
        kept["message_id"] = ids
    return pa.RecordBatch.from_pydict(kept)


def _sizes(rows: Rows) -> Any:
    """Bytes of each row, about; a row over the limit is refused."""
    count = len(rows)
    sizes = np.full(count, RECORD_COST_BYTES, dtype=np.int64)
    for name in ("value", "key", "message_id"):
        column = rows.column(name)
        if column is not None:
            sizes += np.asarray(pc.binary_length(column).fill_null(0)).astype(np.int64)
    if rows.named:
        sizes += len(MESSAGE_ID_HEADER) + 4
    if rows.headers:
        sizes += np.array([sum(len(name) + len(value or b"") + 12 for name, value in row) for row in rows.headers])
    if count and int(sizes.max()) > RECORD_BYTES_MAX:
        raise OptionError(f"a row of {int(sizes.max()):,} bytes, and a record has at most {RECORD_BYTES_MAX:,}")
    return sizes


def encoded(rows: Rows) -> bytes:
    """One stored batch. Rows without a time get the task's clock; an id goes along as a header."""
    now_ms = time.time_ns() // 1_000_000
    if not rows.named and not any(rows.headers):
        keys, times = rows.column("key"), rows.column("time_ms")
        return encoded_columns(rows.column("value"), keys, now_ms if times is None else np.asarray(times))
    count = len(rows)
    keys = rows.keys or [None] * count
    times = rows.times_ms or [now_ms] * count
    headers = rows.headers or [()] * count
    if rows.ids:
        headers = [_named(pairs, name) for pairs, name in zip(headers, rows.ids, strict=True)]
    return codec.encode(list(zip(range(count), times, keys, rows.values, headers, strict=True)))


def _named(pairs: Headers, name: str) -> Headers:
    """A record that is handed on may bring the id that it had before: the row's own counts."""
    return (*(pair for pair in pairs if pair[0] != MESSAGE_ID_HEADER), (MESSAGE_ID_HEADER, name.encode()))
