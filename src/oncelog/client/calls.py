"""Single requests with retries, over a connection that comes back: what every call but the producer's goes through.

Everything that is sent here may be sent twice: reads change nothing, and writes carry a claim or have the same effect
again. So an attempt that got no answer, or a 503, is repeated until the time is up. Then the caller learns what is
known: `Unreachable` if nothing can have happened, `OutcomeUnknown` if it may have. A bare 502 or 504 says no more than
no answer: the proxy that sent it cannot know.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from oncelog.client.backoff import Backoff
from oncelog.client.connection import Address, Connection, connect
from oncelog.client.errors import AnswerUnreadable, ClientError, ConnectionLost, OutcomeUnknown, Unreachable, refusal_of
from oncelog.client.wire import JSON, Answer, Head, target

Shape = TypeVar("Shape")

BACKOFF_MS: Final = 20
BACKOFF_MAX_MS: Final = 1_000
ATTEMPT_S_MIN: Final = 1.0
"""What is left for an attempt after a long pause; after a short one as long as that."""

READING: Final = frozenset(("GET", "HEAD"))
"""Methods that change nothing."""

OURS: Final = frozenset(("connection", "content-length", "expect", "te", "trailer", "transfer-encoding", "upgrade"))
"""Headers about the message and its connection, not about what is asked."""

OnPutOff = Callable[[ClientError], object]
"""Told what an attempt came to, before the pause that another one follows: for who has somebody waiting."""

_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait for what."""

    connect_s: float
    silence_s: float
    """For a sign of the server while a request is unanswered."""
    request_s: float
    """For one call, all its attempts together."""


