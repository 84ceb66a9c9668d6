"""Bounds of the Kafka face."""

from typing import Final

from oncelog.limits.units import MIB

# --- Kafka -------------------------------------------------------------------------------------------------------

KAFKA_FRAME_BYTES_MAX: Final = 16 * MIB
"""One request. Clients send at most 1 MiB of records in a request unless told otherwise; with BATCH_BYTES_MAX for each
of a few partitions there is room, and a length prefix of 2 GB is refused before anything is allocated."""

KAFKA_ELEMENTS_MAX: Final = 100_000
"""Elements of all arrays in one request. A request that names 10,000 partitions needs 20,000; each element becomes an
object, and a hundred times more than its bytes."""

KAFKA_REQUESTS_WAITING_MAX: Final = 256
"""Requests of one connection that wait for their answer, before nothing more is read from it. Clients keep 5 or 6."""

KAFKA_FETCH_BYTES_MAX: Final = 16 * MIB
"""Records of one Fetch answer, whatever the client asks for. librdkafka asks for 50 MiB by default; what does not fit
comes with its next request."""

KAFKA_FETCH_WAIT_MS_MAX: Final = 5 * 60 * 1_000
"""How long a Fetch waits, whatever the client asks for: below the time after which an idle connection is closed."""

KAFKA_PARTITIONS_MAX: Final = 10_000
"""Partitions of one topic, of one CreateTopics and of one CreatePartitions request: each is a stream with its row."""

KAFKA_GROUP_MEMBERS_MAX: Final = 1_000
"""Members of one consumer group: the leader gets the subscriptions of all of them in one answer."""

KAFKA_GROUP_BYTES_MAX: Final = 4 * MIB
"""Subscriptions and assignments that one group holds in memory."""

KAFKA_GROUPS_MAX: Final = 20_000
"""Groups with members, in memory. Saved offsets are rows and do not count."""

KAFKA_SESSION_MS_MIN: Final = 1_000
"""The shortest session timeout that a member may ask for. Kafka's own bound is 6 s; tests of clients ask for less."""

KAFKA_SESSION_MS_MAX: Final = 30 * 60 * 1_000
"""The longest, as in Kafka: a member that died holds its partitions for so long."""
