"""Is a running log what it promises to be, as far as its public API shows? Reads everything, changes nothing.

 1. A cut: for every stream floor <= stable <= tail.
 2. Every stream is read as raw batches from its floor up to `stable` of that cut. Each batch has its checksum, can be
    decoded, and begins behind the one before it; offsets that are absent are holes; reads go on until the cut.
 3. A sample is read again and has the same bytes.
 4. Producers and cursors: what they remember lies within their stream, and asking for one says what the list said.
 5. A second cut: nothing went back, neither an entry nor a floor nor a stable offset nor a tail.

The log goes on meanwhile: a stream may grow, be trimmed or be deleted. That is noted, not held against it. What the
server itself refuses as damaged is damage of the stream that was asked for; the other streams are still read.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from oncelog.client.errors import AnswerUnreadable, Damaged, NotFound, OffsetGone
from oncelog.client.wire import name_path, topic_path
from oncelog.core import batch as codec
from oncelog.errors import BatchInvalid

PRODUCERS_SAMPLED: Final = 20
"""Producers of each stream that are asked for one by one."""

PAGE: Final = 1_000

Shape = TypeVar("Shape")


class RawPage(NamedTuple):
    """What one raw read gave."""

    body: bytes
    next_offset: int


class Log(Protocol):
    """The two questions that the check asks of a server."""

    def get(self, path: str, query: Mapping[str, str | int | None]) -> Any:
        """The JSON document at `path`."""

    def raw(self, topic: str, partition: int, offset: int) -> RawPage:
        """Raw batches from `offset` on."""


def shaped(document: Any, shape: type[Shape]) -> Shape:
    """What a server told, if it is what was asked for. Raises AnswerUnreadable: any server may answer with JSON."""
    try:
        return msgspec.convert(document, shape)
    except msgspec.ValidationError as error:
        raise AnswerUnreadable(f"the answer is not what was asked for: {error}") from None


class Page(msgspec.Struct, frozen=True):
    """What every page of a listing tells: where to go on, None if that was all."""

    next: str | None


def page_of(log: Log, path: str, member: str, query: Mapping[str, str | int | None]) -> tuple[list[Any], str | None]:
    """(rows in the server's order, where to go on)."""
    document = log.get(path, query)
    after = shaped(document, Page).next
    return shaped(document.get(member), list[Any]), after


class Damage(msgspec.Struct):
    """Something that breaks a promise, and where."""

    what: str
    topic: str = ""
    partition: int = -1
    offset: int = -1


class LiveReport(msgspec.Struct):
    """What was found."""

    url: str = ""
    version: str = ""
    durability: str = ""
    damages: list[Damage] = []
    notes: list[str] = []
    entry: int = -1
    topics: int = 0
    streams: int = 0
    records: int = 0
    holes: int = 0
    batches: int = 0
    bytes: int = 0
    producers: int = 0
    cursors: int = 0
    seconds: float = 0.0

    @property
    def is_sound(self) -> bool:
        return not self.damages


class Stream(msgspec.Struct, frozen=True):
    """Where a stream stood at a cut."""

    topic: str
    partition: int
    floor: int
    stable: int
    tail: int
    closed: bool


class Cut(msgspec.Struct, frozen=True):
    """One instant of the log."""

    entry: int
    time_ms: int
    streams: list[Stream]


class Health(msgspec.Struct, frozen=True):
    """What a server says of itself."""

    version: str
    durability: str


class Made(msgspec.Struct, frozen=True):
    """When a topic was made."""

    created_ms: int


class Place(msgspec.Struct, frozen=True):
    """How far a producer has come."""

    epoch: int
    last_sequence: int


class Producer(Place, frozen=True, kw_only=True):
    """A producer of a stream, and where its last batch lies."""

    name: str
    scope: str
    first: int
    next: int


class Cursor(msgspec.Struct, frozen=True):
    """How far a consumer has come."""

    name: str
    topic: str
    partition: int
    frontier: int
    confirmed: list[tuple[int, int]]


Progress = Callable[[int, int], None]
"""Called with (offsets checked, offsets in all)."""


def check(log: Log, url: str, progress: Progress = lambda _done, _total: None) -> LiveReport:
    """Everything above. What the client raises because it cannot reach the server goes through."""
    begun = time.monotonic()
    health = shaped(log.get("/health", {}), Health)
    report = LiveReport(url, health.version, health.durability)
    _Check(log, report, progress).run()
    report.seconds = time.monotonic() - begun
    return report


class _Check:
    def __init__(self, log: Log, report: LiveReport, progress: Progress) -> None:
        self._log = log
        self._report = report
        self._progress = progress
        self._done = 0
        self._total = 0

    def run(self) -> None:
        report = self._report
        with self._refusal_reported():
            cut = self._cut()
            report.entry = cut.entry
            report.topics = len({stream.topic for stream in cut.streams})
            report.streams = len(cut.streams)
            self._total = sum(max(0, stream.stable - stream.floor) for stream in cut.streams)
            for stream in cut.streams:
                self._progress(self._done, self._total)
                if self._check_numbers(stream):
                    self._check_stream(stream)
            with self._refusal_reported():
                self._check_cursors()
            self._compare(cut, self._cut())
        self._progress(self._total, self._total)

    def _damaged(self, what: str, stream: Stream | None = None, offset: int = -1) -> None:
        if stream is None:
            self._report.damages.append(Damage(what))
        else:
            self._report.damages.append(Damage(what, stream.topic, stream.partition, offset))

    @contextlib.contextmanager
    def _refusal_reported(self, stream: Stream | None = None, offset: int = -1) -> Iterator[None]:
        """Damage that the server tells ends the block, not the check."""
        try:
            yield
        except Damaged as told:
            self._refused(told, stream, offset)

    def _refused(self, told: Damaged, stream: Stream | None, offset: int) -> None:
        asked = f"a read at {offset}" if offset >= 0 else "an answer"
        self._damaged(f"the server refuses {asked} as damaged: {told.detail or told}", stream, offset)

    # --- cuts -----------------------------------------------------------------------------------------------------

    def _cut(self) -> Cut:
        return shaped(self._log.get("/v1/cut", {}), Cut)

    def _check_numbers(self, stream: Stream) -> bool:
        sound = 0 <= stream.floor <= stream.stable <= stream.tail
        if not sound:
            numbers = f"floor {stream.floor}, stable {stream.stable}, tail {stream.tail}"
            self._damaged(f"the numbers are out of order: {numbers}", stream)
        return sound

    def _compare(self, before: Cut, after: Cut) -> None:
        if after.entry < before.entry:
            self._damaged(f"the log went back from entry {before.entry} to {after.entry}")
        later = {(stream.topic, stream.partition): stream for stream in after.streams}
        for stream in before.streams:
            now = later.get((stream.topic, stream.partition))
            if now is None:
                self._report.notes.append(f"{_name(stream)} was deleted meanwhile")
                continue
            back = [
                f"{name} went back from {getattr(stream, name)} to {getattr(now, name)}"
                for name in ("floor", "stable", "tail")
                if getattr(now, name) < getattr(stream, name)
            ]
            if stream.closed and not now.closed:
                back.append("it was closed and is open again")
            if back and self._made_after(stream, before.time_ms):
                self._report.notes.append(f"{_name(stream)} was deleted and made again meanwhile")
                continue
            for what in back:
                self._damaged(what, stream)

    def _made_after(self, stream: Stream, time_ms: int) -> bool:
        try:
            topic = shaped(self._log.get(f"/v1/topics/{topic_path(stream.topic)}", {}), Made)
        except NotFound:
            return True
        return topic.created_ms >= time_ms

    # --- records --------------------------------------------------------------------------------------------------

    def _check_stream(self, stream: Stream) -> None:
        begun = self._done
        try:
            self._read_through(stream)
            with self._refusal_reported(stream):
                self._check_producers(stream)
        except NotFound:
            self._report.notes.append(f"{_name(stream)} was deleted meanwhile")
        self._done = begun + stream.stable - stream.floor

    def _read_through(self, stream: Stream) -> None:
        """From the floor to where the stream was stable at the cut."""
        offset = stream.floor
        records = 0
        trimmed = 0
        unread = 0
        first: tuple[int, RawPage] | None = None
        while offset < stream.stable:
            try:
                page = self._log.raw(stream.topic, stream.partition, offset)
            except OffsetGone as gone:
                if gone.floor <= offset:
                    self._damaged(
                        f"offset {offset} is refused as trimmed, but the floor is {gone.floor}", stream, offset
                    )
                    return
                self._report.notes.append(f"{_name(stream)} was trimmed to {gone.floor} meanwhile")
                trimmed += min(gone.floor, stream.stable) - offset
                offset = gone.floor
                continue
            except Damaged as told:
                self._refused(told, stream, offset)
                behind = min(told.number("next"), stream.stable)
                unread += (behind if behind > offset else stream.stable) - offset
                if behind <= offset:
                    break  # the server does not know where to go on
                offset = behind
                continue
            records += self._check_page(stream, offset, page)
            if page.next_offset <= offset:
                self._damaged(f"a read at {offset} says to go on at {page.next_offset}", stream, offset)
                return
            first = first or (offset, page)
            self._done += min(page.next_offset, stream.stable) - offset
            self._progress(self._done, self._total)
            offset = page.next_offset
        # Records that came after the cut may have been in the last page: they are no holes, but no promise either.
        self._report.records += records
        self._report.holes += max(0, stream.stable - stream.floor - trimmed - unread - records)
        if first is not None:
            with self._refusal_reported(stream, first[0]):
                self._read_again(stream, *first)

    def _check_page(self, stream: Stream, asked: int, page: RawPage) -> int:
        """How many records of the page lie at or behind `asked` and below the cut. Damage goes to the report."""
        records = 0
        end = -1
        for at, batch in self._batches(stream, asked, page.body):
            try:
                header = codec.skim(batch, dense=False)
                offsets = codec.decode_columns(batch, base_offset=at, headers=False)[0]
            except BatchInvalid as invalid:
                self._damaged(f"the batch at offset {at} cannot be read: {invalid}", stream, at)
                return records
            if header.attributes & codec.CONTROL:
                self._damaged(f"the batch at offset {at} is a marker, which is never delivered", stream, at)
            if at < end:
                self._damaged(f"the batch at offset {at} begins before the last one ended ({end})", stream, at)
            end = at + header.last_offset_delta + 1
            records += sum(asked <= offset < stream.stable for offset in offsets)
            self._report.batches += 1
            self._report.bytes += len(batch)
        if end > page.next_offset:
            self._damaged(f"a read at {asked} gave records up to {end} but says {page.next_offset}", stream, asked)
        return records

    def _batches(self, stream: Stream, asked: int, body: bytes) -> Iterator[tuple[int, memoryview]]:
        """(base offset, batch) of each batch that is all there."""
        at = 0
        view = memoryview(body)
        while at < len(body):
            try:
                header = codec.read_header(body, at)
            except BatchInvalid as invalid:
                self._damaged(f"a read at {asked} gave something that is no batch: {invalid}", stream, asked)
                return
            if at + header.batch_bytes > len(body):
                self._damaged(f"the batch at offset {header.base_offset} ends too early", stream, header.base_offset)
                return
            yield header.base_offset, view[at : at + header.batch_bytes]
            at += header.batch_bytes

    def _read_again(self, stream: Stream, offset: int, page: RawPage) -> None:
        """The same question has the same answer, unless records were deleted or added meanwhile."""
        try:
            again = self._log.raw(stream.topic, stream.partition, offset)
        except OffsetGone:
            return
        if page.next_offset < stream.stable and again != page:
            self._report.notes.append(
                f"{_name(stream)} at offset {offset}: a second read differs; were records deleted?"
            )

    # --- producers and cursors ------------------------------------------------------------------------------------

    def _check_producers(self, stream: Stream) -> None:
        query: dict[str, str | int | None] = {"topic": stream.topic, "partition": stream.partition}
        tail = stream.tail
        for number, listed in enumerate(self._listed("/v1/producers", "producers", Producer, query)):
            self._report.producers += 1
            name, first, next_ = listed.name, listed.first, listed.next
            if next_ > tail:  # it wrote after the cut: judge by where the stream stands now
                tail = self._tails(stream.topic).get((stream.topic, stream.partition), next_)
            if first > next_ or next_ > tail:
                self._damaged(f"producer {name!r} remembers offsets {first} to {next_}, beyond the tail", stream)
            if number < PRODUCERS_SAMPLED:
                self._check_producer(stream, listed)

    def _check_producer(self, stream: Stream, listed: Producer) -> None:
        path = f"/v1/producers/{topic_path(stream.topic)}/{name_path(listed.name)}"
        try:
            asked = shaped(self._log.get(path, {"partition": stream.partition, "scope": listed.scope}), Place)
        except NotFound:
            query: dict[str, str | int | None] = {"topic": stream.topic, "partition": stream.partition}
            query["prefix"] = f"{listed.scope}:{listed.name}"
            if any(row.name == listed.name for row in self._listed("/v1/producers", "producers", Producer, query)):
                self._damaged(f"producer {listed.name!r} is listed, but unknown when it is asked for", stream)
            else:  # the dedupe floor has passed between the two questions
                self._report.notes.append(f"producer {listed.name!r} was forgotten meanwhile")
            return
        if (asked.epoch, asked.last_sequence) < (listed.epoch, listed.last_sequence):
            self._damaged(f"producer {listed.name!r} went back", stream)

    def _check_cursors(self) -> None:
        tails: dict[tuple[str, int], int] = {}
        for cursor in self._listed("/v1/cursors", "cursors", Cursor, {}):
            self._report.cursors += 1
            where = Stream(cursor.topic, cursor.partition, 0, 0, 0, False)
            # A tail that is asked for later than the cursor cannot be passed by it.
            tail = tails.get((where.topic, where.partition), -1)
            if cursor.frontier > tail:
                tails |= self._tails(where.topic)
                tail = tails.get((where.topic, where.partition), cursor.frontier)
            if cursor.frontier > tail:
                self._damaged(f"cursor {cursor.name!r} stands at {cursor.frontier}, behind the tail", where)
            place = cursor.frontier
            for first, next_ in cursor.confirmed:
                if not place <= first < next_:
                    self._damaged(f"cursor {cursor.name!r} confirmed {first} to {next_} out of order", where)
                place = next_

    def _tails(self, topic: str) -> dict[tuple[str, int], int]:
        try:
            fresh = shaped(self._log.get("/v1/cut", {"topic": topic}), Cut)
        except NotFound:
            return {}
        return {(stream.topic, stream.partition): stream.tail for stream in fresh.streams}

    def _listed(
        self, path: str, member: str, row: type[Shape], query: Mapping[str, str | int | None]
    ) -> Iterator[Shape]:
        after: str | None = None
        while True:
            rows, after = page_of(self._log, path, member, {**query, "after": after, "limit": PAGE})
            yield from (shaped(found, row) for found in rows)
            if after is None:
                return


def _name(stream: Stream) -> str:
    return f"{stream.topic}/{stream.partition}" if stream.partition else stream.topic
