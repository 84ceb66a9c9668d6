"""The single writer: groups, the gate, waiting, and what happens at the edges of a segment."""

from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from unittest import mock

import msgspec
import pytest

from oncelog import limits
from oncelog.core.command import (
    Append,
    Command,
    CreateTopic,
    DeleteRecords,
    DropStages,
    GetReceipt,
    GetStream,
    Trim,
)
from oncelog.core.flat import Columns, Flat, ProducerClaim
from oncelog.core.outcome import (
    Confirmed,
    IdConflict,
    NoRoom,
    NotFound,
    Overloaded,
    StreamDone,
    TooLarge,
    TopicDone,
    TopicMissing,
)
from oncelog.core.producer import SequenceMode
from oncelog.core.rows import TopicConfig
from oncelog.engine.weight import size_of
from oncelog.testing.sim_disk import lose_all
from oncelog.testing.sim_engine import SimEngine, WatchedDisk
from tests.engine.sim_steps import append, firsts, opened, step


def test_everything_that_arrives_during_a_sync_is_one_group() -> None:
    engine = opened()
    groups = engine.commits.groups_total
    engine.submit(append(b"0"))
    engine.seal()
    later = [engine.submit(append(b"%d" % number)) for number in range(1, 9)]
    assert not engine.seal(), "group n + 1 leaves only after group n is durable"
    step(engine)
    assert engine.seal()
    step(engine)
    assert firsts(later) == list(range(1, 9))
    assert engine.commits.groups_total == groups + 2


@pytest.mark.parametrize(
    "command",
    [
        GetStream("a"),
        GetReceipt("a", 0, b"id"),
        GetReceipt("a", 0, b"unknown"),
        GetStream("missing"),
        append(b"value", id_=b"id"),
        append(b"other value", id_=b"id"),
        append(b"tail", expected_tail=7),
        Trim("a", 0, 0),
        CreateTopic("a"),
    ],
    ids=["query", "receipt", "not found", "missing", "duplicate", "conflict", "condition", "no change", "agreement"],
)
def test_no_answer_of_any_kind_passes_an_entry_that_is_not_durable(command: Command) -> None:
    """No rule decides whether an answer depends on it: all of them wait."""
    engine = opened()
    first = engine.submit(append(b"value", id_=b"id"))
    open_ = engine.submit(command)
    engine.seal()
    in_flight = engine.submit(command)
    assert [pending.outcome for pending in (first, open_, in_flight)] == [None] * 3
    engine.write()
    assert [pending.outcome for pending in (first, open_, in_flight)] == [None] * 3
    engine.written()
    engine.answer()
    assert all(pending.outcome is not None for pending in (first, open_, in_flight))
    assert [pending.needs_entry for pending in (first, open_, in_flight)] == [2, 2, 2]


def test_nothing_is_applied_between_a_group_that_leaves_and_the_note_of_its_changes() -> None:
    """It would be among them, and be shown to readers when that group is durable (P12)."""
    engine = opened()
    engine.submit(append(b"leaves"))
    group = engine.commits.next_group()
    assert group is not None
    with pytest.raises(AssertionError):
        engine.submit(append(b"too early"))
    engine.commits.handed_over(group)
    assert group.changes is not None
    assert [view.tail for view in group.changes.streams.values()] == [1]


def test_an_answer_behind_the_next_group_waits_for_that_one() -> None:
    engine = opened()
    engine.submit(append(b"first"))
    engine.seal()
    second = engine.submit(append(b"second", id_=b"2"))
    duplicate = engine.submit(append(b"second", id_=b"2"))
    conflict = engine.submit(append(b"other", id_=b"2"))
    step(engine)
    assert [pending.outcome for pending in (second, duplicate, conflict)] == [None] * 3
    assert engine.crash(lose_all).contents()["a", 0].tail == 1
    engine.flush()
    assert isinstance(duplicate.outcome, Confirmed)
    assert duplicate.outcome.duplicate
    assert isinstance(conflict.outcome, IdConflict)


def test_without_anything_in_doubt_answers_are_given_at_once() -> None:
    engine = opened()
    assert isinstance(engine.submit(GetStream("a")).outcome, StreamDone)
    assert isinstance(engine.submit(GetStream("b")).outcome, TopicMissing)
    assert isinstance(engine.submit(GetReceipt("a", 0, b"x")).outcome, NotFound)


