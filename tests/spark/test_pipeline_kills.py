"""Consume, transform, produce under random kills. The long programme has twenty of them: `pipeline_kills`."""

from pathlib import Path

from tests.spark.pipeline_kills import run


def test_output_equals_the_batch_result_whoever_is_killed(tmp_path: Path) -> None:
    outcome = run(kills=3, seed=3, directory=tmp_path)
    assert (outcome.server_kills, outcome.driver_kills) == (2, 1)
    assert outcome.rows > 0, outcome
    assert (outcome.lost, outcome.doubled) == (0, 0), outcome
