"""confluent-kafka (librdkafka) against a real server: topics, idempotent produce, groups, transactions."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.conformance.kafka_work import (
    PATIENCE_S,
    consumer,
    fresh,
    make_topic,
    producer,
    read_to_end,
    send,
    values,
)
from tests.servers.running import running


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running() as server:
        yield str(server.addresses["kafka"])


def test_topics_are_made_listed_grown_and_deleted(address: str) -> None:
    topic = make_topic(address, 3)
    admin = AdminClient({"bootstrap.servers": address})
    assert len(admin.list_topics(timeout=PATIENCE_S).topics[topic].partitions) == 3
    with pytest.raises(KafkaException) as error:
        admin.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE_S)
    assert error.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    assert topic not in admin.list_topics(timeout=PATIENCE_S).topics


def test_an_idempotent_producer_and_a_group_see_every_record_once(address: str) -> None:
    topic = make_topic(address, 3)
    client = producer(address, enable_idempotence=True)
    for partition in range(3):
        send(client, topic, [f"{partition}-{number}" for number in range(300)], partition)
    reader = consumer(address)
    reader.subscribe([topic])
    found = read_to_end(reader, 3)
    assert sorted(values(found)) == sorted(f"{p}-{n}" for p in range(3) for n in range(300))
    for partition in range(3):
        of_partition = [message for message in found if message.partition() == partition]
        assert [message.offset() for message in of_partition] == list(range(300))
        assert values(of_partition) == [f"{partition}-{number}" for number in range(300)]
    reader.commit(asynchronous=False)
    committed = reader.committed([TopicPartition(topic, partition) for partition in range(3)], PATIENCE_S)
    assert [each.offset for each in committed] == [300, 300, 300]
    reader.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_stored_and_served(address: str, codec: str) -> None:
    topic = make_topic(address)
    expected = [f"{codec} {'x' * 200} {number}" for number in range(200)]
    send(producer(address, compression_type=codec), topic, expected)
    reader = consumer(address)
    reader.assign([TopicPartition(topic, 0, 0)])
    assert values(read_to_end(reader, 1)) == expected
    reader.close()


def test_committed_readers_see_a_transaction_whole_and_never_an_aborted_one(address: str) -> None:
    topic = make_topic(address, 2)
    client = producer(address, transactional_id=fresh("txn"))
    client.init_transactions(PATIENCE_S)
    for round_ in range(3):
        client.begin_transaction()
        send(client, topic, [f"commit {round_}"], 0)
        send(client, topic, [f"commit {round_}"], 1)
        client.commit_transaction(PATIENCE_S)
        client.begin_transaction()
        send(client, topic, [f"abort {round_}"], 0)
        client.abort_transaction(PATIENCE_S)
    client.begin_transaction()
    send(client, topic, ["open"], 0)

    reader = consumer(address)
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    expected = [f"commit {round_}" for round_ in range(3)]
    assert sorted(values(read_to_end(reader, 2))) == sorted(expected * 2)
    low, high = reader.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)
    assert (low, high) == (0, 12)  # as a committed reader: six records, six markers; the open one holds the end back
    reader.close()

    dirty = consumer(address, isolation_level="read_uncommitted")
    dirty.assign([TopicPartition(topic, 0, 0)])
    found = values(read_to_end(dirty, 1))
    assert found == ["commit 0", "abort 0", "commit 1", "abort 1", "commit 2", "abort 2", "open"]
    dirty.close()
    client.abort_transaction(PATIENCE_S)


def test_offsets_of_a_transaction_count_once_it_commits(address: str) -> None:
    source, target = make_topic(address), make_topic(address)
    send(producer(address), source, [f"in {number}" for number in range(10)])
    reader = consumer(address)
    reader.subscribe([source])
    found = read_to_end(reader, 1)
    client = producer(address, transactional_id=fresh("txn"))
    client.init_transactions(PATIENCE_S)
    place = TopicPartition(source, 0, len(found))
    for ends in ("abort", "commit"):
        client.begin_transaction()
        send(client, target, [f"{ends} {value}" for value in values(found)])
        client.send_offsets_to_transaction([place], reader.consumer_group_metadata(), PATIENCE_S)
        if ends == "abort":
            client.abort_transaction(PATIENCE_S)
            assert reader.committed([place], PATIENCE_S)[0].offset < 0
        else:
            client.commit_transaction(PATIENCE_S)
            assert reader.committed([place], PATIENCE_S)[0].offset == 10
    reader.close()


def test_a_second_producer_of_one_transactional_id_fences_the_first(address: str) -> None:
    topic, txn_id = make_topic(address), fresh("txn")
    first = producer(address, transactional_id=txn_id)
    first.init_transactions(PATIENCE_S)
    first.begin_transaction()
    send(first, topic, ["zombie"])
    second = producer(address, transactional_id=txn_id)
    second.init_transactions(PATIENCE_S)
    with pytest.raises(KafkaException) as error:
        first.commit_transaction(PATIENCE_S)
    assert error.value.args[0].code() in (
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    )
    second.begin_transaction()
    send(second, topic, ["heir"])
    second.commit_transaction(PATIENCE_S)
    reader = consumer(address)
    reader.assign([TopicPartition(topic, 0, 0)])
    assert values(read_to_end(reader, 1)) == ["heir"]
    reader.close()


def test_an_aborted_transaction_in_several_stretches_hides_nothing_that_follows(address: str) -> None:
    """Others write between its records: the client must see one entry for it, or it drops what is committed later."""
    topic = make_topic(address)
    client = producer(address, transactional_id=fresh("txn"))
    other = producer(address)
    client.init_transactions(PATIENCE_S)
    expected = []
    for round_ in range(4):
        client.begin_transaction()
        for number in range(3):
            send(client, topic, [f"aborted {round_}.{number}"])
            send(other, topic, [f"other {round_}.{number}"])
            expected.append(f"other {round_}.{number}")
        client.abort_transaction(PATIENCE_S)
        client.begin_transaction()
        send(client, topic, [f"committed {round_}"])
        client.commit_transaction(PATIENCE_S)
        expected.append(f"committed {round_}")
    reader = consumer(address)
    reader.assign([TopicPartition(topic, 0, 0)])
    assert values(read_to_end(reader, 1)) == expected
    reader.close()
