"""A journal that writes past the page cache: the same groups, from memory and disk, whatever the disk refuses."""

import errno
import fcntl
import os
import random
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oncelog.errors import DiskFault, JournalPoisoned
from oncelog.limits import SEGMENT_BYTES_MIN
from oncelog.storage.disk import Buffer, PosixDisk, PosixFile
from oncelog.storage.frame import frame_bytes, unpack_frame
from oncelog.storage.journal import JOINED_PAYLOAD_BYTES_MAX, Journal, OpenGroup
from oncelog.storage.journal_reader import JournalReader
from oncelog.storage.kernel_writes import WriteNotTaken
from oncelog.storage.mirror import CAN_BE_SHARED, Mirror
from oncelog.storage.segment import segment_name
from tests.storage.test_kernel_writes import IO_SUBMIT, Kernel, contexts, kernel, needs_kernel_writes

__all__ = ["kernel", "needs_kernel_writes"]  # fixtures

pytestmark = pytest.mark.skipif(not CAN_BE_SHARED, reason="journals of this machine write through the page cache")

S = SEGMENT_BYTES_MIN
RING = 3 * 8192
"""Neither a multiple nor a part of a segment."""


@pytest.fixture(autouse=True)
def small_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Mirror.made
    monkeypatch.setattr(Mirror, "made", lambda first: made(first, RING))


def direct_journal(disk: PosixDisk, salt: int = 1) -> Journal:
    journal = Journal.open(disk, segment_bytes=S, salt=salt)
    journal.go_direct(disk)
    while journal.prepare():
        pass
    return journal


def fill(journal: Journal, count: int, seed: int = 1) -> dict[int, bytes]:
    """Groups of all sizes; spares are made as they are used."""
    chance = random.Random(seed)
    written = {}
    for _ in range(count):
        payload = chance.randbytes(chance.choice([0, 1, 400, 480, 481, 3000, 9000]))
        group = journal.append([payload[:100], payload[100:]])
        assert group is not None
        written[group] = payload
        journal.prepare()
    return written


def sealed(journal: Journal, payload: bytes) -> OpenGroup:
    journal.prepare()
    group = journal.begin(len(payload))
    assert group is not None
    journal.seal(group, len(payload))
    return group


def write_out(journal: Journal, group: OpenGroup, payload: bytes) -> bool:
    """As the loop does: returns whether the kernel took it."""
    buffers = [payload[:100], payload[100:]]
    is_taken = journal.start(group, buffers)
    with suppress(WriteNotTaken):
        while is_taken and not journal.is_written():
            os.sched_yield()
    if journal._written_group != group.group:
        is_taken = False
        journal.write(group, buffers)
    journal.durable(group)
    return is_taken


def put(journal: Journal, *payloads: bytes) -> tuple[dict[int, bytes], set[int]]:
    """Groups as the loop writes them; and the segments of those that the kernel took."""
    groups = [(sealed(journal, payload), payload) for payload in payloads]
    taken = {group.segment for group, payload in groups if write_out(journal, group, payload)}
    return {group.group: payload for group, payload in groups}, taken


def found(journal: Journal, written: dict[int, bytes]) -> dict[int, bytes]:
    return {group: payload for group, payload in journal.groups(None) if group in written}


def from_disk(path: Path, journal: Journal) -> dict[int, bytes]:
    """What anybody else finds, who has only the files."""
    return dict(JournalReader(PosixDisk(path, read_only=True)).groups(None, journal.durable_group))


