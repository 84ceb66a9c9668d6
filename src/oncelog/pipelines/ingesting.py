"""`ingest`: files, or whatever Spark reads, into a topic, every row once.

What a row is known by decides how it is written:

    a message id                    each row under its id (`delivery=direct`)
    files, and no id                file and row: a file is a producer, the row its sequence (`file_rows`)
    a DataFrame, and no id          the write as a whole: (producer, version) happens once
    a streaming DataFrame           the exactly-once sink, with its checkpoint

Lines that do not fit (`bad_lines`) have no id to be known by. So of files whose rows have ids, they are stored first,
by file and row, and the others after them.
"""

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812

from oncelog.client import Client, NotFound
from oncelog.pipelines.bad_lines import BLANK, bad_lines_of
from oncelog.pipelines.file_rows import INPUT, TOLD, Destination, store_rows
from oncelog.pipelines.line_sources import Source, as_records, bytes_of, expression_of
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

BYTES: Final = "application/octet-stream"
"""Of a dead-letter topic: a line that did not fit may be anything."""

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
    bad: dict[str, int] = {}
    """Lines that do not fit, by kind (`bad_lines.KINDS`), also those that an earlier run has put away."""
    blank: int = 0
    """Lines without a byte."""
    dead_letters: int = 0
    """Lines that are in the dead letter, and not in the topic."""


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
    bad: str = "fail",
    trigger: str = "available_now",
    progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> Ingested:
    """Brings `source` into a topic: a path, a folder, a pattern, or a DataFrame, batch or streaming. `spark` is a
    session, or a function that starts one once the topic is found to be there.

    `key`, `value` and `message_id` are columns or SQL expressions. Without `value` a record is the line of a file of
    text or JSON, byte for byte, and of other formats the row as JSON. Doing it again adds nothing, also after a run
    that was killed: rows are known by their message id, else by file and row. A file may grow between runs; one that
    was rewritten is refused. For a source that is neither files nor has ids, `producer` and `version` name the write:
    the same pair is written once. `bad` says what becomes of lines that do not fit: see `bad_lines`.

    With a `checkpoint` the source is followed as a stream, files that come later included: to its end, or with a time
    as `trigger` until it is stopped. `partitions` creates a missing topic. `producer` is the name by which the server
    remembers files; two ingestions of one file under two names are two.

    Raises PipelineRefused for what cannot be done, PipelineFailed for a job that ended with a failure.
    """
    began_s = time.monotonic()
    check_trigger(trigger)
    streams = _is_followed(source, checkpoint, trigger)
    if callable(spark) and isinstance(source, str) and is_missing(source, format):
        # Spark would say so too, and takes its time to start.
        raise PipelineRefused(
            f"there is no file or folder {source} on this machine; those of other file systems have an address "
            "(hdfs://…)"
        )
    bad_lines = bad_lines_of(bad)
    if bad_lines.topic == topic:
        raise PipelineRefused(f"bad lines: the dead letter is the topic {topic!r} itself; say keep")
    count = _topic_partitions(url, topic, partitions, content_type)
    dead_count = _topic_partitions(url, bad_lines.topic, partitions, BYTES) if bad_lines.topic else 0
    spark = started(spark)
    destination = Destination(url, topic, count, producer, bad_lines, dead_count)
    job = _Job(destination, version, checkpoint, trigger, progress, stop)
    try:
        if not isinstance(source, str):
            done = job.rows(_frame_records(source, key, value, message_id), streams=streams)
        else:
            with _whole_files(spark) if format.lower() in FILE_FORMATS else contextlib.nullcontext():
                named = not (key is None and value is None and message_id is None)
                given = Source(spark, source, format, options or {}, schema, streams=streams, named=named)
                rows = as_records(given.rows(), key, value, message_id)
                done = job.source(
                    rows, by_file=format.lower() in FILE_FORMATS, bad=given.has_bad_lines, streams=streams
                )
    except (PySparkException, Py4JError) as error:
        raise failure_of(error) from error
    done.duration_s = time.monotonic() - began_s
    return done


def _is_followed(source: Any, checkpoint: str | None, trigger: str) -> bool:
    """Whether the source is read as a stream. PipelineRefused for what contradicts itself."""
    streams = checkpoint is not None or (not isinstance(source, str) and source.isStreaming)
    if streams and checkpoint is None:
        raise PipelineRefused("a streaming source needs a checkpoint")
    if not streams and trigger != "available_now":
        raise PipelineRefused(f"trigger {trigger!r}: a source is followed with a checkpoint, and none is given")
    return bool(streams)


