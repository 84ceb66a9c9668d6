"""Every row of every file is in the topic once, however often and from whatever point it is ingested again."""

import json
import os
import signal
import threading
from collections import Counter
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from oncelog import pipelines
from oncelog.client import Client
from tests.pipelines.lander import ROOT
from tests.pipelines.topics import documents, name, numbers, values
from tests.spark.serving import Server, proxied


def text_files(folder: Path, *counts: int) -> list[bytes]:
    """Files of so many lines; all lines."""
    folder.mkdir()
    lines = []
    for number, count in enumerate(counts):
        mine = [b"%d-%d" % (number, line) for line in range(count)]
        (folder / f"f{number}.txt").write_bytes(b"".join(line + b"\n" for line in mine))
        lines += mine
    return lines


def ingesting(spark: Any, server: Server, topic: str, source: Any, **options: Any) -> pipelines.Ingested:
    return pipelines.ingest(spark, url=server.url, topic=topic, source=source, **{"partitions": 2, **options})


def test_folder_ingested_twice_is_there_once_and_in_order(spark: Any, server: Server, tmp_path: Path) -> None:
    lines, topic = text_files(tmp_path / "in", 12_000, 30, 0, 1), name("folder")
    first = ingesting(spark, server, topic, str(tmp_path / "in"))
    assert (first.records, first.duplicates, first.files) == (12_031, 0, 3)
    again = ingesting(spark, server, topic, str(tmp_path / "in"))
    assert (again.records, again.duplicates) == (0, 12_031)
    found = values(server.url, topic)
    assert Counter(found) == Counter(lines)
    assert [line for line in found if line.startswith(b"0-")] == lines[:12_000]


def test_file_that_grew_adds_its_new_lines(spark: Any, server: Server, tmp_path: Path) -> None:
    lines, topic = text_files(tmp_path / "in", 50), name("grew")
    ingesting(spark, server, topic, str(tmp_path / "in"))
    with (tmp_path / "in" / "f0.txt").open("a") as file:
        file.write("new 1\nnew 2\n")
    assert ingesting(spark, server, topic, str(tmp_path / "in")).records == 2
    assert Counter(values(server.url, topic)) == Counter([*lines, b"new 1", b"new 2"])


@pytest.mark.parametrize("content", ["x\n" * 50, "x\n" * 60, "0-0\n0-1\n", "0-0\n" + "x\n" * 49])
def test_file_that_was_rewritten_is_refused(spark: Any, server: Server, tmp_path: Path, content: str) -> None:
    lines, topic = text_files(tmp_path / "in", 50), name("rewritten")
    ingesting(spark, server, topic, str(tmp_path / "in"))
    (tmp_path / "in" / "f0.txt").write_text(content)
    with pytest.raises(pipelines.PipelineRefused, match="was changed since it was stored"):
        ingesting(spark, server, topic, str(tmp_path / "in"))
    assert Counter(values(server.url, topic)) == Counter(lines)
    # Under another name it is another file.
    assert ingesting(spark, server, topic, str(tmp_path / "in"), producer="second").records == content.count("\n")


def test_topic_that_grew_partitions_takes_rows_no_second_way(spark: Any, server: Server, tmp_path: Path) -> None:
    folder, topic = tmp_path / "in", name("repartitioned")
    folder.mkdir()
    (folder / "a.json").write_text("".join(json.dumps(record) + "\n" for record in numbers(0, 300)))
    options = {"format": "json", "key": "kind"}
    ingesting(spark, server, topic, str(folder), **options)
    with Client(server.url) as client:
        client.grow_topic(topic, 5)
    assert ingesting(spark, server, topic, str(folder), **options).records == 0
    with (folder / "a.json").open("a") as file:
        file.write(json.dumps(numbers(300, 301)[0]) + "\n")
    assert ingesting(spark, server, topic, str(folder), **options).records == 1
    assert sorted(record["n"] for record in documents(server.url, topic)) == list(range(301))


INGEST = """
import sys
from oncelog import pipelines
from tests.pipelines.conftest import started
spark = started()
pipelines.ingest(spark, url=sys.argv[1], topic=sys.argv[2], source=sys.argv[3], partitions=2)
print("done", flush=True)
"""


def test_run_killed_in_the_middle_is_completed_by_the_next(spark: Any, server: Server, tmp_path: Path) -> None:
    import sys

    lines, topic = text_files(tmp_path / "in", 20_000, 500), name("killed")
    with proxied(server) as proxy:
        # The third batch is stored, and its answer never comes: the run is killed not knowing.
        trap = proxy.trap(f"POST /v1/stream/{topic}", "hold_answer", skip=2)
        command = [sys.executable, "-c", INGEST, proxy.url, topic, str(tmp_path / "in")]
        with Popen(command, cwd=ROOT, stdout=PIPE, start_new_session=True) as process:
            trap.wait()
            os.killpg(process.pid, signal.SIGKILL)
    stored = len(values(server.url, topic))
    assert 0 < stored < len(lines)
    done = ingesting(spark, server, topic, str(tmp_path / "in"))
    # A request that was on its way when its sender died may have been stored since.
    assert done.records + done.duplicates == len(lines)
    assert done.duplicates >= stored
    assert Counter(values(server.url, topic)) == Counter(lines)


