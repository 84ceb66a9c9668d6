"""Parquet files of a table, written where the rows are: in the executors, by pyarrow, a task's rows into its own files.

Every attempt of a task makes files with names of its own, so one that failed, or that ran twice, leaves files that
nothing refers to and never touches those of another. A file counts when the table's commit names it. It is synced
before it is told of, so that a commit never refers to bytes that a power cut takes back.
"""

import datetime
import json
import math
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from oncelog.limits import MIB

FILE_BYTES: Final = 128 * MIB
"""Rows of one file, as Arrow holds them. Large enough to scan well, small enough to be rewritten by a compaction."""

OPEN_FILES_MAX: Final = 64
"""Files that a task writes at once, one for each value of the columns that the table is partitioned by."""

STATISTIC_TEXT_MAX: Final = 32
"""Longer texts are left out of the statistics of a file: they cost more in every reader's log than they save."""

PARTITION_TYPES: Final = ("string", "boolean", "tinyint", "smallint", "int", "bigint", "date")
"""Columns whose values have one spelling, so that a folder can be named after them."""

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = re.compile(r"""[\x00-\x20"#%'*/:=?\\\x7f{\[\]^]""")

TOLD: Final = "path string, size bigint, rows bigint, stats string, partition_values string"
"""What a task hands to the driver for each file."""

_TOLD_ARROW: Final = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("stats", pa.string()),
        ("partition_values", pa.string()),
    ]
)


class DataFile(msgspec.Struct, frozen=True):
    """A file that a task has written."""

    path: str
    """Below the table's folder."""
    size: int
    rows: int
    stats: dict[str, Any]
    """As Delta has them: numRecords, minValues, maxValues, nullCount."""
    partition_values: dict[str, str | None]

    def filled(self, column: str) -> int:
        """Rows in which a column is not null; all of them where the file does not say."""
        return self.rows - int(self.stats["nullCount"].get(column, 0))


def write_rows(rows: Any, table: str, partition_by: Sequence[str]) -> list[DataFile]:
    """Has the executors write the rows of a DataFrame; the files, none if there are no rows."""
    columns = tuple(partition_by)
    names = list(rows.columns)

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        return _written((batch.rename_columns(names) for batch in batches), table, columns)

    # Spark takes a dot in a name for a way into a struct when it hands rows to Python, so they go by their place.
    numbered = rows.toDF(*(f"c{number}" for number in range(len(names))))
    told = numbered.mapInArrow(task, TOLD).collect()
    return [
        DataFile(row.path, row.size, row.rows, json.loads(row.stats), json.loads(row.partition_values)) for row in told
    ]


def local_path(table: str) -> Path | None:
    """The folder, if the table is in a file system of this machine."""
    parts = urlsplit(table)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(table) if "://" not in table else None


# --- in an executor --------------------------------------------------------------------------------------------


def _written(batches: Iterator[Any], table: str, partition_by: tuple[str, ...]) -> Iterator[Any]:
    writers: dict[tuple[str | None, ...], _File] = {}
    done: list[DataFile] = []
    try:
        for batch in batches:
            for values, part in _parts(batch, partition_by):
                if values not in writers and len(writers) == OPEN_FILES_MAX:
                    done.append(writers.pop(next(iter(writers))).close())
                writer = writers.get(values)
                if writer is None:
                    writer = writers[values] = _File(table, dict(zip(partition_by, values, strict=True)), part.schema)
                writer.write(part)
                if writer.held_bytes >= FILE_BYTES:
                    done.append(writers.pop(values).close())
        done += [writer.close() for writer in writers.values()]
        writers.clear()
    finally:
        for writer in writers.values():
            writer.abandon()
    if done:
        yield pa.RecordBatch.from_pylist(
            [
                {
                    "path": file.path,
                    "size": file.size,
                    "rows": file.rows,
                    "stats": json.dumps(file.stats),
                    "partition_values": json.dumps(file.partition_values),
                }
                for file in done
            ],
            schema=_TOLD_ARROW,
        )


def _parts(batch: Any, partition_by: tuple[str, ...]) -> Iterator[tuple[tuple[str | None, ...], Any]]:
    """The batch by the values of its partition columns, without those columns: the folder says them."""
    if batch.num_rows == 0:
        return
    if not partition_by:
        yield (), batch
        return
    table = pa.Table.from_batches([batch])
    rest = table.drop_columns(list(partition_by))
    for values in table.select(list(partition_by)).group_by(list(partition_by)).aggregate([]).to_pylist():
        mask = None
        for name in partition_by:
            column = table.column(name)
            value = values[name]
            same = pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, pa.scalar(value)), False)
            mask = same if mask is None else pc.and_(mask, same)
        yield tuple(_spelled(values[name]) for name in partition_by), rest.filter(mask)


