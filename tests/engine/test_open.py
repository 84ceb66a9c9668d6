"""Opening: what a data directory may be."""

import asyncio
from pathlib import Path

import pytest

from oncelog.engine.open import open_engine
from oncelog.errors import StorageError


def test_log_does_not_settle_among_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("")

    async def opened() -> None:
        with pytest.raises(StorageError, match="other files"):
            open_engine(tmp_path, asyncio.get_running_loop())

    asyncio.run(opened())
    assert [path.name for path in tmp_path.iterdir()] == ["main.py"]


def test_log_settles_beside_what_belongs_to_the_file_system(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()

    async def opened() -> None:
        engine = open_engine(tmp_path, asyncio.get_running_loop())
        await engine.close()

    asyncio.run(opened())
    (tmp_path / "note.txt").write_text("somebody's note beside a log that is there")
    asyncio.run(opened())
