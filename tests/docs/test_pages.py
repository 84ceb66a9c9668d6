"""README and the pages of docs/start and docs/guides: every block runs, in its order, against a real server.

Blocks marked `bash` and `python` are run; a block without a mark only shows something. A page has a server of its own,
whose address takes the place of the default one.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.servers.faces import FACES
from tests.cli.running import Server, serving

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "start").glob("*.md")),
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
]
BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
RUNS = {"bash": ["bash", "-eu", "-c"], "python": [sys.executable, "-W", "error", "-c"]}


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(match["kind"], match["code"]) for match in BLOCK.finditer(page.read_text()) if match["kind"] in RUNS]


def at(server: Server, code: str) -> str:
    """The code with the addresses of this server in place of the default ones."""
    for kind in FACES:
        code = code.replace(kind.address, server.addresses[kind.name])
    return code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_the_page_runs(page: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with serving("--data", str(tmp_path / "data"), "--http", "127.0.0.1:0") as server:
        for kind, code in blocks(page):
            done = subprocess.run(
                [*RUNS[kind], at(server, code)],
                env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{code}\n{done.stdout}{done.stderr}"
            statuses = re.findall(r"^HTTP/1.1 (\d+)", done.stdout, re.MULTILINE)
            announced = set(re.findall(r"\b[45]\d\d\b", page.read_text()))
            assert all(status < "400" or status in announced for status in statuses), done.stdout
            assert "urn:oncelog:" not in done.stdout or "412" in announced, done.stdout


def test_most_blocks_are_run() -> None:
    assert sum(len(blocks(page)) for page in PAGES) >= 12
