"""The Kafka server: its sockets, and one session of the protocol for each."""

from collections.abc import Iterable

from oncelog.core.txn import TxnTimeouts
from oncelog.protocols.kafka.broker import Broker, BrokerSettings
from oncelog.protocols.kafka.dispatch import Dispatch
from oncelog.protocols.kafka.session import Endpoint, Session
from oncelog.protocols.kafka.wire import Buffer, WireError
from oncelog.servers.counts import Counts
from oncelog.servers.face import FaceContext
from oncelog.servers.face_connection import FaceConnection
from oncelog.servers.face_settings import Address, FaceSettings
from oncelog.servers.kafka.engine_log import EngineLog
from oncelog.servers.kafka.settings import KafkaSettings
from oncelog.servers.listener import Listener, advertised

JOINED_BYTES_MAX = 64 * 1024
"""Smaller answers are joined and written at once; larger pieces are written as they are, without a copy."""


class KafkaServer:
    """The Kafka face: a `servers.face.Face`."""

    name = "kafka"

    def __init__(self, context: FaceContext, settings: FaceSettings) -> None:
        assert isinstance(settings, KafkaSettings)
        self.settings = settings
        self.counts = Counts()
        chosen = broker_settings(settings, context.cluster_id, context.engine.txn_timeouts)
        self.broker = Broker(EngineLog(context.engine, context.loop), chosen, self._malformed)
        self.dispatch = Dispatch(self.broker)
        self.listener = Listener(context, settings, self.counts, lambda: Connection(self))

    @property
    def connection_count(self) -> int:
        return len(self.listener.connections)

    async def start(self) -> Address:
        return await self.listener.start()

    async def stop(self) -> None:
        await self.listener.stop()

    def _malformed(self, _error: WireError) -> None:
        self.counts.malformed += 1


def broker_settings(settings: KafkaSettings, cluster: str, timeouts: TxnTimeouts) -> BrokerSettings:
    """What the protocol needs to know of the configuration."""
    return BrokerSettings(
        cluster,
        auto_create=settings.auto_create,
        default_partitions=settings.default_partitions,
        transactions=settings.transactions,
        txn_partitions_max=settings.txn_partitions_max,
        transactional_ids=tuple(settings.transactional_ids.split()),
        reject_timeout=settings.txn_timeout_policy == "reject",
        timeouts=timeouts,
    )


class Connection(FaceConnection):
    """One client's socket."""

    def __init__(self, server: KafkaServer) -> None:
        self.attach(server.listener)
        self._server = server
        self._session: Session | None = None

    def _begun(self) -> Session:
        """The session, made when the first bytes come: the transport is known by then."""
        session = self._session
        if session is None:
            endpoint = advertised(self._server.settings.advertise, self.transport)
            peer = self.transport.get_extra_info("peername")
            session = self._session = Session(
                self._server.dispatch,
                Endpoint(endpoint.host, endpoint.port),
                self._write,
                self.transport.close,
                str(peer[0]) if peer else "",
            )
        return session

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self.is_closing:
            return
        self.active_at = self.listener.loop.time()
        self._begun().receive(data)
        self.hold_back()

    def _write(self, pieces: list[Buffer]) -> None:
        for data in joined(pieces):
            self.send(data)
        self.active_at = self.listener.loop.time()
        if self.is_closing and not self.has_work():
            self.transport.close()
        elif self.is_paused:
            self.resume()

    def on_lost(self) -> None:
        if self._session is not None:
            self._session.gone()

    def may_read_on(self) -> bool:
        return self._session is None or self._session.has_room

    def has_work(self) -> bool:
        return self._session is not None and self._session.waiting > 0


def joined(pieces: Iterable[Buffer]) -> Iterable[bytes]:
    """Neighbouring small pieces as one."""
    small: list[Buffer] = []
    size = 0
    for piece in pieces:
        if len(piece) >= JOINED_BYTES_MAX:
            if small:
                yield b"".join(small)
                small, size = [], 0
            yield bytes(piece)
            continue
        small.append(piece)
        size += len(piece)
        if size >= JOINED_BYTES_MAX:
            yield b"".join(small)
            small, size = [], 0
    if small:
        yield b"".join(small)