def _spelled(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def folder_of(values: dict[str, str | None]) -> str:
    """As Hive names it, with a slash at the end; empty for a table that is not partitioned."""
    return "".join(f"{name}={NULL_FOLDER if value is None else _escaped(value)}/" for name, value in values.items())


def _escaped(value: str) -> str:
    """Hive's escapes are a byte each, and readers turn each into one character: other letters stay as they are."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", value)


class _File:
    """One Parquet file being written."""

    def __init__(self, table: str, values: dict[str, str | None], schema: Any) -> None:
        self.held_bytes = 0
        self._rows = 0
        self._values = values
        self._path = f"{folder_of(values)}part-{uuid.uuid4().hex}.parquet"
        self._local = local_path(table)
        self._metadata: list[Any] = []
        if self._local is not None:
            whole = self._local / self._path
            whole.parent.mkdir(parents=True, exist_ok=True)
            self._sink: Any = whole.open("xb")
        else:
            from pyarrow import fs

            system, folder = fs.FileSystem.from_uri(table)
            self._sink = system.open_output_stream(f"{folder}/{self._path}")
        self._writer = pq.ParquetWriter(
            self._sink, schema, compression="zstd", coerce_timestamps="us", metadata_collector=self._metadata
        )

    def write(self, rows: Any) -> None:
        if isinstance(rows, pa.RecordBatch):
            self._writer.write_batch(rows)
        else:
            self._writer.write_table(rows)
        self._rows += rows.num_rows
        self.held_bytes += rows.nbytes

    def close(self) -> DataFile:
        """The file is whole and on disk."""
        self._writer.close()
        size = self._sink.tell()
        if self._local is not None:
            self._sink.flush()
            os.fsync(self._sink.fileno())
        self._sink.close()
        if self._local is not None:
            sync_folders((self._local / self._path).parent, self._local)
        return DataFile(self._path, size, self._rows, _statistics(self._metadata[0], self._rows), self._values)

    def abandon(self) -> None:
        """The task failed: nothing refers to the file."""
        self._sink.close()


def sync_folder(folder: Path) -> None:
    """A name is on disk when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folders(folder: Path, top: Path) -> None:
    """The folder and those above it up to the table's own: each may be new, and stands in the one above."""
    while folder != top:
        sync_folder(folder)
        folder = folder.parent
    sync_folder(top)


def _statistics(metadata: Any, rows: int) -> dict[str, Any]:
    """From the footer: what the writer knows already. Only columns at the top; bounds that are exact or wider."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    uncounted: set[str] = set()
    unbounded: set[str] = set()
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            name = column.path_in_schema
            if "." in name:
                continue
            statistics = column.statistics
            if statistics is None or not statistics.has_null_count:
                uncounted.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + statistics.null_count
            if statistics.has_min_max and _bounded(statistics.min) and _bounded(statistics.max):
                low[name] = min(low[name], statistics.min) if name in low else statistics.min
                high[name] = max(high[name], statistics.max) if name in high else statistics.max
            elif statistics.null_count < column.num_values:  # which counts nulls as well
                unbounded.add(name)
    unbounded |= uncounted
    return {
        "numRecords": rows,
        "minValues": {name: _told(value, up=False) for name, value in low.items() if name not in unbounded},
        "maxValues": {name: _told(value, up=True) for name, value in high.items() if name not in unbounded},
        "nullCount": {name: count for name, count in nulls.items() if name not in uncounted},
    }


def _bounded(value: object) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, str):
        return len(value) <= STATISTIC_TEXT_MAX
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int | datetime.date)


def _told(value: Any, *, up: bool) -> Any:
    """Times have milliseconds there: a lower bound is cut, an upper one goes to the next."""
    if not isinstance(value, datetime.datetime):
        return value.isoformat() if isinstance(value, datetime.date) else value
    value = value.replace(tzinfo=value.tzinfo or datetime.UTC).astimezone(datetime.UTC)
    if up and value.microsecond % 1000:
        value += datetime.timedelta(milliseconds=1)
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
