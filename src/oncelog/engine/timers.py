"""Timers: what will fall due, and the commands that end it (P7). Knows when, not what: the core decides again.

What is due is asked of the core once: should it not be due after all, the entry that moved its deadline has set a new
one here. What the core could not end is asked again at the next check.
"""

import heapq
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from oncelog import limits
from oncelog.core.command import ExpireStages, ExpireTxn
from oncelog.core.entry import (
    Compound,
    Entry,
    StageAppended,
    StageDropped,
    StageOpened,
    StagePublished,
    TxnAdded,
    TxnSet,
)
from oncelog.core.outcome import Outcome, Refusal
from oncelog.core.rows import Stage, Table
from oncelog.core.txn import DEFAULT_TIMEOUTS, NS_PER_MS, Txn, TxnState

Expiry = ExpireTxn | ExpireStages

K = TypeVar("K", str, int)


def txn_due_ns(txn: Txn) -> int:
    """When the txn times out if it is open, else when its id is forgotten."""
    if txn.state is TxnState.ONGOING:
        return txn.due_ns
    return txn.updated_ns + limits.TXN_ID_EXPIRY_MS * NS_PER_MS


class Deadlines(Generic[K]):
    """Keys and when each falls due; a deadline may be moved at any time. One live heap item per key (`_queued`): if it
    turns out to be early it is put back at the key's present deadline. Items of keys that were removed, or moved to an
    earlier time, are stale; they never outnumber the live ones."""

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def set(self, key: K, due_ns: int) -> None:
        """Watch a key, or move its deadline."""
        self._due[key] = due_ns
        if due_ns < self._queued.get(key, due_ns + 1):
            self._queued[key] = due_ns
            heapq.heappush(self._heap, (due_ns, key))
            self._drop_stale()

    def remove(self, key: K) -> None:
        """Watch it no more."""
        if self._due.pop(key, None) is not None:
            self._queued.pop(key, None)
            self._drop_stale()

    def _drop_stale(self) -> None:
        """A stage may be opened for a month and end within a second: its item must not stay that long. Rebuilding
        costs as much as the items that have become stale since the last time, so nothing per item."""
        if len(self._heap) > 2 * len(self._queued):
            self._heap = [(due_ns, key) for key, due_ns in self._queued.items()]
            heapq.heapify(self._heap)

    def take(self, now_ns: int) -> list[K]:
        """The keys that are due, in the order of keys. They are no longer watched."""
        taken: set[K] = set()
        while self._heap and self._heap[0][0] <= now_ns:
            queued_ns, key = heapq.heappop(self._heap)
            if self._queued.get(key) == queued_ns:
                del self._queued[key]
            due_ns = self._due.get(key)
            if due_ns is None:
                continue
            if due_ns <= now_ns:
                del self._due[key]
                taken.add(key)
            else:
                self.set(key, due_ns)
        self._drop_stale()
        return sorted(taken)


class Timers:
    """Deadlines of open txns, of idle txn ids, and of stages."""

    def __init__(self, payload_bytes_max: int, txns: Mapping[str, Txn | None]) -> None:
        """`payload_bytes_max` is what one group of the journal holds: small segments take small slices. `txns` are the
        writer's own rows: the row of an entry that was just applied is among them."""
        self._txns = txns
        self.timeouts = DEFAULT_TIMEOUTS
        """What the server was started with."""
        self._txns_checked_ns = 0
        self._stages_max = (payload_bytes_max - limits.ENTRY_OVERHEAD_BYTES) // limits.PUBLISHED_STAGE_BYTES
        assert self._stages_max > 0
        self._open_txns = Deadlines[str]()
        self._idle_txns = Deadlines[str]()
        self._stages = Deadlines[int]()
        self._ttl_ms: dict[int, int] = {}
        """Of every living stage: an append renews it."""

    def add_row(self, table: Table, row: object) -> None:
        """Watch a row that was there when the log was opened."""
        if table is Table.TXN:
            assert isinstance(row, Txn)
            self._watch_txn(row)
        else:
            assert isinstance(row, Stage)
            self._ttl_ms[row.stage_id] = row.ttl_ms
            self._stages.set(row.stage_id, row.expires_ns)

    def applied(self, entry: Entry) -> None:
        """Learn from an entry what will fall due."""
        if not isinstance(entry, Compound):
            return
        for operation in entry.operations:
            match operation:
                case TxnSet(txn=Txn() as txn):
                    self._watch_txn(txn)
                case TxnSet():
                    self._open_txns.remove(operation.txn_id)
                    self._idle_txns.remove(operation.txn_id)
                case TxnAdded():
                    row = self._txns[operation.txn_id]
                    assert row is not None, "the entry was applied"
                    self._watch_txn(row)
                case StageOpened():
                    self._ttl_ms[operation.stage_id] = operation.ttl_ms
                    self._renew(operation.stage_id, entry.time_ns)
                case StageAppended():
                    self._renew(operation.stage_id, entry.time_ns)
                case StageDropped() | StagePublished():
                    self._ttl_ms.pop(operation.stage_id, None)
                    self._stages.remove(operation.stage_id)

    def _watch_txn(self, txn: Txn) -> None:
        is_open = txn.state is TxnState.ONGOING
        watching, other = (self._open_txns, self._idle_txns) if is_open else (self._idle_txns, self._open_txns)
        watching.set(txn.txn_id, txn_due_ns(txn))
        other.remove(txn.txn_id)

    def _renew(self, stage_id: int, time_ns: int) -> None:
        self._stages.set(stage_id, time_ns + self._ttl_ms[stage_id] * NS_PER_MS)

    def due(self, now_ns: int) -> Iterator[Expiry]:
        """Commands for everything whose time has come. Txns are looked at every `check_interval_ms` alone."""
        timeouts = self.timeouts
        if not 0 <= now_ns - self._txns_checked_ns < timeouts.check_interval_ms * NS_PER_MS:
            self._txns_checked_ns = now_ns
            for txn_id in self._open_txns.take(now_ns) + self._idle_txns.take(now_ns):
                yield ExpireTxn(txn_id, timeouts.fence_on_timeout, timeouts.write_abort_markers)
        stages = self._stages.take(now_ns)
        slice_ = min(limits.STAGES_PER_PUBLISH_MAX, self._stages_max)
        for first in range(0, len(stages), slice_):
            yield ExpireStages(stages[first : first + slice_])

    def answered(self, command: Expiry, outcome: Outcome, now_ns: int) -> None:
        """What is left of it is due at the next check: all of it if it was refused, whatever the reason, and stages
        that live on. Not if an entry has set a new deadline meanwhile: asked early, the core would leave it alone, and
        nobody would ask again."""
        if isinstance(command, ExpireStages):
            for stage_id in command.stage_ids:
                if stage_id in self._ttl_ms and stage_id not in self._stages:
                    self._stages.set(stage_id, now_ns)
        elif isinstance(outcome, Refusal):
            txn_id = command.txn_id
            if txn_id not in self._open_txns and txn_id not in self._idle_txns:
                self._open_txns.set(txn_id, now_ns)
