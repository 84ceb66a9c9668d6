"""Long-polls and server-sent events over real sockets: woken by what comes, ended by what ends, gone without trace."""

import base64
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from oncelog.limits import KIB
from tests.servers.running import Running, running
from tests.servers.talking import Client, Headers, request

CLOSE: Headers = {"Stream-Closed": "true"}
TYPE: Headers = {"Content-Type": "text/plain"}


def poll(path: str, offset: str = "now", more: str = "") -> bytes:
    return request("GET", f"{path}?offset={offset}&live=long-poll{more}")


class Event(NamedTuple):
    name: str
    data: bytes

    @property
    def control(self) -> dict[str, Any]:
        assert self.name == "control"
        decoded: dict[str, Any] = msgspec.json.decode(self.data)
        return decoded


def begin(client: Client, path: str, offset: str = "now") -> dict[str, str]:
    """Asks for events; the head of the answer."""
    client.send(request("GET", f"{path}?offset={offset}&live=sse"))
    head = client.head()
    assert head.status == 200, head
    assert head.headers["content-type"] == "text/event-stream"
    return head.headers


def events(client: Client) -> list[Event]:
    """Those of the next piece; none at the end."""
    found = []
    for text in client.chunk().split(b"\n\n")[:-1]:
        name, *lines = text.split(b"\n")
        data = b"\n".join(line.removeprefix(b"data:").removeprefix(b" ") for line in lines)
        found.append(Event(name.decode().removeprefix("event: "), data))
    return found


def waiting(server: Running, count: int = 1) -> None:
    """Until so many readers wait."""
    server.until(lambda: sum(map(len, server.engine.follow._waiters.values())) == count)


# --- long-poll -----------------------------------------------------------------------------------------------------


def test_long_poll_answers_at_once_if_there_is_something(shared: Running, text: str) -> None:
    shared.ask("POST", text, b"a")
    with shared.client() as client:
        client.send(poll(text, "0"))
        answer = client.answer()
    assert (answer.status, answer.body, answer.next_offset) == (200, b"a", 1)
    assert answer.headers["stream-up-to-date"] == "true"
    assert answer.headers["stream-cursor"].isdigit()


def test_long_poll_is_woken_by_an_append(shared: Running, text: str) -> None:
    with shared.client() as client:
        client.send(poll(text))
        waiting(shared)
        assert shared.ask("POST", text, b"new").status == 204
        answer = client.answer()
        assert (answer.status, answer.body, answer.next_offset) == (200, b"new", 1)
    waiting(shared, 0)


def test_long_poll_in_vain_is_204_with_where_to_go_on(shared: Running, text: str) -> None:
    shared.ask("POST", text, b"a")
    with shared.client() as client:
        client.send(poll(text, "1"))
        answer = client.answer()
    assert (answer.status, answer.next_offset) == (204, 1)
    assert answer.headers["stream-up-to-date"] == "true"
    assert "stream-closed" not in answer.headers
    waiting(shared, 0)


def test_cursor_goes_beyond_the_one_that_was_sent(shared: Running, text: str) -> None:
    shared.ask("POST", text, b"a")
    with shared.client() as client:
        client.send(poll(text, "0"))
        cursor = int(client.answer().headers["stream-cursor"])
        client.send(poll(text, "0", f"&cursor={cursor}"))
        assert int(client.answer().headers["stream-cursor"]) > cursor


@pytest.mark.parametrize("body", [b"", b"last"])
def test_long_poll_is_woken_by_a_close(shared: Running, text: str, body: bytes) -> None:
    with shared.client() as client:
        client.send(poll(text))
        waiting(shared)
        shared.ask("POST", text, body, CLOSE)
        answer = client.answer()
        assert (answer.status, answer.body) == ((200, b"last") if body else (204, b""))
        assert answer.headers["stream-closed"] == "true"
        assert "stream-cursor" not in answer.headers


def test_long_poll_at_the_end_of_a_closed_stream_does_not_wait(shared: Running, text: str) -> None:
    shared.ask("POST", text, headers=CLOSE)
    with shared.client() as client:
        client.send(poll(text))
        answer = client.answer()
    assert (answer.status, answer.headers["stream-closed"], answer.headers["stream-up-to-date"]) == (
        204,
        "true",
        "true",
    )


def test_long_poll_of_a_deleted_stream_is_404(shared: Running, text: str) -> None:
    with shared.client() as client:
        client.send(poll(text))
        waiting(shared)
        shared.ask("DELETE", text)
        assert client.answer().code == "topic_missing"
    waiting(shared, 0)


