"""Recovery: where the journal ends, and whether what is before the end is whole. Owns the decision table.

A frame *follows* the last one if and only if it stands (rule at the top of `frame.py`), and

 (5) its previous-header checksum is that of the last frame's header, and
 (6) its incarnation is the last frame's, or has a higher counter.

The first frame looked at has no predecessor to compare with: there, standing is enough.

The walk goes from frame to frame. At the first place X where no frame follows, four things can be true, and the
table `RULES` tells them apart. The argument behind it: group n+1 is written only after group n is durable, hence
at most one group, the last, can be incomplete on disk, and nothing that stands can lie beyond an incomplete group. So
an incomplete group with something standing after it was complete once: it is damage, and cutting there would drop
confirmed groups. Leftovers do not count as standing: frames in a recycled file name other addresses, remains of a
group that was cut lack their first sector, and a frame of a lower incarnation was written before the last one.

`settle` makes what was found durable before anyone sees it. Numbered, since the order is the safety argument:

 1. Sync the directory: a name seen here may be only in memory (process killed between rename and sync).
 2. Find the end, reading only. Damage ends here, with nothing changed.
 3. Write the last group back over itself and sync. After a failed fdatasync the page cache holds the group, clean,
    and the device does not; only a new write makes it dirty again. All groups before it were synced successfully.
 4. Turn segments beyond the end into spares: the one that was about to be used when the crash came.
 5. The journal appends an empty frame of the new incarnation, and syncs. Not together with step 3: if the power
    fails and the empty frame is on disk but the group rewritten before it is not, the next recovery would see a frame
    that stands beyond a missing one, and call it damage.

A crash after any step leaves a disk on which the same steps come to the same end.
"""

from collections import deque
from collections.abc import Iterator
from enum import Enum, auto
from functools import cached_property
from typing import Final, NamedTuple, Protocol

from oncelog.errors import Corruption
from oncelog.limits import FRAME_ALIGN_BYTES
from oncelog.storage.disk import write_all
from oncelog.storage.frame import Frame, claimed_bytes, frame_bytes, may_follow
from oncelog.storage.segment import (
    RESTORE_HINT,
    SEGMENT_HEADER_BYTES,
    GroupGone,
    SegmentFiles,
    SegmentView,
    list_files,
    segment_missing,
    segment_name,
    spare_name,
    unready_name,
)


class Here(Enum):
    """What is at the place looked at."""

    NOTHING = auto()
    """No frame stands here, or only a leftover of a lower incarnation."""
    STRAY = auto()
    """A frame stands here and is no leftover, but it does not follow the last one."""
    FRAME = auto()
    """A frame stands here and follows the last one."""


class Verdict(Enum):
    ACCEPT = auto()
    """Take the frame and look behind it."""
    NEXT_SEGMENT = auto()
    """The segment was sealed here; go on in the next one."""
    CUT = auto()
    """The journal ends here."""
    DAMAGE = auto()
    """A confirmed group is missing here: refuse to open."""


class Evidence(Protocol):
    """What the table asks about a place. Read lazily, in the order of the rules: `later` reads whole segments."""

    @property
    def known(self) -> bool:
        """A frame was durable here: the index names it, or it is the first one after a trimmed front."""

    @property
    def here(self) -> Here: ...

    @property
    def next_links(self) -> bool:
        """The next segment's first frame follows the last one, so no group was ever written between them."""

    @property
    def later(self) -> bool:
        """A frame that is no leftover stands at a later place, in this segment or a following one."""


class Rule(NamedTuple):
    """One row. None means that the fact does not matter."""

    label: str
    known: bool | None
    here: frozenset[Here]
    next_links: bool | None
    later: bool | None
    verdict: Verdict

    def matches(self, evidence: Evidence) -> bool:
        return (
            evidence.here in self.here
            and (self.known is None or evidence.known == self.known)
            and (self.next_links is None or evidence.next_links == self.next_links)
            and (self.later is None or evidence.later == self.later)
        )


_FRAME: Final = frozenset({Here.FRAME})
_STRAY: Final = frozenset({Here.STRAY})
_NOTHING: Final = frozenset({Here.NOTHING})
_NO_FRAME: Final = _STRAY | _NOTHING

