"""The pipelines of the demo: what is joined, added up and landed. The driver runs them, the audit knows what they mean.

| pipeline | from | to |
|---|---|---|
| sales | orders, payments | the pairs of orders with payments that were not declined |
| revenue | payments | for each half hour of the trading day: how many payments, and how many cents |
| land | sales | a Delta table |
| land-facts | facts.operational, as another zone sent them | a Delta table |
"""

from typing import Final

import msgspec

from oncelog.demo.orders import AUDIT, ORDERS, PAYMENTS
from oncelog.demo.plant import FACTS

SALES: Final = "sales"
REVENUE: Final = "revenue"
LAND: Final = "land"
LAND_FACTS: Final = "land-facts"

LABELS: Final = {
    SALES: "join: orders × payments → sales",
    REVENUE: "aggregate: payments → revenue",
    LAND: "land: sales → Delta table",
    LAND_FACTS: "land: facts of the plant → Delta",
}
"""In the order in which a pass runs them: what is landed last was joined before."""

WINDOW_S: Final = 1_800

ORDER_FIELDS: Final = "order_id STRING, customer INT, item STRING, quantity INT, at TIMESTAMP"
PAYMENT_FIELDS: Final = "order_id STRING, cents BIGINT, status STRING, at TIMESTAMP"
SALE_FIELDS: Final = "order_id STRING, customer INT, item STRING, quantity INT, cents BIGINT, at TIMESTAMP"

FACT_FIELDS: Final = "object STRUCT<reading_id: STRING, celsius: DOUBLE>, predicate STRING, subject STRING"

SCHEMAS: Final = {ORDERS: ORDER_FIELDS, PAYMENTS: PAYMENT_FIELDS}

_UTC: Final = "yyyy-MM-dd'T'HH:mm:ss'Z'"

SALES_SQL: Final = f"""
SELECT o.order_id AS key, o.order_id, o.customer, o.item, o.quantity, p.cents, date_format(o.at, "{_UTC}") AS at
FROM orders o JOIN payments p ON o.order_id = p.order_id
WHERE p.status = 'paid'
"""

# Not WHERE status = 'paid': Spark would drop the closing payment before it has moved the watermark.
REVENUE_SQL: Final = f"""
SELECT date_format(window.start, "{_UTC}") AS since,
       count_if(status = 'paid') AS payments,
       sum(if(status = 'paid', cents, 0)) AS cents
FROM payments GROUP BY window(at, '{WINDOW_S} seconds')
"""

WATERMARK: Final = "1 day"
"""More than the trading day: nobody is late, however long a producer lay dead."""

SALES_OFFSETS_PER_BATCH: Final = 8_000
"""Of each topic at scale 1: a pass has one to three batches, so a kill finds some done and some not."""

# --- for the audit ---------------------------------------------------------------------------------------------

WRITTEN: Final = (ORDERS, PAYMENTS, AUDIT, FACTS)
"""By the producers; all others are derived by Spark."""
AUDITED: Final = (*WRITTEN, SALES, REVENUE)
LANDED: Final = (SALES, FACTS)

_NAMED_BY: Final = {REVENUE: "since", FACTS: "object.reading_id"}

IDENTITIES: Final = {
    topic: f"get_json_object(cast(value AS string), '$.{_NAMED_BY.get(topic, 'order_id')}')" for topic in AUDITED
}
"""Where a record carries its name."""


def identity_of(topic: str, value: bytes) -> str:
    """The name of a record, without Spark."""
    found = msgspec.json.decode(value)
    for member in _NAMED_BY.get(topic, "order_id").split("."):
        found = found[member]
    return str(found)
