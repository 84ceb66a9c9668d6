"""Consumer groups: membership, saved offsets, listings.

Tables as `schema` describes them. Names are those of the protocol.
"""

from typing import Final

from oncelog.protocols.kafka.schema import Api

OFFSET_COMMIT: Final = Api(
    8,
    "OffsetCommit",
    versions=(2, 9),
    flexible=8,
    request="""
        group_id string
        generation_id_or_member_epoch int32 =-1
        member_id string
        group_instance_id string 7+ ? =null
        retention_time_ms int64 2-4 =-1
        topics []
            name string
            partitions []
                partition_index int32
                committed_offset int64
                committed_leader_epoch int32 6+ =-1
                committed_metadata string ?
    """,
    response="""
        throttle_time_ms int32 3+
        topics []
            name string
            partitions []
                partition_index int32
                error_code int16
    """,
)

OFFSET_FETCH: Final = Api(
    9,
    "OffsetFetch",
    versions=(1, 9),
    flexible=6,
    request="""
        group_id string 1-7
        topics [] 1-7 ?2-7
            name string
            partition_indexes []int32
        groups [] 8+
            group_id string
            member_id string 9+ ? =null
            member_epoch int32 9+ =-1
            topics [] ?
                name string
                partition_indexes []int32
        require_stable bool 7+
    """,
    response="""
        throttle_time_ms int32 3+
        topics [] 1-7
            name string
            partitions []
                partition_index int32
                committed_offset int64
                committed_leader_epoch int32 5+ =-1
                metadata string ?
                error_code int16
        error_code int16 2-7
        groups [] 8+
            group_id string
            topics []
                name string
                partitions []
                    partition_index int32
                    committed_offset int64
                    committed_leader_epoch int32 =-1
                    metadata string ?
                    error_code int16
            error_code int16
    """,
)

JOIN_GROUP: Final = Api(
    11,
    "JoinGroup",
    versions=(0, 9),
    flexible=6,
    request="""
        group_id string
        session_timeout_ms int32
        rebalance_timeout_ms int32 1+ =-1
        member_id string
        group_instance_id string 5+ ? =null
        protocol_type string
        protocols []
            name string
            metadata bytes
        reason string 8+ ? =null
    """,
    response="""
        throttle_time_ms int32 2+
        error_code int16
        generation_id int32 =-1
        protocol_type string 7+ ? =null
        protocol_name string ?7+
        leader string
        skip_assignment bool 9+
        member_id string
        members []
            member_id string
            group_instance_id string 5+ ? =null
            metadata bytes
    """,
)

HEARTBEAT: Final = Api(
    12,
    "Heartbeat",
    versions=(0, 4),
    flexible=4,
    request="""
        group_id string
        generation_id int32
        member_id string
        group_instance_id string 3+ ? =null
    """,
    response="""
        throttle_time_ms int32 1+
        error_code int16
    """,
)

LEAVE_GROUP: Final = Api(
    13,
    "LeaveGroup",
    versions=(0, 5),
    flexible=4,
    request="""
        group_id string
        member_id string 0-2
        members [] 3+
            member_id string
            group_instance_id string ? =null
            reason string 5+ ? =null
    """,
    response="""
        throttle_time_ms int32 1+
        error_code int16
        members [] 3+
            member_id string
            group_instance_id string ?
            error_code int16
    """,
)

SYNC_GROUP: Final = Api(
    14,
    "SyncGroup",
    versions=(0, 5),
    flexible=4,
    request="""
        group_id string
        generation_id int32
        member_id string
        group_instance_id string 3+ ? =null
        protocol_type string 5+ ? =null
        protocol_name string 5+ ? =null
        assignments []
            member_id string
            assignment bytes
    """,
    response="""
        throttle_time_ms int32 1+
        error_code int16
        protocol_type string 5+ ? =null
        protocol_name string 5+ ? =null
        assignment bytes
    """,
)

DESCRIBE_GROUPS: Final = Api(
    15,
    "DescribeGroups",
    versions=(0, 5),
    flexible=5,
    request="""
        groups []string
        include_authorized_operations bool 3+
    """,
    response="""
        throttle_time_ms int32 1+
        groups []
            error_code int16
            group_id string
            group_state string
            protocol_type string
            protocol_data string
            members []
                member_id string
                group_instance_id string 4+ ? =null
                client_id string
                client_host string
                member_metadata bytes
                member_assignment bytes
            authorized_operations int32 3+ =-2147483648
    """,
)

LIST_GROUPS: Final = Api(
    16,
    "ListGroups",
    versions=(0, 5),
    flexible=3,
    request="""
        states_filter []string 4+
        types_filter []string 5+
    """,
    response="""
        throttle_time_ms int32 1+
        error_code int16
        groups []
            group_id string
            protocol_type string
            group_state string 4+
            group_type string 5+
    """,
)

DELETE_GROUPS: Final = Api(
    42,
    "DeleteGroups",
    versions=(0, 2),
    flexible=2,
    request="""
        groups_names []string
    """,
    response="""
        throttle_time_ms int32
        results []
            group_id string
            error_code int16
    """,
)

OFFSET_DELETE: Final = Api(
    47,
    "OffsetDelete",
    versions=(0, 0),
    flexible=None,
    request="""
        group_id string
        topics []
            name string
            partitions []
                partition_index int32
    """,
    response="""
        error_code int16
        throttle_time_ms int32
        topics []
            name string
            partitions []
                partition_index int32
                error_code int16
    """,
)
