"""A name that is wrong is told before Spark starts, and not after the seconds that it takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from oncelog import pipelines
from oncelog.client import Client
from oncelog.pipelines.delta_lake import DeltaLake
from oncelog.pipelines.lake import LakeTable
from oncelog.pipelines.parquet_lake import ParquetLake
from oncelog.pipelines.running import check_trigger
from tests.pipelines.topics import filled, name, numbers
from tests.spark.serving import Server

Call = Callable[..., Any]


def never() -> Any:
    pytest.fail("Spark was started")


def land_of_no_topic(url: str, _topic: str, folder: Path) -> None:
    pipelines.land(never, url=url, topic=name("absent"), table=str(folder))


def land_as_no_format(url: str, topic: str, folder: Path) -> None:
    pipelines.land(never, url=url, topic=topic, table=str(folder), format="iceberg")  # type: ignore[arg-type]


def land_as_another_format(made: str, given: str) -> Call:
    def land(url: str, topic: str, folder: Path) -> None:
        lake: LakeTable = DeltaLake(str(folder)) if made == "delta" else ParquetLake(str(folder))
        lake.create(StructType([StructField("n", IntegerType())]), [])
        pipelines.land(never, url=url, topic=topic, table=str(folder), format=given)  # type: ignore[arg-type]

    land.__name__ = f"land_{given}_into_{made}"
    return land


def land_among_foreign_files(form: str) -> Call:
    def land(url: str, topic: str, folder: Path) -> None:
        (folder / "part-0.parquet").touch()
        pipelines.land(never, url=url, topic=topic, table=str(folder), format=form)  # type: ignore[arg-type]

    land.__name__ = f"land_{form}_among_foreign_files"
    return land


def ingest_into_no_topic(url: str, _topic: str, folder: Path) -> None:
    pipelines.ingest(never, url=url, topic=name("absent"), source=str(folder))


def ingest_of_no_file(url: str, topic: str, folder: Path) -> None:
    target = name("unmade")
    try:
        pipelines.ingest(never, url=url, topic=target, source=str(folder / "absent"), partitions=1)
    finally:
        with Client(url) as client:
            assert not client.cut(target).streams, "a refusal makes no topic"


def ingest_when(url: str, topic: str, folder: Path) -> None:
    pipelines.ingest(never, url=url, topic=topic, source=str(folder), checkpoint=str(folder / "c"), trigger="10 sec")


def ingest_without_a_checkpoint_for_ever(url: str, topic: str, folder: Path) -> None:
    pipelines.ingest(never, url=url, topic=topic, source=str(folder), trigger="10 seconds")


def land_when(url: str, topic: str, folder: Path) -> None:
    pipelines.land(never, url=url, topic=topic, table=str(folder / "table"), trigger="soon")


def transform_when(url: str, topic: str, folder: Path) -> None:
    options: dict[str, Any] = {"application": "a", "checkpoint": str(folder), "sql": "SELECT 1", "partitions": 1}
    pipelines.transform(never, url=url, topics=[topic], target=name("target"), trigger="-1 seconds", **options)


def transform_of_no_topic(url: str, topic: str, folder: Path) -> None:
    options: dict[str, Any] = {"application": "a", "checkpoint": str(folder), "sql": "SELECT 1", "partitions": 1}
    pipelines.transform(never, url=url, topics=[topic, name("absent")], target=name("target"), **options)


def transform_into_no_topic(url: str, topic: str, folder: Path) -> None:
    options: dict[str, Any] = {"application": "a", "checkpoint": str(folder), "sql": "SELECT 1"}
    pipelines.transform(never, url=url, topics=[topic], target=name("absent"), **options)


def audit_of_no_topic(url: str, topic: str, folder: Path) -> None:
    (folder / "ledger.jsonl").touch()
    pipelines.audit(spark=never, url=url, topics=[topic, name("absent")], ledgers=[folder / "ledger.jsonl"])


def audit_of_no_table(url: str, topic: str, folder: Path) -> None:
    pipelines.audit(spark=never, url=url, topics=[topic], table=str(folder))


def audit_with_no_events(url: str, topic: str, folder: Path) -> None:
    (folder / "ledger.jsonl").touch()
    files: dict[str, Any] = {"ledgers": [folder / "ledger.jsonl"], "events": folder / "absent"}
    pipelines.audit(spark=never, url=url, topics=[topic], **files)


def audit_with_events_that_are_none(url: str, topic: str, folder: Path) -> None:
    (folder / "events.jsonl").write_text("[]\n")
    files: dict[str, Any] = {"ledgers": [folder / "events.jsonl"], "events": folder / "events.jsonl"}
    pipelines.audit(spark=never, url=url, topics=[topic], **files)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (land_of_no_topic, "there is no topic 'absent-"),
        (land_as_no_format, "a table is delta or parquet"),
        (land_as_another_format("delta", "parquet"), "holds a delta table, and parquet was asked for"),
        (land_as_another_format("parquet", "delta"), "holds a parquet table, and delta was asked for"),
        (land_among_foreign_files("delta"), r"no table, and other files such as part-0\.parquet"),
        (land_among_foreign_files("parquet"), r"no table, and other files such as part-0\.parquet"),
        (ingest_into_no_topic, r"there is no topic 'absent-.*\(--partitions N\)"),
        (ingest_of_no_file, "there is no file or folder .*absent on this machine"),
        (ingest_when, "trigger is available_now, or a time such as '10 seconds', not '10 sec'"),
        (ingest_without_a_checkpoint_for_ever, "is followed with a checkpoint"),
        (land_when, "trigger is available_now"),
        (transform_when, "trigger is available_now"),
        (transform_of_no_topic, "there is no topic 'absent-"),
        (transform_into_no_topic, r"there is no topic 'absent-.*\(--partitions N\)"),
        (audit_of_no_topic, "there is no topic absent-"),
        (audit_of_no_table, "is no table that was landed"),
        (audit_with_no_events, "cannot read .*absent: No such file"),
        (audit_with_events_that_are_none, "line 1, is no event"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_wrong_name_is_told_before_spark_starts(server: Server, tmp_path: Path, call: Call, says: str) -> None:
    topic = filled(server.url, name("there"), numbers(0, 1))
    with pytest.raises(pipelines.PipelineRefused, match=says):
        call(server.url, topic, tmp_path)


@pytest.mark.parametrize("trigger", ["available_now", "10 seconds", "1 minute 30 Seconds", "interval 500 milliseconds"])
def test_times_that_spark_knows_are_taken(trigger: str) -> None:
    check_trigger(trigger)


def test_function_that_starts_spark_is_called_once(spark: Any, server: Server, tmp_path: Path) -> None:
    topic, starts = filled(server.url, name("there"), numbers(0, 5)), []

    def start() -> Any:
        starts.append(1)
        return spark

    done = pipelines.land(start, url=server.url, topic=topic, table=str(tmp_path / "table"))
    assert (done.output_rows, starts) == (5, [1])
