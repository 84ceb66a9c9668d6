"""`bench growth`: what an append, a restart and a byte of memory cost when the log has become large.

Parts (`--part`): streams, ids, memory, restart, stall. CPU per append counts the engine's process; the index builder's
is shown beside it. Sizes can be scaled down with `--scale` for a quick look.
"""

import argparse
import asyncio
import ctypes
import gc
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import psutil
import uvloop
from rich.console import Console
from rich.table import Table
from xxhash import xxh3_128_digest

from bench.engine import cpu_seconds
from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import Append, Columns, Command, CreateTopic
from oncelog.core.flat import ProducerClaim
from oncelog.core.outcome import Confirmed, Outcome, Refusal
from oncelog.core.producer import SequenceMode
from oncelog.engine.engine import Engine
from oncelog.engine.open import open_engine

KIB = 1024
WRITERS = 64
PARTITIONS = 10_000


async def drive(engine: Engine, commands: "list[Command] | CommandMaker", count: int, in_flight: int = WRITERS) -> None:
    """Submit `count` commands, `in_flight` at a time, and wait for the last answer."""
    finished = asyncio.get_running_loop().create_future()
    sent = answered = 0

    def reply(outcome: Outcome) -> None:
        nonlocal answered
        assert not isinstance(outcome, Refusal), outcome
        answered += 1
        if answered == count:
            finished.set_result(None)
        else:
            send()

    def send() -> None:
        nonlocal sent
        if sent < count:
            number, sent = sent, sent + 1
            engine.submit(commands[number], reply)

    for _ in range(min(in_flight, count)):
        send()
    await finished


class CommandMaker:
    """The n-th command, made when it is asked for."""

    def __init__(self, streams: int = 1, *, ids: bool = False, tag: int = 0) -> None:
        self._streams = streams
        self._ids = ids
        self._tag = tag
        self._body = os.urandom(KIB - 8)

    def __getitem__(self, number: int) -> Append:
        value = number.to_bytes(8, "little") + self._body
        stream = number * 7919 % self._streams
        topic, partition = f"t{stream // PARTITIONS}", stream % PARTITIONS
        batch = codec.encode_one(value, 1_700_000_000_000)
        if self._ids:
            return Append(topic, partition, batch, 1, xxh3_128_digest(value), None, b"%d:%d" % (self._tag, number))
        return Append(topic, partition, batch, 1)


async def cpu_per_append(engine: Engine, commands: CommandMaker, count: int) -> tuple[float, float, float]:
    """(CPU-µs per append of the engine, of the index builder, appends per second)."""
    me = psutil.Process()
    children = me.children()
    cpu, index_cpu, start = cpu_seconds(me), sum(map(cpu_seconds, children)), time.perf_counter()
    await drive(engine, commands, count)
    wall = time.perf_counter() - start
    cpu, index_cpu = cpu_seconds(me) - cpu, sum(map(cpu_seconds, children)) - index_cpu
    return cpu / count * 1e6, index_cpu / count * 1e6, count / wall


