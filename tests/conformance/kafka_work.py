"""What tests of Kafka clients share: a topic, records in, records out."""

import uuid
from typing import Any

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

PATIENCE_S = 30.0


def fresh(name: str) -> str:
    """A name that no other test uses."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


def make_topic(address: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
    topic = fresh("topic")
    admin = AdminClient({"bootstrap.servers": address})
    made = admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})])
    made[topic].result(PATIENCE_S)
    return topic


def producer(address: str, **settings: Any) -> Producer:
    """Settings have underscores for dots."""
    chosen = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": address, "linger.ms": 1} | chosen)


def consumer(address: str, **settings: Any) -> Consumer:
    chosen = {name.replace("_", "."): value for name, value in settings.items()}
    defaults = {
        "bootstrap.servers": address,
        "group.id": fresh("group"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "session.timeout.ms": 6_000,
    }
    return Consumer(defaults | chosen)


def send(client: Producer, topic: str, values: list[str], partition: int = 0) -> None:
    """Every one of them confirmed."""
    errors: list[Any] = []

    def done(error: Any, _message: Message) -> None:
        if error is not None:
            errors.append(error)

    for value in values:
        client.produce(topic, value, partition=partition, on_delivery=done)
    assert client.flush(PATIENCE_S) == 0
    assert not errors, errors[:3]


def read_to_end(client: Consumer, partitions: int) -> list[Message]:
    """All records up to the end of every partition; the consumer has subscribed or assigned."""
    found: list[Message] = []
    ended: set[tuple[str | None, int | None]] = set()
    while len(ended) < partitions:
        message = client.poll(PATIENCE_S)
        assert message is not None, f"nothing for {PATIENCE_S} s, after {len(found)} records"
        error = message.error()
        if error is None:
            found.append(message)
            ended.discard((message.topic(), message.partition()))
        else:
            assert error.code() == -191, error  # _PARTITION_EOF
            ended.add((message.topic(), message.partition()))
    return found


def values(messages: list[Message]) -> list[str]:
    return [(message.value() or b"").decode() for message in messages]
