"""A raw NATS client for tests: one socket, control lines out, operations in, no library in between."""

import json
import socket
from typing import Any, NamedTuple

from tests.servers.talking import PATIENCE_S


class Received(NamedTuple):
    """MSG or HMSG."""

    subject: str
    sid: str
    reply: str
    header: bytes
    payload: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.payload)

    @property
    def status(self) -> str:
        """The first line of the header block after the version."""
        return self.header.split(b"\r\n")[0].removeprefix(b"NATS/1.0").strip().decode()


class RawClient:
    """One connection."""

    def __init__(self, port: int, **options: Any) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._buffer = b""
        self.info = json.loads(self.line().removeprefix("INFO "))
        self.inbox = f"_INBOX.{self.info['client_id']}"
        self._requests = 0
        self.send("CONNECT " + json.dumps({"headers": True, "no_responders": True, **options}), "PING")
        assert self.line() == "PONG"
        self.send(f"SUB {self.inbox}.* inbox")

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_args: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()

    def send(self, *lines: str) -> None:
        """Control lines."""
        self._socket.sendall("".join(f"{line}\r\n" for line in lines).encode())

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self._socket.sendall(data)

    def line(self) -> str:
        """The next control line; empty at the end of the connection."""
        while b"\r\n" not in self._buffer:
            if not self._more():
                return ""
        line, self._buffer = self._buffer.split(b"\r\n", 1)
        return line.decode()

    def _more(self) -> bool:
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionResetError:
            return False
        self._buffer += data
        return bool(data)

    def receive(self) -> Received:
        """The next message; PINGs are answered."""
        while True:
            words = self.line().split()
            if words[:1] == ["PING"]:
                self.send("PONG")
                continue
            assert words[:1] in (["MSG"], ["HMSG"]), words
            break
        sizes = 2 if words[0] == "HMSG" else 1
        numbers = [int(word) for word in words[-sizes:]]
        reply = words[3] if len(words) == 4 + sizes else ""
        body = self._take(numbers[-1] + 2)[:-2]
        split = numbers[0] if sizes == 2 else 0
        return Received(words[1], words[2], reply, body[:split], body[split:])

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            assert self._more(), "the server closed the connection"
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def publish(self, subject: str, payload: bytes = b"", reply: str = "", **headers: str) -> None:
        """PUB or HPUB; `_` in a header's name stands for `-`."""
        if not headers:
            self.raw(f"PUB {subject} {reply} {len(payload)}\r\n".encode() + payload + b"\r\n")
            return
        block = "NATS/1.0\r\n" + "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = (block + "\r\n").encode()
        line = f"HPUB {subject} {reply} {len(head)} {len(head) + len(payload)}\r\n"
        self.raw(line.encode() + head + payload + b"\r\n")

    def request(self, subject: str, payload: bytes = b"", **headers: str) -> Received:
        """Publish, and the first answer to it."""
        self._requests += 1
        reply = f"{self.inbox}.{self._requests}"
        self.publish(subject, payload, reply, **headers)
        while True:
            received = self.receive()
            if received.sid == "inbox":
                return received

    def api(self, subject: str, body: Any = None, **headers: str) -> Any:
        """A JetStream request, and its answer."""
        payload = b"" if body is None else json.dumps(body).encode()
        return self.request(f"$JS.API.{subject}", payload, **headers).json

    def stream(self, name: str, **config: Any) -> Any:
        """Make a stream; its subjects are `<name>.>` if not given."""
        fields = {"name": name, "subjects": [f"{name}.>"], **config}
        answer = self.api(f"STREAM.CREATE.{name}", fields)
        assert "error" not in answer, answer
        return answer

    def member(
        self, subject: str, batch: str, sequence: int, payload: bytes = b"x", *, commit: str = "", **more: str
    ) -> Received:
        """A member of an atomic batch, as a request."""
        if commit:
            more["Nats_Batch_Commit"] = commit
        return self.request(subject, payload, Nats_Batch_Id=batch, Nats_Batch_Sequence=str(sequence), **more)

    def batch(self, subjects: list[str], batch: str, **more: str) -> Any:
        """A whole batch; the answer to its commit."""
        for number, subject in enumerate(subjects[:-1], start=1):
            assert self.member(subject, batch, number, subject.encode(), **more).payload == b""
        return self.member(subjects[-1], batch, len(subjects), subjects[-1].encode(), commit="1", **more).json

    def error(self, received: Any) -> tuple[int, int]:
        """(code, number) of an answer that is an error."""
        answer = received.json if isinstance(received, Received) else received
        return answer["error"]["code"], answer["error"]["err_code"]
