"""What HTTP itself costs of an append: CPU-us per request of the server's own code, without sockets, engine or disk.

`python -m bench http_layer`: real connections, parser, router and answers on transports that throw the bytes away and
an engine that confirms whatever it gets, in groups as the real one does. On a shared machine a rate over sockets swings
by half; this swings by a tenth, so the least of several rounds is told. `--profile` shows where one case spends it.
"""

import argparse
import asyncio
import cProfile
import os
import pstats
import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from rich.console import Console
from rich.table import Table

from oncelog.core.outcome import Confirmed, Outcome
from oncelog.core.txn import DEFAULT_TIMEOUTS
from oncelog.engine.engine import Engine
from oncelog.servers.face import FaceContext
from oncelog.servers.http.connection import Connection
from oncelog.servers.http.server import HttpServer
from oncelog.servers.http.settings import HttpSettings

REQUESTS = 6_400
"""Of one round, over all connections."""


class Case(NamedTuple):
    name: str
    connections: int
    body_bytes: int
    headers: str = ""
    """`{number}` is the connection's, `{seq}` rises with each request."""
    pipelined: int = 1

    @property
    def turns(self) -> int:
        """Reads of the socket per connection."""
        return REQUESTS // self.connections // self.pipelined


PRODUCER = "Producer-Id: bench-{number}\r\nProducer-Epoch: 0\r\nProducer-Seq: {seq}\r\n"
X_PRODUCER = "X-Producer-Id: bench-{number}\r\nX-Producer-Session: s-{number}\r\nX-Producer-Seq: {seq}\r\n"
BROWSER = "User-Agent: node\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n"

CASES = (
    Case("64 connections, 100 B", 64, 100),
    Case("64 connections, 1 KB", 64, 1000),
    Case("the same, producer headers", 64, 1000, PRODUCER),
    Case("the same, X-producer headers", 64, 1000, X_PRODUCER),
    Case("the same, headers of a browser", 64, 1000, BROWSER),
    Case("the same, producer and browser", 64, 1000, BROWSER + PRODUCER),
    Case("a message id that is new each time", 64, 1000, "Stream-Message-Id: id-{number}-{seq}\r\n"),
    Case("1 connection, 1 KB", 1, 1000),
    Case("8 connections, 16 pipelined, 1 KB, producer", 8, 1000, PRODUCER, 16),
)


class Sink(asyncio.Transport):
    """A client that reads everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class Confirming:
    """An engine that says yes, to all of a group one after another."""

    overloaded = False

    def __init__(self) -> None:
        self.lookups = self
        self.reads = self
        self.txn_timeouts = DEFAULT_TIMEOUTS
        self._group: list[tuple[Callable[[Outcome], None], Any]] = []
        self._next = 0

    def name_of(self, _stream_id: int) -> tuple[str, int] | None:
        return None

    def when_none_waits(self, _told: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    def now_ns(self) -> int:
        return time.time_ns()

    def submit(self, command: Any, reply: Callable[[Outcome], None]) -> bool:
        self._group.append((reply, command))
        return False

    def answer(self) -> None:
        group, self._group = self._group, []
        first = self._next
        for reply, command in group:
            claim = command.claim
            if claim is None:
                outcome = Confirmed(1, first, first + 1, 1)
            else:
                outcome = Confirmed(1, first, first + 1, 1, False, False, max(claim.epoch, 0), claim.last)
            first += 1
            reply(outcome)
        self._next = first


def requests_of(case: Case, number: int) -> list[bytes]:
    """What one connection sends, one read of the socket each."""
    body = os.urandom(case.body_bytes)
    head = (
        "POST /v1/stream/bench HTTP/1.1\r\nHost: 127.0.0.1:4437\r\nContent-Type: application/octet-stream\r\n"
        f"Content-Length: {case.body_bytes}\r\n{case.headers}\r\n"
    )
    single = [
        head.replace("{number}", str(number)).replace("{seq}", str(sequence)).encode() + body
        for sequence in range(case.turns * case.pipelined)
    ]
    return [b"".join(single[at : at + case.pipelined]) for at in range(0, len(single), case.pipelined)]


def run(case: Case, loop: asyncio.AbstractEventLoop) -> tuple[float, bytes]:
    """CPU-us per request, and the last answer."""
    engine = Confirming()
    server = HttpServer(FaceContext(cast(Engine, engine), loop), HttpSettings())
    sinks, connections = [], []
    for _ in range(case.connections):
        sink, connection = Sink(), Connection(server)
        connection.connection_made(sink)
        sinks.append(sink)
        connections.append(connection)
    turns = list(zip(*[requests_of(case, number) for number in range(case.connections)], strict=True))
    began = time.process_time()
    for turn in turns:
        for connection, data in zip(connections, turn, strict=True):
            connection.data_received(data)
        engine.answer()
    spent = time.process_time() - began
    answers = sum(len(sink.written) for sink in sinks)
    count = case.turns * case.pipelined * case.connections
    assert server.counts.confirms == count, server.counts.confirms
    assert answers <= count
    return spent / count * 1e6, sinks[-1].written[-1]


def driver_cost() -> float:
    """CPU-us per request of this benchmark itself: the loops, the fake engine, its outcomes."""
    engine = Confirming()
    sink = Sink()

    class Command:
        claim = None

    def reply(_outcome: Outcome) -> None:
        sink.write(b"")

    began = time.process_time()
    for _ in range(REQUESTS // 64):
        for _ in range(64):
            engine.submit(Command, reply)
        engine.answer()
    return (time.process_time() - began) / REQUESTS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench http_layer", description=__doc__)
    parser.add_argument("--case", default="", help="only cases whose name holds this")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--plain", action="store_true", help="one line per case: name, tab, CPU-us")
    options = parser.parse_args()
    loop = asyncio.new_event_loop()
    cases = [case for case in CASES if options.case in case.name]
    if options.profile:
        for case in cases:
            profile = cProfile.Profile()
            profile.runcall(run, case, loop)
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        return
    least = {case.name: min(run(case, loop)[0] for _ in range(options.rounds)) for case in cases}
    console = Console()
    if options.plain:
        for name, spent in least.items():
            console.print(f"{name}\t{spent:.3f}", highlight=False)
        return
    table = Table("append", "CPU-us", title=f"of it this benchmark: {min(driver_cost() for _ in range(15)):.2f}")
    for name, spent in least.items():
        table.add_row(name, f"{spent:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