def test_a_group_ends_where_its_segment_does_and_the_rest_waits_in_order() -> None:
    engine = opened()
    pendings = [engine.submit(append(b"%d" % number * 3000)) for number in range(9)]
    asked = engine.submit(GetStream("a"))
    assert engine.commits.waiting > 0
    engine.flush()
    assert firsts(pendings) == list(range(9))
    assert isinstance(asked.outcome, StreamDone)
    assert asked.outcome.tail == 9, "a query does not overtake commands that wait"
    assert engine.journal.stats.segments > 1
    assert engine.crash(lose_all).contents() == engine.contents()


def test_an_entry_that_no_segment_can_hold_is_refused() -> None:
    engine = opened()
    outcome = engine.execute(append(b"x" * limits.SEGMENT_BYTES_MIN))
    assert isinstance(outcome, TooLarge)
    assert engine.contents()["a", 0].tail == 0
    assert isinstance(engine.execute(append(b"small")), Confirmed)


def test_an_entry_too_large_for_any_segment_is_refused_also_while_a_group_is_open() -> None:
    engine = opened()
    engine.submit(append(b"opens the group"))
    large = engine.submit(append(b"x" * limits.SEGMENT_BYTES_MIN))
    behind = engine.submit(append(b"behind"))
    engine.flush()
    assert isinstance(large.outcome, TooLarge)
    assert isinstance(behind.outcome, Confirmed)


@pytest.mark.from_source
def test_waiting_commands_are_bounded() -> None:
    engine = opened()
    engine.commits.held = True
    with mock.patch.object(limits, "WAITING_BYTES_MAX", 5 * limits.ENTRY_OVERHEAD_BYTES):
        pendings = [engine.submit(append(b"%d" % number)) for number in range(9)]
    overloaded = [pending for pending in pendings if isinstance(pending.outcome, Overloaded)]
    assert 0 < len(overloaded) < 9
    engine.commits.held = False
    engine.flush()
    confirmed = [pending.outcome for pending in pendings if isinstance(pending.outcome, Confirmed)]
    assert [outcome.first for outcome in confirmed] == list(range(9 - len(overloaded)))
    assert engine.contents()["a", 0].tail == len(confirmed)


def test_a_command_that_waits_while_the_index_is_behind_is_decided_when_it_is_taken() -> None:
    engine = opened()
    engine.commits.held = True
    first = engine.submit(append(b"x", expected_tail=0))
    second = engine.submit(append(b"y", expected_tail=0))
    engine.flush()
    assert (first.outcome, second.outcome) == (None, None)
    engine.commits.held = False
    engine.flush()
    assert isinstance(first.outcome, Confirmed)
    assert second.outcome is not None
    assert not isinstance(second.outcome, Confirmed)


def test_a_proof_reveals_and_answers_nothing() -> None:
    engine = opened()
    contents, entry_number = engine.contents(), engine.view.entry_number
    engine.prove()
    assert (engine.contents(), engine.view.entry_number) == (contents, entry_number)
    assert engine.crash(lose_all).contents() == contents


def test_time_of_entries_never_decreases_whatever_the_clock_does() -> None:
    engine = opened()
    times = []
    for ms in (5, -10_000, 3, -1, 20_000):
        engine.clock.advance_ms(ms)
        outcome = engine.execute(append(b"x"))
        assert isinstance(outcome, Confirmed)
        times.append(outcome.time_ns)
    assert times == sorted(times)
    assert engine.crash(lose_all).contents() == engine.contents()


# --- what the index does not have room for -------------------------------------------------------------------------


def test_writes_are_refused_and_all_else_goes_on_while_the_index_has_no_room() -> None:
    engine = opened()
    engine.execute(append(b"x", id_=b"1"))
    engine.commits.held = True
    waiting = engine.submit(append(b"y"))
    assert engine.commits.waiting == 1, "the index is only late"
    engine.commits.index_full = True
    engine.flush()
    assert isinstance(waiting.outcome, NoRoom)
    assert isinstance(engine.execute(append(b"z")), NoRoom)
    assert isinstance(engine.execute(CreateTopic("b")), NoRoom)
    duplicate = engine.execute(append(b"x", id_=b"1"))
    assert isinstance(duplicate, Confirmed)
    assert duplicate.duplicate
    assert isinstance(engine.execute(append(b"other", id_=b"1")), IdConflict)
    assert isinstance(engine.execute(GetStream("a")), StreamDone)
    trimmed = engine.execute(Trim("a", 0, 1))
    assert isinstance(trimmed, StreamDone)
    assert trimmed.floor == 1
    engine.commits.held = engine.commits.index_full = False
    assert isinstance(engine.execute(append(b"y")), Confirmed)


