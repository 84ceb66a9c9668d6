"""A request, as the parser hands it over, and what it says of bytes that are none."""

Body = bytes | bytearray


class Request:
    """One request as it was sent. Header names are lower case; repeated ones are joined with a comma."""

    __slots__ = ("body", "head", "headers", "is_streamed", "keep_alive", "method", "refused", "takes_chunks", "target")

    def __init__(
        self,
        method: bytes,
        target: bytes,
        headers: dict[bytes, bytes],
        body: Body,
        keep_alive: bool,
        head: bytes = b"",
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.keep_alive = keep_alive
        self.head = head
        """All lines as they were sent, of a plain request; empty of any other."""
        self.refused: RequestRefused | None = None
        """Set if the request was read whole but must not be carried out."""
        self.is_streamed = False
        """The body is not here: it is handed over in pieces."""
        self.takes_chunks = True
        """False of HTTP/1.0: no answer to it is chunked (RFC 9112, 6.1)."""


class RequestRefused(Exception):
    """Bytes that are no request, or one over a bound. Says the status, the limit and what came."""

    def __init__(self, status: int, code: str, detail: str, *, limit: int = -1, received: int = -1) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.limit = limit
        self.received = received
