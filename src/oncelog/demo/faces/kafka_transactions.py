"""Kafka transactions, by confluent-kafka: a few orders with their payments and events become visible at one instant.

How far it has come is a consumer offset, committed in the same transaction: group `demo-<producer>`, offset = orders
that are done. So a producer that comes back after a kill asks for that offset and goes on there, whatever became of the
transaction that was on its way. Now and then it aborts a transaction with orders of no plan: the audit would find every
one of them that somebody could read. At the end a read-committed consumer reads everything back (`kafka_reader`).
"""

import random
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from oncelog.demo.faces.face import Context
from oncelog.demo.faces.kafka_reader import ABORTED, read_back
from oncelog.demo.orders import ORDERS, TOPICS, Order

if TYPE_CHECKING:
    pass

ORDERS_PER_TXN: Final = 8
ABORTED_SHARE: Final = 0.15
"""Transactions that are written and then aborted."""

PATIENCE_S: Final = 60.0
"""For one call: the server may be down for a second or two, and a busy machine takes longer."""

TXN_TIMEOUT_MS: Final = 60_000

QUIET: Final = {"log_level": 0, "reconnect.backoff.max.ms": 500, "metadata.recovery.strategy": "none"}
"""The last one keeps librdkafka 2.16 from a bug of its own: with one broker it starts over (re-bootstrap) whenever a
connection ends, forgets an offset commit that is on its way, and `send_offsets_to_transaction` never returns."""


class _Again(Exception):
    """The transaction came to nothing, or nobody knows: begin anew from the saved offset."""


class KafkaTransactions:
    """See the module."""

    name = "kafka"
    label = "Kafka transactions"
    producers = 2
    orders = 1_500
    tells_retries = False

    def run(self, context: Context) -> None:
        """Life after life of the client: a fatal error ends one, and the next goes on from the saved offset."""
        chance = random.Random(f"{context.seed}/{context.producer}/abort")
        while True:
            client = _Client(context)
            try:
                done = client.begin()
                for topic in TOPICS:
                    context.confirmed_before(topic, done)
                while done < context.orders:
                    if chance.random() < ABORTED_SHARE:
                        client.write_and_abort(done)
                    orders = [context.order(n) for n in range(done, min(done + ORDERS_PER_TXN, context.orders))]
                    client.write(orders, done + len(orders))
                    done += len(orders)
                break
            except _Again as why:
                sys.stderr.write(f"{context.producer}: begins anew: {why}\n")
            finally:
                client.close()
        read_back(context, QUIET | {"bootstrap.servers": context.addresses["kafka"]})


class _Client:
    """One producer and the group that holds its progress."""

    def __init__(self, context: Context) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        self._context = context
        quiet = QUIET | {"bootstrap.servers": context.addresses["kafka"]}
        self._producer: Producer = Producer(
            quiet
            | {"transactional.id": f"demo-{context.producer}", "transaction.timeout.ms": TXN_TIMEOUT_MS, "linger.ms": 2}
        )
        self._progress: Consumer = Consumer(quiet | {"group.id": f"demo-{context.producer}"})
        self._place = TopicPartition(ORDERS, context.partition)
        self._offsets: dict[tuple[str, str], int] = {}

    def begin(self) -> int:
        """Fence the life before, and ask how far it had come."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._producer.init_transactions(PATIENCE_S)
                saved: int = self._progress.committed([self._place], PATIENCE_S)[0].offset
            except KafkaException as error:
                if time.monotonic() > deadline:
                    raise _Again(str(error)) from error
            else:
                return max(0, saved)

    def write(self, orders: list[Order], done: int) -> None:
        """One transaction: the orders, and that so many are done by then."""
        context = self._context
        self._offsets.clear()
        self._begin_transaction()
        for order in orders:
            context.sending(order, TOPICS, commit=order.order_id)
            for topic in TOPICS:
                self._produce(topic, order.order_id, order.value(topic))
        from confluent_kafka import TopicPartition

        place = TopicPartition(ORDERS, context.partition, done)
        group = self._progress.consumer_group_metadata()
        self._insist(lambda: self._producer.send_offsets_to_transaction([place], group, PATIENCE_S))
        self._insist(lambda: self._producer.commit_transaction(PATIENCE_S))
        for order in orders:
            offsets = {topic: self._offsets[topic, order.order_id] for topic in TOPICS}
            context.confirmed(order, offsets, duplicate=False, attempts=1)

    def write_and_abort(self, number: int) -> None:
        """Orders that nobody may ever read."""
        self._begin_transaction()
        for topic in TOPICS:
            order_id = f"{ABORTED}{self._context.producer}-{number}"
            self._produce(topic, order_id, b'{"order_id":"%s"}' % order_id.encode())
        self._insist(lambda: self._producer.flush(PATIENCE_S))
        self._insist(lambda: self._producer.abort_transaction(PATIENCE_S))

    def close(self) -> None:
        """Nothing of it is left; what is on its way is given up."""
        self._producer.purge()
        self._progress.close()

    def _begin_transaction(self) -> None:
        self._insist(self._producer.begin_transaction)

    def _produce(self, topic: str, order_id: str, value: bytes) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self._offsets[topic, order_id] = message.offset()

        self._insist(
            lambda: self._producer.produce(topic, value, partition=self._context.partition, on_delivery=delivered)
        )

    def _insist(self, call: Any) -> None:
        """Until it has succeeded. An error that says that this transaction, or this client, is over begins anew."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                call()
            except KafkaException as error:
                cause = error.args[0]
                if cause.retriable() and time.monotonic() < deadline:
                    continue
                if cause.txn_requires_abort():
                    self._abort()
                raise _Again(str(cause)) from error
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _abort(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self._producer.abort_transaction(PATIENCE_S)
        except KafkaException as error:
            raise _Again(str(error)) from error
