"""The asynchronous producer over a real socket: batches, lost answers, resets, restarts, refusals."""

import asyncio
import random

import pytest
import uvloop

from oncelog.client import (
    AnswerUnreadable,
    AsyncClient,
    BatchResult,
    ClientError,
    DeadLettered,
    Fenced,
    Malformed,
    NotFound,
    OutcomeUnknown,
    ProducerOptions,
    ProducerStopped,
    SequenceGap,
)
from oncelog.client.options import DialectName
from tests.client.peer import CUT, FakeLog, Heard, Peer, Reply, Request, answer, problem, run
from tests.client.producing import TOPIC, numbers, producing

# --- the plain way ---------------------------------------------------------------------------------------------------


def test_records_are_batched_numbered_and_acknowledged_in_order() -> None:
    async def main() -> None:
        log, acks = FakeLog(), Heard()
        async with producing(log, on_batch_ack=acks) as (peer, producer):
            for number in range(1000):
                await producer.append(number)
            assert producer.pending_count == 1000
            await producer.flush()
            assert (producer.pending_count, producer.in_flight_count, producer.pending_bytes) == (0, 0, 0)
            assert numbers(log) == list(range(1000))
            assert len(peer.requests) < 20
            assert peer.connection_count == 1
        assert [ack.seq for ack in acks] == list(range(len(acks)))
        assert all(isinstance(ack, BatchResult) and ack.epoch == 1 and not ack.duplicate for ack in acks)
        edges = [ack.first_offset for ack in acks] + [acks[-1].next_offset]
        assert edges == [0] + [ack.next_offset for ack in acks]
        assert sum(ack.count for ack in acks) == 1000

    run(main())


def test_flush_raises_an_error_that_came_just_before_it() -> None:
    async def main() -> None:
        async with producing(lambda request: problem(404, "topic_missing")) as (_, producer):
            await producer.append(1)
            lane = producer._lanes[0]
            while lane.settled_count == 0:  # noqa: ASYNC110
                await asyncio.sleep(0)
            # The answer is in, and the turn that reports it comes after this one.
            assert producer.error is None
            with pytest.raises(NotFound):
                await producer.flush()

    run(main())


@pytest.mark.parametrize("options", [{"producer_id": "p" * 399}, {"session": "s" * 401}, {"producer_id": " p"}])
def test_a_name_that_every_batch_would_be_refused_for_is_refused_at_once(options: ProducerOptions) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="the producer's"):
            async with producing(FakeLog(), **options):
                pass

    run(main())


def test_everything_works_on_uvloop_too() -> None:
    async def main() -> None:
        log, chance = FakeLog(), random.Random(1)

        def chaos(request: Request) -> Reply:
            told = log(request)
            return CUT if chance.random() < 0.1 else told

        async with producing(chaos, max_batch_records=3, retry_backoff_max_ms=2) as (_, producer):
            async with asyncio.timeout(20):
                for number in range(200):
                    await producer.append(number)
                await producer.flush()
        assert numbers(log) == list(range(200))

    uvloop.run(main())


def test_requests_name_id_session_and_epoch() -> None:
    async def main() -> None:
        async with producing(FakeLog(), session="s") as (peer, producer):
            for number in range(2):
                await producer.append(number)
                await producer.flush()
            first, second = (request.headers for request in peer.requests)
        assert (first["x-producer-id"], first["x-producer-session"], first["x-producer-seq"]) == ("p", "s", "0")
        assert "x-producer-epoch" not in first
        assert (second["x-producer-epoch"], second["x-producer-seq"]) == ("1", "1")
        assert peer.requests[0].path == f"/v1/stream/{TOPIC}"

    run(main())


def test_five_batches_are_in_flight_on_one_connection_after_the_first_is_confirmed() -> None:
    async def main() -> None:
        log, gate = FakeLog(), asyncio.Event()

        async def hold(request: Request) -> Reply:
            if request.seq > 0:
                await gate.wait()
            return log(request)

        async with producing(hold, max_batch_records=1) as (peer, producer):
            for number in range(8):
                await producer.append(number)
            await peer.came(6)
            assert (producer.in_flight_count, producer.pending_count) == (5, 7)
            gate.set()
            await producer.flush()
            assert peer.connection_count == 1
        assert numbers(log) == list(range(8))

    run(main())


