"""Clients that do wrong, by mistake or on purpose: each is told what and why, nothing is written, others are served."""

import contextlib
import gc
import itertools
import select
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings

from oncelog import limits
from oncelog.limits import KIB, MIB
from oncelog.servers.face_connection import WRITE_HIGH_BYTES
from tests.protocols.http.any_request import BODIES, HEADERS, METHODS, TARGETS
from tests.servers.running import Running, running
from tests.servers.talking import Answer, Client, Headers, request

HEADER_BYTES_MAX = 2 * KIB
BODY_BYTES_MAX = 192 * KIB
"""Above what is still read through the parser: a larger body goes straight into a buffer of its own."""


@pytest.fixture(scope="module")
def tight() -> Iterator[Running]:
    """A server that grants little, and looks often."""
    with running(
        sweep_s=0.02,
        header_bytes_max=HEADER_BYTES_MAX,
        body_bytes_max=BODY_BYTES_MAX,
        header_deadline_ms=150,
        body_grace_ms=150,
        body_rate_min=1 << 30,
        write_stall_ms=150,
        early_hold_ms=0,
    ) as server:
        yield server


@pytest.fixture
def path(tight: Running, topic: str) -> str:
    path = f"/v1/stream/{topic}"
    assert tight.ask("PUT", path, headers={"Content-Type": "text/plain"}).status == 201
    return path


@contextlib.contextmanager
def harmless(server: Running) -> Iterator[None]:
    """Whatever happens in the block, nothing is written, and another client is served before and after."""
    entry = server.entry()
    with server.client() as other:
        assert other.ask("GET", "/health").status == 200
        yield
        assert other.ask("GET", "/health").json["entry"] == entry
    assert server.entry() == entry


def refused(server: Running, data: bytes) -> Answer:
    """The answer to these bytes, on a connection of their own."""
    with harmless(server), server.client() as client:
        client.send(data)
        return client.answer()


# --- sizes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [1, 60 * KIB, BODY_BYTES_MAX])
def test_oversize_body_is_413_and_the_connection_goes_on(tight: Running, path: str, behind: int) -> None:
    """However much of it comes with its head, and how much later."""
    with harmless(tight), tight.client() as client:
        whole = request("POST", path, b"x" * (BODY_BYTES_MAX + 1))
        client.send(whole[:-behind])
        tight.until(lambda: any(connection.parser.in_body for connection in tight.server.connections))
        client.send(whole[-behind:] + request("HEAD", path))
        answer = client.answer()
        assert (answer.status, answer.code) == (413, "body_too_large")
        assert (answer.json["limit"], answer.json["received"]) == (BODY_BYTES_MAX, BODY_BYTES_MAX + 1)
        assert client.answer(head=True).next_offset == 0


