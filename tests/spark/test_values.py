"""The parts that need no Spark session: options, plans, hashes, places, the checkpoint's files."""

import random
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2 as kafka_murmur2

from oncelog.client.models import Cut, StreamInfo
from oncelog.core import batch as codec
from oncelog.core.record import MESSAGE_ID_HEADER
from oncelog.limits import MIB
from oncelog.spark import checkpoint, planning, source_end
from oncelog.spark.encoding import RECORD_COST_BYTES, Queues, Target, check_schema, encoded
from oncelog.spark.option_names import USES, Use, wrong_name
from oncelog.spark.options import COLUMNS, HEADERS, OptionError, Place, Subscription, read_options, write_options
from oncelog.spark.planning import OffsetLost, Range
from oncelog.spark.routing import hashed_partitions

URL = {"url": "http://127.0.0.1:1"}

# --- options ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "exactly one of"),
        ({"subscribe": "a", "assign": "{}"}, "exactly one of"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": "("}, "regular expression"),
        ({"assign": "[1]"}, "assign"),
        ({"subscribe": "a", "startingOffsets": "soon"}, "startingOffsets"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "counts from 0"),
        ({"subscribe": "a", "startingOffsets": "group:"}, "name of an application"),
        ({"subscribe": "a", "startingOffsets": "cut:"}, "entry number"),
        ({"subscribe": "a", "startingTimestamp": "-7"}, "startingTimestamp"),
        ({"subscribe": "a", "endingOffsetsByTimestamp": "7"}, "endingOffsetsByTimestamp"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "not negative"),
        (
            {"subscribe": "a", "startingTimestamp": "7", "startingOffsetsByTimestampStrategy": "x"},
            "'error' or 'latest'",
        ),
        ({"subscribe": "a", "failOnDataLoss": "perhaps"}, "true or false"),
        ({"subscribe": "a", "minPartitions": "-1"}, "between"),
        ({"subscribe": "a", "columns": "offset,offsets"}, "columns"),
        ({"subscribe": "a", "url": "http://a:1,http://b:1"}, "several servers"),
    ],
)
def test_read_option_that_cannot_be_met_is_named(options: Mapping[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        read_options({**URL, **options})


@pytest.mark.parametrize(
    ("use", "name", "why"),
    [
        ("batch read", "startingOffset", "no option 'startingOffset'; did you mean startingOffsets"),
        ("batch read", "maxOffsetPerTrigger", "did you mean maxOffsetsPerTrigger"),
        ("batch read", "kafka.bootstrap.servers", "address is url"),
        ("batch read", "kafka.group.id", "no Kafka client"),
        ("batch read", "prize", "there are url"),
        ("batch read", "maxOffsetsPerTrigger", "is an option of a streaming read, and this is a batch read"),
        ("batch read", "topic", "is an option of a batch write and a streaming write"),
        ("streaming read", "endingOffsets", "is an option of a batch read, and this is a streaming read"),
        ("streaming read", "ENDINGTIMESTAMP", "endingTimestamp is an option of a batch read"),
        ("batch write", "sourceTracking", "is an option of a streaming write"),
        ("batch write", "topics", "did you mean topic"),
        ("streaming write", "txnAppId", "is an option of a batch write, and this is a streaming write"),
        ("streaming write", "startingOffsets", "is an option of a batch read and a streaming read"),
    ],
)
def test_name_that_is_not_known_or_has_no_meaning_here_is_told(use: Use, name: str, why: str) -> None:
    said = wrong_name([name], [use])
    assert said is not None
    assert re.search(why, said), said
    options = read_options if use.endswith("read") else write_options
    with pytest.raises(OptionError, match=why):
        options({**URL, "subscribe" if use.endswith("read") else "topic": "t", name: "1"}, use)


@pytest.mark.parametrize("use", ["batch read", "streaming read", "batch write", "streaming write"])
def test_names_that_spark_brings_along_are_let_through(use: Use) -> None:
    names = ["path", "queryname", "checkpointLocation", "__partition_columns", "URL", "requesttimeoutms"]
    assert wrong_name(names, [use]) is None


def test_every_option_is_in_the_documentation_and_every_one_there_is_known() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    told = {
        name
        for line in page.splitlines()
        if line.startswith("| `") and line.count("|") == 4
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert set(USES) <= told, set(USES) - told
    assert told - set(USES) <= {*COLUMNS, HEADERS, "message_id", "checkpointLocation"}


def test_strategy_is_looked_at_though_there_is_no_time() -> None:
    with pytest.raises(OptionError, match="'error' or 'latest'"):
        read_options({**URL, "subscribe": "a", "startingOffsetsByTimestampStrategy": "x"})


def test_url_is_needed_and_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONCELOG_URL", raising=False)
    with pytest.raises(OptionError, match="url"):
        read_options({"subscribe": "a"})
    monkeypatch.setenv("ONCELOG_URL", "localhost:4437")
    assert read_options({"subscribe": "a"}).url == "http://localhost:4437"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"delivery": "hope"}, "delivery"),
        ({"asyncProgressTrackingEnabled": "true"}, "exactly-once cannot be kept"),
        ({"txnVersion": "1"}, "together"),
        ({"txnAppId": "a"}, "together"),
        ({"sourceTracking": "some"}, "sourceTracking"),
        ({"batchBytes": "99999999"}, "between"),
        ({"partition": "-1"}, "partition is between 0"),
        ({"stageTtlMs": "2592000001"}, "stageTtlMs is between 0 and 2,592,000,000"),
    ],
)
def test_write_option_that_cannot_be_met_is_named(options: Mapping[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        write_options({**URL, **options})


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([("key", "binary")], "no column 'value'"),
        ([("value", "int")], "cast it"),
        ([("value", "string"), ("price", "int")], "a sink takes"),
        ([("value", "string"), ("message_id", "int")], "cast it"),
    ],
)
def test_rows_that_cannot_be_written_are_named(fields: list[tuple[str, str]], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        check_schema(fields, topic_given=True)
    with pytest.raises(OptionError, match="topic"):
        check_schema([("value", "string")], topic_given=False)


def test_id_of_the_row_takes_the_place_of_one_that_its_headers_bring() -> None:
    pairs = [{"key": MESSAGE_ID_HEADER, "value": b"old"}, {"key": "other", "value": b"x"}]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = {"value": pa.array([b"v"]), "headers": pa.array([pairs], kind), "message_id": pa.array(["new"])}
    queues = Queues("t", -1, 0, lambda _: 1, batch_bytes=1 << 20)
    assert not list(queues.add(pa.RecordBatch.from_pydict(columns)))
    ((_, rows),) = queues.rest()
    (record,) = codec.decode(encoded(rows))
    assert record[4] == (("other", b"x"), (MESSAGE_ID_HEADER, b"new"))


@pytest.mark.parametrize(
    ("row_bytes", "rows", "batch_bytes", "expected"),
    [
        (1000, 10, 100_000, [10]),  # fewer than asked for
        (1000, 150, 100_000, [150]),  # less than twice: one batch as it is
        (1000, 250, 100_000, [125, 125]),
        (1000, 4000, 3 * MIB, [2000, 2000]),  # twice would be more than the server takes
        (500_000, 4, 1024, [1, 1, 1, 1]),  # a row is never cut
    ],
)
def test_queue_becomes_batches_of_equal_size(row_bytes: int, rows: int, batch_bytes: int, expected: list[int]) -> None:
    values = pa.array([bytes(row_bytes - RECORD_COST_BYTES)] * rows)
    queues = Queues("t", -1, 0, lambda _: 1, batch_bytes=batch_bytes)
    batches = [*queues.add(pa.RecordBatch.from_pydict({"value": values})), *queues.rest()]
    assert [len(rows) for _, rows in batches] == expected
    assert not list(queues.rest())


# --- plans --------------------------------------------------------------------------------------------------------


def cut(*streams: tuple[str, int, int, int]) -> Cut:
    infos = [StreamInfo(topic, partition, floor, stable, stable, False) for topic, partition, floor, stable in streams]
    return Cut(1, 1, infos)


def test_standing_holds_what_is_wanted_and_misses_nothing() -> None:
    now = cut(("a", 0, 0, 5), ("a", 1, 2, 7), ("ab", 0, 0, 1))
    assert planning.standing_of(now, Subscription(pattern="a")) == {"a": {0: (0, 5, 0), 1: (2, 7, 0)}}
    assert set(planning.standing_of(now, Subscription(pattern="a.*"))) == {"a", "ab"}
    assert planning.standing_of(now, Subscription(("a",), {"a": (1,)})) == {"a": {1: (2, 7, 0)}}
    with pytest.raises(OffsetLost, match="no partition 2"):
        planning.standing_of(now, Subscription(("a",), {"a": (2,)}))
    with pytest.raises(OffsetLost, match="does not exist"):
        planning.standing_of(now, Subscription(("c",)))


def test_place_becomes_an_offset_for_every_stream() -> None:
    standing = planning.standing_of(cut(("a", 0, 1, 5), ("a", 1, 2, 7)), Subscription(("a",)))
    assert planning.resolved(Place("earliest"), standing, None, "") == {"a": {0: 1, 1: 2}}
    assert planning.resolved(Place("latest"), standing, None, "") == {"a": {0: 5, 1: 7}}
    assert planning.resolved(Place("offsets", {"a": {0: -1, 1: -2}}), standing, None, "") == {"a": {0: 5, 1: 2}}
    assert planning.resolved(Place("group"), standing, {"a": {0: 3}}, "") == {"a": {0: 3, 1: 2}}
    with pytest.raises(OffsetLost, match="says nothing"):
        planning.resolved(Place("offsets", {"a": {0: 1}}), standing, None, "startingOffsets")
    with pytest.raises(OffsetLost, match="not read"):
        planning.resolved(Place("offsets", {"a": {0: 1, 1: 1, 2: 1}}), standing, None, "startingOffsets")
    for name in ("startingOffsets", "endingOffsets"):
        with pytest.raises(OffsetLost, match=f"{name}ByTimestamp says nothing of 'a' partition 1"):
            planning.resolved(Place("times", {"a": {0: 1}}), standing, {}, name)


def test_range_that_is_gone_is_a_failure_or_is_cut_to_what_is_there() -> None:
    standing = planning.standing_of(cut(("a", 0, 10, 20)), Subscription(("a",)))
    asked = [Range("a", 0, 5, 15)]
    with pytest.raises(OffsetLost, match="failOnDataLoss"):
        planning.within(asked, standing, fail_on_data_loss=True)
    assert planning.within(asked, standing, fail_on_data_loss=False) == [Range("a", 0, 10, 15)]
    with pytest.raises(OffsetLost, match="created again"):
        planning.ranges_between({"a": {0: 7}}, {"a": {0: 3}})


def test_shares_meet_the_limit_exactly_and_starve_nobody() -> None:
    chosen = random.Random(7)
    for _ in range(500):
        sizes = [chosen.choice([0, 1, 5, chosen.randrange(1, 10_000)]) for _ in range(chosen.randrange(1, 20))]
        limit = chosen.randrange(1, 20_000)
        given = planning.shares(sizes, limit)
        assert sum(given) == min(limit, sum(sizes))
        assert all(0 <= part <= size for part, size in zip(given, sizes, strict=True))
        if limit >= len(sizes):
            assert all(part > 0 for part, size in zip(given, sizes, strict=True) if size)


def test_pieces_cover_their_ranges_and_are_as_many_as_asked_for() -> None:
    ranges = [Range("a", 0, 0, 1000), Range("a", 1, 5, 6), Range("b", 0, 0, 10)]
    for at_least, records_max in ((0, 0), (2, 0), (8, 0), (50, 0), (0, 100), (0, 1)):
        cut_up = planning.pieces(ranges, at_least, records_max)
        assert len(cut_up) >= min(at_least, 1011)
        assert not records_max or max(piece.size for piece in cut_up) <= records_max
        assert [offset for piece in cut_up for offset in range(piece.first, piece.next)] == [
            offset for range_ in ranges for offset in range(range_.first, range_.next)
        ]


# --- rows to batches ----------------------------------------------------------------------------------------------


def test_hash_is_the_one_of_kafka() -> None:
    chosen = random.Random(1)
    keys = [chosen.randbytes(length % 41) for length in range(500)]
    found = hashed_partitions(pa.array([*keys, None], pa.binary()), 7).tolist()
    assert found == [*[(kafka_murmur2(key) & 0x7FFFFFFF) % 7 for key in keys], -1]
    sliced = hashed_partitions(pa.array([*keys, None], pa.binary()).slice(100), 7).tolist()
    assert sliced == found[100:]
    assert hashed_partitions(pa.array([], pa.binary()), 7).tolist() == []


def queues(**told: int) -> Queues:
    return Queues("t", told.get("partition", -1), 0, lambda _: 4, batch_bytes=told.get("batch_bytes", 1 << 20))


def test_rows_keep_their_order_and_batches_their_size() -> None:
    rows = queues(partition=2, batch_bytes=10_000)
    values = [b"%06d" % number + bytes(number % 900) for number in range(3000)]
    sent = []
    for first in range(0, 3000, 700):
        sent += list(rows.add(pa.record_batch([pa.array(values[first : first + 700])], names=["value"])))
    sent += list(rows.rest())
    assert {target for target, _ in sent} == {Target("t", 2)}
    assert [value for _, part in sent for value in part.values] == values
    batches = [encoded(part) for _, part in sent]
    assert max(len(batch) for batch in batches) < 11_000
    assert sum(codec.skim(batch).record_count for batch in batches) == 3000


def test_partition_is_the_named_one_else_of_the_key_else_one_for_all() -> None:
    columns = {"value": [b"a", b"b", b"c"], "key": [b"k", b"k", None], "partition": [3, None, None]}
    types = {"value": pa.binary(), "key": pa.binary(), "partition": pa.int32()}
    batch = pa.record_batch({name: pa.array(column, types[name]) for name, column in columns.items()})
    rows = queues()
    assert list(rows.add(batch)) == []
    hashed = (kafka_murmur2(b"k") & 0x7FFFFFFF) % 4
    found = {target.partition: part.values for target, part in rows.rest()}
    assert b"a" in found[3]
    assert b"b" in found[hashed]
    assert sorted(value or b"" for part in found.values() for value in part) == [b"a", b"b", b"c"]
    with pytest.raises(OptionError, match="names partition 9"):
        list(queues().add(pa.record_batch({"value": [b"a"], "partition": np.array([9], np.int32)})))
    for given in ([-1], [0, -7, None]):
        wrong = {"value": pa.array([b"a"] * len(given)), "partition": pa.array(given, pa.int32())}
        with pytest.raises(OptionError, match="null leaves it to the key"):
            list(queues().add(pa.record_batch(wrong)))


def test_row_that_is_too_large_is_refused_before_it_is_sent() -> None:
    with pytest.raises(OptionError, match="at most"):
        list(queues().add(pa.record_batch({"value": [bytes(5 << 20)]})))


# --- places -------------------------------------------------------------------------------------------------------


def test_source_end_is_the_same_bytes_for_the_same_place() -> None:
    told = source_end.told({"0": {"b": {"0": 1}, "a": {"1": 2, "0": 3}}})
    assert told == source_end.told({"0": {"a": {"0": 3, "1": 2}, "b": {"0": 1}}})
    assert source_end.topics_of(told) == {"a": {0: 3, 1: 2}, "b": {0: 1}}


@pytest.mark.parametrize(
    ("stored", "end", "continues"),
    [
        ({"0": {"a": {"0": 5}}, "1": {"b": {"0": 5}}}, {"0": {"a": {"0": 5}}, "1": {"b": {"0": 6}}}, False),
        ({"0": {"a": {"0": 5}}}, {"0": {"a": {"0": 5}}}, True),
        ({"0": {"a": {"0": 5}}}, {"0": {"a": {"0": 9, "1": 3}}}, True),
        ({"0": {"a": {"0": 5}}}, {"0": {"a": {"0": 4}}}, False),
        ({"0": {"a": {"0": 5}}}, {"0": {"b": {"0": 9}}}, False),
        ({"0": {"a": {"0": 5}}, "1": 7}, {"0": {"a": {"0": 5}}, "1": 8}, False),
        ({"0": {"a": {"0": 5}}}, {"0": {"a": {"0": 5}}, "1": {"b": {"0": 1}}}, False),
    ],
)
def test_new_query_continues_only_where_all_its_sources_do(
    stored: Mapping[str, object], end: Mapping[str, object], continues: bool
) -> None:
    # Topic b was not resumed: its source began somewhere else.
    assert source_end.continues(source_end.told(stored), {"a"}, end) == continues


def test_two_sources_at_two_places_in_one_stream_cannot_be_resumed() -> None:
    with pytest.raises(ValueError, match="two sources"):
        source_end.topics_of(source_end.told({"0": {"a": {"0": 5}}, "1": {"a": {"0": 6}}}))


def test_offset_log_is_read_in_both_forms(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"q-1"}')
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"a":{"0":5}}\n-')
    (tmp_path / "offsets" / "1").write_text('v2\n{}\nname:{"a":{"0":5}}')
    assert checkpoint.query_id(str(tmp_path)) == "q-1"
    assert checkpoint.sources_at(str(tmp_path), 0) == {"0": {"a": {"0": 5}}, "1": None}
    assert checkpoint.sources_at(tmp_path.as_uri(), 1) == {"name": {"a": {"0": 5}}}
    with pytest.raises(checkpoint.CheckpointUnreadable, match="offsets/2"):
        checkpoint.sources_at(str(tmp_path), 2)
