"""The program as a whole: every verb is listed, says what it does, and takes `--json` if it lists something."""

import ast
import http.server
import re
import signal
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncelog import __version__
from oncelog.cli import exits
from oncelog.cli.main import app
from oncelog.cli.verb import Verb
from tests.cli.running import begun, standing

VERBS = (
    "serve",
    "append",
    "read",
    "streams",
    "producers",
    "receipts",
    "cursors",
    "verify",
    "doctor",
    "demo",
    "explain",
)
CLI = Path(__file__).resolve().parent.parent.parent / "src" / "oncelog" / "cli"


def said(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"}).invoke(app, list(arguments))
    assert result.exit_code == exits.DONE, result.output
    return result.stdout


def test_version_is_printed() -> None:
    assert said("--version") == f"{__version__}\n"


def test_every_verb_is_listed_and_has_a_file_of_its_own() -> None:
    text = said("--help")
    assert [verb for verb in VERBS if f" {verb} " not in text] == []
    registered = {command.name for command in app.registered_commands} | {"streams"}  # a group: it has `set`
    assert registered == set(VERBS)
    for verb in VERBS:
        source = ast.parse((CLI / f"{verb}.py").read_text())
        assert any(isinstance(node, ast.FunctionDef) and node.name == f"{verb}_command" for node in source.body)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str) -> None:
    text = said(verb, "--help")
    assert ("--json" in text) == (verb != "serve")
    lists_or_asks = verb in ("append", "read", "streams", "producers", "receipts", "cursors")
    assert ("ONCELOG_URL" in text) == lists_or_asks


@pytest.mark.parametrize("verb", ["append", "read", "producers", "receipts"])
def test_stream_is_called_the_same_everywhere(verb: str) -> None:
    text = said(verb, "--help")
    assert " STREAM" in text
    assert "TOPIC" not in text


PIPELINES = (["pipeline", verb] for verb in ("ingest", "transform", "land", "audit"))


@pytest.mark.parametrize("arguments", [[], *([verb] for verb in VERBS), ["pipeline"], *PIPELINES], ids=" ".join)
def test_help_names_no_type_of_python(arguments: list[str]) -> None:
    text = said(*arguments, "--help")
    assert "--help" in text
    assert not re.search(r"<bool>|<list|range>", text)
    assert "STREAM      <" not in text


def test_help_of_append_tells_the_type_of_a_new_stream() -> None:
    assert "text/plain" in said("append", "--help")


def test_help_of_append_tells_when_a_pipe_is_stored() -> None:
    text = " ".join(said("append", "--help").replace("│", " ").split())
    assert "stored 5,000 lines or 512 KiB at a time" in text


def test_help_of_append_warns_of_a_line_that_is_still_written() -> None:
    assert "without a line end" in " ".join(said("append", "--help").replace("│", " ").split())


def test_no_verb_and_an_unknown_verb_are_usage_errors() -> None:
    assert CliRunner().invoke(app, []).exit_code == exits.USAGE
    assert CliRunner().invoke(app, ["frobnicate"]).exit_code == exits.USAGE


NOT_UTF_8 = "a\udcff"
"""As the system hands over a byte that is no UTF-8."""


@pytest.mark.parametrize(
    "arguments",
    [
        ["append", NOT_UTF_8, "v"],
        ["append", "t", NOT_UTF_8],
        ["append", "t", "v", "--key", NOT_UTF_8],
        ["append", "t", "--key", NOT_UTF_8],
        ["read", NOT_UTF_8],
        ["streams", "--prefix", NOT_UTF_8],
        ["streams", "--after", NOT_UTF_8],
        ["streams", "--url", f"http://{NOT_UTF_8}:1"],
        ["receipts", "t", NOT_UTF_8],
        ["verify", f"http://{NOT_UTF_8}:1"],
        ["doctor", "--http", f"{NOT_UTF_8}:1"],
        ["serve", "--in-memory", "--set", f"http.address={NOT_UTF_8}"],
        ["pipeline", "audit", "t", NOT_UTF_8],
    ],
)
def test_argument_that_is_no_utf_8_is_a_usage_error(arguments: list[str]) -> None:
    result = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, arguments)
    assert result.exit_code == exits.USAGE, result.exception
    assert r"a\udcff" in result.stderr
    assert "is not UTF-8" in result.stderr


def test_file_may_have_any_name() -> None:
    result = CliRunner().invoke(app, ["append", "t", "--file", NOT_UTF_8, "--url", "http://127.0.0.1:1"])
    assert result.exit_code == exits.UNREACHABLE


@pytest.mark.parametrize("arguments", [["streams"], ["producers", "t"], ["receipts", "t", "i"], ["verify"]])
def test_interrupt_is_one_line_and_a_failure_whatever_waits(arguments: list[str]) -> None:
    asked, over = threading.Event(), threading.Event()

    class Silent(http.server.BaseHTTPRequestHandler):
        """Takes a request and never answers."""

        def do_GET(self) -> None:
            asked.set()
            over.wait()

    with standing(Silent) as url:
        try:
            with begun(*arguments, *([url] if arguments == ["verify"] else []), url=url) as process:
                assert asked.wait(60)
                process.send_signal(signal.SIGINT)
                assert process.communicate(timeout=60) == (b"", b"oncelog: interrupted\n")
        finally:
            over.set()
    assert process.returncode == exits.REFUSED


def test_every_verb_looks_at_its_arguments_and_tells_of_an_interrupt() -> None:
    groups = [app, *(group.typer_instance for group in app.registered_groups if group.typer_instance is not None)]
    assert len(groups) > 1
    assert {command.cls for group in groups for command in group.registered_commands} == {Verb}
