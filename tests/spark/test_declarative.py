"""The example of `spark-pipelines`, run as its README says: once, again with more rows, refreshed in full, resumed."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from oncelog.client import Client
from tests.spark.serving import Server

ROOT = Path(__file__).resolve().parent.parent.parent

RUN_TIMEOUT_S = 300.0
"""One run takes 40 s on an idle machine."""

NO_RETRIES = ("--conf", "spark.sql.pipelines.maxFlowRetryAttempts=0")
"""Spark otherwise tries a flow that failed twice more, with pauses."""


class Shop:
    """Writes orders, and knows what must have become of them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._client.stream("orders").create(partitions=2)
        self.count = 0

    def sell(self, count: int) -> None:
        with self._client.producer("orders", producer_id="shop") as producer:
            for number in range(self.count, self.count + count):
                order = {"order_id": number, "customer": f"c{number % 7}", "cents": number % 10 * 10_000}
                producer.append(order, partition=number % 2)
            producer.flush()
        self.count += count

    @property
    def large(self) -> Counter[int]:
        return Counter(number for number in range(self.count) if number % 10 >= 5)

    def written(self) -> Counter[int]:
        """What is in the topic of large orders: number → how often."""
        found: Counter[int] = Counter()
        for partition in range(2):
            with self._client.reader("large-orders", partition=partition, live=False) as reader:
                found.update(int(record.json()["order_id"]) for record in reader)
        return found


def run(server: Server, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "examples" / "declarative" / "run.py"), "--into", str(folder), *arguments]
    # SPARK_TESTING: a free port for Spark's own server. It has no other switch for that; without it the port is fixed.
    environment = {**os.environ, "ONCELOG_URL": server.url, "SPARK_TESTING": "0"}
    return subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=RUN_TIMEOUT_S,
        check=False,
    )  # fmt: skip


def table(folder: Path, query: str, name: str) -> list[tuple[int, ...]]:
    """The catalog's tables are folders of Parquet files."""
    files = [str(path) for path in (folder / "spark-warehouse" / name).glob("*.parquet")]
    with duckdb.connect() as connection:
        return connection.sql(f"select {query} from read_parquet({files!r})").fetchall()


@pytest.mark.timeout(5 * RUN_TIMEOUT_S)
def test_each_run_adds_the_new_rows_and_a_full_refresh_needs_a_policy(server: Server, tmp_path: Path) -> None:
    with Client(server.url) as client:
        shop = Shop(client)
        shop.sell(300)
        first = run(server, tmp_path)
        assert first.returncode == 0, first.stdout
        assert shop.written() == shop.large
        assert table(tmp_path, "count(*), count(distinct order_id)", "orders") == [(300, 300)]

        shop.sell(200)
        second = run(server, tmp_path)
        assert second.returncode == 0, second.stdout
        assert shop.written() == shop.large
        assert table(tmp_path, "count(*), count(distinct order_id)", "orders") == [(500, 500)]
        cents = sum(number % 10 * 10_000 for number in range(500))
        assert table(tmp_path, "count(*), sum(orders)::bigint, sum(cents)::bigint", "spent_by_customer") == [
            (7, 500, cents)
        ]

        before = shop.written()
        shop.sell(100)
        refused = run(server, tmp_path, "--full-refresh-all", *NO_RETRIES)
        assert refused.returncode != 0, refused.stdout
        for choice in ("startingOffsets=group:large-orders", "acceptNewQuery=true", "full refresh"):
            assert choice in refused.stdout
        assert shop.written() == before, "a refused refresh changed the topic"

        resumed = run(server, tmp_path, "--conf", "spark.orders.onFullRefresh=resume")
        assert resumed.returncode == 0, resumed.stdout
        assert shop.written() == shop.large
