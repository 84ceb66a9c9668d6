"""Memory that is newer than the index, in generations: sealed, handed to the index builder, dropped in slices.

A generation is what changed since the one before it was sealed: the keys of touched rows, and the ids. Its boundary is
the newest group at that moment; when that group is durable the builder is asked for a checkpoint up to it, and when
the builder has committed it, rows of the generation that nobody touched again are clean: the index has them. Clean
rows stay as a cache, within one budget of bytes for all tables and up to ROWS_CACHED_MAX each.

Invariant: a row that the index does not have yet is in memory, named by the generation being built or the current one.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from oncelog import limits
from oncelog.core.row_size import rows_allowed
from oncelog.core.rows import Key, Table
from oncelog.engine.commit_loop import CommitLoop
from oncelog.storage.index.interface import Index
from oncelog.storage.index.places import Places
from oncelog.storage.journal import Journal


class Generations:
    """At most one generation is being built; changes since then are in the state itself."""

    def __init__(
        self,
        commits: CommitLoop,
        journal: Journal,
        index: Index,
        places: Places,
        request: Callable[[int], None],
        indexed_group: int,
        checkpoint_bytes: int,
        cache_bytes: int = limits.ROWS_CACHED_BYTES,
    ) -> None:
        """`request` asks whoever builds the index for everything up to a durable group; `built` is the answer."""
        self._commits = commits
        self._journal = journal
        self._index = index
        self._places = places
        self._request = request
        self._checkpoint_bytes = checkpoint_bytes
        self._cache_bytes = cache_bytes
        self._allowed: list[int] | None = None
        """Rows of each table that fit the budget, as last estimated; None if all did."""
        self.indexed_group = indexed_group
        """Everything up to this group is in the index, as far as we were told."""
        self._boundary: int | None = None
        self._requested = False
        self._sealed: list[set[Key]] = []
        self._cleaning: Iterator[None] | None = None

    @property
    def building(self) -> bool:
        """A generation is sealed and not yet in the index."""
        return self._boundary is not None

    @property
    def cleaning(self) -> bool:
        """There is memory to free: call `clean` now and then."""
        return self._cleaning is not None

    @property
    def lag_bytes(self) -> int:
        """Journal bytes that the index has not seen."""
        return self._journal.bytes_between(max(self.indexed_group, 0), self._journal.durable_group)

    def group_durable(self) -> None:
        """Called after each group: seal when there is enough, ask the builder when the boundary is durable."""
        if self._boundary is None:
            if self._cleaning is None and self.lag_bytes >= self._checkpoint_bytes:
                self.seal()
        elif self.lag_bytes > limits.INDEX_LAG_BYTES_MAX:
            self._commits.held = True
        if self._boundary is not None and not self._requested and self._boundary <= self._journal.durable_group:
            self._requested = True
            self._request(self._boundary)

    def seal(self) -> None:
        """Begin a new generation. Entries that join the boundary group later belong to the next one as well: they are
        then found clean one generation late, which is harmless."""
        assert self._boundary is None
        assert self._cleaning is None
        state = self._commits.state
        self._boundary = self._commits.last_group
        self._requested = False
        self._sealed = state.touched
        state.touched = [set() for _ in Table]
        assert not state.ids_sealing
        state.ids_sealing, state.ids = state.ids, {}

    def built(self, group: int) -> None:
        """The index has everything up to `group`: all that was asked for, or a first part of it."""
        if self._boundary is None or group < self._boundary:
            return
        self._index.refresh()
        self.indexed_group = group
        self._boundary = None
        self._commits.held = False
        state = self._commits.state
        ids, state.ids_sealing = state.ids_sealing, {}
        self._cleaning = self._clean(ids, self._sealed, group)
        self._sealed = []

    def clean(self) -> bool:
        """Free one slice; False when nothing is left to free."""
        if self._cleaning is None:
            return False
        if next(self._cleaning, _DONE) is _DONE:
            self._cleaning = None
            return False
        return True

    def _clean(self, ids: dict[bytes, bytes], sealed: list[set[Key]], group: int) -> Iterator[None]:
        """Slices of work, each short: a dict freed at once would stall the loop."""
        while ids:
            for _ in range(min(limits.FREE_SLICE, len(ids))):
                ids.popitem()
            yield
        yield from self._places.drop_through(group, limits.FREE_SLICE // 4)
        state = self._commits.state
        view = self._commits.view
        views: tuple[tuple[Table, dict[Any, Any]], ...] = (
            (Table.STREAM, view.streams),
            (Table.TOPIC, view.topics),
            (Table.HOLES, view.holes),
        )
        for table, rows in views:
            keys = sealed[table]
            for number, key in enumerate(keys):
                if key not in state.touched[table]:
                    rows.pop(key, None)
                if number % limits.FREE_SLICE == 0:
                    yield
        yield from self._evict_all()

    def evict(self) -> None:
        """Begin to free rows that were only looked at, if there are too many: queries write no generation."""
        tables = self._commits.state.tables
        self._allowed = rows_allowed(tables, self._cache_bytes)
        if self._cleaning is None and any(len(tables[table]) > self._rows_max(table) for table in Table):
            self._cleaning = self._evict_all()

    def _rows_max(self, table: Table) -> int:
        return limits.ROWS_CACHED_MAX if self._allowed is None else min(limits.ROWS_CACHED_MAX, self._allowed[table])

    def _evict_all(self) -> Iterator[None]:
        for table in Table:
            yield from self._evict(table)

    def _evict(self, table: Table) -> Iterator[None]:
        """Forget the oldest clean rows of a table beyond what is cached."""
        state = self._commits.state
        rows = state.tables[table]
        kept = 0
        most = self._rows_max(table)
        while len(rows) > most and kept < len(rows):
            # Oldest first: a dict keeps the order in which rows came in.
            for key in list(islice(rows, kept, kept + min(limits.FREE_SLICE, len(rows) - most))):
                if key in state.touched[table] or (self._sealed and key in self._sealed[table]):
                    kept += 1
                else:
                    del rows[key]
            yield


_DONE = object()
