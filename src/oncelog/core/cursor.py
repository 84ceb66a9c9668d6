"""Cursors: contiguous frontiers, confirms out of order, gaps, holes stepped over (P8: never past uncommitted data)."""

from oncelog import limits
from oncelog.core import holes
from oncelog.core.command import ConfirmCursor, CursorMove, DeleteCursor, MoveCursors
from oncelog.core.entry import Compound, CursorDeleted, CursorSet, Entry, Operation
from oncelog.core.flat import Stream
from oncelog.core.outcome import (
    ClaimInvalid,
    CommitConfirmed,
    CursorDone,
    OffsetAhead,
    Outcome,
    Refusal,
    TooLarge,
    TopicMissing,
)
from oncelog.core.rows import Cursor
from oncelog.core.state import State

Decision = tuple[Entry | None, Outcome]


def ranges_refused(ranges: list[int], limit: int, stream_id: int) -> Refusal | None:
    """Flat half-open ranges must be well formed, sorted, disjoint and below `limit`."""
    if not ranges:
        return ClaimInvalid("no range is named; name at least one pair of first and next offset")
    if len(ranges) % 2:
        return ClaimInvalid("ranges are pairs of first and next offset")
    last = 0
    for at in range(0, len(ranges), 2):
        if not last <= ranges[at] < ranges[at + 1]:
            pair = f"[{ranges[at]}, {ranges[at + 1]}]"
            return ClaimInvalid(f"ranges must be sorted, disjoint and not empty; {pair} is not, or stands too early")
        last = ranges[at + 1]
    return OffsetAhead(stream_id, last, limit) if last > limit else None


def moved(
    state: State, move: CursorMove, time_ns: int, extra_tail: int = 0, *, uncommitted: bool = False
) -> tuple[CursorSet | None, Refusal | None]:
    """The operation for one move. `extra_tail` counts offsets that the same entry adds to the stream."""
    stream = state.stream(move.topic, move.partition)
    if stream is None:
        return None, TopicMissing(move.topic, move.partition)
    limit = stream.tail if uncommitted or not stream.open_txns else stream.stable
    limit += extra_tail if limit == stream.tail else 0
    if not 0 <= move.frontier <= limit:
        return None, OffsetAhead(stream.stream_id, move.frontier, limit)
    cursor = Cursor(move.frontier, [], move.metadata, move.pinned, time_ns)
    return CursorSet(move.name, stream.stream_id, cursor), None


def decide_moves(state: State, command: MoveCursors, now_ns: int) -> Decision:
    """Kafka's offset commit: any place that exists, also backwards. All moves or none."""
    operations: list[Operation] = []
    for move in command.moves:
        operation, refusal = moved(state, move, now_ns, uncommitted=command.uncommitted)
        if operation is None:
            assert refusal is not None
            return None, refusal
        operations.append(operation)
    return (Compound(now_ns, operations) if operations else None), CommitConfirmed([])


def confirmed_after(state: State, stream: Stream, cursor: Cursor | None, ranges: list[int]) -> tuple[int, list[int]]:
    """(frontier, ranges confirmed above it) once `ranges` are confirmed. A hole confirms itself, so ranges with nothing
    but holes between them are one: there is no gap that a consumer could close. Raises ChunkMissing for an unloaded
    chunk."""
    frontier = max(cursor.frontier if cursor is not None else 0, stream.floor)
    pending = sorted(
        [(ranges[at], ranges[at + 1]) for at in range(0, len(ranges), 2)]
        + ([(flat[at], flat[at + 1]) for at in range(0, len(flat), 2)] if (flat := _confirmed(cursor)) else [])
    )
    frontier = holes.step_over(state, stream, frontier)
    above: list[int] = []
    for first, next_ in pending:  # in order, so once one lies above the frontier, all that follow do
        if first <= frontier:
            if next_ > frontier:
                frontier = holes.step_over(state, stream, next_)
        elif above and first <= holes.step_over(state, stream, above[-1]):
            above[-1] = max(above[-1], next_)
        else:
            above += (first, next_)
    return frontier, above


def _confirmed(cursor: Cursor | None) -> list[int]:
    return cursor.confirmed if cursor is not None else []


def as_told(state: State, stream: Stream, cursor: Cursor) -> Cursor:
    """A cursor as every answer shows it: its frontier at the floor at least, past the holes that came to lie at it
    since. The one rule for a cursor asked for alone and for a list of them. Raises ChunkMissing as `confirmed_after`.
    """
    frontier, above = confirmed_after(state, stream, cursor, [])
    return Cursor(frontier, above, cursor.metadata, cursor.pinned, cursor.used_ns)


def decide_confirm(state: State, command: ConfirmCursor, now_ns: int) -> Decision:
    """Processed by the consumer, in any order."""
    stream = state.stream(command.topic, command.partition)
    if stream is None:
        return None, TopicMissing(command.topic, command.partition)
    if (refusal := ranges_refused(command.ranges, stream.stable, stream.stream_id)) is not None:
        return None, refusal
    cursor = state.cursors[(command.name, stream.stream_id)]
    frontier, above = confirmed_after(state, stream, cursor, command.ranges)
    if len(above) // 2 > limits.CURSOR_CONFIRMED_RANGES_MAX:
        return None, TooLarge("ranges above the frontier", limits.CURSOR_CONFIRMED_RANGES_MAX, len(above) // 2)
    if cursor is not None and (cursor.frontier, cursor.confirmed, cursor.pinned) == (frontier, above, command.pinned):
        return None, CursorDone(copied(cursor))
    metadata = cursor.metadata if cursor is not None else ""
    new = Cursor(frontier, above, metadata, command.pinned, now_ns)
    return Compound(now_ns, [CursorSet(command.name, stream.stream_id, new)]), CursorDone(copied(new))


def copied(cursor: Cursor) -> Cursor:
    """For an answer: it waits at the gate and belongs to its receiver, the row belongs to the state."""
    return Cursor(cursor.frontier, list(cursor.confirmed), cursor.metadata, cursor.pinned, cursor.used_ns)


def decide_delete_cursor(state: State, command: DeleteCursor, now_ns: int) -> Decision:
    """Forget a consumer. One that is not there is already forgotten."""
    stream = state.stream(command.topic, command.partition)
    if stream is None:
        return None, TopicMissing(command.topic, command.partition)
    if state.cursors[(command.name, stream.stream_id)] is None:
        return None, CursorDone(None)
    operation = CursorDeleted(command.name, stream.stream_id)
    return Compound(now_ns, [operation]), CursorDone(None)
