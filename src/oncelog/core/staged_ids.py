"""Message ids among the records of stages that are being published.

A staged record was written before anybody looked at its id. So the ids are judged when the stage is published: a fresh
one is remembered with the offset that its record takes; the record of a known one, or of the second of two in one
publish, keeps its offset and is a hole from the start; other content under a known id refuses the whole publish (P3).
Offsets stay dense and the stage is still taken whole, by reference.
"""

from collections.abc import Iterator

from oncelog.core import batch as codec
from oncelog.core import message_id
from oncelog.core.append import id_refused, packed_id
from oncelog.core.command import PublishItem
from oncelog.core.entry import HolesAdded, IdsUsed, Operation
from oncelog.core.flat import Stream
from oncelog.core.holes import add_range
from oncelog.core.memory import known_id, use_counts
from oncelog.core.outcome import IdConflict, Refusal
from oncelog.core.record import MESSAGE_ID_HEADER
from oncelog.core.rows import Cause
from oncelog.core.seen import duplicate_of_id
from oncelog.core.state import State


def ids_in(first: int, batch: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """(number, message id, digest) of the records that name one, in a batch that begins at `first` of its stage."""
    deltas, _, _, values, headers = codec.decode_columns(batch)
    for delta, value, pairs in zip(deltas, values, headers, strict=True):
        for name, content in pairs:
            if name == MESSAGE_ID_HEADER and content:
                yield first + delta, content, message_id.values_digest([value])
                break


def told_id(id_: bytes) -> str:
    """A message id for people: its text, or its bytes in hex if it is none."""
    try:
        return id_.decode()
    except UnicodeDecodeError:
        return id_.hex()


def _conflict(stream_id: int, offset: int, stored: bytes, claimed: bytes, stream: Stream, id_: bytes) -> IdConflict:
    """With the id and its stream: a publish has thousands, and who sent them cannot guess which one it was."""
    return IdConflict(stream_id, offset, stored, claimed, told_id(id_), stream.topic, stream.partition)


class StagedIds:
    """The ids of one publish, taken stage by stage."""

    __slots__ = ("_fresh", "_holes", "_now_ns", "_state", "_used")

    def __init__(self, state: State, now_ns: int) -> None:
        self._state = state
        self._now_ns = now_ns
        self._fresh: dict[bytes, tuple[bytes, int, int]] = {}
        """Hash -> (digest, stream, offset) of what this publish brings."""
        self._used: dict[bytes, bytes] = {}
        """Hash -> value of ids whose record is gone: their memory starts anew."""
        self._holes: dict[int, list[int]] = {}
        """Stream -> flat ranges of offsets whose records were there before."""

    def take(self, stream: Stream, item: PublishItem, first: int) -> tuple[bytes, Refusal | None]:
        """(the fresh ids of a stage that begins at `first`, packed for its operation; what refuses the publish)."""
        packed: list[bytes] = []
        stream_id = stream.stream_id
        for number, id_, digest in item.ids or ():
            if (refusal := id_refused(id_, digest)) is not None:
                return b"", refusal
            hash_ = message_id.id_hash(stream, id_)
            offset = first + number
            earlier = self._fresh.get(hash_)
            if earlier is not None:
                if earlier[0] != digest:
                    return b"", _conflict(earlier[1], earlier[2], earlier[0], digest, stream, id_)
                self._hole(stream_id, offset)
                continue
            value = known_id(self._state, stream, hash_, self._now_ns)
            if value is None:
                self._fresh[hash_] = (digest, stream_id, offset)
                packed.append(packed_id(hash_, digest, number, 1))
                continue
            answer = duplicate_of_id(self._state, stream, value, digest)
            if isinstance(answer, IdConflict):
                place = answer.stream_id, answer.offset
                return b"", _conflict(*place, answer.stored_digest, digest, stream, id_)
            if answer.gone and use_counts(stream):
                self._used[hash_] = value
            self._hole(stream_id, offset)
        return b"".join(packed), None

    def _hole(self, stream_id: int, offset: int) -> None:
        add_range(self._holes.setdefault(stream_id, []), offset, offset + 1)

    def operations(self) -> list[Operation]:
        """What the duplicates lead to. Behind the stages: their offsets must be there."""
        found: list[Operation] = [
            HolesAdded(stream_id, ranges, int(Cause.DUPLICATE)) for stream_id, ranges in self._holes.items()
        ]
        if self._used:
            found.append(IdsUsed(b"".join(self._used), b"".join(self._used.values())))
        return found
