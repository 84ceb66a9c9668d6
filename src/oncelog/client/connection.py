"""One connection to the server with requests in a pipeline: answers belong to requests by their order alone.

Owns the queue of unanswered requests. When the connection ends, whatever the reason, each of them learns it by a
`ConnectionLost`, in order; whether to send again is for the caller, who knows the claim. A connection never comes back:
callers open another one.

Requests sent in one turn of the event loop leave in one write. There is one timer for all: the server may be silent
for as long as the oldest unanswered request allows, then the connection counts as lost.
"""

import asyncio
import os
import re
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

from oncelog.client.errors import ConnectionLost
from oncelog.client.wire import Answer, AnswerBroken, AnswerParser

PORT_DEFAULT: Final = 4437

ERROR_NUMBER: Final = re.compile(r"\[Errno (\d+)\]")

OnAnswer = Callable[[Answer | ConnectionLost], None]


_HOST_AND_PORT: Final = re.compile(r"[\w.-]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")


class Address(NamedTuple):
    """Where the server is."""

    host: str
    port: int
    tls: ssl.SSLContext | None

    @property
    def host_header(self) -> str:
        """As the Host header spells it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def with_scheme(url: str) -> str:
    """`host:port` alone, as the ready line of a server says it, is that with http://; anything else stays as it is."""
    return f"http://{url}" if _HOST_AND_PORT.fullmatch(url) else url


def parse_address(url: str, tls: ssl.SSLContext | None = None) -> Address:
    """`http://host:port` or `https://host:port`, without a path; `host:port` alone is the first. ValueError says what
    is wrong."""
    parts = urlsplit(with_scheme(url))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise ValueError(f"{url!r}: the address of a server is http://host:port, without a path")
    if parts.username is not None:
        raise ValueError("a user in the address is not sent to the server; give a header instead")
    if parts.scheme == "https":
        return Address(parts.hostname, parts.port or 443, tls or ssl.create_default_context())
    return Address(parts.hostname, parts.port or PORT_DEFAULT, None)


class Connection(asyncio.Protocol):
    """See the module. Made by `connect`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = AnswerParser()
        self._waiting: deque[tuple[OnAnswer, float]] = deque()
        self._unwritten: list[bytes] = []
        self._reason = "the server closed the connection"
        self._closed = self._loop.create_future()
        self._heard_at = 0.0
        self._watch: asyncio.TimerHandle | None = None

    @property
    def open(self) -> bool:
        """Whether requests may still be sent."""
        return self._transport is not None and not self._transport.is_closing() and not self._parser.last

    def send(self, request: bytes, on_answer: OnAnswer, silence_s: float) -> None:
        """Queues a request. `on_answer` is called once, later, in the order of the requests."""
        assert self.open, "nothing is sent on a connection that has ended"
        if not self._unwritten:
            self._loop.call_soon(self._write)
        self._unwritten.append(request)
        now = self._loop.time()
        if not self._waiting:
            # Silence while nobody asked is no silence: it counts from here.
            self._heard_at = now
        self._waiting.append((on_answer, silence_s))
        if self._watch is not None and now + silence_s < self._watch.when():
            # Left by a request that could wait longer: it would notice the loss of this one too late.
            self._watch.cancel()
            self._watch = None
        if self._watch is None:
            self._watch = self._loop.call_later(silence_s, self._check_silence)

    async def request(self, request: bytes, silence_s: float) -> Answer:
        """Sends and waits. Who stops waiting drops the answer, never the request."""
        if not self.open:
            raise ConnectionLost("the connection has ended", sent=False)
        future: asyncio.Future[Answer] = self._loop.create_future()

        def on_answer(answer: Answer | ConnectionLost) -> None:
            if future.done():
                return
            if isinstance(answer, ConnectionLost):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self.send(request, on_answer, silence_s)
        return await future

    def abort(self, reason: str) -> None:
        """Ends the connection at once; unanswered requests are lost."""
        self._reason = reason
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Ends the connection and waits for that."""
        self.abort("the client closed the connection")
        await asyncio.shield(self._closed)

    # --- what asyncio calls ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready."""
        # A cast and no assertion: uvloop's transports are none by inheritance.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Hands every answer to the request it belongs to."""
        self._heard_at = self._loop.time()
        try:
            answers = self._parser.feed(data)
        except AnswerBroken as error:
            self.abort(f"the server's answer cannot be read: {error}")
            return
        for answer in answers:
            if not self._waiting:
                self.abort("the server answered what nobody asked")
                return
            on_answer, _ = self._waiting.popleft()
            on_answer(answer)
        if self._parser.last:
            self.abort("the server closed the connection after an answer")

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells everyone who still waits, in order."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._transport = None
        reason = f"{self._reason}: {exc}" if exc is not None else self._reason
        unsent = len(self._unwritten)
        self._unwritten.clear()
        waiting, self._waiting = self._waiting, deque()
        sent = len(waiting) - unsent
        for number, (on_answer, _) in enumerate(waiting):
            on_answer(ConnectionLost(reason, sent=number < sent))
        if not self._closed.done():
            self._closed.set_result(None)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        if self._transport is None or self._transport.is_closing() or not self._unwritten:
            return
        unwritten, self._unwritten = self._unwritten, []
        self._transport.write(unwritten[0] if len(unwritten) == 1 else b"".join(unwritten))

    def _check_silence(self) -> None:
        self._watch = None
        if not self._waiting:
            return
        silence_s = self._waiting[0][1]
        left_s = self._heard_at + silence_s - self._loop.time()
        if left_s <= 0:
            self.abort(f"the server has been silent for {silence_s:g} s")
        else:
            self._watch = self._loop.call_later(left_s, self._check_silence)


async def connect(address: Address, timeout_s: float) -> Connection:
    """A new connection. ConnectionLost, with nothing sent, if there is none within the time."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(Connection, address.host, address.port, ssl=address.tls)
    except TimeoutError:
        raise ConnectionLost(f"no connection to {address.host_header} in {timeout_s:g} s", sent=False) from None
    except OSError as error:
        raise ConnectionLost(f"no connection to {address.host_header}: {_reason(error)}", sent=False) from None
    return connection


def _reason(error: OSError) -> str:
    """In words. asyncio says number and address instead, several times where a host has several addresses."""
    numbers = {int(number) for number in ERROR_NUMBER.findall(str(error))}
    return " and ".join(sorted(map(os.strerror, numbers))) or error.strerror or str(error)
