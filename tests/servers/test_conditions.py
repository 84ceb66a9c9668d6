"""Claims and conditions on requests that cannot have them: refused, since nobody means them to be ignored."""

import pytest

from oncelog.servers.http.settings import HttpSettings
from oncelog.servers.listener import SWEEP_S, SWEEP_S_MIN, sweep_s
from tests.servers.running import Running, running
from tests.servers.talking import Headers, request

TYPE: Headers = {"Content-Type": "text/plain"}

HEADERS: list[Headers] = [
    {"If-Match": '"99"'},
    {"If-None-Match": "*"},
    {"If-Unmodified-Since": "Wed, 21 Oct 2026 07:28:00 GMT"},
    {"Stream-Message-Id": "m"},
    {"Producer-Id": "p", "Producer-Epoch": 0, "Producer-Seq": 0},
    {"X-Message-Id": "m"},
]

NOT_APPENDS = [
    ("DELETE", "/v1/stream/{topic}", b""),
    ("PUT", "/v1/stream/{topic}-new", b""),
    ("POST", "/v1/topics/{topic}/trim", b'{"floor": 1}'),
    ("POST", "/v1/topics/{topic}/delete-records", b'{"ranges": [[0, 1]]}'),
    ("PATCH", "/v1/topics/{topic}", b'{"dedupe_floor_ms": 1}'),
    ("PUT", "/v1/topics/{topic}-new", b"{}"),
    ("PUT", "/v1/cursors/c/{topic}", b'{"frontier": 1}'),
    ("DELETE", "/v1/cursors/c/{topic}", b""),
    ("POST", "/v1/applications/{topic}", b""),
    ("POST", "/v1/stages", b"{}"),
    ("POST", "/v1/publish", b"{}"),
]


@pytest.mark.parametrize("headers", HEADERS, ids=[next(iter(headers)) for headers in HEADERS])
@pytest.mark.parametrize(("method", "target", "body"), NOT_APPENDS, ids=[f"{m} {t}" for m, t, _ in NOT_APPENDS])
def test_request_that_is_no_append_is_not_done_against_the_word_of_its_sender(
    shared: Running, topic: str, method: str, target: str, body: bytes, headers: Headers
) -> None:
    path = f"/v1/stream/{topic}"
    shared.ask("PUT", path, b"one", TYPE)
    before = shared.ask("GET", "/v1/cut?topic=" + topic).json
    answer = shared.ask(method, target.format(topic=topic), body, headers)
    assert (answer.status, answer.code) == (400, "header_invalid")
    assert any(said in answer.json["detail"] for said in (*headers, "a PUT makes a stream"))
    assert shared.ask("GET", "/v1/cut?topic=" + topic).json["entry"] == before["entry"]


@pytest.mark.parametrize("headers", HEADERS[1:3])
def test_append_under_a_condition_that_no_append_can_have_is_refused(
    shared: Running, topic: str, headers: Headers
) -> None:
    path = f"/v1/stream/{topic}"
    shared.ask("PUT", path, b"one", TYPE)
    for more in ({}, {"Stream-Closed": "true"}):
        answer = shared.ask("POST", path, b"two", {**TYPE, **headers, **more})
        assert (answer.status, answer.code) == (400, "header_invalid")
        assert "If-Match with an offset is" in answer.json["detail"]
    assert shared.ask("GET", path).body == b"one"


def test_key_that_some_clients_send_with_everything_does_no_harm(shared: Running, topic: str) -> None:
    shared.ask("PUT", f"/v1/stream/{topic}", b"one", TYPE)
    assert shared.ask("DELETE", f"/v1/stream/{topic}", headers={"Idempotency-Key": "k"}).status == 204


def test_session_without_a_name_is_refused(shared: Running, topic: str) -> None:
    """It would be as if there were none, and a retry be judged by other rules than its sender has in mind."""
    shared.ask("PUT", f"/v1/stream/{topic}", headers=TYPE)
    headers: Headers = {"X-Producer-Id": "p", "X-Producer-Seq": 0, "X-Producer-Session": ""}
    answer = shared.ask("POST", f"/v1/stream/{topic}", b"x", {**TYPE, **headers})
    assert (answer.status, answer.code) == (400, "header_invalid")


def test_topic_that_is_named_twice_is_told_once(shared: Running, topic: str) -> None:
    shared.ask("PUT", f"/v1/stream/{topic}", headers=TYPE)
    assert len(shared.ask("GET", f"/v1/cut?topic={topic}&topic={topic}").json["streams"]) == 1


def test_offset_below_zero_is_told_as_such(shared: Running, topic: str) -> None:
    shared.ask("PUT", f"/v1/stream/{topic}", headers=TYPE)
    answer = shared.ask("PUT", f"/v1/cursors/c/{topic}", b'{"frontier": -1}')
    assert answer.status == 400
    assert answer.json["detail"] == "-1 is no offset: they count from 0"


def test_read_says_that_its_form_is_chosen_by_accept(shared: Running, topic: str) -> None:
    shared.ask("PUT", f"/v1/stream/{topic}", b"x", TYPE)
    raw = {"Accept": "application/vnd.oncelog.batches"}
    for headers in ({}, raw):
        read = shared.ask("GET", f"/v1/stream/{topic}", headers=headers)
        known = shared.ask("GET", f"/v1/stream/{topic}", headers={**headers, "If-None-Match": read.headers["etag"]})
        assert (read.status, known.status) == (200, 304)
        assert read.headers["vary"] == known.headers["vary"] == "Accept"


def test_client_of_http_1_0_is_sent_no_interim_answer(shared: Running, topic: str) -> None:
    shared.ask("PUT", f"/v1/stream/{topic}", headers=TYPE)
    head = request("POST", f"/v1/stream/{topic}", b"x", {**TYPE, "Expect": "100-continue"})[:-1]
    with shared.client() as client:
        client.send(head.replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert shared.ask("GET", "/health").status == 200  # it was read, and nothing was said
        client.send(b"x")
        assert client.answer().status == 204


def test_deadlines_are_looked_at_as_often_as_the_shortest_asks() -> None:
    assert sweep_s(HttpSettings()) == SWEEP_S
    assert sweep_s(HttpSettings(header_deadline_ms=2_000)) == 0.5
    assert sweep_s(HttpSettings(idle_ms=100)) == SWEEP_S_MIN
    with running(header_deadline_ms=100) as server, server.client() as client:
        client.send(b"GET /health HTTP/1.1\r\nHost:")
        assert client.answer().status == 408
