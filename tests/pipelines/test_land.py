"""Every record is in the table once, through kills, lost checkpoints, other batch sizes and a second lander."""

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import IntegerType, StructField, StructType

from oncelog import pipelines
from oncelog.client import Client
from oncelog.pipelines import lake_files, lake_place
from oncelog.pipelines.delta_lake import DeltaLake
from oncelog.pipelines.lake import LostRace
from oncelog.pipelines.landing import _table_fields, lake_of
from oncelog.pipelines.landing_place import Standing, records_to_land
from oncelog.pipelines.parquet_lake import ParquetLake
from tests.pipelines.lander import killed_at
from tests.pipelines.topics import each_once, filled, name, numbers, raw, table_rows
from tests.spark.serving import Server

SCHEMA = "id string, n int, kind string"


def landing(spark: Any, server: Server, topic: str, table: Path, **options: Any) -> pipelines.PipelineResult:
    return pipelines.land(spark, url=server.url, topic=topic, table=str(table), **options)


def test_topic_is_landed_in_batches_and_a_second_run_adds_what_is_new(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    topic, table = filled(server.url, name("landed"), numbers(0, 500)), tmp_path / "table"
    told: list[pipelines.Progress] = []
    done = landing(spark, server, topic, table, schema=SCHEMA, max_offsets_per_trigger=200, progress=told.append)
    assert (done.input_rows, done.output_rows, done.batches, done.lag) == (500, 500, 3, 0)
    # A batch that takes longer than a heartbeat also tells how far its tasks are.
    stages = [progress.stage for progress in told if progress.batch == 1 and progress.stage != "reading"]
    assert stages == ["written", "committed", "done"]
    filled(server.url, topic, numbers(500, 520))
    assert landing(spark, server, topic, table).output_rows == 20
    rows = table_rows(table)
    assert each_once(rows, 520)
    assert {(row["_topic"], row["_partition"]) for row in rows} == {(topic, 0), (topic, 1)}
    assert all(row["id"] == f"n{row['n']}" and row["_unparsed"] is None for row in rows)
    # The statistics are true: a reader that skips files by them finds the same rows.
    for number in (0, 137, 519):
        assert DeltaTable(str(table)).to_pyarrow_table(filters=[("n", "=", number)]).num_rows == 1


@pytest.mark.parametrize("stage", ["written", "committed"])
def test_lander_killed_around_its_commit_has_landed_each_record_once(
    spark: Any, server: Server, tmp_path: Path, stage: str
) -> None:
    topic, table = filled(server.url, name("killed"), numbers(0, 400)), tmp_path / "table"
    options = {"url": server.url, "topic": topic, "table": str(table), "schema": SCHEMA}
    assert killed_at("land", stage, 1, max_offsets_per_trigger=100, **options) == "reached"
    before = len(table_rows(table))
    assert before == (200 if stage == "committed" else 100)
    done = landing(spark, server, topic, table, max_offsets_per_trigger=100)
    assert done.output_rows == 400 - before
    assert each_once(table_rows(table), 400)


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_lander_killed_in_its_first_batch_still_begins_where_it_began(
    spark: Any, server: Server, tmp_path: Path, form: str
) -> None:
    topic, table = filled(server.url, name("first"), numbers(0, 60)), tmp_path / "table"
    options = {"url": server.url, "topic": topic, "table": str(table), "schema": SCHEMA, "format": form}
    from_20 = json.dumps({topic: {"0": 10, "1": 10}})
    assert killed_at("land", "written", 0, starting=from_20, **options) == "reached"
    assert spark_rows(spark, table) == []
    filled(server.url, topic, numbers(60, 80))
    # What it is told the second time does not count: the table says where it begins.
    landing(spark, server, topic, table, format=form, starting="latest")
    assert sorted(row["n"] for row in spark_rows(spark, table)) == list(range(20, 80))


def test_latest_is_looked_up_once(spark: Any, server: Server, tmp_path: Path) -> None:
    topic, table = filled(server.url, name("latest"), numbers(0, 30)), tmp_path / "table"
    assert landing(spark, server, topic, table, schema=SCHEMA, starting="latest").batches == 0
    filled(server.url, topic, numbers(30, 40))
    assert landing(spark, server, topic, table, starting="latest").output_rows == 10
    assert sorted(row["n"] for row in table_rows(table)) == list(range(30, 40))


class Died(Exception):
    """What a test has a lander die of."""


def test_checkpoint_with_an_unfinished_first_batch_that_another_lander_has_landed(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    topic, table = filled(server.url, name("planned"), numbers(0, 30)), tmp_path / "table"
    checkpoint = str(tmp_path / "checkpoint")

    def die(progress: pipelines.Progress) -> None:
        raise Died(progress.stage)

    with pytest.raises((Died, pipelines.PipelineFailed)):
        landing(spark, server, topic, table, schema=SCHEMA, checkpoint=checkpoint, progress=die)
    filled(server.url, topic, numbers(30, 40))
    landing(spark, server, topic, table)
    filled(server.url, topic, numbers(40, 50))
    assert landing(spark, server, topic, table, checkpoint=checkpoint).output_rows == 10
    assert each_once(table_rows(table), 50)


@pytest.mark.parametrize("per_batch", [50, 70, 400])
def test_lost_checkpoint_with_another_batch_size_goes_on_where_the_table_ends(
    spark: Any, server: Server, tmp_path: Path, per_batch: int
) -> None:
    topic, table = filled(server.url, name("lost"), numbers(0, 200)), tmp_path / "table"
    checkpoint = tmp_path / "checkpoint"
    landing(spark, server, topic, table, schema=SCHEMA, max_offsets_per_trigger=100, checkpoint=str(checkpoint))
    shutil.rmtree(checkpoint)
    filled(server.url, topic, numbers(200, 400))
    landing(spark, server, topic, table, max_offsets_per_trigger=per_batch, checkpoint=str(checkpoint))
    assert each_once(table_rows(table), 400)


def test_checkpoint_that_is_behind_the_table_leaves_out_what_the_table_has(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    topic, table = filled(server.url, name("behind"), numbers(0, 100)), tmp_path / "table"
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    landing(spark, server, topic, table, schema=SCHEMA, checkpoint=old)
    filled(server.url, topic, numbers(100, 200))
    landing(spark, server, topic, table, checkpoint=new)
    filled(server.url, topic, numbers(200, 230))
    # The old checkpoint begins at 100: its first batch has rows that are landed and rows that are not.
    assert landing(spark, server, topic, table, checkpoint=old).output_rows == 30
    assert each_once(table_rows(table), 230)


def test_table_that_was_set_back_is_refused_instead_of_leaving_a_gap(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    topic, table = filled(server.url, name("setback"), numbers(0, 100)), tmp_path / "table"
    checkpoint = str(tmp_path / "checkpoint")
    landing(spark, server, topic, table, schema=SCHEMA, checkpoint=checkpoint)
    shutil.rmtree(table)
    filled(server.url, topic, numbers(100, 120))
    other = filled(server.url, name("other"), numbers(0, 10))
    landing(spark, server, other, table, schema=SCHEMA)
    with pytest.raises(pipelines.PipelineRefused, match="would be missing"):
        landing(spark, server, topic, table, checkpoint=checkpoint)
    assert len(table_rows(table)) == 10
    landing(spark, server, topic, table, checkpoint=str(tmp_path / "fresh"))
    assert each_once([row for row in table_rows(table) if row["_topic"] == topic], 120)


@pytest.mark.parametrize("form", ["delta", "parquet"])
@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_table_that_is_gone_is_refused_though_no_record_is_new(
    spark: Any, server: Server, tmp_path: Path, form: str, schema: str | None
) -> None:
    topic, table = filled(server.url, name("gone"), numbers(0, 10)), tmp_path / "table"
    checkpoint = tmp_path / "checkpoint"
    landing(spark, server, topic, table, format=form, checkpoint=str(checkpoint))
    shutil.rmtree(table)
    for address in (str(checkpoint), checkpoint.as_uri()):
        with pytest.raises(pipelines.PipelineRefused, match="would be missing"):
            landing(spark, server, topic, table, format=form, schema=schema, checkpoint=address)
    assert not table.exists(), "a refusal does nothing"
    shutil.rmtree(checkpoint)
    assert landing(spark, server, topic, table, format=form, checkpoint=str(checkpoint)).output_rows == 10
    # A checkpoint that is where the table is, or behind it, is none to refuse.
    assert landing(spark, server, topic, table, format=form, checkpoint=str(checkpoint)).output_rows == 0


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_of_two_landers_at_once_one_loses_and_nothing_is_doubled(
    spark: Any, server: Server, tmp_path: Path, form: str
) -> None:
    topic, table = filled(server.url, name("two"), numbers(0, 100)), tmp_path / "table"
    landing(spark, server, topic, table, schema=SCHEMA, format=form)
    filled(server.url, topic, numbers(100, 150))
    written, go_on = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def hang(progress: pipelines.Progress) -> None:
        # Its files are there, its commit is not.
        if progress.stage == "written":
            written.set()
            go_on.wait()

    def slow() -> None:
        try:
            landing(spark, server, topic, table, format=form, application="slow", progress=hang)
        except pipelines.PipelineRefused as error:
            failures.append(error)

    from pyspark import InheritableThread

    thread = InheritableThread(target=slow)
    thread.start()
    try:
        assert written.wait(90)
        landing(spark, server, topic, table, format=form, application="fast")
    finally:
        go_on.set()
        thread.join()
    assert [type(error).__name__ for error in failures] == ["PipelineRefused"]
    assert "another lander" in str(failures[0])
    assert each_once(spark_rows(spark, table), 150)


def spark_rows(spark: Any, table: Path) -> list[dict[str, Any]]:
    lake = lake_of(str(table))
    return [row.asDict() for row in spark.read.schema(lake.schema()).parquet(*lake.files()).collect()]


def test_records_that_do_not_fit_keep_their_bytes(spark: Any, server: Server, tmp_path: Path) -> None:
    good, fits_not, unknown = b'{"n": 1, "id": "a"}', b'{"n": "text", "id": "b"}', b'{"n": 2, "id": "c", "more": [1]}'
    bad = [b"no JSON", b"", b"\xff\xfe\x00", b"17", b"[1, 2]", b'{"n": 3']
    topic = raw(server.url, name("bad"), [good, fits_not, unknown, *bad])
    done = landing(spark, server, topic, tmp_path / "table", schema="id string, n int")
    assert (done.output_rows, done.unparsed) == (9, 8)
    rows = sorted(table_rows(tmp_path / "table"), key=lambda row: row["_offset"])
    assert [row["_unparsed"] for row in rows] == [None, fits_not, unknown, *bad]
    assert [(row["id"], row["n"]) for row in rows[:3]] == [("a", 1), ("b", None), ("c", 2)]
    result = pipelines.audit(url=server.url, topics=[topic], table=str(tmp_path / "table"), spark=spark)
    assert result.sound, result.examples
    assert result.topics[0].table_unparsed == 8
    # A second run tells of its own rows alone.
    raw(server.url, topic, [good, b"no JSON either", good])
    assert landing(spark, server, topic, tmp_path / "table").unparsed == 1


def test_schema_is_inferred_once_and_kept_in_the_table(spark: Any, server: Server, tmp_path: Path) -> None:
    topic, table = filled(server.url, name("inferred"), numbers(0, 20)), tmp_path / "table"
    assert landing(spark, server, topic, table).unparsed == 0
    filled(server.url, topic, [{"id": "x", "n": 20, "kind": "k", "late": True}])
    assert landing(spark, server, topic, table).unparsed == 1
    rows = table_rows(table)
    assert each_once(rows, 21)
    assert [row["_unparsed"] is not None for row in sorted(rows, key=lambda row: row["n"])] == [False] * 20 + [True]
    with pytest.raises(pipelines.PipelineRefused, match="the table has the schema"):
        landing(spark, server, topic, table, schema="id string, n string")


def test_empty_topic_without_a_schema_makes_no_table(spark: Any, server: Server, tmp_path: Path) -> None:
    topic = filled(server.url, name("empty"), [])
    assert landing(spark, server, topic, tmp_path / "table").batches == 0
    assert not (tmp_path / "table").exists()


def test_topic_without_any_field_is_landed_with_a_schema(spark: Any, server: Server, tmp_path: Path) -> None:
    values = [b"no JSON", b"17", b"{}", b"[1]"]
    topic, table = raw(server.url, name("plain"), values), tmp_path / "table"
    with pytest.raises(pipelines.PipelineRefused, match="Name at least one field"):
        landing(spark, server, topic, table)
    assert landing(spark, server, topic, table, schema="id string").output_rows == 4
    rows = sorted(table_rows(table), key=lambda row: row["_offset"])
    # An object without fields says nothing that its row does not say.
    assert [row["_unparsed"] for row in rows] == [b"no JSON", b"17", None, b"[1]"]
    raw(server.url, topic, [b"more"])
    assert landing(spark, server, topic, table).output_rows == 1
    result = pipelines.audit(url=server.url, topics=[topic], table=str(table), spark=spark)
    assert result.sound, result.examples


def test_start_at_the_end_needs_a_schema(spark: Any, server: Server, tmp_path: Path) -> None:
    topic = filled(server.url, name("end"), numbers(0, 5))
    with pytest.raises(pipelines.PipelineRefused, match="give a schema"):
        landing(spark, server, topic, tmp_path / "table", starting="latest")
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_fields_may_have_any_name(spark: Any, server: Server, tmp_path: Path, form: str) -> None:
    records = [{"service.name": "x", "tick`ed": 1, "service": {"name": "y"}, "a.b": {"c.d": 2}}]
    topic, table = filled(server.url, name("dotted"), records, partitions=1), tmp_path / "table"
    landing(spark, server, topic, table, format=form, partition_by=["service.name"])
    filled(server.url, topic, records, partitions=1)
    landing(spark, server, topic, table, format=form)
    lake = lake_of(str(table))
    assert {"service.name", "tick`ed", "service", "a.b"} < set((lake.schema() or StructType()).names)
    result = pipelines.audit(url=server.url, topics=[topic], table=str(table), spark=spark)
    assert result.sound, result.examples
    assert result.topics[0].table_rows == 2


def test_whatever_fails_is_told_as_a_failed_pipeline(spark: Any, server: Server, tmp_path: Path) -> None:
    topic = filled(server.url, name("fails"), [{"id": 1, "n": 2}])
    in_the_way = tmp_path / "file"
    in_the_way.write_text("no folder")
    for form in ("delta", "parquet"):
        with pytest.raises(pipelines.PipelineFailed):
            landing(spark, server, topic, in_the_way / "table", format=form, schema=SCHEMA)

    def die(_progress: pipelines.Progress) -> None:
        raise Died("in a batch")

    with pytest.raises(pipelines.PipelineFailed, match="Died: in a batch"):
        landing(spark, server, topic, tmp_path / "table", schema=SCHEMA, progress=die)


def test_name_of_the_application_is_no_path(spark: Any, server: Server, tmp_path: Path) -> None:
    topic, table = filled(server.url, name("path"), numbers(0, 4)), tmp_path / "a" / "b" / "table"
    landing(spark, server, topic, table, schema=SCHEMA, application="../../../../x")
    assert each_once(table_rows(table), 4)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    # A run that ends takes its checkpoint with it.
    assert list((table / "_oncelog" / "checkpoints").iterdir()) == []


def test_topics_that_are_landed_side_by_side_do_not_race(tmp_path: Path) -> None:
    lake = ParquetLake(str(tmp_path / "table"))
    lake.create(StructType([StructField("n", IntegerType())]), [])
    first, second = lake.held("a", [0]), lake.held("b", [0])
    lake.commit(first, "a", [], {0: 10}, {})
    lake.commit(second, "b", [], {0: 5}, {})
    assert (lake.held("a", [0]).ends, lake.held("b", [0]).ends) == ({0: 10}, {0: 5})
    with pytest.raises(LostRace):
        lake.commit(second, "b", [], {0: 7}, {})


class LosesAnswer:
    """A Delta table that does what it is told and then says that it failed."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._table, attribute)

    def create_write_transaction(self, *given: Any, **named: Any) -> None:
        self._table.create_write_transaction(*given, **named)
        raise CommitFailedError("the connection was lost")


def test_commit_whose_answer_was_lost_is_done(tmp_path: Path) -> None:
    lake = DeltaLake(str(tmp_path / "table"))
    lake.create(StructType([StructField("n", IntegerType())]), [])
    held = lake.held("t", [0])
    held.snapshot = LosesAnswer(held.snapshot)
    lake.commit(held, "t", [], {0: 5}, {})
    assert lake.held("t", [0]).ends == {0: 5}


def test_statistics_count_the_nulls_of_a_column_without_values(tmp_path: Path) -> None:
    metadata: list[Any] = []
    schema = pa.schema([("n", pa.int64()), ("absent", pa.int64())])
    with pq.ParquetWriter(tmp_path / "file", schema, metadata_collector=metadata) as writer:
        writer.write_table(pa.table({"n": [1, None], "absent": [None, None]}, schema=schema))
    statistics = lake_files._statistics(metadata[0], 2)
    assert statistics["nullCount"] == {"n": 1, "absent": 2}
    assert (statistics["minValues"], statistics["maxValues"]) == ({"n": 1}, {"n": 1})


def test_statistics_count_the_nulls_of_a_column_without_bounds(tmp_path: Path) -> None:
    metadata: list[Any] = []
    schema = pa.schema([("bytes", pa.binary())])
    with pq.ParquetWriter(tmp_path / "file", schema, metadata_collector=metadata) as writer:
        writer.write_table(pa.table({"bytes": [b"\xff", None, None]}, schema=schema))
    statistics = lake_files._statistics(metadata[0], 3)
    assert (statistics["nullCount"], statistics["minValues"], statistics["maxValues"]) == ({"bytes": 2}, {}, {})


def test_new_folders_are_on_disk_up_to_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(lake_place, "sync_folder", synced.append)
    rows = pa.RecordBatch.from_pylist([{"a": "x", "b": "y", "n": 1}])
    list(lake_files._written(iter([rows]), lake_place.place_of(str(tmp_path)), ("a", "b")))
    assert synced == [tmp_path / "a=x" / "b=y", tmp_path / "a=x", tmp_path]
    synced.clear()
    ParquetLake(str(tmp_path / "table")).create(StructType([StructField("n", IntegerType())]), [])
    commits = tmp_path / "table" / "_oncelog" / "commits"
    assert synced[:3] == [commits, commits.parent, tmp_path / "table"]


class SeenTooEarly(ParquetLake):
    """A table that another lander makes between a look and the making."""

    looks = 0

    def schema(self) -> Any | None:
        self.looks += 1
        return None if self.looks == 1 else super().schema()


@pytest.mark.usefixtures("spark")
def test_table_that_another_made_meanwhile_counts(tmp_path: Path) -> None:
    standing = Standing(1, {0: (0, 1)})

    def ready(lake: ParquetLake, schema: str) -> Any:
        return _table_fields(None, "", "t", lake, schema, [], standing, "earliest")

    ready(ParquetLake(str(tmp_path)), "n int")
    with pytest.raises(pipelines.PipelineRefused, match="the table has the schema"):
        ready(SeenTooEarly(str(tmp_path)), "n string")
    assert ready(SeenTooEarly(str(tmp_path)), "n int").names == ["n"]


def test_holes_alone_move_the_table_on(spark: Any, server: Server, tmp_path: Path) -> None:
    topic, table = filled(server.url, name("holes"), numbers(0, 40), partitions=1), tmp_path / "table"
    with Client(server.url) as client:
        client.delete_records(topic, [(10, 30)])
    landing(spark, server, topic, table, schema=SCHEMA, max_offsets_per_trigger=10)
    assert sorted(row["n"] for row in table_rows(table)) == [*range(10), *range(30, 40)]


def test_partitioned_table_is_read_alike_by_three_readers(spark: Any, server: Server, tmp_path: Path) -> None:
    kinds = ["plain", "with blank", "a/b", "50%", None, "ü"]
    records = [{"id": f"n{number}", "n": number, "kind": kinds[number % 6]} for number in range(60)]
    topic, table = filled(server.url, name("parts"), records), tmp_path / "table"
    landing(spark, server, topic, table, schema=SCHEMA, partition_by=["kind"])
    rows = table_rows(table)
    assert each_once(rows, 60)
    assert {row["n"]: row["kind"] for row in rows} == {record["n"]: record["kind"] for record in records}
    result = pipelines.audit(url=server.url, topics=[topic], table=str(table), spark=spark)
    assert result.sound, result.examples


def test_parquet_table_names_the_files_that_count(spark: Any, server: Server, tmp_path: Path) -> None:
    topic, table = filled(server.url, name("parquet"), numbers(0, 200)), tmp_path / "table"
    options = {"schema": SCHEMA, "format": "parquet", "max_offsets_per_trigger": 80}
    assert landing(spark, server, topic, table, **options).output_rows == 200
    files = lake_of(str(table)).files()
    assert duckdb.execute("SELECT count(*), count(DISTINCT n) FROM read_parquet(?)", [files]).fetchone() == (200, 200)
    result = pipelines.audit(url=server.url, topics=[topic], table=str(table), spark=spark)
    assert result.sound, result.examples


def test_partition_that_was_added_later_is_landed_from_its_beginning(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    topic, table = filled(server.url, name("grown"), numbers(0, 50), partitions=1), tmp_path / "table"
    landing(spark, server, topic, table, schema=SCHEMA)
    with Client(server.url) as client:
        client.grow_topic(topic, 2)
        for record in numbers(50, 60):
            client.append(topic, record, partition=1)
    landing(spark, server, topic, table)
    assert each_once(table_rows(table), 60)


@pytest.mark.parametrize("form", ["delta", "parquet"])
@pytest.mark.parametrize("count", [10, 80])
def test_topic_that_was_made_anew_is_refused(spark: Any, server: Server, tmp_path: Path, count: int, form: str) -> None:
    topic, table = filled(server.url, name("anew"), numbers(0, 50)), tmp_path / "table"
    landing(spark, server, topic, table, schema=SCHEMA, format=form)
    with Client(server.url) as client:
        client.delete_topic(topic)
    # Shorter or longer than the one before: its offsets alone do not give it away.
    filled(server.url, topic, numbers(0, count))
    with pytest.raises(pipelines.PipelineRefused, match="made anew"):
        landing(spark, server, topic, table, format=form)
    assert each_once(spark_rows(spark, table), 50)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"schema": "id what"}, "schema"),
        ({"schema": "_offset int"}, "reserved"),
        ({"format": "csv", "schema": SCHEMA}, "delta or parquet"),
        ({"partition_by": ["absent"], "schema": SCHEMA}, "no column"),
        ({"partition_by": ["_timestamp"], "schema": SCHEMA}, "a folder is named by"),
        ({"starting": "yesterday", "schema": SCHEMA}, "starting"),
        ({"starting": "-1", "schema": SCHEMA}, "starting"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    spark: Any, server: Server, tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    topic = filled(server.url, name("refused"), numbers(0, 1))
    with pytest.raises(pipelines.PipelineRefused, match=says):
        landing(spark, server, topic, tmp_path / "table", **options)
    assert not (tmp_path / "table").exists()


def test_rule_for_a_batch_is_a_table() -> None:
    """Where the table ends, where the batch begins and ends → the first offset to land, all there, or refused."""
    rule = [
        (None, 0, 10, 0),
        (0, 0, 10, 0),
        (5, 0, 10, 5),
        (10, 0, 10, None),
        (12, 0, 10, None),
        (5, 5, 5, None),
    ]
    for held, start, end, first in rule:
        known = {} if held is None else {0: held}
        assert records_to_land(known, {0: start}, {0: end}, "t") == (None if first is None else {0: first})
    with pytest.raises(pipelines.PipelineRefused, match="would be missing"):
        records_to_land({0: 4}, {0: 5}, {0: 10}, "t")
    with pytest.raises(pipelines.PipelineRefused, match="not at all"):
        records_to_land({}, {0: 5}, {0: 10}, "t")


def test_table_that_is_a_file_is_refused(spark: Any, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a table")
    with pytest.raises(pipelines.PipelineRefused, match="is a file"):
        pipelines.land(spark, url=server.url, topic=raw(server.url, name("land"), [b"x"]), table=str(file))
    assert file.read_text() == "not a table"