def test_other_content_types_are_one_request_each() -> None:
    async def main() -> None:
        log = FakeLog()
        async with producing(log, "text/plain") as (peer, producer):
            for text in ("a", "b", "c"):
                await producer.append(text)
            await producer.flush()
            assert [request.body for request in peer.requests] == [b"a", b"b", b"c"]
            assert {request.headers["content-type"] for request in peer.requests} == {"text/plain"}

    run(main())


def test_keys_headers_times_and_ids_find_their_form() -> None:
    async def main() -> None:
        log = FakeLog()
        async with producing(log) as (peer, producer):
            await producer.append(1, key="k")
            await producer.append(2, headers={"h": "v"}, timestamp_ms=7)
            await producer.append(3, message_id="m")
            await producer.append(4)
            await producer.flush()
            kinds = [request.headers["content-type"].rpartition("/")[2] for request in peer.requests]
            ids = [request.headers.get("stream-message-id") for request in peer.requests]
        assert kinds == ["vnd.oncelog.batches", "json", "json"]
        assert ids == [None, "m", None]
        assert numbers(log) == [1, 2, 3, 4]

    run(main())


def test_every_partition_has_its_own_numbers() -> None:
    async def main() -> None:
        log, acks = FakeLog(), Heard()
        async with producing(log, on_batch_ack=acks, max_batch_records=2) as (peer, producer):
            for number in range(30):
                await producer.append(number, partition=number % 3)
            await producer.flush()
            assert peer.connection_count == 1
        for partition in range(3):
            assert numbers(log, partition) == list(range(partition, 30, 3))
            own = [ack.seq for ack in acks if ack.partition == partition]
            assert own == list(range(len(own)))

    run(main())


def test_lingering_records_leave_with_a_flush() -> None:
    async def main() -> None:
        log = FakeLog()
        async with producing(log, linger_ms=60_000) as (peer, producer):
            for number in range(10):
                await producer.append(number)
                await asyncio.sleep(0)
            assert peer.requests == []
            await producer.flush()
            assert len(peer.requests) == 1

    run(main())


def test_lingering_records_leave_when_their_time_has_come() -> None:
    async def main() -> None:
        acks = Heard()
        async with producing(FakeLog(), linger_ms=5, on_batch_ack=acks) as (_peer, producer):
            await producer.append(1)
            await producer.append(2)
            await acks.until(1)
            assert acks[0].count == 2

    run(main())


# --- trouble -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["x", "durable-streams"])
@pytest.mark.parametrize("seed", range(12))
def test_each_record_is_written_once_and_in_order_through_chaos(seed: int, dialect: str) -> None:
    """Answers are lost before and after the write, connections cut at any request, the server busy."""

    async def main() -> None:
        log, chance = FakeLog(), random.Random(seed)
        acks = Heard()

        def chaos(request: Request) -> Reply:
            dice = chance.random()
            if dice < 0.08:
                return CUT
            if dice < 0.16:
                return problem(503, "overloaded", retryable=True)
            told = log(request)
            return CUT if dice < 0.24 else told

        async with producing(
            chaos,
            dialect=dialect,  # type: ignore[arg-type]
            on_batch_ack=acks,
            max_batch_records=3,
            retry_backoff_max_ms=2,
        ) as (_peer, producer):
            for number in range(200):
                await producer.append(number, partition=number % 2)
                if chance.random() < 0.1:
                    await producer.flush()
            await producer.flush()
        for partition in range(2):
            assert numbers(log, partition) == list(range(partition, 200, 2))
            own = [ack for ack in acks if ack.partition == partition]
            assert [ack.seq for ack in own] == list(range(len(own)))
            known = [ack for ack in own if ack.first_offset >= 0]
            assert all(ack.next_offset - ack.first_offset == ack.count for ack in known)

    run(main())


def test_a_lost_answer_is_a_duplicate_with_the_same_offsets() -> None:
    async def main() -> None:
        log, acks = FakeLog(), Heard()
        lost = iter([True])

        def script(request: Request) -> Reply:
            told = log(request)
            return CUT if next(lost, False) else told

        async with producing(script, on_batch_ack=acks) as (peer, producer):
            await producer.append(1)
            await producer.flush()
            assert [request.body for request in peer.requests] == [b"[1]", b"[1]"]
            assert len({request.headers["x-producer-session"] for request in peer.requests}) == 1
        assert acks == [BatchResult(0, 1, 0, 1, 1, True)]

    run(main())


