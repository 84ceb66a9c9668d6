"""A peer that does what a script says: answers, holds, cuts. And a small log behind it, with the rules of core."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import parse_qsl, unquote

import httptools
import msgspec

from oncelog.client import AsyncClient
from oncelog.core import batch as codec
from oncelog.core.flat import Producer, ProducerClaim
from oncelog.core.producer import SequenceMode, advance, judge
from oncelog.core.verdict import Accept, Duplicate, Fenced, Gap

Result = TypeVar("Result")

RUN_S: Final = 30.0


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """A test's own event loop. A hang becomes a failure that says where."""

    async def bounded() -> Result:
        async with asyncio.timeout(RUN_S):
            return await main

    return asyncio.run(bounded())


class Request(NamedTuple):
    """As it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    connection: int
    header_count: int
    """Lines, of which two may have one name."""

    @property
    def seq(self) -> int:
        """Of either dialect; -1 without one."""
        return int(self.headers.get("x-producer-seq", self.headers.get("producer-seq", "-1")))


_STATUSES: Final = frozenset(HTTPStatus)

CUT: Final = object()
"""The connection ends instead of an answer."""

Reply = bytes | object
Script = Callable[[Request], Reply | Awaitable[Reply]]


def answer(status: int, body: bytes = b"", /, **headers: str | int) -> bytes:
    """An answer; `Stream_Next_Offset=1` becomes a header."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    length = "" if status in (204, 304) else f"Content-Length: {len(body)}\r\n"
    phrase = HTTPStatus(status).phrase if status in _STATUSES else "Of a proxy's own"
    return f"HTTP/1.1 {status} {phrase}\r\n{lines}{length}\r\n".encode() + body


def json_answer(value: object, status: int = 200, **headers: str | int) -> bytes:
    return answer(status, msgspec.json.encode(value), Content_Type="application/json", **headers)


def problem(status: int, code: str, *, retryable: bool = False, **members: object) -> bytes:
    body = {"code": code, "status": status, "detail": "as the script says", "retryable": retryable, **members}
    return answer(status, msgspec.json.encode(body), Content_Type="application/problem+json")


class _Side(asyncio.Protocol):
    """The peer's side of one connection."""

    def __init__(self, peer: "Peer") -> None:
        self.number = peer.connection_count
        peer.connection_count += 1
        self._peer = peer
        self._parser = httptools.HttpRequestParser(self)
        self._queue: asyncio.Queue[Request] = asyncio.Queue()
        self.on_message_begin()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._peer.sides.append(self)
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer.sides.remove(self)
        self._task.cancel()
        self._peer.tell()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._header_count = 0
        self._body = b""

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()
        self._header_count += 1

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        path, _, query = self._target.decode().partition("?")
        method = self._parser.get_method().decode()
        request = Request(
            method, unquote(path), dict(parse_qsl(query)), self._headers, self._body, self.number, self._header_count
        )  # fmt: skip
        self._peer.requests.append(request)
        self._queue.put_nowait(request)
        self._peer.tell()

    async def _serve(self) -> None:
        while True:
            request = await self._queue.get()
            reply = self._peer.script(request)
            if isinstance(reply, Awaitable):
                reply = await reply
            if reply is CUT:
                self.transport.abort()
                return
            assert isinstance(reply, bytes)
            self.transport.write(reply)


class Peer:
    """A server on a free port. `requests` is all that came, in order."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.sides: list[_Side] = []
        self.connection_count = 0
        self._server: asyncio.Server | None = None
        self._port = 0
        self._told = asyncio.Condition()
        self._tellers: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def listen(self) -> None:
        """On the port it had before, if any."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Side(self), "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Nobody listens; connections are cut."""
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()
        self._server = None

    def cut(self) -> None:
        for side in list(self.sides):
            side.transport.abort()

    def tell(self) -> None:
        async def notify() -> None:
            async with self._told:
                self._told.notify_all()

        task = asyncio.get_running_loop().create_task(notify())
        self._tellers.add(task)
        task.add_done_callback(self._tellers.discard)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Something came or ended, so that this is true."""
        async with self._told:
            await self._told.wait_for(condition)

    async def came(self, count: int) -> None:
        """So many requests are there."""
        await self.until(lambda: len(self.requests) >= count)

    async def __aenter__(self) -> "Peer":
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await self.stop()
        await self.until(lambda: not self.sides)


class Heard(list[Any]):
    """A callback that remembers what it was called with: a value, or a tuple of them."""

    def __init__(self) -> None:
        super().__init__()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def __call__(self, *args: Any) -> None:
        self.append(args[0] if len(args) == 1 else args)
        for count, future in self._waiters:
            if len(self) >= count and not future.done():
                future.set_result(None)

    async def until(self, count: int) -> None:
        """It was called so often."""
        if len(self) < count:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((count, future))
            await future


