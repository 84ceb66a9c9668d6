"""The first door: a group's changes appear at once, when it is durable; dropping what the index has changes nothing."""

from unittest import mock

import pytest

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import (
    AddPartitions,
    Append,
    Commit,
    CommitAppend,
    CreateTopic,
    DeleteRecords,
    DeleteTopic,
    GetTopic,
)
from oncelog.core.outcome import TopicFound
from oncelog.core.rows import Key, Table
from oncelog.core.state import Row, State
from oncelog.engine.read_view import ReadView, ViewChanges, take_changes
from oncelog.engine.reader import ReadPlan
from oncelog.testing.sim_engine import SimEngine, WatchedDisk
from tests.crash.sim_explorer import nothing_cached


def engine_with(*topics: str, segment_bytes: int = limits.SEGMENT_BYTES_MIN) -> SimEngine:
    engine = SimEngine(WatchedDisk(), segment_bytes=segment_bytes)
    for topic in topics:
        engine.execute(CreateTopic(topic))
    return engine


def append(topic: str, *values: bytes) -> Append:
    return Append(topic, 0, codec.encode_values(values, 1), len(values))


def tails(engine: SimEngine) -> dict[str, int]:
    return {topic: content.tail for (topic, _), content in engine.contents().items()}


def test_a_group_is_revealed_whole_and_only_when_it_is_durable() -> None:
    engine = engine_with("a", "b")
    appends = [CommitAppend(topic, 0, codec.encode_values([b"x"], 1), 1) for topic in "ab"]
    engine.submit(Commit(appends))
    engine.submit(CreateTopic("c"))
    before = {"a": 0, "b": 0}
    assert tails(engine) == before
    engine.seal()
    assert tails(engine) == before
    engine.write()
    assert tails(engine) == before
    engine.written()
    assert tails(engine) == {"a": 1, "b": 1, "c": 0}


def test_entries_that_arrive_while_a_group_is_in_flight_are_not_revealed_with_it() -> None:
    engine = engine_with("a")
    engine.submit(append("a", b"first"))
    engine.seal()
    engine.submit(append("a", b"second"))
    engine.submit(DeleteTopic("a"))
    engine.write()
    engine.written()
    assert engine.contents()["a", 0].records == ((0, b"first"),)
    engine.flush()
    assert engine.contents() == {}


def test_rows_that_the_index_has_are_dropped_and_read_the_same_from_there() -> None:
    with nothing_cached():
        engine = engine_with("a", "b")
        engine.execute(append("a", b"0", b"1", b"2"))
        engine.execute(DeleteRecords("a", 0, [1, 2]))
        contents = engine.contents()
        assert engine.view.streams
        assert engine.view.holes
        engine.checkpoint()
        assert (engine.view.streams, engine.view.topics, engine.view.holes) == ({}, {}, {})
        assert engine.contents() == contents
        engine.execute(append("b", b"newer"))
        assert set(engine.view.streams) == {engine.view.topic("b").stream_ids[0]}  # type: ignore[union-attr]


def test_a_row_changed_while_the_index_was_being_built_stays() -> None:
    engine = engine_with("a")
    engine.builds_at_once = False
    engine.checkpoint()
    engine.execute(append("a", b"newer than the checkpoint"))
    engine.build()
    assert engine.contents()["a", 0].tail == 1


def test_a_deleted_topic_is_not_found_though_the_index_still_has_it() -> None:
    engine = engine_with("a")
    engine.checkpoint()
    topic = engine.view.topic("a")
    assert topic is not None
    engine.execute(DeleteTopic("a"))
    assert engine.view.topic("a") is None
    assert engine.view.stream(topic.stream_ids[0]) is None
    engine.checkpoint()
    assert engine.view.topic("a") is None
    assert engine.view.stream(topic.stream_ids[0]) is None


