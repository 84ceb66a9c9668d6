"""The name of a log: made at its first start, the same after every other one, another one for another log."""

import asyncio
from pathlib import Path

from oncelog.engine.engine import Settings
from oncelog.engine.open import open_engine
from oncelog.limits import MIB


def log_id(directory: Path) -> str:
    async def opened() -> str:
        engine = open_engine(directory, asyncio.get_running_loop(), settings=Settings(segment_bytes=8 * MIB))
        found = engine.log_id
        await engine.close()
        return found

    return asyncio.run(opened())


def test_log_keeps_its_id_and_another_log_has_another(tmp_path: Path) -> None:
    first = log_id(tmp_path / "a")
    assert len(first) == 22
    assert log_id(tmp_path / "a") == first
    assert log_id(tmp_path / "b") != first
