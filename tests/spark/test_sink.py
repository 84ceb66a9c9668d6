"""Writing with a real Spark to a real server, without faults: every column, every way to deliver, every refusal."""

import json
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Client
from tests.spark.flowing import (
    BINARY,
    contents,
    copied,
    each_once,
    failure,
    filled,
    made,
    name,
    read,
    reading,
    write,
    writing,
)
from tests.spark.serving import Server, proxied


def numbers(spark: Any, count: int, *columns: str) -> Any:
    return spark.range(count).selectExpr("cast(id as string) as value", *columns)


def test_every_column_is_honoured_and_reads_back_over_http(spark: Any, server: Server) -> None:
    topic = made(server.url, name("out"), partitions=4)
    other = made(server.url, name("other"), partitions=1)
    rows = numbers(
        spark,
        1000,
        "case when id % 2 = 0 then cast(concat('k', id % 20) as binary) end as key",
        f"case when id % 10 = 0 then '{other}' end as topic",
        "case when id % 5 = 1 then 3 end as partition",
        "case when id % 3 = 0 then array(named_struct('key', 'h', 'value', cast('x' as binary))) end as headers",
        "timestamp_millis(1700000000000 + id) as timestamp",
    )
    write(rows, server.url, topic)
    by_key: dict[bytes, set[int]] = {}
    found = []
    with Client(server.url) as client:
        for name_, partitions in ((topic, 4), (other, 1)):
            for partition in range(partitions):
                with client.reader(name_, partition=partition, live=False) as reader:
                    for record in reader:
                        number = int(record.value or b"")
                        found.append(number)
                        assert name_ == (other if number % 10 == 0 else topic)
                        assert record.key == (b"k%d" % (number % 20) if number % 2 == 0 else None)
                        assert record.timestamp_ms == 1_700_000_000_000 + number
                        assert record.headers == ((("h", b"x"),) if number % 3 == 0 else ())
                        if name_ == topic and number % 5 == 1:
                            assert partition == 3
                        elif name_ == topic and record.key is not None:
                            by_key.setdefault(record.key, set()).add(partition)
    assert sorted(found) == list(range(1000))
    assert all(len(partitions) == 1 for partitions in by_key.values())
    # And the same through Spark.
    assert read(spark, server.url, f"{topic},{other}").count() == 1000


def test_rows_without_keys_are_spread_and_large_writes_take_many_batches(spark: Any, server: Server) -> None:
    topic = made(server.url, name("out"), partitions=2)
    rows = spark.range(0, 30_000, 1, 3).selectExpr("concat(cast(id as string), ' ', repeat('x', 500)) as value")
    write(rows, server.url, topic)
    back = read(spark, server.url, topic)
    assert back.selectExpr("count(distinct split(cast(value as string), ' ')[0])").collect()[0][0] == 30_000
    assert back.count() == 30_000
    assert back.select("partition").distinct().count() == 2


def test_stream_of_json_takes_json_and_nothing_else(spark: Any, server: Server) -> None:
    topic = made(server.url, name("json"), partitions=1, content_type="application/json")
    write(spark.range(5).selectExpr("to_json(struct(id)) as value"), server.url, topic)
    with Client(server.url) as client, client.reader(topic, live=False) as reader:
        assert sorted(record.json()["id"] for record in reader) == list(range(5))
    with pytest.raises(Exception, match="JSON"):
        write(spark.range(5).selectExpr("'{' as value"), server.url, topic)
    assert read(spark, server.url, topic).count() == 5


def test_topic_is_created_only_if_that_is_asked_for(spark: Any, server: Server) -> None:
    topic = name("new")
    with pytest.raises(Exception, match="createPartitions"):
        write(numbers(spark, 10), server.url, topic)
    write(numbers(spark, 10), server.url, topic, createPartitions=3)
    with Client(server.url) as client:
        assert client.topic(topic).partitions == 3
    assert each_once(server.url, topic, 10)


def test_empty_write_and_failed_write_leave_nothing(spark: Any, server: Server) -> None:
    topic = made(server.url, name("out"))
    write(numbers(spark, 10).where("value = 'x'"), server.url, topic)
    with pytest.raises(Exception, match="raise"):
        write(numbers(spark, 1000).selectExpr("if(value = '999', raise_error('raise'), value) as value"),
              server.url, topic)  # fmt: skip
    assert contents(server.url, topic) == {}


@pytest.mark.parametrize(
    ("columns", "options", "why"),
    [
        (("id as price",), {}, "a sink takes"),
        (("cast(null as string) as message_id",), {}, "no message_id"),
        ((), {"delivery": "direct"}, "message_id"),
        ((), {"delivery": "soon"}, "delivery"),
        ((), {"partition": "7"}, "names partition 7"),
        ((), {"txnAppId": "a"}, "together"),
    ],
)
def test_write_that_cannot_be_done_is_refused(
    spark: Any, server: Server, columns: tuple[str, ...], options: Any, why: str
) -> None:
    topic = made(server.url, name("out"))
    with pytest.raises(Exception, match=why):
        write(numbers(spark, 10, *columns), server.url, topic, **options)
    assert contents(server.url, topic) == {}


