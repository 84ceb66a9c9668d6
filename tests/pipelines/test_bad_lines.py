"""Every byte of a file is in the topic or in the dead letter, whatever its lines are, and growing changes nothing."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from oncelog import pipelines
from oncelog.client import Client
from oncelog.pipelines.bad_lines import BadLines, bad_lines_of
from tests.pipelines.topics import name, values
from tests.spark.serving import Server

LINES = [
    b'{"id":1}',
    b'{"id":2',
    b"not json",
    b'{"id":4}{"id":5}',
    b'{"id":6,"extra":true}',
    b'{"id":"x"}',
    b'{"id":"\xff"}',
]
LINES += [b'  {"id" :  7.0e0 ,"id":8}', b"{}"]
BAD = {"not_json": 2, "trailing": 1, "not_schema": 2, "not_utf8": 1}
GOOD = [LINES[number] for number in (0, 4, 8)]


def ingesting(spark: Any, server: Server, topic: str, source: Any, **options: Any) -> pipelines.Ingested:
    given = {"partitions": 2, "format": "json", "schema": "id long", **options}
    return pipelines.ingest(spark, url=server.url, topic=topic, source=str(source), **given)


def headers(url: str, topic: str) -> list[dict[str, bytes | None]]:
    found = []
    with Client(url) as client:
        for partition in range(client.topic(topic).partitions):
            with client.reader(topic, partition=partition, live=False) as reader:
                found += [dict(record.headers) for record in reader]
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "in.json"
    path.write_bytes(b"\n".join(LINES) + b"\n\n")
    return path


def test_lines_that_do_not_fit_are_kept_as_they_are(spark: Any, server: Server, file: Path) -> None:
    topic = name("keep")
    done = ingesting(spark, server, topic, file, bad="keep", key="id")
    assert (done.records, done.bad, done.blank, done.dead_letters) == (9, BAD, 1, 0)
    assert Counter(values(server.url, topic)) == Counter(LINES)
    kinds = Counter(marks["oncelog.bad"] for marks in headers(server.url, topic) if marks)
    assert kinds == {kind.encode(): lines for kind, lines in BAD.items()}
    again = ingesting(spark, server, topic, file, bad="keep", key="id")
    assert (again.records, again.duplicates, again.bad) == (0, 9, BAD)


def test_lines_that_do_not_fit_go_to_the_dead_letter(spark: Any, server: Server, file: Path, tmp_path: Path) -> None:
    topic, dead, folder = name("good"), name("dead"), tmp_path / "dead"
    for _ in range(2):
        done = ingesting(spark, server, topic, file, bad=f"dead-letter:{dead}")
        assert (done.bad, done.dead_letters) == (BAD, 6)
        other = ingesting(spark, server, f"{topic}-2", file, bad=f"dead-letter:{folder}")
        assert (other.bad, other.dead_letters) == (BAD, 6)
    wanted = [line for line in LINES if line not in GOOD]
    assert sorted(values(server.url, topic)) == sorted(values(server.url, f"{topic}-2")) == sorted(GOOD)
    assert values(server.url, dead) == wanted
    (dead_file,) = folder.iterdir()
    assert dead_file.read_bytes() == b"".join(line + b"\n" for line in wanted)
    marks = headers(server.url, dead)[0]
    assert (marks["oncelog.bad"], marks["oncelog.line"]) == (b"not_json", b"2")
    assert str(marks["oncelog.file"]).endswith("in.json'")


def test_line_that_does_not_fit_fails_the_run_and_is_named(spark: Any, server: Server, file: Path) -> None:
    topic = name("fail")
    with pytest.raises(
        pipelines.PipelineRefused, match=r"line 2 of file:.*in\.json is not JSON: b'\{\"id\":2'\. "
    ) as told:
        ingesting(spark, server, topic, file)
    assert "\n" not in str(told.value)
    file.write_bytes(b"\n".join(GOOD) + b"\n")
    assert ingesting(spark, server, topic, file).records == 3


def test_rows_with_ids_and_lines_without(spark: Any, server: Server, file: Path) -> None:
    topic = name("ids")
    for _ in range(2):
        done = ingesting(spark, server, topic, file, message_id="coalesce(id, -1)", bad="keep")
        assert done.bad == BAD
    assert Counter(values(server.url, topic)) == Counter(LINES)


def test_file_that_grows_changes_no_row_though_types_would_be_inferred_anew(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    path, topic = tmp_path / "in.json", name("grows")
    lines = [b'{"n": 1, "k": "a"}', b'{"n":2.50,"k":null}']
    path.write_bytes(lines[0] + b"\n")
    options = {"schema": None, "key": "n"}
    assert ingesting(spark, server, topic, path, **options).records == 1
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert ingesting(spark, server, topic, path, **options).records == 1
    assert Counter(values(server.url, topic)) == Counter(lines)
    path.write_bytes(b'{"n":"x"}\n' + lines[1] + b"\n")
    with pytest.raises(pipelines.PipelineRefused, match="was changed since it was stored") as told:
        ingesting(spark, server, topic, path, **options)
    assert "producer" not in str(told.value), "another producer's name would store every row a second time"


def test_csv_line_that_is_no_row_is_bad(spark: Any, server: Server, tmp_path: Path) -> None:
    path, topic = tmp_path / "in.csv", name("csv")
    path.write_text("id,name\n1,a\nx,b\n3\n4,d,e\n5,f\n")
    options: dict[str, Any] = {"format": "csv", "schema": "id int, name string", "options": {"header": "true"}}
    done = ingesting(spark, server, topic, path, bad="keep", **options)
    assert (done.records, done.bad) == (5, {"malformed": 3})
    found = values(server.url, topic)
    assert sorted(found) == sorted([b'{"id":1,"name":"a"}', b"x,b", b"3", b"4,d,e", b'{"id":5,"name":"f"}'])
    with pytest.raises(pipelines.PipelineRefused, match=r"inferSchema: .*--schema"):
        ingesting(spark, server, topic, path, **{**options, "schema": None, "options": {"inferSchema": "true"}})


def test_followed_folder_counts_bad_lines(spark: Any, server: Server, file: Path, tmp_path: Path) -> None:
    topic, dead = name("followed"), name("dead")
    done = ingesting(
        spark, server, topic, file.parent / "*.json", checkpoint=str(tmp_path / "c"), bad=f"dead-letter:{dead}"
    )
    assert (done.records, done.bad, done.dead_letters) == (3, BAD, 6)
    assert Counter(values(server.url, topic) + values(server.url, dead)) == Counter(LINES)


@pytest.mark.parametrize("text", ["", "drop", "dead-letter", "dead-letter:", "dead-letter:http://x/y"])
def test_choice_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(pipelines.PipelineRefused, match="bad lines: "):
        bad_lines_of(text)


def test_dead_letter_is_a_topic_or_a_folder(tmp_path: Path) -> None:
    assert bad_lines_of("dead-letter:orders.bad") == BadLines("dead-letter", topic="orders.bad")
    for where in (str(tmp_path), "./dead", "s3://lake/dead"):
        assert bad_lines_of(f"dead-letter:{where}").place is not None


def test_record_is_the_line_whatever_json_says_of_it(spark: Any, server: Server, tmp_path: Path) -> None:
    path, topic = tmp_path / "in.json", name("line")
    lines = [b'{"value" : 1.0}', b"17", b'"text"', b"[1, 2]", b"null", json.dumps({"file": "x" * 70_000}).encode()]
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert ingesting(spark, server, topic, path, schema=None).bad == {}
    assert Counter(values(server.url, topic)) == Counter(lines)
