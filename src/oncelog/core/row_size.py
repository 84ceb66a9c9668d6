"""What cached rows take in memory, estimated from a few of each: to count every change would cost every append."""

import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from oncelog.core.flat import Flat
from oncelog.core.rows import TopicConfig

SAMPLED: Final = 8
"""Rows of a table that are measured: half of them the oldest, half the newest."""

FEW: Final = 64
"""Tables with fewer rows are taken to have rows of `SMALL_BYTES`: no sample is worth its time."""

SMALL_BYTES: Final = 1_000

_ENTRY_BYTES: Final = 100
"""A place in the dict, and the tuple of a key."""


def size_of_row(row: object) -> int:
    """Bytes of a row and of all that it holds. What all rows share does not count: settings, small numbers, nothing."""
    if row is None or isinstance(row, bool | TopicConfig) or (isinstance(row, int) and -5 <= row <= 256) or row == "":
        return 0
    size = sys.getsizeof(row)
    if isinstance(row, Flat):
        return size + sum(map(size_of_row, row.fields()))
    if isinstance(row, msgspec.Struct):
        return size + sum(size_of_row(getattr(row, name)) for name in row.__struct_fields__)
    if isinstance(row, dict):
        return size + sum(size_of_row(key) + size_of_row(value) for key, value in row.items())
    if isinstance(row, list | tuple | set):
        return size + sum(map(size_of_row, row))
    return size


def bytes_of_table(rows: Mapping[Any, object]) -> int:
    """About what the rows of a table take."""
    count = len(rows)
    if count < FEW:
        return count * SMALL_BYTES
    assert isinstance(rows, dict)
    sample = [*islice(rows.items(), SAMPLED // 2), *islice(reversed(rows.items()), SAMPLED // 2)]
    measured = sum(size_of_row(key) + size_of_row(row) for key, row in sample)
    return count * (measured // len(sample) + _ENTRY_BYTES)


def rows_allowed(tables: Sequence[Mapping[Any, object]], bytes_max: int) -> list[int] | None:
    """How many rows of each table fit the budget, if all of them give way alike; None if they all fit."""
    sizes = [bytes_of_table(rows) for rows in tables]
    total = sum(sizes)
    if total <= bytes_max:
        return None
    return [len(rows) * bytes_max // total for rows in tables]
