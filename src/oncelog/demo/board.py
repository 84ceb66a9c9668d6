"""What is known of a run while it goes on: the numbers that the screen shows. No drawing here, and no processes."""

import asyncio
import time
from collections.abc import Callable
from enum import Enum


class Step(Enum):
    """Where a phase is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Phase:
    """A part of the run that has an end."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.step = Step.WAITING
        self.detail = ""

    def begin(self, detail: str = "") -> None:
        self.step = Step.RUNNING
        self.detail = detail

    def end(self, detail: str) -> None:
        self.step = Step.DONE
        self.detail = detail


class Tally:
    """How the producers of one face fare. Counted from their ledgers, which outlive them."""

    def __init__(self, label: str, orders: int) -> None:
        self.label = label
        self.orders = orders
        """To be written."""
        self.orders_by_producer: dict[str, int] = {}
        """Confirmed, in every topic."""
        self.records_by_producer: dict[str, int] = {}
        """Confirmed."""
        self.retried = 0
        """Requests that went out again; a client that retries by itself does not tell."""
        self.retries_told = True
        self.duplicates = 0
        """Answers that said: it is there already."""
        self.killed = 0

    @property
    def orders_confirmed(self) -> int:
        return sum(self.orders_by_producer.values())

    @property
    def confirmed(self) -> int:
        """Records."""
        return sum(self.records_by_producer.values())


class Flow:
    """One Spark pipeline."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.batches = 0
        self.rows = 0


class Board:
    """Everything at once. `tell` is called with each event, a line for people."""

    def __init__(self, seed: int, scale: float, tallies: dict[str, Tally], flows: dict[str, Flow]) -> None:
        """Without flows there is no Spark."""
        self.seed = seed
        self.scale = scale
        self.tallies = tallies
        self.flows = flows
        self.writing = Phase("write")
        self.piping = Phase("Spark")
        self.auditing = Phase("audit")
        self.phases = (self.writing, self.piping, self.auditing) if flows else (self.writing, self.auditing)
        self.server_kills = 0
        self.driver_kills = 0
        self.zone_strikes = 0
        """Kills and cuts in the other zone and on the way to it."""
        self.dropped = 0
        self.cut = 0
        self.delayed = 0
        self.on_event: Callable[[str, str], object] = lambda _time, _text: None
        self.on_note: Callable[[str, str], object] = lambda _time, _text: None
        self._began = time.monotonic()
        self._changed = asyncio.Event()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def orders(self) -> int:
        return sum(tally.orders for tally in self.tallies.values())

    @property
    def orders_confirmed(self) -> int:
        return sum(tally.orders_confirmed for tally in self.tallies.values())

    @property
    def producer_kills(self) -> int:
        return sum(tally.killed for tally in self.tallies.values())

    @property
    def batches(self) -> int:
        """Of all pipelines together."""
        return sum(flow.batches for flow in self.flows.values())

    def touch(self) -> None:
        """A count has changed."""
        self._changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits for a condition on the counts."""
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    def tell(self, text: str) -> None:
        """Something happened that a watcher should see."""
        self.on_event(clock(self.elapsed_s), text)

    def note(self, text: str) -> None:
        """Something that a picture shows by itself, for those who have none."""
        self.on_note(clock(self.elapsed_s), text)


def clock(seconds: float) -> str:
    """1:05"""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