RULES: Final = (
    Rule("the frame follows", None, _FRAME, None, None, Verdict.ACCEPT),
    Rule("a frame known to be durable is not here", True, _NO_FRAME, None, None, Verdict.DAMAGE),
    Rule("sealed: the next segment continues the chain", False, _NO_FRAME, True, None, Verdict.NEXT_SEGMENT),
    Rule("a frame stands here that does not follow the one before", False, _STRAY, False, None, Verdict.DAMAGE),
    Rule("no valid frame is here, and valid ones are behind it", False, _NOTHING, False, True, Verdict.DAMAGE),
    Rule("torn or never written: the end", False, _NOTHING, False, False, Verdict.CUT),
)
"""Exactly one rule matches any evidence; `test_recovery.py` enumerates all of it."""


def decide(evidence: Evidence) -> Rule:
    for rule in RULES:
        if rule.matches(evidence):
            return rule
    raise AssertionError("the table is total")


class Place:
    """Evidence about one position of one segment, after `last`."""

    def __init__(self, files: SegmentFiles, view: SegmentView, position: int, last: Frame | None, known: bool) -> None:
        self.known = known
        self._files = files
        self._view = view
        self._position = position
        self._last = last
        # Asked of every frame, hence not lazy.
        self.frame = self._no_leftover(view.frame_at(position))
        """The frame that stands here and is no leftover."""
        self.here = Here.NOTHING
        if self.frame is not None:
            self.here = Here.FRAME if self._links(self.frame) else Here.STRAY

    @cached_property
    def next_links(self) -> bool:
        if self._last is None:
            return False
        try:
            view = self._files.view(self._view.segment + 1, limit=SEGMENT_HEADER_BYTES + FRAME_ALIGN_BYTES)
        except FileNotFoundError:
            return False
        frame = self._no_leftover(view.frame_at(SEGMENT_HEADER_BYTES))
        return frame is not None and self._links(frame)

    @cached_property
    def later(self) -> bool:
        return self.first_later is not None

    @cached_property
    def first_later(self) -> tuple[int, int] | None:
        """Segment and position of the first frame that stands behind this place."""
        first = self._position + FRAME_ALIGN_BYTES
        for segment in list_files(self._files.disk).segments:
            if segment < self._view.segment:
                continue
            view = self._view if segment == self._view.segment else self._files.view(segment)
            for position in view.positions_of_magic(first):
                if self._no_leftover(view.frame_at(position)) is not None:
                    return segment, position
            first = SEGMENT_HEADER_BYTES
        return None

    def _links(self, frame: Frame) -> bool:
        return self._last is None or frame.previous_crc == self._last.header_crc

    def _no_leftover(self, frame: Frame | None) -> Frame | None:
        if frame is None or self._last is None or may_follow(self._last.incarnation, frame.incarnation):
            return frame
        return None


class Found(NamedTuple):
    """One frame of the walk, and where."""

    frame: Frame
    view: SegmentView
    position: int


def walk(files: SegmentFiles, from_group: int | None, *, until: int | None = None) -> Iterator[Found]:
    """Frames in order, from `from_group` (included) or the first retained one, to `until` (included) or the end.

    Raises `Corruption` where a frame is missing that was durable, `GroupGone` if the start, or meanwhile the place
    being read, is no longer retained. With `until`, everything up to it is known to be durable, and the end of the
    journal before it is damage too.
    """
    first_segment = _first_segment(files)
    segment, position = first_segment, SEGMENT_HEADER_BYTES
    if from_group is not None:
        segment, position = files.locate(from_group)
        if segment < first_segment:
            raise GroupGone(from_group, files.first_group(first_segment))
    # Only the first frame of segment 0 may be missing without being missed: a crash cut the journal's creation.
    known = from_group is not None or segment > 0
    last: Frame | None = None
    view = _view(files, segment, until)
    while until is None or last is None or last.group < until:
        place = Place(files, view, position, last, known)
        rule = decide(place)
        if rule.verdict is Verdict.ACCEPT:
            assert place.frame is not None
            yield Found(place.frame, view, position)
            last, known = place.frame, False
            position += frame_bytes(last.payload_bytes)
        elif rule.verdict is Verdict.NEXT_SEGMENT:
            view = _view(files, view.segment + 1, until)
            position = SEGMENT_HEADER_BYTES
        elif rule.verdict is Verdict.CUT and until is None:
            return
        else:
            if view.segment < (first_segment := _first_segment(files)):
                # Dropped, and perhaps written over, while it was being read.
                raise GroupGone(files.group_at(view.segment, position), files.first_group(first_segment))
            raise _damage(files, rule, place, view, position, until)


