"""Bad input: a clear error or the end of the connection, and nobody else notices."""

import json
import socket

import pytest

from tests.servers.nats.client import RawClient
from tests.servers.running import running


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GARBAGE\r\n", "Unknown Protocol Operation"),
        (b"PUB a 99999999\r\n", "Maximum Payload Violation"),
        (b"PUB a..b 1\r\nx\r\n", "Invalid Publish Subject"),
        (b"a" * 10_000, "Maximum Control Line Exceeded"),
        (b"CONNECT [1,2]\r\n", "Invalid CONNECT"),
        (b"CONNECT " + b"[" * 5_000 + b"\r\n", "Invalid CONNECT"),
        (b'CONNECT {"no_responders":true}\r\n', "No responders requires headers support"),
        (b"\xff\xfe\r\n", "Unknown Protocol Operation"),
        (b"HPUB a 5 3\r\nabc\r\n", "Unknown Protocol Operation"),
    ],
)
def test_mistake_is_named_and_ends_the_connection(data: bytes, said: str) -> None:
    with running() as server, RawClient(server.addresses["nats"].port) as other:
        with RawClient(server.addresses["nats"].port) as client:
            client.raw(data)
            assert said in client.line()
            assert client.line() == ""
        other.stream("S")
        assert other.request("S.a").json["seq"] == 1


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"name":' * 1_000,
        b"\xff",
        b'{"name":"S","subjects":"x"}',
        b'{"max_msgs":1e400}',
        b"null",
        b"7",
    ],
)
def test_api_names_what_is_wrong_with_a_body(body: bytes) -> None:
    with running() as server, RawClient(server.addresses["nats"].port) as client:
        answer = client.request("$JS.API.STREAM.CREATE.S", body).json
        assert answer["error"]["err_code"] == 10025
        assert client.request("$JS.API.STREAM.CREATE.S", b"x" * 300_000).json["error"]["err_code"] == 10003


@pytest.mark.parametrize(
    "block",
    [b"NATS/1.0\r\nno colon\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"NATS/1.0\r\n\xff: x\r\n\r\n", b"NATS/1.0\r\n", b"x"],
)
def test_garbage_in_headers_is_refused(block: bytes) -> None:
    with running() as server, RawClient(server.addresses["nats"].port) as client:
        client.stream("S")
        client.raw(b"HPUB S.a %b.0 %d %d\r\n" % (client.inbox.encode(), len(block), len(block) + 1) + block + b"x\r\n")
        assert client.error(client.receive()) == (400, 10003)
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 0


def test_subscription_to_an_invalid_subject_is_an_error_and_no_end() -> None:
    with running() as server, RawClient(server.addresses["nats"].port) as client:
        client.send("SUB a..b 1", "PING")
        assert client.line() == "-ERR 'Invalid Subject'"
        assert client.line() == "PONG"


def test_wildcards_are_not_published_to() -> None:
    with running() as server, RawClient(server.addresses["nats"].port) as client:
        client.stream("S")
        client.publish("S.*", b"x")
        assert client.line() == "-ERR 'Invalid Publish Subject'"
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 0


def test_subscriber_that_never_reads_is_cut_off_and_others_go_on() -> None:
    with running(faces={"nats": {"slow_bytes": 1 << 18}}) as server:
        port = server.addresses["nats"].port
        deaf = socket.create_connection(("127.0.0.1", port))
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(b"CONNECT {}\r\nSUB noise 1\r\n")
        with RawClient(port) as client:
            client.api("INFO")
            face = server.face("nats")
            payload = b"x" * 100_000
            while server.on_loop(lambda: face.connection_count) > 1:
                client.publish("noise", payload)
                client.api("INFO")
            assert face.counts.cut_stalled == 1
            client.stream("S")
            assert client.request("S.a").json["seq"] == 1
        deaf.close()


def test_silent_client_is_asked_and_then_cut() -> None:
    with running(sweep_s=0.02, faces={"nats": {"ping_ms": 100}}) as server:
        said = b""
        with socket.create_connection(("127.0.0.1", server.addresses["nats"].port), timeout=20) as silent:
            while piece := silent.recv(4096):
                said += piece
        assert said.count(b"PING\r\n") == 2
        assert said.endswith(b"-ERR 'Stale Connection'\r\n")


def test_hundred_thousand_subscriptions_are_matched_quickly() -> None:
    with running() as server, RawClient(server.addresses["nats"].port) as client:
        for first in range(0, 100_000, 1_000):
            client.raw(b"".join(b"SUB s.%d.* %d\r\n" % (number, number) for number in range(first, first + 1_000)))
        client.publish("s.77777.x", b"here")
        received = client.receive()
        assert (received.sid, received.payload) == ("77777", b"here")


def test_info_tells_clients_what_they_need() -> None:
    with running() as server, RawClient(server.addresses["nats"].port) as client:
        assert client.info["version"].startswith("2.14.")
        assert (client.info["api_lvl"], client.info["jetstream"], client.info["headers"]) == (3, True, True)
        assert json.dumps(client.info)
        assert client.info["max_payload"] == 1 << 20
