"""Consumers: settings, a gate, deliveries that wait to be confirmed; stored as what changed, never as the whole row."""

import pytest

from oncelog import limits
from oncelog.core.command import (
    CommitOffsets,
    ConfirmCursor,
    ConsumerUpdate,
    CursorMove,
    DeleteConsumer,
    DeleteRecords,
    DeleteTopic,
    GetCursor,
    MoveCursors,
    SetConsumer,
    Trim,
    UpdateConsumers,
)
from oncelog.core.consumer_row import folded, holds, union
from oncelog.core.entry import Compound, ConsumerChanged, ConsumerSet
from oncelog.core.outcome import (
    ClaimInvalid,
    CommitConfirmed,
    ConsumerExists,
    ConsumerPlace,
    ConsumersUpdated,
    CursorDone,
    CursorPinned,
    NameInvalid,
    NotFound,
    OffsetAhead,
    Refusal,
    TooLarge,
    TopicMissing,
)
from oncelog.core.rows import Cursor
from oncelog.testing.core_harness import CoreHarness

NAME = "nats:d"


@pytest.fixture(params=["rows dropped before every command", "rows kept"])
def log(request: pytest.FixtureRequest) -> CoreHarness:
    harness = CoreHarness()
    harness.keep_loaded = request.param == "rows kept"
    harness.create("a")  # stream 2
    harness.create("b")  # stream 4
    harness.append("a", *[b"%d" % number for number in range(10)])
    return harness


def made(log: CoreHarness, name: str = NAME, **settings: object) -> Cursor:
    outcome = log.run(SetConsumer(name, "a", **settings))  # type: ignore[arg-type]
    assert isinstance(outcome, CursorDone), outcome
    assert outcome.cursor is not None
    return outcome.cursor


def row(log: CoreHarness, name: str = NAME, topic: str = "a") -> Cursor:
    outcome = log.run(GetCursor(name, topic, 0))
    assert isinstance(outcome, CursorDone), outcome
    assert outcome.cursor is not None
    return outcome.cursor


def update(log: CoreHarness, *updates: ConsumerUpdate) -> list[ConsumerPlace | Refusal]:
    outcome = log.run(UpdateConsumers(list(updates)))
    assert isinstance(outcome, ConsumersUpdated), outcome
    return outcome.answers


def stored(log: CoreHarness) -> list[object]:
    assert isinstance(log.last_entry, Compound)
    return list(log.last_entry.operations)


# --- settings ------------------------------------------------------------------------------------------------------


def test_consumer_is_made_where_it_is_to_begin_and_keeps_its_settings(log: CoreHarness) -> None:
    cursor = made(log, config=b"{}", gate="open", metadata="note", pinned=True, start=4)
    assert (cursor.frontier, cursor.delivered, cursor.config, cursor.gate) == (4, 4, b"{}", "open")
    assert (cursor.metadata, cursor.pinned, cursor.created_ns) == ("note", True, log.now_ns)
    assert stored(log) == [ConsumerSet(NAME, 2, 4, b"{}", "open", "note", True)]
    assert row(log) == cursor
    assert log.run(Trim("a", 0, 5)) == CursorPinned(NAME, 4, 5)
    log.replay_all()


def test_a_change_of_settings_leaves_place_and_other_settings_alone(log: CoreHarness) -> None:
    made(log, config=b"1", start=4)
    update(log, ConsumerUpdate(NAME, "a", 0, [4, 5], [6, 1, 99, 1]))
    log.pass_ms(5)
    cursor = made(log, gate="closed", start=9)
    assert (cursor.frontier, cursor.config, cursor.gate, cursor.waiting) == (5, b"1", "closed", {6: (1, 99, 1)})
    made(log, gate="closed")
    assert not log.wrote(), "the same again changes nothing"


def test_create_agrees_with_the_same_and_refuses_another(log: CoreHarness) -> None:
    made(log, config=b"1", how="create")
    assert made(log, config=b"1", how="create", start=5).frontier == 0
    assert not log.wrote()
    assert log.run(SetConsumer(NAME, "a", 0, b"2", how="create")) == ConsumerExists(NAME)
    assert made(log, config=b"2", how="update").config == b"2"
    assert log.run(SetConsumer("nats:other", "a", how="update")) == NotFound("consumer")


def test_consumer_of_no_stream(log: CoreHarness) -> None:
    """As a Kafka group has one: its generation outlives a restart."""
    assert log.run(SetConsumer("kafka:g", config=b"generation 7")) == log.run(GetCursor("kafka:g", "", 0))
    assert row(log, "kafka:g", "").config == b"generation 7"
    assert isinstance(update(log, ConsumerUpdate("kafka:g", ""))[0], ClaimInvalid)
    log.run(CommitOffsets([CursorMove("kafka:g", "a", 0, 99), CursorMove("kafka:g", "b", 0, 1)]))
    both = [("a", 0), ("b", 0), ("", 0), ("a", 0), ("no", 0)]
    assert log.run(DeleteConsumer("kafka:g", both)) == CommitConfirmed([])
    assert len(stored(log)) == 3
    assert [log.run(GetCursor("kafka:g", topic, 0)) for topic in ("a", "b", "")] == [CursorDone(None)] * 3
    log.run(DeleteConsumer("kafka:g", both))
    assert not log.wrote()
    log.replay_all()


