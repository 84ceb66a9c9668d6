"""The HTTP server: listens, keeps its connections and what they share, looks at them about once a second, stops."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

from oncelog import limits
from oncelog.engine.damage import damaged
from oncelog.engine.engine import Engine
from oncelog.errors import StorageError
from oncelog.protocols.http.actions import Action, ListProducers, Read, Receipt, Stand
from oncelog.protocols.http.parser import BodyBudget
from oncelog.protocols.http.refusal_map import problem_of
from oncelog.protocols.http.routes import Router
from oncelog.servers.counts import Counts
from oncelog.servers.early import EarlyRequests
from oncelog.servers.http_asks import Asks
from oncelog.servers.http_connection import Connection, Server, Slot
from oncelog.servers.http_reads import Reads
from oncelog.servers.room import RoomWatch
from oncelog.servers.settings import HttpSettings

SWEEP_S = 1.0
"""How often deadlines are looked at, at most: a quarter of the shortest one is soon enough."""
SWEEP_S_MIN = 0.025
STOP_SWEEP_S = 0.05
"""The same in a stop, which waits for nothing else once all is answered."""
SWEEP_SLICE = 2_000
"""Connections looked at in one go: twenty thousand at once would hold the loop for milliseconds."""


class HttpServer(Server):
    """All connections of the face, and what they share."""

    def __init__(
        self,
        engine: Engine,
        settings: HttpSettings,
        loop: asyncio.AbstractEventLoop,
        counts: Counts,
        backlog: int = limits.HTTP_BACKLOG_MAX,
        journal: Path | None = None,
        say: Callable[[str], None] = lambda _note: None,
    ) -> None:
        router = Router(
            engine.lookups.name_of,
            x_producer_strict=settings.x_producer_strict,
            browser_writes=settings.browser_writes,
        )
        early = EarlyRequests(engine.submit, loop.call_later, loop.call_soon, settings.early_hold_ms)
        budget = BodyBudget(limits.HTTP_BODIES_BYTES_MAX)
        scratch = memoryview(bytearray(limits.HTTP_RECEIVE_BYTES))
        super().__init__(engine, settings, loop, counts, router, early, budget, scratch)
        self._backlog = backlog
        self.journal = journal
        """Where it is, for those who ask how much room there is; None if it is in memory."""
        self.connections: dict[Connection, None] = {}
        self.paused: set[Connection] = set()
        self._reads = Reads(engine, settings, loop, counts, self.unsent)
        self._asks = Asks(engine, counts, self)
        self._room = RoomWatch(engine, say)
        self._listener: asyncio.Server | None = None
        self._sweep_s = _sweep_s(settings)
        self._sweep_timer = loop.call_later(self._sweep_s, self._sweep)
        self._emptied: asyncio.Event | None = None
        # One that has nothing in line is woken by no answer of its own.
        self._forget_us = engine.when_none_waits(self._resume_paused)

    async def start(self) -> int:
        """Listen; returns the port."""
        host, port = self.settings.listen
        self._listener = await self.loop.create_server(self._connected, host, port, backlog=self._backlog)
        chosen: int = self._listener.sockets[0].getsockname()[1]
        return chosen

    def _connected(self) -> asyncio.BaseProtocol:
        """One more client. A protocol by its methods, as far as the loop is concerned."""
        return cast(asyncio.BaseProtocol, Connection(self))

    async def stop(self) -> None:
        """Take no more; answer what was accepted; let clients end their side; cut what does not end in time."""
        self._sweep_timer.cancel()
        if self._listener is not None:
            self._listener.close()
        self._emptied = asyncio.Event()
        self.is_stopping = True
        for connection in list(self.connections):
            connection.finish()
        self.early.give_up_all()
        if self.connections:
            deadline = self.loop.call_later(self.settings.stop_ms / 1000, self._emptied.set)
            self._sweep()
            await self._emptied.wait()
            deadline.cancel()
            self._sweep_timer.cancel()
        for connection in list(self.connections):
            connection.abort()
        # What was put off to the next turn of the loop still reaches the engine.
        await asyncio.sleep(0)
        self._forget_us()
        self.is_stopped = True

    def joined(self, connection: Connection) -> None:
        """A client is there."""
        if len(self.connections) >= self.settings.connections_max or self._emptied is not None:
            self.counts.connections_refused += 1
            connection.abort()
            return
        self.connections[connection] = None

    def left(self, connection: Connection) -> None:
        """A client is gone."""
        self.connections.pop(connection, None)
        self.paused.discard(connection)
        if self._emptied is not None and not self.connections:
            self._emptied.set()

    def carry_out(self, action: Action, slot: Slot) -> None:
        """Everything that is neither a command nor an answer already."""
        try:
            if self._reads.takes(action):
                self._reads.begin(action, slot)
            else:
                self._asks.answer(action, slot.done)
        except StorageError as error:
            # A row of the index could not be read: it is looked at first, so that nothing was begun or told.
            assert slot.answer is None
            refusal = damaged(error)
            if isinstance(action, Read | Stand | ListProducers | Receipt):
                self.counts.other(refusal, action.topic, action.partition)
            else:
                self.counts.other(refusal)
            slot.done(problem_of(refusal))

    def _sweep(self) -> None:
        self._sweep_timer = self.loop.call_later(STOP_SWEEP_S if self.is_stopping else self._sweep_s, self._sweep)
        self.unsent.settle_all()
        self._look_at(iter(list(self.connections)))
        self._resume_paused()
        self._room.look()

    def _resume_paused(self) -> None:
        for connection in list(self.paused):
            connection.resume()

    def _look_at(self, connections: Iterator[Connection]) -> None:
        now = self.loop.time()
        looked = 0
        for connection in itertools.islice(connections, SWEEP_SLICE):
            connection.look_at(now)
            looked += 1
        if looked == SWEEP_SLICE:
            self.loop.call_soon(self._look_at, connections)


def _sweep_s(settings: HttpSettings) -> float:
    shortest_ms = min(settings.header_deadline_ms, settings.body_grace_ms, settings.idle_ms, settings.write_stall_ms)
    return max(SWEEP_S_MIN, min(SWEEP_S, shortest_ms / 1000 / 4))
