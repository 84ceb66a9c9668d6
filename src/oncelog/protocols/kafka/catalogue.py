"""Every code that the Kafka face answers, with its meaning and what to do about it: for people who look one up."""

from collections.abc import Iterator
from typing import Final

from oncelog.protocols.explained import Explained
from oncelog.protocols.kafka.codes import Code

_RETRY: Final = "Retry; clients do so by themselves."

_ROWS: Final[dict[Code, tuple[str, str]]] = {
    Code.OFFSET_OUT_OF_RANGE: ("The offset lies below the floor or beyond the end.", "Seek: auto.offset.reset."),
    Code.CORRUPT_MESSAGE: ("The batch's checksum does not match, or it does not inflate.", "Send the batch again."),
    Code.UNKNOWN_TOPIC_OR_PARTITION: ("The topic or partition does not exist.", "Create the topic, or let it grow."),
    Code.NOT_LEADER_OR_FOLLOWER: ("The server stops, or has too much to do.", _RETRY),
    Code.MESSAGE_TOO_LARGE: ("The batch is above max.message.bytes.", "Send smaller batches, or raise the setting."),
    Code.OFFSET_METADATA_TOO_LARGE: ("The metadata of an offset is too long.", "Shorten it."),
    Code.COORDINATOR_NOT_AVAILABLE: (
        "Transactions are switched off (kafka.transactions), or the server stops or has no room.",
        "Retry, or switch them on.",
    ),
    Code.INVALID_TOPIC_EXCEPTION: (
        "The name of the topic cannot be used, or its JetStream name is taken.",
        "Use letters, digits, '.', '_' and '-', and another name.",
    ),
    Code.INVALID_REQUIRED_ACKS: ("acks is neither -1, 0 nor 1.", "Set acks to all."),
    Code.ILLEGAL_GENERATION: ("The group has rebalanced meanwhile.", "Join again; clients do so by themselves."),
    Code.INCONSISTENT_GROUP_PROTOCOL: ("No assignor is known to all members.", "Give all members a common assignor."),
    Code.INVALID_GROUP_ID: ("The group has no name.", "Set group.id."),
    Code.UNKNOWN_MEMBER_ID: ("The member is not in the group.", "Join again; clients do so by themselves."),
    Code.INVALID_SESSION_TIMEOUT: ("The session timeout is out of range.", "Choose one from 1 s to 30 min."),
    Code.REBALANCE_IN_PROGRESS: ("The group rebalances.", "Join again; clients do so by themselves."),
    Code.INVALID_COMMIT_OFFSET_SIZE: ("The offset is negative.", "Commit an offset of 0 or more."),
    Code.INVALID_TIMESTAMP: ("A batch says LogAppendTime; only the server does.", "Send CreateTime."),
    Code.UNSUPPORTED_VERSION: ("This version of ApiVersions is not known.", "Ask again with the version offered."),
    Code.TOPIC_ALREADY_EXISTS: ("A topic of this name exists.", "Use it, or choose another name."),
    Code.INVALID_PARTITIONS: ("The number of partitions is out of range, or below the present one.", "Choose another."),
    Code.INVALID_REPLICATION_FACTOR: ("The replication factor is below 1.", "Set it to 1."),
    Code.INVALID_REPLICA_ASSIGNMENT: ("The assigned partitions are not 0 to n - 1.", "Leave the assignment out."),
    Code.INVALID_CONFIG: ("A topic setting is unknown or has a value that is not possible.", "See the message."),
    Code.INVALID_REQUEST: ("The request contradicts itself.", "See the message."),
    Code.POLICY_VIOLATION: (
        "A bound of the server, such as the partitions of one transaction, or the stream is closed.",
        "See the message.",
    ),
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER: ("A sequence before this one is missing, or it is long known.", _RETRY),
    Code.INVALID_PRODUCER_EPOCH: ("A newer epoch of this producer exists.", "Stop this instance."),
    Code.INVALID_TXN_STATE: ("The state of the transaction forbids this.", "Abort it and begin another."),
    Code.INVALID_PRODUCER_ID_MAPPING: (
        "The transactional id is unknown, or another producer id holds it.",
        "Call init_transactions again.",
    ),
    Code.INVALID_TRANSACTION_TIMEOUT: ("The transaction timeout is out of range.", "Choose one up to 15 min."),
    Code.CONCURRENT_TRANSACTIONS: ("The transaction of the holder before was aborted just now.", _RETRY),
    Code.TRANSACTION_COORDINATOR_FENCED: ("The marker comes from a coordinator that was replaced.", "Use epoch -1."),
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "The transactional id matches none of kafka.transactional_ids.",
        "Use another id, or change the setting.",
    ),
    Code.OPERATION_NOT_ATTEMPTED: ("Another partition of the same request is missing.", "Create it, then retry."),
    Code.KAFKA_STORAGE_ERROR: ("The disk has no room.", "Make room; reads go on."),
    Code.NON_EMPTY_GROUP: ("The group has members.", "Stop them first."),
    Code.GROUP_ID_NOT_FOUND: ("The group has no offsets.", "Nothing is to be done."),
    Code.FETCH_SESSION_ID_NOT_FOUND: ("Fetch sessions are not kept.", "Clients fetch without one by themselves."),
    Code.UNKNOWN_LEADER_EPOCH: ("There is only leader epoch 0.", "Refresh the metadata."),
    Code.UNSUPPORTED_COMPRESSION_TYPE: ("The codec is unknown, or zstd came by an old version.", "Use another codec."),
    Code.MEMBER_ID_REQUIRED: ("A new member gets its id first.", "Join again; clients do so by themselves."),
    Code.FENCED_INSTANCE_ID: ("Another member holds this group.instance.id.", "Give each member an id of its own."),
    Code.INVALID_RECORD: ("The partition's records are not one valid batch of format 2.", "See the message."),
    Code.UNSTABLE_OFFSET_COMMIT: ("A transaction that is open will move this offset.", _RETRY),
    Code.PRODUCER_FENCED: ("A newer instance holds the transactional id.", "Stop this instance."),
    Code.TRANSACTIONAL_ID_NOT_FOUND: ("The transactional id is unknown.", "Names are exact."),
    Code.TRANSACTION_ABORTABLE: ("The write is outside of its transaction.", "Abort it and begin another."),
}


def explained() -> Iterator[Explained]:
    """All of them, by number."""
    for code, (meaning, what_to_do) in sorted(_ROWS.items()):
        yield Explained("kafka", str(int(code)), code.name, meaning, what_to_do)
