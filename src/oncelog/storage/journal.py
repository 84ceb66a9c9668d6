"""The journal: the single durable sequence of groups. Owns the address of every group, and when a group is durable.
This module writes; reading is `journal_reader.py`, files made in advance are `spares.py`.

A group's payload is opaque here. Its number is its address (`segment.py`), 64 bits, strictly increasing, not dense;
place = (group number, byte in payload) is therefore found by arithmetic.

Who may call what, since there are no locks:

- the loop's thread: `begin`, `seal`, `durable`, `prove`. Addresses are given out here, so that group n+1 can be
  filled while group n is being written.
- whoever writes: `write` on the writer's thread, or `start` and `is_written` on the loop's, one group at a time, in
  order, and group n+1 only after group n was written. Recovery stands on this order. With a mirror (`go_direct`) the
  group is laid out there and written past the page cache, else through it; readers look into the mirror first.
- one helper thread: `prepare`, `trim_front`. It shares with the loop only the queue of spares and two integers.
- any thread: whatever `DurableGroups` reads, and the numbers.

Invariants: a frame is written only into a file whose name is durable. A sector of a durable group is never written
again. After any failure of `write` or `is_written` nothing is ever confirmed by this object: `JournalPoisoned` for
ever, no retry, since a later fdatasync that succeeds says nothing about the pages that the failed one dropped.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from oncelog.errors import Corruption, DiskFault, JournalPoisoned
from oncelog.limits import FRAME_ALIGN_BYTES, GROUP_BYTES_MAX, KIB, SPARES_WANTED
from oncelog.storage.direct import DirectSegment
from oncelog.storage.disk import Buffer, Disk, PosixDisk, disk_error, write_all
from oncelog.storage.frame import (
    COUNTER_SHIFT,
    FIRST_PREVIOUS_CRC,
    FRAME_HEADER_BYTES,
    frame_bytes,
    header_crc,
    incarnation_of,
    pack_frame,
)
from oncelog.storage.journal_reader import DurableGroups
from oncelog.storage.kernel_writes import WriteNotTaken
from oncelog.storage.mirror import CAN_BE_SHARED, Mirror
from oncelog.storage.recovery import is_torn, settle
from oncelog.storage.segment import (
    IDENTITY_BYTES,
    RESTORE_HINT,
    SEGMENT_HEADER_BYTES,
    Listing,
    SegmentFiles,
    list_files,
    log_id,
    segment_missing,
    segment_name,
)
from oncelog.storage.spares import RESERVE_SPARES, Spares, create_first_segment

JOINED_PAYLOAD_BYTES_MAX: Final = 8 * KIB
"""Payload of a group that is joined before it is laid out for the kernel. To copy so little once more costs less than
to lay out its pieces one by one; of a larger one the copy costs more, since whoever fills it has joined small ones."""

_PAGE_OF_ZEROS: Final = memoryview(bytes(4096))


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
    segment_bytes: int


def _refuse_gaps(files: SegmentFiles, listing: Listing, from_group: int | None) -> None:
    """A segment that is missing before what is to be read is damage that its readers hear of. One that is missing
    behind it held groups that nobody has seen: the journal cannot go on without them."""
    first = listing.segments[0] if from_group is None else files.locate(from_group)[0]
    needed = [segment for segment in listing.missing if segment >= first]
    if needed:
        raise segment_missing(needed[0])


class Journal(DurableGroups):
    """Made by `open` only: a journal object always stands on a recovered, proven end."""

    def __init__(self, files: SegmentFiles, *, first_segment: int, spares: list[int]) -> None:
        super().__init__(files, first_segment=first_segment)
        self.payload_bytes_max = min(self.segment_bytes - SEGMENT_HEADER_BYTES - FRAME_HEADER_BYTES, GROUP_BYTES_MAX)
        """The largest payload that an empty segment takes."""
        self._disk = files.disk
        self._spares = Spares(files.disk, files.header, spares)
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
                    raise Corruption("all segments are missing", hint=RESTORE_HINT)
                create_first_segment(disk, segment_bytes, salt, listing.unready)
                listing = list_files(disk)
            files = SegmentFiles.of(disk, listing.segments[0])
            _refuse_gaps(files, listing, from_group)
            end, spares = settle(files, from_group)
            torn = is_torn(files, end.segment, end.position)
            journal = cls(files, first_segment=listing.segments[0], spares=spares)
        except OSError as error:
            raise disk_error(error, "cannot open the journal") from error
        journal.missing_segments = listing.missing
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
        if self._position == self.segment_bytes and not self._spares.ready:
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
        segment, position, spare, reserved = self._segment, self._position, None, False
        room = self.segment_bytes - position - FRAME_HEADER_BYTES
        # Behind the last group and outside of the reserve there is nothing to ask. A lone writer waits for this.
        if payload_bytes_min > room or segment == self._reserve_segment:
            if not self.has_room(payload_bytes_min, urgent=urgent):
                return None
            if payload_bytes_min > room:
                ready = len(self._spares.ready)
                segment, position, spare = segment + 1, SEGMENT_HEADER_BYTES, self._spares.ready.popleft()
                room = self.payload_bytes_max
                if ready <= RESERVE_SPARES:
                    self._reserve_segment = segment
            reserved = segment == self._reserve_segment and len(self._spares.ready) < RESERVE_SPARES
        group = self._files.group_at(segment, position)
        self._open = OpenGroup(group, segment, position, min(room, GROUP_BYTES_MAX), self._incarnation, spare)
        self._open.reserved = reserved
        return self._open

    def has_room(self, payload_bytes_min: int, *, urgent: bool = False) -> bool:
        """Whether `begin` would find room for so much. Takes nothing."""
        if payload_bytes_min > self.payload_bytes_max:
            return False
        ready = len(self._spares.ready)
        if not urgent and self._segment == self._reserve_segment and ready < RESERVE_SPARES:
            return False
        # Padding need not be counted, here and in `begin`: segments and positions in them are whole sectors.
        is_here = payload_bytes_min <= self.segment_bytes - self._position - FRAME_HEADER_BYTES
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
        frame: tuple[Buffer, ...] = (header, *buffers, padding)
        if open_group.payload_bytes <= JOINED_PAYLOAD_BYTES_MAX:
            frame = (b"".join(frame),)
        mirror.lay_out(address, frame)
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
        return self._spares.prepare()

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
            recycled = self._spares.new_name() if self.spares_missing > 0 else None
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
                raise disk_error(error, "cannot drop a segment", segment_name(segment)) from error
            if recycled is not None:
                # Addresses alone tell the old frames in it from new ones; a higher counter tells them a second time.
                self._incarnation += 1 << COUNTER_SHIFT
                self._spares.ready.append(recycled)
        if dropped:
            self._files.forget()
        return len(dropped)

    def close(self) -> None:
        """Confirm nothing more and close the files. The disk belongs to the caller. A clean stop proves first."""
        self._poison = "the journal is closed"
        if self._direct is not None:
            self._direct.close()
            self._direct = None
        self._files.forget()

    @property
    def spares_missing(self) -> int:
        return SPARES_WANTED - len(self._spares.ready)

    @property
    def log_id(self) -> str:
        """What the log calls itself to clients."""
        return log_id(self._files.header.identity)

    @property
    def stats(self) -> JournalStats:
        segments = self._segment - self._first_segment + 1
        spares = len(self._spares.ready)
        used_bytes = (segments - 1) * self.segment_bytes + self._position
        return JournalStats(segments, spares, (segments + spares) * self.segment_bytes, used_bytes, self.segment_bytes)


def _write_fault(open_group: OpenGroup, error: OSError) -> DiskFault:
    return DiskFault(
        f"cannot write group {open_group.group}: {error.strerror}",
        file=segment_name(open_group.segment),
        position=open_group.position,
        hint="nothing after the last confirmed group was revealed; restart once the device is well",
    )
