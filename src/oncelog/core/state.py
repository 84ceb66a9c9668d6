"""The state that commands are decided against: the rows loaded so far, and what changed since it was last asked.

A cache with a strict contract. A key that was loaded is in its table, as a row or as None (known to be absent); a key
that is not in its table was never loaded, and touching it is a KeyError (`core.needs` lists what to load).
Message ids are the exception, since nearly all of them are fresh: what is not found is absent, once the caller has
loaded what `core.needs.ids` asked for, or `core.run.hashes_of` for appends that come together.

Only `core.apply` changes rows. `decide` may read everything here and change nothing.
"""

from typing import Final

import msgspec

from oncelog.core.flat import Producer, Stream
from oncelog.core.rows import (
    Application,
    Cursor,
    Holder,
    HoleChunk,
    Key,
    Named,
    Pending,
    Remembered,
    Stage,
    Subject,
    Table,
    Topic,
)
from oncelog.core.txn import Txn

Row = (
    Topic
    | Stream
    | Producer
    | Cursor
    | Txn
    | Stage
    | Application
    | Remembered
    | HoleChunk
    | Pending
    | Holder
    | Named
    | Subject
)

NO_STREAM: Final = 0
"""Stream ids start at 1; producers of commits are kept under 0."""


class State:
    """Rows by table, remembered ids, counters, and the record of what was touched."""

    __slots__ = (
        "applications",
        "changed_holes",
        "changed_streams",
        "changed_topics",
        "cursors",
        "entry_number",
        "holders",
        "holes",
        "ids",
        "ids_loaded",
        "ids_sealing",
        "nats_names",
        "next_id",
        "next_producer_id",
        "pending",
        "producers",
        "remembered",
        "stages",
        "streams",
        "subjects",
        "tables",
        "time_ns",
        "topics",
        "touched",
        "txns",
    )

    def __init__(self) -> None:
        self.entry_number = 0
        """How many entries were applied, so the number of the last one counted from 1."""
        self.time_ns = 0
        """Append time of the last entry; the next one is not earlier."""
        self.next_id = 1
        """For topics, streams and stages alike: an extent id is never used twice."""
        self.next_producer_id = 1
        self.topics: dict[str, Topic | None] = {}
        self.streams: dict[int, Stream | None] = {}
        self.producers: dict[tuple[int, str], Producer | None] = {}
        self.cursors: dict[tuple[str, int], Cursor | None] = {}
        self.txns: dict[str, Txn | None] = {}
        self.stages: dict[int, Stage | None] = {}
        self.applications: dict[str, Application | None] = {}
        self.remembered: dict[tuple[str, str], Remembered | None] = {}
        self.holes: dict[tuple[int, int], HoleChunk | None] = {}
        self.pending: dict[tuple[str, int], Pending | None] = {}
        self.holders: dict[int, Holder | None] = {}
        self.nats_names: dict[str, Named | None] = {}
        self.subjects: dict[tuple[int, str], Subject | None] = {}
        self.tables: tuple[dict[Key, Row | None], ...] = (  # type: ignore[assignment]
            self.topics,
            self.streams,
            self.producers,
            self.cursors,
            self.txns,
            self.stages,
            self.applications,
            self.remembered,
            self.holes,
            self.pending,
            self.holders,
            self.nats_names,
            self.subjects,
        )
        self.ids: dict[bytes, bytes] = {}
        """Hash -> packed value of every id since the generation began."""
        self.ids_sealing: dict[bytes, bytes] = {}
        """The generation before, until the index has it."""
        self.ids_loaded: dict[bytes, bytes] = {}
        """What the index knew of the ids of the command at hand, or of the appends of a turn."""
        self.touched: list[set[Key]] = [set() for _ in Table]
        """Per table, the keys changed since the generation began."""
        self.changed_streams: set[int] = set()
        self.changed_topics: set[str] = set()
        self.changed_holes: dict[tuple[int, int], list[int]] = {}
        """Per chunk what was added, in order: flat (first, next, cause, producer id)."""
        """What readers will see differently once this group is durable."""

    def find_id(self, id_hash: bytes) -> bytes | None:
        """The packed value of an id, newest first."""
        value = self.ids.get(id_hash)
        if value is None and (value := self.ids_sealing.get(id_hash)) is None:
            value = self.ids_loaded.get(id_hash)
        return value

    def stream(self, topic: str, partition: int) -> Stream | None:
        """The stream of a name, None if there is none. Topic and stream must have been loaded."""
        row = self.topics[topic]
        if row is None or not 0 <= partition < len(row.stream_ids):
            return None
        return self.streams[row.stream_ids[partition]]


def copied_txn(txn: Txn) -> Txn:
    """A row that shares nothing changeable with `txn`. Entries and answers hold txns whole while `apply` goes on to
    change the row in place with every write: neither may see that."""
    return msgspec.structs.replace(
        txn,
        streams={stream_id: ranges.copy() for stream_id, ranges in txn.streams.items()},
        groups=txn.groups.copy(),
        pending=txn.pending.copy(),
    )
