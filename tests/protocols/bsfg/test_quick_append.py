"""The quick way to read an AppendFact says what the long way says, or nothing."""

import json
from typing import Any

import pytest

from oncelog.protocols.bsfg import messages
from oncelog.protocols.bsfg.quick_append import quick_append

ENVELOPE = {"message_id": "m", "from_zone": "a", "to_zone": "b", "produced_at_unix_ms": 5}
FACT = {"subject": "pump:1", "predicate": "is_on", "object_json": '{"a": {"b\\"": 1}}'}


def body_of(**changes: Any) -> bytes:
    return json.dumps({"envelope": ENVELOPE, "fact": FACT} | changes).encode()


@pytest.mark.parametrize(
    "body",
    [
        body_of(),
        body_of(envelope={**ENVELOPE, "correlation_id": "c", "object_schema": "s"}),
        body_of(envelope={"message_id": "ä\n", "from_zone": ""}),
        body_of(fact={**FACT, "object_json": "21.5"}),
    ],
)
def test_a_usual_body_is_read_as_the_long_way_reads_it(body: bytes) -> None:
    assert quick_append(body) == messages.from_json("AppendFactRequest", body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[" * 100_000,
        b"\xff",
        body_of(attachments=[]),
        body_of(envelope={"messageId": "m"}),
        body_of(envelope={**ENVELOPE, "labels": {"a": "b"}}),
        body_of(envelope={**ENVELOPE, "produced_at_unix_ms": "5"}),
        body_of(fact={**FACT, "object_json": {"a": 1}}),
        b'{"envelope": {"message_id": "m", "message_id": "n"}, "fact": ' + json.dumps(FACT).encode() + b"}",
        b'{"envelope": {"message_id" : "m"}, "fact": ' + json.dumps(FACT).encode() + b"}",
        b'{"envelope": {"message_id": "\\ud800"}, "fact": ' + json.dumps(FACT).encode() + b"}",
    ],
)
def test_any_other_body_is_left_to_the_long_way(body: bytes) -> None:
    assert quick_append(body) is None
