"""Timers: what will fall due, and the commands that end it (P7). Knows when, not what: the core decides again.

A heap of (due time, table, key). Nothing is ever taken out early: a txn that ended or a stage that was renewed is
simply found not to be due, and stands in the heap a second time with its new time.
"""

import heapq
from collections.abc import Iterator

from oncelog import limits
from oncelog.core.command import ExpireStages, ExpireTxn
from oncelog.core.entry import Compound, Entry, StageAppended, StageDropped, StageOpened, StagePublished, TxnSet
from oncelog.core.rows import Stage, Table
from oncelog.core.txn import NS_PER_MS, Txn, TxnState

Expiry = ExpireTxn | ExpireStages


def txn_due_ns(txn: Txn) -> int:
    """When the txn times out if it is open, else when its id is forgotten."""
    if txn.state is TxnState.ONGOING:
        return txn.started_ns + txn.timeout_ms * NS_PER_MS
    return txn.updated_ns + limits.TXN_ID_EXPIRY_MS * NS_PER_MS


class Timers:
    """Deadlines of txns and stages."""

    def __init__(self) -> None:
        self._txns: list[tuple[int, str]] = []
        self._stages: list[tuple[int, int]] = []
        self._ttl_ms: dict[int, int] = {}
        """Of every living stage: an append renews it."""

    def add_row(self, table: Table, row: object) -> None:
        """Watch a row that was there when the log was opened."""
        if table is Table.TXN:
            assert isinstance(row, Txn)
            heapq.heappush(self._txns, (txn_due_ns(row), row.txn_id))
        else:
            assert isinstance(row, Stage)
            self._ttl_ms[row.stage_id] = row.ttl_ms
            heapq.heappush(self._stages, (row.expires_ns, row.stage_id))

    def applied(self, entry: Entry) -> None:
        """Learn from an entry what will fall due."""
        if not isinstance(entry, Compound):
            return
        for operation in entry.operations:
            match operation:
                case TxnSet(txn=Txn() as txn):
                    heapq.heappush(self._txns, (txn_due_ns(txn), txn.txn_id))
                case StageOpened():
                    self._ttl_ms[operation.stage_id] = operation.ttl_ms
                    self._renew(operation.stage_id, entry.time_ns)
                case StageAppended():
                    self._renew(operation.stage_id, entry.time_ns)
                case StageDropped() | StagePublished():
                    self._ttl_ms.pop(operation.stage_id, None)

    def _renew(self, stage_id: int, time_ns: int) -> None:
        heapq.heappush(self._stages, (time_ns + self._ttl_ms[stage_id] * NS_PER_MS, stage_id))

    def due(self, now_ns: int) -> Iterator[Expiry]:
        """Commands for everything whose time has come."""
        txns: set[str] = set()
        while self._txns and self._txns[0][0] <= now_ns:
            txns.add(heapq.heappop(self._txns)[1])
        for txn_id in sorted(txns):
            yield ExpireTxn(txn_id)
        stages: set[int] = set()
        while self._stages and self._stages[0][0] <= now_ns:
            stage_id = heapq.heappop(self._stages)[1]
            if stage_id in self._ttl_ms:
                stages.add(stage_id)
        if stages:
            yield ExpireStages(sorted(stages))

    def again(self, command: Expiry, now_ns: int) -> None:
        """The command could not be carried out (no room): it is due at the next check."""
        if isinstance(command, ExpireTxn):
            heapq.heappush(self._txns, (now_ns, command.txn_id))
        else:
            for stage_id in command.stage_ids:
                heapq.heappush(self._stages, (now_ns, stage_id))
