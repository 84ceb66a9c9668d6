"""A few seeds of the simulation in every test run, and the two things that make a seed worth printing: the same seed
does the same again, and a failing one is reported with the command that repeats it."""

import functools

import pytest

from tests.crash import sim_loop
from tests.crash.sim_loop import SimRun, run_seed

SEEDS = range(20)


@functools.cache
def log_of(seed: int) -> list[str]:
    return run_seed(seed).log


@pytest.mark.parametrize("seed", SEEDS)
def test_seed(seed: int) -> None:
    assert log_of(seed)


def test_seeds_reach_power_cuts_restarts_and_every_kind_of_client() -> None:
    lines = [line for seed in SEEDS for line in log_of(seed)]
    for word in ("power cut, KEPT", "power cut, OLD", "power cut, LOST", "clean restart", "asked", "txn abort"):
        assert any(word in line for line in lines), f"no seed came to: {word}"


def test_the_same_seed_twice_gives_the_same_log() -> None:
    assert run_seed(7).log == log_of(7)
    assert log_of(7) != log_of(8)


def test_the_loop_prints_one_closing_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert sim_loop.main(["--seeds", "2"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("sim: 2 seeds, ")
    assert "lost 0, doubled 0" in line


def test_the_loop_stops_at_a_failing_seed_and_says_how_to_repeat_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_run: SimRun) -> None:
        raise AssertionError("doubled")

    monkeypatch.setattr(SimRun, "_check_once", fail)
    assert sim_loop.main(["--seeds", "5", "--first-seed", "3"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "sim: seed 3 failed: AssertionError: doubled",
        "repeat it: python -m tests.crash.sim_loop --seeds 1 --first-seed 3",
    ]