def test_oversize_chunked_body_is_413_and_the_connection_goes_on(tight: Running, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    with harmless(tight), tight.client() as client:
        client.send(head + (BODY_BYTES_MAX // 0x8000 + 1) * chunk + b"0\r\n\r\n" + request("HEAD", path))
        answer = client.answer()
        assert (answer.status, answer.code, answer.json["limit"]) == (413, "body_too_large", BODY_BYTES_MAX)
        assert client.answer(head=True).next_offset == 0


def test_body_of_exactly_the_limit_is_taken(tight: Running, path: str) -> None:
    assert tight.ask("POST", path, b"x" * BODY_BYTES_MAX).status == 204
    assert tight.ask("GET", path).body == b"x" * BODY_BYTES_MAX


def test_absurd_body_is_refused_at_its_head(tight: Running, path: str) -> None:
    length = limits.HTTP_DISCARD_BYTES_MAX + 1
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n".encode()
    with harmless(tight), tight.client() as client:
        client.send(head)
        answer = client.answer()
        assert (answer.status, answer.json["limit"], answer.json["received"]) == (413, BODY_BYTES_MAX, length)
        assert answer.headers["connection"] == "close"
        assert client.is_cut


def test_oversize_header_is_431(tight: Running, path: str) -> None:
    answer = refused(tight, request("POST", path, b"x", {"X-Large": "x" * HEADER_BYTES_MAX}))
    assert (answer.status, answer.code, answer.json["limit"]) == (431, "headers_too_large", HEADER_BYTES_MAX)


def test_header_that_has_no_end_yet_is_431_once_it_is_too_long(tight: Running, path: str) -> None:
    with harmless(tight), tight.client() as client:
        # Beside the limit, what one read and the next may bring.
        too_much = HEADER_BYTES_MAX + 2 * limits.HTTP_RECEIVE_BYTES + 1
        client.send(f"POST {path} HTTP/1.1\r\nHost: h\r\nX-Endless: ".encode() + b"x" * too_much)
        answer = client.answer()
        assert (answer.status, answer.code) == (431, "headers_too_large")
        assert client.is_cut


def send_without_end(client: Client) -> None:
    while True:
        client.send(b"x" * MIB)


def test_header_without_an_end_is_cut_off(any_server: Running) -> None:
    """Also for a client that only sends and never looks for an answer; and long before it would be too slow."""
    with harmless(any_server), any_server.client() as client:
        client.send(b"POST /v1/stream/a HTTP/1.1\r\nHost: h\r\nX-Endless: ")
        with pytest.raises(ConnectionError):
            send_without_end(client)
        any_server.until(lambda: len(any_server.server.connections) == 1)


def test_long_target_is_414(tight: Running) -> None:
    answer = refused(tight, request("GET", "/" + "x" * HEADER_BYTES_MAX))
    assert (answer.status, answer.code, answer.json["limit"]) == (414, "target_too_long", HEADER_BYTES_MAX)


def test_name_that_is_too_long_is_413_and_says_the_limit(tight: Running) -> None:
    answer = refused(tight, request("PUT", "/v1/stream/" + "x" * 401))
    assert (answer.status, answer.code) == (413, "too_large")
    assert (answer.json["limit"], answer.json["received"]) == (limits.TOPIC_NAME_BYTES_MAX, 401)
    assert refused(tight, request("POST", "/v1/stream/" + "x" * 401, b"x")).status == 404


@pytest.mark.parametrize(
    "name", ["..", "a/../b", "%2e%2e/%2e%2e/etc/passwd", "a%2F..%2Fb", "a%00b", "a%0D%0AX: y", "//a"]
)
def test_name_with_traversal_is_400(tight: Running, name: str) -> None:
    answer = refused(tight, request("PUT", f"/v1/stream/{name}".replace(" ", "%20")))
    assert (answer.status, answer.code) == (400, "name_invalid")


PATHS = ["stream/", "topics/", "receipts/", "producers/", "commit/producers/", "cursors/", "applications/", "stages/"]


@pytest.mark.parametrize("path", PATHS)
def test_path_that_ends_too_early_is_answered(any_server: Running, path: str) -> None:
    for method, rest in itertools.product(
        ("GET", "POST", "PUT", "PATCH", "DELETE"), ("", "/", "a/", "/a", "%00", "a%00b/c", "x" * 500)
    ):
        answer = any_server.ask(method, f"/v1/{path}{rest}", b'{"frontier": 0}' if method in ("PUT", "PATCH") else b"")
        assert answer.status < 500
        assert answer.status < 400 or answer.code


# --- headers and numbers -------------------------------------------------------------------------------------------

PRODUCER: Headers = {"Producer-Id": "p", "Producer-Epoch": 0, "Producer-Seq": 0}


@pytest.mark.parametrize("missing", list(PRODUCER))
def test_partial_producer_headers_are_400(tight: Running, path: str, missing: str) -> None:
    headers = {name: value for name, value in PRODUCER.items() if name != missing}
    answer = refused(tight, request("POST", path, b"x", headers))
    assert (answer.status, answer.code) == (400, "header_invalid")
    assert "Producer-Id, Producer-Epoch and Producer-Seq" in answer.json["detail"]


@pytest.mark.parametrize("header", ["X-Producer-Id", "X-Producer-Seq", "X-Producer-Epoch", "X-Producer-Session"])
def test_partial_x_producer_headers_are_400(tight: Running, path: str, header: str) -> None:
    answer = refused(tight, request("POST", path, b"x", {header: "1"}))
    assert (answer.status, answer.code) == (400, "header_invalid")


@pytest.mark.parametrize("value", ["-1", "1abc", "1e3", "", "٣", "0x10", "1.5", "9" * 40])
@pytest.mark.parametrize("header", ["Producer-Epoch", "Producer-Seq"])
def test_malformed_producer_number_is_400_and_named(tight: Running, path: str, header: str, value: str) -> None:
    answer = refused(tight, request("POST", path, b"x", PRODUCER | {header: value}))
    assert (answer.status, answer.code) == (400, "header_invalid")
    assert header.lower() in answer.json["detail"]


@pytest.mark.parametrize("header", ["Producer-Epoch", "Producer-Seq"])
def test_producer_number_beyond_53_bits_is_400(tight: Running, path: str, header: str) -> None:
    answer = refused(tight, request("POST", path, b"x", PRODUCER | {header: limits.SEQUENCE_MAX + 1}))
    assert (answer.status, answer.code) == (400, "claim_invalid")
    assert answer.json["received"] == limits.SEQUENCE_MAX + 1


def test_largest_sequence_is_taken_from_a_rising_producer(tight: Running, path: str) -> None:
    headers = PRODUCER | {"Producer-Seq": limits.SEQUENCE_MAX, "Producer-Mode": "rising"}
    assert tight.ask("POST", path, b"x", headers).status == 200
    assert tight.ask("POST", path, b"x", headers).status == 204


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", "{path}?partition=10000", b""),
        ("GET", "{path}?offset=18446744073709551616", b""),
        ("GET", "/v1/streams?limit=1001", b""),
        ("POST", "/v1/topics/{topic}/trim", b'{"floor": 1e30}'),
        ("POST", "/v1/topics/{topic}/trim", b'{"floor": 1000000000000000000000000000000}'),
        ("PUT", "/v1/topics/fresh", b'{"partitions": 0}'),
        ("PUT", "/v1/cursors/c/{topic}", b'{"frontier": -1}'),
        ("PUT", "/v1/cursors/c/{topic}", b'{"frontier": 1}'),
    ],
)
def test_number_out_of_range_is_400(
    tight: Running, path: str, topic: str, method: str, target: str, body: bytes
) -> None:
    answer = refused(tight, request(method, target.format(path=path, topic=topic), body))
    assert answer.status == 400
    assert answer.code


def test_more_partitions_than_a_topic_may_have_is_413(tight: Running) -> None:
    answer = refused(
        tight, request("PUT", "/v1/stream/fresh", headers={"Stream-Partitions": limits.PARTITIONS_MAX + 1})
    )
    assert (answer.status, answer.code, answer.json["limit"]) == (413, "too_large", limits.PARTITIONS_MAX)


def test_length_with_thousands_of_zeros_is_400_and_the_server_goes_on(any_server: Running) -> None:
    with harmless(any_server), any_server.client() as client:
        client.send(b"POST /v1/stream/a HTTP/1.1\r\nHost: h\r\nContent-Length: " + b"0" * 5_000 + b"1\r\n\r\nx")
        answer = client.answer()
        assert (answer.status, answer.code) == (400, "malformed_request")
        assert answer.json["limit"] == limits.HTTP_DIGITS_MAX
        assert client.is_cut


# --- bodies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"[]", "empty_array"), (b" [ ] ", "empty_array"), (b"{ invalid json }", "json_invalid"), (b"[1,", "json_invalid"),
     (b'"\xff"', "json_invalid"), (b"[" * 60_000, "json_invalid"), (b"", "empty_body")],
)  # fmt: skip
@pytest.mark.parametrize("producer", [{}, PRODUCER])
def test_empty_and_broken_json_is_400_and_takes_no_sequence(
    tight: Running, topic: str, body: bytes, code: str, producer: Headers
) -> None:
    path = f"/v1/stream/{topic}"
    tight.ask("PUT", path, headers={"Content-Type": "application/json"})
    answer = refused(tight, request("POST", path, body, producer | {"Content-Type": "application/json"}))
    assert (answer.status, answer.code) == (400, code)
    if producer:
        assert tight.ask("POST", path, b"1", producer | {"Content-Type": "application/json"}).status == 200


