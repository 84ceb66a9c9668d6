"""The memory of cached rows, as estimated, against what the interpreter says."""

import tracemalloc

import pytest

from oncelog.core.flat import Stream
from oncelog.core.row_size import FEW, bytes_of_table, rows_allowed
from oncelog.core.rows import Cursor, HoleChunk, TopicConfig

ROWS = 2_000


def make_streams() -> dict[object, object]:
    config = TopicConfig()
    return {
        number: Stream(number, number, 0, config, tail=number * 1_000, topic=f"topic {number}")
        for number in range(ROWS)
    }


def make_chunks() -> dict[object, object]:
    return {(7_000, number): HoleChunk([number * 1_000 + at for at in range(400)]) for number in range(ROWS)}


def make_cursors() -> dict[object, object]:
    return {(f"group {number}", 1_000): Cursor(number * 1_000, [], "m" * 100) for number in range(ROWS)}


@pytest.mark.parametrize("make", [make_streams, make_chunks, make_cursors])
def test_an_estimate_is_within_a_factor_of_two(make: object) -> None:
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    rows = make()  # type: ignore[operator]
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (after - before) / 2 < bytes_of_table(rows) < (after - before) * 2.5


def test_tables_give_way_alike_and_only_if_all_together_are_too_large() -> None:
    tables = [make_streams(), make_chunks(), {}]
    total = sum(map(bytes_of_table, tables))
    assert rows_allowed(tables, total) is None
    allowed = rows_allowed(tables, total // 4)
    assert allowed is not None
    assert allowed[2] == 0
    assert all(abs(count - ROWS // 4) <= 1 for count in allowed[:2])


def test_a_few_rows_are_not_measured() -> None:
    class Unmeasurable:
        def __sizeof__(self) -> int:
            raise AssertionError

    assert bytes_of_table({number: Unmeasurable() for number in range(FEW - 1)}) > 0
