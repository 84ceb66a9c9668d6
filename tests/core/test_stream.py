"""Topics and streams: creating is agreeing, topics grow, closing, trimming, deleting single records, deleting names."""

import pytest

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import (
    AddPartitions,
    CloseStream,
    ConfigureTopic,
    CreateTopic,
    DeleteRecords,
    DeleteTopic,
    GetStream,
    GetTopic,
    Trim,
)
from oncelog.core.outcome import (
    ClaimInvalid,
    Confirmed,
    ContentTypeMismatch,
    Fenced,
    NameInvalid,
    OffsetAhead,
    OffsetGone,
    SequenceGap,
    StreamClosedRefusal,
    StreamDone,
    TooLarge,
    TopicDone,
    TopicExists,
    TopicFound,
    TopicMissing,
)
from oncelog.core.rows import FOREVER, Topic, TopicConfig
from oncelog.testing.core_harness import CoreHarness, requests


@pytest.fixture(params=["rows dropped before every command", "rows kept"])
def log(request: pytest.FixtureRequest) -> CoreHarness:
    harness = CoreHarness()
    harness.keep_loaded = request.param == "rows kept"
    return harness


def test_creating_twice_is_agreeing(log: CoreHarness) -> None:
    assert log.run(CreateTopic("t", 2)) == TopicDone(1, [2, 3], True)
    assert log.run(CreateTopic("t", 2)) == TopicDone(1, [2, 3], False)
    assert log.last_entry is None
    assert isinstance(log.run(CreateTopic("t", 3)), TopicExists)
    assert isinstance(log.run(CreateTopic("t", 2, TopicConfig(content_type="text/plain"))), TopicExists)


def test_first_content_is_part_of_the_making_and_a_retry_adds_nothing(log: CoreHarness) -> None:
    create = CreateTopic("t", 2, batch=codec.encode_values([b"a", b"b"], 1), count=2, close=True)
    assert log.run(create) == TopicDone(1, [2, 3], True, 2, True)
    assert log.run(create) == TopicDone(1, [2, 3], False, 2, True)
    for partition, tail in ((0, 2), (1, 0)):
        stands = log.run(GetStream("t", partition))
        assert isinstance(stands, StreamDone)
        assert (stands.tail, stands.closed) == (tail, True)
    assert log.run(CreateTopic("t", 2)) == TopicExists("t", "it is closed")
    log.run(CreateTopic("open"))
    assert log.run(CreateTopic("open", close=True)) == TopicExists("open", "it is not closed")
    assert isinstance(log.run(CreateTopic("much", batch=bytes(limits.BATCH_BYTES_MAX + 1), count=1)), TooLarge)


def test_content_types_are_compared_by_media_type_alone(log: CoreHarness) -> None:
    log.run(CreateTopic("t", config=TopicConfig(content_type="text/plain; charset=utf-8")))
    again = log.run(CreateTopic("t", config=TopicConfig(content_type="Text/PLAIN")))
    assert again == TopicDone(1, [2], False)
    assert isinstance(log.append("t", content_type="text/plain"), Confirmed)
    assert isinstance(log.append("t", content_type="text/csv"), ContentTypeMismatch)


def test_topic_found_is_a_copy_that_later_growth_leaves_alone(log: CoreHarness) -> None:
    log.keep_loaded = True
    log.run(CreateTopic("t"))
    before = log.run(GetTopic("t"))
    assert log.run(AddPartitions("t", 3)) == TopicDone(1, [2, 3, 4], True)
    assert before == TopicFound(Topic(1, "t", [2], TopicConfig(), log.now_ns))
    assert log.run(GetTopic("t")) == TopicFound(Topic(1, "t", [2, 3, 4], TopicConfig(), log.now_ns))


def test_topic_only_grows(log: CoreHarness) -> None:
    log.create("t", 2)
    assert isinstance(log.run(AddPartitions("t", 1)), TooLarge)
    assert log.run(AddPartitions("t", 2)) == TopicDone(1, [2, 3], False)
    assert isinstance(log.run(AddPartitions("t", limits.PARTITIONS_MAX + 1)), TooLarge)
    log.run(AddPartitions("t", 3))
    grown = log.append("t", partition=2)
    assert isinstance(grown, Confirmed)
    assert grown.stream_id == 4
    assert log.run(AddPartitions("no", 2)) == TopicMissing("no")


def test_ids_are_never_used_twice(log: CoreHarness) -> None:
    seen: set[int] = set()
    for _ in range(3):
        done = log.run(CreateTopic("t", 2))
        assert isinstance(done, TopicDone)
        assert not seen & {done.topic_id, *done.stream_ids}
        seen |= {done.topic_id, *done.stream_ids}
        log.run(DeleteTopic("t"))
    log.replay_all()


