"""Three ways to read a stream, waiting at each of them at many streams, and searches by time."""

import asyncio
import random
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from crc32c import crc32c

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import AddToTxn, CloseStream, DeleteRecords, DeleteTopic, EndTxn, InitProducer, Trim
from oncelog.core.flat import ProducerClaim
from oncelog.core.outcome import Confirmed, OffsetGone, Refusal, StreamDone, TopicDone, TopicMissing, TxnDone
from oncelog.core.producer import SequenceMode
from oncelog.engine.engine import Engine
from oncelog.engine.reader import Way
from oncelog.engine.reads import ReadResult
from oncelog.engine.time_seek import NONE_SO_LATE, OffsetAt
from oncelog.engine.wait_many import Awaited, ManyWait
from tests.engine.opening import SETTINGS, append, append_of, checkpoint, done, make_topic, opened, read_all, until


async def fetch(engine: Engine, offset: int, bytes_max: int, way: Way) -> ReadResult:
    future: asyncio.Future[ReadResult | Refusal] = asyncio.get_running_loop().create_future()
    engine.read("a", 0, offset, bytes_max, future.set_result, way)
    result = await future
    assert isinstance(result, ReadResult), result
    return result


async def consume(engine: Engine, bytes_max: int) -> tuple[list[tuple[int, bytes]], int]:
    """What Kafka's consumer delivers at read_committed, and where it stands at the end: its own algorithm (Fetcher,
    `consumeAbortedTransactionsUpTo`), which takes its place from the batches alone."""
    delivered: list[tuple[int, bytes]] = []
    place = 0
    while True:
        result = await fetch(engine, place, bytes_max, Way.KAFKA_COMMITTED)
        if not result.batches:
            return delivered, place
        to_come = sorted(result.aborted, key=lambda aborted: aborted[1])
        dropped: set[int] = set()
        for base_offset, batch in result.batches:
            header = codec.read_header(batch)
            last = base_offset + header.last_offset_delta
            while to_come and to_come[0][1] <= last:
                dropped.add(to_come.pop(0)[0])
            records = codec.decode(batch) if header.record_count else []
            if header.attributes & codec.CONTROL:
                if records and records[0][2][2:] == b"\x00\x00":  # type: ignore[index]
                    dropped.discard(header.producer_id)
            elif not (header.attributes & codec.TRANSACTIONAL and header.producer_id in dropped):
                delivered += [
                    (base_offset + delta, value or b"")
                    for delta, _, _, value, _ in records
                    if base_offset + delta >= place
                ]
            place = last + 1


