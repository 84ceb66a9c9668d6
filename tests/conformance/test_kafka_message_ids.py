"""Records that name themselves: a retry through HTTP or Kafka is stored once."""

from collections.abc import Iterator

import pytest

from oncelog.client import Client
from oncelog.core import batch as codec
from tests.conformance.kafka_wire import Wire, values_of
from tests.conformance.kafka_work import fresh
from tests.servers.running import Running, running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


@pytest.fixture
def wire(server: Running) -> Iterator[Wire]:
    with Wire(str(server.addresses["kafka"])) as client:
        yield client


def named(*records: tuple[str, bytes], pid: int = -1, sequence: int = -1) -> bytes:
    rows: list[codec.Record] = [
        (number, 1_000, None, value, ((("oncelog.message-id", name.encode()),) if name else ()))
        for number, (name, value) in enumerate(records)
    ]
    return codec.encode(rows, producer_id=pid, producer_epoch=0 if pid >= 0 else -1, base_sequence=sequence)


def made(wire: Wire) -> str:
    topic = fresh("topic")
    row = {
        "name": topic,
        "num_partitions": 1,
        "replication_factor": 1,
        "configs": [{"name": "message_id_header", "value": "true"}],
    }
    assert wire.ask("CreateTopics", 4, {"topics": [row], "timeout_ms": 1})["topics"][0]["error_code"] == 0
    return topic


def test_a_batch_sent_again_by_another_producer_gets_its_first_place(wire: Wire) -> None:
    topic = made(wire)
    wire.produce(topic, named(("x", b"first")))
    batch = (("a", b"1"), ("b", b"2"), ("c", b"3"))
    assert wire.produce(topic, named(*batch))["base_offset"] == 1
    again = wire.produce(topic, named(*batch, pid=99, sequence=0))
    assert (again["error_code"], again["base_offset"]) == (0, 1)
    assert wire.latest(topic)["offset"] == 4
    assert wire.produce(topic, named(("d", b"4"), pid=99, sequence=3))["base_offset"] == 4


def test_a_retry_through_http_is_stored_once(server: Running, wire: Wire) -> None:
    topic = made(wire)
    wire.produce(topic, named(("order-7", b'{"n":7}')))
    with Client(f"http://127.0.0.1:{server.port}") as client:
        answer = client.append(topic, b'{"n":7}', message_id="order-7", content_type="application/octet-stream")
        assert answer.duplicate
        client.append(topic, b"8", message_id="order-8", content_type="application/octet-stream")
    assert wire.produce(topic, named(("order-8", b"8")))["base_offset"] == 1
    assert wire.latest(topic)["offset"] == 2


def test_of_a_batch_that_is_known_in_part_only_the_rest_is_stored(wire: Wire) -> None:
    topic = made(wire)
    wire.produce(topic, named(("a", b"1")))
    answer = wire.produce(topic, named(("a", b"1"), ("b", b"2")))
    assert (answer["error_code"], answer["base_offset"]) == (0, -1)
    assert values_of(wire.fetch(topic)["records"]) == [b"1", b"2"]


def test_a_known_id_with_other_content_refuses_the_batch_and_names_the_record(wire: Wire) -> None:
    topic = made(wire)
    wire.produce(topic, named(("a", b"1")))
    answer = wire.produce(topic, named(("b", b"2"), ("a", b"other")))
    assert answer["error_code"] == 87
    assert [row["batch_index"] for row in answer["record_errors"]] == [1]
    assert values_of(wire.fetch(topic)["records"]) == [b"1"]


def test_a_record_without_a_name_among_named_ones_is_refused(wire: Wire) -> None:
    topic = made(wire)
    answer = wire.produce(topic, named(("a", b"1"), ("", b"2")))
    assert answer["error_code"] == 87
    assert [row["batch_index"] for row in answer["record_errors"]] == [1]
    assert wire.produce(topic, named(("", b"2")))["error_code"] == 0, "a batch without any names is one like any other"
