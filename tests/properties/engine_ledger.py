"""A dumb log to compare the engine with: plain lists, no index, no generations, no groups, no files.

Every method decides and does one command at once and says what the answer must be, as a tuple. `entry_number` counts
what the journal must have got. It knows only what the machine in `test_engine_machine` asks.
"""

import copy
from typing import Any

from oncelog.core.outcome import (
    CommitConfirmed,
    Confirmed,
    CursorDone,
    Outcome,
    Refusal,
    StageDone,
    StreamDone,
    TopicDone,
    TxnDone,
)

Seen = tuple[Any, ...]
REFUSED: Seen = ("refused",)


def seen(outcome: Outcome) -> Seen:
    """What the ledger says about an outcome: the numbers that clients live by."""
    match outcome:
        case Refusal():
            return REFUSED
        case Confirmed():
            told = {number: seen(one) for number, one in (outcome.exceptions or {}).items()}
            return "confirmed", outcome.first, outcome.next, outcome.duplicate, *([told] if told else [])
        case CommitConfirmed():
            return "commit", tuple(outcome.outcome), outcome.duplicate
        case TopicDone():
            return "topic", tuple(outcome.stream_ids), outcome.changed
        case StreamDone():
            return "stream", outcome.floor, outcome.stable, outcome.tail, outcome.closed
        case StageDone():
            return "stage", outcome.stage_id, outcome.count, outcome.duplicate
        case TxnDone():
            return "txn", outcome.producer_id, outcome.epoch
        case CursorDone():
            return "cursor", -1 if outcome.cursor is None else outcome.cursor.frontier
        case _:
            raise AssertionError(f"the ledger knows no {outcome}")


class LedgerStream:
    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id
        self.slots: list[bytes | None] = []
        """One per offset; None is a hole."""
        self.aborted: set[int] = set()
        """Holes that hold an aborted record: who reads uncommitted data is shown it, until it is deleted."""
        self.owner: dict[int, str] = {}
        """Offset -> the txn that has it open."""
        self.floor = 0
        self.closed = False
        self.ids: dict[bytes, tuple[int, bytes]] = {}
        self.sequences: dict[str, list[int]] = {}
        """Producer -> the offset that each of its sequences got."""
        self.confirmed: dict[str, set[int]] = {}
        self.frontiers: dict[str, int] = {}

    @property
    def stable(self) -> int:
        return min(self.owner, default=len(self.slots))

    def append(self, *values: bytes) -> int:
        self.slots += values
        return len(self.slots) - len(values)

    def stands(self) -> Seen:
        return "stream", self.floor, self.stable, len(self.slots), self.closed

    def step_over(self, offset: int) -> int:
        while offset < len(self.slots) and self.slots[offset] is None:
            offset += 1
        return offset

    def content(self) -> Seen:
        records = tuple(
            (offset, value)
            for offset, value in enumerate(self.slots[: self.stable])
            if offset >= self.floor and value is not None
        )
        return self.floor, self.stable, len(self.slots), self.closed, records


class LedgerTxn:
    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = 0
        self.state = "empty"
        self.started_ns = 0
        self.streams: dict[int, int] = {}
        """Stream id -> its next sequence, of the streams that were added to the open txn."""
        self.sequences: dict[tuple[int, int], int] = {}
        """(stream id, epoch) -> next sequence: sequences go on from one txn to the next."""


