"""One NATS client: bytes in, operations out, and what it receives, written once per turn of the loop."""

import asyncio
from typing import Any, Final, Protocol

import msgspec

from oncelog import limits as bounds
from oncelog.protocols.nats import parser, wire
from oncelog.protocols.nats import subject as subjects
from oncelog.servers.face_connection import FaceConnection

PINGS_MISSED: Final = 2


class Options(msgspec.Struct, kw_only=True):
    """CONNECT, as far as this server looks at it."""

    verbose: bool = False
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    name: str = ""
    lang: str = ""


class Subscription:
    """One interest of one connection."""

    __slots__ = ("connection", "delivered", "most", "queue", "sid", "subject")

    def __init__(self, connection: "Connection", subject: str, queue: str, sid: str) -> None:
        self.connection = connection
        self.subject = subject
        self.queue = queue
        self.sid = sid
        self.delivered = 0
        self.most = 0
        """Ends by itself after so many; 0 = never."""


class Server(Protocol):
    """What a connection needs of its server."""

    listener: Any
    payload_bytes_max: int
    slow_bytes: int
    ping_s: float

    def info_for(self, connection: "Connection") -> dict[str, Any]: ...
    def subscribed(self, subscription: Subscription) -> None: ...
    def unsubscribed(self, subscription: Subscription) -> None: ...
    def published(self, connection: "Connection", message: parser.Message) -> None: ...
    def read_done(self) -> None: ...
    def wants_flush(self, connection: "Connection") -> None: ...
    def writable(self) -> None: ...


class Connection(FaceConnection):
    """One socket."""

    def __init__(self, server: Server) -> None:
        self.attach(server.listener)
        self._server = server
        self._parser = parser.Parser(server.payload_bytes_max)
        self._out: list[bytes] = []
        self._out_bytes = 0
        self.options = Options()
        self.subscriptions: dict[str, Subscription] = {}
        self.is_full = False
        """The socket takes no more for now: consumers that can wait do."""
        self._pings_out = 0

    # --- the transport ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.is_closing or self.transport.is_closing():
            return
        fields = self._server.info_for(self)
        address = transport.get_extra_info("peername")
        fields["client_ip"] = str(address[0]) if address else ""
        self.write(wire.info(fields))
        self.flush()

    def turn_away(self) -> None:
        self.transport.write(wire.error("maximum connections exceeded"))
        self.transport.close()

    def on_lost(self) -> None:
        for subscription in self.subscriptions.values():
            self._server.unsubscribed(subscription)
        self.subscriptions.clear()
        self._out.clear()

    def pause_writing(self) -> None:
        # Nothing stops it from sending: a client that publishes and listens on one socket must get to its reading.
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self.listener.unsent.settle(self)
        self._server.writable()

    def finish(self) -> None:
        """The server stops; the client was told."""
        self.flush()
        self.is_closing = True
        self.transport.close()

    def look_further(self, now: float, unread_bytes: int) -> None:
        """A client that says nothing is asked, and cut off if it does not answer twice."""
        if unread_bytes or now - self.active_at < self._server.ping_s * (self._pings_out + 1):
            return
        if self._pings_out >= PINGS_MISSED:
            self.end(wire.STALE)
        else:
            self._pings_out += 1
            self.write(wire.PING)

    # --- out -------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send, with whatever else this turn brings."""
        if self.is_closing:
            return
        if not self._out:
            self._server.wants_flush(self)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > self._server.slow_bytes // 4:
            self.flush()

    def flush(self) -> None:
        """Hand what is to be sent to the socket; a client that does not read is cut off."""
        if not self._out or self.is_closing:
            return
        data = b"".join(self._out)
        self._out.clear()
        self._out_bytes = 0
        if self.transport.get_write_buffer_size() + len(data) > self._server.slow_bytes:
            self.is_closing = True
            self.listener.counts.cut_stalled += 1
            self.transport.abort()
            return
        self.send(data)

    def end(self, why: str = "") -> None:
        """Say why, and close."""
        if self.is_closing:
            return
        if why:
            self.write(wire.error(why))
        self.flush()
        self.transport.close()
        self.is_closing = True

    def deliver(self, subscription: Subscription, subject: str, reply: str, header: bytes, payload: bytes) -> None:
        """A message for one of its subscriptions."""
        subscription.delivered += 1
        if header and not self.options.headers:
            header = b""
        self.write(wire.message(subject, subscription.sid, reply, header, payload))
        if subscription.most and subscription.delivered >= subscription.most:
            self._drop(subscription)

    # --- in --------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.active_at = self.listener.loop.time()
        self._pings_out = 0
        for operation in self._parser.feed(data):
            if self.is_closing:
                return
            self._take(operation)
        if self._parser.failure:
            self.end(self._parser.failure)
        self._server.read_done()
        self.hold_back()

    def _take(self, operation: parser.Operation) -> None:
        match operation:
            case parser.Message():
                if self.options.verbose:
                    self.write(wire.OK)
                self._server.published(self, operation)
            case parser.Ping():
                self.write(wire.PONG)
            case parser.Pong():
                self._pings_out = 0
            case parser.Subscribe(subject, queue, sid):
                self._subscribe(subject, queue, sid)
            case parser.Unsubscribe(sid, after):
                self._unsubscribe(sid, after)
            case parser.Connect(options):
                self._connect(options)

    def _connect(self, text: bytes) -> None:
        try:
            options = msgspec.json.decode(text, type=Options)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.end("Invalid CONNECT: its argument is a JSON object")
            return
        if options.no_responders and not options.headers:
            self.end("No responders requires headers support")
            return
        self.options = options
        if options.verbose:
            self.write(wire.OK)

    def _subscribe(self, subject: str, queue: str, sid: str) -> None:
        if not subjects.is_valid(subject) or len(subject.encode()) > bounds.NATS_SUBJECT_BYTES_MAX:
            self.write(wire.error("Invalid Subject"))
            return
        if len(self.subscriptions) >= bounds.NATS_SUBSCRIPTIONS_MAX:
            self.end("maximum subscriptions exceeded")
            return
        if sid in self.subscriptions:
            return
        subscription = Subscription(self, subject, queue, sid)
        self.subscriptions[sid] = subscription
        self._server.subscribed(subscription)
        if self.options.verbose:
            self.write(wire.OK)

    def _unsubscribe(self, sid: str, after: int) -> None:
        subscription = self.subscriptions.get(sid)
        if subscription is not None:
            if after and subscription.delivered < after:
                subscription.most = after
            else:
                self._drop(subscription)
        if self.options.verbose:
            self.write(wire.OK)

    def _drop(self, subscription: Subscription) -> None:
        if self.subscriptions.pop(subscription.sid, None) is not None:
            self._server.unsubscribed(subscription)
