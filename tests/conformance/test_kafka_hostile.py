"""What a broken or hostile client may do: its connection is closed, and nobody else notices."""

import random
import socket
from collections.abc import Iterator

import pytest

from oncelog import limits
from tests.conformance.kafka_wire import Closed, Wire, batch_of, fetch_message, values_of
from tests.conformance.kafka_work import fresh
from tests.servers.running import Running, running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(faces={"kafka": {"write_stall_ms": 300}}, sweep_s=0.05) as server:
        yield server


@pytest.fixture
def good(server: Running) -> Iterator[Wire]:
    """Somebody else, who must not notice; it is asked before and after."""
    with Wire(str(server.addresses["kafka"])) as client:
        topic = fresh("topic")
        client.create(topic)
        yield client
        assert client.produce(topic, batch_of(b"still"))["error_code"] == 0
        assert values_of(client.fetch(topic)["records"]) == [b"still"]


def is_closed(sock: socket.socket) -> bool:
    try:
        while data := sock.recv(1 << 16):
            assert data
    except ConnectionError:
        pass
    return True


def connected(server: Running) -> socket.socket:
    return socket.create_connection(server.addresses["kafka"], timeout=30)


@pytest.mark.parametrize("length", [0, 7, 2**31 - 1, 2**32 - 1, limits.KAFKA_FRAME_BYTES_MAX + 1, 0x47455420])
def test_a_length_that_no_request_has_closes_the_connection_at_once(server: Running, good: Wire, length: int) -> None:
    with connected(server) as sock:
        sock.sendall(length.to_bytes(4, "big"))
        assert is_closed(sock)


def test_random_bytes_close_the_connection(server: Running, good: Wire) -> None:
    rng = random.Random(7)
    for _ in range(200):
        with connected(server) as sock:
            frame = rng.randbytes(rng.randint(8, 200))
            if rng.random() < 0.7:  # a head that leads somewhere
                frame = rng.choice([0, 1, 2, 3, 8, 11, 19, 22, 24, 28]).to_bytes(2, "big") + b"\x00" + frame[3:]
            sock.sendall(len(frame).to_bytes(4, "big") + frame)
            sock.shutdown(socket.SHUT_WR)
            assert is_closed(sock)
    assert server.face("kafka").counts.malformed > 50


def test_a_request_that_ends_in_its_middle_is_dropped(server: Running, good: Wire) -> None:
    with connected(server) as sock:
        sock.sendall((1 << 20).to_bytes(4, "big") + bytes(1000))
        sock.shutdown(socket.SHUT_WR)
        assert is_closed(sock)


def test_arrays_that_claim_to_be_huge_are_refused(server: Running, good: Wire) -> None:
    head = (3).to_bytes(2, "big") + (1).to_bytes(2, "big") + bytes(4) + b"\xff\xff"
    with connected(server) as sock:
        frame = head + b"\x7f\xff\xff\xff" + bytes(100)
        sock.sendall(len(frame).to_bytes(4, "big") + frame)
        assert is_closed(sock)
    with connected(server) as sock:  # as many as there are bytes, and more than one request may hold
        count = limits.KAFKA_ELEMENTS_MAX + 1
        frame = head + count.to_bytes(4, "big") + bytes(2 * count)
        sock.sendall(len(frame).to_bytes(4, "big") + frame)
        assert is_closed(sock)


def test_versions_that_are_not_offered(server: Running, good: Wire) -> None:
    with Wire(str(server.addresses["kafka"])) as wire:
        wire.raw((18).to_bytes(2, "big") + (99).to_bytes(2, "big") + (5).to_bytes(4, "big") + b"anything")
        answer = wire.frame()
        assert answer[:6] == (5).to_bytes(4, "big") + (35).to_bytes(2, "big")
        assert answer[6:] == (1).to_bytes(4, "big") + b"\x00\x12\x00\x00\x00\x04", "the range of ApiVersions alone"
    for key, version in ((0, 2), (1, 13), (4242, 0)):
        with Wire(str(server.addresses["kafka"])) as wire:
            wire.raw(key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff" + bytes(20))
            with pytest.raises(Closed):
                wire.frame()


def test_a_client_that_never_reads_is_cut_and_holds_little(server: Running, good: Wire) -> None:
    topic = fresh("topic")
    with Wire(str(server.addresses["kafka"])) as wire:
        wire.create(topic)
        for _ in range(8):
            wire.produce(topic, batch_of(bytes(2 << 20)))
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(server.addresses["kafka"])
    sock.settimeout(30)
    with sock:
        before = server.face("kafka").counts.cut_stalled
        silent = Wire.__new__(Wire)
        silent.socket, silent._correlation, silent._sent = sock, 0, {}
        for _ in range(50):
            silent.send("Fetch", 11, fetch_message(topic, 0, bytes_max=16 << 20))
        server.until(lambda: server.face("kafka").counts.cut_stalled > before)


def test_answers_leave_in_the_order_of_the_requests(server: Running) -> None:
    topic = fresh("topic")
    with Wire(str(server.addresses["kafka"])) as wire:
        wire.create(topic)
        wire.produce(topic, batch_of(b"x"))
        sent = [
            wire.send("Fetch", 11, fetch_message(topic, 1, wait_ms=200)),
            wire.send("ApiVersions", 2, {}),
            wire.send("Fetch", 11, fetch_message(topic, 0)),
            wire.send("Metadata", 9, {"topics": None}),
        ]
        assert [wire.receive()[0] for _ in sent] == sent


def test_acks_0_has_no_answer_and_an_error_closes_the_connection(server: Running) -> None:
    from tests.conformance.kafka_wire import produce_message

    topic = fresh("topic")
    with Wire(str(server.addresses["kafka"])) as wire:
        wire.create(topic)
        wire.send("Produce", 9, produce_message(topic, batch_of(b"x"), acks=0))
        asked = wire.send("ApiVersions", 2, {})
        assert wire.receive()[0] == asked
        assert wire.latest(topic)["offset"] == 1
        wire.send("Produce", 9, produce_message("nowhere", batch_of(b"x"), acks=0))
        with pytest.raises(Closed):
            wire.frame()
