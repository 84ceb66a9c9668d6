"""The sink under every fault that one driver survives, or is restarted from: exact counts, over HTTP."""

from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Client
from tests.spark.flowing import contents, copied, each_once, failure, filled, made, name
from tests.spark.serving import Server, proxied, served

COUNT = 4000


@pytest.fixture
def flow(server: Server, tmp_path: Path) -> tuple[str, str, Path, str]:
    """Source with 4000 numbers, sink, checkpoint, application."""
    source = filled(server.url, name("in"), 0, COUNT)
    return source, made(server.url, name("out")), tmp_path / "checkpoint", name("app")


def test_batches_follow_each_other_without_faults(spark: Any, server: Server, flow: Any) -> None:
    assert copied(spark, server.url, *flow) == [1000, 1000, 1000, 1000]
    assert each_once(server.url, flow[1], COUNT)
    with Client(server.url) as client:
        held = client.application(flow[3])
    assert held is not None
    assert (held.fence, held.batch) == (1, 3)


def failing_once(marker: Path) -> Any:
    def through(batches: Any) -> Any:
        for number, batch in enumerate(batches):
            yield batch
            if number >= 1 and not marker.exists():
                marker.touch()
                raise RuntimeError("the task fails after it has written")

    return through


def test_task_that_fails_after_writing_is_retried_and_its_stage_is_never_seen(
    spark: Any, server: Server, flow: Any, tmp_path: Path
) -> None:
    from tests.spark.flowing import reading, writing

    source, sink, checkpoint, application = flow
    marker = tmp_path / "failed"
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        rows = reading(spark, server.url, source, maxOffsetsPerTrigger=1000).select("value")
        rows = rows.mapInArrow(failing_once(marker), "value binary")
        # Small batches, so that the failed attempt has stages on the server's disk.
        writing(rows, server.url, sink, checkpoint, application, batchBytes=1024).start().awaitTermination()
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
    assert marker.exists()
    assert each_once(server.url, sink, COUNT)


@pytest.mark.parametrize("times", [1, 3])
def test_lost_answer_of_a_publish_is_asked_for_again(spark: Any, server: Server, flow: Any, times: int) -> None:
    with proxied(server) as proxy:
        trap = proxy.trap("POST /v1/publish", "drop_answer", count=times, skip=1)
        assert copied(spark, proxy.url, *flow) == [1000, 1000, 1000, 1000]
        assert trap.caught_count == times
    assert each_once(server.url, flow[1], COUNT)


def test_commit_that_raises_after_the_server_committed_is_not_undone(spark: Any, server: Server, flow: Any) -> None:
    with proxied(server) as proxy:
        trap = proxy.trap("POST /v1/publish", "drop_answer", count=10**6, skip=1)
        # Batch 1 is published and nobody hears of it; Spark then calls abort.
        assert "OutcomeUnknown" in failure(spark, proxy.url, *flow, requestTimeoutMs=1500)
        assert trap.caught_count >= 1
    assert sum(contents(server.url, flow[1]).values()) == 2000
    # Batch 1 is replayed, known, and left alone.
    assert copied(spark, server.url, *flow)[0] == 1000
    assert each_once(server.url, flow[1], COUNT)


@pytest.mark.parametrize("what", ["before", "after"])
@pytest.mark.parametrize("request_", ["POST /v1/stages HTTP", "POST /v1/stages/", "POST /v1/publish"])
def test_server_is_killed_in_the_middle_and_started_again(spark: Any, tmp_path: Path, request_: str, what: Any) -> None:
    with served(tmp_path / "data") as server, proxied(server) as proxy:
        source = filled(server.url, name("in"), 0, COUNT)
        sink = made(server.url, name("out"))

        def crash() -> None:
            server.kill()
            server.start()

        trap = proxy.trap(request_, what, crash, skip=1)
        copied(spark, proxy.url, source, sink, tmp_path / "checkpoint", "app")
        assert trap.caught_count == 1
        assert each_once(server.url, sink, COUNT)


