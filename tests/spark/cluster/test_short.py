"""The shortest proof that a real cluster lands what it says: a relative path, workers with folders of their own."""

import json
import sys
from pathlib import Path

from tests.pipelines.topics import each_once, filled, name, numbers, table_rows
from tests.spark.cluster.standalone import cluster_in, conf_arguments, ran, settings
from tests.spark.serving import served


def test_land_into_a_relative_path_on_a_cluster(tmp_path: Path) -> None:
    driver = tmp_path / "driver"
    driver.mkdir()
    with served(tmp_path / "data") as server, cluster_in(tmp_path / "cluster") as cluster:
        topic = filled(server.url, name("relative"), numbers(0, 200))
        words = ["land", topic, "lake/t", "--url", server.url, "--master", cluster.master, "--json"]
        words += ["--schema", "id string, n int, kind string", *conf_arguments(settings(sys.executable))]
        done = ran(words, cwd=driver)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["output_rows"] == 200
        assert each_once(table_rows(driver / "lake" / "t"), 200)
        assert not list((tmp_path / "cluster").rglob("*.parquet"))
