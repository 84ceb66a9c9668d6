"""What the next unit of a command finds: the state, and over it what the units before it changed.

`decide` changes no row. So that the second value of a command is judged as if the first were applied already, what it
changed is kept here: the tail, the producers that wrote, the ids that were used. Nothing of it outlives the command.
"""

from oncelog.core.flat import Producer, ProducerClaim, Stream
from oncelog.core.memory import is_gone, known_id, living, surely_living
from oncelog.core.message_id import unpack, used_again
from oncelog.core.outcome import Confirmed, IdConflict
from oncelog.core.producer import advance, remember, written_elsewhere
from oncelog.core.state import State


class Seen:
    """One stream, for one command or for those that are decided together."""

    __slots__ = ("ids", "now_ns", "producers", "row", "state", "stream", "subjects")

    def __init__(self, state: State, row: Stream, now_ns: int) -> None:
        self.state = state
        self.row = row
        self.now_ns = now_ns
        self.stream = row
        """Where the stream stands by now: its row, or a copy that was moved on."""
        self.producers: dict[str, Producer | None] = {}
        """By scoped name, those that wrote: copies."""
        self.ids: dict[bytes, bytes] = {}
        """Hash → packed value of the ids that were used."""
        self.subjects: dict[str, int] = {}
        """Subject → last offset of those that were written, where subjects are indexed."""

    def stand(self, tail: int, order_key: str, closed: bool) -> None:
        """Where the stream stands now."""
        stream = self.stream
        if stream.tail == tail and stream.order_key == order_key and stream.closed == closed:
            return
        if stream is self.row:
            stream = self.stream = self.row.replaced()
        stream.tail, stream.order_key, stream.closed = tail, order_key, closed

    # --- producers -------------------------------------------------------------------------------------------------

    def producer(self, name: str) -> Producer | None:
        """The row of a producer, forgotten or not. KeyError if it is not loaded."""
        if name in self.producers:
            return self.producers[name]
        return self.state.producers[self.row.stream_id, name]

    def judged_against(self, claim: ProducerClaim) -> tuple[Producer | None, bool]:
        """(the row to judge the claim against, whether an acceptance starts that row anew because it was forgotten)."""
        row = self.producer(claim.name)
        if row is None or claim.name in self.producers or surely_living(self.stream, row):
            return row, False
        living_row = living(self.state, self.stream, row, self.now_ns)
        return living_row, living_row is None

    def knows(self, name: str) -> bool:
        """Whether the row is loaded, also if there is none."""
        return name in self.producers or (self.row.stream_id, name) in self.state.producers

    def wrote(self, claim: ProducerClaim, epoch: int, first: int, next_: int) -> None:
        """A claim was accepted for records of this stream."""
        row = self._changing(claim.name)
        self.producers[claim.name] = advance(row, claim, epoch, first, next_, self.now_ns)

    def renewed(self, claim: ProducerClaim, epoch: int, first: int, next_: int) -> None:
        """The same of a producer that was forgotten."""
        self.producers[claim.name] = advance(None, claim, epoch, first, next_, self.now_ns)

    def claimed(self, claim: ProducerClaim, epoch: int, outcome: list[int], renews: bool) -> None:
        """A claim was used up by what is stored already."""
        written = written_elsewhere(self.row.stream_id, claim, outcome)
        row = None if renews else self._changing(claim.name)
        self.producers[claim.name] = remember(row, claim, epoch, written, self.now_ns)

    def _changing(self, name: str) -> Producer | None:
        if name in self.producers:
            return self.producers[name]
        row = self.state.producers[self.row.stream_id, name]
        return None if row is None else row.replaced()

    # --- message ids -----------------------------------------------------------------------------------------------

    def known_id(self, id_hash: bytes) -> bytes | None:
        """The packed value of an id that still counts."""
        value = self.ids.get(id_hash)
        return known_id(self.state, self.stream, id_hash, self.now_ns) if value is None else value

    def used(self, id_hash: bytes, value: bytes) -> None:
        """A known id was used again: its memory starts anew."""
        self.ids[id_hash] = used_again(value, self.now_ns)

    def first_outcome(self, value: bytes, digest: bytes) -> Confirmed | IdConflict:
        """The answer to a known id: its first outcome, or a conflict (P3)."""
        _, stream_id, offset, _, _ = unpack(value)
        is_new = stream_id == self.row.stream_id and offset >= self.row.tail
        return outcome_of_id(self.stream, value, digest, not is_new and is_gone(self.state, stream_id, offset))


def duplicate_of_id(state: State, asked: Stream, value: bytes, digest: bytes) -> Confirmed | IdConflict:
    """The answer to a known id of `asked` or of its zone: its first outcome, or a conflict (P3)."""
    _, stream_id, offset, _, _ = unpack(value)
    return outcome_of_id(asked, value, digest, is_gone(state, stream_id, offset))


def outcome_of_id(asked: Stream, value: bytes, digest: bytes, gone: bool) -> Confirmed | IdConflict:
    """The same, once it is known whether the record is gone."""
    stored_digest, stream_id, offset, time_ms, count = unpack(value)
    if stored_digest != digest:
        return IdConflict(stream_id, offset, stored_digest, digest)
    closed = stream_id == asked.stream_id and asked.closed and offset + count == asked.tail
    return Confirmed(stream_id, offset, offset + count, time_ms * 1_000_000, True, gone, closed=closed)