def test_stage_that_expired_makes_the_whole_publish_fail_and_the_replay_is_exact(
    spark: Any, server: Server, flow: Any
) -> None:
    with proxied(server) as proxy:
        trap = proxy.trap("POST /v1/publish", "before", lambda: _drop_all(server.url), skip=1)
        reason = failure(spark, proxy.url, *flow)
        assert "stage_missing" in reason
        assert trap.caught_count == 1
    assert sum(contents(server.url, flow[1]).values()) == 1000
    copied(spark, server.url, *flow)
    assert each_once(server.url, flow[1], COUNT)


def _drop_all(url: str) -> None:
    """What the timer does to stages whose time is up. Ids are given out from one counter."""
    with Client(url) as client:
        newest = client.open_stage().stage_id
        client.drop_stages(list(range(max(0, newest - 2000), newest + 1)))


def test_a_batch_that_was_staged_and_never_published_is_never_seen(spark: Any, server: Server, flow: Any) -> None:
    with proxied(server) as proxy:
        proxy.trap("POST /v1/publish", "before", count=10**6)
        failure(spark, proxy.url, *flow, requestTimeoutMs=1500)
    assert contents(server.url, flow[1]) == {}


# --- a lost checkpoint: the table in section 5 of the reference ---------------------------------------------------


@pytest.mark.parametrize("per_batch", [500, 1000, 2000])
def test_lost_checkpoint_resumes_from_what_the_server_holds(
    spark: Any, server: Server, flow: Any, tmp_path: Path, per_batch: int
) -> None:
    source, sink, checkpoint, application = flow
    group = f"group:{application}"
    copied(spark, server.url, source, sink, checkpoint, application, start=group)
    filled(server.url, source, COUNT, 2 * COUNT)
    rows = copied(spark, server.url, source, sink, tmp_path / "another", application, start=group, per_batch=per_batch)
    assert sum(rows) == COUNT
    assert each_once(server.url, sink, 2 * COUNT)


@pytest.mark.parametrize("per_batch", [500, 1000, 2000])
def test_lost_checkpoint_that_starts_over_is_refused_loudly(
    spark: Any, server: Server, flow: Any, tmp_path: Path, per_batch: int
) -> None:
    source, sink, checkpoint, application = flow
    copied(spark, server.url, source, sink, checkpoint, application)
    reason = failure(spark, server.url, source, sink, tmp_path / "another", application, per_batch=per_batch)
    assert f"startingOffsets=group:{application}" in reason
    assert "acceptNewQuery" in reason
    assert each_once(server.url, sink, COUNT)


def test_place_that_another_query_resumed_from_proves_nothing(
    spark: Any, server: Server, flow: Any, tmp_path: Path
) -> None:
    source, sink, checkpoint, application = flow
    copied(spark, server.url, source, sink, checkpoint, application)
    # This one resumes and has nothing to publish; what its source was told is still there for the next one.
    copied(spark, server.url, source, sink, tmp_path / "resumed", application, start=f"group:{application}")
    filled(server.url, source, COUNT, COUNT + 10)
    reason = failure(spark, server.url, source, sink, tmp_path / "another", application)
    assert "does not start where it ended" in reason
    assert each_once(server.url, sink, COUNT)


def test_new_query_is_accepted_if_the_user_says_so(spark: Any, server: Server, flow: Any, tmp_path: Path) -> None:
    source, sink, checkpoint, application = flow
    copied(spark, server.url, source, sink, checkpoint, application)
    copied(spark, server.url, source, sink, tmp_path / "another", application, acceptNewQuery="true")
    assert set(contents(server.url, sink).values()) == {2}


def test_application_named_after_the_checkpoint_if_nothing_else_names_it(spark: Any, server: Server, flow: Any) -> None:
    from tests.spark.flowing import reading

    source, sink, checkpoint, _ = flow
    rows = reading(spark, server.url, source).select("value")
    for _ in range(2):
        writer = rows.writeStream.format("oncelog").option("url", server.url).option("topic", sink)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        with Client(server.url) as client:
            held = client.application(f"checkpoint:{query.id}")
        assert held is not None
        assert held.query == str(query.id)
    assert each_once(server.url, sink, COUNT)
