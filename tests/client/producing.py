"""A producer and a scripted peer, opened and closed together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Unpack

from oncelog.client import AsyncClient, AsyncIdempotentProducer, ClientError, ProducerOptions
from tests.client.peer import FakeLog, Peer, Script

TOPIC = "orders"


@asynccontextmanager
async def producing(
    script: Script, content_type: str = "application/json", **options: Unpack[ProducerOptions]
) -> AsyncIterator[tuple[Peer, AsyncIdempotentProducer]]:
    options.setdefault("producer_id", "p")
    options.setdefault("retry_backoff_ms", 1)
    async with Peer(script) as peer, AsyncClient(peer.url, answer_timeout_ms=10_000, request_timeout_ms=500) as client:
        producer = client.producer(TOPIC, content_type, **options)
        try:
            yield peer, producer
        finally:
            with suppress(ClientError):
                await producer.close()


def numbers(log: FakeLog, partition: int = 0) -> list[int]:
    return [int(value) for value in log.values(TOPIC, partition)]
