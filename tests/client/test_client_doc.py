"""docs/client.md: its examples run, its tables list every option with its default and every error."""

import re
from collections.abc import Iterator
from dataclasses import fields
from inspect import signature
from pathlib import Path

import pytest

import oncelog.client
from oncelog.client import Client, ClientError, ProducerOptions, ProducerSettings
from tests.client.test_real_server import served

PAGE = Path(__file__).resolve().parents[2] / "docs" / "client.md"
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
DEFAULT_URL = "http://127.0.0.1:4437"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("data")) as server:
        yield server.url


@pytest.mark.parametrize("number", range(len(EXAMPLE.findall(PAGE.read_text()))))
def test_the_example_runs(number: int, url: str) -> None:
    source = EXAMPLE.findall(PAGE.read_text())[number]
    assert DEFAULT_URL in source
    exec(compile(source.replace(DEFAULT_URL, url), f"{PAGE.name} example {number}", "exec"), {"__name__": "example"})


def rows(heading: str) -> dict[str, list[str]]:
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "|" in line]
    return {row[0].strip("`"): row[1:] for row in cells if row[0].startswith("`")}


def test_every_option_is_listed_with_its_default() -> None:
    documented = {name: cells[0].strip("`") for name, cells in rows("Producer options").items()}
    defaults = {field.name: field.default for field in fields(ProducerSettings)}
    assert set(defaults) == set(ProducerOptions.__annotations__)
    defaults["content_type"] = signature(Client.producer).parameters["content_type"].default
    assert documented == {name: repr(default).replace("'", '"') for name, default in defaults.items()}


def test_every_error_is_listed() -> None:
    exported = {name: getattr(oncelog.client, name) for name in oncelog.client.__all__}
    errors = {name for name, kind in exported.items() if isinstance(kind, type) and issubclass(kind, ClientError)}
    assert set(rows("Errors")) == errors - {"ClientError"}


def test_everything_exported_exists_and_is_documented() -> None:
    assert sorted(oncelog.client.__all__) == sorted(set(oncelog.client.__all__))
    for name in oncelog.client.__all__:
        assert hasattr(oncelog.client, name), name
