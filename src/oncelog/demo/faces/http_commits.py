"""Atomic commits over HTTP: an order, its payment and its audit event become visible at one instant, or none does.

The claim is the commit id, and a message id for each record. A producer that comes back after a kill sends the commit
that had no answer once more, under the same id.
"""

import random
from typing import Final

import msgspec

from oncelog.demo.faces.face import Context, Contradiction, Written
from oncelog.demo.faces.insistent import Insistent, Reply
from oncelog.demo.orders import TOPICS, Order, message_id

AGAIN_SHARE: Final = 0.1
"""Commits that are sent once more although they were confirmed, as a careless client would."""


class HttpCommits:
    """See the module."""

    name = "commits"
    label = "HTTP commits"
    producers = 2
    orders = 1_500
    tells_retries = True

    def run(self, context: Context) -> None:
        """One commit after another, each until it is answered."""
        sender = Insistent(context.url)
        chance = random.Random(f"{context.seed}/{context.producer}/again")
        for number in context.open_orders():
            order = context.order(number)
            commit = _commit(context, order)
            context.sending(order, TOPICS, commit=order.order_id)
            reply = sender.post("/v1/commit", commit)
            outcome = _outcome(reply)
            context.confirmed(order, outcome.offsets, duplicate=outcome.duplicate, attempts=reply.attempts)
            if chance.random() < AGAIN_SHARE:
                again = sender.post("/v1/commit", commit)
                context.sent_again(again.attempts)
                if not _outcome(again).duplicate or _outcome(again).offsets != outcome.offsets:
                    raise Contradiction(f"commit {order.order_id}, sent again: {again.body!r} after {reply.body!r}")


def _commit(context: Context, order: Order) -> dict[str, object]:
    return {
        "commit_id": order.order_id,
        "appends": [
            {
                "topic": topic,
                "partition": context.partition,
                "message_id": message_id(topic, order.order_id),
                "records": [{"json": msgspec.Raw(order.value(topic))}],
            }
            for topic in TOPICS
        ],
    }


def _outcome(reply: Reply) -> Written:
    told = msgspec.json.decode(reply.body)
    return Written({place["topic"]: place["first"] for place in told["outcome"]}, told["duplicate"])
