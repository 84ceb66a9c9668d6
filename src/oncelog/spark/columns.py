"""The source's columns: Spark's schema, Arrow's, and the way from stored batches to Arrow record batches.

Rows are never made. The codec fills Arrow's buffers from the stored bytes, and pyarrow wraps them without a copy. Text
of the topic and the like is the same in every row and costs nothing worth saving.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import pyarrow as pa

from oncelog.client import OffsetGone
from oncelog.core import batch as codec
from oncelog.core.batch_arrow import ArrowBuffers, ArrowColumns, BinaryColumn
from oncelog.errors import BatchInvalid
from oncelog.limits import MIB
from oncelog.spark import planning
from oncelog.spark.link import Link, RawAnswer
from oncelog.spark.options import HEADERS
from oncelog.spark.planning import OffsetLost, Range

SQL_TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}

RECORD_BATCH_BYTES: Final = 2 * MIB
"""A record batch is handed to Spark at this size, and passed on as it is. To Spark 1 to 16 MB are the same; for us 1 to
2 MB cost a tenth less than 8, since what was just decoded is still in the cache when it is packed."""

_HEADER_STRUCT: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_ARROW_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS: pa.list_(pa.field("element", _HEADER_STRUCT)),
}


def sql_schema(columns: Sequence[str]) -> str:
    """As Spark spells it."""
    return ", ".join(f"{name} {SQL_TYPES[name]}" for name in columns)


def arrow_schema(columns: Sequence[str]) -> Any:
    """As Arrow spells it."""
    return pa.schema([pa.field(name, _ARROW_TYPES[name]) for name in columns])


class RecordBatches:
    """Collects stored batches of one range and gives them out as Arrow record batches."""

    def __init__(self, range_: Range, columns: Sequence[str]) -> None:
        self._range = range_
        self._names = tuple(columns)
        self._schema = arrow_schema(columns)
        self._columns = ArrowColumns(timestamp_unit="us", headers=HEADERS in columns)
        self._types: list[int] = []
        self._type_rows: list[int] = []

    @property
    def full(self) -> bool:
        """Whether it is time to `finish`."""
        return self._columns.size_bytes >= RECORD_BATCH_BYTES

    def add(self, body: bytes) -> Iterator[Any]:
        """Takes an answer of the server; yields what became full."""
        at = 0
        first, next_ = self._range.first, self._range.next
        while at < len(body):
            header = codec.read_header(body, at)
            if header.base_offset >= next_:
                return
            batch = body[at : at + header.batch_bytes]
            at += header.batch_bytes
            if not codec.check_crc(batch):
                raise BatchInvalid(f"the batch at offset {header.base_offset} was damaged on its way", at)
            rows = self._columns.add(batch, header.base_offset, first, next_)
            self._types.append(1 if header.attributes & codec.TIMESTAMP_LOG_APPEND else 0)
            self._type_rows.append(rows)
            if self.full:
                yield self.finish()

    @property
    def row_count(self) -> int:
        return self._columns.row_count

    def finish(self) -> Any:
        """What was collected, as one record batch."""
        buffers = self._columns.finish()
        types = np.repeat(np.array(self._types, dtype=np.int32), self._type_rows)
        self._types, self._type_rows = [], []
        arrays = [self._array(name, buffers, types) for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, name: str, buffers: ArrowBuffers, types: Any) -> Any:
        rows = buffers.row_count
        match name:
            case "key":
                return _binary(buffers.key, rows, pa.binary())
            case "value":
                return _binary(buffers.value, rows, pa.binary())
            case "topic":
                return pa.repeat(pa.scalar(self._range.topic, pa.string()), rows)
            case "partition":
                return pa.repeat(pa.scalar(self._range.partition, pa.int32()), rows)
            case "offset":
                return pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(buffers.offset)])
            case "timestamp":
                return pa.Array.from_buffers(_ARROW_TYPES[name], rows, [None, pa.py_buffer(buffers.timestamp)])
            case "timestampType":
                return pa.array(types, pa.int32())
            case _:
                return _headers(buffers, rows)


def _binary(column: BinaryColumn, rows: int, kind: Any) -> Any:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    parts = [validity, pa.py_buffer(column.ends), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, parts, column.null_count)


def _headers(buffers: ArrowBuffers, rows: int) -> Any:
    assert buffers.header_ends is not None
    assert buffers.header_key is not None
    assert buffers.header_value is not None
    count = len(buffers.header_key.ends) // 4 - 1
    keys = _binary(buffers.header_key, count, pa.string())
    contents = _binary(buffers.header_value, count, pa.binary())
    pairs = pa.StructArray.from_arrays([keys, contents], fields=list(_HEADER_STRUCT))
    ends = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(buffers.header_ends)])
    return pa.ListArray.from_arrays(ends, pairs, type=_ARROW_TYPES[HEADERS])


def record_batches(
    range_: Range, columns: Sequence[str], url: str, request_timeout_ms: int, *, fail_on_data_loss: bool
) -> Iterator[Any]:
    """Everything in the range. Runs in an executor; the next answer is on its way while the one before is decoded."""
    collected = RecordBatches(range_, columns)
    with Link(url, request_timeout_ms) as link, ThreadPoolExecutor(1) as ahead:

        def ask(offset: int) -> "Future[RawAnswer]":
            return ahead.submit(link.read_raw, range_.topic, range_.partition, offset)

        offset = range_.first
        asked = ask(offset)
        while True:
            try:
                answer = asked.result()
            except OffsetGone as gone:
                if fail_on_data_loss or gone.floor <= offset:
                    raise OffsetLost(f"offset {offset:,} was trimmed while it was read: {gone}") from gone
                offset = gone.floor
                if offset >= range_.next:
                    break
                asked = ask(offset)
                continue
            if planning.made_anew(range_.created_ms, answer.created_ms):
                raise OffsetLost(f"the topic {range_.topic!r} was deleted and created again while it was read")
            done = answer.next_offset >= range_.next
            if not done and (answer.next_offset <= offset or answer.up_to_date):
                raise OffsetLost(f"{range_} ends at {answer.next_offset:,} on this server")
            offset = answer.next_offset
            if not done:
                asked = ask(offset)
            yield from collected.add(answer.body)
            if done:
                break
        if collected.row_count:
            yield collected.finish()
