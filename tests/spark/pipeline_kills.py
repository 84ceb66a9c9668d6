"""Consume, transform, produce, while driver and server are killed: the output must equal the batch result.

    python -m tests.spark.pipeline_kills [--kills 20] [--seed N]

Orders and payments are written all the time; a pipeline joins them into a third topic. Again and again a request of the
pipeline is caught on its way, chosen by the seed, and the server or the driver is killed at that moment, then started
again. At the end the same SQL runs once over the whole topics, as a batch, and both results are compared row by row.
"""

import argparse
import contextlib
import json
import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, NamedTuple

from oncelog.client import Client
from tests.spark.driver import ROOT, Driver
from tests.spark.serving import Proxy, Server, proxied, served

JSON = "application/json"
ORDERS, PAYMENTS, PAID = "orders", "payments", "paid"
SCHEMAS = {ORDERS: "id BIGINT, item STRING, at TIMESTAMP", PAYMENTS: "id BIGINT, cents BIGINT, at TIMESTAMP"}
JOIN = f"SELECT o.id, o.item, p.cents FROM {ORDERS} o JOIN {PAYMENTS} p ON o.id = p.id"
APPLICATION = "paid-orders"
PER_TRIGGER = 200
PAUSE_S = 0.05
"""Between two orders: the pipeline keeps up and is never idle."""

MOMENTS = ("POST /v1/stages HTTP", "POST /v1/stages/", "POST /v1/publish", "GET /v1/cut", "GET /v1/stream/")
"""Requests that a strike waits for: opening a stage, filling it, publishing, planning, reading."""


class Outcome(NamedTuple):
    """What came of it."""

    server_kills: int
    driver_kills: int
    orders: int
    rows: int
    lost: int
    doubled: int


