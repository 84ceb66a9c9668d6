"""P7: an abandoned txn or stage ends by itself, within its timeout and one look of the timer, also after a restart."""

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import (
    AddToTxn,
    Append,
    AppendStage,
    CreateTopic,
    DropStages,
    EndTxn,
    ExpireStages,
    ExpireTxn,
    InitProducer,
    OpenStage,
)
from oncelog.core.flat import ProducerClaim
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import NoRoom, Refusal, StageDone, StageMissing, TooLarge, TxnDone
from oncelog.core.producer import SequenceMode
from oncelog.core.txn import NS_PER_MS, TxnTimeouts
from oncelog.engine.timers import Deadlines
from oncelog.testing.sim_disk import lose_all
from oncelog.testing.sim_engine import IndexAfterCrash, SimEngine, WatchedDisk

TIMEOUT_MS = 10_000


def opened() -> SimEngine:
    engine = SimEngine(WatchedDisk())
    engine.execute(CreateTopic("a"))
    return engine


def begin(engine: SimEngine) -> TxnDone:
    producer = engine.execute(InitProducer("t", TIMEOUT_MS))
    assert isinstance(producer, TxnDone)
    engine.execute(AddToTxn("t", producer.producer_id, producer.epoch, [("a", 0)]))
    claim = ProducerClaim(f"kafka:{producer.producer_id}", producer.epoch, 0, 0, int(SequenceMode.RECORDS))
    engine.execute(Append("a", 0, codec.encode_values([b"open"], 1), 1, claim=claim, txn_id="t"))
    assert held_back(engine)
    return producer


def held_back(engine: SimEngine) -> bool:
    stream = engine.contents()["a", 0]
    return stream.stable < stream.tail


def open_stage(engine: SimEngine, ttl_ms: int = TIMEOUT_MS) -> int:
    stage = engine.execute(OpenStage(ttl_ms=ttl_ms))
    assert isinstance(stage, StageDone)
    return stage.stage_id


def append_stage(engine: SimEngine, stage_id: int, at: int) -> object:
    batch = codec.encode_values([b"x"], 1)
    return engine.execute(AppendStage(stage_id, at, batch, 1, content_digest(b"x%d" % at)))


def stage_is_there(engine: SimEngine, stage_id: int) -> bool:
    return (5, stage_id.to_bytes(8, "big")) in engine.image().rows


@pytest.mark.parametrize("fate", [None, *IndexAfterCrash])
def test_an_abandoned_txn_is_aborted_when_its_time_is_up(fate: IndexAfterCrash | None) -> None:
    engine = opened()
    producer = begin(engine)
    engine.checkpoint()
    if fate is not None:
        engine = engine.crash(lose_all, fate)
    engine.tick(TIMEOUT_MS - 1)
    assert held_back(engine)
    engine.tick(1)
    assert not held_back(engine)
    assert engine.contents()["a", 0].records == ()
    late = engine.execute(EndTxn("t", producer.producer_id, producer.epoch, commit=True))
    assert isinstance(late, Refusal), "the client that was too late is fenced"


def test_a_txn_times_out_while_a_group_stays_open_because_the_disk_hangs() -> None:
    engine = opened()
    begin(engine)
    engine.submit(Append("a", 0, codec.encode_values([b"waits"], 1), 1))
    engine.tick(TIMEOUT_MS)
    assert not held_back(engine)


def test_txns_are_looked_at_every_check_interval_and_ended_as_the_server_says() -> None:
    engine = opened()
    producer = begin(engine)
    stage_id = open_stage(engine)
    engine.store.timers.timeouts = TxnTimeouts(4_000, write_abort_markers=False, fence_on_timeout=False)
    engine.tick(TIMEOUT_MS - 1)
    engine.tick(1)
    assert not stage_is_there(engine, stage_id), "stages do not wait for the txns' interval"
    engine.tick(3_998)
    assert held_back(engine)
    engine.tick(1)
    assert not held_back(engine)
    assert engine.contents()["a", 0].tail == 1, "no marker"
    assert engine.execute(EndTxn("t", producer.producer_id, producer.epoch, commit=False)) == producer, "no fence"


