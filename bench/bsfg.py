"""`bench bsfg`: AppendFact beside a plain HTTP append of the same record, and beside the same facts in nats-server with
`Nats-Msg-Id` and `sync_interval: always`, in alternating rounds.

The load generator is raw sockets: 8 connections with 8 requests each on their way, sent anew when all are answered; for
nats-server one connection with 64. All sync before they confirm. CPU counts the server's process, all threads.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil

from bench.nats import Link, theirs
from oncelog.protocols.bsfg import messages

CONNECTIONS = 8
WINDOW = 8
STREAM = "/v1/stream/plain"
APPEND = "/bsfg.v1.BoundaryService/AppendFact"
OBJECT = '{"celsius":21.5,"rpm":1480,"state":"running","line":"north"}'

Load = Callable[[int, float], tuple[int, float]]


class Http:
    """Connections that send requests and count successes."""

    def __init__(self, port: int) -> None:
        self._sockets = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(CONNECTIONS)]
        for each in self._sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def load(self, request: Callable[[int], bytes], seconds: float) -> tuple[int, float]:
        """(requests, seconds)."""
        begin, done = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            for number, each in enumerate(self._sockets):
                first = done + number * WINDOW
                each.sendall(b"".join(request(first + at) for at in range(WINDOW)))
            for each in self._sockets:
                seen = b""
                while seen.count(b"HTTP/1.1 ") < WINDOW or not seen.endswith((b"}", b"\r\n\r\n")):
                    seen += each.recv(1 << 16)
                assert seen.count(b"HTTP/1.1 2") == WINDOW, seen[:500]
            done += CONNECTIONS * WINDOW
        return done, time.perf_counter() - begin

    def close(self) -> None:
        for each in self._sockets:
            each.close()


def post(path: str, body: bytes, kind: str = "application/json", more: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def fact(number: int, run: int) -> dict[str, object]:
    envelope = {
        "message_id": f"bench-{run}-{number}",
        "from_zone": "plant",
        "to_zone": "office",
        "produced_at_unix_ms": 1_780_000_000_000 + number,
    }
    body = {"subject": f"pump:plant/{number % 50}", "predicate": "was_measured", "object_json": OBJECT}
    return {"envelope": envelope, "fact": body}


RUN = iter(range(1 << 30))


def loaded(port: int, seconds: float, request: Callable[[int], bytes]) -> tuple[int, float]:
    http = Http(port)
    try:
        return http.load(request, seconds)
    finally:
        http.close()


def plain(port: int, seconds: float) -> tuple[int, float]:
    value = f'{{"object":{OBJECT},"predicate":"was_measured","subject":"pump:plant/7"}}'.encode()
    one = post(STREAM, value)
    return loaded(port, seconds, lambda _: one)


def plain_with_id(port: int, seconds: float) -> tuple[int, float]:
    value = f'{{"object":{OBJECT},"predicate":"was_measured","subject":"pump:plant/7"}}'.encode()
    run = next(RUN)
    return loaded(port, seconds, lambda n: post(STREAM, value, more=f"Stream-Message-Id: bench-{run}-{n}\r\n"))


def facts_json(port: int, seconds: float) -> tuple[int, float]:
    run = next(RUN)
    return loaded(port, seconds, lambda number: post(APPEND, json.dumps(fact(number, run)).encode()))


def facts_protobuf(port: int, seconds: float) -> tuple[int, float]:
    run = next(RUN)

    def request(number: int) -> bytes:
        return post(APPEND, messages.to_protobuf("AppendFactRequest", fact(number, run)), "application/proto")

    # An answer in protobuf ends with no mark that could be looked for, so they are read by their lengths.
    http = HttpByLength(port)
    try:
        return http.load(request, seconds)
    finally:
        http.close()


class HttpByLength(Http):
    """As `Http`, for answers with any body."""

    def load(self, request: Callable[[int], bytes], seconds: float) -> tuple[int, float]:
        files = [each.makefile("rb") for each in self._sockets]
        begin, done = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            for number, each in enumerate(self._sockets):
                each.sendall(b"".join(request(done + number * WINDOW + at) for at in range(WINDOW)))
            for file in files:
                for _ in range(WINDOW):
                    assert file.readline().startswith(b"HTTP/1.1 2")
                    length = 0
                    while (line := file.readline()) != b"\r\n":
                        if line.lower().startswith(b"content-length:"):
                            length = int(line.split(b":")[1])
                    file.read(length)
            done += CONNECTIONS * WINDOW
        return done, time.perf_counter() - begin


def nats_facts(port: int, seconds: float) -> tuple[int, float]:
    link, run, in_flight = Link(port), next(RUN), CONNECTIONS * WINDOW
    link.api(f"STREAM.CREATE.F{run}", {"name": f"F{run}", "subjects": [f"f{run}"]})
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        pieces = []
        for number in range(done, done + in_flight):
            payload = json.dumps(fact(number, run)).encode()
            head = f"NATS/1.0\r\nNats-Msg-Id: bench-{run}-{number}\r\n\r\n".encode()
            line = f"HPUB f{run} _IN.b {len(head)} {len(head) + len(payload)}\r\n".encode()
            pieces.append(line + head + payload + b"\r\n")
        link.send(b"".join(pieces))
        link.count_to(b'"seq":', in_flight)
        done += in_flight
    took = time.perf_counter() - begin
    link.close()
    return done, took


@contextmanager
def ours(folder: Path) -> Iterator[tuple[int, psutil.Process]]:
    program = "from oncelog.cli.main import main; main()"
    command = [sys.executable, "-c", program, "serve", "--any-port", "--zone", "plant", "--data", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        words = dict(word.split("=", 1) for word in process.stdout.readline().split() if "=" in word)
        port = int(words["http"].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), 30) as link:
            head = f"PUT {STREAM} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n"
            link.sendall(head.encode())
            assert link.recv(1 << 16).startswith(b"HTTP/1.1 201")
        try:
            yield port, psutil.Process(process.pid)
        finally:
            process.terminate()


LOADS: tuple[tuple[str, Load], ...] = (
    ("plain append", plain),
    ("plain append, message id", plain_with_id),
    ("AppendFact, JSON", facts_json),
    ("AppendFact, protobuf", facts_protobuf),
)
NATS = "nats-server always, Nats-Msg-Id"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench bsfg", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    rates: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}

    def note(name: str, load: Load, port: int, process: psutil.Process) -> None:
        before = sum(process.cpu_times()[:2])
        count, took = load(port, options.seconds)
        costs.setdefault(name, []).append((sum(process.cpu_times()[:2]) - before) / count * 1e6)
        rates.setdefault(name, []).append(count / took)

    with tempfile.TemporaryDirectory() as folder:
        always = theirs('sync_interval: "always"')
        with ours(Path(folder) / "ours") as (port, process), always(Path(folder) / "nats") as (nats_port, nats):
            for number in range(options.rounds):
                for name, load in LOADS[number % len(LOADS) :] + LOADS[: number % len(LOADS)]:
                    note(name, load, port, process)
                note(NATS, nats_facts, nats_port, nats)
    base = rates["plain append"]
    print(f"{'':34}{'facts/s':>10}{'CPU µs':>9}{'÷ plain':>9}{'÷ nats':>9}")
    for name, found in rates.items():
        by_plain = median(rate / other for rate, other in zip(found, base, strict=True))
        by_nats = median(rate / other for rate, other in zip(found, rates[NATS], strict=True))
        print(f"{name:34}{median(found):>10,.0f}{median(costs[name]):>9.1f}{by_plain:>9.2f}{by_nats:>9.2f}")
    print(f"medians of {options.rounds} rounds; load of the machine at the end: {os.getloadavg()[0]:.1f}")
