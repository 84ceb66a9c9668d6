"""The journal: the single durable sequence of groups. Owns the address of every group, and when a group is durable.

A group's payload is opaque here. Its number is its address (`segment.py`), 64 bits, strictly increasing, not dense;
place = (group number, byte in payload) is therefore found by arithmetic.

Who may call what, since there are no locks:

- the loop's thread: `begin`, `seal`, `durable`, `prove`. Addresses are given out here, so that group n+1 can be
  filled while group n is being written.
- whoever writes: `write` on the writer's thread, or `start` and `is_written` on the loop's, one group at a time, in
  order, and group n+1 only after group n was written. Recovery stands on this order. With a mirror (`go_direct`) the
  group is laid out there and written past the page cache, else through it; readers look into the mirror first.
- one helper thread: `prepare`, `trim_front`. It shares with the loop only the queue of spares and two integers.
- any thread: `read`, `groups`, and the numbers.

Invariants: a frame is written only into a file whose name is durable. A sector of a durable group is never written
again. After any failure of `write` or `is_written` nothing is ever confirmed by this object: `JournalPoisoned` for
ever, no retry, since a later fdatasync that succeeds says nothing about the pages that the failed one dropped.
"""

import errno
import itertools
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from oncelog.errors import Corruption, DiskFault, DiskFull, JournalPoisoned, StorageError
from oncelog.limits import FRAME_ALIGN_BYTES, GROUP_BYTES_MAX, READ_GAP_BYTES, READ_RUN_BYTES, SPARES_WANTED
from oncelog.storage.direct import DirectSegment
from oncelog.storage.disk import Buffer, Disk, PosixDisk, write_all
from oncelog.storage.frame import (
    COUNTER_SHIFT,
    FIRST_PREVIOUS_CRC,
    FRAME_HEADER_BYTES,
    frame_bytes,
    header_crc,
    incarnation_of,
    pack_frame,
)
from oncelog.storage.kernel_writes import WriteNotTaken
from oncelog.storage.mirror import CAN_BE_SHARED, Mirror
from oncelog.storage.recovery import find_end, is_torn, settle, walk
from oncelog.storage.segment import (
    IDENTITY_BYTES,
    SEGMENT_HEADER_BYTES,
    GroupGone,
    SegmentFiles,
    SegmentHeader,
    list_files,
    prepare_file,
    segment_bytes_valid,
    segment_name,
    spare_name,
    unready_name,
)

RESERVE_SPARES: Final = 1
"""Spares that ordinary groups leave alone. On a full disk, timers, aborts and cleaning need room to make room."""

_PAGE_OF_ZEROS: Final = memoryview(bytes(4096))

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

assert RESERVE_SPARES < SPARES_WANTED


class OpenGroup:
    """The address of one group, from `begin` until it is durable."""

    __slots__ = ("group", "incarnation", "payload_bytes", "position", "reserved", "room", "segment", "spare")

    def __init__(self, group: int, segment: int, position: int, room: int, incarnation: int, spare: str | None) -> None:
        self.reserved = False
        """It lies in the reserve: nothing that is not urgent may join it."""
        self.group = group
        self.segment = segment
        self.position = position
        self.room = room
        """Payload bytes that fit behind this address."""
        self.incarnation = incarnation
        self.spare = spare
        """The spare that becomes this group's segment when it is written; None if the segment is in use already."""
        self.payload_bytes = -1
        """Final size; -1 until sealed."""

    @property
    def address(self) -> int:
        return self.group * FRAME_ALIGN_BYTES


class JournalStats(NamedTuple):
    segments: int
    spares: int
    disk_bytes: int
    """What the files take, spares included."""
    used_bytes: int
    """From the front to the next free address."""


