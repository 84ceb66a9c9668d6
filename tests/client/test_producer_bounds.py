"""The asynchronous producer's bounds, callbacks, its end, its id, and resuming where an earlier run stopped."""

import asyncio
import warnings

import pytest

from oncelog.client import (
    AsyncClient,
    BatchResult,
    BufferFull,
    ClientError,
    OutcomeUnknown,
    PendingBatch,
    ProducerOptions,
    ProducerStopped,
)
from tests.client.peer import CUT, FakeLog, Heard, Peer, Reply, Request, problem, run
from tests.client.producing import TOPIC, numbers, producing

# --- bounds ------------------------------------------------------------------------------------------------------


def test_append_waits_for_room_and_memory_is_bounded() -> None:
    async def main() -> None:
        log, gate = FakeLog(), asyncio.Event()
        most = 0

        async def hold(request: Request) -> Reply:
            await gate.wait()
            return log(request)

        async with producing(hold, max_pending_bytes=1024, max_batch_bytes=1024) as (peer, producer):

            async def fill() -> None:
                nonlocal most
                for number in range(200):
                    await producer.append(number)
                    most = max(most, producer.pending_bytes)

            filling = asyncio.create_task(fill())
            await peer.came(1)
            assert not filling.done()
            with pytest.raises(BufferFull):
                producer.append_nowait(1)
            gate.set()
            await filling
            await producer.flush()
        assert most <= 1024
        assert numbers(log) == list(range(200))

    run(main())


def test_a_record_larger_than_the_bound_is_taken_alone() -> None:
    async def main() -> None:
        log = FakeLog()
        async with producing(log, max_pending_bytes=1024, max_batch_bytes=1024) as (_peer, producer):
            for _ in range(3):
                await producer.append("x" * 5000)
            await producer.flush()
        assert len(log.values(TOPIC)) == 3

    run(main())


def test_waiting_appends_come_in_their_order_and_can_be_cancelled() -> None:
    async def main() -> None:
        log, gate = FakeLog(), asyncio.Event()

        async def hold(request: Request) -> Reply:
            await gate.wait()
            return log(request)

        async with producing(hold, max_pending_bytes=1024, max_batch_bytes=1024) as (peer, producer):
            text = "x" * 900
            await producer.append(text)
            waiting = [asyncio.create_task(producer.append(number)) for number in range(60)]
            await peer.came(1)
            waiting[30].cancel()
            gate.set()
            await asyncio.wait(waiting)
            await producer.flush()
        assert numbers_after(log, 1) == [number for number in range(60) if number != 30]

    run(main())


def numbers_after(log: FakeLog, first: int) -> list[int]:
    return [int(value) for value in log.values(TOPIC)[first:]]


def test_waiting_appends_learn_that_the_producer_has_stopped() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def hold(request: Request) -> Reply:
            await gate.wait()
            return problem(403, "fenced", current=2)

        async with producing(hold, max_pending_bytes=1024) as (peer, producer):
            await producer.append("x" * 1000)
            waiting = asyncio.create_task(producer.append("x" * 1000))
            await peer.came(1)
            gate.set()
            with pytest.raises(ProducerStopped):
                await waiting
            assert producer.pending_bytes == 0

    run(main())


def test_a_loop_of_appends_lets_the_event_loop_run() -> None:
    async def main() -> None:
        acks = Heard()
        async with producing(FakeLog(), max_batch_bytes=1024, on_batch_ack=acks) as (_peer, producer):
            for number in range(3000):
                await producer.append(number)
            assert len(acks) > 3

    run(main())


# --- callbacks, closing --------------------------------------------------------------------------------------------


def test_a_callback_that_raises_harms_nobody() -> None:
    async def main() -> None:
        log = FakeLog()
        raised: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))

        def on_batch_ack(result: BatchResult) -> None:
            raise KeyError("mine")

        async with producing(log, max_batch_records=1, on_batch_ack=on_batch_ack) as (_peer, producer):
            for number in range(5):
                await producer.append(number)
            await producer.flush()
        assert numbers(log) == list(range(5))
        assert len(raised) == 5

    run(main())


def test_callbacks_were_called_when_flush_returns() -> None:
    async def main() -> None:
        acks = Heard()
        async with producing(FakeLog(), on_batch_ack=acks) as (_peer, producer):
            await producer.append(1)
            await producer.flush()
            assert len(acks) == 1

    run(main())


def test_close_flushes_and_then_takes_nothing() -> None:
    async def main() -> None:
        log = FakeLog()
        async with producing(log) as (peer, producer):
            await producer.append(1)
            await producer.close()
            await producer.close()
            assert numbers(log) == [1]
            with pytest.raises(ProducerStopped, match="closed"):
                await producer.append(2)
            with pytest.raises(ProducerStopped, match="closed"):
                producer.append_nowait(2)
            await peer.until(lambda: not peer.sides)

    run(main())


def test_an_append_that_waits_while_the_producer_closes_is_refused_and_what_was_taken_is_written() -> None:
    async def main() -> None:
        log, gate = FakeLog(), asyncio.Event()

        async def hold(request: Request) -> Reply:
            await gate.wait()
            return log(request)

        async with producing(hold, max_pending_bytes=1024) as (peer, producer):
            await producer.append("a" * 900)
            waiting = [asyncio.create_task(producer.append(text * 900)) for text in "bc"]
            await peer.came(1)
            closing = asyncio.create_task(producer.close())
            for one in waiting:
                with pytest.raises(ProducerStopped):
                    await one
            # Not before the end either: what came while it flushes would be dropped.
            with pytest.raises(ProducerStopped):
                producer.append_nowait(1)
            assert not closing.done()
            gate.set()
            await closing
        assert [value[1:2] for value in log.values(TOPIC)] == [b"a"]

    run(main())


