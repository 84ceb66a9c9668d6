"""Reading the journal: durable groups, whole or in pieces, from memory where they are still there. Changes nothing.

Two readers, which differ in who knows what is durable:

- `DurableGroups` is the reading half of an open journal (`journal.py` is the other). The writing half tells it how far
  the journal is durable, and where its front is.
- `JournalReader` stands beside a writer, mostly in another process, or before a journal that is stopped. It has the
  files, perhaps the mirror, and the word of its caller for what is durable.

A whole group is found by recovery's own walk and checked as there. A place in one (`read`, `read_many`) is found by
arithmetic alone and is not checked, since batches carry their own checksum.

Never here: a write, a sync, a lock, a change of what is durable. `DurableGroups` is read by any thread, a
`JournalReader` by the one that made it.

Invariants: nothing beyond the last durable group is read (P12). Bytes of a segment that was dropped meanwhile are never
returned, though its file may be another segment by now: the front is compared once more behind the read of a place, and
in the walk each frame names its address. Such a reader is told `GroupGone`, and looks its records up again.
"""

from collections.abc import Iterator, Sequence

from oncelog.errors import Corruption, StorageError
from oncelog.limits import FRAME_ALIGN_BYTES, READ_GAP_BYTES, READ_RUN_BYTES
from oncelog.storage.disk import Disk, disk_error
from oncelog.storage.frame import FRAME_HEADER_BYTES
from oncelog.storage.mirror import Mirror
from oncelog.storage.recovery import find_end, walk
from oncelog.storage.segment import RESTORE_HINT, GroupGone, SegmentFiles, list_files, segment_missing, segment_name


class DurableGroups:
    """What of an open journal is durable and not dropped."""

    def __init__(self, files: SegmentFiles, *, first_segment: int) -> None:
        self._files = files
        self.segment_bytes = files.segment_bytes
        self._first_segment = first_segment
        """The front. It is raised before the file below it may change."""
        self.unreadable: set[int] = set()
        """Segments that were found missing or cut short: nothing in them can be read."""
        self.missing_segments: tuple[int, ...] = ()
        """Those that were missing when the journal was opened."""
        self.durable_group = 0
        """The last group known to be on disk. Everything up to it may be read and revealed."""

    def read(self, group: int, first: int, length: int) -> bytes:
        """Bytes [first, first + length) of a durable group's payload, unchecked: batches carry their own checksum."""
        segment, position = self._files.locate(group)
        return self._read(group, segment, position + FRAME_HEADER_BYTES + first, length)

    def read_many(self, places: Sequence[tuple[int, int, int]]) -> list[bytes]:
        """As `read` for each (group, first, length), in order. Neighbours are read in one go: what lies between two
        batches of a stream is often less than a system call costs."""
        found: list[bytes] = []
        run: list[tuple[int, int]] = []
        run_group = run_segment = start = end = -1
        for group, first, length in places:
            segment, position = self._files.locate(group)
            at = position + FRAME_HEADER_BYTES + first
            if segment != run_segment or not 0 <= at - end <= READ_GAP_BYTES or at + length - start > READ_RUN_BYTES:
                if run:
                    found += _cut(self._read(run_group, run_segment, start, end - start), start, run)
                run, run_segment, start = [], segment, at
            run.append((at, length))
            run_group, end = group, at + length
        if run:
            found += _cut(self._read(run_group, run_segment, start, end - start), start, run)
        return found

    def _read(self, group: int, segment: int, at: int, length: int) -> bytes:
        if group > self.durable_group:
            raise Corruption(f"place in group {group} lies beyond the journal's end, group {self.durable_group}")
        data = self._files.mirrored(segment, at, length)
        if data is None and segment >= self._first_segment:
            try:
                data = self._files.file(segment).pread(length, at)
            except FileNotFoundError:
                if segment >= self._first_segment:
                    self.unreadable.add(segment)
                    raise segment_missing(segment) from None
            except Corruption:
                self.unreadable.add(segment)
                raise
            except OSError as error:
                raise disk_error(error, "cannot read", segment_name(segment), at) from error
        # Asked after the read: the segment may have been dropped and written over in the meantime.
        if segment < self._first_segment:
            raise GroupGone(group, self.first_group)
        if data is None or len(data) != length:
            raise Corruption("file cut short", file=segment_name(segment), position=at, hint=RESTORE_HINT)
        return data

    def payload(self, group: int) -> bytes:
        """The whole payload of a durable group, checked."""
        for _, payload in _groups(self._files, group, group, inclusive=True):
            return payload
        raise GroupGone(group, self.first_group)

    def is_in_memory(self, group: int) -> bool:
        """Whether a durable group can be read without waiting for the disk, as far as this object knows: what is
        written through the page cache may still be there."""
        mirror = self._files.mirror
        return mirror is None or mirror.holds(group * FRAME_ALIGN_BYTES)

    def is_unreadable(self, group: int) -> bool:
        """Whether the group lies in a file that is known to be missing or cut short, or before all files."""
        segment, _ = self._files.locate(group)
        return segment < self._first_segment or segment in self.unreadable

    def where(self, group: int, first: int) -> tuple[str, int]:
        """The file and the byte of a place, for those who must name damage."""
        segment, position = self._files.locate(group)
        return segment_name(segment), position + FRAME_HEADER_BYTES + first

    def groups(self, after: int | None) -> Iterator[tuple[int, bytes]]:
        """Durable groups behind `after` (None: from the front) up to the last durable one, fully checked."""
        return _groups(self._files, after, self.durable_group)

    @property
    def first_group(self) -> int:
        """The first retained group."""
        return self._files.first_group(self._first_segment)

    @staticmethod
    def bytes_between(group: int, later_group: int) -> int:
        """Journal bytes from one group's address to another's: the measure of how far a reader is behind."""
        return (later_group - group) * FRAME_ALIGN_BYTES


