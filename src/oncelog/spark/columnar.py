"""Columns of Arrow to one stored batch, without an object for any row: what `core.batch.encode` gives, byte for byte.

A record of format 2 is a few small numbers, the key, a number, the value and the count of headers:

    length  0  timestamp delta  offset delta  key length │ key │ value length │ value │ 0

Lengths and deltas are zigzag varints, a null's length is -1. The numbers of all rows are made at once with numpy, as
two columns of bytes; Arrow then joins five columns row by row. With all around it, a quarter less CPU than objects.
Only records without headers are made so; the others go through the codec.
"""

from functools import cache
from struct import Struct
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from oncelog.core import batch as codec
from oncelog.limits import BATCH_RECORDS_MAX

_BEFORE_CRC: Final = Struct(">qiibI")
_AFTER_CRC: Final = Struct(">hiqqqhii")
assert _BEFORE_CRC.size == codec.ATTRIBUTES_AT
assert _BEFORE_CRC.size + _AFTER_CRC.size == codec.HEADER_BYTES

DELTAS: Final = 10_000
"""Records of a usual batch, at most: 1 MB of records of 100 bytes."""

_NO_HEADERS: Final = pa.scalar(b"\x00", pa.binary())
_NOTHING: Final = pa.scalar(b"", pa.binary())


def encoded_columns(values: Any, keys: Any, times_ms: Any) -> bytes:
    """One batch. `values` and `keys` are Arrow binary, `keys` may be None; `times_ms` is one time or one for each."""
    count = len(values)
    assert 0 < count <= BATCH_RECORDS_MAX
    times = np.broadcast_to(np.asarray(times_ms, dtype=np.int64), count)
    value_lengths = _lengths(values)
    value_length = _varints(value_lengths)
    zero = (np.zeros((count, 1), np.uint8), np.ones(count, np.int64))
    fields = [zero, zero if np.ndim(times_ms) == 0 else _varints(times - times[0]), _deltas(count)]
    contents = 1 + np.maximum(value_lengths, 0) + value_length[1]
    if keys is None:
        fields.append((np.ones((count, 1), np.uint8), zero[1]))
    else:
        key_lengths = _lengths(keys)
        fields.append(_varints(key_lengths))
        contents += np.maximum(key_lengths, 0)
    lengths = contents + sum(widths for _, widths in fields)
    before_key = _bytes_column([_varints(lengths), *fields])
    parts = [before_key, *([] if keys is None else [_filled(keys)]), _bytes_column([value_length]), _filled(values)]
    joined = pc.binary_join_element_wise(*parts, _NO_HEADERS, _NOTHING)
    return _sealed(joined.buffers()[2], count, int(times[0]), int(times.max()))


def _sealed(records: Any, count: int, base_time_ms: int, max_time_ms: int) -> bytes:
    header = _AFTER_CRC.pack(0, count - 1, base_time_ms, max_time_ms, -1, -1, -1, count)
    length = codec.HEADER_BYTES - codec.LENGTH_SKIPPED_BYTES + len(records)
    checksum = crc32c(records, crc32c(header))
    return b"".join((_BEFORE_CRC.pack(0, length, -1, codec.MAGIC, checksum), header, records))


def _lengths(array: Any) -> Any:
    """Of each row; -1 for null."""
    lengths = pc.binary_length(array)
    return np.asarray(lengths.fill_null(-1) if array.null_count else lengths).astype(np.int64)


def _filled(array: Any) -> Any:
    return array.fill_null(b"") if array.null_count else array


def _varints(numbers: Any) -> tuple[Any, Any]:
    """Zigzag varints of signed numbers: a row of bytes each, and how many of them count."""
    left = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    columns = []
    widths = np.ones(len(numbers), np.int64)
    while True:
        more = left > 127
        last = not more.any()
        columns.append((left & np.uint64(127)).astype(np.uint8) | (more.astype(np.uint8) << 7))
        if last:
            return np.stack(columns, axis=1), widths
        widths += more
        left = left >> np.uint64(7)


@cache
def _all_deltas() -> tuple[Any, Any]:
    return _varints(np.arange(DELTAS, dtype=np.int64))


def _deltas(count: int) -> tuple[Any, Any]:
    """0, 1, 2 … as varints. Those of a usual batch are made once."""
    if count > DELTAS:
        return _varints(np.arange(count, dtype=np.int64))
    matrix, widths = _all_deltas()
    return matrix[:count, : int(widths[count - 1])], widths[:count]


def _bytes_column(fields: list[tuple[Any, Any]]) -> Any:
    """One Arrow column of the fields' bytes, those of a row behind each other."""
    matrix = np.concatenate([matrix for matrix, _ in fields], axis=1)
    counted = [np.arange(matrix.shape[1]) < widths[:, None] for matrix, widths in fields]
    ends = np.zeros(len(matrix) + 1, np.int32)
    np.cumsum(sum(widths for _, widths in fields), out=ends[1:])
    data = matrix[np.concatenate(counted, axis=1)]
    return pa.Array.from_buffers(pa.binary(), len(matrix), [None, pa.py_buffer(ends), pa.py_buffer(data)])