def test_missing_content_type_is_400(tight: Running, path: str) -> None:
    answer = refused(tight, f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx".encode())
    assert (answer.status, answer.code) == (400, "content_type_missing")


def test_wrong_content_type_is_409_and_names_both(tight: Running, path: str) -> None:
    answer = refused(tight, request("POST", path, b"{}", {"Content-Type": "application/json"}))
    assert (answer.status, answer.code) == (409, "content_type_mismatch")
    assert (answer.json["expected"], answer.json["received"]) == ("text/plain", "application/json")


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "DELETE"])
def test_unknown_stream_is_404(tight: Running, method: str) -> None:
    with harmless(tight), tight.client() as client:
        body = b"x" if method == "POST" else b""
        answer = client.ask(method, "/v1/stream/nobody-made-it", body)
        assert answer.status == 404
        if method != "HEAD":
            assert answer.code == "topic_missing"
            assert answer.json["topic"] == "nobody-made-it"


def test_what_is_no_http_is_400_and_the_end(tight: Running) -> None:
    for noise in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"SSH-2.0-OpenSSH_9\r\n", b"\0" * 100):
        with harmless(tight), tight.client() as client:
            client.send(noise)
            answer = client.answer()
            assert (answer.status, answer.code) == (400, "malformed_request")
            assert client.is_cut


