"""Topics to begin with, the one query that most tests run, and how to count what came out."""

import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from oncelog.client import Client

BINARY = "application/octet-stream"


def name(prefix: str) -> str:
    """A topic or application that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def filled(url: str, topic: str, first: int, next_: int, *, partitions: int = 2) -> str:
    """A topic with the numbers in [first, next) as text, dealt to its partitions in turn."""
    with Client(url) as client:
        client.create_topic(topic, partitions=partitions, content_type=BINARY)
        with client.producer(topic, BINARY, producer_id=f"fill-{first}", raw_batches=True) as producer:
            for number in range(first, next_):
                producer.append(b"%d" % number, key=b"k%d" % (number % 10), partition=number % partitions)
    return topic


def made(url: str, topic: str, *, partitions: int = 2, content_type: str = BINARY) -> str:
    with Client(url) as client:
        client.create_topic(topic, partitions=partitions, content_type=content_type)
    return topic


def contents(url: str, topic: str) -> Counter[int]:
    """How often each number is in the topic, read over HTTP, all partitions."""
    found: Counter[int] = Counter()
    with Client(url) as client:
        for partition in range(client.topic(topic).partitions):
            with client.reader(topic, partition=partition, live=False) as reader:
                found.update(int(record.value or b"") for record in reader)
    return found


def each_once(url: str, topic: str, count: int) -> bool:
    """Whether the topic holds the numbers below `count`, each once. Says what is wrong if not."""
    found = contents(url, topic)
    lost = [number for number in range(count) if number not in found]
    doubled = [number for number, times in found.items() if times > 1]
    assert not lost, f"{len(lost)} lost, such as {lost[:5]}"
    assert not doubled, f"{len(doubled)} doubled, such as {doubled[:5]}"
    assert len(found) == count, f"{len(found) - count} that nobody wrote"
    return True


def reading(spark: Any, url: str, topics: str, **options: object) -> Any:
    reader = spark.readStream.format("oncelog").option("url", url).option("subscribe", topics)
    for key, value in options.items():
        reader = reader.option(key, str(value))
    return reader.load()


def writing(rows: Any, url: str, topic: str, checkpoint: Path, application: str, **options: object) -> Any:
    writer = rows.writeStream.format("oncelog").option("url", url).option("topic", topic)
    writer = writer.option("checkpointLocation", str(checkpoint)).option("application", application)
    for key, value in options.items():
        writer = writer.option(key, str(value))
    return writer.trigger(availableNow=True)


def copied(
    spark: Any,
    url: str,
    source: str,
    sink: str,
    checkpoint: Path,
    application: str,
    *,
    per_batch: int = 1000,
    start: str = "earliest",
    **options: object,
) -> list[int]:
    """Runs the query to the end of the source; the rows of each batch."""
    rows = reading(spark, url, source, maxOffsetsPerTrigger=per_batch, startingOffsets=start)
    query = writing(rows.selectExpr("key", "value"), url, sink, checkpoint, application, **options).start()
    query.awaitTermination()
    return [json.loads(progress.json)["numInputRows"] for progress in query.recentProgress]


def failure(spark: Any, *args: Any, **options: Any) -> str:
    """What the query dies of."""
    from pyspark.errors import StreamingQueryException

    try:
        copied(spark, *args, **options)
    except StreamingQueryException as error:
        return str(error)
    raise AssertionError("the query ended well")


def read(spark: Any, url: str, topics: str, **options: object) -> Any:
    reader = spark.read.format("oncelog").option("url", url).option("subscribe", topics)
    for key, value in options.items():
        reader = reader.option(key, str(value))
    return reader.load()


def write(rows: Any, url: str, topic: str, **options: object) -> None:
    writer = rows.write.format("oncelog").option("url", url).option("topic", topic)
    for key, value in options.items():
        writer = writer.option(key, str(value))
    writer.mode("append").save()
