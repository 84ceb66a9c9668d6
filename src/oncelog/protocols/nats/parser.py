"""What a client sends: control lines, and the payload behind PUB and HPUB.

    CONNECT {json}   PING   PONG
    PUB subject [reply] size            HPUB subject [reply] header-size total-size
    SUB subject [queue] sid             UNSUB sid [max]

Verbs are compared without case; arguments are separated by runs of blanks. A mistake ends the stream of operations:
`failure` then says what to tell the client before the connection is closed.
"""

from typing import Final, NamedTuple

from oncelog import limits as bounds
from oncelog.protocols.nats import subject as subjects


class Message(NamedTuple):
    """PUB or HPUB."""

    subject: str
    reply: str
    header: bytes
    """The block; empty for none."""
    payload: bytes


class Subscribe(NamedTuple):
    """SUB."""

    subject: str
    queue: str
    sid: str


class Unsubscribe(NamedTuple):
    """UNSUB; 0 = at once."""

    sid: str
    after: int


class Connect(NamedTuple):
    """CONNECT, as JSON."""

    options: bytes


class Ping(NamedTuple):
    """PING."""


class Pong(NamedTuple):
    """PONG."""


Operation = Message | Subscribe | Unsubscribe | Connect | Ping | Pong

PARSER_ERROR: Final = "Unknown Protocol Operation"
LINE_TOO_LONG: Final = "Maximum Control Line Exceeded"
PAYLOAD_TOO_LARGE: Final = "Maximum Payload Violation"
INVALID_SUBJECT: Final = "Invalid Publish Subject"
DIGITS_MAX: Final = 9
"""Of a size: a number of more digits is above any limit."""


class Parser:
    """One connection's bytes."""

    __slots__ = ("_chunks", "_have", "_need", "_payload_bytes_max", "failure")

    def __init__(self, payload_bytes_max: int) -> None:
        self._payload_bytes_max = payload_bytes_max
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = 0
        """Bytes without which the first operation cannot be complete."""
        self.failure = ""
        """The text of `-ERR`, once the client has made a mistake that ends the connection."""

    def feed(self, data: bytes) -> list[Operation]:
        """The operations that are complete now. Nothing comes after a failure."""
        if self.failure:
            return []
        if self._chunks:
            self._chunks.append(data)
            self._have += len(data)
            if self._have < self._need:
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
        operations: list[Operation] = []
        at = self._take(data, operations)
        if at < len(data) and not self.failure:
            rest = data[at:] if at else data
            self._chunks.append(rest)
            self._have = len(rest)
        return operations

    def _take(self, data: bytes, operations: list[Operation]) -> int:
        at, size = 0, len(data)
        self._need = 0
        while at < size:
            end = data.find(b"\n", at)
            if end < 0:
                self._check_line(data, at, size)
                return at
            line = data[at : end - 1] if data[end - 1 : end] == b"\r" else data[at:end]
            verb = line[:3].upper()
            if verb == b"PUB" or verb == b"HPU":
                if len(line) > bounds.NATS_CONTROL_LINE_BYTES_MAX:
                    self.failure = LINE_TOO_LONG
                    return at
                head = self._head(line)
                if head is None:
                    return at
                subject, reply, header_bytes, total = head
                begin = end + 1
                after = begin + total + 2
                if after > size:
                    self._need = after - at
                    return at
                if data[begin + total : after] != b"\r\n":
                    self.failure = PARSER_ERROR
                    return at
                split = begin + header_bytes
                operations.append(Message(subject, reply, data[begin:split], data[split : begin + total]))
                at = after
            else:
                if not self._other(line, operations):
                    return at
                at = end + 1
        return at

    def _check_line(self, data: bytes, at: int, size: int) -> None:
        is_connect = data[at : at + 7].upper() == b"CONNECT"
        if size - at > (bounds.NATS_CONNECT_BYTES_MAX if is_connect else bounds.NATS_CONTROL_LINE_BYTES_MAX):
            self.failure = LINE_TOO_LONG

    def _head(self, line: bytes) -> tuple[str, str, int, int] | None:
        try:
            words = line.decode().split()
        except UnicodeDecodeError:
            self.failure = INVALID_SUBJECT
            return None
        with_header = words[0].upper() == "HPUB"
        sizes = 2 if with_header else 1
        if (not with_header and words[0].upper() != "PUB") or not 2 + sizes <= len(words) <= 3 + sizes:
            self.failure = PARSER_ERROR
            return None
        reply = words[2] if len(words) == 3 + sizes else ""
        numbers = [_size(word) for word in words[-sizes:]]
        total, header_bytes = numbers[-1], numbers[0] if with_header else 0
        if total > self._payload_bytes_max:
            self.failure = PAYLOAD_TOO_LARGE
        elif min(numbers) < 0 or header_bytes > total:
            self.failure = PARSER_ERROR
        elif not subjects.is_valid(words[1]) or (reply and not subjects.is_valid(reply)):
            self.failure = INVALID_SUBJECT
        return None if self.failure else (words[1], reply, header_bytes, total)

    def _other(self, line: bytes, operations: list[Operation]) -> bool:
        verb = line[:7].upper()
        if verb == b"CONNECT":
            if len(line) > bounds.NATS_CONNECT_BYTES_MAX:
                self.failure = LINE_TOO_LONG
                return False
            operations.append(Connect(line[7:].strip()))
            return True
        if len(line) > bounds.NATS_CONTROL_LINE_BYTES_MAX:
            self.failure = LINE_TOO_LONG
            return False
        try:
            words = line.decode().split()
        except UnicodeDecodeError:
            self.failure = PARSER_ERROR
            return False
        operation = _operation(words)
        if operation is None:
            self.failure = PARSER_ERROR
            return False
        operations.append(operation)
        return True


def _operation(words: list[str]) -> Operation | None:
    match [words[0].upper() if words else "", *words[1:]]:
        case ["PING"]:
            return Ping()
        case ["PONG"]:
            return Pong()
        case ["SUB", subject, sid]:
            return Subscribe(subject, "", sid)
        case ["SUB", subject, queue, sid]:
            return Subscribe(subject, queue, sid)
        case ["UNSUB", sid]:
            return Unsubscribe(sid, 0)
        case ["UNSUB", sid, after] if _size(after) >= 0:
            return Unsubscribe(sid, _size(after))
    return None


def _size(word: str) -> int:
    """A count; -1 if it is none, and more than any limit if it has too many digits."""
    if not (word.isascii() and word.isdigit()):
        return -1
    return int(word) if len(word) <= DIGITS_MAX else 10**DIGITS_MAX
