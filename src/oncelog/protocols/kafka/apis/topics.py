"""Topics: making, growing, trimming and configuring them.

Tables as `schema` describes them. Names are those of the protocol.
"""

from typing import Final

from oncelog.protocols.kafka.schema import Api

CREATE_TOPICS: Final = Api(
    19,
    "CreateTopics",
    versions=(0, 7),
    flexible=5,
    request="""
        topics []
            name string
            num_partitions int32
            replication_factor int16
            assignments []
                partition_index int32
                broker_ids []int32
            configs []
                name string
                value string ?
        timeout_ms int32 =60000
        validate_only bool 1+
    """,
    response="""
        throttle_time_ms int32 2+
        topics []
            name string
            topic_id uuid 7+
            error_code int16
            error_message string 1+ ?
            topic_config_error_code int16 5+ tag=0
            num_partitions int32 5+ =-1
            replication_factor int16 5+ =-1
            configs [] 5+ ?
                name string
                value string ?
                read_only bool
                config_source int8 =-1
                is_sensitive bool
    """,
)

DELETE_TOPICS: Final = Api(
    20,
    "DeleteTopics",
    versions=(0, 6),
    flexible=4,
    request="""
        topics [] 6+
            name string ? =null
            topic_id uuid
        topic_names []string 0-5
        timeout_ms int32
    """,
    response="""
        throttle_time_ms int32 1+
        responses []
            name string ?6+
            topic_id uuid 6+
            error_code int16
            error_message string 5+ ? =null
    """,
)

DELETE_RECORDS: Final = Api(
    21,
    "DeleteRecords",
    versions=(0, 2),
    flexible=2,
    request="""
        topics []
            name string
            partitions []
                partition_index int32
                offset int64
        timeout_ms int32
    """,
    response="""
        throttle_time_ms int32
        topics []
            name string
            partitions []
                partition_index int32
                low_watermark int64
                error_code int16
    """,
)

CREATE_PARTITIONS: Final = Api(
    37,
    "CreatePartitions",
    versions=(0, 3),
    flexible=2,
    request="""
        topics []
            name string
            count int32
            assignments [] ?
                broker_ids []int32
        timeout_ms int32
        validate_only bool
    """,
    response="""
        throttle_time_ms int32
        results []
            name string
            error_code int16
            error_message string ? =null
    """,
)

DESCRIBE_CONFIGS: Final = Api(
    32,
    "DescribeConfigs",
    versions=(0, 4),
    flexible=4,
    request="""
        resources []
            resource_type int8
            resource_name string
            configuration_keys []string ?
        include_synonyms bool 1+
        include_documentation bool 3+
    """,
    response="""
        throttle_time_ms int32
        results []
            error_code int16
            error_message string ?
            resource_type int8
            resource_name string
            configs []
                name string
                value string ?
                read_only bool
                is_default bool 0
                config_source int8 1+ =-1
                is_sensitive bool
                synonyms [] 1+
                    name string
                    value string ?
                    source int8
                config_type int8 3+
                documentation string 3+ ?
    """,
)

ALTER_CONFIGS: Final = Api(
    33,
    "AlterConfigs",
    versions=(0, 1),
    flexible=2,
    request="""
        resources []
            resource_type int8
            resource_name string
            configs []
                name string
                value string ?
        validate_only bool
    """,
    response="""
        throttle_time_ms int32
        responses []
            error_code int16
            error_message string ?
            resource_type int8
            resource_name string
    """,
)

INCREMENTAL_ALTER_CONFIGS: Final = Api(
    44,
    "IncrementalAlterConfigs",
    versions=(0, 1),
    flexible=1,
    request="""
        resources []
            resource_type int8
            resource_name string
            configs []
                name string
                config_operation int8
                value string ?
        validate_only bool
    """,
    response="""
        throttle_time_ms int32
        responses []
            error_code int16
            error_message string ?
            resource_type int8
            resource_name string
    """,
)