def test_settings_change_for_every_partition(log: CoreHarness) -> None:
    log.create("t", 2)
    config = TopicConfig(content_type="text/plain")
    assert log.run(ConfigureTopic("t", config)) == TopicDone(1, [2, 3], True)
    assert log.run(ConfigureTopic("t", config)) == TopicDone(1, [2, 3], False)
    for partition in (0, 1):
        mismatch = log.append("t", partition=partition, content_type="x/y")
        assert mismatch == ContentTypeMismatch("text/plain", "x/y")
    assert log.run(ConfigureTopic("no", config)) == TopicMissing("no")


@pytest.mark.parametrize(
    "config",
    [
        TopicConfig(dedupe_floor_ms=FOREVER - 1),
        TopicConfig(dedupe_floor_ms=2**80),
        TopicConfig(duplicate_window_ms=-1),
        TopicConfig(duplicate_window_ms=2**80),
        TopicConfig(txn_timeout_ms_max=0),
        TopicConfig(txn_timeout_ms_max=limits.TXN_TIMEOUT_MS_MAX + 1),
        TopicConfig(content_type="x" * (limits.TOPIC_CONFIG_BYTES_MAX + 1)),
        TopicConfig(attributes={"k" * 9000: "v" * 9000}),
    ],
)
def test_settings_that_no_rule_can_reckon_with_are_refused(log: CoreHarness, config: TopicConfig) -> None:
    assert isinstance(log.run(CreateTopic("t", 1, config)), TooLarge)
    log.create("t")
    assert isinstance(log.run(ConfigureTopic("t", config)), TooLarge)
    assert isinstance(log.run(CreateTopic("u", 1, TopicConfig(id_zone="\ud800"))), NameInvalid)


@pytest.mark.parametrize("name", ["", "/", "a//b", "a/../b", ".", "a/.", "a\0b", "a\nb", "\ud800"])
def test_topic_name_that_some_face_cannot_carry_is_refused(log: CoreHarness, name: str) -> None:
    assert isinstance(log.run(CreateTopic(name)), NameInvalid)
    assert log.last_entry is None


@pytest.mark.parametrize("name", ["a", "a/b", "a.b-c_d", "é" * 200, "n" * 400])
def test_topic_name_within_bounds_is_accepted(log: CoreHarness, name: str) -> None:
    assert isinstance(log.run(CreateTopic(name)), TopicDone)


def test_bounds_of_creation_are_refused(log: CoreHarness) -> None:
    assert log.run(CreateTopic("n" * 401)) == TooLarge("topic name bytes", 400, 401)
    assert isinstance(log.run(CreateTopic("t", 0)), TooLarge)
    assert isinstance(log.run(CreateTopic("t", limits.PARTITIONS_MAX + 1)), TooLarge)


def test_largest_topic_fits_one_entry() -> None:
    log = CoreHarness()
    log.state.next_id = log.follower.next_id = 2**62
    assert isinstance(log.run(CreateTopic("t", limits.PARTITIONS_MAX)), TopicDone)


@pytest.mark.parametrize("name", ["n" * 401, "a\0b", "\ud800", "", "no"])
def test_looking_for_a_name_that_is_not_there_is_missing(log: CoreHarness, name: str) -> None:
    for command in (
        GetTopic(name),
        GetStream(name),
        DeleteTopic(name),
        Trim(name, 0, 1),
        DeleteRecords(name, 0, [0, 1]),
    ):
        assert log.run(command) == TopicMissing(name)
    assert log.run(CloseStream(name)) == TopicMissing(name)


def test_deleting_unlinks_the_name_and_deleting_twice_is_told(log: CoreHarness) -> None:
    log.create("t")
    log.append("t")
    assert log.run(DeleteTopic("t")) == TopicDone(1, [2], True)
    assert log.run(DeleteTopic("t")) == TopicMissing("t")
    assert log.run(GetStream("t")) == TopicMissing("t")


# --- closing -----------------------------------------------------------------------------------------------------


def test_closing_twice_succeeds(log: CoreHarness) -> None:
    log.create("t")
    log.append("t")
    assert log.run(CloseStream("t")) == StreamDone(2, 0, 1, 1, True, True)
    assert log.run(CloseStream("t")) == StreamDone(2, 0, 1, 1, True, False)
    assert log.last_entry is None
    assert log.append("t") == StreamClosedRefusal(2, 1)