def test_long_poll_whose_records_were_trimmed_at_once_is_told_so(shared: Running, text: str) -> None:
    trim = request("POST", text.replace("/stream/", "/topics/") + "/trim", b'{"partition": 0, "floor": 2}')
    with shared.client() as client, shared.client() as writer:
        client.send(poll(text, "0"))
        waiting(shared)
        # In one piece, so that most times they are one group: the reader then finds nothing but a floor.
        writer.send(request("POST", text, b"a") + request("POST", text, b"b") + trim)
        answer = client.answer()
        if answer.status == 200:  # the group of the first append left without the trim
            client.send(poll(text, "0"))
            answer = client.answer()
        assert (answer.status, answer.code) == (410, "offset_gone")
        assert int(answer.headers["stream-floor"]) == 2
        assert [writer.answer().status for _ in range(3)] == [204, 204, 200]
    waiting(shared, 0)


def test_hole_wakes_nobody(topic: str) -> None:
    path = f"/v1/stream/{topic}"
    with running(long_poll_ms=300) as server, server.client() as client:
        server.ask("PUT", path, headers=TYPE)
        server.ask("POST", path, b"a")
        server.ask("POST", f"/v1/topics/{topic}/delete-records", b'{"ranges": [[0, 1]]}')
        client.send(poll(path, "0"))
        answer = client.answer()
        assert (answer.status, answer.next_offset) == (204, 1)


@pytest.mark.parametrize("leave", [Client.close, Client.reset])
@pytest.mark.parametrize("live", ["long-poll", "sse"])
@pytest.mark.parametrize("count", [1, 3])
def test_reader_that_goes_leaves_nothing(topic: str, live: str, leave: Callable[[Client], None], count: int) -> None:
    path = f"/v1/stream/{topic}"
    with running() as server:
        server.ask("PUT", path, headers=TYPE)
        client = Client(server.port)
        client.send(request("GET", f"{path}?offset=now&live={live}") * count)
        waiting(server)
        leave(client)
        waiting(server, 0)
        server.until(lambda: not server.server.connections)


def test_many_readers_are_woken_by_one_append(shared: Running, text: str) -> None:
    clients = [Client(shared.port) for _ in range(20)]
    try:
        for client in clients:
            client.send(poll(text))
        waiting(shared, 20)
        shared.ask("POST", text, b"x")
        for client in clients:
            assert client.answer().body == b"x"
    finally:
        for client in clients:
            client.close()


def test_offset_outside_is_told_and_not_waited_for(shared: Running, text: str) -> None:
    for live in ("long-poll", "sse"):
        answer = shared.ask("GET", f"{text}?offset=5&live={live}")
        assert (answer.status, answer.code) == (400, "offset_ahead")
        assert shared.ask("GET", f"/v1/stream/nobody?offset=now&live={live}").status == 404


# --- SSE -----------------------------------------------------------------------------------------------------------


def test_events_catch_up_and_go_on(shared: Running, text: str) -> None:
    shared.ask("POST", text, b"old")
    with shared.client() as client:
        headers = begin(client, text, "-1")
        assert headers["cache-control"] == "no-cache"
        assert "content-length" not in headers
        data, control = events(client)
        assert (data.data, control.control["streamNextOffset"]) == (b"old", f"{1:016d}")
        assert control.control["upToDate"] is True
        for number in range(2, 5):
            shared.ask("POST", text, b"new %d" % number)
            data, control = events(client)
            assert (data.name, data.data) == ("data", b"new %d" % number)
            assert control.control["streamNextOffset"] == f"{number:016d}"


def test_events_from_now_begin_with_where_that_is(shared: Running, text: str) -> None:
    shared.ask("POST", text, b"old")
    with shared.client() as client:
        begin(client, text)
        (control,) = events(client)
        assert control.control["streamNextOffset"] == f"{1:016d}"
        assert control.control["upToDate"] is True
        assert control.control["streamCursor"].isdigit()


@pytest.mark.parametrize("body", [b"", b"last"])
def test_events_end_with_the_stream(shared: Running, text: str, body: bytes) -> None:
    with shared.client() as client:
        begin(client, text)
        events(client)
        waiting(shared)
        shared.ask("POST", text, body, CLOSE)
        *data, control = events(client)
        assert [event.data for event in data] == ([body] if body else [])
        assert control.control["streamClosed"] is True
        assert "streamCursor" not in control.control
        assert events(client) == []
        assert client.ask("GET", "/health").status == 200, "the connection can be used again"
    waiting(shared, 0)


