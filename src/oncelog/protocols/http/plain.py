"""Plain requests, read without the parser: what nearly every client sends nearly every time.

A request is plain if its head is whole, every line of it is ordinary ASCII, no header stands twice, none of them
changes how the message is read, its host is named, and its body is there and small. Whatever is not plain is left to
httptools from its first byte: this module only ever says "this is the same as the parser would say" or "ask the
parser". A test compares the two on all kinds of requests.

Lines that come again and again (host, types, lengths) are looked up, not taken apart.
"""

import re
from typing import Final

_START: Final = re.compile(rb"(GET|HEAD|POST|PUT|DELETE|PATCH) (/[\x21\x22\x24-\x7e]*) HTTP/1\.1")
VALUE: Final = rb"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?"
HOST: Final = re.compile(rb"[A-Za-z0-9._~!$&'()*+;=:%\[\]-]*")
"""What may stand in Host: a name or an address, and a port. Not the comma of RFC 3986, since two hosts that somebody in
front has joined look so."""
_HEADER: Final = re.compile(rb"([A-Za-z0-9-]+): (%b)" % VALUE)

_CHANGES_READING: Final = frozenset(
    (
        *(b"transfer-encoding", b"content-encoding", b"expect", b"upgrade"),
        *(b"te", b"trailer", b"connection", b"proxy-connection"),
    )
)
"""Headers that only the parser may judge."""

_NEVER_AGAIN: Final = frozenset(
    (b"producer-seq", b"x-producer-seq", b"stream-message-id", b"idempotency-key", b"stream-seq", b"if-match")
)
"""Headers whose lines differ from request to request: remembering them would push out the others."""

_SEQUENCES: Final = {
    name: name.lower() for name in (b"Producer-Seq", b"producer-seq", b"X-Producer-Seq", b"x-producer-seq")
}
"""The line that differs in every request of a producer, as clients spell it."""

LINES_REMEMBERED_MAX: Final = 4096
LINE_REMEMBERED_BYTES_MAX: Final = 256
LENGTH_DIGITS_MAX: Final = 8

_starts: Final[dict[bytes, tuple[bytes, bytes]]] = {}
_headers: Final[dict[bytes, tuple[bytes, bytes]]] = {b"Connection: keep-alive": (b"connection", b"keep-alive")}


Plain = tuple[bytes, bytes, dict[bytes, bytes], bytes, bytes, int]
"""Method, target, headers, the head that they were read from, body, and where the next request begins."""


def plain_request(data: bytes, at: int, head_bytes_max: int, body_bytes_max: int) -> Plain | None:
    """The request that begins at `at`, if it is plain and whole."""
    head_end = data.find(b"\r\n\r\n", at, at + head_bytes_max)
    if head_end < 0:
        return None
    head = data[at:head_end]
    lines = head.split(b"\r\n")
    start = _starts.get(lines[0]) or _read_start(lines[0])
    if start is None:
        return None
    headers: dict[bytes, bytes] = {}
    for number in range(1, len(lines)):
        line = lines[number]
        pair = _headers.get(line) or _read_header(line)
        if pair is None:
            return None
        headers[pair[0]] = pair[1]
    if len(headers) != len(lines) - 1:
        return None  # one of them stands twice
    if b"host" not in headers:
        return None
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > LENGTH_DIGITS_MAX:
        return None
    body_at = head_end + 4
    next_at = body_at + int(length)
    if next_at > len(data) or next_at - body_at > body_bytes_max:
        return None
    return start[0], start[1], headers, head, data[body_at:next_at], next_at


def _read_start(line: bytes) -> tuple[bytes, bytes] | None:
    match = _START.fullmatch(line)
    if match is None:
        return None
    start = (match.group(1), match.group(2))
    _remember(_starts, line, start)
    return start


def _read_header(line: bytes) -> tuple[bytes, bytes] | None:
    name, _, value = line.partition(b": ")
    if name in _SEQUENCES and value.isdigit():
        return _SEQUENCES[name], value
    match = _HEADER.fullmatch(line)
    if match is None:
        return None
    pair = (match.group(1).lower(), match.group(2))
    if pair[0] in _CHANGES_READING or (pair[0] == b"host" and not HOST.fullmatch(pair[1])):
        return None
    if pair[0] not in _NEVER_AGAIN:
        _remember(_headers, line, pair)
    return pair


def _remember(lines: dict[bytes, tuple[bytes, bytes]], line: bytes, parts: tuple[bytes, bytes]) -> None:
    if len(line) <= LINE_REMEMBERED_BYTES_MAX:
        if len(lines) >= LINES_REMEMBERED_MAX:
            lines.clear()
        lines[line] = parts
