"""Idempotent producers over HTTP: every record has its producer's next number, so the server knows what it has.

Two ways to the same end: the Python client, which keeps several requests in flight and retries by itself; and bare
headers, one request at a time, as any program can send them. A producer that comes back after a kill asks the server,
or its own ledger, for the last number, and goes on behind it under the same name.
"""

import threading
from functools import partial
from typing import Final

from oncelog.client import BatchResult, Client, ClientError, PendingBatch
from oncelog.demo.faces.face import Context
from oncelog.demo.faces.insistent import Insistent
from oncelog.demo.orders import TOPICS

WINDOW_RECORDS: Final = 60
"""Records that the client holds: enough that all topics have their five requests in flight. More would only wait, and
the ledger, which notes them when they are handed over, would call that slow."""


class ClientProducers:
    """`oncelog.client.IdempotentProducer`, one for each topic."""

    name = "client"
    label = "IdempotentProducer"
    producers = 2
    orders = 3_000
    tells_retries = False

    def run(self, context: Context) -> None:
        """As fast as answers come. With one record in a batch the number of the batch is that of the order."""
        window = threading.Semaphore(WINDOW_RECORDS)

        def confirm(topic: str, result: BatchResult) -> None:
            # In the client's thread, as the next one.
            order = context.order(result.seq)
            context.confirmed(order, {topic: result.first_offset}, duplicate=result.duplicate, attempts=1)
            window.release()

        def stopped(_error: ClientError, _batch: PendingBatch) -> None:
            window.release()  # the next append raises what was wrong

        with Client(context.url) as client:
            producers = {
                topic: client.producer(
                    topic,
                    producer_id=context.producer,
                    session=context.producer,
                    max_batch_records=1,
                    on_batch_ack=partial(confirm, topic),
                    on_error=stopped,
                )
                for topic in TOPICS
            }
            # What the server had before the kill, whether or not its answer arrived.
            known = {topic: producer.resume(context.partition) for topic, producer in producers.items()}
            for topic, last in known.items():
                context.confirmed_before(topic, last + 1)
            for number in range(min(known.values()) + 1, context.orders):
                order = context.order(number)
                missing = [topic for topic in TOPICS if number > known[topic]]
                context.sending(order, missing)
                for topic in missing:
                    window.acquire()
                    producers[topic].append(order.value(topic), partition=context.partition)
            for producer in producers.values():
                producer.close()


class HeaderProducers:
    """`Producer-Id`, `Producer-Epoch`, `Producer-Seq`, by hand."""

    name = "headers"
    label = "Producer-* headers"
    producers = 2
    orders = 600
    tells_retries = True

    def run(self, context: Context) -> None:
        """One request at a time; the number of the order is the sequence."""
        sender = Insistent(context.url)
        for number in context.open_orders():
            order = context.order(number)
            claim = {"Producer-Id": context.producer, "Producer-Epoch": "0", "Producer-Seq": str(number)}
            for topic in TOPICS:
                context.sending(order, (topic,))
                reply = sender.post(f"/v1/stream/{topic}?partition={context.partition}", order.value(topic), claim)
                offset = reply.next_offset - 1
                context.confirmed(order, {topic: offset}, duplicate=reply.duplicate, attempts=reply.attempts)
