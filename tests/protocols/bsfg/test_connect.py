"""The Connect protocol: heads, encodings, and the form of errors."""

import base64
import json

import cramjam
import pytest

from oncelog.protocols.bsfg import connect, messages
from oncelog.protocols.bsfg.connect import Answer, RpcError
from oncelog.protocols.bsfg.service import Call, begin
from oncelog.protocols.bsfg.zone import Route, Zone

JSON = {b"content-type": b"application/json"}
BODY = b'{"consumer_name": "c"}'
FETCH = "/bsfg.v1.BoundaryService/FetchFacts"

zone = Zone("plant-a", lambda _: ("", 0), (Route("audit:", "facts.audit"), Route("audit:doc-", "facts.documents")))


def answered(headers: dict[bytes, bytes], body: bytes = BODY, *, method: bytes = b"POST", path: str = FETCH) -> Answer:
    begun = begin(zone, method, path, headers, body)
    assert isinstance(begun, Answer), "it is refused before anything is asked"
    return begun


@pytest.mark.parametrize(
    "headers",
    [
        JSON,
        {b"content-type": b"application/json; charset=utf-8"},
        {**JSON, b"connect-protocol-version": b"1"},
        {**JSON, b"connect-timeout-ms": b"5000"},
        {**JSON, b"content-encoding": b"identity"},
    ],
)
def test_a_call_begins(headers: dict[bytes, bytes]) -> None:
    assert isinstance(begin(zone, b"POST", FETCH, headers, BODY), Call)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [(b"gzip", bytes(cramjam.gzip.compress(BODY))), (b"zstd", bytes(cramjam.zstd.compress(BODY)))],
)
def test_a_compressed_body_is_inflated(encoding: bytes, body: bytes) -> None:
    assert isinstance(begin(zone, b"POST", FETCH, {**JSON, b"content-encoding": encoding}, body), Call)


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ({**JSON, b"connect-protocol-version": b"2"}, BODY, 400, "invalid_argument"),
        ({**JSON, b"connect-timeout-ms": b"soon"}, BODY, 400, "invalid_argument"),
        ({**JSON, b"connect-timeout-ms": b"12345678901"}, BODY, 400, "invalid_argument"),
        ({**JSON, b"content-encoding": b"br"}, BODY, 501, "unimplemented"),
        ({**JSON, b"content-encoding": b"gzip"}, BODY, 400, "invalid_argument"),
        ({**JSON, b"content-encoding": b"gzip"}, bytes(cramjam.gzip.compress(bytes(6 << 20))), 400, "invalid_argument"),
    ],
)
def test_a_head_that_cannot_be_served_is_an_error(
    headers: dict[bytes, bytes], body: bytes, status: int, code: str
) -> None:
    answer = answered(headers, body)
    assert (answer.status, json.loads(answer.body)["code"]) == (status, code)


def test_the_names_of_supported_encodings_come_with_the_refusal() -> None:
    assert ("Accept-Encoding", "gzip, zstd") in answered({**JSON, b"content-encoding": b"br"}).headers


def test_another_content_type_is_told_the_right_ones() -> None:
    answer = answered({b"content-type": b"text/plain"})
    assert answer.status == 415
    assert answer.headers == (("Accept-Post", "application/json, application/proto"),)


def test_calls_are_made_by_post() -> None:
    assert answered(JSON, method=b"GET").status == 405


def test_an_error_is_json_with_a_detail_that_programs_can_read() -> None:
    detail = {"message_id": "m", "stream": "facts.audit", "sequence": 7}
    answer = connect.error_answer(RpcError("already_exists", "why", detail=("ConflictDetail", detail)))
    body = json.loads(answer.body)
    assert (answer.status, body["code"], body["message"]) == (409, "already_exists", "why")
    (told,) = body["details"]
    assert told["type"] == "bsfg.v1.ConflictDetail"
    assert not told["value"].endswith("=")
    padded = told["value"] + "=" * (-len(told["value"]) % 4)
    assert messages.from_protobuf("ConflictDetail", base64.b64decode(padded)) == detail
    assert told["debug"]["sequence"] == "7"


def test_the_contract_is_served_as_a_document() -> None:
    answer = answered({}, b"", method=b"GET", path="/bsfg/boundary.proto")
    assert answer.status == 200
    assert b"service BoundaryService" in answer.body
    assert json.loads(answered({}, b"", method=b"GET", path="/bsfg/zone").body) == {"zone": "plant-a"}
    assert answered({}, b"", method=b"GET", path="/bsfg/nothing").status == 404


@pytest.mark.parametrize(
    ("subject", "stream"),
    [("pump:1", "facts.operational"), ("audit:1", "facts.audit"), ("audit:doc-1", "facts.documents")],
)
def test_the_longest_prefix_of_a_subject_chooses_the_stream(subject: str, stream: str) -> None:
    assert zone.stream_for(subject) == stream
