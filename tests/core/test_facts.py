"""Facts as records: the identity, the checks, and that a record says all that the fact said."""

import json
from typing import Any

import pytest

from oncelog.core import facts
from oncelog.core.facts import Attachment, CheckedFact, Fact, FactInvalid

DIGEST = "sha256:" + "0a" * 32
ATTACHMENT = Attachment("reports", "2026/11/a.pdf", DIGEST, 17, "application/pdf", "a.pdf")


def a_fact(**changes: Any) -> Fact:
    fields: dict[str, Any] = {
        "message_id": "pump-1:start:7",
        "from_zone": "plant-a",
        "to_zone": "enterprise",
        "produced_at_unix_ms": 1_780_000_000_000,
        "subject": "pump:plant-a/1",
        "predicate": "has_started",
        "object_json": '{"temperature": 21.5, "n": 1}',
    }
    return Fact(**(fields | changes))


WHOLE = a_fact(
    correlation_id="c",
    causation_id="d",
    labels={"line": "3", "ä": "ö"},
    object_media_type="application/json",
    object_schema="urn:pump:1",
    attachments=(ATTACHMENT,),
)


def digest_of(fact: Fact) -> bytes:
    record = facts.record_of(fact)
    checked = facts.checked(record.key, record.value, record.headers)
    assert isinstance(checked, CheckedFact), checked
    assert checked == CheckedFact(fact.message_id.encode(), record.digest)
    return checked.digest


@pytest.mark.parametrize("fact", [a_fact(), WHOLE], ids=["least", "whole"])
def test_a_record_says_all_that_the_fact_said(fact: Fact) -> None:
    record = facts.record_of(fact)
    assert facts.fact_of(record.key, record.value, record.headers) == fact
    assert json.loads(record.value) == {
        "object": json.loads(fact.object_json),
        "predicate": fact.predicate,
        "subject": fact.subject,
    }


@pytest.mark.parametrize("text", ['{"n":1,"temperature":21.5}', ' {"temperature":2.15e1,"n":1.0}\n'])
def test_spelling_does_not_count(text: str) -> None:
    assert digest_of(a_fact(object_json=text)) == digest_of(a_fact())