def test_overwrite_is_refused(spark: Any, server: Server) -> None:
    topic = made(server.url, name("out"))
    writer = numbers(spark, 10).write.format("oncelog").option("url", server.url).option("topic", topic)
    with pytest.raises(Exception, match="only appended to"):
        writer.mode("overwrite").save()


# --- a numbered series ----------------------------------------------------------------------------------------------


def test_version_is_written_once_and_may_skip_numbers(spark: Any, server: Server) -> None:
    topic, application = made(server.url, name("out")), name("app")
    for version in (3, 3, 2, 10, 9, 10):
        write(numbers(spark, 100), server.url, topic, txnAppId=application, txnVersion=version)
    assert set(contents(server.url, topic).values()) == {2}


def test_older_writer_of_a_series_is_fenced_by_a_newer_one(spark: Any, server: Server) -> None:
    topic, application = made(server.url, name("out")), name("app")

    def newer() -> None:
        with Client(server.url) as client:
            client.open_application(application)

    with proxied(server) as proxy:
        proxy.trap("POST /v1/publish", "before", newer)
        with pytest.raises(Exception, match="newer driver"):
            write(numbers(spark, 100), proxy.url, topic, txnAppId=application, txnVersion=0)
    assert contents(server.url, topic) == {}
    write(numbers(spark, 100), server.url, topic, txnAppId=application, txnVersion=0)
    assert each_once(server.url, topic, 100)


# --- message ids ----------------------------------------------------------------------------------------------------


def test_staged_write_leaves_out_what_is_there_by_its_id(spark: Any, server: Server) -> None:
    """Written by another face, by an earlier write, and twice in one write by several tasks."""
    topic = made(server.url, name("out"), partitions=3)
    ids = "concat('id-', id) as message_id"
    write(numbers(spark, 500, ids), server.url, topic)
    rows = numbers(spark, 1000, ids).repartition(3)
    write(rows.union(rows.limit(50)), server.url, topic)
    assert each_once(server.url, topic, 1000)
    with Client(server.url) as client:
        receipts = [client.receipt(topic, "id-7", partition=partition) for partition in range(3)]
        (receipt,) = [receipt for receipt in receipts if receipt is not None]
        again = client.stream(topic, BINARY).append(b"7", message_id="id-7", partition=receipts.index(receipt))
    assert (again.duplicate, again.offset) == (True, receipt.first)
    kept = read(spark, server.url, topic, includeHeaders="true").where("headers[0].key = 'oncelog.message-id'")
    assert kept.count() == 1000, "the id stays with the record"


def test_staged_write_of_other_content_under_a_known_id_is_refused_whole(spark: Any, server: Server) -> None:
    topic = made(server.url, name("out"))
    write(numbers(spark, 10, "cast(id as string) as message_id"), server.url, topic)
    other = spark.range(5, 15).selectExpr("'7777' as value", "cast(id as string) as message_id")
    with pytest.raises(Exception, match=f"message id '[5-9]' of '{topic}' partition [01] was used for other content"):
        write(other, server.url, topic)
    assert each_once(server.url, topic, 10)


def test_more_ids_than_a_publish_takes_are_refused_with_a_way_out(spark: Any, server: Server) -> None:
    topic = made(server.url, name("out"))
    with pytest.raises(Exception, match="maxOffsetsPerTrigger"):
        write(numbers(spark, 20_001, "cast(id as string) as message_id"), server.url, topic)
    assert contents(server.url, topic) == {}


# --- delivery=direct ------------------------------------------------------------------------------------------------


def test_direct_write_happens_once_per_message_id(spark: Any, server: Server) -> None:
    topic = made(server.url, name("out"), partitions=3)
    ids = "concat('id-', id) as message_id"
    write(numbers(spark, 500, ids), server.url, topic, delivery="direct")
    # Half of these are there; in other pieces, and once more within one write.
    rows = numbers(spark, 1000, ids).repartition(3)
    write(rows.union(rows.limit(50)), server.url, topic, delivery="direct")
    assert each_once(server.url, topic, 1000)
    with Client(server.url) as client:
        receipts = [client.receipt(topic, "id-7", partition=partition) for partition in range(3)]
    assert len([receipt for receipt in receipts if receipt is not None]) == 1


def test_direct_write_of_other_content_under_a_known_id_is_refused(spark: Any, server: Server) -> None:
    topic = made(server.url, name("out"))
    write(numbers(spark, 10, "cast(id as string) as message_id"), server.url, topic, delivery="direct")
    other = spark.range(10).selectExpr("'7777' as value", "cast(id as string) as message_id")
    with pytest.raises(Exception, match="id_conflict"):
        write(other, server.url, topic, delivery="direct")
    assert each_once(server.url, topic, 10)


