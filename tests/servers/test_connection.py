"""One connection: keep-alive, pipelining in order, versions, expectations, HEAD."""

import pytest

from oncelog.limits import KIB, MIB
from oncelog.protocols.http.parser import STRAIGHT_BYTES_MIN
from tests.servers.running import Running, running
from tests.servers.talking import request


def test_connection_serves_one_request_after_another(shared: Running, text: str) -> None:
    with shared.client() as client:
        for number in range(20):
            assert client.ask("POST", text, b"%d," % number).next_offset == number + 1
            assert client.ask("HEAD", text).next_offset == number + 1


def test_answers_come_in_the_order_of_requests(shared: Running, text: str) -> None:
    with shared.client() as client:
        client.send(
            request("POST", text, b"a")
            + request("GET", text)
            + request("GET", "/nowhere")
            + request("POST", text, b"b")
            + request("HEAD", text)
            + request("GET", "/health")
            + request("GET", f"{text}?offset=1")
        )
        assert client.answer().next_offset == 1
        assert client.answer().body == b"a", "it sees the write before it and not the one behind it"
        assert client.answer().status == 404
        assert client.answer().next_offset == 2
        assert client.answer(head=True).next_offset == 2
        assert client.answer().json["status"] == "ok"
        assert client.answer().body == b"b"


def test_requests_take_effect_in_their_order_also_behind_a_slow_one(shared: Running, text: str) -> None:
    with shared.client() as client, shared.client() as other:
        client.send(request("GET", f"{text}?offset=now&live=long-poll") + request("GET", "/health"))
        shared.until(lambda: bool(shared.engine.follow._waiters))
        client.send(request("POST", text, b"own1") + request("POST", text, b"own2"))
        other.ask("POST", text, b"other", headers={"Content-Type": "text/plain"})
        polled = client.answer()
        assert (polled.status, polled.body) == (200, b"other"), "what stands behind it in line has not happened yet"
        assert client.answer().json["status"] == "ok"
        assert [client.answer().next_offset for _ in range(2)] == [2, 3]


def test_write_behind_a_read_is_carried_out_although_its_client_has_gone(shared: Running, text: str) -> None:
    with shared.client() as client:
        client.send(request("GET", f"{text}?offset=now&live=long-poll"))
        shared.until(lambda: bool(shared.engine.follow._waiters))
        client.send(request("POST", text, b"own"))
        shared.until(lambda: any(len(connection.slots) == 2 for connection in shared.server.connections))
    topic = text.removeprefix("/v1/stream/")
    shared.until(lambda: shared.engine.view.topic(topic) is not None)
    with shared.client() as other:
        found = other.ask("GET", f"{text}?offset=-1&live=long-poll")
        assert (found.status, found.body) == (200, b"own")


def test_live_read_in_line_waits_for_its_turn(shared: Running, text: str) -> None:
    with shared.client() as client:
        client.send(request("GET", f"{text}?offset=now&live=long-poll") * 3)
        for _ in range(3):
            assert client.answer().status == 204


def test_requests_that_come_in_pieces_are_the_same(shared: Running, text: str) -> None:
    data = request("POST", text, b"first") + request("POST", text, b"second") + request("GET", text)
    with shared.client() as client:
        for at in range(0, len(data), 3):
            client.send(data[at : at + 3])
        assert client.answer().next_offset == 1
        assert client.answer().next_offset == 2
        assert client.answer().body == b"firstsecond"


@pytest.mark.parametrize("size", [STRAIGHT_BYTES_MIN, STRAIGHT_BYTES_MIN + 1, 1 * MIB, 3 * MIB])
def test_large_body_and_what_is_pipelined_behind_it(shared: Running, text: str, size: int) -> None:
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    with shared.client() as client:
        client.send(request("POST", text, body) + request("POST", text, b"end") + request("GET", f"{text}?offset=0"))
        assert client.answer().next_offset == 1
        assert client.answer().next_offset == 2
        found = client.answer().body
        assert found in (body, body + b"end"), "one batch comes even if it is larger than an answer should be"


def test_chunked_body_is_one_record(shared: Running, text: str) -> None:
    head = f"POST {text} HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    with shared.client() as client:
        client.send(head + b"5\r\nhello\r\n")
        client.send(b"6\r\n world\r\n0\r\n\r\n")
        assert client.answer().next_offset == 1
        assert client.ask("GET", text).body == b"hello world"


