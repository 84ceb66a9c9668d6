"""The simulated disk itself: what may survive, what must, and that faults hit the call they were meant for."""

import errno

import pytest

from oncelog.testing.sim_disk import SECTOR_BYTES, Fault, SimCrash, SimDisk, SimFile, crash_states, keep_all, lose_all

A, B, C = (letter * SECTOR_BYTES for letter in (b"a", b"b", b"c"))


def synced_file(disk: SimDisk, content: bytes) -> SimFile:
    file = disk.open("f", create=True)
    file.pwritev([content], 0)
    file.fdatasync()
    disk.sync_directory()
    return file


def contents(disk: SimDisk) -> bytes:
    return disk.open("f").pread(100_000, 0)


def test_synced_bytes_under_a_synced_name_survive_and_nothing_else_does() -> None:
    disk = SimDisk()
    file = synced_file(disk, A + A)
    file.pwritev([B], 0)
    assert contents(disk) == B + A
    assert contents(disk.crash(lose_all)) == A + A
    assert contents(disk.crash(keep_all)) == B + A


def test_every_subset_of_unsynced_sectors_and_versions_may_survive() -> None:
    disk = SimDisk()
    file = synced_file(disk, A + A)
    file.pwritev([B], 0)
    file.pwritev([C + C], 0)
    states = {contents(state) for state in crash_states(disk)}
    assert states == {first + second for first in (A, B, C) for second in (A, C)}


def test_grown_file_may_keep_its_old_size() -> None:
    disk = SimDisk()
    synced_file(disk, A).pwritev([B], SECTOR_BYTES)
    assert {contents(state) for state in crash_states(disk)} == {A, A + bytes(SECTOR_BYTES), A + B}


def test_directory_operations_are_lost_one_by_one_until_synced() -> None:
    disk = SimDisk()
    for name in ("a", "b"):
        disk.open(name, create=True)
    disk.sync_directory()
    disk.rename("a", "x")
    disk.rename("x", "y")
    disk.remove("b")
    states = {tuple(state.names()) for state in crash_states(disk)}
    assert states == {("a", "b"), ("b", "x"), ("b", "y"), ("a",), ("x",), ("y",)}
    disk.sync_directory()
    assert disk.crash().names() == ["y"]


def test_fdatasync_does_not_make_a_name_durable() -> None:
    disk = SimDisk()
    file = disk.open("f", create=True)
    file.pwritev([A], 0)
    file.fdatasync()
    assert disk.crash().names() == []
    assert contents(disk.crash(keep_all)) == A


def test_failed_fdatasync_marks_sectors_clean_that_are_not_on_disk() -> None:
    disk = SimDisk()
    file = synced_file(disk, A + A)
    file.pwritev([B + B], 0)
    disk.fail_at(disk.calls + 1, Fault.SYNC_FAILS)
    with pytest.raises(OSError, match="input/output"):
        file.fdatasync()
    assert contents(disk) == B + B, "reads go on seeing the lost pages"
    file.fdatasync()
    assert contents(disk.crash()) == A + A, "a retried sync succeeds and proves nothing"
    file.pwritev([C], SECTOR_BYTES)
    file.fdatasync()
    assert contents(disk.crash()) == A + C, "only a new write makes a page dirty again"


@pytest.mark.parametrize("kind", [Fault.NO_SPACE, Fault.IO_ERROR])
def test_failing_write_reports_its_error(kind: Fault) -> None:
    disk = SimDisk()
    file = disk.open("f", create=True)
    disk.fail_at(disk.calls + 1, kind)
    with pytest.raises(OSError) as caught:  # noqa: PT011 (the number is what is checked)
        file.pwritev([A + B], 0)
    assert caught.value.errno == (errno.ENOSPC if kind is Fault.NO_SPACE else errno.EIO)
    assert contents(disk) == (b"" if kind is Fault.NO_SPACE else A)


def test_short_write_says_how_much_it_wrote() -> None:
    disk = SimDisk()
    file = disk.open("f", create=True)
    disk.fail_at(disk.calls + 1, Fault.SHORT_WRITE)
    assert file.pwritev([b"abc", b"de"], 0) == 3
    assert contents(disk) == b"abc"


def test_fault_that_does_not_fit_its_call_is_void() -> None:
    disk = SimDisk()
    disk.fail_at(1, Fault.SHORT_WRITE)
    assert disk.names() == []
    assert disk.history == ["names"]


def test_crashed_call_may_have_had_its_effect_and_the_machine_stays_off() -> None:
    disk = SimDisk()
    file = synced_file(disk, A)
    disk.fail_at(disk.calls + 1, Fault.CRASH)
    with pytest.raises(SimCrash):
        file.pwritev([B], 0)
    with pytest.raises(SimCrash):
        disk.names()
    assert {contents(state) for state in crash_states(disk)} == {A, B}


def test_capacity_is_shared_by_all_files_and_freed_by_remove() -> None:
    disk = SimDisk(capacity_bytes=2 * SECTOR_BYTES)
    synced_file(disk, A)
    other = disk.open("g", create=True)
    with pytest.raises(OSError, match="no space"):
        other.pwritev([A + A], 0)
    disk.remove("f")
    assert other.pwritev([A + A], 0) == 2 * SECTOR_BYTES


def test_large_crashes_are_sampled_the_same_way_for_the_same_seed() -> None:
    disk = SimDisk()
    file = synced_file(disk, A * 20)
    file.pwritev([B * 20], 0)
    once = [contents(state) for state in crash_states(disk, samples=16, seed=5)]
    again = [contents(state) for state in crash_states(disk, samples=16, seed=5)]
    other = [contents(state) for state in crash_states(disk, samples=16, seed=6)]
    assert once == again != other
    assert once[:2] == [A * 20, B * 20]
    assert len(once) == 16


def test_flip_changes_cache_and_device() -> None:
    disk = SimDisk()
    synced_file(disk, A)
    disk.flip("f", 3, 0x01)
    assert contents(disk)[3] == contents(disk.crash())[3] == ord("a") ^ 1
