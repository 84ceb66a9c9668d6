"""Cursors: contiguous frontiers, confirms out of order, gaps, holes stepped over (P8: never past uncommitted data)."""

from typing import Final

import msgspec

from oncelog.core import holes, names
from oncelog.core.command import CommitOffsets, CursorMove, DeleteCursor, MoveCursors
from oncelog.core.consumer_row import copied
from oncelog.core.entry import Compound, CursorDeleted, CursorMoved, Entry, Operation, TxnOffsetsDropped
from oncelog.core.flat import Stream
from oncelog.core.outcome import (
    ClaimInvalid,
    CommitConfirmed,
    CursorDone,
    OffsetAhead,
    OffsetsCommitted,
    Outcome,
    Refusal,
    TooLarge,
    TopicMissing,
)
from oncelog.core.rows import Cursor
from oncelog.core.state import State

Decision = tuple[Entry | None, Outcome]

OFFSET_MAX: Final = 2**63 - 1
"""An offset has 64 bits on every wire, one of them for the sign."""


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
    state: State, move: CursorMove, extra_tail: int = 0, *, uncommitted: bool = False
) -> tuple[CursorMoved | None, Refusal | None]:
    """The operation for one move. `extra_tail` counts offsets that the same entry adds to the stream."""
    stream = state.stream(move.topic, move.partition)
    if stream is None:
        return None, TopicMissing(move.topic, move.partition)
    limit = stream.tail if uncommitted or not stream.open_txns else stream.stable
    limit += extra_tail if limit == stream.tail else 0
    if not 0 <= move.frontier <= limit:
        return None, OffsetAhead(stream.stream_id, move.frontier, limit)
    return CursorMoved(move.name, stream.stream_id, move.frontier, move.metadata, move.pinned), None


def given(state: State, move: CursorMove) -> tuple[CursorMoved | None, Refusal | None]:
    """The operation for an offset that a group commits: its own word, so any offset of 0 or more is taken (P8)."""
    if (refusal := names.move_refused(move)) is not None:
        return None, refusal
    stream = state.stream(move.topic, move.partition)
    if stream is None:
        return None, TopicMissing(move.topic, move.partition)
    if not 0 <= move.frontier <= OFFSET_MAX:
        return None, TooLarge("offset of a group", OFFSET_MAX, move.frontier, least=0)
    return CursorMoved(move.name, stream.stream_id, move.frontier, move.metadata, move.pinned, given=True), None


def decide_offsets(state: State, command: CommitOffsets, now_ns: int) -> Decision:
    """Kafka's offset commit: each offset is stored, or refused, alone. What waits in a txn for the same cursor came
    before, so it must not overwrite this when the txn commits."""
    answers: list[Refusal | None] = []
    operations: list[Operation] = []
    waiting: dict[str, list[tuple[str, int]]] = {}
    for move in command.moves:
        operation, refusal = given(state, move)
        answers.append(refusal)
        if operation is None:
            continue
        operations.append(operation)
        key = (operation.name, operation.stream_id)
        row = state.pending[key]
        for txn_id in row.txn_ids if row is not None else ():
            keys = waiting.setdefault(txn_id, [])
            if key not in keys:
                keys.append(key)
    operations += [TxnOffsetsDropped(txn_id, keys) for txn_id, keys in waiting.items()]
    return (Compound(now_ns, operations) if operations else None), OffsetsCommitted(answers)


def decide_moves(state: State, command: MoveCursors, now_ns: int) -> Decision:
    """Any place that exists, also backwards. All moves or none."""
    operations: list[Operation] = []
    for move in command.moves:
        operation, refusal = moved(state, move, uncommitted=command.uncommitted)
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
    since; a group's offset as the group gave it. The one rule for a cursor asked for alone and for a list of them.
    Raises ChunkMissing as `confirmed_after`."""
    if cursor.given:
        return copied(cursor)
    frontier, above = confirmed_after(state, stream, cursor, [])
    return msgspec.structs.replace(cursor, frontier=frontier, confirmed=above, waiting=cursor.waiting.copy())


def decide_delete_cursor(state: State, command: DeleteCursor, now_ns: int) -> Decision:
    """Forget a consumer. One that is not there is already forgotten."""
    stream = state.stream(command.topic, command.partition)
    if stream is None:
        return None, TopicMissing(command.topic, command.partition)
    if state.cursors[(command.name, stream.stream_id)] is None:
        return None, CursorDone(None)
    operation = CursorDeleted(command.name, stream.stream_id)
    return Compound(now_ns, [operation]), CursorDone(None)
