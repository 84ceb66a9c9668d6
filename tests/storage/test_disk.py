"""The disks: what they promise alike, the lock of the real one, and writing through short writes."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from oncelog.errors import DirectoryInUse
from oncelog.limits import PWRITEV_BUFFERS_MAX
from oncelog.storage.disk import Buffer, Disk, MemoryDisk, PosixDisk, write_all
from oncelog.testing.sim_disk import SimDisk

MakeDisk = Callable[[Path], Disk]
DISKS: list[MakeDisk] = [PosixDisk, lambda _: MemoryDisk(), lambda _: SimDisk()]


@pytest.fixture(params=DISKS, ids=["posix", "memory", "sim"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    made: Disk = request.param(tmp_path / "new" / "directory")
    return made


def test_write_is_read_back_and_a_hole_reads_as_zeros(disk: Disk) -> None:
    file = disk.open("a", create=True)
    assert file.pwritev([b"one", bytearray(b"two"), memoryview(b"three")[1:]], 600) == 10
    file.fdatasync()
    assert file.pread(20, 598) == b"\0\0onetwohree"
    assert disk.open("a").pread(3, 600) == b"one"
    assert file.pread(5, 700) == b""


def test_names_are_sorted_and_follow_create_rename_remove(disk: Disk) -> None:
    for name in ("b", "a", "c"):
        disk.open(name, create=True)
    disk.rename("b", "d")
    disk.remove("a")
    disk.sync_directory()
    assert disk.names() == ["c", "d"]


def test_missing_and_existing_names_are_told(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open("a")
    with pytest.raises(FileNotFoundError):
        disk.remove("a")
    with pytest.raises(FileNotFoundError):
        disk.rename("a", "b")
    disk.open("a", create=True)
    with pytest.raises(FileExistsError):
        disk.open("a", create=True)


def test_open_file_stays_readable_when_its_name_goes(disk: Disk) -> None:
    file = disk.open("a", create=True)
    write_all(file, [b"kept"], 0)
    disk.remove("a")
    disk.open("b", create=True)
    assert file.pread(4, 0) == b"kept"


def test_second_writer_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    first = PosixDisk(tmp_path)
    with pytest.raises(DirectoryInUse):
        PosixDisk(tmp_path)
    first.close()
    first.close()
    second = PosixDisk(tmp_path)
    assert second.names() == []
    second.close()


def test_reader_needs_no_lock_and_cannot_write(tmp_path: Path) -> None:
    writer = PosixDisk(tmp_path)
    write_all(writer.open("a", create=True), [b"shared"], 0)
    reader = PosixDisk(tmp_path, read_only=True)
    file = reader.open("a")
    assert file.pread(6, 0) == b"shared"
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwritev([b"x"], 0)
    reader.close()
    writer.close()


def test_descriptors_are_given_back_with_the_last_reference(tmp_path: Path) -> None:
    disk = PosixDisk(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        disk.open(f"f{number}", create=True)
    assert len(os.listdir("/proc/self/fd")) == before
    disk.close()


class Stingy:
    """Accepts at most `bytes_max` bytes per call."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.content = bytearray()

    def pwritev(self, buffers: Sequence[Buffer], position: int, /) -> int:
        assert len(buffers) <= PWRITEV_BUFFERS_MAX
        data = b"".join(buffers)[: self.bytes_max]
        assert position == len(self.content)
        self.content += data
        return len(data)

    def pread(self, length: int, position: int, /) -> bytes:
        return bytes(self.content[position : position + length])

    def fdatasync(self) -> None:
        return None


@pytest.mark.parametrize("bytes_max", [1, 2, 3, 7, 1000])
def test_write_continues_after_short_writes(bytes_max: int) -> None:
    file = Stingy(bytes_max)
    write_all(file, [b"abc", b"", b"defg", memoryview(b"hij")], 0)
    assert file.content == b"abcdefghij"


def test_write_of_more_buffers_than_the_kernel_takes_is_cut_into_calls() -> None:
    file = Stingy(10**6)
    buffers = [bytes([number % 256]) for number in range(2 * PWRITEV_BUFFERS_MAX + 1)]
    write_all(file, buffers, 0)
    assert file.content == b"".join(buffers)


def test_write_that_makes_no_progress_is_an_error() -> None:
    with pytest.raises(OSError, match="accepted no byte"):
        write_all(Stingy(0), [b"abc"], 0)


def test_lock_that_cannot_be_opened_is_named_with_its_directory(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        PosixDisk(tmp_path)
    assert caught.value.filename == str(tmp_path / "lock")
