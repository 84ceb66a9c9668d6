"""One request of a mount (`servers/mount.py`) in the line of its connection."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final, Protocol

from oncelog.core.outcome import Stopping
from oncelog.protocols.http import answers
from oncelog.protocols.http.refusal_map import problem_of
from oncelog.protocols.http.request import Request
from oncelog.servers.http.reads import Reading
from oncelog.servers.mount import Mount, MountedRequest, Sink

_BODILESS: Final = (204, 304)

_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}


class MountedSlot(Protocol):
    """The place in line."""

    is_head: bool
    is_last: bool

    def done(self, answer: bytes, body: bytes = b"") -> None: ...

    @property
    def connection(self) -> "MountedConnection": ...


class MountedConnection(Protocol):
    """The connection, as far as a mounted request needs it."""

    is_sink_full: bool

    def write_piece(self, data: bytes) -> bool: ...

    def is_first(self, slot: MountedSlot) -> bool: ...

    def resume(self) -> None: ...


class MountedTurn(Reading):
    """The `Turn` that a mount answers to, and the `Reading` that its connection sees."""

    def __init__(self, slot: MountedSlot) -> None:
        self.slot = slot
        self._sink: Sink | None = None
        self._pending: list[bytes] = []
        """What is to be sent when the answers before it are out."""
        self._left_bytes = 0
        """Of the body that is sent in pieces."""
        self._has_head = False
        self._is_whole = False
        """The body of the request has come to its end."""
        self._is_over = False
        self.on_writable: Callable[[], None] | None = None

    def begin(self, mount: Mount, request: Request) -> None:
        """Hand over the head of the request."""
        path, _, query = request.target.partition(b"?")
        length = request.headers.get(b"content-length")
        chunked = b"transfer-encoding" in request.headers
        stated = None if chunked else int(length or b"0")
        self._sink = mount.begin(MountedRequest(request.method, path, query, request.headers, stated), self)

    # --- what the connection tells ---------------------------------------------------------------------------------

    def data(self, piece: bytes) -> None:
        """Bytes of the body."""
        if self._sink is not None and not self._is_over and not self._sink.data(piece):
            self.slot.connection.is_sink_full = True

    def body_ended(self) -> None:
        """The body is whole."""
        self._is_whole = True
        if self._sink is not None and not self._is_over:
            self._sink.end()

    def cancel(self) -> None:
        if not self._is_over:
            sink = self._sink
            self._pending.clear()
            self._end()
            if sink is not None:
                sink.lost()

    def end(self) -> None:
        """The server stops, or the client sends nothing more. What was taken whole is still answered."""
        if self._is_whole or self._is_over:
            return
        has_head = self._has_head
        self.cancel()
        self.slot.is_last = True
        self.slot.done(b"" if has_head else problem_of(Stopping()))

    def refuse(self, answer: bytes) -> bool:
        """Something is wrong with the rest of the request: answer this, if nothing was answered yet."""
        if self._is_over or self._has_head:
            self.cancel()
            return False
        self.cancel()
        self.slot.is_last = True
        self.slot.done(answer)
        return True

    def go_on(self) -> None:
        """It is its turn to be answered, or the client has read what was sent."""
        if self._has_head and not self._is_over and self._send_pending():
            # None once the answer is over, which it may be by now.
            if self.on_writable is not None:
                self.on_writable()

    # --- what the mount says ---------------------------------------------------------------------------------------

    def done(self, status: int, headers: bytes, body: bytes = b"") -> None:
        if self._is_over:
            return
        assert not self._has_head, "the answer has begun"
        self._end()
        self.slot.is_last = self.slot.is_last or not self._is_whole
        self.slot.done(_head(status, headers, len(body)), body)

    def head(self, status: int, headers: bytes, length: int) -> None:
        assert not self._has_head, "there is one head"
        if self._is_over:
            return
        self._has_head = True
        self._left_bytes = 0 if self.slot.is_head else length
        self.slot.is_last = self.slot.is_last or not self._is_whole
        head = _head(status, headers, length)
        self._pending.append(answers.closing(head) if self.slot.is_last else head)
        if not self._left_bytes:
            self._send_pending()

    def piece(self, data: bytes) -> bool:
        assert self._has_head, "the head comes first"
        if self._is_over:
            return False
        assert len(data) <= self._left_bytes, "more than the head said"
        self._left_bytes -= len(data)
        self._pending.append(data)
        return self._send_pending()

    def cut(self) -> None:
        if self._is_over:
            return
        self._pending.clear()
        self._end()
        self.slot.is_last = True
        self.slot.done(b"")

    def resume(self) -> None:
        self.slot.connection.is_sink_full = False
        self.slot.connection.resume()

    def _send_pending(self) -> bool:
        """Send what there is, if it is its turn; whether the client has room for more."""
        connection = self.slot.connection
        if not connection.is_first(self.slot):
            return False
        is_writable = True
        if self._pending:
            data = b"".join(self._pending)
            self._pending.clear()
            is_writable = connection.write_piece(data)
        if not self._left_bytes:
            self._end()
            self.slot.done(b"")
        return is_writable

    def _end(self) -> None:
        """Nothing goes to the mount any more, and nothing is kept of it."""
        self._is_over = True
        self._sink = None
        self.on_writable = None
        self.slot.connection.is_sink_full = False


def _head(status: int, headers: bytes, length: int) -> bytes:
    line = f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode()
    stated = b"" if status in _BODILESS else b"Content-Length: %d\r\n" % length
    return b"%b%b%b%b\r\n" % (line, answers.COMMON, headers, stated)
