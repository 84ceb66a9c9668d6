"""Fact topics: every road into a stream checks the envelope, and the fact says its id, whoever brings it (P2, P3)."""

from typing import Any

import pytest

from oncelog.core import batch as codec
from oncelog.core import facts
from oncelog.core.command import (
    AddToTxn,
    Append,
    AppendStage,
    Columns,
    Commit,
    CommitAppend,
    ConfigureTopic,
    CreateTopic,
    DeleteRecords,
    GetReceipt,
    InitProducer,
    OpenApplication,
    OpenStage,
    Publish,
    PublishItem,
)
from oncelog.core.fact_columns import facts_in
from oncelog.core.facts import Fact, FactRecord
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import (
    ClaimInvalid,
    CommitConfirmed,
    Confirmed,
    EnvelopeInvalid,
    IdConflict,
    NameInvalid,
    Outcome,
    PartlyDuplicate,
    ReceiptFound,
    Refusal,
    StageDone,
    TopicExists,
    TxnDone,
)
from oncelog.core.rows import FOREVER, JCS, TopicConfig
from oncelog.testing.core_harness import CoreHarness, records

CONFIG = TopicConfig("application/json", FOREVER, id_zone="facts", digest=JCS)


def fact(message_id: str = "m1", text: str = '{"n": 1}', **changes: Any) -> FactRecord:
    fields: dict[str, Any] = {
        "message_id": message_id,
        "from_zone": "plant",
        "to_zone": "office",
        "produced_at_unix_ms": 1_780_000_000_000,
        "subject": "pump:plant/1",
        "predicate": "has_started",
        "object_json": text,
    }
    return facts.record_of(Fact(**(fields | changes)))


BAD = FactRecord(b"pump:plant/1", b'{"n": 1}', (), b"", b"", 0)
DOUBLED = FactRecord(b"k", b'{"object":{"a":1,"a":2},"predicate":"p","subject":"k"}', fact().headers, b"", b"", 0)


def batch_of(*found: FactRecord) -> bytes:
    return codec.encode([(n, 1, one.key, one.value, one.headers) for n, one in enumerate(found)])


@pytest.fixture(params=["rows dropped before every command", "rows kept"])
def log(request: pytest.FixtureRequest) -> CoreHarness:
    harness = CoreHarness()
    harness.keep_loaded = request.param == "rows kept"
    harness.create("f", config=CONFIG)  # stream 2
    harness.create("g", config=CONFIG)  # stream 4
    harness.create("plain")  # stream 6
    return harness


def ready(log: CoreHarness, topic: str, *found: FactRecord) -> Outcome:
    return log.run(Append(topic, 0, batch_of(*found), len(found)))


def columns(log: CoreHarness, topic: str, *found: FactRecord) -> Outcome:
    keys, headers = [one.key for one in found], [one.headers for one in found]
    return log.run(Columns(topic, 0, [one.value for one in found], keys=keys, headers=headers))


def together(log: CoreHarness, topic: str, *found: FactRecord) -> Outcome:
    keys, headers = [one.key for one in found], [one.headers for one in found]
    return log.run(Columns(topic, 0, [one.value for one in found], together=True, keys=keys, headers=headers))


def commit(log: CoreHarness, topic: str, *found: FactRecord) -> Outcome:
    return log.run(Commit([CommitAppend(topic, 0, batch_of(*found), len(found))]))


def publish(log: CoreHarness, topic: str, *found: FactRecord) -> Outcome:
    """As the engine does it: what was staged is read as facts before the publish is decided."""
    fence = log.run(OpenApplication("app")).fence  # type: ignore[union-attr]
    stage = log.run(OpenStage("app", fence, content_type="application/json"))
    assert isinstance(stage, StageDone)
    batch = batch_of(*found)
    done = log.run(AppendStage(stage.stage_id, 0, batch, len(found), content_digest(batch)))
    assert isinstance(done, StageDone), done
    ids = facts_in(batch)
    if isinstance(ids, Refusal):
        log.last_entry = None
        return ids
    item = PublishItem(stage.stage_id, topic, 0, len(found), True, ids, True)
    return log.run(Publish([item], "app", fence, f"query {stage.stage_id}", 0, accept_new_query=True))


ROADS = [ready, columns, together, commit, publish]


def places(outcome: Outcome) -> list[int]:
    if isinstance(outcome, CommitConfirmed):
        return outcome.outcome
    assert isinstance(outcome, Confirmed), outcome
    assert not outcome.exceptions
    return [outcome.stream_id, outcome.first, outcome.next]


