"""Transactions: the coordinator's calls and the tools of KIP-664.

Tables as `schema` describes them. Names are those of the protocol.
"""

from typing import Final

from oncelog.protocols.kafka.schema import Api

INIT_PRODUCER_ID: Final = Api(
    22,
    "InitProducerId",
    versions=(0, 5),
    flexible=2,
    request="""
        transactional_id string ?
        transaction_timeout_ms int32
        producer_id int64 3+ =-1
        producer_epoch int16 3+ =-1
    """,
    response="""
        throttle_time_ms int32
        error_code int16
        producer_id int64 =-1
        producer_epoch int16
    """,
)

ADD_PARTITIONS_TO_TXN: Final = Api(
    24,
    "AddPartitionsToTxn",
    versions=(0, 4),
    flexible=3,
    request="""
        transactions [] 4+
            transactional_id string
            producer_id int64
            producer_epoch int16
            verify_only bool
            topics []
                name string 0+
                partitions []int32 0+
        v3_and_below_transactional_id string 0-3
        v3_and_below_producer_id int64 0-3
        v3_and_below_producer_epoch int16 0-3
        v3_and_below_topics [] 0-3
            name string 0-4
            partitions []int32 0-4
    """,
    response="""
        throttle_time_ms int32
        error_code int16 4+
        results_by_transaction [] 4+
            transactional_id string
            topic_results []
                name string 0+
                results_by_partition [] 0+
                    partition_index int32
                    partition_error_code int16
        results_by_topic_v3_and_below [] 0-3
            name string 0-4
            results_by_partition [] 0-4
                partition_index int32
                partition_error_code int16
    """,
)

ADD_OFFSETS_TO_TXN: Final = Api(
    25,
    "AddOffsetsToTxn",
    versions=(0, 4),
    flexible=3,
    request="""
        transactional_id string
        producer_id int64
        producer_epoch int16
        group_id string
    """,
    response="""
        throttle_time_ms int32
        error_code int16
    """,
)

END_TXN: Final = Api(
    26,
    "EndTxn",
    versions=(0, 4),
    flexible=3,
    request="""
        transactional_id string
        producer_id int64
        producer_epoch int16
        committed bool
    """,
    response="""
        throttle_time_ms int32
        error_code int16
    """,
)

WRITE_TXN_MARKERS: Final = Api(
    27,
    "WriteTxnMarkers",
    versions=(0, 1),
    flexible=1,
    request="""
        markers []
            producer_id int64
            producer_epoch int16
            transaction_result bool
            topics []
                name string
                partition_indexes []int32
            coordinator_epoch int32
    """,
    response="""
        markers []
            producer_id int64
            topics []
                name string
                partitions []
                    partition_index int32
                    error_code int16
    """,
)

TXN_OFFSET_COMMIT: Final = Api(
    28,
    "TxnOffsetCommit",
    versions=(0, 4),
    flexible=3,
    request="""
        transactional_id string
        group_id string
        producer_id int64
        producer_epoch int16
        generation_id int32 3+ =-1
        member_id string 3+
        group_instance_id string 3+ ? =null
        topics []
            name string
            partitions []
                partition_index int32
                committed_offset int64
                committed_leader_epoch int32 2+ =-1
                committed_metadata string ?
    """,
    response="""
        throttle_time_ms int32
        topics []
            name string
            partitions []
                partition_index int32
                error_code int16
    """,
)

DESCRIBE_PRODUCERS: Final = Api(
    61,
    "DescribeProducers",
    versions=(0, 0),
    flexible=0,
    request="""
        topics []
            name string
            partition_indexes []int32
    """,
    response="""
        throttle_time_ms int32
        topics []
            name string
            partitions []
                partition_index int32
                error_code int16
                error_message string ? =null
                active_producers []
                    producer_id int64
                    producer_epoch int32
                    last_sequence int32 =-1
                    last_timestamp int64 =-1
                    coordinator_epoch int32
                    current_txn_start_offset int64 =-1
    """,
)

DESCRIBE_TRANSACTIONS: Final = Api(
    65,
    "DescribeTransactions",
    versions=(0, 0),
    flexible=0,
    request="""
        transactional_ids []string
    """,
    response="""
        throttle_time_ms int32
        transaction_states []
            error_code int16
            transactional_id string
            transaction_state string
            transaction_timeout_ms int32
            transaction_start_time_ms int64
            producer_id int64
            producer_epoch int16
            topics []
                topic string
                partitions []int32
    """,
)

LIST_TRANSACTIONS: Final = Api(
    66,
    "ListTransactions",
    versions=(0, 1),
    flexible=0,
    request="""
        state_filters []string
        producer_id_filters []int64
        duration_filter int64 1+ =-1
    """,
    response="""
        throttle_time_ms int32
        error_code int16
        unknown_state_filters []string
        transaction_states []
            transactional_id string
            producer_id int64
            transaction_state string
    """,
)
