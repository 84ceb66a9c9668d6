"""Mirrors and sources: messages of one stream of this server stored in another, each exactly once.

How far an origin has been copied is a cursor on the origin. The copies and the cursor's move are one commit, under the
condition that the cursor stands where it stood when the messages were read: a crash leaves both or neither.
"""

from functools import partial
from typing import Final

from oncelog.core import batch as codec
from oncelog.core.command import Commit, CommitAppend, Condition, CursorMove, ExpectCursor, GetCursor
from oncelog.core.outcome import CommitConfirmed, CursorDone, Outcome
from oncelog.protocols.nats import consumer_config
from oncelog.protocols.nats import headers as header_blocks
from oncelog.protocols.nats.batch import PREFIX as BATCH_PREFIX
from oncelog.protocols.nats.stored import Stored
from oncelog.protocols.nats.stream_config import Source
from oncelog.servers.nats.log import CURSOR_SCOPE
from oncelog.servers.nats.stream import LiveStream

EXPECTED_PREFIX: Final = "Nats-Expected-"
SOURCE_HEADER: Final = "Nats-Stream-Source"
COPIED_TOGETHER: Final = 256
COPIED_BYTES: Final = 1 << 20
RETRY_S: Final = 1.0
TRANSFER_NAME: Final = "$transfer."
"""What the cursor of a transfer begins with: no consumer can be called so."""


class Transfer:
    """From one origin into one stream."""

    def __init__(self, origin: LiveStream, target: LiveStream, source: Source, *, is_mirror: bool) -> None:
        self._origin = origin
        self._target = target
        self._source = source
        self._is_mirror = is_mirror
        self._filters = [source.filter_subject] if source.filter_subject else []
        self._cursor = f"{CURSOR_SCOPE}{TRANSFER_NAME}{target.topic_id}.{source.filter_subject}"
        self._frontier = -1
        """Where the cursor stands; -1 until it is known."""
        self._begin = 0
        self._messages: list[Stored] = []
        self._bytes = 0
        self._next = 0
        self._is_busy = True
        self._has_come = self._is_fetching = False
        self.is_ended = False
        origin.followers.append(self.go_on)
        origin.when_current(self._ask)

    @property
    def origin(self) -> LiveStream:
        return self._origin

    def end(self) -> None:
        """The stream does not follow this origin any more."""
        self.is_ended = True
        if self.go_on in self._origin.followers:
            self._origin.followers.remove(self.go_on)

    @property
    def lag(self) -> int:
        """Messages of the origin that are still to be copied."""
        return 0 if self._frontier < 0 else self._origin.index.count_from(self._begin, self._filters)

    def _ask(self) -> None:
        if not self.is_ended:
            command = GetCursor(self._cursor, self._origin.topic, self._origin.partition)
            self._origin.log.submit(command, self._place_known)

    def _place_known(self, outcome: Outcome) -> None:
        if not isinstance(outcome, CursorDone):
            self._origin.js.loop.call_later(RETRY_S, self._ask)
            return
        self._frontier = 0 if outcome.cursor is None else outcome.cursor.frontier
        self._begin = self._frontier
        if outcome.cursor is None:
            start = self._source.opt_start_time
            if self._source.opt_start_seq:
                self._begin = self._source.opt_start_seq - 1
            elif start:
                self._begin = self._origin.index.first_at_time(consumer_config.time_ns(start) or 0)
        self._is_busy = False
        self.go_on()

    def go_on(self) -> None:
        """The origin has more, or may have."""
        if self._is_busy or self.is_ended:
            return
        self._is_busy = True
        self._messages, self._bytes = [], 0
        self._next = self._begin
        self._gather()

    def _gather(self) -> None:
        """Read the next messages, one after the other, until there is enough for one commit."""
        index = self._origin.index
        while len(self._messages) < COPIED_TOGETHER and self._bytes < COPIED_BYTES:
            offset = index.next_live(self._next, self._filters)
            if offset >= index.next:
                self._next = max(self._next, index.next)
                break
            self._has_come, self._is_fetching = False, True
            self._origin.fetch(offset, partial(self._found, offset))
            self._is_fetching = False
            if not self._has_come:
                return  # it is read from the disk: `_found` goes on
        self._commit()

    def _found(self, offset: int, stored: Stored | None) -> None:
        self._has_come = True
        self._next = offset + 1
        if stored is not None:
            self._messages.append(stored)
            self._bytes += len(stored.payload) + len(stored.header)
        if not self._is_fetching and not self.is_ended:
            self._gather()

    def _commit(self) -> None:
        if not self._messages:
            self._begin = max(self._begin, self._next)
            self._is_busy = False
            return
        origin, target = self._origin, self._target
        now_ms = origin.log.now_ns() // 1_000_000
        records = [
            (number, now_ms, each.subject.encode(), each.payload, self._headers(each))
            for number, each in enumerate(self._messages)
        ]
        append = CommitAppend(target.topic, target.partition, codec.encode(records), len(records))
        condition: list[Condition] = [ExpectCursor(self._cursor, origin.topic, origin.partition, self._frontier)]
        frontier = self._next
        move = CursorMove(self._cursor, origin.topic, origin.partition, frontier)

        def told(outcome: Outcome) -> None:
            self._is_busy = False
            if isinstance(outcome, CommitConfirmed):
                self._frontier = self._begin = frontier
                origin.js.loop.call_soon(self.go_on)
            elif not self.is_ended:
                self._is_busy = True
                origin.js.loop.call_later(RETRY_S, self._ask)

        origin.log.submit(Commit([append], condition, [move]), told)

    def _headers(self, stored: Stored) -> tuple[tuple[str, bytes | None], ...]:
        """Headers that decided about the original do not decide about the copy; batch headers mean nothing here."""
        fields = (header_blocks.parse(stored.header) or []) if stored.header else []
        fields = header_blocks.without(header_blocks.without(fields, BATCH_PREFIX), EXPECTED_PREFIX)
        if not self._is_mirror:
            name, pattern = self._origin.name, self._source.filter_subject or ">"
            fields = [*fields, (SOURCE_HEADER, f"{name} {stored.sequence} {pattern} > {stored.subject}")]
        return tuple((name, value.encode()) for name, value in fields)
