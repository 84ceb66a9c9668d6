"""The load generator of `bench http`: a process of its own, as cheap as Python allows, since it shares the cores.

`python -m bench.http_load` reads one `AppendLoad` or `ReadLoad` as JSON from stdin and writes a `LoadResult` to stdout.
Appends are closed loops, one request in flight per connection, over raw sockets (and epoll, if there are several), with
request bytes built beforehand. A read goes from the start of a stream to its end, again and again, and only counts the
bytes.
"""

import json
import os
import select
import socket
import struct
import sys
import time
from array import array
from collections import Counter
from typing import Any, NamedTuple

RECEIVE_BYTES = 1 << 20

# A connection that the server closed, among the statuses of refusals.
CLOSED = "closed"

NO_ANSWER = "no answer"

# How long answers may stay away when no more requests are sent.
DRAIN_S = 30.0


class AppendLoad(NamedTuple):
    host: str
    port: int
    # One connection per element.
    paths: list[str]
    body_bytes: int
    seconds: float
    # With producer headers: each connection is the producer `<producer>-<number>`, epoch 0. Empty: without.
    producer: str = ""
    requests_max: int = 1 << 60


class ReadLoad(NamedTuple):
    host: str
    port: int
    path: str
    seconds: float
    expected_bytes: int


class LoadResult(NamedTuple):
    # Appends confirmed, or whole reads.
    requests: int
    # Bodies sent and confirmed, or received.
    total_bytes: int
    wall_s: float
    # Of this process.
    cpu_s: float
    p50_ms: float
    p99_ms: float
    # Statuses other than the expected ones.
    refused: dict[str, int]

    @property
    def per_s(self) -> float:
        return self.requests / self.wall_s

    @property
    def mb_per_s(self) -> float:
        return self.total_bytes / self.wall_s / 1e6


def is_complete(answer: bytes) -> bool:
    """Whether one whole HTTP response is there. Those without a body, nearly all, are told by their end: what the
    generator takes for an answer of one kind and not of another would be taken for the server's."""
    if answer.endswith((b"\r\nContent-Length: 0\r\n\r\n", b"\r\ncontent-length: 0\r\n\r\n")):
        return True
    if answer[9:12] == b"204":
        return answer.endswith(b"\r\n\r\n")
    head, ended, body = answer.partition(b"\r\n\r\n")
    if not ended:
        return False
    head = head.lower()
    if b"transfer-encoding: chunked" in head:
        return body.endswith(b"0\r\n\r\n")
    _, found, rest = head.partition(b"content-length:")
    return not found or len(body) >= int(rest.split(b"\r\n", 1)[0])


DIGITS = 8
"""Of a request's number in front of its body."""


