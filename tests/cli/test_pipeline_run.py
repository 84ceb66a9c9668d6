"""What a pipeline says while it runs: on a screen a line that changes, elsewhere a note now and then."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from oncelog.cli.pipeline_run import NOTE_S, Line
from oncelog.cli.screen import counted
from tests.cli.running import run


class Clock:
    def __init__(self) -> None:
        self.now_s = 1.0

    def __call__(self) -> float:
        return self.now_s


def test_run_that_nobody_watches_notes_at_once_and_then_at_most_every_ten_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    line = Line(Progress(disable=True), clock)
    for after_s, text in ((0.0, "starting Spark"), (NOTE_S - 0.1, "planning"), (0.1, "batch 1"), (0.1, "batch 2")):
        clock.now_s += after_s
        line.say(text)
    assert capsys.readouterr() == ("", "starting Spark\nbatch 1\n")


def test_line_on_a_screen_changes_and_nothing_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True)
    bar = Progress(TextColumn("{task.description}"), console=screen, auto_refresh=False)
    line = Line(bar)
    assert [task.description for task in bar.tasks] == ["looking at topics"]
    line.say("starting Spark")
    assert [task.description for task in bar.tasks] == ["starting Spark"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("count", "says"), [(0, "0 batches"), (1, "1 batch"), (2_000, "2,000 batches")])
def test_one_is_counted_as_one(count: int, says: str) -> None:
    assert counted(count, "batch", "batches") == says
    assert counted(count, "file") == says.replace("batches", "files").replace("batch", "file")


NOBODY = "http://127.0.0.1:1"
"""Where no server is: a run that gets as far as asking it ends there, and starts no Spark."""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["ingest", "t", "{folder}/absent.txt"], "{folder}/absent.txt: No such file or directory"),
        (["ingest", "t", "{folder}/absent", "--format", "JSON"], "{folder}/absent: No such file or directory"),
        (["audit", "t", "--table", "x", "--events", "{folder}/absent"], "{folder}/absent: No such file or directory"),
        (["audit", "t", "--ledger", "{folder}/absent"], "{folder}/absent: No such file or directory"),
        (["audit", "t", "--ledger", "{folder}"], "{folder}: Is a directory"),
    ],
)
def test_path_that_is_not_there_is_told_before_anything_is_started(tmp_path: Path, words: list[str], says: str) -> None:
    done = run("pipeline", *(word.format(folder=tmp_path) for word in words), url=NOBODY)
    assert (done.returncode, done.stdout.decode()) == (2, "")
    assert " ".join(done.stderr.decode().split()) == f"oncelog: cannot read {says.format(folder=tmp_path)}"


@pytest.mark.parametrize(
    "words",
    [
        ["ingest", "t", "{folder}"],
        ["ingest", "t", "{folder}/*.txt"],
        ["ingest", "t", "s3a://bucket/absent"],
        ["ingest", "t", "absent", "--format", "jdbc"],
        ["ingest", "t", "/absent", "--master", "yarn"],
        ["ingest", "t", "/absent", "--conf", "spark.hadoop.fs.defaultFS=hdfs://there"],
    ],
)
def test_source_that_only_spark_can_look_at_is_left_to_it(tmp_path: Path, words: list[str]) -> None:
    done = run("pipeline", *(word.format(folder=tmp_path) for word in words), url=NOBODY)
    assert done.returncode != 2, done.stderr
    assert b"cannot read" not in done.stderr
