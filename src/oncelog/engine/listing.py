"""Pages of topics, producers and cursors: rows newer than the index over the index's, in the order of their names.

Topics come from the read view, so they are durable. Producers and cursors come from the writer's own rows; whoever
lists them sends the page through the gate, like every other answer.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from oncelog.core.flat import Producer
from oncelog.core.rows import Cursor, Key, Table, Topic
from oncelog.core.state import Row, State
from oncelog.engine.read_view import ReadView
from oncelog.storage.index.interface import Index

R = TypeVar("R")


class Page(NamedTuple, Generic[R]):
    """Some rows by name; `next` is where the page after begins, None if there is none."""

    rows: list[tuple[Any, R]]
    next: Any


class ListedCursor(NamedTuple):
    """A cursor and where it stands."""

    name: str
    topic: str
    partition: int
    cursor: Cursor


def _merged(found: list[tuple[Key, Row]], newer: Iterable[tuple[Key, Row | None]], limit: int) -> Page[Any]:
    """`found` are the first `limit` + 1 rows of the index, or fewer if there are no more."""
    horizon = found[-1][0] if len(found) > limit else None
    rows: dict[Any, Any] = dict(found)
    for key, row in newer:
        if horizon is not None and key > horizon:  # type: ignore[operator]
            continue
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row
    keys = sorted(rows)
    page = [(key, rows[key]) for key in keys[:limit]]
    more = horizon is not None or len(keys) > limit
    if not page:
        # Every row of this stretch was removed since it was indexed: the stretch behind it may not be empty.
        return Page([], horizon)
    return Page(page, page[-1][0] if more else None)


def list_topics(view: ReadView, index: Index, prefix: str, after: str, limit: int) -> Page[Topic]:
    """Topics behind `after` whose names begin with `prefix`."""
    found = index.scan(Table.TOPIC, after or None, limit + 1, prefix)
    newer = ((name, row) for name, row in view.topics.items() if name > after and name.startswith(prefix))
    return _merged(found, newer, limit)


def list_producers(state: State, index: Index, stream_id: int, prefix: str, after: str, limit: int) -> Page[Producer]:
    """Producers of a stream behind `after`. Keys are (stream, scoped name)."""
    wanted = _in_stream(stream_id, prefix)
    first = (stream_id, prefix)
    found: list[tuple[Key, Row]] = []
    if prefix and prefix > after and (row := index.get(Table.PRODUCER, first)) is not None:
        found.append((first, row))
    behind = index.scan(Table.PRODUCER, (stream_id, max(after, prefix)), limit + 1 - len(found))
    found += [(key, row) for key, row in behind if wanted(key)]
    newer = [(key, row) for key, row in state.producers.items() if key[1] > after and wanted(key)]
    return _merged(found, newer, limit)


def _in_stream(stream_id: int, prefix: str) -> Callable[[Any], bool]:
    return lambda key: key[0] == stream_id and key[1].startswith(prefix)


def list_cursors(state: State, index: Index, prefix: str, after: tuple[str, int] | None, limit: int) -> Page[Cursor]:
    """Cursors behind `after`. Keys are (name, stream)."""
    found = index.scan(Table.CURSOR, after, limit + 1, prefix)
    newer = [
        (key, row) for key, row in state.cursors.items() if (after is None or key > after) and key[0].startswith(prefix)
    ]
    return _merged(found, newer, limit)