@pytest.mark.parametrize("header", ["", "Connection: keep-alive\r\n"])
def test_events_for_http_1_0_are_bare_and_end_with_the_connection(shared: Running, text: str, header: str) -> None:
    """It knows no chunks, so nothing but the end of the connection can say that there is no more."""
    shared.ask("POST", text, b"old")
    with shared.client() as client:
        client.send(f"GET {text}?offset=-1&live=sse HTTP/1.0\r\n{header}\r\n".encode())
        head = client.head()
        assert (head.status, head.headers["connection"]) == (200, "close")
        assert "transfer-encoding" not in head.headers
        waiting(shared)
        shared.ask("POST", text, b"new", CLOSE)
        sent = client.drain().split(b"\n\n")
    assert sent[0::2] == [b"event: data\ndata:old", b"event: data\ndata:new", b""]
    assert [piece.startswith(b"event: control\ndata:{") for piece in sent[1::2]] == [True, True]
    assert b'"streamClosed":true' in sent[3]


def test_events_of_a_deleted_stream_end(shared: Running, text: str) -> None:
    with shared.client() as client:
        begin(client, text)
        events(client)
        waiting(shared)
        shared.ask("DELETE", text)
        assert events(client) == []
        client.send(request("GET", f"{text}?offset=now&live=sse"))
        assert client.answer().status == 404


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_reader_of_a_stream_never_gets_records_of_the_next_one_of_that_name(
    shared: Running, text: str, live: str
) -> None:
    """Deleted, made again and filled within one group: the name means another stream when the reader wakes."""
    for _ in range(2):
        shared.ask("POST", text, b"old")
    with shared.client() as reader, shared.client() as writer:
        reader.send(request("GET", f"{text}?offset=2&live={live}"))
        waiting(shared)
        again = request("DELETE", text) + request("PUT", text, headers=TYPE)
        with shared.slow_disk():
            # The first write keeps the disk busy, so that the rest becomes one group.
            writer.send(request("PUT", f"{text}-other") + again + request("POST", text, b"new") * 4)
            shared.until(lambda: any(len(connection.slots) == 7 for connection in shared.server.connections))
        for _ in range(7):
            assert writer.answer().status in (201, 204)
        if live == "sse":
            assert reader.head().status == 200
            assert [event.name for event in events(reader)] == ["control"]
            assert events(reader) == []
        else:
            assert reader.answer().code == "topic_missing"


def test_events_end_when_their_time_is_up(topic: str) -> None:
    path = f"/v1/stream/{topic}"
    with running(sse_ms=1000) as server, server.client() as client:
        server.ask("PUT", path, headers=TYPE)
        begin(client, path)
        events(client)
        assert events(client) == []
        assert client.ask("GET", "/health").status == 200
        waiting(server, 0)


def test_events_of_a_long_stream_are_everything_once_in_order(topic: str) -> None:
    path = f"/v1/stream/{topic}"
    lines = [b"%06d" % number * 50 for number in range(400)]
    with running(read_bytes_max=4 * KIB) as server, server.client() as client, server.client() as writer:
        writer.ask("PUT", path, headers=TYPE)
        for line in lines[:300]:  # one by one: records that come together share a batch, which is never divided
            assert writer.ask("POST", path, line, TYPE).status == 204
        begin(client, path, "-1")
        writer.send(b"".join(request("POST", path, line) for line in lines[300:]))
        found, offsets = b"", [""]
        while len(found) < 300 * 400:
            data, control = events(client)
            found += data.data
            offsets.append(control.control["streamNextOffset"])
            assert offsets[-1] > offsets[-2]
        assert found == b"".join(lines)
        assert len(offsets) > 20
        for _ in range(100):
            assert writer.answer().status == 204


def test_events_of_bytes_are_base64_and_of_json_arrays(shared: Running, topic: str) -> None:
    shared.ask("PUT", f"/v1/stream/{topic}-bytes", b"\x00\xff", {"Content-Type": "image/png"})
    shared.ask("PUT", f"/v1/stream/{topic}-json", b'[{"a":\n1}, 2]', {"Content-Type": "application/json"})
    with shared.client() as client:
        assert begin(client, f"/v1/stream/{topic}-bytes", "-1")["stream-sse-data-encoding"] == "base64"
        assert base64.b64decode(events(client)[0].data) == b"\x00\xff"
    with shared.client() as client:
        assert "stream-sse-data-encoding" not in begin(client, f"/v1/stream/{topic}-json", "-1")
        assert msgspec.json.decode(events(client)[0].data) == [{"a": 1}, 2]


@pytest.mark.parametrize("value", [b"a\nb", b"a\rb", b"a\r\nb", b" a\n b", b"event: control\n\ndata:{}\n\n"])
def test_text_arrives_line_by_line(shared: Running, text: str, value: bytes) -> None:
    with shared.client() as client:
        begin(client, text)
        events(client)
        shared.ask("POST", text, value)
        data, _ = events(client)
        assert data.data == value.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
