"""aiokafka against a real server: it speaks the old encodings only."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import ProducerFenced

from tests.conformance.kafka_work import fresh
from tests.servers.running import running

# A fenced producer's background task keeps the same error that its caller saw.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running() as server:
        yield str(server.addresses["kafka"])


async def made(address: str, partitions: int) -> str:
    topic = fresh("topic")
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    await admin.create_topics([NewTopic(topic, partitions, 1)])
    await admin.close()
    return topic


async def read(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                found += records
    return found


def test_producers_and_a_group_see_every_record_once(address: str) -> None:
    async def run() -> None:
        topic = await made(address, 2)
        for codec in (None, "gzip", "snappy", "lz4", "zstd"):
            async with AIOKafkaProducer(
                bootstrap_servers=address, compression_type=codec, enable_idempotence=codec is None
            ) as producer:
                sent = [await producer.send(topic, b"%d" % number, partition=number % 2) for number in range(100)]
                await asyncio.gather(*sent)
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=fresh("group"),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with consumer:
            found = await read(consumer, 500)
            for partition in (0, 1):
                values = [record.value for record in found if record.partition == partition]
                assert values == [b"%d" % number for number in range(partition, 100, 2)] * 5
            await consumer.commit()
            assert await consumer.committed(TopicPartition(topic, 1)) == 250
            ends = await consumer.end_offsets([TopicPartition(topic, 0)])
            assert ends == {TopicPartition(topic, 0): 250}

    asyncio.run(run())


def test_transactions_commit_abort_carry_offsets_and_fence(address: str) -> None:
    async def run() -> None:
        topic, txn_id, group = await made(address, 1), fresh("txn"), fresh("group")
        place = TopicPartition(topic, 0)
        first = AIOKafkaProducer(bootstrap_servers=address, transactional_id=txn_id)
        await first.start()
        async with first.transaction():
            await first.send_and_wait(topic, b"commit", partition=0)
            await first.send_offsets_to_transaction({place: 77}, group)
        await first.begin_transaction()
        await first.send_and_wait(topic, b"abort", partition=0)
        await first.abort_transaction()
        second = AIOKafkaProducer(bootstrap_servers=address, transactional_id=txn_id)
        await second.start()
        await first.begin_transaction()
        with pytest.raises(ProducerFenced):
            await first.send_and_wait(topic, b"zombie", partition=0)
        async with second.transaction():
            await second.send_and_wait(topic, b"heir", partition=0)
        await second.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=address, group_id=group, isolation_level="read_committed")
        await consumer.start()
        consumer.assign([place])
        assert await consumer.committed(place) == 77
        consumer.seek(place, 0)
        assert [record.value for record in await read(consumer, 2)] == [b"commit", b"heir"]
        await consumer.stop()
        await first.stop()

    asyncio.run(run())
