"""The NATS server: listens, keeps its connections, hands messages to who wants them, looks at time, stops."""

import asyncio
import contextlib
import itertools
from typing import Any, Final

from oncelog.protocols.nats import subject as subjects
from oncelog.protocols.nats import wire
from oncelog.protocols.nats.batch import Limits
from oncelog.protocols.nats.bounds import API_LEVEL, VERSION
from oncelog.protocols.nats.parser import INVALID_SUBJECT, Message
from oncelog.servers.counts import Counts
from oncelog.servers.face import FaceContext
from oncelog.servers.face_settings import Address, FaceSettings
from oncelog.servers.listener import Listener, advertised
from oncelog.servers.nats import api
from oncelog.servers.nats.connection import Connection, Subscription
from oncelog.servers.nats.jetstream import JetStream, consumers_of
from oncelog.servers.nats.log import Log
from oncelog.servers.nats.router import Router
from oncelog.servers.nats.settings import NatsSettings

LOADED_WITHIN_S: Final = 10.0
"""How long a start waits for its streams: long enough for a few million messages."""

LAST_WORDS_S: Final = 0.2
"""How long a clean stop waits for clients that were told of it."""


class NatsServer:
    """The NATS face: a `servers.face.Face`."""

    name = "nats"

    def __init__(self, context: FaceContext, settings: FaceSettings) -> None:
        assert isinstance(settings, NatsSettings)
        self.loop = context.loop
        self.settings = settings
        self.payload_bytes_max = settings.payload_bytes_max
        self.slow_bytes = settings.slow_bytes
        self.ping_s = settings.ping_ms / 1000
        self.counts = Counts()
        self.router = Router()
        limits = Limits(
            settings.batch_messages_max, settings.batches_per_stream, settings.batches_max, settings.batch_timeout_ms
        )
        refuse = settings.batch_msg_id == "refuse"
        self.js = JetStream(
            Log(context.engine, self.counts), self.router, context.loop, limits, batch_msg_id_refused=refuse
        )
        self.listener = Listener(context, settings, self.counts, lambda: Connection(self))
        self._dirty: list[Connection] = []
        self._is_flushing = False
        self._id = context.cluster_id
        self._clients = itertools.count(1)

    # --- start and stop --------------------------------------------------------------------------------------------

    @property
    def connection_count(self) -> int:
        return len(self.listener.connections)

    async def start(self) -> Address:
        """Bring the streams back, then listen. One that takes long, or that cannot be read, does not keep the others
        waiting: requests for it wait."""
        loaded = asyncio.Event()
        self.js.start(loaded.set)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(loaded.wait(), LOADED_WITHIN_S)
        return await self.listener.start()

    async def stop(self) -> None:
        """Tell the clients (`ldm`), drop open batches with their advisories, then close."""
        self.js.stop()
        for connection in list(self.listener.connections):
            connection.write(wire.info({**self.info_for(connection), "ldm": True}))
        self._flush()
        if self.listener.connections:
            await asyncio.sleep(LAST_WORDS_S)
        await self.listener.stop()
        self.js.log.is_closed = True

    # --- connections -----------------------------------------------------------------------------------------------

    def info_for(self, connection: Connection) -> dict[str, Any]:
        """INFO."""
        address = advertised(self.settings.advertise, connection.transport)
        return {
            "server_id": self._id,
            "server_name": "oncelog",
            "version": VERSION,
            "proto": 1,
            "host": address.host,
            "port": address.port,
            "headers": True,
            "max_payload": self.payload_bytes_max,
            "jetstream": True,
            "client_id": next(self._clients),
            "api_lvl": API_LEVEL,
        }

    def subscribed(self, subscription: Subscription) -> None:
        """A new interest."""
        self.router.add(subscription)
        if not subscription.subject.startswith("_INBOX."):
            self._pump_push()

    def unsubscribed(self, subscription: Subscription) -> None:
        """An interest that ended."""
        self.router.remove(subscription)

    def _pump_push(self) -> None:
        for stream in self.js.streams.values():
            for consumer in consumers_of(stream).values():
                if consumer.config.is_push:
                    consumer.pump()

    def published(self, connection: Connection, message: Message) -> None:
        """A message of a client: a request, something to store, something to pass on."""
        self.js.is_in_turn = True
        if message.subject[:1] != "$" and not subjects.is_literal(message.subject):
            connection.write(wire.error(INVALID_SUBJECT))  # only requests carry a consumer's filter in their subject
            return
        taken = self.js.store(message) if message.subject[:4] != "$JS." else api.take(self.js, message)
        sent = self.router.send(
            message.subject, message.payload, reply=message.reply, header=message.header, origin=connection
        )
        if not taken and not sent and message.reply and connection.options.no_responders:
            self.router.no_responders(message.reply, message.subject)

    def read_done(self) -> None:
        """One read of a socket is worked off."""
        self.js.turn_over()

    def wants_flush(self, connection: Connection) -> None:
        """It has something to send at the end of this turn."""
        self._dirty.append(connection)
        if not self._is_flushing:
            self._is_flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.flush()

    def writable(self) -> None:
        """A socket takes more again: consumers that waited for it go on."""
        for stream in self.js.streams.values():
            for consumer in consumers_of(stream).values():
                consumer.pump()
