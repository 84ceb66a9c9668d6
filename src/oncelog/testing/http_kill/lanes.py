"""A writer's connections: what is in flight on them, and what is sent again after they ended.

A request stays until it is answered. When its connection ends it is unknown, and goes again, byte for byte, first in
line on the next connection. Nothing here knows what a request means.
"""

import asyncio
import random
from collections import deque
from typing import ClassVar, Final

from oncelog.testing.http_kill.ledger import HttpLedger, Topic
from oncelog.testing.http_kill.wire import Answer, Connection, connect
from oncelog.testing.kill.ledger import Fate, Identity, Unit

_CONNECT_PAUSE_S: Final = 0.01


class Network:
    """What all writers share: the ledger, whether there is a server, and where it is."""

    def __init__(self, ledger: HttpLedger, seed: int, port: int, orderly_port: int) -> None:
        self.ledger = ledger
        self.seed = seed
        self.port = port
        self.orderly_port = orderly_port
        """A way to the server on which no copy of a request arrives after its connection has ended."""
        self.up = asyncio.Event()
        """Set while a server takes requests."""


class Request:
    """A request, and what its answer is about."""

    __slots__ = ("again", "attempts", "data", "floor", "partition", "refusal", "sequence", "topic", "unit")

    def __init__(self, data: bytes, unit: Unit | None, topic: Topic, partition: int = 0) -> None:
        self.data = data
        self.unit = unit
        self.topic = topic
        self.partition = partition
        self.attempts = 0
        self.again = False
        """Sent on purpose although it was confirmed: the answer must say so."""
        self.refusal = ""
        """The code of the refusal that is the only right answer; empty if the request is to succeed."""
        self.sequence = -1
        self.floor = 0
        """When it was last sent, every sequence below this one was confirmed."""


class Lane:
    """One connection after another, and the requests that belong on it."""

    def __init__(self, writer: "Writer", port: int) -> None:
        self._writer = writer
        self._port = port
        self._connection: Connection | None = None
        self.queue: deque[Request] = deque()
        """To be sent before anything new."""
        self.in_flight: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self.down = asyncio.Event()
        self.down.set()

    @property
    def is_open(self) -> bool:
        return self._connection is not None and self._connection.is_open

    @property
    def unsettled(self) -> int:
        return len(self.queue) + len(self.in_flight)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._connection is not None:
            await self._connection.close()

    def send(self, request: Request) -> None:
        assert self._connection is not None
        request.attempts += 1
        self._writer.sending(request)
        self._connection.send(request.data)
        self.in_flight.append(request)

    def send_queued(self) -> None:
        while self.queue and self.is_open:
            self.send(self.queue.popleft())

    async def _run(self) -> None:
        network = self._writer.network
        while True:
            await network.up.wait()
            connection = self._connection = await connect(self._port, self._answered)
            if connection is None:
                await asyncio.sleep(_CONNECT_PAUSE_S)
                continue
            self.down.clear()
            self._writer.refill()
            await connection.ended
            self._connection = None
            self._writer.ledger.unanswered += len(self.in_flight)
            self.queue.extendleft(self._writer.to_send_again(request) for request in reversed(self.in_flight))
            self.in_flight.clear()
            self.down.set()

    def _answered(self, answer: Answer) -> None:
        request = self.in_flight.popleft()
        self._writer.answered(self, request, answer)
        self._writer.refill()


class Writer:
    """One client of the log, over connections of its own."""

    label: ClassVar[str]
    """What it is, for a table."""
    depth: ClassVar[int] = 5
    """Requests in flight, or unknown, at most."""
    lane_count: ClassVar[int] = 1
    needs_order: ClassVar[bool] = False
    """A copy that arrives after its connection has ended could be taken for something else."""

    def __init__(self, name: str, network: Network) -> None:
        self.name = name
        self.network = network
        self.ledger = network.ledger
        self.random = random.Random(f"{network.seed}/{name}")
        self.number = 0
        self.finishing = True
        """Begin nothing new."""
        self.lanes = [
            Lane(self, network.orderly_port if self.needs_order else network.port) for _ in range(self.lane_count)
        ]
        self._settled = asyncio.Event()

    # --- what the rounds ask -------------------------------------------------------------------------------------

    async def start(self) -> None:
        for lane in self.lanes:
            lane.start()

    async def stop(self) -> None:
        for lane in self.lanes:
            await lane.stop()

    async def begin(self) -> None:
        """New requests may be made."""
        self.finishing = False
        self.refill()

    async def settle(self) -> None:
        """Begin nothing new, and wait until everything is answered."""
        self.finishing = True
        while self.unsettled:
            self._settled.clear()
            await self._settled.wait()

    async def wait_down(self) -> None:
        """Until every connection has ended; answers that had left before are taken in by then."""
        for lane in self.lanes:
            await lane.down.wait()

    @property
    def unsettled(self) -> int:
        return sum(lane.unsettled for lane in self.lanes)

    @property
    def in_flight(self) -> int:
        return sum(len(lane.in_flight) for lane in self.lanes)

    # --- what the lanes ask --------------------------------------------------------------------------------------

    def sending(self, request: Request) -> None:
        """It leaves now."""
        unit = None if request.refusal else request.unit
        self.ledger.sent(self.name, unit, retry=request.attempts > 1)

    def to_send_again(self, request: Request) -> Request:
        """What to send instead of a request whose outcome is unknown: the same."""
        return request

    def refill(self) -> None:
        """Send what can be sent."""
        for lane in self.lanes:
            lane.send_queued()
        while self.unsettled < self.depth and (open_ := [lane for lane in self.lanes if lane.is_open]):
            request = self.next_request()
            if request is None:
                break
            self.random.choice(open_).send(request)
        if not self.unsettled:
            self._settled.set()

    def answered(self, _lane: Lane, request: Request, answer: Answer) -> None:
        """The answer to a request that was sent on this lane."""
        if request.refusal:
            self._check_refusal(request, answer)
        elif answer.status not in (200, 201, 204):
            assert request.unit is not None
            self.ledger.refused(f"{request.unit.name} (attempt {request.attempts})", answer)
        else:
            self.confirmed(request, answer)

    def _check_refusal(self, request: Request, answer: Answer) -> None:
        if answer.code == request.refusal:
            self.ledger.rightly_refused += 1
        else:
            name = request.unit.name if request.unit is not None else f"{self.name}: other content"
            self.ledger.findings.add("aborted_visible", f"{name}: wanted {request.refusal}, got {answer}")

    # --- what a writer is ----------------------------------------------------------------------------------------

    def next_request(self) -> Request | None:
        """Something new, if anything. Asked whenever fewer than `depth` are unsettled."""
        raise NotImplementedError

    def confirmed(self, request: Request, answer: Answer) -> None:
        """A success."""
        raise NotImplementedError

    def identities(self, count: int) -> list[Identity]:
        """Names for the records of the next unit."""
        self.number += 1
        return [f"{self.name}:{self.number}:{part}".encode() for part in range(count)]

    def doomed_unit(self, what: str, identities: list[Identity]) -> Unit:
        """Records that must never be seen."""
        unit = self.ledger.unit(f"{self.name}: {what}", identities)
        unit.fate = Fate.ABSENT
        return unit
