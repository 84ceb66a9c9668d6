"""A stream of JSON holds JSON, through whatever door a record comes; types are compared by media type."""

import pytest

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core import content_type, names
from oncelog.core.command import (
    Append,
    AppendStage,
    Columns,
    Commit,
    CommitAppend,
    ConfigureTopic,
    CreateTopic,
    GetTopic,
    OpenApplication,
    OpenStage,
    Publish,
    PublishItem,
)
from oncelog.core.content_type import is_json, is_same_type, json_flaw
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import (
    BatchRefused,
    CommitConfirmed,
    Confirmed,
    ContentTypeMismatch,
    NameInvalid,
    Outcome,
    StageDone,
    TooLarge,
    TopicDone,
    TopicExists,
    TopicFound,
    each_outcome,
)
from oncelog.core.rows import TopicConfig
from oncelog.testing.core_harness import CoreHarness, requests

GOOD = b'{"a": 1.10}'
BAD = b"{broken"


@pytest.fixture
def log() -> CoreHarness:
    harness = CoreHarness()
    harness.create("j", config=TopicConfig("Application/JSON; charset=utf-8"))
    return harness


@pytest.mark.parametrize(
    "value", [b"1", b" null ", b'"\\u00e4"', '"ä"'.encode(), b"[[1], {}]", b"12345678901234567890"]
)
def test_json_is_json(value: bytes) -> None:
    assert json_flaw(value) is None


@pytest.mark.parametrize("value", [b"", b"{", b"1 2", b"nul", b'"\xff"', b"[1,]", b"'a'", b"[" * 100_000])
def test_what_is_no_json_is_told_apart(value: bytes) -> None:
    assert json_flaw(value)


def test_types_are_the_same_by_media_type() -> None:
    assert is_same_type("text/plain; charset=utf-8", "TEXT/Plain")
    assert not is_same_type("text/plain", "text/csv")
    assert is_json("application/json;a=b")
    assert not is_json("application/jsonl")


def test_long_types_are_compared_and_not_kept(log: CoreHarness) -> None:
    """Texts of megabytes, refused or not, would stay in memory by the thousand."""
    content_type._cached.cache_clear()
    long = "text/plain;" + "x" * limits.MEDIA_TYPE_CACHED_CHARS_MAX
    assert is_same_type(long, "TEXT/PLAIN")
    refused = log.run(CreateTopic("t", 1, TopicConfig("x" * 4_000_000)))
    assert isinstance(refused, TooLarge)
    assert content_type._cached.cache_info().currsize == 1, "the short one"


def test_settings_that_are_too_large_are_measured_before_anything_looks_into_them(
    log: CoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_into: list[str] = []
    monkeypatch.setattr(names, "media_type", looked_into.append)
    assert isinstance(log.run(CreateTopic("t", 1, TopicConfig("x" * 4_000_000))), TooLarge)
    assert looked_into == []


def append(log: CoreHarness, value: bytes) -> Outcome:
    return log.run(Append("j", 0, codec.encode_one(value, 1), 1))


def commit(log: CoreHarness, value: bytes) -> Outcome:
    return log.run(Commit([CommitAppend("j", 0, codec.encode_one(value, 1), 1)]))


def test_every_door_into_a_json_stream_is_watched(log: CoreHarness) -> None:
    for door in (append, commit):
        assert isinstance(door(log, BAD), BatchRefused)
        assert isinstance(door(log, GOOD), Confirmed | CommitConfirmed)
    each = Columns("j", 0, [GOOD, BAD, None])
    assert [type(answer) for answer in each_outcome(log.run(each), each)] == [Confirmed, BatchRefused, Confirmed]
    made = log.run(CreateTopic("k", 1, TopicConfig("application/json"), codec.encode_one(BAD, 1), 1))
    assert isinstance(made, BatchRefused)


def test_a_face_that_has_looked_is_believed(log: CoreHarness) -> None:
    """It costs a tenth of an append to look twice."""
    batch = codec.encode_one(BAD, 1)
    assert isinstance(log.run(Append("j", 0, batch, 1, content_type="application/json")), Confirmed)


def test_a_stage_says_that_it_holds_json_before_it_goes_into_a_json_stream(log: CoreHarness) -> None:
    log.run(OpenApplication("app"))
    answers = []
    for kind in ("", "application/json"):
        stage = log.run(OpenStage("app", 1, 0, kind))
        assert isinstance(stage, StageDone)
        told = log.run(AppendStage(stage.stage_id, 0, codec.encode_one(BAD, 1), 1, content_digest(BAD)))
        assert isinstance(told, BatchRefused if kind else StageDone)
        if kind:
            log.run(AppendStage(stage.stage_id, 0, codec.encode_one(GOOD, 1), 1, content_digest(GOOD)))
        item = PublishItem(stage.stage_id, "j", 0, 1)
        answers.append(log.run(Publish([item], "app", 1, "q", 0)))
    assert isinstance(answers[0], ContentTypeMismatch)
    assert isinstance(answers[1], CommitConfirmed)


def test_a_written_topic_does_not_become_json_later(log: CoreHarness) -> None:
    log.create("t")
    to_json = ConfigureTopic("t", changes={"content_type": "application/json"})
    assert isinstance(log.run(to_json), TopicDone)
    log.create("u")
    log.append("u", BAD)
    refused = log.run(ConfigureTopic("u", changes={"content_type": "application/json"}))
    assert isinstance(refused, TopicExists)


def test_named_settings_change_and_the_others_stay(log: CoreHarness) -> None:
    log.create("t", config=TopicConfig("text/plain", 1_000))
    log.run(ConfigureTopic("t", changes={"dedupe_floor_ms": 2_000}))
    log.run(ConfigureTopic("t", changes={"duplicate_window_ms": 5}))
    found = log.run(GetTopic("t"))
    assert isinstance(found, TopicFound)
    assert found.topic.config == TopicConfig("text/plain", 2_000, 5)
    for changes in ({"colour": "red"}, {"dedupe_floor_ms": "1"}, {"content_type": "a\r\nb: c"}, {}):
        assert isinstance(log.run(ConfigureTopic("t", changes=changes)), NameInvalid)  # type: ignore[arg-type]


def test_the_closing_append_again_with_other_bytes_is_a_duplicate(log: CoreHarness) -> None:
    """Named by the durable-streams suite; everywhere else other bytes under one sequence conflict."""
    log.create("t")
    first = log.append("t", b"a", claim=requests("http:p", 0, content=b"a"), close=True)
    assert isinstance(first, Confirmed)
    again = log.append("t", b"b", claim=requests("http:p", 0, content=b"b"), close=True)
    assert isinstance(again, Confirmed)
    assert (again.first, again.next, again.duplicate, again.closed) == (0, 1, True, True)
    other = log.append("t", b"b", claim=requests("http:p", 0, content=b"b"))
    assert not isinstance(other, Confirmed)
