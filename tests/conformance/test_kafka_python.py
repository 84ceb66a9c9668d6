"""kafka-python against a real server, with the newest encodings, and its own command line, unmodified."""

import importlib
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.kafka_work import fresh
from tests.servers.running import running

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    kafka: Any = importlib.import_module("kafka")
    kafka_admin: Any = importlib.import_module("kafka.admin")

# It opens files and sockets in threads of its own, and closes them when the interpreter ends.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running() as server:
        yield str(server.addresses["kafka"])


@pytest.fixture(scope="module")
def admin(address: str) -> Iterator[Any]:
    client = kafka_admin.KafkaAdminClient(bootstrap_servers=address)
    yield client
    client.close()


def made(admin: Any, partitions: int = 1) -> str:
    topic = fresh("topic")
    admin.create_topics([kafka_admin.NewTopic(topic, partitions, 1)])
    return topic


def read(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=500).values():
            found += records
    assert len(found) == count
    return found


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_an_idempotent_producer_and_a_group_see_every_record_once(address: str, admin: Any, codec: str | None) -> None:
    topic = made(admin, 2)
    producer = kafka.KafkaProducer(bootstrap_servers=address, enable_idempotence=True, compression_type=codec)
    sent = [producer.send(topic, b"%d" % n, partition=n % 2, headers=[("h", b"x")]) for n in range(400)]
    producer.flush()
    assert sorted(each.get(10).offset for each in sent) == sorted(list(range(200)) * 2)
    group = fresh("group")
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    found = read(consumer, 400)
    assert {record.headers[0] for record in found} == {("h", b"x")}
    consumer.commit()
    place = kafka.TopicPartition(topic, 1)
    assert consumer.committed(place) == 200
    assert consumer.end_offsets([place]) == {place: 200}
    times = consumer.offsets_for_times({place: found[0].timestamp - 60_000})
    assert times[place].offset == 0
    assert admin.describe_groups([group])[group]["group_state"] == "Stable"
    consumer.close()
    producer.close()


def test_transactions_and_the_tools_for_hanging_ones(address: str, admin: Any) -> None:
    topic, txn_id = made(admin), fresh("txn")
    producer = kafka.KafkaProducer(bootstrap_servers=address, transactional_id=txn_id)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"commit", partition=0)
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send(topic, b"abort", partition=0)
    producer.flush()
    place = kafka.TopicPartition(topic, 0)
    active = admin.describe_producers([place])[place].active_producers
    assert [each.current_transaction_start_offset for each in active] == [2]
    producer.abort_transaction()
    assert admin.find_hanging_transactions() == []
    listed = [each for rows in admin.list_transactions().values() for each in rows]
    assert {each.transactional_id: each.state.value for each in listed}[txn_id] == "CompleteAbort"
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=address, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    consumer.assign([place])
    assert [record.value for record in read(consumer, 1)] == [b"commit"]
    consumer.close()
    producer.close()


COMMANDS = [
    ("topics create -t {topic} --num-partitions 2 --replication-factor 1", "{topic}"),
    ("topics list", "{topic}"),
    ("topics describe -t {topic}", "{topic}"),
    ("partitions describe -t {topic}", "{topic}"),
    ("groups list", ""),
    ("configs describe -r topic -n {topic}", "retention.ms"),
    ("configs describe -r broker -n 1", "num.partitions"),
    ("cluster describe", "cluster_id"),
    ("cluster api-versions", "AddPartitionsToTxn"),
    ("transactions list", ""),
    ("transactions find-hanging", ""),
    ("topics delete -t {topic}", ""),
]


def test_its_command_line_runs_unmodified(address: str) -> None:
    topic = fresh("topic")
    for line, expected in COMMANDS:
        done = command(address, line.format(topic=topic))
        assert done.returncode == 0, (line, done.stdout[-500:], done.stderr[-500:])
        assert expected.format(topic=topic) in done.stdout, (line, done.stdout[-500:])


def test_what_is_not_offered_fails_with_the_clients_own_words(address: str) -> None:
    done = command(address, "cluster describe-quorum")
    assert "does not support" in done.stdout + done.stderr


def command(address: str, line: str) -> "subprocess.CompletedProcess[str]":
    arguments = [sys.executable, "-W", "ignore", "-m", "kafka.admin", "-b", address, *line.split()]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
