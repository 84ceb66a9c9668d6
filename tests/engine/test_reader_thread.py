"""The reader's thread: its order, who may leave the line, who lets others pass, and how long the line may be."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from oncelog import limits
from oncelog.core.outcome import Overloaded, Refusal, Stopping
from oncelog.engine.reader_thread import HANDED_MAX, PUT_OFF_TURN, Asked, ReaderThread
from tests.engine.opening import PATIENCE_S, until


class Held:
    """A thread that does nothing before `go_on`."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.told: list[object] = []
        self.thread = ReaderThread(asyncio.get_running_loop().call_soon_threadsafe, self.errors.append)
        self._go_on = threading.Event()
        for _ in range(HANDED_MAX):
            self.thread.ask(self._go_on.wait, lambda _: None)

    def ask(self, what: object) -> Asked[object]:
        asked = self.thread.ask(lambda: what, self.told.append)
        assert asked is not None
        return asked

    def go_on(self) -> None:
        self._go_on.set()

    async def done(self, count: int) -> None:
        self.go_on()
        await until(lambda: len(self.told) >= count)


@asynccontextmanager
async def held() -> AsyncIterator[Held]:
    line = Held()
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield line
    finally:
        line.go_on()
        line.thread.stop()
    assert line.errors == []


def run(scenario: Callable[[Held], object]) -> None:
    async def main() -> None:
        async with held() as line:
            await scenario(line)  # type: ignore[misc]

    asyncio.run(main())


def test_work_is_done_in_its_order() -> None:
    async def scenario(line: Held) -> None:
        for number in range(20):
            line.ask(number)
        await line.done(20)
        assert line.told == list(range(20))

    run(scenario)


def test_who_has_gone_is_not_read_for() -> None:
    async def scenario(line: Held) -> None:
        done: list[int] = []
        gone = [line.thread.ask(lambda: done.append(0), line.told.append) for _ in range(100)]
        line.ask("stays")
        for asked in gone:
            assert asked is not None
            asked.cancel()
            asked.cancel()
        assert line.thread.waiting == 1
        await line.done(1)
        assert (line.told, done) == (["stays"], [])

    run(scenario)


def test_who_goes_while_it_is_read_for_is_told_nothing() -> None:
    async def scenario(line: Held) -> None:
        begun, go_on = threading.Event(), threading.Event()
        line.go_on()

        def work() -> None:
            begun.set()
            go_on.wait()

        asked = line.thread.ask(work, line.told.append)
        assert asked is not None
        await until(begun.is_set)
        asked.cancel()
        go_on.set()
        line.ask("next")
        await line.done(1)
        assert line.told == ["next"]

    run(scenario)


def test_who_was_put_off_comes_last_but_comes() -> None:
    async def scenario(line: Held) -> None:
        for number in range(3):
            line.ask(f"put off {number}").put_off()
        for number in range(2 * PUT_OFF_TURN):
            line.ask(number)
        await line.done(3 + 2 * PUT_OFF_TURN)
        off = [at for at, what in enumerate(line.told) if isinstance(what, str)]
        assert [line.told[at] for at in off] == [f"put off {number}" for number in range(3)]
        assert off[1] - off[0] == PUT_OFF_TURN, "a turn of their own, now and then"
        assert [what for what in line.told if not isinstance(what, str)] == list(range(2 * PUT_OFF_TURN))

    run(scenario)


def test_line_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "READS_WAITING_BYTES_MAX", 10 * limits.READ_PLANNED_BYTES)

    async def scenario(line: Held) -> None:
        refused: list[object] = []
        assert line.thread.ask(lambda: "large", line.told.append, batches=100) is not None, "it would never fit"
        assert line.thread.ask(lambda: "x", refused.append) is None
        assert refused == [Overloaded(100 * limits.READ_PLANNED_BYTES, limits.READS_WAITING_BYTES_MAX)]
        await line.done(1)
        line.told.clear()
        assert line.thread.ask(lambda: "room again", line.told.append, batches=10) is not None
        await line.done(1)
        assert line.told == ["room again"]

    run(scenario)


def test_who_waits_when_it_stops_is_told_so() -> None:
    async def scenario() -> list[object | Refusal]:
        line = Held()
        line.ask("waits")
        line.go_on()
        line.thread.stop()
        return line.told

    assert asyncio.run(scenario()) == [Stopping()]
