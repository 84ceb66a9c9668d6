"""What sits on HTTP's listener and is no part of the HTTP face: a mount takes all requests whose path begins with one
of its prefixes. It is sans-IO: bytes of a body come as they are read, answers go back through a `Turn`.

The list of mounts is in `faces.py`. A mount is made by a function that gets the context of the server and the counts of
the face. HTTP gives a mount requests whose head is sound; what it takes, how much, and in which encoding, it decides.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from oncelog.servers.counts import Counts
from oncelog.servers.face import FaceContext


class MountedRequest(NamedTuple):
    """The head of a request."""

    method: bytes
    path: bytes
    """As it was sent, still percent-encoded."""
    query: bytes
    """What follows the question mark, or nothing."""
    headers: Mapping[bytes, bytes]
    """Names in lower case; repeated ones are joined with a comma."""
    content_length: int | None
    """None if the length of the body is not known before its end."""


class Sink(Protocol):
    """Takes the body of one request."""

    def data(self, piece: bytes) -> bool:
        """The next bytes. False: read nothing more of this client until `Turn.resume`."""
        ...

    def end(self) -> None:
        """The body is whole."""
        ...

    def lost(self) -> None:
        """The client has gone, or the server stops before the body is whole: no answer can be sent any more."""
        ...


class Turn(Protocol):
    """The place in line that one answer belongs to. Answers leave in the order of the requests."""

    on_writable: Callable[[], None] | None
    """Called when `piece` may be called again after it returned False."""

    def done(self, status: int, headers: bytes, body: bytes = b"") -> None:
        """The whole answer. `headers` are whole lines; Content-Length is added. If the body of the request has not come
        to its end, the connection is closed behind the answer."""
        ...

    def head(self, status: int, headers: bytes, length: int) -> None:
        """The head of an answer whose body follows in pieces, `length` bytes in all."""
        ...

    def piece(self, data: bytes) -> bool:
        """A piece of the body. False: the client should read before there is more; wait for `on_writable`. The answer
        ends with its last byte."""
        ...

    def cut(self) -> None:
        """Close the connection: the rest of an answer that was begun by `head` cannot be sent."""
        ...

    def resume(self) -> None:
        """Read on, after `Sink.data` returned False."""
        ...


class Mount(Protocol):
    """A handler of some paths."""

    prefixes: tuple[bytes, ...]
    """Of the paths that are its own, as they are sent: `b"/bsfg.v1.BoundaryService/"`."""

    def begin(self, request: MountedRequest, turn: Turn) -> Sink:
        """A request has begun: its body goes to the sink, its answer to `turn`, now or later."""
        ...


MakeMount = Callable[[FaceContext, Counts], Mount]
