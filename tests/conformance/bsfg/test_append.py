"""AppendFact: once per message_id, and what makes two contents the same."""

import base64
from typing import Any

import pytest

from oncelog.protocols.bsfg import messages
from tests.conformance.bsfg.boundary import Boundary, Refused, new_id

DIGEST = "sha256:" + "0" * 64


def test_a_fact_gets_a_sequence_and_is_no_duplicate(node: Boundary) -> None:
    answer = node.call("AppendFact", node.fact())
    assert answer["stream"] == node.stream
    assert answer["sequence"] > 0
    assert not answer.get("duplicate")


def test_sequences_rise_in_the_order_of_appends(node: Boundary) -> None:
    sequences = [node.append() for _ in range(5)]
    assert sequences == sorted(set(sequences))


@pytest.mark.parametrize("proto", [False, True], ids=["json", "protobuf"])
def test_a_retry_gets_the_original_sequence(node: Boundary, proto: bool) -> None:
    fact = node.fact()
    first = node.call("AppendFact", fact)
    node.append()
    again = node.call("AppendFact", fact, proto=proto)
    assert (again["stream"], again["sequence"], again["duplicate"]) == (first["stream"], first["sequence"], True)


@pytest.mark.parametrize(
    "text",
    ['{"b":[1,2.5],"a":"é"}', '{ "a" : "\\u00e9", "b" : [1.0, 25e-1] }', '{"a":"é","b":[1e0,2.50]}\n'],
)
def test_key_order_number_form_and_white_space_do_not_count(node: Boundary, text: str) -> None:
    id_ = new_id()
    first = node.append(id_, object_json='{"a":"é","b":[1,2.5]}')
    answer = node.call("AppendFact", node.fact(id_, object_json=text))
    assert (answer["sequence"], answer["duplicate"]) == (first, True)


@pytest.mark.parametrize(
    "changes",
    [
        {"object_json": '{"value": 21.6}'},
        {"object_json": '{"value": "21.5"}'},
        {"subject": "conformance:suite/2"},
        {"predicate": "was_guessed"},
        {"to_zone": "elsewhere-2"},
        {"object_schema": "urn:x"},
        {"object_media_type": "application/json"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_other_content_is_a_conflict_and_writes_nothing(node: Boundary, changes: dict[str, Any]) -> None:
    consumer, _ = node.caught_up()
    id_ = new_id()
    first = node.append(id_)
    with pytest.raises(Refused) as refused:
        node.call("AppendFact", node.fact(id_, **changes))
    assert refused.value.code == "already_exists"
    assert refused.value.status == 409
    assert "conflicting_duplicate" in refused.value.message
    (detail,) = refused.value.details
    assert detail["type"] == "bsfg.v1.ConflictDetail"
    padded = detail["value"] + "=" * (-len(detail["value"]) % 4)
    conflict = messages.from_protobuf("ConflictDetail", base64.b64decode(padded))
    assert (conflict["stream"], conflict["sequence"]) == (node.stream, first)
    assert conflict["stored_digest"] != conflict["received_digest"]
    assert [fact["sequence"] for fact in node.fetch(consumer)] == [first]


@pytest.mark.parametrize(
    "changes",
    [
        {"produced_at_unix_ms": 1},
        {"correlation_id": "c"},
        {"causation_id": "c"},
        {"labels": {"a": "b"}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_difference_outside_of_the_identity_is_reported_not_refused(node: Boundary, changes: dict[str, Any]) -> None:
    id_ = new_id()
    first = node.append(id_)
    answer = node.call("AppendFact", node.fact(id_, **changes))
    assert (answer["sequence"], answer["duplicate"]) == (first, True)
    assert answer["envelope_differences"] == list(changes)


def test_the_receipt_of_an_id_says_where_it_is(node: Boundary) -> None:
    id_ = new_id()
    with pytest.raises(Refused) as refused:
        node.call("GetReceipt", {"message_id": id_})
    assert refused.value.code == "not_found"
    sequence = node.append(id_)
    receipt = node.call("GetReceipt", {"message_id": id_})
    assert (receipt["stream"], receipt["sequence"]) == (node.stream, sequence)
    assert receipt["content_sha256"].startswith(receipt["digest"])


@pytest.mark.parametrize(
    ("object_json", "says"),
    [
        ('{"n": 9007199254740993}', "exactly"),
        ('{"a": 1, "a": 1}', "twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": "\\ud800"}', "surrogate"),
        ("{", "JSON"),
    ],
)
def test_json_without_one_meaning_is_refused(node: Boundary, object_json: str, says: str) -> None:
    fact = node.fact(object_json=object_json)
    with pytest.raises(Refused) as refused:
        node.call("AppendFact", fact)
    assert refused.value.code == "invalid_argument"
    assert says in refused.value.message
    with pytest.raises(Refused, match="not_found"):
        node.call("GetReceipt", {"message_id": fact["envelope"]["message_id"]})


@pytest.mark.parametrize("name", ["message_id", "from_zone", "to_zone", "produced_at_unix_ms", "subject", "predicate"])
def test_a_required_field_that_is_missing_is_named(node: Boundary, name: str) -> None:
    fact = node.fact()
    part = fact["fact"] if name in fact["fact"] else fact["envelope"]
    del part[name]
    with pytest.raises(Refused) as refused:
        node.call("AppendFact", fact)
    assert refused.value.code == "invalid_argument"
    assert name in refused.value.message
