"""JSON bodies: split into elements byte for byte, or refused with the place."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.command import Columns
from oncelog.limits import BATCH_RECORDS_MAX
from oncelog.protocols.http import json_body
from oncelog.protocols.http.actions import Submit
from oncelog.protocols.http.json_body import JsonInvalid, elements
from oncelog.protocols.http.template import template_of
from tests.protocols.http.requests import answer_of, made, routed


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"a": 1}', [b'{"a": 1}']),
        (b"1", [b"1"]),
        (b"null", [b"null"]),
        (b'"text"', [b'"text"']),
        (b"[]", []),
        (b" [ ] ", []),
        (b"[1]", [b"1"]),
        (b'[ 1 , {"b":2 ,  "a":1.50} ,"x"]', [b"1", b'{"b":2 ,  "a":1.50}', b'"x"']),
        (b"[[1, 2], [3], []]", [b"[1, 2]", b"[3]", b"[]"]),
        (b"[null,true]", [b"null", b"true"]),
        (b'["]", "[", "\\""]', [b'"]"', b'"["', b'"\\""']),
        (b'[{"big": 12345678901234567890123456789, "e": 1E400}]', None),
        ('["Zürich", "\\u00fc"]'.encode(), ['"Zürich"'.encode(), b'"\\u00fc"']),
        (b"\n\t [1]\r\n", [b"1"]),
    ],
)
def test_elements_are_the_bytes_that_were_sent(body: bytes, found: list[bytes] | None) -> None:
    if found is None:
        found = [body[1:-1]]
    assert elements(body) == found
    assert elements(bytearray(body)) == found


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{ invalid json }", b"[1,]", b"[1", b"1]", b"[1 2]", b"{}{}", b"[1][2]", b"nul", b"'a'", b"[,]",
        b"\xef\xbb\xbf1",
        b'{"a":}', b'"unfinished', b"[1,,2]", b"NaN", b"Infinity", b"-", b"01", b"\x00", b'"\n"', b"[" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000, b"[" * 100_000 + b"]" * 100_000,
    ],
    ids=lambda body: repr(body[:12]),
)  # fmt: skip
def test_broken_json_is_refused(body: bytes) -> None:
    with pytest.raises(JsonInvalid):
        elements(body)


@pytest.mark.parametrize("body", [b'"\xff"', b'["a", "\xc3"]', b'{"\x80": 1}', b'"\xed\xa0\x80"', b'"\xc0\xaf"'])
def test_text_that_is_not_utf_8_is_refused_with_its_place(body: bytes) -> None:
    with pytest.raises(JsonInvalid, match=r"byte \d+ is not UTF-8"):
        elements(body)


Json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(st.lists(Json, max_size=6), st.sampled_from([b"", b" ", b"\n  "]))
def test_array_gives_back_what_went_in(values: list[object], space: bytes) -> None:
    sent = [msgspec.json.encode(value) for value in values]
    body = b"[" + b",".join(space + element + space for element in sent) + b"]"
    assert elements(body) == sent


@given(st.binary(max_size=60))
def test_any_bytes_are_elements_or_refused(body: bytes) -> None:
    try:
        found = elements(body)
    except JsonInvalid:
        return
    for element in found:
        assert element in body
        msgspec.json.decode(element)


def test_post_makes_one_record_per_element() -> None:
    action = routed(made("POST", "/v1/stream/t", b'[ {"a" : 1},[2]]', content_type="application/json; charset=utf-8"))
    assert isinstance(action, Submit)
    assert isinstance(action.command, Columns)
    assert action.command.together
    assert action.command.values == [b'{"a" : 1}', b"[2]"]
    assert action.command.content_type == "application/json; charset=utf-8"


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"[]", "empty_array"), (b"[1,", "json_invalid"), (b'"\xff"', "json_invalid"), (b"", "empty_body")],
)
def test_post_of_nothing_or_of_no_json_is_400(body: bytes, code: str) -> None:
    answer = answer_of(routed(made("POST", "/v1/stream/t", body, content_type="application/json")))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert f'"code":"{code}"'.encode() in answer


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_array_of_more_elements_than_a_batch_has_records_is_413(method: str) -> None:
    """Within the bound on bytes. It ended the server."""
    body = b"[" + b"1," * BATCH_RECORDS_MAX + b"1]"
    answer = answer_of(routed(made(method, "/v1/stream/t", body, content_type="application/json")))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert f'"limit":{BATCH_RECORDS_MAX},"received":{BATCH_RECORDS_MAX + 1}'.encode() in answer
    assert isinstance(routed(made(method, "/v1/stream/t", b"[1" + body[3:], content_type="application/json")), Submit)


def test_template_leaves_an_array_of_too_many_elements_to_who_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_body, "BATCH_RECORDS_MAX", 3)
    request = made("POST", "/v1/stream/t", b"[1,2,3]", content_type="application/json")
    request.head = b"POST /v1/stream/t HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 7"
    action = routed(request)
    assert isinstance(action, Submit)
    template = template_of(request, action.command, 1024, 1024)
    assert template is not None
    head = request.head + b"\r\n\r\n"
    assert template.command(head + b"[1,2,3]", 0) is not None
    assert template.command(head.replace(b"7", b"9") + b"[1,2,3,4]", 0) is None


def test_body_of_another_type_is_one_record_whatever_it_holds() -> None:
    action = routed(made("POST", "/v1/stream/t", b"[1,2", content_type="text/json"))
    assert isinstance(action, Submit)
    assert isinstance(action.command, Columns)
    assert action.command.values == (b"[1,2",)
