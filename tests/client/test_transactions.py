"""`client.transaction` and the coordinator's calls over HTTP, against a real server; seed 002's three examples."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.client import Client, NotFound, Refused, TxnOffset
from tests.servers.running import running

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running() as server:
        yield f"http://127.0.0.1:{server.port}"


def values(client: Client, topic: str) -> list[object]:
    with client.reader(topic, live=False) as reader:
        return [record.json() for record in reader]


def test_a_block_that_ends_commits_and_one_that_raises_aborts(url: str) -> None:
    with Client(url) as client:
        client.create_topic("a")
        client.create_topic("b")
        with client.transaction("block") as txn:
            txn.append("a", {"n": 1}, {"n": 2})
            txn.append("b", {"n": 3})
            assert values(client, "a") == []
        assert values(client, "a") == [{"n": 1}, {"n": 2}]
        assert values(client, "b") == [{"n": 3}]
        with contextlib.suppress(ZeroDivisionError), client.transaction("block") as txn:
            txn.append("a", {"n": 4})
            raise ZeroDivisionError
        with client.transaction("block") as txn:
            txn.append("a", {"n": 5})
        assert values(client, "a") == [{"n": 1}, {"n": 2}, {"n": 5}]


def test_a_retried_append_is_a_duplicate_and_a_gap_is_refused(url: str) -> None:
    with Client(url) as client:
        client.create_topic("retried")
        held = client.begin_transaction("retry")
        client.add_partitions_to_txn("retry", held.producer_id, held.epoch, [("retried", 0)])
        call = ("retry", held.producer_id, held.epoch, "retried", [{"n": 1}, {"n": 2}])
        first = client.append_in_txn(*call, sequence=0)
        assert not first.duplicate
        again = client.append_in_txn(*call, sequence=0)
        assert (again.duplicate, again.first, again.next) == (True, first.first, first.next)
        with pytest.raises(Refused) as refused:
            client.append_in_txn(*call, sequence=7)
        assert refused.value.code == "sequence_gap"
        client.end_transaction("retry", held.producer_id, held.epoch, True)
        client.end_transaction("retry", held.producer_id, held.epoch, True)
        assert values(client, "retried") == [{"n": 1}, {"n": 2}]


def test_a_newer_holder_fences_with_403_and_the_open_transaction_is_aborted(url: str) -> None:
    with Client(url) as client:
        client.create_topic("fenced")
        old = client.transaction("fence")
        old.begin()
        old.append("fenced", {"zombie": True})
        with client.transaction("fence") as new:
            new.append("fenced", {"heir": True})
        with pytest.raises(Refused) as refused:
            old.append("fenced", {"zombie": True})
        assert (refused.value.status, refused.value.code) == (403, "fenced")
        with pytest.raises(Refused) as refused:
            old.commit()
        assert (refused.value.status, refused.value.code) == (403, "txn_fenced")
        assert values(client, "fenced") == [{"heir": True}]


def test_offsets_count_when_the_transaction_commits(url: str) -> None:
    with Client(url) as client:
        client.create_topic("inbox")
        txn = client.transaction("offsets")
        txn.begin()
        txn.commit_offsets("readers", [TxnOffset("inbox", 150)])
        assert client.cursor("kafka:readers", "inbox") is None
        txn.commit()
        cursor = client.cursor("kafka:readers", "inbox")
        assert cursor is not None
        assert cursor.frontier == 150


def test_a_partition_that_is_missing_and_an_unknown_id_are_refused(url: str) -> None:
    with Client(url) as client:
        held = client.begin_transaction("wrong")
        with pytest.raises(NotFound):
            client.add_partitions_to_txn("wrong", held.producer_id, held.epoch, [("nowhere", 0)])
        with pytest.raises(Refused) as refused:
            client.end_transaction("nobody", held.producer_id, held.epoch, True)
        assert refused.value.code == "txn_unknown"


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ("transaction_one_partition", "[{'order': 1}, {'order': 2}]"),
        ("transaction_many_topics", "('audit-log', 0): 2"),
        ("transaction_consume_transform_produce", "frontier=150"),
    ],
)
def test_the_three_usage_examples_run(example: str, said: str) -> None:
    with running() as server:
        command = [sys.executable, str(EXAMPLES / f"{example}.py"), f"http://127.0.0.1:{server.port}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout.splitlines()[-1]
