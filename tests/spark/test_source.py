"""Reading with a real Spark from a real server: every column, every place to begin, every limit."""

import json
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Client, CommitAppend, PublishStage
from tests.spark.flowing import BINARY, filled, made, name, read, reading
from tests.spark.serving import Server

START_MS = 1_700_000_000_123


@pytest.fixture(scope="module")
def rich(server: Server) -> str:
    """300 records in 3 partitions with nulls, headers and times."""
    topic = name("rich")
    with Client(server.url) as client:
        client.create_topic(topic, partitions=3, content_type=BINARY)
        with client.producer(topic, BINARY, producer_id="p", raw_batches=True) as producer:
            for number in range(300):
                producer.append(
                    None if number % 50 == 49 else b"\x00v%d" % number,
                    key=None if number % 4 == 0 else b"k%d" % number,
                    headers={"a": b"\xff", "b": None} if number % 3 == 0 else None,
                    timestamp_ms=START_MS + number,
                    partition=number % 3,
                )
    return topic


def values(rows: Any) -> list[int]:
    return sorted(int(row.value) for row in rows.select("value").collect())


def test_every_column_comes_as_it_was_written(spark: Any, server: Server, rich: str) -> None:
    rows = read(spark, server.url, rich, includeHeaders="true")
    assert rows.dtypes == [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint"),
        ("timestamp", "timestamp"), ("timestampType", "int"), ("headers", "array<struct<key:string,value:binary>>"),
    ]  # fmt: skip
    found = rows.selectExpr("*", "unix_millis(timestamp) as ms").orderBy("offset", "partition").collect()
    assert len(found) == 300
    for number, row in enumerate(found):
        assert (row.topic, row.partition, row.offset) == (rich, number % 3, number // 3)
        assert row.value == (None if number % 50 == 49 else b"\x00v%d" % number)
        assert row.key == (None if number % 4 == 0 else b"k%d" % number)
        assert (row.ms, row.timestampType) == (START_MS + number, 0)
        headers = [(header.key, header.value) for header in row.headers]
        assert headers == ([("a", b"\xff"), ("b", None)] if number % 3 == 0 else [])


def test_columns_narrow_the_schema_and_keep_their_order(spark: Any, server: Server, rich: str) -> None:
    rows = read(spark, server.url, rich, columns="offset, Key")
    assert rows.columns == ["offset", "key"]
    assert rows.selectExpr("sum(offset)", "count(key)").collect()[0] == (3 * 99 * 50, 225)


def test_partitions_are_cut_as_asked_for_and_hold_the_same(spark: Any, server: Server, rich: str) -> None:
    assert read(spark, server.url, rich).rdd.getNumPartitions() == 3
    for options, at_least in (({"minPartitions": 10}, 10), ({"maxRecordsPerPartition": 7}, 43)):
        rows = read(spark, server.url, rich, **options)
        assert rows.rdd.getNumPartitions() >= at_least
        assert rows.select("partition", "offset").distinct().count() == rows.count() == 300


def test_read_between_moments(spark: Any, server: Server) -> None:
    """A cut of earlier, and times of the server's clock, for all streams or for each."""
    topic = name("moments")
    with Client(server.url) as client:
        client.create_topic(topic, partitions=2, content_type=BINARY)
        for partition in (0, 1):
            client.stream(topic, BINARY).append(b"1", partition=partition)
        cut = client.cut(topic)
        then_ms = cut.time_ms + 1
        while client.cut(topic).time_ms <= then_ms:
            pass  # the next records belong to a later millisecond
        client.stream(topic, BINARY).append(b"2", partition=1)

    def found(**options: object) -> list[int]:
        return values(read(spark, server.url, topic, **options))

    assert found(endingOffsets=f"cut:{cut.entry}") == [1, 1]
    assert found(startingOffsets=f"cut:{cut.entry}") == [2]
    assert found(endingTimestamp=then_ms) == [1, 1]
    assert found(startingTimestamp=then_ms, startingOffsetsByTimestampStrategy="latest") == [2]
    assert found(startingOffsetsByTimestamp=json.dumps({topic: {"0": 0, "1": then_ms}})) == [1, 2]
    assert found(endingOffsetsByTimestamp=json.dumps({topic: {"0": 0, "1": then_ms}})) == [1]
    with Client(server.url) as client:
        client.trim(topic, 2, partition=1)
    with pytest.raises(Exception, match="were trimmed"):
        found(startingOffsets=f"cut:{cut.entry}")
    assert found(startingOffsets=f"cut:{cut.entry}", failOnDataLoss="false") == []


def test_read_begins_and_ends_where_it_is_told(spark: Any, server: Server, rich: str) -> None:
    def count(**options: object) -> int:
        return int(read(spark, server.url, rich, **options).count())

    start = json.dumps({rich: {"0": 10, "1": -2, "2": 100}})
    end = json.dumps({rich: {"0": 20, "1": 5, "2": -1}})
    assert count(startingOffsets=start) == 90 + 100 + 0
    assert count(startingOffsets=start, endingOffsets=end) == 10 + 5 + 0
    assert count(startingOffsets=f"group:{name('nobody')}") == 300
    rows = spark.read.format("oncelog").option("servers", server.address).option("assign", json.dumps({rich: [2]}))
    assert rows.load().select("partition").distinct().collect() == [(2,)]
    rows = spark.read.format("oncelog").option("url", server.url).option("subscribePattern", f"{rich[:6]}.*")
    assert rows.load().count() == 300


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"startingOffsets": '{"x": {"0": 1}}'}, "says nothing of"),
        ({"startingOffsets": "latest"}, "cannot begin at the end"),
        ({"startingOffsets": "cut:x"}, "entry number"),
        ({"startingTimestamp": "x"}, "is a number"),
        ({"startingTimestamp": "4900000000000"}, "no record as new"),
        ({"endingOffsets": "cut:999999999999"}, "not there yet"),
        ({"subscribe": "nowhere"}, "does not exist"),
        ({"columns": "prize"}, "prize"),
    ],
)
def test_what_cannot_be_read_is_said(spark: Any, server: Server, rich: str, options: Any, why: str) -> None:
    with pytest.raises(Exception, match=why):
        read(spark, server.url, options.pop("subscribe", rich), **options).count()


