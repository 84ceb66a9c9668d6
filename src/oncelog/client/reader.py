"""Reading a stream from an offset on: to its end, or for ever as records come.

The reader asks for raw batches, so that keys, headers, timestamps and offsets arrive with the values. Its place is
`offset`: the offset behind the last record that it handed out. A lost connection is made again and reading goes on
there, so each record is handed out once per reader. What survives the process is a cursor: `save` moves it, and
a reader that is given its name begins there.

A place means something in one stream alone. If the stream is deleted and another one gets its name, offsets count anew:
going on would skip whatever the new one has below. So the reader remembers when its stream was made, which every answer
with records tells, and stops with `StreamReplaced` before it hands out one of another. A cursor goes with its stream.
"""

import asyncio
import operator
from typing import Final, Literal, get_args

from oncelog.client.admin import Admin
from oncelog.client.backoff import Backoff
from oncelog.client.calls import BACKOFF_MAX_MS, BACKOFF_MS, Caller, Channel
from oncelog.client.errors import (
    AnswerUnreadable,
    OffsetGone,
    Refused,
    StreamReplaced,
    Unreachable,
    refusal_of,
)
from oncelog.client.packing import Record, records_of
from oncelog.client.wire import BATCHES, Answer, target, topic_path

START: Final = -1
"""The first record that is there."""

NOW: Final = -2
"""The end: only records that come later."""

LONG_POLL_S: Final = 90.0
"""After so much silence a reader makes sure that the server is there. It answers a long-poll after 30 seconds unless it
is told otherwise; it may be told to wait for an hour, so silence alone proves nothing."""

PLACE_CODES: Final = frozenset(("offset_ahead", "offset_gone"))
"""Refusals of an offset. Where a reader came to by reading, they may mean that the stream is another one."""

OnGone = Literal["raise", "skip"]