class Ledger:
    """The whole log."""

    def __init__(self) -> None:
        self.entry_number = 0
        self.next_id = 1
        self.next_producer_id = 1
        self.topics: dict[str, LedgerStream] = {}
        self.commits: dict[str, tuple[int, ...]] = {}
        self.txns: dict[str, LedgerTxn] = {}
        self.stages: dict[int, tuple[list[bytes], int, int]] = {}
        """Stage id -> values, ttl ms, when it expires in ns."""
        self.fence = 0
        self.published = -1
        self.last_outcome: tuple[int, ...] = ()

    def copied(self) -> "Ledger":
        return copy.deepcopy(self)

    def contents(self) -> dict[tuple[str, int], Seen]:
        return {(name, 0): stream.content() for name, stream in self.topics.items()}

    # --- topics ----------------------------------------------------------------------------------------------------

    def create(self, name: str) -> Seen:
        if name in self.topics:
            # Only who wants a closed one agrees with a closed one.
            return REFUSED if self.topics[name].closed else ("topic", (self.topics[name].stream_id,), False)
        stream = self.topics[name] = LedgerStream(self.next_id + 1)
        self.next_id += 2
        self.entry_number += 1
        return "topic", (stream.stream_id,), True

    def delete(self, name: str) -> Seen:
        stream = self.topics.pop(name, None)
        if stream is None:
            return REFUSED
        self.entry_number += 1
        return "topic", (stream.stream_id,), True

    def close(self, name: str) -> Seen:
        stream = self.topics.get(name)
        if stream is None:
            return REFUSED
        self.entry_number += not stream.closed
        stream.closed = True
        return stream.stands()

    def trim(self, name: str, floor: int) -> Seen:
        stream = self.topics.get(name)
        if stream is None or floor > stream.stable:
            return REFUSED
        if floor > stream.floor:
            stream.floor = min(stream.step_over(floor), stream.stable)
            self.entry_number += 1
        return stream.stands()

    def delete_record(self, name: str, offset: int) -> Seen:
        stream = self.topics.get(name)
        if stream is None or not stream.floor <= offset < stream.stable:
            return REFUSED
        if stream.slots[offset] is not None or offset in stream.aborted:
            stream.slots[offset] = None
            stream.aborted.discard(offset)
            self.entry_number += 1
        return stream.stands()

    # --- appends ---------------------------------------------------------------------------------------------------

    def append(self, name: str, *values: bytes) -> Seen:
        stream = self.topics.get(name)
        if stream is None or stream.closed:
            return REFUSED
        first = stream.append(*values)
        self.entry_number += 1
        return "confirmed", first, first + len(values), False

    def append_by_id(self, name: str, id_: bytes, value: bytes) -> Seen:
        stream = self.topics.get(name)
        if stream is None:
            return REFUSED
        known = stream.ids.get(id_)
        if known is not None:
            if known[1] != value:
                return REFUSED
            # A removed record's id is used again: its memory starts anew, and that is an entry.
            gone = known[0] < stream.floor or stream.slots[known[0]] is None
            self.entry_number += gone
            return "confirmed", known[0], known[0] + 1, True
        answer = self.append(name, value)
        if answer is not REFUSED:
            stream.ids[id_] = (answer[1], value)
        return answer

    def append_by_sequence(self, name: str, producer: str, sequence: int, value: bytes) -> Seen:
        stream = self.topics.get(name)
        if stream is None:
            return REFUSED
        offsets = stream.sequences.get(producer, [])
        if sequence < len(offsets):
            remembered = sequence >= len(offsets) - 5
            return "confirmed", *((offsets[sequence], offsets[sequence] + 1) if remembered else (-1, -1)), True
        if sequence > len(offsets) or stream.closed:
            return REFUSED
        answer = self.append(name, value)
        stream.sequences.setdefault(producer, []).append(answer[1])
        return answer

    def commit(self, commit_id: str, names: list[str], value: bytes, expected_tail: int | None) -> Seen:
        """The same value to each of `names`; the tail of the first is expected to be so."""
        if commit_id in self.commits:
            return "commit", self.commits[commit_id], True
        streams = [self.topics.get(name) for name in names]
        if any(stream is None or stream.closed for stream in streams):
            return REFUSED
        if expected_tail is not None and expected_tail != len(self.topics[names[0]].slots):
            return REFUSED
        outcome: list[int] = []
        for stream in streams:
            assert stream is not None
            first = stream.append(value)
            outcome += (stream.stream_id, first, first + 1)
        self.commits[commit_id] = tuple(outcome)
        self.entry_number += 1
        return "commit", tuple(outcome), False

    # --- stages ----------------------------------------------------------------------------------------------------

    def open_application(self) -> None:
        self.fence += 1
        self.entry_number += 1

    def open_stage(self, fence: int, ttl_ms: int, now_ns: int) -> Seen:
        if fence != self.fence or not fence:
            return REFUSED
        stage_id = self.next_id
        self.next_id += 1
        self.stages[stage_id] = ([], ttl_ms, now_ns + ttl_ms * 1_000_000)
        self.entry_number += 1
        return "stage", stage_id, 0, False

    def live_stages(self, now_ns: int) -> list[int]:
        return [stage_id for stage_id, (_, _, expires_ns) in self.stages.items() if now_ns < expires_ns]

    def append_stage(self, stage_id: int, value: bytes, now_ns: int) -> Seen:
        """At its end. The caller knows that it is alive and belongs to the current driver."""
        values, ttl_ms, _ = self.stages[stage_id]
        self.stages[stage_id] = ([*values, value], ttl_ms, now_ns + ttl_ms * 1_000_000)
        self.entry_number += 1
        return "stage", stage_id, len(values) + 1, False

    def publish(self, stage_id: int, name: str, batch: int, count: int, now_ns: int) -> Seen:
        if batch <= self.published:
            return "commit", self.last_outcome if batch == self.published else (), True
        stream = self.topics.get(name)
        # The first batch of a query may have any number.
        if self.published >= 0 and batch != self.published + 1:
            return REFUSED
        if stream is None or stream.closed:
            return REFUSED
        if stage_id not in self.live_stages(now_ns) or len(self.stages[stage_id][0]) != count:
            return REFUSED
        values = self.stages.pop(stage_id)[0]
        self.last_outcome = ()
        if values:
            first = stream.append(*values)
            self.last_outcome = (stream.stream_id, first, first + len(values))
        self.published = batch
        self.entry_number += 1
        return "commit", self.last_outcome, False

    def expire_stages(self, now_ns: int) -> None:
        due = [stage_id for stage_id, (_, _, expires_ns) in self.stages.items() if now_ns >= expires_ns]
        for stage_id in due:
            del self.stages[stage_id]
        self.entry_number += bool(due)

    # --- cursors ---------------------------------------------------------------------------------------------------

    def confirm(self, cursor: str, name: str, first: int, next_: int) -> Seen:
        stream = self.topics.get(name)
        if stream is None or next_ > stream.stable:
            return REFUSED
        confirmed = stream.confirmed.setdefault(cursor, set())
        old_frontier, had = stream.frontiers.get(cursor), set(confirmed)
        confirmed.update(range(first, next_))
        frontier = stream.step_over(max(old_frontier or 0, stream.floor))
        while frontier in confirmed:
            frontier = stream.step_over(frontier + 1)
        stream.frontiers[cursor] = frontier
        above = {offset for offset in confirmed if offset >= frontier}
        self.entry_number += old_frontier != frontier or {offset for offset in had if offset >= frontier} != above
        stream.confirmed[cursor] = above
        return "cursor", frontier

    # --- txns ------------------------------------------------------------------------------------------------------

    def init_txn(self, txn_id: str) -> Seen:
        txn = self.txns.get(txn_id)
        self.entry_number += 1
        if txn is None:
            txn = self.txns[txn_id] = LedgerTxn(self.next_producer_id)
            self.next_producer_id += 1
        elif txn.state == "ongoing":
            # Whoever takes the id over aborts what was open, and has to ask again.
            self._end(txn, txn_id, commit=False)
            txn.epoch += 1
            return REFUSED
        else:
            txn.epoch += 1
            txn.state = "empty"
        return "txn", txn.producer_id, txn.epoch

    def add_to_txn(self, txn_id: str, epoch: int, names: list[str], now_ns: int) -> Seen:
        txn = self.txns[txn_id]
        if any(name not in self.topics for name in names) or epoch != txn.epoch:
            return REFUSED
        stream_ids = [self.topics[name].stream_id for name in names]
        if txn.state != "ongoing":
            txn.state, txn.started_ns, txn.streams = "ongoing", now_ns, {}
        elif all(stream_id in txn.streams for stream_id in stream_ids):
            return "txn", txn.producer_id, txn.epoch
        for stream_id in stream_ids:
            txn.streams.setdefault(stream_id, 0)
        self.entry_number += 1
        return "txn", txn.producer_id, txn.epoch

    def next_sequence(self, txn_id: str, name: str, epoch: int) -> int:
        """What a well-behaved client would send next."""
        stream = self.topics.get(name)
        return 0 if stream is None else self.txns[txn_id].sequences.get((stream.stream_id, epoch), 0)

    def write_in_txn(self, txn_id: str, epoch: int, name: str, value: bytes) -> Seen:
        stream, txn = self.topics.get(name), self.txns[txn_id]
        if stream is None or stream.closed or epoch != txn.epoch:
            return REFUSED
        if txn.state != "ongoing" or stream.stream_id not in txn.streams:
            return REFUSED
        first = stream.append(value)
        stream.owner[first] = txn_id
        key = (stream.stream_id, epoch)
        txn.sequences[key] = txn.sequences.get(key, 0) + 1
        self.entry_number += 1
        return "confirmed", first, first + 1, False

    def end_txn(self, txn_id: str, epoch: int, *, commit: bool) -> Seen:
        txn = self.txns[txn_id]
        wanted = "committed" if commit else "aborted"
        if epoch != txn.epoch or txn.state not in ("ongoing", wanted):
            return REFUSED
        if txn.state == "ongoing":
            self._end(txn, txn_id, commit=commit)
            self.entry_number += 1
        return "txn", txn.producer_id, txn.epoch

    def expire_txns(self, now_ns: int, timeout_ms: int) -> list[str]:
        return sorted(
            txn_id
            for txn_id, txn in self.txns.items()
            if txn.state == "ongoing" and now_ns - txn.started_ns >= timeout_ms * 1_000_000
        )

    def expire_txn(self, txn_id: str) -> None:
        txn = self.txns[txn_id]
        self._end(txn, txn_id, commit=False)
        txn.epoch += 1
        self.entry_number += 1

    def _end(self, txn: LedgerTxn, txn_id: str, *, commit: bool) -> None:
        for stream in self.topics.values():
            mine = [offset for offset, owner in stream.owner.items() if owner == txn_id]
            for offset in mine:
                del stream.owner[offset]
                if not commit:
                    stream.slots[offset] = None
                    stream.aborted.add(offset)
            if mine:
                stream.slots.append(None)  # the marker
        txn.state = "committed" if commit else "aborted"
