"""Whole-state invariants, as one pure function: what must hold between rows, whatever commands came before.

`verify` runs it over everything that a log remembers; simulations and property tests run it after every step. It
looks at the rows that are loaded and never asks for others: a row that was not loaded is not judged.
"""

from collections.abc import Iterator

from oncelog import limits
from oncelog.core.consumer_row import holds
from oncelog.core.flat import Producer, Stream
from oncelog.core.producer import SequenceMode
from oncelog.core.rows import Cause, Cursor, Holder, HoleChunk, Pending, Stage, Topic
from oncelog.core.state import NO_STREAM, State
from oncelog.core.txn import Txn, TxnState


def audit(state: State) -> list[str]:
    """What is wrong, one sentence each; empty if nothing is."""
    wrong: list[str] = []
    for name, topic in state.topics.items():
        if topic is not None:
            wrong += _topic(state, name, topic)
    hole_counts: dict[int, int] = {}
    for (stream_id, number), chunk in state.holes.items():
        if chunk is not None:
            wrong += _chunk(state.streams.get(stream_id), stream_id, number, chunk)
            count = sum(chunk.holes[at + 1] - chunk.holes[at] for at in range(0, len(chunk.holes) - 3, 4))
            hole_counts[stream_id] = hole_counts.get(stream_id, 0) + count
    txns = {txn.producer_id: txn for txn in state.txns.values() if txn is not None}
    for stream_id, stream in state.streams.items():
        if stream is not None:
            wrong += _stream(state, stream_id, stream, hole_counts.get(stream_id, 0), txns)
    for (stream_id, name), producer in state.producers.items():
        if producer is not None:
            wrong += _producer(state, stream_id, name, producer)
    for (name, stream_id), cursor in state.cursors.items():
        if cursor is not None:
            wrong += _cursor(state, name, stream_id, cursor)
    for txn_id, txn in state.txns.items():
        if txn is not None:
            wrong += _txn(state, txn_id, txn)
    wrong += _waiting(state)
    for stage_id, stage in state.stages.items():
        if stage is not None:
            wrong += _stage(state, stage_id, stage)
    return wrong


def _topic(state: State, name: str, topic: Topic) -> Iterator[str]:
    if topic.name != name:
        yield f"topic {name!r} calls itself {topic.name!r}"
    if max(topic.topic_id, *topic.stream_ids, 0) >= state.next_id:
        yield f"topic {name!r} uses an id that was not handed out yet"
    if len(set(topic.stream_ids)) != len(topic.stream_ids):
        yield f"topic {name!r} names a stream twice"
    for partition, stream_id in enumerate(topic.stream_ids):
        if stream_id not in state.streams:
            continue
        stream = state.streams[stream_id]
        if stream is None:
            yield f"topic {name!r} names stream {stream_id}, which is not there"
        elif (stream.topic_id, stream.partition) != (topic.topic_id, partition):
            yield f"stream {stream_id} does not know that it is partition {partition} of topic {name!r}"
        elif stream.config != topic.config:
            yield f"stream {stream_id} has other settings than its topic {name!r}"
        elif stream.deleted_ns:
            yield f"topic {name!r} names stream {stream_id}, which was deleted"


def _stream(state: State, stream_id: int, stream: Stream, hole_count: int, txns: dict[int, Txn]) -> Iterator[str]:
    if stream.stream_id != stream_id:
        yield f"stream {stream_id} calls itself {stream.stream_id}"
    if stream_id >= state.next_id:
        yield f"stream {stream_id} has an id that was not handed out yet"
    if not 0 <= stream.floor <= stream.stable <= stream.tail:
        yield f"stream {stream_id}: floor {stream.floor}, stable {stream.stable}, tail {stream.tail} are out of order"
    if stream.time_ns > state.time_ns:
        yield f"stream {stream_id} was appended to after the newest entry"
    if hole_count != stream.hole_count:
        yield f"stream {stream_id} counts {stream.hole_count} holes, its chunks hold {hole_count}"
    marks = stream.trim_marks or []
    if any(marks[at] >= marks[at + 2] for at in range(0, len(marks) - 2, 2)) or (marks and marks[-2] != stream.floor):
        yield f"stream {stream_id}: trim marks {marks} do not rise to the floor {stream.floor}"
    for producer_id in stream.open_txns or ():
        txn = txns.get(producer_id)
        if txn is not None and (txn.state is not TxnState.ONGOING or stream_id not in txn.streams):
            yield f"stream {stream_id} waits for producer {producer_id}, whose txn is not open there"


def _chunk(stream: Stream | None, stream_id: int, number: int, chunk: HoleChunk) -> Iterator[str]:
    where = f"chunk {number} of stream {stream_id}"
    if len(chunk.holes) % 4:
        yield f"{where}: {len(chunk.holes)} numbers are not whole holes"
        return
    end = number << limits.HOLE_CHUNK_BITS
    chunk_end = (number + 1) << limits.HOLE_CHUNK_BITS
    for at in range(0, len(chunk.holes), 4):
        first, next_, cause, _ = chunk.holes[at : at + 4]
        if not end <= first < next_ <= chunk_end:
            yield f"{where}: hole {first} to {next_} overlaps another, is empty or lies outside"
        if cause not in tuple(Cause):
            yield f"{where}: hole {first} to {next_} has no cause"
        end = next_
    if stream is not None and end > stream.tail and chunk.holes:
        yield f"{where}: a hole ends at {end}, the tail is {stream.tail}"


