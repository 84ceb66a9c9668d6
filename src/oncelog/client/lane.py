"""The numbering of one partition: which batch has which sequence, what is unanswered, and what an answer leads to.

No sockets, no timers: times come in, decisions and settled batches go out. The producer sends what `take` gives, tells
what became of it (`confirmed`, `refused`, `lost`), and reports what `drain` gives. Everything that decides whether a
record is written once stands here.

States of a batch:

    WAITING    numbered, to be sent, or to be sent again under the same number with the same bytes
    SENT       on the connection, unanswered
    HELD       refused for now: overloaded, or a gap that an earlier batch of ours explains
    CONFIRMED  on the server's disk
    REFUSED    refused for good, or answered by somebody who is no such server

Invariants. Numbers rise by one within `batches`, and none is ever used for two contents that could both be accepted.
Settled batches leave at the front alone, so callers hear of them in order. While one batch is held, none is sent until
every answer is in: all unconfirmed ones then go again, in order. Until the first batch of an identity is confirmed it
travels alone: a server that did not take it would else take the second one as the beginning, and the first one, sent
again, as a duplicate. Behind a refused batch nothing is sent.
"""

from collections import deque
from typing import Final

from oncelog.client.backoff import Backoff
from oncelog.client.batches import BatchResult, BatchState, Confirmation, Failure, PendingBatch, Settled
from oncelog.client.dialect import EPOCH_UNKNOWN, OFFSET_UNKNOWN, Dialect, Identity
from oncelog.client.errors import (
    AnswerUnreadable,
    ClientError,
    DeadLettered,
    OutcomeUnknown,
    ProducerStopped,
    Refused,
    SequenceConflict,
    SequenceGap,
)
from oncelog.client.options import ProducerSettings
from oncelog.client.packing import RECORD_COST_BYTES, Form, Item, Packer, cost
from oncelog.errors import OncelogError

NEVER: Final = float("inf")

CONTENT_CODES: Final = frozenset(
    (
        *("batch_invalid", "batch_refused", "body_too_large", "empty_array", "id_conflict"),
        *("json_invalid", "too_large", "too_many_records"),
    )
)
"""Refusals of the content itself: no copy of the batch can be accepted later, so its number is free. Everything else is
about the producer or the stream, and would meet every batch."""

CONTENT_STATUSES: Final = frozenset((400, 413, 415, 422))
"""The same for servers that send no code."""


