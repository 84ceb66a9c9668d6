"""Topic `orders` to a table of all orders, a view of what each customer spent, and the large ones to a topic of theirs.

Spark imports this file with a session at hand. The server is that of ONCELOG_URL.
"""

# mypy: disable-error-code="untyped-decorator"

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()

ORDER = "order_id bigint, customer string, cents bigint"
LARGE_CENTS = 50_000

APPLICATION = "large-orders"
"""Under this name the server keeps what the sink has written and how far it had read. Never change it."""

# A full refresh gives every flow a new checkpoint: it reads from the start again. A table is emptied before; a log is
# not. So the sink refuses, unless one of these is told:
#   resume   read on where the sink had come to: nothing twice, nothing lost
#   again    append everything once more, knowingly
ON_FULL_REFRESH = spark.conf.get("spark.orders.onFullRefresh", "refuse")


def orders_from(starting: str) -> DataFrame:
    """The orders of the topic, one row each."""
    topic = spark.readStream.format("oncelog").option("subscribe", "orders").option("startingOffsets", starting).load()
    order = f.from_json(f.col("value").cast("string"), ORDER).alias("order")
    return topic.select("partition", "offset", "timestamp", order).select("partition", "offset", "timestamp", "order.*")


@dp.table
def orders() -> DataFrame:
    """All orders, with their place in the log."""
    return orders_from("earliest")


@dp.materialized_view
def spent_by_customer() -> DataFrame:
    """Computed anew with every run."""
    by_customer = spark.read.table("orders").groupBy("customer")
    return by_customer.agg(f.sum("cents").alias("cents"), f.count("*").alias("orders"))


dp.create_sink(
    "large_orders",
    "oncelog",
    {
        "topic": "large-orders",
        "application": APPLICATION,
        "createPartitions": "2",
        "acceptNewQuery": "true" if ON_FULL_REFRESH == "again" else "false",
    },
)


@dp.append_flow(target="large_orders")
def find_large_orders() -> DataFrame:
    """From the topic and not from the table: to its readers, a refreshed table is full of new rows."""
    large = orders_from(f"group:{APPLICATION}" if ON_FULL_REFRESH == "resume" else "earliest")
    return large.where(f.col("cents") >= LARGE_CENTS).select(
        f.col("customer").cast("binary").alias("key"),
        f.to_json(f.struct("order_id", "customer", "cents")).cast("binary").alias("value"),
    )
