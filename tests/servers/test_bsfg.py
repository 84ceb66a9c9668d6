"""The boundary on a real server: what a client of many calls sees, beside the conformance suite with one at a time."""

import json
from typing import Any

from tests.servers.running import running
from tests.servers.talking import Client, request

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


def asked(client: Client, method: str, message: dict[str, Any]) -> Any:
    answer = client.ask("POST", f"/bsfg.v1.BoundaryService/{method}", json.dumps(message).encode(), JSON)
    return json.loads(answer.body)


def test_status_tells_frontier_gaps_and_what_is_unconfirmed() -> None:
    with running() as server, server.client() as client:
        for number in range(6):
            client.ask("POST", APPEND, fact(number), JSON)
        asked(client, "FetchFacts", {"consumer_name": "c"})
        for sequence in (1, 3, 6):
            asked(client, "ConfirmReceipt", {"consumer_name": "c", "sequence": sequence})
        status = json.loads(client.ask("GET", "/bsfg/status").body)
    assert status["zone"] == "local"
    assert status["streams"] == [{"stream": "facts.operational", "first_sequence": 1, "last_sequence": 6}]
    (consumer,) = status["consumers"]
    assert (consumer["consumer_name"], consumer["frontier"], consumer["unconfirmed"]) == ("c", 1, 3)
    assert consumer["gaps"] == [{"first": 2, "last": 2}, {"first": 4, "last": 5}]
    assert consumer["lag_ms"] > 0
    assert consumer["gate"] == "open"


def test_a_closed_gate_gives_no_facts_until_it_is_opened_and_keeps_the_place() -> None:
    with running() as server, server.client() as client:
        client.ask("POST", APPEND, fact(1), JSON)
        client.ask("POST", APPEND, fact(2), JSON)
        asked(client, "ConfirmReceipt", {"consumer_name": "c", "sequence": 1})
        for gate, found in (("closed", "failed_precondition"), ("open", "2")):
            body = json.dumps({"consumer_name": "c", "gate": gate}).encode()
            assert client.ask("POST", "/bsfg/gate", body, JSON).status == 200
            page = asked(client, "FetchFacts", {"consumer_name": "c"})
            assert page.get("code", "") or page["facts"][0]["sequence"] == found
            assert page.get("code", found) == found
        assert asked(client, "ConfirmReceipt", {"consumer_name": "c", "sequence": 2}) == {"frontier": "2"}


def test_truncation_stops_at_a_consumer_from_its_first_fetch_on() -> None:
    with running() as server, server.client() as client:
        client.ask("POST", APPEND, fact(1), JSON)
        asked(client, "FetchFacts", {"consumer_name": "c"})
        trimmed = client.ask("POST", "/v1/topics/facts.operational/trim", b'{"floor": 1}', JSON)
        assert (trimmed.status, json.loads(trimmed.body)["code"]) == (409, "cursor_pinned")
        asked(client, "ConfirmReceipt", {"consumer_name": "c", "sequence": 1})
        assert client.ask("POST", "/v1/topics/facts.operational/trim", b'{"floor": 1}', JSON).status < 300


def test_a_plain_append_to_a_fact_topic_is_refused_on_the_http_face() -> None:
    with running() as server, server.client() as client:
        client.ask("POST", APPEND, fact(1), JSON)
        answer = client.ask("POST", "/v1/stream/facts.operational", b'{"a": 1}', JSON)
    assert answer.status == 409
    assert json.loads(answer.body)["code"] == "envelope_invalid"
