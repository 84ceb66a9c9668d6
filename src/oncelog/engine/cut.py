"""A live cut: one entry number, and every stream's stable offset at that entry.

Readers of several topics plan from one cut, so that no commit is torn across topics by planning. What the view holds
is copied at once; the rest is in the index, which cannot have changed for a stream that is not in the view.
"""

from typing import NamedTuple

from oncelog.core.rows import Table, Topic
from oncelog.engine.read_view import ReadView, StreamView
from oncelog.storage.index.interface import Index

_TOPICS_PER_SCAN = 1_000


class CutStream(NamedTuple):
    """One stream of a cut."""

    topic: str
    partition: int
    stream: StreamView
    created_ns: int
    """When the topic was made: one that is deleted and made again has another time, and other records."""


class Cut(NamedTuple):
    """Consistent across all its streams: a commit is below all of them or below none."""

    entry_number: int
    time_ns: int
    streams: list[CutStream]


def take_cut(view: ReadView, index: Index, topics: list[str] | None, time_ns: int) -> Cut:
    """The cut at this moment, of the named topics or of all. Must not be interrupted by a reveal."""
    rows = _all_topics(view, index) if topics is None else [view.topic(name) for name in topics]
    streams: list[CutStream] = []
    for topic in rows:
        if topic is None:
            continue
        for partition, stream_id in enumerate(topic.stream_ids):
            stream = view.stream(stream_id)
            if stream is not None:
                streams.append(CutStream(topic.name, partition, stream, topic.created_ns))
    return Cut(view.entry_number, time_ns, streams)


def _all_topics(view: ReadView, index: Index) -> list[Topic]:
    """Every topic, in the order of names: newer rows over the index's."""
    found: dict[str, Topic] = {}
    after = None
    while rows := index.scan(Table.TOPIC, after, _TOPICS_PER_SCAN):
        for _, row in rows:
            assert isinstance(row, Topic)
            found[row.name] = row
        after = rows[-1][0]
    for name, topic in view.topics.items():
        if topic is None:
            found.pop(name, None)
        else:
            found[name] = topic
    return [found[name] for name in sorted(found)]
