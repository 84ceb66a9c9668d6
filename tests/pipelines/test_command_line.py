"""The verbs, as processes: what they print, how they end."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.topics import documents, each_once, filled, name, numbers, raw, table_rows, values
from tests.spark.serving import Server

PROGRAM = "from oncelog.cli.main import main; main()"

# As if it had never been installed: the search for it finds nothing.
WITHOUT_SPARK = (
    "import importlib.util as u; found = u.find_spec; "
    "u.find_spec = lambda name, *rest: None if name == 'pyspark' else found(name, *rest)"
)


def run(*words: object, program: str = PROGRAM, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, "pipeline", *(str(word) for word in words)]
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def answer(done: subprocess.CompletedProcess[str], code: int = 0) -> Any:
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_file_goes_through_all_verbs(server: Server, tmp_path: Path) -> None:
    source, topic, target, table = tmp_path / "in.json", name("in"), name("out"), tmp_path / "table"
    source.write_text("".join(json.dumps(record) + "\n" for record in numbers(0, 50)))
    (tmp_path / "job.py").write_text("def keep(topics):\n    (only,) = topics.values()\n    return only\n")
    local = ("--url", server.url, "--master", "local[2]", "--json")
    ingested = answer(run("ingest", topic, source, "--format", "json", "--key", "kind", "--partitions", 2, *local))
    assert (ingested["records"], ingested["duplicates"], ingested["files"]) == (50, 0, 1)
    words = ["--topic", topic, "--application", target, "--checkpoint", tmp_path / "checkpoint", "--partitions", 2]
    transformed = answer(run("transform", target, *words, "--function", f"{tmp_path / 'job.py'}:keep", *local))
    assert (transformed["input_rows"], transformed["output_rows"]) == (50, 50)
    assert each_once(documents(server.url, target), 50)
    landed = answer(run("land", target, table, "--schema", "id string, n int, kind string", *local))
    assert landed["output_rows"] == 50
    assert each_once(table_rows(table), 50)
    # One record more than was landed: the audit must say so, on the screen, on the page and by its exit code.
    raw(server.url, target, [b'{"id": "late"}'], partitions=2)
    report = tmp_path / "report.html"
    done = run("audit", target, "--table", table, "--report", report, *local[:-1])
    assert done.returncode == 4, done.stderr
    assert "lost 1, doubled 0" in done.stdout
    assert "Not sound: 1 lost" in report.read_text()
    steps = ("planning", "reading the log", "comparing ", "writing the report")
    noted = done.stderr.splitlines()
    assert noted[0] == "starting Spark"
    assert all(line.startswith(steps) for line in noted[1:]), f"Java and Spark are to be silent: {noted}"


def test_server_that_is_not_there_is_told_before_spark_starts() -> None:
    done = run("land", "topic", "table", "--url", "http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (3, "")
    assert "cannot reach" in done.stderr


def test_missing_spark_is_told_with_what_to_install(server: Server) -> None:
    done = run("land", "topic", "table", "--url", server.url, program=f"{WITHOUT_SPARK}; {PROGRAM}")
    assert done.returncode == 1
    assert "pip install 'oncelog[spark]'" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["land", "absent", "table"], "there is no topic 'absent' at {url}"),
        (["transform", "target", "--topic", "absent", "--partitions", 1], "there is no topic 'absent' at {url}"),
        (
            ["transform", "absent", "--topic", "there"],
            "there is no topic 'absent': say with how many partitions it is to be made (--partitions N)",
        ),
        (["audit", "there", "--table", "{folder}"], "{folder} is no table that was landed"),
    ],
    ids=["land", "transform", "target", "audit"],
)
def test_wrong_name_is_one_line_and_starts_no_spark(
    server: Server, tmp_path: Path, words: list[Any], says: str
) -> None:
    filled(server.url, "there", [])
    if words[0] == "transform":
        words = [*words, "--application", "a", "--checkpoint", tmp_path / "c", "--sql", "SELECT 1"]
    done = run(*(str(word).format(folder=tmp_path) for word in words), "--url", server.url, "--master", "local[1]")
    assert (done.returncode, done.stdout) == (1, "")
    # A run that nobody watches notes the start of Spark.
    assert done.stderr == f"oncelog: {says.format(url=server.url, folder=tmp_path)}\n"


@pytest.mark.parametrize(
    "words",
    [
        ["land", "there", "table", "--format", "iceberg"],
        ["land", "there", "table", "--starting", "soon"],
        ["land", "there", "table", "--starting", "group:me"],
        ["transform", "out", "--topic", "t", "--application", "a", "--checkpoint", "c", "--starting", "[1]"],
    ],
    ids=lambda words: " ".join(words[-2:]),
)
def test_wrong_value_is_a_mistake_of_usage(words: list[str]) -> None:
    done = run(*words, "--url", "http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "")
    assert words[-2] in done.stderr


def test_rows_that_are_no_json_are_told(server: Server, tmp_path: Path) -> None:
    topic = raw(server.url, name("bad"), [b'{"n": 1}', b"no JSON"])
    done = run("land", topic, tmp_path / "table", "--schema", "n int", "--url", server.url, "--master", "local[1]")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 rows in, 2 out, 1 batch, ")
    assert "1 row with a value that is not JSON of the table's schema: the bytes are in _unparsed" in done.stderr


def test_function_that_cannot_be_loaded_is_told(server: Server, tmp_path: Path) -> None:
    words = ["--topic", "t", "--application", "a", "--checkpoint", tmp_path, "--url", server.url]
    (tmp_path / "broken.py").write_text("raise KeyError('no such thing')\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "odd.py").write_text("def f(:\n")
    broken = (f"{tmp_path}/broken.py:f", f"{tmp_path}/leaves.py:f", f"{tmp_path}/odd.py:f")
    for text in ("nothing", "absent.module:f", f"{tmp_path}/absent.py:f", "json:absent", *broken):
        done = run("transform", "target", *words, "--function", text)
        assert done.returncode == 2, done.stderr
        assert "--function" in done.stderr
        assert "Traceback" not in done.stderr
    assert done.stderr.startswith(f"oncelog: --function: cannot load {tmp_path}/odd.py: SyntaxError: ")
    assert done.stderr.count("\n") == 1


def test_function_that_fails_is_told_in_one_line(server: Server, tmp_path: Path) -> None:
    topic = raw(server.url, name("in"), [b"{}"])
    lines = ["class Own(Exception): ...", "def fails(topics):", "    raise Own('no such\\nthing')"]
    (tmp_path / "job.py").write_text("\n".join(lines))
    words = ["--topic", topic, "--application", "a", "--checkpoint", tmp_path / "c", "--url", server.url]
    words += ["--partitions", 1, "--master", "local[1]"]
    done = run("transform", name("out"), *words, "--function", f"{tmp_path}/job.py:fails")
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if line not in ("starting Spark", "planning")]
    line, _, account = said.pop().partition(" (the whole account: ")
    assert (said, line) == ([], f"oncelog: {tmp_path}/job.py:fails failed: Own: no such thing")
    whole = Path(account.removesuffix(")"))
    assert "raise Own(" in whole.read_text()
    whole.unlink()


UDF_JOB = """
from pyspark.sql.functions import udf
import neighbour

