"""What must come out of the pipelines, worked out from the producers' ledgers without Spark and without the log.

It is written as a ledger too: a record that a pipeline owes counts as sent and confirmed. So the audit finds what is
lost, doubled or wrong in the derived topics by the rule that it has for all others.

Its lines have every column that the audit reads, and `time_ms` is null: nobody sent these records, and a time made up
for them would stand in the report's charts as one more face, faster than all others. A producer's ledger has a time
in every line, and `lines_of` takes a line without one for a piece that a kill left. So this file is not among the
producers' ledgers, and only the audit reads it; the verdict sees to it that the audit counted every line.
"""

import datetime
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from oncelog.demo.flows import REVENUE, SALES, WINDOW_S
from oncelog.demo.orders import ORDERS, PAYMENTS, TOPICS, Order, order_of
from oncelog.demo.plan import Plan
from oncelog.demo.plant import FACTS, facts_of
from oncelog.pipelines.ledger import State, hash_of, lines_of

WRITER: Final = "expected"


def write_expected(plan: Plan, ledgers: Iterable[Path], path: Path) -> None:
    """The ledger of the pipelines."""
    with path.open("wb") as file:
        for topic, name, value in _owed(list(_confirmed(plan, ledgers))):
            file.write(_line("sent", topic, name, hash_of(value)))
            file.write(_line("confirmed", topic, name, ""))


def records_planned(plan: Plan) -> Counter[str]:
    """How many records each topic has when the plan was carried out to its end. By the plan alone."""
    counts = Counter(dict.fromkeys(TOPICS, plan.orders))
    counts[PAYMENTS] += 1  # the closing one
    counts[FACTS] = facts_of(plan.scale)
    if plan.spark:
        counts.update(topic for topic, _, _ in _owed(list(_planned(plan))))
    return counts


def _line(state: State, topic: str, name: str, digest: str) -> bytes:
    # No order and no partition: where Spark puts a record, and behind which, is nobody's promise.
    place = {"partition": -1, "order": -1, "commit": "", "offset": -1}
    line = {"state": state, "writer": WRITER, "face": WRITER, "topic": topic, "id": name, "time_ms": None}
    return msgspec.json.encode({**line, "hash": digest, **place}) + b"\n"


def _owed(orders: Sequence[Order]) -> Iterator[tuple[str, str, bytes]]:
    """Topic, name and value of every record that the pipelines make of these orders."""
    yield from ((SALES, order.order_id, _sale(order)) for order in orders if order.paid)
    yield from ((REVENUE, since, value) for since, value in _revenue(orders).items())


def _planned(plan: Plan) -> Iterator[Order]:
    for share in plan.shares:
        for number in range(share.orders):
            yield order_of(plan.seed, share.producer, number, share.orders)


def _confirmed(plan: Plan, ledgers: Iterable[Path]) -> Iterator[Order]:
    """Orders that the log has together with their payments, by the word of their producers."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in ledgers:
        for line in lines_of(path):
            if line.state == "confirmed":
                found[line.id].add(line.topic)
    for order in _planned(plan):
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
