"""`_unparsed` holds the bytes of every value that is not exactly one JSON object of the schema, and of no other."""

from pathlib import Path
from typing import Any

import pytest

from oncelog import pipelines
from tests.pipelines.topics import name, raw, table_rows
from tests.spark.serving import Server

SCHEMA = "id bigint, s string, n struct<a:int>"

FITTING: list[tuple[bytes, int | None]] = [
    (b'{"id":1}', 1),
    (b'  {"id":2}\n ', 2),
    (b"{}", None),
    (b'{"id":3,"s":"\xc3\xa9","n":{"a":1}}', 3),
    (b'{"s":"} , {","id":4}', 4),
]
NOT_FITTING: list[tuple[bytes, int | None]] = [
    (b'{"id":2', None),
    (b"not json", None),
    (b"", None),
    (b"17", None),
    (b"null", None),
    (b'[{"id":16}]', None),
    (b'{"id":4}{"id":5}', None),
    (b'{"id":7} x', None),
    (b'{"id":8}]', None),
    (b'{"id":8}}', None),
    (b'{"id":18}\x00', None),
    (b'\xef\xbb\xbf{"id":19}', None),
    (b"{'id':12}", None),
    (b'{"id":NaN}', None),
    (b'{"m":1,"id":23},"m":1} junk', None),
    # Of these the fields that can be read are read.
    (b'{"id":6,"extra":true}', 6),
    (b'{"id":9,"id":10}', 10),
    (b'{"id":11,"s":"\xff"}', 11),
    (b'{"id":"x"}', None),
    (b'{"id":1.5}', None),
    (b'{"id":99999999999999999999}', None),
    (b'{"id":13,"n":{"a":"q"}}', 13),
    (b'{"id":14,"n":{"a":1,"a":2}}', 14),
]


def test_land_keeps_the_bytes_of_everything_that_does_not_fit_and_audit_counts_the_same(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    cases = FITTING + NOT_FITTING
    topic, table = raw(server.url, name("odd"), [value for value, _ in cases]), str(tmp_path / "table")
    done = pipelines.land(spark, url=server.url, topic=topic, table=table, schema=SCHEMA)
    assert (done.output_rows, done.unparsed) == (len(cases), len(NOT_FITTING))
    rows = sorted(table_rows(tmp_path / "table"), key=lambda row: int(row["_offset"]))
    kept = [value for value, _ in NOT_FITTING]
    assert [row["_unparsed"] for row in rows] == [None] * len(FITTING) + kept
    assert [row["id"] for row in rows if row["_unparsed"] is None] == [number for _, number in FITTING]
    read = [row["id"] for row in rows if row["_unparsed"] is not None]
    assert [found for found, (_, wanted) in zip(read, NOT_FITTING, strict=True) if found != wanted] == []
    audit = pipelines.audit(url=server.url, topics=[topic], table=table, spark=spark)
    assert audit.sound, audit.examples
    assert audit.topics[0].table_unparsed == len(NOT_FITTING)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([b'{"Id":1,"n":2}', b'{"id":1}'], r"differ only in case.*--schema '`Id` bigint, `n` bigint'"),
        ([b'{"a":{"X":1,"x":2}}'], r"differ only in case.*--schema '`a` struct<X:bigint>'"),
        ([b"no json"], "no value of the first 10,000 records is a JSON object with a field"),
    ],
)
def test_land_refuses_an_inferred_schema_that_makes_no_readable_table_before_it_makes_one(
    spark: Any, server: Server, tmp_path: Path, values: list[bytes], says: str
) -> None:
    topic, table = raw(server.url, name("schema"), values), tmp_path / "table"
    with pytest.raises(pipelines.PipelineRefused, match=says):
        pipelines.land(spark, url=server.url, topic=topic, table=str(table))
    assert not table.exists()