def test_direct_stream_that_is_killed_in_the_middle_of_a_batch_is_exact(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    source, sink = filled(server.url, name("in"), 0, 4000), made(server.url, name("out"))
    marker = tmp_path / "failed"

    def through(rows: Any) -> Any:
        for number, batch in enumerate(rows):
            yield batch
            if number >= 1 and not marker.exists():
                marker.touch()
                raise RuntimeError("after some of it was written")

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        rows = reading(spark, server.url, source, maxOffsetsPerTrigger=1000).select("value")
        rows = rows.mapInArrow(through, "value binary")
        writing(rows, server.url, sink, tmp_path / "c", "", delivery="direct").start().awaitTermination()
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
    assert marker.exists()
    assert each_once(server.url, sink, 4000)


# --- streaming ------------------------------------------------------------------------------------------------------


def test_source_ends_are_stored_with_the_batch(spark: Any, server: Server, tmp_path: Path) -> None:
    source, sink, application = filled(server.url, name("in"), 0, 100), made(server.url, name("out")), name("app")
    copied(spark, server.url, source, sink, tmp_path / "c", application)
    with Client(server.url) as client:
        held = client.application(application)
    assert held is not None
    with Client(server.url) as client:
        created_ms = client.topic(source).created_ms
    assert json.loads(held.source_end) == {"sources": {"0": {source: {"0": 50, "1": 50, "created": created_ms}}}}
    assert read(spark, server.url, source, startingOffsets=f"group:{application}").count() == 0


def test_stream_that_cannot_be_exact_is_refused(spark: Any, server: Server, tmp_path: Path) -> None:
    source, sink = filled(server.url, name("in"), 0, 100), made(server.url, name("out"))
    rows = reading(spark, server.url, source).select("value")
    # Spark itself refuses this one for Python sinks; ours is the second lock.
    writer = writing(rows, server.url, sink, tmp_path / "c", "app", asyncProgressTrackingEnabled="true")
    with pytest.raises(Exception, match="async progress tracking"):
        writer.trigger(processingTime="1 second").start()
    writer = writing(rows, server.url, "", tmp_path / "d", "app")
    with pytest.raises(Exception, match="neither an option topic"):
        writer.start().awaitTermination()
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "all"))
    try:
        writer = rows.writeStream.format("oncelog").option("url", server.url).option("topic", sink)
        with pytest.raises(Exception, match="give it as an option of the writer"):
            writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert contents(server.url, sink) == {}


def test_output_mode_update_is_refused(spark: Any, server: Server, tmp_path: Path) -> None:
    source, sink = filled(server.url, name("in"), 0, 100), made(server.url, name("out"))
    counts = reading(spark, server.url, source).groupBy("key").count().selectExpr("cast(count as string) as value")
    # Spark itself, before the sink is asked: if this changes, so must the advice and docs/spark.md.
    with pytest.raises(Exception, match="does not support Update mode"):
        writing(counts, server.url, sink, tmp_path / "c", "app").outputMode("update").start().awaitTermination()
    assert contents(server.url, sink) == {}


def test_output_mode_complete_appends_the_whole_result_with_each_batch(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    source, sink = filled(server.url, name("in"), 0, 100), made(server.url, name("out"), partitions=1)
    rows = reading(spark, server.url, source, maxOffsetsPerTrigger=50)
    counts = rows.groupBy().count().selectExpr("cast(count as string) as value")
    writing(counts, server.url, sink, tmp_path / "c", name("app")).outputMode("complete").start().awaitTermination()
    assert contents(server.url, sink) == {50: 1, 100: 1}


def test_restart_in_one_session_keeps_the_fence_and_a_failed_run_takes_a_new_one(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    source, sink, application = filled(server.url, name("in"), 0, 100), made(server.url, name("out")), name("app")
    for _ in range(2):
        copied(spark, server.url, source, sink, tmp_path / "c", application)
        with Client(server.url) as client:
            held = client.application(application)
            assert held is not None
            assert held.fence == 1
    filled(server.url, source, 100, 200)
    with Client(server.url) as client:
        client.open_application(application)  # another driver takes over
    assert "newer driver" in failure(spark, server.url, source, sink, tmp_path / "c", application)
    assert each_once(server.url, sink, 100)
    copied(spark, server.url, source, sink, tmp_path / "c", application)
    assert each_once(server.url, sink, 200)


def test_aggregate_in_update_mode_is_written_by_foreach_batch(spark: Any, server: Server, tmp_path: Path) -> None:
    source, sink = filled(server.url, name("in"), 0, 1000), made(server.url, name("out"), partitions=1)
    rows = reading(spark, server.url, source, maxOffsetsPerTrigger=250)
    counts = rows.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
    # Spark gives Python sinks no update mode; a numbered write of each batch has it.
    application = name("app")
    writer = counts.writeStream.foreachBatch(
        lambda batch, number: write(batch, server.url, sink, txnAppId=application, txnVersion=number)
    )
    writer = writer.option("checkpointLocation", str(tmp_path / "c")).outputMode("update")
    writer.trigger(availableNow=True).start().awaitTermination()
    last: dict[bytes | None, int] = {}
    with Client(server.url) as client, client.reader(sink, live=False) as reader:
        for record in reader:
            last[record.key] = int(record.value or b"")
    assert last == {b"k%d" % number: 100 for number in range(10)}
