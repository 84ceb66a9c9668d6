"""What must come out of the pipelines, worked out from the producers' ledgers without Spark and without the log.

It is written as a ledger too: a record that a pipeline owes counts as sent and confirmed. So the audit finds what is
lost, doubled or wrong in the derived topics by the rule that it has for all others. Its lines have no times, since
nobody sent them: the charts of the report leave them out.
"""

import datetime
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from oncelog.demo.flows import REVENUE, SALES, WINDOW_S
from oncelog.demo.orders import ORDERS, PAYMENTS, Order, order_of
from oncelog.demo.plan import Plan
from oncelog.pipelines.ledger import hash_of, lines_of

WRITER: Final = "expected"


def write_expected(plan: Plan, ledgers: Iterable[Path], path: Path) -> None:
    """The ledger of the pipelines."""
    orders = list(_confirmed(plan, ledgers))
    owed = [(SALES, order.order_id, _sale(order)) for order in orders if order.paid]
    owed += [(REVENUE, since, value) for since, value in _revenue(orders).items()]
    with path.open("wb") as file:
        for topic, name, value in owed:
            # No order and no partition: where Spark puts a record, and behind which, is nobody's promise.
            line = {"writer": WRITER, "face": WRITER, "topic": topic, "id": name}
            file.write(msgspec.json.encode({"state": "sent", **line, "hash": hash_of(value)}) + b"\n")
            file.write(msgspec.json.encode({"state": "confirmed", **line}) + b"\n")


def _confirmed(plan: Plan, ledgers: Iterable[Path]) -> Iterator[Order]:
    """Orders that the log has together with their payments, by the word of their producers."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in ledgers:
        for line in lines_of(path):
            if line.state == "confirmed":
                found[line.id].add(line.topic)
    for share in plan.shares:
        for number in range(share.orders):
            order = order_of(plan.seed, share.producer, number, share.orders)
            if found[order.order_id] >= {ORDERS, PAYMENTS}:
                yield order


def _sale(order: Order) -> bytes:
    """As Spark's `to_json` spells it: no blanks, the columns in the order of the query."""
    members = {"order_id": order.order_id, "customer": order.customer, "item": order.item, "quantity": order.quantity}
    return msgspec.json.encode({**members, "cents": order.cents, "at": order.at})


def _revenue(orders: Iterable[Order]) -> dict[str, bytes]:
    """By the beginning of the window."""
    payments: dict[str, int] = defaultdict(int)
    cents: dict[str, int] = defaultdict(int)
    for order in orders:
        moment = datetime.datetime.fromisoformat(order.at)
        since_s = int(moment.timestamp()) // WINDOW_S * WINDOW_S
        since = datetime.datetime.fromtimestamp(since_s, datetime.UTC).isoformat().replace("+00:00", "Z")
        payments[since] += order.paid
        cents[since] += order.cents if order.paid else 0
    return {
        since: msgspec.json.encode({"since": since, "payments": payments[since], "cents": cents[since]})
        for since in payments
    }
