"""One Spark session for all tests of a process, made by the pipelines themselves, and a server for each module."""

import importlib.util
import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.serving import Server, served

collect_ignore_glob = ["test_*.py"] if importlib.util.find_spec("pyspark") is None else []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "pipelines" in item.path.parts:
            # A JVM has to start first, and a loaded machine takes its time.
            item.add_marker(pytest.mark.timeout(400))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning"))


def started() -> Any:
    from oncelog import pipelines

    # Four attempts for each task, as the tests of the connector need them: whoever comes first in a process makes the
    # session for all. No pause between two looks at a source: the tests wait for the end of queries, never for time.
    conf = {"spark.sql.streaming.pollingDelay": "10ms", "spark.sql.shuffle.partitions": "2"}
    return pipelines.session("local[2,4]", "oncelog-tests", log_level="OFF", **conf)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    before = dict(os.environ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = started()
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("data")) as server:
        yield server
