"""Connect unary: encodings, names of fields, errors, and bad input that writes nothing."""

import gzip
import json
from typing import Any

import pytest

from oncelog.protocols.bsfg import messages
from tests.conformance.bsfg.boundary import SERVICE, Boundary, Refused, new_id

CORE = ("AppendFact", "FetchFacts", "ConfirmReceipt", "PutObject")


def test_json_takes_lower_camel_case(node: Boundary) -> None:
    fact = node.fact()
    envelope = {messages.camel(name): value for name, value in fact["envelope"].items()}
    inner = {messages.camel(name): value for name, value in fact["fact"].items()}
    node.call("AppendFact", {"envelope": envelope, "fact": inner})
    assert node.call("AppendFact", fact)["duplicate"]


def test_json_answers_in_snake_case_with_64_bit_numbers_as_strings(node: Boundary) -> None:
    consumer, _ = node.caught_up()
    body = json.dumps(node.fact()).encode()
    _, _, answer = node.request("POST", SERVICE + "AppendFact", body, {"Content-Type": "application/json"})
    assert isinstance(json.loads(answer)["sequence"], str)
    asked = json.dumps({"consumer_name": consumer, "stream": node.stream}).encode()
    _, _, page = node.request("POST", SERVICE + "FetchFacts", asked, {"Content-Type": "application/json"})
    (fact,) = json.loads(page)["facts"]
    assert isinstance(fact["sequence"], str)
    assert isinstance(fact["envelope"]["produced_at_unix_ms"], str)
    assert isinstance(fact["fact"]["object_json"], str)


@pytest.mark.parametrize("given", [1_780_000_000_001, "1780000000001"])
def test_json_takes_64_bit_numbers_as_numbers_and_as_strings(node: Boundary, given: Any) -> None:
    consumer, _ = node.caught_up()
    node.append(produced_at_unix_ms=given)
    (fact,) = node.fetch(consumer)
    assert fact["envelope"]["produced_at_unix_ms"] == 1_780_000_000_001


def test_the_object_may_be_given_as_an_object(node: Boundary) -> None:
    id_ = new_id()
    first = node.append(id_, object_json={"value": 21.5, "list": [1, None, True]})
    text = '{"list":[1.0,null,true],"value":21.5}'
    answer = node.call("AppendFact", node.fact(id_, object_json=text))
    assert (answer["sequence"], answer["duplicate"]) == (first, True)


def test_protobuf_and_json_are_the_same_fact(node: Boundary) -> None:
    consumer, _ = node.caught_up()
    fact = node.fact(labels={"a": "b"})
    sequence = node.call("AppendFact", fact, proto=True)["sequence"]
    asked = {"consumer_name": consumer, "stream": node.stream}
    pages = [node.call("FetchFacts", asked, proto=proto)["facts"] for proto in (False, True)]
    assert pages[0] == pages[1] == [{"sequence": sequence, **fact}]


def test_a_compressed_body_is_taken_or_refused_in_the_words_of_connect(node: Boundary) -> None:
    body = gzip.compress(json.dumps(node.fact()).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    status, _, answer = node.request("POST", SERVICE + "AppendFact", body, headers)
    assert status == 200 or json.loads(answer)["code"] == "unimplemented"
    status, _, answer = node.request("POST", SERVICE + "AppendFact", body, {**headers, "Content-Encoding": "x-no"})
    assert (status, json.loads(answer)["code"]) == (501, "unimplemented")


def test_a_timeout_is_taken(node: Boundary) -> None:
    assert node.call("AppendFact", node.fact(), headers={"Connect-Timeout-Ms": "10000"})["sequence"] > 0


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", ""])
def test_another_content_type_is_415(node: Boundary, kind: str) -> None:
    status, _, _ = node.request("POST", SERVICE + "AppendFact", b"{}", {"Content-Type": kind})
    assert status == 415


def test_a_get_is_not_a_call_that_writes(node: Boundary) -> None:
    status, _, _ = node.request("GET", SERVICE + "AppendFact")
    assert status in (405, 415)


def test_an_unknown_method_is_unimplemented_or_not_found(node: Boundary) -> None:
    status, _, _ = node.request("POST", SERVICE + "DropFacts", b"{}", {"Content-Type": "application/json"})
    assert status in (404, 501)


@pytest.mark.parametrize("method", CORE)
@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b"{", b'{"no_such_field": 1}', b'{"a":1,"a":2}', b"\xff\xfe", b"[" * 50_000]
)
def test_json_that_is_no_request_is_an_invalid_argument(node: Boundary, method: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    status, kinds, answer = node.request("POST", SERVICE + method, body, headers)
    assert (status, json.loads(answer)["code"]) == (400, "invalid_argument")
    assert json.loads(answer)["message"]
    assert kinds["content-type"].startswith("application/json")


@pytest.mark.parametrize("method", CORE)
@pytest.mark.parametrize("body", [b"", b"\xff", b"\x0a\x7f", b"\x08\x01"])
def test_protobuf_that_is_no_request_is_an_invalid_argument(node: Boundary, method: str, body: bytes) -> None:
    status, kinds, answer = node.request("POST", SERVICE + method, body, {"Content-Type": "application/proto"})
    assert (status, json.loads(answer)["code"]) == (400, "invalid_argument")
    assert kinds["content-type"].startswith("application/json"), "errors are JSON in every encoding"


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("AppendFact", {"envelope": "x"}),
        ("AppendFact", {"envelope": {"produced_at_unix_ms": "soon"}}),
        ("AppendFact", {"envelope": {"labels": {"a": 1}}}),
        ("AppendFact", {"fact": {"object_json": 5}}),
        ("AppendFact", {"attachments": {}}),
        ("FetchFacts", {"consumer_name": 5}),
        ("FetchFacts", {"consumer_name": "c", "limit": -1}),
        ("FetchFacts", {"consumer_name": "c", "limit": 4294967295}),
        ("ConfirmReceipt", {"consumer_name": "c", "sequence": -1}),
        ("ConfirmReceipt", {"consumer_name": "c", "sequence": 1.5}),
        ("ConfirmReceipt", {"consumer_name": "c", "sequence": "18446744073709551616"}),
        ("PutObject", {"bucket": "b", "key": "k", "blob": "!"}),
    ],
)
def test_a_field_of_another_type_or_out_of_range_is_named(node: Boundary, method: str, message: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        node.call(method, message)
    assert refused.value.code == "invalid_argument"
    names = [name for name in str(message).replace("'", " ").split() if name.isidentifier()]
    assert any(name in refused.value.message for name in names)


def test_bad_calls_write_nothing(node: Boundary) -> None:
    consumer, _ = node.caught_up()
    for number in range(100):
        with pytest.raises(Refused):
            node.call("AppendFact", node.fact(object_json=f'{{"n": {number}'))
    assert node.fetch(consumer) == []
