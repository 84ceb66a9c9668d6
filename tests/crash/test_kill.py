"""P1, P2, P3, P4, P6, P10 and P12 on a real process and disk: fifteen of the rounds of which `make crash` does 300.

A judge that no bug can fail proves nothing: bugs are put into the engine one at a time, and the rounds must find them.
"""

from pathlib import Path

import pytest

from oncelog.testing.kill.engine_client import wait_for_processes
from oncelog.testing.kill.rounds import KillRounds
from tests.crash.planted import SLOW_WRITES

ROUNDS = 15
ROUNDS_WITH_BUG = 4
BUG_TRIES_MAX = 4

RUN_ENGINE = """
import runpy
runpy.run_module("oncelog.testing.kill.engine_process", run_name="__main__", alter_sys=True)
"""

CONFIRM_BEFORE_WRITING = """
from oncelog.engine.commit_loop import CommitLoop
seal = CommitLoop.next_group
def next_group(loop):
    group = seal(loop)
    if group is not None:
        answers, group.answers = group.answers, []
        for reply, outcome in answers:
            reply(outcome)
    return group
CommitLoop.next_group = next_group
"""

FORGET_IDS = """
from oncelog.core.state import State
State.find_id = lambda state, id_hash: None
"""

SHOW_OPEN_TXNS = """
from oncelog.engine import read_view
honest = read_view.view_of
read_view.view_of = lambda row: honest(row).replaced(stable=row.tail)
"""


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


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("bug", "found"),
    [
        pytest.param(SLOW_WRITES + CONFIRM_BEFORE_WRITING, "lost", id="confirm-before-writing"),
        pytest.param(FORGET_IDS, "doubled", id="forget-ids"),
        pytest.param(SHOW_OPEN_TXNS, "lost", id="show-open-txns"),  # read along, and gone when it was aborted
    ],
)
def test_rounds_find_a_bug_that_is_put_in(tmp_path: Path, bug: str, found: str) -> None:
    for seed in range(20, 20 + BUG_TRIES_MAX):  # a loaded machine gives a bug fewer chances to show itself
        directory = tmp_path / f"log-{seed}"
        report = KillRounds(directory, seed=seed, script=bug + RUN_ENGINE).run(ROUNDS_WITH_BUG)
        assert wait_for_processes(directory)
        if not report.sound:
            break
    assert not report.sound
    assert report.findings[found] > 0, report.examples