class Journal:
    """Made by `open` only: a journal object always stands on a recovered, proven end."""

    def __init__(self, files: SegmentFiles, *, first_segment: int, spares: list[int]) -> None:
        self._files = files
        self._disk = files.disk
        self._first_segment = first_segment
        self._spares = deque(spare_name(number) for number in spares)
        self._spare_numbers = itertools.count(max(spares, default=-1) + 1)
        self._poison = ""
        # Owned by the loop's thread. The next group goes to [_position, segment_bytes) of _segment, or to the next.
        self._segment = first_segment
        self._position = SEGMENT_HEADER_BYTES
        self._incarnation = 0
        self._open: OpenGroup | None = None
        self._reserve_segment = -1
        """The segment that urgent groups made of the last spare: ordinary ones stay out until there is another."""
        self.cut_at = ""
        """Where recovery cut a torn group off; empty if there was none."""
        self.durable_group = 0
        """The last group known to be on disk. Everything up to it may be read and revealed."""
        # Owned by whoever writes the group.
        self._direct: DirectSegment | None = None
        """For writing past the page cache; None if groups are written through it."""
        self._started: tuple[OpenGroup, int] | None = None
        """What the kernel is writing, and the link to it for the next frame."""
        self._written_group = 0
        self._previous_crc = FIRST_PREVIOUS_CRC

    @classmethod
    def open(cls, disk: Disk, *, segment_bytes: int, salt: int, from_group: int | None = None) -> "Journal":
        """Recover the journal on `disk`, or create one with `segment_bytes`; a stored size wins over the given one.

        `salt` is up to 128 random bits, fresh at every opening (injected, so that simulations repeat exactly): the low
        32 mark this incarnation, and a new journal takes all of them as its identity. With `from_group`, a group known
        to be durable, only what follows it is read. Raises `Corruption` (nothing was changed), `GroupGone` if
        `from_group` was trimmed, `DiskFull`, `DiskFault`.
        """
        assert 0 <= salt < 1 << 8 * IDENTITY_BYTES
        try:
            listing = list_files(disk)
            if not listing.segments:
                if listing.spares or from_group is not None:
                    raise Corruption("all segments are missing", file=segment_name(0), hint="the journal was not empty")
                _create(disk, segment_bytes, salt, listing.unready)
                listing = list_files(disk)
            files = SegmentFiles.of(disk, listing.segments[0])
            end, spares = settle(files, from_group)
            torn = is_torn(files, end.segment, end.position)
            journal = cls(files, first_segment=listing.segments[0], spares=spares)
        except OSError as error:
            raise _disk_error(error, "cannot open the journal") from error
        journal._segment, journal._position = end.segment, end.position
        if torn:
            journal.cut_at = f"{segment_name(end.segment)} at byte {end.position}"
        counter = 0
        if end.last is not None:
            counter = end.last.counter
            journal._previous_crc = end.last.header_crc
        journal._incarnation = incarnation_of(counter + 1, salt)
        journal._append_first_proof()
        return journal

    def _append_first_proof(self) -> None:
        """Step 5 of recovery: an empty frame of this incarnation ends all doubt about what stands before it."""
        if self._position == self.segment_bytes and not self._spares:
            self.prepare()
        proof = self.prove()
        assert proof is not None
        self.write(proof, ())
        self.durable(proof)

    # --- addresses: the loop's thread ------------------------------------------------------------------------------

    def begin(self, payload_bytes_min: int, *, urgent: bool = False) -> OpenGroup | None:
        """Fix the address of the next group, with room for at least `payload_bytes_min`; None if there is no room now.

        A group that needs a new segment takes a spare. Ordinary groups leave the last spare to `urgent` ones.
        """
        self._refuse_if_poisoned()
        assert self._open is None
        assert 0 <= payload_bytes_min <= self.payload_bytes_max
        if not self.has_room(payload_bytes_min, urgent=urgent):
            return None
        segment, position, spare = self._segment, self._position, None
        if position + frame_bytes(payload_bytes_min) > self.segment_bytes:
            ready = len(self._spares)
            segment, position, spare = segment + 1, SEGMENT_HEADER_BYTES, self._spares.popleft()
            if ready <= RESERVE_SPARES:
                self._reserve_segment = segment
        room = min(self.segment_bytes - position - FRAME_HEADER_BYTES, GROUP_BYTES_MAX)
        group = self._files.group_at(segment, position)
        self._open = OpenGroup(group, segment, position, room, self._incarnation, spare)
        self._open.reserved = segment == self._reserve_segment and len(self._spares) < RESERVE_SPARES
        return self._open

    def has_room(self, payload_bytes_min: int, *, urgent: bool = False) -> bool:
        """Whether `begin` would find room for so much. Takes nothing."""
        if payload_bytes_min > self.payload_bytes_max:
            return False
        ready = len(self._spares)
        if not urgent and self._segment == self._reserve_segment and ready < RESERVE_SPARES:
            return False
        is_here = self._position + frame_bytes(payload_bytes_min) <= self.segment_bytes
        return is_here or ready > (0 if urgent else RESERVE_SPARES)

    def seal(self, open_group: OpenGroup, payload_bytes: int) -> None:
        """Fix the size: the next group begins behind it. The group must now be written."""
        assert self._open is open_group
        assert 0 <= payload_bytes <= open_group.room
        open_group.payload_bytes = payload_bytes
        self._segment = open_group.segment
        self._position = open_group.position + frame_bytes(payload_bytes)
        self._open = None

    def durable(self, open_group: OpenGroup) -> None:
        """`write` of this group returned, or `is_written` said so: it may be revealed."""
        self._refuse_if_poisoned()
        assert open_group.group > self.durable_group
        if self._files.mirror is not None:
            self._files.mirror.set_durable(open_group.address + frame_bytes(open_group.payload_bytes))
        self.durable_group = open_group.group

    def prove(self) -> OpenGroup | None:
        """A sealed empty group, to be written like any other (`write(group, ())`, `durable(group)`); None if no room.

        A group that nothing follows cannot be told from a torn one once it is damaged. This gives it a follower.
        """
        proof = self.begin(0, urgent=True)
        if proof is not None:
            self.seal(proof, 0)
        return proof

    def append(self, buffers: Sequence[Buffer], *, urgent: bool = False) -> int | None:
        """One group from `begin` to `durable`, for callers that have only one thread. None if there is no room."""
        payload_bytes = sum(map(len, buffers))
        open_group = self.begin(payload_bytes, urgent=urgent)
        if open_group is None:
            return None
        self.seal(open_group, payload_bytes)
        self.write(open_group, buffers)
        self.durable(open_group)
        return open_group.group

    # --- the disk: whoever writes the group ------------------------------------------------------------------------

    def go_direct(self, disk: PosixDisk) -> None:
        """Write groups past the page cache from now on, where the file system lets us, and keep the newest in memory
        for readers. Before any thread is started. Where it cannot be, all goes on through the page cache."""
        assert self._files.mirror is None
        assert self._open is None
        if not CAN_BE_SHARED:
            return
        with suppress(OSError):
            mirror = Mirror.made(self._segment * self.segment_bytes + self._position)
            self._direct = DirectSegment(disk, mirror, self._segment)
            self._files.mirror = mirror

    @property
    def mirror(self) -> Mirror | None:
        """What holds the newest groups, for others to map; None if they are in the page cache."""
        return self._files.mirror

    def write(self, open_group: OpenGroup, buffers: Sequence[Buffer]) -> None:
        """Write and sync one sealed group. Blocking. When it returns, the group survives any crash."""
        header, padding = self._framed(open_group, buffers)
        durable = False
        try:
            if open_group.spare is not None:
                # The name must be durable first: a synced frame in a file that a crash renames back is a lost group.
                self._disk.rename(open_group.spare, segment_name(open_group.segment))
                self._disk.sync_directory()
            self._write_frame(open_group, [header, *buffers, padding])
            durable = True
        except OSError as error:
            raise _write_fault(open_group, error) from error
        finally:
            # Whatever ended the call early, an interrupt included: what is on the disk is unknown now.
            if not durable:
                self._poison_by(open_group)
        self._previous_crc = header_crc(header)
        self._written_group = open_group.group

    def _framed(self, open_group: OpenGroup, buffers: Sequence[Buffer]) -> tuple[bytes, bytes]:
        """Header and padding of the group, which must be the next one."""
        self._refuse_if_poisoned()
        assert self._started is None
        assert open_group.group > self._written_group
        assert sum(map(len, buffers)) == open_group.payload_bytes
        return pack_frame(
            self._files.identity_crc,
            open_group.incarnation,
            open_group.group,
            self._previous_crc,
            open_group.payload_bytes,
            buffers,
        )

    def _write_frame(self, open_group: OpenGroup, frame: list[Buffer]) -> None:
        """Return when the frame is on the device."""
        mirror = self._files.mirror
        if mirror is not None:
            mirror.lay_out(open_group.address, frame)
            direct = None if self._direct is None else self._direct.file_of(open_group.segment)
            if direct is not None:
                size = frame_bytes(open_group.payload_bytes)
                write_all(direct, mirror.pieces(open_group.address, size), open_group.position)
                return
        file = self._files.file(open_group.segment)
        write_all(file, [*frame, self._page_filler(open_group)], open_group.position)
        file.fdatasync()

    def start(self, open_group: OpenGroup, buffers: Sequence[Buffer]) -> bool:
        """Have the kernel write and sync one sealed group, and return at once: `is_written` says when it survives any
        crash. False if it cannot be left to the kernel, and has to be given to `write`."""
        direct, mirror = self._direct, self._files.mirror
        address, size = open_group.address, frame_bytes(open_group.payload_bytes)
        if direct is None or mirror is None or not direct.takes(open_group.segment, address, size):
            return False
        header, padding = self._framed(open_group, buffers)
        mirror.lay_out(address, (b"".join((header, *buffers, padding)),))  # small: one copy more costs less than pieces
        self._started = (open_group, header_crc(header))
        try:
            direct.start(address, size, open_group.position)
        except WriteNotTaken as refused:
            self._take_back(refused)
            return False
        return True

    def is_written(self) -> bool:
        """Whether the group that was started is on the device. Raises `WriteNotTaken` if the kernel gives it back, and
        it has to be given to `write`."""
        self._refuse_if_poisoned()
        assert self._started is not None
        assert self._direct is not None
        open_group, crc = self._started
        is_known = False
        try:
            is_done = self._direct.is_done()
            is_known = True
        except WriteNotTaken as refused:
            is_known = True
            self._take_back(refused)
            raise
        except OSError as error:
            raise _write_fault(open_group, error) from error
        finally:
            if not is_known:
                self._poison_by(open_group)
        if is_done:
            self._started = None
            self._previous_crc = crc
            self._written_group = open_group.group
        return is_done

    def _take_back(self, refused: WriteNotTaken) -> None:
        """Nothing that counts was done: whoever writes the group now lays out the same bytes again."""
        assert self._direct is not None
        self._started = None
        if refused.is_final:
            self._direct.leave_kernel()
        else:
            self._direct.drop_cached()

    def _poison_by(self, open_group: OpenGroup) -> None:
        self._poison = f"group {open_group.group} was not confirmed by the disk"

    def _page_filler(self, open_group: OpenGroup) -> Buffer:
        """Zeros up to the end of the frame's last page. Spares are written past the page cache, and a page that is
        only partly written must first be read from the disk. The sectors belong to no group yet."""
        end = open_group.position + frame_bytes(open_group.payload_bytes)
        return _PAGE_OF_ZEROS[: min(-end % len(_PAGE_OF_ZEROS), self.segment_bytes - end)]

    def _refuse_if_poisoned(self) -> None:
        if self._poison:
            raise JournalPoisoned(self._poison, hint="restart: recovery finds out what is on the disk")

    # --- space: one helper thread ----------------------------------------------------------------------------------

    def prepare(self) -> bool:
        """Make one spare ready; False if none is missing. Blocking. After `DiskFull` it may be tried again."""
        if self.spares_missing <= 0:
            return False
        number = next(self._spare_numbers)
        try:
            _prepare(self._disk, number, self._files.header)
            # Renamed only when its zeros are synced, so a spare found after a crash is a whole one. Its own name need
            # not be durable: `write` syncs the directory before it relies on one.
            self._disk.rename(unready_name(number), spare_name(number))
        except OSError as error:
            with suppress(OSError):
                self._disk.remove(unready_name(number))
            raise _disk_error(error, "cannot prepare a spare segment") from error
        self._spares.append(spare_name(number))
        return True

    def trim_front(self, group: int) -> int:
        """Drop the segments that lie wholly below `group`: as spares, or removed if enough are ready. Returns how many.

        Blocking. `group` must be durable, so that what remains always begins with a whole frame.
        """
        assert group <= self.durable_group
        first, _ = self._files.locate(group)
        dropped = range(self._first_segment, first)
        for segment in dropped:
            # Readers look at this number after their pread: it must change before the file can.
            self._first_segment = segment + 1
            recycled = spare_name(next(self._spare_numbers)) if self.spares_missing > 0 else None
            try:
                if recycled is None:
                    self._disk.remove(segment_name(segment))
                else:
                    self._disk.rename(segment_name(segment), recycled)
                # One sync each: if a crash could undo the first drop and keep the second, there would be a gap.
                self._disk.sync_directory()
            except OSError as error:
                # A directory whose sync failed is as doubtful as a file: the next change-over would rely on it.
                self._poison = f"{segment_name(segment)} was not dropped by the disk"
                raise _disk_error(error, "cannot drop a segment", segment_name(segment)) from error
            if recycled is not None:
                # Addresses alone tell the old frames in it from new ones; a higher counter tells them a second time.
                self._incarnation += 1 << COUNTER_SHIFT
                self._spares.append(recycled)
        if dropped:
            self._files.forget()
        return len(dropped)

    # --- reading: any thread ---------------------------------------------------------------------------------------

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
                    raise Corruption("segment missing", file=segment_name(segment)) from None
            except OSError as error:
                raise _disk_error(error, "cannot read", segment_name(segment), at) from error
        # Asked after the read: the segment may have been dropped and written over in the meantime.
        if segment < self._first_segment:
            raise GroupGone(group, self.first_group)
        if data is None or len(data) != length:
            raise Corruption("file cut short", file=segment_name(segment), position=at)
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

    def where(self, group: int, first: int) -> tuple[str, int]:
        """The file and the byte of a place, for those who must name damage."""
        segment, position = self._files.locate(group)
        return segment_name(segment), position + FRAME_HEADER_BYTES + first

    def groups(self, after: int | None) -> Iterator[tuple[int, bytes]]:
        """Durable groups behind `after` (None: from the front) up to the last durable one, fully checked."""
        return _groups(self._files, after, self.durable_group)

    def close(self) -> None:
        """Confirm nothing more and close the files. The disk belongs to the caller. A clean stop proves first."""
        self._poison = "the journal is closed"
        if self._direct is not None:
            self._direct.close()
            self._direct = None
        self._files.forget()

    @property
    def segment_bytes(self) -> int:
        return self._files.segment_bytes

    @property
    def payload_bytes_max(self) -> int:
        """The largest payload that an empty segment takes."""
        return min(self.segment_bytes - SEGMENT_HEADER_BYTES - FRAME_HEADER_BYTES, GROUP_BYTES_MAX)

    @property
    def first_group(self) -> int:
        """The first retained group."""
        return self._files.first_group(self._first_segment)

    @property
    def spares_missing(self) -> int:
        return SPARES_WANTED - len(self._spares)

    @property
    def stats(self) -> JournalStats:
        segments = self._segment - self._first_segment + 1
        spares = len(self._spares)
        used_bytes = (segments - 1) * self.segment_bytes + self._position
        return JournalStats(segments, spares, (segments + spares) * self.segment_bytes, used_bytes)

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
            raise _disk_error(error, "cannot read the journal") from error
        # Outside of the `try`: what the caller does between two groups is not a fault of this disk.
        if inclusive or found.frame.group != after:
            yield found.frame.group, payload