class FakeLog:
    """Streams with the producer rules of core and message ids, in memory. `post` applies and answers."""

    def __init__(self) -> None:
        self.streams: dict[tuple[str, int], list[bytes]] = {}
        self.ids: dict[tuple[str, int, str], tuple[int, bytes]] = {}
        self.producers: dict[tuple[str, int, str], Producer] = {}

    def values(self, topic: str, partition: int = 0) -> list[bytes]:
        return self.streams.get((topic, partition), [])

    def __call__(self, request: Request) -> bytes:
        topic = request.path.removeprefix("/v1/stream/")
        partition = int(request.query.get("partition", "0"))
        if request.method == "POST" and topic != request.path:
            return self._post(request, topic, partition)
        if request.method == "GET" and request.path.startswith("/v1/producers/"):
            return self._producer(request, partition)
        return problem(404, "not_found")

    def _producer(self, request: Request, partition: int) -> bytes:
        topic, _, name = request.path.removeprefix("/v1/producers/").rpartition("/")
        scope = request.query["scope"]
        row = self.producers.get((topic, partition, f"{scope}:{name}"))
        if row is None:
            return problem(404, "not_found")
        found = {"name": name, "scope": scope, "epoch": row.epoch, "last_sequence": row.last}
        return json_answer({**found, "first": 0, "next": 0, "used_ms": 0})

    def _post(self, request: Request, topic: str, partition: int) -> bytes:
        values = _values(request)
        stream = self.streams.setdefault((topic, partition), [])
        digest = hashlib.sha256(request.body).digest()[:16]
        message_id = request.headers.get("stream-message-id", "")
        claim = _claim(request, digest)
        known = self.ids.get((topic, partition, message_id)) if message_id else None
        if known is not None and known[1] != digest:
            return problem(409, "id_conflict", offset=known[0])
        if claim is None:
            if known is not None:
                return answer(204, Stream_Next_Offset=known[0], Stream_Duplicate="true")
            return self._write(stream, values, topic, partition, message_id, digest, None, 0)
        row = self.producers.get((topic, partition, claim.name))
        verdict = judge(row, claim)
        match verdict:
            case Accept():
                return self._write(stream, values, topic, partition, message_id, digest, claim, verdict.epoch)
            case Duplicate():
                return _written(claim, verdict.epoch, verdict.next_offset, duplicate=True)
            case Gap():
                return problem(409, "sequence_gap", expected=verdict.expected, received=verdict.received)
            case Fenced():
                return problem(403, "fenced", current=verdict.current_epoch, claimed=verdict.claimed_epoch)
        return problem(400, "claim_invalid", reason=repr(verdict))

    def _write(
        self,
        stream: list[bytes],
        values: list[bytes],
        topic: str,
        partition: int,
        message_id: str,
        digest: bytes,
        claim: ProducerClaim | None,
        epoch: int,
    ) -> bytes:
        first = len(stream)
        stream += values
        if message_id:
            self.ids[topic, partition, message_id] = (len(stream), digest)
        if claim is None:
            return answer(204, Stream_Next_Offset=f"{len(stream):016d}")
        key = (topic, partition, claim.name)
        self.producers[key] = advance(self.producers.get(key), claim, epoch, first, len(stream), 0)
        return _written(claim, epoch, len(stream), duplicate=False)


def _written(claim: ProducerClaim, epoch: int, next_offset: int, *, duplicate: bool) -> bytes:
    place: dict[str, str | int] = {}
    if next_offset >= 0:
        place = {"Stream_Next_Offset": f"{next_offset:016d}"}
        if claim.managed:
            place["X_Stream_Offset"] = f"{next_offset - 1:08d}"
    if claim.managed:
        return answer(204 if duplicate else 201, X_Producer_Epoch=epoch, **place)
    return answer(204 if duplicate else 200, Producer_Epoch=epoch, Producer_Seq=claim.first, **place)


def _claim(request: Request, digest: bytes) -> ProducerClaim | None:
    headers = request.headers
    mode = int(SequenceMode.REQUESTS)
    if (name := headers.get("x-producer-id")) is not None:
        epoch = int(headers.get("x-producer-epoch", "-1"))
        session = headers.get("x-producer-session", "")
        return ProducerClaim(f"x:{name}", epoch, request.seq, request.seq, mode, digest, True, session, True)
    if (name := headers.get("producer-id")) is not None:
        return ProducerClaim(f"http:{name}", int(headers["producer-epoch"]), request.seq, request.seq, mode, digest)
    return None


def _values(request: Request) -> list[bytes]:
    kind = request.headers.get("content-type")
    if kind == "application/json":
        return [bytes(element) for element in msgspec.json.decode(request.body, type=list[msgspec.Raw])]
    if kind == "application/vnd.oncelog.batches":
        codec.skim(request.body)
        return [value or b"" for value in codec.decode_values(request.body)]
    return [request.body]


def calling(script: Script, call: Callable[[AsyncClient], Awaitable[object]]) -> tuple[object, list[Request]]:
    """The result of one call, and the requests that it made."""

    async def main() -> tuple[object, list[Request]]:
        async with Peer(script) as peer, AsyncClient(peer.url, request_timeout_ms=300) as client:
            return await call(client), peer.requests

    return run(main())
