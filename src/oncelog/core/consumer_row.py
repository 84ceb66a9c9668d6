"""The row of a consumer, and what entries do to it.

Entries say what changed, so the functions here are the whole meaning of `ConsumerChanged` and `ConsumerSet`. `apply`
uses them on the row, and `decide` on a copy, to see what will come of an entry.
"""

import msgspec

from oncelog.core.entry import ConsumerChanged, ConsumerSet
from oncelog.core.rows import Cursor


def copied(cursor: Cursor) -> Cursor:
    """For an answer: it waits at the gate and belongs to its receiver, the row belongs to the state."""
    return msgspec.structs.replace(cursor, confirmed=cursor.confirmed.copy(), waiting=cursor.waiting.copy())


def settle(cursor: Cursor, op: ConsumerSet, time_ns: int) -> None:
    """What an entry with new settings does to a row."""
    cursor.config, cursor.gate, cursor.metadata, cursor.pinned = op.config, op.gate, op.metadata, op.pinned
    cursor.used_ns = time_ns


def change_row(cursor: Cursor, op: ConsumerChanged, time_ns: int) -> None:
    """What an entry does to a row."""
    first = cursor.frontier
    cursor.frontier, cursor.used_ns = op.frontier, time_ns
    if op.confirmed or (cursor.confirmed and cursor.confirmed[0] <= op.frontier):
        cursor.confirmed = union(op.frontier, cursor.confirmed, op.confirmed)
    waiting = cursor.waiting
    if waiting:
        let_go(waiting, first, op.frontier)
        for begin, end in pairs(op.confirmed):
            let_go(waiting, begin, end)
    cursor.delivered = max(cursor.delivered, op.delivered, op.frontier)
    cursor.sequence = max(cursor.sequence, op.sequence)
    for at in range(0, len(op.waiting), 4):
        offset, count, deadline_ns, sequence = op.waiting[at : at + 4]
        if not count:
            waiting.pop(offset, None)
        elif offset >= op.frontier and not holds(cursor.confirmed, offset):
            waiting[offset] = (count, deadline_ns, sequence)


def folded(one: ConsumerChanged, next_: ConsumerChanged) -> ConsumerChanged:
    """Two changes of one consumer as one, to the same row."""
    return msgspec.structs.replace(
        next_,
        confirmed=union(next_.frontier, one.confirmed, next_.confirmed),
        waiting=one.waiting + next_.waiting,
        delivered=max(one.delivered, next_.delivered),
        sequence=max(one.sequence, next_.sequence),
    )


def union(frontier: int, one: list[int], other: list[int]) -> list[int]:
    """Ranges above the frontier that are in either: sorted, disjoint, never touching."""
    merged: list[int] = []
    for first, next_ in sorted(pairs(one) + pairs(other)):
        if next_ <= frontier:
            continue
        if merged and first <= merged[-1]:
            merged[-1] = max(merged[-1], next_)
        else:
            merged += (first, next_)
    return merged


def holds(ranges: list[int], offset: int) -> bool:
    """Whether sorted flat ranges hold an offset."""
    low, high = 0, len(ranges) // 2
    while low < high:
        middle = (low + high) // 2
        if ranges[2 * middle + 1] <= offset:
            low = middle + 1
        else:
            high = middle
    return 2 * low < len(ranges) and ranges[2 * low] <= offset


def let_go(waiting: dict[int, tuple[int, int, int]], first: int, next_: int) -> None:
    """Whatever waits in [first, next_) was confirmed."""
    if next_ - first <= len(waiting):
        for offset in range(first, next_):
            waiting.pop(offset, None)
    else:
        for offset in [offset for offset in waiting if first <= offset < next_]:
            del waiting[offset]


def pairs(flat: list[int]) -> list[tuple[int, int]]:
    """(first, next) of flat ranges."""
    return list(zip(flat[::2], flat[1::2], strict=True))
