"""What the demo says when something that it needs is not there."""

import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncelog.cli import exits
from oncelog.cli.main import app

real_find_spec = importlib.util.find_spec


def without_spark(name: str, package: str | None = None) -> ModuleSpec | None:
    return None if name == "pyspark" else real_find_spec(name, package)


def test_without_pyspark_the_demo_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", without_spark)
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == exits.USAGE
    assert "pyspark" in result.stderr
    assert "make run" in result.stderr


@pytest.mark.parametrize("arguments", [["--scale", "0"], ["--scale", "1000"], ["--seed", "-1"], ["--seed", "x"]])
def test_numbers_out_of_range_are_usage_errors(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["demo", *arguments])
    assert result.exit_code == exits.USAGE
    assert arguments[0] in result.stderr


@pytest.mark.parametrize("name", ["nowhere/report.html", "."])
def test_report_that_cannot_be_written_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("oncelog.demo.needs.missing", lambda: "")
    result = CliRunner().invoke(app, ["demo", "--report", str(tmp_path / name)])
    assert result.exit_code == exits.USAGE
    assert "--report" in result.stderr