def _create(disk: Disk, segment_bytes: int, salt: int, unready: list[int]) -> None:
    """Segment 0 of a new journal. A crash in between leaves an unready file, or nothing."""
    assert segment_bytes_valid(segment_bytes)
    for number in unready:
        disk.remove(unready_name(number))
    _prepare(disk, 0, SegmentHeader(segment_bytes, salt.to_bytes(IDENTITY_BYTES, "little")))
    disk.rename(unready_name(0), segment_name(0))
    disk.sync_directory()


def _prepare(disk: Disk, number: int, header: SegmentHeader) -> None:
    """Write a whole unready file. After `OSError` the partial one is removed: on a full disk it is the last straw.
    There it is not begun either: tried again and again, it would keep the device busy with zeros."""
    name = unready_name(number)
    if not disk.has_room(header.segment_bytes):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    try:
        prepare_file(disk, name, header)
    except OSError:
        if name in disk.names():
            disk.remove(name)
        raise


def _write_fault(open_group: OpenGroup, error: OSError) -> DiskFault:
    return DiskFault(
        f"cannot write group {open_group.group}: {error.strerror}",
        file=segment_name(open_group.segment),
        position=open_group.position,
        hint="nothing after the last confirmed group was revealed; restart once the device is well",
    )


def _disk_error(error: OSError, what: str, file: str = "", position: int = -1) -> StorageError:
    if error.errno in _NO_SPACE:
        return DiskFull(what, file=file, position=position, hint="free space on the device; reads go on")
    return DiskFault(f"{what}: {error.strerror}", file=file, position=position, hint="check the device")
