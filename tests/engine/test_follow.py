"""Waking readers: by records, by the end of a stream, never by a hole, and never before the record is durable."""

import pytest

from oncelog.core import batch as codec
from oncelog.core.command import (
    AddToTxn,
    Append,
    CloseStream,
    CreateTopic,
    DeleteRecords,
    DeleteTopic,
    EndTxn,
    InitProducer,
    Trim,
)
from oncelog.core.flat import ProducerClaim
from oncelog.core.outcome import TxnDone
from oncelog.core.producer import SequenceMode
from oncelog.engine.follow import Waiter
from oncelog.testing.sim_engine import SimEngine, WatchedDisk


class Reader:
    """A reader that waits, and counts how often it was woken."""

    def __init__(self, engine: SimEngine, offset: int = 0) -> None:
        self.woken = 0
        topic = engine.view.topic("a")
        assert topic is not None
        self.waiter: Waiter | None = engine.follow.wait(topic.stream_ids[0], offset, self._wake)

    def _wake(self) -> None:
        self.woken += 1


def opened() -> SimEngine:
    engine = SimEngine(WatchedDisk())
    engine.execute(CreateTopic("a"))
    engine.execute(CreateTopic("b"))
    return engine


def append(topic: str = "a") -> Append:
    return Append(topic, 0, codec.encode_values([b"x"], 1), 1)


def begin(engine: SimEngine) -> TxnDone:
    producer = engine.execute(InitProducer("t"))
    assert isinstance(producer, TxnDone)
    engine.execute(AddToTxn("t", producer.producer_id, producer.epoch, [("a", 0)]))
    claim = ProducerClaim(f"kafka:{producer.producer_id}", producer.epoch, 0, 0, int(SequenceMode.RECORDS))
    engine.execute(Append("a", 0, codec.encode_values([b"x"], 1), 1, claim=claim, txn_id="t"))
    return producer


def test_a_reader_is_woken_once_and_only_when_the_record_is_durable() -> None:
    engine = opened()
    reader, other = Reader(engine), Reader(engine, 1)
    engine.submit(append())
    engine.seal()
    engine.write()
    assert reader.woken == 0
    engine.written()
    engine.answer()
    assert (reader.woken, other.woken) == (1, 0)
    engine.execute(append())
    assert (reader.woken, other.woken) == (1, 1)


def test_a_reader_with_something_to_read_does_not_wait() -> None:
    engine = opened()
    engine.execute(append())
    assert Reader(engine, 0).waiter is None
    assert Reader(engine, 1).waiter is not None


def test_records_of_another_stream_wake_nobody_here() -> None:
    engine = opened()
    reader = Reader(engine)
    engine.execute(append("b"))
    assert reader.woken == 0


def test_an_aborted_txn_wakes_nobody_and_the_waiter_steps_over_its_holes() -> None:
    engine = opened()
    reader = Reader(engine)
    producer = begin(engine)
    assert reader.woken == 0, "an open txn's records may not be delivered"
    engine.execute(EndTxn("t", producer.producer_id, producer.epoch, commit=False))
    assert reader.woken == 0
    assert reader.waiter is not None
    assert reader.waiter.offset == 2
    engine.execute(append())
    assert reader.woken == 1


def test_a_committed_txn_wakes_when_it_ends() -> None:
    engine = opened()
    reader = Reader(engine)
    producer = begin(engine)
    engine.execute(EndTxn("t", producer.producer_id, producer.epoch, commit=True))
    assert reader.woken == 1


def test_a_record_deleted_in_its_own_group_wakes_nobody() -> None:
    engine = opened()
    reader = Reader(engine)
    engine.submit(append())
    engine.submit(DeleteRecords("a", 0, [0, 1]))
    engine.flush()
    assert reader.woken == 0


def test_the_end_of_a_stream_wakes_everyone() -> None:
    for command in (CloseStream("a"), DeleteTopic("a")):
        engine = opened()
        readers = [Reader(engine, offset) for offset in (0, 0, 5)]
        engine.execute(command)
        assert [reader.woken for reader in readers] == [1, 1, 1]


def test_a_reader_that_went_away_is_not_woken() -> None:
    engine = opened()
    reader, stays = Reader(engine), Reader(engine)
    assert reader.waiter is not None
    engine.follow.cancel(reader.waiter)
    engine.follow.cancel(reader.waiter)
    engine.execute(append())
    assert (reader.woken, stays.woken) == (0, 1)


def test_a_reader_may_wait_again_while_it_is_being_woken() -> None:
    engine = opened()
    woken: list[int] = []
    topic = engine.view.topic("a")
    assert topic is not None

    def wake() -> None:
        woken.append(len(woken))
        engine.follow.wait(topic.stream_ids[0], len(woken), wake)

    engine.follow.wait(topic.stream_ids[0], 0, wake)
    for _ in range(3):
        engine.execute(append())
    assert woken == [0, 1, 2]


@pytest.mark.parametrize("commit", [True, False])
def test_closing_wakes_nobody_while_a_txn_is_open_and_its_end_wakes_everyone(commit: bool) -> None:
    engine = opened()
    producer = begin(engine)
    readers = [Reader(engine, offset) for offset in (0, 1, 9)]
    engine.execute(CloseStream("a"))
    assert [reader.woken for reader in readers] == [0, 0, 0], "what the txn commits is still to come"
    late = Reader(engine, 1)
    assert late.waiter is not None
    engine.execute(EndTxn("t", producer.producer_id, producer.epoch, commit=commit))
    assert [reader.woken for reader in (*readers, late)] == [1, 1, 1, 1]
    assert Reader(engine, 9).waiter is None, "nothing will ever come"


def test_a_reader_is_woken_when_what_it_waited_for_was_trimmed_in_the_same_group() -> None:
    engine = opened()
    reader, behind = Reader(engine), Reader(engine, 2)
    engine.submit(append())
    engine.submit(append())
    engine.submit(Trim("a", 0, 2))
    engine.flush()
    assert (reader.woken, behind.woken) == (1, 0)