def test_other_version_of_http_is_505_and_the_end(tight: Running) -> None:
    answer = refused(tight, b"GET /health HTTP/2.0\r\nHost: h\r\n\r\n")
    assert (answer.status, answer.code) == (505, "version_unsupported")


def test_content_type_with_a_line_break_makes_no_header(tight: Running) -> None:
    body = b'{"content_type": "text/plain\\r\\nEvil: yes"}'
    answer = refused(tight, request("PUT", "/v1/topics/evil", body))
    assert (answer.status, answer.code) == (400, "name_invalid")


def chunked(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head.encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


@pytest.mark.parametrize("sent_as", [lambda path, body: request("POST", path, body), chunked])
def test_bodies_of_all_clients_together_are_bounded(topic: str, sent_as: Callable[[str, bytes], bytes]) -> None:
    path = f"/v1/stream/{topic}"
    body = b"x" * 900_000
    small = mock.patch.object(limits, "HTTP_BODIES_BYTES_MAX", 1 * MIB)
    with small, running() as server, server.client() as first, server.client() as second:
        server.ask("PUT", path, headers={"Content-Type": "text/plain"})
        whole = sent_as(path, body)
        first.send(whole[:-1])
        server.until(lambda: server.server.body_budget.bytes_used >= len(body))
        with harmless(server):
            second.send(whole[:200_000])
            answer = second.answer()
            assert (answer.status, answer.code, answer.json["limit"]) == (503, "overloaded", 1 * MIB)
            assert answer.json["retryable"] is True
            assert answer.headers["retry-after"] == "1"
            assert server.ask("POST", "/v1/stream/nobody", b"small").status == 404, "small ones need no budget"
        first.send(whole[-1:])
        assert first.answer().next_offset == 1
        assert server.ask("POST", path, body).next_offset == 2
        first.send(whole[:-1])
        server.until(lambda: server.server.body_budget.bytes_used >= len(body))
        first.reset()
        server.until(lambda: server.server.body_budget.bytes_used == 0)


@pytest.mark.parametrize(
    "sent",
    [
        request("POST", "/v1/stream/nobody", b"x" * 60_000, {"Content-Encoding": "gzip"}),
        request("POST", "/v1/stream/nobody", b"x" * 60_000, {"Host": "a, b"}),
        b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n" % (b"x" * 60_000),
        chunked("/v1/stream/nobody", b"x" * 60_000)[:-1],
    ],
    ids=["refused encoding", "refused host", "refused target", "cut"],
)
def test_what_is_refused_or_cut_takes_no_memory_until_the_collector_comes(sent: bytes) -> None:
    """It comes after tens of thousands of new objects, and a connection has some twenty."""
    with running() as server, contextlib.ExitStack() as open_ones:
        server.ask("GET", "/health")
        gc.collect()
        gc.disable()
        open_ones.callback(gc.enable)
        tracemalloc.start()
        open_ones.callback(tracemalloc.stop)
        for _ in range(40):
            client = open_ones.enter_context(server.client())
            client.send(sent)
            if b"chunked" in sent:
                server.until(lambda: any(c.parser.body_bytes > 50_000 for c in server.server.connections))
                client.reset()
                server.until(lambda: not any(c.parser.in_body for c in server.server.connections))
            else:
                assert client.answer().status in (400, 414, 415)
        # Meanwhile the engine writes its spare segments.
        kept = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, "*/oncelog/storage/*")])
        assert sum(line.size for line in kept.statistics("filename")) < 40 * 60_000 / 2


