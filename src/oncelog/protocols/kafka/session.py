"""One connection: frames in, answers out in the order of the requests.

A request takes effect when it comes; a Fetch begins when it is first in line, so that a client which asks and never
reads holds one answer in memory. A connection that was closed, or replaced by a newer one of the same producer, carries
out nothing that it has not yet read (`replaced.py`).
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from oncelog import limits
from oncelog.protocols.kafka import offered
from oncelog.protocols.kafka.frames import Frames, RequestHead, framed, read_head
from oncelog.protocols.kafka.log import Cancellable
from oncelog.protocols.kafka.schema import Message
from oncelog.protocols.kafka.wire import Buffer, WireError


class Endpoint(NamedTuple):
    """Where clients connect to."""

    host: str
    port: int


class Call:
    """One request and its place in line."""

    __slots__ = ("answer_pieces", "begin", "head", "is_done", "session", "waits_for")

    def __init__(self, session: "Session", head: RequestHead) -> None:
        self.session = session
        self.head = head
        self.answer_pieces: list[Buffer] = []
        self.is_done = False
        self.begin: Callable[[], None] | None = None
        """What a request does that waits to be first in line."""
        self.waits_for: Cancellable | None = None
        """A read or a wait in progress, given up with the connection."""

    @property
    def version(self) -> int:
        return self.head.version

    def request(self) -> Message:
        """The fields of a request that has a table."""
        return offered.TABLED[self.head.key].decode_request(self.head.version, self.head.reader)

    def answer(self, message: Message) -> None:
        """Answer with the fields of the response's table."""
        api = offered.TABLED[self.head.key]
        self.answer_body([api.encode_response(self.head.version, message)])

    def answer_body(self, body: list[Buffer]) -> None:
        """Answer with a body that is encoded already."""
        assert not self.is_done
        self.answer_pieces = framed(self.head, body)
        self.is_done = True
        self.session.flush()

    def answer_nothing(self) -> None:
        """The client asked for no answer."""
        self.is_done = True
        self.session.flush()


class Host(Protocol):
    """What all connections share, as far as one of them asks."""

    def handle(self, call: Call) -> None:
        """Carry out a request of an API and a version that are served."""
        ...

    def answer_unknown_api_versions(self, call: Call) -> None:
        """ApiVersions of a version that is not served has an answer all the same."""
        ...

    def note_malformed(self, error: WireError) -> None:
        """A client broke the protocol and is cut."""
        ...

    def next_session_number(self) -> int:
        """One more connection."""
        ...

    def left(self, session: "Session") -> None:
        """A connection is over."""
        ...


class Session:
    """One client."""

    def __init__(
        self,
        host: Host,
        endpoint: Endpoint,
        write: Callable[[list[Buffer]], None],
        close: Callable[[], None],
        peer: str = "",
    ) -> None:
        self._host = host
        self.number = host.next_session_number()
        self.endpoint = endpoint
        """The address that this client shall be told."""
        self.peer = peer
        """Where the client is, for listings of group members."""
        self.software = ""
        """What the client calls itself in ApiVersions."""
        self._write = write
        self._close = close
        self._frames = Frames()
        self._line: deque[Call] = deque()
        self.is_over = False
        """Nothing is carried out and nothing is sent any more."""
        self._is_flushing = False

    @property
    def waiting(self) -> int:
        """Requests that are not answered yet."""
        return len(self._line)

    @property
    def has_room(self) -> bool:
        """Whether more requests may be read."""
        return len(self._line) < limits.KAFKA_REQUESTS_WAITING_MAX

    def receive(self, data: bytes) -> None:
        """Carry out what is whole. A client that breaks the protocol is cut: Kafka has no answer for that."""
        if self.is_over:
            return
        self._frames.feed(data)
        try:
            # A request may end the connection, or another of the same producer: the rest was never read then.
            while self._may_act() and (frame := self._frames.next()) is not None:
                self._take(read_head(frame))
        except WireError as error:
            self._host.note_malformed(error)
            self.end()

    def _may_act(self) -> bool:
        return not self.is_over

    def _take(self, head: RequestHead) -> None:
        call = Call(self, head)
        if not offered.is_served(head.key, head.version):
            if head.key != offered.API_VERSIONS:
                name = f"API {head.key} version {head.version}"
                raise WireError(f"{name} is not offered; ApiVersions lists what is")
            self._line.append(call)
            self._host.answer_unknown_api_versions(call)
            return
        self._line.append(call)
        self._host.handle(call)

    def flush(self) -> None:
        """Send the answers at the head of the line; begin what is first in line and has waited for that."""
        if self._is_flushing:
            return  # called from `begin` below: the loop goes on by itself
        self._is_flushing = True
        pieces: list[Buffer] = []
        while self._line:
            first = self._line[0]
            if not first.is_done:
                begin, first.begin = first.begin, None
                if begin is None:
                    break
                begin()
                continue
            self._line.popleft()
            pieces += first.answer_pieces
        self._is_flushing = False
        if pieces and not self.is_over:
            self._write(pieces)

    def when_first(self, call: Call, begin: Callable[[], None]) -> None:
        """Let a request begin when all before it are answered."""
        call.begin = begin
        self.flush()

    def end(self) -> None:
        """Close the connection from our side."""
        if not self.is_over:
            self.gone()
            self._close()

    def gone(self) -> None:
        """The connection is closed: what it asked for is carried out, but nobody is answered."""
        self.is_over = True
        for call in self._line:
            if call.waits_for is not None:
                call.waits_for.cancel()
                call.waits_for = None
            call.begin = None
        self._line.clear()
        self._host.left(self)
