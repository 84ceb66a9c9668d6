"""Bytes to requests: any split gives the same, bounds hold exactly, and nothing that is sent can raise a surprise."""

import gc
import itertools
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog import limits
from oncelog.protocols.http import parser as module
from oncelog.protocols.http import plain
from oncelog.protocols.http.parser import BodyBudget
from oncelog.protocols.http.request import Request, RequestRefused
from tests.protocols.http.requests import Fed, parsed

GET = b"GET /v1/stream/a?offset=-1 HTTP/1.1\r\nHost: h\r\n\r\n"
POST = (
    b"POST /v1/stream/a HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: 26\r\n\r\n"
    b"abcdefghijklmnopqrstuvwxyz"
)
CHUNKED = (
    b"POST /v1/stream/b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n6;why=not\r\n world\r\n0\r\n\r\n"
)
PIPELINED = POST + GET + CHUNKED + POST + b"HEAD /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"


def refused(pieces: list[bytes], header_bytes_max: int = 1024, body_bytes_max: int = 1024) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        parsed(pieces, header_bytes_max, body_bytes_max)
    return caught.value


# --- the same in any pieces ----------------------------------------------------------------------------------------


def test_pipelined_requests_come_in_their_order() -> None:
    first, second, third, fourth, last = parsed([PIPELINED])
    assert first == fourth
    assert first[:2] == (b"POST", b"/v1/stream/a")
    assert first[3:] == (b"abcdefghijklmnopqrstuvwxyz", True, "")
    assert second == (b"GET", b"/v1/stream/a?offset=-1", ((b"host", b"h"),), b"", True, "")
    assert third[1:2] == (b"/v1/stream/b",)
    assert third[3:] == (b"hello world", True, "")
    assert last == (b"HEAD", b"/x", ((b"connection", b"close"), (b"host", b"h")), b"", False, "")


@pytest.mark.parametrize("straight", [8, 26, module.STRAIGHT_BYTES_MIN])
@pytest.mark.parametrize("with_plain", [True, False])
def test_requests_split_at_every_byte_are_the_same(
    monkeypatch: pytest.MonkeyPatch, straight: int, with_plain: bool
) -> None:
    monkeypatch.setattr(module, "STRAIGHT_BYTES_MIN", straight)
    if not with_plain:
        monkeypatch.setattr(module, "plain_request", lambda *_: None)
    whole = parsed([PIPELINED])
    assert len(whole) == 5
    for at in range(1, len(PIPELINED)):
        assert parsed([PIPELINED[:at], PIPELINED[at:]]) == whole, at
    assert parsed([bytes([byte]) for byte in PIPELINED]) == whole


def test_large_body_split_at_every_two_places_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STRAIGHT_BYTES_MIN", 8)
    data = POST + GET
    whole = parsed([data])
    body_at = POST.index(b"abc")
    for first in range(body_at - 3, len(data) - 1):
        for second in range(first + 1, len(data)):
            assert parsed([data[:first], data[first:second], data[second:]]) == whole, (first, second)


@pytest.mark.parametrize("piece", [1000, 65_536, 100_001, 1 << 20])
@pytest.mark.parametrize("size", [module.STRAIGHT_BYTES_MIN + 1, 300_000])
def test_large_body_is_received_into_a_buffer_of_its_own_that_grows_with_it(size: int, piece: int) -> None:
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    budget = BodyBudget(size)
    fed = Fed(budget=budget)
    fed.feed(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size + body[:3])
    assert budget.bytes_used <= module.STRAIGHT_BYTES_MIN, "a promise costs little"
    came = 3
    while came < size:
        room = fed.parser.body_room()
        assert room is not None
        assert len(room) <= size - came, "nothing behind the body fits into its buffer"
        assert budget.bytes_used <= max(module.STRAIGHT_BYTES_MIN, module.STRAIGHT_GROWTH * came)
        room.release()
        fed.feed(body[came : came + piece])
        came += piece
    fed.feed(GET)
    assert [request[3] for request in fed.requests] == [body, b""]
    assert fed.parser.body_room() is None
    assert budget.bytes_used == 0
    assert not fed.parser.in_request