def test_close_raises_the_first_error_unless_it_was_raised_before() -> None:
    async def main() -> None:
        def script(request: Request) -> Reply:
            return problem(404, "topic_missing")

        async with producing(script) as (_peer, producer):
            await producer.append(1)
            with pytest.raises(ClientError, match="topic_missing"):
                await producer.close()
        async with producing(script) as (_peer, producer):
            await producer.append(1)
            with pytest.raises(ClientError, match="topic_missing"):
                await producer.flush()
            await producer.close()

    run(main())


def test_a_with_block_delivers_and_shows_the_callers_own_error() -> None:
    async def main() -> None:
        log = FakeLog()
        async with Peer(log) as peer, AsyncClient(peer.url) as client:

            async def fail() -> None:
                async with client.producer(TOPIC, producer_id="p") as producer:
                    await producer.append(1)
                    raise KeyError

            with pytest.raises(KeyError):
                await fail()
        assert numbers(log) == [1]

    run(main())


def test_a_close_that_is_cancelled_fails_what_is_left() -> None:
    async def main() -> None:
        errors, never = Heard(), asyncio.Event()

        async def hold(request: Request) -> Reply:
            await never.wait()
            return CUT

        async with producing(hold, on_error=errors) as (peer, producer):
            await producer.append(1)
            closing = asyncio.create_task(producer.close())
            await peer.came(1)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            await errors.until(1)
            assert isinstance(errors[0][0], OutcomeUnknown)

    run(main())


# --- resuming ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["x", "durable-streams"])
def test_a_resumed_producer_goes_on_after_the_last_sequence(dialect: str) -> None:
    async def main() -> None:
        log = FakeLog()
        source = list(range(10))
        async with Peer(log) as peer, AsyncClient(peer.url) as client:
            for stop in (4, 7, 10):
                producer = client.producer(
                    TOPIC, producer_id="p", dialect=dialect, max_batch_records=1  # type: ignore[arg-type]
                )  # fmt: skip
                async with producer:
                    last = await producer.resume()
                    # The source is read again from what the server has not got, with one record of overlap.
                    assert last == len(log.values(TOPIC)) - 1
                    for number in source[last + 1 : stop]:
                        await producer.append(number)
                    await producer.flush()
                    assert await producer.last_sequence() == stop - 1
        assert numbers(log) == source
        epochs = {row.epoch for row in log.producers.values()}
        assert epochs == ({1} if dialect == "x" else {0})

    run(main())


def test_an_unknown_producer_resumes_at_nothing() -> None:
    async def main() -> None:
        log = FakeLog()
        async with producing(log) as (_peer, producer):
            assert await producer.last_sequence() == -1
            assert await producer.resume() == -1
            await producer.append(1)
            await producer.flush()
            with pytest.raises(ValueError, match="before the first append"):
                await producer.resume()

    run(main())


# --- the id ------------------------------------------------------------------------------------------------------


def test_the_id_is_the_argument_else_the_environment_else_a_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    async def made(producer_id: str | None) -> str:
        async with AsyncClient() as client:
            return client.producer(TOPIC, producer_id=producer_id).producer_id

    monkeypatch.setenv("PRODUCER_ID", "from-environment")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(made("mine")) == "mine"
        assert run(made(None)) == "from-environment"
    monkeypatch.delenv("PRODUCER_ID")
    with pytest.warns(RuntimeWarning, match="PRODUCER_ID") as caught:
        guess = run(made(None))
    assert guess.rpartition("-")[2].isdigit()
    assert caught[0].filename == __file__, "the warning names the caller's line"


@pytest.mark.parametrize(
    "options",
    [
        {"max_in_flight": 0},
        {"max_in_flight": 65},
        {"max_batch_bytes": 10},
        {"max_batch_bytes": 1 << 30},
        {"linger_ms": -1},
        {"delivery_timeout_ms": 0},
        {"dialect": "kafka"},
        {"dialect": "durable-streams", "session": "s"},
        {"epoch": -1},
        {"producer_id": "a\nb"},
    ],
)
def test_options_out_of_bounds_are_refused(options: ProducerOptions) -> None:
    async def main() -> None:
        async with AsyncClient() as client:
            with pytest.raises(
                ValueError,
                match=next(iter(options)).replace("producer_", "producer.*") if len(options) == 1 else "session",
            ):
                client.producer(TOPIC, **options)

    run(main())


def test_what_cannot_be_a_record_is_refused_and_the_producer_goes_on() -> None:
    async def main() -> None:
        log = FakeLog()
        async with producing(log) as (_peer, producer):
            with pytest.raises(TypeError):
                await producer.append(object())
            with pytest.raises(ValueError, match="JSON"):
                await producer.append(b"{")
            with pytest.raises(ValueError, match="partition"):
                await producer.append(1, partition=-1)
            for message_id in ("a\r\nX-Producer-Seq: 9", "x" * 2000):
                with pytest.raises(ValueError, match="message"):
                    await producer.append(1, message_id=message_id)
            await producer.append(2)
            await producer.flush()
            assert producer.pending_bytes == 0
        assert numbers(log) == [2]

    run(main())


def test_a_pending_batch_shows_itself() -> None:
    async def main() -> None:
        errors = Heard()
        async with producing(lambda request: problem(404, "topic_missing"), on_error=errors) as (_peer, producer):
            await producer.append({"a": 1}, key="k")
            await errors.until(1)
        batch: PendingBatch = errors[0][1]
        assert repr(batch) == "PendingBatch(seq=0, count=1, attempts=1, REFUSED)"
        assert (batch.records[0].key, batch.records[0].value) == (b"k", b'{"a":1}')

    run(main())
