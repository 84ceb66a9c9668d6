"""`bench spark`: our connector beside Parquet and beside Spark's Kafka connector on Apache Kafka, in one session.

Each case is run once for every side to warm up, then in rounds, the sides in turn and another one first each time; and
right before each measurement with a few rows, so that starting Python processes is not measured.
Rates are medians over the rounds, ratios medians of the ratios within a round. CPU counts the JVM, all Python processes
of Spark, and the server (with its index builder, until it is quiet); bytes are those of keys and values.

Ours syncs before it confirms and is exactly-once; the peer's write is at-least-once, and its broker leaves syncing to
the kernel. Kafka and the connector come from Maven, see `bench.spark_kafka`; without them the rest is measured.
"""

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench import spark_kafka
from bench.http import busy_s, say
from bench.http_server import Server, start_ours
from bench.spark_kafka import KafkaJars, KafkaMissing
from bench.spark_load import (
    BATCH_READ,
    KAFKA,
    LAND,
    OURS,
    PARTITIONS,
    STREAM_READ,
    WRITE,
    Figures,
    Jobs,
    accounts,
    made_session,
    measured,
    spent_between,
)
from bench.spark_report import report
from oncelog.spark import java

CASES = (BATCH_READ, STREAM_READ, WRITE, LAND)
QUIET_S_MAX = 5.0


class Options(NamedTuple):
    rows: int
    rounds: int


FULL = Options(rows=1_000_000, rounds=3)
QUICK = Options(rows=100_000, rounds=1)


class Bench:
    """One session, one server, and a broker if there is one."""

    def __init__(self, spark: Any, directory: Path, ours: Server, broker: spark_kafka.Broker | None) -> None:
        self._ours = ours
        self._broker = broker
        self._jobs = Jobs(spark, directory, ours.url, broker)
        self.jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)

    def run(self, options: Options, cases: tuple[str, ...]) -> list[Figures]:
        total_bytes = self._jobs.make(options.rows)
        say(f"{options.rows:,} rows, {total_bytes / 1e6:,.0f} MB of keys and values")
        table = {which: job for which, job in self._jobs.table().items() if which[0] in cases}
        for (case, side), job in table.items():
            self._jobs.before(case, side)
            say(f"warming up: {case}, {side}: {job():,} rows")
        rows: list[Figures] = []
        for number in range(options.rounds):
            for case in cases:
                sides = [side for of, side in table if of == case]
                at = number % len(sides)
                for side in sides[at:] + sides[:at]:
                    rows.append(self._measured(table[case, side], case, side, number, options.rows, total_bytes))
        return sorted(rows, key=lambda row: (row.round, cases.index(row.case), list(table).index((row.case, row.side))))

    def _measured(
        self, job: Callable[[], int], case: str, side: str, number: int, rows: int, total_bytes: int
    ) -> Figures:
        settle, cpu_s = (lambda: None), (lambda: 0.0)
        if side == OURS:
            settle, cpu_s = (lambda: self._ours.wait_quiet(QUIET_S_MAX)), (lambda: sum(self._ours.cpu()))
        elif side == KAFKA and self._broker is not None:
            cpu_s = self._broker.cpu_s
        self._jobs.wake(case, side, job)
        self._jobs.before(case, side)
        moved, wall_s, took, server_s = measured(self.jvm, job, cpu_s, settle)
        assert moved == rows, f"{case}, {side}: {moved:,} of {rows:,} rows"
        figures = Figures(case, side, number, rows, total_bytes, wall_s, took.jvm_s, took.python_s, server_s)
        cpu = f"{figures.jvm_s:.1f} + {figures.python_s:.1f} + {server_s:.1f} CPU-s"
        say(f"round {number + 1}: {case}, {side}: {figures.mb_per_s:,.0f} MB/s, {cpu}")
        return figures


def servers_cpu_s(ours: Server, broker: spark_kafka.Broker | None) -> float:
    return sum(ours.cpu()) + (broker.cpu_s() if broker else 0.0)


def found_peer(wanted: bool) -> tuple[KafkaJars | None, str]:
    """The jars, and what to say of them."""
    import pyspark

    if not wanted:
        return None, "left out"
    try:
        jars = spark_kafka.fetched(pyspark.__version__)
    except KafkaMissing as missing:
        say(f"no Kafka here, so there is no peer for it: {missing}")
        return None, f"none: {missing}"
    return jars, f"connector {jars.connector_name} on Spark {pyspark.__version__}, Kafka {spark_kafka.BROKER_VERSION}"


def run(directory: Path, options: Options, cases: tuple[str, ...], heap: str, *, kafka: bool) -> dict[str, object]:
    java.prepare()
    jars, peer = found_peer(kafka)
    with contextlib.ExitStack() as stack:
        ours = start_ours(directory / "oncelog")
        stack.callback(ours.close)
        broker = stack.enter_context(spark_kafka.running(jars, directory / "kafka", PARTITIONS)) if jars else None
        session = made_session(jars.connector if jars else [], directory, heap=heap)
        stack.callback(session.stop)
        bench = Bench(session, directory, ours, broker)
        began, busy, own, servers = time.monotonic(), busy_s(), accounts(bench.jvm), servers_cpu_s(ours, broker)
        rows = bench.run(options, cases)
        took = spent_between(own, accounts(bench.jvm), bench.jvm.pid)
        spent_by_us = sum(took) + servers_cpu_s(ours, broker) - servers
        others = (busy_s() - busy - spent_by_us) / (time.monotonic() - began)
    return report(rows, others, peer)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench spark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few rows, one round, about two minutes")
    parser.add_argument("--rows", type=int, help=f"{FULL.rows:,} if not given; about 570 bytes each")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--case", action="append", choices=CASES, help="only these")
    parser.add_argument("--no-kafka", action="store_true", help="neither fetch nor start the peer")
    parser.add_argument("--heap", default="2g", help="of the JVM")
    parser.add_argument("--directory", type=Path, help="on the disk to measure; a temporary one if not given")
    parser.add_argument("--json", type=Path, help="write every measurement here")
    arguments = parser.parse_args()
    options = QUICK if arguments.quick else FULL
    options = Options(arguments.rows or options.rows, arguments.rounds or options.rounds)
    cases = tuple(case for case in CASES if not arguments.case or case in arguments.case)
    directory = Path(tempfile.mkdtemp(prefix="oncelog-spark-", dir=arguments.directory))
    try:
        found = run(directory, options, cases, arguments.heap, kafka=not arguments.no_kafka)
    finally:
        shutil.rmtree(directory)
    if arguments.json:
        machine = {"python": sys.version.split()[0], "cores": os.cpu_count()}
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        found = {"when": when, "machine": machine, "options": options._asdict()} | found
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