def test_bodies_of_all_connections_share_a_budget() -> None:
    budget = BodyBudget(200_000)
    head = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 190000\r\n\r\n"
    one, two = Fed(budget=budget), Fed(budget=budget)
    one.feed(head + b"x" * 100_000)
    assert budget.bytes_used == 190_000
    with pytest.raises(RequestRefused) as caught:
        two.feed(head + b"x")
    assert (caught.value.status, caught.value.code, caught.value.limit) == (503, "overloaded", 200_000)
    two.parser.let_go()
    assert budget.bytes_used == 190_000, "what was refused took nothing"
    one.parser.let_go()
    assert budget.bytes_used == 0, "a client that has gone gives it back"


CHUNKED_HEAD = b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


def test_chunked_bodies_share_the_budget_too() -> None:
    budget = BodyBudget(200_000)
    one, two, small = (Fed(body_bytes_max=500_000, budget=budget) for _ in range(3))
    one.feed(CHUNKED_HEAD + chunk(b"a" * 100_000))
    assert budget.bytes_used == 100_000
    with pytest.raises(RequestRefused) as caught:
        two.feed(CHUNKED_HEAD + chunk(b"b" * 90_000) + chunk(b"c" * 20_000))
    assert (caught.value.status, caught.value.code, caught.value.limit) == (503, "overloaded", 200_000)
    assert budget.bytes_used == 100_000, "what was refused took nothing"
    small.feed(CHUNKED_HEAD + chunk(b"d" * module.STRAIGHT_BYTES_MIN))
    assert budget.bytes_used == 100_000, "small ones need none"
    one.feed(chunk(b"e" * 50_000) + b"0\r\n\r\n")
    assert [request[3] for request in one.requests] == [b"a" * 100_000 + b"e" * 50_000]
    assert budget.bytes_used == 0
    one.feed(CHUNKED_HEAD + chunk(b"a" * 150_000))
    assert budget.bytes_used == 150_000
    one.parser.let_go()
    assert budget.bytes_used == 0, "a client that has gone gives it back"
    two = Fed(body_bytes_max=100_000, budget=budget)
    two.feed(CHUNKED_HEAD + chunk(b"a" * 90_000))
    two.feed(chunk(b"b" * 20_000))
    assert budget.bytes_used == 0, "what is too large is not kept"


