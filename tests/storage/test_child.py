"""The builder as a process: answers, coalesces, notices a full disk and damage, and dies without leaving a trace."""

import contextlib
import os
import random
import select
import signal
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import msgspec
import pytest

from oncelog.errors import DiskFull
from oncelog.storage.disk import PosixDisk
from oncelog.storage.index import child
from oncelog.storage.index.builder import Builder
from oncelog.storage.index.child import ChildBuilder, index_directory, journal_directory, wait_for_builder
from oncelog.storage.index.compare import differences
from oncelog.storage.index.dump import Kind, items_of
from oncelog.storage.index.interface import Changes, Died, Done, Full, Position, Reply
from oncelog.storage.index.lmdb_index import LmdbIndex
from oncelog.storage.index.lmdb_writer import LmdbWriter, take_lock
from oncelog.storage.index.memory_index import MemoryIndex
from oncelog.storage.journal_reader import JournalReader
from oncelog.storage.mirror import CAN_BE_SHARED
from tests.storage.log_writer import LogWriter, write_appends, write_everything

REPLY_S = 30


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    index_directory(tmp_path).mkdir()
    return tmp_path


def written(directory: Path, *, rounds: int = 0) -> LogWriter:
    log = LogWriter(PosixDisk(journal_directory(directory)), segment_bytes=1 << 20)
    write_everything(log)
    if rounds:
        write_appends(log, ("x", "y"), rounds)
    return log


def wait_for_reply(builder: ChildBuilder) -> list[Reply]:
    assert select.select([builder.fileno()], [], [], REPLY_S)[0], "the child says nothing"
    return builder.replies()


def wait_for_group(builder: ChildBuilder, group: int) -> None:
    while True:
        for reply in wait_for_reply(builder):
            assert isinstance(reply, Done), reply
            if reply.group >= group:
                return


def assert_equals_journal(directory: Path, group: int) -> None:
    """The index on disk is what a rebuild up to `group` gives."""
    rebuilt = MemoryIndex()
    disk = PosixDisk(journal_directory(directory), read_only=True)
    Builder(JournalReader(disk), rebuilt, rebuilt).advance(group)
    kind, _, position = next(items := items_of(index_directory(directory)))
    assert (kind, msgspec.msgpack.decode(position, type=Position)) == (Kind.POSITION, rebuilt.refresh())
    assert list(differences(rebuilt, takewhile(lambda item: item[0] is not Kind.END, items))) == []


def test_child_builds_what_is_asked_for_and_ends_with_stdin(directory: Path) -> None:
    log = written(directory)
    groups = [group for group, _ in log.journal.groups(None)]
    builder = ChildBuilder(directory)
    for group in (groups[3], groups[-1], groups[-1]):
        builder.request(group)
        wait_for_group(builder, group)
    assert os.getpriority(os.PRIO_PROCESS, builder.process_id) >= child.NICE
    builder.stop()
    builder.stop()
    assert builder.replies() == []
    assert_equals_journal(directory, groups[-1])


def test_requests_are_coalesced_and_the_latest_counts(directory: Path) -> None:
    log = written(directory)
    groups = [group for group, _ in log.journal.groups(None)]
    builder = ChildBuilder(directory)
    for group in groups:
        builder.request(group)
    wait_for_group(builder, groups[-1])
    builder.stop()
    assert_equals_journal(directory, groups[-1])


def test_killed_child_is_noticed(directory: Path) -> None:
    written(directory)
    builder = ChildBuilder(directory)
    os.kill(builder.process_id, signal.SIGKILL)
    assert wait_for_reply(builder) == [Died("killed by signal 9", -signal.SIGKILL)]
    assert builder.replies() == []
    builder.request(1)
    builder.stop()


def test_damage_in_the_journal_ends_the_child_with_a_reason(directory: Path) -> None:
    log = written(directory)
    group = [group for group, _ in log.journal.groups(None)][4]
    with open(journal_directory(directory) / "segment-000000000000", "r+b") as file:
        file.seek(group * 512 + 40)
        file.write(b"\xff")
    builder = ChildBuilder(directory)
    builder.request(log.journal.durable_group)
    (died,) = wait_for_reply(builder)
    assert isinstance(died, Died)
    assert died.exit_code == child.EXIT_DAMAGED
    assert "segment-000000000000" in died.reason
    assert f"at byte {group * 512}" in died.reason
    builder.stop()


@pytest.mark.skipif(not CAN_BE_SHARED, reason="journals of this machine write through the page cache")
def test_child_reads_what_the_mirror_holds_from_there(directory: Path) -> None:
    disk = PosixDisk(journal_directory(directory))
    log = LogWriter(disk, segment_bytes=1 << 20)
    log.journal.go_direct(disk)
    write_everything(log)
    groups = [group for group, _ in log.journal.groups(None)]
    builder = ChildBuilder(directory, log.journal.mirror)
    builder.request(groups[3])
    wait_for_group(builder, groups[3])
    segment = journal_directory(directory) / "segment-000000000000"
    content = segment.read_bytes()
    with segment.open("r+b") as file:
        file.seek(groups[3] * 512)
        file.write(bytes(len(content) - groups[3] * 512))
    builder.request(groups[-1])
    wait_for_group(builder, groups[-1])
    builder.stop()
    segment.write_bytes(content)
    assert_equals_journal(directory, log.journal.durable_group)


