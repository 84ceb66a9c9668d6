"""Where engines of tests keep their log."""

from pathlib import Path

import pytest


@pytest.fixture(params=["directory", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "log" if request.param == "directory" else None
