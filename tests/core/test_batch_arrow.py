"""Arrow columns, wrapped by pyarrow, say what decode says."""

import struct
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.errors import BatchInvalid
from tests.core.batch_codecs import ARROWS
from tests.core.test_batch import TIME, compressed, resealed, with_records

Modules = tuple[ModuleType, ModuleType]

pytestmark = pytest.mark.parametrize("modules", ARROWS)

contents = st.none() | st.binary(max_size=40)
records_of_batch = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.integers(0, 10_000),
        contents,
        contents,
        st.lists(st.tuples(st.text(max_size=5), contents), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


def wrapped_binary(column: Any, rows: int, kind: pa.DataType) -> pa.Array:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.ends), pa.py_buffer(column.data)]
    array = pa.Array.from_buffers(kind, rows, buffers, column.null_count)
    array.validate(full=True)
    return array


def wrapped(buffers: Any) -> dict[str, list[Any]]:
    rows = buffers.row_count
    columns = {
        "offset": pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(buffers.offset)]),
        "timestamp": pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(buffers.timestamp)]),
        "key": wrapped_binary(buffers.key, rows, pa.binary()),
        "value": wrapped_binary(buffers.value, rows, pa.binary()),
    }
    if buffers.header_ends is not None:
        count = len(buffers.header_key.ends) // 4 - 1
        key = wrapped_binary(buffers.header_key, count, pa.utf8())
        value = wrapped_binary(buffers.header_value, count, pa.binary())
        pairs = pa.StructArray.from_arrays([key, value], ["key", "value"])
        ends = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(buffers.header_ends)])
        columns["headers"] = pa.ListArray.from_arrays(ends, pairs)
        columns["headers"].validate(full=True)
    return {name: column.to_pylist() for name, column in columns.items()}


@given(
    drawn=st.lists(records_of_batch, max_size=4),
    number=st.integers(0, 4),
    first=st.integers(0, 60),
    width=st.none() | st.integers(0, 80),
    headers=st.booleans(),
    unit=st.sampled_from(["ms", "us"]),
)
def test_columns_equal_the_decoded_records_in_the_range(
    modules: Modules,
    drawn: list[list[Any]],
    number: int,
    first: int,
    width: int | None,
    headers: bool,
    unit: str,
) -> None:
    codec, arrow = modules
    next_ = None if width is None else first + width
    columns = arrow.ArrowColumns(timestamp_unit=unit, headers=headers)
    base_offset = 0
    expected = []
    for of_batch in drawn:
        delta = -1
        records = []
        for step, late, key, value, pairs in of_batch:
            delta += step
            records.append((delta, TIME + late, key, value, pairs))
        batch = codec.encode(records)
        batch = compressed(batch, number) if number else batch
        kept = [(base_offset + record[0], *record[1:]) for record in codec.decode(batch)]
        kept = [record for record in kept if record[0] >= first and (next_ is None or record[0] < next_)]
        assert columns.add(batch, base_offset, first, next_) == len(kept)
        expected += kept
        base_offset += delta + 1
    assert columns.row_count == len(expected)
    assert columns.size_bytes >= sum(len(record[3] or b"") for record in expected)
    got = wrapped(columns.finish())
    assert got["offset"] == [record[0] for record in expected]
    assert got["timestamp"] == [record[1] * (1000 if unit == "us" else 1) for record in expected]
    assert got["key"] == [record[2] for record in expected]
    assert got["value"] == [record[3] for record in expected]
    if headers:
        assert got["headers"] == [[{"key": key, "value": value} for key, value in record[4]] for record in expected]
    assert columns.row_count == 0


def test_a_finished_accumulator_starts_over(modules: Modules) -> None:
    codec, arrow = modules
    columns = arrow.ArrowColumns()
    columns.add(codec.encode_values([b"a", b"b"], TIME), 0)
    columns.finish()
    columns.add(codec.encode_values([b"c"], TIME), 2)
    assert wrapped(columns.finish()) == {"offset": [2], "timestamp": [TIME], "key": [None], "value": [b"c"]}


def test_long_runs_of_nulls_are_told_apart(modules: Modules) -> None:
    codec, arrow = modules
    columns = arrow.ArrowColumns()
    values = [None if 3 <= row < 37 or row > 90 else b"v" for row in range(100)]
    columns.add(codec.encode([(row, TIME, None, value, ()) for row, value in enumerate(values)]), 0)
    buffers = columns.finish()
    assert buffers.value.null_count == values.count(None)
    assert wrapped(buffers)["value"] == values


def test_control_batches_add_no_rows(modules: Modules) -> None:
    codec, arrow = modules
    columns = arrow.ArrowColumns()
    assert columns.add(codec.encode_marker(1, 0, True, 0, TIME), 0) == 0
    assert columns.finish().row_count == 0


def test_an_invalid_batch_adds_nothing(modules: Modules) -> None:
    codec, arrow = modules
    columns = arrow.ArrowColumns(headers=True)
    good = codec.encode_values([b"a", b"b"], TIME)
    columns.add(good, 0)
    with pytest.raises(BatchInvalid):
        columns.add(resealed(good[:-1]), 2)
    columns.add(good, 2)
    assert wrapped(columns.finish())["value"] == [b"a", b"b", b"a", b"b"]


def test_log_append_time_is_the_time_of_every_row(modules: Modules) -> None:
    codec, arrow = modules
    batch = codec.encode([(0, 5, None, b"a", ()), (1, 9, None, b"b", ())])
    columns = arrow.ArrowColumns(timestamp_unit="us")
    columns.add(resealed(batch[:21] + struct.pack(">h", codec.TIMESTAMP_LOG_APPEND) + batch[23:]), 0)
    assert wrapped(columns.finish())["timestamp"] == [9000, 9000]


@pytest.mark.parametrize(("time", "micros"), [(2**62, 2**63 - 1), (-(2**62), -(2**63) + 1)])
def test_a_time_beyond_microseconds_is_the_last_one_that_fits(modules: Modules, time: int, micros: int) -> None:
    codec, arrow = modules
    record = bytes.fromhex("0c 00 00 00 01 01 00")
    columns = arrow.ArrowColumns(timestamp_unit="us")
    columns.add(with_records(codec, record, base_timestamp=time), 0)
    assert wrapped(columns.finish())["timestamp"] == [micros]
