"""A second zone of the demo: a plant whose facts are carried to the main server over a link that is cut.

The plant is a server of its own. A producer appends facts there, under ids, through a bad network; `oncelog forward`
carries them to the main server, whose zone is the head office, over a link of its own. While it does, the plant's
server is killed, the link is cut for some seconds, and the forwarder is killed; the main server dies by the plan of the
demo.
What the plant has confirmed must be in the head office's log once, in the plant's order, and in the Delta table.

The producer's ledger is one more among the ledgers: the audit counts facts as it counts orders.
"""

import asyncio
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import msgspec

from oncelog.client.errors import ConnectionLost
from oncelog.demo.board import Board
from oncelog.demo.network import HOST, STORM, FaultyProxy
from oncelog.demo.places import Places
from oncelog.demo.plant import FACE, FACTS, Said, Told, facts_of
from oncelog.demo.processes import Process
from oncelog.demo.server import RUN_BOUND, Server
from oncelog.forward.link import CallRefused, Link

PLANT: Final = "plant-a"
HEAD_OFFICE: Final = "head-office"
CONSUMER: Final = f"forward:{HEAD_OFFICE}"

LINK_CUT_S: Final = 3.0
"""For so long no byte passes between the zones."""

ARRIVED_LOOK_S: Final = 0.1

STRIKES: Final = ("plant", "link", "forwarder")


class Strike(NamedTuple):
    """One thing that goes wrong, once so many facts are confirmed."""

    at: int
    what: str
    """`plant`, `link` or `forwarder`."""


def strikes_of(seed: int, facts: int) -> list[Strike]:
    """What will go wrong, and when: the same for the same seed."""
    chance = random.Random(f"oncelog demo zones {seed}")
    names = list(STRIKES)
    chance.shuffle(names)
    piece = facts // (len(names) + 1)
    return [Strike(1 + number * piece + chance.randrange(piece), name) for number, name in enumerate(names)]


class Forwarding(Process):
    """`oncelog forward` between two addresses, as a user starts it."""

    def __init__(self, source: str, target: str, places: Places) -> None:
        super().__init__("the forwarder", "", "", places.complaints("forward"))
        self._command = (sys.executable, "-c", RUN_BOUND, "forward", "--from", source, "--to", target)


class Zones:
    """The plant, its producer, and the way to the head office."""

    def __init__(
        self, seed: int, scale: float, places: Places, main_port: int, board: Board, mark: Callable[[str, str], None]
    ) -> None:
        self._board = board
        self._places = places
        self.facts = facts_of(scale)
        self.strikes = strikes_of(seed, self.facts)
        self._server = Server(places.folder / "plant", ("http",))
        self._server.settings["zone"] = PLANT
        self._storm = FaultyProxy(f"{seed}/plant", self._server.port("http"), weather=STORM)
        self._link = FaultyProxy(f"{seed}/link", main_port, weather=STORM)
        self._producer: Process | None = None
        self._forwarding: Forwarding | None = None
        self._mark = mark
        self._tally = board.tallies[FACE]

    @property
    def networks(self) -> tuple[FaultyProxy, FaultyProxy]:
        """Both of them, for the counts."""
        return self._storm, self._link

    async def start(self) -> None:
        """The plant's server is there; nobody writes yet. The networks stand already."""
        await self._server.start()
        told = Told(f"http://{HOST}:{self._storm.port}", PLANT, HEAD_OFFICE, self.facts, str(self._places.ledger(FACE)))
        self._producer = Process(
            "the plant's producer", "oncelog.demo.plant", msgspec.json.encode(told).decode(),
            self._places.complaints(FACE), on_line=self._hear,
        )  # fmt: skip
        self._forwarding = Forwarding(self._server.url, f"http://{HOST}:{self._link.port}", self._places)
        self._board.tell(f"zone {PLANT} is up: {self.facts:,} facts for {HEAD_OFFICE}")

    async def run(self) -> None:
        """Until every fact of the plant is confirmed there, carried, and confirmed as carried."""
        assert self._producer is not None
        assert self._forwarding is not None
        async with asyncio.TaskGroup() as group:
            forwarding = group.create_task(self._forwarding.run())
            striking = group.create_task(self._strike_all())
            await self._producer.run()
            await striking
            await self._arrived()
            self._forwarding.end()
            await forwarding
        self._board.tell(f"all {self.facts:,} facts of {PLANT} are in the log of {HEAD_OFFICE}")

    async def _arrived(self) -> None:
        """Until the consumer at the plant has nothing left."""
        link = Link(self._server.url)
        try:
            while True:
                try:
                    asked = {"consumer_name": CONSUMER, "limit": 1, "stream": FACTS}
                    if not (await link.call("FetchFacts", asked))["facts"]:
                        return
                except (ConnectionLost, CallRefused):
                    pass  # the plant is being started
                await asyncio.sleep(ARRIVED_LOOK_S)
        finally:
            await link.close()

    async def _strike_all(self) -> None:
        for strike in self.strikes:
            await self._board.until(partial(self._is_due, strike))
            if strike.what == "plant":
                await self._strike_plant()
            elif strike.what == "link":
                await self._cut_link()
            else:
                await self._strike_forwarder()
            self._board.zone_strikes += 1

    def _is_due(self, strike: Strike) -> bool:
        return self._tally.confirmed >= strike.at

    async def _strike_plant(self) -> None:
        await self._server.kill()
        self._board.tell(f"kill -9 server of {PLANT}")
        self._mark("server killed", f"server of {PLANT}")
        await self._server.start()
        self._board.tell(f"server of {PLANT} is back")

    async def _cut_link(self) -> None:
        self._board.tell(f"link from {PLANT} to {HEAD_OFFICE} cut for {LINK_CUT_S:g} s")
        self._mark("link cut", f"{PLANT} to {HEAD_OFFICE}")
        self._link.fall()
        await asyncio.sleep(LINK_CUT_S)
        self._link.rise()
        self._board.tell("link healed")

    async def _strike_forwarder(self) -> None:
        assert self._forwarding is not None
        if self._forwarding.is_running:
            self._board.tell("kill -9 forwarder")
            self._mark("forwarder killed", "forwarder")
            self._forwarding.kill(0.2)

    def _hear(self, line: str) -> None:
        said = msgspec.json.decode(line, type=Said)
        self._tally.records_by_producer[FACE] = said.confirmed
        self._tally.retried += said.retried
        self._tally.duplicates += said.duplicates
        self._board.touch()

    async def stop(self) -> None:
        """End the plant as a user ends it, and verify its log."""
        await self._server.stop()
        await self._server.verify()

    async def clean_up(self) -> None:
        """Nothing that was started is left."""
        processes = [process for process in (self._producer, self._forwarding) if process is not None]
        for process in processes:
            process.discard()
        await self._server.close()
        for process in processes:
            await process.gone()
