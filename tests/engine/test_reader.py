"""Reads: plans from the view and the places, batches checked and without what is dead."""

import pytest

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import (
    AddToTxn,
    Append,
    AppendStage,
    CreateTopic,
    DeleteRecords,
    EndTxn,
    InitProducer,
    OpenApplication,
    OpenStage,
    Publish,
    PublishItem,
    Trim,
)
from oncelog.core.flat import ProducerClaim
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import OffsetAhead, OffsetGone, Refusal, StageDone, TxnDone
from oncelog.core.producer import SequenceMode
from oncelog.engine.read_view import StreamView
from oncelog.engine.reader import ReadPlan, Way
from oncelog.errors import Corruption
from oncelog.testing.sim_disk import SECTOR_BYTES
from oncelog.testing.sim_engine import SimEngine, WatchedDisk
from tests.crash.sim_explorer import nothing_cached


def opened() -> SimEngine:
    engine = SimEngine(WatchedDisk())
    engine.execute(CreateTopic("a"))
    return engine


def append(engine: SimEngine, *values: bytes) -> None:
    engine.execute(Append("a", 0, codec.encode_values(values, 1), len(values)))


def stream_of(engine: SimEngine) -> StreamView:
    topic = engine.view.topic("a")
    assert topic is not None
    stream = engine.view.stream(topic.stream_ids[0])
    assert stream is not None
    return stream


def plan(engine: SimEngine, offset: int, bytes_max: int = limits.MIB, *, uncommitted: bool = False) -> ReadPlan:
    found = engine.reader.plan(stream_of(engine), offset, bytes_max, Way.UNCOMMITTED if uncommitted else Way.COMMITTED)
    assert not isinstance(found, Refusal)
    return found


def values(engine: SimEngine, found: ReadPlan) -> list[tuple[int, bytes | None]]:
    return [
        (base_offset + delta, value)
        for base_offset, batch in engine.reader.fetch_parts(found.parts)
        for delta, _, _, value, _ in codec.decode(batch)
    ]


def test_what_was_trimmed_in_the_middle_of_a_batch_reaches_nobody() -> None:
    engine = opened()
    append(engine, b"0", b"1", b"2", b"3")
    append(engine, b"4")
    engine.execute(DeleteRecords("a", 0, [1, 3]))
    engine.execute(Trim("a", 0, 2))
    for uncommitted in (False, True):
        assert values(engine, plan(engine, 3, uncommitted=uncommitted)) == [(3, b"3"), (4, b"4")]


def test_batches_that_lie_together_are_read_in_one_go_and_apart_alone() -> None:
    engine = opened()
    engine.execute(CreateTopic("b"))
    for number in range(40):
        append(engine, b"%d" % number)
        if number % 10 == 5:
            big = codec.encode_one(bytes(limits.READ_GAP_BYTES + 1), 1)
            engine.execute(Append("b", 0, big, 1))
    found = plan(engine, 0)
    assert values(engine, found) == [(number, b"%d" % number) for number in range(40)]
    places = [(part.group, part.at, part.length) for part in found.parts]
    journal = engine.commits._journal
    assert journal.read_many(places) == [journal.read(*place) for place in places]


def test_a_read_takes_whole_batches_up_to_its_bytes_and_at_least_one() -> None:
    engine = opened()
    for number in range(5):
        append(engine, b"%d" % number * 100)
    one = plan(engine, 1, bytes_max=1)
    assert (len(one.parts), one.next_offset) == (1, 2)
    size = one.parts[0].length
    two = plan(engine, 1, bytes_max=2 * size)
    assert (len(two.parts), two.next_offset) == (2, 3)
    assert plan(engine, 5).next_offset == 5


def test_reads_below_the_floor_and_beyond_the_end_are_refused_with_the_numbers() -> None:
    engine = opened()
    append(engine, b"0", b"1", b"2")
    engine.execute(Trim("a", 0, 2))
    stream = stream_of(engine)
    gone = engine.reader.plan(stream, 1, 100)
    assert isinstance(gone, OffsetGone)
    assert gone.floor == 2
    ahead = engine.reader.plan(stream, 4, 100)
    assert isinstance(ahead, OffsetAhead)
    assert ahead.limit == 3


