"""Drivers that are killed, hang, wake up late, or are two: the numbers in the sink are exact all the same."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Client
from tests.spark.driver import driving
from tests.spark.flowing import contents, copied, each_once, filled, made, name
from tests.spark.serving import Server, Trap, proxied

COUNT = 4000

KILLS = [
    # While batch 1 is being staged; staged and not published; published and not known to Spark.
    ("POST /v1/stages/", "hold", 6, 1000),
    ("POST /v1/publish", "hold", 1, 1000),
    ("POST /v1/publish", "hold_answer", 1, 2000),
]


@pytest.fixture
def told(server: Server, tmp_path: Path) -> dict[str, Any]:
    source = filled(server.url, name("in"), 0, COUNT)
    sink = made(server.url, name("out"))
    checkpoint = str(tmp_path / "checkpoint")
    return {"source": source, "sink": sink, "checkpoint": checkpoint, "application": name("app")}


@pytest.mark.parametrize("how", ["sink", "foreach_batch"])
@pytest.mark.parametrize(("request_", "what", "skip", "visible"), KILLS)
def test_driver_is_killed_and_the_next_one_goes_on(
    spark: Any, server: Server, told: dict[str, Any], how: str, request_: str, what: Any, skip: int, visible: int
) -> None:
    with proxied(server) as proxy:
        trap = proxy.trap(request_, what, skip=skip)
        with driving(url=proxy.url, how=how, **told) as driver:
            assert driver.line() == "started"
            trap.wait()
            driver.kill()
        assert sum(contents(server.url, told["sink"]).values()) == visible
    if how == "sink":
        again(spark, server.url, told)
    else:
        with driving(url=server.url, how=how, **told) as driver:
            assert [driver.line(), driver.line()] == ["started", "done"]
    assert each_once(server.url, told["sink"], COUNT)


def again(spark: Any, url: str, told: dict[str, Any], **options: Any) -> None:
    """The same query under another driver: this process has a Spark session of its own."""
    copied(spark, url, told["source"], told["sink"], Path(told["checkpoint"]), told["application"], **options)


@pytest.mark.parametrize(
    ("request_", "what", "skip"), [("POST /v1/stages/", "hold", 2), ("POST /v1/publish", "hold", 1)]
)
def test_driver_that_hangs_and_wakes_up_late_is_refused(
    spark: Any, server: Server, told: dict[str, Any], request_: str, what: Any, skip: int
) -> None:
    with proxied(server) as proxy:
        trap = proxy.trap(request_, what, skip=skip)
        with driving(url=proxy.url, **told) as late:
            assert late.line() == "started"
            trap.wait()
            late.signal(signal.SIGSTOP)
            again(spark, server.url, told)
            assert each_once(server.url, told["sink"], COUNT)
            late.signal(signal.SIGCONT)
            trap.release()
            assert "has a newer driver (fence 2)" in late.line()
    assert each_once(server.url, told["sink"], COUNT)


def test_driver_that_hangs_between_batches_does_not_fence_the_one_that_replaced_it(
    spark: Any, server: Server, told: dict[str, Any], tmp_path: Path
) -> None:
    # The checkpoints are two, so Spark itself does not notice that the drivers are.
    with proxied(server) as proxy:
        # What its source asks next is held: it has published batch 0, and has yet to plan batch 1.
        held_up: list[Trap] = []
        published = proxy.trap("POST /v1/publish", "after", lambda: held_up.append(proxy.trap("GET /v1/cut", "hold")))
        with driving(url=proxy.url, **told) as late:
            assert late.line() == "started"
            published.wait()
            trap = held_up[0]
            trap.wait()
            group = f"group:{told['application']}"
            again(spark, server.url, {**told, "checkpoint": str(tmp_path / "another")}, start=group)
            trap.release()
            assert "has a newer driver (fence 2)" in late.line()
    assert each_once(server.url, told["sink"], COUNT)
    with Client(server.url) as client:
        held = client.application(told["application"])
    assert held is not None
    assert held.fence == 2


def test_of_two_drivers_at_once_the_newer_one_writes(spark: Any, server: Server, told: dict[str, Any]) -> None:
    with proxied(server) as proxy:
        trap = proxy.trap("POST /v1/publish", "hold", skip=1)
        with driving(url=proxy.url, per_batch=200, **told) as older:
            assert older.line() == "started"
            trap.wait()
            # The newer one starts on the same checkpoint while the older one is in the middle of its batch.
            with driving(url=server.url, per_batch=200, **told) as newer:
                assert newer.line() == "started"
                trap.release()
                ends = [older.line(), newer.line()]
    assert all(end == "done" or "newer driver" in end or "CONCURRENT" in end.upper() for end in ends), ends
    again(spark, server.url, told)
    assert each_once(server.url, told["sink"], COUNT)


def test_executors_are_killed_while_they_stage(server: Server, told: dict[str, Any]) -> None:
    with proxied(server) as proxy:
        trap = proxy.trap("POST /v1/stages/", "hold", skip=6)
        with driving(url=proxy.url, master="local-cluster[2,1,700]", **told) as driver:
            assert driver.line() == "started"
            trap.wait()
            executors = driver.executors()
            assert executors
            for executor in executors:
                os.kill(executor, signal.SIGKILL)
            trap.release()
            assert driver.line() == "done"
    assert each_once(server.url, told["sink"], COUNT)
