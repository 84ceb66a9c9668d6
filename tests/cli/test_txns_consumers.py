"""`oncelog txns` and `oncelog consumers` against a real server."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.client import Client, TxnOffset
from tests.cli.running import PROGRAM, serving


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving("--in-memory") as server:
        yield server.url


def run(*arguments: str, url: str) -> "subprocess.CompletedProcess[str]":
    command = [PROGRAM, *arguments, "--url", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def rows(*arguments: str, url: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json", url=url).stdout.splitlines()]


def test_a_transaction_that_holds_a_stream_back_is_found_and_aborted(url: str) -> None:
    with Client(url) as client:
        client.create_topic("held")
        txn = client.transaction("slow", timeout_ms=600_000)
        txn.begin()
        txn.append("held", {"n": 1})
        (row,) = rows("txns", "hanging", url=url)
        assert (row["txn_id"], row["state"]) == ("slow", "ongoing")
        assert row["holds"] == [{"topic": "held", "partition": 0, "offset": 0}]
        assert row["ends_ms"] - row["started_ms"] == 600_000
        shown = run("txns", "hanging", url=url)
        assert shown.returncode == 1
        assert "held/0 from 0" in shown.stdout
        assert run("txns", "hanging", "--older-than", "3600", url=url).returncode == 0
        assert run("txns", "abort", "slow", url=url).returncode == 0
        assert run("txns", "hanging", url=url).returncode == 0
        assert "complete_abort" in run("txns", "describe", "slow", url=url).stdout
        assert run("txns", "abort", "slow", url=url).returncode == 1
        with client.reader("held", live=False) as reader:
            assert list(reader) == []
    assert run("txns", "describe", "nobody", url=url).returncode == 1


def test_what_is_left_for_a_consumer_counts_no_markers_and_no_aborted_records(url: str) -> None:
    with Client(url) as client:
        client.create_topic("inbox")
        txn = client.transaction("writer")
        for number, commits in enumerate((True, False, True)):
            txn.begin()
            txn.append("inbox", {"n": number}, {"n": number})
            txn.commit() if commits else txn.abort()
        txn.begin()
        txn.commit_offsets("readers", [TxnOffset("inbox", 1)])
        txn.commit()
        (row,) = rows("consumers", "describe", "kafka:readers", url=url)
        assert (row["frontier"], row["lag"]) == (1, 3)
        assert row["lag_ms"] >= 0
        assert [each["name"] for each in rows("consumers", "list", "--prefix", "kafka:", url=url)] == ["kafka:readers"]
        assert run("consumers", "reset", "kafka:readers", "inbox", "--to", "latest", url=url).returncode == 0
        (row,) = rows("consumers", "describe", "kafka:readers", url=url)
        assert (row["frontier"], row["lag"], row["lag_ms"]) == (9, 0, 0)
        assert run("consumers", "reset", "kafka:readers", "inbox", "--to", "0", url=url).returncode == 0
        (row,) = rows("consumers", "describe", "kafka:readers", url=url)
        assert (row["frontier"], row["lag"]) == (0, 4)
    assert run("consumers", "reset", "kafka:readers", "inbox", "--to", "nowhere", url=url).returncode == 2
    assert run("consumers", "delete", "kafka:readers", url=url).returncode == 0
    assert run("consumers", "describe", "kafka:readers", url=url).returncode == 1
