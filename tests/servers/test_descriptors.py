"""What a process is started with, and what it may open."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.process import ROOT

START = """
import os, sys
for number in {closed}:
    os.close(number)
sys.stdin = sys.stdout = sys.stderr = None
from oncelog.servers.descriptors import keep_standard_ones
keep_standard_ones()
opened = os.open({path!r}, os.O_CREAT | os.O_WRONLY)
os.write(opened, b"the log")
sys.stderr.write("an error")
sys.stderr.flush()
os.write(2, b"a library's error")
sys.exit(0 if opened > 2 else 1)
"""


@pytest.mark.parametrize("closed", [(), (2,), (0, 2), (0, 1, 2)])
def test_no_file_takes_the_place_of_a_descriptor_that_errors_are_written_to(
    tmp_path: Path, closed: tuple[int, ...]
) -> None:
    """Somebody starts a server with `2>&-`, or from a supervisor that has none of the three."""
    path = tmp_path / "segment"
    script = START.format(closed=closed, path=str(path))
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False, capture_output=True)
    assert done.returncode == 0
    assert path.read_bytes() == b"the log"


def test_server_without_a_place_for_its_errors_serves_and_stops(tmp_path: Path) -> None:
    script = (
        "import os, sys; os.close(2); sys.stderr = None; from tests.servers.process import main; "
        f'sys.argv[1:] = [\'{{"data": "{tmp_path / "log"}", "http.address": "127.0.0.1:0"}}\']; main()'
    )
    server = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    with server:
        try:
            assert server.stdout.readline().startswith("ready ")
            server.terminate()
            assert server.wait(30) == 0
        finally:
            server.kill()