def test_retry_of_a_trimmed_record_needs_no_room_and_a_new_id_does() -> None:
    """The retry would begin the id's memory anew, which takes an entry. An id that nobody knows must be stored, even
    beside a sequence that was written before: told that it is stored, its sender may send it without the sequence."""
    engine = SimEngine(WatchedDisk())
    engine.execute(CreateTopic("a"))
    claim = ProducerClaim("http:p", 0, 0, 0, int(SequenceMode.REQUESTS))
    engine.execute(append(b"x", id_=b"1"))
    engine.execute(msgspec.structs.replace(append(b"y"), claim=claim))
    engine.execute(Trim("a", 0, 1))
    engine.commits.held = engine.commits.index_full = True
    retried = engine.execute(append(b"x", id_=b"1"))
    assert isinstance(retried, Confirmed)
    assert (retried.duplicate, retried.gone, retried.first) == (True, True, 0)
    assert isinstance(engine.execute(msgspec.structs.replace(append(b"y", id_=b"2"), claim=claim)), NoRoom)
    assert isinstance(engine.execute(append(b"x", id_=b"3")), NoRoom)


# --- the short cut past `needs` ------------------------------------------------------------------------------------


def test_a_producer_whose_last_place_is_in_another_stream_gets_that_streams_row_loaded() -> None:
    """1. An id of a zone is known by topic a; topic b gets it again under a sequence, which is used up: its place is in
    a. 2. The index has it all, and a's row leaves memory. 3. a is trimmed by nobody we remember in memory, and the
    floor passes: the producer is forgotten. Only a's row can tell."""
    config = TopicConfig(id_zone="zone")
    engine = SimEngine(WatchedDisk())
    streams = {}
    for name in "ab":
        made = engine.execute(CreateTopic(name, 1, config))
        assert isinstance(made, TopicDone)
        topic = engine.view.topic(name)
        assert topic is not None
        streams[name] = topic.stream_ids[0]
    claim = ProducerClaim("http:p", 0, 0, 0, int(SequenceMode.REQUESTS))
    engine.execute(append(b"x", id_=b"1"))
    known = msgspec.structs.replace(append(b"x", id_=b"1"), topic="b", claim=claim)
    duplicate = engine.execute(known)
    assert isinstance(duplicate, Confirmed)
    assert (duplicate.duplicate, duplicate.stream_id) == (True, streams["a"])
    engine.execute(Trim("a", 0, 1))
    engine.checkpoint()
    engine.clock.advance_ms(config.dedupe_floor_ms + 1)
    del engine.commits.state.streams[streams["a"]]  # as eviction does
    fresh = msgspec.structs.replace(append(b"y"), topic="b", claim=claim)
    first = engine.execute(fresh)
    assert isinstance(first, Confirmed)
    assert (first.duplicate, first.stream_id, first.first) == (False, streams["b"], 0)
    assert streams["a"] in engine.commits.state.streams


def test_append_asks_for_rows_only_when_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SimEngine(WatchedDisk())
    engine.execute(CreateTopic("a"))
    topic = engine.view.topic("a")
    assert topic is not None
    asked: list[object] = []
    load = engine.commits._load

    def loaded(command: Command) -> None:
        asked.append(command)
        load(command)

    monkeypatch.setattr(engine.commits, "_load", loaded)

    def loads_of(command: Append) -> int:
        asked.clear()
        assert isinstance(engine.execute(command), Confirmed)
        return len(asked)

    def claimed(sequence: int) -> Append:
        claim = ProducerClaim("http:p", 0, sequence, sequence, int(SequenceMode.REQUESTS))
        return msgspec.structs.replace(append(b"w"), claim=claim)

    assert loads_of(append(b"u")) == 0
    assert loads_of(append(b"v", id_=b"1")) == 0
    assert loads_of(append(b"v", id_=b"1")) == 1, "a known id leads to rows"
    assert loads_of(claimed(0)) == 1, "nobody has asked for this producer yet"
    assert loads_of(claimed(1)) == 0
    engine.checkpoint()
    del engine.commits.state.streams[topic.stream_ids[0]]  # as eviction does
    assert loads_of(append(b"x")) == 1


def test_row_that_stays_missing_is_a_bug_and_not_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SimEngine(WatchedDisk())
    engine.execute(CreateTopic("a"))
    engine.commits.state.topics.clear()
    monkeypatch.setattr(engine.commits, "_load", lambda _command: None)
    with pytest.raises(KeyError):
        engine.execute(append(b"x"))


# --- the reserve ---------------------------------------------------------------------------------------------------