def traced_bytes(do: Callable[[], object]) -> int:
    """What is left of it without the collector's help."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        kept = do()
        used = tracemalloc.get_traced_memory()[0]
        del kept
        return used
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.parametrize(
    "sent",
    [
        CHUNKED_HEAD + chunk(b"a" * 200_000),
        b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 400000\r\n\r\n" + b"a" * 200_000,
        b"GET /" + b"a" * 200_000,
        b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 200_000,
        CHUNKED_HEAD + b"0\r\nX: " + b"a" * 200_000,
    ],
    ids=["chunks", "body", "target", "header", "trailer"],
)
def test_client_that_has_gone_leaves_no_byte_of_its_request(sent: bytes) -> None:
    """Its connection and its parser hold each other until the collector comes, and that may be thousands later."""

    def cut() -> object:
        fed = Fed(header_bytes_max=300_000, body_bytes_max=500_000)
        fed.feed(sent)
        fed.parser.let_go()
        return fed

    assert traced_bytes(cut) < 20_000


@pytest.mark.parametrize("header", [b"Content-Encoding: gzip", b"Host: other", b"Expect: wonders"])
@pytest.mark.parametrize("length", [b"Transfer-Encoding: chunked", b"Content-Length: 30000", b"Content-Length: 300000"])
def test_nothing_is_kept_of_what_stands_behind_a_head_that_is_refused(header: bytes, length: bytes) -> None:
    head = b"\r\n".join((b"POST /a HTTP/1.1", b"Host: h", length, header, b"", b""))
    data = head + (chunk(b"a" * 200_000) if b"chunked" in length else b"a" * 200_000)

    def refuse() -> object:
        fed = Fed(body_bytes_max=500_000)
        with pytest.raises(RequestRefused) as caught:
            fed.feed(data)
        assert not fed.parser.is_straight, "nor is there room for more of it"
        return fed, caught.value.with_traceback(None)

    assert traced_bytes(refuse) < 20_000


def test_body_of_very_small_chunks_takes_little_more_than_its_bytes() -> None:
    fed = Fed(body_bytes_max=500_000)
    data = CHUNKED_HEAD + chunk(b"ab") * 100_000

    def come() -> object:
        for at in range(0, len(data), 50_000):
            fed.feed(data[at : at + 50_000])
        return fed

    assert traced_bytes(come) < 300_000
    fed.feed(b"0\r\n\r\n")
    assert [request[3] for request in fed.requests] == [b"ab" * 100_000]


def test_parser_says_how_far_a_request_has_come() -> None:
    fed = Fed()
    assert not fed.parser.in_request
    fed.feed(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-")
    assert (fed.parser.in_request, fed.parser.in_body) == (True, False)
    fed.feed(b"Length: 10\r\n\r\n1234")
    assert (fed.parser.in_request, fed.parser.in_body, fed.parser.body_bytes) == (True, True, 4)
    fed.feed(b"567890")
    assert (fed.parser.in_request, fed.parser.in_body) == (False, False)
    assert len(fed.requests) == 1


# --- headers -------------------------------------------------------------------------------------------------------


def test_names_are_lower_case_and_repeated_headers_are_joined() -> None:
    (request,) = parsed([b"GET / HTTP/1.1\r\nHost: h\r\nAccept: a\r\nX-A: 1\r\naCCEPT: b\r\naccept: c\r\n\r\n"])
    assert request[2] == ((b"accept", b"a, b, c"), (b"host", b"h"), (b"x-a", b"1"))


@pytest.mark.parametrize("blanks", [b"", b" ", b"  ", b"\t", b" \t "])
def test_blanks_around_a_value_are_no_part_of_it(blanks: bytes) -> None:
    """A retry that went another way, through a proxy that keeps or drops them, is the same claim."""
    line = b"Stream-Message-Id:" + blanks + b"order 7" + blanks + b"\r\n"
    (request,) = parsed([b"POST / HTTP/1.1\r\nHost: h\r\nStream-Closed: true" + blanks + b"\r\n" + line + b"\r\n"])
    assert request[2][1:] == ((b"stream-closed", b"true"), (b"stream-message-id", b"order 7"))


@pytest.mark.parametrize("name", [b"Stream-Message-Id", b"Producer-Id", b"X-Producer-Seq"])
def test_two_claims_are_not_joined_into_a_third(name: bytes) -> None:
    error = refused([b"POST / HTTP/1.1\r\nHost: h\r\n" + name + b": a\r\n" + name.lower() + b": b\r\n\r\n"])
    assert (error.status, error.code) == (400, "header_repeated")


@pytest.mark.parametrize(
    ("hosts", "code"),
    [
        ([], "host_missing"),
        ([b"Host: a", b"host: b"], "header_repeated"),
        ([b"Host: a", b"Host: a"], "header_repeated"),
        *(([b"Host: " + host], "host_invalid") for host in (b"a, b", b"a,b", b"a b", b"a/b", b"u@a", b"a\tb", b"\xe2")),
    ],
)
@pytest.mark.parametrize("first", [b"", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"])
def test_request_without_one_host_is_refused(hosts: list[bytes], code: str, first: bytes) -> None:
    """Whoever stands in front of this server may read another of two than it does (RFC 9112, 3.2)."""
    fed = Fed()
    with pytest.raises(RequestRefused) as caught:
        fed.feed(first + b"\r\n".join((b"POST / HTTP/1.1", *hosts, b"Content-Length: 1", b"", b"x")))
    assert (caught.value.status, caught.value.code) == (400, code)
    assert len(fed.requests) == bool(first)


@pytest.mark.parametrize("host", [b"localhost:4437", b"[::1]:80", b"a-b_c.example", b"%41!$&'()*+;=~"])
def test_any_one_host_is_taken(host: bytes) -> None:
    fed = Fed()
    for more in (b"", b"Connection: keep-alive\r\n", b"TE: a\r\n"):
        fed.feed(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n" + more + b"\r\n")
    assert len(fed.requests) == 3


@pytest.mark.parametrize("version", [b"0.9", b"2.0"])
def test_other_version_is_505(version: bytes) -> None:
    error = refused([b"GET / HTTP/" + version + b"\r\nHost: h\r\nConnection: keep-alive\r\n\r\n"])
    assert (error.status, error.code) == (505, "version_unsupported")


def test_chunks_of_an_old_client_are_refused() -> None:
    """Whoever stands in front and does not know them ends the request elsewhere (RFC 9112, 6.1)."""
    error = refused([CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0\r\nConnection: keep-alive") + GET])
    assert (error.status, error.code) == (400, "malformed_request")
    assert "Transfer-Encoding" in error.detail


@pytest.mark.parametrize("lines", [b"HTTP/1.1\r\nHost:\r\n\r\n", b"HTTP/1.0\r\n\r\n"])
def test_host_may_be_empty_and_of_an_old_client_missing(lines: bytes) -> None:
    assert len(parsed([b"GET / " + lines])) == 1


@pytest.mark.parametrize(
    ("version", "header", "kept"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: close\r\n", False),
        (b"1.1", b"Connection: keep-alive\r\n", True),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: keep-alive\r\n", True),
    ],
)
def test_connection_is_kept_as_the_version_and_the_header_say(version: bytes, header: bytes, kept: bool) -> None:
    (request,) = parsed([b"GET / HTTP/" + version + b"\r\nHost: h\r\n" + header + b"\r\n"])
    assert request[4] is kept


@pytest.mark.parametrize(("version", "takes"), [(b"1.1", True), (b"1.0", False)])
def test_only_clients_of_1_1_take_chunks(version: bytes, takes: bool) -> None:
    found: list[Request] = []
    for header in (b"", b"Connection: keep-alive\r\n", b"TE: a\r\n"):
        parser = module.RequestParser(found.append, 1024, 1024)
        parser.feed(b"GET / HTTP/" + version + b"\r\nHost: h\r\n" + header + b"\r\n")
    assert [request.takes_chunks for request in found] == [takes] * 3


def test_trailers_of_a_chunked_body_are_no_headers() -> None:
    head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    (request,) = parsed([head + b"1\r\nx\r\n0\r\nProducer-Id: p\r\nHost: other\r\n\r\n"])
    assert request[2] == ((b"host", b"h"), (b"transfer-encoding", b"chunked"))


def test_expectation_is_told_until_it_is_answered() -> None:
    fed = Fed()
    fed.feed(b"POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n")
    before = fed.parser.expects_continue
    fed.feed(b"ab")
    assert (before, fed.parser.expects_continue) == (True, False)
    assert fed.requests[0][3] == b"ab"


def test_other_expectation_is_refused() -> None:
    error = refused([b"POST /a HTTP/1.1\r\nHost: h\r\nExpect: a miracle\r\nContent-Length: 2\r\n\r\nab"])
    assert (error.status, error.code) == (417, "expectation_failed")


# --- bounds --------------------------------------------------------------------------------------------------------


def with_target(length: int) -> bytes:
    return b"GET /" + b"a" * (length - 1) + b" HTTP/1.1\r\nHost: h\r\n\r\n"


def with_headers(total: int) -> bytes:
    """A header counts with its name, its value, and the four bytes around them."""
    return b"GET / HTTP/1.1\r\nHost: h\r\nB: " + b"b" * (total - 9 - 5) + b"\r\n\r\n"


def with_body(length: int) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % length + b"b" * length


def chunked_body(length: int) -> bytes:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (b"b" * 100, b"b" * (length - 100)))
    return b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


@pytest.mark.parametrize("with_plain", [True, False])
@pytest.mark.parametrize("make", [with_target, with_headers, with_body, chunked_body])
def test_exactly_the_limit_is_taken(monkeypatch: pytest.MonkeyPatch, make: object, with_plain: bool) -> None:
    if not with_plain:
        monkeypatch.setattr(module, "plain_request", lambda *_: None)
    assert callable(make)
    (request,) = parsed([make(1024)], 1024, 1024)
    assert request[5] == ""


@pytest.mark.parametrize(
    ("make", "status", "code"), [(with_target, 414, "target_too_long"), (with_headers, 431, "headers_too_large")]
)
def test_head_over_its_limit_is_refused_in_any_pieces(make: object, status: int, code: str) -> None:
    assert callable(make)
    data = make(1025)
    for at in range(0, len(data), 7):
        error = refused([data[:at], data[at:]] if at else [data])
        assert (error.status, error.code, error.limit) == (status, code, 1024)
    error = refused([bytes([byte]) for byte in data])
    assert (error.status, error.code, error.limit) == (status, code, 1024)


@pytest.mark.parametrize("make", [with_body, chunked_body])
def test_oversize_body_is_read_to_its_end_and_the_next_request_is_found(make: object) -> None:
    assert callable(make)
    data = make(1025) + GET
    for at in range(1, len(data), 13):
        large, small = parsed([data[:at], data[at:]], 1024, 1024)
        assert large[3:] == (b"", True, "body_too_large")
        assert small[:2] == (b"GET", b"/v1/stream/a?offset=-1")
        assert small[5] == ""


def test_oversize_body_says_the_limit_and_what_came() -> None:
    fed = Fed(1024, 1024)
    found: list[Request] = []
    fed.parser._on_request = found.append
    fed.feed(with_body(2000))
    assert found[0].refused is not None
    assert (found[0].refused.status, found[0].refused.limit, found[0].refused.received) == (413, 1024, 2000)


def test_body_beyond_what_is_thrown_away_ends_the_connection_at_once() -> None:
    at_most = limits.HTTP_DISCARD_BYTES_MAX
    fed = Fed(1024, 1024)
    fed.feed(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % at_most)
    assert fed.parser.in_body, "as much as this is read and thrown away"
    error = refused([b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (at_most + 1)])
    assert (error.status, error.code, error.limit, error.received) == (413, "body_too_large", 1024, at_most + 1)


def test_chunks_beyond_what_is_thrown_away_end_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_DISCARD_BYTES_MAX", 4096)
    fed = Fed(1024, 1024)
    fed.feed(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(4):
        fed.feed(b"400\r\n" + b"x" * 1024 + b"\r\n")
    with pytest.raises(RequestRefused) as caught:
        fed.feed(b"1\r\nx\r\n")
    assert (caught.value.status, caught.value.limit) == (413, 1024)


@pytest.mark.parametrize(
    "begin",
    [
        b"GET / HTTP/1.1\r\nHost: h\r\nA: ",
        b"GET / HTTP/1.1\r\nHost: h\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nA: 1\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: ",
    ],
    ids=["value", "name", "second name", "trailer"],
)
def test_header_without_an_end_is_refused_before_it_fills_memory(begin: bytes) -> None:
    """What httptools collects of an unfinished header is bounded too, by the limit and what socket reads bring."""
    fed = Fed(1024, 1024)
    fed.feed(begin)
    refusal: RequestRefused | None = None
    for _ in range(0, 2 * (1024 + limits.HTTP_RECEIVE_BYTES), 1024):
        try:
            fed.feed(b"a" * 1024)
        except RequestRefused as error:
            refusal = error
            break
    assert refusal is not None
    assert (refusal.status, refusal.code, refusal.limit) == (431, "headers_too_large", 1024)


# --- malformed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nA: 1\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nA: \x00\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\nx",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1 1\r\n\r\nx",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999999\r\n\r\n",
        b"CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(data: bytes) -> None:
    assert refused([data]).status == 400
    for at in range(1, len(data)):
        assert refused([data[:at], data[at:]]).status == 400, at


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"Content-Encoding: gzip", 415),
        (b"content-encoding: br", 415),
        (b"Transfer-Encoding: gzip, chunked", 501),
        (b"Transfer-Encoding: gzip", 501),
    ],
)
def test_body_that_readers_could_not_read_is_refused(header: bytes, status: int) -> None:
    """It was stored as it came, and given back without a word on how to read it."""
    length = b"" if b"Transfer" in header else b"Content-Length: 3\r\n"
    data = b"POST / HTTP/1.1\r\nHost: h\r\n" + length + header + b"\r\n\r\nabc"
    for at in range(len(data) - 3):  # whole at first: a plain request is read in another way
        error = refused([data[:at], data[at:]] if at else [data])
        assert (error.status, error.code) == (status, "encoding_unsupported"), at


def test_encoding_of_no_body_is_nobodys_business() -> None:
    for data in (
        b"GET / HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nContent-Encoding:\r\n\r\n",
    ):
        assert [request[0] for request in parsed([data + GET])] == [b"GET", b"GET"]


def test_offer_behind_headers_that_are_too_large_is_refused_for_those() -> None:
    data = b"GET / HTTP/1.1\r\nHost: h\r\nA: " + b"a" * 2_000 + b"\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert refused([data]).code == "headers_too_large"


def test_encoding_that_changes_nothing_is_taken() -> None:
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Encoding: identity\r\n\r\n"
    assert parsed([head + b"abc"])[0][3] == b"abc"


@pytest.mark.parametrize("straight", [8, module.STRAIGHT_BYTES_MIN])
@pytest.mark.parametrize(
    ("offer", "left"),
    [
        (b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n", b"HTTP2-Settings"),
        (b"connection: upgrade\r\nUPGRADE: websocket\r\n", b""),
        (b"Connection: upgrade\r\nUpgrade: h2c\r\nConnection: close\r\n", b"close"),
    ],
)
def test_offer_of_another_protocol_is_not_taken_and_the_request_is_read_whole(
    monkeypatch: pytest.MonkeyPatch, offer: bytes, left: bytes, straight: int
) -> None:
    """Java's client makes it with every request. httptools ends the message at its head: the body was lost, and the
    request carried out without it."""
    monkeypatch.setattr(module, "STRAIGHT_BYTES_MIN", straight)
    plain_ones = [POST] if left == b"close" else [POST, CHUNKED, GET]
    data = b"".join(request.replace(b"Host: h\r\n", b"Host: h\r\n" + offer) for request in plain_ones)
    whole = parsed([data])
    for came, (method, target, headers, body, _, _) in zip(whole, parsed(plain_ones), strict=True):
        assert (came[0], came[1], came[3], came[5]) == (method, target, body, "")
        assert came[4] == (left != b"close")
        more = {(b"connection", left)} if left else set()
        assert set(came[2]) - {(b"http2-settings", b"AAMA")} == set(headers) | more
    for at in range(1, len(data)):
        assert parsed([data[:at], data[at:]]) == whole, at
    assert parsed([bytes([byte]) for byte in data]) == whole


def test_very_many_offers_in_one_read_are_as_many_requests() -> None:
    request = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert len(parsed([request * 5_000])) == 5_000


@pytest.mark.parametrize("digits", [limits.HTTP_DIGITS_MAX + 1, 5_000])
def test_length_of_more_digits_than_a_number_has_is_refused_in_any_pieces(digits: int) -> None:
    """Zeros in front count: httptools takes them, and Python makes no number of more than 4,300 digits."""
    data = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: " + b"1".zfill(digits) + b"\r\n\r\nx"
    for pieces in ([data], [data[:40], data[40:]], [data[:-1], data[-1:]]):
        error = refused(pieces, 32 * limits.KIB)
        assert (error.status, error.code) == (400, "malformed_request")
        assert (error.limit, error.received) == (limits.HTTP_DIGITS_MAX, digits)


def test_length_of_as_many_digits_as_a_number_has_is_taken() -> None:
    data = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: " + b"1".zfill(limits.HTTP_DIGITS_MAX) + b"\r\n\r\nx"
    assert parsed([data])[0][3] == b"x"


class Stumbling(module.RequestParser):
    """Meets a header that it cannot read."""

    def on_header(self, name: bytes, value: bytes) -> None:
        if name == b"X-Number":
            int(value)
        super().on_header(name, value)


def test_header_that_the_parser_stumbles_over_is_refused_and_what_came_before_it_stands() -> None:
    targets: list[bytes] = []
    parser = Stumbling(lambda request: targets.append(request.target), 1024, 1024)
    with pytest.raises(RequestRefused) as caught:
        parser.feed(CHUNKED + b"GET /b HTTP/1.1\r\nHost: h\r\nTE: a\r\nX-Number: none\r\n\r\n")
    assert (caught.value.status, caught.value.code) == (400, "malformed_request")
    assert targets == [b"/v1/stream/b"]


def test_what_goes_wrong_with_a_whole_request_is_not_taken_for_bad_bytes() -> None:
    def bug(_request: Request) -> None:
        raise LookupError

    parser = module.RequestParser(bug, 1024, 1024)
    with pytest.raises(LookupError):
        parser.feed(CHUNKED)


TOKENS = [
    b"\r\n", b"\r", b"\n", b"\0", b" ", b":", b"Content-Length: 5\r\n", b"Content-Length: 0x5\r\n", b"\xff\xfe",
    b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"HTTP/1.0", b"GET ",
    b"Host: a b\r\n", b"Host: a,b\r\n", b"HTTP/0.9",
    b"Connection: upgrade\r\nUpgrade: h2c\r\n", b"0\r\n\r\n", b"ffffffff\r\n", b"Content-Length: \r\n", b"%",
    b"a" * 300,
]  # fmt: skip


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """Requests with things put in, taken out and changed."""
    data = bytearray(b"".join(draw(st.lists(st.sampled_from([GET, POST, CHUNKED]), min_size=1, max_size=4))))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 2)):
            case 0:
                data[at:at] = draw(st.sampled_from(TOKENS) | st.binary(max_size=8))
            case 1:
                del data[at : at + draw(st.integers(1, 20))]
            case _:
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
    return bytes(data)


def outcome(data: bytes, cuts: list[int]) -> tuple[object, str]:
    """What came of it, and the refusal that ended it, if one did."""
    fed = Fed(256, 256)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    try:
        for at, end in itertools.pairwise(places):
            fed.feed(data[at:end])
    except RequestRefused as error:
        return fed.requests, f"{error.status} {error.code}" if error.detail else "nothing is said"
    return fed.requests, ""


@given(broken(), st.lists(st.integers(0, 600), max_size=5))
def test_whatever_is_sent_a_refusal_is_all_that_is_raised(data: bytes, cuts: list[int]) -> None:
    code = outcome(data, cuts)[1]
    assert not code or code.startswith("4") or code in ("501 encoding_unsupported", "505 version_unsupported")


@given(st.binary(max_size=200))
def test_noise_is_refused_or_waited_for(data: bytes) -> None:
    requests, code = outcome(data, [])
    assert code or not requests


@given(broken(), st.lists(st.integers(0, 600), max_size=3))
def test_plain_requests_are_what_the_parser_would_say(data: bytes, cuts: list[int]) -> None:
    """`plain` may leave a request to httptools, never read it differently."""
    quick = outcome(data, cuts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "plain_request", lambda *_: None)
        assert quick == outcome(data, cuts)


@pytest.mark.parametrize(
    "header",
    ["Connection: close", "Proxy-Connection: close", "connection: Close", "Upgrade: h2c", "TE: trailers", "Trailer: A"],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_headers_that_change_how_a_message_is_read_are_left_to_the_parser(
    monkeypatch: pytest.MonkeyPatch, method: str, header: str
) -> None:
    data = f"{method} /a HTTP/1.1\r\nHost: h\r\n{header}\r\n\r\n".encode()
    quick = parsed([data])
    monkeypatch.setattr(module, "plain_request", lambda *_: None)
    assert quick == parsed([data])


def test_lines_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "LINES_REMEMBERED_MAX", 16)
    for number in range(100):
        parsed([b"GET /%d HTTP/1.1\r\nHost: h\r\nX-%d: %d\r\n\r\n" % (number, number, number)])
    assert len(plain._starts) <= 16
    assert len(plain._headers) <= 16
