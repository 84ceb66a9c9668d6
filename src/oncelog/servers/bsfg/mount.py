"""The boundary on HTTP's listener: bodies of calls are gathered, answers go back in line."""

from functools import partial
from urllib.parse import unquote_to_bytes

from oncelog.core import facts
from oncelog.engine.engine import Engine
from oncelog.errors import StorageError
from oncelog.protocols.bsfg import connect, service
from oncelog.protocols.bsfg.connect import Answer, RpcError
from oncelog.protocols.bsfg.policy import Peer
from oncelog.protocols.bsfg.zone import Route, Zone
from oncelog.servers.bsfg.boundary import Boundary
from oncelog.servers.bsfg.object_transfer import PREFIX, Transfers, send
from oncelog.servers.bsfg_settings import BsfgSettings
from oncelog.servers.counts import Counts
from oncelog.servers.face import FaceContext
from oncelog.servers.mount import MountedRequest, Sink, Turn
from oncelog.servers.peers import PeerSettings


def make_mount(context: FaceContext, counts: Counts) -> "BoundaryMount":
    """The boundary of a server."""
    engine = context.engine
    zone = Zone(
        context.zone,
        engine.lookups.name_of,
        routes_of(context.bsfg),
        lambda: engine.now_ns() // 1_000_000,
        tuple(peer_of(settings) for settings in context.peers),
        partial(backlog_bytes, engine),
        context.bsfg.backlog_bytes_max,
    )
    boundary = Boundary(context.engine, context.loop, zone, counts)
    return BoundaryMount(boundary, Transfers(boundary, context.bsfg.object_bytes_max))


def backlog_bytes(engine: Engine, topic: str, frontier: int) -> int:
    """Stored bytes of a topic from an offset on."""
    row = engine.lookups.topic(topic)
    stream = None if row is None else engine.lookups.stream_row(row.stream_ids[0])
    return 0 if stream is None else max(0, stream.stored_bytes - stream.bytes_below(frontier))


def routes_of(settings: BsfgSettings) -> tuple[Route, ...]:
    """Which subjects go to which stream."""
    audit = [Route(prefix, facts.AUDIT) for prefix in settings.audit_subjects]
    return (*audit, *(Route(prefix, facts.DOCUMENTS) for prefix in settings.documents_subjects))


def peer_of(settings: PeerSettings) -> Peer:
    """A peer with its token. Raises StorageError if its file cannot be used."""
    token, file = b"", settings.token_file
    if file is not None:
        what = f"the token of peer {settings.name}"
        try:
            token = file.read_bytes().strip()
        except OSError as error:
            raise StorageError(f"{what} cannot be read: {error.strerror or error}", file=str(file)) from error
        if not token or not token.isascii():
            raise StorageError(f"{what} is empty or not ASCII", file=str(file))
    rights = (settings.append_subjects, settings.fetch_streams, settings.consumers, settings.export)
    return Peer(settings.name, token, *rights, settings.start)


class BoundaryMount:
    """All requests below the paths of the boundary."""

    prefixes = tuple(prefix.encode() for prefix in service.PREFIXES)

    def __init__(self, boundary: Boundary, transfers: Transfers) -> None:
        self._boundary = boundary
        self._transfers = transfers

    def begin(self, request: MountedRequest, turn: Turn) -> Sink:
        """A request has begun."""
        if request.path.startswith(PREFIX):
            return self._transfers.begin(request, turn)
        return _GatheredCall(self._boundary, request, turn)


class _GatheredCall:
    """A call whose body is gathered whole, up to the largest that a call may have."""

    def __init__(self, boundary: Boundary, request: MountedRequest, turn: Turn) -> None:
        self._boundary = boundary
        self._request = request
        self._turn = turn
        self._body = bytearray()
        self._is_over = False
        if (request.content_length or 0) > service.BODY_BYTES_MAX:
            self._refuse(request.content_length or 0)

    def data(self, piece: bytes) -> bool:
        if not self._is_over:
            self._body += piece
            if len(self._body) > service.BODY_BYTES_MAX:
                self._refuse(len(self._body))
        return True

    def end(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        request = self._request
        path = unquote_to_bytes(request.path).decode("utf-8", "replace")
        self._boundary.begin(request.method, path, request.headers, bytes(self._body), self._answer)

    def lost(self) -> None:
        self._is_over = True

    def _refuse(self, size: int) -> None:
        self._is_over = True
        self._body.clear()
        text = f"the body has {size:,} bytes or more; the limit is {service.BODY_BYTES_MAX:,}. Send a smaller one."
        self._answer(connect.error_answer(RpcError("invalid_argument", text)))

    def _answer(self, answer: Answer) -> None:
        send(self._turn, answer)