def in_the_reserve() -> SimEngine:
    """A full disk, and an urgent command that has just opened a group in the last spare."""
    engine = SimEngine(WatchedDisk())
    engine.execute(CreateTopic("a"))
    engine.disk.capacity_bytes = sum(len(file.content) for file in engine.disk._names.values())
    count = 0
    while isinstance(outcome := engine.execute(append(bytes(1_000))), Confirmed):
        count += 1
    assert isinstance(outcome, NoRoom)
    for first in range(count):
        engine.submit(DeleteRecords("a", 0, [first, first + 1]))
        assert engine.commits._open is not None
        if engine.commits._open.open.reserved:
            return engine
        engine.flush()
    raise AssertionError("the reserve was never reached")


def test_ordinary_commands_cannot_join_a_group_in_the_reserve() -> None:
    engine = in_the_reserve()
    tail = engine.contents()["a", 0].tail
    ordinary = engine.submit(append(b"small"))
    urgent = engine.submit(Trim("a", 0, 1))
    engine.flush()
    assert isinstance(ordinary.outcome, NoRoom)
    assert isinstance(urgent.outcome, StreamDone)
    assert engine.contents()["a", 0].tail == tail


def test_ordinary_commands_wait_beside_a_group_in_the_reserve_while_a_spare_is_on_its_way() -> None:
    engine = in_the_reserve()
    tail = engine.contents()["a", 0].tail
    engine.commits.disk_full = False
    ordinary = engine.submit(append(b"small"))
    assert engine.commits.waiting == 1
    assert engine.commits._open is not None
    assert engine.commits._open.entry_count == 1
    engine.disk.capacity_bytes = None
    engine.flush()
    engine.flush()
    assert isinstance(ordinary.outcome, Confirmed)
    assert ordinary.outcome.first == tail


# --- what waits is weighed -----------------------------------------------------------------------------------------


FULL_CLAIM = ProducerClaim("x" * 300, 1, 1, 1, 1, b"x" * 300, True, "x" * 300, True)
FULL: dict[Any, Flat] = {
    ProducerClaim: FULL_CLAIM,
    Columns: Columns(
        "x" * 300,
        1,
        [b"x" * 300] * 3,
        [b"x" * 300] * 3,
        [FULL_CLAIM] * 3,
        [b"x" * 300] * 3,
        "x" * 300,
        keys=[b"x" * 300] * 3,
        headers=[[("x" * 300, b"x" * 300)]] * 3,
        order_keys=["x" * 300] * 3,
        batch_id="x" * 300,
        batch_scope="x" * 300,
        batch_digest=b"x" * 300,
    ),
}
"""Those that do not tell the types of their fields."""


def full_of(kind: Any) -> Any:
    """A value of this type with something in every place that can hold much."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in (str, bytes):
        return kind("x" * 300, *(() if kind is str else ("ascii",)))
    if kind in (int, bool):
        return kind(1)
    if origin in (Union, UnionType):
        return full_of(next(each for each in inner if each is not type(None)))
    if origin is list:
        kinds = get_args(inner[0]) if get_origin(inner[0]) in (Union, UnionType) else inner
        return [full_of(each) for each in kinds] * 10
    if origin is Literal:
        return inner[0]
    if origin is tuple:
        return (full_of(inner[0]),) * 10 if inner[1:] == (...,) else tuple(map(full_of, inner))
    if origin is dict:
        return {full_of(inner[0]): full_of(inner[1])}
    if kind in FULL:
        return FULL[kind]
    assert issubclass(kind, msgspec.Struct), kind
    hints = get_type_hints(kind)
    return kind(**{name: full_of(hints[name]) for name in kind.__struct_fields__})


@pytest.mark.parametrize("kind", get_args(Command))
def test_everything_that_a_waiting_command_carries_is_weighed(kind: type[Command]) -> None:
    """Against its encoding, which holds every text and every item of a list, and is shorter than what is in memory."""
    command = full_of(kind)
    assert size_of(command) >= len(msgspec.msgpack.encode(command, enc_hook=lambda flat: flat.fields())) > 0


@pytest.mark.from_source
def test_commands_of_many_small_things_are_refused_when_too_much_waits() -> None:
    engine = opened()
    engine.commits.held = True
    drop = DropStages(list(range(10_000)))
    with mock.patch.object(limits, "WAITING_BYTES_MAX", 1_000_000):
        pendings = [engine.submit(drop) for _ in range(10)]
    assert any(isinstance(pending.outcome, Overloaded) for pending in pendings)
    engine.commits.held = False
    engine.flush()
    assert all(pending.outcome is not None for pending in pendings)
    assert engine.commits._waiting_bytes == 0