def test_deleted_records_are_left_out_and_offsets_kept() -> None:
    engine = opened()
    append(engine, b"0", b"1", b"2", b"3")
    append(engine, b"4", b"5")
    append(engine, b"6")
    engine.execute(DeleteRecords("a", 0, [1, 2, 2, 3, 4, 6]))
    found = plan(engine, 0)
    assert [part.dead for part in found.parts] == [((1, 3),), ()]
    assert values(engine, found) == [(0, b"0"), (3, b"3"), (6, b"6")]
    assert plan(engine, 4).next_offset == 7


def open_txn(engine: SimEngine, value: bytes) -> TxnDone:
    producer = engine.execute(InitProducer("t"))
    assert isinstance(producer, TxnDone)
    engine.execute(AddToTxn("t", producer.producer_id, producer.epoch, [("a", 0)]))
    claim = ProducerClaim(f"kafka:{producer.producer_id}", producer.epoch, 0, 0, int(SequenceMode.RECORDS))
    engine.execute(Append("a", 0, codec.encode_values([value], 1), 1, claim=claim, txn_id="t"))
    return producer


@pytest.mark.parametrize("commit", [True, False])
def test_read_committed_stops_at_an_open_txn_and_read_uncommitted_does_not(commit: bool) -> None:
    engine = opened()
    append(engine, b"before")
    producer = open_txn(engine, b"open")
    append(engine, b"behind")
    found = plan(engine, 0)
    assert values(engine, found) == [(0, b"before")]
    assert found.next_offset == 1
    assert isinstance(engine.reader.plan(stream_of(engine), 2, 100), OffsetAhead)
    uncommitted = plan(engine, 0, uncommitted=True)
    assert values(engine, uncommitted) == [(0, b"before"), (1, b"open"), (2, b"behind")]
    engine.execute(EndTxn("t", producer.producer_id, producer.epoch, commit))
    found = plan(engine, 0)
    records = [(0, b"before"), (1, b"open"), (2, b"behind")]
    assert values(engine, found) == (records if commit else [records[0], records[2]])
    assert found.next_offset == 4, "the marker at the end is passed"


def test_a_published_stage_is_read_through_its_link_also_from_the_middle_and_from_the_index() -> None:
    with nothing_cached():
        engine = opened()
        append(engine, b"before")
        engine.execute(OpenApplication("app"))
        stage = engine.execute(OpenStage("app", 1))
        assert isinstance(stage, StageDone)
        for number in range(3):
            value = b"staged %d" % number
            engine.execute(
                AppendStage(stage.stage_id, number, codec.encode_values([value], 1), 1, content_digest(value))
            )
        assert stream_of(engine).tail == 1, "a stage is invisible"
        engine.execute(Publish([PublishItem(stage.stage_id, "a", 0, 3)], "app", 1, "q", 0))
        append(engine, b"after")
        expected = [(1, b"staged 0"), (2, b"staged 1"), (3, b"staged 2"), (4, b"after")]
        for _ in range(2):
            assert values(engine, plan(engine, 1)) == expected
            assert values(engine, plan(engine, 3)) == expected[2:]
            engine.checkpoint()


def test_a_plan_sees_nothing_that_came_after_it() -> None:
    engine = opened()
    append(engine, b"0")
    stream = stream_of(engine)
    append(engine, b"1")
    found = engine.reader.plan(stream, 0, limits.MIB)
    assert isinstance(found, ReadPlan)
    assert values(engine, found) == [(0, b"0")]
    assert found.next_offset == 1


def test_a_damaged_batch_is_named_and_never_served() -> None:
    engine = opened()
    append(engine, b"intact")
    append(engine, b"x" * 2000)
    engine.disk.flip("segment-000000000000", engine.journal._position - SECTOR_BYTES - 700, 1)
    assert values(engine, plan(engine, 0, bytes_max=1)) == [(0, b"intact")]
    with pytest.raises(Corruption) as raised:
        engine.reader.fetch(plan(engine, 1))
    assert "offset 1" in str(raised.value)
    assert raised.value.position >= 0


