"""Topics of JSON records to begin with, and what is in a topic or a table afterwards."""

import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

from oncelog.client import Client

JSON = "application/json"


def name(prefix: str) -> str:
    """A topic or application that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def numbers(first: int, next_: int) -> list[dict[str, Any]]:
    """Records that a count can be checked with."""
    return [{"id": f"n{number}", "n": number, "kind": f"k{number % 3}"} for number in range(first, next_)]


def filled(url: str, topic: str, records: Iterable[dict[str, Any]], *, partitions: int = 2) -> str:
    """The topic with these records behind those that it has, dealt to its partitions in turn."""
    with Client(url) as client:
        client.create_topic(topic, partitions=partitions, content_type=JSON)
        with client.producer(topic, JSON, producer_id=f"fill-{uuid.uuid4().hex}") as producer:
            for number, record in enumerate(records):
                producer.append(record, partition=number % partitions)
    return topic


def raw(url: str, topic: str, values: Iterable[bytes], *, partitions: int = 1) -> str:
    """A topic of bytes, whatever they are, all in partition 0."""
    with Client(url) as client:
        client.create_topic(topic, partitions=partitions, content_type="application/octet-stream")
        with client.producer(topic, "application/octet-stream", producer_id=name("raw"), raw_batches=True) as producer:
            for value in values:
                producer.append(value)
    return topic


def values(url: str, topic: str) -> list[bytes]:
    """Everything in the topic, partition after partition."""
    found: list[bytes] = []
    with Client(url) as client:
        for partition in range(client.topic(topic).partitions):
            with client.reader(topic, partition=partition, live=False) as reader:
                found += [record.value or b"" for record in reader]
    return found


def documents(url: str, topic: str) -> list[dict[str, Any]]:
    return [json.loads(value) for value in values(url, topic)]


def table_rows(table: Path) -> list[dict[str, Any]]:
    """The rows of a Delta table. Two readers must agree about them before they are believed."""
    delta = DeltaTable(str(table))
    rows: list[dict[str, Any]] = delta.to_pyarrow_table().to_pylist()
    # The table itself, with its schema and partition columns, not the files that delta-rs says it has.
    with duckdb.connect() as database:
        database.register("landed", delta.to_pyarrow_dataset())
        (count,) = database.execute("SELECT count(*) FROM landed").fetchone() or (-1,)
    assert count == len(rows)
    return rows


def each_once(rows: Iterable[dict[str, Any]], count: int) -> bool:
    """Whether the rows are `numbers(0, count)`, each once."""
    found = sorted(row["n"] for row in rows)
    assert found == list(range(count)), f"{len(found)} rows, {len(set(found))} different, wanted {count}"
    return True
