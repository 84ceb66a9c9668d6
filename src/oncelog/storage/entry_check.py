"""What `verify` asks of every entry before it is applied: does it follow from all that came before?

`apply` trusts an entry; this does not. It shares no rule with `decide`: it compares effects with the promises, so a bug
that let a duplicate in shows here. Called by `replay_group` with the rows that the entry touches loaded.

A batch that cannot be read is noted and the replay goes on; an entry that does not fit the state raises `Corruption`,
since nothing behind it could be judged.
"""

from collections.abc import Callable

from oncelog.core import batch as codec
from oncelog.core import holes, message_id
from oncelog.core.entry import (
    MANY_CLAIMS,
    PACKED_ID,
    RENEWS,
    Appended,
    Claimed,
    Compound,
    Entry,
    HolesAdded,
    Moved,
    Operation,
    StageAppended,
    StagePublished,
    TopicCreated,
)
from oncelog.core.flat import Producer, ProducerClaim, Stream, Written
from oncelog.core.producer import judge, remember, written_elsewhere
from oncelog.core.rows import FOREVER, HoleChunk, Table, chunk_of
from oncelog.core.state import State
from oncelog.core.verdict import Conflict, Duplicate, Fenced, Overlap
from oncelog.errors import BatchInvalid, Corruption
from oncelog.storage.index.interface import Index

Note = Callable[[str], None]

_REPEATED = (Duplicate, Conflict, Fenced, Overlap)
"""Verdicts that no accepted claim can have."""


