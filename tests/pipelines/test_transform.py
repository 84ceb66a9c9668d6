"""What SQL or a function makes of topics is in the target once, joins and aggregates included."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from oncelog import pipelines
from oncelog.client import Client
from oncelog.pipelines.transforming import view_name
from tests.pipelines.topics import documents, filled, name, numbers, raw, values
from tests.spark.serving import Server

SCHEMA = "id string, n int, kind string"


def transforming(spark: Any, server: Server, folder: Path, **options: Any) -> pipelines.PipelineResult:
    given = {"checkpoint": str(folder / "checkpoint"), "application": options["target"], "partitions": 2, **options}
    return pipelines.transform(spark, url=server.url, **given)


def test_sql_over_parsed_values_writes_each_result_once(spark: Any, server: Server, tmp_path: Path) -> None:
    source, target = filled(server.url, name("numbers-in"), numbers(0, 300)), name("even")
    sql = f"SELECT id AS key, n, kind, _offset FROM {view_name(source)} WHERE n % 2 = 0"
    options = {"topics": [source], "target": target, "sql": sql, "schemas": {source: SCHEMA}}
    told: list[pipelines.Progress] = []
    done = transforming(spark, server, tmp_path, max_offsets_per_trigger=100, progress=told.append, **options)
    assert (done.input_rows, done.output_rows, done.batches, done.lag) == (300, 150, 3, 0)
    assert [progress.total_input_rows for progress in told if progress.stage == "done"] == [100, 200, 300]
    filled(server.url, source, numbers(300, 310))
    assert transforming(spark, server, tmp_path, **options).output_rows == 5
    # A lost checkpoint goes on from what the server holds.
    filled(server.url, source, numbers(310, 320))
    options["checkpoint"] = str(tmp_path / "fresh")
    assert transforming(spark, server, tmp_path, **options).output_rows == 5
    found = documents(server.url, target)
    assert sorted(record["n"] for record in found) == list(range(0, 320, 2))
    assert set(found[0]) == {"n", "kind", "_offset"}
    with Client(server.url) as client, client.reader(target, live=False) as reader:
        assert all(record.key == b"n%d" % record.json()["n"] for record in reader)


def test_function_gets_raw_columns_where_there_is_no_schema(spark: Any, server: Server, tmp_path: Path) -> None:
    source, target = raw(server.url, name("raw"), [b"a", b"b", b"\xff"]), name("copied")

    def doubled(topics: dict[str, Any]) -> Any:
        return topics[source].selectExpr("value", "topic AS origin").union(topics[source].selectExpr("value", "topic"))

    done = transforming(spark, server, tmp_path, topics=[source], target=target, function=doubled)
    assert (done.output_rows, Counter(values(server.url, target))) == (6, Counter({b"a": 2, b"b": 2, b"\xff": 2}))


def test_result_that_hands_everything_through_goes_to_the_target(spark: Any, server: Server, tmp_path: Path) -> None:
    source, target = filled(server.url, name("source"), numbers(0, 10), partitions=3), name("target")
    sql = f"SELECT * FROM {view_name(source)}"
    transforming(spark, server, tmp_path, topics=[source], target=target, sql=sql, partitions=1)
    assert sorted(values(server.url, target)) == sorted(values(server.url, source))
    # A topic that the query works out is meant.
    other, sql = name("other"), f"SELECT value, '{target}' AS topic FROM {view_name(source)}"
    folder = tmp_path / "steered"
    transforming(spark, server, folder, topics=[source], target=other, sql=sql, partitions=1)
    assert len(values(server.url, target)) == 20


def at(second: int) -> str:
    return f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}Z"


def test_streams_are_joined_within_their_watermark(spark: Any, server: Server, tmp_path: Path) -> None:
    orders = filled(server.url, name("orders"), [{"id": f"o{n}", "at": at(n), "amount": n} for n in range(100)])
    paid = [{"order": f"o{n}", "at": at(n + 5)} for n in range(0, 100, 4)]
    payments, target = filled(server.url, name("payments"), paid), name("joined")
    left, right = view_name(orders), view_name(payments)
    sql = (
        f"SELECT o.id, o.amount FROM {left} o JOIN {right} p ON o.id = p.`order` "
        "AND p.at BETWEEN o.at AND o.at + INTERVAL 1 MINUTE"
    )
    schemas = {orders: "id string, at timestamp, amount int", payments: "`order` string, at timestamp"}
    options = {"schemas": schemas, "target": target, "sql": sql, "event_time": "at", "watermark": "10 minutes"}
    done = transforming(spark, server, tmp_path, max_offsets_per_trigger=40, **options)
    assert done.output_rows == 25
    # Payments of another run meet orders that the state has kept.
    filled(server.url, payments, [{"order": "o1", "at": at(20)}])
    assert transforming(spark, server, tmp_path, **options).output_rows == 1
    assert sorted(record["amount"] for record in documents(server.url, target)) == sorted([*range(0, 100, 4), 1])


def test_windows_are_written_when_the_watermark_closes_them(spark: Any, server: Server, tmp_path: Path) -> None:
    events = [{"kind": f"k{n % 2}", "at": at(n)} for n in range(240)]
    source, target = filled(server.url, name("events"), events, partitions=1), name("windows")
    sql = (
        f"SELECT kind AS key, kind, date_format(window.start, 'mm:ss') AS start, count(*) AS n "
        f"FROM {view_name(source)} GROUP BY kind, window(at, '1 minute')"
    )
    schemas = {source: "kind string, at timestamp"}
    options = {"schemas": schemas, "target": target, "sql": sql, "event_time": "at", "watermark": "30 seconds"}
    transforming(spark, server, tmp_path, max_offsets_per_trigger=120, **options)
    # The last event is at 3:59 and may be half a minute late: three windows are closed.
    found = {(record["kind"], record["start"]): record["n"] for record in documents(server.url, target)}
    assert found == {(kind, start): 30 for kind in ("k0", "k1") for start in ("00:00", "01:00", "02:00")}
    assert len(documents(server.url, target)) == 6
    filled(server.url, source, [{"kind": "k0", "at": at(600)}], partitions=1)
    transforming(spark, server, tmp_path, **options)
    assert len(documents(server.url, target)) == 8


def test_record_that_is_not_json_is_seen_by_the_query(spark: Any, server: Server, tmp_path: Path) -> None:
    source, target = raw(server.url, name("mixed"), [b'{"n": 1}', b"broken"]), name("broken")
    sql = f"SELECT _unparsed AS value FROM {view_name(source)} WHERE _unparsed IS NOT NULL"
    transforming(spark, server, tmp_path, schemas={source: "n int"}, target=target, sql=sql)
    assert values(server.url, target) == [b"broken"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "either sql or a function"),
        ({"sql": "SELECT 1", "function": print}, "either sql or a function"),
        ({"sql": "SELECT 1", "event_time": "at"}, "given together"),
        ({"sql": "SELECT nothing FROM nowhere"}, "Spark does not take the query"),
        ({"sql": "SELECT 1", "schemas": {"other": "n int"}}, "not among the topics"),
        ({"sql": "SELECT 1", "partitions": 0}, "there is no topic"),
        ({"function": lambda topics: None}, "to return a DataFrame, and returned NoneType"),
        ({"sql": "SELECT 1", "event_time": "absent", "watermark": "1 minute"}, "no topic has the event time"),
    ],
)
def test_bad_input_is_refused_before_a_query_starts(
    spark: Any, server: Server, tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    source = raw(server.url, name("source"), [])
    with pytest.raises(pipelines.PipelineRefused, match=says):
        transforming(spark, server, tmp_path, **{"topics": [source], "target": name("t"), **options})


def test_topic_that_feeds_on_itself_is_refused(spark: Any, server: Server, tmp_path: Path) -> None:
    topic = raw(server.url, name("loop"), [])
    with pytest.raises(pipelines.PipelineRefused, match="its own output"):
        transforming(spark, server, tmp_path, topics=[topic], target=topic, sql="SELECT 1")


def test_view_has_a_name_that_sql_takes() -> None:
    assert [view_name(topic) for topic in ("orders", "eu/orders-1", "1st", "ü")] == [
        "orders",
        "eu_orders_1",
        "_1st",
        "_",
    ]


def test_package_is_imported_without_spark() -> None:
    import subprocess
    import sys

    program = "import sys, oncelog.pipelines; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", f"import json; {program}"], capture_output=True, check=True)
    assert "pyspark" not in json.loads(done.stdout)
