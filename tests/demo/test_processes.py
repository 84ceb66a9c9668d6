"""Processes of the demo: killed ones come back, failed ones are told, and none stays."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.demo.processes import Process, ProcessFailed, session_members

WAITS = "http.server"
"""A module of the standard library that runs until it is killed."""


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  (a process that starts tells nobody)
        await asyncio.sleep(0)


def test_killed_process_comes_back_and_none_stays_after_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = Process("waiter", WAITS, "0", tmp_path / "said.txt")
        running = asyncio.create_task(process.run())
        await until(lambda: process.is_running)
        assert process.lives == 1
        process.kill(0.0)
        await until(lambda: process.lives == 2 and process.is_running)
        assert not process.is_done
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        process.discard()
        await process.gone()
        assert not process.is_running

    asyncio.run(scenario())


def test_process_that_fails_is_told_by_its_last_line(tmp_path: Path) -> None:
    process = Process("tool", "json.tool", str(tmp_path / "nothing"), tmp_path / "said.txt")
    with pytest.raises(ProcessFailed, match=r"^tool ended with code [12]: .*No such file"):
        asyncio.run(process.run())
    assert process.lives == 1
    assert not process.is_done


def test_only_whole_objects_are_heard(tmp_path: Path) -> None:
    heard: list[str] = []
    (tmp_path / "object.json").write_text('{"a": 1}')
    process = Process("tool", "json.tool", str(tmp_path / "object.json"), tmp_path / "said.txt", on_line=heard.append)
    asyncio.run(process.run())
    # The tool writes the object over three lines; none of them is one.
    assert heard == []
    assert process.is_done


def test_members_of_a_session_are_found() -> None:
    assert os.getpid() in session_members(os.getsid(0))
