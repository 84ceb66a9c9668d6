"""How much is left for a consumer: committed records behind its place, and how old the oldest of them is.

Markers, aborted and removed records are holes, and do not count.
"""

from typing import NamedTuple

from oncelog.engine.read_view import ReadView, StreamView
from oncelog.engine.reader import Reader

NS_PER_MS = 1_000_000


class Left(NamedTuple):
    """What is not processed yet."""

    records: int
    oldest_ms: int
    """Its age; 0 if nothing is left."""


NOTHING_LEFT = Left(0, 0)


def left_of(view: ReadView, reader: Reader, stream: StreamView, offset: int, now_ns: int) -> Left:
    """From `offset` on, which may lie anywhere. Raises StorageError."""
    first = view.first_live(stream, offset)
    if first >= stream.stable:
        return NOTHING_LEFT
    holes = view.holes_between(stream, first, stream.stable)
    hidden = sum(min(next_, stream.stable) - max(begin, first) for begin, next_, _, _ in holes)
    age_ns = now_ns - reader.row_of(stream.stream_id, first).time_ns
    return Left(stream.stable - first - hidden, max(0, age_ns) // NS_PER_MS)
