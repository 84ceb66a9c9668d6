"""The index builder dies: it is started again, the engine goes on. If it always dies at one place, the engine ends."""

import asyncio
import os
import signal
from pathlib import Path
from unittest import mock

import pytest

from oncelog import limits
from oncelog.core.outcome import Confirmed
from oncelog.engine.engine import Engine
from oncelog.engine.index_building import IndexBuilding
from oncelog.storage.index.child import ChildBuilder
from oncelog.storage.index.interface import Died, Done, Reply
from tests.engine.opening import append, append_of, checkpoint, done, make_topic, opened, read_all, until


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INDEX_RESTART_MS_FIRST", 10)


def builder_of(engine: Engine) -> ChildBuilder:
    builder = engine._building._builder
    assert isinstance(builder, ChildBuilder)
    return builder


async def restarted(engine: Engine, count: int) -> None:
    await until(lambda: engine.statistics().index_restarts == count)


def test_a_killed_builder_is_started_again_and_the_engine_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        notices: list[str] = []
        async with opened(tmp_path / "log") as engine:
            engine.on_notice = notices.append
            await make_topic(engine, "a")
            for round_ in range(1, 6):
                os.kill(builder_of(engine).process_id, signal.SIGKILL)
                for _ in range(10):
                    await done(engine, append_of("a", b"x" * 10_000), Confirmed)
                await restarted(engine, round_)
                await checkpoint(engine)
            assert engine.statistics().index_lag_bytes == 0
            assert len(notices) == 5
            assert notices[0] == (
                "the index builder ended with code -9: killed by signal 9; it is started again in 0.01 s"
            )
        async with opened(tmp_path / "log") as engine:
            assert engine.statistics().replayed_entries == 0
            assert len(read_all(engine, "a")) == 50

    asyncio.run(scenario())


def test_the_engine_stops_in_order_while_the_builder_is_dead(tmp_path: Path) -> None:
    async def scenario() -> None:
        with mock.patch.object(limits, "INDEX_RESTART_MS_FIRST", 300):
            async with opened(tmp_path / "log") as engine:
                await make_topic(engine, "a")
                os.kill(builder_of(engine).process_id, signal.SIGKILL)
                await append(engine, "a", b"x")
                await until(lambda: engine._building._restart_timer is not None)
        async with opened(tmp_path / "log") as engine:
            assert read_all(engine, "a") == [(0, b"x")]

    asyncio.run(scenario())


class Dying:
    """A builder that dies whenever it is asked for more than one group. Implements `IndexBuilder`."""

    def __init__(self, dies_at: int) -> None:
        self.dies_at = dies_at
        self.starts = 1
        self._replies: list[Reply] = []

    def request(self, group: int) -> None:
        done_ = Done(min(group, self.dies_at - 1), 1, 1)
        self._replies.append(Died(f"entry {self.dies_at} is too much", 4) if group >= self.dies_at else done_)

    def fileno(self) -> int:
        return -1

    def restart(self) -> None:
        self.starts += 1

    def replies(self) -> list[Reply]:
        replies, self._replies = self._replies, []
        return replies

    def stop(self) -> None:
        return None


def test_a_builder_that_dies_three_times_at_one_place_ends_the_engine_with_what_it_said() -> None:
    async def scenario() -> None:
        failed: list[BaseException] = []
        builder = Dying(7)
        loop = asyncio.get_running_loop()
        building = IndexBuilding(builder, loop, lambda _group: None, lambda: None, failed.append)
        building.request(6)
        await until(lambda: building._done == 6)
        building.request(7)
        await until(lambda: bool(failed))
        assert builder.starts == 3
        assert "entry 7 is too much" in str(failed[0])
        building.stop()

    asyncio.run(scenario())


def test_a_builder_that_gets_further_each_time_may_die_often() -> None:
    async def scenario() -> None:
        builder = Dying(1)
        loop = asyncio.get_running_loop()
        failed: list[BaseException] = []
        building = IndexBuilding(builder, loop, lambda _group: None, lambda: None, failed.append)
        for group in range(1, 9):
            building.request(group)
            await until(lambda group=group: building.restarts == group)  # type: ignore[misc]
            builder.dies_at = group + 1
            building.request(group)
            await until(lambda group=group: building._done == group)  # type: ignore[misc]
        assert failed == []
        building.stop()

    asyncio.run(scenario())
