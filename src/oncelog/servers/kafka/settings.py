"""Settings of the Kafka face."""

from typing import Annotated

from msgspec import Meta

from oncelog import limits
from oncelog.servers.face_settings import ADDRESS, MINUTE_MS, AdvertisingSettings


class KafkaSettings(AdvertisingSettings, frozen=True, kw_only=True):
    """The Kafka face: where it listens, what it makes by itself, and who may run transactions."""

    address: Annotated[str, ADDRESS] = "127.0.0.1:9092"
    connections_max: Annotated[
        int,
        Meta(
            ge=1, le=1_000_000, description="Connections open at once; fewer if the limit of open files allows no more"
        ),
    ] = 5_000
    idle_ms: Annotated[
        int, Meta(ge=100, le=24 * 60 * MINUTE_MS, description="A connection without a request is closed after this")
    ] = 10 * MINUTE_MS
    auto_create: Annotated[
        bool, Meta(description="Make a topic that a client asks for by name and that is missing, as Kafka does")
    ] = True
    default_partitions: Annotated[
        int,
        Meta(ge=1, le=limits.KAFKA_PARTITIONS_MAX, description="Partitions of a topic that nobody says more about"),
    ] = 1
    transactions: Annotated[
        bool, Meta(description="Whether transactions are offered; if not, the coordinator answers error 15")
    ] = True
    txn_partitions_max: Annotated[
        int,
        Meta(ge=1, le=limits.COMMIT_APPENDS_MAX, description="Partitions that one transaction may name (error 44)"),
    ] = 10_000
    transactional_ids: Annotated[
        str,
        Meta(
            description="Patterns of the transactional ids that may be used, separated by spaces, as in "
            "`billing-* shop`; others are answered error 53"
        ),
    ] = "*"
    txn_timeout_policy: Annotated[
        str,
        Meta(
            description="What becomes of a transaction timeout out of range: `clamp` it, or `reject` it with error 50"
        ),
    ] = "clamp"