class _Job:
    """One run: where rows go, and who is told."""

    def __init__(
        self,
        destination: Destination,
        version: int,
        checkpoint: str | None,
        trigger: str,
        progress: Callable[[Progress], None] | None,
        stop: threading.Event | None,
    ) -> None:
        self._destination = destination
        self._version = version
        self._checkpoint = checkpoint
        self._trigger = trigger
        self._progress = progress
        self._stop = stop

    def source(self, rows: Any, *, by_file: bool, bad: bool, streams: bool) -> Ingested:
        """Rows of `as_records`. `by_file`: of files; `bad`: some of them may be bad."""
        if "message_id" not in rows.columns:
            return self._files(rows, streams=streams) if by_file else self.rows(_good(rows), streams=streams)
        if not bad:
            return self.rows(_good(rows), streams=streams)
        if streams:
            return self._followed(rows, self._bad_then_good)
        return self._bad_then_good(rows)

    def _files(self, rows: Any, *, streams: bool) -> Ingested:
        """Each file under its own name."""
        if streams:
            return self._followed(rows, self._stored)
        with _growth_told(self._destination, self._progress):
            return self._stored(rows)

    def _followed(self, rows: Any, store: Callable[[Any], Ingested]) -> Ingested:
        """Each batch of a stream of files, whole, before the next one."""
        total = Ingested(0, 0)
        watch = Watch("ingest", self._destination.producer, self._progress)

        def each(batch: Any, number: int) -> None:
            try:
                stored = store(batch)
            except BaseException as error:
                watch.failure = error
                raise
            watch.outputs[number] = stored.records
            _add(total, stored)

        writer = rows.writeStream.foreachBatch(each).option("checkpointLocation", self._checkpoint)
        query = triggered(writer.queryName(self._destination.producer), self._trigger).start()
        total.stopped = watch.follow(query, self._stop).stopped
        return total

    def _bad_then_good(self, rows: Any) -> Ingested:
        """Bad lines by file and row, the others by their id."""
        total = self._stored(rows, only_bad=True)
        _add(total, self.rows(_good(rows), streams=False))
        return total

    def _stored(self, rows: Any, *, only_bad: bool = False) -> Ingested:
        destination = msgspec.structs.replace(self._destination, only_bad=only_bad)

        def task(batches: Iterator[Any]) -> Iterator[Any]:
            return store_rows(batches, destination)

        told = rows.select(*_INPUT_NAMES).mapInArrow(task, TOLD).collect()
        bad: Counter[str] = Counter()
        for row in told:
            bad.update(json.loads(row.bad))
        blank = bad.pop(BLANK, 0)
        self._check_dead_files(told)
        return Ingested(
            sum(row.records for row in told),
            sum(row.duplicates for row in told),
            len(told),
            bad=dict(bad),
            blank=blank,
            dead_letters=bad.total() if destination.bad.what == "dead-letter" else 0,
        )

    def _check_dead_files(self, told: Any) -> None:
        """The driver believes in no file that it has not seen."""
        place = self._destination.bad.place
        for row in told:
            if row.dead_file is None or place is None or place.size_of(row.dead_file) == row.dead_bytes:
                continue
            raise PipelineRefused(
                f"a worker wrote bad lines to {row.dead_file} in {place.address}, and the driver does not find that "
                f"file with {row.dead_bytes:,} bytes: the workers need the same folder under the same path. The other "
                "lines are stored; with a folder that all see, or a topic, another run brings the bad ones there"
            )

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


_INPUT_NAMES: Final = [column.split()[0] for column in INPUT.split(", ")]


def _good(rows: Any) -> Any:
    """What the sink takes of rows of a source."""
    return rows.where(F.col("bad").isNull()).drop("file", "bad")


def _frame_records(rows: Any, key: str | None, value: str | None, message_id: str | None) -> Any:
    """What the sink takes of a DataFrame of the caller's."""
    columns = [bytes_of(rows, value) if value is not None else F.to_json(F.struct("*")).cast("binary")]
    names = ["value"]
    if key is not None:
        columns.append(bytes_of(rows, key))
        names.append("key")
    if message_id is not None:
        columns.append(expression_of(rows, message_id).cast("string"))
        names.append("message_id")
    return rows.select(*(column.alias(name) for column, name in zip(columns, names, strict=True)))


def _add(total: Ingested, more: Ingested) -> None:
    """What another batch, or another part of a batch, has done."""
    total.records += more.records
    total.duplicates += more.duplicates
    total.files += more.files
    total.blank += more.blank
    total.dead_letters += more.dead_letters
    total.stopped = total.stopped or more.stopped
    for kind, lines in more.bad.items():
        total.bad[kind] = total.bad.get(kind, 0) + lines


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