def test_a_read_ends_before_a_damaged_batch_and_the_next_one_names_it() -> None:
    """What lies before the damage can still be read, however much one read brings."""
    engine = opened()
    append(engine, b"first")
    append(engine, b"second")
    append(engine, b"x" * 2000)
    engine.disk.flip("segment-000000000000", engine.journal._position - SECTOR_BYTES - 700, 1)
    batches, next_offset = engine.reader.fetch(plan(engine, 0))
    assert [codec.decode_values(batch) for _, batch in batches] == [[b"first"], [b"second"]]
    assert next_offset == 2
    with pytest.raises(Corruption, match="offset 2"):
        engine.reader.fetch(plan(engine, next_offset))


def test_more_batches_than_one_look_up_returns() -> None:
    engine = opened()
    for number in range(150):
        engine.submit(Append("a", 0, codec.encode_values([b"%d" % number], 1), 1))
    engine.flush()
    expected = [(number, b"%d" % number) for number in range(150)]
    assert values(engine, plan(engine, 0)) == expected
    engine.checkpoint()
    append(engine, b"150")
    assert values(engine, plan(engine, 0)) == [*expected, (150, b"150")], "index first, then memory"


def test_uncommitted_reads_hide_deleted_records_and_nothing_else() -> None:
    engine = opened()
    append(engine, b"0", b"1", b"2")
    producer = open_txn(engine, b"aborted")
    append(engine, b"4")
    append(engine, b"5", b"6")
    engine.execute(EndTxn("t", producer.producer_id, producer.epoch, commit=False))
    append(engine, b"8")
    engine.execute(DeleteRecords("a", 0, [1, 2, 4, 5, 6, 7]))
    for _ in range(2):
        found = plan(engine, 0, uncommitted=True)
        records = values(engine, found)
        assert [(offset, value) for offset, value in records if offset != 7] == [
            (0, b"0"),
            (2, b"2"),
            (3, b"aborted"),
            (5, b"5"),
            (8, b"8"),
        ]
        assert [offset for offset, _ in records] == [0, 2, 3, 5, 7, 8], "the marker is shown too"
        assert found.next_offset == 9
        assert values(engine, plan(engine, 0)) == [(0, b"0"), (2, b"2"), (5, b"5"), (8, b"8")]
        engine.checkpoint()


def test_a_deleted_record_of_an_aborted_txn_is_shown_to_nobody() -> None:
    engine = opened()
    producer = open_txn(engine, b"aborted")
    append(engine, b"1")
    engine.execute(EndTxn("t", producer.producer_id, producer.epoch, commit=False))
    assert [offset for offset, _ in values(engine, plan(engine, 0, uncommitted=True))] == [0, 1, 2]
    engine.execute(DeleteRecords("a", 0, [0, 1]))
    for _ in range(2):
        assert [offset for offset, _ in values(engine, plan(engine, 0, uncommitted=True))] == [1, 2]
        assert stream_of(engine).hole_count == 2, "the record and the marker, each counted once"
        engine.checkpoint()


def test_uncommitted_reads_pass_deleted_records_at_the_end() -> None:
    engine = opened()
    append(engine, b"0")
    append(engine, b"1", b"2")
    engine.execute(DeleteRecords("a", 0, [1, 3]))
    found = plan(engine, 0, uncommitted=True)
    assert values(engine, found) == [(0, b"0")]
    assert found.next_offset == 3
    assert plan(engine, 1, uncommitted=True).parts == []


def test_places_that_cannot_be_read_end_a_read_before_them_and_are_told_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = opened()
    for number in range(6):
        append(engine, b"%d" % number)
    engine.checkpoint()
    places_from = engine.index.places_from

    def damaged(extent: int, offset: int, limit: int) -> list[bytes]:
        if offset >= 4:
            raise Corruption("a value of the index does not match its checksum")
        return places_from(extent, offset, min(limit, 4 - offset))

    monkeypatch.setattr(engine.index, "places_from", damaged)
    found = plan(engine, 1)
    assert values(engine, found) == [(1, b"1"), (2, b"2"), (3, b"3")]
    assert found.next_offset == 4
    with pytest.raises(Corruption):
        plan(engine, 4)
