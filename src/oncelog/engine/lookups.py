"""What can be looked up without a decision: names, listings, a cut.

Readers' rows come from the read view and are durable. The writer's own rows may be ahead of the disk, so what is told
from them goes through the gate, like every other answer.
"""

from collections.abc import Callable
from copy import copy
from typing import Any

from oncelog.core.cursor import as_told
from oncelog.core.flat import Producer, Stream
from oncelog.core.holes import ChunkMissing
from oncelog.core.memory import living
from oncelog.core.rows import Cursor, Stage, Subject, Table, Topic
from oncelog.core.state import copied_txn
from oncelog.core.txn import Txn
from oncelog.engine.commit_loop import CommitLoop
from oncelog.engine.cut import Cut, take_cut
from oncelog.engine.listing import (
    ListedCursor,
    Page,
    list_consumer,
    list_consumer_names,
    list_cursors,
    list_producers,
    list_subjects,
    list_topics,
    list_txns,
)
from oncelog.engine.read_view import StreamView
from oncelog.errors import Corruption
from oncelog.storage.index.interface import Index


class Lookups:
    """Of one engine, on its loop's thread."""

    def __init__(self, commits: CommitLoop, index: Index, clock: Callable[[], int]) -> None:
        self._commits = commits
        self._state = commits.state
        self._index = index
        self._clock = clock

    def topic(self, name: str) -> Topic | None:
        """The topic of a name, as readers see it."""
        return self._commits.view.topic(name)

    def stream(self, stream_id: int) -> StreamView | None:
        """Where a stream stands for readers; None if there is none, or it was deleted."""
        return self._commits.view.stream(stream_id)

    def topics(self, prefix: str, after: str, limit: int, skipped: list[Corruption] | None = None) -> Page[Topic]:
        """Topics as readers see them, by name. Raises Corruption at a damaged row, or puts it into `skipped`."""
        return list_topics(self._commits.view, self._index, prefix, after, limit, skipped)

    def producers(
        self, stream_id: int, prefix: str, after: str, limit: int, told: Callable[[Page[Producer]], None]
    ) -> None:
        """A stream's producers by scoped name, told once what is known of them is durable."""
        page = list_producers(self._state, self._index, stream_id, prefix, after, limit)
        stream, now_ns = self.stream_row(stream_id), self._clock()
        rows = [(key, copy(row)) for key, row in page.rows if living(self._state, stream, row, now_ns) is not None]
        copied = Page(rows, page.next)
        self._commits.gate(lambda: told(copied))

    def cursors(
        self, prefix: str, after: tuple[str, int] | None, limit: int, told: Callable[[list[ListedCursor], Any], None]
    ) -> None:
        """Cursors by name and stream, told once they are durable. Those of deleted topics are left out."""
        page = list_cursors(self._state, self._index, prefix, after, limit)
        listed = self._listed(page)
        self._commits.gate(lambda: told(listed, page.next))

    def consumer(
        self, name: str, after_stream: int, limit: int, on_page: Callable[[list[ListedCursor], Any], None]
    ) -> None:
        """The cursors of one consumer, by stream id (-1: from the first one), once they are durable. `next` is the key
        (name, stream id) to go on behind, or None."""
        page = list_consumer(self._state, self._index, name, after_stream, limit)
        listed = self._listed(page)
        self._commits.gate(lambda: on_page(listed, page.next))

    def consumer_names(self, prefix: str, after: str, limit: int, on_page: Callable[[Page[None]], None]) -> None:
        """Consumers by name, each once, when what is known of them is durable."""
        page = list_consumer_names(self._state, self._index, prefix, after, limit)
        self._commits.gate(lambda: on_page(page))

    def subjects(
        self, stream_id: int, prefix: str, after: str, limit: int, on_page: Callable[[Page[Subject]], None]
    ) -> None:
        """Subjects of a stream that indexes them, by name, when what is known of them is durable."""
        page = list_subjects(self._state, self._index, stream_id, prefix, after, limit)
        copied = Page([(key, copy(row)) for key, row in page.rows], page.next)
        self._commits.gate(lambda: on_page(copied))

    def txns(self, prefix: str, after: str, limit: int, on_page: Callable[[Page[Txn]], None]) -> None:
        """Txns by id, when what is known of them is durable."""
        page = list_txns(self._state, self._index, prefix, after, limit)
        copied = Page([(txn_id, copied_txn(txn)) for txn_id, txn in page.rows], page.next)
        self._commits.gate(lambda: on_page(copied))

    def _listed(self, page: Page[Cursor]) -> list[ListedCursor]:
        """Cursors as they are shown; those of deleted topics are left out."""
        listed = []
        for (name, stream_id), row in page.rows:
            stream = self.stream_row(stream_id)
            if stream is not None and not stream.deleted_ns:
                listed.append(ListedCursor(name, stream.topic, stream.partition, self._as_told(stream, row)))
        return listed

    def _as_told(self, stream: Stream, cursor: Cursor) -> Cursor:
        """The cursor as a query for it alone tells it; chunks of holes on its way are loaded as for a command."""
        while True:
            try:
                return as_told(self._state, stream, cursor)
            except ChunkMissing as missing:
                for key in missing.keys:
                    self._state.tables[Table.HOLES][key] = self._index.get(Table.HOLES, key)

    def cut(self, topics: list[str] | None = None) -> Cut:
        """One entry number, and every stream's stable offset there."""
        return take_cut(self._commits.view, self._index, topics, self._clock())

    def name_of(self, stream_id: int) -> tuple[str, int]:
        """Topic and partition of a stream that exists or existed: what an outcome names it by."""
        stream = self.stream_row(stream_id)
        return ("", 0) if stream is None else (stream.topic, stream.partition)

    def stream_row(self, stream_id: int) -> Stream | None:
        """The writer's own row."""
        row = self._state.streams.get(stream_id) or self._index.get(Table.STREAM, stream_id)
        assert row is None or isinstance(row, Stream)
        return row

    def stage_row(self, stage_id: int) -> Stage | None:
        """The writer's own row."""
        row = self._state.stages.get(stage_id) or self._index.get(Table.STAGE, stage_id)
        assert row is None or isinstance(row, Stage)
        return row