@pytest.mark.parametrize(
    "changes",
    [
        {"produced_at_unix_ms": 1},
        {"correlation_id": "x"},
        {"causation_id": "x"},
        {"labels": {"a": "b"}},
        {"attachments": (Attachment("reports", "2026/11/a.pdf", DIGEST, 17, "application/pdf", "other.pdf"),)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_is_outside_of_the_identity_does_not_count_and_is_named(changes: dict[str, Any]) -> None:
    other = Fact(**({name: getattr(WHOLE, name) for name in WHOLE.__struct_fields__} | changes))
    assert digest_of(other) == digest_of(WHOLE)
    field = next(iter(changes))
    assert facts.differences(WHOLE, other) == ["attachments.file_name" if field == "attachments" else field]


@pytest.mark.parametrize(
    "changes",
    [
        {"subject": "pump:plant-a/2"},
        {"predicate": "has_stopped"},
        {"object_json": "null"},
        {"from_zone": "plant-b"},
        {"to_zone": "idmz"},
        {"object_media_type": "text/plain"},
        {"object_schema": "urn:pump:2"},
        {"attachments": ()},
        {"attachments": (ATTACHMENT, ATTACHMENT)},
        {"attachments": (Attachment("reports", "2026/11/a.pdf", DIGEST, 18, "application/pdf"),)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_belongs_to_the_identity_counts(changes: dict[str, Any]) -> None:
    other = Fact(**({name: getattr(WHOLE, name) for name in WHOLE.__struct_fields__} | changes))
    assert digest_of(other) != digest_of(WHOLE)


def test_the_order_of_attachments_counts() -> None:
    second = Attachment("reports", "b", DIGEST, 1)
    assert digest_of(a_fact(attachments=(ATTACHMENT, second))) != digest_of(a_fact(attachments=(second, ATTACHMENT)))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"message_id": ""}, "envelope.message_id"),
        ({"message_id": "x" * 1_025}, "envelope.message_id"),
        ({"message_id": "a\nb"}, "envelope.message_id"),
        ({"message_id": "\ud800"}, "envelope.message_id"),
        ({"from_zone": ""}, "envelope.from_zone"),
        ({"from_zone": "plant a"}, "envelope.from_zone"),
        ({"to_zone": "z" * 65}, "envelope.to_zone"),
        ({"produced_at_unix_ms": 0}, "envelope.produced_at_unix_ms"),
        ({"produced_at_unix_ms": -1}, "envelope.produced_at_unix_ms"),
        ({"subject": "pump"}, "fact.subject"),
        ({"subject": "pump:a/b/c"}, "fact.subject"),
        ({"subject": "pump:a b"}, "fact.subject"),
        ({"predicate": "HasStarted"}, "fact.predicate"),
        ({"object_json": ""}, "fact.object_json"),
        ({"object_json": "{"}, "fact.object_json"),
        ({"object_json": '{"a":1,"a":1}'}, "fact.object_json"),
        ({"object_json": '"' + "x" * (1 << 20) + '"'}, "fact.object_json"),
        ({"labels": {"": "x"}}, "envelope.labels"),
        ({"labels": {str(n): "x" for n in range(65)}}, "envelope.labels"),
        ({"attachments": (ATTACHMENT,) * 65}, "attachments"),
        ({"attachments": (Attachment("Reports", "k", DIGEST, 1),)}, r"attachments\[0\].bucket"),
        ({"attachments": (Attachment("reports", "", DIGEST, 1),)}, r"attachments\[0\].key"),
        ({"attachments": (Attachment("reports", "k", "md5:1", 1),)}, r"attachments\[0\].digest"),
        ({"attachments": (Attachment("reports", "k", DIGEST, -1),)}, r"attachments\[0\].size"),
    ],
)
def test_a_field_that_cannot_be_taken_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(FactInvalid, match=f"^{field}: "):
        facts.record_of(a_fact(**changes))


def changed(fact: Fact, **headers: bytes | None) -> tuple[bytes, bytes, list[tuple[str, bytes | None]]]:
    record = facts.record_of(fact)
    given: dict[str, bytes | None] = dict(record.headers)
    for name, content in headers.items():
        given[f"bsfg.{name}"] = content
    return record.key, record.value, [(name, content) for name, content in given.items() if content is not None]


def test_a_record_of_any_face_is_judged_by_the_same_check() -> None:
    record = facts.record_of(WHOLE)
    other = [("traceparent", b"00-1"), *[pair for pair in record.headers if pair[0] != "bsfg.content_sha256"]]
    assert facts.checked(record.key, record.value, other) == CheckedFact(record.message_id, record.digest)


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"message_id": None}, "bsfg.message_id: it is missing"),
        ({"from_zone": None}, "envelope.from_zone: it is missing"),
        ({"produced_at_unix_ms": b"soon"}, "not a number of milliseconds"),
        ({"produced_at_unix_ms": None}, "not a number of milliseconds"),
        ({"labels": b"[]"}, "value: "),
        ({"attachments": b"{}"}, "value: "),
        ({"from_zone": b"\xff"}, "not UTF-8"),
        ({"colour": b"red"}, "no such header"),
        ({"content_sha256": b"00"}, "the content has"),
    ],
)
def test_a_record_with_a_wrong_envelope_is_refused(headers: dict[str, bytes | None], says: str) -> None:
    told = facts.checked(*changed(a_fact(), **headers))
    assert isinstance(told, str)
    assert says in told


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"pump:plant-a/1", b"21.5"),
        (b"pump:plant-a/1", b'{"predicate":"a","subject":"pump:plant-a/1"}'),
        (b"pump:plant-a/1", b'{"object":1,"object":2,"predicate":"a","subject":"pump:plant-a/1"}'),
        (b"pump:plant-a/1", b'{"object":1,"predicate":"a","subject":"pump:plant-a/1","more":1}'),
        (b"pump:plant-a/2", b'{"object":1,"predicate":"a","subject":"pump:plant-a/1"}'),
        (b"pump:plant-a/1", b"[" * 100_000),
    ],
)
def test_a_record_whose_value_is_no_fact_is_refused(key: bytes | None, value: bytes | None) -> None:
    _, _, headers = changed(a_fact(), content_sha256=None)
    assert isinstance(facts.checked(key, value, headers), str)
