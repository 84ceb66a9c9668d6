"""`bench http`: our server beside the reference server of durable-streams (npm), file-backed and in memory, in one run.

Each row is measured on every server in turn, in another order each round; the load generator is a process of its own
(`bench.http_load`) on the same cores. Rates and times are medians over the rounds, ratios are medians of the ratios
within a round. CPU counts all threads of the server's process, from the first request until it is quiet again, so that
what it puts off is counted; ours has a second process that builds the index. "raw" is pwrite of 1 KB and fdatasync over
pre-written blocks in the same directory, before and after each of our rows with one connection: the least that one
durable append can take.

The peer that writes files syncs before it answers, as we do; the one in memory keeps nothing; the bare loop
(`bench.bare_server`) answers a constant, and shows what sockets alone cost on the machine of the day.
"""

import argparse
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from bench.http_client import ClientLoad
from bench.http_load import AppendLoad, LoadResult, ReadLoad
from bench.http_node import ROOT, find_node
from bench.http_report import BARE, OURS, AppendRow, Figures, ReadRow, report
from bench.http_server import Server, start_bare, start_node, start_ours

KIB = 1024
MIB = 1024 * KIB
READ_BYTES = 64 * MIB
QUIET_S_MAX = 3.0
RAW_SECONDS = 0.3

# A load that takes this much longer than it was told has been forgotten by its server.
LOAD_S_MAX = 60.0


class Case(NamedTuple):
    name: str
    connections: int
    streams: int
    body_bytes: int
    producer: bool = False


CASES = (
    Case("1 conn, 100 B", 1, 1, 100),
    Case("1 conn, 1 KB", 1, 1, KIB),
    Case("1 conn, 1 KB, producer", 1, 1, KIB, producer=True),
    Case("64 conn, 1 stream, 100 B", 64, 1, 100),
    Case("64 conn, 1 stream, 1 KB", 64, 1, KIB),
    Case("64 conn, 1 stream, 1 KB, producer", 64, 1, KIB, producer=True),
    Case("64 conn, 64 streams, 100 B", 64, 64, 100),
    Case("64 conn, 64 streams, 1 KB", 64, 64, KIB),
    Case("64 conn, 64 streams, 1 KB, producer", 64, 64, KIB, producer=True),
    Case("8 conn, 64 KB", 8, 1, 64 * KIB),
    Case("8 conn, 1 MB", 8, 1, MIB),
)

# Bodies that the stream read back was written as, and over how many connections.
FILLS = ((KIB, 64), (64 * KIB, 8), (MIB, 8))


class Options(NamedTuple):
    rounds: int
    seconds: float
    read_seconds: float
    # A server that has not written READ_BYTES by then is read as far as it came.
    fill_seconds: float


FULL = Options(rounds=3, seconds=2.0, read_seconds=1.0, fill_seconds=12.0)
QUICK = Options(rounds=1, seconds=0.6, read_seconds=0.5, fill_seconds=2.5)


def call(server: Server, method: str, path: str) -> int:
    connection = http.client.HTTPConnection(server.host, server.port)
    connection.request(method, path, headers={"Content-Type": "application/octet-stream"})
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status


def generate(load: AppendLoad | ReadLoad | ClientLoad) -> LoadResult:
    done = subprocess.run(
        [sys.executable, "-m", "bench.http_client" if isinstance(load, ClientLoad) else "bench.http_load"],
        cwd=ROOT,
        input=json.dumps(load._asdict()),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=load.seconds + LOAD_S_MAX,
    )
    return LoadResult(**json.loads(done.stdout))