def test_trimmed_records_are_a_failure_unless_they_may_be_lost(spark: Any, server: Server) -> None:
    topic = filled(server.url, name("trimmed"), 0, 100, partitions=1)
    with Client(server.url) as client:
        client.trim(topic, 30)
        client.delete_records(topic, [(40, 45), (99, 100)])
    start = json.dumps({topic: {"0": 10}})
    with pytest.raises(Exception, match="failOnDataLoss"):
        read(spark, server.url, topic, startingOffsets=start).count()
    expected = [*range(30, 40), *range(45, 99)]
    assert values(read(spark, server.url, topic, startingOffsets=start, failOnDataLoss="false")) == expected
    # Holes are no loss: nobody can have them.
    assert values(read(spark, server.url, topic)) == expected


def test_compressed_and_large_batches_are_read(spark: Any, server: Server) -> None:
    topic = name("large")
    with Client(server.url) as client:
        client.create_topic(topic, content_type=BINARY)
        with client.producer(topic, BINARY, producer_id="p", raw_batches=True) as producer:
            for number in range(40):
                producer.append(b"%d " % number + bytes(1_000_000))
    rows = read(spark, server.url, topic, minPartitions=3)
    assert rows.selectExpr("sum(length(value))").collect()[0][0] == sum(len(b"%d " % n) + 1_000_000 for n in range(40))


# --- streaming ----------------------------------------------------------------------------------------------------


def batches(rows: Any, checkpoint: Path) -> list[list[Any]]:
    """What each batch of the query holds, to the end of the source."""
    found: list[list[Any]] = []
    query = rows.writeStream.foreachBatch(lambda batch, _: found.append(batch.collect()))
    query = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return [batch for batch in found if batch]


def test_limit_in_offsets_is_met_exactly_and_a_restart_goes_on(spark: Any, server: Server, tmp_path: Path) -> None:
    topic = filled(server.url, name("in"), 0, 1000, partitions=3)
    rows = reading(spark, server.url, topic, maxOffsetsPerTrigger=300)
    assert [len(batch) for batch in batches(rows, tmp_path / "c")] == [300, 300, 300, 100]
    assert batches(rows, tmp_path / "c") == []
    filled(server.url, topic, 1000, 1500, partitions=3)
    later = batches(rows, tmp_path / "c")
    assert sorted(int(row.value) for batch in later for row in batch) == list(range(1000, 1500))


def test_limit_in_bytes_is_met_about(spark: Any, server: Server, tmp_path: Path) -> None:
    topic = name("in")
    with Client(server.url) as client:
        client.create_topic(topic, content_type=BINARY)
        with client.producer(topic, BINARY, producer_id="p", raw_batches=True) as producer:
            for _ in range(1000):
                producer.append(bytes(1000))
    found = batches(reading(spark, server.url, topic, maxBytesPerTrigger=250_000), tmp_path / "c")
    assert sum(len(batch) for batch in found) == 1000
    assert 200 < len(found[0]) < 260
    both = reading(spark, server.url, topic, maxBytesPerTrigger=250_000, maxOffsetsPerTrigger=10_000)
    assert 200 < len(batches(both, tmp_path / "d")[0]) < 260


