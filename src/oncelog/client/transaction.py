"""Transactions: many records in many streams, and consumer offsets, become visible at one instant, or never.

    async with client.transaction("billing", timeout_ms=60_000) as txn:
        await txn.append("orders", {"order": 7})
        await txn.append("audit", {"event": "sold"})
        await txn.commit_offsets("billing-group", [TxnOffset("inbox", 150)])

The block commits when it ends and aborts when it raises. A transactional id names one writer: whoever begins a
transaction of the same id fences this one, and its open transaction is aborted. A retry of an append is recognised by
its sequence, which is counted here for each partition.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Final, TypeVar

import msgspec

from oncelog.client.calls import Caller
from oncelog.client.errors import ClientError, Refused
from oncelog.client.models import record_members
from oncelog.client.packing import check_id
from oncelog.client.wire import name_path
from oncelog.limits import KAFKA_SEQUENCE_MAX

Shape = TypeVar("Shape")

TIMEOUT_MS_DEFAULT: Final = 60_000

CONCURRENT: Final = "txn_concurrent"
"""The transaction of the holder before was being ended: the same request succeeds a moment later."""

RETRIES_MAX: Final = 20
RETRY_PAUSE_S: Final = 0.05


class TxnOffset(msgspec.Struct, frozen=True):
    """How far a consumer group has come in one partition."""

    topic: str
    offset: int
    partition: int = 0
    metadata: str | None = None


class TxnPartition(msgspec.Struct, frozen=True):
    """A partition that the transaction will write to."""

    topic: str
    partition: int = 0


class TxnAppended(msgspec.Struct, frozen=True):
    """Where records of a transaction lie; they are visible once it commits."""

    first: int
    next: int
    duplicate: bool


class TxnHolder(msgspec.Struct, frozen=True):
    """Who may use a transactional id: every call carries both numbers."""

    producer_id: int
    epoch: int


class Transactions:
    """The coordinator's calls, one to one, under the names of seed 002. `AsyncTransaction` does the counting."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def begin_transaction(self, txn_id: str, timeout_ms: int | None = TIMEOUT_MS_DEFAULT) -> TxnHolder:
        """Take the transactional id over: the holder before is fenced, and its open transaction aborted."""
        return await self._call(TxnHolder, txn_id, "begin", {"timeout_ms": timeout_ms})

    async def add_partitions_to_txn(
        self, txn_id: str, producer_id: int, epoch: int, partitions: Sequence[TxnPartition | tuple[str, int]]
    ) -> None:
        """Name partitions that the transaction will write to: all of them, or none if one is missing."""
        places = [TxnPartition(*each) if isinstance(each, tuple) else each for each in partitions]
        await self._held(txn_id, "partitions", producer_id, epoch, {"partitions": places})

    async def add_offsets_to_txn(self, txn_id: str, producer_id: int, epoch: int, group: str) -> None:
        """Name a consumer group whose offsets the transaction will commit."""
        await self._held(txn_id, "groups", producer_id, epoch, {"groups": [group]})

    async def txn_offset_commit(
        self, txn_id: str, producer_id: int, epoch: int, group: str, offsets: Sequence[TxnOffset]
    ) -> None:
        """Offsets that count once the transaction commits."""
        await self._held(txn_id, "offsets", producer_id, epoch, {"group": group, "offsets": list(offsets)})

    async def append_in_txn(
        self,
        txn_id: str,
        producer_id: int,
        epoch: int,
        topic: str,
        records: Sequence[object],
        *,
        sequence: int,
        partition: int = 0,
    ) -> TxnAppended:
        """Write records. `sequence` counts the records of this producer in this partition, from 0 on in an epoch."""
        body = {
            "producer_id": producer_id,
            "epoch": epoch,
            "topic": topic,
            "partition": partition,
            "sequence": sequence,
            "records": [record_members(record) for record in records],
        }
        return await self._call(TxnAppended, txn_id, "append", body)

    async def end_transaction(self, txn_id: str, producer_id: int, epoch: int, commit: bool) -> None:
        """Commit or abort. The answer means that every partition shows it."""
        await self._held(txn_id, "end", producer_id, epoch, {"commit": commit})

    async def _held(self, txn_id: str, verb: str, producer_id: int, epoch: int, body: dict[str, object]) -> TxnHolder:
        return await self._call(TxnHolder, txn_id, verb, {"producer_id": producer_id, "epoch": epoch, **body})

    async def _call(self, shape: type[Shape], txn_id: str, verb: str, body: dict[str, object]) -> Shape:
        check_id(txn_id)
        path = f"/v1/txns/{name_path(txn_id)}/{verb}"
        for _ in range(RETRIES_MAX):
            try:
                return await self._caller.json(shape, "POST", path, body=body)
            except Refused as error:
                if error.code != CONCURRENT:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S)
        return await self._caller.json(shape, "POST", path, body=body)


class AsyncTransaction:
    """One transaction at a time of one transactional id. Use it as `async with`, or call `begin`, `commit`, `abort`."""

    def __init__(self, caller: Caller, txn_id: str, timeout_ms: int | None) -> None:
        self._calls = Transactions(caller)
        self.txn_id = txn_id
        self._timeout_ms = timeout_ms
        self._holder: TxnHolder | None = None
        self._sequences: dict[tuple[str, int], int] = {}
        self._groups: set[str] = set()

    async def begin(self) -> TxnHolder:
        """Begin. Whoever held the transactional id before is fenced."""
        self._holder = await self._calls.begin_transaction(self.txn_id, self._timeout_ms)
        self._sequences.clear()  # a new epoch counts from 0
        self._groups.clear()
        return self._holder

    async def append(self, topic: str, *values: object, partition: int = 0) -> TxnAppended:
        """Write values, one record each: text, bytes, anything that becomes JSON, or a `CommitRecord`."""
        producer_id, epoch = self._held()
        place = (topic, partition)
        sequence = self._sequences.get(place)
        if sequence is None:
            await self._calls.add_partitions_to_txn(self.txn_id, producer_id, epoch, [place])
            sequence = self._sequences[place] = 0
        written = await self._calls.append_in_txn(
            self.txn_id, producer_id, epoch, topic, values, sequence=sequence, partition=partition
        )
        self._sequences[place] = (sequence + len(values)) & KAFKA_SEQUENCE_MAX
        return written

    async def commit_offsets(self, group: str, offsets: Sequence[TxnOffset]) -> None:
        """How far a consumer group has come: true once the transaction commits."""
        producer_id, epoch = self._held()
        if group not in self._groups:
            await self._calls.add_offsets_to_txn(self.txn_id, producer_id, epoch, group)
            self._groups.add(group)
        await self._calls.txn_offset_commit(self.txn_id, producer_id, epoch, group, offsets)

    async def commit(self) -> None:
        """Everything becomes visible at once."""
        await self._end(True)

    async def abort(self) -> None:
        """Nothing of it ever becomes visible."""
        await self._end(False)

    async def _end(self, commit: bool) -> None:
        producer_id, epoch = self._held()
        if self._sequences or self._groups:  # else nothing was named, and the server has no open transaction
            await self._calls.end_transaction(self.txn_id, producer_id, epoch, commit)
        self._holder = None

    def _held(self) -> tuple[int, int]:
        if self._holder is None:
            raise ClientError("the transaction has not begun, or has ended: call begin first")
        return self._holder.producer_id, self._holder.epoch

    async def __aenter__(self) -> "AsyncTransaction":
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._holder is None:
            return
        if error is None:
            await self.commit()
            return
        with contextlib.suppress(ClientError):  # what the caller raised says more; the server aborts by itself in time
            await self.abort()