class Channel:
    """One connection, made when it is needed and again after it ended. Requests of many callers share it."""

    def __init__(self, address: Address, timeouts: Timeouts, on_put_off: OnPutOff | None = None) -> None:
        self._address = address
        self._timeouts = timeouts
        self._on_put_off = on_put_off
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def ask(
        self,
        request: bytes,
        *,
        writes: bool,
        asks_if_changed: bool = False,
        wait_s: float | None = None,
    ) -> tuple[Answer, bool]:
        """The first answer that is not "try again", and whether an attempt before it may have been carried out.

        It is a success or a refusal. Anything else is `AnswerUnreadable`: somebody on the way answered, and what became
        of a write is as unknown as without an answer. `wait_s`: one attempt alone, which takes as long as the server is
        not silent for longer than that.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeouts.request_s if wait_s is None else None
        backoff = Backoff(BACKOFF_MS, BACKOFF_MAX_MS)
        maybe_done = False
        while True:
            cause: ClientError
            pause_s = backoff.next_s()
            try:
                answer = await self._attempt(request, self._timeouts.silence_s if wait_s is None else wait_s, deadline)
            except ConnectionLost as error:
                maybe_done = maybe_done or error.sent
                cause = error
            else:
                if answer.status < 300 or (answer.status == 304 and asks_if_changed):
                    return answer, maybe_done
                if answer.status < 400:
                    raise _foreign(answer)
                refusal = refusal_of(answer)
                if refusal.is_foreign:
                    raise _foreign(answer)
                if not refusal.retryable:
                    return answer, maybe_done
                # Without the server's word, somebody on the way gave up waiting, perhaps, and had passed it on.
                maybe_done = maybe_done or not refusal.is_told_retryable
                cause = refusal
                pause_s = max(pause_s, refusal.retry_after_s)
            # An attempt needs time of its own: the answer to one that begins at the last moment is lost, and with it a
            # "nothing was done" of the one before.
            if self._closed or deadline is None or loop.time() + pause_s + min(pause_s, ATTEMPT_S_MIN) > deadline:
                break
            if self._on_put_off is not None:
                self._on_put_off(cause)
            await self._pause(pause_s)
        time_s = self._timeouts.request_s if wait_s is None else wait_s
        said = "the client is closed" if self._closed else f"no answer within {time_s:g} s"
        if maybe_done and writes:
            raise OutcomeUnknown(f"{said}; it may have been done: {cause}") from cause
        if isinstance(cause, ConnectionLost):
            raise Unreachable(f"{said}: {cause}") from cause
        raise cause

    def reset(self) -> None:
        """Drops the connection; the next call makes another. For a reader that no longer waits for its answer."""
        if self._connection is not None:
            self._connection.abort("the caller stopped waiting")

    async def close(self) -> None:
        """Ends the connection. Calls that wait are told; later ones are refused."""
        self._closed = True
        if self._connection is not None:
            await self._connection.close()

    async def _pause(self, pause_s: float) -> None:
        try:
            await asyncio.sleep(pause_s)
        except asyncio.CancelledError:
            # A client that closes ends its thread: the next attempt says so, and what is known of the write.
            if not self._closed:
                raise

    async def _attempt(self, request: bytes, silence_s: float, deadline: float | None) -> Answer:
        """One attempt, lost at the deadline whatever comes by then: a server whose bytes trickle is never silent."""
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self._connected()
        except TimeoutError:
            raise ConnectionLost("no connection in time", sent=False) from None
        if deadline is None:
            return await connection.request(request, silence_s)
        # Answers belong to requests by their order: what comes on this connection is of no use without this answer.
        expiry = asyncio.get_running_loop().call_at(deadline, connection.abort, "the answer was not whole in time")
        try:
            return await connection.request(request, silence_s)
        finally:
            expiry.cancel()

    async def _connected(self) -> Connection:
        async with self._connecting:
            if not self._closed and (self._connection is None or not self._connection.open):
                self._connection = await connect(self._address, self._timeouts.connect_s)
            if self._closed:
                # If `close` came while this was connecting, it saw no connection: nobody else would end it.
                await self.close()
                raise ConnectionLost("nothing was sent", sent=False)
            assert self._connection is not None
            return self._connection


class Caller:
    """Where the server is, what goes with every request, and the channel for short calls."""

    def __init__(
        self, address: Address, headers: Mapping[str, str], timeouts: Timeouts, on_put_off: OnPutOff | None = None
    ) -> None:
        self.address = address
        self.timeouts = timeouts
        self.on_put_off = on_put_off
        for name in headers:
            if name.lower() in OURS:
                raise ValueError(f"{name} is not to be given: it says where a request ends, and the client sends it")
        self._headers = dict(headers)
        self._channel = self.channel()

    def channel(self) -> Channel:
        """A connection of its own: for reads that take long, so that nothing waits behind them."""
        return Channel(self.address, self.timeouts, self.on_put_off)

    def head(self, method: str, to: str, headers: Mapping[str, str | int] | None = None) -> Head:
        """The beginning of a request to this server."""
        own = {name.lower() for name in headers or ()}
        given = {name: value for name, value in self._headers.items() if name.lower() not in own}
        return Head(method, to, self.address.host_header, {**given, **(headers or {})})

    async def answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int | None] | None = None,
        *,
        headers: Mapping[str, str | int] | None = None,
        body: bytes | None = None,
    ) -> tuple[Answer, bool]:
        """Any answer that is not "try again", refusals included."""
        head = self.head(method, target(path, query), headers)
        request = head.bodiless() if body is None else head.request(body)
        asks_if_changed = any(name.lower() == "if-none-match" for name in headers or ())
        return await self._channel.ask(request, writes=method not in READING, asks_if_changed=asks_if_changed)

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int | None] | None = None,
        *,
        headers: Mapping[str, str | int] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """A success; refusals are raised."""
        answer, maybe_done = await self.answer(method, path, query, headers=headers, body=body)
        if answer.status >= 400:
            refusal = refusal_of(answer)
            refusal.maybe_done = maybe_done and method not in READING
            raise refusal
        return answer

    async def json(
        self,
        shape: type[Shape],
        method: str,
        path: str,
        query: Mapping[str, str | int | None] | None = None,
        *,
        body: object = msgspec.UNSET,
    ) -> Shape:
        """JSON in, JSON out."""
        if body is msgspec.UNSET:
            answer = await self.call(method, path, query)
        else:
            answer = await self.call(method, path, query, headers={"Content-Type": JSON}, body=_encode(body))
        return decoded(answer, shape)

    async def close(self) -> None:
        """Ends the channel for short calls; others belong to those who made them."""
        await self._channel.close()


def done(answer: Answer) -> None:
    """A success that has nothing to tell. Raises AnswerUnreadable: a page that somebody on the way shows is a 200."""
    if answer.status != 204:
        raise _foreign(answer)


def placed(answer: Answer) -> Answer:
    """A success that says where a stream ends, as only a server of this protocol does. Raises AnswerUnreadable."""
    if "stream-next-offset" not in answer.headers:
        raise _foreign(answer)
    return answer


def _foreign(answer: Answer) -> AnswerUnreadable:
    to = f" (Location: {answer.headers['location'][:200]})" if "location" in answer.headers else ""
    return AnswerUnreadable(f"no server of this protocol answers so: status {answer.status}{to}; nothing is confirmed")


def decoded(answer: Answer, shape: type[Shape] | Any) -> Shape:
    """The body of an answer. Raises AnswerUnreadable."""
    try:
        value: Shape = msgspec.json.decode(answer.body, type=shape)
    except msgspec.DecodeError as error:
        raise AnswerUnreadable(f"the answer is not what was asked for: {error}") from None
    return value
