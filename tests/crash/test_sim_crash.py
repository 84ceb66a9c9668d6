"""Power cuts at every changing disk call of short workloads, and two crash stories by name.

By default: every single operation with every recovery cut as well, every pair, and a sample of triples. With
ONCELOG_SIM_FULL=1 (or `python -m tests.crash.sim_loop --full`): every pair and triple, alone and sharing groups, from
both bases.
"""

import itertools
import os
import random
from collections.abc import Callable

import pytest

from oncelog.core import batch as codec
from oncelog.core.command import Append, CreateTopic
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import Confirmed, TopicDone
from oncelog.errors import Corruption, DiskFault, StorageError
from oncelog.testing.sim_disk import SECTOR_BYTES, Fault, SimDisk, crash_states, keep_all, lose_all
from oncelog.testing.sim_engine import Contents, IndexAfterCrash, SimEngine, WatchedDisk
from tests.crash.sim_explorer import FATES, Base, Explorer, nothing_cached
from tests.crash.sim_operations import OPERATIONS, Client, Operation, run, set_up

FULL = os.environ.get("ONCELOG_SIM_FULL") == "1"
TRIPLES_SAMPLED = 40

FRESH = Base()
NEAR_END = Base(near_end=True)
UNINDEXED = Base(indexed=False)
BASES = (FRESH, NEAR_END)


def name_of(operation: Operation) -> str:
    return operation.name


# --- every cut of every workload -----------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize("base", [FRESH, NEAR_END, UNINDEXED], ids=["fresh", "near end", "unindexed"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=name_of)
def test_one_operation_survives_every_cut_also_of_its_recovery(
    operation: Operation, base: Base, together: bool
) -> None:
    with nothing_cached():
        explorer = Explorer(base, (operation,), together=together, recovery=base is not UNINDEXED, states_max=32)
        assert explorer.explore() >= 3


def test_groups_of_single_operations_span_several_sectors() -> None:
    """A group of one sector is there or not. What the cuts above are for begins with groups that can be torn."""
    states: list[int] = []
    for operation in OPERATIONS:
        engine = FRESH.open()

        def count(call: str, disk: SimDisk = engine.disk) -> None:
            if call == "pwritev":
                states.append(sum(1 for _ in crash_states(disk, states_max=5, samples=5)))

        assert isinstance(engine.disk, WatchedDisk)
        engine.disk.watch = count
        run(engine, [Client(operation, 0)], together=False)
    torn = sum(1 for count_ in states if count_ > 4)
    assert torn >= len(states) / 3, f"{torn} of {len(states)} writes have more than 4 survivors"


@pytest.mark.parametrize("first", OPERATIONS, ids=name_of)
def test_two_operations_survive_every_cut(first: Operation) -> None:
    with nothing_cached():
        for number, second in enumerate(OPERATIONS):
            for base, together in itertools.product(BASES, (False, True)):
                if FULL or (base is NEAR_END, together) == (number % 2 == 1, number % 4 < 2):
                    Explorer(base, (first, second), together=together).explore()


def test_three_operations_survive_every_cut() -> None:
    triples = list(itertools.product(OPERATIONS, repeat=3))
    if not FULL:
        triples = random.Random(1).sample(triples, TRIPLES_SAMPLED)
    with nothing_cached():
        for number, triple in enumerate(triples):
            for base, together in itertools.product(BASES, (False, True)):
                if FULL or (base is NEAR_END, together) == (number % 2 == 1, number % 4 < 2):
                    Explorer(base, triple, together=together).explore()


def test_a_new_log_may_be_cut_at_every_call_of_its_creation() -> None:
    disk = WatchedDisk()
    survivors = 0

    def cut(call: str) -> None:
        nonlocal survivors
        for survivor in crash_states(disk, states_max=32, samples=8, seed=survivors):
            engine = SimEngine(survivor)
            assert engine.commits.state.entry_number == 0
            assert isinstance(engine.execute(CreateTopic("a")), TopicDone)
            assert list(engine.crash().contents()) == [("a", 0)]
            survivors += 1

    disk.watch = cut
    SimEngine(disk)
    assert survivors > 50


# --- stories -------------------------------------------------------------------------------------------------------


def _append(value: bytes, id_: bytes) -> Append:
    batch = codec.encode_values([value], 1)
    return Append("a", 0, batch, 1, digest=content_digest(value), message_id=id_)


def _collector(disk: SimDisk, seen: list[Contents]) -> Callable[[str], None]:
    """At every call: what each survivor of a power cut would show."""
    return lambda call: seen.extend(SimEngine(survivor).contents() for survivor in crash_states(disk))


