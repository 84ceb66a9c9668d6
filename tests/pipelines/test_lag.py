"""How far behind a query is, and what its watermark dropped, are in its progress and in its result."""

import threading
import time
from pathlib import Path
from typing import Any

from oncelog import pipelines
from oncelog.client import Client
from oncelog.pipelines.lag import LagClock
from tests.pipelines.topics import JSON, name, raw
from tests.spark.serving import Server


def test_age_is_that_of_the_oldest_record_that_is_left(server: Server) -> None:
    topic = name("aged")
    with Client(server.url) as client:
        client.create_topic(topic, partitions=2, content_type=JSON)
        with client.producer(topic, JSON, producer_id=topic) as producer:
            for partition, age_s in ((0, 500), (1, 900)):
                producer.append({"n": 1}, partition=partition, timestamp_ms=time.time_ns() // 1_000_000 - age_s * 1000)
    both = [(topic, 0, 0, 1), (topic, 1, 0, 1)]
    assert 900 <= LagClock(server.url).seconds(both) < 960
    assert 500 <= LagClock(server.url).seconds(both[:1]) < 560
    assert LagClock(server.url).seconds([]) == 0.0
    assert LagClock("").seconds(both) == -1.0


def test_rows_that_a_watermark_dropped_and_rows_that_are_left_are_told(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    def at(minute: int, number: int) -> bytes:
        return b'{"id":%d,"at":"2026-01-01T00:%02d:00Z"}' % (number, minute)

    topic, target = raw(server.url, name("late"), [at(50, 1), at(51, 2)]), name("out")
    told: list[pipelines.Progress] = []
    view = topic.replace("-", "_")
    options: dict[str, Any] = {
        "url": server.url,
        "target": target,
        "application": target,
        "checkpoint": str(tmp_path / "c"),
        "schemas": {topic: "id bigint, at timestamp"},
        "sql": f"SELECT window.start AS w, count(*) AS n FROM {view} GROUP BY window(at, '5 minutes')",
        "event_time": "at",
        "watermark": "1 minute",
        "partitions": 1,
    }
    pipelines.transform(spark, **options)
    # One is an hour too late for the watermark that the first run left.
    raw(server.url, topic, [at(1, 3), at(55, 4)])
    done = pipelines.transform(spark, progress=told.append, **options)
    assert (done.late_rows, done.lag, done.lag_s) == (1, 0, 0.0)
    assert told[-1].late_rows == 1
    raw(server.url, topic, [at(56, number) for number in range(20)])
    stop = threading.Event()

    def stop_at_once(progress: pipelines.Progress) -> None:
        told.append(progress)
        stop.set()

    stopped = pipelines.transform(
        spark, max_offsets_per_trigger=5, trigger="1 hour", progress=stop_at_once, stop=stop, **options
    )
    assert stopped.stopped
    assert stopped.lag == told[-1].lag == 15
    assert stopped.lag_s >= 0
