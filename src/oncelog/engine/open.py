"""Opening an engine over a directory, or in memory: the one place that chooses disks, indexes and processes."""

import asyncio
import contextlib
import gc
import os
import secrets
import sys
import traceback
from functools import partial
from pathlib import Path

from oncelog import limits
from oncelog.engine.clock import LogClock, check_clock
from oncelog.engine.engine import Engine, Settings
from oncelog.engine.guard import Fatal
from oncelog.engine.index_building import catch_up
from oncelog.engine.store import Store, open_store
from oncelog.errors import StorageError
from oncelog.storage.allocator import keep_large_blocks
from oncelog.storage.clock_note import read_clock_note, write_clock_note
from oncelog.storage.disk import MemoryDisk, PosixDisk
from oncelog.storage.index.builder import Builder, InlineBuilder
from oncelog.storage.index.child import ChildBuilder, index_directory, journal_directory, wait_for_builder
from oncelog.storage.index.lmdb_index import LmdbIndex
from oncelog.storage.index.memory_index import MemoryIndex
from oncelog.storage.journal_reader import JournalReader

EXIT_STORAGE = 74
"""The process's exit code after the disk failed it (EX_IOERR)."""

EXIT_BUG = 70
"""The same after an exception that nobody expected (EX_SOFTWARE)."""

SWITCH_INTERVAL_S = 0.0002
"""How long a thread keeps the interpreter when another wants it. At the default 5 ms the writer's hand-back starves."""

GC_THRESHOLDS = (50_000, 20, 100)

_NOBODYS = frozenset(("lost+found", "index"))
"""What may be in a directory before a log is: the file system's own, and what an earlier start got to make."""

SEGMENT_BYTES_IN_MEMORY = 16 * limits.MIB
"""Segments and spares are all in memory: 64 MiB each would be a quarter of a GiB before the first record."""


def end_process(error: BaseException) -> None:
    """The disk did not do what it was told, or we have a bug: nothing may be confirmed, so nothing may go on."""
    if isinstance(error, StorageError):
        sys.stderr.write(f"oncelog: {type(error).__name__}: {error}\n")
    else:
        traceback.print_exception(error)
        sys.stderr.write("oncelog: this is a bug; nothing after the last confirmed write was revealed\n")
    sys.stderr.flush()
    os._exit(EXIT_STORAGE if isinstance(error, StorageError) else EXIT_BUG)


def open_engine(
    directory: Path,
    loop: asyncio.AbstractEventLoop,
    *,
    settings: Settings | None = None,
    fatal: Fatal = end_process,
) -> Engine:
    """An engine over `directory`, recovered and running. Raises StorageError if it cannot be opened."""
    settings = settings or Settings()
    _refuse_foreign(directory)
    _make_directories(directory)
    disk = PosixDisk(journal_directory(directory))
    index: LmdbIndex | None = None
    store: Store | None = None
    try:
        # A builder whose server was killed may still be finishing its commit.
        wait_for_builder(directory)
        index = LmdbIndex(index_directory(directory))
        store = open_store(
            disk,
            index,
            lambda group: _build(directory, group),
            segment_bytes=settings.segment_bytes,
            salt=secrets.randbits(128),
        )
        log_clock = _log_clock(directory, max(store.state.time_ns, read_clock_note(directory)), settings)
        store.journal.go_direct(disk)
        builder = ChildBuilder(directory, store.journal.mirror)
    except BaseException:
        if store is not None:
            store.journal.close()
        if index is not None:
            index.close()
        disk.close()
        raise
    _tune()
    return Engine(
        store,
        builder,
        loop,
        settings=settings,
        durability="fdatasync",
        fatal=fatal,
        log_clock=log_clock,
        close_files=disk.close,
    )


def _log_clock(directory: Path, last_known_ns: int, settings: Settings) -> LogClock:
    """Raises ClockRefused."""
    if not settings.accept_clock:
        check_clock(last_known_ns, settings.clock_jump_max_ms)
    return LogClock(
        last_known_ns,
        settle_ms=settings.clock_settle_ms,
        jump_max_ms=settings.clock_jump_max_ms,
        write_note=partial(write_clock_note, directory),
    )


def open_in_memory(
    loop: asyncio.AbstractEventLoop,
    *,
    settings: Settings | None = None,
    fatal: Fatal = end_process,
) -> Engine:
    """The same engine over memory: durability=none."""
    settings = settings or Settings(segment_bytes=SEGMENT_BYTES_IN_MEMORY)
    disk = MemoryDisk()
    index = MemoryIndex()
    store = open_store(disk, index, _no_tail, segment_bytes=settings.segment_bytes, salt=secrets.randbits(128))
    builder = InlineBuilder(Builder(JournalReader(disk), index, index))
    _tune()
    return Engine(store, builder, loop, settings=settings, durability="none", fatal=fatal, close_files=disk.close)


def _refuse_foreign(directory: Path) -> None:
    """A log does not settle among somebody else's files: most likely the path is mistyped."""
    if not directory.is_dir() or journal_directory(directory).exists():
        return
    others = sorted(path.name for path in directory.iterdir() if path.name not in _NOBODYS)
    if others:
        what = f"{directory} holds other files ({others[0]}, …) and no log"
        raise StorageError(what, hint="choose an empty directory, or one that does not exist yet")


def _make_directories(directory: Path) -> None:
    """Make what is missing, and make it durable: a synced journal in a directory that a power cut takes back is lost.

    The names are synced at every start, also when they were there before: whoever made them may have been killed
    between the two steps.
    """
    made = [path for path in (directory, *directory.absolute().parents) if not path.exists()]
    for path in (index_directory(directory), journal_directory(directory)):
        path.mkdir(parents=True, exist_ok=True)
    for path in (directory, *(path.absolute().parent for path in made)):
        _sync_directory(path)
    if not made:
        # Whoever started us may use the directory without being allowed to look at the one above it.
        with contextlib.suppress(PermissionError):
            _sync_directory(directory.absolute().parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _build(directory: Path, group: int) -> None:
    """Bring a missing or very old index up, in a process that is gone afterwards."""
    builder = ChildBuilder(directory)
    try:
        catch_up(builder, group)
    finally:
        builder.stop()


def _no_tail(group: int) -> None:
    raise AssertionError(f"a journal that was just made has no tail, but it has group {group}")


def _tune() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    keep_large_blocks()
    # Rows loaded so far live for long: without this a full collection walks all of them (0.2 s at a million rows).
    gc.collect()
    gc.freeze()
    # Commands and answers die young and in no cycle: looking for cycles every 700 of them cost a tenth of the CPU.
    gc.set_threshold(*GC_THRESHOLDS)
