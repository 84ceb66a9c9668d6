"""Reads over HTTP: catch-up, long-poll, SSE. Finds standing and records, waits for more; what they look like is
decided in `protocols.http.read`."""

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeGuard

from oncelog import limits
from oncelog.core.outcome import OffsetGone, Refusal, TopicMissing
from oncelog.engine.damage import damaged
from oncelog.engine.engine import Engine
from oncelog.engine.follow import Waiter
from oncelog.engine.reader import offset_refused
from oncelog.engine.reader_thread import Asked
from oncelog.engine.reads import ReadResult
from oncelog.errors import StorageError
from oncelog.protocols.http import offsets, read
from oncelog.protocols.http.actions import Action, Read, Stand
from oncelog.protocols.http.read import Found, Standing
from oncelog.protocols.http.refusal_map import problem_of
from oncelog.servers.counts import Counts
from oncelog.servers.http.settings import HttpSettings
from oncelog.servers.unsent import Holder, UnsentBytes

BodyKey = tuple[int, int, int, str]
"""Stream, first offset, holes in the stream, and the form of the body."""

KEPT_OVERHEAD_BYTES = 512
"""What one body costs beside its bytes: an empty one is not free."""


class Turn(Protocol):
    """The place in line that an answer belongs to."""

    reading: "Reading | None"
    is_head: bool
    is_last: bool

    def done(self, answer: bytes, body: bytes = b"") -> None: ...

    @property
    def connection(self) -> "Writer": ...


class Writer(Holder, Protocol):
    """The connection, as far as a live answer needs it."""

    def write_piece(self, data: bytes) -> bool: ...


class Reading:
    """A read in progress."""

    def cancel(self) -> None:
        """The client has gone."""

    def end(self) -> None:
        """The server stops: say what there is, now."""

    def go_on(self) -> None:
        """The client has read what was sent."""

    def put_off(self) -> None:
        """The client sends nothing more, and has most likely gone: its read need not be the next."""


class CatchUp(Reading):
    """Records of long ago that the reader's thread is asked for."""

    def __init__(self, asked: Asked[ReadResult]) -> None:
        self._asked = asked

    def cancel(self) -> None:
        self._asked.cancel()

    def put_off(self) -> None:
        self._asked.put_off()


