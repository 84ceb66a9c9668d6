"""Two zones under kills: `python -m oncelog.testing.bsfg_kill [ROUNDS [SEED]]`.

A producer appends facts to one zone, `oncelog forward` carries them to another over a link that drops, cuts and
delays. In each round something at random is killed or cut: either server, both, the forwarder, or the link for a while.
After every return of the target, what the source has confirmed must be in the target. At the end every fact that was
confirmed to the producer is in the target once, in the source's order, and the frontier is contiguous. Now and then an
id is sent again, with its content and with other content.
"""

import asyncio
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from oncelog.client.client import AsyncClient
from oncelog.client.errors import ConnectionLost
from oncelog.demo.network import HOST, STORM, FaultyProxy
from oncelog.demo.places import Places
from oncelog.demo.server import Server
from oncelog.demo.zones import Forwarding
from oncelog.forward.compare import compare
from oncelog.forward.daemon import carried
from oncelog.forward.link import CallRefused, Link

EVENTS = ("source", "target", "both", "forwarder", "link", "link", "target and forwarder")
CONSUMER = "forward:office"

ARRIVED_WITHIN_S = 900
"""The link drops an answer in every few pages: a backlog of thousands takes minutes on a busy machine."""


def say(text: str) -> None:
    """A line of the program's output."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Wrong(Exception):
    """A promise is broken."""


def fact(number: int, value: int = 0) -> dict[str, Any]:
    """The fact of this number; with a `value` its id with other content."""
    envelope = {"message_id": f"m{number}", "from_zone": "plant", "to_zone": "office", "produced_at_unix_ms": 1}
    body = {"subject": f"pump:plant/{number % 7}", "predicate": "was_measured"}
    return {"envelope": envelope, "fact": body | {"object_json": f'{{"n":{number + value}}}'}}


class Zones:
    """Both zones, the link, the forwarder and the producer."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        places = Places(folder)
        places.make()
        self.source, self.target = (Server(folder / zone, ("http",)) for zone in ("plant", "office"))
        self.source.settings["zone"], self.target.settings["zone"] = "plant", "office"
        self.link = FaultyProxy(f"{seed}/link", self.target.port("http"), weather=STORM)
        self._places = places
        self.sequences: dict[int, int] = {}
        """Number of each fact that was confirmed to the producer, and its sequence at the source."""
        self.conflicts = self.duplicates = self.events = 0
        self.is_over = False

    async def run(self, rounds: int) -> None:
        """All rounds, and then the comparison. Raises Wrong."""
        await self.source.start()
        await self.target.start()
        await self.link.start()
        self.forwarding = Forwarding(self.source.url, f"http://{HOST}:{self.link.port}", self._places)
        try:
            async with asyncio.TaskGroup() as tasks:
                forwarding = tasks.create_task(self.forwarding.run())
                producing = tasks.create_task(self._produce())
                for number in range(rounds):
                    await asyncio.sleep(self.chance.uniform(0.05, 0.4))
                    await self._strike(self.chance.choice(EVENTS))
                    await self._check_confirmed()
                    self.events += 1
                    if (number + 1) % 10 == 0:
                        say(f"round {number + 1}: {len(self.sequences):,} facts confirmed")
                self.is_over = True
                await producing
                await self._arrived()
                await self._check_all()
                self.forwarding.end()
                await forwarding
            for server in (self.source, self.target):
                await server.stop()
                await server.verify()
        finally:
            self.forwarding.discard()
            for server in (self.source, self.target):
                await server.close()
            await self.forwarding.gone()
            await self.link.stop()

    async def _strike(self, event: str) -> None:
        pause_s = self.chance.uniform(0.0, 0.3)
        if "forwarder" in event and self.forwarding.is_running:
            self.forwarding.kill(pause_s)
        if event == "link":
            self.link.fall()
            await asyncio.sleep(self.chance.uniform(0.1, 1.0))
            self.link.rise()
        for name, server in (("source", self.source), ("target", self.target)):
            if name in event or event == "both":
                await server.kill()
        await asyncio.sleep(pause_s)
        for name, server in (("source", self.source), ("target", self.target)):
            if name in event or event == "both":
                await server.start()

    async def _produce(self) -> None:
        """Facts one behind the other, each until it is confirmed; some again, some with other content."""
        link = Link(self.source.url)
        number = 0
        while not self.is_over:
            answer = await self._insist(link, fact(number))
            self.sequences[number] = int(answer["sequence"])
            if self.chance.random() < 0.1:
                known = self.chance.randrange(number + 1)
                again = await self._insist(link, fact(known))
                if not again["duplicate"] or int(again["sequence"]) != self.sequences[known]:
                    raise Wrong(f"m{known} is at {self.sequences[known]}, and was answered {again}")
                self.duplicates += 1
                try:
                    raise Wrong(f"m{known} was taken with other content: {await self._insist(link, fact(known, 1))}")
                except CallRefused as refused:
                    if refused.code != "already_exists":
                        raise
                    self.conflicts += 1
            number += 1
        await link.close()

    async def _insist(self, link: Link, message: dict[str, Any]) -> Any:
        while True:
            try:
                return await link.call("AppendFact", message)
            except ConnectionLost:
                await asyncio.sleep(0.02)
            except CallRefused as refused:
                if not refused.is_retryable:
                    raise
                await asyncio.sleep(0.02)

    async def _frontier(self) -> int:
        """The source's; 0 before the consumer is there."""
        link = Link(self.source.url)
        try:
            rows = (await link.get("/bsfg/status"))["consumers"]
        finally:
            await link.close()
        return max((row["frontier"] for row in rows if row["consumer_name"] == CONSUMER), default=0)

    async def _check_confirmed(self) -> None:
        """What the source has confirmed is on disk in the target: its server may have been killed a moment ago."""
        frontier = await self._frontier()
        link = Link(self.target.url)
        try:
            streams = (await link.get("/bsfg/status"))["streams"]
        finally:
            await link.close()
        there = max((row["last_sequence"] for row in streams if row["stream"] == "facts.operational"), default=0)
        if frontier > there:
            raise Wrong(f"the source has confirmed {frontier} facts, and the target has {there}")

    async def _arrived(self) -> None:
        async with asyncio.timeout(ARRIVED_WITHIN_S):
            while await self._frontier() < len(self.sequences):  # noqa: ASYNC110 - it is asked over the network
                await asyncio.sleep(0.05)

    async def _check_all(self) -> None:
        async with AsyncClient(self.source.url) as source, AsyncClient(self.target.url) as target:
            found = await compare(
                source, target, ("plant", "office"), CONSUMER, lambda a, b: carried("office", (), a, b), lambda *_: None
            )
            ids = []
            async with target.reader("facts.operational", live=False) as reader:
                async for record in reader:
                    ids.append(record.json()["object"]["n"])
        if not found.is_sound or found.confirmed != len(self.sequences):
            raise Wrong(f"{len(self.sequences)} facts were confirmed to the producer: {found}")
        if ids != list(range(len(self.sequences))):
            raise Wrong("the target has the facts in another order than the source, or more than once")


def main() -> None:
    """The program."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with tempfile.TemporaryDirectory(prefix="oncelog-bsfg-") as folder:
        zones = Zones(Path(folder), seed)
        asyncio.run(zones.run(rounds))
    say(
        f"{zones.events} rounds, {len(zones.sequences):,} facts: lost 0, doubled 0, out of order 0; "
        f"{zones.duplicates} duplicates answered with the first sequence, {zones.conflicts} conflicts refused"
    )


if __name__ == "__main__":
    main()
