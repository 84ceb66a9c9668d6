"""A few rounds of the kill loop; a hundred are `python -m tests.conformance.kafka_kill_loop`."""

import pytest

from tests.conformance import kafka_kill_loop


@pytest.mark.timeout(300)
def test_nothing_is_lost_doubled_torn_or_seen_aborted_under_kills(capsys: pytest.CaptureFixture[str]) -> None:
    kafka_kill_loop.main(3)
    assert "nothing lost, doubled, torn or aborted" in capsys.readouterr().out