def test_closing_with_a_claim_uses_the_sequence_up(log: CoreHarness) -> None:
    log.create("t")
    log.append("t", claim=requests("http:p", 0))
    assert log.run(CloseStream("t", 0, requests("http:p", 2))) == SequenceGap(1, 2)
    assert log.run(CloseStream("t", 0, requests("http:p", 1))) == StreamDone(2, 0, 1, 1, True, True, 0, 1)
    assert log.run(CloseStream("t", 0, requests("http:p", 1))) == StreamDone(2, 0, 1, 1, True, False, 0, 1)
    assert log.run(CloseStream("t", 0, requests("http:p", 5))) == StreamDone(2, 0, 1, 1, True, False)


def test_fenced_producer_does_not_close(log: CoreHarness) -> None:
    log.create("t")
    log.append("t", claim=requests("http:p", 0, epoch=1))
    assert log.run(CloseStream("t", 0, requests("http:p", 0))) == Fenced(1, 0)
    assert log.run(GetStream("t")) == StreamDone(2, 0, 1, 1, False)


def test_close_with_the_sequence_of_an_append_does_not_claim_to_have_closed(log: CoreHarness) -> None:
    log.create("t")
    log.append("t", claim=requests("http:p", 0))
    assert log.run(CloseStream("t", 0, requests("http:p", 0))) == StreamDone(2, 0, 1, 1, False, False, 0, 0)


# --- trimming and deleting ---------------------------------------------------------------------------------------


def test_floor_only_rises_and_not_beyond_the_tail(log: CoreHarness) -> None:
    log.create("t")
    log.append("t", b"0", b"1", b"2")
    assert log.run(Trim("t", 0, 4)) == OffsetAhead(2, 4, 3)
    assert log.run(Trim("t", 0, 2)) == StreamDone(2, 2, 3, 3, False, True)
    assert log.run(Trim("t", 0, 1)) == StreamDone(2, 2, 3, 3, False, False)
    assert log.run(Trim("t", 0, -5)) == StreamDone(2, 2, 3, 3, False, False)
    assert log.run(Trim("t", 0, 3)) == StreamDone(2, 3, 3, 3, False, True)


def test_trim_steps_over_holes(log: CoreHarness) -> None:
    log.create("t")
    log.append("t", *[b"x"] * 6)
    log.run(DeleteRecords("t", 0, [2, 4, 5, 6]))
    assert log.run(Trim("t", 0, 2)) == StreamDone(2, 4, 6, 6, False, True)
    assert log.run(Trim("t", 0, 5)) == StreamDone(2, 6, 6, 6, False, True)


def test_deleting_records_twice_is_a_retry(log: CoreHarness) -> None:
    log.create("t")
    log.append("t", *[b"x"] * 6)
    assert log.run(DeleteRecords("t", 0, [1, 3])) == StreamDone(2, 0, 6, 6, False, True)
    assert log.run(DeleteRecords("t", 0, [1, 3])) == StreamDone(2, 0, 6, 6, False, False)
    assert log.last_entry is None
    assert log.run(DeleteRecords("t", 0, [0, 5])) == StreamDone(2, 0, 6, 6, False, True)
    log.replay_all()


def test_deleting_what_is_not_there_is_refused(log: CoreHarness) -> None:
    log.create("t")
    log.append("t", *[b"x"] * 4)
    log.run(Trim("t", 0, 2))
    assert log.run(DeleteRecords("t", 0, [1, 3])) == OffsetGone(2, 1, 2)
    assert log.run(DeleteRecords("t", 0, [2, 5])) == OffsetAhead(2, 5, 4)
    assert isinstance(log.run(DeleteRecords("t", 0, [])), ClaimInvalid)
    assert isinstance(log.run(DeleteRecords("t", 0, [3, 2])), ClaimInvalid)


def test_deleting_too_many_offsets_at_once_is_refused_and_the_most_fits_one_entry() -> None:
    log = CoreHarness()
    log.keep_loaded = True
    log.create("t")
    most = limits.DELETE_OFFSETS_MAX
    log.append("t", *[b""] * (most + 2))
    assert log.run(DeleteRecords("t", 0, [0, most + 1])) == TooLarge("offsets in one delete", most, most + 1)
    every_second = [offset for first in range(0, most // 16, 2) for offset in (first, first + 1)]
    assert isinstance(log.run(DeleteRecords("t", 0, every_second)), StreamDone)
    assert isinstance(log.run(DeleteRecords("t", 0, [0, most])), StreamDone)
    assert log.run(Trim("t", 0, 1)) == StreamDone(2, most, most + 2, most + 2, False, True)
