"""What is written: orders, their payments, and an audit event for each. A seed, a producer and a number give one order.

A producer that was killed makes the same records again, so what it sends again has the same bytes.
"""

import datetime
import random
from typing import Final, NamedTuple

import msgspec

ORDERS: Final = "orders"
PAYMENTS: Final = "payments"
AUDIT: Final = "audit"
TOPICS: Final = (ORDERS, PAYMENTS, AUDIT)

PARTITIONS: Final = 2
"""Of each topic. An order, its payment and its event lie in the partition of their producer, in the order of making."""

OPENING: Final = datetime.datetime(2026, 1, 5, 9, 0, tzinfo=datetime.UTC)
"""When the shop opened, in the records' own time. Not now: the same seed gives the same records."""

TRADING_DAY_S: Final = 8 * 3600
"""Every producer spreads its orders over the same hours, so whoever is slow is late in the records' own time too."""

PAID_SHARE: Final = 0.9
"""The other payments are declined: the join must leave them out."""

CLOSING: Final = "closing"
"""The one payment behind the last order: it ends the trading day for Spark."""
CLOSING_FACE: Final = "ids"
"""It is written as that face writes, so it counts there."""

ITEMS: Final = ("anvil", "bolt", "crank", "drill", "easel", "flask", "gasket", "hinge")


class Order(NamedTuple):
    """One order, and what became of it."""

    order_id: str
    customer: int
    item: str
    quantity: int
    cents: int
    at: str
    paid: bool

    def record(self, topic: str) -> dict[str, object]:
        """Its record in that topic."""
        if topic == ORDERS:
            members: dict[str, object] = {"customer": self.customer, "item": self.item, "quantity": self.quantity}
            return {"order_id": self.order_id, **members, "at": self.at}
        if topic == PAYMENTS:
            status = "paid" if self.paid else "declined"
            return {"order_id": self.order_id, "cents": self.cents, "status": status, "at": self.at}
        assert topic == AUDIT
        return {"order_id": self.order_id, "event": "sold" if self.paid else "refused", "at": self.at}

    def value(self, topic: str) -> bytes:
        """The record's bytes: the same on every face and in every life of its producer."""
        return msgspec.json.encode(self.record(topic))


def order_of(seed: int, producer: str, number: int, count: int) -> Order:
    """Order `number` of `count` that this producer makes."""
    chance = random.Random(f"{seed}/{producer}/{number}")
    placed = OPENING + datetime.timedelta(seconds=TRADING_DAY_S * number // count + chance.randrange(30))
    quantity = chance.randint(1, 9)
    return Order(
        order_id=f"{producer}-{number}",
        customer=chance.randrange(1_000),
        item=chance.choice(ITEMS),
        quantity=quantity,
        cents=quantity * chance.randint(100, 9_900),
        at=placed.isoformat().replace("+00:00", "Z"),
        paid=chance.random() < PAID_SHARE,
    )


def message_id(topic: str, order_id: str) -> str:
    """The name of a record, for faces that write under ids."""
    return f"{topic}/{order_id}"
