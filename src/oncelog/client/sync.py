"""The same client for code without an event loop: every call runs in one background thread and is waited for.

Nothing is implemented twice. `blocking` turns a method of the asynchronous class into one that waits, signature and
docstring included. Only the producer's `append` is its own: it encodes in the caller's thread, counts bytes under a
lock, and wakes the event loop once for many records instead of once for each.

Callbacks of a producer are called in the background thread; calling back into the client from there would wait for
itself and is refused.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import ssl
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack

from oncelog.client.client import URL_DEFAULT, AsyncClient
from oncelog.client.errors import BufferFull, ClientError, ProducerStopped
from oncelog.client.left_behind import caller_place
from oncelog.client.options import ProducerOptions, ProducerSettings
from oncelog.client.packing import HeadersGiven, Item, Record, cost
from oncelog.client.producer import AsyncIdempotentProducer
from oncelog.client.reader import START, AsyncReader, OnGone
from oncelog.client.stream import AsyncStream
from oncelog.client.transaction import TIMEOUT_MS_DEFAULT, AsyncTransaction
from oncelog.client.wire import JSON

P = ParamSpec("P")
Result = TypeVar("Result")


class _AlreadyClosed(ClientError):
    """Nothing is taken any more."""


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="oncelog-client", daemon=True)
        self._thread.start()
        self._lock = threading.Lock()
        self._stopped = False
        self._users: weakref.WeakSet[Reader | IdempotentProducer] = weakref.WeakSet()

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Runs it there and waits. An interrupt of the waiting thread cancels it."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a callback runs in the client's own thread and cannot wait for the client")
        with self._lock:
            if self._stopped:
                coroutine.close()
                raise _AlreadyClosed("the client is closed")
            future: concurrent.futures.Future[Result] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClientError("the client was closed meanwhile; what was asked for may have been done") from None
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], object]) -> bool:
        """Calls it there, soon. False if the thread has ended."""
        with self._lock:
            if not self._stopped:
                self._loop.call_soon_threadsafe(function)
            return not self._stopped

    def keep(self, user: "Reader | IdempotentProducer") -> None:
        """Remembers whose connection is there, for the end."""
        with self._lock:
            self._users.add(user)

    def users(self) -> "list[Reader | IdempotentProducer]":
        """Those that are still there."""
        with self._lock:
            return list(self._users)

    def stop(self) -> None:
        """Ends the thread. Whoever still waits for something there is told; nothing is taken any more."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        # Everything that was handed over comes before this one, so no task can be left behind.
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Blocking(Protocol):
    """What `blocking` needs of its class: the thread, and the asynchronous object that does the work."""

    _thread: LoopThread
    _inner: Any


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Any, P], Result]:
    """The method of the asynchronous object as one that waits."""

    @functools.wraps(method)
    def call(self: _Blocking, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return self._thread.run(method(self._inner, *args, **kwargs))

    return call


class Stream:
    """`AsyncStream`, waiting."""

    def __init__(self, thread: LoopThread, inner: AsyncStream) -> None:
        self._thread = thread
        self._inner = inner

    @property
    def topic(self) -> str:
        """The stream's name."""
        return self._inner.topic

    create = blocking(AsyncStream.create)
    append = blocking(AsyncStream.append)
    close = blocking(AsyncStream.close)
    head = blocking(AsyncStream.head)
    delete = blocking(AsyncStream.delete)


class Reader:
    """`AsyncReader`, waiting. `for record in reader`, or `read` for a list at a time."""

    def __init__(self, thread: LoopThread, inner: AsyncReader) -> None:
        self._thread = thread
        self._inner = inner
        self._records: list[Record] = []
        """What was fetched and not handed out yet. Reversed, so that each record leaves at the cheap end."""
        self._offset = inner.offset
        thread.keep(self)

    @property
    def offset(self) -> int:
        """Of the next record to hand out; START or NOW until the first answer."""
        return self._offset

    @property
    def closed(self) -> bool:
        """The end was reached, and nothing can follow."""
        return self._inner.closed

    @property
    def up_to_date(self) -> bool:
        """The last answer reached the end."""
        return self._inner.up_to_date

    def read(self, *, wait: bool | None = None) -> list[Record]:
        """The next records; an empty list at the end. `wait`, if not told as `live` says, for at least one."""
        if not self._records:
            self._thread.run(self._fill(wait))
        records = self._records[::-1]
        self._records, self._offset = [], self._inner.offset
        return records

    async def _fill(self, wait: bool | None) -> None:
        """In the client's thread: what comes is kept before anybody is told of it. An interrupt of the thread that
        waits then finds it here the next time; as a result on its way it would be lost."""
        if not self._records:
            self._records = (await self._inner.read(wait=wait))[::-1]

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        if not self._records:
            self._thread.run(self._fill(None))
            if not self._records:
                self._offset = self._inner.offset
                raise StopIteration
        record = self._records.pop()
        self._offset = record.offset + 1 if self._records else self._inner.offset
        return record

    def save(self, *, metadata: str = "", pinned: bool = False) -> None:
        """Moves the cursor to `offset`: everything handed out so far counts as processed.

        `StreamReplaced` if that was in another stream: the cursor of the new one then stays where it is.
        """
        self._thread.run(self._inner.save(offset=self._offset, metadata=metadata, pinned=pinned))

    close = blocking(AsyncReader.close)

    async def end(self) -> None:
        """For the client, in its thread: it closes."""
        await self._inner.close()

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class IdempotentProducer:
    """`AsyncIdempotentProducer` for threads. `append` may be called from several; their order is then theirs to see to.

    Options are those of `ProducerSettings`; callbacks are called in the client's thread.
    """

    def __init__(self, stream: Stream, **options: Unpack[ProducerOptions]) -> None:
        self._thread = stream._thread
        self._bytes_max = ProducerSettings(**options).max_pending_bytes
        self._has_on_error = options.get("on_error") is not None
        # The id is settled here, so that the warning about a guess names the caller's line.
        options["producer_id"] = ProducerSettings(**options).name()
        self._inner = self._thread.run(_make(stream._inner, options))
        self._inner.on_freed = self._on_freed
        self._tally = self._inner.tally
        self._tally.place = caller_place()
        # Entered by itself: the condition's own way in is Python code, and a Ctrl-C that comes there leaves it locked.
        self._lock = threading.RLock()
        self._freed = threading.Condition(self._lock)
        self._staged: list[tuple[Item, int, int]] = []
        self._held_bytes = 0
        self._moving = False
        self._closed = False
        self._thread.keep(self)

    @property
    def producer_id(self) -> str:
        """Under which the server knows it."""
        return self._inner.producer_id

    @property
    def pending_count(self) -> int:
        """Records taken and not settled."""
        return len(self._staged) + self._inner.pending_count

    @property
    def in_flight_count(self) -> int:
        """Batches that have a number and no outcome yet."""
        return self._inner.in_flight_count

    def append(
        self,
        data: object,
        *,
        key: str | bytes | None = None,
        headers: HeadersGiven | None = None,
        timestamp_ms: int | None = None,
        message_id: str | None = None,
        partition: int = 0,
        block: bool = True,
    ) -> None:
        """Takes a record; it is sent in the background. At `max_pending_bytes` it waits, or raises `BufferFull`."""
        item = self._inner.packer.item(data, key, headers, timestamp_ms, message_id)
        if partition < 0:
            raise ValueError("partitions count from 0")
        size = cost(item)
        with self._lock:
            self._check_running()
            while self._held_bytes > 0 and self._held_bytes + size > self._bytes_max:
                if not block:
                    raise BufferFull(f"{self._held_bytes:,} bytes are pending, at most {self._bytes_max:,}")
                self._freed.wait()
                self._check_running()
            if not self._moving and not self._thread.call(self._move):
                raise ProducerStopped
            self._moving = True
            # In this order: a Ctrl-C in between may count a record too many as owed, and keeps no room for ever.
            self._tally.taken_count += 1
            self._staged.append((item, size, partition))
            self._held_bytes += size

    def close(self) -> None:
        """Flushes and ends. Raises the first error unless a call has raised it before."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._freed.notify_all()
        self._thread.run(self._inner.close())

    flush = blocking(AsyncIdempotentProducer.flush)
    resume = blocking(AsyncIdempotentProducer.resume)
    last_sequence = blocking(AsyncIdempotentProducer.last_sequence)

    def __enter__(self) -> "IdempotentProducer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ClientError:
            if error is None:
                raise

    def tell(self) -> None:
        """Raises the first error if nobody has heard of it: no call raised it, and there is no `on_error`."""
        if self._inner.error is not None and not self._inner.error_told and not self._has_on_error:
            self._inner.error_told = True
            raise self._inner.error

    def _check_running(self) -> None:
        if self._inner.error is not None:
            self._inner.error_told = True
            raise ProducerStopped(self._inner.error)
        if self._closed:
            raise ProducerStopped

    # In the client's thread.

    async def end(self) -> None:
        """The client closes: what is not confirmed fails, and whoever waits for it is told."""
        with self._lock:
            self._closed = True
            self._freed.notify_all()
        self._move()
        await self._inner.end()

    def _move(self) -> None:
        with self._lock:
            staged, self._staged = self._staged, []
            self._moving = False
        self._inner.put_all(staged)

    def _on_freed(self, size: int) -> None:
        with self._lock:
            self._held_bytes -= size
            self._freed.notify_all()


async def _make(stream: AsyncStream, options: ProducerOptions) -> AsyncIdempotentProducer:
    return AsyncIdempotentProducer(stream, **options)


class Transaction:
    """`AsyncTransaction` for threads."""

    def __init__(self, thread: LoopThread, inner: AsyncTransaction) -> None:
        self._thread = thread
        self._inner = inner

    begin = blocking(AsyncTransaction.begin)
    append = blocking(AsyncTransaction.append)
    commit_offsets = blocking(AsyncTransaction.commit_offsets)
    commit = blocking(AsyncTransaction.commit)
    abort = blocking(AsyncTransaction.abort)

    def __enter__(self) -> "Transaction":
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(self._inner.__aexit__(kind, error, trace))


class Client:
    """`AsyncClient`, waiting. Use it as `with`, or call `close`: it has a thread."""

    def __init__(
        self,
        url: str = URL_DEFAULT,
        *,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        connect_timeout_ms: float = 5_000,
        answer_timeout_ms: float = 30_000,
        request_timeout_ms: float = 60_000,
    ) -> None:
        self._inner = AsyncClient(
            url,
            headers=headers,
            tls=tls,
            connect_timeout_ms=connect_timeout_ms,
            answer_timeout_ms=answer_timeout_ms,
            request_timeout_ms=request_timeout_ms,
        )
        self._thread = LoopThread()

    def stream(self, topic: str, content_type: str = JSON) -> Stream:
        """A handle for one stream. The content type is that of its records; a JSON stream takes any JSON value."""
        return Stream(self._thread, self._inner.stream(topic, content_type))

    def producer(self, topic: str, content_type: str = JSON, **options: Unpack[ProducerOptions]) -> IdempotentProducer:
        """A producer for one stream; see `ProducerSettings` for the options."""
        return IdempotentProducer(self.stream(topic, content_type), **options)

    def reader(
        self,
        topic: str,
        *,
        offset: int = START,
        partition: int = 0,
        live: bool = True,
        cursor: str | None = None,
        on_gone: OnGone = "raise",
    ) -> Reader:
        """A reader of one partition; with a cursor it begins where the cursor stands, if there is one."""
        inner = self._inner.reader(
            topic, offset=offset, partition=partition, live=live, cursor=cursor, on_gone=on_gone
        )  # fmt: skip
        return Reader(self._thread, inner)

    def transaction(self, txn_id: str, timeout_ms: int | None = TIMEOUT_MS_DEFAULT) -> Transaction:
        """A transaction of this transactional id: `with` begins it, and commits it at the end of the block."""
        return Transaction(self._thread, self._inner.transaction(txn_id, timeout_ms))

    begin_transaction = blocking(AsyncClient.begin_transaction)
    add_partitions_to_txn = blocking(AsyncClient.add_partitions_to_txn)
    add_offsets_to_txn = blocking(AsyncClient.add_offsets_to_txn)
    txn_offset_commit = blocking(AsyncClient.txn_offset_commit)
    append_in_txn = blocking(AsyncClient.append_in_txn)
    end_transaction = blocking(AsyncClient.end_transaction)
    append = blocking(AsyncClient.append)
    create_topic = blocking(AsyncClient.create_topic)
    topic = blocking(AsyncClient.topic)
    grow_topic = blocking(AsyncClient.grow_topic)
    configure_topic = blocking(AsyncClient.configure_topic)
    delete_topic = blocking(AsyncClient.delete_topic)
    trim = blocking(AsyncClient.trim)
    delete_records = blocking(AsyncClient.delete_records)
    streams = blocking(AsyncClient.streams)
    call = blocking(AsyncClient.call)
    cut = blocking(AsyncClient.cut)
    offsets_at = blocking(AsyncClient.offsets_at)
    receipt = blocking(AsyncClient.receipt)
    producer_info = blocking(AsyncClient.producer_info)
    commit_producer_info = blocking(AsyncClient.commit_producer_info)
    producers = blocking(AsyncClient.producers)
    cursors = blocking(AsyncClient.cursors)
    cursor = blocking(AsyncClient.cursor)
    move_cursor = blocking(AsyncClient.move_cursor)
    delete_cursor = blocking(AsyncClient.delete_cursor)
    commit = blocking(AsyncClient.commit)
    open_application = blocking(AsyncClient.open_application)
    application = blocking(AsyncClient.application)
    open_stage = blocking(AsyncClient.open_stage)
    append_stage = blocking(AsyncClient.append_stage)
    stage_records = blocking(AsyncClient.stage_records)
    drop_stages = blocking(AsyncClient.drop_stages)
    publish = blocking(AsyncClient.publish)
    health = blocking(AsyncClient.health)
    metrics = blocking(AsyncClient.metrics)
    openapi = blocking(AsyncClient.openapi)

    def close(self) -> None:
        """Ends the connection and the thread. Close producers and readers first.

        What a producer still holds is not waited for: it fails, and calls that wait for it raise. If nobody else hears
        of it, this call raises.
        """
        with contextlib.suppress(_AlreadyClosed):
            self._thread.run(self._end())
            self._thread.stop()
            for one in self._thread.users():
                if isinstance(one, IdempotentProducer):
                    one.tell()

    async def _end(self) -> None:
        for one in self._thread.users():
            await one.end()
        await self._inner.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ClientError:
            if error is None:
                raise