@udf("string")
def doubled(text):
    return neighbour.twice(text)

def job(topics):
    (only,) = topics.values()
    return only.select(doubled(only.value.cast("string")).alias("value"))
"""


def test_function_file_holds_udfs_and_imports_its_neighbours(server: Server, tmp_path: Path) -> None:
    topic, target = raw(server.url, name("in"), [b"a", b"b"]), name("out")
    (tmp_path / "job.py").write_text(UDF_JOB)
    (tmp_path / "neighbour.py").write_text("def twice(text):\n    return text + text\n")
    words = ["--topic", topic, "--application", "a", "--checkpoint", tmp_path / "c", "--url", server.url]
    words += ["--partitions", 1, "--master", "local[1]"]
    done = run("transform", target, *words, "--function", f"{tmp_path}/job.py:job")
    assert done.returncode == 0, done.stderr
    assert values(server.url, target) == [b"aa", b"bb"]


def test_master_that_does_not_answer_is_told_in_one_line(server: Server, tmp_path: Path) -> None:
    topic = raw(server.url, name("in"), [b"{}"])
    master = "spark://127.0.0.1:1"
    done = run("land", topic, tmp_path / "table", "--url", server.url, "--master", master, "--schema", "id int")
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if line not in ("starting Spark", "planning")]
    assert len(said) == 1
    assert said[0].startswith(f"oncelog: no Spark master answers at {master} (127.0.0.1:1: ")


def test_function_of_a_file_may_use_what_looks_for_its_module(tmp_path: Path) -> None:
    lines = ["from __future__ import annotations", "import dataclasses", "@dataclasses.dataclass", "class Row:"]
    lines += ["    n: int", "def rows(topics):", "    return Row(len(topics))"]
    (tmp_path / "with_dataclass.py").write_text("\n".join(lines))
    text = f"{tmp_path}/with_dataclass.py:rows"
    check = f"from oncelog.cli.user_function import loaded; print(loaded({text!r})({{}}))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "Row(n=0)", done.stderr


def test_bad_sql_is_told_once(server: Server, tmp_path: Path) -> None:
    topic = raw(server.url, name("in"), [b"{}"])
    words = ["--topic", topic, "--application", "a", "--checkpoint", tmp_path / "c", "--url", server.url]
    words += ["--partitions", 1, "--master", "local[1]"]
    done = run("transform", name("out"), *words, "--sql", "SELECT absent FROM nowhere")
    assert done.returncode == 1, done.stderr
    assert "Spark does not take the query" in done.stderr
    assert '{"ts"' not in done.stderr