class Bench:
    """Streams get a fresh name for every measurement and go when it is over, so that no server's memory runs full."""

    def __init__(self, servers: list[Server], options: Options, directory: Path) -> None:
        self._servers = servers
        self._directory = directory
        self._options = options
        self._run = 0

    def appends(self, server: Server, case: Case, seconds: float) -> AppendRow:
        self._run += 1
        paths = [f"/v1/stream/bench-{self._run}-{number}" for number in range(case.streams)]
        for path in paths:
            assert call(server, "PUT", path) == 201
        server.wait_quiet(QUIET_S_MAX)
        # Beside our rows of one request at a time, where the disk decides: it changes from minute to minute.
        alone = case.connections == 1 and server.name == OURS
        raw_ms = [raw_fdatasync_ms(self._directory, RAW_SECONDS)] if alone else []
        spread = [paths[number % case.streams] for number in range(case.connections)]
        producer = f"run{self._run}" if case.producer else ""
        before = server.cpu()
        load = generate(AppendLoad(server.host, server.port, spread, case.body_bytes, seconds, producer))
        server.wait_quiet(QUIET_S_MAX)
        after = server.cpu()
        memory = server.memory_bytes()
        raw_ms += [raw_fdatasync_ms(self._directory, RAW_SECONDS)] if alone else []
        for path in paths:
            assert call(server, "DELETE", path) == 204
        figures = Figures(
            case.name, server.name, load, after.main_s - before.main_s, after.children_s - before.children_s
        )
        return AppendRow(figures, case.connections, case.body_bytes, case.producer, memory, raw_ms)

    def client(self, server: Server, in_flight: int, *, batched: bool) -> Figures:
        """Our client appends records of 1 KB, one per request or in large batches."""
        self._run += 1
        topic = f"client-{self._run}"
        assert call(server, "PUT", f"/v1/stream/{topic}") == 201
        server.wait_quiet(QUIET_S_MAX)
        before = server.cpu()
        load = generate(ClientLoad(server.host, server.port, topic, KIB, self._options.seconds, in_flight, batched))
        server.wait_quiet(QUIET_S_MAX)
        after = server.cpu()
        assert call(server, "DELETE", f"/v1/stream/{topic}") == 204
        name = f"{in_flight} in flight, {'large batches' if batched else 'one record each'}"
        return Figures(name, server.name, load, after.main_s - before.main_s, after.children_s - before.children_s)

    def fill(self, server: Server, body_bytes: int, connections: int) -> tuple[str, int]:
        """A stream to read back and how many bytes it holds, 0 if the server refused some."""
        path = f"/v1/stream/read-{body_bytes}"
        assert call(server, "PUT", path) == 201
        load = AppendLoad(
            server.host,
            server.port,
            [path] * connections,
            body_bytes,
            self._options.fill_seconds,
            requests_max=READ_BYTES // body_bytes,
        )
        written = generate(load)
        return path, 0 if written.refused else written.total_bytes

    def read(self, server: Server, body_bytes: int, path: str, stream_bytes: int) -> ReadRow:
        server.wait_quiet(QUIET_S_MAX)
        before = server.cpu()
        load = generate(ReadLoad(server.host, server.port, path, self._options.read_seconds, stream_bytes))
        after = server.cpu()
        name = f"{stream_bytes / MIB:.0f} MiB written as {size_name(body_bytes)}"
        figures = Figures(name, server.name, load, after.main_s - before.main_s, after.children_s - before.children_s)
        return ReadRow(figures, body_bytes, stream_bytes)

    def in_turn(self, number: int) -> list[Server]:
        """All servers, another one first in every round."""
        at = number % len(self._servers)
        return self._servers[at:] + self._servers[:at]

    def run_appends(self, cases: tuple[Case, ...]) -> list[list[AppendRow]]:
        """A list of rows per round, after a short round that only warms up."""
        for server in self._servers:
            self.appends(server, CASES[4], min(1.0, self._options.seconds))
        rounds = []
        for number in range(self._options.rounds):
            rows = []
            for case in cases:
                for server in self.in_turn(number):
                    rows.append(self.appends(server, case, self._options.seconds))
                    say(f"round {number + 1}: {rows[-1].figures.short()}")
            rounds.append(rows)
        return rounds

    def run_reads(self) -> list[list[ReadRow]]:
        filled: list[tuple[Server, int, str, int]] = []
        for body_bytes, connections in FILLS:
            for server in (server for server in self._servers if server.name != BARE):
                filled.append((server, body_bytes, *self.fill(server, body_bytes, connections)))
                say(f"written: {filled[-1][3] / MIB:.0f} MiB as {size_name(body_bytes)} on {server.name}")
        rounds = []
        for number in range(self._options.rounds):
            rows = []
            for body_bytes, _ in FILLS:
                for server in self.in_turn(number):
                    rows += [self.read(*fill) for fill in filled if fill[:2] == (server, body_bytes) and fill[3]]
            for row in rows:
                say(f"round {number + 1}: {row.figures.short()}")
            rounds.append(rows)
        return rounds

    def run_clients(self) -> list[list[Figures]]:
        """Ours alone: the peers do not take batches of records."""
        ours = [server for server in self._servers if server.name == OURS]
        rounds = []
        for number in range(self._options.rounds):
            rows = []
            for server in ours:
                for batched in (False, True):
                    for in_flight in (1, 5):
                        rows.append(self.client(server, in_flight, batched=batched))
                        say(f"round {number + 1}: our client, {rows[-1].short()}")
            rounds.append(rows)
        return rounds


