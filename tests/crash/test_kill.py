"""P1, P2, P3, P4, P6, P10 and P12 on a real process and a real disk: fifteen rounds of what `make crash` does 300 times."""

from pathlib import Path

import pytest

from oncelog.testing.kill.rounds import KillRounds

ROUNDS = 15


@pytest.mark.timeout(300)
def test_engine_killed_at_any_moment_loses_doubles_and_tears_nothing(tmp_path: Path) -> None:
    report = KillRounds(tmp_path / "log", seed=20).run(ROUNDS)

    assert not report.examples, report.examples
    assert not any(report.findings.values())
    assert not report.damages
    assert report.clean_stop
    # The zeros mean something only if kills cut requests off, and if some of those had reached the disk.
    assert report.rounds == ROUNDS
    assert report.killed_in_recovery > 0
    assert report.killed_at_work > ROUNDS // 2
    assert report.in_flight > 100
    assert report.retried > 100
    assert report.duplicates > 50
    assert report.records > 500
