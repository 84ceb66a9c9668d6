"""Carries out calls of the boundary: hands what they ask to the engine, and the replies back to them."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from oncelog.engine.engine import Engine
from oncelog.protocols.bsfg import service
from oncelog.protocols.bsfg.connect import Answer
from oncelog.protocols.bsfg.service import Call
from oncelog.protocols.bsfg.zone import Find, Zone

OnAnswer = Callable[[Answer], None]


class Boundary:
    """All calls of one server."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop, zone: Zone) -> None:
        self._engine = engine
        self._loop = loop
        self._zone = zone

    def begin(self, method: bytes, path: str, headers: Mapping[bytes, bytes], body: bytes, on_answer: OnAnswer) -> None:
        """Carry out one request; `on_answer` is called once."""
        begun = service.begin(self._zone, method, path, headers, body)
        if isinstance(begun, Answer):
            on_answer(begun)
        else:
            _Running(self._engine, self._loop, begun, on_answer).go_on(None)


class _Running:
    """One call in progress."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop, call: Call, on_answer: OnAnswer) -> None:
        self._engine = engine
        self._call = call
        self._on_answer = on_answer
        self._is_answered = False
        self._is_advancing = False
        self._replies: list[Any] = []
        self._timer = None if call.timeout_ms is None else loop.call_later(call.timeout_ms / 1000, self._expire)

    def go_on(self, reply: Any) -> None:
        """The reply to what was asked last. The engine may call it before `_ask` returns, hence the list: a call that
        reads much would else be as deep in the stack as it is long."""
        self._replies.append(reply)
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while self._replies:
                asked = self._call.advance(self._replies.pop())
                if isinstance(asked, Answer):
                    self._answer(asked)
                elif isinstance(asked, Find):
                    self._engine.read(asked.topic, 0, asked.offset, asked.bytes_max, self.go_on)
                else:
                    self._engine.submit(asked, self.go_on)
        finally:
            self._is_advancing = False

    def _expire(self) -> None:
        self._timer = None
        self._answer(self._call.expired())

    def _answer(self, answer: Answer) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_answered:
            self._is_answered = True
            self._on_answer(answer)
