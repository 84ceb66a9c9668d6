"""Our own client as the load of `bench http`: a process, `python -m bench.http_client`, told by JSON on stdin.

With one record per batch every answer lets the next record go, so that exactly `in_flight` requests are on their way
and the time of each is known. With large batches records are appended as fast as the producer takes them, and only the
rate is of interest.
"""

import asyncio
import json
import os
import sys
import time
from array import array
from collections import Counter
from typing import NamedTuple

from bench.http_load import LoadResult, result
from oncelog.client import AsyncClient, AsyncIdempotentProducer, BatchResult, ClientError, PendingBatch

OCTETS = "application/octet-stream"


class ClientLoad(NamedTuple):
    host: str
    port: int
    topic: str
    value_bytes: int
    seconds: float
    in_flight: int
    # Records per request: one, or as many as fit.
    batched: bool


class ClosedLoop:
    """As many records on their way as the producer may have requests."""

    def __init__(self, load: ClientLoad, value: bytes) -> None:
        self.requests = 0
        self.records = 0
        self.latencies = array("d")
        self.refused: Counter[str] = Counter()
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._load = load
        self._value = value
        self._until = 0.0
        self._sent: list[float] = []
        self.producer: AsyncIdempotentProducer | None = None

    def start(self) -> None:
        self._until = time.perf_counter() + self._load.seconds
        for _ in range(self._load.in_flight):
            self._append(time.perf_counter())

    def acked(self, batch: BatchResult) -> None:
        self.requests += 1
        self.records += batch.count
        if self._load.batched:
            return
        now = time.perf_counter()
        # One record per batch: the number of the batch is that of the record.
        self.latencies.append(now - self._sent[batch.seq])
        if now < self._until:
            self._append(now)
        elif len(self.latencies) == len(self._sent):
            self.finished.set_result(None)

    def failed(self, error: ClientError, batch: PendingBatch) -> None:
        self.refused[type(error).__name__] += batch.count
        if not self.finished.done():
            self.finished.set_exception(error)

    def _append(self, now: float) -> None:
        assert self.producer is not None
        self._sent.append(now)
        self.producer.append_nowait(self._value)


async def run(load: ClientLoad) -> LoadResult:
    value = os.urandom(load.value_bytes)
    loop = ClosedLoop(load, value)
    async with AsyncClient(f"http://{load.host}:{load.port}") as client:
        producer = client.producer(
            load.topic,
            OCTETS,
            producer_id=load.topic,
            max_in_flight=load.in_flight,
            max_batch_records=100_000 if load.batched else 1,
            raw_batches=load.batched,
            on_batch_ack=loop.acked,
            on_error=loop.failed,
        )
        async with producer:
            loop.producer = producer
            cpu, start = time.process_time(), time.perf_counter()
            if load.batched:
                while time.perf_counter() - start < load.seconds:
                    await producer.append(value)
                await producer.flush()
            else:
                loop.start()
                await loop.finished
            wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    return result(loop.requests, loop.records * load.value_bytes, wall, cpu, loop.latencies, loop.refused)


def main() -> None:
    outcome = asyncio.run(run(ClientLoad(**json.load(sys.stdin))))
    json.dump(outcome._asdict(), sys.stdout)


if __name__ == "__main__":
    main()
