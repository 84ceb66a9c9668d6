"""`ingest`: files, or whatever Spark reads, into a topic, every row once."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from oncelog.pipelines.running import Progress


class Ingested(msgspec.Struct):
    """What a run did."""

    records: int
    """New in the topic."""
    duplicates: int
    """Rows that were there from an earlier run, or by their message id."""
    files: int = 0
    """Files that were read; 0 where the source is not files."""
    duration_s: float = 0.0


def ingest(
    spark: Any,
    *,
    url: str,
    topic: str,
    source: Any,
    format: str = "text",  # noqa: A002  (as Spark calls it)
    options: Mapping[str, str] | None = None,
    schema: str | None = None,
    key: str | None = None,
    value: str | None = None,
    message_id: str | None = None,
    producer: str = "ingest",
    version: int = 0,
    checkpoint: str | None = None,
    partitions: int = 0,
    content_type: str = "application/octet-stream",
    trigger: str = "available_now",
    progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> Ingested:
    """Brings a folder, a file or a DataFrame into a topic."""
    raise NotImplementedError
