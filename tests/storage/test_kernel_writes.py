"""Writes of the kernel's own: on the device when it says so, in the right order, and every failure told.

The kernel is the real one. Where it has to be slow, or has to fail as no healthy disk does, `Kernel` stands between.
"""

import ctypes
import errno
import mmap
import os
import random
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from oncelog.limits import KERNEL_WRITE_BYTES_MAX, KIB, SEGMENT_BYTES_MIN
from oncelog.storage import kernel_writes
from oncelog.storage.disk import PosixDisk
from oncelog.storage.journal import Journal
from oncelog.storage.kernel_writes import KernelWrites, WriteNotTaken
from oncelog.storage.mirror import CAN_BE_SHARED

IO_SETUP, IO_DESTROY, IO_GETEVENTS, IO_SUBMIT = 206, 207, 208, 209
OPERATIONS: Final = {1: "write", 3: "sync"}
FILE_BYTES = 1024 * KIB
SIGNALS = 300


def can_be_had(path: Path) -> bool:
    """Whether this machine has such writes, asked without the code that is tested."""
    if not CAN_BE_SHARED:
        return False
    context = ctypes.c_uint64(0)
    ask = ctypes.CDLL(None).syscall
    if ask(ctypes.c_long(IO_SETUP), ctypes.c_long(1), ctypes.byref(context)):
        return False
    ask(ctypes.c_long(IO_DESTROY), context)
    (probe := path / "probe").touch()
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_DIRECT))
    except OSError:
        return False
    finally:
        probe.unlink()
    return True


@pytest.fixture
def needs_kernel_writes(tmp_path: Path) -> None:
    if not can_be_had(tmp_path):
        pytest.skip("groups of this machine are written by the thread")


pytestmark = pytest.mark.usefixtures("needs_kernel_writes")


def contexts() -> int:
    """How many the kernel keeps for this process: each has a ring that is mapped."""
    return Path("/proc/self/maps").read_text().count("[aio]")


class Kernel:
    """Between the writes and the kernel: keeps the story, and can hold back or make up what the kernel says."""

    def __init__(self) -> None:
        self._real: Callable[..., int] = kernel_writes._call
        self._asked: tuple[str, int] = ("", -1)
        self.story: list[tuple[str, str, int]] = []
        """What was asked for and what ended, with its file."""
        self.held = ""
        """The operation whose end is kept secret."""
        self.results: dict[str, int] = {}
        """What operations end with instead."""
        self.refused: dict[int, int] = {}
        """Calls that fail at once, and with what error; with none they do nothing."""

    def __call__(self, number: ctypes.c_long, *arguments: Any) -> int:
        if number.value in self.refused:
            ctypes.set_errno(self.refused[number.value])
            return -1 if self.refused[number.value] else 0
        if number.value == IO_GETEVENTS and self._asked[0] == self.held:
            return 0
        found = self._real(number, *arguments)
        if number.value == IO_SUBMIT and found == 1:
            request = arguments[2]._obj.contents
            self._asked = (OPERATIONS[request.opcode], request.descriptor)
            self.story.append(("asked", *self._asked))
        if number.value == IO_GETEVENTS and found == 1:
            self.story.append(("ended", *self._asked))
            arguments[3]._obj.result = self.results.get(self._asked[0], arguments[3]._obj.result)
        return found


