"""`land`: a topic into a lake table, every record once, by what the table itself says it holds.

A batch of the query goes from offsets to offsets. For every partition the table knows the offset behind the last record
it holds. So for each batch there are three cases, with any checkpoint and after any writer:

    the batch begins where the table ends     its rows are written
    the batch begins earlier                  rows that the table holds are left out; there may be none left
    the batch begins later                    refused: records would be missing

1. Executors write files that nothing refers to. 2. The driver commits them with the new place, as one. A crash before 2
leaves files without a table, a crash after it a batch that is run again and finds itself in the table. Two landers at
once write against the same place, and one of the two commits is refused. The rules about places are in
`landing_place`.
"""

import contextlib
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType, _parse_datatype_string

from oncelog.pipelines.evolution import check_evolve, evolved
from oncelog.pipelines.json_values import (
    RECORD_COLUMNS,
    SAMPLE_RECORDS,
    UNPARSED,
    ddl_of,
    each_name_once,
    fields_in,
    inferred,
    parsed,
    schema_of,
)
from oncelog.pipelines.lake import Ends, Held, LakeTable, LostRace
from oncelog.pipelines.lake_files import PARTITION_TYPES, write_rows
from oncelog.pipelines.lake_place import PlaceUnknown, TablePlace, place_of
from oncelog.pipelines.landing_place import (
    Standing,
    begun,
    check_same_topic,
    given_start,
    looked_at,
    records_to_land,
    source_start,
    standing_of,
    start_of,
    told,
)
from oncelog.pipelines.running import (
    PipelineFailed,
    PipelineRefused,
    PipelineResult,
    Progress,
    Spark,
    Watch,
    check_trigger,
    reason_of,
    started,
    triggered,
)
from oncelog.spark.checkpoint import sources_at
from oncelog.spark.options import offsets_of

TableFormat = Literal["delta", "parquet"]

TABLE_LOGS: Final = {"delta": "_delta_log", "parquet": "_oncelog/commits"}
"""Where each form of a table keeps what counts: below its folder, under numbers, the first of which makes the table."""


@contextlib.contextmanager
def _failures_told() -> Iterator[None]:
    """What Spark, the lake or the disk raise while a table is made ready, as what `land` promises to raise."""
    try:
        yield
    except (PySparkException, Py4JError, DeltaError, pa.ArrowException, OSError) as error:
        raise PipelineFailed(reason_of(error)) from error