def assert_whole(path: Path, journal: Journal, written: dict[int, bytes]) -> None:
    """Every way to read finds what was written; so does the next start, and it writes on."""
    assert found(journal, written) == written
    assert from_disk(path, journal).items() >= written.items()
    for group, payload in written.items():
        assert journal.payload(group) == payload
        assert journal.read(group, 0, len(payload)) == payload
        assert (
            journal.read(group, len(payload) // 2, len(payload) // 3)
            == payload[len(payload) // 2 :][: len(payload) // 3]
        )
    places = [(group, 0, len(payload)) for group, payload in written.items()]
    assert journal.read_many(places) == list(written.values())


def restarted(path: Path, disk: PosixDisk, journal: Journal, written: dict[int, bytes]) -> None:
    journal.close()
    disk.close()
    with_more = direct_journal(disk := PosixDisk(path), salt=2)
    assert_whole(path, with_more, written | fill(with_more, 5, seed=2))
    disk.close()


def test_groups_are_found_in_memory_and_on_disk_over_many_segments_and_laps(tmp_path: Path) -> None:
    journal = direct_journal(disk := PosixDisk(tmp_path))
    written = fill(journal, 60)
    assert journal.stats.segments > 5
    assert_whole(tmp_path, journal, written)
    restarted(tmp_path, disk, journal, written)


def test_writes_are_on_the_device_when_they_return(tmp_path: Path) -> None:
    """P1: there is no fdatasync behind them, so the file itself must promise it."""
    journal = direct_journal(disk := PosixDisk(tmp_path))
    for _ in range(2):
        flags = fcntl.fcntl(direct_file(journal)._descriptor, fcntl.F_GETFL)
        assert flags & os.O_DSYNC == os.O_DSYNC
        assert flags & os.O_DIRECT
        fill(journal, 10)
    disk.close()


def direct_file(journal: Journal) -> PosixFile:
    assert journal._direct is not None
    file = journal._direct.file
    assert file is not None
    return file


def test_recent_groups_are_read_from_memory_and_older_ones_from_the_disk(tmp_path: Path) -> None:
    journal = direct_journal(disk := PosixDisk(tmp_path))
    before = journal.durable_group
    assert not journal.is_in_memory(before), "recovery's own proof was written before there was a mirror"
    written = fill(journal, 60)
    end = journal.durable_group * 512 + frame_bytes(len(written[journal.durable_group]))
    held = [group for group in written if journal.is_in_memory(group)]
    assert held == [group for group in written if group * 512 >= end - RING]
    assert 0 < len(held) < len(written)
    for number in range(journal.stats.segments):
        (tmp_path / segment_name(number)).write_bytes(b"")
    journal._files.forget()
    for group in held:
        assert journal.read(group, 0, len(written[group])) == written[group]
    disk.close()


def test_reader_of_another_process_needs_no_disk_for_what_the_mirror_holds(tmp_path: Path) -> None:
    journal = direct_journal(disk := PosixDisk(tmp_path))
    fill(journal, 10)
    after = journal.durable_group
    written = {journal.append([bytes([number]) * 3000]): bytes([number]) * 3000 for number in range(5)}
    for number in range(journal.stats.segments):
        path = tmp_path / segment_name(number)
        with path.open("r+b") as file:
            file.seek(512)
            file.write(bytes(S - 512))
    assert journal.mirror is not None
    shared = Mirror(os.dup(journal.mirror.fileno()), read_only=True)
    reader = JournalReader(PosixDisk(tmp_path, read_only=True), shared)
    assert dict(reader.groups(after, journal.durable_group)) == written
    disk.close()


def test_group_that_is_not_durable_yet_is_not_in_the_mirror(tmp_path: Path) -> None:
    """P12: written, and nobody has said so."""
    journal = direct_journal(disk := PosixDisk(tmp_path))
    group = sealed(journal, b"early")
    journal.write(group, [b"early"])
    assert journal.mirror is not None
    assert journal.mirror.read(group.address, 512) is None
    journal.durable(group)
    assert journal.mirror.read(group.address + 32, 5) == b"early"
    disk.close()


# --- what a disk may refuse ----------------------------------------------------------------------------------------


def refuse_pwritev(monkeypatch: pytest.MonkeyPatch, *, code: int, times: int) -> None:
    """The next direct writes fail so often."""
    real = os.pwritev
    left = [times]

    def pwritev(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        if left[0] and fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            left[0] -= 1
            raise OSError(code, os.strerror(code))
        return real(descriptor, buffers, position)

    monkeypatch.setattr(os, "pwritev", pwritev)


def test_device_that_wants_larger_blocks_is_written_through_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = direct_journal(disk := PosixDisk(tmp_path))
    refuse_pwritev(monkeypatch, code=errno.EINVAL, times=1)
    written = fill(journal, 1)
    flags = fcntl.fcntl(direct_file(journal)._descriptor, fcntl.F_GETFL)
    assert not flags & os.O_DIRECT
    assert flags & os.O_DSYNC == os.O_DSYNC, "synced all the same"
    written |= fill(journal, 30, seed=3)
    assert_whole(tmp_path, journal, written)
    restarted(tmp_path, disk, journal, written)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_failed_direct_write_poisons_the_journal_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    journal = direct_journal(disk := PosixDisk(tmp_path))
    written = fill(journal, 20)
    refuse_pwritev(monkeypatch, code=code, times=1)
    last = journal.durable_group
    with pytest.raises(DiskFault, match=os.strerror(code)):
        journal.append([b"lost"])
    with pytest.raises(JournalPoisoned):
        journal.append([b"never"])
    assert journal.durable_group == last
    assert found(journal, written) == written, "what was confirmed can still be read"
    restarted(tmp_path, disk, journal, written)


def test_short_direct_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = direct_journal(disk := PosixDisk(tmp_path))
    real = os.pwritev

    def sector(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        if not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT or len(buffers[0]) > S:
            return real(descriptor, buffers, position)
        return real(descriptor, [memoryview(buffers[0])[:512]], position)

    monkeypatch.setattr(os, "pwritev", sector)
    written = fill(journal, 10)
    monkeypatch.undo()
    assert from_disk(tmp_path, journal).items() >= written.items()
    journal.close()
    disk.close()


def test_file_system_without_direct_writes_is_written_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_arguments: Any) -> PosixFile:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(PosixDisk, "open_direct", refused)
    journal = direct_journal(disk := PosixDisk(tmp_path))
    assert journal.mirror is None
    assert not put(journal, b"small")[1], "the kernel needs the mirror too"
    written = fill(journal, 20)
    assert all(map(journal.is_in_memory, written)), "they may be in the page cache"
    assert_whole(tmp_path, journal, written)
    restarted(tmp_path, disk, journal, written)


def test_segment_that_cannot_be_opened_for_direct_writes_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PosixDisk.open_direct
    synced: list[int] = []

    def every_second(disk: PosixDisk, name: str, *, synced: bool = True) -> PosixFile:
        if int(name[-1]) % 2 or (name == segment_name(2) and not synced):
            raise OSError(errno.EMFILE, "Too many open files")
        return real(disk, name, synced=synced)

    fdatasync = PosixFile.fdatasync
    monkeypatch.setattr(PosixDisk, "open_direct", every_second)
    journal = direct_journal(disk := PosixDisk(tmp_path))

    def noted(file: PosixFile) -> None:
        synced.append(journal._segment)
        fdatasync(file)

    monkeypatch.setattr(PosixFile, "fdatasync", noted)
    written = fill(journal, 20)
    more, taken = put(journal, *(b"%d" % number * 400 for number in range(70)))
    assert {1, 3} <= set(synced)
    assert not {1, 2, 3} & taken
    assert_whole(tmp_path, journal, written | more)
    restarted(tmp_path, disk, journal, written | more)


def test_without_memory_for_the_mirror_groups_go_through_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_name: str) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", refused)
    monkeypatch.setattr(Mirror, "made", classmethod(lambda _cls, _first: refused("")))
    journal = direct_journal(disk := PosixDisk(tmp_path))
    assert journal.mirror is None
    written = fill(journal, 20)
    assert_whole(tmp_path, journal, written)
    restarted(tmp_path, disk, journal, written)


# --- groups that are left to the kernel ------------------------------------------------------------------------------


def test_groups_are_the_same_whoever_writes_them(
    tmp_path: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all sizes, over many segments and laps. The kernel takes what is small, whole, and in the segment in use."""
    monkeypatch.setattr("oncelog.storage.direct.KERNEL_WRITE_BYTES_MAX", 4096)
    journal = direct_journal(disk := PosixDisk(tmp_path))
    chance = random.Random(1)
    written: dict[int, bytes] = {}
    seen: set[tuple[bool, bool, bool]] = set()
    for _ in range(150):
        written |= fill(journal, chance.choice([0, 0, 1]), seed=len(written))
        payload = chance.randbytes(chance.choice([0, 1, 480, 481, 3000, 4096 - 32, 4096 - 31, 9000]))
        segments, size = journal.stats.segments, frame_bytes(len(payload))
        new, taken = put(journal, payload)
        written |= new
        why_not = (journal.stats.segments > segments, size > 4096, journal.durable_group * 512 % RING + size > RING)
        assert bool(taken) == (not any(why_not))
        seen.add(why_not)
    assert {(False, False, False), (True, False, False), (False, True, False), (False, False, True)} <= seen
    assert_whole(tmp_path, journal, written)
    restarted(tmp_path, disk, journal, written)


def laid_out(
    path: Path, buffers: list[Buffer], joined_max: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[bytes, int, bytes]:
    """A group that is left to the kernel in a new journal: its bytes in the mirror, of how many pieces they were made,
    and its bytes on the disk."""
    real = Mirror.lay_out
    pieces: list[int] = []

    def noted(mirror: Mirror, address: int, buffers: Sequence[Buffer]) -> None:
        pieces.append(len(buffers))
        real(mirror, address, buffers)

    path.mkdir()
    journal = direct_journal(disk := PosixDisk(path))
    group = sealed(journal, b"".join(buffers))
    size = frame_bytes(group.payload_bytes)
    with monkeypatch.context() as patch:
        patch.setattr(Mirror, "lay_out", noted)
        patch.setattr("oncelog.storage.journal.JOINED_PAYLOAD_BYTES_MAX", joined_max)
        assert journal.start(group, buffers)
    while not journal.is_written():
        os.sched_yield()
    journal.durable(group)
    assert journal.mirror is not None
    (in_mirror,) = journal.mirror.pieces(group.address, size)
    on_disk = (path / segment_name(group.segment)).read_bytes()[group.position :][:size]
    assert unpack_frame(in_mirror, journal._files.identity_crc) is not None
    found, count = bytes(in_mirror), pieces.pop()
    assert not pieces
    journal.close()
    disk.close()
    return found, count, on_disk


@pytest.mark.parametrize("size", [0, 479, 481, JOINED_PAYLOAD_BYTES_MAX, JOINED_PAYLOAD_BYTES_MAX + 1, 15_000])
def test_group_lies_in_the_mirror_alike_whether_it_was_joined_or_laid_out_in_pieces(
    tmp_path: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    payload = random.Random(size).randbytes(size)
    buffers: list[Buffer] = [payload[:100], bytearray(payload[100:101]), memoryview(payload)[101:]]
    frames = set()
    for name, joined_max in {"joined": size, "in pieces": -1, "as it is": JOINED_PAYLOAD_BYTES_MAX}.items():
        in_mirror, pieces, on_disk = laid_out(tmp_path / name, buffers, joined_max, monkeypatch)
        assert pieces == (1 if size <= joined_max else len(buffers) + 2)
        assert in_mirror[32 : 32 + size] == payload
        frames |= {in_mirror, on_disk}
    assert len(frames) == 1


def test_group_that_the_kernel_writes_is_not_in_the_mirror_before_it_is_durable(tmp_path: Path, kernel: Kernel) -> None:
    """P12: not while it is written, and not when it is but nobody has said so."""
    journal = direct_journal(PosixDisk(tmp_path))
    assert journal.mirror is not None
    group = sealed(journal, b"early")
    is_written = not journal.start(group, [b"early"])
    while not is_written:
        assert journal.mirror.read(group.address, 512) is None
        is_written = journal.is_written()
    assert journal.mirror.read(group.address, 512) is None
    journal.durable(group)
    assert journal.mirror.read(group.address + 32, 5) == b"early"


@pytest.mark.parametrize("step", ["write", "sync"])
def test_failure_in_the_kernel_poisons_the_journal_for_ever(tmp_path: Path, kernel: Kernel, step: str) -> None:
    journal = direct_journal(disk := PosixDisk(tmp_path))
    written, _ = put(journal, b"a", b"b" * 3000)
    last = journal.durable_group
    lost = sealed(journal, b"lost")
    kernel.results = {step: -errno.EIO}
    with pytest.raises(DiskFault, match=os.strerror(errno.EIO)):
        write_out(journal, lost, b"lost")
    kernel.results = {}
    for never in (journal.is_written, partial(journal.durable, lost), partial(journal.append, [b"never"])):
        with pytest.raises(JournalPoisoned):
            never()
    assert journal.durable_group == last
    assert found(journal, written) == written, "what was confirmed can still be read"
    restarted(tmp_path, disk, journal, written)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EAGAIN, errno.EOPNOTSUPP])
@pytest.mark.parametrize("step", ["hand over", "write"])
def test_group_that_the_kernel_gives_back_is_written_all_the_same(
    tmp_path: Path, kernel: Kernel, step: str, code: int
) -> None:
    """The kernel is asked again only if it would have had to wait; never on a device that wants larger blocks, or where
    it does not know what it is asked for."""
    journal = direct_journal(disk := PosixDisk(tmp_path))
    kernel.results = {step: -code}
    kernel.refused = {IO_SUBMIT: code} if step == "hand over" else {}
    written, taken = put(journal, b"first")
    assert not taken
    kernel.results, kernel.refused = {}, {}
    more, taken = put(journal, *(b"%d" % number * 100 for number in range(50)))
    assert bool(taken) == (code == errno.EAGAIN)
    assert_whole(tmp_path, journal, written | more)
    restarted(tmp_path, disk, journal, written | more)


def test_close_with_a_group_under_way_is_clean(tmp_path: Path, kernel: Kernel) -> None:
    before = contexts()
    journal = direct_journal(disk := PosixDisk(tmp_path))
    written, _ = put(journal, b"confirmed")
    under_way = sealed(journal, b"under way")
    assert journal.start(under_way, [b"under way"])
    journal.close()
    assert contexts() == before
    with pytest.raises(JournalPoisoned):
        journal.durable(under_way)
    restarted(tmp_path, disk, journal, written)
