"""The guide "two plants in ten minutes" does what it says."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "bsfg" / "two_plants.py"


@pytest.mark.timeout(300)
def test_two_plants_agree_after_one_was_killed() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("sound") == 2
