"""Segment files: header sector, names, listing, preparing, and the arithmetic between groups and files."""

import pytest

from oncelog.errors import Corruption, StorageError
from oncelog.limits import SEGMENT_BYTES_MIN, SPARE_PIECE_BYTES
from oncelog.storage.disk import MemoryDisk, write_all
from oncelog.storage.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentFiles,
    SegmentHeader,
    list_files,
    prepare_file,
    segment_name,
    spare_name,
    unready_name,
)
from oncelog.testing.sim_disk import SimDisk

HEADER = SegmentHeader(SEGMENT_BYTES_MIN, bytes(range(16)))


def test_golden_header_sector() -> None:
    sector = HEADER.pack()
    assert len(sector) == SEGMENT_HEADER_BYTES
    assert sector[:40].hex(" ", 4) == (
        "4f4e4345 4c4f474a 01000000 ef84bc27 00400000 00000000 00010203 04050607 08090a0b 0c0d0e0f"
    )
    assert sector[40:] == bytes(472)
    assert SegmentHeader.unpack(sector, "f") == HEADER


def test_flip_of_any_byte_of_the_header_sector_is_found() -> None:
    sector = bytearray(HEADER.pack())
    for position in range(len(sector)):
        sector[position] ^= 0x10
        with pytest.raises(Corruption) as caught:
            SegmentHeader.unpack(bytes(sector), "f")
        assert (caught.value.file, caught.value.position) == ("f", 0)
        sector[position] ^= 0x10


def test_header_of_a_later_version_is_not_called_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.storage.segment.FORMAT_VERSION", 2)
    sector = HEADER.pack()
    monkeypatch.undo()
    with pytest.raises(StorageError, match="version 2 is not known") as caught:
        SegmentHeader.unpack(sector, "f")
    assert not isinstance(caught.value, Corruption)


def test_names_sort_as_their_numbers() -> None:
    numbers = [0, 9, 10, 123_456_789]
    assert sorted(map(segment_name, reversed(numbers))) == [segment_name(number) for number in numbers]
    assert segment_name(5) == "segment-000000000005"


def test_listing_tells_kinds_and_ignores_foreign_names() -> None:
    disk = MemoryDisk()
    foreign = ["segment-5", "segment-00000000000x", "notes.txt", "spare-000000000001.bak"]
    for name in [segment_name(3), segment_name(4), spare_name(7), unready_name(8), *foreign]:
        disk.open(name, create=True)
    assert list_files(disk) == ([3, 4], [7], [8], ())


def test_listing_with_a_gap_names_the_missing_segment() -> None:
    disk = MemoryDisk()
    for number in (2, 3, 5):
        disk.open(segment_name(number), create=True)
    assert list_files(disk).missing == (4,)


@pytest.mark.parametrize("segment_bytes", [SEGMENT_BYTES_MIN, 2 * SPARE_PIECE_BYTES + 512])
def test_prepared_file_is_whole_zero_and_synced(segment_bytes: int) -> None:
    disk = SimDisk()
    header = SegmentHeader(segment_bytes, bytes(16))
    prepare_file(disk, segment_name(0), header)
    disk.sync_directory()
    content = disk.crash().open(segment_name(0)).pread(segment_bytes + 1, 0)
    assert content == header.pack() + bytes(segment_bytes - SEGMENT_HEADER_BYTES)


def test_group_number_is_the_address_in_sectors() -> None:
    files = SegmentFiles(MemoryDisk(), HEADER)
    assert files.first_group(0) == 1
    assert files.group_at(2, 1024) == (2 * SEGMENT_BYTES_MIN + 1024) // 512
    for group in (1, 31, 33, 66, 2**50 + 3):
        assert files.group_at(*files.locate(group)) == group


def test_file_of_another_journal_is_refused() -> None:
    disk = MemoryDisk()
    prepare_file(disk, segment_name(0), HEADER)
    prepare_file(disk, segment_name(1), SegmentHeader(SEGMENT_BYTES_MIN, bytes(16)))
    files = SegmentFiles.of(disk, 0)
    with pytest.raises(Corruption, match="another journal"):
        files.file(1)


def test_impossible_segment_size_is_refused_although_its_checksum_is_right() -> None:
    disk = MemoryDisk()
    write_all(disk.open(segment_name(0), create=True), [SegmentHeader(1000, bytes(16)).pack()], 0)
    with pytest.raises(Corruption, match="size 1000 is impossible"):
        SegmentFiles.of(disk, 0)
