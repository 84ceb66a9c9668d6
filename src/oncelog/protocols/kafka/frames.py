"""Frames and headers: the length prefix, what every request begins with, what every response begins with."""

from struct import Struct
from typing import Final, NamedTuple

from oncelog import limits
from oncelog.protocols.kafka import offered
from oncelog.protocols.kafka.wire import Buffer, Reader, WireError

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_HEAD: Final = Struct(">hhi")
HEAD_BYTES_MIN: Final = _HEAD.size


class Frames:
    """Bytes of one connection, cut into frames."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._at = 0
        """Where in `_rest` the next frame begins."""

    def feed(self, data: bytes) -> None:
        """More bytes came."""
        if self._at:
            del self._rest[: self._at]
            self._at = 0
        self._rest += data

    def next(self) -> memoryview | None:
        """The next frame that is whole. Raises WireError for a length that no request has."""
        at, rest = self._at, self._rest
        if len(rest) - at < 4:
            return None
        length: int = _INT32.unpack_from(rest, at)[0]
        if not HEAD_BYTES_MIN <= length <= limits.KAFKA_FRAME_BYTES_MAX:
            limit = limits.KAFKA_FRAME_BYTES_MAX
            raise WireError(f"a request of {length:,} bytes; the limit is {limit:,}. Send smaller requests")
        if len(rest) - at - 4 < length:
            return None
        self._at = at + 4 + length
        return memoryview(bytes(memoryview(rest)[at + 4 : self._at]))


class RequestHead(NamedTuple):
    """What every request begins with."""

    key: int
    version: int
    correlation_id: int
    client_id: str
    reader: Reader
    """At the request's own fields."""


def read_head(frame: Buffer) -> RequestHead:
    """The head of a request of any API, known or not."""
    reader = Reader(frame)
    key, version, correlation_id = _HEAD.unpack_from(frame, 0)
    reader.at = _HEAD.size
    if not offered.is_served(key, version):
        return RequestHead(key, version, correlation_id, "", reader)  # what follows is unknown, and not needed
    length = int(reader.fixed(_INT16))
    if length < -1:
        raise WireError(f"a client id of {length} bytes", reader.at)
    client_id = "" if length < 0 else reader.text(length)
    if offered.is_flexible(key, version):
        reader.skip_tags()
    return RequestHead(key, version, correlation_id, client_id, reader)


def framed(head: RequestHead, body: list[Buffer]) -> list[Buffer]:
    """A response in pieces, with its length and its header before it."""
    tags = b"\x00" if offered.has_flexible_answer(head.key, head.version) else b""
    size = 4 + len(tags) + sum(len(piece) for piece in body)
    return [_INT32.pack(size) + _INT32.pack(head.correlation_id) + tags, *body]
