"""Two zones under a few kills; the long run is `python -m oncelog.testing.bsfg_kill 100`."""

import asyncio
from pathlib import Path

import pytest

from oncelog.testing.bsfg_kill import Zones


@pytest.mark.timeout(300)
def test_facts_are_carried_once_and_in_order_under_kills(tmp_path: Path) -> None:
    zones = Zones(tmp_path, seed=3)
    asyncio.run(zones.run(rounds=5))
    assert zones.events == 5
    assert len(zones.sequences) > 20
