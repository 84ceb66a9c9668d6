"""Queries: commands that yield no entry. They see the writer's own state, so their answers pass the gate like all.

What waits at the gate must not change there: answers hold copies of whatever `apply` changes in place.
"""

import msgspec

from oncelog.core import message_id
from oncelog.core.command import GetApplication, GetCursor, GetProducer, GetReceipt, GetStream, GetTopic, GetTxn
from oncelog.core.consumer import key_of
from oncelog.core.consumer_row import copied
from oncelog.core.cursor import as_told
from oncelog.core.flat import Producer, Stream
from oncelog.core.memory import is_gone, known_id, known_producer
from oncelog.core.outcome import (
    ApplicationFound,
    CursorDone,
    NotFound,
    Outcome,
    ProducerFound,
    ReceiptFound,
    TopicFound,
    TopicMissing,
    TxnFound,
)
from oncelog.core.state import State, copied_txn
from oncelog.core.stream import stands

Decision = tuple[None, Outcome]


def decide_topic(state: State, command: GetTopic, _now_ns: int) -> Decision:
    """A topic's row."""
    topic = state.topics[command.name]
    if topic is None:
        return None, TopicMissing(command.name)
    return None, TopicFound(msgspec.structs.replace(topic, stream_ids=list(topic.stream_ids)))


def decide_stream(state: State, command: GetStream, _now_ns: int) -> Decision:
    """Floor, stable, tail."""
    stream = state.stream(command.topic, command.partition)
    return None, TopicMissing(command.topic, command.partition) if stream is None else stands(stream)


def decide_receipt(state: State, command: GetReceipt, now_ns: int) -> Decision:
    """Was this id taken, where, with which content?"""
    stream = state.stream(command.topic, command.partition)
    if stream is None:
        return None, TopicMissing(command.topic, command.partition)
    value = known_id(state, stream, message_id.id_hash(stream, command.message_id), now_ns)
    if value is None:
        return None, NotFound("message id")
    digest, stream_id, offset, time_ms, count = message_id.unpack(value)
    gone = is_gone(state, stream_id, offset)
    return None, ReceiptFound(stream_id, offset, offset + count, digest, time_ms, gone)


def decide_producer(state: State, command: GetProducer, now_ns: int) -> Decision:
    """What a restarted producer asks."""
    stream: Stream | None = None
    if command.topic:
        stream = state.stream(command.topic, command.partition)
        if stream is None:
            return None, TopicMissing(command.topic, command.partition)
    producer = known_producer(state, stream, command.name, now_ns)
    return None, NotFound("producer") if producer is None else producer_found(producer)


def producer_found(producer: Producer) -> ProducerFound:
    """A producer's row as it is told."""
    first, next_ = -1, -1
    newest = producer.newest
    if newest is not None:
        if newest.outcome is None:
            first, next_ = newest.first_offset, newest.next_offset
        elif len(newest.outcome) == 3:
            first, next_ = newest.outcome[1:3]
    return ProducerFound(producer.epoch, producer.last, first, next_, producer.used_ns)


def decide_cursor(state: State, command: GetCursor, _now_ns: int) -> Decision:
    """Where a consumer stands."""
    key, stream, refusal = key_of(state, command.name, command.topic, command.partition)
    if refusal is not None:
        return None, refusal
    row = state.cursors[key]
    if stream is None:
        return None, CursorDone(None if row is None else copied(row))
    pending = state.pending[key]
    waits = () if pending is None else tuple(pending.txn_ids)
    return None, CursorDone(None if row is None else as_told(state, stream, row), waits)


def decide_txn(state: State, command: GetTxn, _now_ns: int) -> Decision:
    """A txn's row."""
    txn = state.txns[command.txn_id]
    return None, NotFound("txn") if txn is None else TxnFound(copied_txn(txn))


def decide_application(state: State, command: GetApplication, _now_ns: int) -> Decision:
    """A Spark application's row."""
    row = state.applications[command.application]
    if row is None:
        return None, NotFound("application")
    return None, ApplicationFound(msgspec.structs.replace(row, outcome=list(row.outcome)))
