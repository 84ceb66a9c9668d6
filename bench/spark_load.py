"""What `bench spark` lets Spark do, and what each of it takes: wall time, and CPU of the JVM, of Python, of the server.

The rows are those of the reference measurements: a key of 16 bytes, a value of 100 to 1,000 (a JSON document, so that
`land` has something to parse), in several partitions. They are made once, as uncompressed Parquet.

A read sums over key, value, offset and timestamp, so that nobody may leave a column out. A write takes the Parquet
rows; what reading those alone takes is a row of its own.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench.spark_kafka import Broker
from oncelog.client import Client

PARTITIONS = 4
FEW_ROWS = 1_000
FILES = 8

OURS, KAFKA, PARQUET = "oncelog", "Spark's Kafka connector", "Parquet"

BATCH_READ, STREAM_READ, WRITE, LAND = "batch read", "streaming read", "write", "land into Delta"

ALL_COLUMNS = ("sum(length(value))", "sum(length(key))", "sum(offset)", "max(timestamp)")

JSON_SCHEMA = "n bigint, text string"


class Figures(NamedTuple):
    """One measurement."""

    case: str
    side: str
    round: int
    rows: int
    total_bytes: int
    wall_s: float
    jvm_s: float
    python_s: float
    """All Python processes of Spark, driver included."""
    server_s: float

    @property
    def mb_per_s(self) -> float:
        return self.total_bytes / self.wall_s / 1e6

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.wall_s

    @property
    def spark_cpu_per_gb(self) -> float:
        return (self.jvm_s + self.python_s) / self.total_bytes * 1e9

    @property
    def cpu_per_gb(self) -> float:
        return self.spark_cpu_per_gb + self.server_s / self.total_bytes * 1e9


class Spent(NamedTuple):
    jvm_s: float
    python_s: float


class Account(NamedTuple):
    """CPU of one process, and of those that it has waited for."""

    parent: int
    own_s: float
    waited_s: float

    @property
    def total_s(self) -> float:
        return self.own_s + self.waited_s


class Accounts(NamedTuple):
    """The JVM, everything below it, and this process."""

    jvm: Account
    below: dict[tuple[int, float], Account]
    """By number and start."""
    driver_s: float


def accounts(jvm: psutil.Process) -> Accounts:
    below = {}
    for child in jvm.children(recursive=True):
        try:
            with child.oneshot():
                below[child.pid, child.create_time()] = _account(child)
        except psutil.NoSuchProcess:
            continue
    driver = os.times()
    return Accounts(_account(jvm), below, driver.user + driver.system)


def _account(process: psutil.Process) -> Account:
    times = process.cpu_times()
    return Account(process.ppid(), times.user + times.system, times.children_user + times.children_system)


def spent_between(before: Accounts, after: Accounts, jvm_pid: int) -> Spent:
    """Processes come and go meanwhile. One that went was either waited for, so that its parent's account holds all it
    ever took, or by nobody, as idle workers that Spark ends: what those had taken before is not ours."""
    waited = {jvm_pid: after.jvm.waited_s - before.jvm.waited_s}
    python_s = after.driver_s - before.driver_s + waited[jvm_pid]
    for key, account in after.below.items():
        known = before.below.get(key)
        python_s += account.total_s - (known.total_s if known else 0.0)
        waited[key[0]] = account.waited_s - (known.waited_s if known else 0.0)
    for key, account in before.below.items():
        if key not in after.below and waited.get(account.parent, 0.0) >= account.total_s:
            waited[account.parent] -= account.total_s
            python_s -= account.total_s
    return Spent(after.jvm.own_s - before.jvm.own_s, python_s)


def made_session(jars: list[Path], directory: Path, *, heap: str) -> Any:
    """One session for all sides. The environment was prepared."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("bench-spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": heap,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def made_rows(spark: Any, rows: int, folder: Path) -> int:
    """Writes the Parquet files; says how many bytes keys and values have."""
    text = "substring(repeat(sha2(cast(id as string), 256), 16), 1, 80 + pmod(hash(id), 900))"
    frame = spark.range(0, rows, 1, FILES).selectExpr(
        "cast(substring(md5(cast(id as string)), 1, 16) as binary) as key",
        f"""cast(concat('{{"n":', id, ',"text":"', {text}, '"}}') as binary) as value""",
        "id as offset",
        "timestamp_millis(1700000000000 + id) as timestamp",
    )
    frame.write.option("compression", "none").parquet(str(folder))
    total = spark.read.parquet(str(folder)).selectExpr("sum(length(key) + length(value))").collect()[0][0]
    return int(total)