def test_builder_of_a_killed_server_is_waited_for(directory: Path) -> None:
    written(directory)
    lock = take_lock(index_directory(directory), wait=False)
    waiting = os.fork()
    if waiting == 0:
        os.close(lock)
        wait_for_builder(directory)
        os._exit(0)
    assert os.waitpid(waiting, os.WNOHANG) == (0, 0)
    os.close(lock)
    assert os.waitpid(waiting, 0)[1] == 0


def test_killed_at_any_moment_the_index_goes_on_exactly(directory: Path) -> None:
    log = written(directory, rounds=60)
    groups = [group for group, _ in log.journal.groups(None)]
    chance = random.Random(11)
    reached = 0
    for _ in range(6):
        builder = ChildBuilder(directory)
        builder.request(groups[min(reached + 1, len(groups) - 1)])
        wait_for_reply(builder)
        for group in groups[reached : reached + 12]:
            builder.request(group)
        reached = min(reached + 10, len(groups) - 1)
        # Not a wait for anything: the kill falls at a random moment of the commits that follow.
        select.select([], [], [], chance.random() * 0.03)
        os.kill(builder.process_id, signal.SIGKILL)
        builder.stop()
        with contextlib.closing(LmdbIndex(index_directory(directory), lock=False)) as index:
            group = index.refresh().group
        assert_equals_journal(directory, group)
    builder = ChildBuilder(directory)
    builder.request(groups[-1])
    wait_for_group(builder, groups[-1])
    builder.stop()
    assert_equals_journal(directory, groups[-1])


# --- the child's own loop, in this process -----------------------------------------------------------------------


class Pipes:
    """Stdin and stdout of `child.serve`, as pipes of this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stdin, self.stdin = os.pipe()
        self.stdout, stdout = os.pipe()
        monkeypatch.setattr(child, "_STDIN", stdin)
        monkeypatch.setattr(child, "_STDOUT", stdout)
        self._inner = (stdin, stdout)

    def close(self) -> list[str]:
        """What was said."""
        os.close(self._inner[1])
        with open(self.stdout, "rb") as out:
            lines = out.read().decode().splitlines()
        os.close(self._inner[0])
        return lines


def test_full_disk_is_said_and_tried_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = written(directory)
    pipes = Pipes(monkeypatch)
    monkeypatch.setattr(child, "RETRY_S", 0.0)
    attempts = []
    real = LmdbWriter.commit

    def commit(writer: LmdbWriter, changes: Changes) -> None:
        attempts.append(changes.position.group)
        if len(attempts) < 3:
            raise DiskFull("no room for the index")
        real(writer, changes)
        os.close(pipes.stdin)

    monkeypatch.setattr(LmdbWriter, "commit", commit)
    os.write(pipes.stdin, b"advance %d\n" % log.journal.durable_group)
    child.serve(directory)
    lines = pipes.close()
    assert [line.split()[0] for line in lines] == ["full", "full", "done"]
    assert isinstance(child._parsed(lines[0].encode()), Full)
    assert_equals_journal(directory, log.journal.durable_group)


def test_nonsense_on_stdin_ends_the_child(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(directory)
    pipes = Pipes(monkeypatch)
    os.write(pipes.stdin, b"retreat 5\n")
    with pytest.raises(ValueError, match="not a request"):
        child.serve(directory)
    os.close(pipes.stdin)
    assert pipes.close() == []


@pytest.mark.from_source
def test_child_merges_while_nothing_is_asked_and_ends_in_the_middle_of_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(directory)
    pipes = Pipes(monkeypatch)
    steps: list[int] = []

    def maintain(_writer: LmdbWriter) -> bool:
        steps.append(len(steps))
        if len(steps) == 1:
            os.write(pipes.stdin, b"advance %d\n" % (10 * log.journal.durable_group))  # far ahead: merging waits
        if len(steps) == 5:
            os.close(pipes.stdin)
        return True

    group = log.journal.durable_group
    reports: list[int] = []
    real = Builder.advance

    def advance(builder: Builder, until: int, progress: Callable[[Done], None] | None = None) -> None:
        reports.append(until)
        real(builder, min(until, group), progress)

    monkeypatch.setattr(child, "MERGE_LAG_BYTES_MAX", 0)
    monkeypatch.setattr(LmdbWriter, "maintain", maintain)
    monkeypatch.setattr(Builder, "advance", advance)
    os.write(pipes.stdin, b"advance %d\n" % group)
    child.serve(directory)
    monkeypatch.undo()
    assert reports == [group, 10 * group], "the one that came while it merged, before it went on"
    assert steps == [0, 1, 2, 3, 4], "a merge is ended by the end of stdin, not the other way round"
    assert pipes.close()
    assert_equals_journal(directory, group)