def test_a_restart_in_mid_flight_is_survived() -> None:
    async def main() -> None:
        log, gate = FakeLog(), asyncio.Event()

        async def script(request: Request) -> Reply:
            if request.seq == 3 and not gate.is_set():
                await gate.wait()
            return log(request)

        async with producing(script, max_batch_records=1) as (peer, producer):
            for number in range(20):
                await producer.append(number)
            await peer.until(lambda: any(request.seq == 3 for request in peer.requests))
            await peer.stop()
            gate.set()
            await producer.append(20)
            await peer.listen()
            await producer.flush()
            assert peer.connection_count > 1
        assert numbers(log) == list(range(21))

    run(main())


def test_a_server_that_closes_after_every_answer_is_borne() -> None:
    async def main() -> None:
        log = FakeLog()

        def script(request: Request) -> Reply:
            return log(request).replace(b"\r\n", b"\r\nConnection: close\r\n", 1)

        async with producing(script, max_batch_records=1, retry_backoff_max_ms=1) as (_peer, producer):
            for number in range(10):
                await producer.append(number)
            await producer.flush()
        assert numbers(log) == list(range(10))

    run(main())


def test_a_silent_server_is_left_for_another_connection() -> None:
    async def main() -> None:
        log, never = FakeLog(), asyncio.Event()

        async def script(request: Request) -> Reply:
            if request.connection == 0:
                await never.wait()
            return log(request)

        async with Peer(script) as peer, AsyncClient(peer.url, answer_timeout_ms=20) as client:
            async with client.producer(TOPIC, producer_id="p", retry_backoff_ms=1) as producer:
                await producer.append(1)
            assert peer.connection_count == 2
        assert numbers(log) == [1]

    run(main())


def test_without_an_answer_in_time_the_outcome_is_unknown_and_the_producer_stops() -> None:
    async def main() -> None:
        errors = Heard()
        async with producing(lambda request: CUT, delivery_timeout_ms=30, on_error=errors) as (_peer, producer):
            await producer.append(1)
            with pytest.raises(OutcomeUnknown, match="sequence 0"):
                await producer.flush()
            ((error, batch),) = errors
            assert isinstance(error, OutcomeUnknown)
            assert (batch.seq, batch.count, batch.attempts > 1, batch.maybe_written) == (0, 1, True, True)
            assert [record.value for record in batch.records] == [b"1"]
            assert (error.topic, error.partition, error.producer_id, error.sequence) == (TOPIC, 0, "p", 0)
            assert "producer_info('orders', 'p', partition=0, scope='x')" in str(error)
            with pytest.raises(ProducerStopped):
                await producer.append(2)
            with pytest.raises(OutcomeUnknown):
                await producer.flush()

    run(main())


def test_a_server_that_is_not_there_was_sent_nothing() -> None:
    async def main() -> None:
        errors = Heard()
        async with producing(lambda request: CUT, delivery_timeout_ms=30, on_error=errors) as (peer, producer):
            await peer.stop()
            await producer.append(1)
            with pytest.raises(OutcomeUnknown):
                await producer.flush()
            assert (errors[0][1].attempts, errors[0][1].maybe_written) == (0, False)

    run(main())


# --- refusals ----------------------------------------------------------------------------------------------------


def test_a_fence_stops_the_producer_and_fails_everything_later_in_order() -> None:
    async def main() -> None:
        log, errors = FakeLog(), Heard()
        async with producing(log, max_batch_records=1, on_error=errors) as (peer, producer):
            await producer.append(0)
            await producer.flush()
            async with AsyncClient(peer.url) as client, client.producer(TOPIC, producer_id="p") as usurper:
                await usurper.append(100)
            for number in range(1, 9):
                await producer.append(number)
            with pytest.raises(Fenced) as caught:
                await producer.flush()
            assert caught.value.current == 2
            assert producer.pending_count == 0
        assert [(batch.seq, batch.count) for _, batch in errors] == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 3)]
        assert [type(error) for error, _ in errors] == [Fenced] + [ProducerStopped] * 5
        assert numbers(log) == [0, 100]

    run(main())


def test_a_gap_that_is_not_ours_stops_the_producer() -> None:
    async def main() -> None:
        log = FakeLog()
        async with producing(log) as (peer, producer):
            await producer.append(0)
            await producer.flush()
            peer.script = lambda request: problem(409, "sequence_gap", expected=0, received=1)
            await producer.append(1)
            with pytest.raises(SequenceGap):
                await producer.flush()

    run(main())


