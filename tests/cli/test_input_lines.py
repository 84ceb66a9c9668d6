"""What is told of an input that ends early fits what became of it."""

import io
import sys
from typing import TYPE_CHECKING

import pytest

from oncelog.cli import input_lines
from oncelog.cli.input_lines import LineInvalid, SoFar, Source

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Zeros(io.RawIOBase):
    """Many bytes and no newline, as of a device: more than the limit, and how many were asked for."""

    def __init__(self, size: int) -> None:
        self.left = size
        self.taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        count = min(len(view), self.left)
        view[:count] = bytes(count)  # what stood there before may hold a newline
        self.left -= count
        self.taken += count
        return count


def test_line_over_the_limit_is_refused_before_the_rest_of_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_lines, "RECORD_BYTES_MAX", 1_000)
    zeros = Zeros(100_000)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(zeros, 500)))
    with Source(None, skips_blank=False) as source, pytest.raises(LineInvalid, match="line 1 has over 1,000 bytes"):
        list(source)
    assert zeros.taken <= 2_000


def so_far(*, stored: int = 0, before: int = 0, next_line: int = 1, waits: bool = False) -> SoFar:
    made = SoFar()
    made.stored, made.before, made.next_line, made.waits = stored, before, next_line, waits
    return made


@pytest.mark.parametrize(
    ("place", "at_line", "said"),
    [
        (so_far(), 0, "nothing was stored"),
        (so_far(next_line=101), 0, "nothing was stored, line 101 is the next"),
        (so_far(stored=1, next_line=2), 0, "1 line is stored, line 2 is the next"),
        (so_far(stored=2_000, next_line=2_002), 0, "2,000 lines are stored, line 2,002 is the next"),
        (so_far(stored=2, next_line=3), 3, "2 lines are stored"),
    ],
)
def test_what_is_stored_is_told_with_the_next_line(place: SoFar, at_line: int, said: str) -> None:
    assert place.told(at_line) == said


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (so_far(), "nothing was stored"),
        (so_far(stored=1, next_line=2), "1 line is stored, --resume goes on behind it"),
        (so_far(stored=2, next_line=3), "2 lines are stored, --resume goes on behind them"),
        (
            so_far(before=5, next_line=6),
            "nothing was stored by this run, --resume goes on behind the 5 lines stored before",
        ),
        (so_far(waits=True), "nothing is confirmed, --resume goes on behind what is stored"),
        (
            so_far(stored=2, next_line=3, waits=True),
            "2 lines are stored, --resume goes on behind what is stored",
        ),
    ],
)
def test_interrupted_import_says_what_resuming_would_do(place: SoFar, said: str) -> None:
    assert place.interrupted(is_named=True) == said


def test_interrupted_run_without_a_name_cannot_be_resumed() -> None:
    assert so_far(stored=2, next_line=3).interrupted(is_named=False) == "2 lines are stored, line 3 is the next"


def test_blank_lines_that_are_left_out_still_count_as_lines() -> None:
    place = SoFar()
    for records in (0, 1, 1, 3):  # blank, record, blank, blank, record, record, blank
        place.left_out(records)
    found = []
    for records in range(5):
        place.record_stored(records)
        found.append(place.next_line)
    assert found == [2, 5, 6, 8, 9]
