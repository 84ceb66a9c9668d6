"""The builder: replays durable groups and commits what they changed, with the position, in one step.

Idempotent by that one step: after a crash at any moment the index stands at some position it committed, and the next
builder goes on from there, to the same bytes.

Memory is bounded: however far behind the index is, a commit is due after `INDEX_COMMIT_JOURNAL_BYTES` of journal, and
rows are kept between commits only up to `INDEX_ROWS_CACHED_MAX`.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from oncelog.core.row_codec import encode_row
from oncelog.core.row_size import rows_allowed
from oncelog.core.rows import Table
from oncelog.core.state import State
from oncelog.errors import DiskFull, StorageError
from oncelog.limits import (
    INDEX_COMMIT_ENTRIES,
    INDEX_COMMIT_IDS,
    INDEX_COMMIT_JOURNAL_BYTES,
    INDEX_ROWS_CACHED_BYTES,
    INDEX_ROWS_CACHED_MAX,
)
from oncelog.storage.index.interface import (
    NOTHING_INDEXED,
    Changes,
    Done,
    Full,
    Index,
    IndexWriter,
    Position,
    Reply,
    index_key,
)
from oncelog.storage.index.places import Places, split_rows
from oncelog.storage.replay import Check, replay_group, state_at

FIRST_GROUP = 1
"""The first group of a journal that was never trimmed: only there the first entry must be number 1."""

Progress = Callable[[Done], None]


class Reader(Protocol):
    """What the builder needs of a `JournalReader`."""

    def groups(self, after: int | None, until: int) -> Iterator[tuple[int, bytes]]: ...


class PendingPlaces(Places):
    """The places of one commit. Unlike the server's, they also say which rows the index may drop."""

    __slots__ = ("cuts",)

    def __init__(self) -> None:
        super().__init__()
        self.cuts: dict[int, int] = {}

    def _cut(self, extent: int, floor: int) -> None:
        self.cuts[extent] = floor

    def appended(self) -> dict[int, bytearray]:
        """Rows to put behind those the index has."""
        return self._extents

    def moved(self) -> dict[int, list[bytes]]:
        """Rows to put in the place of others."""
        return {extent: split_rows(rows) for extent, rows in self._moved.items()}


class Builder:
    """One builder per index. `reader` may be any part of a journal that begins at or before the index's position.
    `is_pressed` is told the group that the index has come to, and says whether it is too far behind."""

    def __init__(
        self,
        reader: Reader,
        index: Index,
        writer: IndexWriter,
        *,
        check: Check | None = None,
        is_pressed: Callable[[int], bool] = lambda _group: False,
    ) -> None:
        self._is_pressed = is_pressed
        self._reader = reader
        self._index = index
        self._writer = writer
        self._check = check
        self.reset()

    def reset(self) -> None:
        """Forget everything that is not committed: the next `advance` replays it again."""
        self.state: State = state_at(self._index)
        self.position: Position = self._index.refresh()
        """What the index holds."""
        self.group = self.position.group
        """The last group replayed."""
        self._trimmed = self.group > FIRST_GROUP
        """The journal does not begin with its first group."""
        self._places = PendingPlaces()
        self._entries = 0
        self._bytes = 0

    @property
    def places(self) -> Places:
        """Places that are not committed yet."""
        return self._places

    def advance(self, until_group: int, progress: Progress | None = None) -> None:
        """Replay and commit everything up to `until_group`. On any error: `reset`, and it may be asked again."""
        if until_group <= self.position.group:
            # Whoever asks waits for an answer, also for what an earlier commit brought already.
            if progress is not None:
                progress(Done(self.position.group, self.position.entry_number, 0))
            return
        after = None if self.group == NOTHING_INDEXED else self.group
        for group, payload in self._reader.groups(after, until_group):
            self.replay(group, payload)
            if self.is_commit_due():
                self.commit(progress)
        if self.group > self.position.group:
            self.commit(progress)

    def replay(self, group: int, payload: bytes) -> None:
        """Fold one group into what the next commit will hold."""
        if self.group == NOTHING_INDEXED:
            self._trimmed = group > FIRST_GROUP
        # Behind a trimmed front nothing says which entry comes first.
        front = self._trimmed and self.state.entry_number == 0
        self._entries += replay_group(
            self.state, self._index, self._places, group, payload, check=self._check, front=front
        )
        self._bytes += len(payload)
        self.group = group

    def is_commit_due(self) -> bool:
        """Enough was replayed: a commit now keeps memory bounded."""
        return (
            self._bytes >= INDEX_COMMIT_JOURNAL_BYTES
            or self._entries >= INDEX_COMMIT_ENTRIES
            or len(self.state.ids) >= INDEX_COMMIT_IDS
        )

    def commit(self, progress: Progress | None = None) -> None:
        """Hand over what was replayed since the last commit."""
        state = self.state
        position = Position(self.group, state.entry_number, state.time_ns, state.next_id, state.next_producer_id)
        places = self._places
        changes = Changes(
            self.position,
            position,
            _encoded_rows(state),
            places.appended(),
            places.moved(),
            places.cuts,
            state.ids,
        )
        self._writer.commit(changes)
        self.position = position
        if progress is not None:
            progress(Done(position.group, position.entry_number, self._bytes))
        self._places = PendingPlaces()
        self._entries = self._bytes = 0
        self._forget()
        self.maintain()

    def maintain(self) -> bool:
        """Work that changes nothing a reader can see, until it is done or the index is pressed for time: then the rest
        is left for after the next commit, a step at least each time. True if something is left."""
        while self._writer.maintain():
            if self._is_pressed(self.position.group):
                return True
        return False

    def _forget(self) -> None:
        """What was committed need not be remembered, but rows used now will be used again."""
        state = self.state
        state.ids = {}
        state.changed_streams.clear()
        state.changed_topics.clear()
        state.changed_holes.clear()
        for keys in state.touched:
            keys.clear()
        too_many = sum(map(len, state.tables)) > INDEX_ROWS_CACHED_MAX
        if too_many or rows_allowed(state.tables, INDEX_ROWS_CACHED_BYTES) is not None:
            for table in state.tables:
                table.clear()


def _encoded_rows(state: State) -> list[tuple[Table, bytes, bytes | None]]:
    """Every touched row as it stands now. In order of key: neighbours in the index are then written together."""
    rows: list[tuple[Table, bytes, bytes | None]] = []
    for table, keys in zip(Table, state.touched, strict=True):
        loaded = state.tables[table]
        for key in keys:
            data = index_key(table, key)
            if data is None:
                raise StorageError(f"a key of table {table.name} cannot be stored: {key!r:.100}")
            row = loaded[key]
            rows.append((table, data, None if row is None else encode_row(row)))
    rows.sort(key=lambda row: row[:2])
    return rows


class InlineBuilder:
    """Builds at once, in this process: for `--in-memory` and simulations. Implements `IndexBuilder`."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._replies: list[Reply] = []

    def request(self, group: int) -> None:
        try:
            self._builder.advance(group, self._replies.append)
        except DiskFull as full:
            self._builder.reset()
            self._replies.append(Full(str(full)))

    def catch_up(self, group: int) -> None:
        """Build and say nothing, for whoever waits anyway. Raises `DiskFull`."""
        self._builder.advance(group)

    def fileno(self) -> int:
        return -1

    def replies(self) -> list[Reply]:
        replies, self._replies = self._replies, []
        return replies

    def restart(self) -> None:
        raise AssertionError("it never dies")

    def stop(self) -> None:
        return None
