"""From the key of an API to what carries it out: one table, and what all connections share beside the broker."""

from collections.abc import Callable
from itertools import count
from typing import Final

from oncelog.protocols.kafka import (
    calls_configs,
    calls_fetch,
    calls_groups,
    calls_metadata,
    calls_offsets,
    calls_produce,
    calls_topics,
    calls_txn_tools,
    calls_txns,
    offered,
)
from oncelog.protocols.kafka.apis import groups, metadata, topics, txns
from oncelog.protocols.kafka.broker import Broker
from oncelog.protocols.kafka.session import Call, Session
from oncelog.protocols.kafka.wire import WireError

Handler = Callable[[Broker, Call], None]

HANDLERS: Final[dict[int, Handler]] = {
    offered.PRODUCE: calls_produce.produce,
    offered.FETCH: calls_fetch.fetch,
    metadata.API_VERSIONS.key: calls_metadata.api_versions,
    metadata.METADATA.key: calls_metadata.metadata,
    metadata.FIND_COORDINATOR.key: calls_metadata.find_coordinator,
    metadata.LIST_OFFSETS.key: calls_metadata.list_offsets,
    metadata.OFFSET_FOR_LEADER_EPOCH.key: calls_metadata.offset_for_leader_epoch,
    metadata.DESCRIBE_CLUSTER.key: calls_metadata.describe_cluster,
    metadata.DESCRIBE_TOPIC_PARTITIONS.key: calls_metadata.describe_topic_partitions,
    groups.OFFSET_COMMIT.key: calls_offsets.offset_commit,
    groups.OFFSET_FETCH.key: calls_offsets.offset_fetch,
    groups.OFFSET_DELETE.key: calls_offsets.offset_delete,
    groups.JOIN_GROUP.key: calls_groups.join_group,
    groups.SYNC_GROUP.key: calls_groups.sync_group,
    groups.HEARTBEAT.key: calls_groups.heartbeat,
    groups.LEAVE_GROUP.key: calls_groups.leave_group,
    groups.DESCRIBE_GROUPS.key: calls_groups.describe_groups,
    groups.LIST_GROUPS.key: calls_groups.list_groups,
    groups.DELETE_GROUPS.key: calls_groups.delete_groups,
    topics.CREATE_TOPICS.key: calls_topics.create_topics,
    topics.DELETE_TOPICS.key: calls_topics.delete_topics,
    topics.DELETE_RECORDS.key: calls_topics.delete_records,
    topics.CREATE_PARTITIONS.key: calls_topics.create_partitions,
    topics.DESCRIBE_CONFIGS.key: calls_configs.describe_configs,
    topics.ALTER_CONFIGS.key: calls_configs.alter_configs,
    topics.INCREMENTAL_ALTER_CONFIGS.key: calls_configs.incremental_alter_configs,
    txns.INIT_PRODUCER_ID.key: calls_txns.init_producer_id,
    txns.ADD_PARTITIONS_TO_TXN.key: calls_txns.add_partitions_to_txn,
    txns.ADD_OFFSETS_TO_TXN.key: calls_txns.add_offsets_to_txn,
    txns.END_TXN.key: calls_txns.end_txn,
    txns.TXN_OFFSET_COMMIT.key: calls_txns.txn_offset_commit,
    txns.WRITE_TXN_MARKERS.key: calls_txn_tools.write_txn_markers,
    txns.DESCRIBE_PRODUCERS.key: calls_txn_tools.describe_producers,
    txns.DESCRIBE_TRANSACTIONS.key: calls_txn_tools.describe_transactions,
    txns.LIST_TRANSACTIONS.key: calls_txn_tools.list_transactions,
}

assert HANDLERS.keys() == offered.SERVED.keys()


class Dispatch:
    """The `Host` of all sessions."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._numbers = count()

    def handle(self, call: Call) -> None:
        """Carry out a request that is served."""
        HANDLERS[call.head.key](self.broker, call)

    def answer_unknown_api_versions(self, call: Call) -> None:
        """A client that is newer than we are learns what to ask."""
        calls_metadata.unknown_api_versions(call)

    def note_malformed(self, error: WireError) -> None:
        """Counted, and told to the operator's log by whoever made the broker."""
        self.broker.on_malformed(error)

    def next_session_number(self) -> int:
        """Rises."""
        return next(self._numbers)

    def left(self, session: Session) -> None:
        """Its roles are free."""
        self.broker.connections.left(session)
