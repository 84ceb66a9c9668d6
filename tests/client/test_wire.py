"""Requests as bytes and answers from bytes, whatever way they arrive and whatever a server sends."""

import pytest

from oncelog.client.wire import (
    ANSWER_HEADER_BYTES_MAX,
    Answer,
    AnswerBroken,
    AnswerParser,
    Head,
    header_line,
    name_path,
    target,
    topic_path,
)

ANSWERS = (
    b"HTTP/1.1 201 Created\r\nX-Stream-Offset: 00000041\r\nContent-Length: 0\r\n\r\n"
    b"HTTP/1.1 204 No Content\r\nStream-Duplicate: true\r\n\r\n"
    b"HTTP/1.1 100 Continue\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    b"HTTP/1.1 409 Conflict\r\nx: 1\r\nX: 2\r\nContent-Length: 2\r\n\r\n{}"
)
EXPECTED = [
    Answer(201, {"x-stream-offset": "00000041", "content-length": "0"}, b""),
    Answer(204, {"stream-duplicate": "true"}, b""),
    Answer(200, {"content-type": "a/b", "transfer-encoding": "chunked"}, b"abcde"),
    Answer(409, {"x": "1, 2", "content-length": "2"}, b"{}"),
]


def test_answers_are_the_same_at_every_split() -> None:
    for at in range(len(ANSWERS) + 1):
        parser = AnswerParser()
        assert parser.feed(ANSWERS[:at]) + parser.feed(ANSWERS[at:]) == EXPECTED
        assert not parser.last


def test_answers_are_the_same_byte_by_byte() -> None:
    parser = AnswerParser()
    found = [answer for byte in ANSWERS for answer in parser.feed(bytes([byte]))]
    assert found == EXPECTED


def test_the_last_answer_of_a_connection_is_known() -> None:
    parser = AnswerParser()
    parser.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    assert parser.last


def test_answers_before_nonsense_count_and_are_the_last() -> None:
    parser = AnswerParser()
    (answer,) = parser.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert (answer.status, parser.last) == (200, True)


@pytest.mark.parametrize(
    "data",
    [
        b"SMTP ready\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * ANSWER_HEADER_BYTES_MAX + b"\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(AnswerBroken):
        AnswerParser().feed(data)


def test_an_answer_over_the_bound_says_so() -> None:
    with pytest.raises(AnswerBroken, match="bytes of headers"):
        AnswerParser().feed(b"HTTP/1.1 200 OK\r\nA: " + b"x" * ANSWER_HEADER_BYTES_MAX + b"\r\n\r\n")


@pytest.mark.parametrize("value", [" a", "a ", "\u3000a", " "])
def test_outer_blanks_are_refused_since_they_would_not_arrive(value: str) -> None:
    with pytest.raises(ValueError, match="X-Name"):
        header_line("X-Name", value)


@pytest.mark.parametrize("value", ["a\r\nB: c", "a\nb", "\x00", "a\x7f"])
def test_no_value_can_bring_a_header_of_its_own(value: str) -> None:
    with pytest.raises(ValueError, match="X-Name"):
        header_line("X-Name", value)


def test_a_value_may_be_any_text() -> None:
    assert header_line("A", "größe 1") == "A: größe 1\r\n".encode()


def test_a_request_is_its_fixed_and_its_changing_lines() -> None:
    head = Head("POST", "/v1/stream/a", "h:1", {"Content-Type": "a/b"})
    assert head.request(b"xyz", b"X-Producer-Seq: 7\r\n") == (
        b"POST /v1/stream/a HTTP/1.1\r\nHost: h:1\r\nContent-Type: a/b\r\nX-Producer-Seq: 7\r\n"
        b"Content-Length: 3\r\n\r\nxyz"
    )
    assert Head("GET", "/", "h:1", {}).bodiless() == b"GET / HTTP/1.1\r\nHost: h:1\r\n\r\n"


@pytest.mark.parametrize("name", ["Host", "host"])
def test_a_host_that_is_given_is_the_only_one(name: str) -> None:
    assert Head("GET", "/", "h:1", {name: "virtual"}).bodiless() == b"GET / HTTP/1.1\r\nHost: virtual\r\n\r\n"


def test_names_are_escaped_in_paths() -> None:
    assert topic_path("a/b c?ä") == "a/b%20c%3F%C3%A4"
    assert name_path("a/b") == "a%2Fb"
    assert target("/x", {"a": 1, "b": None, "c": "ü&"}) == "/x?a=1&c=%C3%BC%26"
    assert target("/x", {"a": None}) == "/x"


@pytest.mark.parametrize(("text", "number"), [("42", 42), ("0", 0), ("", -1), ("-1", -1), ("4x", -1), ("9" * 30, -1)])
def test_a_number_in_a_header_is_digits_or_unknown(text: str, number: int) -> None:
    assert Answer(200, {"a": text}, b"").number("a") == number
    assert Answer(200, {}, b"").number("a") == -1
