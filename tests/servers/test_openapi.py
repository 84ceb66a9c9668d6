"""Every operation of the OpenAPI description, called once: its answer is what is described."""

from typing import Any

import msgspec
import pytest

from oncelog.core import batch as codec
from tests.protocols.http.json_schema import flaws, resolved
from tests.servers.running import Running
from tests.servers.talking import Headers

JSON: Headers = {"Content-Type": "application/json"}
BATCHES: Headers = {"Content-Type": "application/vnd.oncelog.batches"}
BATCH = codec.encode_values([b"a", b"b"], 1_700_000_000_000)


@pytest.fixture(scope="module")
def description(shared: Running) -> dict[str, Any]:
    document: dict[str, Any] = shared.ask("GET", "/v1/openapi.json").json
    return document


@pytest.fixture(scope="module")
def prepared(shared: Running) -> dict[str, Any]:
    """Things for the calls to be about."""
    shared.ask("PUT", "/v1/topics/described", b'{"partitions": 2, "content_type": "text/plain"}')
    headers: Headers = {
        "Content-Type": "text/plain", "Producer-Id": "p", "Producer-Epoch": 0, "Producer-Seq": 0,
        "Stream-Message-Id": "m",
    }  # fmt: skip
    assert shared.ask("POST", "/v1/stream/described", b"x", headers).status == 200
    commit = {
        "appends": [{"topic": "described", "records": [{"value": "y"}]}],
        "producer": {"name": "described", "epoch": 0, "sequence": 0},
        "cursors": [{"name": "c", "topic": "described", "frontier": 1}],
    }
    assert shared.ask("POST", "/v1/commit", msgspec.json.encode(commit), JSON).status == 200
    fence = shared.ask("POST", "/v1/applications/described").json["fence"]
    owner = b'{"application": "described", "fence": %d}' % fence
    stage = shared.ask("POST", "/v1/stages", owner, JSON).json["stage_id"]
    held = shared.ask("POST", "/v1/txns/t/begin", b"{}", JSON).json
    assert held["epoch"] == 0
    return {"fence": fence, "stage": stage, "pid": held["producer_id"]}


HELD = b'"producer_id": {pid}, "epoch": 0'