@pytest.mark.parametrize("ends_in", [b"no chunk", b""], ids=["malformed or cut", "too slow"])
@pytest.mark.parametrize("sent_as", [lambda path, body: request("POST", path, body), chunked])
def test_refused_body_gives_its_share_back_before_the_answers_in_front_of_it(
    topic: str, sent_as: Callable[[str, bytes], bytes], ends_in: bytes
) -> None:
    """The refusal stands behind a long-poll, for as long as that takes: others would be refused for want of room."""
    path = f"/v1/stream/{topic}"
    rate_min = 1 if ends_in else 1 << 30
    with running(sweep_s=0.02, body_grace_ms=50, body_rate_min=rate_min) as server, server.client() as client:
        server.ask("PUT", path, headers={"Content-Type": "text/plain"})
        whole = sent_as(path, b"x" * 300_000)
        client.send(request("GET", f"{path}?offset=now&live=long-poll") + whole[: 200_000 - len(ends_in)])
        if ends_in and b"chunked" in whole:
            server.until(lambda: server.server.body_budget.bytes_used > 0)
            client.send(whole[200_000 - len(ends_in) : -5] + ends_in)
        elif ends_in:
            client.reset()
        server.until(lambda: server.server.counts.malformed == 1 or not server.server.connections)
        assert server.on_loop(lambda: server.server.body_budget.bytes_used) == 0
        if not ends_in:
            assert server.waiters() == 1, "and the long-poll goes on"


# --- slow and half-open --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent", [b"P", b"POST /v1/stream/a HTTP/1.1\r\nHost: h\r\n", b"GET /v1/stream/a HTTP/1.1\r\nHost: x"]
)
def test_slow_head_is_408(tight: Running, sent: bytes) -> None:
    with harmless(tight), tight.client() as client:
        client.send(sent)
        answer = client.answer()
        assert (answer.status, answer.code, answer.json["limit"]) == (408, "too_slow", 150)
        assert answer.headers["connection"] == "close"
        assert client.is_cut


@pytest.mark.parametrize("length", [10, 60 * KIB, 64 * KIB, 70 * KIB, BODY_BYTES_MAX])
def test_slow_body_is_408(tight: Running, path: str, length: int) -> None:
    with harmless(tight), tight.client() as client:
        client.send(request("POST", path, b"x" * length)[:-5])
        answer = client.answer()
        assert (answer.status, answer.code, answer.json["limit"]) == (408, "too_slow", 150)
        assert client.is_cut
    assert tight.ask("HEAD", path).next_offset == 0


def test_head_that_drips_is_408(tight: Running) -> None:
    """Its time counts from its first byte: no byte that comes later gives it more."""
    with harmless(tight), tight.client() as client:
        client.send(b"POST /v1/stream/a HTTP/1.1\r\nX: ")
        for _ in range(200):
            if select.select([client.socket], [], [], 0.02)[0]:
                break
            client.send(b"x")
        else:
            pytest.fail("it may drip for ever")
        assert client.answer().code == "too_slow"


def test_slow_request_behind_one_that_waits_is_answered_in_its_turn(topic: str) -> None:
    with running(sweep_s=0.02, header_deadline_ms=100, long_poll_ms=400) as server, server.client() as client:
        path = f"/v1/stream/{topic}"
        server.ask("PUT", path)
        client.send(request("GET", f"{path}?offset=now&live=long-poll") + b"GET /slow")
        assert client.answer().status == 204
        assert client.answer().code == "too_slow"
        assert client.is_cut