class EntryCheck:
    """One per replay: it remembers nothing between entries but the index that rows come from."""

    def __init__(self, index: Index, note: Note) -> None:
        self._index = index
        self._note = note
        self.batches = 0
        # Within one entry: what its earlier operations have changed already.
        self._tails: dict[int, int] = {}
        self._ids: dict[bytes, tuple[int, int]] = {}
        self._made: set[int] = set()
        self._producers: dict[tuple[int, str], Producer] = {}

    def __call__(self, state: State, number: int, _entry_at: int, entry: Entry) -> None:
        self._tails.clear()
        self._ids.clear()
        self._made.clear()
        self._producers.clear()
        if entry.time_ns < state.time_ns:
            raise Corruption(f"entry {number} is older than the one before it")
        for operation in entry.operations if isinstance(entry, Compound) else (entry,):
            try:
                self._operation(state, operation, entry.time_ns)
            except BatchInvalid as error:
                self._note(f"entry {number}: a batch is not readable: {error}")
            except Corruption as error:
                raise Corruption(f"entry {number}: {error.what}") from error

    def _operation(self, state: State, op: Operation, time_ns: int) -> None:
        match op:
            case TopicCreated():
                self._made.update(op.stream_ids)
                self._tails.update(dict.fromkeys(op.stream_ids, 0))
            case Appended() if op.stream_id in self._made:
                self._advance(state, op.stream_id, op.first, op.count)
                self._batch(op.batch, op.count, dense=True)
            case Appended():
                self._appended(state, op, time_ns)
            case StageAppended():
                stage = state.stages[op.stage_id]
                if stage is None or stage.count != op.first:
                    raise Corruption(f"stage {op.stage_id} is appended to at {op.first}, it is not there or elsewhere")
                self._batch(op.batch, op.count, dense=True)
            case StagePublished():
                self._published(state, op, time_ns)
            case Moved():
                self._moved(state, op)
            case Claimed():
                written = written_elsewhere(op.stream_id, op.claim, op.outcome)
                self._claim_once(state, op.stream_id, op.claim, op.epoch, written, time_ns, renews=op.renews)
            case HolesAdded():
                tail = self._tail(state, op.stream_id)
                if any(not 0 <= offset <= tail for offset in op.ranges):
                    raise Corruption(f"stream {op.stream_id} has holes at {op.ranges}, its tail is {tail}")
            case _:
                pass  # its whole new value is in the entry; `core.audit` judges what comes of it

    def _appended(self, state: State, op: Appended, time_ns: int) -> None:
        stream = self._stream(state, op.stream_id)
        self._advance(state, op.stream_id, op.first, op.count)
        if op.claim is not None:
            written = _written(op, op.claim, 0, op.count)
            renews = bool(op.flags & RENEWS)
            self._claim_once(state, op.stream_id, op.claim, op.epoch, written, time_ns, renews=renews)
        if op.flags & MANY_CLAIMS:
            self._claims_of_run(state, op, time_ns)
        if op.ids:
            self._ids_once(state, stream, op.first, op.ids, time_ns)
        self._batch(op.batch, op.count, dense=True)

    def _advance(self, state: State, stream_id: int, first: int, count: int) -> None:
        """Offsets are dense: each append begins where the one before ended."""
        tail = self._tail(state, stream_id)
        if first != tail or count < 1:
            raise Corruption(f"stream {stream_id} is appended to at {first} with {count} records, its tail is {tail}")
        self._tails[stream_id] = first + count

    def _published(self, state: State, op: StagePublished, time_ns: int) -> None:
        if op.ids:
            self._ids_once(state, self._stream(state, op.stream_id), op.first, op.ids, time_ns)
        self._advance(state, op.stream_id, op.first, op.count)
        stage = state.stages[op.stage_id] if op.stage_id in state.stages else self._index.get(Table.STAGE, op.stage_id)
        if stage is None or stage.count != op.count:  # type: ignore[union-attr]
            raise Corruption(f"stage {op.stage_id} is published with {op.count} records, it is not there or not whole")

    def _moved(self, state: State, op: Moved) -> None:
        """A moved batch may lack records, but only holes."""
        header = self._batch(op.batch, op.count, dense=False)
        if header.record_count == op.count:
            return
        present = set(codec.decode_columns(op.batch)[0])
        for delta in range(op.count):
            if delta not in present and not self._is_hole(state, op.extent_id, op.first + delta):
                raise Corruption(f"offset {op.first + delta} of extent {op.extent_id} was dropped and is no hole")

    def _batch(self, batch: bytes, count: int, *, dense: bool) -> codec.BatchHeader:
        header = codec.skim(batch, dense=dense)
        self.batches += 1
        if header.last_offset_delta + 1 != count:
            raise Corruption(f"a batch of {header.last_offset_delta + 1} offsets is recorded as {count}")
        return header

    def _ids_once(self, state: State, stream: Stream, first: int, ids: bytes, time_ns: int) -> None:
        """A message id has one effect for as long as it is remembered."""
        known = self._index.find_ids([id_hash for id_hash, *_ in PACKED_ID.iter_unpack(ids)])
        for id_hash, _digest, number, _count in PACKED_ID.iter_unpack(ids):
            offset = first + number
            if id_hash in self._ids:
                raise Corruption(f"one entry uses a message id twice, at {self._ids[id_hash]} and {offset}")
            self._ids[id_hash] = (stream.stream_id, offset)
            value = state.ids.get(id_hash, known.get(id_hash))
            if value is None:
                continue
            _, stored_id, stored_offset, _, _ = message_id.unpack(value)
            stored = state.streams[stored_id] if stored_id in state.streams else self._stored_stream(stored_id)
            if message_id.is_remembered(value, stream, stored, time_ns):
                raise Corruption(
                    f"a message id of offset {stored_offset} of stream {stored_id} was written again at offset "
                    f"{offset} of stream {stream.stream_id}"
                )

    # --- rows ------------------------------------------------------------------------------------------------------

    def _stream(self, state: State, stream_id: int) -> Stream:
        stream = state.streams.get(stream_id)
        if stream is None:
            raise Corruption(f"stream {stream_id} is not there")
        return stream

    def _stored_stream(self, stream_id: int) -> Stream | None:
        row = self._index.get(Table.STREAM, stream_id)
        return row if isinstance(row, Stream) else None

    def _tail(self, state: State, stream_id: int) -> int:
        tail = self._tails.get(stream_id)
        return self._stream(state, stream_id).tail if tail is None else tail

    def _is_hole(self, state: State, extent: int, offset: int) -> bool:
        key = (extent, chunk_of(offset))
        chunk = state.holes[key] if key in state.holes else self._index.get(Table.HOLES, key)
        return isinstance(chunk, HoleChunk) and holes.hole_at(chunk, offset) is not None

    # --- producers -------------------------------------------------------------------------------------------------

    def _claims_of_run(self, state: State, op: Appended, time_ns: int) -> None:
        """Each of another record, in their order."""
        numbers = [number for number, _, _ in op.claims]
        if not numbers or numbers != sorted(set(numbers)) or not 0 <= numbers[0] <= numbers[-1] < op.count:
            raise Corruption(f"the claims of a batch of stream {op.stream_id} at {op.first} are not one per record")
        for number, epoch, claim in op.claims:
            self._claim_once(state, op.stream_id, claim, epoch, _written(op, claim, number, number + 1), time_ns)

    def _claim_once(
        self,
        state: State,
        stream_id: int,
        claim: ProducerClaim,
        epoch: int,
        written: Written,
        time_ns: int,
        *,
        renews: bool = False,
    ) -> None:
        """A producer sequence has one effect, and a fenced epoch none, unless the producer was forgotten meanwhile."""
        key = (stream_id, claim.name)
        producer = self._producers.get(key)
        if producer is None and (row := state.producers[key]) is not None:
            producer = row.replaced()
        if renews and producer is not None:
            stream = state.streams.get(stream_id)
            floor_ms = 0 if stream is None else stream.config.producer_idle_ms or stream.config.dedupe_floor_ms
            if floor_ms == FOREVER or time_ns - producer.used_ns < floor_ms * 1_000_000:
                raise Corruption(f"producer {claim.name!r} of stream {stream_id} was forgotten too early")
            producer = None
        verdict = judge(producer, claim)
        if isinstance(verdict, _REPEATED):
            raise Corruption(
                f"producer {claim.name!r} wrote sequence {claim.first} of epoch {claim.epoch} to stream {stream_id}, "
                f"which counts as {type(verdict).__name__}"
            )
        self._producers[key] = remember(producer, claim, epoch, written, time_ns)


def _written(op: Appended, claim: ProducerClaim, number: int, next_: int) -> Written:
    """What a claim to some records of a batch wrote."""
    return Written(claim.first, claim.last, claim.digest, op.first + number, op.first + next_)
