"""Requests of a mount: bodies as they come, answers in line, back-pressure both ways, and every way to be cut off."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.servers import faces
from oncelog.servers.counts import Counts
from oncelog.servers.face import FaceContext
from oncelog.servers.mount import MountedRequest, Turn
from tests.servers.running import Running, running
from tests.servers.talking import request

PIECE = b"p" * 65_536


class Echo:
    """Answers with what it was sent, or as its path says."""

    prefixes = (b"/echo/", b"/other/")

    def __init__(self) -> None:
        self.begun: list[MountedRequest] = []
        self.bodies: list[Body] = []

    def begin(self, request: MountedRequest, turn: Turn) -> "Body":
        self.begun.append(request)
        body = Body(request.path.rpartition(b"/")[2], turn)
        self.bodies.append(body)
        return body


class Body:
    def __init__(self, verb: bytes, turn: Turn) -> None:
        self.verb = verb
        self.turn = turn
        self.came = b""
        self.is_whole = False
        self.is_lost = False
        self.pieces = 0
        if verb == b"refuse":
            turn.done(429, b"X-Why: too much\r\n", b"no")

    def data(self, piece: bytes) -> bool:
        self.came += piece
        return self.verb != b"full"

    def end(self) -> None:
        self.is_whole = True
        if self.verb == b"echo":
            self.turn.done(200, b"Content-Type: text/plain\r\n", self.came)
        elif self.verb == b"pieces":
            self.turn.on_writable = self.send
            self.turn.head(200, b"", len(PIECE) * 64)
            self.send()

    def send(self) -> None:
        while self.pieces < 64:
            self.pieces += 1
            if not self.turn.piece(PIECE):
                return

    def lost(self) -> None:
        self.is_lost = True


made: list[Echo] = []


def make_echo(_context: FaceContext, _counts: Counts) -> Echo:
    made.append(Echo())
    return made[-1]


@contextlib.contextmanager
def mounted(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Iterator[tuple[Running, Echo]]:
    monkeypatch.setattr(faces, "MOUNTS", ["tests.servers.test_mounts:make_echo"])
    monkeypatch.setattr("oncelog.servers.http.server.MOUNTS", ["tests.servers.test_mounts:make_echo"])
    with running(**settings) as server:
        yield server, made[-1]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Running, Echo]]:
    with mounted(monkeypatch) as pair:
        yield pair


def test_request_of_a_mount_is_answered_by_it_and_all_others_by_the_face(served: tuple[Running, Echo]) -> None:
    server, echo = served
    with server.client() as client:
        answer = client.ask("POST", "/echo/echo?a=1", b"hello", {"X-Of-Mine": "1"})
        assert (answer.status, answer.body) == (200, b"hello")
        assert client.ask("GET", "/health").status == 200
        assert client.ask("POST", "/echonomy", b"").status == 404
    asked = echo.begun[0]
    assert (asked.method, asked.path, asked.query, asked.content_length) == (b"POST", b"/echo/echo", b"a=1", 5)
    assert asked.headers[b"x-of-mine"] == b"1"


def test_body_comes_in_pieces_whatever_its_size_and_encoding(served: tuple[Running, Echo]) -> None:
    server, echo = served
    body = bytes(range(256)) * 32_768  # 8 MiB, twice what the face itself takes
    with server.client() as client:
        answer = client.ask("POST", "/other/echo", body, {"Content-Encoding": "gzip"})
        assert (answer.status, answer.body) == (200, body)
        client.send(
            b"POST /echo/echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        )
        assert client.answer().body == b"abcde"
    assert echo.begun[1].content_length is None


def test_request_may_be_cut_anywhere(served: tuple[Running, Echo]) -> None:
    server, _ = served
    head = b"POST /echo/echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    with server.client() as client:
        for at in range(1, len(head)):
            client.send(head[:at])
            server.on_loop(lambda: None)
            client.send(head[at:])
            assert client.line() == b"HTTP/1.1 100 Continue\r\n"
            assert client.line() == b"\r\n"
            client.send(b"he")
            server.on_loop(lambda: None)
            client.send(b"llo")
            assert client.answer().body == b"hello"


def test_answers_leave_in_the_order_of_the_requests(served: tuple[Running, Echo]) -> None:
    server, echo = served
    with server.client() as client:
        client.send(
            request("POST", "/echo/later", b"x") + request("POST", "/echo/pieces", b"y") + request("GET", "/health")
        )
        server.until(lambda: len(echo.bodies) == 2)
        server.on_loop(lambda: echo.bodies[0].turn.done(204, b""))
        assert client.answer().status == 204
        assert client.answer().body == PIECE * 64
        assert client.answer().status == 200


def test_large_answer_waits_for_a_client_that_reads_slowly(served: tuple[Running, Echo]) -> None:
    server, echo = served
    with server.client(receive_bytes=4096) as client:
        client.send(request("POST", "/echo/pieces", b""))
        server.until(lambda: bool(echo.bodies) and echo.bodies[0].pieces > 0)
        assert server.on_loop(lambda: echo.bodies[0].pieces) < 64
        assert client.answer().body == PIECE * 64


def test_nothing_is_read_while_the_mount_is_full(served: tuple[Running, Echo]) -> None:
    server, echo = served
    with server.client() as client:
        client.send(b"POST /echo/full HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc")
        server.until(lambda: bool(echo.bodies) and echo.bodies[0].came == b"abc")
        server.until(lambda: len(server.server.paused) == 1)
        client.send(b"def")
        server.on_loop(lambda: None)
        assert server.on_loop(lambda: echo.bodies[0].came) == b"abc"

        def resume() -> None:
            echo.bodies[0].verb = b"echo"
            echo.bodies[0].turn.resume()

        server.on_loop(resume)
        assert client.answer().body == b"abcdef"


def test_answer_before_the_end_of_the_body_closes_the_connection(served: tuple[Running, Echo]) -> None:
    server, _ = served
    with server.client() as client:
        client.send(b"POST /echo/refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nabc")
        answer = client.answer()
        assert (answer.status, answer.body, answer.headers["connection"]) == (429, b"no", "close")
        assert client.drain() == b""


def test_client_that_goes_is_reported_to_the_mount(served: tuple[Running, Echo]) -> None:
    server, echo = served
    with server.client() as client:
        client.send(b"POST /echo/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc")
        server.until(lambda: bool(echo.bodies) and echo.bodies[0].came == b"abc")
    server.until(lambda: echo.bodies[0].is_lost)
    assert not echo.bodies[0].is_whole


def test_body_that_comes_too_slowly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with mounted(monkeypatch, body_grace_ms=100) as (server, echo), server.client() as client:
        client.send(b"POST /echo/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc")
        answer = client.answer()
        assert (answer.status, answer.code) == (408, "too_slow")
        assert client.drain() == b""
        assert echo.bodies[0].is_lost


def test_stop_answers_what_was_taken_whole_and_refuses_the_rest(served: tuple[Running, Echo]) -> None:
    server, echo = served
    with server.client() as whole, server.client() as half:
        whole.send(request("POST", "/echo/later", b"x"))
        half.send(b"POST /echo/echo HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc")
        server.until(lambda: len(echo.bodies) == 2 and all(body.came for body in echo.bodies))
        server.begin_stop()
        assert half.answer().status == 503
        later = next(body for body in echo.bodies if body.verb == b"later")
        server.on_loop(lambda: later.turn.done(200, b"", b"done"))
        assert whole.answer().body == b"done"


def test_page_of_a_browser_may_not_write_through_a_mount(served: tuple[Running, Echo]) -> None:
    server, echo = served
    with server.client() as client:
        answer = client.ask("POST", "/echo/echo", b"x", {"Origin": "http://evil.example"})
        assert (answer.status, answer.code) == (403, "origin_refused")
    assert not echo.begun