async def create_streams(engine: Engine, streams: int, prefix: str = "t") -> None:
    for number in range((streams + PARTITIONS - 1) // PARTITIONS):
        outcome = await engine.execute(CreateTopic(f"{prefix}{number}", min(PARTITIONS, streams - number * PARTITIONS)))
        assert not isinstance(outcome, Refusal), outcome


def open_bench(directory: Path) -> Engine:
    return open_engine(directory, asyncio.get_running_loop())


async def part_streams(directory: Path, scale: float) -> Table:
    table = Table(title="CPU per 1 KB append by number of streams")
    for column in ("streams", "CPU-µs", "+ index", "appends/s", "x first"):
        table.add_column(column, justify="right")
    first = 0.0
    for streams in (10, 10_000, int(200_000 * scale)):
        engine = open_bench(directory / f"streams-{streams}")
        await create_streams(engine, streams)
        await drive(engine, CommandMaker(streams), max(streams, 20_000))
        cpu, index_cpu, rate = await cpu_per_append(engine, CommandMaker(streams), int(400_000 * scale))
        await engine.close()
        first = first or cpu
        table.add_row(f"{streams:,}", f"{cpu:.1f}", f"{index_cpu:.1f}", f"{rate:,.0f}", f"{cpu / first:.2f}")
    return table


async def fill_ids(engine: Engine, first: int, next_: int) -> None:
    """Remember the ids from `first` on quickly: 1,000 small records to a batch, each with an id of its own."""

    class Batches:
        def __getitem__(self, number: int) -> Columns:
            begin = first + number * 1_000
            ids = [b"fill:%d" % n for n in range(begin, begin + 1_000)]
            return Columns("t0", 0, [b""] * 1_000, message_ids=ids)

    await drive(engine, Batches(), (next_ - first) // 1_000, 4)  # type: ignore[arg-type]


async def part_ids(directory: Path, scale: float) -> Table:
    table = Table(title="CPU per 1 KB append with a fresh message id, by number of remembered ids")
    for column in ("ids", "CPU-µs", "+ index", "appends/s", "x first", "fill s"):
        table.add_column(column, justify="right")
    engine = open_bench(directory / "ids")
    await create_streams(engine, 1)
    first, filled = 0.0, 0
    for ids in (int(1_000_000 * scale), int(20_000_000 * scale)):
        start = time.perf_counter()
        await fill_ids(engine, filled, ids)
        wall = time.perf_counter() - start
        filled = ids
        cpu, index_cpu, rate = await cpu_per_append(engine, CommandMaker(ids=True, tag=ids), int(300_000 * scale))
        first = first or cpu
        table.add_row(f"{ids:,}", f"{cpu:.1f}", f"{index_cpu:.1f}", f"{rate:,.0f}", f"{cpu / first:.2f}", f"{wall:.0f}")
    await engine.close()
    return table


def resident_bytes() -> int:
    """Of this process alone: the mirror, which fills as groups are written, is shared memory and not in it."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is free is nobody's
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * KIB


class Large:
    """Appends of 1 MiB."""

    def __init__(self) -> None:
        self._batch = codec.encode_one(os.urandom(limits.MIB), 1)

    def __getitem__(self, _number: int) -> Append:
        return Append("t0", 0, self._batch, 1)


class Producers:
    """Five appends of each producer, one after the other."""

    def __getitem__(self, number: int) -> Append:
        claim = ProducerClaim(f"http:{number // 5}", 0, number % 5, number % 5, SequenceMode.REQUESTS, b"d" * 16)
        return Append("t0", 0, codec.encode_one(b"x", 1), 1, b"d" * 16, claim)


async def part_memory(directory: Path, scale: float) -> Table:
    """Each kind in an engine of its own: what one leaves behind when the index has it would be taken off the next."""
    table = Table(title="memory per thing, while it is newer than the index or cached")
    for column in ("what", "count", "bytes each"):
        table.add_column(column, justify="right")
    count = int(200_000 * scale)
    for what, each in (("producer with five batches", 5), ("message id newer than the index", 1), ("idle stream", 1)):
        engine = open_bench(directory / what)
        await create_streams(engine, 1)
        await engine.execute(CommandMaker()[0])
        before = resident_bytes()
        if what.startswith("producer"):
            await drive(engine, Producers(), count, 1)  # type: ignore[arg-type]
        elif what.startswith("message"):
            await fill_ids(engine, 0, count)
        else:
            await create_streams(engine, count, "idle")
        after = resident_bytes()
        table.add_row(what, f"{count // each:,}", f"{(after - before) / (count // each):.0f}")
        await engine.close()
    return table


FILL = """
import asyncio, os, sys, uvloop
from pathlib import Path
from bench.growth import CommandMaker, Large, create_streams, drive, open_bench

async def main(directory, large, small):
    engine = open_bench(Path(directory))
    await create_streams(engine, 100)
    await drive(engine, Large(), large, 4)
    await drive(engine, CommandMaker(100), small)
    os._exit(9)

uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""


async def part_restart(directory: Path, scale: float) -> Table:
    table = Table(title="restart")
    for column in ("log", "stopped by", "entries replayed", "seconds to open"):
        table.add_column(column, justify="right")
    path = directory / "restart"
    large = int(10_000 * scale)
    command = [sys.executable, "-c", FILL, str(path), str(large), "150000"]
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 9
    for reason in ("kill", "clean stop"):
        start = time.perf_counter()
        engine = open_bench(path)
        wall = time.perf_counter() - start
        outcome = await engine.execute(CommandMaker(100)[0])
        assert isinstance(outcome, Confirmed)
        size = engine.statistics().journal.used_bytes
        table.add_row(f"{size / 1e9:.1f} GB", reason, f"{engine.statistics().replayed_entries:,}", f"{wall:.2f}")
        await engine.close()
    return table


async def part_stall(directory: Path, scale: float) -> Table:
    """How late the loop runs a callback that is due every millisecond, while checkpoints come and go."""
    engine = open_bench(directory / "stall")
    streams = int(20_000 * scale)
    await create_streams(engine, streams)
    loop = asyncio.get_running_loop()
    late: list[float] = []
    running = True

    def beat(due: float) -> None:
        now = loop.time()
        late.append(now - due)
        if running:
            loop.call_at(now + 0.001, beat, now + 0.001)

    beat(loop.time())
    start = time.perf_counter()
    indexed = engine.generations.indexed_group
    # Half a millisecond of pause between rounds, so that what is measured is not the load's own length.
    for _ in range(int(1_500 * scale)):
        await drive(engine, CommandMaker(streams, ids=True, tag=len(late)), 128)
    running = False
    wall = time.perf_counter() - start
    checkpoints = engine.generations.indexed_group != indexed
    await engine.close()
    late.sort()
    table = Table(title="lateness of the loop beside indexing (ms)")
    for column in ("appends/s", "p50", "p99", "p99.9", "max", "checkpoints seen"):
        table.add_column(column, justify="right")
    points = [late[int(len(late) * share)] * 1e3 for share in (0.5, 0.99, 0.999)]
    rate = int(1_500 * scale) * 128 / wall
    table.add_row(f"{rate:,.0f}", *(f"{p:.2f}" for p in points), f"{late[-1] * 1e3:.2f}", str(checkpoints))
    return table


PARTS = {
    "streams": part_streams,
    "ids": part_ids,
    "memory": part_memory,
    "restart": part_restart,
    "stall": part_stall,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench growth", description=__doc__)
    parser.add_argument("--part", choices=tuple(PARTS), action="append")
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="oncelog-growth-"))
    try:
        for name in options.part or PARTS:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                Console(width=120).print(runner.run(PARTS[name](directory, options.scale)))
            shutil.rmtree(directory)
            directory.mkdir()
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
