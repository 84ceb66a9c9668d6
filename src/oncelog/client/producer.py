"""The idempotent producer over asyncio: connection, timers, callbacks and bounds around one `Lane` per partition.

Every partition has its own numbering; all of them share one connection, on which their batches are pipelined. What may
be sent, and what an answer leads to, is the lane's to say. Here: when the connection ends, another one is made after a
pause; the oldest deadline has a timer; records wait for room; callbacks are called from the event loop, one after
another, and what they raise is the event loop's to report, never the producer's.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Final, Unpack

from oncelog.client.admin import Admin
from oncelog.client.backoff import Backoff
from oncelog.client.batches import BatchState, Failure, PendingBatch
from oncelog.client.connection import Connection, connect
from oncelog.client.dialect import dialect_of, verdict_of
from oncelog.client.errors import (
    AnswerUnreadable,
    BufferFull,
    ClientError,
    ConnectionLost,
    DeadLettered,
    OutcomeUnknown,
    ProducerStopped,
    Refused,
)
from oncelog.client.lane import NEVER, Lane
from oncelog.client.left_behind import Tally, watch
from oncelog.client.models import ProducerInfo
from oncelog.client.options import ProducerOptions, ProducerSettings
from oncelog.client.packing import Form, HeadersGiven, Item, Packer, cost
from oncelog.client.room import Room
from oncelog.client.stream import AsyncStream
from oncelog.client.wire import Answer, Head, header_line, target
from oncelog.limits import PRODUCER_NAME_BYTES_MAX, PRODUCER_SESSION_BYTES_MAX

OCTETS: Final = "application/octet-stream"


def _check_name(what: str, name: str, bytes_max: int) -> None:
    """What the server would refuse with every batch is refused before the first."""
    header_line(what, name)
    if len(name.encode()) > bytes_max:
        raise ValueError(f"{what} has at most {bytes_max} bytes")


class AsyncIdempotentProducer:
    """Appends to one stream, each record once and in order, through lost answers, resets and restarts.

    Options are those of `ProducerSettings`. Use it as `async with`, or call `close`. One event loop; no other thread.
    """

    def __init__(self, stream: AsyncStream, **options: Unpack[ProducerOptions]) -> None:
        settings = ProducerSettings(**options)
        self.stream = stream
        self.producer_id = settings.name()
        self._dialect = dialect_of(settings)
        _check_name("the producer's id", self.producer_id, PRODUCER_NAME_BYTES_MAX - len(f"{self._dialect.scope}:"))
        _check_name("the producer's session", settings.session or "", PRODUCER_SESSION_BYTES_MAX)
        self.on_freed: Callable[[int], object] | None = None
        """For a wrapper that counts bytes itself: called with what was settled, from the event loop."""
        self._settings = settings
        self._packer = Packer(stream.content_type, raw_batches=settings.raw_batches)
        self._lanes: dict[int, Lane] = {}
        self._busy: dict[int, Lane] = {}
        self._heads: dict[tuple[int, Form], Head] = {}
        self._loop = asyncio.get_running_loop()
        self._room = Room(settings.max_pending_bytes)
        self._unyielded_bytes = 0
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._kept_away = ""
        """Why there is no connection, of the last attempt to make one."""
        self._burials: dict[int, asyncio.Task[None]] = {}
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._retry_at = 0.0
        self._turn_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._flushing = 0
        self._changed: asyncio.Future[None] | None = None
        self._first_error: ClientError | None = None
        self._closing = False
        """It takes nothing more; what it took is still sent."""
        self._closed = False
        self.tally = Tally(stream.topic, self.producer_id)
        """What is owed if nobody closes it. A wrapper that has an `append` of its own counts there what it took."""
        watch(self, self.tally)

    # --- for callers --------------------------------------------------------------------------------------------------

    @property
    def pending_count(self) -> int:
        """Records taken and not settled."""
        return sum(lane.pending_count for lane in list(self._busy.values()))

    @property
    def in_flight_count(self) -> int:
        """Batches that have a number and no outcome yet."""
        return sum(len(lane.batches) for lane in list(self._busy.values()))

    @property
    def pending_bytes(self) -> int:
        """What `max_pending_bytes` bounds."""
        return self._room.used_bytes

    async def append(
        self,
        data: object,
        *,
        key: str | bytes | None = None,
        headers: HeadersGiven | None = None,
        timestamp_ms: int | None = None,
        message_id: str | None = None,
        partition: int = 0,
    ) -> None:
        """Takes a record; it is sent in the background. Waits only while `max_pending_bytes` are pending."""
        item = self._packer.item(data, key, headers, timestamp_ms, message_id)
        size = cost(item)
        lane = self._lane(partition)
        self._check_running()
        if not self._room.take(size):
            await self._room.wait(size)
        self._put(lane, item, size)
        self.tally.taken_count += 1
        self._unyielded_bytes += size
        if self._unyielded_bytes >= self._settings.max_batch_bytes:
            # A loop of appends would else keep the event loop from reading answers until the buffer is full.
            self._unyielded_bytes = 0
            await asyncio.sleep(0)

    def append_nowait(
        self,
        data: object,
        *,
        key: str | bytes | None = None,
        headers: HeadersGiven | None = None,
        timestamp_ms: int | None = None,
        message_id: str | None = None,
        partition: int = 0,
    ) -> None:
        """Takes a record, or raises `BufferFull`."""
        item = self._packer.item(data, key, headers, timestamp_ms, message_id)
        size = cost(item)
        lane = self._lane(partition)
        self._check_running()
        if not self._room.take(size):
            raise BufferFull(f"{self.pending_bytes:,} bytes are pending, at most {self._room.bytes_max:,}")
        self._put(lane, item, size)
        self.tally.taken_count += 1

    async def flush(self) -> None:
        """Waits until everything appended so far is settled. Raises the first error if there was one."""
        targets = [(lane, lane.taken_count) for lane in self._lanes.values()]
        self._flushing += 1
        try:
            self._wake()
            # Not `settled_count`: between an answer and the turn that reports it, an error would not be known yet.
            while any(lane.told_count < target for lane, target in targets):
                if self._changed is None:
                    self._changed = self._loop.create_future()
                await asyncio.shield(self._changed)
        finally:
            self._flushing -= 1
        if self._first_error is not None:
            self.error_told = True
            raise self._first_error

    async def close(self) -> None:
        """Flushes and ends. Raises the first error unless a call has raised it before.

        An append that waits for room is refused: it was not taken.
        """
        if self._closed:
            return
        self._take_no_more()
        error_told = self.error_told
        try:
            await self.flush()
        except ClientError:
            if not error_told:
                raise
        finally:
            await self.end()

    async def resume(self, partition: int = 0) -> int:
        """Continues where an earlier run of this producer id stopped: returns its last sequence, -1 if unknown.

        Before the first append to the partition. The source must then go on with what came after that sequence.
        """
        lane = self._lane(partition)
        if lane.taken_count:
            raise ValueError("resume comes before the first append")
        info = await self._info(partition)
        if info is None or info.last_sequence < 0:
            return -1
        if lane.taken_count:
            raise ValueError("a record was appended while resume was asking")
        lane.resume(info.epoch, info.last_sequence)
        return info.last_sequence

    async def last_sequence(self, partition: int = 0) -> int:
        """The last sequence that the server has of this producer id; -1 if it knows none. Changes nothing."""
        info = await self._info(partition)
        return -1 if info is None else info.last_sequence

    async def __aenter__(self) -> "AsyncIdempotentProducer":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            # What was appended is still delivered; the caller's own error is the one to be seen.
            with contextlib.suppress(ClientError):
                await self.close()

    # --- for the wrapper in `oncelog.client.sync` -----------------------------------------------------------------

    @property
    def packer(self) -> Packer:
        """How records of this stream are encoded; safe in any thread."""
        return self._packer

    @property
    def error(self) -> ClientError | None:
        """Why it has stopped, if it has."""
        return self._first_error

    @property
    def error_told(self) -> bool:
        """A call has raised the first error, or what followed from it."""
        return self.tally.error_told

    @error_told.setter
    def error_told(self, told: bool) -> None:
        self.tally.error_told = told

    def put_all(self, records: list[tuple[Item, int, int]]) -> None:
        """Takes records (item, cost, partition) whose room the caller has seen to. After a stop they fail at once."""
        for number, (item, size, partition) in enumerate(records):
            if self._closing or self._first_error is not None:
                self._reject(records[number:])
                return
            self._room.used_bytes += size
            self._put(self._lane(partition), item, size)

    def _reject(self, records: list[tuple[Item, int, int]]) -> None:
        self._count(len(records), failed=True)
        for item, size, partition in records:
            batch = PendingBatch(partition, -1, Form.RAW, [item], size, b"")
            if self._settings.on_error is not None:
                self._loop.call_soon(self._settings.on_error, ProducerStopped(self._first_error), batch)
        if self.on_freed is not None:
            self.on_freed(sum(size for _, size, _ in records))

    def _check_running(self) -> None:
        if self._first_error is not None:
            self.error_told = True
            raise ProducerStopped(self._first_error)
        if self._closing:
            raise ProducerStopped

    def _take_no_more(self) -> None:
        # Before the flush, which waits for what was taken by now alone: a record that got room while it goes on would
        # be dropped at its end, and nobody told.
        self._closing = True
        self._room.refuse(ProducerStopped())

    # --- the turn -------------------------------------------------------------------------------------------------

    def _lane(self, partition: int) -> Lane:
        lane = self._lanes.get(partition)
        if lane is None:
            if partition < 0:
                raise ValueError("partitions count from 0")
            lane = self._lanes[partition] = Lane(partition, self._packer, self._settings, self._dialect)
        return lane

    def _put(self, lane: Lane, item: Item, size: int) -> None:
        """Queues a record whose bytes are reserved."""
        if self._first_error is not None or self._closing:  # it stopped while the record waited for room
            self._room.free(size)
            self._check_running()
        lane.put(item, size, self._loop.time() if self._settings.linger_ms else 0.0)
        self._busy[lane.partition] = lane
        if lane.queue_bytes >= self._settings.max_batch_bytes and len(lane.batches) < lane.window:
            self._turn()
        elif not self._turn_due:
            self._wake()

    def _wake(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Looks at every busy lane: what has expired, what can be sent, what is settled."""
        self._turn_due = False
        if self._closed:
            return
        now = self._loop.time()
        for lane in list(self._busy.values()):
            lane.expire(now, self._kept_away)
            lane.fill(now, eager=self._flushing > 0)
            if lane.ready(now):
                self._send(lane, now)
            self._report(lane)
        self._set_timer(now)

    def _send(self, lane: Lane, now: float) -> None:
        connection = self._connection
        if connection is None or not connection.open:
            if self._connecting is None and now >= self._retry_at:
                self._connecting = self._loop.create_task(self._connect())
            return
        while (batch := lane.take(now)) is not None:
            head = self._head(lane.partition, batch.form)
            lines = lane.claim(batch)
            if message_id := batch.message_id:
                lines += header_line("Stream-Message-Id", message_id)
            on_answer = partial(self._answered, connection, lane, batch, batch.attempts)
            connection.send(head.request(batch.body, lines), on_answer, self.stream.caller.timeouts.silence_s)

    def _head(self, partition: int, form: Form) -> Head:
        head = self._heads.get((partition, form))
        if head is None:
            headers = {"Content-Type": self._packer.content_type(form), **self._dialect.fixed(self.producer_id)}
            head = self.stream.caller.head("POST", target(self.stream.path, {"partition": partition}), headers)
            self._heads[partition, form] = head
        return head

    def _answered(
        self,
        connection: Connection,
        lane: Lane,
        batch: PendingBatch,
        attempt: int,
        answer: Answer | ConnectionLost,
    ) -> None:
        now = self._loop.time()
        if isinstance(answer, ConnectionLost) and self._connection is connection:
            self._connection = None
            self._retry_at = now + self._backoff.next_s()
        if batch.state is not BatchState.SENT or batch.attempts != attempt:
            return  # its time was up before the answer came
        if isinstance(answer, ConnectionLost):
            lane.lost(batch, sent=answer.sent, now=now)
            self._put_off(answer)
        else:
            verdict = verdict_of(answer)
            if isinstance(verdict, Refused):
                lane.refused(batch, verdict, now)
                if verdict.retryable:
                    self._put_off(verdict)
            elif isinstance(verdict, AnswerUnreadable):
                lane.unreadable(batch, verdict, now)
            else:
                self._backoff.reset()
                lane.confirmed(batch, verdict, now)
        self._busy[lane.partition] = lane
        self._wake()

    async def _connect(self) -> None:
        caller = self.stream.caller
        try:
            self._connection = await connect(caller.address, caller.timeouts.connect_s)
            self._kept_away = ""
        except ConnectionLost as error:
            self._kept_away = str(error)
            self._retry_at = self._loop.time() + self._backoff.next_s()
            self._put_off(error)
        finally:
            self._connecting = None
        self._wake()

    def _put_off(self, cause: ClientError) -> None:
        if self.stream.caller.on_put_off is not None:
            self.stream.caller.on_put_off(cause)

    def _set_timer(self, now: float) -> None:
        due = min((lane.due(now) for lane in self._busy.values()), default=NEVER)
        if self._busy and self._connecting is None and self._retry_at > now:
            due = min(due, self._retry_at)
        if self._timer is not None:
            if due >= self._timer.when():
                return  # it wakes up early, looks, and goes on
            self._timer.cancel()
            self._timer = None
        if due < NEVER:
            self._timer = self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._turn()

    # --- what is settled ------------------------------------------------------------------------------------------

    def _report(self, lane: Lane) -> None:
        if lane.burial is not None and lane.partition not in self._burials:
            self._burials[lane.partition] = self._loop.create_task(self._bury(lane, lane.burial))
        settled, freed = lane.drain()
        if settled:
            settings = self._settings
            for one in settled:
                if isinstance(one, Failure):
                    self._count(one.batch.count, failed=not isinstance(one.error, DeadLettered))
                    self._name(one)
                    self._note(one.error)
                    if settings.on_error is not None:
                        self._loop.call_soon(settings.on_error, one.error, one.batch)
                else:
                    self._count(one.count, failed=False)
                    if settings.on_batch_ack is not None:
                        self._loop.call_soon(settings.on_batch_ack, one)
            self._room.free(freed)
            if self.on_freed is not None:
                self.on_freed(freed)
            if self._changed is not None:
                self._changed.set_result(None)
                self._changed = None
        if lane.pending_count == 0:
            self._busy.pop(lane.partition, None)

    def _count(self, count: int, *, failed: bool) -> None:
        self.tally.settled_count += count
        if failed and self._settings.on_error is None:
            self.tally.unheard_count += count

    def _name(self, failure: Failure) -> None:
        """An error that leaves open whether a batch was written says which one."""
        error, batch = failure
        if not (batch.maybe_written or isinstance(error, OutcomeUnknown)):
            return
        info = f"producer_info({self.stream.topic!r}, {self.producer_id!r}, partition={batch.partition}"
        error.name_write(
            f"{info}, scope={self._dialect.scope!r}) tells the last sequence that was written",
            topic=self.stream.topic,
            partition=batch.partition,
            message_id=batch.message_id or None,
            producer_id=self.producer_id,
            sequence=batch.seq,
        )

    def _note(self, error: ClientError) -> None:
        """The first error stops everything: other partitions send nothing more, waiting appends are refused."""
        if self._first_error is not None or isinstance(error, DeadLettered):
            return
        self._first_error = error
        self.tally.cause = str(error)
        for lane in self._lanes.values():
            lane.stop(error)
            self._busy[lane.partition] = lane
        self._room.refuse(ProducerStopped(error))
        self._wake()

    async def _bury(self, lane: Lane, batch: PendingBatch) -> None:
        """Moves the records of a refused batch to the dead-letter stream, each once."""
        assert self._settings.dead_letter is not None
        assert batch.error is not None
        stream = AsyncStream(self.stream.caller, self._settings.dead_letter, OCTETS)
        reason = (
            ("oncelog.dead-letter.reason", str(batch.error).encode()),
            ("oncelog.dead-letter.stream", self.stream.topic.encode()),
            ("oncelog.dead-letter.partition", str(lane.partition).encode()),
        )
        run = uuid.uuid4().hex
        taken = 0
        try:
            for number, record in enumerate(batch.records):
                await stream.append(
                    record.value,
                    key=record.key,
                    headers=(*record.headers, *reason),
                    timestamp_ms=record.timestamp_ms if record.timestamp_ms >= 0 else None,
                    message_id=f"{run}-{number}",
                )
                taken += 1
        except ClientError as error:
            batch.error.__cause__ = error
            told = f"as dead letters {stream.topic!r} took {taken} of its {batch.count} records"
            batch.error.args = (f"{batch.error}; {told}, and then: {error}",)
            lane.burial_failed()
        else:
            lane.buried(stream.topic, self._loop.time())
        finally:
            del self._burials[lane.partition]
        self._busy[lane.partition] = lane
        self._wake()

    async def end(self) -> None:
        """Lets go of everything. Whatever is not settled by now fails."""
        if self._closed:
            return
        self._take_no_more()
        for lane in self._lanes.values():
            lane.abandon()
            self._report(lane)
        self._closed = True
        tasks = [task for task in (self._connecting, *self._burials.values()) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            await self._connection.close()

    async def _info(self, partition: int) -> ProducerInfo | None:
        return await Admin(self.stream.caller).producer_info(
            self.stream.topic, self.producer_id, partition=partition, scope=self._dialect.scope
        )
