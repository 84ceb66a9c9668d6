"""A few rounds of the NATS kill loop; `python -m tests.crash.nats_kill_loop` does many."""

from pathlib import Path

import pytest

from tests.crash.nats_kill_loop import run


@pytest.mark.timeout(300)
def test_nothing_is_lost_or_doubled_over_kills(tmp_path: Path) -> None:
    assert run(4, 11, tmp_path / "log") == []
