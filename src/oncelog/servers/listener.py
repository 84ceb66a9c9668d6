"""The listener of one face: accepts its clients, with TLS or without, bounds how many there are, looks at them about
once a second, and ends them in order when the server stops. Every face has one; nothing of a protocol is here.
"""

import asyncio
import itertools
import ssl
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar, cast

from oncelog import limits
from oncelog.servers.counts import Counts
from oncelog.servers.face import FaceContext
from oncelog.servers.face_connection import FaceConnection
from oncelog.servers.face_settings import Address, FaceSettings, parse_address

SWEEP_S: Final = 1.0
"""How often deadlines are looked at, at most: a quarter of the shortest one is soon enough."""
SWEEP_S_MIN: Final = 0.025
STOP_SWEEP_S: Final = 0.05
"""The same in a stop, which waits for nothing else once all is answered."""
SWEEP_SLICE: Final = 2_000
"""Connections looked at in one go: twenty thousand at once would hold the loop for milliseconds."""
TLS_HANDSHAKE_S: Final = 10.0
"""A client that connects and does not finish its handshake is cut after this; until then it is counted nowhere."""

C = TypeVar("C", bound=FaceConnection)


class Listener(Generic[C]):
    """One face's clients."""

    def __init__(
        self,
        context: FaceContext,
        settings: FaceSettings,
        counts: Counts,
        connect: Callable[[], C],
        on_stopping: Callable[[], None] = lambda: None,
    ) -> None:
        self.context = context
        self.settings = settings
        self.counts = counts
        self.loop = context.loop
        self.back_pressure = context.back_pressure
        self.unsent = context.unsent
        self.connections: dict[C, None] = {}
        self.is_stopping = False
        """Nothing is taken any more; what was accepted is still answered."""
        self.is_stopped = False
        """Nothing may reach the engine any more."""
        self._turned_away: dict[C, None] = {}
        """Clients over the bound that hear of it before they are cut; they have descriptors of those in the backlog."""
        self._connect = connect
        self._on_stopping = on_stopping
        self._server: asyncio.Server | None = None
        self._sweep_s = sweep_s(settings)
        self._sweep_timer = self.loop.call_later(self._sweep_s, self._sweep)
        self._emptied: asyncio.Event | None = None

    async def start(self) -> Address:
        """Listen; returns the address, with the port that was chosen. Raises OSError."""
        host, port = self.settings.listen
        tls = tls_context(self.settings)
        self._server = await self.loop.create_server(
            self._connected,
            host,
            port,
            backlog=self.context.backlog,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else TLS_HANDSHAKE_S,
        )
        return Address(host, self._server.sockets[0].getsockname()[1])

    def _connected(self) -> asyncio.BaseProtocol:
        """One more client. A protocol by its methods, as far as the loop is concerned."""
        return cast(asyncio.BaseProtocol, self._connect())

    async def stop(self) -> None:
        """Take no more; answer what was accepted; let clients end their side; cut what does not end in time."""
        self._sweep_timer.cancel()
        if self._server is not None:
            self._server.close()
        self._emptied = asyncio.Event()
        self.is_stopping = True
        for connection in list(self._turned_away):
            connection.abort()
        for connection in list(self.connections):
            connection.finish()
        self._on_stopping()
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
        self.is_stopped = True

    def stall_ms(self) -> int:
        """How long a client may take nothing of what it was sent: less if others wait for the memory that it holds."""
        stall_ms = self.settings.write_stall_ms
        return min(stall_ms, limits.UNSENT_STALL_MS) if self.unsent.waiting else stall_ms

    def joined(self, connection: C) -> bool:
        """A client is there; False if there are too many, or if the server stops."""
        if len(self.connections) >= self.settings.connections_max or self.is_stopping:
            self.counts.connections_refused += 1
            return False
        self.connections[connection] = None
        return True

    def may_linger(self, connection: C) -> bool:
        """Whether a client that is turned away may be told so, which takes a moment."""
        if self.is_stopping or len(self._turned_away) >= self.context.backlog // 2:
            return False
        self._turned_away[connection] = None
        return True

    def left(self, connection: C) -> None:
        """A client is gone."""
        self._turned_away.pop(connection, None)
        self.connections.pop(connection, None)
        self.back_pressure.paused.discard(connection)
        if self._emptied is not None and not self.connections:
            self._emptied.set()

    def _sweep(self) -> None:
        self._sweep_timer = self.loop.call_later(STOP_SWEEP_S if self.is_stopping else self._sweep_s, self._sweep)
        self.unsent.settle_all()
        self._look_at(iter(list(self.connections)))
        self.back_pressure.resume_all()

    def _look_at(self, connections: Iterator[C]) -> None:
        now = self.loop.time()
        looked = 0
        for connection in itertools.islice(connections, SWEEP_SLICE):
            connection.look_at(now)
            looked += 1
        if looked == SWEEP_SLICE:
            self.loop.call_soon(self._look_at, connections)


def advertised(advertise: str | None, transport: asyncio.BaseTransport) -> Address:
    """The address that a client is told to connect to: the one that was set, else the one that it dialled."""
    if advertise is not None:
        return parse_address(advertise)
    host, port = transport.get_extra_info("sockname")[:2]
    return Address(host, port)


def tls_context(settings: FaceSettings) -> ssl.SSLContext | None:
    """What clients must speak before anything else; None for plain TCP. Raises OSError if a file cannot be used."""
    if settings.tls_certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    return context


def sweep_s(settings: FaceSettings) -> float:
    """How often the connections of a face are looked at."""
    return max(SWEEP_S_MIN, min(SWEEP_S, settings.shortest_deadline_ms / 1000 / 4))
