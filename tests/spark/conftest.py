"""One Spark session for all tests of a process, and a server for each module. Without pyspark there is nothing here."""

import importlib.util
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import oncelog
from tests.spark.serving import Server, served

collect_ignore_glob = ["test_*.py"] if importlib.util.find_spec("pyspark") is None else []

SESSION = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    # A real pause between batches is not needed to see them.
    "spark.sql.streaming.pollingDelay": "10ms",
}


def started_session(master: str = "local[2,4]") -> Any:
    """Four attempts for each task, as on a cluster; `local[2]` would give it one."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("oncelog-tests")
    if master.startswith("local-cluster"):
        builder = builder.config("spark.executor.memory", "600m").config("spark.executor.cores", "1")
        # Executors run in folders of their own, so the way to the package must be a whole one.
        source = str(Path(oncelog.__file__).resolve().parent.parent)
        builder = builder.config("spark.executorEnv.PYTHONPATH", source)
    for name, value in SESSION.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in item.path.parts:
            # A JVM has to start first, and a loaded machine takes its time.
            item.add_marker(pytest.mark.timeout(900 if "cluster" in item.path.parts else 400))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = started_session()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("data")) as server:
        yield server
