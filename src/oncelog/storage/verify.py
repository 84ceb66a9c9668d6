"""`verify`: is a stopped log what it promises to be? Reads everything, changes nothing of it.

 1. Every frame from the first retained one to the end: recovery's own walk. Damage has a file and a position; a torn
    tail behind the last whole group is no damage but what a crash leaves, and is noted.
 2. Everything is replayed from the journal alone into an index of its own, each entry checked before it is applied
    (`entry_check.py`); at the end `core.audit` judges the rows, and every offset must have its place.
 3. When the replay reaches the position of the index on disk, the two are compared key by key. Reading that index is
    left to another process, since a damaged one can end the process that reads it.

Damage of the journal ends the walk where it is found: nothing behind it can be judged.

The index of its own is in memory, or for a large journal in a directory `.verify-…` beside the log's own two, whose
device has room for such; where that may not be written, in the system's temporary directory. It is gone afterwards,
unless the process is killed: then it may be removed by hand.
"""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from oncelog.core.audit import audit
from oncelog.core.flat import Stream
from oncelog.core.row_codec import decode_key, decode_row
from oncelog.core.rows import Table
from oncelog.core.state import State
from oncelog.errors import Corruption, DirectoryInUse, DiskFault, StorageError
from oncelog.storage.disk import LOCK_NAME, Disk, PosixDisk
from oncelog.storage.entry_check import EntryCheck
from oncelog.storage.frame import frame_bytes
from oncelog.storage.index.builder import Builder
from oncelog.storage.index.child import index_directory, journal_directory
from oncelog.storage.index.compare import WholeIndex, differences
from oncelog.storage.index.dump import IndexDump
from oncelog.storage.index.interface import REBUILD_HINT, IndexWriter, Position
from oncelog.storage.index.lmdb_index import DATA_NAME
from oncelog.storage.index.lmdb_writer import LOCK_NAME as BUILDER_LOCK_NAME
from oncelog.storage.index.lmdb_writer import LmdbWriter
from oncelog.storage.index.memory_index import MemoryIndex
from oncelog.storage.index.places import LINK, Place
from oncelog.storage.journal_reader import JournalReader
from oncelog.storage.recovery import Found, is_torn, walk
from oncelog.storage.segment import SEGMENT_HEADER_BYTES, SegmentFiles, list_files, segment_name

IN_MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
"""A journal up to this size is rebuilt in memory; a larger one on disk."""

_PLACES_PER_LOOK: Final = 1_000

Progress = Callable[[int, int], None]
"""Called with (journal bytes read, journal bytes at most)."""


class Damage(msgspec.Struct):
    """Something that is not as it was written, and where."""

    what: str
    file: str = ""
    position: int = -1
    hint: str = ""


class Report(msgspec.Struct):
    """What was found."""

    directory: str = ""
    damages: list[Damage] = []
    notes: list[str] = []
    groups: int = 0
    entries: int = 0
    topics: int | None = None
    streams: int | None = None
    records: int | None = None
    ids: int | None = None
    """Counted at the end of the walk; None if damage ended it before."""
    journal_bytes: int = 0
    index_group: int = -1
    """How far the index on disk was; -1 if there was none."""
    seconds: float = 0.0

    @property
    def is_sound(self) -> bool:
        return not self.damages


def verify(directory: Path, progress: Progress | None = None) -> Report:
    """Check the log in `directory`. Raises `DirectoryInUse` if it runs, `StorageError` if there is none, or if it or
    what is rebuilt from it cannot be used."""
    begun = time.monotonic()
    report = Report(str(directory))
    try:
        if not journal_directory(directory).is_dir():
            what = 'it has no directory named "journal"' if directory.is_dir() else "there is no such directory"
            raise StorageError(f"{directory} is not a log: {what}")
        _verify_held(directory, report, progress)
    except Corruption as error:
        # Found before the walk could begin: a segment that is missing, a header that is damaged.
        report.damages.append(Damage(error.what, error.file, error.position, error.hint))
    except OSError as error:
        # Nothing was found out about the log: a directory that may not be looked into, no place to rebuild it.
        raise StorageError(error.strerror or str(error), file=str(error.filename or directory)) from error
    report.seconds = time.monotonic() - begun
    return report


