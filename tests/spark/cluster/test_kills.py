"""On a cluster: ingest, transform, land and audit are exact, whichever of worker, executor and driver is killed."""

import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.lander import run_to_end
from tests.pipelines.topics import each_once, filled, name, numbers, table_rows, values
from tests.spark.cluster.standalone import Cluster, cluster_in, conf_arguments, ran, settings
from tests.spark.serving import Proxy, Server, proxied, served

SCHEMA = "id string, n int, kind string"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with cluster_in(tmp_path / "cluster") as cluster:
        yield cluster


def session(cluster: Cluster) -> tuple[str, dict[str, str]]:
    return cluster.master, settings(sys.executable)


class Running(threading.Thread):
    """A pipeline in a process of its own, while the test kills others."""

    def __init__(self, pipeline: str, cluster: Cluster, **options: Any) -> None:
        super().__init__(daemon=True)
        self._arguments = (pipeline, session(cluster))
        self._options = options
        self.said = ""

    def run(self) -> None:
        self.said = run_to_end(*self._arguments, **self._options)


def strike(proxy: Proxy, prefix: str, skip: int, kill: Any) -> None:
    """Kills while the request waits; then lets it go."""
    trap = proxy.trap(prefix, "hold", skip=skip)
    trap.wait()
    kill()
    trap.release()


def test_ingest_with_an_executor_killed(server: Server, cluster: Cluster, tmp_path: Path) -> None:
    folder, topic = tmp_path / "in", name("ingested")
    folder.mkdir()
    for number in range(2):
        lines = [json.dumps(record) for record in numbers(number * 15_000, (number + 1) * 15_000)]
        (folder / f"{number}.json").write_text("\n".join(lines) + "\n")
    with proxied(server) as proxy:
        options = {"url": proxy.url, "topic": topic, "source": str(folder), "partitions": 2, "format": "json"}
        running = Running("ingest", cluster, **options)
        running.start()

        def kill() -> None:
            executors = cluster.executors()
            assert executors
            os.kill(executors[0], signal.SIGKILL)

        strike(proxy, f"POST /v1/stream/{topic}", 2, kill)
        running.join()
    assert running.said == "done"
    assert each_once([json.loads(value) for value in values(server.url, topic)], 30_000)


def test_transform_with_a_worker_killed_and_land_with_the_driver_killed(
    server: Server, cluster: Cluster, tmp_path: Path
) -> None:
    topic, target = filled(server.url, name("in"), numbers(0, 2_000)), name("out")
    with proxied(server) as proxy:
        options: dict[str, Any] = {
            "url": proxy.url,
            "target": target,
            "application": target,
            "checkpoint": str(tmp_path / "c"),
            "schemas": {topic: SCHEMA},
            "sql": f"SELECT id, n, kind FROM {topic.replace('-', '_')}",
            "partitions": 2,
            "max_offsets_per_trigger": 500,
        }
        running = Running("transform", cluster, **options)
        running.start()
        # A stage of the second batch is on its way.
        strike(proxy, "POST /v1/stage", 3, lambda: cluster.kill_worker(0))
        running.join()
    assert running.said == "done"
    assert each_once([json.loads(value) for value in values(server.url, target)], 2_000)

    table, checkpoint = tmp_path / "table", tmp_path / "landing"
    landed: dict[str, Any] = {"url": server.url, "topic": target, "table": str(table), "schema": SCHEMA}
    landed |= {"checkpoint": str(checkpoint)}
    at = ["committed", 1]
    assert run_to_end("land", session(cluster), at, max_offsets_per_trigger=400, **landed) == "reached"
    assert len(table_rows(table)) == 800
    shutil.rmtree(checkpoint)
    assert run_to_end("land", session(cluster), max_offsets_per_trigger=700, **landed) == "done"
    assert each_once(table_rows(table), 2_000)

    words = ["audit", target, "--table", str(table), "--url", server.url, "--master", cluster.master, "--json"]
    audited = ran([*words, *conf_arguments(settings(sys.executable))], cwd=tmp_path)
    assert audited.returncode == 0, audited.stderr
    found = json.loads(audited.stdout)
    assert (found["records"], found["lost"], found["doubled"], found["conflicting"]) == (2_000, 0, 0, 0)