class Jobs:
    """Every case for every side. A job returns the number of rows that it moved, which must be all of them."""

    def __init__(self, spark: Any, directory: Path, url: str, broker: Broker | None) -> None:
        self._spark = spark
        self._directory = directory
        self._url = url
        self._broker = broker
        self._number = 0
        self._topic = ""
        self._rows = "rows"

    def make(self, rows: int) -> int:
        """Rows to write and topics to read, and the same with a few rows. Says how many bytes they have."""
        made_rows(self._spark, FEW_ROWS, self._directory / "few")
        total_bytes = made_rows(self._spark, rows, self._directory / "rows")
        for self._rows in ("few", "rows"):
            for side in (OURS, KAFKA) if self._broker else (OURS,):
                self.make_topic(side, self._rows)
                self.write(side)
        return total_bytes

    def wake(self, case: str, side: str, job: Callable[[], int]) -> None:
        """The job with a few rows: Spark ends Python processes that were idle for a minute or two, and to start them
        again takes seconds whatever the number of rows. That favours us, and RESULTS.md says what it is without."""
        self._rows = "few"
        self.before(case, side)
        job()
        self._rows = "rows"

    def table(self) -> dict[tuple[str, str], Callable[[], int]]:
        jobs = {
            (BATCH_READ, OURS): lambda: self._summed(self._reader(OURS, streaming=False)),
            (BATCH_READ, PARQUET): lambda: self._summed(self._parquet()),
            (STREAM_READ, OURS): lambda: self._streamed(OURS),
            (WRITE, OURS): lambda: self.write(OURS),
            (WRITE, PARQUET): self._read_only,
            (LAND, OURS): self._land,
        }
        if self._broker:
            jobs |= {
                (BATCH_READ, KAFKA): lambda: self._summed(self._reader(KAFKA, streaming=False)),
                (STREAM_READ, KAFKA): lambda: self._streamed(KAFKA),
                (WRITE, KAFKA): lambda: self.write(KAFKA),
            }
        return jobs

    def _fresh(self) -> int:
        self._number += 1
        return self._number

    def _broker_address(self) -> str:
        assert self._broker is not None
        return self._broker.address

    def _parquet(self) -> Any:
        return self._spark.read.parquet(str(self._directory / self._rows))

    def _reader(self, side: str, *, streaming: bool) -> Any:
        reader = self._spark.readStream if streaming else self._spark.read
        if side == OURS:
            reader = reader.format("oncelog").option("url", self._url)
        else:
            reader = reader.format("kafka").option("kafka.bootstrap.servers", self._broker_address())
        return reader.option("subscribe", self._rows).option("startingOffsets", "earliest").load()

    def _summed(self, frame: Any) -> int:
        return int(frame.selectExpr("count(*)", *ALL_COLUMNS).collect()[0][0])

    def _streamed(self, side: str) -> int:
        checkpoint = str(self._directory / f"checkpoint-{self._fresh()}")
        frame = self._reader(side, streaming=True)
        query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        running = query.start()
        running.awaitTermination()
        return sum(int(progress["numInputRows"]) for progress in running.recentProgress)

    def make_topic(self, side: str, topic: str) -> None:
        """Not measured. The next write goes to it."""
        if side == KAFKA:
            assert self._broker is not None
            self._broker.create(topic, PARTITIONS)
        else:
            with Client(self._url) as client:
                client.create_topic(topic, partitions=PARTITIONS, content_type="application/json")
        self._topic = topic

    def before(self, case: str, side: str) -> None:
        """What a job needs and is not measured."""
        if case == WRITE and side != PARQUET:
            self.make_topic(side, f"written-{self._fresh()}")

    def write(self, side: str) -> int:
        """Ours is exactly-once and synced; the connector's is at-least-once, and the broker syncs when it likes."""
        frame = self._parquet().select("key", "value")
        if side == OURS:
            writer = frame.write.format("oncelog").option("url", self._url)
        else:
            writer = frame.write.format("kafka").option("kafka.bootstrap.servers", self._broker_address())
        writer.option("topic", self._topic).mode("append").save()
        return int(self._parquet().count())

    def _read_only(self) -> int:
        self._parquet().select("key", "value").write.format("noop").mode("overwrite").save()
        return int(self._parquet().count())

    def _land(self) -> int:
        from oncelog.pipelines.landing import land

        table = str(self._directory / f"table-{self._fresh()}")
        result = land(self._spark, url=self._url, topic=self._rows, table=table, schema=JSON_SCHEMA)
        return result.output_rows


def measured(
    jvm: psutil.Process, job: Callable[[], int], server_cpu_s: Callable[[], float], settle: Callable[[], None]
) -> tuple[int, float, Spent, float]:
    """Rows, wall seconds, CPU of Spark and of the server; what the server puts off is waited for and counted."""
    before, server_before, began = accounts(jvm), server_cpu_s(), time.perf_counter()
    rows = job()
    wall_s = time.perf_counter() - began
    settle()
    return rows, wall_s, spent_between(before, accounts(jvm), jvm.pid), server_cpu_s() - server_before
