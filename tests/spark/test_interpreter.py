"""Who chooses the interpreter of the workers, judged without Spark."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.spark.interpreter import Interpreter, chosen, stand_in


@pytest.fixture(autouse=True)
def nobody_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_session_wins_over_environment_over_defaults_and_ours_is_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert chosen({}) == (sys.executable, "")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert chosen({}) == (sys.executable, "")
    file = tmp_path / "spark-defaults.conf"
    file.write_text("# a comment\nspark.pyspark.pythonic no\nspark.pyspark.python   /of/defaults\n")
    assert chosen({}) == ("/of/defaults", str(file))
    file.write_text("spark.pyspark.python=/of/defaults\n")
    assert chosen({}).name == "/of/defaults"
    monkeypatch.setenv("PYSPARK_PYTHON", "/of/environment")
    assert chosen({}) == ("/of/environment", "PYSPARK_PYTHON")
    assert chosen({"spark.pyspark.python": "/of/session"}) == ("/of/session", "spark.pyspark.python")


def test_absolute_path_must_be_here_and_a_relative_one_may_come_with_an_archive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Interpreter(str(tmp_path / "absent"), "x").is_absent
    assert not Interpreter(sys.executable, "").is_absent
    sent = Interpreter("./environment/bin/python", "x")
    assert sent.is_sent_along
    assert not sent.is_absent
    assert not Interpreter("python3", "x").is_sent_along
    folder = tmp_path / "driver"
    stand_in(sent, folder)
    program = [os.path.join(folder, sent.name), "-c", "import sys; print(sys.prefix)"]
    assert subprocess.run(program, capture_output=True, text=True, check=True).stdout.strip() == sys.prefix
    (tmp_path / "environment" / "bin").mkdir(parents=True)
    (tmp_path / "environment" / "bin" / "python").touch()
    assert not sent.is_sent_along, "somebody has unpacked it here"
