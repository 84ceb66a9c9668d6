"""One HTTP client: its socket, its requests in line, back-pressure, deadlines.

Bytes come as the loop reads them, those of a large body straight into the buffer they belong to. A write is submitted
as soon as it is read, unless a read stands before it in line; a read begins when it is its turn to be answered, so that
requests take effect in their order, and a client that asks and never reads holds one answer in memory and not sixty.
Dropping a connection drops its answers, never its commands.
"""

import asyncio
from typing import cast

from oncelog import limits
from oncelog.protocols.http import answers
from oncelog.protocols.http.actions import Action, Done, PublishNamed, Submit
from oncelog.protocols.http.parser import RequestParser
from oncelog.protocols.http.request import Request, RequestRefused
from oncelog.protocols.http.routes import refused_answer
from oncelog.protocols.http.session import Session
from oncelog.protocols.http.template import template_of
from oncelog.servers.ending import Ending
from oncelog.servers.face_connection import FaceConnection
from oncelog.servers.http.line import AppendSlot, Line, Shared
from oncelog.servers.http.mounted import MountedTurn
from oncelog.servers.http.reads import Reading
from oncelog.servers.listener import Listener
from oncelog.servers.mount import Mount

TOO_MANY = answers.closing(
    answers.problem(
        503,
        "too_many_connections",
        "this server has as many connections as it may have",
        retryable=True,
        headers=b"Retry-After: 1\r\n",
    )
)

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Server(Shared):
    """What a connection asks of the server."""

    listener: "Listener[Connection]"
    mounts: dict[bytes, Mount]
    """By their prefixes."""

    def mount_of(self, target: bytes) -> Mount | None:
        """Who takes requests with this target; None if it is the face itself."""
        for prefix, mount in self.mounts.items():
            if target.startswith(prefix):
                return mount
        return None

    def carry_out(self, action: Action, slot: "Slot") -> None:
        """Everything that is neither a command nor an answer already."""
        raise NotImplementedError


class Slot(AppendSlot):
    """Any request that waits for its answer."""

    connection: "Connection"

    def __init__(self, connection: "Connection", request: Request) -> None:
        self.connection = connection
        self.is_head = request.method == b"HEAD"
        self.is_last = not request.keep_alive
        self.answer: bytes | None = None
        self.body: bytes = b""
        self.later: Action | None = None
        """What begins when this slot is first in line, or when no read is before it."""
        self.is_read = False
        self.reading: Reading | None = None
        """A read in progress that is live, or waits for the disk."""

    def done(self, answer: bytes, body: bytes = b"") -> None:
        """The answer is known; it leaves when it is its turn."""
        self.answer = answers.headless(answer) if self.is_head else answer
        self.body = b"" if self.is_head else body
        self.reading = None  # it leads back here: a cycle would keep the answer alive until the collector comes
        self.connection.flush()