class Producer:
    """A transactional producer on topic `a`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sequence = 0
        self.is_open = False
        self.who: TxnDone

    async def begin(self, engine: Engine) -> None:
        if not hasattr(self, "who"):
            self.who = await done(engine, InitProducer(self.name), TxnDone)
        await done(engine, AddToTxn(self.name, self.who.producer_id, self.who.epoch, [("a", 0)]), TxnDone)
        self.is_open = True

    async def write(self, engine: Engine, *values: bytes) -> None:
        last = self.sequence + len(values) - 1
        scope = f"kafka:{self.who.producer_id}"
        claim = ProducerClaim(scope, self.who.epoch, self.sequence, last, SequenceMode.RECORDS)
        batch = codec.encode_values(values, 1)
        # As a Kafka client encodes it: the flag, and whose it is.
        stamped = _of_producer(batch, self.who.producer_id, self.who.epoch, self.sequence)
        command = append_of("a", *values, claim=claim, txn_id=self.name)
        command.batch = stamped
        await done(engine, command, Confirmed)
        self.sequence = last + 1

    async def end(self, engine: Engine, commit: bool) -> None:
        await done(engine, EndTxn(self.name, self.who.producer_id, self.who.epoch, commit), TxnDone)
        self.is_open = False


def _of_producer(batch: bytes, producer_id: int, epoch: int, sequence: int) -> bytes:
    changed = bytearray(batch)
    changed[codec.ATTRIBUTES_AT : codec.ATTRIBUTES_AT + 2] = codec.TRANSACTIONAL.to_bytes(2, "big")
    changed[codec.PRODUCER_ID_AT : codec.PRODUCER_EPOCH_AT] = producer_id.to_bytes(8, "big")
    changed[codec.PRODUCER_EPOCH_AT : codec.BASE_SEQUENCE_AT] = epoch.to_bytes(2, "big")
    changed[codec.BASE_SEQUENCE_AT : codec.RECORD_COUNT_AT] = sequence.to_bytes(4, "big")
    changed[codec.CRC_AT : codec.ATTRIBUTES_AT] = crc32c(bytes(changed[codec.ATTRIBUTES_AT :])).to_bytes(4, "big")
    return bytes(changed)


@pytest.mark.parametrize("seed", range(12))
def test_a_kafka_consumer_gets_what_every_reader_of_committed_data_gets(seed: int) -> None:
    """Whatever is aborted, deleted or open, and wherever a fetch happens to end; and it gets to the end by itself."""

    async def scenario() -> None:
        rng = random.Random(seed)
        async with opened(None) as engine:
            await make_topic(engine, "a")
            producers = [Producer(f"t{number}") for number in range(3)]
            for step in range(60):
                producer = rng.choice(producers)
                value = b"%d" % step
                match rng.randrange(6):
                    case 0:
                        await append(engine, "a", value, value + b"'")
                    case 1 if step > 10:
                        stream = engine.reads.resolve("a", 0)
                        assert not isinstance(stream, TopicMissing)
                        if stream.stable:
                            first = rng.randrange(stream.stable)
                            last = min(stream.stable, first + rng.randrange(1, 5))
                            await engine.execute(DeleteRecords("a", 0, [first, last]))
                    case 2 if producer.is_open:
                        await producer.end(engine, rng.random() < 0.5)
                    case _ if not producer.is_open:
                        await producer.begin(engine)
                    case _:
                        await producer.write(engine, *[value] * rng.randrange(1, 4))
            for bytes_max in (1, 300, 20_000):
                delivered, place = await consume(engine, bytes_max)
                stream = engine.reads.resolve("a", 0)
                assert not isinstance(stream, TopicMissing)
                assert delivered == read_all(engine, "a")
                assert place == stream.stable, "a consumer that stays behind would show a lag for ever"

    asyncio.run(scenario())


def test_deleted_records_at_the_end_are_covered_by_a_batch_without_records(place: Path | None) -> None:
    async def scenario() -> None:
        async with opened(place) as engine:
            await make_topic(engine, "a")
            await append(engine, "a", b"x", b"y")
            await append(engine, "a", b"z")
            await done(engine, DeleteRecords("a", 0, [1, 3]), StreamDone)
            for way in (Way.UNCOMMITTED, Way.KAFKA_COMMITTED):
                result = await fetch(engine, 0, limits.MIB, way)
                assert [base for base, _ in result.batches] == [0, 2]
                filler = result.batches[-1].batch
                assert codec.check_crc(filler)
                header = codec.read_header(filler)
                assert (header.base_offset, header.last_offset_delta, header.record_count) == (2, 0, 0)

    asyncio.run(scenario())


# --- waiting -----------------------------------------------------------------------------------------------------


class Sleeper:
    """Somebody who waits, and counts how often it was woken."""

    def __init__(self, engine: Engine, *places: Awaited, bytes_min: int = 1, wait_ms: int = 60_000) -> None:
        self.woken = 0
        self.wait = engine.wait_many(list(places), bytes_min, wait_ms, self._wake)

    def _wake(self) -> None:
        self.woken += 1


def test_a_wait_at_many_streams_ends_with_the_first_of_them(place: Path | None) -> None:
    async def scenario() -> None:
        async with opened(place) as engine:
            await make_topic(engine, "a", 3)
            sleeper = Sleeper(engine, *[Awaited("a", partition, 0) for partition in range(3)])
            cancelled = Sleeper(engine, Awaited("a", 1, 0))
            assert isinstance(cancelled.wait, ManyWait)
            cancelled.wait.cancel()
            await append(engine, "a", b"x", partition=1)
            await append(engine, "a", b"x", partition=2)
            assert (sleeper.woken, cancelled.woken) == (1, 0)
            assert Sleeper(engine, Awaited("a", 0, 0), Awaited("a", 1, 0)).wait is None, "there is something already"
            assert not engine.follow._waiters

    asyncio.run(scenario())


def test_a_minimum_of_bytes_is_counted_over_all_streams(place: Path | None) -> None:
    async def scenario() -> None:
        async with opened(place) as engine:
            await make_topic(engine, "a", 2)
            one = len(append_of("a", b"x" * 100).batch)
            sleeper = Sleeper(engine, Awaited("a", 0, 0), Awaited("a", 1, 0), bytes_min=3 * one)
            await append(engine, "a", b"x" * 100)
            await append(engine, "a", b"x" * 100, partition=1)
            assert sleeper.woken == 0
            await append(engine, "a", b"x" * 100)
            assert sleeper.woken == 1

    asyncio.run(scenario())


def test_each_way_waits_for_what_it_may_see() -> None:
    async def scenario() -> None:
        async with opened(None) as engine:
            await make_topic(engine, "a")
            ways = {way: Sleeper(engine, Awaited("a", 0, 0, way)) for way in Way}
            producer = Producer("t")
            await producer.begin(engine)
            await producer.write(engine, b"open")
            assert {way: sleeper.woken for way, sleeper in ways.items()} == {
                Way.COMMITTED: 0,
                Way.UNCOMMITTED: 1,
                Way.KAFKA_COMMITTED: 0,
            }
            await producer.end(engine, commit=False)
            assert ways[Way.COMMITTED].woken == 0, "nothing that may be delivered has come"
            assert ways[Way.KAFKA_COMMITTED].woken == 1, "the marker has to be passed"
            await append(engine, "a", b"x")
            assert [sleeper.woken for sleeper in ways.values()] == [1, 1, 1]

    asyncio.run(scenario())


def test_what_else_ends_a_wait_and_what_does_not(place: Path | None) -> None:
    async def scenario() -> None:
        async with opened(place) as engine:
            await make_topic(engine, "a", 2)
            await make_topic(engine, "b")
            assert Sleeper(engine, Awaited("nowhere", 0, 0)).wait is None
            assert Sleeper(engine, Awaited("a", 0, 1)).wait is None, "an offset beyond the end is an error to report"
            await done(engine, CloseStream("b", 0), StreamDone)
            closed = Sleeper(engine, Awaited("b", 0, 0), wait_ms=10)
            assert closed.wait is not None, "a closed stream would answer every poll at once"
            both = Sleeper(engine, Awaited("b", 0, 0), Awaited("a", 1, 0))
            await until(lambda: closed.woken == 1)
            assert both.woken == 0
            await done(engine, DeleteTopic("a"), TopicDone)
            assert both.woken == 1

    asyncio.run(scenario())


# --- by time -----------------------------------------------------------------------------------------------------


async def offset_at(engine: Engine, time_ms: int, **fields: Any) -> OffsetAt | Refusal:
    future: asyncio.Future[OffsetAt | Refusal] = asyncio.get_running_loop().create_future()
    engine.offset_at("a", 0, time_ms, future.set_result, **fields)
    return await future


def test_records_are_found_by_their_own_time_and_by_the_time_of_their_append(place: Path | None) -> None:
    async def scenario() -> None:
        async with opened(place) as engine:
            await make_topic(engine, "a")
            now_ms = engine.now_ns() // 1_000_000
            assert await offset_at(engine, 0) == NONE_SO_LATE
            for back_ms in (5_000, 1_000, 3_000, 500):
                command = append_of("a", b"x", b"y")
                command.batch = codec.encode_values([b"x", b"y"], now_ms - back_ms)
                await done(engine, command, Confirmed)
            if place is not None:
                await checkpoint(engine)
            found = [
                await offset_at(engine, now_ms - back_ms, by_record=True) for back_ms in (9_000, 5_000, 4_000, 600)
            ]
            assert found == [
                OffsetAt(offset, now_ms - at) for offset, at in ((0, 5000), (0, 5000), (2, 1000), (6, 500))
            ]
            assert await offset_at(engine, now_ms, by_record=True) == NONE_SO_LATE
            await done(engine, DeleteRecords("a", 0, [2, 3, 6, 7]), StreamDone)
            found = [await offset_at(engine, now_ms - back_ms, by_record=True) for back_ms in (4_000, 600)]
            assert found == [OffsetAt(3, now_ms - 1000), OffsetAt(7, now_ms - 500)]
            by_append = await offset_at(engine, now_ms)
            assert isinstance(by_append, OffsetAt)
            assert by_append.offset == 0
            assert await offset_at(engine, now_ms + 3_600_000) == NONE_SO_LATE
            await done(engine, Trim("a", 0, 4), StreamDone)
            by_append = await offset_at(engine, 0)
            assert isinstance(by_append, OffsetAt)
            assert by_append.offset == 4

    asyncio.run(scenario())


# --- segments that go while they are read ------------------------------------------------------------------------


def test_a_front_trim_beside_a_slow_cold_read_ends_nothing(tmp_path: Path) -> None:
    """1. A cold read is planned. 2. Before the thread gets to it, the records are trimmed and their segments dropped.
    3. The reader gets what is left, or is refused with the floor; the engine goes on."""

    async def scenario() -> None:
        async with opened(tmp_path / "log") as engine:
            await make_topic(engine, "a")
            for number in range(40):
                await append(engine, "a", b"%02d" % number * 10_000)
            await checkpoint(engine)  # the index builder is past what is dropped
            go_on = threading.Event()
            told: list[Any] = []
            with mock.patch.object(limits, "READ_RECENT_BYTES", -1):
                for _ in range(2):  # what the thread is at, and the next
                    engine.reads.thread.ask(lambda: go_on.wait(30), lambda _: None)
                engine.read("a", 0, 0, 30_000, told.append)
                engine.read("a", 0, 0, 30_000, told.append).cancel()  # type: ignore[union-attr]
                for way in (Way.COMMITTED, Way.UNCOMMITTED):
                    engine.read("a", 0, 30, 30_000, told.append, way)
                engine.offset_at("a", 0, 0, told.append, by_record=True)
                await done(engine, Trim("a", 0, 30), StreamDone)
                topic = engine.view.topic("a")
                assert topic is not None
                place = engine.reads.reader.place_of(topic.stream_ids[0], 30)
                assert place is not None
                assert engine.reads._journal.trim_front(place.group) > 0
                go_on.set()
                await until(lambda: len(told) == 4)
            gone, *rest, at = told
            assert isinstance(gone, OffsetGone)
            assert gone.floor == 30
            for result in rest:
                assert isinstance(result, ReadResult)
                assert result.batches[0].base_offset == 30
            assert isinstance(at, OffsetAt)
            assert at.offset == 30
            await append(engine, "a", b"more")

    assert SETTINGS.segment_bytes < 400_000
    asyncio.run(scenario())