def test_available_now_reads_what_is_there_and_ends(spark: Any, server: Server, tmp_path: Path) -> None:
    topic = filled(server.url, name("in"), 0, 100)
    seen = []

    def grow(batch: Any, number: int) -> None:
        seen.append(batch.count())
        if number == 0:
            filled(server.url, topic, 100, 200)

    rows = reading(spark, server.url, topic, maxOffsetsPerTrigger=60)
    writer = rows.writeStream.foreachBatch(grow).option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert seen == [60, 40]
    assert sum(len(batch) for batch in batches(rows, tmp_path / "c")) == 100


def test_processing_time_trigger_follows_new_partitions(spark: Any, server: Server, tmp_path: Path) -> None:
    topic = filled(server.url, name("in"), 0, 10)
    found: list[int] = []
    rows = reading(spark, server.url, topic, startingOffsets="latest")
    writer = rows.writeStream.foreachBatch(lambda batch, _: found.extend(int(row.value) for row in batch.collect()))
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(processingTime="200 milliseconds").start()
    try:
        query.processAllAvailable()
        filled(server.url, topic, 10, 20)
        query.processAllAvailable()
        assert sorted(found) == list(range(10, 20))
        with Client(server.url) as client:
            client.grow_topic(topic, 3)
            client.append(topic, b"20", content_type=BINARY, partition=2)
        query.processAllAvailable()
        assert sorted(found) == list(range(10, 21))
        source = json.loads(query.lastProgress.json)["sources"][0]
        assert source["endOffset"][topic]["2"] == 1
        assert source["latestOffset"][topic]["2"] == 1
    finally:
        query.stop()


def test_journaled_range_that_was_trimmed_since_is_a_failure(spark: Any, server: Server, tmp_path: Path) -> None:
    topic = filled(server.url, name("in"), 0, 100, partitions=1)
    rows = reading(spark, server.url, topic, maxOffsetsPerTrigger=40)

    def fail(_batch: Any, number: int) -> None:
        if number == 1:
            raise RuntimeError("the driver dies in batch 1")

    writer = rows.writeStream.foreachBatch(fail).option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(Exception, match="dies in batch 1"):
        writer.trigger(availableNow=True).start().awaitTermination()
    with Client(server.url) as client:
        client.trim(topic, 50)
    with pytest.raises(Exception, match="failOnDataLoss"):
        batches(rows, tmp_path / "c")
    tolerant = reading(spark, server.url, topic, maxOffsetsPerTrigger=40, failOnDataLoss="false")
    assert [int(row.value) for batch in batches(tolerant, tmp_path / "c") for row in batch] == list(range(50, 100))


# --- nothing is torn, nothing unpublished is seen -------------------------------------------------------------------


def test_commit_over_two_topics_is_never_torn_in_one_unlimited_read(spark: Any, server: Server) -> None:
    import threading

    left, right = made(server.url, name("left"), partitions=1), made(server.url, name("right"), partitions=1)
    stop = threading.Event()
    written = 0

    def commit() -> None:
        nonlocal written
        with Client(server.url) as client:
            while not stop.is_set():
                client.commit([CommitAppend(topic, [b"%d" % written]) for topic in (left, right)])
                written += 1

    writer = threading.Thread(target=commit)
    writer.start()
    try:
        for _ in range(8):
            rows = read(spark, server.url, f"{left},{right}", columns="topic,value")
            counts = {row.topic: row.n for row in rows.groupBy("topic").agg({"value": "count"})
                      .withColumnRenamed("count(value)", "n").collect()}  # fmt: skip
            assert len(set(counts.values())) <= 1, counts
    finally:
        stop.set()
        writer.join()
    assert written > 0


def test_stage_that_was_never_published_is_never_seen(spark: Any, server: Server) -> None:
    topic = made(server.url, name("staged"), partitions=1)
    with Client(server.url) as client:
        owner = name("app")
        fence = client.open_application(owner).fence
        stage = client.open_stage(owner, fence)
        staged = client.stage_records(stage.stage_id, 0, [b"1", b"2"])
        assert read(spark, server.url, topic).count() == 0
        client.publish(owner, fence, "q", 0, [PublishStage(stage.stage_id, topic, staged.count)])
    assert values(read(spark, server.url, topic)) == [1, 2]