def test_first_live_steps_over_holes_also_across_chunks_and_stops_at_stable() -> None:
    engine = engine_with("a", segment_bytes=limits.MIB)
    engine.execute(Append("a", 0, codec.encode_values([b"x"] * 4100, 1), 4100))
    engine.execute(DeleteRecords("a", 0, [10, 20, 20, 4098]))
    topic = engine.view.topic("a")
    assert topic is not None
    stream = engine.view.stream(topic.stream_ids[0])
    assert stream is not None
    first_live = engine.view.first_live
    assert [first_live(stream, offset) for offset in (9, 10, 19, 4096, 4098)] == [9, 4098, 4098, 4098, 4098]
    engine.execute(DeleteRecords("a", 0, [4098, 4100]))
    stream = engine.view.stream(topic.stream_ids[0])
    assert stream is not None
    assert engine.view.first_live(stream, 10) == 4100


def test_what_waits_at_the_gate_does_not_change_there() -> None:
    """A query is decided, and its answer waits for its group; entries of the next group must not show in it."""
    engine = engine_with("a")
    engine.submit(append("a", b"x"))
    pending = engine.submit(GetTopic("a"))
    engine.seal()
    engine.submit(AddPartitions("a", 3))
    topic_in_view = engine.view.topic("a")
    assert topic_in_view is not None
    assert len(topic_in_view.stream_ids) == 1
    engine.write()
    engine.written()
    engine.answer()
    assert isinstance(pending.outcome, TopicFound)
    assert len(pending.outcome.topic.stream_ids) == 1
    engine.flush()
    assert len(engine.contents()) == 3


@pytest.mark.from_source
def test_holes_are_neither_copied_by_every_group_nor_decoded_for_every_batch() -> None:
    """A queue that deletes its records one by one, in a chunk that has 1,000 holes already."""
    engine = engine_with("a", segment_bytes=limits.MIB)
    for _ in range(40):
        engine.execute(append("a", *[b"x"] * 50))
    every_second = [offset for first in range(0, 2_000, 2) for offset in (first, first + 1)]
    engine.execute(DeleteRecords("a", 0, every_second))
    taken: list[int] = []

    def take(state: State, view: ReadView) -> ViewChanges:
        changes = take_changes(state, view)
        taken.extend(len(change.holes) for change in changes.holes.values())
        return changes

    with mock.patch("oncelog.engine.commit_loop.take_changes", take):
        for offset in range(1, 200, 2):
            engine.execute(DeleteRecords("a", 0, [offset, offset + 1]))
    assert taken == [4] * 100, "only what was added"

    engine.checkpoint()
    looked_up: list[object] = []
    get = engine.index.get

    def counted(table: Table, key: Key) -> Row | None:
        looked_up.append(table)
        return get(table, key)

    with mock.patch.object(engine.index, "get", counted):
        topic = engine.view.topic("a")
        assert topic is not None
        stream = engine.view.stream(topic.stream_ids[0])
        assert stream is not None
        plan = engine.reader.plan(stream, 0, limits.MIB)
    assert isinstance(plan, ReadPlan)
    assert len(plan.parts) == 36
    assert looked_up.count(Table.HOLES) == 1
    assert [offset for offset, _ in engine.contents()["a", 0].records] == list(range(201, 2_000, 2))


def test_a_deletion_is_hidden_until_it_is_durable_in_a_chunk_that_readers_see_already() -> None:
    engine = engine_with("a")
    engine.execute(append("a", b"0", b"1", b"2"))
    engine.execute(DeleteRecords("a", 0, [0, 1]))
    engine.submit(DeleteRecords("a", 0, [2, 3]))
    engine.seal()
    engine.submit(DeleteRecords("a", 0, [1, 2]))
    engine.write()
    assert engine.contents()["a", 0].records == ((1, b"1"), (2, b"2"))
    engine.written()
    assert engine.contents()["a", 0].records == ((1, b"1"),)
    engine.flush()
    assert engine.contents()["a", 0].records == ()
