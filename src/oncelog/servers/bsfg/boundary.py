"""Carries out calls of the boundary: hands what they ask to the engine, and the replies back to them."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from oncelog.core.outcome import Confirmed, NotFound, Outcome, Refusal, TopicMissing
from oncelog.engine.engine import Engine
from oncelog.engine.listing import ListedCursor
from oncelog.protocols.bsfg import service
from oncelog.protocols.bsfg.connect import Answer
from oncelog.protocols.bsfg.service import Call
from oncelog.protocols.bsfg.zone import CONSUMER_SCOPE, Find, ListConsumers, Prepared, Steps, Zone
from oncelog.servers.bsfg.refusals import RefusalRecord
from oncelog.servers.counts import Counts

LOOK_S: Final = 1.0
"""How old the word may be that a consumer is too far behind."""

PAGE: Final = 1_000
"""Consumers that are looked up at once."""

OnAnswer = Callable[[Answer], None]


class Boundary:
    """All calls of one server."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop, zone: Zone, counts: Counts) -> None:
        self.engine = engine
        self.loop = loop
        self.zone = zone
        self.counts = counts
        self.refusals = RefusalRecord(engine)
        self._looked_at = -LOOK_S

    def begin(self, method: bytes, path: str, headers: Mapping[bytes, bytes], body: bytes, on_answer: OnAnswer) -> None:
        """Carry out one request; `on_answer` is called once."""
        self._look_at_backlog()
        begun = service.begin(self.zone, method, path, headers, body)
        if isinstance(begun, Answer):
            self.counts.malformed += begun.status >= 400
            self.refusals.note(path, "", begun)
            on_answer(begun)
        else:
            _Running(self, begun, on_answer).go_on(None)

    def _look_at_backlog(self) -> None:
        """Once a second, and only while there are calls: whether a consumer is too far behind."""
        now = self.loop.time()
        if self.zone.backlog_bytes_max and now - self._looked_at >= LOOK_S:
            self._looked_at = now
            list_consumers(self.engine, CONSUMER_SCOPE, self.zone.look_at_backlog)

    def run(
        self, name: str, steps: Steps, on_result: Callable[[Any], None], on_error: Callable[[Answer], None]
    ) -> None:
        """Carry out steps that are no call by themselves; what they return goes to `on_result`."""
        results: list[Any] = []

        def render(result: Any) -> Answer:
            results.append(result)
            return Answer(200, "", b"")

        def on_answer(answer: Answer) -> None:
            if results:
                on_result(results[0])
            else:
                on_error(answer)

        _Running(self, Call(name, steps, render), on_answer).go_on(None)


def list_consumers(engine: Engine, prefix: str, on_list: Callable[[list[ListedCursor]], None]) -> None:
    """All consumers whose names begin so, a page after the other."""
    found: list[ListedCursor] = []

    def on_page(listed: list[ListedCursor], next_: tuple[str, int] | None) -> None:
        found.extend(listed)
        if next_ is None:
            on_list(found)
        else:
            engine.lookups.cursors(prefix, next_, PAGE, on_page)

    engine.lookups.cursors(prefix, None, PAGE, on_page)


def _ignore(_outcome: Outcome) -> None:
    """What comes of it shows in the outcome of the command behind it."""


class _Running:
    """One call in progress."""

    def __init__(self, boundary: Boundary, call: Call, on_answer: OnAnswer) -> None:
        self._engine = boundary.engine
        self._counts = boundary.counts
        self._refusals = boundary.refusals
        self._call = call
        self._on_answer = on_answer
        self._is_answered = False
        self._is_advancing = False
        self._replies: list[Any] = []
        self._timer: asyncio.TimerHandle | None = None
        if call.timeout_ms is not None:
            self._timer = boundary.loop.call_later(call.timeout_ms / 1000, self._expire)

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
                elif isinstance(asked, ListConsumers):
                    list_consumers(self._engine, asked.prefix, self.go_on)
                elif isinstance(asked, Prepared):
                    self._engine.submit(asked.before, _ignore)
                    self._engine.submit(asked.command, self._told)
                else:
                    self._engine.submit(asked, self._told)
        finally:
            self._is_advancing = False

    def _told(self, outcome: Outcome) -> None:
        """The engine's answer to a command."""
        if isinstance(outcome, Confirmed):
            self._counts.confirmed(outcome)
        elif isinstance(outcome, Refusal) and not isinstance(outcome, TopicMissing | NotFound):
            self._counts.other(outcome)
        self.go_on(outcome)

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
            self._refusals.note(self._call.name, self._call.caller, answer)
