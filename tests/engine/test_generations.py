"""Memory newer than the index: sealed by bytes or by hand, built, dropped; nothing is ever in neither place."""

from unittest import mock

import pytest

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import Append, CreateTopic, DeleteTopic, GetReceipt, GetStream, GetTxn
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import Confirmed, ReceiptFound
from oncelog.core.row_size import rows_allowed
from oncelog.core.rows import Table
from oncelog.engine.store import open_store
from oncelog.errors import DiskFull
from oncelog.storage.index.memory_index import MemoryIndex
from oncelog.testing.sim_disk import keep_all, lose_all
from oncelog.testing.sim_engine import IndexAfterCrash, SimEngine, WatchedDisk
from tests.crash.sim_explorer import nothing_cached


def opened(*, checkpoint_bytes: int = limits.CHECKPOINT_BYTES) -> SimEngine:
    engine = SimEngine(WatchedDisk(), checkpoint_bytes=checkpoint_bytes)
    engine.execute(CreateTopic("a"))
    return engine


def append(value: bytes, topic: str = "a") -> Append:
    return Append(topic, 0, codec.encode_values([value], 1), 1, digest=content_digest(value), message_id=value)


def test_a_generation_is_sealed_when_enough_was_written() -> None:
    engine = opened(checkpoint_bytes=4096)
    position = engine.index.refresh()
    number = 0
    while engine.index.refresh() == position:
        engine.execute(append(b"%d" % number))
        number += 1
        assert number < 100
    assert engine.generations.lag_bytes < 4096
    assert not engine.commits.state.ids_sealing


def test_ids_and_rows_are_found_in_every_phase_of_a_generation() -> None:
    with nothing_cached():
        engine = opened()
        engine.builds_at_once = False
        first = engine.execute(append(b"one"))
        assert isinstance(first, Confirmed)

        def repeated() -> tuple[int, bool]:
            again = engine.execute(append(b"one"))
            assert isinstance(again, Confirmed)
            return again.first, again.duplicate

        phases = [repeated()]  # in the state
        engine.checkpoint()
        assert engine.commits.state.ids_sealing
        phases.append(repeated())  # sealed
        engine.build()
        assert not engine.commits.state.ids_sealing | engine.commits.state.ids
        phases.append(repeated())  # in the index alone
        assert phases == [(0, True)] * 3


def test_entries_that_join_the_boundary_group_after_the_seal_are_kept() -> None:
    """The group is open when the generation is sealed: what it gets later is in the index early, and freed late."""
    with nothing_cached():
        engine = opened()
        engine.submit(append(b"before"))
        engine.generations.seal()
        engine.submit(append(b"after"))
        before = engine.image()
        engine.flush()
        assert not engine.generations.building
        assert engine.image().difference(before) == ""
        for value in (b"before", b"after"):
            assert isinstance(engine.execute(GetReceipt("a", 0, value)), ReceiptFound)
        assert engine.contents()["a", 0].records == ((0, b"before"), (1, b"after"))


def test_the_builder_is_asked_only_for_durable_groups() -> None:
    engine = opened()
    engine.builds_at_once = False
    engine.submit(append(b"x"))
    engine.generations.seal()
    engine.generations.group_durable()
    assert engine._requested is None
    engine.seal()
    engine.generations.group_durable()
    assert engine._requested is None
    engine.write()
    engine.written()
    engine.answer()
    assert engine._requested == engine.journal.durable_group


def test_a_first_part_of_what_was_asked_for_frees_nothing() -> None:
    engine = opened()
    engine.builds_at_once = False
    engine.execute(append(b"x"))
    engine.checkpoint()
    assert engine._requested is not None
    engine.generations.built(engine._requested - 1)
    assert not engine.generations.cleaning
    assert engine.commits.state.ids_sealing
    engine.build()
    assert not engine.commits.state.ids_sealing


def test_commands_are_held_while_the_index_is_too_far_behind() -> None:
    engine = opened(checkpoint_bytes=2048)
    engine.builds_at_once = False
    with mock.patch.object(limits, "INDEX_LAG_BYTES_MAX", 6 * 1024):
        pending = engine.submit(append(b"0"))
        for number in range(1, 40):
            engine.flush()
            if pending.outcome is None:
                break
            pending = engine.submit(append(b"%d" % number))
        held = [engine.commits.held]
        assert engine.commits.waiting == 1
        engine.build()
        engine.flush()
        held.append(engine.commits.held)
        assert held == [True, False]
        assert isinstance(engine.answers[-1].outcome, Confirmed)
        assert engine.answers[-1].command is pending.command


def test_clean_rows_are_kept_up_to_a_bound_oldest_first_to_go() -> None:
    with mock.patch.object(limits, "ROWS_CACHED_MAX", 3), mock.patch.object(limits, "FREE_SLICE", 4):
        engine = opened()
        for number in range(10):
            engine.execute(CreateTopic(f"t{number}"))
        engine.checkpoint()
        assert list(engine.commits.state.topics) == ["t7", "t8", "t9"]
        engine.execute(CreateTopic("new"))
        engine.execute(DeleteTopic("t9"))
        assert {"new", "t9"} <= set(engine.commits.state.topics)
        before = engine.image()
        engine.checkpoint()
        assert len(engine.commits.state.topics) <= 3
        assert engine.image().difference(before) == ""


