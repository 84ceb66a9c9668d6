"""A read-committed Kafka consumer that reads back what a transactional producer wrote: each record once, in its order,
with its bytes, and nothing that was aborted."""

import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from oncelog.demo.faces.face import Context, Contradiction
from oncelog.demo.orders import TOPICS

if TYPE_CHECKING:
    pass

GIVE_UP_S: Final = 120.0
"""Without reading everything: the server is down for a second or two at a time, and the network is bad."""

ABORTED: Final = "aborted-"
"""Orders whose names begin so were written in transactions that were aborted."""


def read_back(context: Context, settings: dict[str, Any]) -> None:
    """Until every order of this producer was read in every topic. Raises Contradiction."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer: Consumer = Consumer(
        settings
        | {
            "group.id": f"demo-{context.producer}-reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, context.partition, 0) for topic in TOPICS])
    numbers = dict.fromkeys(TOPICS, 0)
    deadline = time.monotonic() + GIVE_UP_S
    try:
        while min(numbers.values()) < context.orders:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                _check(context, numbers, message)
            elif time.monotonic() > deadline:
                raise Contradiction(f"a read-committed consumer read {numbers} of {context.orders} orders")
        with contextlib.suppress(KafkaException):  # its place is nobody's promise here
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def _check(context: Context, numbers: dict[str, int], message: Any) -> None:
    """The next record of this producer, in its order; those of others are passed over."""
    topic, value = message.topic(), message.value()
    order_id = msgspec.json.decode(value)["order_id"]
    if order_id.startswith(ABORTED):
        raise Contradiction(
            f"{topic} at {message.offset()}: a committed reader was given {order_id}, which was aborted"
        )
    producer, _, number = order_id.rpartition("-")
    if producer != context.producer:
        return
    if int(number) != numbers[topic]:
        raise Contradiction(f"{topic} at {message.offset()}: {order_id} came, order {numbers[topic]} was next")
    if value != context.order(int(number)).value(topic):
        raise Contradiction(f"{topic} at {message.offset()}: {order_id} has other bytes than were sent")
    numbers[topic] += 1