def test_connection_close_is_the_last_answer(shared: Running, text: str) -> None:
    with shared.client() as client:
        client.send(request("POST", text, b"a") + request("POST", text, b"b", {"Connection": "close"}))
        assert "connection" not in client.answer().headers
        last = client.answer()
        assert (last.next_offset, last.headers["connection"]) == (2, "close")
        assert client.is_cut


def test_what_follows_connection_close_is_not_carried_out(shared: Running, text: str) -> None:
    with shared.client() as client:
        client.send(request("POST", text, b"a", {"Connection": "close"}) + request("POST", text, b"b"))
        assert client.answer().next_offset == 1
        assert client.is_cut
    assert shared.ask("HEAD", text).next_offset == 1


def test_http_1_0_is_answered_and_closed_unless_asked_to_stay(shared: Running, text: str) -> None:
    with shared.client() as client:
        client.send(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert client.answer().status == 200
        client.send(f"GET {text} HTTP/1.0\r\n\r\n".encode())
        answer = client.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert client.is_cut


# --- Expect --------------------------------------------------------------------------------------------------------


def expecting(path: str, body: bytes) -> bytes:
    return request("POST", path, body, {"Expect": "100-continue"})[: -len(body)]


def test_client_that_waits_for_a_word_gets_it(shared: Running, text: str) -> None:
    with shared.client() as client:
        client.send(expecting(text, b"body"))
        assert (client.line(), client.line()) == (b"HTTP/1.1 100 Continue\r\n", b"\r\n")
        client.send(b"body")
        assert client.answer().next_offset == 1
        assert client.ask("GET", text).body == b"body"


def test_client_that_does_not_wait_for_the_word_gets_only_its_answer(shared: Running, text: str) -> None:
    with shared.client() as client:
        client.send(expecting(text, b"body") + b"body")
        assert client.answer().next_offset == 1


@pytest.mark.parametrize("first", ["POST", "long-poll"])
def test_word_comes_in_its_turn(shared: Running, text: str, first: str) -> None:
    """An answer is due before it: the 100 must not overtake it, and must not be forgotten either."""
    before = request("POST", text, b"a")
    if first == "long-poll":
        before = request("GET", f"{text}?offset=now&live=long-poll")
    with shared.client() as client:
        client.send(before + expecting(text, b"body"))
        assert client.answer().status == 204
        assert (client.line(), client.line()) == (b"HTTP/1.1 100 Continue\r\n", b"\r\n")
        client.send(b"body")
        assert client.answer().status == 204


def test_client_that_asks_before_it_sends_too_much_is_told_so_at_once(shared: Running, text: str) -> None:
    with shared.client() as client:
        client.send(
            f"POST {text} HTTP/1.1\r\nHost: h\r\nContent-Length: 5000000\r\nExpect: 100-continue\r\n\r\n".encode()
        )
        assert client.answer().code == "body_too_large"


def test_other_expectation_is_417(shared: Running, text: str) -> None:
    with shared.client() as client:
        client.send(request("POST", text, b"x", {"Expect": "200-ok"}))
        assert client.answer().code == "expectation_failed"
        assert client.is_cut


# --- HEAD ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target", ["/health", "/metrics", "/v1/streams", "/v1/openapi.json", "/nowhere", "/v1/stream/nobody"]
)
def test_head_has_no_body_whatever_it_asks(shared: Running, target: str) -> None:
    with shared.client() as client:
        client.send(request("HEAD", target) + request("GET", "/health"))
        assert client.answer(head=True).body == b""
        assert client.answer().json["status"] == "ok", "the next answer begins right behind the head"


def test_head_of_a_stream_with_records(shared: Running, text: str) -> None:
    shared.ask("POST", text, b"x" * 100)
    answer = shared.ask("HEAD", text)
    assert (answer.status, answer.next_offset, answer.body) == (200, 1, b"")
    assert answer.headers["content-type"] == "text/plain"


# --- back-pressure -------------------------------------------------------------------------------------------------


