"""The HTTP server: what all of its connections share, and which of its parts carries out which action."""

from oncelog import limits
from oncelog.engine.damage import damaged
from oncelog.errors import StorageError
from oncelog.protocols.http.actions import Action, ListProducers, Read, Receipt, Stand
from oncelog.protocols.http.parser import BodyBudget
from oncelog.protocols.http.refusal_map import problem_of
from oncelog.protocols.http.routes import Router
from oncelog.servers.counts import Counts
from oncelog.servers.face import FaceContext
from oncelog.servers.face_settings import Address, FaceSettings
from oncelog.servers.faces import MOUNTS, resolved
from oncelog.servers.http.asks import Asks
from oncelog.servers.http.connection import Connection, Server, Slot
from oncelog.servers.http.early import EarlyRequests
from oncelog.servers.http.reads import Reads
from oncelog.servers.http.settings import HttpSettings
from oncelog.servers.listener import Listener


class HttpServer(Server):
    """The HTTP face: a `servers.face.Face`."""

    name = "http"

    def __init__(self, context: FaceContext, settings: FaceSettings) -> None:
        assert isinstance(settings, HttpSettings)
        engine, loop, counts = context.engine, context.loop, Counts()
        router = Router(
            engine.lookups.name_of,
            x_producer_strict=settings.x_producer_strict,
            browser_writes=settings.browser_writes,
            txn_timeouts=engine.txn_timeouts,
        )
        early = EarlyRequests(engine.submit, loop.call_later, loop.call_soon, settings.early_hold_ms)
        budget = BodyBudget(limits.HTTP_BODIES_BYTES_MAX)
        scratch = memoryview(bytearray(limits.HTTP_RECEIVE_BYTES))
        super().__init__(engine, settings, loop, counts, router, early, budget, scratch, context.unsent)
        self._reads = Reads(engine, settings, loop, counts, self.unsent)
        self._asks = Asks(context, counts)
        self.listener = Listener(context, settings, counts, lambda: Connection(self), early.give_up_all)
        self.mounts = {}
        for mount in (resolved(name)(context, counts) for name in MOUNTS):
            self.mounts |= dict.fromkeys(mount.prefixes, mount)
        self.connections = self.listener.connections

    @property
    def paused(self) -> list[Connection]:
        """Connections that nothing is read from."""
        return [connection for connection in self.connections if connection.is_paused]

    @property
    def connection_count(self) -> int:
        return len(self.connections)

    async def start(self) -> Address:
        return await self.listener.start()

    async def stop(self) -> None:
        await self.listener.stop()

    def carry_out(self, action: Action, slot: Slot) -> None:
        """Everything that is neither a command nor an answer already."""
        try:
            if self._reads.takes(action):
                self._reads.begin(action, slot)
            else:
                self._asks.answer(action, slot.done)
        except StorageError as error:
            # A row of the index could not be read: it is looked at first, so that nothing was begun or told.
            assert slot.answer is None
            refusal = damaged(error)
            if isinstance(action, Read | Stand | ListProducers | Receipt):
                self.counts.other(refusal, action.topic, action.partition)
            else:
                self.counts.other(refusal)
            slot.done(problem_of(refusal))
