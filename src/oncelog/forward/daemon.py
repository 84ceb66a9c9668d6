"""The forwarder as a process: one carrier per stream, pauses, the rate, and what it says of itself.

Its state is the consumer at the source, so it may be killed at any moment and started anywhere. A cut of either side is
waited out, with growing pauses of at most `PAUSE_MAX_S`, for as long as it takes.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from oncelog.client.backoff import Backoff
from oncelog.client.errors import ConnectionLost
from oncelog.forward.carrier import Carrier
from oncelog.forward.link import CallRefused, Link

STREAMS: Final = ("facts.operational", "facts.audit", "facts.documents")

IDLE_MS: Final = 20
IDLE_MAX_MS: Final = 250
"""Between two looks at a stream that has nothing new: a fact is at most that much later."""

WATCH_S: Final = 2.0
"""How old the numbers of backlog and lag may be."""

PAUSE_MS: Final = 100
PAUSE_MAX_MS: Final = 2_000
"""After a cut."""

RATE_DEFAULT: Final = 5_000
"""Facts per second and stream: a backlog of days is replayed at this rate, and the disks stay free for live facts."""


def consumer_of(target_zone: str) -> str:
    """The consumer at the source that a forwarder to this zone has if nobody says otherwise."""
    return f"forward:{target_zone}"


def carried(target_zone: str, to_zones: Sequence[str], from_zone: str, to_zone: str) -> bool:
    """Whether a fact goes to the target: it is for that zone, or for one behind it, and does not come from it."""
    return (to_zone == target_zone or to_zone in to_zones) and from_zone != target_zone


class ZonesAlike(Exception):
    """Both ends say that they are the same zone."""


class Route(msgspec.Struct, frozen=True):
    """From one zone to another, and how fast."""

    source: str
    target: str
    consumer: str = ""
    """The consumer at the source; empty for `forward:<name of the target's zone>`."""
    to_zones: Sequence[str] = ()
    """Facts for these zones go to the target as well: it passes them on."""
    rate: int = RATE_DEFAULT
    source_token: str = ""
    target_token: str = ""


class Forwarder:
    """Carries the facts of one route until it is stopped."""

    def __init__(self, route: Route, say: Callable[[str], None], streams: Sequence[str] = STREAMS) -> None:
        self.route = route
        self._say = say
        self._streams = streams
        self.source_zone = ""
        self.target_zone = ""
        self.carriers: list[Carrier] = []

    async def run(self) -> None:
        """Carry facts until cancelled. Raises ZonesAlike."""
        self.source_zone = await self._zone_of(self.route.source, self.route.source_token)
        self.target_zone = await self._zone_of(self.route.target, self.route.target_token)
        if self.source_zone == self.target_zone:
            raise ZonesAlike(
                f"{self.route.source} and {self.route.target} are both zone {self.source_zone!r}. Start each server "
                "with its own --zone, or check the addresses."
            )
        self._say(f"forwarding {self.source_zone} ({self.route.source}) to {self.target_zone} ({self.route.target})")
        async with asyncio.TaskGroup() as tasks:
            for stream in self._streams:
                tasks.create_task(self._carry(stream))
            tasks.create_task(self._watch())

    @property
    def consumer(self) -> str:
        """The name of the consumer at the source."""
        return self.route.consumer or consumer_of(self.target_zone)

    def carries(self, envelope: dict[str, Any]) -> bool:
        """Whether a fact with this envelope goes to the target."""
        zones = envelope.get("from_zone", ""), envelope.get("to_zone", "")
        return carried(self.target_zone, self.route.to_zones, *zones)

    async def _zone_of(self, url: str, token: str) -> str:
        """The name of the zone at an address; waits until it answers."""
        link = Link(url, token=token)
        backoff = Backoff(PAUSE_MS, PAUSE_MAX_MS)
        said = ""
        try:
            while True:
                try:
                    return str((await link.get("/bsfg/zone"))["zone"])
                except (ConnectionLost, CallRefused) as error:
                    if said != str(error):
                        said = str(error)
                        self._say(f"waiting for {url}: {said}")
                await asyncio.sleep(backoff.next_s())
        finally:
            await link.close()

    async def _watch(self) -> None:
        """Ask the source how its consumer stands, now and then: the numbers that only the source knows."""
        link = Link(self.route.source, token=self.route.source_token)
        try:
            while True:
                with contextlib.suppress(ConnectionLost, CallRefused):
                    self._note((await link.get("/bsfg/status"))["consumers"])
                await asyncio.sleep(WATCH_S)
        finally:
            await link.close()

    def _note(self, consumers: Sequence[dict[str, Any]]) -> None:
        rows = {row["stream"]: row for row in consumers if row["consumer_name"] == self.consumer}
        for carrier in self.carriers:
            row = rows.get(carrier.progress.stream)
            if row is not None:
                carrier.progress.backlog = row["unconfirmed"]
                carrier.progress.lag_s = row["lag_ms"] / 1000
                carrier.progress.gap_count = row["gap_count"]

    async def _carry(self, stream: str) -> None:
        source = Link(self.route.source, token=self.route.source_token)
        target = Link(self.route.target, token=self.route.target_token)
        carrier = Carrier(source, target, self.consumer, stream, self.carries)
        self.carriers.append(carrier)
        progress = carrier.progress
        idle, pause = Backoff(IDLE_MS, IDLE_MAX_MS), Backoff(PAUSE_MS, PAUSE_MAX_MS)
        loop = asyncio.get_running_loop()
        try:
            while True:
                begun = loop.time()
                done = progress.carried + progress.duplicates
                try:
                    count = await carrier.step()
                except (ConnectionLost, CallRefused) as error:
                    if not progress.cut:
                        self._say(f"{stream}: cut: {error}")
                    progress.cut = str(error)
                    if progress.carried + progress.duplicates > done:
                        pause.reset()  # a bad link is not one that is cut: part of the page went through
                    await asyncio.sleep(pause.next_s())
                    continue
                if progress.cut:
                    self._say(f"{stream}: goes on")
                    progress.cut = ""
                pause.reset()
                if count:
                    idle.reset()
                    await asyncio.sleep(max(0.0, begun + count / self.route.rate - loop.time()))
                else:
                    await asyncio.sleep(idle.next_s())
        finally:
            await source.close()
            await target.close()
