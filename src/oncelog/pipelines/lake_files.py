"""Parquet files of a table, written where the rows are: in the executors, by pyarrow, a task's rows into its own files.

Every attempt of a task makes files with names of its own, so one that failed, or that ran twice, leaves files that
nothing refers to and never touches those of another. A file counts when the table's commit names it. It is synced
before the driver hears of it, so that a commit never refers to bytes that a power cut takes back.
"""

import datetime
import json
import math
import re
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from oncelog.limits import MIB
from oncelog.pipelines.lake_place import TablePlace, wrong_files
from oncelog.pipelines.running import PipelineRefused

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


def write_rows(rows: Any, place: TablePlace, partition_by: Sequence[str]) -> list[DataFile]:
    """Has the executors write the rows of a DataFrame; the files, none if there are no rows.

    The driver looks at every file before it believes in it. PipelineRefused if it does not find one of them.
    """
    columns = tuple(partition_by)
    names = list(rows.columns)

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        return _written((batch.rename_columns(names) for batch in batches), place, columns)

    # Spark takes a dot in a name for a way into a struct when it hands rows to Python, so they go by their place.
    numbered = rows.toDF(*(f"c{number}" for number in range(len(names))))
    told = numbered.mapInArrow(task, TOLD).collect()
    files = [
        DataFile(row.path, row.size, row.rows, json.loads(row.stats), json.loads(row.partition_values)) for row in told
    ]
    _check_there(place, files)
    return files


def _check_there(place: TablePlace, files: Sequence[DataFile]) -> None:
    wrong = wrong_files(place, ((file.path, file.size, file.rows) for file in files))
    if wrong:
        raise PipelineRefused(
            f"the workers wrote {len(files):,} files to {place.address}, and the driver does not find "
            f"{len(wrong):,} of them as they were written, such as: {wrong[0]}. Nothing was committed. The workers "
            "need the same folder under the same path as the driver, or name an object store (s3://…)"
        )


def stored_rows(batches: Iterator[Any], place: TablePlace, schema: Any) -> Iterator[Any]:
    """Paths below the place become the rows of their files, with the columns of the whole table."""
    store = place.store()
    for batch in batches:
        for path in batch.column(0).to_pylist():
            values = _values_of(path)
            with pq.ParquetFile(store.open_input_file(path)) as file:
                for rows in file.iter_batches():
                    yield _whole(rows, schema, values)


def _values_of(path: str) -> dict[str, str | None]:
    """What the folders of a partitioned table say, as `folder_of` wrote it."""
    pairs = [folder.partition("=") for folder in path.split("/")[:-1] if "=" in folder]
    return {name: None if value == NULL_FOLDER else unquote(value) for name, _, value in pairs}


def _whole(rows: Any, schema: Any, values: dict[str, str | None]) -> Any:
    """The rows with every column of the table: those of the folder too, and nulls for columns that came later."""
    columns = []
    for field in schema:
        if field.name in rows.schema.names:
            columns.append(rows.column(field.name).cast(field.type))
        else:
            value = pa.scalar(values.get(field.name), pa.string()).cast(field.type)
            columns.append(pa.repeat(value, rows.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# --- in an executor --------------------------------------------------------------------------------------------


def _written(batches: Iterator[Any], place: TablePlace, partition_by: tuple[str, ...]) -> Iterator[Any]:
    writers: dict[tuple[str | None, ...], _File] = {}
    done: list[DataFile] = []
    try:
        for batch in batches:
            for values, part in _parts(batch, partition_by):
                if values not in writers and len(writers) == OPEN_FILES_MAX:
                    done.append(writers.pop(next(iter(writers))).close())
                writer = writers.get(values)
                if writer is None:
                    writer = writers[values] = _File(place, dict(zip(partition_by, values, strict=True)), part.schema)
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

    def __init__(self, place: TablePlace, values: dict[str, str | None], schema: Any) -> None:
        self.held_bytes = 0
        self._rows = 0
        self._values = values
        self._path = f"{folder_of(values)}part-{uuid.uuid4().hex}.parquet"
        self._metadata: list[Any] = []
        self._sink = place.new_file(self._path)
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
        self._sink.close()
        return DataFile(self._path, size, self._rows, _statistics(self._metadata[0], self._rows), self._values)

    def abandon(self) -> None:
        """The task failed: nothing refers to the file."""
        self._sink.abandon()


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
