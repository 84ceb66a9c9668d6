"""The journal as its users see it: addresses, room, reserve, reading, trimming, recycling, full and failing disks."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from oncelog.errors import Corruption, DiskFault, DiskFull, JournalPoisoned, StorageError
from oncelog.limits import PWRITEV_BUFFERS_MAX, SEGMENT_BYTES_MIN, SPARES_WANTED
from oncelog.storage.disk import Disk, MemoryDisk, PosixDisk
from oncelog.storage.frame import frame_bytes
from oncelog.storage.journal import Journal
from oncelog.storage.journal_reader import JournalReader
from oncelog.storage.segment import GroupGone, segment_name, spare_name
from oncelog.testing.sim_disk import Fault, SimDisk

S = SEGMENT_BYTES_MIN
SECTORS = S // 512
HALF = bytes(S // 2)
"""Two of these never fit one segment."""


def open_journal(disk: Disk, *, salt: int = 1, from_group: int | None = None, spares: int = SPARES_WANTED) -> Journal:
    journal = Journal.open(disk, segment_bytes=S, salt=salt, from_group=from_group)
    while SPARES_WANTED - journal.spares_missing < spares:
        journal.prepare()
    return journal


def payloads(journal: Journal, after: int | None = None) -> list[bytes]:
    """Without proofs, which are empty."""
    return [payload for _, payload in journal.groups(after) if payload]


# --- addresses -------------------------------------------------------------------------------------------------


def test_new_journal_holds_one_proof_and_numbers_groups_by_address() -> None:
    journal = open_journal(SimDisk())
    assert list(journal.groups(None)) == [(1, b"")]
    assert journal.append([b"a" * 481]) == 2
    assert journal.append([b"b"]) == 4
    assert journal.first_group == 1
    assert journal.durable_group == 4
    assert journal.bytes_between(2, 4) == 1024


def test_group_that_does_not_fit_goes_to_the_next_segment() -> None:
    journal = open_journal(SimDisk())
    journal.append([HALF])
    assert journal.append([HALF]) == SECTORS + 1
    assert payloads(journal) == [HALF, HALF]
    assert journal.stats == (2, SPARES_WANTED - 1, (SPARES_WANTED + 1) * S, S + 512 + S // 2 + 512, S)


def test_group_may_fill_a_segment_to_its_last_byte() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    largest = b"x" * journal.payload_bytes_max
    assert len(largest) == S - 512 - 32
    assert journal.append([largest]) == SECTORS + 1
    assert journal.append([b"next"]) == 2 * SECTORS + 1
    journal = open_journal(disk, salt=2)
    assert payloads(journal) == [largest, b"next"]


def test_recovery_of_a_full_segment_proves_in_the_next_one() -> None:
    disk = SimDisk()
    journal = open_journal(disk, spares=2)
    journal.append([b"x" * journal.payload_bytes_max])
    disk.remove(spare_name(1))
    reopened = open_journal(disk, salt=2, spares=0)
    assert reopened.durable_group == 2 * SECTORS + 1
    assert payloads(reopened) == [b"x" * journal.payload_bytes_max]


def test_room_is_what_remains_of_the_segment() -> None:
    journal = open_journal(SimDisk())
    open_group = journal.begin(10)
    assert open_group is not None
    assert (open_group.group, open_group.room) == (2, S - 1024 - 32)


@pytest.mark.parametrize("urgent", [False, True])
@pytest.mark.parametrize("spares", range(SPARES_WANTED + 1))
def test_group_begins_where_its_padded_frame_fits_and_only_there(spares: int, *, urgent: bool) -> None:
    """Of every number of sectors that may be left of a segment, and with every number of spares."""
    for left in range(SECTORS - 1):
        for payload_bytes in (0, left * 512 - 33, left * 512 - 32, left * 512 - 31, S - 512 - 32):
            if payload_bytes < 0:
                continue
            journal = open_journal(MemoryDisk(), spares=spares)
            filler = S - 1024 - left * 512 - 32
            assert filler < 0 or journal.append([bytes(filler)]) is not None
            free = left if filler >= 0 else SECTORS - 2
            is_here = frame_bytes(payload_bytes) <= free * 512
            has_room = is_here or spares > (0 if urgent else 1)
            assert journal.has_room(payload_bytes, urgent=urgent) == has_room
            group = journal.begin(payload_bytes, urgent=urgent)
            assert (group is not None) == has_room
            if group is not None:
                assert group.group == (SECTORS - free if is_here else SECTORS + 1)
                assert group.room == (free * 512 if is_here else S - 512) - 32
                assert group.reserved == (not is_here and spares == 1)
                assert (group.spare is None) == is_here
                assert journal.stats.spares == spares - (not is_here)


def test_next_group_begins_while_the_sealed_one_is_not_written_yet() -> None:
    journal = open_journal(SimDisk())
    first = journal.begin(1)
    assert first is not None
    journal.seal(first, 700)
    second = journal.begin(1)
    assert second is not None
    assert second.group == first.group + 2
    journal.write(first, [b"f" * 700])
    journal.durable(first)
    assert journal.durable_group == first.group
    journal.seal(second, 1)
    journal.write(second, [b"s"])
    journal.durable(second)
    assert payloads(journal) == [b"f" * 700, b"s"]


def test_group_may_begin_while_another_is_being_written_on_its_thread() -> None:
    inside, go_on = threading.Event(), threading.Event()
    journal = open_journal(SimDisk())
    file = journal._files.file(0)
    sync = file.fdatasync

    def slow_sync() -> None:
        inside.set()
        assert go_on.wait(10)
        sync()

    file.fdatasync = slow_sync  # type: ignore[method-assign]
    first = journal.begin(1)
    assert first is not None
    journal.seal(first, 1)
    writer = threading.Thread(target=journal.write, args=(first, [b"1"]))
    writer.start()
    assert inside.wait(10)
    second = journal.begin(1)
    go_on.set()
    writer.join()
    assert second is not None
    assert second.group == first.group + 1


def test_many_small_buffers_become_one_group() -> None:
    journal = open_journal(SimDisk())
    buffers = [bytes([number % 251]) for number in range(2 * PWRITEV_BUFFERS_MAX + 5)]
    group = journal.append(buffers)
    assert list(journal.groups(1)) == [(group, b"".join(buffers))]


def test_stored_segment_size_wins_over_the_given_one() -> None:
    disk = SimDisk()
    open_journal(disk)
    assert Journal.open(disk, segment_bytes=4 * S, salt=2).segment_bytes == S


@pytest.mark.parametrize("make", [PosixDisk, lambda _: MemoryDisk()], ids=["posix", "memory"])
def test_journal_on_other_disks(make: Callable[[Path], Disk], tmp_path: Path) -> None:
    disk = make(tmp_path)
    journal = open_journal(disk)
    written = [bytes([number]) * 3000 for number in range(10)]
    for payload in written:
        assert journal.append([payload])
        journal.prepare()
    journal.close()
    reopened = open_journal(disk, salt=2)
    assert payloads(reopened) == written
    disk.close()


# --- space -----------------------------------------------------------------------------------------------------


def test_ordinary_groups_leave_the_last_spare_to_urgent_ones() -> None:
    journal = open_journal(SimDisk(), spares=1)
    journal.append([HALF])
    assert journal.begin(S // 2) is None
    assert journal.append([b"small ones still fit"]) is not None
    assert journal.append([HALF], urgent=True) == SECTORS + 1
    assert journal.append([HALF], urgent=True) is None


def test_full_disk_refuses_groups_keeps_reading_and_recovers_when_space_is_freed() -> None:
    disk = SimDisk(capacity_bytes=3 * S)
    journal = open_journal(disk, spares=2)
    with pytest.raises(DiskFull):
        journal.prepare()
    assert not [name for name in disk.names() if name.startswith("unready")]
    kept = journal.append([HALF])
    assert kept is not None
    assert journal.append([HALF]) == SECTORS + 1, "the spare that is not the reserve"
    assert journal.append([HALF]) is None
    assert journal.append([HALF], urgent=True) == 2 * SECTORS + 1
    assert journal.append([HALF], urgent=True) is None
    assert journal.read(kept, 0, 5) == bytes(5)
    assert payloads(journal) == [HALF] * 3
    disk.capacity_bytes = None
    assert journal.prepare()
    assert journal.prepare()
    assert journal.append([HALF]) == 3 * SECTORS + 1


def test_enough_spares_are_not_prepared_again() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    calls = disk.calls
    assert not journal.prepare()
    assert disk.calls == calls


def test_trimmed_segments_become_spares_and_then_are_removed() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    last = [journal.append([HALF], urgent=True) for _ in range(4)][-1]
    assert last is not None
    assert journal.stats == (4, 0, 4 * S, 3 * S + 512 + S // 2 + 512, S)
    while journal.prepare():
        pass
    trimmed = 2 * SECTORS + 9
    assert journal.append([HALF])
    assert journal.trim_front(trimmed) == 2
    assert journal.stats.segments == 3
    assert journal.stats.spares == SPARES_WANTED
    assert len(disk.names()) == 3 + SPARES_WANTED
    assert journal.first_group == 2 * SECTORS + 1
    assert journal.trim_front(trimmed) == 0


def test_group_below_the_front_is_gone_for_every_way_of_reading() -> None:
    journal = open_journal(SimDisk())
    first = journal.append([HALF])
    last = journal.append([HALF])
    assert first is not None
    assert last is not None
    journal.trim_front(last)
    with pytest.raises(GroupGone) as caught:
        journal.read(first, 0, 1)
    assert isinstance(caught.value, LookupError)
    assert (caught.value.group, caught.value.first_group) == (first, SECTORS + 1)
    with pytest.raises(GroupGone):
        list(journal.groups(first))
    assert payloads(journal) == [HALF]


def test_recycled_segments_full_of_old_frames_are_told_from_new_ones() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    history: list[bytes] = []
    for number in range(60):
        payload = b"%03d" % number * 900
        while journal.append([payload]) is None:
            if not journal.prepare():
                break
        history.append(payload)
        journal.trim_front(max(1, journal.durable_group - 2 * SECTORS))
        kept = payloads(journal)
        assert kept == history[-len(kept) :]
        if number % 7 == 0:
            journal = Journal.open(disk, segment_bytes=S, salt=number)
            assert payloads(journal) == kept
    assert journal.first_group > 5 * SECTORS
    assert len(disk.names()) < 12, "files were used again, not added"


# --- reading ---------------------------------------------------------------------------------------------------


def test_read_returns_slices_of_a_payload() -> None:
    journal = open_journal(SimDisk())
    group = journal.append([b"hello ", b"world"])
    assert group is not None
    assert journal.read(group, 0, 11) == b"hello world"
    assert journal.read(group, 4, 3) == b"o w"


def test_read_beyond_the_durable_end_is_refused() -> None:
    journal = open_journal(SimDisk())
    with pytest.raises(Corruption, match="beyond the journal's end"):
        journal.read(journal.durable_group + 1, 0, 1)


def test_reader_follows_a_writer_in_another_disk_object(tmp_path: Path) -> None:
    writer = PosixDisk(tmp_path)
    journal = open_journal(writer)
    reader = JournalReader(PosixDisk(tmp_path, read_only=True))
    assert reader.segment_bytes == S
    seen: list[bytes] = []
    after = None
    for number in range(30):
        journal.prepare()
        journal.append([b"%d" % number * 1500])
        for group, payload in reader.groups(after, journal.durable_group):
            after = group
            seen.append(payload)
    assert after == journal.durable_group == reader.last_group()
    assert seen == [b""] + [b"%d" % number * 1500 for number in range(30)]
    assert journal.stats.segments > 3
    writer.close()


def test_reader_sees_segments_that_appear_while_it_runs() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    reader = JournalReader(disk)
    journal.append([HALF])
    until = SECTORS + 1
    walk = reader.groups(None, until)
    assert next(walk) == (1, b"")
    assert journal.append([HALF]) == until
    assert [group for group, _ in walk] == [2, until]


def test_reader_of_a_segment_dropped_and_written_over_meanwhile_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.storage.segment.READ_AHEAD_BYTES", 512)
    disk = SimDisk()
    journal = open_journal(disk, spares=2)
    journal.append([b"a"])
    journal.append([HALF])
    journal.append([HALF])
    walk = JournalReader(disk).groups(None, journal.durable_group)
    assert next(walk) == (1, b"")
    journal.trim_front(journal.durable_group)
    for _ in range(2):
        assert journal.append([HALF], urgent=True)
    with pytest.raises(GroupGone):
        list(walk)


def test_reader_gives_back_files_of_segments_it_has_left(tmp_path: Path) -> None:
    """Otherwise the space of removed segments would stay taken for as long as the reader lives."""
    writer = PosixDisk(tmp_path)
    journal = open_journal(writer)
    reader = JournalReader(PosixDisk(tmp_path, read_only=True))
    journal.append([HALF])
    journal.append([HALF])
    first, last = 2, journal.durable_group
    assert len(list(reader.groups(first, last))) == 1
    journal.prepare()
    assert journal.trim_front(last) == 1
    assert segment_name(0) not in writer.names()
    journal.append([HALF])
    assert len(list(reader.groups(last, journal.durable_group))) == 1
    assert not [path for path in open_paths() if path.endswith("(deleted)")]
    writer.close()


def open_paths() -> list[str]:
    paths = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [path for path in paths if "segment-" in path or "spare-" in path]


def test_reader_up_to_a_group_that_is_not_there_calls_it_damage() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    with pytest.raises(Corruption) as caught:
        list(JournalReader(disk).groups(None, journal.durable_group + 5))
    assert (caught.value.file, caught.value.position) == (segment_name(0), 1024)


def test_reader_of_an_empty_directory_says_that_there_is_no_journal() -> None:
    with pytest.raises(StorageError, match="no journal"):
        JournalReader(SimDisk())


# --- failures --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Fault.NO_SPACE, Fault.IO_ERROR, Fault.SYNC_FAILS])
def test_failed_write_poisons_the_journal_for_ever(kind: Fault) -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    kept = journal.append([b"kept"])
    assert kept is not None
    disk.fail_at(disk.calls + (2 if kind is Fault.SYNC_FAILS else 1), kind)
    with pytest.raises(DiskFault) as caught:
        journal.append([b"lost"])
    assert caught.value.file == segment_name(0)
    calls = disk.calls
    for attempt in (lambda: journal.begin(1), journal.prove, lambda: journal.append([b"x"])):
        with pytest.raises(JournalPoisoned):
            attempt()
    assert disk.calls == calls, "nothing is retried"
    assert journal.durable_group == kept
    assert journal.read(kept, 0, 4) == b"kept"


def test_failed_directory_sync_at_a_change_over_poisons_before_any_frame_is_written() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    journal.append([HALF])
    disk.fail_at(disk.calls + 2, Fault.SYNC_FAILS)
    with pytest.raises(DiskFault):
        journal.append([HALF])
    assert disk.history[-2:] == ["rename", "sync_directory"]
    with pytest.raises(JournalPoisoned):
        journal.begin(1)


def test_short_write_is_continued() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    disk.fail_at(disk.calls + 1, Fault.SHORT_WRITE)
    disk.fail_at(disk.calls + 2, Fault.SHORT_WRITE)
    journal.append([b"abc" * 500])
    assert payloads(journal) == [b"abc" * 500]


def test_closed_journal_confirms_nothing() -> None:
    journal = open_journal(SimDisk())
    journal.close()
    with pytest.raises(JournalPoisoned, match="closed"):
        journal.begin(1)


def test_ordinary_groups_stay_out_of_the_reserve_segment_until_there_is_another_spare() -> None:
    disk = SimDisk()
    journal = open_journal(disk)
    while journal.spares_missing:
        journal.prepare()
    while journal.append([b"x" * 4000]) is not None:
        pass
    assert journal.append([b"y" * 4000], urgent=True) is not None
    assert journal.append([b"z" * 10]) is None, "there is room in the reserve, but not for this"
    assert journal.append([b"y" * 10], urgent=True) is not None
    journal.prepare()
    assert journal.append([b"z" * 10]) is not None


def test_spare_for_which_there_is_no_room_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again every second: half a segment of zeros each time would keep a full device busy for ever."""
    disk = PosixDisk(tmp_path)
    journal = Journal.open(disk, segment_bytes=S, salt=1)
    names = disk.names()
    monkeypatch.setattr(PosixDisk, "has_room", lambda _disk, size: size < S)
    opened: list[str] = []
    monkeypatch.setattr(PosixDisk, "open", lambda _disk, name, **_: opened.append(name))
    with pytest.raises(DiskFull, match="cannot prepare a spare"):
        journal.prepare()
    assert (opened, disk.names()) == ([], names)
    monkeypatch.undo()
    assert disk.has_room(S)
    assert not disk.has_room(1 << 60)
    assert journal.prepare()
    disk.close()
