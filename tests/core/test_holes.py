"""Holes: chunks of sorted ranges against a plain set of offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog import limits
from oncelog.core import holes
from oncelog.core.flat import Stream
from oncelog.core.rows import Cause, HoleChunk, TopicConfig, chunk_of
from oncelog.core.state import State

CHUNK = 1 << limits.HOLE_CHUNK_BITS

offsets_st = st.lists(st.tuples(st.integers(CHUNK - 12, CHUNK + 12), st.integers(1, 4), st.integers(0, 2)), max_size=12)


def state_with(ranges: list[tuple[int, int, int]], tail: int) -> tuple[State, Stream, dict[int, int]]:
    """A state whose one stream has these holes, and the same as offset -> cause."""
    state = State()
    stream = Stream(1, 1, 0, TopicConfig(), tail=tail)
    dead: dict[int, int] = {}
    for number in range(chunk_of(tail) + 1):
        state.holes[(1, number)] = None
    for first, next_, cause in ranges:
        if any(offset in dead for offset in range(first, next_)):
            continue
        for number, begin, end in holes.split_by_chunk(first, next_):
            chunk = state.holes[(1, number)] or HoleChunk([])
            state.holes[(1, number)] = chunk
            holes.add(chunk, begin, end, cause, -1)
        dead.update(dict.fromkeys(range(first, next_), cause))
    stream.hole_count = len(dead)
    return state, stream, dead


@given(offsets_st)
def test_chunks_hold_exactly_the_offsets_that_were_added(ranges: list[tuple[int, int, int]]) -> None:
    spans = [(first, first + count, cause) for first, count, cause in ranges]
    state, _, dead = state_with(spans, CHUNK + 40)
    held: dict[int, int] = {}
    for (_, number), chunk in state.holes.items():
        if chunk is None:
            continue
        flat = chunk.holes
        for at in range(0, len(flat), 4):
            assert number * CHUNK <= flat[at] < flat[at + 1] <= (number + 1) * CHUNK
            if at:
                assert flat[at - 3] <= flat[at], "sorted and disjoint"
                touching = flat[at - 3] == flat[at]
                assert not (touching and flat[at - 2 : at] == flat[at + 2 : at + 4]), (
                    "neighbours of one kind are joined"
                )
            held.update(dict.fromkeys(range(flat[at], flat[at + 1]), flat[at + 2]))
    assert held == dead


@given(offsets_st, st.integers(CHUNK - 15, CHUNK + 20), st.integers(0, 20))
def test_walks_agree_with_a_plain_set(ranges: list[tuple[int, int, int]], first: int, count: int) -> None:
    tail = CHUNK + 40
    state, stream, dead = state_with([(f, f + n, cause) for f, n, cause in ranges], tail)
    expected = first
    while expected in dead:
        expected += 1
    assert holes.step_over(state, stream, first) == expected
    parts = holes.deletable_parts(state, stream, first, first + count)
    live = [offset for at in range(0, len(parts), 2) for offset in range(parts[at], parts[at + 1])]
    aborted = int(Cause.ABORTED)
    assert live == [offset for offset in range(first, first + count) if dead.get(offset, aborted) == aborted]
    assert all(parts[at] > parts[at - 1] for at in range(2, len(parts), 2)), "touching parts are joined"


@given(offsets_st, st.integers(CHUNK - 15, CHUNK + 20))
def test_hole_at_finds_the_hole_around_an_offset(ranges: list[tuple[int, int, int]], offset: int) -> None:
    state, _, dead = state_with([(f, f + n, cause) for f, n, cause in ranges], CHUNK + 40)
    chunk = state.holes[(1, chunk_of(offset))]
    found = None if chunk is None else holes.hole_at(chunk, offset)
    assert (found is not None) == (offset in dead)
    if found is not None:
        assert found[0] <= offset < found[1]


def test_walk_names_the_chunk_that_is_not_loaded() -> None:
    state, stream, _ = state_with([(CHUNK - 1, CHUNK, 0)], CHUNK + 5)
    del state.holes[(1, 1)]
    with pytest.raises(holes.ChunkMissing) as missing:
        holes.step_over(state, stream, CHUNK - 1)
    assert missing.value.keys == [(1, 1)]


def test_long_run_of_holes_is_asked_for_in_a_few_rounds() -> None:
    chunks = 1000
    stored = {(1, number): HoleChunk([number * CHUNK, (number + 1) * CHUNK, 0, -1]) for number in range(chunks)}
    state, stream = State(), Stream(1, 1, 0, TopicConfig(), tail=chunks * CHUNK + 5)
    stream.hole_count = chunks * CHUNK
    asked: list[list[tuple[int, int]]] = []
    while True:
        try:
            assert holes.step_over(state, stream, 0) == chunks * CHUNK
            break
        except holes.ChunkMissing as missing:
            asked.append(missing.keys)
            state.holes.update((key, stored.get(key)) for key in missing.keys)
    assert [len(keys) for keys in asked[:4]] == [1, 2, 4, 8]
    assert len(asked) < 12
    assert sum(map(len, asked)) == chunks + 1, "none twice, and none behind the tail"


def test_stream_without_holes_asks_for_no_chunk() -> None:
    state, stream = State(), Stream(1, 1, 0, TopicConfig(), tail=100)
    assert holes.step_over(state, stream, 7) == 7
    assert holes.deletable_parts(state, stream, 7, 9) == [7, 9]
    assert holes.deletable_parts(state, stream, 7, 7) == []


def test_adding_over_a_hole_is_a_bug() -> None:
    chunk = HoleChunk([5, 7, 0, -1])
    with pytest.raises(AssertionError):
        holes.add(chunk, 6, 8, 1, -1)


@given(offsets_st, st.integers(CHUNK - 15, CHUNK + 20), st.integers(0, 20))
def test_aborted_offsets_are_taken_out_of_a_range_and_nothing_else_is(
    ranges: list[tuple[int, int, int]], first: int, count: int
) -> None:
    state, _, dead = state_with([(f, f + n, cause) for f, n, cause in ranges], CHUNK + 40)
    taken = 0
    for number, begin, end in holes.split_by_chunk(first, first + count):
        if (chunk := state.holes[(1, number)]) is not None:
            taken += holes.take_out_aborted(chunk, begin, end)
    asked = range(first, first + count)
    left = {offset: cause for offset, cause in dead.items() if offset not in asked or cause != Cause.ABORTED}
    held: dict[int, int] = {}
    for chunk in filter(None, state.holes.values()):
        for hole_first, hole_next, cause in holes.overlapping(chunk, 0, 2 * CHUNK):
            held.update(dict.fromkeys(range(hole_first, hole_next), cause))
    assert (held, taken) == (left, len(dead) - len(left))


class Watched(list[int]):
    """Counts how often it is looked into."""

    looks = 0

    def __getitem__(self, at):  # type: ignore[no-untyped-def]
        self.looks += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("cause", [Cause.DELETED, Cause.ABORTED])
def test_taking_out_looks_only_at_holes_that_meet_the_range(cause: Cause) -> None:
    """A delete of every second offset does this for each of its ranges: a walk each time would hold the writer."""
    flat = Watched(number for first in range(0, CHUNK, 2) for number in (first, first + 1, int(cause), -1))
    assert holes.take_out_aborted(HoleChunk(flat), 100, 103) == (2 if cause == Cause.ABORTED else 0)
    assert flat.looks < 40
