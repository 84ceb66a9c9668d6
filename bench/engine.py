"""`bench engine`: confirmed appends per second and CPU per append, beside the raw disk at the same group size.

Writers are closed loops on the engine's own thread: each submits its next append from the answer to the last one. The
raw row writes blocks of the size that the engine's groups had, over pre-written blocks, with pwritev and fdatasync:
what the disk allows one writer that waits for each sync. Rows are interleaved, `--rounds` times; the best is shown,
since a shared machine only ever takes away. CPU counts the engine's process (all threads) and the index builder's;
"bare" is that of the least journal that Python can be (`bench.bare_journal`), under the same load generator.
"""

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import uvloop
from rich.console import Console
from rich.table import Table
from xxhash import xxh3_128_digest

from bench.bare_journal import BareJournal
from oncelog.core.command import Columns, CreateTopic, one_value
from oncelog.core.flat import ProducerClaim
from oncelog.core.outcome import Confirmed, Outcome
from oncelog.core.producer import SequenceMode
from oncelog.engine.engine import Engine
from oncelog.engine.group import Reply
from oncelog.engine.open import open_engine
from oncelog.storage.disk import PosixDisk
from oncelog.storage.segment import SegmentHeader, prepare_file

KIB = 1024
MakeCommand = Callable[[int, int], Columns]


class Case(NamedTuple):
    name: str
    writers: int
    value_bytes: int
    claim: bool = False
    message_id: bool = False


class Measured(NamedTuple):
    appends_per_s: float
    mb_per_s: float
    cpu_us: float
    index_cpu_us: float
    group_bytes: float
    p50_ms: float
    p99_ms: float


CASES = (
    Case("64 x 1 KB", 64, KIB),
    Case("64 x 1 KB, producer", 64, KIB, claim=True),
    Case("64 x 1 KB, fresh id", 64, KIB, message_id=True),
    Case("512 x 1 KB", 512, KIB),
    Case("5 x 64 KB", 5, 64 * KIB),
    Case("5 x 256 KB", 5, 256 * KIB),
    Case("5 x 1 MB", 5, 1024 * KIB),
)


def commands(case: Case, run: int) -> MakeCommand:
    """A maker of the n-th command of a writer. Values differ in their first bytes, as real ones do."""
    body = os.urandom(case.value_bytes - 16)

    def make(writer: int, number: int) -> Columns:
        value = writer.to_bytes(8, "little") + number.to_bytes(8, "little") + body
        if case.claim:
            digest = xxh3_128_digest(value)
            claim = ProducerClaim(f"http:{run}-{writer}", 0, number, number, SequenceMode.REQUESTS, digest)
            return one_value("bench", 0, value, digest, claim)
        if case.message_id:
            return one_value("bench", 0, value, xxh3_128_digest(value), None, b"%d-%d-%d" % (run, writer, number))
        return one_value("bench", 0, value)

    return make


class NoEngine:
    """Answers everything at once: what is left is the load generator."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def submit(self, _command: Columns, reply: Reply) -> None:
        self.replies.append(reply)


class Driver:
    """Keeps `writers` appends in flight until the time is up."""

    def __init__(self, engine: Engine | NoEngine | BareJournal, case: Case, run: int, seconds: float) -> None:
        self._engine = engine
        self._make = commands(case, run)
        self._writers = case.writers
        self._until = time.perf_counter() + seconds
        self._left = case.writers
        self.finished = asyncio.get_running_loop().create_future()
        self.confirmed = 0
        self.latencies: list[float] = []

    def start(self) -> None:
        for writer in range(self._writers):
            self._next(writer, 0)

    def _next(self, writer: int, number: int) -> None:
        sent = time.perf_counter()

        def reply(outcome: Outcome) -> None:
            assert type(outcome) is Confirmed
            assert not outcome.duplicate
            self.confirmed += 1
            now = time.perf_counter()
            if not number & 15:
                self.latencies.append(now - sent)
            if now < self._until:
                self._next(writer, number + 1)
            else:
                self._left -= 1
                if not self._left:
                    self.finished.set_result(None)

        self._engine.submit(self._make(writer, number), reply)


async def generator_cpu_us(case: Case, seconds: float) -> float:
    """CPU-µs per append that the load generator itself takes, measured alone."""
    nobody = NoEngine()
    driver = Driver(nobody, case, 0, seconds)
    cpu = time.process_time()
    driver.start()
    while not driver.finished.done():
        replies, nobody.replies = nobody.replies, []
        for reply in replies:
            reply(Confirmed(1, 0, 1))
    return (time.process_time() - cpu) / driver.confirmed * 1e6


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def measure(engine: Engine, case: Case, run: int, seconds: float) -> Measured:
    me = psutil.Process()
    children = me.children()
    groups = engine.commits.groups_total
    driver = Driver(engine, case, run, seconds)
    cpu, index_cpu = cpu_seconds(me), sum(map(cpu_seconds, children))
    start = time.perf_counter()
    driver.start()
    await driver.finished
    wall = time.perf_counter() - start
    cpu = cpu_seconds(me) - cpu
    index_cpu = sum(map(cpu_seconds, children)) - index_cpu
    count = driver.confirmed
    groups = engine.commits.groups_total - groups
    latencies = sorted(driver.latencies)
    return Measured(
        count / wall,
        count * case.value_bytes / wall / 1e6,
        cpu / count * 1e6,
        index_cpu / count * 1e6,
        count * case.value_bytes / groups,
        latencies[len(latencies) // 2] * 1e3,
        latencies[len(latencies) * 99 // 100] * 1e3,
    )


async def bare_cpu_us(directory: Path, case: Case, seconds: float) -> float:
    """CPU-µs per append of the least journal, the load generator included as in the engine's own figure."""
    bare = BareJournal(directory / "bare", asyncio.get_running_loop())
    driver = Driver(bare, case, 0, seconds)
    cpu = time.process_time()
    driver.start()
    await driver.finished
    cpu = time.process_time() - cpu
    bare.close()
    shutil.rmtree(directory / "bare")
    return cpu / driver.confirmed * 1e6


