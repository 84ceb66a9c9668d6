"""`transform`: topics through SQL or a function into a topic, every row once.

The query is an ordinary one of Structured Streaming. What makes it exact is the sink: the rows of a batch and how far
the sources were read become true in one entry of the log (`oncelog.spark.stream_writer`).
"""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from oncelog.client import Client, NotFound
from oncelog.pipelines.json_values import parsed, schema_of
from oncelog.pipelines.running import (
    OUTPUT,
    PipelineRefused,
    PipelineResult,
    Progress,
    Spark,
    Watch,
    check_trigger,
    no_topic_to_write,
    reason_of,
    started,
    triggered,
)
from oncelog.spark.encoding import SINK_COLUMNS

Function = Callable[[dict[str, Any]], Any]
"""DataFrames by topic to the DataFrame that is written."""

BESIDE_VALUE: Final = tuple(name for name in SINK_COLUMNS if name != "value")
"""What a row may say beside its value; everything else of a result without `value` becomes the value's JSON."""

_FROM: Final = "oncelog.from"
"""Marks a column of a source; Spark hands the mark on as long as the column is only renamed or selected."""


def transform(
    spark: Spark,
    *,
    url: str,
    topics: Sequence[str] | None = None,
    target: str,
    application: str,
    checkpoint: str,
    sql: str | None = None,
    function: Function | None = None,
    schemas: Mapping[str, str] | None = None,
    event_time: str | None = None,
    watermark: str | None = None,
    starting: str = "group",
    max_offsets_per_trigger: int | None = None,
    output_mode: str = "append",
    trigger: str = "available_now",
    partitions: int = 0,
    content_type: str = "application/octet-stream",
    sink_options: Mapping[str, str] | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> PipelineResult:
    """Runs the query until the topics are read to their end, or with a time as `trigger` until it is stopped.

    `spark` is a session, or a function that starts one once the topics are found to be there.

    `sql` sees every topic as a view (`view_name`), `function` gets the same DataFrames in a dict by topic. With a
    schema (DDL) for a topic they have the fields of its JSON values and `_key`, `_topic`, `_partition`, `_offset`,
    `_timestamp`, `_unparsed`; without one the columns of the connector. The result has `value`, and may have `key`,
    `partition`, `topic`, `headers`, `timestamp`, `message_id`; without `value`, all other columns become JSON.
    A source's own `topic` and `partition`, only handed through, do not steer the result.

    `topics` may be left out where `schemas` names them all. `event_time` is a column of the views, `watermark` how late
    it may be ("10 minutes"): joins and aggregates need both. `partitions` creates a missing target. `starting` is
    `group`: where this application had come to; or what `startingOffsets` takes. It counts for a new checkpoint only.

    Raises PipelineRefused for what cannot be done, PipelineFailed for a query that ended with a failure.
    """
    schemas = schemas or {}
    topics = list(topics or schemas)
    check_trigger(trigger)
    _check_output_mode(output_mode)
    _check(topics, target, application, sql, function, schemas, event_time, watermark)
    _check_topics(url, topics, target, partitions)
    spark = started(spark)
    start = f"group:{application}" if starting == "group" else starting
    options = {"startingOffsets": start}
    if max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
    try:
        views = {}
        for topic in topics:
            records = spark.readStream.format("oncelog").options(url=url, subscribe=topic, **options).load()
            views[topic] = parsed(records, schema_of(schemas[topic])) if topic in schemas else _marked(records)
        if event_time is not None and watermark is not None:
            views = _watermarked(views, event_time, watermark)
        result = as_records(_result(spark, views, sql, function))
        writer = result.observe(OUTPUT, F.count(F.lit(1)).alias("rows")).writeStream.format("oncelog")
        writer = writer.options(url=url, topic=target, application=application, checkpointLocation=checkpoint)
        writer = writer.option("createPartitions", str(partitions)).option("contentType", content_type)
        writer = writer.options(**(sink_options or {})).queryName(application).outputMode(output_mode)
        query = triggered(writer, trigger).start()
    except (PySparkException, Py4JError) as error:
        raise PipelineRefused(f"Spark does not take the query: {reason_of(error)}") from error
    return Watch("transform", application, progress, url).follow(query, stop)


def _check_output_mode(output_mode: str) -> None:
    if output_mode == "update":
        raise PipelineRefused(
            "output mode update: Spark does not offer it to sinks written in Python. Use append with a watermark, "
            "complete, or foreachBatch in a program of your own (docs/spark.md)"
        )
    if output_mode not in ("append", "complete"):
        raise PipelineRefused(f"output mode is append or complete, not {output_mode!r}")


def view_name(topic: str) -> str:
    """A topic as SQL can name it without quotes: letters, digits and underscores."""
    name = re.sub(r"\W", "_", topic, flags=re.ASCII)
    return f"_{name}" if name[:1].isdigit() else name


def as_records(result: Any) -> Any:
    """The result as the sink takes it."""
    result = result.drop(*(field.name for field in result.schema.fields if (field.metadata or {}).get(_FROM)))
    names = result.columns
    if "value" in names:
        return result.select(*(name for name in names if name == "value" or name in BESIDE_VALUE))
    fields = [F.col(f"`{name}`") for name in names if name not in BESIDE_VALUE]
    if not fields:
        raise PipelineRefused(f"the result has only the columns {names}: there is nothing to be the value")
    kept = [F.col(name) for name in names if name in BESIDE_VALUE]
    kept = [
        column.cast("string") if name == "key" and _is_plain(result, name) else column
        for name, column in zip([name for name in names if name in BESIDE_VALUE], kept, strict=True)
    ]
    return result.select(F.to_json(F.struct(*fields)).alias("value"), *kept)


def _marked(records: Any) -> Any:
    """A source's topic and partition, handed through, say where a record came from and not where the result goes.

    Else a query that selects everything would write its result back into what it reads.
    """
    for name in ("topic", "partition"):
        records = records.withMetadata(name, {_FROM: True})
    return records


def _is_plain(result: Any, name: str) -> bool:
    """A number or the like, which is a key by its text. Bytes and text are keys as they are."""
    return result.schema[name].dataType.simpleString() not in ("binary", "string")


def _result(spark: Any, views: dict[str, Any], sql: str | None, function: Function | None) -> Any:
    if function is not None:
        result = function(views)
        if not isinstance(result, DataFrame):
            raise PipelineRefused(f"the function is to return a DataFrame, and returned {type(result).__name__}")
        return result
    assert sql is not None, "checked before"
    for topic, view in views.items():
        view.createOrReplaceTempView(view_name(topic))
    return spark.sql(sql)


def _watermarked(views: dict[str, Any], event_time: str, watermark: str) -> dict[str, Any]:
    found = {topic: view for topic, view in views.items() if event_time in view.columns}
    if not found:
        raise PipelineRefused(f"no topic has the event time {event_time!r}; columns are {_columns(views)}")
    marked = dict(views)
    for topic, view in found.items():
        if view.schema[event_time].dataType.simpleString() != "timestamp":
            view = view.withColumn(event_time, F.col(f"`{event_time}`").cast("timestamp"))
        marked[topic] = view.withWatermark(event_time, watermark)
    return marked


def _columns(views: Mapping[str, Any]) -> str:
    return "; ".join(f"{topic}: {', '.join(view.columns)}" for topic, view in views.items())


def _check(
    topics: Sequence[str],
    target: str,
    application: str,
    sql: str | None,
    function: Function | None,
    schemas: Mapping[str, str],
    event_time: str | None,
    watermark: str | None,
) -> None:
    if not topics or not target or not application:
        raise PipelineRefused("say which topics are read, which one is written, and the name of the application")
    if (sql is None) == (function is None):
        raise PipelineRefused("give either sql or a function")
    if (event_time is None) != (watermark is None):
        raise PipelineRefused("event_time and watermark are given together: which column, and how late it may be")
    if target in topics:
        raise PipelineRefused(f"{target!r} is read and written: the query would feed on its own output for ever")
    unknown = sorted(set(schemas) - set(topics))
    if unknown:
        raise PipelineRefused(f"a schema is given for {unknown}, which are not among the topics {list(topics)}")
    if len({view_name(topic) for topic in topics}) != len(topics):
        raise PipelineRefused(f"two of the topics {list(topics)} have one name in SQL")


def _check_topics(url: str, topics: Sequence[str], target: str, partitions: int) -> None:
    """Before a query starts, and not when its first batch is written minutes later."""
    with Client(url) as client:
        for topic in topics:
            try:
                client.topic(topic)
            except NotFound:
                raise PipelineRefused(f"there is no topic {topic!r} at {url}") from None
        if partitions:
            return
        try:
            client.topic(target)
        except NotFound:
            raise PipelineRefused(no_topic_to_write(target)) from None
