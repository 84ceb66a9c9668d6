"""A topic that is deleted and made again is another one, however long it is: its offsets mean other records."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from oncelog.client import Client
from oncelog.spark import source_end
from oncelog.spark.options import Places, places_of, read_options, told_places
from oncelog.spark.planning import OffsetLost
from oncelog.spark.reader import BatchReader, Split, StreamReader
from tests.spark.flowing import copied, failure, filled, made, name, reading, writing
from tests.spark.serving import Server

ALL = ReadAllAvailable()


def stream_reader(server: Server, topic: str, **options: str) -> StreamReader:
    return StreamReader(read_options({"url": server.url, "subscribe": topic, **options}))


def anew(server: Server, topic: str, first: int, next_: int, **options: int) -> None:
    """Deletes the topic and makes it again, with other numbers."""
    with Client(server.url) as client:
        client.delete_topic(topic)
    filled(server.url, topic, first, next_, **options)


def numbers(reader: StreamReader | BatchReader, splits: Any) -> list[int]:
    rows = [row for split in splits for batch in reader.read(split) for row in batch.column("value").to_pylist()]
    return sorted(int(row) for row in rows)


@pytest.mark.parametrize("longer", [True, False])
def test_running_query_refuses_a_topic_that_was_made_anew(server: Server, longer: bool) -> None:
    topic = filled(server.url, name("anew"), 0, 100)
    reader = stream_reader(server, topic)
    end = reader.latestOffset({}, ALL)
    anew(server, topic, 1000, 1400 if longer else 1010)
    with pytest.raises(OffsetLost, match=r"deleted and created again.*failOnDataLoss=false"):
        reader.latestOffset(end, ALL)
    # A batch that was journaled before is of the old topic too.
    with pytest.raises(OffsetLost, match="deleted and created again"):
        reader.partitions({}, end)
    reader.stop()


@pytest.mark.parametrize("limit", [ALL, ReadMaxRows(50), ReadMaxBytes(500)])
@pytest.mark.parametrize("count", [400, 10])
def test_where_loss_is_accepted_the_new_topic_is_read_from_its_start(
    server: Server, limit: Any, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    topic = filled(server.url, name("anew"), 0, 100)
    reader = stream_reader(server, topic, failOnDataLoss="false")
    old = reader.latestOffset({}, ALL)
    anew(server, topic, 1000, 1000 + count)
    assert reader.partitions({}, old) == [], "what was journaled is gone"
    start, found = old, []
    while (end := reader.latestOffset(start, limit)) != start:
        found += numbers(reader, reader.partitions(start, end))
        start = end
    assert sorted(found) == list(range(1000, 1000 + count))
    assert "begins at the start of the new one" in caplog.text
    reader.stop()


def test_checkpoint_that_does_not_tell_the_topic_is_taken_and_tells_it_with_the_next_batch(server: Server) -> None:
    topic = filled(server.url, name("old"), 0, 100)
    reader = stream_reader(server, topic)
    old = {topic: {"0": 20, "1": 20}}
    end = reader.latestOffset(old, ALL)
    assert end == {topic: {"0": 50, "1": 50, "created": end[topic]["created"]}}
    assert numbers(reader, reader.partitions(old, end)) == list(range(40, 100))
    anew(server, topic, 1000, 1400)
    with pytest.raises(OffsetLost, match="created again"):
        reader.latestOffset(end, ALL)
    reader.stop()


def test_task_that_was_planned_before_reads_nothing_of_the_new_topic(server: Server) -> None:
    topic = filled(server.url, name("anew"), 0, 100, partitions=1)
    batch = BatchReader(read_options({"url": server.url, "subscribe": topic}))
    splits = batch.partitions()
    assert all(isinstance(split, Split) for split in splits)
    anew(server, topic, 1000, 1400, partitions=1)
    with pytest.raises(OffsetLost, match="while it was read"):
        numbers(batch, splits)


def test_places_that_were_told_with_their_topic_are_held_to_it(server: Server) -> None:
    """Offsets copied from a query's progress, as startingOffsets of another one."""
    topic = filled(server.url, name("anew"), 0, 100, partitions=1)
    query = stream_reader(server, topic)
    told = json.dumps(query.latestOffset({}, ALL))
    query.stop()
    anew(server, topic, 1000, 1200, partitions=1)
    options = {"url": server.url, "subscribe": topic, "startingOffsets": told}
    with pytest.raises(OffsetLost, match="created again"):
        BatchReader(read_options(options)).partitions()
    tolerant = BatchReader(read_options({**options, "failOnDataLoss": "false"}))
    assert numbers(tolerant, tolerant.partitions()) == list(range(1000, 1200))


def test_places_are_told_and_read_the_same() -> None:
    places = Places({"b": {1: 2, 0: 1}, "a": {0: 5}}, {"b": 17})
    told = told_places(places)
    assert json.dumps(told) == '{"a": {"0": 5}, "b": {"0": 1, "1": 2, "created": 17}}'
    assert places_of(told) == places
    assert source_end.places_in(source_end.told({"0": told})) == places


def test_query_that_resumes_at_a_new_topic_continues_only_if_it_is_told_which() -> None:
    held = source_end.told({"0": {"a": {"0": 500, "created": 1}}})
    assert not source_end.continues(held, {"a"}, {"0": {"a": {"0": 10, "created": 1}}})
    assert source_end.continues(held, {"a"}, {"0": {"a": {"0": 10, "created": 2}}})


def test_restarted_query_and_one_that_resumes_at_the_server_refuse_a_longer_topic(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    source, sink, app = filled(server.url, name("in"), 0, 100), made(server.url, name("out")), name("app")
    copied(spark, server.url, source, sink, tmp_path / "c", app)
    anew(server, source, 1000, 1400)
    assert "deleted and created again" in failure(spark, server.url, source, sink, tmp_path / "c", app)
    said = failure(spark, server.url, source, sink, tmp_path / "lost", app, start=f"group:{app}")
    assert "deleted and created again" in said
    rows = reading(spark, server.url, source, startingOffsets=f"group:{app}", failOnDataLoss="false")
    writing(rows.selectExpr("key", "value"), server.url, sink, tmp_path / "lost", app).start().awaitTermination()
    with Client(server.url) as client:
        assert sum(stream.stable for stream in client.cut(sink).streams) == 100 + 400
