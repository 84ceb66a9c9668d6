"""New columns come into a table in a commit of their own, before the first row that fills them."""

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from oncelog import pipelines
from oncelog.pipelines.landing import lake_of
from oncelog.pipelines.parquet_lake import ParquetLake
from tests.pipelines.topics import name, raw
from tests.spark.serving import Server


def rows_of(spark: Any, table: Path) -> list[dict[str, Any]]:
    from oncelog.pipelines.audit_queries import table_of

    lake = lake_of(str(table))
    return [row.asDict() for row in table_of(spark, lake, lake.schema()).orderBy("_offset").collect()]


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_column_is_added_once_and_old_rows_have_it_as_null(
    spark: Any, server: Server, tmp_path: Path, form: Any
) -> None:
    topic, table = raw(server.url, name("evolves"), [b'{"id":1}', b'{"id":2,"more":"x"}']), tmp_path / "table"
    landed: dict[str, Any] = {"url": server.url, "topic": topic, "table": str(table), "format": form}
    assert pipelines.land(spark, schema="id bigint", **landed).unparsed == 1
    raw(server.url, topic, [b'{"id":3,"more":"y","tags":["a"]}', b'{"ID":4}'])
    assert pipelines.land(spark, **landed).unparsed == 2
    raw(server.url, topic, [b'{"id":5,"more":"z","tags":["b"]}', b'{"ID":6}'])
    for _ in range(2):
        # The second run finds the columns and adds nothing.
        pipelines.land(spark, evolve="add", **landed)
    assert pipelines.land(spark, evolve="add", schema="id bigint, price double", **landed).batches == 0
    found = rows_of(spark, table)
    assert [(row["id"], row["more"], row["tags"], row["price"]) for row in found] == [
        (1, None, None, None),
        (2, None, None, None),
        (3, None, None, None),
        (None, None, None, None),
        (5, "z", ["b"], None),
        (None, None, None, None),
    ]
    kept = [row["_unparsed"] and bytes(row["_unparsed"]) for row in found]
    assert kept == [None, b'{"id":2,"more":"x"}', b'{"id":3,"more":"y","tags":["a"]}', b'{"ID":4}', None, b'{"ID":6}']
    audit = pipelines.audit(url=server.url, topics=[topic], table=str(table), spark=spark)
    assert audit.sound, audit.examples
    if form == "delta":
        added = [commit["oncelog.added"] for commit in DeltaTable(str(table)).history() if "oncelog.added" in commit]
    else:
        lake = ParquetLake(str(table))
        added = [note for path in lake._numbered() if (note := lake._read(path).note.get("oncelog.added"))][::-1]
    assert added == ["price", "more, tags"]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("id string", "the column 'id' is bigint in the table, and string was given"),
        ("n struct<a:int,b:int>", "nothing is added within it"),
        ("Id bigint", "the table has 'id', and names that differ only in case"),
    ],
)
def test_what_a_table_cannot_take_says_why(spark: Any, server: Server, tmp_path: Path, schema: str, says: str) -> None:
    topic, table = raw(server.url, name("fixed"), [b"{}"]), tmp_path / "table"
    landed: dict[str, Any] = {"url": server.url, "topic": topic, "table": str(table)}
    pipelines.land(spark, schema="id bigint, n struct<a:int>", **landed)
    with pytest.raises(pipelines.PipelineRefused, match=says):
        pipelines.land(spark, schema=schema, evolve="add", **landed)
    with pytest.raises(pipelines.PipelineRefused, match="Columns are added with --evolve add"):
        pipelines.land(spark, schema="id bigint, n struct<a:int>, x int", **landed)


def test_audit_still_sees_a_row_that_says_something_else(spark: Any, server: Server, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    topic, table = raw(server.url, name("differs"), [b'{"id":1}', b'{"id":2,"x":1}']), tmp_path / "table"
    landed: dict[str, Any] = {"url": server.url, "topic": topic, "table": str(table), "format": "parquet"}
    pipelines.land(spark, schema="id bigint", **landed)
    (file,) = table.glob("*.parquet")
    rows = pq.read_table(file)
    changed = [value and json.dumps({"id": 3}).encode() for value in rows.column("_unparsed").to_pylist()]
    at = rows.schema.get_field_index("_unparsed")
    pq.write_table(rows.set_column(at, rows.schema.field(at), [changed]), file)
    audit = pipelines.audit(url=server.url, topics=[topic], table=str(table), spark=spark)
    assert audit.topics[0].table_conflicting == 1
