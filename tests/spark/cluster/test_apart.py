"""Workers that see neither the checkout nor the folders of the driver: they have what somebody has given to them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.pipelines.stores import store_served
from tests.pipelines.topics import each_once, filled, name, numbers, table_rows, values
from tests.spark.cluster.environments import installed, packed
from tests.spark.cluster.standalone import ROOT, Cluster, can_be_apart, cluster_in, conf_arguments, ran, settings
from tests.spark.serving import Server, served

pytestmark = pytest.mark.skipif(not can_be_apart(), reason="needs the right to unshare mounts")

SCHEMA = "id string, n int, kind string"


class Apart(NamedTuple):
    server: Server
    cluster: Cluster
    driver: Path
    shared: Path
    python: Path
    """Of the workers: the package is installed there."""

    def ran(self, *words: str, python: Any = None, **variables: str) -> "subprocess.CompletedProcess[str]":
        conf = settings(python or self.python)
        where = ["--url", self.server.url, "--master", self.cluster.master, *conf_arguments(conf)]
        return ran([*words, *where], cwd=self.driver, **variables)


def line_of(done: "subprocess.CompletedProcess[str]") -> str:
    """The one line that a failure is; the rest of what is said are notes of what goes on."""
    assert done.returncode == 1, done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("oncelog: ")]
    assert len(lines) == 1, done.stderr
    assert "\tat org.apache" not in done.stderr
    return lines[0]


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    folder = tmp_path_factory.mktemp("apart")
    driver, shared = folder / "driver", folder / "shared"
    driver.mkdir()
    shared.mkdir()
    python = installed(folder / "workers")
    hidden = [ROOT / "src", ROOT / "tests", driver]
    with served(folder / "data") as server, cluster_in(folder / "cluster", hidden=hidden) as cluster:
        yield Apart(server, cluster, driver, shared, python)


def test_worker_that_lacks_the_package_is_one_clear_line(apart: Apart) -> None:
    topic = filled(apart.server.url, name("lacks"), numbers(0, 10))
    said = line_of(apart.ran("land", topic, str(apart.shared / "lacks"), "--schema", SCHEMA, python=sys.executable))
    assert "the Python of the workers lacks the package 'oncelog'. Install it" in said
    account = Path(said.partition("(the whole account: ")[2].removesuffix(")"))
    assert "ModuleNotFoundError" in account.read_text()
    account.unlink()


def test_interpreter_that_nobody_has_is_one_clear_line(apart: Apart) -> None:
    topic = filled(apart.server.url, name("absent"), numbers(0, 10))
    done = apart.ran("land", topic, str(apart.shared / "absent"), "--schema", SCHEMA, python="/absent/python")
    assert "this machine has no interpreter /absent/python, which spark.pyspark.python names" in line_of(done)


def test_files_that_the_driver_does_not_see_are_not_committed(apart: Apart) -> None:
    topic, table = filled(apart.server.url, name("unseen"), numbers(0, 100)), apart.driver / "lake" / "unseen"
    for _ in range(2):
        said = line_of(apart.ran("land", topic, "lake/unseen", "--schema", SCHEMA))
        assert "Nothing was committed. The workers need the same folder" in said
        assert table_rows(table) == []
    done = apart.ran("land", topic, str(apart.shared / "seen"), "--schema", SCHEMA, "--json")
    assert json.loads(done.stdout)["output_rows"] == 100, done.stderr
    assert each_once(table_rows(apart.shared / "seen"), 100)


def test_land_into_a_store_needs_no_folder_at_all(apart: Apart) -> None:
    topic = filled(apart.server.url, name("store"), numbers(0, 100))
    with store_served() as store:
        words = [word for name_, value in store.options.items() for word in ("--storage-option", f"{name_}={value}")]
        done = apart.ran("land", topic, "s3://lake/t", "--schema", SCHEMA, "--json", *words)
        assert done.returncode == 0, done.stderr
        assert each_once(store.rows("s3://lake/t"), 100)


UDF_JOB = """
from pyspark.sql.functions import udf
import neighbour

@udf("string")
def doubled(text):
    return neighbour.twice(text)

def job(topics):
    (only,) = topics.values()
    return only.select(doubled(only.n.cast("string")).alias("value"))
"""


def test_function_of_a_file_reaches_workers_by_value(apart: Apart) -> None:
    topic, target = filled(apart.server.url, name("in"), numbers(0, 20)), name("out")
    (apart.driver / "job.py").write_text(UDF_JOB)
    (apart.driver / "neighbour.py").write_text("def twice(text):\n    return text + text\n")
    words = ["--topic", topic, "--application", target, "--checkpoint", str(apart.shared / "c"), "--partitions", "1"]
    done = apart.ran("transform", target, *words, "--schema", f"{topic}={SCHEMA}", "--function", "job.py:job")
    assert done.returncode == 0, done.stderr
    assert sorted(values(apart.server.url, target)) == sorted(b"%d%d" % (n, n) for n in range(20))


def test_packed_environment_is_sent_along(apart: Apart, tmp_path: Path) -> None:
    topic, archive = filled(apart.server.url, name("packed"), numbers(0, 100)), packed(tmp_path)
    sent = ["--archives", f"{archive}#environment"]
    table = apart.shared / "packed"
    done = apart.ran("land", topic, str(table), "--schema", SCHEMA, *sent, python="./environment/bin/python")
    assert done.returncode == 0, done.stderr
    assert each_once(table_rows(table), 100)