def test_second_half_of_a_group_reached_the_disk_first_half_did_not_and_the_client_retries() -> None:
    """1. Two appends share a group of several sectors. 2. The power fails before the sync; the later sectors are on
    the disk, the first is not. 3. Nothing of the group counts, nothing is called damage. 4. The clients send both
    again: each is there once. 5. The power fails again and again at every point of the rewriting: still once."""
    engine = SimEngine(WatchedDisk())
    engine.execute(CreateTopic("a"))
    commands = [_append(b"x" * 700, b"1"), _append(b"y" * 700, b"2")]
    for command in commands:
        engine.submit(command)
    engine.seal()
    engine.disk.sync_directory()  # so that the sectors of the group are all that is in doubt
    survivors: list[SimDisk] = []

    def cut(call: str) -> None:
        if call == "pwritev":
            answers = itertools.chain([0], itertools.repeat(1))
            survivors.append(engine.disk.crash(lambda options: next(answers) and options - 1))

    assert isinstance(engine.disk, WatchedDisk)
    engine.disk.watch = cut
    engine.write()
    (survivor,) = survivors
    for fate in FATES:
        watched = WatchedDisk.of(survivor)
        again = engine.reopen(watched, fate)
        assert again.contents()["a", 0].records == ()
        seen: list[Contents] = []
        watched.watch = _collector(watched, seen)
        outcomes = [again.submit(command) for command in commands]
        again.flush()
        watched.watch = None
        assert [pending.outcome and pending.outcome.first for pending in outcomes] == [0, 1]  # type: ignore[union-attr]
        both = ((0, b"x" * 700), (1, b"y" * 700))
        assert {contents["a", 0].records for contents in seen} == {(), both}
        for command, pending in zip(commands, outcomes, strict=True):
            repeated = again.crash(keep_all, fate).execute(command)
            assert isinstance(repeated, Confirmed)
            assert isinstance(pending.outcome, Confirmed)
            assert (repeated.first, repeated.duplicate) == (pending.outcome.first, True)


def test_fdatasync_failed_restart_power_cut() -> None:
    """1. fdatasync of a group fails: the pages are clean now, the device does not have them, reads still see them.
    2. The process ends without an answer. 3. It is started again on the same machine, finds the group in the page
    cache, and reveals it. 4. The power fails. What was revealed in 3 must be there: recovery wrote it again."""
    for retried in (False, True):
        engine = SimEngine(WatchedDisk())
        engine.execute(CreateTopic("a"))
        command = _append(b"doubtful", b"1")
        pending = engine.submit(command)
        engine.seal()
        disk = engine.disk
        disk.fail_at(disk.calls + 2, Fault.SYNC_FAILS)  # after the pwritev
        with pytest.raises(DiskFault):
            engine.write()
        assert disk.history[-1] == "fdatasync"
        assert pending.outcome is None
        with pytest.raises(StorageError):
            engine.journal.begin(0)
        restarted = engine.reopen(disk)
        revealed = restarted.contents()
        assert revealed["a", 0].records == ((0, b"doubtful"),)
        outcome = restarted.execute(command) if retried else None
        for choose in (lose_all, keep_all):
            after = restarted.crash(choose, IndexAfterCrash.LOST)
            assert after.contents() == revealed
            repeated = after.execute(command)
            assert isinstance(repeated, Confirmed)
            assert (repeated.first, repeated.duplicate) == (0, True)
        assert outcome is None or isinstance(outcome, Confirmed)


# --- damage --------------------------------------------------------------------------------------------------------


def test_a_flipped_byte_in_any_sector_is_found_or_changes_nothing() -> None:
    """P9, for what opening and reading see; `verify` looks at the rest."""
    engine = SimEngine(WatchedDisk())
    set_up(engine)
    run(engine, [Client(operation, number) for number, operation in enumerate(OPERATIONS[:7])], together=False)
    contents = engine.contents()
    engine.close()
    found: list[Corruption] = []
    for name in engine.disk.names():
        size = len(engine.disk._names[name].content)
        for sector in range(size // SECTOR_BYTES):
            disk = engine.disk.crash(keep_all)
            disk.flip(name, sector * SECTOR_BYTES + (sector * 37 + 5) % SECTOR_BYTES, 0x10)
            try:
                served = engine.reopen(disk, FATES[sector % 3]).contents()
            except Corruption as corruption:
                found.append(corruption)
            else:
                assert served == contents, f"{name}, sector {sector}: damage was served"
    assert len(found) >= 20
    for damage in found:
        assert damage.file or "group" in damage.what, f"nobody could find it: {damage}"


def test_a_write_that_the_device_lost_is_found_by_the_chain_of_headers() -> None:
    """1. A group is written and the power fails before its sync: it is gone. 2. Recovery writes its own frame there,
    and groups follow. 3. The device turns out to have lost that later write: the old frame, which stands, is back.
    4. Only the next frame's link to its predecessor says that something is missing, and where."""
    engine = SimEngine(WatchedDisk())
    engine.execute(CreateTopic("a"))
    engine.submit(_append(b"never confirmed", b"1"))
    engine.seal()
    kept: list[SimDisk] = []
    assert isinstance(engine.disk, WatchedDisk)
    engine.disk.watch = lambda call: kept.append(engine.disk.crash(keep_all))
    engine.write()
    assert [len(kept), engine.disk.history[-2:]] == [2, ["pwritev", "fdatasync"]]
    segment = "segment-000000000000"
    position = engine.journal._position - SECTOR_BYTES
    old_sector = kept[0].open(segment).pread(SECTOR_BYTES, position)
    kept[0].open(segment)._store(bytes(SECTOR_BYTES), position)
    after = engine.reopen(kept[0], IndexAfterCrash.LOST)
    assert after.contents()["a", 0].records == ()
    after.execute(_append(b"confirmed", b"2"))
    after.close()
    disk = after.disk.crash(keep_all)
    file = disk.open(segment)
    assert file.pread(SECTOR_BYTES, position) != old_sector
    file._store(old_sector, position)
    with pytest.raises(Corruption) as raised:
        after.reopen(disk, IndexAfterCrash.LOST)
    assert raised.value.file == segment
    assert raised.value.position == position + SECTOR_BYTES