def raw_disk(directory: Path, block_bytes: int, seconds: float) -> tuple[float, float]:
    """(MB/s, CPU-µs per block) of pwritev + fdatasync, one block after another over blocks pre-written like ours.

    Like a journal it goes forward and never back: pages written over again and again would stay in the cache and cost
    nothing to find, which no growing log can have.
    """
    size = 512 * KIB * KIB
    disk = PosixDisk(directory / "raw")
    prepare_file(disk, "raw", SegmentHeader(size, bytes(16)))
    block_bytes = max(512, block_bytes // 4096 * 4096)
    block = os.urandom(block_bytes)
    handle = os.open(directory / "raw" / "raw", os.O_WRONLY)
    me = psutil.Process()
    count, position, cpu, start = 0, 0, cpu_seconds(me), time.perf_counter()
    while time.perf_counter() - start < seconds and position + block_bytes <= size:
        os.pwritev(handle, [block], position)
        os.fdatasync(handle)
        position += block_bytes
        count += 1
    wall, cpu = time.perf_counter() - start, cpu_seconds(me) - cpu
    os.close(handle)
    disk.close()
    shutil.rmtree(directory / "raw")
    return count * block_bytes / wall / 1e6, cpu / count * 1e6


async def run_all(directory: Path, cases: tuple[Case, ...], rounds: int, seconds: float) -> None:
    engine = open_engine(directory / "log", asyncio.get_running_loop())
    await engine.execute(CreateTopic("bench"))
    best: dict[str, Measured] = {}
    raw: dict[str, tuple[float, float]] = {}
    bare: dict[str, float] = {}
    for number in range(rounds):
        for case in cases:
            result = await measure(engine, case, number, seconds)
            old = best.get(case.name)
            if old is None or result.appends_per_s > old.appends_per_s:
                best[case.name] = result
            raw[case.name] = max(raw.get(case.name, (0.0, 0.0)), raw_disk(directory, int(result.group_bytes), seconds))
            bare[case.name] = min(bare.get(case.name, 1e9), await bare_cpu_us(directory, case, seconds))
    await engine.close()
    show(cases, best, raw, bare)
    for case in cases:
        Console().print(f"load generator alone, {case.name}: {await generator_cpu_us(case, 1.0):.1f} CPU-µs per append")


def show(
    cases: tuple[Case, ...], best: dict[str, Measured], raw: dict[str, tuple[float, float]], bare: dict[str, float]
) -> None:
    table = Table(title="confirmed appends (fdatasync before every answer)")
    rates = (
        "appends/s",
        "MB/s",
        "raw MB/s",
        "x raw",
        "CPU-µs",
        "raw",
        "bare",
        "+ index",
        "group KB",
        "p50 ms",
        "p99 ms",
    )
    table.add_column("case")
    for column in rates:
        table.add_column(column, justify="right")
    for case in cases:
        row = best[case.name]
        raw_mb_per_s, raw_cpu_us = raw[case.name]
        table.add_row(
            case.name,
            f"{row.appends_per_s:,.0f}",
            f"{row.mb_per_s:,.0f}",
            f"{raw_mb_per_s:,.0f}",
            f"{row.mb_per_s / raw_mb_per_s:.2f}",
            f"{row.cpu_us:.1f}",
            f"{raw_cpu_us * case.value_bytes / row.group_bytes:.1f}",
            f"{bare[case.name]:.1f}",
            f"{row.index_cpu_us:.1f}",
            f"{row.group_bytes / KIB:,.0f}",
            f"{row.p50_ms:.2f}",
            f"{row.p99_ms:.2f}",
        )
    Console(width=130).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench engine", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="oncelog-bench-"))
    cases = tuple(case for case in CASES if options.case in case.name)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_all(directory, cases, options.rounds, options.seconds))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
