"""The engine over both ways to write a group: past the page cache, and through it where the first is refused."""

import asyncio
import threading
from pathlib import Path
from typing import NoReturn

import pytest

from oncelog import limits
from oncelog.core.outcome import Refusal
from oncelog.engine.reader import Reader, ReadPlan
from oncelog.engine.reads import ReadResult
from oncelog.storage.disk import PosixDisk
from oncelog.storage.mirror import CAN_BE_SHARED
from tests.engine.opening import append, checkpoint, make_topic, opened, read_all


def refused(_disk: PosixDisk, _name: str) -> NoReturn:
    raise OSError(22, "Invalid argument")


@pytest.mark.parametrize("ways", ["dd", "dc", "cd", "cc"])
def test_every_start_finds_what_was_written_either_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ways: str
) -> None:
    """d: directly, c: through the page cache. Segments change and the index is built on the way."""
    values: list[bytes] = []

    async def write(way: str) -> None:
        async with opened(tmp_path / "log") as engine:
            assert (engine._journal.mirror is None) == (way == "c" or not CAN_BE_SHARED)
            if not values:
                await make_topic(engine, "a")
            for number in range(60):
                value = b"%s %d " % (way.encode(), number) * 1000
                await append(engine, "a", value)
                values.append(value)
            assert read_all(engine, "a") == list(enumerate(values))
            await checkpoint(engine)
            assert read_all(engine, "a") == list(enumerate(values))

    for way in ways:
        with monkeypatch.context() as patched:
            if way == "c":
                patched.setattr(PosixDisk, "open_direct", refused)
            asyncio.run(write(way))


@pytest.mark.skipif(not CAN_BE_SHARED, reason="journals of this machine write through the page cache")
def test_what_the_mirror_holds_is_read_on_the_loop_and_the_rest_on_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    fetch = Reader.fetch

    def noted(reader: Reader, plan: ReadPlan) -> object:
        threads.append(threading.current_thread())
        return fetch(reader, plan)

    async def first_start() -> None:
        async with opened(tmp_path / "log") as engine:
            await make_topic(engine, "a")
            await append(engine, "a", b"old")

    async def second_start() -> None:
        async with opened(tmp_path / "log") as engine:
            await append(engine, "a", b"new")
            for offset in (1, 0):
                told: asyncio.Future[ReadResult | Refusal] = asyncio.get_running_loop().create_future()
                engine.reads.read_soon("a", 0, offset, limits.MIB, told.set_result)
                assert isinstance(await told, ReadResult)

    asyncio.run(first_start())
    monkeypatch.setattr(Reader, "fetch", noted)
    asyncio.run(second_start())
    assert [thread is threading.main_thread() for thread in threads] == [True, False]