def test_a_txn_that_ended_in_time_is_left_alone() -> None:
    engine = opened()
    producer = begin(engine)
    engine.execute(EndTxn("t", producer.producer_id, producer.epoch, commit=True))
    entries = engine.commits.state.entry_number
    engine.tick(TIMEOUT_MS)
    assert engine.commits.state.entry_number == entries
    assert engine.contents()["a", 0].records == ((0, b"open"),)


def test_a_second_txn_of_the_same_id_gets_its_whole_time() -> None:
    engine = opened()
    producer = begin(engine)
    engine.execute(EndTxn("t", producer.producer_id, producer.epoch, commit=True))
    engine.tick(TIMEOUT_MS - 1)
    begin(engine)
    engine.tick(1)
    assert held_back(engine)
    engine.tick(TIMEOUT_MS - 1)
    assert not held_back(engine)


def test_an_idle_txn_id_is_forgotten_in_the_end() -> None:
    engine = opened()
    begin(engine)
    engine.tick(TIMEOUT_MS)
    engine.tick(limits.TXN_ID_EXPIRY_MS - 1)
    assert engine.commits.state.txns["t"] is not None
    engine.tick(1)
    assert engine.commits.state.txns["t"] is None


@pytest.mark.parametrize("fate", [None, *IndexAfterCrash])
def test_a_stage_expires_and_every_append_renews_it(fate: IndexAfterCrash | None) -> None:
    engine = opened()
    stage_id = open_stage(engine)
    engine.tick(TIMEOUT_MS - 1)
    assert isinstance(append_stage(engine, stage_id, 0), StageDone)
    if fate is not None:
        engine = engine.crash(lose_all, fate)
    engine.tick(TIMEOUT_MS - 1)
    assert stage_is_there(engine, stage_id)
    engine.tick(1)
    assert not stage_is_there(engine, stage_id)
    assert isinstance(append_stage(engine, stage_id, 1), StageMissing)


def test_an_expired_stage_is_gone_before_a_timer_looks() -> None:
    engine = opened()
    stage_id = open_stage(engine)
    engine.clock.advance_ms(TIMEOUT_MS)
    assert isinstance(append_stage(engine, stage_id, 0), StageMissing)
    assert stage_is_there(engine, stage_id)


def test_dropped_stages_are_not_asked_for_again() -> None:
    engine = opened()
    stage_ids = [open_stage(engine) for _ in range(3)]
    engine.execute(DropStages(stage_ids[:1]))
    engine.clock.advance_ms(TIMEOUT_MS)
    assert list(engine.store.timers.due(engine.clock())) == [ExpireStages(stage_ids[1:])]
    assert list(engine.store.timers.due(engine.clock())) == []


def test_refused_expiry_leaves_a_deadline_alone_that_was_set_meanwhile() -> None:
    engine = opened()
    producer = begin(engine)
    stage_id = open_stage(engine)
    timers = engine.store.timers
    due = list(timers.due(engine.clock() + TIMEOUT_MS * NS_PER_MS))
    assert due == [ExpireTxn("t"), ExpireStages([stage_id])]
    engine.execute(EndTxn("t", producer.producer_id, producer.epoch, commit=True))
    begin(engine)
    append_stage(engine, stage_id, 0)
    for command in due:
        timers.answered(command, NoRoom(1), engine.clock())
    engine.tick(TIMEOUT_MS - 1)
    assert held_back(engine)
    assert stage_is_there(engine, stage_id)
    engine.tick(1)
    assert not held_back(engine)
    assert not stage_is_there(engine, stage_id)


@pytest.mark.parametrize("refusal", [NoRoom(1), TooLarge("entry bytes", 1, 2)])
def test_what_could_not_be_carried_out_is_due_again(refusal: Refusal) -> None:
    engine = opened()
    begin(engine)
    stage_id = open_stage(engine)
    engine.clock.advance_ms(TIMEOUT_MS)
    timers, now_ns = engine.store.timers, engine.clock()
    due = list(timers.due(now_ns))
    assert due == [ExpireTxn("t"), ExpireStages([stage_id])]
    for command in due:
        timers.answered(command, refusal, now_ns)
    assert list(timers.due(now_ns)) == due