class KeptBodies:
    """Answers to catch-up reads that cannot change any more, newest use last: those who read the same history read the
    same bytes. A key has the stream's count of holes: deleting a record makes another key."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._bodies: OrderedDict[BodyKey, tuple[bytes, int]] = OrderedDict()

    def get(self, key: BodyKey) -> tuple[bytes, int] | None:
        """(body, next offset)."""
        kept = self._bodies.get(key)
        if kept is not None:
            self._bodies.move_to_end(key)
        return kept

    def keep(self, key: BodyKey, body: bytes, next_offset: int) -> None:
        """Keep a body that does not reach the end of its stream."""
        if key in self._bodies or len(body) > self._bytes_max:
            return
        self._bodies[key] = (body, next_offset)
        self._bytes += len(body) + KEPT_OVERHEAD_BYTES
        while self._bytes > self._bytes_max:
            _, (oldest, _) = self._bodies.popitem(last=False)
            self._bytes -= len(oldest) + KEPT_OVERHEAD_BYTES


class Reads:
    """Carries out `Read` and `Stand`."""

    def __init__(
        self,
        engine: Engine,
        settings: HttpSettings,
        loop: asyncio.AbstractEventLoop,
        counts: Counts,
        unsent: UnsentBytes,
    ) -> None:
        self.engine = engine
        self._counts = counts
        self._unsent = unsent
        self.settings = settings
        self.loop = loop
        self._bodies = KeptBodies(limits.HTTP_BODIES_KEPT_BYTES)

    @staticmethod
    def takes(action: Action) -> TypeGuard[Read | Stand]:
        return isinstance(action, Read | Stand)

    def begin(self, action: Read | Stand, turn: Turn) -> None:
        """Answer now, or when there is something to say."""
        standing = self.standing(action.topic, action.partition)
        if standing is None:
            turn.done(problem_of(TopicMissing(action.topic, action.partition)))
        elif isinstance(action, Stand):
            turn.done(read.stands(standing))
        else:
            start = read.start_of(action.offset, standing)
            refusal = offset_refused(standing.stream_id, start, standing.floor, standing.stable)
            if refusal is not None:
                turn.done(refused(refusal))
            elif action.live == "sse":
                turn.reading = EventStream(self, action, turn, standing, start)
                turn.reading.go_on()
            elif action.live:
                turn.reading = LongPoll(self, action, turn, standing.stream_id, start)
                turn.reading.go_on()
            else:
                self.enter(turn, partial(self._catch_up, action, turn))

    def enter(self, turn: Turn, begin: Callable[[], None]) -> None:
        """Call `begin`, which fetches records for this answer, once there is room for what they may bring."""
        self._unsent.enter(turn.connection, self.settings.read_bytes_max, begin)

    def _catch_up(self, action: Read, turn: Turn) -> None:
        try:
            standing = self.standing(action.topic, action.partition)
        except StorageError as error:
            refusal = damaged(error)
            self._counts.other(refusal, action.topic, action.partition)
            turn.done(problem_of(refusal))
            return
        if standing is None:
            turn.done(problem_of(TopicMissing(action.topic, action.partition)))
        else:
            self._catch_up_from(action, turn, standing, read.start_of(action.offset, standing))

    def _catch_up_from(self, action: Read, turn: Turn, standing: Standing, start: int) -> None:
        if action.offset == offsets.NOW:
            turn.done(*read.catch_up(action, standing, Found(start, (), start)))
            return

        # A raw body may begin before `start`, so it depends on the floor as well.
        form = f"raw {standing.floor}" if action.raw else standing.content_type
        key = (standing.stream_id, start, standing.hole_count, form)
        kept = self._bodies.get(key)
        if kept is not None:
            turn.done(*read.catch_up(action, standing, Found(start, (), kept[1]), kept[0]))
            return

        def found(result: ReadResult | Refusal) -> None:
            shown = self.shown(action, standing, start, result, raw=action.raw)
            if isinstance(shown, Refusal):
                turn.done(refused(shown))
                return
            now, what = shown
            body = read.body_of(what, standing.content_type, raw=action.raw)
            if not what.is_up_to_date(now):
                self._bodies.keep(key, body, what.next_offset)
            turn.done(*read.catch_up(action, now, what, body))

        asked = self.find(action, start, found)
        if asked is not None:
            turn.reading = CatchUp(asked)

    def still(self, action: Read, stream_id: int) -> Standing | None:
        """Where the stream stands that a live read began with; None if its name is gone, or means another stream now:
        offsets of one say nothing about the other."""
        standing = self.standing(action.topic, action.partition)
        return standing if standing is not None and standing.stream_id == stream_id else None

    def find(self, action: Read, start: int, found: Callable[[ReadResult | Refusal], None]) -> Asked[ReadResult] | None:
        """Read from `start` on; what `found` will be told from, if that is not at once."""

        def told(result: ReadResult | Refusal) -> None:
            if isinstance(result, Refusal):
                self._counts.other(result, action.topic, action.partition)
            found(result)

        return self.engine.read(action.topic, action.partition, start, self.settings.read_bytes_max, told)

    def shown(
        self, action: Read, standing: Standing, start: int, result: ReadResult | Refusal, *, raw: bool = False
    ) -> tuple[Standing, Found] | Refusal:
        """What of a read goes into one answer, and where the stream stood when it was planned."""
        if isinstance(result, Refusal):
            return result
        now = standing._replace(floor=result.floor, stable=result.stable, tail=result.tail, closed=result.closed)
        found = Found(start, result.batches, result.next_offset)
        if raw:
            return now, found
        try:
            return now, read.decoded(found, self.settings.read_bytes_max)
        except read.Undecodable as error:
            refusal = self.engine.reads.undecodable(standing.stream_id, error.base_offset, str(error))
            self._counts.other(refusal, action.topic, action.partition)
            return refusal

    def standing(self, name: str, partition: int) -> Standing | None:
        """Where a stream stands for readers; None if there is none."""
        topic = self.engine.lookups.topic(name)
        if topic is None or not 0 <= partition < len(topic.stream_ids):
            return None
        stream = self.engine.lookups.stream(topic.stream_ids[partition])
        if stream is None:
            return None
        content_type = topic.config.content_type
        return Standing(
            stream.stream_id,
            content_type,
            stream.floor,
            stream.stable,
            stream.tail,
            stream.closed,
            stream.hole_count,
            topic.created_ns // 1_000_000,
        )

    @staticmethod
    def cursor(sent: str) -> str:
        """What the next live read sends along."""
        return read.cursor_after(sent, int(time.time()), random.randrange(read.CURSOR_JITTER_MAX))


def refused(refusal: Refusal) -> bytes:
    """The answer to a read that cannot be. One that is below the floor is told where to read on."""
    floor = f"Stream-Floor: {offsets.spelled(refusal.floor)}\r\n" if isinstance(refusal, OffsetGone) else ""
    return problem_of(refusal, floor.encode())


class LongPoll(Reading):
    """Waits for the first record at or behind an offset, or until time is up."""

    def __init__(self, reads: Reads, action: Read, turn: Turn, stream_id: int, start: int) -> None:
        self._reads = reads
        self._action = action
        self._turn = turn
        self._stream_id = stream_id
        self._start = start
        self._waiter: Waiter | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._asked: Asked[ReadResult] | None = None
        self._is_over = False

    def go_on(self) -> None:
        """Look, and wait if there is nothing."""
        if self._timer is not None or self._is_over:
            return  # it only waits; nothing was sent that the client could have read
        action = self._action
        waiter = self._reads.engine.wait(action.topic, action.partition, self._start, self._look)
        if isinstance(waiter, Waiter):
            self._waiter = waiter
            self._timer = self._reads.loop.call_later(self._reads.settings.long_poll_ms / 1000, self.end)
        else:
            self._look()

    def _look(self) -> None:
        self._stop_waiting()
        if self._is_over:
            return
        self._is_over = True
        self._reads.enter(self._turn, self._fetch)

    def _fetch(self) -> None:
        standing = self._reads.still(self._action, self._stream_id)
        if standing is None:
            self._turn.done(problem_of(TopicMissing(self._action.topic, self._action.partition)))
            return

        def found(result: ReadResult | Refusal) -> None:
            shown = self._reads.shown(self._action, standing, self._start, result, raw=self._action.raw)
            if isinstance(shown, Refusal):
                self._turn.done(refused(shown))
            else:
                self._turn.done(*read.polled(self._action, *shown, self._reads.cursor(self._action.cursor)))

        self._asked = self._reads.find(self._action, self._start, found)

    def end(self) -> None:
        """Time is up: there is nothing new."""
        if self._is_over:
            return
        self._stop_waiting()
        self._is_over = True
        standing = self._reads.still(self._action, self._stream_id)
        if standing is None:
            self._turn.done(problem_of(TopicMissing(self._action.topic, self._action.partition)))
            return
        refusal = offset_refused(standing.stream_id, self._start, standing.floor, standing.stable)
        if refusal is not None:
            self._turn.done(refused(refusal))
            return
        found = Found(self._start, (), standing.stable)
        self._turn.done(*read.polled(self._action, standing, found, self._reads.cursor(self._action.cursor)))

    def cancel(self) -> None:
        self._stop_waiting()
        self._is_over = True
        if self._asked is not None:
            self._asked.cancel()

    def put_off(self) -> None:
        if self._asked is not None:
            self._asked.put_off()

    def _stop_waiting(self) -> None:
        if self._waiter is not None:
            self._reads.engine.cancel(self._waiter)
            self._waiter = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class EventStream(Reading):
    """Server-sent events: what is there, then what comes, until the stream ends, time is up, or the client goes."""

    def __init__(self, reads: Reads, action: Read, turn: Turn, standing: Standing, start: int) -> None:
        self._reads = reads
        self._action = action
        self._turn = turn
        self._standing = standing
        self._start = start
        self._waiter: Waiter | None = None
        self._asked: Asked[ReadResult] | None = None
        self._is_reading = False
        self._is_over = False
        self._said_first = False
        turn.is_last = turn.is_last or action.bare
        self._writable = turn.connection.write_piece(read.sse_head(standing, bare=action.bare))
        self._timer = reads.loop.call_later(reads.settings.sse_ms / 1000, self.end)
        self._comment_timer = reads.loop.call_later(reads.settings.sse_comment_ms / 1000, self._comment)

    def go_on(self) -> None:
        """Send what there is, and wait if there is nothing."""
        if self._is_over or self._is_reading:
            return
        if self._waiter is not None:
            return
        action = self._action
        if self._reads.still(action, self._standing.stream_id) is None:
            self.end()
            return
        waiter = self._reads.engine.wait(action.topic, action.partition, self._start, self._woken)
        if isinstance(waiter, Refusal):
            self.end()
        elif waiter is None:
            self._look()
        else:
            self._waiter = waiter
            if not self._said_first:
                self._say(self._standing, Found(self._start, (), self._start))

    def _woken(self) -> None:
        self._waiter = None
        if not self._is_over:
            self.go_on()

    def _look(self) -> None:
        self._is_reading = True
        self._reads.enter(self._turn, self._fetch)

    def _fetch(self) -> None:
        if not self._is_over:
            self._asked = self._reads.find(self._action, self._start, self._found)

    def _found(self, result: ReadResult | Refusal) -> None:
        self._is_reading = False
        if self._is_over:
            return
        shown = self._reads.shown(self._action, self._standing, self._start, result)
        if isinstance(shown, Refusal):
            self.end()  # deleted, trimmed under the reader, or damaged: it comes back and is told
            return
        standing, found = shown
        self._start = found.next_offset
        self._say(standing, found)
        if found.is_end(standing):
            self.end()
        elif self._writable:
            # Not at once: others want to be served between two pieces of a long stream.
            self._reads.loop.call_soon(self.go_on)

    def _say(self, standing: Standing, found: Found) -> None:
        self._said_first = True
        cursor = self._reads.cursor(self._action.cursor)
        events = read.sse_events(standing, found, cursor, bare=self._action.bare)
        self._writable = self._turn.connection.write_piece(events)

    def _comment(self) -> None:
        """Proxies cut a connection on which nothing comes for a minute."""
        self._comment_timer = self._reads.loop.call_later(self._reads.settings.sse_comment_ms / 1000, self._comment)
        if self._waiter is not None and self._writable:
            self._writable = self._turn.connection.write_piece(read.sse_comment(bare=self._action.bare))

    def end(self) -> None:
        """The last piece; the connection can be used again, unless its end is what tells it."""
        if self._is_over:
            return
        self.cancel()
        self._turn.done(b"" if self._action.bare else read.LAST_CHUNK)

    def cancel(self) -> None:
        self._is_over = True
        if self._asked is not None:
            self._asked.cancel()
        self._timer.cancel()
        self._comment_timer.cancel()
        if self._waiter is not None:
            self._reads.engine.cancel(self._waiter)
            self._waiter = None
