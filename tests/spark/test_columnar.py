"""Batches made from Arrow columns are those of the codec, byte for byte."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from oncelog.core import batch as codec
from oncelog.spark.columnar import DELTAS, encoded_columns

NOW_MS = 1_700_000_000_000
LENGTHS = (0, 1, 63, 64, 100, 8_191, 8_192)
"""At both sides of where a length takes one byte more."""


def contents(chance: random.Random, count: int, nulls: float) -> list[bytes | None]:
    return [None if chance.random() < nulls else chance.randbytes(chance.choice(LENGTHS)) for _ in range(count)]


def sliced(rows: list[bytes | None], before: int) -> Any:
    """An array that is part of another one, as those that Spark sends may be."""
    return pa.array([b"not ours"] * before + rows + [b"nor this"], pa.binary()).slice(before, len(rows))


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 300])
@pytest.mark.parametrize("keys", ["none", "some", "all null"])
@pytest.mark.parametrize("times", ["one", "ascending", "any"])
def test_columns_give_the_bytes_of_the_codec(count: int, keys: str, times: str) -> None:
    chance = random.Random(f"{count} {keys} {times}")
    values = contents(chance, count, 0.1)
    key_rows = contents(chance, count, {"none": 1.0, "some": 0.3, "all null": 1.0}[keys])
    times_ms = {
        "one": [NOW_MS] * count,
        "ascending": [NOW_MS + row // 3 for row in range(count)],
        "any": [chance.randrange(2**42) for _ in range(count)],
    }[times]
    told = NOW_MS if times == "one" else np.array(times_ms)
    wanted = codec.encode(list(zip(range(count), times_ms, key_rows, values, [()] * count, strict=True)))
    assert encoded_columns(sliced(values, 1), None if keys == "none" else sliced(key_rows, 3), told) == wanted


@pytest.mark.parametrize("count", [8_191, 8_193, DELTAS, DELTAS + 1])
def test_large_batches_too(count: int) -> None:
    values: list[bytes | None] = [b"%d" % row for row in range(count)]
    wanted = codec.encode([(row, NOW_MS, None, value, ()) for row, value in enumerate(values)])
    assert encoded_columns(pa.array(values, pa.binary()), None, NOW_MS) == wanted
    codec.skim(wanted)
