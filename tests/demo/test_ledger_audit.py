"""The audit without Spark finds each kind of fault, and only that one; and a whole demo without Spark ends well."""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from oncelog.demo.ledger_audit import Identity, Stored, compared
from oncelog.pipelines.audit_result import FAULTS
from oncelog.pipelines.ledger import Line, State

Log = dict[str, dict[str, Identity]]


class Planted:
    """A log and its ledger of two topics: three commits of one writer, in order, and nothing wrong with them."""

    def __init__(self) -> None:
        self.log: Log = {"a": defaultdict(Identity), "b": defaultdict(Identity)}
        for topic, identities in self.log.items():
            for number in range(3):
                identity = identities[f"r{number}"]
                identity.stored.append(Stored(0, number, f"hash {number}"))
                identity.lines.append(self.line("sent", topic, number))
                identity.lines.append(self.line("confirmed", topic, number))

    @staticmethod
    def line(state: State, topic: str, number: int, *, order: int = -1, hash_: str = "") -> Line:
        at = number if state == "confirmed" else -1
        commit = f"c{number}" if state == "sent" else ""
        chosen = hash_ or f"hash {number}"
        order = number if order < 0 else order
        return Line(state, "w", "http", topic, f"r{number}", 0, chosen, 0, order, commit, at)

    def faults(self) -> dict[str, int]:
        result = compared(self.log)
        return {name: getattr(result, name) for name in FAULTS if getattr(result, name)}


def test_sound_log_has_no_fault() -> None:
    planted = Planted()
    result = compared(planted.log)
    assert result.sound
    assert [(topic.records, topic.sent, topic.confirmed) for topic in result.topics] == [(3, 3, 3), (3, 3, 3)]


def test_confirmed_record_that_is_not_there_is_lost_and_its_commit_torn() -> None:
    planted = Planted()
    planted.log["a"]["r1"].stored.clear()
    assert planted.faults() == {"lost": 1, "torn": 1}


def test_record_at_another_offset_than_confirmed_is_lost() -> None:
    planted = Planted()
    planted.log["a"]["r2"].stored[0] = Stored(0, 7, "hash 2")
    assert planted.faults() == {"lost": 1}


def test_record_that_is_there_twice_is_doubled() -> None:
    planted = Planted()
    planted.log["b"]["r1"].stored.append(Stored(0, 9, "hash 1"))
    assert planted.faults() == {"doubled": 1}


def test_other_content_is_conflicting() -> None:
    planted = Planted()
    planted.log["a"]["r0"].stored[0] = Stored(0, 0, "other")
    assert planted.faults() == {"conflicting": 1}


def test_record_without_a_ledger_is_unexpected() -> None:
    planted = Planted()
    planted.log["a"]["stranger"].stored.append(Stored(0, 3, "hash"))
    assert planted.faults() == {"unexpected": 1}


def test_refused_record_that_is_there_is_unexpected() -> None:
    planted = Planted()
    planted.log["a"]["r0"].lines.append(planted.line("refused", "a", 0))
    assert planted.faults()["unexpected"] == 1


def test_records_that_changed_places_are_out_of_order() -> None:
    planted = Planted()
    first, second = planted.log["a"]["r0"], planted.log["a"]["r1"]
    first.lines, second.lines = (
        [planted.line("sent", "a", 0, order=5), planted.line("confirmed", "a", 0)],
        [planted.line("sent", "a", 1, order=1), planted.line("confirmed", "a", 1)],
    )
    assert planted.faults() == {"out_of_order": 2}, "r1 and r2 stand behind r0, which was sent after both"


def test_record_that_was_sent_again_may_stand_behind_a_later_one() -> None:
    planted = Planted()
    planted.log["a"]["r0"].stored[0] = Stored(0, 8, "hash 0")
    planted.log["a"]["r0"].lines = [planted.line("sent", "a", 0, order=0), planted.line("sent", "a", 0, order=9)]
    assert planted.faults() == {}


@pytest.mark.timeout(300)
def test_whole_demo_without_spark_is_sound(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from oncelog.cli.main import main; main()",
         "demo", "--no-spark", "--seed", "11", "--scale", "0.1", "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    verdict = json.loads(done.stdout)
    assert verdict["sound"]
    assert verdict["server_kills"] == 4
    assert verdict["audit"]["records"] > 1_000
    assert not list(tmp_path.iterdir()), "the demo without Spark leaves nothing behind"
