"""Plain appends under message ids, as `curl` would send them; many of them twice or three times on purpose.

Nothing else makes them safe: no session, no sequence, no order between senders. The id is the whole claim.
"""

import random
from typing import Final

from oncelog.demo.faces.face import Context, Contradiction
from oncelog.demo.faces.insistent import Insistent
from oncelog.demo.orders import TOPICS, message_id

COPIES: Final = (1, 1, 2, 3)
"""How often a record is sent, chosen at random."""


class HttpIds:
    """See the module."""

    name = "ids"
    label = "HTTP message ids"
    producers = 2
    orders = 500
    tells_retries = True

    def run(self, context: Context) -> None:
        """One record after another."""
        sender = Insistent(context.url)
        chance = random.Random(f"{context.seed}/{context.producer}/copies")
        for number in context.open_orders():
            order = context.order(number)
            for topic in TOPICS:
                path = f"/v1/stream/{topic}?partition={context.partition}"
                claim = {"Stream-Message-Id": message_id(topic, order.order_id)}
                context.sending(order, (topic,))
                reply = sender.post(path, order.value(topic), claim)
                offset = reply.next_offset - 1
                context.confirmed(order, {topic: offset}, duplicate=reply.duplicate, attempts=reply.attempts)
                for _ in range(chance.choice(COPIES) - 1):
                    again = sender.post(path, order.value(topic), claim)
                    context.sent_again(again.attempts)
                    if not again.duplicate or again.next_offset - 1 != offset:
                        raise Contradiction(f"{claim}, sent again: {again.headers} after offset {offset}")
