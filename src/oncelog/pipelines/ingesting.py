"""`ingest`: files, or whatever Spark reads, into a topic, every row once.

What a row is known by decides how it is written:

    a message id                    each row under its id (`delivery=direct`)
    files, and no id                file and row: a file is a producer, the row its sequence (`file_rows`)
    a DataFrame, and no id          the write as a whole: (producer, version) happens once
    a streaming DataFrame           the exactly-once sink, with its checkpoint
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812

from oncelog.client import Client, NotFound
from oncelog.pipelines.file_rows import TOLD, Destination, store_rows
from oncelog.pipelines.running import (
    PipelineRefused,
    Progress,
    Spark,
    Watch,
    check_trigger,
    failure_of,
    no_topic_to_write,
    started,
    triggered,
)
from oncelog.pipelines.source_path import FILE_FORMATS, is_missing

WHOLE_FILE_BYTES: Final = 1 << 44
"""A size that no file has. A row is known by its number, so a file must not be cut among tasks."""

POLL_S: Final = 0.5
"""How often the topic is asked for its size, to show how far a batch run has come."""

_WHOLE_FILES: Final = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")


class Ingested(msgspec.Struct):
    """What a run did."""

    records: int
    """New in the topic. With message ids, and for a DataFrame, it is what the topic grew by meanwhile."""
    duplicates: int
    """Rows that were there from an earlier run, or by their message id."""
    files: int = 0
    """Files with rows that were read; 0 where the source is not files."""
    duration_s: float = 0.0
    stopped: bool = False
    """Somebody stopped it before it was at its end."""


def ingest(
    spark: Spark,
    *,
    url: str,
    topic: str,
    source: Any,
    format: str = "text",  # noqa: A002  (as Spark calls it)
    options: Mapping[str, str] | None = None,
    schema: str | None = None,
    key: str | None = None,
    value: str | None = None,
    message_id: str | None = None,
    producer: str = "ingest",
    version: int = 0,
    checkpoint: str | None = None,
    partitions: int = 0,
    content_type: str = "application/octet-stream",
    trigger: str = "available_now",
    progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> Ingested:
    """Brings `source` into a topic: a path, a folder, a pattern, or a DataFrame, batch or streaming. `spark` is a
    session, or a function that starts one once the topic is found to be there.

    `key`, `value` and `message_id` are columns or SQL expressions; without `value` a record is the line of a text file,
    else the row as JSON. Doing it again adds nothing, also after a run that was killed: rows are known by their message
    id, else by file and row. A file may grow between runs; one that was rewritten is refused. For a source that is
    neither files nor has ids, `producer` and `version` name the write, and the same pair is written once.

    With a `checkpoint` the source is followed as a stream, files that come later included: to its end, or with a time
    as `trigger` until it is stopped. `partitions` creates a missing topic. `producer` is the name by which the server
    remembers files; two ingestions of one file under two names are two.

    Raises PipelineRefused for what cannot be done, PipelineFailed for a job that ended with a failure.
    """
    began_s = time.monotonic()
    check_trigger(trigger)
    streams = checkpoint is not None or (not isinstance(source, str) and source.isStreaming)
    if streams and checkpoint is None:
        raise PipelineRefused("a streaming source needs a checkpoint")
    if not streams and trigger != "available_now":
        raise PipelineRefused(f"trigger {trigger!r}: a source is followed with a checkpoint, and none is given")
    if callable(spark) and isinstance(source, str) and is_missing(source, format):
        # Spark would say so too, and takes its time to start.
        raise PipelineRefused(
            f"there is no file or folder {source} on this machine; those of other file systems have an address "
            "(hdfs://…)"
        )
    count = _topic_partitions(url, topic, partitions, content_type)
    spark = started(spark)
    by_file = isinstance(source, str) and format.lower() in FILE_FORMATS and message_id is None
    job = _Job(url, topic, producer, count, content_type, version, checkpoint, trigger, progress, stop)
    try:
        with _whole_files(spark) if by_file else contextlib.nullcontext():
            rows = _loaded(spark, source, format, options or {}, schema, streams=streams)
            if by_file:
                done = job.files(_rows_of(rows, format, key, value, None, file=True), streams=streams)
            else:
                done = job.rows(_rows_of(rows, format, key, value, message_id), streams=streams)
    except (PySparkException, Py4JJavaError) as error:
        raise failure_of(error) from error
    done.duration_s = time.monotonic() - began_s
    return done


class _Job:
    """One run: where rows go, and who is told."""

    def __init__(
        self,
        url: str,
        topic: str,
        producer: str,
        partitions: int,
        content_type: str,
        version: int,
        checkpoint: str | None,
        trigger: str,
        progress: Callable[[Progress], None] | None,
        stop: threading.Event | None,
    ) -> None:
        self._destination = Destination(url, topic, partitions, producer)
        self._content_type = content_type
        self._version = version
        self._checkpoint = checkpoint
        self._trigger = trigger
        self._progress = progress
        self._stop = stop

    def files(self, rows: Any, *, streams: bool) -> Ingested:
        """Each file under its own name."""
        if not streams:
            with _growth_told(self._destination, self._progress):
                return self._stored(rows)
        total = Ingested(0, 0)
        watch = Watch("ingest", self._destination.producer, self._progress)

        def each(batch: Any, number: int) -> None:
            stored = self._stored(batch)
            watch.outputs[number] = stored.records
            total.records += stored.records
            total.duplicates += stored.duplicates
            total.files += stored.files

        writer = rows.writeStream.foreachBatch(each).option("checkpointLocation", self._checkpoint)
        query = triggered(writer.queryName(self._destination.producer), self._trigger).start()
        total.stopped = watch.follow(query, self._stop).stopped
        return total

    def _stored(self, rows: Any) -> Ingested:
        destination = self._destination

        def task(batches: Iterator[Any]) -> Iterator[Any]:
            return store_rows(batches, destination)

        told = rows.mapInArrow(task, TOLD).collect()
        return Ingested(sum(row.records for row in told), sum(row.duplicates for row in told), len(told))

    def rows(self, rows: Any, *, streams: bool) -> Ingested:
        """Each row under its id, or all of them as one write."""
        destination = self._destination
        by_id = "message_id" in rows.columns
        options = {"url": destination.url, "topic": destination.topic, "delivery": "direct" if by_id else "staged"}
        before = _size(destination)
        stopped = False
        if streams:
            writer = rows.writeStream.format("oncelog").options(**options, checkpointLocation=self._checkpoint)
            query = triggered(writer.option("application", destination.producer), self._trigger).start()
            done = Watch("ingest", destination.producer, self._progress).follow(query, self._stop)
            count, stopped = done.input_rows, done.stopped
        else:
            seen = Observation("ingest")
            writer = rows.observe(seen, F.count(F.lit(1)).alias("rows")).write.format("oncelog").options(**options)
            if not by_id:
                writer = writer.options(txnAppId=destination.producer, txnVersion=str(self._version))
            with _growth_told(destination, self._progress):
                writer.mode("append").save()
            count = int(seen.get["rows"])
        records = _size(destination) - before
        return Ingested(records, max(0, count - records), stopped=stopped)


def _topic_partitions(url: str, topic: str, partitions: int, content_type: str) -> int:
    with Client(url) as client:
        try:
            return client.topic(topic).partitions
        except NotFound:
            if not partitions:
                raise PipelineRefused(no_topic_to_write(topic)) from None
        client.create_topic(topic, partitions=partitions, content_type=content_type)
        return partitions


@contextlib.contextmanager
def _whole_files(spark: Any) -> Iterator[None]:
    """One file for each task, while a job is planned. A query keeps the settings that it was started with."""
    before = {name: spark.conf.get(name) for name in _WHOLE_FILES}
    for name in _WHOLE_FILES:
        spark.conf.set(name, str(WHOLE_FILE_BYTES))
    try:
        yield
    finally:
        for name, size in before.items():
            spark.conf.set(name, size)


def _loaded(
    spark: Any,
    source: Any,
    format: str,  # noqa: A002
    options: Mapping[str, str],
    schema: str | None,
    *,
    streams: bool,
) -> Any:
    if not isinstance(source, str):
        return source
    if not streams:
        reader = spark.read.format(format).options(**options)
        return (reader.schema(schema) if schema is not None else reader).load(source)
    if schema is None and format.lower() in FILE_FORMATS:
        # A stream is not looked into before it starts. Text has one column always.
        found = (
            "value string" if format.lower() == "text" else spark.read.format(format).options(**options).load(source)
        )
        schema = found if isinstance(found, str) else found.schema
    reader = spark.readStream.format(format).options(**options)
    return (reader.schema(schema) if schema is not None else reader).load(source)


def _rows_of(
    rows: Any,
    format: str,  # noqa: A002
    key: str | None,
    value: str | None,
    message_id: str | None,
    *,
    file: bool = False,
) -> Any:
    columns = []
    if file:
        columns.append(F.col("_metadata.file_path").alias("file"))
        columns.append(_bytes(rows, key).alias("key") if key is not None else F.lit(None).cast("binary").alias("key"))
    elif key is not None:
        columns.append(_bytes(rows, key).alias("key"))
    if value is not None:
        columns.append(_bytes(rows, value).alias("value"))
    elif rows.columns == ["value"] and format.lower() == "text":
        columns.append(F.col("value").cast("binary").alias("value"))
    else:
        columns.append(F.to_json(F.struct("*")).cast("binary").alias("value"))
    if message_id is not None:
        columns.append(_expression(rows, message_id).cast("string").alias("message_id"))
    return rows.select(*columns)


def _expression(rows: Any, text: str) -> Any:
    return F.col(f"`{text}`") if text in rows.columns else F.expr(text)


def _bytes(rows: Any, text: str) -> Any:
    """A column or an expression as bytes: text and bytes as they are, numbers by their text, the rest as JSON."""
    column = _expression(rows, text)
    kind = rows.select(column.alias("it")).schema["it"].dataType.simpleString()
    if kind.startswith(("struct", "array", "map")):
        return F.to_json(column).cast("binary")
    return column if kind == "binary" else column.cast("string").cast("binary")


def _size(destination: Destination) -> int:
    with Client(destination.url) as client:
        return sum(stream.stable for stream in client.cut(destination.topic).streams)


@contextlib.contextmanager
def _growth_told(destination: Destination, progress: Callable[[Progress], None] | None) -> Iterator[None]:
    """A batch job tells nothing before its end; the topic does."""
    if progress is None:
        yield
        return
    began_s = time.monotonic()
    before = _size(destination)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(POLL_S):
            grown = _size(destination) - before
            elapsed_s = time.monotonic() - began_s
            rate = grown / elapsed_s
            progress(Progress("ingest", 0, grown, grown, grown, grown, rate, -1, elapsed_s, elapsed_s, "writing"))

    watcher = threading.Thread(target=watch, name="oncelog-ingest-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
