"""Which request is which; and that every request, whatever it holds, becomes an action or a 4xx."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog import limits
from oncelog.core import command as c
from oncelog.core.names import command_refused
from oncelog.protocols.http import actions, append
from oncelog.protocols.http.actions import Done, Submit
from oncelog.protocols.http.request import Request, RequestRefused
from oncelog.protocols.http.routes import refused_answer
from oncelog.protocols.http.session import Session
from tests.protocols.http.any_request import BATCH, BODIES, HEADERS, METHODS, RAW, TARGETS
from tests.protocols.http.requests import answer_of, made, routed, status_of


@pytest.mark.parametrize(
    ("method", "target", "kind"),
    [
        ("GET", "/health", actions.Health),
        ("HEAD", "/health", actions.Health),
        ("GET", "/metrics", actions.Metrics),
        ("GET", "/v1/cut", actions.Cut),
        ("GET", "/v1/offsets?entry=1", actions.Stood),
        ("GET", "/v1/offsets?time_ms=1&topic=a", actions.Stood),
        ("GET", "/v1/streams", actions.ListStreams),
        ("GET", "/v1/producers?topic=a", actions.ListProducers),
        ("GET", "/v1/cursors", actions.ListCursors),
        ("GET", "/v1/receipts/a/b", actions.Receipt),
        ("GET", "/v1/producers/a/b", c.GetProducer),
        ("GET", "/v1/commit/producers/a", c.GetProducer),
        ("GET", "/v1/cursors/n/a", c.GetCursor),
        ("DELETE", "/v1/cursors/n/a", c.DeleteCursor),
        ("GET", "/v1/topics/a/b", c.GetTopic),
        ("PUT", "/v1/topics/a", c.CreateTopic),
        ("POST", "/v1/applications/a", c.OpenApplication),
        ("GET", "/v1/applications/a", c.GetApplication),
        ("POST", "/v1/stages", c.OpenStage),
        ("PUT", "/v1/stream/a", c.CreateTopic),
        ("DELETE", "/v1/stream/a", c.DeleteTopic),
        ("HEAD", "/v1/stream/a", actions.Stand),
        ("GET", "/v1/stream/a", actions.Read),
    ],
)
def test_path_and_method_say_what_is_asked(method: str, target: str, kind: type) -> None:
    action = routed(made(method, target))
    assert type(action.command if isinstance(action, Submit) else action) is kind


def test_names_in_paths_are_cut_while_they_are_encoded() -> None:
    receipt = routed(made("GET", "/v1/receipts/a%2Fb/c/id%2F7?partition=2"))
    assert isinstance(receipt, actions.Receipt)
    assert (receipt.topic, receipt.message_id, receipt.partition) == ("a/b/c", b"id/7", 2)
    cursor = routed(made("GET", "/v1/cursors/n%2Fm/a/b"))
    assert isinstance(cursor, Submit)
    assert cursor.command == c.GetCursor("n/m", "a/b", 0)
    producer = routed(made("GET", "/v1/producers/a/b/p?scope=x&partition=1"))
    assert isinstance(producer, Submit)
    assert producer.command == c.GetProducer("a/b", 1, "x:p")


@pytest.mark.parametrize(
    ("method", "target", "allowed"),
    [
        ("POST", "/health", "GET, HEAD"),
        ("DELETE", "/v1/commit", "POST"),
        ("GET", "/v1/commit", "POST"),
        ("GET", "/v1/publish", "POST"),
        ("GET", "/v1/stages", "POST"),
        ("GET", "/v1/stages/1", "POST"),
        ("PUT", "/v1/receipts/a/b", "GET, HEAD"),
        ("PUT", "/v1/producers/a/b", "GET, HEAD"),
        ("POST", "/v1/commit/producers/a", "GET, HEAD"),
        ("POST", "/v1/cursors/a/b", "GET, HEAD, PUT, DELETE"),
        ("DELETE", "/v1/topics/a", "GET, HEAD, PUT, PATCH"),
        ("DELETE", "/v1/topics/a/b", "GET, HEAD, PUT, PATCH"),
        ("DELETE", "/v1/topics/trim", "GET, HEAD, PUT, PATCH"),
        ("DELETE", "/v1/topics/a/trim", "GET, HEAD, PUT, PATCH, POST"),
        ("DELETE", "/v1/topics/a/delete-records", "GET, HEAD, PUT, PATCH, POST"),
        ("DELETE", "/v1/applications/a", "GET, HEAD, POST"),
        ("PATCH", "/v1/stream/a", "GET, HEAD, PUT, POST, DELETE, OPTIONS"),
        ("BREW", "/v1/stream/a", "GET, HEAD, PUT, POST, DELETE, OPTIONS"),
    ],
)
def test_other_method_is_405_and_says_which_are_taken(method: str, target: str, allowed: str) -> None:
    answer = answer_of(routed(made(method, target)))
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert f"\r\nAllow: {allowed}\r\n".encode() in answer


@pytest.mark.parametrize("target", ["/", "/v1", "/v1/", "/v2/stream/a", "/v1/streams/a", "/favicon.ico", "/v1/stream"])
def test_unknown_path_is_404(target: str) -> None:
    answer = answer_of(routed(made("GET", target)))
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b'"code":"path_unknown"' in answer


@pytest.mark.parametrize(
    "target",
    ["/v1/receipts/a", "/v1/receipts/a/", "/v1/receipts/", "/v1/producers/a", "/v1/cursors/a", "/v1/cursors//a",
     "/v1/cursors/a/",
     "/v1/producers", "/v1/streams?limit=0", "/v1/streams?limit=1001", "/v1/streams?limit=x", "/v1/streams?prefix=%00",
     "/v1/streams?after=" + "a" * 500, "/v1/cursors?after=a", "/v1/cursors?after=a/", "/v1/cursors?after=/1",
     "/v1/cursors?after=a/-1",
     "/v1/cursors?after=a/99999999999999999999", "/v1/cursors?after=a/9223372036854775808",
     "/v1/producers/a/b?scope=nats",
     "/v1/cut?" + "&".join(["topic=a"] * 1001), "/v1/offsets", "/v1/offsets?entry=x", "/v1/offsets?entry=-1",
     "/v1/offsets?entry=1&time_ms=1", "/v1/offsets?entry=1&" + "&".join(["topic=a"] * 1001)],
)  # fmt: skip
def test_question_that_cannot_be_read_is_400(target: str) -> None:
    answer = answer_of(routed(made("GET", target)))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"target_invalid"' in answer


@pytest.mark.parametrize(
    "target", ["/v1/topics/a", "/v1/topics/a/close", "/v1/stages/x?at=0", "/v1/stages/-1?at=0", "/v1/stages/1"]
)
def test_post_that_cannot_be_read_is_400(target: str) -> None:
    assert status_of(routed(made("POST", target, BATCH))) == 400


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{}", b"nothing is named to change: partitions, or some of content_type, dedupe_floor_ms, duplicate_wind"),
        (b'{"partitions": 2, "dedupe_floor_ms": 1}', b"a PATCH names partitions, or other settings, not both"),
    ],
)
def test_change_that_cannot_be_made_says_why(body: bytes, says: bytes) -> None:
    answer = answer_of(routed(made("PATCH", "/v1/topics/a", body)))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"detail":"' + says in answer


def test_close_that_is_not_true_says_so() -> None:
    answer = answer_of(routed(made("POST", "/v1/stream/a", b"", stream_closed="yes")))
    assert b'"code":"empty_body"' in answer
    assert b"Stream-Closed must be true to close the stream, not 'yes'" in answer
    silent = answer_of(routed(made("POST", "/v1/stream/a")))
    assert b'"detail":"an append has a body"' in silent


@pytest.mark.parametrize("header", ["if_none_match", "if_unmodified_since"])
@pytest.mark.parametrize("named", [{"stream_closed": "true"}, {"stream_closed": "true", "host": "h"}])
def test_close_has_no_condition_either_whoever_sends_it(named: dict[str, str], header: str) -> None:
    assert status_of(routed(made("POST", "/v1/stream/a", **named, **{header: "*"}))) == 400


@pytest.mark.parametrize("target", ["/v1/stream/a", "/v1/commit", "/nothing"])
def test_browsers_may_ask_first(target: str) -> None:
    answer = answer_of(routed(made("OPTIONS", target)))
    assert answer.startswith(b"HTTP/1.1 204 ")
    assert b"Access-Control-Allow-Origin: *\r\n" in answer
    for header in (b"If-None-Match", b"If-Match", b"Producer-Seq", b"X-Producer-Session", b"Stream-Message-Id"):
        assert header in answer


@pytest.mark.parametrize(("browser_writes", "says"), [(False, b"GET, HEAD, OPTIONS"), (True, b"GET, HEAD, PUT, POST,")])
@pytest.mark.parametrize("target", ["/v1/stream/a", "/v1/commit"])
def test_browsers_are_told_first_whether_pages_may_write(target: str, browser_writes: bool, says: bytes) -> None:
    answer = answer_of(routed(made("OPTIONS", target, origin="http://a"), browser_writes=browser_writes))
    assert b"Access-Control-Allow-Methods: " + says in answer


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("POST", "/v1/stream/a", b"x"),
        ("PUT", "/v1/stream/a", b""),
        ("DELETE", "/v1/stream/a", b""),
        ("POST", "/v1/commit", b"{}"),
        ("POST", "/v1/topics/a/trim", b'{"floor":1}'),
        ("DELETE", "/v1/cursors/c/a", b""),
    ],
)
@pytest.mark.parametrize("origin", ["http://a", "null", "http://localhost:4437"])
def test_page_in_a_browser_writes_nothing_unless_it_may(method: str, target: str, body: bytes, origin: str) -> None:
    """Some need no preflight, and nobody is asked who they are: any page that is open could append and delete."""
    request = made(method, target, body, content_type="text/plain", origin=origin, host="localhost:4437")
    answer = answer_of(routed(request))
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b'"code":"origin_refused"' in answer
    told = routed(request, browser_writes=True)
    assert not isinstance(told, Done) or b"origin_refused" not in told.answer


@pytest.mark.parametrize("target", ["/v1/stream/a", "/v1/streams", "/health"])
def test_page_in_a_browser_may_read(target: str) -> None:
    assert status_of(routed(made("GET", target, origin="http://a"))) == 0


@pytest.mark.parametrize("header", ["stream_ttl", "stream_forked_from", "stream_expires_at"])
def test_what_is_not_built_is_501_and_not_ignored(header: str) -> None:
    assert status_of(routed(made("PUT", "/v1/stream/a", b"", **{header: "1"}))) == 501


def test_refused_request_is_answered_with_its_limit() -> None:
    request = made("POST", "/v1/stream/a")
    request.refused = RequestRefused(413, "body_too_large", "too large", limit=10, received=11)
    answer = answer_of(routed(request))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"limit":10,"received":11' in answer


@pytest.mark.parametrize(
    "target",
    [
        "/v1/receipts/a/b",
        "/v1/producers/a/b",
        "/v1/commit/producers/a",
        "/v1/cursors/a/b",
        "/v1/applications/a",
        "/v1/topics/a",
    ],
)
def test_head_asks_what_get_asks(target: str) -> None:
    looked, asked = routed(made("HEAD", target)), routed(made("GET", target))
    assert type(looked) is type(asked)
    assert getattr(looked, "command", None) == getattr(asked, "command", None)


@pytest.mark.parametrize(("status", "retryable"), [(400, b"false"), (408, b"true"), (413, b"false"), (503, b"true")])
def test_request_that_was_cut_for_the_network_may_be_sent_again(status: int, retryable: bytes) -> None:
    """A client that is told otherwise gives up for good, though a network that stalls comes back."""
    assert b'"retryable":' + retryable in refused_answer(RequestRefused(status, "too_slow", "it was cut"))


@pytest.mark.parametrize("name", ["stream_message_id", "idempotency_key"])
def test_message_id_is_taken_by_either_name_however_few_headers_there_are(name: str) -> None:
    action = routed(made("POST", "/v1/stream/a", b"x", content_type="text/plain", **{name: "m1"}))
    assert isinstance(action, Submit)
    assert isinstance(action.command, c.Columns)
    assert action.command.message_ids == (b"m1",)


def test_two_message_ids_must_agree() -> None:
    told = {"content_type": "text/plain", "stream_message_id": "m1"}
    assert status_of(routed(made("POST", "/v1/stream/a", b"x", **told, idempotency_key="m2"))) == 400
    assert status_of(routed(made("POST", "/v1/stream/a", b"x", **told, idempotency_key="m1"))) == 0


@pytest.mark.parametrize(
    ("header", "value", "tail"),
    [("if_match", '"0000000000000042"', 42), ("if_match", "42", 42), ("if_match", '"0"', 0)],
)
def test_if_match_is_the_tail_bare_or_quoted(header: str, value: str, tail: int) -> None:
    action = routed(made("POST", "/v1/stream/a", b"x", content_type="text/plain", **{header: value}))
    assert isinstance(action, Submit)
    assert isinstance(action.command, c.Columns)
    assert action.command.expected_tails == (tail,)


@pytest.mark.parametrize("value", ["*", '"*"', "", '"', '""', '"1', 'W/"1"', '"1", "2"', "-1", "1 ", "٣"])
def test_if_match_that_is_no_offset_is_400(value: str) -> None:
    assert status_of(routed(made("POST", "/v1/stream/a", b"x", content_type="text/plain", if_match=value))) == 400


@pytest.mark.parametrize("header", ["stream_message_id", "idempotency_key", "stream_seq"])
def test_empty_condition_is_400(header: str) -> None:
    assert status_of(routed(made("POST", "/v1/stream/a", b"x", content_type="text/plain", **{header: ""}))) == 400


@pytest.mark.parametrize("header", ["if_match", "stream_message_id", "idempotency_key", "stream_seq"])
def test_close_without_content_takes_no_condition(header: str) -> None:
    assert status_of(routed(made("POST", "/v1/stream/a", b"", stream_closed="true", **{header: "1"}))) == 400


def test_raw_batch_is_stored_as_it_came() -> None:
    action = routed(made("POST", "/v1/stream/a", BATCH, content_type=RAW))
    assert isinstance(action, Submit)
    assert isinstance(action.command, c.Append)
    assert (action.command.batch, action.command.count, action.command.content_type) == (BATCH, 2, "")


# --- total ---------------------------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(METHODS, TARGETS | st.binary(max_size=20), HEADERS, BODIES, st.booleans())
def test_every_request_becomes_an_action(
    method: bytes, target: bytes, headers: dict[bytes, bytes], body: bytes, strict: bool
) -> None:
    action = routed(Request(method, target, headers, body, keep_alive=True), Session(), strict=strict)
    if isinstance(action, Submit):
        command_refused(action.command)
    elif isinstance(action, Done):
        head, _, _ = action.answer.partition(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.1 4", b"HTTP/1.1 501 ", b"HTTP/1.1 204 ", b"HTTP/1.1 200 "))
        assert b"\n" not in head.replace(b"\r\n", b"")


def test_types_that_are_remembered_are_short() -> None:
    long = b"text/plain;" + b"x" * limits.MEDIA_TYPE_CACHED_CHARS_MAX
    assert append.content_type_of({b"content-type": long}) == (long.decode(), "text/plain")
    assert append.content_type_of({b"content-type": b"text/plain"}) == ("text/plain", "text/plain")
    assert b"text/plain" in append._TYPES
    assert long not in append._TYPES
