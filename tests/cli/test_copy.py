"""docs/guarantees.md, "Copying a log": the commands as they stand there, and what is said about copies."""

import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from oncelog.client import Client
from oncelog.client.models import CommitAppend
from tests.cli.running import PROGRAM, done, serving

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guarantees.md"
ANY_PORT = ("--any-port",)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A log in `data`, stopped, and its copy, made and verified as the page says."""
    with serving("--data", str(tmp_path / "data"), *ANY_PORT) as server:
        with Client(server.url) as client:
            client.create_topic("t")
            client.append("t", {"n": 0}, message_id="first")
            client.commit([CommitAppend("t", [{"n": 1}])], commit_id="c")
        assert server.stop() == 0
    section = PAGE.read_text().partition("\n## Copying a log\n")[2].partition("\n## ")[0]
    (commands,) = re.findall(r"^```\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert [line.split()[0] for line in commands.splitlines()] == ["cp", "oncelog"]
    for command in commands.replace("oncelog", PROGRAM).splitlines():
        result = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result
    assert "sound" in result.stdout
    return tmp_path / "copy"


def test_copy_has_the_records_and_what_is_remembered(copied: Path) -> None:
    with serving("--data", str(copied), *ANY_PORT) as server, Client(server.url) as client:
        assert done("read", "t", url=server.url) == '{"n":0}\n{"n":1}\n'
        again = client.append("t", {"n": 0}, message_id="first")
        assert (again.duplicate, again.next_offset) == (True, 1)
        assert client.commit([CommitAppend("t", [{"n": 1}])], commit_id="c").duplicate


def test_copy_that_takes_writes_is_another_log(copied: Path) -> None:
    """Nothing keeps the two apart: what one is told the other does not know."""
    original = copied.with_name("data")
    with serving("--data", str(original), *ANY_PORT) as one, serving("--data", str(copied), *ANY_PORT) as other:
        for number, server in enumerate((one, other)):
            with Client(server.url) as client:
                told = client.append("t", {"side": number}, message_id="later")
                assert (told.duplicate, told.next_offset) == (False, 3)


def test_copy_without_its_index_is_a_log(copied: Path) -> None:
    shutil.rmtree(copied / "index")
    assert "there is no index: the next start builds it" in done("verify", str(copied), url="")
    with serving("--data", str(copied), *ANY_PORT) as server, Client(server.url) as client:
        assert client.append("t", {"n": 0}, message_id="first").duplicate
        assert server.stop() == 0
    (report,) = (msgspec.json.decode(line) for line in done("verify", str(copied), "--json", url="").splitlines())
    assert (report["verdict"], report["records"], report["notes"]) == ("sound", 2, [])