def test_more_requests_than_may_be_in_progress_are_read_later(topic: str) -> None:
    path = f"/v1/stream/{topic}"
    with running(pipelined_max=4, long_poll_ms=300) as server, server.client() as client:
        server.ask("PUT", path, headers={"Content-Type": "text/plain"})
        client.send(request("GET", f"{path}?offset=now&live=long-poll") * 4)
        server.until(lambda: bool(server.server.paused))
        (connection,) = server.on_loop(lambda: list(server.server.paused))
        client.send(request("POST", path, b"x"))
        assert server.on_loop(lambda: len(connection.slots)) <= 4
        for _ in range(4):
            assert client.answer().status == 204
        assert client.answer().next_offset == 1
        assert server.on_loop(lambda: not server.server.paused)


def test_client_with_nothing_in_line_is_read_again_as_soon_as_no_command_waits(topic: str) -> None:
    """Answers of its own would wake it, and it has none to come; the look once a second is too far away here."""
    path = f"/v1/stream/{topic}"
    with running(sweep_s=3600) as server, server.client() as writer, server.client() as other:
        assert server.ask("PUT", path, headers={"Content-Type": "text/plain"}).status == 201
        commits = server.engine.commits
        server.on_loop(lambda: setattr(commits, "held", True))
        writer.send(request("POST", path, b"x"))
        server.until(lambda: server.engine.overloaded)
        assert other.ask("GET", "/health").status == 200
        server.until(lambda: len(server.server.paused) == 1)
        other.send(request("GET", "/health"))
        server.on_loop(lambda: setattr(commits, "held", False))
        server.on_loop(server.engine._take_waiting)
        assert other.answer().status == 200
        assert writer.answer().next_offset == 1
        assert not server.server.paused


def test_client_whose_appends_are_alike_is_read_no_more_while_commands_wait(topic: str) -> None:
    """As any other client: the short way of an append asks the engine, too."""
    path = f"/v1/stream/{topic}"
    with running(sweep_s=3600) as server, server.client() as client:
        assert server.ask("PUT", path, headers={"Content-Type": "text/plain"}).status == 201
        for _ in range(3):
            assert client.ask("POST", path, b"x", {"Content-Type": "text/plain"}).status == 204
        commits = server.engine.commits
        server.on_loop(lambda: setattr(commits, "held", True))
        client.send(request("POST", path, b"x"))
        server.until(lambda: commits.waiting == 1)
        assert len(server.on_loop(lambda: list(server.server.paused))) == 0, "it was not known yet that it waits"
        client.send(request("POST", path, b"x"))
        server.until(lambda: len(server.server.paused) == 1)
        server.on_loop(lambda: setattr(commits, "held", False))
        server.on_loop(server.engine._take_waiting)
        assert [client.answer().next_offset for _ in range(2)] == [4, 5]
        server.until(lambda: not server.server.paused)


def test_refusal_behind_a_read_does_not_overtake_its_answer(topic: str) -> None:
    """It is known at once when its turn to begin comes, which is before the read's own answer is written."""
    with running(long_poll_ms=100) as server, server.client() as client:
        server.ask("PUT", f"/v1/stream/{topic}", headers={"Content-Type": "text/plain"})
        client.send(
            request("GET", f"/v1/stream/{topic}?offset=0&live=long-poll")
            + request("POST", f"/v1/stream/{topic}-none", b"[1,2]", {"Content-Type": "application/json"})
        )
        assert [client.answer().status for _ in range(2)] == [204, 404]


def test_many_small_requests_are_all_answered(shared: Running, text: str) -> None:
    with shared.client() as client:
        for _ in range(3):
            client.send(request("POST", text, b"0123456789") * 2000)
            for _ in range(2000):
                assert client.answer().status == 204
    assert shared.ask("HEAD", text).next_offset == 6000


def test_read_larger_than_one_answer_goes_on_where_it_ended(topic: str) -> None:
    path = f"/v1/stream/{topic}"
    with running(read_bytes_max=4 * KIB) as server, server.client() as client:
        client.ask("PUT", path, headers={"Content-Type": "text/plain"})
        for number in range(50):  # one by one: records that come together share a batch, which is never divided
            assert client.ask("POST", path, b"%04d" % number * 100, {"Content-Type": "text/plain"}).status == 204
        found, offset, rounds = b"", "-1", 0
        while True:
            answer = client.ask("GET", f"{path}?offset={offset}")
            found += answer.body
            offset = answer.headers["stream-next-offset"]
            rounds += 1
            if "stream-up-to-date" in answer.headers:
                break
            assert len(answer.body) <= 4 * KIB
        assert found == b"".join(b"%04d" % number * 100 for number in range(50))
        assert rounds > 4