@pytest.fixture
def kernel(needs_kernel_writes: None, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(kernel_writes, "_call", kernel)
    return kernel


class Target:
    """A file that is open past the page cache, and memory that can be written to it."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(FILE_BYTES))
        self.path = path
        self.descriptor = os.open(path, os.O_WRONLY | os.O_DIRECT)
        os.fsync(self.descriptor)
        self.drop_cached()
        self.memory = mmap.mmap(-1, FILE_BYTES)
        self.memory[:] = random.Random(1).randbytes(FILE_BYTES)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.writes = KernelWrites(self.descriptor)

    def start(self, first: int = 0, size: int = 4 * KIB, descriptor: int | None = None) -> None:
        """Have [first, first + size) written to where it lies in memory."""
        self.writes.start(self.descriptor if descriptor is None else descriptor, self.address + first, size, first)

    def drop_cached(self) -> None:
        """The kernel takes no write over cached pages, as it takes none that would have to wait."""
        os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def finish(self) -> None:
        while not self.writes.is_done():
            os.sched_yield()

    def on_disk(self) -> bytes:
        """The file, read past the page cache too."""
        found = mmap.mmap(-1, FILE_BYTES)
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        assert os.preadv(descriptor, [found], 0) == FILE_BYTES
        os.close(descriptor)
        return found[:]


@pytest.fixture(params=["ring", "calls"])
def target(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Target]:
    """Looks into the kernel's ring of events; or calls it each time, as where the ring is not what we know."""
    before = contexts()
    target = Target(tmp_path / "file")
    assert target.writes._ring is not None
    if request.param == "calls":
        target.writes._ring = None
    yield target
    target.writes.close()
    assert contexts() == before
    os.close(target.descriptor)


def test_bytes_are_on_the_disk_when_it_is_done(target: Target) -> None:
    expected = bytearray(FILE_BYTES)
    for first, size in [(0, 512), (512, 4 * KIB), (64 * KIB, KERNEL_WRITE_BYTES_MAX), (FILE_BYTES - 512, 512)]:
        target.start(first, size)
        target.finish()
        expected[first : first + size] = target.memory[first : first + size]
        assert target.on_disk() == expected
        target.memory[first : first + size] = bytes(size)  # it is ours again
        assert target.on_disk() == expected


def test_sync_is_asked_for_when_the_write_has_ended_and_nothing_is_done_before_it_has(
    kernel: Kernel, target: Target
) -> None:
    """P1: a sync that runs beside the write says nothing about it."""
    file = target.descriptor
    assert kernel.story == [("asked", "sync", file), ("ended", "sync", file)], "whether it can sync is tried at once"
    kernel.story.clear()
    kernel.held = "write"
    target.start()
    assert not any(target.writes.is_done() for _ in range(100))
    assert kernel.story == [("asked", "write", file)]
    kernel.held = "sync"
    while len(kernel.story) < 3:
        assert not target.writes.is_done()
    assert not any(target.writes.is_done() for _ in range(100))
    assert kernel.story == [("asked", "write", file), ("ended", "write", file), ("asked", "sync", file)]
    kernel.held = ""
    target.finish()
    assert kernel.story[3:] == [("ended", "sync", file)]


def test_each_write_is_synced_on_the_file_that_it_went_to(kernel: Kernel, target: Target, tmp_path: Path) -> None:
    other = Target(tmp_path / "other")
    kernel.story.clear()
    for descriptor in (other.descriptor, target.descriptor, target.descriptor):
        target.start(descriptor=descriptor)
        target.finish()
        steps = [("asked", "write"), ("ended", "write"), ("asked", "sync"), ("ended", "sync")]
        assert kernel.story == [(*step, descriptor) for step in steps]
        kernel.story.clear()
    assert other.on_disk()[: 4 * KIB] == target.memory[: 4 * KIB]
    other.writes.close()
    os.close(other.descriptor)


# --- what is not taken, and what fails -------------------------------------------------------------------------------


@pytest.mark.parametrize(("memory", "size", "position"), [(1, 4096, 0), (0, 4096, 100), (0, 100, 0)])
def test_write_that_does_not_lie_as_the_device_wants_it_is_not_taken(
    target: Target, memory: int, size: int, position: int
) -> None:
    before = target.on_disk()
    target.writes.start(target.descriptor, target.address + memory, size, position)
    with pytest.raises(WriteNotTaken):
        target.finish()
    assert target.on_disk() == before, "nothing of it was done"
    target.start()
    target.finish()
    assert target.on_disk()[: 4 * KIB] == target.memory[: 4 * KIB], "the next one may be"


def assert_fails(code: int, step: Callable[[], object]) -> None:
    """A failure, and not one that says that nothing was done."""
    with pytest.raises(OSError, match=rf"Errno {code}\b") as failure:
        step()
    assert not isinstance(failure.value, WriteNotTaken)


def assert_given_back(code: int, step: Callable[[], object], *, is_final: bool = True) -> None:
    """Nothing that counts was done: somebody else may write it, and finds out what is wrong with the file."""
    with pytest.raises(WriteNotTaken, match=rf"Errno {code}\b") as refused:
        step()
    assert refused.value.is_final == is_final


def test_file_that_cannot_be_written_is_told_at_once(target: Target) -> None:
    read_only = os.open(target.path, os.O_RDONLY | os.O_DIRECT)
    assert_given_back(errno.EBADF, lambda: target.start(descriptor=read_only))
    os.close(read_only)
    assert_given_back(errno.EBADF, lambda: target.start(descriptor=read_only))


def test_write_that_would_have_to_wait_is_given_back_and_the_next_one_is_taken(target: Target) -> None:
    """Here for pages that are cached. On kernels that let every such write wait, it is each of them."""
    assert target.path.read_bytes() == bytes(FILE_BYTES)

    def write() -> None:
        target.start()
        target.finish()

    assert_given_back(errno.EAGAIN, write, is_final=False)
    assert target.on_disk() == bytes(FILE_BYTES)
    target.drop_cached()
    write()
    assert target.on_disk()[: 4 * KIB] == target.memory[: 4 * KIB]


@pytest.fixture
def short_of_room() -> Iterator[int]:
    """Files end here, as on a device that is full: until then a write is taken, and behind it none is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES // 2, hard))
    yield FILE_BYTES // 2
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_write_for_which_there_is_no_room_is_an_error(target: Target, short_of_room: int) -> None:
    target.start(short_of_room)
    assert_fails(errno.EFBIG, target.finish)


def test_write_of_which_only_a_part_was_taken_is_an_error_and_is_not_synced(
    kernel: Kernel, target: Target, short_of_room: int
) -> None:
    kernel.story.clear()
    target.start(short_of_room - 512, 1024)
    with pytest.raises(OSError, match="took 512 of 1024 bytes"):
        target.finish()
    assert [(what, operation) for what, operation, _ in kernel.story] == [("asked", "write"), ("ended", "write")]


def test_file_that_is_gone_before_the_sync_is_never_done(kernel: Kernel, target: Target) -> None:
    second = os.dup(target.descriptor)
    kernel.held = "write"
    target.start(descriptor=second)
    os.close(second)
    kernel.held = ""
    assert_given_back(errno.EBADF, target.finish)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EINVAL])
def test_failed_sync_is_an_error_whatever_it_says(kernel: Kernel, target: Target, code: int) -> None:
    """Invalid argument is no excuse here: the write was done, and is neither on the device nor undone."""
    kernel.results["sync"] = -code
    target.start()
    assert_fails(code, target.finish)


def test_failed_write_is_an_error_and_is_not_synced(kernel: Kernel, target: Target) -> None:
    kernel.results["write"] = -errno.EIO
    kernel.story.clear()
    target.start()
    assert_fails(errno.EIO, target.finish)
    assert ("asked", "sync", target.descriptor) not in kernel.story


@pytest.mark.parametrize("code", [errno.EAGAIN, 0], ids=["refuses", "takes nothing"])
def test_write_that_the_kernel_does_not_take_is_given_back(kernel: Kernel, target: Target, code: int) -> None:
    kernel.refused[IO_SUBMIT] = code
    assert_given_back(errno.EAGAIN, target.start, is_final=False)


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EAGAIN])
def test_write_that_ended_without_being_done_is_given_back(kernel: Kernel, target: Target, code: int) -> None:
    kernel.results["write"] = -code
    target.start()
    assert_given_back(code, target.finish, is_final=code != errno.EAGAIN)


def test_kernel_that_cannot_be_asked_is_an_error(kernel: Kernel, target: Target) -> None:
    target.start()
    kernel.refused[IO_GETEVENTS] = errno.EFAULT
    assert_fails(errno.EFAULT, target.finish)


def test_signal_that_comes_during_a_look_is_no_failure(target: Target) -> None:
    """The kernel then breaks a look off that finds nothing (EINTR). A server that is told to stop has a sound disk."""
    came: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: came.append(number))
    # Another process, since a thread of this one would wait for the interpreter, which a look does not give away.
    sender = subprocess.Popen(["sh", "-c", f"while kill -USR1 {os.getpid()}; do :; done"])
    try:
        while len(came) < SIGNALS:
            target.start()
            target.finish()
    finally:
        sender.kill()
        sender.wait()
        signal.signal(signal.SIGUSR1, before)
    assert target.on_disk()[: 4 * KIB] == target.memory[: 4 * KIB]


# --- the end, and no beginning ---------------------------------------------------------------------------------------


def test_close_waits_for_what_is_under_way(target: Target) -> None:
    """The memory may be anybody's then."""
    written = target.memory[:]
    target.start(0, FILE_BYTES)
    target.writes.close()
    target.memory[:] = bytes(FILE_BYTES)
    assert target.on_disk() == written


def test_nothing_is_taken_after_the_end(target: Target) -> None:
    before = contexts()
    target.writes.close()
    assert contexts() == before - 1
    assert_given_back(errno.EINVAL, target.start)
    assert_fails(errno.EINVAL, target.writes.is_done)


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def test_kernel_without_such_writes_is_told_at_once(kernel: Kernel, descriptor: int) -> None:
    before = contexts()
    kernel.refused[IO_SETUP] = errno.ENOSYS
    assert_fails(errno.ENOSYS, partial(KernelWrites, descriptor))
    assert contexts() == before


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_file_whose_sync_fails_is_told_at_once_and_leaves_nothing_behind(
    kernel: Kernel, descriptor: int, code: int
) -> None:
    before = contexts()
    kernel.results["sync"] = -code
    assert_fails(code, partial(KernelWrites, descriptor))
    assert contexts() == before


def test_what_cannot_be_synced_is_told_at_once_and_leaves_nothing_behind() -> None:
    before = contexts()
    reader, writer = os.pipe()
    assert_given_back(errno.EINVAL, partial(KernelWrites, writer))
    os.close(reader)
    os.close(writer)
    assert_given_back(errno.EBADF, partial(KernelWrites, writer))
    assert contexts() == before


def test_journal_over_a_kernel_without_such_writes_leaves_its_groups_to_the_thread(
    kernel: Kernel, tmp_path: Path
) -> None:
    kernel.refused[IO_SETUP] = errno.ENOSYS
    journal = Journal.open(disk := PosixDisk(tmp_path), segment_bytes=SEGMENT_BYTES_MIN, salt=1)
    journal.go_direct(disk)
    assert journal.mirror is not None, "which writes past the page cache all the same"
    group = journal.begin(5)
    assert group is not None
    journal.seal(group, 5)
    assert not journal.start(group, [b"value"])
    journal.write(group, [b"value"])
    journal.durable(group)
    assert journal.payload(group.group) == b"value"
    journal.close()
    disk.close()