def test_a_clock_that_goes_back_ends_nothing_early_and_loses_no_timer() -> None:
    engine = opened()
    begin(engine)
    engine.tick(-3 * TIMEOUT_MS)
    assert held_back(engine)
    engine.tick(4 * TIMEOUT_MS)
    assert not held_back(engine)


def test_what_has_ended_is_not_kept_until_its_old_deadline() -> None:
    deadlines = Deadlines[int]()
    for key in range(100):
        deadlines.set(key, 10**9 + key)
    for key in range(100, 10_000):
        deadlines.set(key, 10**9)
        deadlines.remove(key)
        assert len(deadlines._heap) <= 200
        assert len(deadlines._queued) == 100
    for due_ns in range(10**9, 10**9 - 1000, -1):
        deadlines.set(7, due_ns)  # earlier and earlier
    assert len(deadlines._heap) <= 200
    for key in range(50, 100):
        deadlines.remove(key)
    assert deadlines.take(10**9 - 999) == [7]
    assert deadlines.take(10**9 + 1000) == [key for key in range(50) if key != 7]
    assert not deadlines._heap
    assert not deadlines._queued


@given(st.lists(st.tuples(st.sampled_from(["set", "remove", "take"]), st.integers(0, 5), st.integers(0, 40))))
def test_deadlines_are_those_of_a_plain_dict(steps: list[tuple[str, int, int]]) -> None:
    deadlines, plain = Deadlines[int](), dict[int, int]()
    for step, key, number in steps:
        if step == "set":
            deadlines.set(key, number)
            plain[key] = number
        elif step == "remove":
            deadlines.remove(key)
            plain.pop(key, None)
        else:
            due = sorted(key for key, due_ns in plain.items() if due_ns <= number)
            assert deadlines.take(number) == due
            for taken in due:
                del plain[taken]
        assert len(deadlines._heap) <= 2 * len(deadlines._queued)
        assert deadlines._queued.keys() == plain.keys()


def test_an_idle_journal_is_proven_once() -> None:
    engine = opened()
    group = engine.journal.durable_group
    engine.tick()
    proven = engine.journal.durable_group
    assert proven > group
    engine.tick()
    assert engine.journal.durable_group == proven


def test_more_stages_than_a_small_segment_drops_at_once_all_expire_in_time() -> None:
    engine = opened()
    assert engine.segment_bytes == limits.SEGMENT_BYTES_MIN
    for _ in range(2000):
        open_stage(engine)
    engine.tick(TIMEOUT_MS)
    assert not any(engine.commits.state.stages.values())
    assert not list(engine.store.timers.due(engine.clock() + TIMEOUT_MS * NS_PER_MS))


def test_stages_that_one_entry_left_over_are_due_again() -> None:
    engine = opened()
    stage_ids = [open_stage(engine) for _ in range(5)]
    engine.clock.advance_ms(TIMEOUT_MS)
    timers = engine.store.timers
    (command,) = timers.due(engine.clock())
    with mock.patch.object(limits, "STAGES_PER_PUBLISH_MAX", 2):
        timers.answered(command, engine.execute(command), engine.clock())
    assert list(timers.due(engine.clock())) == [ExpireStages(stage_ids[2:])]


def test_more_stages_than_one_entry_drops_all_expire_in_time() -> None:
    engine = opened()
    with mock.patch.object(limits, "STAGES_PER_PUBLISH_MAX", 2):
        stage_ids = [open_stage(engine) for _ in range(5)]
        engine.tick(TIMEOUT_MS - 1)
        assert all(stage_is_there(engine, stage_id) for stage_id in stage_ids)
        engine.tick(limits.TIMER_CHECK_MS)
        assert not any(stage_is_there(engine, stage_id) for stage_id in stage_ids)
