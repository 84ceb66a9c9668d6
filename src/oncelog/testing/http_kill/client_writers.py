"""Writers that use the project's own client: what the others do by hand, its producers must do by themselves.

One runs in this event loop and speaks the durable-streams dialect, one in a thread and speaks X-. Which records share a
request is the client's choice, so each record is a unit of its own.
"""

import asyncio
import contextlib
import random
from collections import deque
from typing import ClassVar, Final

from oncelog.client import AsyncClient, AsyncIdempotentProducer, BatchResult, Client, IdempotentProducer, PendingBatch
from oncelog.client.errors import ClientError
from oncelog.client.options import ProducerOptions
from oncelog.testing.http_kill.lanes import Network
from oncelog.testing.http_kill.ledger import CLIENTS, STREAM_IDS
from oncelog.testing.http_kill.wire import HOST
from oncelog.testing.kill.ledger import Unit

_RECORDS_PENDING_MAX: Final = 60
_ABANDON_S: Final = 1


class ClientWriter:
    """A producer of the client, kept busy. What it has not confirmed is in `_pending`, in order."""

    label: ClassVar[str]
    partition: ClassVar[int]

    def __init__(self, name: str, network: Network) -> None:
        self.name = name
        self.ledger = network.ledger
        self.url = f"http://{HOST}:{network.port}"
        self.random = random.Random(f"{network.seed}/{name}")
        self.finishing = True
        self.run = 0
        self._is_over = False
        self._number = 0
        self._pending: deque[Unit] = deque()
        self._loop = asyncio.get_running_loop()

    async def start(self) -> None:
        await self.open()

    async def stop(self) -> None:
        self._is_over = True
        await self.close()

    async def begin(self) -> None:
        """New records may be made; now and then by a producer that has started over."""
        assert not self._pending
        if self._number and self.random.random() < 0.5:
            await self.close()
            self.run += 1
            await self.open()
        self.finishing = False
        self._refill()

    async def settle(self) -> None:
        """Begin nothing new, and wait until everything is confirmed."""
        self.finishing = True
        try:
            await self.flush()
        except ClientError as error:
            self.ledger.refused(f"{self.name} flush", error)
        # Callbacks from another thread come in the order of the calls.
        done = asyncio.Event()
        self._loop.call_soon(done.set)
        await done.wait()

    async def wait_down(self) -> None:
        """Its connections are its own affair."""

    @property
    def in_flight(self) -> int:
        return 0

    @property
    def unsettled(self) -> int:
        return len(self._pending)

    def options(self) -> ProducerOptions:
        return {
            "producer_id": self.name,
            "max_batch_records": 5,
            "retry_backoff_ms": 5,
            "retry_backoff_max_ms": 50,
            "on_batch_ack": self.acked,
            "on_error": self.failed,
        }

    def acked(self, result: BatchResult) -> None:
        """In the rounds' own loop: a batch is confirmed."""
        stream_id = STREAM_IDS[CLIENTS.name, self.partition]
        self.ledger.counted(self.name, duplicate=result.duplicate)
        self.ledger.requests += 1
        for number in range(result.count):
            unit = self._pending.popleft()
            if result.first_offset >= 0:
                offset = result.first_offset + number
                self.ledger.placed(unit, unit.identities, stream_id, offset, offset + 1)
            else:
                self.ledger.findings.add("lost", f"{unit.name}: its retry was not told the offset")
        self._refill()

    def failed(self, error: ClientError, batch: PendingBatch) -> None:
        """In the rounds' own loop: a batch will not be confirmed."""
        if self._is_over:
            return  # the rounds were cut short, and so was it
        self.ledger.refused(f"{self.name} {batch}", error)

    def _refill(self) -> None:
        while not self.finishing and len(self._pending) < _RECORDS_PENDING_MAX:
            self._number += 1
            identity = f"{self.name}:{self._number}:0".encode()
            self._pending.append(self.ledger.unit(f"{self.name} {self._number}", [identity]))
            try:
                self.append(self.ledger.value(CLIENTS, identity))
            except ClientError as error:
                self.ledger.refused(f"{self.name} {self._number}", error)
                self.finishing = True

    async def open(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def flush(self) -> None:
        raise NotImplementedError

    def append(self, value: bytes) -> None:
        raise NotImplementedError


class AsyncClientWriter(ClientWriter):
    """`AsyncIdempotentProducer`, durable-streams dialect: a restart comes with a higher epoch, or resumes."""

    label = "AsyncIdempotentProducer"
    partition = 0
    _client: AsyncClient
    _producer: AsyncIdempotentProducer

    async def open(self) -> None:
        self._client = AsyncClient(self.url)
        options = self.options() | ProducerOptions(dialect="durable-streams", epoch=self.run)
        self._producer = self._client.producer(CLIENTS.name, **options)
        if self.run % 2:
            # Every other time it goes on in the epoch it had.
            await self._producer.resume(self.partition)

    async def close(self) -> None:
        # What is pending now, when the rounds were cut short, will never be confirmed.
        with contextlib.suppress(TimeoutError, ClientError):
            await asyncio.wait_for(self._producer.close(), timeout=_ABANDON_S if self._pending else None)
        await self._client.close()

    async def flush(self) -> None:
        await self._producer.flush()

    def append(self, value: bytes) -> None:
        self._producer.append_nowait(value, partition=self.partition)


class ThreadClientWriter(ClientWriter):
    """`IdempotentProducer`, X- dialect: a restart comes with a session of its own."""

    label = "IdempotentProducer"
    partition = 1
    _client: Client
    _producer: IdempotentProducer

    async def open(self) -> None:
        await asyncio.to_thread(self._open)

    def _open(self) -> None:
        self._client = Client(self.url)
        loop = self._loop
        options = self.options()
        options["on_batch_ack"] = lambda result: loop.call_soon_threadsafe(self.acked, result)
        options["on_error"] = lambda error, batch: loop.call_soon_threadsafe(self.failed, error, batch)
        self._producer = self._client.producer(CLIENTS.name, **options)

    async def close(self) -> None:
        if not self._pending:
            await asyncio.to_thread(self._producer.close)
        await asyncio.to_thread(self._client.close)

    async def flush(self) -> None:
        await asyncio.to_thread(self._producer.flush)

    def append(self, value: bytes) -> None:
        self._producer.append(value, partition=self.partition, block=False)