def _producer(state: State, stream_id: int, name: str, producer: Producer) -> Iterator[str]:
    where = f"producer {name!r} of stream {stream_id}"
    batches = producer.batches
    if batches and batches[-1].last != producer.last:
        yield f"{where} is at sequence {producer.last}, its newest batch ends at {batches[-1].last}"
    if producer.used_ns > state.time_ns:
        yield f"{where} was used after the newest entry"
    stream = state.streams.get(stream_id)
    previous_last = -1
    for written in batches:
        # Kafka's sequences go round, so that only they may fall.
        if producer.mode != SequenceMode.RECORDS:
            if not previous_last < written.first <= written.last:
                yield f"{where}: sequences {written.first} to {written.last} follow {previous_last}"
            previous_last = written.last
        if stream_id != NO_STREAM and stream is not None and written.outcome is None:
            first, next_ = written.first_offset, written.next_offset
            if not 0 <= first <= next_ <= stream.tail:
                yield f"{where} remembers offsets {first} to {next_}, the tail is {stream.tail}"


def _cursor(state: State, name: str, stream_id: int, cursor: Cursor) -> Iterator[str]:
    where = f"cursor {name!r} of stream {stream_id}"
    end = cursor.frontier
    for at in range(0, len(cursor.confirmed) - 1, 2):
        first, next_ = cursor.confirmed[at : at + 2]
        if not end < first < next_:
            yield f"{where}: confirmed {first} to {next_} is empty, touches what is before it or lies below it"
        end = next_
    if len(cursor.confirmed) % 2:
        yield f"{where}: confirmed ranges have an odd end"
    for offset in cursor.waiting:
        if not cursor.frontier <= offset < cursor.delivered or holds(cursor.confirmed, offset):
            yield f"{where}: offset {offset} waits to be confirmed, and is, or was never delivered"
    stream = state.streams.get(stream_id)
    if stream is None:
        return
    if end > stream.tail and not cursor.given:
        yield f"{where} stands at {end}, the tail is {stream.tail}"
    pin = (stream.pins or {}).get(name)
    if pin != (cursor.frontier if cursor.pinned else None):
        yield f"{where} stands at {cursor.frontier}, its stream pins {pin}"


def _txn(state: State, txn_id: str, txn: Txn) -> Iterator[str]:
    if txn.txn_id != txn_id:
        yield f"txn {txn_id!r} calls itself {txn.txn_id!r}"
    if txn.producer_id >= state.next_producer_id:
        yield f"txn {txn_id!r} has producer id {txn.producer_id}, which was not handed out yet"
    if txn.state is not TxnState.ONGOING and (txn.streams or txn.pending or txn.groups):
        yield f"txn {txn_id!r} is not open and still holds streams or cursors"
    for stream_id, ranges in txn.streams.items():
        end = -1
        for at in range(0, len(ranges) - 1, 2):
            if not end < ranges[at] < ranges[at + 1]:
                yield f"txn {txn_id!r}: ranges {ranges} of stream {stream_id} are not sorted and apart"
            end = ranges[at + 1]
        stream = state.streams.get(stream_id)
        if stream is None or not ranges or stream.deleted_ns:
            continue
        if end > stream.tail:
            yield f"txn {txn_id!r} wrote stream {stream_id} up to {end}, the tail is {stream.tail}"
        if (stream.open_txns or {}).get(txn.producer_id) != ranges[0]:
            yield f"txn {txn_id!r} is open at {ranges[0]} of stream {stream_id}, which does not wait for it"


def _waiting(state: State) -> Iterator[str]:
    """Both ways of each tie: a move that waits in a txn is known to its cursor, a producer id to its txn."""
    for txn_id, txn in state.txns.items():
        if txn is None:
            continue
        for name, stream_id, _, _ in txn.pending:
            row = state.pending.get((name, stream_id), Pending([txn_id]))
            if row is None or txn_id not in row.txn_ids:
                yield f"txn {txn_id!r} moves cursor {name!r} of stream {stream_id}, which does not know it"
        holder = state.holders.get(txn.producer_id, Holder(txn_id))
        if holder is None or holder.txn_id != txn_id:
            yield f"producer id {txn.producer_id} does not know that txn {txn_id!r} holds it"
    for key, row in state.pending.items():
        for txn_id in row.txn_ids if row is not None else ():
            txn = state.txns.get(txn_id)
            if txn_id in state.txns and (txn is None or all(move[:2] != key for move in txn.pending)):
                yield f"cursor {key[0]!r} of stream {key[1]} waits for txn {txn_id!r}, which does not move it"
    for producer_id, holder in state.holders.items():
        txn = state.txns.get(holder.txn_id) if holder is not None else None
        if holder is not None and holder.txn_id in state.txns and (txn is None or txn.producer_id != producer_id):
            yield f"producer id {producer_id} belongs to txn {holder.txn_id!r}, which does not hold it"


def _stage(state: State, stage_id: int, stage: Stage) -> Iterator[str]:
    if stage.stage_id != stage_id:
        yield f"stage {stage_id} calls itself {stage.stage_id}"
    if stage_id >= state.next_id:
        yield f"stage {stage_id} has an id that was not handed out yet"
    if stage.count < 0 or (stage.count == 0) != (stage.last_first < 0) or stage.last_first >= max(stage.count, 0) > 0:
        yield f"stage {stage_id}: {stage.count} records, its newest batch begins at {stage.last_first}"