class Connection:
    """One closed loop. `unsent` is what the socket's buffer had no room for.

    Every request has its number in it: where its producer's sequence stands, or else in front of its body. So each kind
    takes as long to make, and no kind sends the same bytes again and again.
    """

    __slots__ = (
        "_before", "_body", "_digits_at", "_digits_end", "_format", "_request", "_send", "_sequence", "answer",
        "receive", "sent_at", "socket", "unsent",
    )  # fmt: skip

    def __init__(self, load: AppendLoad, number: int, body: bytes) -> None:
        self.socket = socket.create_connection((load.host, load.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.receive, self._send = self.socket.recv, self.socket.send
        head = (
            f"POST {load.paths[number]} HTTP/1.1\r\nHost: {load.host}:{load.port}\r\n"
            f"Content-Type: application/octet-stream\r\nContent-Length: {len(body)}\r\n"
        )
        assert load.producer or len(body) >= DIGITS, "the number of a request stands in its body"
        self._sequence = 0
        if load.producer:
            head += f"Producer-Id: {load.producer}-{number}\r\nProducer-Epoch: 0\r\nProducer-Seq: "
            self._before, self._body = head.encode(), b"\r\n\r\n" + body
        else:
            self._before, self._body = head.encode() + b"\r\n", body[DIGITS:]
        self._request = bytearray()
        self._digits_at, self._digits_end = len(self._before), 0
        # Of one width in a body, whose length stands before it.
        self._format = b"%d" if load.producer else b"%%0%dd" % DIGITS
        self.answer = b""
        self.unsent: memoryview | None = None
        self.sent_at = 0.0

    def send_next(self) -> bool:
        """Whether all of it is on its way. Its time begins when it is about to be sent: what the generator takes to
        make it is no part of it, as it is none of the raw disk's time."""
        request = self._request
        # Only the digits change: a request that is made anew would take longer than one that is not.
        digits = self._format % self._sequence
        if self._digits_at + len(digits) == self._digits_end:
            request[self._digits_at : self._digits_end] = digits
        else:
            request = self._request = bytearray(self._before + digits + self._body)
            self._digits_end = self._digits_at + len(digits)
        self._sequence += 1
        self.sent_at = time.perf_counter()
        sent = self._send(request)
        if sent == len(request):
            return True
        self.unsent = memoryview(request)[sent:]
        return self.send_more()

    def send_more(self) -> bool:
        assert self.unsent is not None
        try:
            while self.unsent:
                self.unsent = self.unsent[self._send(self.unsent) :]
        except BlockingIOError:
            return False
        self.unsent = None
        return True


class Appender:
    """Runs the connections until the time is up or enough is sent, then waits for the answers still due."""

    def __init__(self, load: AppendLoad) -> None:
        self._load = load
        body = os.urandom(load.body_bytes)
        self._connections: dict[int, Connection] = {}
        for number in range(len(load.paths)):
            connection = Connection(load, number, body)
            self._connections[connection.socket.fileno()] = connection
        self._epoll = select.epoll()
        for handle in self._connections:
            self._epoll.register(handle, select.EPOLLIN)
        self._sent = 0
        self._refused: Counter[str] = Counter()
        self._latencies = array("d")

    def run(self) -> LoadResult:
        expected = b"200" if self._load.producer else b"204"
        connections, latencies, refused = self._connections, self._latencies, self._refused
        cpu, start = time.process_time(), time.perf_counter()
        until = start + self._load.seconds
        for connection in connections.values():
            self._send(connection)
        now = start
        while len(latencies) + refused[CLOSED] < self._sent:
            events = self._epoll.poll(DRAIN_S)
            if not events:
                refused[NO_ANSWER] += self._sent - len(latencies) - refused[CLOSED]
                break
            for handle, event in events:
                connection = connections[handle]
                if event != select.EPOLLIN:
                    self._finish_sending(handle, connection, event)
                    continue
                answer = connection.receive(4096)
                now = time.perf_counter()
                if not answer:
                    self._lose(handle)
                    continue
                if connection.answer:
                    answer = connection.answer + answer
                    connection.answer = b""
                if not is_complete(answer):
                    connection.answer = answer
                    continue
                latencies.append(now - connection.sent_at)
                if answer[9:12] != expected:
                    refused[answer[9:12].decode()] += 1
                if now < until and self._sent < self._load.requests_max:
                    self._send(connection)
        confirmed = self._sent - refused.total()
        now = max(now, start + 1e-9)
        cpu = time.process_time() - cpu
        return result(confirmed, confirmed * self._load.body_bytes, now - start, cpu, latencies, refused)

    def _send(self, connection: Connection) -> None:
        self._sent += 1
        if not connection.send_next():
            self._epoll.modify(connection.socket.fileno(), select.EPOLLOUT)

    def _finish_sending(self, handle: int, connection: Connection, event: int) -> None:
        if event & (select.EPOLLHUP | select.EPOLLERR):
            self._lose(handle)
        elif connection.send_more():
            self._epoll.modify(handle, select.EPOLLIN)

    def _lose(self, handle: int) -> None:
        """The server closed it: its request counts as refused, and there will be no other."""
        self._epoll.unregister(handle)
        self._refused[CLOSED] += 1


def append_alone(load: AppendLoad) -> LoadResult:
    """One connection as a plain client has it: it sends, and sleeps in the read of the answer. What waiting for one of
    many would take on top is nothing that a lone client pays."""
    connection = Connection(load, 0, os.urandom(load.body_bytes))
    connection.socket.setblocking(True)
    # Not by `settimeout`, which would look before every read whether there is something.
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(DRAIN_S), 0))
    expected = b"200" if load.producer else b"204"
    latencies = array("d")
    refused: Counter[str] = Counter()
    sent = 0
    cpu, start = time.process_time(), time.perf_counter()
    now, until = start, start + load.seconds
    while now < until and sent < load.requests_max and not refused[CLOSED] and not refused[NO_ANSWER]:
        connection.send_next()
        sent += 1
        answer = b""
        while not is_complete(answer):
            try:
                more = connection.receive(4096)
            except BlockingIOError:
                refused[NO_ANSWER] += 1
                break
            now = time.perf_counter()
            if not more:
                refused[CLOSED] += 1
                break
            answer += more
        else:
            latencies.append(now - connection.sent_at)
            if answer[9:12] != expected:
                refused[answer[9:12].decode()] += 1
    confirmed = sent - refused.total()
    cpu = time.process_time() - cpu
    return result(confirmed, confirmed * load.body_bytes, max(now - start, 1e-9), cpu, latencies, refused)


