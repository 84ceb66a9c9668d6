"""The table of messages: it is `boundary.proto`, and both encodings say the same."""

import base64
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.protocols.bsfg import messages
from oncelog.protocols.bsfg.messages import METHODS, Field, Malformed
from oncelog.protocols.bsfg.service import contract

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXT,
    "bytes": st.binary(min_size=1, max_size=9),
    "bool": st.just(True),
    "map": st.dictionaries(TEXT, TEXT, min_size=1, max_size=2),
    "uint32": st.integers(1, 2**32 - 1),
    "int64": st.integers(-(2**53), 2**53).filter(bool),
    "uint64": st.integers(1, 2**53),
}


def message_of(name: str) -> st.SearchStrategy[dict[str, Any]]:
    optional = {field.name: value_of(field) for field in messages.MESSAGES[name]}
    return st.fixed_dictionaries({}, optional=optional)


def value_of(field: Field) -> st.SearchStrategy[Any]:
    one = VALUES[field.kind] if field.kind in VALUES else message_of(field.kind)
    if field.name == "object_json":
        return st.just('{"a": 1}')
    return st.lists(one, min_size=1, max_size=2) if field.is_repeated else one


@pytest.mark.parametrize("name", messages.MESSAGES)
def test_every_message_survives_both_encodings(name: str) -> None:
    @given(message_of(name))
    def survives(message: dict[str, Any]) -> None:
        assert messages.from_protobuf(name, messages.to_protobuf(name, message)) == message
        ready = messages.json_ready(name, message, whole=False)
        assert messages.from_json(name, json.dumps(ready).encode()) == without_empty(name, message)

    survives()


def without_empty(name: str, message: dict[str, Any]) -> dict[str, Any]:
    """JSON leaves out a message that says nothing; protobuf keeps it."""
    kept: dict[str, Any] = {}
    for field in messages.MESSAGES[name]:
        value = message.get(field.name)
        if not value:
            continue
        if field.kind in messages.MESSAGES:
            value = (
                [without_empty(field.kind, each) for each in value]
                if field.is_repeated
                else without_empty(field.kind, value)
            )
        kept[field.name] = value
    return kept


def test_the_table_is_the_contract() -> None:
    text = re.sub(r"//.*", "", contract().decode())
    found: dict[str, list[tuple[str, int, str]]] = {}
    for name, body in re.findall(r"message (\w+) \{([^}]*)\}", text):
        rows = re.findall(r"(repeated \w+|map<string, string>|\w+) (\w+) = (\d+);", body)
        found[name] = [(field, int(number), kind.replace("map<string, string>", "map")) for kind, field, number in rows]
    table = {
        name: [(f.name, f.number, f"repeated {f.kind}" if f.is_repeated else f.kind) for f in fields]
        for name, fields in messages.MESSAGES.items()
    }
    assert found == table
    assert tuple(re.findall(r"rpc (\w+)\((?:\w+)Request\) returns \(\w+Response\);", text)) == METHODS


@pytest.mark.parametrize("spelled", ["produced_at_unix_ms", "producedAtUnixMs"])
@pytest.mark.parametrize("given_", [5, "5", 5.0])
def test_names_and_numbers_have_two_spellings(spelled: str, given_: Any) -> None:
    body = json.dumps({spelled: given_}).encode()
    assert messages.from_json("Envelope", body) == {"produced_at_unix_ms": 5}


@pytest.mark.parametrize("padded", [base64.b64encode(b"\xfb\xff\xfe"), b"-__-", b"+//+"])
def test_bytes_are_taken_in_both_alphabets(padded: bytes) -> None:
    assert messages.from_json("PutObjectRequest", b'{"blob": "%b"}' % padded) == {"blob": b"\xfb\xff\xfe"}


def test_null_is_as_if_it_was_not_sent() -> None:
    assert messages.from_json("FetchFactsRequest", b'{"limit": null, "stream": "s"}') == {"stream": "s"}


@pytest.mark.parametrize(
    ("name", "body", "says"),
    [
        ("Envelope", b'{"messageId": "a", "message_id": "a"}', "twice"),
        ("Envelope", b'{"message_id": 1}', "message_id is a string, not 1"),
        ("Envelope", b'{"labels": {"a": null}}', "labels"),
        ("Envelope", b'{"produced_at_unix_ms": true}', "produced_at_unix_ms is a whole number"),
        ("Envelope", b'{"produced_at_unix_ms": "0x10"}', "whole number"),
        ("Envelope", b'{"produced_at_unix_ms": 1.5}', "whole number"),
        ("Fact", b'{"object_json": [1]}', "an array"),
        ("AppendFactRequest", b'{"attachments": [{"size": "x"}]}', r"attachments\[0\].size"),
        ("AppendFactRequest", b'{"fact": {"colour": 1}}', "fact.colour"),
        ("PutObjectRequest", b'{"blob": "a"}', "base64"),
        ("FetchFactsRequest", b'{"limit": 4294967296}', "4294967295"),
    ],
)
def test_json_that_is_not_the_message_names_the_field(name: str, body: bytes, says: str) -> None:
    with pytest.raises(Malformed, match=says):
        messages.from_json(name, body)
