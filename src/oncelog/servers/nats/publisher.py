"""Messages into one stream: those that ask for nothing go together in one command, pipelined; those that expect
something of the stream's state are checked against it, and stored under the condition that it has not moved since.

Everything of one stream is stored in the order in which it came. While a guarded message or a batch is being decided,
what comes behind it waits.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from oncelog.core import batch as codec
from oncelog.core.command import Append, Commit, CommitAppend, Condition, ExpectTail, GetReceipt
from oncelog.core.message_id import content_digest, values_digest
from oncelog.core.outcome import (
    BatchRefused,
    ClaimConflict,
    ClaimInvalid,
    CommitConfirmed,
    ConditionFailed,
    Confirmed,
    IdConflict,
    NoRoom,
    Outcome,
    Overloaded,
    PartlyDuplicate,
    ReceiptFound,
    Refusal,
    StreamClosedRefusal,
    TailMismatch,
    TooLarge,
    TopicMissing,
)
from oncelog.limits import SEQUENCE_MAX
from oncelog.protocols.nats import errors, guard, publishing
from oncelog.protocols.nats.batch import Lost, Member, Ready
from oncelog.protocols.nats.errors import ApiError, store_failed
from oncelog.protocols.nats.guard import Staged
from oncelog.protocols.nats.headers import Headers, encode
from oncelog.protocols.nats.publishing import PLAIN, Wishes
from oncelog.protocols.nats.stored import RECORD_BYTES, Stored
from oncelog.protocols.nats.stream_config import BATCH_MSG_ID, ON_CONFLICT
from oncelog.servers.nats.log import Storable
from oncelog.servers.nats.stream import LiveStream

COMMAND_BYTES: Final = 1 << 20
COMMAND_RECORDS: Final = 4_096
GUARDED_TOGETHER: Final = 256
RECORD_OVERHEAD: Final = 160


class Single:
    """One message that waits."""

    __slots__ = ("record", "reply", "size", "subject", "wishes")

    def __init__(self, subject: str, record: Storable, reply: str, wishes: Wishes, size: int) -> None:
        self.subject = subject
        self.record = record
        self.reply = reply
        self.wishes = wishes
        self.size = size


class Whole:
    """One atomic batch that waits to be stored, or a commit whose batch is not open."""

    __slots__ = ("batch", "reply")

    def __init__(self, batch: Ready | Lost, reply: str) -> None:
        self.batch = batch
        self.reply = reply


class Publisher:
    """Of one stream."""

    def __init__(self, stream: LiveStream, reply: Callable[[str, bytes], None]) -> None:
        self._stream = stream
        self._reply = reply
        self._log = stream.log
        self._records: list[Storable] = []
        self._replies: list[str] = []
        self._bytes = 0
        self._queue: deque[Single | Whole] = deque()
        self._in_flight = 0
        self._is_deciding = False

    # --- coming in -------------------------------------------------------------------------------------------------

    def put(self, subject: str, payload: bytes, headers: Headers, reply: str, wishes: Wishes) -> None:
        """One message, checked as far as it can be without the stream's state."""
        fields = tuple((name, value.encode()) for name, value in headers)
        record = Storable(subject.encode(), payload, fields, wishes.message_id)
        config = self._stream.config
        is_guarded = wishes is not PLAIN and wishes.is_guarded
        if self._queue or is_guarded or config.discard == "new":
            header_bytes = len(encode(headers)) + 4 if headers else 0
            size = RECORD_BYTES + len(subject) + len(payload) + header_bytes
            self._queue.append(Single(subject, record, reply, wishes, size))
            self._go_on()
            return
        self._records.append(record)
        self._replies.append(reply)
        self._bytes += len(payload) + RECORD_OVERHEAD
        if self._bytes > COMMAND_BYTES or len(self._records) >= COMMAND_RECORDS:
            self.flush()

    def put_batch(self, batch: Ready | Lost, reply: str) -> None:
        """An atomic batch that is whole, or a retry of one."""
        self._queue.append(Whole(batch, reply))
        self._go_on()

    def flush(self) -> None:
        """What came with this read of the socket."""
        if not self._records:
            return
        records, replies = self._records, self._replies
        self._records, self._replies, self._bytes = [], [], 0
        self._in_flight += 1
        stream = self._stream
        self._log.append_each(stream.topic, stream.partition, records, lambda told: self._stored(told, replies))

    def _stored(self, outcomes: list[Outcome], replies: list[str]) -> None:
        self._in_flight -= 1
        for outcome, reply in zip(outcomes, replies, strict=True):
            if reply:
                self._reply(reply, self._answer(outcome))
        if self._queue and not self._in_flight:
            self._go_on()

    def _answer(self, outcome: object) -> bytes:
        name = self._stream.name
        if isinstance(outcome, Confirmed):
            if not outcome.duplicate:
                return b'{"stream":"%b","seq":%d}' % (name.encode(), outcome.first + 1)
            return publishing.ack(name, outcome.first + 1, duplicate=True)
        if isinstance(outcome, IdConflict):
            if (self._stream.config.metadata or {}).get(ON_CONFLICT) != "refuse":
                return publishing.ack(name, outcome.offset + 1, duplicate=True)
            stored, claimed = outcome.stored_digest.hex(), outcome.claimed_digest.hex()
            text = f"the message id was used for other content (digest {stored}, not {claimed}); use another id"
            return publishing.refusal(name, store_failed(text))
        return publishing.refusal(name, error_of(outcome))

    # --- one at a time ---------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        self.flush()
        if self._is_deciding or self._in_flight or not self._queue:
            return
        self._is_deciding = True
        self._stream.when_current(self._decide)

    def _decide(self) -> None:
        if self._stream.is_deleted:
            queue, self._queue = self._queue, deque()
            for item in queue:
                self._refuse(item.reply, errors.STREAM_NOT_FOUND)
            self._is_deciding = False
            return
        head = self._queue[0]
        if isinstance(head, Whole):
            self._queue.popleft()
            if isinstance(head.batch, Lost):
                self._look_up(head.batch, head.reply)
            else:
                self._commit(head.batch, head.reply)
        else:
            self._singles()

    def _done(self) -> None:
        self._is_deciding = False
        self._go_on()

    def _refuse(self, reply: str, error: ApiError) -> None:
        if reply:
            self._reply(reply, publishing.refusal(self._stream.name, error))

    def _again(self) -> None:
        """Another face has written in between: look once more."""
        self._stream.js.loop.call_soon(self._stream.when_current, self._decide)

    def _singles(self) -> None:
        """Messages from the head of the queue that can be stored in one command."""
        stream = self._stream
        staged = Staged(stream.index, stream.last_msg_id)
        taken: list[Single] = []
        accepted: list[Single] = []
        refused: list[tuple[Single, ApiError]] = []
        while self._queue and len(taken) < GUARDED_TOGETHER:
            item = self._queue[0]
            if isinstance(item, Whole) or (item.wishes.message_id and taken):
                break
            taken.append(item)
            self._queue.popleft()
            error = guard.expectation_fails(staged, item.subject, item.wishes)
            error = error or guard.limit_refuses(staged, stream.config, item.subject, item.size)
            if error is None:
                staged.add(item.subject, item.size, item.wishes.message_id.decode())
                accepted.append(item)
            else:
                refused.append((item, error))
            if item.wishes.message_id:
                break
        if not accepted:
            item, error = refused[0]
            if item.wishes.message_id:
                self._refuse_unless_known(item, error)
                return
            for item, error in refused:
                self._refuse(item.reply, error)
            self._done()
            return
        self._append(taken, accepted, refused, stream.index.next)

    def _append(
        self, taken: list[Single], accepted: list[Single], refused: list[tuple[Single, ApiError]], tail: int
    ) -> None:
        now_ms = self._log.now_ns() // 1_000_000
        records = [item.record for item in accepted]
        batch = codec.encode([(n, now_ms, each.key, each.payload, each.headers) for n, each in enumerate(records)])
        message_id = records[0].message_id
        digest = content_digest(records[0].payload) if message_id else b""
        stream = self._stream

        def told(outcome: Outcome) -> None:
            if isinstance(outcome, TailMismatch):
                self._queue.extendleft(reversed(taken))
                self._again()
                return
            for number, item in enumerate(accepted):
                if not item.reply:
                    continue
                if isinstance(outcome, Confirmed) and not outcome.duplicate:
                    self._reply(item.reply, publishing.ack(stream.name, outcome.first + number + 1))
                else:
                    self._reply(item.reply, self._answer(outcome))
            for item, error in refused:
                self._refuse(item.reply, error)
            self._done()

        command = Append(
            stream.topic,
            stream.partition,
            batch,
            len(records),
            digest,
            message_id=message_id,
            expected_tail=tail,
        )
        self._log.submit(command, told)

    def _refuse_unless_known(self, item: Single, error: ApiError) -> None:
        """A retry of a success is a success, also when its expectation does not hold any more."""
        stream = self._stream

        def told(outcome: Outcome) -> None:
            if isinstance(outcome, ReceiptFound):
                if item.reply:
                    self._reply(item.reply, publishing.ack(stream.name, outcome.first + 1, duplicate=True))
            else:
                self._refuse(item.reply, error)
            self._done()

        self._log.submit(GetReceipt(stream.topic, stream.partition, item.wishes.message_id), told)

    # --- atomic batches --------------------------------------------------------------------------------------------

    def _commit(self, batch: Ready, reply: str) -> None:
        stream = self._stream
        wishes: list[Wishes] = []
        error: ApiError | None = None
        refuses_ids = stream.js.batch_msg_id_refused or (stream.config.metadata or {}).get(BATCH_MSG_ID) == "refuse"
        staged = Staged(stream.index, stream.last_msg_id)
        for number, member in enumerate(batch.members):
            found = publishing.batch_wish_refused(member.headers, refuses_ids=refuses_ids)
            wish = publishing.wishes_of(member.headers, allows_ttl=stream.config.allow_msg_ttl)
            if found is not None or isinstance(wish, ApiError):
                assert found is not None or isinstance(wish, ApiError)
                self._refuse(reply, found if found is not None else wish)  # type: ignore[arg-type]
                self._done()
                return
            wishes.append(wish)
            error = error or self._member_error(staged, number, member, wish)
            size = RECORD_BYTES + len(member.subject) + len(member.payload)
            staged.add(member.subject, size, wish.message_id.decode())
        self._submit_commit(batch, wishes, reply, error, "")

    def _member_error(self, staged: Staged, number: int, member: Member, wish: Wishes) -> ApiError | None:
        config = self._stream.config
        if wish.expected_stream is not None and wish.expected_stream != self._stream.name:
            return errors.EXPECTED_STREAM
        error = guard.rollup_refused(config, wish.rollup) or guard.member_fails(staged, number, member.subject, wish)
        header_bytes = len(encode(member.headers))
        if 0 <= config.max_msg_size < header_bytes + len(member.payload):
            return errors.MESSAGE_TOO_LARGE
        size = RECORD_BYTES + len(member.subject) + len(member.payload) + header_bytes + 4
        return error or guard.limit_refuses(staged, config, member.subject, size)

    def _submit_commit(
        self, batch: Ready, wishes: list[Wishes], reply: str, error: ApiError | None, suffix: str
    ) -> None:
        """With an error, only a retry of what was committed before succeeds: the condition can hold for nothing."""
        stream = self._stream
        tail = SEQUENCE_MAX if error is not None else stream.index.next
        appends = self._appends(batch.members, wishes)
        commit_id = f"{batch.batch_id}/{len(batch.members)}{suffix}"

        def told(outcome: Outcome) -> None:
            if isinstance(outcome, CommitConfirmed):
                self._committed(batch.batch_id, outcome, reply)
            elif isinstance(outcome, ClaimConflict) and not suffix:
                # The id was used for another batch: this one is remembered beside it, under its content.
                digest = outcome.claimed_digest.hex()
                self._submit_commit(batch, wishes, reply, error, f"/{digest}")
                return
            elif isinstance(outcome, ConditionFailed) and error is None:
                self._queue.appendleft(Whole(batch, reply))
                self._again()
                return
            elif isinstance(outcome, ConditionFailed):
                assert error is not None
                self._refuse(reply, error)
            else:
                self._refuse(reply, batch_error_of(outcome))
            self._done()

        conditions: list[Condition] = [ExpectTail(stream.topic, stream.partition, tail)]
        self._log.submit(Commit(appends, conditions, commit_id=commit_id, scope=f"nats:{stream.topic_id}"), told)

    def _appends(self, members: list[Member], wishes: list[Wishes]) -> list[CommitAppend]:
        """Members without a message id share a batch; each one with an id is a batch of its own."""
        stream = self._stream
        now_ms = self._log.now_ns() // 1_000_000
        appends: list[CommitAppend] = []
        run: list[Member] = []

        def end_run() -> None:
            if run:
                digest = values_digest([part for each in run for part in (each.subject.encode(), each.payload)])
                appends.append(CommitAppend(stream.topic, stream.partition, _encoded(run, now_ms), len(run), digest))
                run.clear()

        for member, wish in zip(members, wishes, strict=True):
            if not wish.message_id:
                run.append(member)
                continue
            end_run()
            batch, digest = _encoded([member], now_ms), content_digest(member.payload)
            appends.append(CommitAppend(stream.topic, stream.partition, batch, 1, digest, wish.message_id))
        end_run()
        return appends

    def _committed(self, batch_id: str, outcome: CommitConfirmed, reply: str) -> None:
        first, next_ = outcome.outcome[1], outcome.outcome[-1]
        is_whole = all(
            outcome.outcome[at + 2] == outcome.outcome[at + 4] for at in range(0, len(outcome.outcome) - 3, 3)
        )
        if not is_whole:
            # Every message is stored, but not as one batch: the ids came one by one before.
            self._refuse(reply, errors.BATCH_DUPLICATE_ID)
            return
        if reply:
            name, duplicate = self._stream.name, outcome.duplicate
            self._reply(reply, publishing.ack(name, next_, duplicate=duplicate, batch=batch_id, count=next_ - first))

    def _look_up(self, lost: Lost, reply: str) -> None:
        """A last message whose batch is not open: of a batch that was committed it is a retry."""
        stream = self._stream
        probe = CommitAppend(
            stream.topic, stream.partition, codec.encode_one(b"", 0), 1, content_digest(b"oncelog: no batch has this")
        )

        def told(outcome: Outcome) -> None:
            if not isinstance(outcome, ClaimConflict):
                self._refuse(reply, errors.BATCH_INCOMPLETE)
                self._done()
                return
            confirmed = CommitConfirmed(outcome.outcome, duplicate=True)
            last = outcome.outcome[-1] - 1
            if lost.last is None or stream.index.subject_at(last) is None:
                self._committed(lost.batch_id, confirmed, reply)
                self._done()
                return
            stream.fetch(last, lambda stored: self._compare(lost, stored, confirmed, reply))

        condition = ExpectTail(stream.topic, stream.partition, SEQUENCE_MAX)
        commit_id = f"{lost.batch_id}/{lost.messages}"
        self._log.submit(Commit([probe], [condition], commit_id=commit_id, scope=f"nats:{stream.topic_id}"), told)

    def _compare(self, lost: Lost, stored: Stored | None, confirmed: CommitConfirmed, reply: str) -> None:
        last = lost.last
        if stored is None or last is None or (stored.subject, stored.payload) == (last.subject, last.payload):
            self._committed(lost.batch_id, confirmed, reply)
        else:
            self._refuse(reply, errors.BATCH_INCOMPLETE)
        self._done()


def _encoded(members: list[Member], now_ms: int) -> bytes:
    return codec.encode(
        [
            (n, now_ms, each.subject.encode(), each.payload, tuple((k, v.encode()) for k, v in each.headers))
            for n, each in enumerate(members)
        ]
    )


def error_of(outcome: object) -> ApiError:
    """A refusal of the log, as JetStream says it."""
    match outcome:
        case StreamClosedRefusal():
            return errors.STREAM_SEALED
        case TopicMissing():
            return errors.STREAM_NOT_FOUND
        case NoRoom() | Overloaded():
            return errors.INSUFFICIENT_RESOURCES
        case TooLarge(what=what, limit=limit, received=received):
            return ApiError(400, 10054, f"message size exceeds maximum allowed: {what} {received}, at most {limit}")
        case BatchRefused(reason=reason):
            return store_failed(reason)
        case Refusal():
            return store_failed(f"the log refused it: {outcome.code}")
    return store_failed("the log gave no answer that a message can have")


def batch_error_of(outcome: object) -> ApiError:
    """The same of an atomic batch."""
    if isinstance(outcome, PartlyDuplicate | IdConflict | ClaimInvalid):
        return errors.BATCH_DUPLICATE_ID
    return error_of(outcome)