@pytest.mark.parametrize("size", [1, 200_000])
def test_request_that_the_server_stopped_reading_is_not_too_slow(topic: str, size: int) -> None:
    """The client has sent everything; what is in front of it in line takes longer than a request may take to come."""
    path = f"/v1/stream/{topic}"
    slow: dict[str, Any] = {"header_deadline_ms": 100, "body_grace_ms": 100, "long_poll_ms": 500}
    with running(sweep_s=0.02, pipelined_max=1, **slow) as server, server.client() as client:
        server.ask("PUT", path, headers={"Content-Type": "text/plain"})
        behind = request("POST", path, b"x" * size)
        cut = 20 if size == 1 else 300
        client.send(request("GET", f"{path}?offset=now&live=long-poll") + behind[:cut])
        server.until(lambda: bool(server.server.paused))
        client.send(behind[cut:])
        assert client.answer().status == 204
        assert client.answer().next_offset == 1


def test_client_that_stops_sending_is_still_answered(tight: Running, path: str) -> None:
    with tight.client() as client:
        client.send(request("POST", path, b"x"))
        client.socket.shutdown(socket.SHUT_WR)
        assert client.answer().next_offset == 1
        assert client.is_cut


@pytest.mark.parametrize("length", [100, 150 * KIB])
def test_half_a_request_and_no_more_to_come_is_dropped(tight: Running, path: str, length: int) -> None:
    for cut in (10, 60, -1):
        with harmless(tight), tight.client() as client:
            client.send(request("POST", path, b"x" * length)[:cut])
            client.socket.shutdown(socket.SHUT_WR)
            assert client.is_cut


def test_client_that_vanishes_loses_its_answer_and_not_its_write(tight: Running, path: str) -> None:
    client = tight.client()
    client.send(request("POST", path, b"x"))
    client.reset()
    with tight.client() as other:
        tight.until(lambda: not any(connection.slots for connection in tight.server.connections))
        # It was read before the reset, or it was not; it is whole, or it is not there.
        assert other.ask("GET", path).body in (b"x", b"")


def test_idle_connection_is_closed(topic: str) -> None:
    with running(sweep_s=0.02, idle_ms=100) as server, server.client() as client:
        assert client.ask("GET", "/health").status == 200
        assert client.is_cut


def test_connection_that_waits_for_an_answer_is_not_idle(topic: str) -> None:
    with running(sweep_s=0.02, idle_ms=100, long_poll_ms=400) as server:
        server.ask("PUT", f"/v1/stream/{topic}")
        with server.client() as client:
            assert client.ask("GET", f"/v1/stream/{topic}?offset=now&live=long-poll").status == 204


# --- a client that never reads -------------------------------------------------------------------------------------


PIECE_BYTES = 64 * KIB


