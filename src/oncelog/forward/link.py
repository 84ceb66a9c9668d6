"""One zone as the forwarder talks to it: Connect calls in JSON over one connection that comes back.

A call that gets no answer raises `ConnectionLost`; whether it was carried out is unknown then, and every call here may
be sent again as it is: an append has its message id, a confirm has the same effect twice.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from oncelog.client.connection import Connection, connect, parse_address
from oncelog.client.errors import ConnectionLost
from oncelog.client.wire import JSON, Answer, Head

SERVICE: Final = "/bsfg.v1.BoundaryService/"

RETRYABLE: Final = frozenset(("unavailable", "resource_exhausted", "deadline_exceeded", "canceled", "aborted"))
"""Codes after which the same call can succeed later."""

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class CallRefused(Exception):
    """The zone answered with an error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    @property
    def is_retryable(self) -> bool:
        return self.code in RETRYABLE


class Link:
    """Where a zone is, and the connection to it."""

    def __init__(self, url: str, *, token: str = "", connect_s: float = 5.0, silence_s: float = 30.0) -> None:
        self.url = url
        self.address = parse_address(url)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connect_s = connect_s
        self._silence_s = silence_s
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()

    def head(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> Head:
        """The beginning of a request to this zone."""
        return Head(method, path, self.address.host_header, {**self._headers, **(headers or {})})

    def _head(self, method: str, path: str, content_type: str = "") -> Head:
        return self.head(method, path, {"Content-Type": content_type} if content_type else None)

    async def request(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Any answer to a request without a body. Raises ConnectionLost."""
        connection = await self._connected()
        return await connection.request(self.head(method, path, headers).bodiless(), self._silence_s)

    async def call(self, method: str, message: dict[str, Any]) -> dict[str, Any]:
        """The answer to one call. Raises CallRefused, ConnectionLost."""
        request = self._head("POST", SERVICE + method, JSON).request(_encode(message))
        return answer_of(await (await self._connected()).request(request, self._silence_s))

    async def call_each(
        self, method: str, messages: Sequence[dict[str, Any]]
    ) -> tuple[list[dict[str, Any] | CallRefused], ConnectionLost | None]:
        """The answers to several calls that are sent one behind the other, and what ended the connection if it ended
        before the last one. The server takes them in their order, and so do the answers come."""
        connection = await self._connected()
        head = self._head("POST", SERVICE + method, JSON)
        answers: list[dict[str, Any] | CallRefused] = []
        done: asyncio.Future[ConnectionLost | None] = asyncio.get_running_loop().create_future()

        def on_answer(answer: Answer | ConnectionLost) -> None:
            if done.done():
                return
            if isinstance(answer, ConnectionLost):
                done.set_result(answer)
                return
            try:
                answers.append(answer_of(answer))
            except CallRefused as refused:
                answers.append(refused)
            except ConnectionLost as lost:
                done.set_result(lost)
                return
            if len(answers) == len(messages):
                done.set_result(None)

        if not messages:
            return [], None
        for message in messages:
            connection.send(head.request(_encode(message)), on_answer, self._silence_s)
        return answers, await done

    async def get(self, path: str) -> Any:
        """A document of the zone. Raises CallRefused, ConnectionLost."""
        connection = await self._connected()
        return answer_of(await connection.request(self._head("GET", path).bodiless(), self._silence_s))

    async def post(self, path: str, message: dict[str, Any]) -> Any:
        """A document of the zone that is asked for, or changed, by POST. Raises CallRefused, ConnectionLost."""
        connection = await self._connected()
        request = self._head("POST", path, JSON).request(_encode(message))
        return answer_of(await connection.request(request, self._silence_s))

    async def _connected(self) -> Connection:
        async with self._connecting:
            if self._connection is None or not self._connection.open:
                self._connection = await connect(self.address, self._connect_s)
            return self._connection

    async def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            await self._connection.close()


def answer_of(answer: Answer) -> dict[str, Any]:
    """The document of a success. Raises CallRefused, and ConnectionLost if no boundary answers so."""
    try:
        body = _decode(answer.body) if answer.body else {}
    except msgspec.DecodeError:
        body = None
    if answer.status == 200 and isinstance(body, dict):
        return body
    if isinstance(body, dict) and isinstance(body.get("code"), str):
        raise CallRefused(body["code"], str(body.get("message", "") or body.get("detail", "")))
    # Somebody on the way answered, or this is no boundary: what became of the call is unknown.
    raise ConnectionLost(f"no BSFG boundary answers so: status {answer.status}", sent=True)