def _view(files: SegmentFiles, segment: int, until: int | None) -> SegmentView:
    limit = None
    if until is not None:
        until_segment, until_position = files.locate(until)
        limit = until_position + FRAME_ALIGN_BYTES if until_segment == segment else None
    try:
        return files.view(segment, limit=limit)
    except FileNotFoundError:
        first_segment = _first_segment(files)
        if segment < first_segment:
            raise GroupGone(files.first_group(segment), files.first_group(first_segment)) from None
        raise segment_missing(segment) from None


def _first_segment(files: SegmentFiles) -> int:
    segments = list_files(files.disk).segments
    if not segments:
        raise Corruption("all segments are missing", hint=RESTORE_HINT)
    return segments[0]


def _damage(
    files: SegmentFiles, rule: Rule, place: Place, view: SegmentView, position: int, until: int | None
) -> Corruption:
    """Names the frame that is damaged: at `position`, or at the start of the next segment.

    The walk cannot tell the end of a sealed segment from a missing frame. But if anything is in a later segment, the
    next one must begin with a frame: if none stands there, that is the one.
    """
    hint = RESTORE_HINT
    segment_max = view.segment if until is None else files.locate(until)[0]
    if place.first_later is not None:
        segment, later = place.first_later
        segment_max = max(segment_max, segment)
        hint = f"a valid frame follows at byte {later} of {segment_name(segment)}; {hint}"
    if segment_max > view.segment:
        following = _view(files, view.segment + 1, until)
        if following.frame_at(SEGMENT_HEADER_BYTES) is None:
            view, position = following, SEGMENT_HEADER_BYTES
    what = rule.label if rule.verdict is Verdict.DAMAGE else "a durable frame is missing"
    return Corruption(what, file=view.name, position=position, hint=hint)


class End(NamedTuple):
    """Where the journal ends."""

    segment: int
    position: int
    """Where the next frame goes in that segment; may be its very end."""
    last: Frame | None
    """None only in a journal whose creation was cut short."""


def find_end(files: SegmentFiles, from_group: int | None) -> tuple[End, Found | None]:
    """The end, and the last frame. Reads only."""
    last = deque(walk(files, from_group), maxlen=1)
    if not last:
        return End(_first_segment(files), SEGMENT_HEADER_BYTES, None), None
    found = last[0]
    position = found.position + frame_bytes(found.frame.payload_bytes)
    return End(found.view.segment, position, found.frame), found


def is_torn(files: SegmentFiles, segment: int, position: int) -> bool:
    """Whether a frame begins behind the last whole one and is not whole: what a crash leaves of a group that nobody was
    told of. (If it had been confirmed it is damage, which cannot be told from it while no other group follows.)"""
    room = files.segment_bytes - position
    if room < FRAME_ALIGN_BYTES:
        return False
    sector = files.view(segment).bytes_at(position, FRAME_ALIGN_BYTES)
    return bool(claimed_bytes(sector, files.group_at(segment, position), room))


def settle(files: SegmentFiles, from_group: int | None) -> tuple[End, list[int]]:
    """Steps 1 to 4. Returns the end, up to which everything is now durable, and the numbers of usable spares."""
    disk = files.disk
    disk.sync_directory()
    end, found = find_end(files, from_group)
    if found is not None:
        frame = found.view.bytes_at(found.position, frame_bytes(found.frame.payload_bytes))
        write_all(found.view.file, [frame], found.position)
        found.view.file.fdatasync()
    listing = list_files(disk)
    # Backwards, with a sync each, so that a crash in between leaves no gap.
    free = max(listing.spares, default=-1) + 1
    for segment in reversed(range(end.segment + 1, listing.segments[-1] + 1)):
        disk.rename(segment_name(segment), spare_name(free))
        disk.sync_directory()
        free += 1
    for number in listing.unready:
        disk.remove(unready_name(number))
    files.forget()
    return end, _usable_spares(files)


def _usable_spares(files: SegmentFiles) -> list[int]:
    """A damaged spare holds nothing, so it is replaced rather than reported."""
    usable = []
    for number in list_files(files.disk).spares:
        name = spare_name(number)
        try:
            files.check_header(files.disk.open(name), name)
        except Corruption:
            files.disk.remove(name)
        else:
            usable.append(number)
    return usable