def fill(server: Running, path: str, size: int = MIB // 2) -> None:
    """Text of this size."""
    with server.client() as client:
        for _ in range(size // PIECE_BYTES):
            assert client.ask("POST", path, b"x" * PIECE_BYTES).status == 204


def unsent(server: Running) -> int:
    """The most bytes that wait for one client."""
    return server.on_loop(
        lambda: max((c.transport.get_write_buffer_size() for c in server.server.connections), default=0)
    )


@pytest.mark.parametrize(("live", "size"), [("", MIB // 2), ("&live=sse", 16 * MIB)])
def test_client_that_never_reads_is_cut_and_holds_little_meanwhile(
    tight: Running, path: str, live: str, size: int
) -> None:
    fill(tight, path, size)
    cut = tight.server.counts.cut_stalled
    with harmless(tight), tight.client(receive_bytes=4 * KIB) as greedy:
        greedy.send(request("GET", f"{path}?offset=-1{live}") * 100)
        most = 0
        while tight.server.counts.cut_stalled == cut:
            most = max(most, unsent(tight))
            assert tight.ask("GET", "/health").status == 200
        assert most <= WRITE_HIGH_BYTES + 1 * MIB + 64 * KIB, "one answer beyond what a client may leave unread"
    assert tight.server.counts.cut_stalled == cut + 1


def test_client_that_leaves_a_little_unread_does_not_stay_for_ever(topic: str) -> None:
    """Less than makes the server stop reading: nothing but the idle deadline could end such a connection."""
    path = f"/v1/stream/{topic}"
    with running(sweep_s=0.02, idle_ms=100, write_stall_ms=100) as server:
        server.ask("PUT", path, headers={"Content-Type": "text/plain"})
        fill(server, path)
        with server.client(receive_bytes=4 * KIB) as lazy:
            for _ in range(100):
                lazy.send(request("GET", path))
                server.until(lambda: all(not c.slots for c in server.server.connections))
                if unsent(server):
                    break
            assert 0 < unsent(server) < WRITE_HIGH_BYTES
            server.until(lambda: not server.server.connections)


def test_slow_reader_gets_everything(tight: Running, path: str) -> None:
    fill(tight, path)
    with tight.client(receive_bytes=4 * KIB) as slow:
        slow.send(request("GET", path) * 3)
        for _ in range(3):
            assert slow.answer().body == b"x" * 8 * PIECE_BYTES


# --- anything ------------------------------------------------------------------------------------------------------


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(METHODS, TARGETS, HEADERS, BODIES)
def test_whatever_is_asked_is_answered_and_the_server_goes_on(
    any_server: Running, method: bytes, target: bytes, headers: dict[bytes, bytes], body: bytes
) -> None:
    told = b"".join(b"%b: %b\r\n" % header for header in headers.items())
    with any_server.client() as client:
        client.send(
            b"%b %b HTTP/1.1\r\nHost: h\r\n%bContent-Length: %d\r\n\r\n%b" % (method, target, told, len(body), body)
        )
        client.socket.shutdown(socket.SHUT_WR)
        answer = client.head()
        assert answer.status < 500 or answer.status == 501
        client.drain()


@pytest.fixture(scope="module")
def any_server() -> Iterator[Running]:
    """With a few things in it to hit."""
    with running(early_hold_ms=1) as server:
        server.ask("PUT", "/v1/stream/a", b"first", {"Content-Type": "text/plain"})
        server.ask("PUT", "/v1/stream/json", b"[1,2]", {"Content-Type": "application/json"})
        server.ask("POST", "/v1/applications/a")
        server.ask("POST", "/v1/stages", b"{}")
        yield server
        assert server.ask("GET", "/health").status == 200


# --- many ----------------------------------------------------------------------------------------------------------


def test_more_connections_than_allowed_are_turned_away_and_the_others_go_on(topic: str) -> None:
    with running(connections_max=3) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.client()) for _ in range(3)]
        for client in clients:
            assert client.ask("GET", "/health").status == 200
        for sends in (b"", request("POST", f"/v1/stream/{topic}", b"x" * 100_000)):
            with Client(server.port) as late:
                with contextlib.suppress(ConnectionError):
                    late.send(sends)
                answer = late.answer()
                assert (answer.status, answer.code) == (503, "too_many_connections")
                assert answer.headers["retry-after"] == "1"
                assert late.drain() == b""
        assert clients[0].ask("GET", "/health").status == 200
        clients.pop().close()
        server.until(lambda: len(server.server.connections) == 2)
        assert server.ask("GET", "/health").status == 200
        assert server.server.counts.connections_refused == 2


def test_client_that_is_turned_away_and_stays_is_cut_and_so_is_one_of_too_many(topic: str) -> None:
    with (
        mock.patch.object(limits, "LINGER_MS", 50),
        running(connections_max=1) as server,
        server.client() as client,
        contextlib.ExitStack() as stack,
    ):
        assert client.ask("GET", "/health").status == 200
        server.server.listener.context.backlog = 4
        late = [stack.enter_context(server.client()) for _ in range(2)]
        server.until(lambda: len(server.server.listener._turned_away) == 2)
        with server.client() as one_more:
            assert one_more.is_cut
        server.until(lambda: not server.server.listener._turned_away)
        assert [each.answer().status for each in late] == [503, 503]
        assert client.ask("GET", "/health").status == 200


def test_write_and_hundreds_of_reads_in_one_go_are_all_answered(tight: Running, path: str) -> None:
    """A read waits for the answer before it: what begins when a long line moves on must not nest."""
    with tight.client() as client:
        client.send(request("POST", path, b"x") + request("GET", path) * 1500)
        assert client.answer().status == 204
        for _ in range(1500):
            assert client.answer().body == b"x"