@_failures_told()
def land(
    spark: Spark,
    *,
    url: str,
    topic: str,
    table: str,
    format: TableFormat = "delta",  # noqa: A002  (as Spark calls it)
    schema: str | None = None,
    application: str | None = None,
    checkpoint: str | None = None,
    partition_by: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
    evolve: str = "",
    starting: str = "earliest",
    max_offsets_per_trigger: int | None = None,
    trigger: str = "available_now",
    progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> PipelineResult:
    """Runs until the topic is in the table, or with a time as `trigger` until it is stopped. `spark` is a session, or a
    function that starts one once topic and table are found to be there.

    `table` is a folder, or for Delta an address of an object store (`s3://…`) with its `storage_options` as delta-rs
    names them. A folder must be the same one for the driver and every worker: the driver looks at each file before it
    commits it. `schema` (DDL) is that of the JSON values;
    without one the table's is used, and for a new table it is inferred from the first records and kept in it. Rows have
    the fields and `_key`, `_topic`, `_partition`, `_offset`, `_timestamp`, `_unparsed` (see `json_values`).

    With `evolve="add"` columns that the schema has and the table lacks are added to the table, in a commit of its own;
    without a schema they are inferred from the first records that are to be landed.

    It goes on where the table ends; `starting` (earliest, latest, or offsets in JSON) counts only for a topic that the
    table has nothing of. A checkpoint is no truth here: without one each run has its own, in the table's folder.

    Raises PipelineRefused where the table would lose or double records, PipelineFailed for a query that failed.
    """
    application = application or f"land-{topic}"
    given_start(starting, topic)
    check_trigger(trigger)
    check_evolve(evolve)
    standing = standing_of(url, topic)
    lake = _lake(format, _place(table, storage_options))
    looked_at(lake, topic, standing, starting, checkpoint)
    if lake.is_there():
        check_files(lake)
    spark = started(spark)
    fields = _table_fields(spark, url, topic, lake, schema, partition_by, standing, starting, evolve)
    if fields is None:
        return PipelineResult("land", application)
    start = begun(lake, topic, standing, starting, {"oncelog.application": application})
    if trigger == "available_now" and all(start[part] == stable for part, (_, stable) in standing.bounds.items()):
        return PipelineResult("land", application)
    total = sum(stable - start[part] for part, (_, stable) in standing.bounds.items())
    watch = Watch("land", application, progress, url, total if trigger == "available_now" else -1)
    with _checkpointed(checkpoint, lake.place) as folder:
        start = source_start(folder, start, topic)
        job = _Landing(lake, topic, url, fields, folder, application, start, watch)
        options = {"url": url, "subscribe": topic, "startingOffsets": told(topic, start)}
        if max_offsets_per_trigger is not None:
            options["maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
        records = spark.readStream.format("oncelog").options(**options).load()
        writer = records.writeStream.foreachBatch(job.each).option("checkpointLocation", folder).queryName(application)
        try:
            query = triggered(writer, trigger).start()
        except PySparkException as error:
            said = str(error).split("JVM stacktrace", 1)[0]
            raise PipelineRefused(f"Spark does not take the query: {said}") from error
        return watch.follow(query, stop)


class _Landing:
    """What happens to each batch, at the driver."""

    def __init__(
        self,
        lake: LakeTable,
        topic: str,
        url: str,
        fields: Any,
        checkpoint: str,
        application: str,
        start: Ends,
        watch: Watch,
    ) -> None:
        self._lake = lake
        self._topic = topic
        self._url = url
        self._fields = fields
        self._checkpoint = checkpoint
        self._application = application
        self._start = start
        self._watch = watch
        self._partition_by = lake.partition_by()

    def each(self, records: Any, batch: int) -> None:
        """Called by Spark, possibly again for a batch that is in the table."""
        try:
            self._land(records, batch)
        except BaseException as error:
            self._watch.failure = error
            raise

    def _land(self, records: Any, batch: int) -> None:
        began_s = time.monotonic()
        start, end = self._range_of(batch)
        held = self._lake.held(self._topic, list(end))
        fresh = records_to_land(held.ends, start, end, self._topic)
        if fresh is None:
            self._watch.outputs[batch] = 0
            return
        if fresh != {partition: start.get(partition, 0) for partition in fresh}:
            records = records.where(_at_or_after(fresh))
        files = write_rows(parsed(records, self._fields), self._lake.place, self._partition_by)
        rows = sum(file.rows for file in files)
        self._watch.tell(batch, "written", rows, rows, time.monotonic() - began_s)
        # Asked after the rows were read: a topic that was made anew before that shows now.
        check_same_topic(held, standing_of(self._url, self._topic).created_ms, self._topic)
        self._commit(held, files, end, batch)
        self._watch.outputs[batch] = rows
        self._watch.result.unparsed += sum(file.filled(UNPARSED) for file in files)
        self._watch.tell(batch, "committed", rows, rows, time.monotonic() - began_s)

    def _commit(self, held: Held, files: Any, end: Ends, batch: int) -> None:
        note = {"oncelog.application": self._application, "oncelog.batch": str(batch)}
        ends = {partition: max(offset, held.ends.get(partition, 0)) for partition, offset in end.items()}
        try:
            self._lake.commit(held, self._topic, files, ends, note)
        except LostRace as lost:
            raise PipelineRefused(
                f"another lander writes {self._topic!r} into {self._lake.place.address}: {lost}. Nothing of this "
                "batch is in the table; stop one of the two, the other goes on where the table ends"
            ) from lost

    def _range_of(self, batch: int) -> tuple[Ends, Ends]:
        """Spark has written down where the batch ends before it runs it; it begins where the last one ended."""
        start = self._offsets(batch - 1) if batch > 0 else self._start
        return start, self._offsets(batch)

    def _offsets(self, batch: int) -> Ends:
        (source,) = sources_at(self._checkpoint, batch).values()
        return offsets_of(source).get(self._topic, {})


def _at_or_after(fresh: Ends) -> Any:
    condition = F.lit(False)
    for partition, offset in fresh.items():
        condition = condition | ((F.col("partition") == partition) & (F.col("offset") >= offset))
    return condition


def _place(table: str, options: Mapping[str, str] | None) -> TablePlace:
    try:
        return place_of(table, dict(options or {}))
    except PlaceUnknown as error:
        raise PipelineRefused(str(error)) from None


def _lake(format: str, place: TablePlace) -> LakeTable:  # noqa: A002
    if format not in ("delta", "parquet"):
        raise PipelineRefused(f"a table is delta or parquet, not {format!r}")
    if place.folder is not None and place.folder.exists():
        _check_folder(place.folder, format)
    if format == "delta":
        from oncelog.pipelines.delta_lake import DeltaLake

        return DeltaLake(place)
    from oncelog.pipelines.parquet_lake import ParquetLake

    return ParquetLake(place)


def check_files(lake: LakeTable) -> None:
    """PipelineRefused if files of the table are gone: what comes next would hide the hole."""
    named = [lake.place.relative(file) for file in lake.files()]
    missing = lake.place.missing_of(named)
    if missing:
        raise PipelineRefused(
            f"{len(missing):,} of {len(named):,} files of the table {lake.place.address} are missing, such as "
            f"{missing[0]}: the table says that it holds their records, and no reader can open it. Bring the files "
            "back, or land into another table. A table is also like this if workers wrote it into folders of their own"
        )


def _check_folder(folder: Path, format: str) -> None:  # noqa: A002
    """PipelineRefused if the folder has another table, or files that a new table would lie among.

    Two tables in one folder share its files, and a reader of the folder sees rows of both.
    """
    if not folder.is_dir():
        raise PipelineRefused(f"{folder} is a file; a table is a folder")
    there = [form for form, log in TABLE_LOGS.items() if any((folder / log).glob("[0-9]*"))]
    other = [form for form in there if form != format]
    if other and format not in there:
        raise PipelineRefused(
            f"{folder} holds a {other[0]} table, and {format} was asked for: name that format, or another folder"
        )
    # What begins so is no data for Delta, nor for Spark: a checkpoint, marks of file systems.
    foreign = sorted(path.name for path in folder.iterdir() if not path.name.startswith(("_", ".")))
    if foreign and not there:
        raise PipelineRefused(
            f"{folder} holds no table, and other files such as {foreign[0]}: a table gets a folder of its own"
        )


def lake_of(table: str, storage_options: Mapping[str, str] | None = None) -> LakeTable:
    """The table that is there, whichever form it has. PipelineRefused if there is none."""
    place = _place(table, storage_options)
    for form in ("delta", "parquet"):
        try:
            lake = _lake(form, place)
        except PipelineRefused:
            continue
        if lake.schema() is not None:
            return lake
    raise PipelineRefused(f"{table} is no table that was landed")


def _table_fields(
    spark: Any,
    url: str,
    topic: str,
    lake: LakeTable,
    given: str | None,
    partition_by: Sequence[str],
    standing: Standing,
    starting: str,
    evolve: str = "",
) -> Any | None:
    """The fields of the JSON values; the table is there afterwards. None if there is neither a table nor a record."""
    wanted = schema_of(given) if given is not None else None
    whole = lake.schema()
    if whole is None:
        start = start_of({}, standing, starting, topic)
        if wanted is None and all(start[part] == stable for part, (_, stable) in standing.bounds.items()):
            if starting not in ("earliest", "group"):
                raise PipelineRefused(
                    f"there is no record of {topic!r} at {starting} yet that a schema could be inferred from, and what "
                    "comes next would be left out: give a schema"
                )
            return None
        fields = _inferred(spark, url, topic, start, standing) if wanted is None else wanted
        whole = StructType([*fields.fields, *_record_fields()])
        _check_partition_by(whole, partition_by)
        lake.create(whole, partition_by)
        # Another lander may have made it a moment earlier, with another schema; then that one counts.
        wanted, whole = fields, lake.schema()
        assert whole is not None, "the table was made"
    missing = sorted(set(RECORD_COLUMNS) - set(whole.names))
    if missing:
        raise PipelineRefused(f"the table lacks the columns {missing}: it was not made by landing a topic")
    fields = StructType([field for field in whole.fields if field.name not in RECORD_COLUMNS])
    if partition_by and list(partition_by) != lake.partition_by():
        raise PipelineRefused(f"the table is partitioned by {lake.partition_by()}, not by {list(partition_by)}")
    if evolve:
        start = start_of(lake.held(topic, list(standing.bounds)).ends, standing, starting, topic)
        wanted = wanted if wanted is not None else _inferred_if_any(spark, url, topic, start, standing)
        fields = evolved(lake, fields, wanted, given is not None, topic)
    elif wanted is not None and ddl_of(wanted) != ddl_of(fields):
        raise PipelineRefused(
            f"the table has the schema {ddl_of(fields)!r}, and {ddl_of(wanted)!r} was given. "
            "Columns are added with --evolve add"
        )
    return fields


def _record_fields() -> list[Any]:
    return [StructField(name, _parse_datatype_string(kind), True) for name, kind in RECORD_COLUMNS.items()]


def _check_partition_by(schema: Any, partition_by: Sequence[str]) -> None:
    for name in partition_by:
        if name not in schema.names:
            raise PipelineRefused(f"partition_by: there is no column {name!r} among {', '.join(schema.names)}")
        kind = schema[name].dataType.simpleString()
        if kind not in PARTITION_TYPES:
            raise PipelineRefused(
                f"partition_by: {name!r} is {kind}; a folder is named by {', '.join(PARTITION_TYPES)}"
            )


def _inferred_if_any(spark: Any, url: str, topic: str, start: Ends, standing: Standing) -> Any | None:
    """None where nothing is to be landed. Of names that differ only in case it has the first."""
    if all(start[part] == stable for part, (_, stable) in standing.bounds.items()):
        return None
    return each_name_once(fields_in(spark, _sample(spark, url, topic, start, standing)))


def _inferred(spark: Any, url: str, topic: str, start: Ends, standing: Standing) -> Any:
    return inferred(spark, _sample(spark, url, topic, start, standing))


def _sample(spark: Any, url: str, topic: str, start: Ends, standing: Standing) -> Any:
    # At most so many of each partition, or all of a large topic would be read for its first records.
    end = {
        partition: min(stable, start[partition] + SAMPLE_RECORDS) for partition, (_, stable) in standing.bounds.items()
    }
    options = {"startingOffsets": told(topic, start), "endingOffsets": told(topic, end)}
    return spark.read.format("oncelog").options(url=url, subscribe=topic, columns="value", **options).load()


@contextlib.contextmanager
def _checkpointed(given: str | None, place: TablePlace) -> Iterator[str]:
    """The given checkpoint, or one for this run alone: the table knows the place, so there is nothing to keep."""
    if given is not None:
        yield given
        return
    if place.folder is None:
        # A query without state writes its checkpoint at the driver alone.
        with tempfile.TemporaryDirectory(prefix="oncelog-land-", ignore_cleanup_errors=True) as folder:
            yield folder
        return
    # Folders that begin with an underscore are no data, neither for Delta nor for Spark.
    own = place.folder / "_oncelog" / "checkpoints" / uuid.uuid4().hex
    try:
        yield str(own)
    finally:
        shutil.rmtree(own, ignore_errors=True)
