"""`oncelog explain` and docs/errors.md: every code that a face can answer is there."""

import json

import pytest

from oncelog.cli.explain import all_errors
from oncelog.core import outcome
from oncelog.protocols.explained import Explained
from tests.cli.running import run_here as run
from tools import errors_doc


def test_every_refusal_of_the_core_is_explained() -> None:
    refusals = {kind.code for kind in outcome.Refusal.__subclasses__()}
    assert refusals <= {row.code for row in all_errors() if row.face == "http"}


@pytest.mark.parametrize("row", all_errors(), ids=lambda row: f"{row.face}-{row.code}")
def test_every_row_says_what_and_what_to_do(row: Explained) -> None:
    assert row.meaning.strip()
    assert row.what_to_do.strip()


def test_code_is_explained_in_words() -> None:
    told = run("explain", "sequence_gap")
    assert told.returncode == 0
    assert "sequence <received> came, <expected> is next" in told.stdout.decode()


def test_code_is_explained_as_json() -> None:
    (row,) = json.loads(run("explain", "fenced", "--json").stdout)
    assert (row["face"], row["status"]) == ("http", "403")


def test_unknown_code_is_refused_with_a_guess() -> None:
    told = run("explain", "sequence_gab")
    assert told.returncode == 1
    assert "sequence_gap" in told.stderr.decode()


def test_errors_page_is_what_the_source_says() -> None:
    assert errors_doc.PAGE.read_text() == errors_doc.render(), f"docs/errors.md is stale: {errors_doc.COMMAND}"
