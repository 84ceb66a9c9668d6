"""A connection of the HTTP face without a socket: it writes into a list, and its engine answers when it is told to."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from oncelog.core.command import Command
from oncelog.core.outcome import Outcome
from oncelog.core.txn import DEFAULT_TIMEOUTS
from oncelog.engine.engine import Engine
from oncelog.servers.face import FaceContext
from oncelog.servers.http.connection import Connection
from oncelog.servers.http.server import HttpServer
from oncelog.servers.http.settings import HttpSettings

NOW_MS = 1_700_000_000_000


class Noted(asyncio.Transport):
    """A transport that remembers what was done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_closed = False
        self.is_ended = False
        self.reads_on = True

    def write(self, data: Any) -> None:
        assert not self.is_closed
        assert not self.is_ended
        self.written.append(bytes(data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        assert not self.is_closed
        self.is_ended = True

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.reads_on = False

    def resume_reading(self) -> None:
        self.reads_on = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class Timer:
    def cancel(self) -> None:
        pass


class Clock:
    """A loop on which nothing falls due."""

    def time(self) -> float:
        return 1.0

    def call_later(self, *_: object) -> Timer:
        return Timer()

    def call_soon(self, *_: object) -> None:
        pass


class Confirming:
    """An engine that keeps commands until it is told what comes of them."""

    def __init__(self) -> None:
        self.lookups = self
        self.reads = self
        self.txn_timeouts = DEFAULT_TIMEOUTS
        self.overloaded = False
        self.commands: list[Command] = []
        self.waiting: list[tuple[Command, Callable[[Outcome], None]]] = []

    def name_of(self, _stream_id: int) -> tuple[str, int] | None:
        return None

    def when_none_waits(self, _told: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    def now_ns(self) -> int:
        return NOW_MS * 1_000_000

    def submit(self, command: Command, reply: Callable[[Outcome], None]) -> bool:
        self.commands.append(command)
        self.waiting.append((command, reply))
        return self.overloaded

    def answer(self, outcome_of: Callable[[Command], Outcome]) -> None:
        """Answer all that wait, in their order."""
        waiting, self.waiting = self.waiting, []
        for command, reply in waiting:
            reply(outcome_of(command))


class Joined:
    """One client of such a server."""

    def __init__(self, settings: HttpSettings | None = None) -> None:
        self.engine = Confirming()
        loop = cast(asyncio.AbstractEventLoop, Clock())
        self.server = HttpServer(FaceContext(cast(Engine, self.engine), loop), settings or HttpSettings())
        self.transport = Noted()
        self.connection = Connection(self.server)
        self.connection.connection_made(self.transport)

    def receive(self, data: bytes) -> None:
        """As the loop does: a large body goes where it belongs."""
        at = 0
        while at < len(data):
            parser = self.connection.parser
            if not parser.is_straight or self.connection.is_closing:
                self.connection.data_received(data[at:])
                return
            room = self.connection.body_room()
            count = min(len(room), len(data) - at)
            room[:count] = data[at : at + count]
            at += count
            self.connection.body_came(count)
