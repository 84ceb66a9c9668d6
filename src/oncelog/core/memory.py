"""How long claims are remembered: producers, message ids, commit ids.

A topic with a `producer_idle_ms` forgets a producer after so long without a write, whatever became of its records.
Else one rule for all: forgotten at max(removal of the record, last use) + the dedupe floor; never while the record is
there. Removal is trimming or the deletion of the topic; a record that was deleted on its own counts as retained until
the floor passes it, so that its memory is longer than promised, never shorter. `decide` asks; the entry says what came
of it (`Appended.flags` RENEWS, `Claimed.renews`), so that replaying an entry needs no clock and no second look.
"""

from collections.abc import Iterable

from oncelog import limits
from oncelog.core import message_id
from oncelog.core.entry import Compound, Entry, IdsUsed
from oncelog.core.flat import Producer, Stream
from oncelog.core.message_id import RETAINED
from oncelog.core.rows import FOREVER, Remembered, chunk_of
from oncelog.core.state import NO_STREAM, State


def removed_ns(state: State, outcome: Iterable[int]) -> int:
    """When the last record of a flat (stream, first, next) outcome was removed; RETAINED while one is there."""
    last = 0
    numbers = iter(outcome)
    for stream_id, first, next_ in zip(numbers, numbers, numbers, strict=True):
        if first < next_:
            when = message_id.removal_ns(state.streams[stream_id], next_ - 1)
            if when == RETAINED:
                return RETAINED
            last = max(last, when)
    return last


def known_producer(state: State, stream: Stream | None, name: str, now_ns: int) -> Producer | None:
    """The producer's row, unless it is forgotten. `stream` is None for the producer of commits."""
    producer = state.producers[(NO_STREAM if stream is None else stream.stream_id, name)]
    return None if producer is None else living(state, stream, producer, now_ns)


def surely_living(stream: Stream, producer: Producer) -> bool:
    """Whether the newest batch ends above the floor: then nothing is forgotten, and `living` need not be asked."""
    newest = producer.newest
    return newest is not None and newest.next_offset > stream.floor and not stream.config.producer_idle_ms


def living(state: State, stream: Stream | None, producer: Producer, now_ns: int) -> Producer | None:
    """The row itself, or None if it is forgotten. A fence outlives its floor while any txn is open on the stream."""
    batches = producer.batches
    outcome: list[int] = []
    if stream is not None:
        if stream.open_txns:
            return producer
        idle_ms = stream.config.producer_idle_ms
        if idle_ms and now_ns - producer.used_ns >= idle_ms * 1_000_000:
            return None
        for written in batches:
            if written.outcome is None:
                outcome += (stream.stream_id, written.first_offset, written.next_offset)
    newest = producer.newest
    if newest is not None and newest.outcome is not None:
        outcome += newest.outcome
    floor_ms = floor_of(state, outcome) if stream is None else stream.config.dedupe_floor_ms
    if floor_ms == FOREVER or now_ns - producer.used_ns < floor_ms * 1_000_000:
        return producer
    removed = removed_ns(state, outcome)
    if removed == RETAINED:
        return producer
    return producer if now_ns - max(removed, producer.used_ns) < floor_ms * 1_000_000 else None


def floor_of(state: State, outcome: Iterable[int]) -> int:
    """What was written to several streams is remembered as long as the most careful of them asks."""
    rows = [state.streams[stream_id] for stream_id in list(outcome)[::3]]
    floors = [row.config.dedupe_floor_ms for row in rows if row is not None]
    return FOREVER if FOREVER in floors else max(floors, default=limits.DEDUPE_FLOOR_MS_DEFAULT)


def known_id(state: State, stream: Stream, id_hash: bytes, now_ns: int) -> bytes | None:
    """The packed value of an id that still counts."""
    value = state.find_id(id_hash)
    if value is None:
        return None
    stored = state.streams[message_id.unpack(value)[1]]
    return value if message_id.is_remembered(value, stream, stored, now_ns) else None


def use_counts(stream: Stream) -> bool:
    """Whether the use of an id prolongs its memory: not for ever, and not in an exact window."""
    return stream.config.duplicate_window_ms == 0 and stream.config.dedupe_floor_ms != FOREVER


def is_gone(state: State, stream_id: int, offset: int) -> bool:
    """Was the record at this place removed?"""
    stored = state.streams[stream_id]
    if stored is None or not stored.hole_count or offset < stored.floor:
        return message_id.is_gone(stored, offset, None)
    return message_id.is_gone(stored, offset, state.holes[(stream_id, chunk_of(offset))])


def is_known_claim(state: State, row: Remembered, now_ns: int) -> bool:
    """Whether a commit id or batch id still counts."""
    if row.floor_ms == FOREVER:
        return True
    removed = removed_ns(state, row.outcome)
    return removed == RETAINED or now_ns - max(removed, row.used_ns) < row.floor_ms * 1_000_000


def only_prolongs(state: State, entry: Entry) -> bool:
    """Whether an entry only says that known ids were asked for again. Their memory may do without it; a retry of a
    success may not be refused for want of room. Ids that nobody knows must be stored."""
    return isinstance(entry, Compound) and all(
        isinstance(op, IdsUsed)
        and all(state.find_id(op.hashes[at : at + 16]) is not None for at in range(0, len(op.hashes), 16))
        for op in entry.operations
    )