def _verify_held(directory: Path, report: Report, progress: Progress | None) -> None:
    with contextlib.ExitStack() as held:
        held.enter_context(_locked(journal_directory(directory) / LOCK_NAME))
        held.enter_context(_locked(index_directory(directory) / BUILDER_LOCK_NAME))
        disk = PosixDisk(journal_directory(directory), read_only=True)
        held.callback(disk.close)
        index, writer = held.enter_context(_own_index(directory, disk))
        dump = None
        if (index_directory(directory) / DATA_NAME).exists():
            dump = held.enter_context(IndexDump(index_directory(directory)))
        else:
            report.notes.append("there is no index: the next start builds it from the journal")
        _Verifier(disk, index, writer, report, progress).run(dump)


def verify_journal(disk: Disk) -> tuple[Report, MemoryIndex]:
    """Check a journal alone, and what follows from it."""
    report = Report()
    index = MemoryIndex()
    _Verifier(disk, index, index, report, None).run(None)
    return report, index


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock without writing anything, not even the lock's file."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = "stop it first, or verify it as it runs, by its URL"
            raise DirectoryInUse("the log is in use", file=str(path.parent), hint=hint) from None
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def _own_index(directory: Path, disk: Disk) -> Iterator[tuple[WholeIndex, IndexWriter]]:
    """An empty index to rebuild into. It is gone afterwards."""
    segments = list_files(disk).segments
    if not segments or len(segments) * SegmentFiles.of(disk, segments[-1]).segment_bytes <= IN_MEMORY_BYTES_MAX:
        index = MemoryIndex()
        yield index, index
        return
    with _scratch_directory(directory) as path:
        writer = LmdbWriter(Path(path), durable=False)
        try:
            yield writer.index(), writer
        finally:
            writer.close()


def _scratch_directory(directory: Path) -> "tempfile.TemporaryDirectory[str]":
    """A new directory, beside the log if it may be."""
    try:
        return tempfile.TemporaryDirectory(prefix=".verify-", dir=directory)
    except OSError:
        # Another user's log, a copy that is mounted to be read, a full device.
        return tempfile.TemporaryDirectory(prefix="oncelog-verify-")


