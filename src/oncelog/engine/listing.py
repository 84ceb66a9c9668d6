"""Pages of topics, producers, cursors and txns, by name: rows newer than the index over the index's.

Topics come from the read view, so they are durable. Producers and cursors come from the writer's own rows; whoever
lists them sends the page through the gate, like every other answer.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from oncelog.core.flat import Producer
from oncelog.core.rows import Cursor, Key, Subject, Table, Topic
from oncelog.core.state import Row, State
from oncelog.core.txn import Txn
from oncelog.engine.read_view import ReadView
from oncelog.errors import Corruption
from oncelog.storage.index.interface import Index

R = TypeVar("R")

CONSUMER_ROWS: Final = 1_000
"""Cursors looked at in one go for the names of their consumers."""

LAST_STREAM: Final = 2**64 - 1
"""Behind every stream of a consumer."""


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


def list_topics(
    view: ReadView, index: Index, prefix: str, after: str, limit: int, skipped: list[Corruption] | None = None
) -> Page[Topic]:
    """Topics behind `after` whose names begin with `prefix`. If `skipped` is given, it gets what is damaged."""
    found = index.scan(Table.TOPIC, after or None, limit + 1, prefix, skipped)
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


def list_consumer(state: State, index: Index, name: str, after_stream: int, limit: int) -> Page[Cursor]:
    """The cursors of one consumer, behind a stream (-1: from the first one). Keys are (name, stream)."""
    after = (name, after_stream) if after_stream >= 0 else None
    behind = index.scan(Table.CURSOR, after, limit + 1, name)
    found = [(key, row) for key, row in behind if _name_of(key) == name]
    newer = [(key, row) for key, row in state.cursors.items() if key[0] == name and key[1] > after_stream]
    return _merged(found, newer, limit)


def list_consumer_names(state: State, index: Index, prefix: str, after: str, limit: int) -> Page[None]:
    """Names of consumers behind `after`, each once."""
    names: list[str] = []
    place: tuple[str, int] | None = (after, LAST_STREAM) if after else None
    while len(names) <= limit:
        page = list_cursors(state, index, prefix, place, CONSUMER_ROWS)
        names += [name for name in dict.fromkeys(_name_of(key) for key, _ in page.rows) if name not in names[-1:]]
        place = page.next
        if place is None:
            break
    return Page([(name, None) for name in names[:limit]], names[limit - 1] if len(names) > limit else None)


def _name_of(key: Any) -> str:
    """The consumer of a cursor's key."""
    name: str = key[0]
    return name


def list_txns(state: State, index: Index, prefix: str, after: str, limit: int) -> Page[Txn]:
    """Txns behind `after` whose ids begin with `prefix`."""
    found = index.scan(Table.TXN, after or None, limit + 1, prefix)
    newer = [(txn_id, row) for txn_id, row in state.txns.items() if txn_id > after and txn_id.startswith(prefix)]
    return _merged(found, newer, limit)


def list_subjects(state: State, index: Index, stream_id: int, prefix: str, after: str, limit: int) -> Page[Subject]:
    """Subjects of a stream behind `after`. Keys are (stream, subject)."""
    wanted = _in_stream(stream_id, prefix)
    first = (stream_id, prefix)
    found: list[tuple[Key, Row]] = []
    if prefix and prefix > after and (row := index.get(Table.SUBJECT, first)) is not None:
        found.append((first, row))
    behind = index.scan(Table.SUBJECT, (stream_id, max(after, prefix)), limit + 1 - len(found))
    found += [(key, row) for key, row in behind if wanted(key)]
    newer = [(key, row) for key, row in state.subjects.items() if key[1] > after and wanted(key)]
    return _merged(found, newer, limit)
