"""Message ids: how an id becomes a key, what is kept of it, and how long it is remembered.

An id belongs to a stream, or to a zone when its topic names one. What is kept is 40 bytes: digest, stream, offset,
append time and record count. Whether the record still exists is not kept: it follows from the stream's floor and
holes, so removing a million records rewrites no id.

An id is remembered while its record exists, and then until `dedupe_floor_ms` after the later of the record's removal
and the id's last use. A topic with a `duplicate_window_ms` remembers for exactly that window instead.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from xxhash import xxh3_128, xxh3_128_digest

from oncelog.core.flat import Stream
from oncelog.core.holes import hole_at
from oncelog.core.rows import FOREVER, HoleChunk

_VALUE: Final = struct.Struct("<16sQQQ")
VALUE_BYTES: Final = _VALUE.size
assert VALUE_BYTES == 40

_TIME_BITS: Final = 42
"""Milliseconds until the year 2109 beside a record count of 22 bits: both fit one word."""
_TIME_MASK: Final = (1 << _TIME_BITS) - 1
COUNT_MAX: Final = (1 << (64 - _TIME_BITS)) - 1

_STREAM_PREFIX: Final = struct.Struct("<cQ")

DIGEST_BYTES: Final = 16


def content_digest(content: bytes | bytearray | memoryview) -> bytes:
    """The `raw` digest: value bytes alone, transport headers never count."""
    return xxh3_128_digest(content)


def values_digest(values: Sequence[bytes | None]) -> bytes:
    """The `raw` digest of a batch. One record has the digest of its value, so that an id meets across faces. Everything
    else is hashed with a seed: framed values must not be taken for one record that is spelled like them, nor a missing
    value for an empty one."""
    if len(values) == 1 and (value := values[0]) is not None:
        return content_digest(value)
    digest = xxh3_128(seed=len(values))
    for value in values:
        digest.update(b"-" if value is None else b"%d:" % len(value))
        digest.update(value or b"")
    return digest.digest()


def id_hash(stream: Stream, message_id: bytes) -> bytes:
    """The key of an id within its stream or zone."""
    return xxh3_128_digest(_prefix(stream) + message_id)


def id_hashes(stream: Stream, message_ids: Iterable[bytes]) -> list[bytes]:
    """The key of each of them; empty for an empty one, which is none."""
    prefix = _prefix(stream)
    return [xxh3_128_digest(prefix + message_id) if message_id else b"" for message_id in message_ids]


def _prefix(stream: Stream) -> bytes:
    zone = stream.config.id_zone
    if zone:
        name = zone.encode()
        return b"z%d:%b" % (len(name), name)
    return _STREAM_PREFIX.pack(b"s", stream.stream_id)


def pack(digest: bytes, stream_id: int, offset: int, time_ns: int, count: int) -> bytes:
    """What is kept of an id."""
    return _VALUE.pack(digest, stream_id, offset, (time_ns // 1_000_000) & _TIME_MASK | count << _TIME_BITS)


def packed_each(
    ids: Iterable[tuple[bytes, bytes, int, int]], stream_id: int, first: int, time_ns: int
) -> Iterator[tuple[bytes, bytes]]:
    """(hash, what is kept) of the ids of one batch, given as (hash, digest, record number, record count)."""
    time = (time_ns // 1_000_000) & _TIME_MASK
    for id_hash_, digest, number, count in ids:
        yield id_hash_, _VALUE.pack(digest, stream_id, first + number, time | count << _TIME_BITS)


def unpack(value: bytes) -> tuple[bytes, int, int, int, int]:
    """(digest, stream id, offset, time ms, count)."""
    digest, stream_id, offset, word = _VALUE.unpack(value)
    return digest, stream_id, offset, word & _TIME_MASK, word >> _TIME_BITS


def used_again(value: bytes, time_ns: int) -> bytes:
    """The same id with a later last use."""
    digest, stream_id, offset, _, count = unpack(value)
    return pack(digest, stream_id, offset, time_ns, count)


def is_gone(stream: Stream | None, offset: int, holes: HoleChunk | None) -> bool:
    """Was the record that an id stands for removed? `holes` is the chunk of `offset`, if the stream has any."""
    if stream is None or stream.deleted_ns or offset < stream.floor:
        return True
    return holes is not None and hole_at(holes, offset) is not None


RETAINED: Final = -1
"""As a time of removal: the record is still there."""


def is_remembered(value: bytes, asked: Stream, stored: Stream | None, now_ns: int) -> bool:
    """Does this id still count? `asked` is the stream of the command, `stored` the one that the record went to.

    Times are whole milliseconds here, since that is what an id's value holds.
    """
    _, _, offset, time_ms, count = unpack(value)
    window_ms = asked.config.duplicate_window_ms
    now_ms = now_ns // 1_000_000
    if window_ms > 0:
        return now_ms - time_ms < window_ms
    floor_ms = asked.config.dedupe_floor_ms
    if floor_ms == FOREVER:
        return True
    # The last record of several under one id: part of a batch may be trimmed, and its id must outlive all of it.
    removed_ns = removal_ns(stored, offset + count - 1)
    return removed_ns == RETAINED or now_ms - max(removed_ns // 1_000_000, time_ms) < floor_ms


def removal_ns(stored: Stream | None, offset: int) -> int:
    """When the record at `offset` was trimmed or its stream deleted; RETAINED while it is there.

    A record that was deleted on its own counts as retained until the floor passes it: its id is then remembered for
    longer than promised, never shorter.
    """
    if stored is None:
        return 0
    marks = stored.trim_marks or []
    for at in range(0, len(marks), 2):
        if offset < marks[at]:
            return marks[at + 1]
    return stored.deleted_ns if stored.deleted_ns else RETAINED