class Feed(threading.Thread):
    """Writes an order and a bit later its payment, each under a sequence, until it is stopped."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._rng = random.Random(seed)
        self._enough = threading.Event()
        self.orders = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self.failure = error
            raise

    def _write(self) -> None:
        with Client(self._url) as client:
            options: Any = {"producer_id": "feed", "delivery_timeout_ms": 300_000}
            with client.producer(ORDERS, JSON, **options) as orders, client.producer(PAYMENTS, JSON, **options) as paid:
                late: list[int] = []
                while not self._enough.wait(PAUSE_S):
                    number = self.orders
                    at = f"2026-01-01T00:{number // 60 % 60:02d}:{number % 60:02d}Z"
                    orders.append({"id": number, "item": f"item-{number % 7}", "at": at}, partition=number % 2)
                    self.orders += 1
                    late.append(number)
                    while late and self._rng.random() < 0.6:
                        due = late.pop(self._rng.randrange(len(late)))
                        paid.append({"id": due, "cents": due % 1000, "at": at}, partition=due % 2)

    def stop(self) -> None:
        self._enough.set()
        self.join()
        if self.failure is not None:
            raise self.failure


class Pipeline:
    """The driver below, which can be killed and started again."""

    def __init__(self, url: str, checkpoint: Path) -> None:
        self._told = {"url": url, "checkpoint": str(checkpoint)}
        self._driver: Driver | None = None

    def start(self) -> None:
        self._driver = KilledDriver(**self._told)
        assert self._driver.line() == "started"

    def kill(self) -> None:
        if self._driver is not None:
            self._driver.kill()

    def finish(self) -> dict[str, int]:
        """To the end of the topics, and the comparison."""
        command = [sys.executable, *KilledDriver.command, json.dumps({**self._told, "last": True})]
        with Popen(command, cwd=ROOT, stdout=PIPE, text=True) as last:
            assert last.stdout is not None
            told = [line for line in last.stdout if line.startswith("compared ")]
        assert last.returncode == 0, f"the last run ended with {last.returncode}"
        return dict(json.loads(told[0].removeprefix("compared ")))


class KilledDriver(Driver):
    """A driver of this module."""

    command = ("-m", "tests.spark.pipeline_kills", "--driver")


def strike(rng: random.Random, proxy: Proxy, server: Server, pipeline: Pipeline) -> str:
    """Kills one of the two at a request that the seed chooses; returns which."""
    who = rng.choice(["server", "driver"])
    moment, skip = rng.choice(MOMENTS), rng.randrange(6)
    how = rng.choice(["before", "after"])
    if who == "server":

        def restarted() -> None:
            server.kill()
            server.start()

        proxy.trap(moment, "before" if how == "before" else "after", restarted, skip=skip).wait()
    else:
        trap = proxy.trap(moment, "hold" if how == "before" else "hold_answer", skip=skip)
        trap.wait()
        pipeline.kill()
        trap.release()
        pipeline.start()
    return who


def run(kills: int, seed: int, directory: Path) -> Outcome:
    """AssertionError or the outcome."""
    rng = random.Random(seed)
    with served(directory / "data") as server, proxied(server) as proxy, _pipeline(proxy, directory) as pipeline:
        with Client(proxy.url) as client:
            for topic in (ORDERS, PAYMENTS, PAID):
                client.create_topic(topic, partitions=2, content_type=JSON)
        feed = Feed(proxy.url, seed)
        feed.start()
        pipeline.start()
        struck = Counter(strike(rng, proxy, server, pipeline) for _ in range(kills))
        feed.stop()
        pipeline.kill()
        found = pipeline.finish()
    return Outcome(struck["server"], struck["driver"], feed.orders, found["rows"], found["lost"], found["doubled"])


@contextlib.contextmanager
def _pipeline(proxy: Proxy, directory: Path) -> Iterator[Pipeline]:
    pipeline = Pipeline(proxy.url, directory / "checkpoint")
    try:
        yield pipeline
    finally:
        pipeline.kill()


# --- the driver ----------------------------------------------------------------------------------------------------


def drive(told: dict[str, Any]) -> None:
    from oncelog.pipelines import session, transform

    spark = session("local[2,4]", log_level="OFF")
    print("started", flush=True)
    transform(
        spark,
        url=told["url"],
        target=PAID,
        application=APPLICATION,
        checkpoint=told["checkpoint"],
        sql=JOIN,
        schemas=SCHEMAS,
        event_time="at",
        watermark="2 hours",
        max_offsets_per_trigger=None if told.get("last") else PER_TRIGGER,
        trigger="available_now" if told.get("last") else "100 milliseconds",
        content_type=JSON,
    )
    if told.get("last"):
        print("compared", json.dumps(compared(spark, told["url"])), flush=True)


def compared(spark: Any, url: str) -> dict[str, int]:
    """The topic against the same SQL over the whole topics."""
    from oncelog.pipelines.json_values import parsed, schema_of

    def topic(name: str) -> Any:
        return spark.read.format("oncelog").options(url=url, subscribe=name).load()

    for name, schema in SCHEMAS.items():
        parsed(topic(name), schema_of(schema)).createOrReplaceTempView(name)
    wanted = Counter(tuple(row) for row in spark.sql(JOIN).collect())
    written = parsed(topic(PAID), schema_of("id BIGINT, item STRING, cents BIGINT"))
    found = Counter(tuple(row) for row in written.select("id", "item", "cents").collect())
    return {"rows": found.total(), "lost": (wanted - found).total(), "doubled": (found - wanted).total()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--driver", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.driver is not None:
        drive(options.driver)
        return 0
    with tempfile.TemporaryDirectory(prefix="oncelog-pipeline-") as folder:
        outcome = run(options.kills, options.seed, Path(folder))
    print(f"seed {options.seed}: " + ", ".join(f"{name} {value:,}" for name, value in outcome._asdict().items()))
    return 1 if outcome.lost or outcome.doubled else 0


if __name__ == "__main__":
    sys.exit(main())
