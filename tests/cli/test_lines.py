"""Lines of an import: cut where the newlines are, packed alike by every run."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.cli import lines
from oncelog.cli.lines import Batch, batches_of, lines_of

LONG = b"x" * (lines.BATCH_VALUE_BYTES_MAX // 3 + 1)


def test_lines_lose_their_newline_and_nothing_else() -> None:
    assert list(lines_of(io.BytesIO(b"a\n\n b \r\nlast"), 9)) == [b"a", b"", b" b \r", b"last"]
    assert list(lines_of(io.BytesIO(b""), 9)) == []


@pytest.mark.parametrize(("content", "is_open"), [(b"", False), (b"a\n", False), (b"a\nb", True), (b"a\n\n", False)])
def test_last_line_without_an_end_is_known(content: bytes, is_open: bool) -> None:
    lines = lines_of(io.BytesIO(content), 9)
    for _ in range(content.count(b"\n") + is_open):
        next(lines)
    with pytest.raises(StopIteration) as end:
        next(lines)
    assert end.value.value is is_open


def test_line_over_the_limit_is_cut_behind_it_and_is_the_last() -> None:
    assert list(lines_of(io.BytesIO(b"four\nfour\r\nrest\n"), 4)) == [b"four", b"four\r"]
    assert list(lines_of(io.BytesIO(b"four\nfive!"), 4)) == [b"four", b"five!"]
    assert list(lines_of(io.BytesIO(b"four\nfour"), 4)) == [b"four", b"four"]


def test_batch_ends_when_the_next_line_would_not_fit() -> None:
    assert [(batch.last_line, len(batch.values)) for batch in batches_of([LONG] * 5)] == [(1, 2), (3, 2), (4, 1)]


def test_line_larger_than_a_batch_stands_alone() -> None:
    assert [batch.last_line for batch in batches_of([b"a", LONG * 4, b"b"])] == [0, 1, 2]


def test_batch_has_at_most_so_many_lines() -> None:
    counts = [len(batch.values) for batch in batches_of([b""] * (2 * lines.BATCH_LINES_MAX + 1))]
    assert counts == [lines.BATCH_LINES_MAX, lines.BATCH_LINES_MAX, 1]


def test_blank_line_that_is_skipped_keeps_its_number() -> None:
    assert list(batches_of([b"1", b" ", b"2"], skip_blank=True)) == [Batch(2, [b"1", b"2"])]
    assert list(batches_of([b"1", b"", b"2"])) == [Batch(2, [b"1", b"", b"2"])]


@given(
    st.lists(st.sampled_from([b"", b"short", LONG]), max_size=40),
    st.booleans(),
    st.data(),
)
def test_run_that_goes_on_after_any_batch_cuts_the_same_batches(
    content: list[bytes], skip_blank: bool, data: st.DataObject
) -> None:
    whole = list(batches_of(content, skip_blank=skip_blank))
    done = data.draw(st.integers(0, len(whole)))
    after = whole[done - 1].last_line if done else -1
    assert list(batches_of(content, after=after, skip_blank=skip_blank)) == whole[done:]