def test_an_error_in_one_partition_stops_the_others_and_tells_their_outcome() -> None:
    async def main() -> None:
        log, acks, errors = FakeLog(), Heard(), Heard()

        def script(request: Request) -> Reply:
            return problem(404, "topic_missing") if request.query["partition"] == "1" else log(request)

        async with producing(script, on_batch_ack=acks, on_error=errors) as (_peer, producer):
            await producer.append(0, partition=0)
            await producer.append(1, partition=1)
            with pytest.raises(ClientError, match="topic_missing"):
                await producer.flush()
            assert [ack.partition for ack in acks] == [0]
            assert [batch.partition for _, batch in errors] == [1]

    run(main())


def test_a_refused_batch_goes_to_the_dead_letter_stream_and_the_rest_goes_on() -> None:
    async def main() -> None:
        log, acks, errors = FakeLog(), Heard(), Heard()
        chance = random.Random(5)

        def script(request: Request) -> Reply:
            if request.path.endswith("/dead"):
                told = log(request)
                return CUT if chance.random() < 0.3 else told
            return problem(400, "batch_refused") if b"7" in request.body else log(request)

        async with producing(script, max_batch_records=1, dead_letter="dead", on_batch_ack=acks, on_error=errors) as (
            _peer,
            producer,
        ):
            for number in range(30):
                await producer.append(number)
            await producer.flush()  # nothing to raise: every record has a place
        good = [number for number in range(30) if "7" not in str(number)]
        assert numbers(log) == good
        assert log.values("dead") == [b"7", b"17", b"27"]
        assert [type(error) for error, _ in errors] == [DeadLettered] * 3
        assert [ack.seq for ack in acks] == list(range(len(good)))

    run(main())


def test_a_dead_letter_stream_that_refuses_too_stops_the_producer_with_the_first_refusal() -> None:
    async def main() -> None:
        def script(request: Request) -> Reply:
            return problem(404, "topic_missing") if request.path.endswith("/dead") else problem(400, "batch_refused")

        async with producing(script, dead_letter="dead") as (_peer, producer):
            await producer.append(1)
            with pytest.raises(Malformed, match="batch_refused") as caught:
                await producer.flush()
            assert "topic_missing" in str(caught.value.__cause__)
            assert "as dead letters 'dead' took 0 of its 1 records, and then: 404 topic_missing" in str(caught.value)

    run(main())


def test_a_batch_of_which_some_became_dead_letters_says_how_many() -> None:
    async def main() -> None:
        replies = iter(
            [answer(204, Stream_Next_Offset=1), problem(413, "too_large"), answer(204, Stream_Next_Offset=2)]
        )

        def script(request: Request) -> Reply:
            return next(replies) if request.path.endswith("/dead") else problem(400, "batch_refused")

        async with producing(script, dead_letter="dead") as (_peer, producer):
            for number in range(3):
                producer.append_nowait(number)
            with pytest.raises(Malformed) as caught:
                await producer.flush()
            assert "as dead letters 'dead' took 1 of its 3 records, and then: 413 too_large" in str(caught.value)

    run(main())


@pytest.mark.parametrize("dialect", ["x", "durable-streams"])
@pytest.mark.parametrize(
    "reply",
    [
        answer(301, Location="/elsewhere"),
        answer(200, b"<html></html>", Content_Type="text/html"),
        answer(202, Stream_Next_Offset=1),
        answer(204),
        answer(501, b"<html></html>", Content_Type="text/html"),
    ],
    ids=["redirect", "page", "202", "204", "501"],
)
def test_what_somebody_else_answers_stops_the_producer_and_confirms_nothing(reply: bytes, dialect: DialectName) -> None:
    async def main() -> None:
        acks, errors = Heard(), Heard()
        async with producing(
            lambda request: reply, dialect=dialect, on_batch_ack=acks, on_error=errors, dead_letter="dead"
        ) as (_peer, producer):
            await producer.append(1)
            with pytest.raises(AnswerUnreadable, match="nothing is confirmed"):
                await producer.flush()
        ((error, batch),) = errors
        assert (acks, type(error), batch.maybe_written) == ([], AnswerUnreadable, True)

    run(main())
