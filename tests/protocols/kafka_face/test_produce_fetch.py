"""Produce and Fetch by hand, compared with the tables, and their own damage."""

import contextlib
import random
from typing import Any

import pytest

from oncelog.protocols.kafka.fetch import FetchAnswer, FetchPartition, read_fetch, write_fetch
from oncelog.protocols.kafka.produce import PartitionAnswer, PartitionData, read_produce, write_produce
from oncelog.protocols.kafka.wire import Reader, WireError
from tests.protocols.kafka_face.data_tables import FETCH, PRODUCE
from tests.protocols.kafka_face.random_messages import message_of


def random_request(api: Any, version: int, seed: int) -> dict[str, Any]:
    return message_of(api.fields(0), version, random.Random(seed))


@pytest.mark.parametrize("version", range(3, 12))
def test_produce_requests_are_read_as_the_table_says(version: int) -> None:
    for seed in range(20):
        message = random_request(PRODUCE, version, seed)
        read = read_produce(Reader(memoryview(PRODUCE.encode_request(version, message))), version)
        assert (read.transactional_id, read.acks, read.timeout_ms) == (
            message["transactional_id"],
            message["acks"],
            message["timeout_ms"],
        )
        assert read.partitions == [
            PartitionData(topic["name"], partition["index"], partition["records"])
            for topic in message["topic_data"]
            for partition in topic["partition_data"]
        ]


@pytest.mark.parametrize("version", range(3, 12))
def test_produce_responses_are_written_as_the_table_says(version: int) -> None:
    answers = [
        PartitionAnswer("a", 0, 0, 17, -1, 3),
        PartitionAnswer("a", 2, 87, -1, -1, 3, ((1, "bad"), (4, "worse")), "two records"),
        PartitionAnswer("b", 1, 0, 5, 1_700_000_000_000, 0),
    ]
    partitions = [
        {
            "index": answer.partition,
            "error_code": answer.code,
            "base_offset": answer.base_offset,
            "log_append_time_ms": answer.log_append_time_ms,
            "log_start_offset": answer.log_start_offset,
            "record_errors": [
                {"batch_index": number, "batch_index_error_message": text} for number, text in answer.record_errors
            ],
            "error_message": answer.message,
        }
        for answer in answers
    ]
    responses = [
        {"name": "a", "partition_responses": partitions[:2]},
        {"name": "b", "partition_responses": partitions[2:]},
    ]
    assert write_produce(version, answers) == PRODUCE.encode_response(version, {"responses": responses})


@pytest.mark.parametrize("version", range(4, 13))
def test_fetch_requests_are_read_as_the_table_says(version: int) -> None:
    for seed in range(20):
        message = random_request(FETCH, version, seed)
        message["isolation_level"] = seed % 2
        read = read_fetch(Reader(FETCH.encode_request(version, message)), version)
        assert (read.max_wait_ms, read.min_bytes, read.max_bytes, read.committed) == (
            message["max_wait_ms"],
            message["min_bytes"],
            message["max_bytes"],
            seed % 2 == 1,
        )
        assert (read.session_id, read.session_epoch) == (message["session_id"], message["session_epoch"])
        assert read.partitions == [
            FetchPartition(
                topic["topic"],
                each["partition"],
                each["current_leader_epoch"],
                each["fetch_offset"],
                each["partition_max_bytes"],
            )
            for topic in message["topics"]
            for each in topic["partitions"]
        ]
        forgotten = [
            (topic["topic"], each) for topic in message["forgotten_topics_data"] for each in topic["partitions"]
        ]
        assert read.forgotten == forgotten


@pytest.mark.parametrize("version", range(4, 13))
def test_fetch_responses_are_written_as_the_table_says(version: int) -> None:
    answers = [
        FetchAnswer("a", 0, 0, 10, 8, 2, ((7, 3), (9, 5)), (b"abc", memoryview(b"defg"))),
        FetchAnswer("a", 1, 1, -1, -1, -1),
        FetchAnswer("b", 0, 0, 4, 4, 0, (), ()),
    ]
    partitions = [
        {
            "partition_index": answer.partition,
            "error_code": answer.code,
            "high_watermark": answer.high_watermark,
            "last_stable_offset": answer.last_stable,
            "log_start_offset": answer.log_start,
            "aborted_transactions": None
            if answer.aborted is None
            else [{"producer_id": producer_id, "first_offset": first} for producer_id, first in answer.aborted],
            "preferred_read_replica": -1,
            "records": b"".join(answer.records),
        }
        for answer in answers
    ]
    expected = {
        "session_id": 77,
        "responses": [
            {"topic": "a", "partitions": partitions[:2]},
            {"topic": "b", "partitions": partitions[2:]},
        ],
    }
    assert b"".join(write_fetch(version, answers, 0, 77)) == FETCH.encode_response(version, expected)


@pytest.mark.parametrize(
    ("read", "api", "version"),
    [(read_produce, PRODUCE, 9), (read_produce, PRODUCE, 3), (read_fetch, FETCH, 12), (read_fetch, FETCH, 4)],
)
def test_cut_requests_raise_wire_errors(read: Any, api: Any, version: int) -> None:
    whole = api.encode_request(version, random_request(api, version, 1))
    for length in range(len(whole)):
        with pytest.raises(WireError):
            read(Reader(whole[:length]), version)
    rng = random.Random(5)
    for _ in range(2_000):
        broken = bytearray(whole)
        broken[rng.randrange(len(broken))] = rng.randrange(256)
        with contextlib.suppress(WireError):
            read(Reader(bytes(broken)), version)
