"""HTTP/1.1 as the writers speak it: requests as bytes, pipelined on one connection, answers in their order.

Its own, and as small as it can be, so that the server is not judged by the project's client. It knows what the server
sends to the requests made here: a status, headers, and a body of a stated length or none.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec

HOST: Final = "127.0.0.1"
JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
BATCHES: Final = "application/vnd.oncelog.batches"

_HEAD_END: Final = b"\r\n\r\n"
_BODILESS: Final = frozenset((204, 304))


class Answer(NamedTuple):
    """A whole answer. Names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def number(self, name: str) -> int:
        """A header as a number; -1 if it is absent."""
        return int(self.headers.get(name, "-1"))

    def flag(self, name: str) -> bool:
        return self.headers.get(name) == "true"

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """The stable name of a refusal; empty if it is none."""
        if self.status < 400 or not self.body:
            return ""
        return str(self.json().get("code", ""))

    def __str__(self) -> str:
        return f"{self.status} {self.body[:300].decode(errors='replace')}".strip()


def request_bytes(method: str, target: str, headers: Mapping[str, str | int], body: bytes = b"") -> bytes:
    """A request on a connection that stays open."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    length = f"Content-Length: {len(body)}\r\n" if body or method in ("POST", "PUT") else ""
    return f"{method} {target} HTTP/1.1\r\nHost: {HOST}\r\n{lines}{length}\r\n".encode() + body


class AnswerParser:
    """Bytes in, whole answers out."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[Answer]:
        """The answers that are whole now. ValueError if it is no HTTP."""
        self._bytes += data
        answers: list[Answer] = []
        at = 0
        while (end := self._bytes.find(_HEAD_END, at)) >= 0:
            status_line, *lines = self._bytes[at:end].decode("latin-1").split("\r\n")
            version, number, *_ = status_line.split(" ", 2)
            if version != "HTTP/1.1":
                raise ValueError(f"not an answer: {status_line!r}")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            status = int(number)
            begin = end + len(_HEAD_END)
            next_ = begin if status in _BODILESS else begin + int(headers["content-length"])
            if next_ > len(self._bytes):
                break
            answers.append(Answer(status, headers, bytes(self._bytes[begin:next_])))
            at = next_
        del self._bytes[:at]
        return answers


class Connection(asyncio.Protocol):
    """One connection. `on_answer` gets the answers in the order of the requests; `ended` is done when it is over."""

    def __init__(self, on_answer: Callable[[Answer], None]) -> None:
        self._on_answer = on_answer
        self._parser = AnswerParser()
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    async def close(self) -> None:
        """At once; nothing is left when it returns."""
        if self._transport is not None:
            self._transport.abort()
        await asyncio.wait((self.ended,))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for answer in self._parser.feed(data):
            self._on_answer(answer)

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        if not self.ended.done():
            self.ended.set_result(None)


async def connect(port: int, on_answer: Callable[[Answer], None]) -> Connection | None:
    """A new connection; None if nobody listens."""
    try:
        _, connection = await asyncio.get_running_loop().create_connection(lambda: Connection(on_answer), HOST, port)
    except OSError:
        return None
    return connection


class ServerGone(Exception):
    """The connection ended before the answer came."""


class Asker:
    """Questions whose answers are waited for, one or several at a time: what the audit uses."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: Connection | None = None
        self._waiting: deque[asyncio.Future[Answer]] = deque()

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str | int] | None = None, body: bytes = b""
    ) -> Answer:
        """The answer. Raises ServerGone."""
        if self._connection is None or not self._connection.is_open:
            self._connection = await connect(self._port, self._answered)
            if self._connection is None:
                raise ServerGone(f"nobody listens on {self._port}")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._connection.send(request_bytes(method, target, headers or {}, body))
        ended = self._connection.ended
        await asyncio.wait((future, ended), return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            self._waiting.clear()
            raise ServerGone(f"{method} {target} got no answer")
        return future.result()

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    def _answered(self, answer: Answer) -> None:
        self._waiting.popleft().set_result(answer)