@pytest.mark.parametrize("road", ROADS)
def test_fact_is_stored_once_whatever_road_brings_it_again(log: CoreHarness, road: Any) -> None:
    assert places(road(log, "f", fact(), fact("m2", "2"))) == [2, 0, 2]
    receipt = log.run(GetReceipt("g", 0, b"m2"))
    assert isinstance(receipt, ReceiptFound)
    assert (receipt.stream_id, receipt.first, receipt.digest) == (2, 1, fact("m2", "2").digest)
    for other in (ready, columns, together, commit):
        other(log, "f", fact(text='{"n":1.0}'), fact("m2", " 2 "))
        assert log.run(GetReceipt("f", 0, b"m1")) == log.run(GetReceipt("g", 0, b"m1")), "ids belong to the zone"
    assert log.state.streams.get(2) is None or log.state.streams[2].tail == 2  # type: ignore[union-attr]
    log.replay_all()


@pytest.mark.parametrize("road", ROADS)
def test_other_content_under_a_known_id_is_refused_on_every_road(log: CoreHarness, road: Any) -> None:
    places(ready(log, "f", fact()))
    outcome = road(log, "g", fact(text='{"n": 2}'))
    if isinstance(outcome, Confirmed):
        assert outcome.exceptions is not None
        outcome = outcome.exceptions[0]
    assert isinstance(outcome, IdConflict)
    assert (outcome.stream_id, outcome.offset) == (2, 0)


@pytest.mark.parametrize("bad", [BAD, DOUBLED], ids=["no envelope", "a key twice"])
@pytest.mark.parametrize("road", ROADS)
def test_record_that_is_no_fact_is_refused_on_every_road(log: CoreHarness, road: Any, bad: FactRecord) -> None:
    outcome = road(log, "f", bad)
    if isinstance(outcome, Confirmed):
        assert outcome.exceptions is not None
        outcome = outcome.exceptions[0]
    assert isinstance(outcome, EnvelopeInvalid)
    assert not log.wrote()


def test_values_that_stand_alone_fall_alone(log: CoreHarness) -> None:
    outcome = columns(log, "f", fact(), BAD, fact("m2"), fact())
    assert isinstance(outcome, Confirmed)
    assert outcome.exceptions is not None
    assert (outcome.first, outcome.next, sorted(outcome.exceptions)) == (0, 2, [1, 3])
    assert isinstance(outcome.exceptions[1], EnvelopeInvalid)
    again = outcome.exceptions[3]
    assert isinstance(again, Confirmed)
    assert (again.duplicate, again.first) == (True, 0)
    log.replay_all()


def test_bare_value_is_no_fact(log: CoreHarness) -> None:
    assert isinstance(log.run(Columns("f", 0, [fact().value], content_type="application/json")), EnvelopeInvalid)
    assert isinstance(log.append("f", fact().value, content_type="application/json"), EnvelopeInvalid)


def test_id_of_the_request_may_only_be_that_of_the_fact(log: CoreHarness) -> None:
    one = fact()
    batch = batch_of(one)
    for command in (
        Append("f", 0, batch, 1, message_id=b"other"),
        Columns("f", 0, [one.value], message_ids=[b"other"], keys=[one.key], headers=[one.headers]),
        Commit([CommitAppend("f", 0, batch, 1, message_id=b"other")]),
    ):
        assert isinstance(log.run(command), EnvelopeInvalid)
    same = Append("f", 0, batch, 1, content_digest(one.value), message_id=b"m1")
    assert places(log.run(same)) == [2, 0, 1]
    again = log.run(same)
    assert isinstance(again, Confirmed)
    assert again.duplicate


def test_ready_batch_with_a_claim_keeps_its_sequence(log: CoreHarness) -> None:
    command = Append("f", 0, batch_of(fact(), fact("m2")), 2, claim=records(7, 0, count=2))
    assert places(log.run(command)) == [2, 0, 2]
    again = log.run(command)
    assert isinstance(again, Confirmed)
    assert (again.duplicate, again.first, again.next) == (True, 0, 2)
    log.replay_all()


def test_fact_is_not_written_inside_a_txn(log: CoreHarness) -> None:
    assert log.run(InitProducer("x")) == TxnDone(1, 0)
    log.run(AddToTxn("x", 1, 0, [("f", 0)]))
    command = Append("f", 0, batch_of(fact()), 1, claim=records(1, 0), txn_id="x")
    assert isinstance(log.run(command), ClaimInvalid)


def test_id_of_a_removed_fact_is_remembered_for_ever(log: CoreHarness) -> None:
    ready(log, "f", fact())
    log.run(DeleteRecords("f", 0, [0, 1]))
    log.pass_ms(400 * 24 * 3600 * 1000)
    again = ready(log, "g", fact())
    assert isinstance(again, Confirmed)
    assert (again.duplicate, again.gone, again.stream_id) == (True, True, 2)


def test_partly_known_facts_that_come_together_are_refused(log: CoreHarness) -> None:
    ready(log, "f", fact())
    for road in (ready, together, commit):
        assert isinstance(road(log, "f", fact(), fact("m2")), PartlyDuplicate)