class JournalReader:
    """Reads durable groups, also beside a writer in another process. Writes nothing and takes no lock.

    Segments may appear while it reads: it opens them by name when the chain leads there. If the writer drops the
    segment being read, `GroupGone` is raised; no bytes of a file written over are ever returned, since each frame is
    checked against its address.
    """

    def __init__(self, disk: Disk, mirror: Mirror | None = None) -> None:
        segments = list_files(disk).segments
        if not segments:
            raise StorageError("there is no journal here", file=segment_name(0))
        # The last one: a writer may drop the first at any moment.
        self._files = SegmentFiles.of(disk, segments[-1])
        self._files.mirror = mirror
        self._segment = segments[-1]

    @property
    def segment_bytes(self) -> int:
        return self._files.segment_bytes

    def groups(self, after: int | None, until: int) -> Iterator[tuple[int, bytes]]:
        """Groups behind `after` (None: from the front) up to and including `until`, which must be durable."""
        segment, _ = self._files.locate(until)
        if segment != self._segment:
            # Files of segments that this reader has left may be removed by now; holding them would hold their space.
            self._segment = segment
            self._files.forget()
        return _groups(self._files, after, until)

    def last_group(self, from_group: int | None = None) -> int | None:
        """The last whole group of a stopped journal, found as recovery finds it; None if it holds none. Reads only."""
        end, _ = find_end(self._files, from_group)
        return None if end.last is None else end.last.group


def _cut(data: bytes, start: int, run: list[tuple[int, int]]) -> list[bytes]:
    """The pieces of a run that was read in one go."""
    if len(run) == 1:
        return [data]
    return [data[at - start : at - start + length] for at, length in run]


def _groups(
    files: SegmentFiles, after: int | None, until: int, *, inclusive: bool = False
) -> Iterator[tuple[int, bytes]]:
    if after is not None and after >= until + inclusive:
        return
    frames = walk(files, after, until=until)
    while True:
        try:
            found = next(frames, None)
            if found is None:
                return
            payload = found.view.payload_at(found.position, found.frame)
        except OSError as error:
            raise disk_error(error, "cannot read the journal") from error
        # Outside of the `try`: what the caller does between two groups is not a fault of this disk.
        if inclusive or found.frame.group != after:
            yield found.frame.group, payload