@pytest.mark.parametrize(("form", "options"), [("csv", {"header": "true"}), ("parquet", {})])
def test_rows_of_other_formats_become_json(
    spark: Any, server: Server, tmp_path: Path, form: str, options: dict[str, str]
) -> None:
    folder, topic = str(tmp_path / "in"), name(form)
    rows = spark.createDataFrame(numbers(0, 100)).coalesce(1)
    rows.write.format(form).options(**options).save(folder)
    for _ in range(2):
        ingesting(
            spark, server, topic, folder, format=form, options=options, key="kind", content_type="application/json"
        )
    assert sorted(int(record["n"]) for record in documents(server.url, topic)) == list(range(100))


def test_rows_with_ids_are_known_by_them_from_wherever_they_come(spark: Any, server: Server) -> None:
    topic = name("ids")
    rows = spark.createDataFrame(numbers(0, 60))
    assert ingesting(spark, server, topic, rows, message_id="id").records == 60
    more = spark.createDataFrame(numbers(40, 80))
    done = ingesting(spark, server, topic, more, message_id="concat('n', n)")
    assert (done.records, done.duplicates) == (20, 20)
    assert sorted(record["n"] for record in documents(server.url, topic)) == list(range(80))


def test_frame_without_ids_is_written_once_for_each_version(spark: Any, server: Server) -> None:
    topic, producer = name("frame"), name("nightly")
    rows = spark.createDataFrame(numbers(0, 30))
    counts = [
        ingesting(spark, server, topic, rows, producer=producer, version=version, value="n").records
        for version in (0, 0, 1, 1)
    ]
    assert counts == [30, 0, 30, 0]
    assert Counter(values(server.url, topic)) == Counter({b"%d" % number: 2 for number in range(30)})


def test_followed_folder_adds_files_that_come_later(spark: Any, server: Server, tmp_path: Path) -> None:
    lines, topic = text_files(tmp_path / "in", 40), name("followed")
    checkpoint = str(tmp_path / "checkpoint")
    assert ingesting(spark, server, topic, str(tmp_path / "in"), checkpoint=checkpoint).records == 40
    (tmp_path / "in" / "later.txt").write_text("later 1\nlater 2\n")
    assert ingesting(spark, server, topic, str(tmp_path / "in"), checkpoint=checkpoint).records == 2
    # Without its checkpoint it reads all files again, and the topic knows them.
    fresh = ingesting(spark, server, topic, str(tmp_path / "in"), checkpoint=str(tmp_path / "fresh"))
    assert (fresh.records, fresh.duplicates) == (0, 42)
    assert Counter(values(server.url, topic)) == Counter([*lines, b"later 1", b"later 2"])


@pytest.mark.parametrize("message_id", [None, "value"])
def test_followed_folder_says_that_it_was_stopped(
    spark: Any, server: Server, tmp_path: Path, message_id: str | None
) -> None:
    text_files(tmp_path / "in", 10)
    stop = threading.Event()
    stop.set()
    options: dict[str, Any] = {"checkpoint": str(tmp_path / "checkpoint"), "message_id": message_id}
    stopped = ingesting(spark, server, name("stopped"), str(tmp_path / "in"), trigger="1 hour", stop=stop, **options)
    assert stopped.stopped
    options["checkpoint"] = str(tmp_path / "fresh")
    assert not ingesting(spark, server, name("whole"), str(tmp_path / "in"), **options).stopped


def test_missing_topic_is_refused_unless_it_may_be_made(spark: Any, server: Server, tmp_path: Path) -> None:
    text_files(tmp_path / "in", 1)
    with pytest.raises(pipelines.PipelineRefused, match="there is no topic"):
        ingesting(spark, server, name("absent"), str(tmp_path / "in"), partitions=0)


def test_settings_of_the_session_are_as_before(spark: Any, server: Server, tmp_path: Path) -> None:
    text_files(tmp_path / "in", 1)
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    ingesting(spark, server, name("settings"), str(tmp_path / "in"))
    assert spark.conf.get("spark.sql.files.maxPartitionBytes") == before


def test_format_that_spark_does_not_have_is_told_in_one_line(spark: Any, server: Server, tmp_path: Path) -> None:
    with pytest.raises(pipelines.PipelineFailed, match=r"DATA_SOURCE_NOT_FOUND.*jsn") as failure:
        ingesting(spark, server, name("format"), str(tmp_path), format="jsn")
    assert "\n" not in str(failure.value)