class Lane:
    """See the module."""

    def __init__(self, partition: int, packer: Packer, settings: ProducerSettings, dialect: Dialect) -> None:
        self.partition = partition
        self.identity: Identity = dialect.first_identity(settings)
        self.next_seq = 0
        self.batches: deque[PendingBatch] = deque()
        self.burial: PendingBatch | None = None
        """Refused, at the front, and on its way to the dead-letter stream."""
        self.ended = False
        self.taken_count = 0
        """Records ever put."""
        self.settled_count = 0
        self.told_count = 0
        """Of the settled ones, those that `drain` has given out."""
        self._packer = packer
        self._settings = settings
        self._dialect = dialect
        self._queue: deque[Item] = deque()
        self._queue_bytes = 0
        self._queue_since = 0.0
        self._established = False
        self._sent_count = 0
        self._paused_until = 0.0
        self._pause_s = 0.0
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._stopping: ClientError | None = None
        self._settled: list[Settled] = []
        self._freed_bytes = 0

    # --- records in, batches out --------------------------------------------------------------------------------

    @property
    def pending_count(self) -> int:
        """Records that are not settled."""
        return self.taken_count - self.settled_count

    @property
    def queue_bytes(self) -> int:
        """Of records that have no number yet."""
        return self._queue_bytes

    @property
    def window(self) -> int:
        """How many batches may be numbered and unconfirmed at present."""
        return self._settings.max_in_flight if self._established else 1

    def put(self, item: Item, size: int, now: float) -> None:
        """Queues a record."""
        assert not self.ended
        if not self._queue:
            self._queue_since = now
        self._queue.append(item)
        self._queue_bytes += size
        self.taken_count += 1

    def resume(self, epoch: int, last_sequence: int) -> None:
        """Continues an epoch that an earlier run wrote in. Nothing may have been put before."""
        assert self.taken_count == 0
        self.identity = self._dialect.resumed_identity(self._settings, epoch)
        self.next_seq = last_sequence + 1
        # The server knows the producer: it will answer a gap, never take a later batch as the beginning.
        self._established = True

    def fill(self, now: float, *, eager: bool) -> None:
        """Numbers batches while there is a free place. `eager`: without waiting for company."""
        if self.ended or self._stopping is not None or self.burial is not None or now < self._paused_until:
            return
        if any(batch.state in (BatchState.HELD, BatchState.REFUSED) for batch in self.batches):
            return
        while self._queue and len(self.batches) < self.window:
            if not eager and now < self._lingers_until():
                return
            if not self._number(now):
                return

    def ready(self, now: float) -> bool:
        """Whether `take` would give a batch."""
        return self._next(now) is not None

    def take(self, now: float) -> PendingBatch | None:
        """The next batch to put on the connection, which is then SENT; None if there is none now."""
        batch = self._next(now)
        if batch is not None:
            batch.state = BatchState.SENT
            batch.attempts += 1
            self._sent_count += 1
        return batch

    def claim(self, batch: PendingBatch) -> bytes:
        """The header lines of the batch's claim."""
        return self._dialect.claim(self.identity, batch.seq)

    def due(self, now: float) -> float:
        """When something happens without an answer: a pause ends, a batch has lingered, its time is up."""
        if self.ended or not self.pending_count:
            return NEVER
        times = [self._paused_until]
        if self.batches and self.burial is None:
            times.append(self.batches[0].first_attempt_s + self._settings.delivery_timeout_ms / 1000)
        if self._queue and len(self.batches) < self.window:
            times.append(self._lingers_until())
        # What is past was looked at already, and waits for an answer.
        return min((time for time in times if time > now), default=NEVER)

    # --- answers in ---------------------------------------------------------------------------------------------

    def confirmed(self, batch: PendingBatch, confirmation: Confirmation, now: float) -> None:
        """The batch is on the server's disk, unless the answer is about somebody else's."""
        if confirmation.duplicate and confirmation.next_offset == OFFSET_UNKNOWN and not batch.strayed:
            # Such an answer compares numbers and no content, and no copy of ours was ever on its way before.
            detail = f"sequence {batch.seq} of partition {self.partition} was used by another run of this producer id"
            self.refused(batch, SequenceConflict(409, "sequence_conflict", detail, {}), now)
            return
        self._answered(batch)
        batch.state = BatchState.CONFIRMED
        batch.result = confirmation
        batch.maybe_written = False
        if confirmation.epoch != EPOCH_UNKNOWN:
            self.identity = self.identity._replace(epoch=confirmation.epoch)
        self._established = True
        self._backoff.reset()
        self._settle()
        self._release(now)

    def refused(self, batch: PendingBatch, error: Refused, now: float) -> None:
        """The server said no."""
        self._answered(batch)
        if error.retryable:
            if error.is_told_retryable:
                batch.put_off = error
            else:
                # Somebody on the way gave up waiting, perhaps: what it had passed on may still be written.
                self._stray(batch, sent=True)
            batch.state = BatchState.HELD
            self._pause_s = max(self._pause_s, error.retry_after_s, self._backoff.next_s())
        elif isinstance(error, SequenceGap) and self._explains(batch, error.expected):
            # Had an earlier copy been accepted, this would have been a duplicate. One may still come, though, and is
            # accepted if a copy of the batch before it comes too: what was lost stays open.
            batch.put_off = error
            batch.state = BatchState.HELD
        else:
            batch.state = BatchState.REFUSED
            batch.error = error
            if isinstance(error, SequenceGap) or self._is_of_content(error):
                batch.maybe_written = False
        self._settle()
        self._release(now)

    def unreadable(self, batch: PendingBatch, error: AnswerUnreadable, now: float) -> None:
        """Somebody on the way answered. Nothing is confirmed, and a copy may have been passed on all the same."""
        self._answered(batch)
        self._stray(batch, sent=True)
        batch.state = BatchState.REFUSED
        batch.error = error
        self._settle()
        self._release(now)

    def lost(self, batch: PendingBatch, *, sent: bool, now: float) -> None:
        """The connection ended first. The batch goes again, whatever became of it."""
        self._answered(batch)
        self._stray(batch, sent=sent)
        self._settle()
        self._release(now)

    def expire(self, now: float, why: str = "") -> None:
        """Ends the lane if its oldest batch has been tried for too long. `why`: what kept it from the server last."""
        if self.ended or self.burial is not None or not self.batches:
            return
        head = self.batches[0]
        if now < head.first_attempt_s + self._settings.delivery_timeout_ms / 1000:
            return
        self._forget_sent()
        cause = None if head.maybe_written else head.put_off
        if head.maybe_written:
            tried = f"in {head.attempts} attempts"
        elif cause is not None:
            tried = f"and refused whenever it arrived: nothing of it is written; at last {cause}"
        else:
            tried = "and never sent: nothing of it is written"
        unknown = OutcomeUnknown(
            f"sequence {head.seq} of partition {self.partition} was not confirmed within "
            f"{self._settings.delivery_timeout_ms:g} ms, {tried}" + (f"; {why}" if why else "")
        )
        unknown.__cause__ = cause
        self._end(head.error or unknown)

    def abandon(self) -> None:
        """Ends the lane at once: nobody will hear of what is unanswered."""
        if not self.ended:
            self._forget_sent()
            self.burial = None
            self._end(ProducerStopped(), is_own=False)

    def stop(self, cause: ClientError) -> None:
        """Sends nothing more; what is unanswered is still waited for, so that its outcome can be told."""
        if self._stopping is None and not self.ended:
            self._stopping = cause
            self._settle()

    # --- dead letters -------------------------------------------------------------------------------------------

    def buried(self, stream: str, now: float) -> None:
        """The refused batch is in the dead-letter stream: its number, or a new identity, goes to those behind it.

        Why not always the number: 1. Batch 8 is refused, batch 9 is unanswered, the connection ends. 2. The server
        may still hold a copy of 9 and let it wait for 8. 3. If the content of 9 went out as 8, both would be written.
        A new identity fences such a copy. If every answer came, there is no copy, and the number is simply used.
        """
        batch = self.batches.popleft()
        assert batch is self.burial
        assert batch.error is not None
        assert self._sent_count == 0
        self.burial = None
        self._emit(Failure(DeadLettered(batch.error, stream), batch), batch)
        if any(later.strayed for later in self.batches):
            self.identity = self._dialect.fresh_identity(self.identity)
            self._established = False
            self.next_seq = 0
        else:
            self.next_seq = batch.seq
        for later in self.batches:
            later.seq = self.next_seq
            later.state = BatchState.WAITING
            later.maybe_written = later.strayed = False
            later.put_off = None  # of another number
            later.first_attempt_s = now
            self.next_seq += 1
        self._settle()

    def burial_failed(self) -> None:
        """The dead-letter stream did not take it either: the refusal stands, and ends the lane."""
        batch = self.burial
        assert batch is not None
        assert batch.error is not None
        self.burial = None
        self._end(batch.error)

    # --- what comes out -----------------------------------------------------------------------------------------

    def drain(self) -> tuple[list[Settled], int]:
        """What was settled since the last call, in order, and the bytes that it freed."""
        settled, self._settled = self._settled, []
        self.told_count = self.settled_count
        freed, self._freed_bytes = self._freed_bytes, 0
        return settled, freed

    # --- inside -------------------------------------------------------------------------------------------------

    def _lingers_until(self) -> float:
        if self._settings.linger_ms == 0 or self._queue_bytes >= self._settings.max_batch_bytes:
            return 0.0
        return self._queue_since + self._settings.linger_ms / 1000

    def _number(self, now: float) -> bool:
        """Makes the next batch from the front of the queue. False if it cannot be: then the lane is stopped."""
        packer, queue = self._packer, self._queue
        bytes_max, records_max = self._settings.max_batch_bytes, self._settings.max_batch_records
        first = queue.popleft()
        form = packer.form(first)
        items = [first]
        size = cost(first)
        if packer.alone(first):
            records_max = 1
        if isinstance(first, bytes):
            # Nearly every record there is: no call for each.
            while queue and len(items) < records_max and isinstance(item := queue[0], bytes):
                size += len(item) + RECORD_COST_BYTES
                if size > bytes_max:
                    size -= len(item) + RECORD_COST_BYTES
                    break
                items.append(queue.popleft())
        else:
            while queue and len(items) < records_max and not isinstance(item := queue[0], bytes):
                more = cost(item)
                if size + more > bytes_max or packer.form(item) is not form or packer.alone(item):
                    break
                items.append(queue.popleft())
                size += more
        try:
            body = packer.body(form, items)
        except (AssertionError, AttributeError, OncelogError, OverflowError, TypeError, ValueError) as error:
            # A bug of ours: `Packer.item` takes only what can be packed. Whoever waits for these records must hear of
            # it, so they fail like all others behind a stop, instead of being nowhere.
            queue.extendleft(reversed(items))
            failed = ClientError(f"records for partition {self.partition} cannot be packed: {error!r}")
            failed.__cause__ = error
            self.stop(failed)
            return False
        self._queue_bytes -= size
        self._queue_since = now
        batch = PendingBatch(self.partition, self.next_seq, form, items, size, body)
        batch.first_attempt_s = now
        self.next_seq += 1
        self.batches.append(batch)
        return True

    def _next(self, now: float) -> PendingBatch | None:
        if self.ended or self._stopping is not None or self.burial is not None or now < self._paused_until:
            return None
        if self._sent_count >= self.window:
            return None
        for batch in self.batches:
            if batch.state is BatchState.WAITING:
                return batch
            if batch.state in (BatchState.HELD, BatchState.REFUSED):
                return None
        return None

    def _forget_sent(self) -> None:
        for batch in self.batches:
            if batch.state is BatchState.SENT:
                self._stray(batch, sent=True)
        self._sent_count = 0

    def _stray(self, batch: PendingBatch, *, sent: bool) -> None:
        batch.state = BatchState.WAITING
        if sent:
            batch.maybe_written = batch.strayed = True

    def _answered(self, batch: PendingBatch) -> None:
        assert batch.state is BatchState.SENT
        self._sent_count -= 1

    def _explains(self, batch: PendingBatch, expected: int) -> bool:
        """Whether the gap before `batch` is one of ours, that will be sent again or is about to be settled."""
        for earlier in self.batches:
            if earlier is batch:
                break
            # Not only the first of them: a lost copy of that one may have been written meanwhile.
            if earlier.state is not BatchState.CONFIRMED and expected in (earlier.seq, -1):
                return True
        return False

    def _is_of_content(self, error: ClientError) -> bool:
        if not isinstance(error, Refused):
            return False
        return error.code in CONTENT_CODES if error.has_code else error.status in CONTENT_STATUSES

    def _may_bury(self, batch: PendingBatch) -> bool:
        assert batch.error is not None
        if self._settings.dead_letter is None or self._stopping is not None or not self._is_of_content(batch.error):
            return False
        # A later batch that was accepted shows that the server did count this number: it cannot be used again.
        return all(later.state is not BatchState.CONFIRMED for later in self.batches)

    def _settle(self) -> None:
        """Lets the front go as far as it is settled."""
        while self.batches and not self.ended:
            head = self.batches[0]
            if head.state is BatchState.CONFIRMED:
                self.batches.popleft()
                self._emit(self._result(head), head)
            elif head.state is BatchState.REFUSED and self._sent_count == 0 and self.burial is None:
                assert head.error is not None
                if self._may_bury(head):
                    self.burial = head
                else:
                    self._end(head.error)
                return
            else:
                break
        if self._stopping is not None and self._sent_count == 0 and self.burial is None and not self.ended:
            self._end(self._stopping, is_own=False)

    def _release(self, now: float) -> None:
        """When every answer is in, what was held goes again after a pause."""
        if self.ended or self._sent_count > 0 or self.burial is not None:
            return
        for batch in self.batches:
            if batch.state is BatchState.HELD:
                batch.state = BatchState.WAITING
        if self._pause_s:
            self._paused_until = now + self._pause_s
            self._pause_s = 0.0

    def _end(self, error: ClientError, *, is_own: bool = True) -> None:
        """Settles everything that is left. The first unconfirmed batch fails with `error` if it is the lane's own."""
        self.ended = True
        while self.batches:
            batch = self.batches.popleft()
            if batch.state is BatchState.CONFIRMED:
                self._emit(self._result(batch), batch)
                continue
            self._emit(Failure(error if is_own else self._consequence(error, batch), batch), batch)
            is_own = False
        if self._queue:
            rest = PendingBatch(self.partition, self.next_seq, Form.RAW, list(self._queue), self._queue_bytes, b"")
            self._queue.clear()
            self._queue_bytes = 0
            self._emit(Failure(error if is_own else self._consequence(error, rest), rest), rest)

    def _consequence(self, cause: ClientError, batch: PendingBatch) -> ClientError:
        if isinstance(cause, ProducerStopped) and not batch.maybe_written:
            return cause
        if batch.maybe_written:
            unknown = OutcomeUnknown(
                f"sequence {batch.seq} was sent and not answered before the producer stopped: {cause}"
            )
            unknown.__cause__ = cause
            return unknown
        return ProducerStopped(cause)

    def _result(self, batch: PendingBatch) -> BatchResult:
        assert batch.result is not None
        epoch, next_offset, duplicate = batch.result
        first_offset = next_offset - batch.count if next_offset >= 0 else OFFSET_UNKNOWN
        epoch = self.identity.epoch if epoch == EPOCH_UNKNOWN else epoch
        return BatchResult(batch.seq, epoch, first_offset, next_offset, batch.count, duplicate, self.partition)

    def _emit(self, settled: Settled, batch: PendingBatch) -> None:
        self._settled.append(settled)
        self.settled_count += batch.count
        self._freed_bytes += batch.bytes