# Operation, target, body, status. What stands in braces is from `prepared`.
CALLS: list[tuple[str, str, bytes, int]] = [
    ("post /v1/commit", "/v1/commit", b'{"appends": [{"topic": "described", "records": [{"value": "z"}]}]}', 200),
    ("post /v1/commit", "/v1/commit", b'{"commit_id": 7}', 400),
    ("post /v1/commit", "/v1/commit", b'{"appends": [{"topic": "nobody", "records": [{"value": "z"}]}]}', 404),
    (
        "post /v1/commit",
        "/v1/commit",
        (
            b'{"appends": [{"topic": "described", "records": [{"value": "z"}]}],'
            b' "conditions": [{"kind": "expected_tail", "topic": "described", "tail": 99}]}'
        ),
        409,
    ),
    ("get /v1/commit/producers/{name}", "/v1/commit/producers/described", b"", 200),
    ("get /v1/commit/producers/{name}", "/v1/commit/producers/nobody", b"", 404),
    ("get /v1/receipts/{topic}/{id}", "/v1/receipts/described/m", b"", 200),
    ("get /v1/receipts/{topic}/{id}", "/v1/receipts/described/n", b"", 404),
    ("get /v1/producers", "/v1/producers?topic=described", b"", 200),
    ("get /v1/producers", "/v1/producers", b"", 400),
    ("get /v1/producers/{topic}/{name}", "/v1/producers/described/p?scope=http&partition=0", b"", 200),
    ("get /v1/producers/{topic}/{name}", "/v1/producers/described/q", b"", 404),
    ("get /v1/cut", "/v1/cut?topic=described", b"", 200),
    ("get /v1/offsets", "/v1/offsets?topic=described&time_ms=1", b"", 200),
    ("get /v1/offsets", "/v1/offsets?entry=999999999", b"", 400),
    ("get /v1/streams", "/v1/streams?prefix=described&limit=1", b"", 200),
    ("get /v1/streams", "/v1/streams?limit=0", b"", 400),
    ("get /v1/cursors", "/v1/cursors", b"", 200),
    ("get /v1/cursors/{name}/{topic}", "/v1/cursors/c/described", b"", 200),
    ("get /v1/cursors/{name}/{topic}", "/v1/cursors/d/described", b"", 404),
    ("put /v1/cursors/{name}/{topic}", "/v1/cursors/e/described", b'{"frontier": 1}', 204),
    ("put /v1/cursors/{name}/{topic}", "/v1/cursors/e/described", b"{}", 400),
    ("delete /v1/cursors/{name}/{topic}", "/v1/cursors/e/described", b"", 204),
    ("post /v1/txns/{txn_id}/begin", "/v1/txns/described-too/begin", b"{}", 200),
    (
        "post /v1/txns/{txn_id}/partitions",
        "/v1/txns/t/partitions",
        b'{%s, "partitions": [{"topic": "described"}]}' % HELD,
        200,
    ),
    ("post /v1/txns/{txn_id}/groups", "/v1/txns/t/groups", b'{%s, "groups": ["g"]}' % HELD, 200),
    (
        "post /v1/txns/{txn_id}/offsets",
        "/v1/txns/t/offsets",
        b'{%s, "group": "g", "offsets": [{"topic": "described", "offset": 9}]}' % HELD,
        200,
    ),
    (
        "post /v1/txns/{txn_id}/append",
        "/v1/txns/t/append",
        b'{%s, "topic": "described", "sequence": 0, "records": [{"value": "t"}]}' % HELD,
        200,
    ),
    ("get /v1/txns", "/v1/txns", b"", 200),
    ("get /v1/txns/{txn_id}", "/v1/txns/t", b"", 200),
    ("get /v1/txns/{txn_id}", "/v1/txns/nobody", b"", 404),
    ("post /v1/txns/{txn_id}/end", "/v1/txns/t/end", b'{"producer_id": {pid}, "epoch": 5, "commit": true}', 403),
    ("post /v1/txns/{txn_id}/end", "/v1/txns/t/end", b'{%s, "commit": true}' % HELD, 200),
    ("post /v1/txns/{txn_id}/end", "/v1/txns/t/end", b'{%s, "commit": false}' % HELD, 409),
    ("post /v1/txns/{txn_id}/groups", "/v1/txns/t/groups", b'{%s, "groups": ["g"]}' % HELD, 200),
    ("post /v1/txns/{txn_id}/abort", "/v1/txns/t/abort", b"{%s}" % HELD, 200),
    ("get /v1/topics/{topic}", "/v1/topics/described", b"", 200),
    ("get /v1/topics/{topic}", "/v1/topics/nobody", b"", 404),
    ("put /v1/topics/{topic}", "/v1/topics/described-too", b'{"partitions": 1}', 201),
    ("put /v1/topics/{topic}", "/v1/topics/described-too", b'{"partitions": 1}', 200),
    ("put /v1/topics/{topic}", "/v1/topics/described-too", b'{"partitions": 2}', 409),
    ("patch /v1/topics/{topic}", "/v1/topics/described-too", b'{"partitions": 2}', 200),
    ("post /v1/topics/{topic}/delete-records", "/v1/topics/described/delete-records", b'{"ranges": [[0, 1]]}', 200),
    ("post /v1/topics/{topic}/trim", "/v1/topics/described/trim", b'{"floor": 1}', 200),
    ("post /v1/topics/{topic}/trim", "/v1/topics/described/trim", b'{"floor": 1000}', 400),
    ("post /v1/applications/{name}", "/v1/applications/described-too", b"", 200),
    ("get /v1/applications/{name}", "/v1/applications/described", b"", 200),
    ("get /v1/applications/{name}", "/v1/applications/nobody", b"", 404),
    ("post /v1/stages", "/v1/stages", b'{"application": "described", "fence": {fence}}', 200),
    ("post /v1/stages", "/v1/stages", b'{"application": "described", "fence": 0}', 403),
    ("post /v1/stages/{id}", "/v1/stages/{stage}?at=0", BATCH, 200),
    ("post /v1/stages/{id}", "/v1/stages/{stage}?at=1", BATCH, 409),
    (
        "post /v1/publish",
        "/v1/publish",
        (
            b'{"application": "described", "fence": {fence}, "query": "q", "batch": 0,'
            b' "stages": [{"stage_id": {stage}, "topic": "described", "partition": 1, "count": 2}]}'
        ),
        200,
    ),
    ("post /v1/publish", "/v1/publish", b'{"application": "described", "fence": 0, "query": "q", "batch": 1}', 403),
    ("post /v1/stages/drop", "/v1/stages/drop", b'{"stage_ids": [{stage}]}', 204),
    ("get /health", "/health", b"", 200),
    ("get /metrics", "/metrics", b"", 200),
    ("get /v1/openapi.json", "/v1/openapi.json", b"", 200),
]


def test_every_operation_is_called(description: dict[str, Any]) -> None:
    described = {f"{method} {path}" for path, methods in description["paths"].items() for method in methods}
    assert {operation for operation, _, _, status in CALLS if status < 300} == described


def test_answers_are_what_is_described(shared: Running, description: dict[str, Any], prepared: dict[str, Any]) -> None:
    """In their order: some are about what others made."""
    for name, target, body, status in CALLS:
        for key, value in prepared.items():
            target = target.replace(f"{{{key}}}", str(value))
            body = body.replace(f"{{{key}}}".encode(), str(value).encode()) if body is not BATCH else body
        method, _, path = name.partition(" ")
        answer = shared.ask(method.upper(), target, body, BATCHES if body is BATCH else JSON)
        assert answer.status == status, (name, target, answer)
        described = resolved(description["paths"][path][method]["responses"][str(status)], description)
        if "content" not in described:
            assert answer.body == b""
            continue
        ((content_type, content),) = described["content"].items()
        assert answer.headers["content-type"].partition(";")[0] == content_type
        value = answer.body.decode() if content_type == "text/plain" else answer.json
        assert flaws(value, content["schema"], description) == [], (name, target, answer)
        assert status < 400 or answer.json["status"] == status


def test_description_may_be_kept_by_nobody_and_is_served_as_json(shared: Running) -> None:
    answer = shared.ask("GET", "/v1/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
