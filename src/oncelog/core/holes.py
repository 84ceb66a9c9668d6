"""Holes: offsets that will never be delivered. Chunks of neighbouring offsets keep them as sorted flat ranges.

A hole confirms itself: frontiers and floors step over it. Functions here work on one chunk, or walk over chunks that
the caller has loaded; a chunk that is not loaded is named in the answer, so that `core.needs` can ask for it.
"""

from collections.abc import Iterator

from oncelog import limits
from oncelog.core.flat import Stream
from oncelog.core.rows import Cause, HoleChunk, chunk_of
from oncelog.core.state import State


def split_by_chunk(first: int, next_: int) -> Iterator[tuple[int, int, int]]:
    """Cut [first, next_) at chunk borders: (chunk number, first, next)."""
    while first < next_:
        chunk = chunk_of(first)
        end = min(next_, (chunk + 1) << limits.HOLE_CHUNK_BITS)
        yield chunk, first, end
        first = end


def find(chunk: HoleChunk, offset: int) -> int:
    """The number of the first hole in the chunk that ends above `offset`; the count of holes if there is none."""
    holes = chunk.holes
    low, high = 0, len(holes) // 4
    while low < high:
        middle = (low + high) // 2
        if holes[4 * middle + 1] <= offset:
            low = middle + 1
        else:
            high = middle
    return low


def hole_at(chunk: HoleChunk, offset: int) -> tuple[int, int] | None:
    """The hole around `offset`, as (first, next)."""
    at = 4 * find(chunk, offset)
    if at < len(chunk.holes) and chunk.holes[at] <= offset:
        return chunk.holes[at], chunk.holes[at + 1]
    return None


def add(chunk: HoleChunk, first: int, next_: int, cause: int, producer_id: int) -> None:
    """Put a range that holds no hole yet into the chunk, joined with neighbours of the same kind."""
    holes = chunk.holes
    at = 4 * find(chunk, first)
    assert at == len(holes) or next_ <= holes[at], "the range overlaps a hole"
    if at and holes[at - 3] == first and holes[at - 2] == cause and holes[at - 1] == producer_id:
        holes[at - 3] = next_
    else:
        holes[at:at] = [first, next_, cause, producer_id]
        at += 4
    if at < len(holes) and holes[at - 3] == holes[at] and holes[at - 2 : at] == holes[at + 2 : at + 4]:
        holes[at - 3] = holes[at + 1]
        del holes[at : at + 4]


def change(chunk: HoleChunk, first: int, next_: int, cause: int, producer_id: int) -> int:
    """Make holes of a range that lies in this chunk; returns how many offsets were holes before. Only an aborted record
    may be made a hole once more, by a deletion: then nobody is shown it any more."""
    were_aborted = take_out_aborted(chunk, first, next_) if cause == Cause.DELETED else 0
    add(chunk, first, next_, cause, producer_id)
    return were_aborted


class ChunkMissing(Exception):
    """A walk needs chunks that are not loaded. Caught by `core.needs`, and by who lists cursors; else it is a bug.

    `keys` are the first one, and as many behind it as stand loaded without a gap before it: a walk over a long run of
    holes begins anew after each loading, and so it does that a dozen times instead of once per chunk."""

    def __init__(self, state: State, stream: Stream, number: int) -> None:
        stream_id = stream.stream_id
        loaded = 0
        while (stream_id, number - loaded - 1) in state.holes:
            loaded += 1
        last = max(number, min(number + loaded, chunk_of(stream.tail)))
        wanted = ((stream_id, chunk) for chunk in range(number, last + 1))
        self.keys = [key for key in wanted if key not in state.holes]
        super().__init__(f"hole chunk {(stream_id, number)} was not loaded")


def _chunk(state: State, stream: Stream, number: int) -> HoleChunk | None:
    key = (stream.stream_id, number)
    if key not in state.holes:
        raise ChunkMissing(state, stream, number)
    return state.holes[key]


def step_over(state: State, stream: Stream, offset: int) -> int:
    """The first offset at or after `offset` that is no hole, at most the tail."""
    while stream.hole_count and offset < stream.tail:
        chunk = _chunk(state, stream, chunk_of(offset))
        hole = hole_at(chunk, offset) if chunk is not None else None
        if hole is None:
            break
        offset = hole[1]
    return offset


def deletable_parts(state: State, stream: Stream, first: int, next_: int) -> list[int]:
    """What of [first, next_) some reader may still be shown, as flat ranges: what is no hole, and what was aborted,
    which readers of uncommitted data see."""
    if not stream.hole_count:
        return [first, next_] if first < next_ else []
    parts: list[int] = []
    for number, begin, end in split_by_chunk(first, next_):
        chunk = _chunk(state, stream, number)
        for hole_first, hole_next, cause in overlapping(chunk, begin, end) if chunk is not None else ():
            if cause == Cause.ABORTED:
                continue
            if begin < hole_first:
                add_range(parts, begin, hole_first)
            begin = max(begin, hole_next)
        if begin < end:
            add_range(parts, begin, end)
    return parts


def take_out_aborted(chunk: HoleChunk, first: int, next_: int) -> int:
    """Make room in [first, next_) for a hole of another cause; returns how many aborted offsets were there.

    Only holes that meet the range are looked at: a delete of every second offset asks for each of its ranges, and to
    walk a chunk of 2,048 holes every time would hold the writer for minutes.
    """
    holes = chunk.holes
    kept: list[int] = []
    count = 0
    at = left = 4 * find(chunk, first)
    while at < len(holes) and holes[at] < next_:
        hole_first, hole_next, cause, producer_id = holes[at : at + 4]
        at += 4
        if cause != Cause.ABORTED:
            kept += (hole_first, hole_next, cause, producer_id)
            continue
        begin, end = max(hole_first, first), min(hole_next, next_)
        count += end - begin
        for part_first, part_next in ((hole_first, begin), (end, hole_next)):
            if part_first < part_next:
                kept += (part_first, part_next, cause, producer_id)
    if count:
        holes[left:at] = kept
    return count


def overlapping(chunk: HoleChunk, first: int, next_: int) -> Iterator[tuple[int, int, int]]:
    """The holes of a chunk that meet [first, next_), in order, with their causes."""
    holes = chunk.holes
    for at in range(4 * find(chunk, first), len(holes), 4):
        if holes[at] >= next_:
            return
        yield holes[at], holes[at + 1], holes[at + 2]


def add_range(ranges: list[int], first: int, next_: int) -> None:
    """Append [first, next_) to flat sorted ranges, joined with the last one if they touch."""
    if ranges and ranges[-1] == first:
        ranges[-1] = next_
    else:
        ranges += (first, next_)
