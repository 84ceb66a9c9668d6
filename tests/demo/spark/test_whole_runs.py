"""`oncelog demo` from end to end: it ends well, it ends badly when something is wrong, and it leaves nothing behind."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from oncelog.cli import exits
from oncelog.cli.main import app
from oncelog.client import AsyncClient
from oncelog.demo import run as running
from oncelog.demo.faces import FACES
from oncelog.demo.flows import SALES
from oncelog.demo.orders import ORDERS
from oncelog.demo.places import Places

COMMAND = (sys.executable, "-c", "from oncelog.cli.main import main; main()", "demo", "--scale", "0.1", "--seed", "4")


def environment(temporary: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(temporary), "NO_COLOR": "1"}


def processes_that_know(folder: Path) -> list[str]:
    """Command lines of processes that were told of the folder, by argument or by environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            told = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if str(folder).encode() in told:
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where the run puts its folder; nothing else does."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def test_small_run_ends_well_and_says_so(tmp_path: Path, temporary: Path) -> None:
    result = subprocess.run(
        COMMAND, cwd=tmp_path, env=environment(temporary), capture_output=True, text=True, check=False
    )
    assert result.returncode == exits.DONE, result.stdout + result.stderr
    assert "lost 0, doubled 0, torn 0, out of order 0, conflicting 0, unexpected 0" in result.stdout
    assert "kill -9 Spark driver" in result.stdout
    assert f"killed with kill -9: server 6 times, producers {len(FACES)}, Spark driver 1" in result.stdout
    report = tmp_path / "oncelog-report.html"
    page = report.read_text()
    assert "<html" in page
    network = re.search(r"network: (\S+) answers dropped, (\S+) connections cut", result.stdout)
    assert network is not None
    assert f"The network dropped {network[1]} answers and cut {network[2]} connections." in page
    assert re.search(r"<td>IdempotentProducer</td><td>[\d,]+</td><td>by itself</td>", page)
    assert f"report: {report.name}" in result.stdout
    assert [line for line in result.stdout.splitlines() if line != line.rstrip() or len(line) > 80] == []
    assert list(temporary.iterdir()) == [], "the folder stays only if it is asked for"
    assert processes_that_know(temporary) == []


def test_run_with_a_lost_record_and_a_lost_row_ends_badly(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def spoil(places: Places, url: str) -> None:
        from deltalake import DeltaTable

        async with AsyncClient(url) as client:
            await client.delete_records(ORDERS, [(5, 7)], partition=1)
        table: Any = DeltaTable(str(places.table(SALES)))
        assert table.delete("order_id = 'commits-0-1' OR order_id = 'commits-0-2'")["num_deleted_rows"] > 0

    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(running, "run_demo", partial(running.run_demo, before_audit=spoil))
    report = tmp_path / "report.html"
    result = CliRunner().invoke(app, ["demo", "--scale", "0.1", "--seed", "5", "--json", "--report", str(report)])
    assert result.exit_code == exits.DAMAGED, result.output
    verdict = msgspec.json.decode(result.stdout)
    assert verdict["sound"] is False
    topics = {topic["topic"]: topic for topic in verdict["audit"]["topics"]}
    assert topics[ORDERS]["lost"] == 2
    assert topics[SALES]["table_lost"] in (1, 2)
    assert topics[SALES]["lost"] == 0, "the log has them: only the table was spoilt"
    assert verdict["audit"]["doubled"] == 0
    assert report.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_leaves_no_process_and_no_folder(tmp_path: Path, temporary: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        COMMAND, cwd=tmp_path, env=environment(temporary), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        # Everything runs by then: server, producers, and the virtual machine of Spark.
        assert any("Spark driver 1 is up" in line for line in process.stdout)
        assert len(processes_that_know(temporary)) > 2
        process.send_signal(number)
        said = process.stdout.read() + process.stderr.read()
        assert process.wait() == exits.REFUSED, said
    assert "interrupted" in said
    assert "Traceback" not in said
    assert processes_that_know(temporary) == []
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "oncelog-report.html").exists()
