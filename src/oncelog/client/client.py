"""The asynchronous client: one address, and from it streams, producers, readers and every other call."""

import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Unpack

from oncelog.client.admin import Admin
from oncelog.client.calls import Caller, Timeouts
from oncelog.client.connection import PORT_DEFAULT, parse_address
from oncelog.client.options import ProducerOptions
from oncelog.client.packing import HeadersGiven
from oncelog.client.producer import AsyncIdempotentProducer
from oncelog.client.reader import START, AsyncReader, OnGone
from oncelog.client.stream import AppendResult, AsyncStream
from oncelog.client.transaction import TIMEOUT_MS_DEFAULT, AsyncTransaction, Transactions
from oncelog.client.wire import JSON, Answer

URL_DEFAULT: Final = f"http://127.0.0.1:{PORT_DEFAULT}"


class AsyncClient(Admin, Transactions):
    """A client of one server. Use it as `async with`, or call `close`. It connects when it is first needed."""

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
        timeouts = Timeouts(connect_timeout_ms / 1000, answer_timeout_ms / 1000, request_timeout_ms / 1000)
        super().__init__(Caller(parse_address(url, tls), headers or {}, timeouts))

    def stream(self, topic: str, content_type: str = JSON) -> AsyncStream:
        """A handle for one stream. The content type is that of its records; a JSON stream takes any JSON value."""
        return AsyncStream(self._caller, topic, content_type)

    async def append(
        self,
        topic: str,
        data: object,
        *,
        content_type: str = JSON,
        key: str | bytes | None = None,
        headers: HeadersGiven | None = None,
        timestamp_ms: int | None = None,
        message_id: str | None = None,
        partition: int = 0,
    ) -> AppendResult:
        """Writes one record and waits until it is on disk. Retried under one message id, random if none is given."""
        return await self.stream(topic, content_type).append(
            data, key=key, headers=headers, timestamp_ms=timestamp_ms, message_id=message_id, partition=partition
        )

    def producer(
        self, topic: str, content_type: str = JSON, **options: Unpack[ProducerOptions]
    ) -> AsyncIdempotentProducer:
        """A producer for one stream; see `ProducerSettings` for the options. Within a running event loop."""
        return AsyncIdempotentProducer(self.stream(topic, content_type), **options)

    def reader(
        self,
        topic: str,
        *,
        offset: int = START,
        partition: int = 0,
        live: bool = True,
        cursor: str | None = None,
        on_gone: OnGone = "raise",
    ) -> AsyncReader:
        """A reader of one partition; with a cursor it begins where the cursor stands, if there is one."""
        return AsyncReader(
            self._caller, topic, offset=offset, partition=partition, live=live, cursor=cursor, on_gone=on_gone
        )

    def transaction(self, txn_id: str, timeout_ms: int | None = TIMEOUT_MS_DEFAULT) -> AsyncTransaction:
        """A transaction of this transactional id: `async with` begins it, and commits it at the end of the block."""
        return AsyncTransaction(self._caller, txn_id, timeout_ms)

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int | None] | None = None,
        *,
        headers: Mapping[str, str | int] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """One request of the caller's own making, repeated until it is answered: it must carry a claim, or change
        nothing. A refusal is raised."""
        return await self._caller.call(method, path, query, headers=headers, body=body)

    async def close(self) -> None:
        """Ends the client's connection. Producers and readers have their own and are closed by themselves."""
        await self._caller.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
