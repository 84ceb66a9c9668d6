"""The questions of an audit, as Spark is asked them.

Everything about one record comes together once: its places in the log, and every line of every ledger about it, grouped
by topic and identity. One pass over that answers most questions; commits and order need one more each.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, MapType, StructType

from oncelog.pipelines import ledger
from oncelog.pipelines.json_values import RECORD_COLUMNS, UNPARSED, parsed, quoted
from oncelog.pipelines.lake import LakeTable
from oncelog.pipelines.lake_files import stored_rows

Ends = Mapping[str, Mapping[int, int]]


def log_of(spark: Any, url: str, ends: Ends) -> Any:
    """Every record of the topics below these offsets."""
    told = {topic: {str(partition): end for partition, end in parts.items()} for topic, parts in ends.items()}
    options = {"url": url, "subscribe": ",".join(ends), "endingOffsets": json.dumps(told), "includeHeaders": "true"}
    return spark.read.format("oncelog").options(**options).load()


def identified(records: Any, identity: Mapping[str, str]) -> Any:
    """Where each record stands, who it is, and a hash of what it says. One that has no identity is its place."""
    chosen = F.lit(None).cast("string")
    for topic, expression in identity.items():
        chosen = F.when(F.col("topic") == topic, F.expr(expression).cast("string")).otherwise(chosen)
    place = F.concat(F.lit("partition "), F.col("partition"), F.lit(" offset "), F.col("offset"))
    digest = F.sha2(F.coalesce(F.col("value"), F.lit(b"")), 256)
    return records.select(
        "topic", F.coalesce(chosen, place).alias("id"), digest.alias("hash"), "partition", "offset"
    ).withColumn("state", F.lit("log"))


def lines_of(spark: Any, paths: Iterable[Path], topics: Sequence[str], floors: Any) -> Any:
    """The ledgers' lines about these topics. A line that a kill cut off has no state, and is left out.

    What was trimmed from the front of the log is not lost: its confirmations are left out.
    """
    lines = spark.read.schema(ledger.SCHEMA).json([str(path) for path in paths])
    lines = lines.where(F.col("state").isNotNull() & F.col("id").isNotNull() & F.col("topic").isin(list(topics)))
    lines = lines.fillna({"hash": "", "partition": -1, "order": -1, "commit": "", "offset": -1})
    trimmed = (F.col("state") == "confirmed") & (F.col("offset") >= 0) & (F.col("offset") < F.col("floor"))
    floors = F.broadcast(floors.toDF("topic", "partition", "floor"))
    return lines.join(floors, ["topic", "partition"], "left").where(~F.coalesce(trimmed, F.lit(False))).drop("floor")


def by_identity(log: Any, lines: Any) -> Any:
    """One row for each record: what the log has of it, what the ledgers say, and what is wrong."""
    everything = log.unionByName(lines, allowMissingColumns=True)

    def in_state(state: str, expression: str) -> str:
        return f"CASE WHEN state = '{state}' THEN {expression} END"

    grouped = everything.groupBy("topic", "id").agg(
        F.expr("count_if(state = 'log') AS times"),
        F.expr("count_if(state = 'confirmed') > 0 AS confirmed"),
        F.expr(f"collect_set({in_state('log', 'hash')}) AS stored"),
        F.expr(f"collect_set({in_state('log', 'struct(partition, offset)')}) AS places"),
        F.expr(f"collect_set({in_state('sent', 'hash')}) AS sent"),
        F.expr(f"collect_set({in_state('refused', 'hash')}) AS refused"),
        F.expr(f"collect_set({in_state('confirmed', 'struct(partition, offset)')}) AS told"),
        F.expr(f"collect_set({in_state('sent', 'writer')}) AS writers"),
        # A record that was sent again stands anywhere between its first and its last attempt.
        F.expr(f"min({in_state('sent', 'nullif(`order`, -1)')}) AS order_first"),
        F.expr(f"max({in_state('sent', 'nullif(`order`, -1)')}) AS order_last"),
        F.expr(f"max({in_state('sent', 'commit')}) AS commit"),
        F.expr(f"min({in_state('sent', 'time_ms')}) AS sent_ms"),
        F.expr(f"min({in_state('confirmed', 'time_ms')}) AS confirmed_ms"),
        F.expr(f"min({in_state('confirmed', 'face')}) AS face"),
    )
    at_place = "(c.partition < 0 OR c.partition = p.partition) AND (c.offset < 0 OR c.offset = p.offset)"
    return grouped.selectExpr(
        "*",
        f"exists(told, c -> NOT exists(places, p -> {at_place})) AS lost",
        "times - size(stored) AS extra",
        "size(stored) > 1 OR (size(sent) > 0 AND exists(stored, h -> NOT array_contains(sent, h))) AS conflicting",
        "IF(size(sent) = 0, times, size(array_intersect(stored, refused))) AS unexpected",
    )


def counts(identities: Any) -> Any:
    """Of each topic: how many, and how many faults of each kind that one record can show by itself."""
    return identities.groupBy("topic").agg(
        F.expr("sum(times) AS records"),
        F.expr("count_if(size(sent) > 0) AS sent"),
        F.expr("count_if(confirmed) AS confirmed"),
        F.expr("count_if(lost) AS lost"),
        F.expr("sum(extra) AS doubled"),
        F.expr("count_if(conflicting) AS conflicting"),
        F.expr("sum(unexpected) AS unexpected"),
    )


def torn(identities: Any) -> Any:
    """Commits that are in the log in part, with the topics that they touch."""
    parts = identities.where("commit <> '' AND size(array_except(sent, refused)) > 0")
    commits = parts.groupBy("commit").agg(
        F.expr("count(1) AS records"), F.expr("count_if(times > 0) AS present"), F.expr("collect_set(topic) AS topics")
    )
    return commits.where("present > 0 AND present < records")


def out_of_order(identities: Any) -> Any:
    """Records that stand behind one that the same writer first sent after their last attempt."""
    placed = identities.where("times > 0 AND size(writers) = 1 AND order_first IS NOT NULL")
    placed = placed.selectExpr(
        "topic", "id", "writers[0] AS writer", "array_min(places) AS place", "order_first", "order_last"
    ).selectExpr("*", "place.partition AS partition", "place.offset AS offset")
    before = Window.partitionBy("topic", "partition", "writer").orderBy("offset")
    before = before.rowsBetween(Window.unboundedPreceding, -1)
    return placed.withColumn("later", F.max("order_first").over(before)).where("later > order_last")


# --- the table -------------------------------------------------------------------------------------------------


def table_of(spark: Any, lake: LakeTable, schema: Any) -> Any:
    """The files that count, as one DataFrame."""
    files, place = lake.files(), lake.place
    if not files:
        return spark.createDataFrame([], schema)
    if place.folder is not None:
        return spark.read.schema(schema).option("basePath", place.address).parquet(*files)
    # Spark reaches a store only with jars that we do not need otherwise, so the workers read through delta-rs.
    paths = spark.createDataFrame([(place.relative(file),) for file in files], "path string")
    arrow = to_arrow_schema(schema, timezone="UTC")
    return paths.repartition(len(files)).mapInArrow(lambda batches: stored_rows(batches, place, arrow), schema)


def by_place(records: Any, rows: Any, schema: Any, floors: Any) -> Any:
    """One row for each place: how often it is in the table, and whether that says what the log says.

    Both sides become rows by the same schema, and what is compared is every column of them.
    """
    fields = StructType([field for field in schema.fields if field.name not in RECORD_COLUMNS])
    place = ["_topic", "_partition", "_offset"]
    content = _content(schema).alias("content")
    in_log = parsed(records.withColumn("_oncelog_bytes", F.col("value")), fields, kept=("_oncelog_bytes",))
    in_log = in_log.select(*place, content, _bytes_kept("_oncelog_bytes"), F.lit(1).alias("in_log"))
    in_table = rows.select(*place, content, _bytes_kept(UNPARSED), F.lit(0).alias("in_log"))
    grouped = in_log.union(in_table).groupBy(*place)
    both = grouped.agg(
        F.sum("in_log").alias("in_log"),
        F.expr("count_if(in_log = 0) AS times"),
        # A row that keeps the record's bytes says what the log says, also if a later schema knows more of them.
        F.expr("size(collect_set(content)) > 1 AND size(collect_set(bytes)) > 1 AS differs"),
    ).join(F.broadcast(floors), place[:2], "left")
    # What was trimmed from the log is no fault of the table's.
    gone = "(in_log = 0 AND _offset < coalesce(floor, 0))"
    return both.selectExpr(
        "concat('partition ', _partition, ' offset ', _offset) AS id",
        "times",
        "times = 0 AS lost",
        "greatest(times - 1, 0) AS extra",
        "in_log > 0 AND differs AS conflicting",
        f"in_log = 0 AND NOT {gone} AS unexpected",
    )


def _bytes_kept(column: str) -> Any:
    """A hash of where a record comes from and of its bytes; 0 where a row does not keep them."""
    beside = [F.col(name) for name in RECORD_COLUMNS if name != UNPARSED]
    return F.when(F.col(column).isNotNull(), F.xxhash64(*beside, F.col(column))).otherwise(F.lit(0)).alias("bytes")


def table_counts(places: Any) -> Any:
    """All of it in one row."""
    return places.agg(
        F.expr("coalesce(sum(times), 0) AS rows"),
        F.expr("count_if(lost) AS lost"),
        F.expr("coalesce(sum(extra), 0) AS doubled"),
        F.expr("count_if(conflicting) AS conflicting"),
        F.expr("count_if(unexpected) AS unexpected"),
    )


def _content(schema: Any) -> Any:
    """A hash of all columns. Spark hashes no maps, wherever they are, so such columns go by their JSON.

    A map has no order, so one at the top goes by its sorted entries. Deeper ones keep the order of the record's text.
    """
    columns = []
    for field in schema.fields:
        column = F.col(quoted(field.name))
        if isinstance(field.dataType, MapType) and not _has_map(field.dataType.valueType):
            column = F.array_sort(F.map_entries(column))
        columns.append(F.to_json(column, {"ignoreNullFields": "false"}) if _has_map(field.dataType) else column)
    return F.xxhash64(*columns)


def _has_map(kind: Any) -> bool:
    """Whether the type is a map or holds one."""
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    return isinstance(kind, MapType)


# --- for the charts --------------------------------------------------------------------------------------------


def latencies(identities: Any) -> Any:
    """From the first attempt to the first confirmation, by face, in milliseconds."""
    known = identities.where("sent_ms IS NOT NULL AND confirmed_ms IS NOT NULL")
    return known.selectExpr("face", "confirmed_ms AS time_ms", "greatest(confirmed_ms - sent_ms, 0) AS latency_ms")


def latency_by_face(latencies_: Any) -> Any:
    """Count, quantiles and bounds of each face."""
    return (
        latencies_.groupBy("face")
        .agg(
            F.expr("count(1) AS n"),
            F.expr("percentile_approx(latency_ms, array(0.5, 0.95, 0.99), 10000) AS quantiles"),
            F.expr("max(latency_ms) AS longest"),
            F.expr("min(time_ms) AS first_ms"),
            F.expr("max(time_ms) AS last_ms"),
        )
        .orderBy("face")
    )


def timeline(latencies_: Any, first_ms: int, step_ms: int) -> Any:
    """Confirmations of each face in each step."""
    step = f"{first_ms} + floor((time_ms - {first_ms}) / {step_ms}) * {step_ms} AS at"
    return latencies_.selectExpr("face", step).groupBy("face", "at").count()
