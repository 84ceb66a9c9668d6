"""Requests to bytes, bytes to answers: HTTP/1.1 as the client speaks it. No sockets, no clock.

What leaves is put together from pieces that do not change (`Head`) and those that do. What comes back is parsed by
httptools, with bounds on what a server may make us hold. Names and values of headers are checked for line breaks here,
so no record, id or name can put a header of its own into a request.

Answers to HEAD must say `Content-Length: 0`, as ours do: the parser cannot know what was asked.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

import httptools
import msgspec

from oncelog.limits import BATCH_INFLATED_BYTES_MAX, KIB

ANSWER_HEADER_BYTES_MAX: Final = 64 * KIB
"""Ours have 1 KiB; a proxy may add some."""

ANSWER_BODY_BYTES_MAX: Final = BATCH_INFLATED_BYTES_MAX
"""The server's largest setting for the bytes of one read."""

JSON: Final = "application/json"
BATCHES: Final = "application/vnd.oncelog.batches"
PROBLEM: Final = "application/problem+json"
"""Of a refusal that our server has signed."""


class Answer(msgspec.Struct, gc=False):
    """One answer. Header names are lower case; a header that came twice is joined with a comma."""

    status: int
    headers: dict[str, str]
    body: bytes

    def number(self, header: str) -> int:
        """A header that is a whole number; -1 if it is absent or something else."""
        text = self.headers.get(header, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else -1

    def flag(self, header: str) -> bool:
        """A header that says true."""
        return self.headers.get(header, "").lower() == "true"


class AnswerBroken(Exception):
    """The bytes are no HTTP answer, or one over a bound. The connection is of no more use."""


def header_line(name: str, value: str | int) -> bytes:
    """One header with its line end. ValueError if it could be read as anything else than one header."""
    text = str(value)
    if not text.isprintable():
        raise ValueError(f"{name} cannot be sent as a header: {text[:80]!r} has control characters")
    if text != text.strip():
        # They are no part of a header's value: two ids that differ in them would be one.
        raise ValueError(f"{name} cannot be sent as a header: {text[:80]!r} begins or ends with a blank")
    return f"{name}: {text}\r\n".encode()


def topic_path(topic: str) -> str:
    """A topic inside a path: it may keep its slashes."""
    return quote(topic, safe="/")


def name_path(name: str) -> str:
    """Any other name inside a path."""
    return quote(name, safe="")


def target(path: str, query: Mapping[str, str | int | None] | None = None) -> str:
    """Path and query. Parameters that are None are left out."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


class Head:
    """The part of a request that is the same every time: request line and fixed headers."""

    __slots__ = ("fixed",)

    def __init__(self, method: str, to: str, host: str, headers: Mapping[str, str | int]) -> None:
        lines = b""
        for name, value in headers.items():
            if name.lower() == "host":
                host = str(value)  # a virtual host, of which there is one as well
            else:
                lines += header_line(name, value)
        self.fixed: Final = f"{method} {to} HTTP/1.1\r\n".encode("ascii") + header_line("Host", host) + lines

    def request(self, body: bytes, changing: bytes = b"") -> bytes:
        """The whole request. `changing` are header lines, each with its line end."""
        return b"%b%bContent-Length: %d\r\n\r\n%b" % (self.fixed, changing, len(body), body)

    def bodiless(self, changing: bytes = b"") -> bytes:
        """A request that has no body: GET, HEAD, DELETE."""
        return b"%b%b\r\n" % (self.fixed, changing)


class AnswerParser:
    """The answers of one connection, in their order."""

    def __init__(self) -> None:
        self.last = False
        """The server said that it closes the connection after the answer that came last."""
        self._parser = httptools.HttpResponseParser(self)
        self._answers: list[Answer] = []
        self._headers: dict[str, str] = {}
        self._header_bytes = 0
        self._pieces: list[bytes] = []
        self._body_bytes = 0

    def feed(self, data: bytes) -> list[Answer]:
        """The answers that are complete with these bytes. Raises AnswerBroken."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # What came whole before the nonsense counts: its requests were answered.
            self.last = True
            if not self._answers:
                # A bound that was passed inside a callback is the cause that httptools wraps.
                reason = error.__context__ if isinstance(error.__context__, AnswerBroken) else error
                raise AnswerBroken(str(reason)) from None
        answers, self._answers = self._answers, []
        return answers

    # What httptools calls.

    def on_message_begin(self) -> None:
        self._headers = {}
        self._header_bytes = 0
        self._pieces = []
        self._body_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > ANSWER_HEADER_BYTES_MAX:
            raise AnswerBroken(f"an answer with more than {ANSWER_HEADER_BYTES_MAX:,} bytes of headers")
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        known = self._headers.get(key)
        self._headers[key] = text if known is None else f"{known}, {text}"

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > ANSWER_BODY_BYTES_MAX:
            raise AnswerBroken(f"an answer of more than {ANSWER_BODY_BYTES_MAX:,} bytes")
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # an interim answer; the real one follows
            return
        self._answers.append(Answer(status, self._headers, b"".join(self._pieces)))
        if not self._parser.should_keep_alive():
            self.last = True
