"""A network between the writers and the server that is worse than any real one, and has a seed.

Three faults, each at random: an answer is dropped (the request went through, its sender sees the connection end), a
connection is cut in the middle of a request, bytes are held for a moment in either direction. Bytes that are held when
their sender's connection ends are delivered all the same, later: the server then meets a copy of a request that was
sent again. An orderly proxy discards those instead.
"""

import asyncio
import contextlib
import random
from typing import Final, NamedTuple

HOST: Final = "127.0.0.1"


class Weather(NamedTuple):
    """How bad it is: shares of the pieces that pass. A piece is what one read of the socket finds."""

    drop: float
    cut: float
    delay: float


STORM: Final = Weather(drop=0.04, cut=0.02, delay=0.05)
"""For writers: a piece is a few requests or answers."""

DRIZZLE: Final = Weather(drop=0.005, cut=0.002, delay=0.02)
"""For Spark, whose answers are large: a piece is 64 KiB, and in the writers' weather no answer would ever be whole."""

DELAY_MAX_S: Final = 0.04
_PIECE_BYTES: Final = 1 << 16


class FaultyProxy:
    """Listens, connects on, and does harm. The counts say how much."""

    def __init__(self, seed: str, server_port: int, *, orderly: bool = False, weather: Weather = STORM) -> None:
        self._seed = seed
        self._server_port = server_port
        self._orderly = orderly
        self._weather = weather
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self.is_down = False
        """No byte passes, and nobody can connect. Set by `fall` and `rise`."""
        self.port = 0
        self.connections = 0
        self.dropped = 0
        """Answers that did not reach their client."""
        self.cut = 0
        """Connections that ended in the middle of a request."""
        self.delayed = 0

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._accepted, HOST, 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._is_stopping = True
        if self._listener is not None:
            self._listener.close()
            await self._listener.wait_closed()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0)  # a transport that was aborted just now closes its socket in the next turn

    def fall(self) -> None:
        """Cut every connection, and take none from now on."""
        self.is_down = True
        for task in self._tasks:
            task.cancel()

    def rise(self) -> None:
        """Take connections again."""
        self.is_down = False

    def _accepted(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        if self._is_stopping or self.is_down:
            client_out.transport.abort()
            return
        task = asyncio.create_task(self._carry(client_in, client_out))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Also if it is cancelled before it has begun.
        task.add_done_callback(lambda _: client_out.transport.abort())

    async def _carry(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        self.connections += 1
        chance = random.Random(f"{self._seed}/{self.connections}")
        server_out: asyncio.StreamWriter | None = None
        try:
            server_in, server_out = await asyncio.open_connection(HOST, self._server_port)
            pair = _Pair(self, chance, self._weather, client_out, server_out, orderly=self._orderly)
            async with asyncio.TaskGroup() as group:
                group.create_task(pair.carry_requests(client_in))
                group.create_task(pair.carry_answers(server_in))
        except OSError:
            return  # the server is dead
        finally:
            for side in (client_out, server_out):
                if side is not None:
                    side.transport.abort()
                    with contextlib.suppress(OSError):
                        await side.wait_closed()


class _Pair:
    """One connection on both its sides."""

    def __init__(
        self,
        proxy: FaultyProxy,
        chance: random.Random,
        weather: Weather,
        client: asyncio.StreamWriter,
        server: asyncio.StreamWriter,
        *,
        orderly: bool,
    ) -> None:
        self._proxy = proxy
        self._random = chance
        self._weather = weather
        self._client = client
        self._server = server
        self._orderly = orderly

    async def carry_requests(self, client: asyncio.StreamReader) -> None:
        while piece := await _read(client):
            if self._random.random() < self._weather.delay:
                await self._delay()
                if self._orderly and self._client.transport.is_closing():
                    break
            if self._server.transport.is_closing():
                break
            if self._random.random() < self._weather.cut:
                self._proxy.cut += 1
                self._server.write(piece[: self._random.randrange(len(piece))])
                break
            self._server.write(piece)
        # An orderly end, so that what was written is still delivered; the server then closes its side too.
        self._client.transport.abort()
        self._server.close()

    async def carry_answers(self, server: asyncio.StreamReader) -> None:
        while piece := await _read(server):
            if self._random.random() < self._weather.delay:
                await self._delay()
            if self._random.random() < self._weather.drop:
                self._proxy.dropped += 1
                # What the client has sent and we have not yet carried goes on; its answers fall on deaf ears.
                self._client.transport.abort()
            if not self._client.transport.is_closing():
                self._client.write(piece)
        self._client.transport.abort()

    async def _delay(self) -> None:
        self._proxy.delayed += 1
        await asyncio.sleep(self._random.uniform(0, DELAY_MAX_S))


async def _read(stream: asyncio.StreamReader) -> bytes:
    """The next piece; nothing at the end, however it came."""
    with contextlib.suppress(ConnectionError):
        return await stream.read(_PIECE_BYTES)
    return b""
