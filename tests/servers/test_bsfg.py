"""The boundary on a real server: what a client of many calls sees, beside the conformance suite with one at a time."""

import json
from typing import Any

from tests.servers.running import running
from tests.servers.talking import request

APPEND = "/bsfg.v1.BoundaryService/AppendFact"
JSON = {"Content-Type": "application/json"}


def fact(number: int, **changes: Any) -> bytes:
    envelope = {"message_id": f"m{number}", "from_zone": "a", "to_zone": "b", "produced_at_unix_ms": 1}
    message = {"envelope": envelope, "fact": {"subject": "pump:1", "predicate": "is_on", "object_json": "true"}}
    return json.dumps(message | changes).encode()


def test_pipelined_facts_keep_their_order_from_the_very_first_one() -> None:
    """The topic is made by the first fact: those behind it must not overtake it meanwhile."""
    with running() as server, server.client() as client:
        client.send(b"".join(request("POST", APPEND, fact(number), JSON) for number in range(50)))
        answers = [json.loads(client.answer().body) for _ in range(50)]
    assert [int(answer["sequence"]) for answer in answers] == list(range(1, 51))


def test_a_body_that_is_too_large_is_refused_before_it_came() -> None:
    with running() as server, server.client() as client:
        client.send(b"POST %b HTTP/1.1\r\nHost: h\r\nContent-Length: 6000000\r\n\r\n" % APPEND.encode())
        answer = client.answer()
    assert answer.status == 400
    assert "5,242,880" in json.loads(answer.body)["message"]


def test_a_timeout_that_passes_is_told_as_such() -> None:
    with running() as server, server.client() as client:
        answer = client.ask("POST", APPEND, fact(1), {**JSON, "Connect-Timeout-Ms": "0"})
        told = json.loads(answer.body)
        again = json.loads(client.ask("POST", APPEND, fact(1), JSON).body)
    if answer.status != 200:  # the write may have been quicker
        assert (answer.status, told["code"]) == (504, "deadline_exceeded")
        assert again["duplicate"], "the call was carried out all the same"
    assert again["sequence"] == "1"


def test_facts_are_ordinary_records_with_the_envelope_in_headers() -> None:
    with running() as server, server.client() as client:
        client.ask("POST", APPEND, fact(7), JSON)
        values = json.loads(client.ask("GET", "/v1/stream/facts.operational").body)
    assert values == [{"object": True, "predicate": "is_on", "subject": "pump:1"}]


def test_calls_are_counted() -> None:
    with running() as server:
        with server.client() as client:
            client.ask("POST", APPEND, fact(1), JSON)
            client.ask("POST", APPEND, fact(1), JSON)
        metrics = server.metrics()
    assert metrics["oncelog_duplicates_total"] >= 1