class Reader:
    """Reads responses off a blocking socket and throws their bodies away."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port))
        self._view = memoryview(bytearray(RECEIVE_BYTES))
        self._start = 0
        self._end = 0

    def get(self, host: str, target: str) -> tuple[int, dict[bytes, bytes], int]:
        """Status, headers, and how long the body was."""
        self._socket.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        status = int(self._line().split(b" ")[1])
        headers: dict[bytes, bytes] = {}
        while line := self._line():
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip()
        if headers.get(b"transfer-encoding") != b"chunked":
            length = int(headers.get(b"content-length", b"0"))
            self._skip(length)
            return status, headers, length
        total = 0
        while length := int(self._line().split(b";")[0], 16):
            self._skip(length)
            self._line()
            total += length
        self._line()
        return status, headers, total

    def _receive(self) -> None:
        got = self._socket.recv_into(self._view[self._end :])
        if not got:
            raise ConnectionError("the server closed the connection")
        self._end += got

    def _line(self) -> bytes:
        while (at := bytes(self._view[self._start : min(self._end, self._start + 8192)]).find(b"\r\n")) < 0:
            rest = bytes(self._view[self._start : self._end])
            self._view[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
            self._receive()
        line = bytes(self._view[self._start : self._start + at])
        self._start += at + 2
        return line

    def _skip(self, length: int) -> None:
        here = min(length, self._end - self._start)
        self._start += here
        length -= here
        while length:
            got = self._socket.recv_into(self._view, min(length, RECEIVE_BYTES))
            if not got:
                raise ConnectionError("the server closed the connection")
            length -= got
            self._start = self._end = 0


def read_through(load: ReadLoad) -> LoadResult:
    reader = Reader(load.host, load.port)
    latencies = array("d")
    refused: Counter[str] = Counter()
    cpu, start = time.process_time(), time.perf_counter()
    now, total, count = start, 0, 0
    while now - start < load.seconds:
        began, got, offset, done = now, 0, "-1", False
        while not done:
            status, headers, length = reader.get(f"{load.host}:{load.port}", f"{load.path}?offset={offset}")
            if status != 200:
                refused[str(status)] += 1
                break
            got += length
            offset = headers[b"stream-next-offset"].decode()
            done = headers.get(b"stream-up-to-date") == b"true"
        if got != load.expected_bytes:
            raise RuntimeError(f"read {got} bytes, expected {load.expected_bytes}; refused: {dict(refused)}")
        now = time.perf_counter()
        latencies.append(now - began)
        total += got
        count += 1
    return result(count, total, now - start, time.process_time() - cpu, latencies, refused)


def result(
    requests: int, total_bytes: int, wall_s: float, cpu_s: float, latencies: "array[float]", refused: Counter[str]
) -> LoadResult:
    ordered = sorted(latencies) or [0.0]
    p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return LoadResult(requests, total_bytes, wall_s, cpu_s, p50 * 1e3, p99 * 1e3, dict(+refused))


def main() -> None:
    asked: dict[str, Any] = json.load(sys.stdin)
    if "paths" not in asked:
        outcome = read_through(ReadLoad(**asked))
    elif len(asked["paths"]) == 1:
        outcome = append_alone(AppendLoad(**asked))
    else:
        outcome = Appender(AppendLoad(**asked)).run()
    json.dump(outcome._asdict(), sys.stdout)


if __name__ == "__main__":
    main()
