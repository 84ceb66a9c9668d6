"""How the engine stands, as numbers: for metrics, health and whoever watches the room on the disk."""

from typing import Literal, NamedTuple

from oncelog.storage.journal import JournalStats

Durability = Literal["fdatasync", "none"]
"""What a confirmed write has behind it."""


class Statistics(NamedTuple):
    """All of it at one moment. Taking it costs a few microseconds: not for the path of a request."""

    durability: Durability
    entry: int
    """The last entry that readers see."""
    groups: int
    """Written since the start: one fdatasync each."""
    write_count: int
    write_seconds: float
    """Of all of those writes together."""
    waiting_commands: int
    """They wait for room."""
    waiting_ms: int
    """How long the oldest of them has waited."""
    index_lag_bytes: int
    """Bytes of the journal that the index has not seen."""
    full: Literal["disk", "index"] | None
    """What has no room, so that the largest write would be refused."""
    journal: JournalStats
    replayed_entries: int
    """How many entries were newer than the index when the log was opened."""
    retention_held_back: int
    """Streams that keep more than their topic allows, since a pinned consumer needs it."""
    reads: int
    """Reads of records since the start."""
    waiting_readers: int
    """They wait for records."""
    bytes_read: int
    """Stored bytes that reads were planned to fetch."""
    clock_skew_ns: int
    """How far the log's time is ahead of the wall clock; below 0 if it is behind."""
    clock_steps: int
    """How often the log took over a wall clock that stayed ahead."""
    index_restarts: int
    """How often the index builder had to be started again."""
    missing_segments: list[str]
    """Files of the journal that were missing at the start: their records cannot be read."""
    cut_at: str
    """Where the start cut a torn group off the journal; empty if there was none."""
