"""The memory of a server does not grow with what its clients read. `bench cold_reads` does the same with 8 GB."""

from pathlib import Path

from bench.cold_reads import run
from oncelog.limits import MIB

ABOVE_REST_BYTES = 150 * MIB


def test_reading_a_log_that_is_much_larger_than_the_bound_stays_within_it(tmp_path: Path) -> None:
    rows = run(tmp_path / "log", 384 * MIB)
    assert len(rows) == 4
    for row in rows:
        assert row.bytes_read > row.readers * 350 * MIB, row
        assert row.above_rest <= ABOVE_REST_BYTES, row