class StraightBody:
    """A large body of a connection, received into its own buffer; everything else is the connection's."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def eof_received(self) -> bool:
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._connection.body_room()

    def buffer_updated(self, count: int) -> None:
        self._connection.body_came(count)


class Connection(FaceConnection, Line):
    """One client."""

    server: Server

    def __init__(self, server: Server) -> None:
        settings = server.settings
        bounds = settings.header_bytes_max, settings.body_bytes_max
        parser = RequestParser(self._requested, *bounds, server.body_budget, self if server.mounts else None)
        Line.__init__(self, server, parser)
        self.attach(server.listener)
        self.session = Session()
        self.request_at = 0.0
        """When the request in progress began to come in; 0 if there is none."""
        self._ending: Ending | None = None
        """Since the last answer is out."""
        self._has_client_ended = False
        self._unlike = 0
        """Requests since one was like the one before."""
        self._mounted: MountedTurn | None = None
        """Takes the body that comes in, if it belongs to a mount."""
        self.is_sink_full = False
        """A mount takes no more of that body for now."""
        self._is_feeding = False
        """Requests are being handed over; those behind the one at hand are not in line yet."""

    # --- the socket ------------------------------------------------------------------------------------------------

    def turn_away(self) -> None:
        """Say that there are too many connections, and end this one. It is read on for a moment: closing a socket with
        unread bytes would take the answer with it."""
        if not self.listener.may_linger(self):
            self.abort()
            return
        transport, loop = self.transport, self.listener.loop
        self.is_closing = True
        self._ending = Ending(transport, loop.time())
        transport.write(TOO_MANY)
        if transport.can_write_eof():
            transport.write_eof()
            loop.call_later(limits.LINGER_MS / 1000, transport.abort)
        else:
            transport.close()

    def on_lost(self) -> None:
        self._drop_line()
        self.parser.close()

    def _drop_line(self) -> None:
        """No further answer can be sent."""
        for slot in self.slots:
            if isinstance(slot, Slot) and slot.reading is not None:
                slot.reading.cancel()
                slot.reading = None
        waiting = [(slot, slot.later) for slot in self.slots if isinstance(slot, Slot)]
        self.slots.clear()
        self.parser.let_go()
        # What waits behind a read was accepted: it is carried out, only its answer goes nowhere.
        if not self.listener.is_stopped:
            for slot, action in waiting:
                if isinstance(action, Submit):
                    self._submit(slot, action)
                elif isinstance(action, PublishNamed):
                    self.server.carry_out(action, slot)

    def take(self, data: bytes) -> None:
        parser = self.parser
        self._is_feeding = True
        try:
            parser.feed(data)
        except RequestRefused as refused:
            self._refuse(refused.with_traceback(None))  # which has what came, in every frame
            return
        finally:
            self._is_feeding = False
        if parser.in_request:
            self.request_at = self.request_at or self.active_at
            if parser.expects_continue:
                self._continue()
            if parser.is_straight:
                self._read_through(StraightBody(self))
        else:
            self.request_at = 0.0

    def body_room(self) -> memoryview:
        """Where the bytes of a large body go."""
        room = self.parser.body_room()
        return self.server.scratch if room is None or self.is_closing else room

    def body_came(self, count: int) -> None:
        """They are there."""
        self.active_at = self.server.loop.time()
        if self.is_closing:
            return
        try:
            self.parser.body_came(count)
        except RequestRefused as refused:
            self._refuse(refused.with_traceback(None))
            return
        if not self.parser.is_straight:
            self._read_through(self)
        self.hold_back()

    def _read_through(self, protocol: "Connection | StraightBody") -> None:
        """Who gets the bytes from now on. uvloop looks at it when reading begins, so reading begins anew."""
        if self.transport.is_closing():
            return
        if not self.is_paused:
            self.transport.pause_reading()
        self.transport.set_protocol(cast(asyncio.BaseProtocol, protocol))
        if not self.is_paused:
            self.transport.resume_reading()

    def eof_received(self) -> bool:
        """The client sends nothing more; what it has asked for is still answered, without waiting for more to come: it
        has most likely gone."""
        self.is_closing = True
        self._has_client_ended = True
        if self._ending is not None:
            return False
        self._end_live_reads()
        for slot in self.slots:
            if slot.reading is not None:
                slot.reading.put_off()
        self.flush()
        return True

    def _end_live_reads(self) -> None:
        for slot in list(self.slots):
            if slot.reading is not None:
                slot.reading.end()

    def on_writable(self) -> None:
        if self.slots and self.slots[0].reading is not None:
            self.slots[0].reading.go_on()
        self.flush()

    # --- back-pressure ---------------------------------------------------------------------------------------------

    def may_read_on(self) -> bool:
        return len(self.slots) < self.server.pipelined_max and not self.is_sink_full

    def resume(self) -> None:
        was_paused = self.is_paused
        super().resume()
        if was_paused and not self.is_paused and self.request_at:
            self.request_at = self.server.loop.time()  # the time that we did not read is not the client's

    def read_on(self) -> None:
        if self._has_client_ended:
            self.is_paused = False
            self.listener.back_pressure.paused.discard(self)
        else:
            super().read_on()

    # --- requests --------------------------------------------------------------------------------------------------

    def _requested(self, request: Request) -> None:
        """A request is whole."""
        if self.is_closing:
            return  # one before it was the last
        self.request_at = 0.0
        server = self.server
        slot = Slot(self, request)
        self.slots.append(slot)
        if server.mounts and (mount := server.mount_of(request.target)) is not None:
            self._begin_mounted(slot, mount, request)
            return
        action = server.router.route(request, self.session, server.now_ms())
        if type(action) is Submit:
            if self.reads_in_line:
                slot.later = action
            else:
                self._submit(slot, action)
            if request.head:
                self._learn(request, action)
        elif type(action) is Done:
            if action.answer.startswith(b"HTTP/1.1 4"):
                server.counts.malformed += 1
            slot.done(action.answer)
        else:
            slot.later = action
            slot.is_read = True
            self.reads_in_line += 1
            if self.slots[0] is slot and not self.is_stalled:
                self._begin(slot)
        if slot.is_last:
            self.is_closing = True

    # --- requests of mounts ----------------------------------------------------------------------------------------

    def _begin_mounted(self, slot: Slot, mount: Mount, request: Request) -> None:
        """The head of a mount's request is there, and its body too, unless it is streamed."""
        refused = self.server.router.refused_origin(request)
        if refused is not None:
            slot.is_last = True  # its body, if it is still to come, is thrown away
            self.is_closing = True
            slot.done(refused.answer)
            return
        turn = self._mounted = slot.reading = MountedTurn(slot)
        turn.begin(mount, request)
        if not request.is_streamed:
            if request.body:
                turn.data(bytes(request.body))
            self.stream_ended()

    def takes_stream(self, target: bytes) -> bool:
        return self.server.mount_of(target) is not None

    def stream_piece(self, piece: bytes) -> None:
        if self._mounted is not None and not self.is_closing:
            self._mounted.data(piece)

    def stream_ended(self) -> None:
        turn, self._mounted = self._mounted, None
        self.request_at = 0.0
        if turn is None or self.is_closing:
            return
        if turn.slot.is_last:
            self.is_closing = True
        turn.body_ended()

    def is_first(self, slot: object) -> bool:
        """Whether it is the turn of this slot to be answered."""
        return bool(self.slots) and self.slots[0] is slot

    # --- commands and reads ----------------------------------------------------------------------------------------

    def _learn(self, request: Request, action: Submit) -> None:
        """The next append may be like this one. Of a client that never sends two alike, ever fewer are looked at."""
        if self.template is not None and self.template.next_at:
            self._unlike = 0
        self._unlike += 1
        if self._unlike & (self._unlike - 1) == 0:
            settings = self.server.settings
            self.template = template_of(request, action.command, settings.header_bytes_max, settings.body_bytes_max)

    def _submit(self, slot: Slot, action: Submit) -> None:
        slot.command = action.command
        slot.render = action.render
        self.server.engine.submit(action.command, slot.answered)

    def _begin_writes(self) -> None:
        """A read was answered: the writes behind it begin, as far as the next read."""
        for slot in list(self.slots):
            if slot.is_read:
                return
            if isinstance(slot, Slot) and type(slot.later) is Submit:
                action, slot.later = slot.later, None
                self._submit(slot, action)

    def _begin(self, slot: AppendSlot) -> None:
        """What is first in line and was left for later begins now."""
        assert isinstance(slot, Slot)
        action, slot.later = slot.later, None
        assert action is not None
        self.server.carry_out(action, slot)
        if self.is_closing and slot.reading is not None:
            slot.reading.end()

    def _refuse(self, refused: RequestRefused) -> None:
        """Where the next request would begin is not known: answer, in line, and close."""
        self.is_closing = True
        self.parser.let_go()
        self.server.counts.malformed += 1
        if self._ending is not None:
            return  # it stands behind a request that was the last
        if self._mounted is not None:
            turn, self._mounted = self._mounted, None
            if not turn.refuse(refused_answer(refused)):
                self.transport.abort()  # the answer has begun, and cannot come to its end
            return
        slot = Slot(self, Request(b"", b"", {}, b"", keep_alive=False))
        self.slots.append(slot)
        slot.done(refused_answer(refused))

    def _continue(self) -> None:
        """The client waits for a word before it sends the body. Only if nothing is in line, nor about to be: it would
        come out of turn."""
        is_alone = not self.slots or (len(self.slots) == 1 and self._mounted is not None)
        if is_alone and not self.is_closing and not self._is_feeding:
            self.parser.expects_continue = False
            self.transport.write(_CONTINUE)

    # --- answers ---------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send every answer whose turn it is."""
        if self.is_flushing:
            return  # an answer that was ready at once: whoever is in the loop below goes on with it
        self.is_flushing = True
        self._flush()
        self.is_flushing = False

    def _flush(self) -> None:
        slots = self.slots
        transport = self.transport
        while slots:
            slot = slots[0]
            if slot.answer is None:
                if slot.later is not None:
                    if self.is_stalled:
                        return  # the client reads what it has before there is more
                    self._begin(slot)
                    if slots and slots[0] is slot and slot.answer is None:
                        return
                    continue
                if isinstance(slot.reading, MountedTurn):
                    slot.reading.go_on()
                    if slots and slots[0] is slot and slot.answer is None:
                        return
                    continue
                return
            slots.popleft()
            if slot.is_read:
                self.reads_in_line -= 1
                self._begin_writes()
            if transport.is_closing():
                continue
            last = slot.is_last or (self.is_closing and not slots)
            answer = answers.closing(slot.answer) if last and slot.answer.startswith(b"HTTP/") else slot.answer
            self.sent_bytes += len(answer) + len(slot.body)
            transport.write(answer)
            if slot.body:
                transport.write(slot.body)
            if slot.is_read:
                self.server.unsent.settle(self)
            if last:
                self._end()
                return
        if self.is_closing:
            self._end()
            return
        if self.is_paused:
            self.resume()
        if self.parser.expects_continue:
            self._continue()

    def _end(self) -> None:
        """The last answer is out: say so, and throw away what comes until the client has said so too."""
        transport = self.transport
        if self._ending is not None or transport.is_closing():
            return
        server = self.server
        now = server.loop.time()
        self.is_closing = True
        self._ending = Ending(transport, now)
        self._drop_line()
        if self._has_client_ended or self._ending.is_over(now, self.active_at, is_stopping=self.listener.is_stopping):
            transport.close()
            return
        if not transport.can_write_eof():
            transport.close()  # TLS ends both sides at once, with a word of its own
            return
        transport.write_eof()
        self.read_on()

    def write_piece(self, data: bytes) -> bool:
        """A piece of a live answer that is first in line; False if the client should read before there is more."""
        if not self.transport.is_closing():
            self.sent_bytes += len(data)
            self.transport.write(data)
            self.server.unsent.settle(self)
        return not self.is_stalled

    # --- deadlines -------------------------------------------------------------------------------------------------

    def look_further(self, now: float, unread_bytes: int) -> None:
        settings = self.server.settings
        if self._ending is not None:
            if self._ending.is_over(now, self.active_at, is_stopping=self.listener.is_stopping):
                self.transport.close()
        elif self.request_at and not self.is_closing and not self.is_paused:
            spent_ms = (now - self.request_at) * 1000
            if not self.parser.in_body:
                if spent_ms > settings.header_deadline_ms:
                    self._refuse_slow("headers", settings.header_deadline_ms)
            elif spent_ms > settings.body_grace_ms:
                if self.parser.body_bytes < settings.body_rate_min * spent_ms / 1000:
                    self._refuse_slow("body", settings.body_grace_ms)
        else:
            super().look_further(now, unread_bytes)

    def has_work(self) -> bool:
        return bool(self.slots)

    def _refuse_slow(self, what: str, limit_ms: int) -> None:
        self._refuse(RequestRefused(408, "too_slow", f"the {what} came too slowly", limit=limit_ms))

    def finish(self) -> None:
        """The server stops: what was accepted is answered, nothing more is taken."""
        self.is_closing = True
        self.read_on()
        self._end_live_reads()
        self.flush()
