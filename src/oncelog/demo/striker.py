"""Carries out the plan: waits for each moment, kills, and lets the victim come back."""

import asyncio
from collections.abc import Callable
from functools import partial

from oncelog.demo.board import Board
from oncelog.demo.plan import DRIVER, SERVER, Moment, Plan, Strike
from oncelog.demo.processes import Process
from oncelog.demo.server import Server


class Striker:
    """Kills whom the plan says."""

    def __init__(
        self,
        plan: Plan,
        board: Board,
        server: Server,
        producers: dict[str, Process],
        driver: Process | None,
        mark: Callable[[str, str], None],
    ) -> None:
        self._plan = plan
        self._board = board
        self._server = server
        self._producers = producers
        self._driver = driver
        self._mark = mark
        self._faces = {share.producer: share.face for share in plan.shares}
        self._is_over = False
        self._one_at_a_time = asyncio.Lock()
        self.driver_struck = asyncio.Event()
        """The driver has been killed; only then may it finish its work."""

    async def run(self, moment: Moment) -> None:
        """All strikes of one kind, in their order."""
        for strike in self._plan.strikes:
            if strike.moment is moment:
                await self._board.until(partial(self._is_due, strike))
                if self._reached(strike.moment) < strike.at:
                    return  # its moment never came; the verdict tells of it
                await asyncio.sleep(strike.delay_s)
                await self._strike(strike)

    def end(self) -> None:
        """No new moment comes. What was due by now is still carried out, however long the strikes before it took."""
        self._is_over = True
        self._board.touch()

    def _is_due(self, strike: Strike) -> bool:
        return self._is_over or self._reached(strike.moment) >= strike.at

    def _reached(self, moment: Moment) -> int:
        return self._board.orders_confirmed if moment is Moment.ORDERS else self._board.batches

    async def _strike(self, strike: Strike) -> None:
        if strike.victim == SERVER:
            await self._strike_server(strike)
        elif strike.victim == DRIVER:
            self._strike_driver(strike)
        else:
            self._strike_producer(strike)

    async def _strike_server(self, strike: Strike) -> None:
        async with self._one_at_a_time:
            await self._server.kill()
            self._board.server_kills += 1
            self._board.tell(f"kill -9 server (number {self._board.server_kills})")
            self._mark("server killed", f"server, number {self._board.server_kills}")
            await asyncio.sleep(strike.pause_s)
            began_s = self._board.elapsed_s
            await self._server.start()
            self._board.tell(f"server is back, {self._board.elapsed_s - began_s:.1f} s with recovery")

    def _strike_driver(self, strike: Strike) -> None:
        driver = self._driver
        assert driver is not None
        if driver.is_running:
            self._board.driver_kills += 1
            self._board.tell(f"kill -9 Spark driver (batches so far: {self._board.batches})")
            self._mark("Spark driver killed", "Spark driver")
            driver.kill(strike.pause_s)
            self.driver_struck.set()

    def _strike_producer(self, strike: Strike) -> None:
        """The victim, or in its place another one that is not done yet."""
        names = [strike.victim, *self._producers]
        name = next((name for name in names if self._producers[name].is_running), None)
        if name is not None:
            tally = self._board.tallies[self._faces[name]]
            tally.killed += 1
            self._board.tell(f"kill -9 producer {name} ({tally.label})")
            self._mark("producer killed", name)
            self._producers[name].kill(strike.pause_s)
