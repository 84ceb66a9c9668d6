"""Brokers, topics, coordinators and offsets: what a client asks before it reads or writes.

Tables as `schema` describes them. Names are those of the protocol.
"""

from typing import Final

from oncelog.protocols.kafka.schema import Api

API_VERSIONS: Final = Api(
    18,
    "ApiVersions",
    versions=(0, 4),
    flexible=3,
    request="""
        client_software_name string 3+
        client_software_version string 3+
    """,
    response="""
        error_code int16
        api_keys []
            api_key int16
            min_version int16
            max_version int16
        throttle_time_ms int32 1+
        supported_features [] 3+ tag=0
            name string
            min_version int16
            max_version int16
        finalized_features_epoch int64 3+ =-1 tag=1
        finalized_features [] 3+ tag=2
            name string
            max_version_level int16
            min_version_level int16
        zk_migration_ready bool 3+ tag=3
    """,
)

METADATA: Final = Api(
    3,
    "Metadata",
    versions=(0, 12),
    flexible=9,
    request="""
        topics [] ?1+
            topic_id uuid 10+
            name string ?10+
        allow_auto_topic_creation bool 4+ =true
        include_cluster_authorized_operations bool 8-10
        include_topic_authorized_operations bool 8+
    """,
    response="""
        throttle_time_ms int32 3+
        brokers []
            node_id int32
            host string
            port int32
            rack string 1+ ? =null
        cluster_id string 2+ ? =null
        controller_id int32 1+ =-1
        topics []
            error_code int16
            name string ?12+
            topic_id uuid 10+
            is_internal bool 1+
            partitions []
                error_code int16
                partition_index int32
                leader_id int32
                leader_epoch int32 7+ =-1
                replica_nodes []int32
                isr_nodes []int32
                offline_replicas []int32 5+
            topic_authorized_operations int32 8+ =-2147483648
        cluster_authorized_operations int32 8-10 =-2147483648
    """,
)

FIND_COORDINATOR: Final = Api(
    10,
    "FindCoordinator",
    versions=(0, 4),
    flexible=3,
    request="""
        key string 0-3
        key_type int8 1+
        coordinator_keys []string 4+
    """,
    response="""
        throttle_time_ms int32 1+
        error_code int16 0-3
        error_message string 1-3 ?
        node_id int32 0-3
        host string 0-3
        port int32 0-3
        coordinators [] 4+
            key string
            node_id int32
            host string
            port int32
            error_code int16
            error_message string ?
    """,
)

LIST_OFFSETS: Final = Api(
    2,
    "ListOffsets",
    versions=(1, 7),
    flexible=6,
    request="""
        replica_id int32
        isolation_level int8 2+
        topics []
            name string
            partitions []
                partition_index int32
                current_leader_epoch int32 4+ =-1
                timestamp int64
    """,
    response="""
        throttle_time_ms int32 2+
        topics []
            name string
            partitions []
                partition_index int32
                error_code int16
                timestamp int64 =-1
                offset int64 =-1
                leader_epoch int32 4+ =-1
    """,
)

OFFSET_FOR_LEADER_EPOCH: Final = Api(
    23,
    "OffsetForLeaderEpoch",
    versions=(2, 4),
    flexible=4,
    request="""
        replica_id int32 3+ =-2
        topics []
            topic string
            partitions []
                partition int32
                current_leader_epoch int32 =-1
                leader_epoch int32
    """,
    response="""
        throttle_time_ms int32
        topics []
            topic string
            partitions []
                error_code int16
                partition int32
                leader_epoch int32 =-1
                end_offset int64 =-1
    """,
)

DESCRIBE_CLUSTER: Final = Api(
    60,
    "DescribeCluster",
    versions=(0, 1),
    flexible=0,
    request="""
        include_cluster_authorized_operations bool
        endpoint_type int8 1+ =1
    """,
    response="""
        throttle_time_ms int32
        error_code int16
        error_message string ? =null
        endpoint_type int8 1+ =1
        cluster_id string
        controller_id int32 =-1
        brokers []
            broker_id int32
            host string
            port int32
            rack string ? =null
        cluster_authorized_operations int32 =-2147483648
    """,
)

DESCRIBE_TOPIC_PARTITIONS: Final = Api(
    75,
    "DescribeTopicPartitions",
    versions=(0, 0),
    flexible=0,
    request="""
        topics []
            name string
        response_partition_limit int32 =2000
        cursor {} ? =null
            topic_name string
            partition_index int32
    """,
    response="""
        throttle_time_ms int32
        topics []
            error_code int16
            name string ?
            topic_id uuid
            is_internal bool
            partitions []
                error_code int16
                partition_index int32
                leader_id int32
                leader_epoch int32 =-1
                replica_nodes []int32
                isr_nodes []int32
                eligible_leader_replicas []int32 ? =null
                last_known_elr []int32 ? =null
                offline_replicas []int32
            topic_authorized_operations int32 =-2147483648
        next_cursor {} ? =null
            topic_name string
            partition_index int32
    """,
)
