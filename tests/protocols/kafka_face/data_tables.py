"""Produce and Fetch as tables: the slow model that the hand-written codecs are compared with."""

from typing import Final

from oncelog.protocols.kafka.schema import Api

PRODUCE: Final = Api(
    0,
    "Produce",
    versions=(3, 11),
    flexible=9,
    request="""
        transactional_id string ? =null
        acks int16
        timeout_ms int32
        topic_data []
            name string
            partition_data []
                index int32
                records bytes ?
    """,
    response="""
        responses []
            name string
            partition_responses []
                index int32
                error_code int16
                base_offset int64
                log_append_time_ms int64 =-1
                log_start_offset int64 5+ =-1
                record_errors [] 8+
                    batch_index int32
                    batch_index_error_message string ? =null
                error_message string 8+ ? =null
                current_leader {} 10+ tag=0
                    leader_id int32 =-1
                    leader_epoch int32 =-1
        throttle_time_ms int32
        node_endpoints [] 10+ tag=0
            node_id int32
            host string
            port int32
            rack string ? =null
    """,
)

FETCH: Final = Api(
    1,
    "Fetch",
    versions=(4, 12),
    flexible=12,
    request="""
        cluster_id string 12+ ? =null tag=0
        replica_id int32 =-1
        max_wait_ms int32
        min_bytes int32
        max_bytes int32 =2147483647
        isolation_level int8
        session_id int32 7+
        session_epoch int32 7+ =-1
        topics []
            topic string
            partitions []
                partition int32
                current_leader_epoch int32 9+ =-1
                fetch_offset int64
                last_fetched_epoch int32 12+ =-1
                log_start_offset int64 5+ =-1
                partition_max_bytes int32
        forgotten_topics_data [] 7+
            topic string
            partitions []int32
        rack_id string 11+
    """,
    response="""
        throttle_time_ms int32
        error_code int16 7+
        session_id int32 7+
        responses []
            topic string
            partitions []
                partition_index int32
                error_code int16
                high_watermark int64
                last_stable_offset int64 =-1
                log_start_offset int64 5+ =-1
                diverging_epoch {} 12+ tag=0
                    epoch int32 =-1
                    end_offset int64 =-1
                current_leader {} 12+ tag=1
                    leader_id int32 =-1
                    leader_epoch int32 =-1
                snapshot_id {} 12+ tag=2
                    end_offset int64 4+ =-1
                    epoch int32 4+ =-1
                aborted_transactions [] ?
                    producer_id int64
                    first_offset int64
                preferred_read_replica int32 11+ =-1
                records bytes ?
    """,
)
