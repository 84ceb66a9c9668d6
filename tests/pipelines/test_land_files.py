"""The driver commits no file that it has not looked at, and a table whose files are gone is refused."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oncelog import pipelines
from oncelog.pipelines import lake_files
from oncelog.pipelines.lake_place import PlaceUnknown, TablePlace, place_of, wrong_files
from tests.pipelines.topics import filled, name, numbers, table_rows
from tests.spark.serving import Server


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_table_whose_files_are_gone_is_refused(spark: Any, server: Server, tmp_path: Path, form: Any) -> None:
    topic, table = filled(server.url, name("gone"), numbers(0, 20)), tmp_path / "table"
    landed: dict[str, Any] = {"url": server.url, "topic": topic, "table": str(table), "format": form}
    pipelines.land(spark, schema="id string, n int, kind string", **landed)
    for file in table.glob("*.parquet"):
        file.unlink()
    with pytest.raises(pipelines.PipelineRefused, match=r"of \d+ files of the table .* are missing, such as part-"):
        pipelines.land(spark, **landed)
    with pytest.raises(pipelines.PipelineRefused, match="are missing"):
        pipelines.audit(url=server.url, topics=[topic], table=str(table), spark=spark)


def test_file_that_the_driver_does_not_find_is_not_committed(
    spark: Any, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, table = filled(server.url, name("unseen"), numbers(0, 20)), tmp_path / "table"
    landed: dict[str, Any] = {"url": server.url, "topic": topic, "table": str(table)}
    # As if the workers had folders of their own: what they wrote is not where the driver looks.
    monkeypatch.setattr(lake_files, "wrong_files", lambda place, told: wrong_files(place_of(str(tmp_path / "x")), told))
    with pytest.raises(pipelines.PipelineRefused, match=r"part-\w+\.parquet is not there\. Nothing was committed"):
        pipelines.land(spark, schema="id string, n int, kind string", **landed)
    monkeypatch.undo()
    assert table_rows(table) == []
    assert pipelines.land(spark, **landed).output_rows == 20


def test_driver_sees_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    place = TablePlace(str(tmp_path))
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "good.parquet")
    size = (tmp_path / "good.parquet").stat().st_size
    (tmp_path / "torn.parquet").write_bytes((tmp_path / "good.parquet").read_bytes()[:-3])
    told = [("good.parquet", size, 2), ("good.parquet", size, 3), ("torn.parquet", size, 2), ("gone.parquet", 1, 1)]
    said = wrong_files(place, told)
    assert said[0] == f"good.parquet has {size:,} bytes and 2 rows, not {size:,} and 3"
    assert said[1].startswith("torn.parquet cannot be read:")
    assert said[2:] == ["gone.parquet is not there"]


def test_place_is_the_same_for_whoever_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place_of("lake/t").address == str(tmp_path / "lake" / "t")
    assert place_of("file:///lake/a%20b").folder == Path("/lake/a b")
    store = place_of("s3://lake/t/", {"AWS_REGION": "x"})
    assert (store.address, store.folder, store.options) == ("s3://lake/t", None, {"AWS_REGION": "x"})
    assert store.relative("s3://lake/t/a=1/part.parquet") == "a=1/part.parquet"
    for address in ("http://host/t", "file://host/t"):
        with pytest.raises(PlaceUnknown):
            place_of(address)