class AsyncReader:
    """Records of one partition, in order. `async for record in reader`, or `read` for a list at a time."""

    def __init__(
        self,
        caller: Caller,
        topic: str,
        *,
        offset: int = START,
        partition: int = 0,
        live: bool = True,
        cursor: str | None = None,
        on_gone: OnGone = "raise",
    ) -> None:
        offset = _place(offset)
        if on_gone not in get_args(OnGone):
            raise ValueError(f"on_gone is 'raise' or 'skip', not {on_gone!r}")
        self.topic = topic
        self.partition = partition
        self.live = live
        """Whether to wait for records at the end; otherwise the end ends the iteration."""
        self.offset = offset
        """Of the next record to hand out; START or NOW until the first answer."""
        self.up_to_date = False
        """The last answer reached the end."""
        self.closed = False
        """It did, and nothing can follow."""
        self._caller = caller
        self._channel: Channel = caller.channel()
        self._path = f"/v1/stream/{topic_path(topic)}"
        self._cursor = cursor
        self._cursor_known = cursor is None
        self._on_gone = on_gone
        self._next_offset = offset
        self._created_ms = 0
        """When the stream was made whose records are read; 0 before the first answer, or if the server never tells."""
        self._poll_cursor = ""
        self._backoff = Backoff(BACKOFF_MS, BACKOFF_MAX_MS)
        """Between waits that nothing answers."""
        self._records: list[Record] = []
        self._at = 0

    async def read(self, *, wait: bool | None = None) -> list[Record]:
        """The next records; an empty list at the end. `wait`, if not told as `live` says, for at least one."""
        if self._at < len(self._records):
            records = self._records[self._at :]
        else:
            records = await self._fetch(self.live if wait is None else wait)
        self._records, self._at = [], 0
        self.offset = self._next_offset
        return records

    def __aiter__(self) -> "AsyncReader":
        return self

    async def __anext__(self) -> Record:
        if self._at >= len(self._records):
            self._records, self._at = await self._fetch(self.live), 0
            if not self._records:
                self.offset = self._next_offset
                raise StopAsyncIteration
        record = self._records[self._at]
        self._at += 1
        # Behind the last one come holes, if anything, and they are read too.
        self.offset = record.offset + 1 if self._at < len(self._records) else self._next_offset
        return record

    async def save(self, *, offset: int | None = None, metadata: str = "", pinned: bool = False) -> None:
        """Moves the cursor to `offset`; if it is not given, everything handed out so far counts as processed.

        `StreamReplaced` if that was in another stream: the cursor of the new one then stays where it is.
        """
        if self._cursor is None:
            raise ValueError("this reader has no cursor")
        offset = self.offset if offset is None else offset
        if offset < 0:
            return  # nothing was read yet
        await self._check_same(offset)
        await Admin(self._caller).move_cursor(
            self._cursor, self.topic, offset, partition=self.partition, metadata=metadata, pinned=pinned
        )

    async def close(self) -> None:
        """Ends the reader's connection."""
        await self._channel.close()

    async def __aenter__(self) -> "AsyncReader":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _fetch(self, wait: bool) -> list[Record]:
        """Records from `_next_offset` on, which moves behind them; empty only at the end."""
        if not self._cursor_known:
            assert self._cursor is not None
            found = await Admin(self._caller).cursor(self._cursor, self.topic, partition=self.partition)
            self._cursor_known = True
            if found is not None:
                self._next_offset = self.offset = found.frontier
        if self._next_offset == NOW:
            # The end is named before it is waited at: a retry of a wait must not skip what came meanwhile.
            self._advance(await self._ask(wait=False))
        while not self.closed:
            answer = await self._ask(wait=wait and self.up_to_date)
            if answer.flag("stream-closed") and "stream-created" not in answer.headers:
                # A wait that ends without records does not tell which stream it is that has ended.
                await self._check_same(self.offset)
            first = max(0, self._next_offset)
            self._advance(answer)
            if answer.body and (records := records_of(answer.body, first)):
                return records
            if self.up_to_date and not wait:
                break
        return []

    async def _ask(self, *, wait: bool) -> Answer:
        while True:
            answer = await self._answer(wait=wait)
            if answer.status < 400:
                return answer
            refusal = refusal_of(answer)
            if refusal.code in PLACE_CODES:
                await self._check_same(self.offset)
            if not isinstance(refusal, OffsetGone) or self._on_gone == "raise" or refusal.floor <= self._next_offset:
                raise refusal
            self._next_offset = refusal.floor

    async def _answer(self, *, wait: bool) -> Answer:
        """Whatever the server says but "try again". A wait is asked for once. If no answer ends it, the same read is
        asked for without waiting: a server that is there says at once what has come meanwhile, and one that is not is
        given up as after any other call."""
        query = self._query(self._next_offset)
        try:
            if wait:
                waiting = query | {"live": "long-poll", "cursor": self._poll_cursor or None}
                try:
                    answer = await self._send(waiting, wait_s=LONG_POLL_S)
                except (Unreachable, Refused) as error:
                    # A server that takes no waits, but reads, is asked now and then; not in a tight circle.
                    asked_s = error.retry_after_s if isinstance(error, Refused) else 0
                    await asyncio.sleep(max(self._backoff.next_s(), asked_s))
                else:
                    self._backoff.reset()
                    return answer
            return await self._send(query)
        except asyncio.CancelledError:
            # The next request would wait behind the answer that nobody wants any more.
            self._channel.reset()
            raise

    def _query(self, offset: int) -> dict[str, str | int | None]:
        spelled = {START: "-1", NOW: "now"}.get(offset) or f"{offset:016d}"
        return {"partition": self.partition, "offset": spelled}

    async def _send(
        self,
        query: dict[str, str | int | None],
        *,
        wait_s: float | None = None,
    ) -> Answer:
        request = self._caller.head("GET", target(self._path, query), {"Accept": BATCHES}).bodiless()
        answer, _ = await self._channel.ask(request, writes=False, wait_s=wait_s)
        return answer

    def _advance(self, answer: Answer) -> None:
        next_offset = answer.number("stream-next-offset")
        if next_offset < 0 or (answer.body and answer.headers.get("content-type") != BATCHES):
            raise AnswerUnreadable("the server does not answer with record batches: is it oncelog?")
        self._compare(answer, self.offset)
        self._next_offset = next_offset
        self._poll_cursor = answer.headers.get("stream-cursor", "")
        self.up_to_date = answer.flag("stream-up-to-date")
        self.closed = self.up_to_date and answer.flag("stream-closed")

    async def _check_same(self, offset: int) -> None:
        """Raises StreamReplaced if the stream of this name is another than the one that was read. The end is asked for:
        every stream has one, and it costs no records."""
        if self._created_ms:
            # Not on the reader's own connection, where it could stand behind a wait.
            answer, _ = await self._caller.answer("GET", self._path, self._query(NOW), headers={"Accept": BATCHES})
            self._compare(answer, offset)

    def _compare(self, answer: Answer, offset: int) -> None:
        # A refusal, and a wait that ended without records, do not tell.
        created_ms = max(0, answer.number("stream-created"))
        if self._created_ms and created_ms and created_ms != self._created_ms:
            raise StreamReplaced(self.topic, self.partition, offset, self._created_ms, created_ms)
        self._created_ms = self._created_ms or created_ms


def _place(offset: object) -> int:
    try:
        place = operator.index(offset)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"an offset is START, NOW or a whole number, not {type(offset).__name__}") from None
    if place < NOW:
        raise ValueError(f"an offset is START, NOW or counts from 0, not {place}")
    return place