def test_topic_of_facts_is_made_as_one_and_stays_one(log: CoreHarness) -> None:
    for wrong in (TopicConfig(digest=JCS), TopicConfig(digest=JCS, id_zone="z"), TopicConfig(digest="md5")):
        assert isinstance(log.run(CreateTopic("x", 1, wrong)), NameInvalid)
    assert isinstance(log.run(CreateTopic("x", 1, CONFIG, batch_of(fact()), 1)), ClaimInvalid)
    assert isinstance(log.run(ConfigureTopic("f", changes={"digest": "raw"})), TopicExists)
    assert isinstance(
        log.run(ConfigureTopic("plain", TopicConfig(digest=JCS, id_zone="", dedupe_floor_ms=-1))), Refusal
    )


def test_publish_that_nobody_read_as_facts_is_refused(log: CoreHarness) -> None:
    fence = log.run(OpenApplication("app")).fence  # type: ignore[union-attr]
    stage = log.run(OpenStage("app", fence, content_type="application/json"))
    assert isinstance(stage, StageDone)
    log.run(AppendStage(stage.stage_id, 0, batch_of(fact()), 1, b"d" * 16))
    for item in (
        PublishItem(stage.stage_id, "f", 0, 1),
        PublishItem(stage.stage_id, "f", 0, 1, True, [(0, b"m1", b"d" * 16)]),
    ):
        assert isinstance(log.run(Publish([item], "app", fence, "q", 0)), EnvelopeInvalid)


# --- largest record ------------------------------------------------------------------------------------------------


def test_largest_record_of_a_topic(log: CoreHarness) -> None:
    log.create("small", config=TopicConfig(record_bytes_max=100))
    many = log.run(Columns("small", 0, [b"x" * 100, b"x" * 101, b"y"]))
    assert isinstance(many, Confirmed)
    assert many.exceptions is not None
    assert (many.first, many.next, sorted(many.exceptions)) == (0, 2, [1])
    assert isinstance(log.run(Columns("small", 0, [b"x" * 99], keys=[b"kk"])), Refusal)
    assert isinstance(log.run(Columns("small", 0, [b"x" * 60, b"x" * 60], together=True)), Confirmed)
    assert isinstance(log.append("small", b"x" * 50), Refusal), "of a ready batch, all of it"
    assert isinstance(log.append("small", b"x" * 20), Confirmed)


# --- many ids in one commit ----------------------------------------------------------------------------------------


def many_ids(count: int, first: int = 0, text: bytes = b"v") -> CommitAppend:
    values = [b"%b%d" % (text, number) for number in range(first, first + count)]
    ids = [(n, b"id%d" % (first + n), content_digest(value)) for n, value in enumerate(values)]
    return CommitAppend("plain", 0, codec.encode_values(values, 1), count, ids=ids)


def test_commit_takes_any_number_of_message_ids(log: CoreHarness) -> None:
    done = log.run(Commit([many_ids(1_500), many_ids(3, 1_500)]))
    assert done == CommitConfirmed([6, 0, 1_500, 6, 1_500, 1_503])
    assert log.run(Commit([many_ids(1_500), many_ids(3, 1_500)])) == CommitConfirmed(
        [6, 0, 1_500, 6, 1_500, 1_503], duplicate=True
    )
    assert not log.wrote()
    receipt = log.run(GetReceipt("plain", 0, b"id1501"))
    assert isinstance(receipt, ReceiptFound)
    assert (receipt.first, receipt.next) == (1_501, 1_502)
    alone = log.append("plain", b"v7", message_id=b"id7")
    assert isinstance(alone, Confirmed)
    assert (alone.duplicate, alone.first) == (True, 7)
    log.replay_all()


def test_commit_of_partly_known_ids_is_refused_and_of_other_content_too(log: CoreHarness) -> None:
    log.run(Commit([many_ids(3)]))
    outcome = log.run(Commit([many_ids(2, 5), many_ids(3, 2)]))
    assert outcome == PartlyDuplicate(1, 4, 6, 2, append_number=1)
    outcome = log.run(Commit([many_ids(1, 9), many_ids(1, 2, b"w")]))
    assert isinstance(outcome, IdConflict)
    assert (outcome.offset, outcome.append_number) == (2, 1)


def test_ids_of_records_are_in_order_and_each_once(log: CoreHarness) -> None:
    one = many_ids(3)
    for ids in (
        [one.ids[1], one.ids[0], one.ids[2]],
        [one.ids[0], one.ids[0], one.ids[2]],
        [one.ids[0], (1, *one.ids[0][1:]), one.ids[2]],
        [*one.ids[:2], (3, b"x", b"d" * 16)],
        [*one.ids[:2], (2, b"", b"d" * 16)],
        one.ids[:2],
    ):
        assert isinstance(log.run(Commit([CommitAppend("plain", 0, one.batch, 3, ids=ids)])), ClaimInvalid)
    named = Commit([CommitAppend("plain", 0, one.batch, 3, ids=one.ids[:2])], commit_id="c")
    assert isinstance(log.run(named), CommitConfirmed), "known by its own id, it may leave records without one"
