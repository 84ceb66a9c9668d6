"""Bytes of one connection to requests: HTTP/1.1 with keep-alive, pipelining and chunked bodies. httptools does the
syntax; here are the bounds.

    feed(data)                  bytes as they came from the socket
    body_room() / body_came(n)  a large body goes straight into its own buffer, past the parser

A body with a stated length above STRAIGHT_BYTES_MIN is received into its own buffer, never past its end: nothing behind
it is read by accident, and its bytes are copied less often. The buffer grows with what comes, since a promise of four
megabytes costs its sender one header. All bodies that are larger than that have a budget together, chunked ones too.
An oversize body is read to its end and thrown away, up to `limits.HTTP_DISCARD_BYTES_MAX`: a client that is cut while
it sends sees a reset instead of the answer.

After an error nothing more is read from the connection: where the next request begins is not known. Whoever is told of
it lets go of what came.
"""

from collections.abc import Callable
from typing import Final, Protocol

import httptools

from oncelog import limits
from oncelog.protocols.http.claims import PRODUCER_HEADERS, X_HEADERS
from oncelog.protocols.http.plain import HOST, plain_request
from oncelog.protocols.http.request import Body, Request, RequestRefused

STRAIGHT_BYTES_MIN: Final = 64 * limits.KIB

CHUNK_OVERHEAD: Final = 8
"""Bytes beside each byte of a chunked body, at most: chunks of one byte have five."""

STRAIGHT_GROWTH: Final = 4
"""A buffer is never larger than this many times what has come."""

_BLANKS: Final = b" \t"
"""Around a header's value, and no part of it (RFC 9110, 5.5): whoever passes a request on may add or drop them, and the
retry must still be the same claim. httptools drops those in front."""

_VERSIONS: Final = ("1.1", "1.0")

_ONCE: Final = PRODUCER_HEADERS | X_HEADERS | {b"stream-message-id", b"idempotency-key", b"stream-seq", b"host"}
"""Headers of which two are no list: joined they would be another claim, or another host."""


