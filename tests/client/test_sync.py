"""The client for threads: the same calls, a producer that several threads share, and where waiting is refused."""

import asyncio
import inspect
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import pytest

from oncelog.client import (
    AsyncClient,
    AsyncReader,
    AsyncStream,
    BatchResult,
    BufferFull,
    Client,
    ClientError,
    Fenced,
    IdempotentProducer,
    OutcomeUnknown,
    PendingBatch,
    ProducerStopped,
    Reader,
    Stream,
)
from oncelog.client.reader import START
from oncelog.client.sync import LoopThread
from tests.client.peer import FakeLog, Peer, Reply, Request, Script, problem
from tests.client.test_reader import FakeStream

Result = TypeVar("Result")


class PeerThread:
    """A peer in a thread of its own."""

    def __init__(self, script: Callable[[], Script]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

        async def start() -> Peer:
            peer = Peer(script())
            await peer.listen()
            return peer

        self.peer = self.run(start())

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def call(self, function: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        self.run(self.peer.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def opened(script: Callable[[], Script]) -> Iterator[tuple[PeerThread, Client]]:
    thread = PeerThread(script)
    try:
        with Client(thread.peer.url, request_timeout_ms=500) as client:
            yield thread, client
    finally:
        thread.stop()


def test_every_call_of_the_asynchronous_client_is_there_with_its_signature() -> None:
    for ours, theirs in ((Client, AsyncClient), (Stream, AsyncStream), (Reader, AsyncReader)):
        for name, method in inspect.getmembers(theirs, inspect.isfunction):
            if name.startswith("_"):
                continue
            own = getattr(ours, name)
            assert own.__doc__, name
            if inspect.iscoroutinefunction(method) and name not in ("read", "save"):
                assert inspect.signature(own) == inspect.signature(method) or name == "close", name


def test_records_are_written_and_acknowledged() -> None:
    log = FakeLog()
    acks: list[BatchResult] = []
    with opened(lambda: log) as (_, client):
        assert client.append("a", 0).offset == 0
        with client.producer("a", producer_id="p", on_batch_ack=acks.append) as producer:
            for number in range(1, 2000):
                producer.append(number)
            producer.flush()
            assert (producer.pending_count, producer.in_flight_count, producer.producer_id) == (0, 0, "p")
            assert producer.last_sequence() == acks[-1].seq
    assert [int(value) for value in log.values("a")] == list(range(2000))
    assert sum(ack.count for ack in acks) == 1999


def test_several_threads_share_a_producer() -> None:
    log = FakeLog()
    with opened(lambda: log) as (_, client), client.producer("a", producer_id="p") as producer:

        def write(base: int) -> None:
            for number in range(500):
                producer.append(base + number)

        threads = [threading.Thread(target=write, args=(base,)) for base in (0, 1000, 2000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    written = [int(value) for value in log.values("a")]
    for base in (0, 1000, 2000):
        assert [number for number in written if base <= number < base + 500] == list(range(base, base + 500))


def test_interrupt_on_the_way_into_a_producer_leaves_it_open_to_its_own_thread() -> None:
    """1. Ctrl-C comes in `append`, just as its lock is taken. 2. The lock stays taken: the client's thread, which needs
    it to move and to end, waits for ever, and with it `close`. A lock that is entered by C code cannot be interrupted
    there; `threading.Condition` is entered by a function of Python's own."""

    def interrupts(frame: FrameType, event: str, _argument: object) -> Any:
        if frame.f_code.co_name == "__enter__" and frame.f_code.co_filename == threading.__file__ and event == "return":
            raise KeyboardInterrupt
        return interrupts

    log = FakeLog()
    with opened(lambda: log) as (_, client), client.producer("a", producer_id="p") as producer:
        traced = sys.gettrace()
        sys.settrace(interrupts)
        try:
            producer.append("1")
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(traced)
        free: list[bool] = []

        def look() -> None:
            free.append(producer._lock.acquire(timeout=5))
            if free[0]:
                producer._lock.release()

        looker = threading.Thread(target=look)
        looker.start()
        looker.join()
        if not free[0]:
            producer._lock.release()  # so that the test fails and does not hang
        assert free[0]


def test_append_blocks_or_raises_when_the_buffer_is_full() -> None:
    log = FakeLog()
    gates: list[asyncio.Event] = []

    def script() -> Script:
        gate = asyncio.Event()
        gates.append(gate)

        async def hold(request: Request) -> Reply:
            await gate.wait()
            return log(request)

        return hold

    with opened(script) as (thread, client), client.producer("a", producer_id="p", max_pending_bytes=1024) as producer:
        producer.append("x" * 900)
        with pytest.raises(BufferFull):
            producer.append("y" * 900, block=False)
        entered, done = threading.Event(), threading.Event()

        def blocked() -> None:
            entered.set()
            producer.append("z" * 900)
            done.set()

        waiting = threading.Thread(target=blocked)
        waiting.start()
        entered.wait()
        assert not done.wait(0.02)
        thread.call(gates[0].set)
        waiting.join()
        producer.flush()
    assert [value[1:2] for value in log.values("a")] == [b"x", b"z"]


def test_the_first_error_is_raised_by_flush_and_later_appends_are_refused() -> None:
    errors: list[tuple[ClientError, PendingBatch]] = []
    with opened(lambda: lambda request: problem(403, "fenced", current=2)) as (_, client):
        producer = client.producer("a", producer_id="p", on_error=lambda *args: errors.append(args))
        producer.append(1)
        with pytest.raises(Fenced):
            producer.flush()
        with pytest.raises(ProducerStopped):
            producer.append(2)
        producer.close()
        producer.close()
    assert [type(error) for error, _ in errors] == [Fenced]


def test_records_that_were_staged_when_it_stopped_are_told_too() -> None:
    log = FakeLog()
    errors: list[tuple[ClientError, PendingBatch]] = []
    with opened(lambda: log) as (_, client):
        producer = client.producer("a", producer_id="p", on_error=lambda *args: errors.append(args))
        inner = producer._inner
        client._thread.run(inner.close())
        producer.append(7)  # the thread has not heard of the end
        with pytest.raises(ProducerStopped):
            client._thread.run(inner.append(8))
        assert [[record.value for record in batch.records] for _, batch in errors] == [[b"7"]]
        producer.append("x" * 100_000, block=False)  # its bytes were given back
        producer.close()


def test_a_with_block_raises_the_first_error_or_the_callers_own() -> None:
    with opened(lambda: lambda request: problem(404, "topic_missing")) as (_, client):

        def fail(error: Exception | None) -> None:
            with client.producer("a", producer_id="p") as producer:
                producer.append(1)
                if error is not None:
                    raise error

        with pytest.raises(ClientError, match="topic_missing"):
            fail(None)
        with pytest.raises(KeyError):
            fail(KeyError())


def test_reading_crosses_the_thread_once_per_answer_and_keeps_its_place() -> None:
    streams: list[FakeStream] = []

    def script() -> Script:
        streams.append(FakeStream("abcdef", batch_records=4))
        return streams[0]

    with opened(script) as (thread, client):
        with client.reader("a", live=False, cursor="c") as reader:
            assert next(reader).offset == 0
            assert reader.offset == 1
            reader.save()
            assert streams[0].cursor == 1
            assert [record.offset for record in reader.read()] == [1, 2, 3]
            assert reader.offset == 4
            assert [record.offset for record in reader] == [4, 5]
            assert (reader.offset, reader.up_to_date, reader.closed) == (6, True, False)
        assert sum(request.path == "/v1/stream/a" for request in thread.peer.requests) == 3


@pytest.mark.parametrize("one_by_one", [False, True])
def test_answer_that_comes_as_the_waiting_thread_is_interrupted_is_read_the_next_time(
    one_by_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(lambda: FakeStream("abcdef", batch_records=4)) as (_, client), client.reader("a", live=False) as reader:
        run = LoopThread.run

        def interrupted(self: LoopThread, coroutine: Coroutine[Any, Any, object]) -> object:
            run(self, coroutine)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(LoopThread, "run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(reader) if one_by_one else reader.read()
        assert reader.offset == START
        found = [next(reader)] if one_by_one else reader.read()
        assert [record.offset for record in found] == list(range(len(found)))
        assert reader.offset == len(found)
        assert [record.offset for record in reader] == list(range(len(found), 6))


def test_a_callback_cannot_wait_for_the_client() -> None:
    caught: list[Exception] = []
    log = FakeLog()
    with opened(lambda: log) as (_, client):

        def on_batch_ack(result: BatchResult) -> None:
            try:
                client.append("a", 2)
            except RuntimeError as error:
                caught.append(error)

        with client.producer("a", producer_id="p", on_batch_ack=on_batch_ack) as producer:
            producer.append(1)
    assert "cannot wait" in str(caught[0])


def test_a_closed_client_says_so() -> None:
    client = Client()
    client.close()
    client.close()
    with pytest.raises(ClientError, match="closed"):
        client.health()


@pytest.fixture
def mute() -> Iterator[tuple[PeerThread, Client]]:
    """A peer that never answers."""

    def script() -> Script:
        async def silence(request: Request) -> Reply:
            await asyncio.Event().wait()
            return b""

        return silence

    thread = PeerThread(script)
    try:
        yield thread, Client(thread.peer.url)
    finally:
        thread.stop()


def test_closing_the_client_ends_whoever_waits_in_another_thread(mute: tuple[PeerThread, Client]) -> None:
    thread, client = mute
    told: list[tuple[ClientError, PendingBatch]] = []
    producer = client.producer(
        "a", producer_id="p", max_batch_records=1, max_pending_bytes=1024, on_error=lambda *args: told.append(args)
    )
    loose = IdempotentProducer(client.stream("b"), producer_id="q")
    reader = client.reader("a")
    raised: dict[str, ClientError] = {}

    def wait(name: str, call: Callable[[], object]) -> None:
        try:
            call()
        except ClientError as error:
            raised[name] = error

    def fill() -> None:
        while True:
            producer.append("x" * 300)

    loose.append(1)
    calls: dict[str, Callable[[], object]] = {
        "append": fill,
        "flush": producer.flush,
        "loose": loose.flush,
        "read": reader.read,
        "health": client.health,
    }
    threads = [threading.Thread(target=wait, args=call, daemon=True) for call in calls.items()]
    producer.append(1)
    for waiting in threads:
        waiting.start()
    while len(thread.peer.requests) < 4:
        pass
    client.close()
    for waiting in threads:
        waiting.join(10)
        assert not waiting.is_alive()
    assert raised.keys() == calls.keys()
    kinds = [type(raised[name]) for name in ("append", "flush", "loose")]
    assert kinds == [ProducerStopped, OutcomeUnknown, OutcomeUnknown]
    assert [type(error) for error, _ in told][:2] == [OutcomeUnknown, ProducerStopped]
    assert sum(batch.count for _, batch in told) == producer._inner._lanes[0].taken_count
    assert producer.pending_count == 0


def test_nothing_is_taken_after_the_client_is_closed() -> None:
    with opened(FakeLog) as (_, client):
        producers = [client.producer("a", producer_id="p"), IdempotentProducer(client.stream("a"), producer_id="q")]
        client.close()
        for producer in producers:
            for _ in range(3):
                with pytest.raises(ProducerStopped):
                    producer.append(1)
            with pytest.raises(ClientError, match="closed"):
                producer.flush()


def test_records_that_nobody_flushed_are_not_lost_silently(mute: tuple[PeerThread, Client]) -> None:
    _, client = mute
    with pytest.raises(ProducerStopped), client:  # noqa: PT012
        producer = client.producer("a", producer_id="p")
        producer.append(1)
    client.close()


def test_the_callers_own_error_is_seen_when_the_client_closes(mute: tuple[PeerThread, Client]) -> None:
    _, client = mute
    with pytest.raises(KeyError), client:  # noqa: PT012
        producer = client.producer("a", producer_id="p")
        producer.append(1)
        raise KeyError


def test_the_warning_about_a_guessed_id_names_the_callers_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRODUCER_ID", raising=False)
    with Client() as client, pytest.warns(RuntimeWarning, match="PRODUCER_ID") as caught:
        client.producer("a").close()
    assert caught[0].filename == __file__
