"""Stages that outlive their time: freed by the server, never seen, and the batch is staged again."""

from pathlib import Path
from typing import Any

from oncelog.client import Client, Conflict, NotFound
from tests.spark.flowing import contents, copied, each_once, failure, filled, made, name
from tests.spark.serving import Server, proxied

TTL_MS = 1000


def outlive(url: str) -> None:
    """Returns when a stage that is opened now has expired; those before it have then as well."""
    with Client(url) as client:
        probe = client.open_stage(ttl_ms=TTL_MS)
        while True:
            try:
                # It would be refused in any case, so it does not renew the stage; how, tells whether it lives.
                client.stage_records(probe.stage_id, 7, [b"x"])
            except Conflict:
                continue
            except NotFound:
                return
            raise AssertionError("the stage took a batch that does not follow")


def test_stage_whose_time_is_up_is_freed_and_never_seen(spark: Any, server: Server, tmp_path: Path) -> None:
    source, sink, application = filled(server.url, name("in"), 0, 2000), made(server.url, name("out")), name("app")
    flow = (source, sink, tmp_path / "checkpoint", application)
    with proxied(server) as proxy:
        trap = proxy.trap("POST /v1/publish", "before", lambda: outlive(server.url))
        assert "stage_missing" in failure(spark, proxy.url, *flow, stageTtlMs=TTL_MS)
        assert trap.caught_count == 1
    assert contents(server.url, sink) == {}
    copied(spark, server.url, *flow)
    assert each_once(server.url, sink, 2000)
