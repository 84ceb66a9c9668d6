"""What a connection of every face has: it counts against the bound of its listener, nothing is read from a client that
does not read or while the engine has too much, a client that takes nothing is cut, and an idle one is closed.

A face's connection is a class over this one. It gives `data_received`; it may give `look_further`, `may_read_on`,
`has_work`, `on_lost`, `on_writable` and `finish`. The loop calls its methods as those of an asyncio protocol.
"""

import asyncio
from typing import Any, Final, Protocol, cast

from oncelog import limits
from oncelog.servers.back_pressure import BackPressure
from oncelog.servers.counts import Counts
from oncelog.servers.face_settings import FaceSettings
from oncelog.servers.unsent import UnsentBytes

WRITE_HIGH_BYTES: Final = 1 * limits.MIB
"""Bytes that a client may leave unread before nothing more is read from it."""


class ListenerOfFace(Protocol):
    """The listener (`listener.py`), as far as a connection needs it."""

    loop: asyncio.AbstractEventLoop
    settings: FaceSettings
    counts: Counts
    back_pressure: BackPressure
    unsent: UnsentBytes
    is_stopping: bool
    is_stopped: bool

    def stall_ms(self) -> int: ...

    def joined(self, connection: Any) -> bool: ...

    def may_linger(self, connection: Any) -> bool: ...

    def left(self, connection: Any) -> None: ...


class FaceConnection:
    """One client of a face."""

    listener: ListenerOfFace
    transport: asyncio.Transport
    # No values here: a class beside this one may have them as slots.
    is_closing: bool
    """What comes is thrown away; what is accepted is still answered."""
    is_paused: bool
    """Nothing is read from the client."""
    active_at: float
    """When the client last did something."""
    sent_bytes: int
    """Bytes that were handed to the transport: add to it with every write."""

    def attach(self, listener: ListenerOfFace) -> None:
        """To be called once, when the connection is made."""
        self.listener = listener
        self.is_closing = False
        self.is_paused = False
        self.active_at = 0.0
        self.sent_bytes = 0
        self.is_stalled = False
        """The client has too much unread."""
        self._taken_bytes = 0
        self._taken_at = 0.0
        """What the client had taken when `look_at` last saw it take something, and when that was."""

    # --- what the loop calls ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self.active_at = self.listener.loop.time()
        if not self.listener.joined(self):
            self.turn_away()

    def connection_lost(self, _error: Exception | None) -> None:
        self.is_closing = True
        self.listener.left(self)
        self.on_lost()
        self.listener.unsent.let_go(self)

    def eof_received(self) -> bool:
        """The client sends nothing more. False: the transport closes itself once all is sent."""
        return False

    def pause_writing(self) -> None:
        self.is_stalled = True
        self.pause()

    def resume_writing(self) -> None:
        self.is_stalled = False
        self.active_at = self.listener.loop.time()
        self.listener.unsent.settle(self)
        self.resume()
        self.on_writable()

    # --- for the class over this one -------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Write to the client, unless it has gone."""
        if not self.transport.is_closing():
            self.sent_bytes += len(data)
            self.transport.write(data)

    def unsent_bytes(self) -> int:
        """Bytes that were handed to the socket and not taken by it."""
        return self.transport.get_write_buffer_size()

    def turn_away(self) -> None:
        """There are too many connections: end this one. A face may say so first."""
        self.abort()

    def on_lost(self) -> None:
        """The client has gone: drop its answers, never its commands."""

    def on_writable(self) -> None:
        """The client has read what was sent."""

    def may_read_on(self) -> bool:
        """Whether the connection itself has room for more requests."""
        return True

    def has_work(self) -> bool:
        """Whether a request is in progress, so that the connection is not idle."""
        return False

    def look_further(self, now: float, unread_bytes: int) -> None:
        """Deadlines beside the client's own reading: called about once a second."""
        if not unread_bytes and not self.has_work() and (now - self.active_at) * 1000 > self.listener.settings.idle_ms:
            self.transport.close()

    # --- back-pressure ---------------------------------------------------------------------------------------------

    def hold_back(self) -> None:
        """Read nothing more for now if there is too much in line, or too much for the engine."""
        if not self.may_read_on() or self.listener.back_pressure.overloaded:
            self.pause()

    def pause(self) -> None:
        """Read nothing more for now. What is thrown away needs no room, and a client that sends first and reads then
        must get to its reading."""
        if not self.is_paused and not self.is_closing and not self.transport.is_closing():
            self.is_paused = True
            self.listener.back_pressure.paused.add(self)
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on, if nothing speaks against it."""
        if not self.is_paused or self.is_stalled or self.listener.back_pressure.overloaded:
            return
        if self.may_read_on() and not self.transport.is_closing():
            self.read_on()

    def read_on(self) -> None:
        """Read on."""
        if self.is_paused:
            self.is_paused = False
            self.listener.back_pressure.paused.discard(self)
            self.transport.resume_reading()

    # --- deadlines and the end -------------------------------------------------------------------------------------

    def look_at(self, now: float) -> None:
        """Called about once a second."""
        unread = self.transport.get_write_buffer_size()
        taken = self.sent_bytes - unread
        if not unread or taken != self._taken_bytes:
            self._taken_bytes, self._taken_at = taken, now
        elif (now - self._taken_at) * 1000 > self.listener.stall_ms():
            self.listener.counts.cut_stalled += 1
            self.transport.abort()
            return
        self.look_further(now, unread)

    def finish(self) -> None:
        """The server stops: what was accepted is answered, nothing more is taken."""
        self.is_closing = True
        if not self.has_work():
            self.transport.close()

    def abort(self) -> None:
        """Now."""
        self.transport.abort()
