"""A small, blocking HTTP client for tests: it sends any bytes, and reads answers as strictly as it can."""

import socket
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import msgspec

PATIENCE_S: Final = 30.0
"""A socket that is silent for so long is a failure."""

Headers = dict[str, str | int]


class Answer(NamedTuple):
    """One answer. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """Which problem; checks on the way that it is told as problems are."""
        assert self.headers["content-type"] == "application/problem+json", self
        problem = self.json
        assert problem["status"] == self.status
        assert problem["type"] == f"urn:oncelog:{problem['code']}"
        assert problem["title"] == problem["code"].replace("_", " ")
        assert problem["detail"]
        assert isinstance(problem["hint"], str)
        assert problem["hint"], "every error says what to do about it"
        assert isinstance(problem["retryable"], bool)
        code: str = problem["code"]
        return code

    @property
    def next_offset(self) -> int:
        text = self.headers["stream-next-offset"]
        assert len(text) == 16
        return int(text)


def request(method: str, target: str, body: bytes = b"", /, headers: Mapping[str, str | int] | None = None) -> bytes:
    """The bytes of a request. A body has a length and, unless told otherwise, a type."""
    told: Headers = {"Host": "test"}
    if body:
        told |= {"Content-Type": "text/plain", "Content-Length": len(body)}
    elif method in ("POST", "PUT", "PATCH"):
        told["Content-Length"] = 0
    told.update(headers or {})
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode() + body


class Client:
    """One connection."""

    def __init__(self, port: int, *, receive_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(PATIENCE_S)
        try:
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def reset(self) -> None:
        """Go away without a word."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(
        self, method: str, target: str, body: bytes = b"", /, headers: Mapping[str, str | int] | None = None
    ) -> Answer:
        self.send(request(method, target, body, headers))
        return self.answer(head=method == "HEAD")

    def head(self) -> Answer:
        """The head of the next answer; the body is left."""
        line = self._file.readline()
        assert line.startswith(b"HTTP/1.1 "), line
        assert line.endswith(b"\r\n")
        headers: dict[str, str] = {}
        while (header := self._file.readline()) != b"\r\n":
            assert header.endswith(b"\r\n"), header
            name, colon, value = header.decode("latin-1").rstrip("\r\n").partition(": ")
            assert colon, header
            assert name.lower() not in headers, header
            headers[name.lower()] = value
        return Answer(int(line[9:12]), headers, b"")

    def answer(self, *, head: bool = False) -> Answer:
        """The next answer, whole."""
        found = self.head()
        assert found.headers["x-content-type-options"] == "nosniff"
        if found.status in (204, 304):
            assert "content-length" not in found.headers
            return found
        if found.headers.get("transfer-encoding") == "chunked":
            pieces = []
            while (piece := self.chunk()) != b"":
                pieces.append(piece)
            return found._replace(body=b"".join(pieces))
        length = int(found.headers["content-length"])
        if head:
            assert length == 0
        body = self._file.read(length)
        assert len(body) == length
        return found._replace(body=body)

    def chunk(self) -> bytes:
        """One piece of a chunked body; empty at its end."""
        length = int(self._file.readline(), 16)
        piece = self._file.read(length)
        assert len(piece) == length
        assert self._file.read(2) == b"\r\n"
        return piece

    def line(self) -> bytes:
        return self._file.readline()

    def drain(self) -> bytes:
        """Everything until the server closes the connection."""
        return self._file.read()

    @property
    def is_cut(self) -> bool:
        """Nothing more comes: waits for the server to close the connection."""
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True
