"""A name that is wrong is told before Spark starts, and not after the seconds that it takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from oncelog import pipelines
from oncelog.pipelines.delta_lake import DeltaLake
from oncelog.pipelines.lake import LakeTable
from oncelog.pipelines.parquet_lake import ParquetLake
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


def test_function_that_starts_spark_is_called_once(spark: Any, server: Server, tmp_path: Path) -> None:
    topic, starts = filled(server.url, name("there"), numbers(0, 5)), []

    def start() -> Any:
        starts.append(1)
        return spark

    done = pipelines.land(start, url=server.url, topic=topic, table=str(tmp_path / "table"))
    assert (done.output_rows, starts) == (5, [1])