def test_rows_touched_after_the_seal_are_not_evicted() -> None:
    with nothing_cached():
        engine = opened()
        engine.builds_at_once = False
        engine.checkpoint()
        engine.execute(append(b"x"))
        engine.build()
        assert list(engine.commits.state.tables[Table.STREAM]) == [2]
        engine.builds_at_once = True
        engine.checkpoint()
        assert not any(engine.commits.state.tables)


def test_memory_is_freed_in_slices() -> None:
    engine = opened()
    engine.builds_at_once = False
    for number in range(30):
        engine.execute(append(b"%d" % number))
    with mock.patch.object(limits, "FREE_SLICE", 4):
        engine.checkpoint()
        group = engine._requested
        assert group is not None
        engine._requested = None
        engine._builder.request(group)
        engine._builder.replies()
        engine.generations.built(group)
        slices = 0
        while engine.generations.clean():
            slices += 1
            # In between everything works as ever.
            again = engine.execute(append(b"%d" % (slices % 30)))
            assert isinstance(again, Confirmed)
            assert again.duplicate
        assert slices >= 8


@pytest.mark.parametrize("fate", list(IndexAfterCrash))
def test_whatever_is_left_of_the_index_the_log_is_the_same(fate: IndexAfterCrash) -> None:
    engine = opened()
    for number in range(3):
        engine.execute(append(b"%d" % number))
        engine.checkpoint()
    engine.execute(append(b"last"))
    after = engine.crash(lose_all, fate)
    assert after.image().difference(engine.image()) == ""
    assert after.store.replayed_entries == {"KEPT": 1, "OLD": 2, "LOST": 5}[fate.name]


def test_a_tail_too_long_for_memory_is_worked_off_by_the_builder_first() -> None:
    engine = opened()
    for number in range(20):
        engine.execute(append(b"%d" % number))
    with mock.patch.object(limits, "INDEX_LAG_BYTES_MAX", 4096):
        after = engine.crash(lose_all, IndexAfterCrash.LOST)
    assert after.store.replayed_entries == 0
    assert after.index.refresh().entry_number == 21
    assert after.image().difference(engine.image()) == ""
    assert after.contents() == engine.contents()


def test_a_log_whose_index_has_no_room_opens_with_all_of_its_tail_in_memory() -> None:
    engine = opened()
    for number in range(20):
        engine.execute(append(b"%d" % number))
    asked: list[int] = []

    def catch_up(group: int) -> None:
        asked.append(group)
        raise DiskFull("the index cannot be built: no space left")

    with mock.patch.object(limits, "INDEX_LAG_BYTES_MAX", 4096):
        disk = engine.disk.crash(keep_all)
        store = open_store(disk, MemoryIndex(), catch_up, segment_bytes=engine.segment_bytes, salt=2)
    assert asked == [store.journal.durable_group]
    assert store.replayed_entries == engine.commits.state.entry_number == 21
    assert store.indexed_group == -1
    stream = store.view.stream(2)
    assert stream is not None
    assert stream.stable == 20


def test_rows_that_were_only_looked_at_are_freed_without_a_generation() -> None:
    with mock.patch.object(limits, "ROWS_CACHED_MAX", 5), mock.patch.object(limits, "FREE_SLICE", 4):
        engine = opened()
        engine.execute(append(b"not in the index yet"))
        for number in range(50):
            engine.execute(GetStream(f"unknown{number}"))
        assert len(engine.commits.state.topics) > 50
        before = engine.image()
        engine.generations.evict()
        slices = 0
        while engine.generations.clean():
            engine.generations.evict()  # the next tick, before this one's work is done
            slices += 1
        assert slices >= 10
        assert all(len(rows) <= 5 for rows in engine.commits.state.tables)
        assert "a" in engine.commits.state.topics, "what the index does not have is never dropped"
        assert engine.image().difference(before) == ""
        engine.generations.evict()
        assert not engine.generations.clean(), "nothing to do"


def test_rows_of_all_tables_share_one_budget_of_bytes() -> None:
    engine = opened()
    engine.generations._cache_bytes = 100_000
    engine.execute(append(b"not in the index yet"))
    for number in range(500):
        engine.execute(GetStream(f"unknown{number}"))
        engine.execute(GetTxn(f"unknown{number}"))
    state = engine.commits.state
    before = engine.image()
    engine.generations.evict()
    while engine.generations.clean():
        pass
    assert rows_allowed(state.tables, 130_000) is None
    assert min(len(state.topics), len(state.txns)) > 50, "both gave way, and none lost all"
    assert "a" in state.topics, "what the index does not have is never dropped"
    assert engine.image().difference(before) == ""