class BodyBudget:
    """Bytes that large bodies of all connections may take while they come in."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0

    def take(self, count: int) -> bool:
        """Take them if they are there."""
        if self.bytes_used + count > self.bytes_max:
            return False
        self.bytes_used += count
        return True


class BodyStream(Protocol):
    """Who takes the bodies of some requests as they come, whatever their size and encoding."""

    def takes_stream(self, target: bytes) -> bool:
        """Whether the body of a request with this target is a stream."""
        ...

    def stream_piece(self, piece: bytes) -> None:
        """Bytes of the body of the request that was handed over last."""
        ...

    def stream_ended(self) -> None:
        """That body is whole."""
        ...


class _End:
    """Stands in line for the end of a streamed body."""


_END: Final = _End()


def _ignore_request(_request: Request) -> None:
    """The connection of this request is gone."""


class RequestParser:
    """One connection's side of the conversation."""

    def __init__(
        self,
        on_request: Callable[[Request], None],
        header_bytes_max: int,
        body_bytes_max: int,
        budget: BodyBudget | None = None,
        stream: BodyStream | None = None,
    ) -> None:
        self._on_request = on_request
        self._budget = budget or BodyBudget(limits.HTTP_BODIES_BYTES_MAX)
        self._header_bytes_max = header_bytes_max
        self._body_bytes_max = body_bytes_max
        self._parser = httptools.HttpRequestParser(self)
        self._error: RequestRefused | None = None
        self._stream = stream
        self._whole: list[Request | bytes | _End] = []
        """Requests that are whole and not handed over yet; heads, pieces and ends of those whose body is a stream."""
        self._reset()

    def _reset(self) -> None:
        """Before each request."""
        self.in_request = False
        """A request has begun and is not whole yet."""
        self.in_body = False
        self.body_bytes = 0
        """Of the request in progress, as far as they have come."""
        self.expects_continue = False
        """The client waits for a word before it sends its body; whoever sends it resets this."""
        self._takes_chunks = True
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._header_bytes = 0
        self._fed_bytes = 0
        self._came: Body = b""
        """Of the body, but for what is in `_straight`."""
        self._straight: bytearray | None = None
        self._straight_length = 0
        self._budget_taken = 0
        self._discards: RequestRefused | None = None
        self._is_stream = False
        """The body in progress is not kept here."""

    # --- in --------------------------------------------------------------------------------------------------------

    def feed(self, data: bytes | memoryview) -> None:
        """Take bytes; calls `on_request` for every request that they complete. Raises RequestRefused."""
        if not self.in_request:
            data = bytes(data)
            at = 0
            while request := plain_request(data, at, self._header_bytes_max, self._body_bytes_max):
                method, target, headers, head, body, at = request
                self._on_request(Request(method, target, headers, body, True, head))
                if at == len(data):
                    return
            if at:
                data = data[at:]
        if self.in_request:
            self._bound_what_is_kept(len(data))
        refused = self._parse(data)
        # Only now, and not from within httptools: whatever is raised there is about these bytes alone.
        whole, self._whole = self._whole, []
        for came in whole:
            self._hand_over(came)
        if refused is not None:
            raise refused
        if self._straight is not None and self.in_body and not self._straight:
            self._grow()

    def _hand_over(self, came: Request | bytes | _End) -> None:
        if isinstance(came, Request):
            self._on_request(came)
        elif self._stream is None:
            return  # the connection is gone
        elif isinstance(came, bytes):
            self._stream.stream_piece(came)
        else:
            self._stream.stream_ended()

    def _parse(self, data: bytes | memoryview) -> RequestRefused | None:
        """Let httptools take the bytes apart. Whatever is wrong with them is the client's fault and ends no more than
        its connection."""
        left = memoryview(data)
        try:
            while self._error is None and left:
                try:
                    self._parser.feed_data(left)
                    break
                except httptools.HttpParserUpgrade as offered:
                    left = left[offered.args[0] :]
                    if self._error is None:
                        self._go_on_without_upgrade()
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if cause is not None and not isinstance(cause, Exception):
                raise cause from None  # told to stop
            return self._error or RequestRefused(400, "malformed_request", f"not an HTTP/1.1 request: {cause}")
        except httptools.HttpParserError as error:
            return self._error or RequestRefused(400, "malformed_request", f"not an HTTP/1.1 request: {error}")
        return self._error

    def _go_on_without_upgrade(self) -> None:
        """The request offers to go on in another protocol, as some clients do with each one. Nobody has to take the
        offer (RFC 9110, 7.8). httptools ends such a request behind its head, with its body unread: so the head is given
        to a new parser once more, without the offer, and the body follows."""
        method, version = self._parser.get_method(), self._parser.get_http_version()
        if method == b"CONNECT":
            detail = "this server speaks HTTP/1.1 and nothing else, and opens no tunnel"
            self._fail(RequestRefused(400, "upgrade_unsupported", detail))
            return
        target, headers = self._target, self._headers
        options = [option.strip(_BLANKS) for option in headers.pop(b"connection", b"").split(b",")]
        options = [option for option in options if option.lower() != b"upgrade"]
        del headers[b"upgrade"]
        lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
        lines += [b"%b: %b" % header for header in headers.items()]
        lines += [b"connection: " + b", ".join(options)] if options else []
        self._reset()
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(b"\r\n".join((*lines, b"", b"")))

    def _grow(self) -> None:
        """Room for more of a large body."""
        assert self._straight is not None
        old = self._came or self._straight
        size = min(self._straight_length, max(STRAIGHT_BYTES_MIN, STRAIGHT_GROWTH * len(old)))
        refused = self._take_budget(size)
        if refused is not None:
            self._fail(refused)
            raise refused
        self._came = b""
        # A new one: a buffer that somebody still looks at cannot grow in place.
        grown = bytearray(size)
        grown[: len(old)] = old
        self._straight = grown

    def _take_budget(self, size: int) -> RequestRefused | None:
        """Have as much of the budget as a body of this size takes."""
        if self._budget.take(size - self._budget_taken):
            self._budget_taken = size
            return None
        used, limit = self._budget.bytes_used, self._budget.bytes_max
        detail = "bodies of all clients together are too large at the moment"
        return RequestRefused(503, "overloaded", detail, limit=limit, received=used + size)

    def let_go(self) -> None:
        """Nobody wants the request in progress any more, nor is any behind it read: keep nothing of it."""
        self._give_back()
        self._target = b""
        self._headers = {}
        self._straight = None
        self._parser = httptools.HttpRequestParser(self)  # the old one keeps the header that has not come to its end

    def close(self) -> None:
        """The connection is gone: nothing is fed any more. The connection and its parser hold each other, and so do the
        parser and httptools; without this they stay until the collector comes."""
        self._on_request = _ignore_request
        self._stream = None
        del self._parser

    def _give_back(self) -> None:
        self._budget.bytes_used -= self._budget_taken
        self._budget_taken = 0
        self._came = b""

    def _bound_what_is_kept(self, count: int) -> None:
        """httptools hands a header or a trailer over when it is whole: one without an end would grow without a bound.
        Chunks have an overhead of their own, so a body may bring some bytes beside its content."""
        self._fed_bytes += count
        beside = self._fed_bytes - self.body_bytes * (1 + CHUNK_OVERHEAD)
        if beside > self._header_bytes_max + limits.HTTP_RECEIVE_BYTES:
            limit = self._header_bytes_max
            refused = RequestRefused(
                431, "headers_too_large", "the headers are too large", limit=limit, received=beside
            )
            self._fail(refused)
            raise refused

    @property
    def is_straight(self) -> bool:
        """A large body is coming in: its bytes go to `body_room`, not to `feed`."""
        return self.in_body and self._straight is not None

    def body_room(self) -> memoryview | None:
        """Where the rest of a large body belongs; None when bytes go to `feed`."""
        if self._straight is None or not self.in_body or self.body_bytes == len(self._straight):
            return None  # a buffer that is full and not the whole body has grown before this is asked again
        return memoryview(self._straight)[self.body_bytes :]

    def body_came(self, count: int) -> None:
        """`count` bytes were put at the front of `body_room`. Raises RequestRefused."""
        assert self._straight is not None
        self.body_bytes += count
        if self.body_bytes < len(self._straight):
            return
        if self.body_bytes < self._straight_length:
            self._grow()
        else:
            method, keep_alive = self._parser.get_method(), self._parser.should_keep_alive()
            # The parser still waits for this body: it starts over with the next request.
            self._parser = httptools.HttpRequestParser(self)
            self._on_request(self._finished(method, keep_alive))

    # --- what httptools calls --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self.in_request = True

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._target = self._target + url if self._target else url
        if len(self._target) > self._header_bytes_max:
            limit = self._header_bytes_max
            self._fail(RequestRefused(414, "target_too_long", "the request target is too long", limit=limit))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes > self._header_bytes_max:
            limit, came = self._header_bytes_max, self._header_bytes
            refused = RequestRefused(431, "headers_too_large", "the headers are too large", limit=limit, received=came)
            self._fail(refused)
            return
        if self.in_body:
            return  # a trailer is no header (RFC 9110, 6.5.1)
        name, value = name.lower(), value.strip(_BLANKS)
        headers = self._headers
        if name not in headers:
            headers[name] = value
        elif name in _ONCE:
            detail = f"{name.decode('latin-1')} stands twice: there is one of it in a request"
            self._fail(RequestRefused(400, "header_repeated", detail))
        else:
            headers[name] = b"%b, %b" % (headers[name], value)

    def on_headers_complete(self) -> None:
        """All headers are there; the body follows."""
        if self._error is not None:
            return
        if self._parser.should_upgrade():
            return  # they come once more, without the offer
        self.in_body = True
        version = self._parser.get_http_version()
        self._takes_chunks = version == "1.1"
        headers = self._headers
        if version not in _VERSIONS:
            self._fail(RequestRefused(505, "version_unsupported", f"HTTP/{version} is not spoken here"))
            return
        if b"host" not in headers and self._takes_chunks:
            detail = "every request of HTTP/1.1 names its host, in one Host header (RFC 9112, 3.2)"
            self._fail(RequestRefused(400, "host_missing", detail))
            return
        if not HOST.fullmatch(headers.get(b"host", b"")):
            detail = "Host is one name or address, and a port (RFC 9112, 3.2)"
            self._fail(RequestRefused(400, "host_invalid", detail))
            return
        if b"transfer-encoding" in headers and not self._takes_chunks:
            # Whoever stands in front and does not know the header ends the request elsewhere (RFC 9112, 6.1).
            detail = "HTTP/1.0 has no Transfer-Encoding: where this request ends is not sure"
            self._fail(RequestRefused(400, "malformed_request", detail))
            return
        length_text = headers.get(b"content-length")
        if b"expect" in headers and not self._may_expect(headers[b"expect"]):
            return
        if headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            detail = "a body may be chunked, and nothing else may be done to it"
            self._fail(RequestRefused(501, "encoding_unsupported", detail))
            return
        if self._stream is not None and self._stream.takes_stream(self._target):
            self._begin_stream(length_text)
            return
        has_body = length_text not in (None, b"0") or b"transfer-encoding" in headers
        if has_body and headers.get(b"content-encoding", b"identity").lower() != b"identity":
            # Kept byte for byte, it would be given back without the word that says how to read it.
            detail = "a body in a Content-Encoding cannot be taken: readers would not be told of it"
            self._fail(RequestRefused(415, "encoding_unsupported", detail))
            return
        if length_text is None or not self._has_few_digits(length_text):
            return
        length = int(length_text)  # httptools has seen to it that these are digits
        if length > self._body_bytes_max:
            self._discard(length)
        elif length > STRAIGHT_BYTES_MIN:
            self._straight = bytearray()
            self._straight_length = length

    def _has_few_digits(self, length_text: bytes) -> bool:
        if len(length_text) <= limits.HTTP_DIGITS_MAX:
            return True
        limit, came = limits.HTTP_DIGITS_MAX, len(length_text)
        detail = "Content-Length has too many digits"
        self._fail(RequestRefused(400, "malformed_request", detail, limit=limit, received=came))
        return False

    def _begin_stream(self, length_text: bytes | None) -> None:
        """Whoever takes the body gets the head at once."""
        if length_text is not None and not self._has_few_digits(length_text):
            return
        self._is_stream = True
        request = Request(self._parser.get_method(), self._target, self._headers, b"", self._parser.should_keep_alive())
        request.is_streamed = True
        request.takes_chunks = self._takes_chunks
        self._whole.append(request)

    def _may_expect(self, expectation: bytes) -> bool:
        if not self._takes_chunks:
            return True  # HTTP/1.0 knows no such word, and waits for none (RFC 9110, 10.1.1)
        self.expects_continue = expectation.lower() == b"100-continue"
        if not self.expects_continue:
            self._fail(RequestRefused(417, "expectation_failed", "only 100-continue can be expected"))
        return self.expects_continue

    def on_body(self, piece: bytes) -> None:
        """A piece of the body, chunked or not."""
        if self._error is not None:
            return
        self.body_bytes += len(piece)
        if self._is_stream:
            self._whole.append(piece)
            return
        if self._discards is not None:
            if self.body_bytes > limits.HTTP_DISCARD_BYTES_MAX:
                self._fail(self._discards)
            return
        if self.body_bytes > self._body_bytes_max:
            self._discard(self.body_bytes)
            return
        if self._straight is None and self.body_bytes > STRAIGHT_BYTES_MIN:
            refused = self._take_budget(self.body_bytes)
            if refused is not None:
                self._fail(refused)
                return
        # Joined as they come: a piece of two bytes takes forty. A straight one's came with the head; `feed` goes on.
        if not self._came:
            self._came = piece
        elif isinstance(self._came, bytes):
            self._came = bytearray(self._came) + piece
        else:
            self._came += piece

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._is_stream and self._error is None:
            self._whole.append(_END)
            self._reset()
        elif self._error is None and not self._parser.should_upgrade():
            self._whole.append(self._finished(self._parser.get_method(), self._parser.should_keep_alive()))

    # --- out -------------------------------------------------------------------------------------------------------

    def _finished(self, method: bytes, keep_alive: bool) -> Request:
        body: Body
        if self._straight:
            body = self._straight
        else:
            body = self._came if self._budget_taken else bytes(self._came)
        self._give_back()
        request = Request(method, self._target, self._headers, body, keep_alive)
        request.refused = self._discards
        request.takes_chunks = self._takes_chunks
        self._reset()
        return request

    def _discard(self, length: int) -> None:
        """Too large: its bytes are dropped as they come, and the answer says so."""
        limit = self._body_bytes_max
        refused = RequestRefused(413, "body_too_large", "the body is too large", limit=limit, received=length)
        self._give_back()
        if length > limits.HTTP_DISCARD_BYTES_MAX or self.expects_continue:
            self._fail(refused)  # it would be too much, or it has not been sent yet, and must not be asked for
            self.expects_continue = False
        else:
            self._discards = refused

    def _fail(self, refused: RequestRefused) -> None:
        """Not raised here: httptools would swallow it. `feed` raises it when it comes back."""
        if self._error is None:
            self._error = refused
