"""Answers as bytes. Heads are put together from pieces made once; nothing here looks at state.

Every answer carries what browsers ask for: no sniffing, use from any origin, all headers readable by scripts. Answers
with status 204 and 304, and all answers to HEAD, end with their head.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from oncelog.core.content_type import JSON
from oncelog.protocols.http.hints import HINTS

COMMON: Final = (
    b"X-Content-Type-Options: nosniff\r\n"
    b"Cross-Origin-Resource-Policy: cross-origin\r\n"
    b"Access-Control-Allow-Origin: *\r\n"
    b"Access-Control-Expose-Headers: *\r\n"
)

PROBLEM: Final = "application/problem+json"

PHRASES: Final = {
    200: "OK",
    201: "Created",
    204: "No Content",
    304: "Not Modified",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    410: "Gone",
    412: "Precondition Failed",
    413: "Content Too Large",
    414: "URI Too Long",
    415: "Unsupported Media Type",
    417: "Expectation Failed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
    507: "Insufficient Storage",
}
_LINES: Final = {status: f"HTTP/1.1 {status} {phrase}\r\n".encode() for status, phrase in PHRASES.items()}
_BODILESS: Final = frozenset((204, 304))

_encode: Final = msgspec.json.Encoder().encode


def head(status: int, headers: bytes = b"") -> bytes:
    """Status line and headers, but for the empty line."""
    return _LINES[status] + COMMON + headers


def lines(headers: Mapping[str, str | int]) -> bytes:
    """Headers as bytes. Whoever puts text from outside in here has seen to it that it holds no line break."""
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1", "replace")


def empty(status: int, headers: bytes = b"") -> bytes:
    """An answer without a body."""
    length = b"" if status in _BODILESS else b"Content-Length: 0\r\n"
    return b"%b%b%b\r\n" % (head(status), headers, length)


def full(status: int, content_type: str, body: bytes, headers: bytes = b"") -> bytes:
    """An answer with a body."""
    return b"%b%b\r\n%b" % (head(status), full_head(content_type, len(body)) + headers, body)


def full_head(content_type: str, length: int) -> bytes:
    """The two headers of a body."""
    return f"Content-Type: {content_type}\r\nContent-Length: {length}\r\n".encode("latin-1", "replace")


def json(value: object, status: int = 200, headers: bytes = b"") -> bytes:
    """JSON, never cached."""
    return full(status, JSON, _encode(value), b"Cache-Control: no-store\r\n" + headers)


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    hint: str = "",
    retryable: bool = False,
    numbers: Mapping[str, object] | None = None,
    headers: bytes = b"",
) -> bytes:
    """An error that a person and a program can both read (RFC 9457). Without a hint of its own it has its code's."""
    body: dict[str, object] = {
        "type": f"urn:oncelog:{code}",
        "title": code.replace("_", " "),
        "status": status,
        "code": code,
        "detail": detail,
        "hint": hint or HINTS.get(code, ""),
        "retryable": retryable,
    }
    body.update(numbers or {})
    return full(status, PROBLEM, _encode(body), b"Cache-Control: no-store\r\n" + headers)


def headless(answer: bytes) -> bytes:
    """The same answer to HEAD: its head alone, with no word of a body that does not follow."""
    kept = [line for line in answer.partition(b"\r\n\r\n")[0].split(b"\r\n") if not line.startswith(b"Content-Length:")]
    return b"\r\n".join(kept) + b"\r\nContent-Length: 0\r\n\r\n"


def closing(answer: bytes) -> bytes:
    """The same answer, as the last one of its connection."""
    return answer.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