def test_settings_have_bounds(log: CoreHarness) -> None:
    assert isinstance(log.run(SetConsumer(NAME, "a", 0, b"x" * (limits.CONSUMER_CONFIG_BYTES_MAX + 1))), TooLarge)
    assert isinstance(log.run(SetConsumer(NAME, "a", gate="g" * 65)), TooLarge)
    assert isinstance(log.run(SetConsumer("", "a")), NameInvalid)
    assert log.run(SetConsumer(NAME, "no")) == TopicMissing("no")
    assert log.run(SetConsumer(NAME, "a", start=11)) == OffsetAhead(2, 11, 10)


# --- deliveries and confirms ---------------------------------------------------------------------------------------


def test_what_was_delivered_waits_until_it_is_confirmed(log: CoreHarness) -> None:
    made(log)
    assert update(log, ConsumerUpdate(NAME, "a", 0, [], [0, 1, 50, 1, 1, 1, 50, 2, 2, 1, 50, 3])) == [
        ConsumerPlace(0, 3, 3, 0)
    ]
    assert stored(log) == [ConsumerChanged(NAME, 2, 0, [], False, 3, 3, [0, 1, 50, 1, 1, 1, 50, 2, 2, 1, 50, 3])]
    assert update(log, ConsumerUpdate(NAME, "a", 0, [1, 2])) == [ConsumerPlace(0, 3, 2, 1)]
    assert stored(log) == [ConsumerChanged(NAME, 2, 0, [1, 2], False, 3, 3)]
    assert update(log, ConsumerUpdate(NAME, "a", 0, [0, 1])) == [ConsumerPlace(2, 3, 1, 0)]
    assert row(log).waiting == {2: (1, 50, 3)}
    log.replay_all()


def test_second_delivery_replaces_count_deadline_and_number(log: CoreHarness) -> None:
    made(log)
    update(log, ConsumerUpdate(NAME, "a", 0, [], [0, 1, 50, 1]))
    update(log, ConsumerUpdate(NAME, "a", 0, [], [0, 2, 90, 7]))
    assert (row(log).waiting, row(log).sequence) == ({0: (2, 90, 7)}, 7)
    update(log, ConsumerUpdate(NAME, "a", 0, [], [0, 0, 0, 0]))
    assert (row(log).waiting, row(log).frontier) == ({}, 0), "it waits no more and is not confirmed"


def test_delivery_of_what_is_confirmed_waits_for_nothing(log: CoreHarness) -> None:
    made(log)
    update(log, ConsumerUpdate(NAME, "a", 0, [0, 2, 4, 5], [1, 1, 9, 1, 3, 1, 9, 2, 4, 1, 9, 3]))
    assert row(log).waiting == {3: (1, 9, 2)}


def test_updates_of_one_read_are_answered_in_turn_and_stored_as_one_change(log: CoreHarness) -> None:
    made(log)
    made(log, "nats:e")
    answers = update(
        log,
        ConsumerUpdate(NAME, "a", 0, [], [0, 1, 9, 1, 1, 1, 9, 2]),
        ConsumerUpdate("nats:e", "a", 0, [0, 10]),
        ConsumerUpdate(NAME, "a", 0, [1, 2]),
        ConsumerUpdate("nats:nobody", "a", 0, [1, 2]),
        ConsumerUpdate(NAME, "a", 0, [0, 11]),
        ConsumerUpdate(NAME, "a", 0, [0, 1]),
        ConsumerUpdate(NAME, "no", 0, [0, 1]),
        ConsumerUpdate("\0", "a", 0, [0, 1]),
    )
    assert answers[:4] == [
        ConsumerPlace(0, 2, 2, 0),
        ConsumerPlace(10, 10, 0, 0),
        ConsumerPlace(0, 2, 1, 1),
        NotFound("consumer"),
    ]
    assert answers[4:7] == [OffsetAhead(2, 11, 10), ConsumerPlace(2, 2, 0, 0), TopicMissing("no")]
    assert isinstance(answers[7], NameInvalid)
    assert len(stored(log)) == 2
    log.replay_all()


def test_update_that_changes_nothing_is_not_stored(log: CoreHarness) -> None:
    made(log, start=3)
    assert update(log, ConsumerUpdate(NAME, "a", 0, [0, 3], [1, 1, 1, 0]))[0] == ConsumerPlace(3, 3, 0, 0)
    assert not log.wrote()