def size_name(size: int) -> str:
    return f"{size // MIB} MB" if size >= MIB else f"{size // KIB} KB"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def raw_fdatasync_ms(directory: Path, seconds: float) -> float:
    """p50 of pwrite of 1 KB + fdatasync, one after another over blocks that were written before."""
    size = 16 * MIB
    path = directory / "raw"
    path.write_bytes(os.urandom(size))
    handle = os.open(path, os.O_WRONLY)
    os.fsync(handle)
    block = os.urandom(KIB)
    times: list[float] = []
    start = time.perf_counter()
    for position in range(0, size, KIB):
        began = time.perf_counter()
        os.pwrite(handle, block, position)
        os.fdatasync(handle)
        now = time.perf_counter()
        times.append(now - began)
        if now - start > seconds:
            break
    os.close(handle)
    path.unlink()
    return median(times) * 1e3


def busy_s() -> float:
    """CPU that the whole machine has spent, stolen time included."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def own_cpu_s(servers: list[Server]) -> float:
    """What of it is ours: this process, the loads that have ended, the servers."""
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return own + sum(sum(server.cpu()) for server in servers)


def run(directory: Path, options: Options, chosen: str, starters: dict[str, Callable[[], Server]]) -> dict[str, object]:
    cases = tuple(case for case in CASES if chosen in case.name)
    servers: list[Server] = []
    try:
        servers += [start() for start in starters.values()]
        start, busy, own = time.monotonic(), busy_s(), own_cpu_s(servers)
        bench = Bench(servers, options, directory)
        appends = bench.run_appends(cases)
        reads = bench.run_reads() if not chosen else []
        clients = bench.run_clients() if not chosen else []
        others = (busy_s() - busy - own_cpu_s(servers) + own) / (time.monotonic() - start)
    finally:
        for server in servers:
            server.close()
    return report(appends, reads, clients, others)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench http", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="about a minute, one round")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--case", default="", help="only appends whose name contains this, nothing else")
    parser.add_argument("--directory", type=Path, help="on the disk to measure; a temporary one if not given")
    parser.add_argument("--json", type=Path, help="write every measurement here")
    parser.add_argument("--server", action="append", choices=("oncelog", "node file", "node memory", BARE))
    arguments = parser.parse_args()
    options = QUICK if arguments.quick else FULL
    options = options._replace(rounds=arguments.rounds or options.rounds, seconds=arguments.seconds or options.seconds)
    directory = Path(tempfile.mkdtemp(prefix="oncelog-http-", dir=arguments.directory))
    starters: dict[str, Callable[[], Server]] = {
        "oncelog": lambda: start_ours(directory / "oncelog"),
        "node file": lambda: start_node(directory / "node-file", file_store=True),
        "node memory": lambda: start_node(directory / "node-memory", file_store=False),
        BARE: lambda: start_bare(directory / "bare"),
    }
    if arguments.server:
        starters = {name: starters[name] for name in arguments.server}
    try:
        found = run(directory, options, arguments.case, starters)
    finally:
        shutil.rmtree(directory)
    if arguments.json:
        machine = {"node": find_node().version, "python": sys.version.split()[0], "cores": os.cpu_count()}
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        found = {"when": when, "machine": machine, "options": options._asdict()} | found
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