class _Verifier:
    """One walk over one journal."""

    def __init__(
        self, disk: Disk, index: WholeIndex, writer: IndexWriter, report: Report, progress: Progress | None
    ) -> None:
        self._disk = disk
        self._index = index
        self._writer = writer
        self._report = report
        self._progress = progress
        self._place: Found | None = None
        """The frame being looked at."""

    def run(self, dump: IndexDump | None) -> None:
        position = self._position(dump)
        builder: Builder | None = None
        try:
            segments = list_files(self._disk).segments
            if not segments:
                if position is None or position.after is None:
                    self._report.notes.append("the journal is empty: nothing was ever written here")
                    self._judge(State())
                    return
                raise Corruption("all segments are missing", hint="the index knows of groups")
            files = SegmentFiles.of(self._disk, segments[-1])
            builder = Builder(
                JournalReader(self._disk), self._index, self._writer, check=EntryCheck(self._index, self._note_batch)
            )
            self._replay(files, builder, dump, position)
        except (Corruption, DiskFault) as error:
            if builder is not None:
                self._report.entries = builder.state.entry_number
            self._damage_here(error)
            self._report.notes.append(
                "nothing behind the first damage of a journal can be judged here; if a server still starts over it, "
                "`oncelog verify URL` names every batch that cannot be read"
            )
            return
        self._judge(builder.state)

    def _position(self, dump: IndexDump | None) -> Position | None:
        """Where the index on disk stands; None if it cannot say."""
        if dump is None:
            return None
        try:
            position = dump.position()
        except Corruption as error:
            self._report.damages.append(Damage(error.what, error.file, error.position, error.hint))
            return None
        self._report.index_group = position.group
        return position

    # --- the journal -----------------------------------------------------------------------------------------------

    def _replay(self, files: SegmentFiles, builder: Builder, dump: IndexDump | None, position: Position | None) -> None:
        report = self._report
        total = len(list_files(self._disk).segments) * files.segment_bytes
        if position is not None and position.after is None:
            self._compare(builder, dump, position)
            position = None
        for found in walk(files, None):
            if position is not None and position.group < found.frame.group:
                self._not_a_group(files, position)
                position = None
            self._place = found
            builder.replay(found.frame.group, found.view.payload_at(found.position, found.frame))
            report.groups += 1
            report.journal_bytes += frame_bytes(found.frame.payload_bytes)
            if position is not None and position.group == found.frame.group:
                self._compare(builder, dump, position)
                position = None
            elif builder.is_commit_due():
                self._commit(builder)
            if self._progress is not None:
                self._progress(report.journal_bytes, total)
        if position is not None:
            self._not_a_group(files, position)
        if builder.group > builder.position.group:
            self._commit(builder)
        report.entries = builder.state.entry_number
        self._note_torn_tail(files)

    def _commit(self, builder: Builder) -> None:
        builder.commit()
        self._index.refresh()

    def _compare(self, builder: Builder, dump: IndexDump | None, position: Position) -> None:
        """The replay stands where the index on disk does."""
        assert dump is not None
        if builder.group > builder.position.group:
            self._commit(builder)
        where = str(DATA_NAME)
        if builder.position != position:
            what = f"the index counts {position}, the journal {builder.position}"
            self._report.damages.append(Damage(what, where, hint=REBUILD_HINT))
        try:
            for what in differences(self._index, dump.items()):
                self._report.damages.append(Damage(f"the index differs, {what}", where, hint=REBUILD_HINT))
        except Corruption as error:
            self._report.damages.append(Damage(error.what, error.file, error.position, error.hint))

    def _not_a_group(self, files: SegmentFiles, position: Position) -> None:
        segment, at = files.locate(position.group)
        what = f"the index stands at group {position.group}, where the journal has none"
        hint = "the journal lost its end, or the index belongs to another log"
        self._report.damages.append(Damage(what, f"segment-{segment:012d}", at, hint))

    def _note_torn_tail(self, files: SegmentFiles) -> None:
        """A frame that begins behind the last one and is not whole is what a crash leaves: it was never confirmed."""
        last = self._place
        if last is None:
            segment, position = list_files(self._disk).segments[0], SEGMENT_HEADER_BYTES
        else:
            segment, position = last.view.segment, last.position + frame_bytes(last.frame.payload_bytes)
        if is_torn(files, segment, position):
            where = f"{segment_name(segment)} at byte {position}"
            self._report.notes.append(
                f"a torn group follows the last whole one, in {where}: a crash leaves one that was not confirmed; "
                "if it was, this is damage"
            )

    # --- what follows from it --------------------------------------------------------------------------------------

    def _judge(self, counters: State) -> None:
        """Whole-state invariants over everything that was rebuilt."""
        state = State()
        state.entry_number, state.time_ns = counters.entry_number, counters.time_ns
        state.next_id, state.next_producer_id = counters.next_id, counters.next_producer_id
        for number, key, row in self._index.all_rows():
            table = Table(number)
            state.tables[table][decode_key(table, key)] = decode_row(table, row)
        report = self._report
        report.damages += [Damage(wrong) for wrong in audit(state)]
        report.topics = len(state.topics)
        report.ids = sum(1 for _ in self._index.all_ids())
        holes: dict[int, int] = {}
        for (stream_id, _), chunk in state.holes.items():
            assert chunk is not None
            stream = state.streams.get(stream_id)
            floor = 0 if stream is None else stream.floor
            for at in range(0, len(chunk.holes), 4):
                gone = max(0, chunk.holes[at + 1] - max(floor, chunk.holes[at]))
                holes[stream_id] = holes.get(stream_id, 0) + gone
        streams = records = 0
        for stream_id, stream in state.streams.items():
            assert stream is not None
            if not stream.deleted_ns:
                streams += 1
                records += stream.tail - stream.floor - holes.get(stream_id, 0)
                self._places(stream)
        report.streams, report.records = streams, records

    def _places(self, stream: Stream) -> None:
        """Every retained offset has its place, and a link leads to a whole stage."""
        missing = self._gap(stream.stream_id, stream.floor, stream.tail)
        if missing is not None:
            self._report.damages.append(Damage(f"offset {missing} of stream {stream.stream_id} has no place"))

    def _gap(self, extent: int, offset: int, end: int) -> int | None:
        """The first offset of [offset, end) that no place covers."""
        while offset < end:
            rows = [Place.unpack(row) for row in self._index.places_from(extent, offset, _PLACES_PER_LOOK)]
            begun = offset
            for place in rows:
                if not place.first <= offset < place.next:
                    return offset
                if place.flags & LINK and self._gap(place.at, 0, place.count) is not None:
                    return place.first
                offset = place.next
            if offset == begun:
                return offset
        return None

    # --- damage ----------------------------------------------------------------------------------------------------

    def _note_batch(self, what: str) -> None:
        file, position = self._here()
        self._report.damages.append(Damage(what, file, position))

    def _damage_here(self, error: StorageError) -> None:
        """What was raised, at the frame being looked at unless it says where itself."""
        file, position = (error.file, error.position) if error.file else self._here()
        self._report.damages.append(Damage(error.what, file, position, error.hint))

    def _here(self) -> tuple[str, int]:
        return ("", -1) if self._place is None else (self._place.view.name, self._place.position)
