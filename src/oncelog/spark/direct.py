"""`delivery=direct`: no stage; every row is appended under a message id, and what is there already is left alone.

Rows become visible while the job runs, in pieces, and stay if it fails: it is execution at least once with an effect
exactly once, by id. The ids come from a column, or are (query, batch, task, row). Those made here hold as long as a
batch that is run again deals the same rows to the same tasks in the same order, which our source does; if something
between does not, the same id meets other content and the server refuses loudly.

Rows go in commits of many appends. A commit with some known ids is refused whole, so it is halved until each part is
all new or all known.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import WriterCommitMessage

from oncelog.client import CommitAppend, CommitRecord, Conflict, TooLarge
from oncelog.spark.encoding import Queues, Rows, Target
from oncelog.spark.link import Link
from oncelog.spark.options import OptionError, WriteOptions
from oncelog.spark.staging import Topics

APPENDS_PER_COMMIT: Final = 2_000
"""Each costs the server a look-up of its id."""

COMMIT_BYTES: Final = 1 << 20
"""Values of one commit, before base64; entry and body have 4 MiB."""


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc, unused-ignore]
    """What a task tells the driver."""

    row_count: int


def write_rows(iterator: Iterator[Any], options: WriteOptions, prefix: str) -> Written:
    """Everything that the task was given, once, whoever wrote part of it before."""
    with Link(options.url, options.request_timeout_ms) as link:
        topics = Topics(link, options)
        queues = Queues(options.topic, options.partition, 0, topics.partitions_of, batch_bytes=COMMIT_BYTES)
        for batch in iterator:
            first = queues.row_count
            ids = [f"{prefix}:{row}" for row in range(first, first + batch.num_rows)]
            for target, rows in queues.add(batch, ids):
                _append(link, target, rows)
        for target, rows in queues.rest():
            _append(link, target, rows)
        return Written(queues.row_count)


def _append(link: Link, target: Target, rows: Rows) -> None:
    first_of: dict[str, int] = {}
    for row, message_id in enumerate(rows.ids):
        # A commit takes an id once; across commits the server sees to it.
        first = first_of.setdefault(message_id, row)
        if rows.values[first] != rows.values[row]:
            raise OptionError(f"two rows have the message_id {message_id!r} and different values")
    appends = [_append_of(target, rows, row) for row in first_of.values()]
    for first in range(0, len(appends), APPENDS_PER_COMMIT):
        _commit(link, appends[first : first + APPENDS_PER_COMMIT])


def _append_of(target: Target, rows: Rows, row: int) -> CommitAppend:
    value = rows.values[row]
    if value is None:
        raise OptionError("a row has no value: delivery=direct cannot write null, staged can")
    record = CommitRecord(
        value,
        rows.keys[row] if rows.keys else None,
        dict(rows.headers[row]) if rows.headers else {},
        rows.times_ms[row] if rows.times_ms else 0,
    )
    return CommitAppend(target.topic, [record], target.partition, rows.ids[row])


def _commit(link: Link, appends: Sequence[CommitAppend]) -> None:
    try:
        link.commit(appends)
    except (Conflict, TooLarge) as error:
        if len(appends) == 1 or error.code not in ("partly_duplicate", "too_large"):
            raise
        half = len(appends) // 2
        _commit(link, appends[:half])
        _commit(link, appends[half:])
