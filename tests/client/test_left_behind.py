"""A producer that is left with records that nobody waited for says so on stderr; one that owes nothing is silent."""

import gc
import subprocess
import sys
import warnings
import weakref
from collections.abc import Iterator
from textwrap import dedent

import pytest

from oncelog.client import AsyncClient, AsyncIdempotentProducer, Client
from tests.client.peer import FakeLog, Peer, run
from tests.client.test_real_server import served

IDLE_MS = 60_000
"""Records linger for so long: nothing has left when the program does."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("data")) as server:
        with Client(server.url) as client:
            client.stream("ex").create()
        yield server.url


def left(url: str, program: str) -> str:
    """What a program prints on stderr. It ends well, whatever it leaves behind."""
    source = f"url = {url!r}\n" + dedent(program)
    ended = subprocess.run([sys.executable, "-c", source], check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


OPENED = """
    from oncelog.client import Client
    client = Client(url)
    producer = client.producer("ex", producer_id="q", linger_ms=60_000)
    for number in range(1_234):
        producer.append(number)
"""


def test_a_program_that_ends_with_records_pending_is_told_how_many(url: str) -> None:
    said = left(url, OPENED)
    assert "RuntimeWarning: producer 'q' of 'ex' was left with 1,234 of 1,234 records not confirmed" in said
    assert "Call close() or flush()" in said
    assert said.startswith("<string>:5: ")  # the line that made the producer
    told = [line for line in said.splitlines() if not line.startswith("  ")]  # Python 3.13 quotes the line below it
    assert len(told) == 1


@pytest.mark.parametrize("end", ["producer.flush()", "producer.close()", "producer.flush(); client.close()"])
def test_a_program_that_waited_is_told_nothing(url: str, end: str) -> None:
    assert left(url, f"{OPENED}\n    {end}") == ""


def test_records_that_were_confirmed_before_anybody_asked_are_not_complained_of(url: str) -> None:
    program = """
        from oncelog.client import Client
        producer = Client(url).producer("ex", producer_id="q")
        for number in range(100):
            producer.append(number)
        while producer.pending_count:
            pass
    """
    assert left(url, program) == ""


@pytest.mark.parametrize("on_error", ["None", "print"])
def test_records_that_failed_behind_a_program_that_never_asked_are_told_with_the_cause(url: str, on_error: str) -> None:
    said = left(
        url,
        f"""
        from oncelog.client import Client
        producer = Client(url).producer("nowhere", producer_id="q", on_error={on_error})
        producer.append(1)
        while producer.pending_count:
            pass
        """,
    )
    if on_error == "print":
        assert said == ""  # it was heard
    else:
        assert "1 of 1 records not confirmed, having stopped: 404 topic_missing" in said


def test_a_loop_that_ends_with_records_pending_is_told_of(url: str) -> None:
    program = """
        import asyncio
        from oncelog.client import AsyncClient

        async def main():
            async with AsyncClient(url) as client:
                producer = client.producer("ex", producer_id="q", linger_ms=60_000)
                for number in range(7):
                    await producer.append(number)
                producer.append_nowait(7)
            WAIT

        asyncio.run(main())
    """
    assert "producer 'q' of 'ex' was left with 8 of 8 records not confirmed" in left(url, program.replace("WAIT", ""))
    assert left(url, program.replace("WAIT", "await producer.close()")) == ""


def test_a_forked_child_does_not_answer_for_its_parent(url: str) -> None:
    program = """
        import os
        if not os.fork():
            raise SystemExit(0)
        os.wait()
        producer.flush()
    """
    assert "not confirmed" not in left(url, dedent(OPENED) + dedent(program))


class Owner:
    """Somebody whose producer calls back."""

    producer: AsyncIdempotentProducer

    def hear(self, _result: object) -> None:
        pass


def test_a_producer_that_is_done_is_not_kept() -> None:
    async def main() -> None:
        async with Peer(FakeLog()) as peer, AsyncClient(peer.url) as client:
            owner = Owner()
            owner.producer = client.producer("a", producer_id="p", on_batch_ack=owner.hear)
            await owner.producer.append(1)
            await owner.producer.close()
            gone = weakref.ref(owner.producer)
            del owner
            gc.collect()
            assert gone() is None

    run(main())


def test_a_producer_that_is_collected_with_records_pending_is_told_of() -> None:
    def leave() -> weakref.ref[AsyncIdempotentProducer]:
        async def main() -> weakref.ref[AsyncIdempotentProducer]:
            producer = AsyncClient().producer("a", producer_id="p", linger_ms=IDLE_MS)
            producer.append_nowait(1)
            return weakref.ref(producer)

        return run(main())

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gone = leave()
        gc.collect()
    assert gone() is None
    assert [(one.category, one.filename) for one in told] == [(RuntimeWarning, __file__)]
    assert "left with 1 of 1 records" in str(told[0].message)