def test_nothing_is_delivered_that_readers_may_not_see(log: CoreHarness) -> None:
    made(log)
    assert update(log, ConsumerUpdate(NAME, "a", 0, [], [10, 1, 9, 1])) == [OffsetAhead(2, 10, 10)]
    assert update(log, ConsumerUpdate(NAME, "a", 0, [], [], 11)) == [OffsetAhead(2, 10, 10)]
    assert isinstance(update(log, ConsumerUpdate(NAME, "a", 0, [], [1, 1, 9]))[0], ClaimInvalid)
    assert isinstance(update(log, ConsumerUpdate(NAME, "a", 0, [], [1, -1, 9, 1]))[0], TooLarge)
    assert isinstance(update(log, ConsumerUpdate(NAME, "a", 0, [5, 4]))[0], ClaimInvalid)


def test_holes_are_stepped_over_also_between_updates_of_one_command(log: CoreHarness) -> None:
    log.append("a", *[b"x"] * 9_000)
    log.run(DeleteRecords("a", 0, [3, 8_000]))
    made(log)
    answers = update(log, ConsumerUpdate(NAME, "a", 0, [0, 2]), ConsumerUpdate(NAME, "a", 0, [2, 3, 8_100, 8_101]))
    assert answers == [ConsumerPlace(2, 2, 0, 0), ConsumerPlace(8_000, 8_000, 0, 1)]
    log.replay_all()


def test_waiting_records_have_a_bound(log: CoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONSUMER_WAITING_MAX", 2)
    made(log)
    one, two, three = ([at, 1, 9, at + 1] for at in range(3))
    assert update(log, ConsumerUpdate(NAME, "a", 0, [], one + two)) == [ConsumerPlace(0, 2, 2, 0)]
    assert update(log, ConsumerUpdate(NAME, "a", 0, [], three)) == [TooLarge("records that wait to be confirmed", 2, 3)]
    assert update(log, ConsumerUpdate(NAME, "a", 0, [0, 1], three)) == [ConsumerPlace(1, 3, 2, 0)]


def test_a_move_begins_anew_from_its_place(log: CoreHarness) -> None:
    made(log, config=b"{}", gate="closed")
    update(log, ConsumerUpdate(NAME, "a", 0, [3, 4], [5, 1, 9, 1]))
    log.run(MoveCursors([CursorMove(NAME, "a", 0, 2)]))
    cursor = row(log)
    assert (cursor.frontier, cursor.delivered, cursor.confirmed, cursor.waiting) == (2, 2, [], {})
    assert (cursor.config, cursor.gate, cursor.sequence) == (b"{}", "closed", 1)


def test_confirm_stores_only_what_is_new(log: CoreHarness) -> None:
    for at in (2, 4, 6):
        log.run(ConfirmCursor("c", "a", 0, [at, at + 1]))
    assert stored(log) == [ConsumerChanged("c", 2, 0, [6, 7])]
    log.run(ConfirmCursor("c", "a", 0, [3, 4]))
    assert stored(log) == [ConsumerChanged("c", 2, 0, [2, 5])]
    assert row(log, "c").confirmed == [2, 5, 6, 7]
    log.replay_all()


def test_consumer_of_a_deleted_topic_is_gone_with_it(log: CoreHarness) -> None:
    made(log)
    log.run(DeleteTopic("a"))
    assert update(log, ConsumerUpdate(NAME, "a", 0, [0, 1])) == [TopicMissing("a")]
    log.replay_all()


# --- the row -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frontier", range(9))
def test_union_is_that_of_the_offsets(frontier: int) -> None:
    one, other = [2, 4, 6, 7], [3, 5, 7, 9]
    expected = {2, 3, 4, 6, 7, 8}
    merged = union(frontier, one, other)
    if frontier < 2:
        assert merged == [2, 5, 6, 9]
    offsets = {offset for first, next_ in zip(merged[::2], merged[1::2], strict=True) for offset in range(first, next_)}
    assert {offset for offset in offsets if offset >= frontier} == {offset for offset in expected if offset >= frontier}
    assert [holds([2, 5, 6, 9], offset) for offset in range(10)] == [offset in expected for offset in range(10)]


def test_two_changes_as_one_lead_to_the_same_row() -> None:
    one = ConsumerChanged("c", 2, 1, [3, 5], False, 6, 3, [2, 1, 9, 3])
    two = ConsumerChanged("c", 2, 2, [5, 6], True, 5, 4, [2, 2, 9, 4, 7, 0, 0, 0])
    assert folded(one, two) == ConsumerChanged("c", 2, 2, [3, 6], True, 6, 4, [2, 1, 9, 3, 2, 2, 9, 4, 7, 0, 0, 0])
