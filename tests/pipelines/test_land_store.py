"""A table in an object store: every record once, through kills of the driver around its commit."""

from typing import Any

import pytest

from oncelog import pipelines
from tests.pipelines.lander import killed_at
from tests.pipelines.stores import store_served
from tests.pipelines.topics import each_once, filled, name, numbers
from tests.spark.serving import Server

SCHEMA = "id string, n int, kind string"


def test_lander_killed_around_its_commit_has_landed_each_record_once(spark: Any, server: Server) -> None:
    with store_served() as store:
        for stage, there in (("written", 100), ("committed", 200)):
            topic, table = filled(server.url, name("killed"), numbers(0, 400)), f"s3://lake/{stage}"
            landed: dict[str, Any] = {"url": server.url, "topic": topic, "table": table, "partition_by": ["kind"]}
            landed |= {"schema": SCHEMA, "storage_options": store.options}
            assert killed_at("land", stage, 1, max_offsets_per_trigger=100, **landed) == "reached"
            assert len(store.rows(table)) == there
            done = pipelines.land(spark, max_offsets_per_trigger=150, **landed)
            assert done.output_rows == 400 - there
            assert each_once(store.rows(table), 400)
        audit = pipelines.audit(url=server.url, topics=[topic], table=table, storage_options=store.options, spark=spark)
        assert audit.sound, audit.examples
        assert audit.topics[0].table_rows == 400
        found = store.client().list_objects_v2(Bucket="lake", Prefix="committed/kind=k1/")["Contents"]
        for file in found:
            store.delete("lake", file["Key"])
        with pytest.raises(pipelines.PipelineRefused, match="files of the table s3://lake/committed are missing"):
            pipelines.land(spark, **landed)
