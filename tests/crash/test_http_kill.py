"""P1, P2, P3, P4, P5 and P12 over HTTP, on a real process and disk: fifteen of the rounds of which the loop does 300,
with and without a bad network before it.

A judge that no bug can fail proves nothing: bugs are put into a writer, the ledger and the server, and must be found.
"""

from pathlib import Path

import pytest

from oncelog.testing.http_kill.lanes import Request
from oncelog.testing.http_kill.rounds import KINDS, HttpKillRounds, Report
from oncelog.testing.http_kill.stream_writers import IdWriter
from oncelog.testing.kill.engine_client import processes_of
from tests.crash.planted import SLOW_WRITES

ROUNDS = 15
ROUNDS_WITH_PROXY = 15
ROUNDS_WITH_BUG = 3

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

CUT_WITHOUT_THE_LAST_RECORD = """
from oncelog.engine.lookups import Lookups
honest = Lookups.cut
def cut(engine, topics):
    found = honest(engine, topics)
    streams = [
        entry._replace(stream=entry.stream.replaced(stable=entry.stream.stable - 1))
        if entry.topic == "commits/c" and entry.stream.stable else entry
        for entry in found.streams
    ]
    return found._replace(streams=streams)
Lookups.cut = cut
"""

RESTART_ON_EVERY_ZERO = """
from oncelog.core import producer
producer._is_same_run = lambda row, claim: claim.first != 0
"""


def assert_sound(report: Report, rounds: int) -> None:
    assert not report.examples, report.examples
    assert not any(report.findings.values())
    assert not report.damages
    assert report.clean_stop
    assert report.rounds == rounds


@pytest.mark.timeout(300)
def test_server_killed_at_any_moment_loses_doubles_tears_and_refuses_nothing(tmp_path: Path) -> None:
    report = HttpKillRounds(tmp_path / "log", seed=9).run(ROUNDS)

    assert_sound(report, ROUNDS)
    # The zeros mean something only if kills cut requests off, and if some of those had reached the disk.
    assert report.killed_in_recovery > 0
    assert report.killed_at_work > ROUNDS // 2
    assert report.retried > 100
    assert report.duplicates > 50
    assert report.rightly_refused > 10
    assert report.records > 500
    assert report.looks > ROUNDS // 3
    assert all(writer.confirmed for writer in report.writers)
    assert not list(processes_of(tmp_path / "log"))


@pytest.mark.timeout(300)
def test_the_same_holds_on_a_network_that_drops_answers_and_cuts_connections(tmp_path: Path) -> None:
    report = HttpKillRounds(tmp_path / "log", seed=20, proxy=True, kill_within_s=1.0).run(ROUNDS_WITH_PROXY)

    assert_sound(report, ROUNDS_WITH_PROXY)
    assert report.dropped > 5
    assert report.cut > 2
    assert report.delayed > 5
    assert report.retried > 50
    assert report.duplicates > 50
    assert not list(processes_of(tmp_path / "log"))


class NewIdOnRetry(IdWriter):
    """What many clients do: every attempt has an id of its own."""

    retry_count = 0

    def to_send_again(self, request: Request) -> Request:
        if request.unit is None or request.refusal:
            return request
        self.retry_count += 1
        identities = list(request.unit.identities)
        return self.identified(f"retry-{self.retry_count}", identities, request.unit, request.partition)


@pytest.mark.timeout(120)
def test_a_retry_under_a_new_id_is_found_doubled(tmp_path: Path) -> None:
    kill_rounds = HttpKillRounds(tmp_path / "log", 22, proxy=True, kinds={"ids": NewIdOnRetry}, kill_within_s=1.0)
    report = kill_rounds.run(ROUNDS_WITH_BUG)
    assert not report.sound
    assert report.findings["doubled"] > 0, report.examples


@pytest.mark.timeout(120)
def test_a_confirmation_of_what_is_not_there_is_found_lost(tmp_path: Path) -> None:
    kill_rounds = HttpKillRounds(tmp_path / "log", 23, kinds={"producer": KINDS["producer"]})

    def tamper(report: Report) -> None:
        if report.rounds == 1 and kill_rounds.ledger.place_of:
            identity, (stream_id, offset) = next(iter(kill_rounds.ledger.place_of.items()))
            kill_rounds.ledger.place_of[identity] = (stream_id, offset + 1)

    report = kill_rounds.run(2, tamper)
    assert not report.sound
    assert report.findings["lost"] > 0, report.examples


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("bug", "writer", "found"),
    [
        # What was confirmed and is gone is missing, or, if it was sent once more before anybody looked, written anew.
        # By id: a producer whose sequence has lost one of its numbers would be told of the gap for ever.
        pytest.param(SLOW_WRITES + CONFIRM_BEFORE_WRITING, "ids", "lost doubled", id="confirm-before-writing"),
        pytest.param(FORGET_IDS, "ids", "doubled", id="forget-ids"),
        pytest.param(CUT_WITHOUT_THE_LAST_RECORD, "commits", "torn", id="cut-without-the-last-record"),
        pytest.param(RESTART_ON_EVERY_ZERO, "sessionless", "doubled", id="restart-on-every-zero"),
    ],
)
def test_rounds_find_a_bug_that_is_put_into_the_server(tmp_path: Path, bug: str, writer: str, found: str) -> None:
    kinds = {writer: KINDS[writer]}
    kill_rounds = HttpKillRounds(tmp_path / "log", 24, proxy=True, kinds=kinds, kill_within_s=1.0, script=bug)
    report = kill_rounds.run(ROUNDS_WITH_BUG)
    assert not report.sound
    assert any(report.findings[kind] > 0 for kind in found.split()), report.examples
    assert not list(processes_of(tmp_path / "log"))
