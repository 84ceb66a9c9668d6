"""One consumer of a stream: whom it delivers to, and when. What was delivered and acked is in `DeliveryState`."""

from collections import deque
from typing import Any, Final

from oncelog.core.command import ConsumerUpdate
from oncelog.protocols.nats import consumer_config, wire
from oncelog.protocols.nats import headers as header_blocks
from oncelog.protocols.nats import subject as subjects
from oncelog.protocols.nats.consumer_config import ConsumerConfig
from oncelog.protocols.nats.delivery import DeliveryState
from oncelog.protocols.nats.requests import Ack, Pull
from oncelog.protocols.nats.stored import Stored
from oncelog.protocols.nats.times import json_time
from oncelog.servers.nats.log import CURSOR_SCOPE
from oncelog.servers.nats.stream import LiveStream

SLICE: Final = 1_000
"""Deliveries in one go: others get their turn then."""
FLOW_BYTES: Final = 1 << 20
"""A push consumer with flow control sends so much before the client has answered."""
SUBJECTS_CACHED_MAX: Final = 20_000


class PullRequest:
    """One request that waits for messages."""

    __slots__ = ("batch", "beat_ns", "bytes", "delivered", "expires_ns", "heartbeat_ns", "no_wait", "reply")

    def __init__(self, pull: Pull, reply: str, now_ns: int) -> None:
        self.reply = reply
        self.batch = pull.batch
        self.bytes = pull.max_bytes
        self.no_wait = pull.no_wait
        self.expires_ns = now_ns + pull.expires if pull.expires else 0
        self.heartbeat_ns = pull.idle_heartbeat
        self.beat_ns = now_ns + pull.idle_heartbeat if pull.idle_heartbeat else 0
        self.delivered = 0

    def pending_fields(self) -> header_blocks.Headers:
        """What the request did not get."""
        return [("Nats-Pending-Messages", str(self.batch)), ("Nats-Pending-Bytes", str(self.bytes))]


class Consumer:
    """One consumer in use."""

    def __init__(
        self,
        stream: LiveStream,
        name: str,
        config: ConsumerConfig,
        state: DeliveryState,
        created_ns: int,
        skip: list[int] | None = None,
        resume: int = 0,
    ) -> None:
        self.stream = stream
        self.name = name
        self.config = config
        self.state = state
        self.created_ns = created_ns
        self.is_durable = bool(config.durable_name)
        self.is_stored = not config.mem_storage and (self.is_durable or config.ack_policy != "none")
        self.skip = deque(skip or ())
        """With `last_per_subject`: the offsets to deliver first."""
        self._resume = resume
        """The sequence to go on with once those are delivered."""
        self.waiting: deque[PullRequest] = deque()
        self.num_pending = 0
        self.used_ns = stream.log.now_ns()
        self.delivered_ns = 0
        self.acked_ns = 0
        self.is_deleted = False
        self._wanted: dict[str, bool] = {}
        self._is_fetching = False
        self._is_pumping = False
        self._beat_ns = self.used_ns + config.idle_heartbeat if config.is_push and config.idle_heartbeat else 0
        self._flow_bytes = 0
        self._flow_reply = ""
        self._flow_number = 0
        self._flow_asked = 0
        self._acked: list[int] = []
        self._sent: dict[int, None] = {}
        """Stream sequences that were delivered since the last update of the log."""
        self._ack_replies: list[str] = []
        self._in_flight: deque[list[str]] = deque()
        """Replies of updates that are not durable yet, in their order."""
        self._floor = state.floor_stream
        """What the log knows of the floor."""
        self.recount()

    # --- what the stream says --------------------------------------------------------------------------------------

    def wants(self, subject: str) -> bool:
        """Whether the filters let a subject through."""
        if not self.config.filters:
            return True
        known = self._wanted.get(subject)
        if known is None:
            if len(self._wanted) >= SUBJECTS_CACHED_MAX:
                self._wanted.clear()
            known = self._wanted[subject] = subjects.any_matches(self.config.filters, subject)
        return known

    def recount(self) -> None:
        """Count anew what is to be delivered."""
        self._wanted.clear()
        begin = self._resume or self.state.next_sequence
        self.num_pending = self.stream.index.count_from(begin - 1, self.config.filters) + len(self.skip)

    def arrived(self, offset: int, subject: str) -> None:
        """A new record."""
        if offset + 1 >= self.state.next_sequence and self.wants(subject):
            self.num_pending += 1

    def removed(self, offset: int, subject: str) -> None:
        """A record is gone."""
        if self.state.gone(offset + 1):
            self._note_floor()
        elif offset in self.skip:
            self.skip.remove(offset)
            self.num_pending -= 1
        elif offset + 1 >= (self._resume or self.state.next_sequence) and self.wants(subject):
            self.num_pending -= 1

    def needs(self, offset: int) -> bool:
        """Whether an interest stream keeps a record for it."""
        subject = self.stream.index.subject_at(offset)
        return subject is not None and self.wants(subject) and not self.has_settled(offset)

    def has_settled(self, offset: int) -> bool:
        """Whether it has acked a record."""
        sequence = offset + 1
        if sequence in self.state.pending:
            return False
        if self.state.is_settled(sequence):
            return True
        return sequence < self.state.next_sequence

    # --- requests --------------------------------------------------------------------------------------------------

    def pull(self, pull: Pull, reply: str) -> None:
        """A request for messages."""
        now = self.stream.log.now_ns()
        self.used_ns = now
        config = self.config
        if config.is_push:
            self._status(reply, 409, "Consumer is push based")
        elif 0 < config.max_batch < pull.batch:
            self._status(reply, 409, f"Exceeded MaxRequestBatch of {config.max_batch}")
        elif 0 < config.max_expires < pull.expires:
            self._status(
                reply, 409, f"Exceeded MaxRequestExpires of {consumer_config.duration_text(config.max_expires)}"
            )
        elif 0 < config.max_bytes < pull.max_bytes:
            self._status(reply, 409, f"Exceeded MaxRequestMaxBytes of {config.max_bytes}")
        elif pull.no_wait and not pull.expires and not self.num_pending and not self.state.due_count:
            self._status(reply, 404, "No Messages")
        elif len(self.waiting) >= config.max_waiting:
            if not pull.idle_heartbeat:
                self._status(reply, 409, "Exceeded MaxWaiting")
        else:
            self.waiting.append(PullRequest(pull, reply, now))
            self.pump()

    def _status(self, reply: str, code: int, text: str, fields: header_blocks.Headers | None = None) -> None:
        self.stream.js.router.send(reply, header=wire.status(code, text, fields))

    # --- delivering ------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Deliver what there is to whoever asks for it."""
        if self._is_pumping or self._is_fetching or self.is_deleted or not self.stream.is_ready:
            return
        self._is_pumping = True
        sent = 0
        while sent < SLICE:
            if self.is_paused() or not self._has_target():
                break
            offset, is_again = self._next()
            if offset < 0:
                self._at_end()
                break
            stored = self.stream.js.cache.get(self.stream.stream_id, offset)
            if stored is None:
                self._is_fetching = True
                self.stream.fetch(offset, lambda found, at=offset: self._fetched(at, found))  # type: ignore[misc]
                if self._is_fetching:
                    break
                stored = self.stream.js.cache.get(self.stream.stream_id, offset)
                if stored is None:
                    continue
            if not self._send(stored, is_again=is_again):
                continue
            sent += 1
        self._is_pumping = False
        if sent >= SLICE:
            self.stream.js.loop.call_soon(self.pump)
        if sent and not self.stream.js.is_in_turn:
            self.stream.js.store_soon()

    def _fetched(self, offset: int, stored: Stored | None) -> None:
        self._is_fetching = False
        if stored is None and self.stream.index.subject_at(offset) is not None:
            # It cannot be read: named by the read itself; what follows is delivered.
            self.state.skip(offset + 1)
            self.num_pending -= 1
        if not self._is_pumping:
            self.pump()

    def is_paused(self) -> bool:
        """`pause_until` lies ahead."""
        until = self.config.pause_until
        return bool(until) and (consumer_config.time_ns(until or "") or 0) > self.stream.log.now_ns()

    def _has_target(self) -> bool:
        router = self.stream.js.router
        if self.config.is_push:
            if self.config.flow_control and self._flow_bytes >= FLOW_BYTES:
                return False
            receiver = router.receiver(self.config.deliver_subject)
            if self.config.deliver_group and receiver is not None and not self._has_group():
                return False
            return receiver is not None and not receiver.is_full
        while self.waiting:
            receiver = router.receiver(self.waiting[0].reply)
            if receiver is not None:
                return not receiver.is_full
            self.waiting.popleft()  # whoever asked has gone
        return False

    def _has_group(self) -> bool:
        matched = self.stream.js.router.sublist.match(self.config.deliver_subject)
        return any(each.queue == self.config.deliver_group for members in matched.queues for each in members)

    def _next(self) -> tuple[int, bool]:
        """The offset to deliver next, -1 for none; whether it was delivered before."""
        state = self.state
        due = state.next_due()
        while due is not None:
            if self.stream.index.subject_at(due - 1) is not None:
                return due - 1, True
            state.gone(due)
            due = state.next_due()
        if not state.has_room:
            return -2, False
        if self.skip:
            return self.skip[0], False
        while True:
            offset = self.stream.index.next_live(state.next_sequence - 1, self.config.filters)
            if offset >= self.stream.index.next:
                return -1, False
            if not state.is_settled(offset + 1):
                return offset, False
            state.skip(offset + 1)
            self.num_pending -= 1

    def _at_end(self) -> None:
        """Nothing more for now: requests that do not wait are over."""
        if self.num_pending:
            return
        for request in list(self.waiting):
            if request.no_wait and (not request.expires_ns or request.delivered):
                self.waiting.remove(request)
                self._status(request.reply, 404, "No Messages")

    def _send(self, stored: Stored, *, is_again: bool) -> bool:
        """False if the first request cannot take it: the next one is asked then."""
        size = stored.size
        request: PullRequest | None = None
        target = self.config.deliver_subject
        if not self.config.is_push:
            request = self.waiting[0]
            target = request.reply
            size = len(stored.subject) + len(target) + len(stored.header) + len(stored.payload)
            if request.bytes and size > request.bytes:
                text = "Batch Completed" if request.delivered else "Message Size Exceeds MaxBytes"
                self.waiting.popleft()
                self._status(request.reply, 409, text, request.pending_fields())
                return False
        now = self.stream.log.now_ns()
        if not is_again:
            self.num_pending -= 1
            if self.skip:
                self.skip.popleft()
        delivered = self.state.deliver(stored.sequence, now)
        if self._resume and not self.skip:
            self.state.next_sequence, self._resume = max(self.state.next_sequence, self._resume), 0
        self.delivered_ns = now
        if self.is_stored:
            self._sent[stored.sequence] = None
            self._note_floor()
        header, payload = stored.header, stored.payload
        if self.config.headers_only:
            fields = header_blocks.parse(header) if header else []
            header = header_blocks.encode([*(fields or []), ("Nats-Msg-Size", str(len(payload)))])
            payload = b""
        reply = (
            f"$JS.ACK.{self.stream.name}.{self.name}.{delivered.deliveries}.{stored.sequence}."
            f"{delivered.consumer_sequence}.{stored.time_ns}.{max(0, self.num_pending)}"
        )
        self.stream.js.router.send(target, payload, subject=stored.subject, reply=reply, header=header)
        if request is not None:
            self._count_down(request, size)
        else:
            self._pushed(size, now)
        return True

    def _count_down(self, request: PullRequest, size: int) -> None:
        request.batch -= 1
        request.delivered += 1
        if request.heartbeat_ns:
            request.beat_ns = self.stream.log.now_ns() + request.heartbeat_ns
        is_full = 0 < request.bytes <= size
        if request.bytes:
            request.bytes -= size
        if request.batch <= 0 or is_full:
            self.waiting.popleft()

    def _pushed(self, size: int, now_ns: int) -> None:
        if self.config.idle_heartbeat:
            self._beat_ns = now_ns + self.config.idle_heartbeat
        if not self.config.flow_control:
            return
        self._flow_bytes += size
        if self._flow_bytes >= FLOW_BYTES // 2 and not self._flow_reply:
            self._flow_number += 1
            self._flow_reply = f"$JS.FC.{self.stream.name}.{self.name}.{self._flow_number}"
            self._flow_asked = self._flow_bytes
            self.stream.js.router.send(
                self.config.deliver_subject, reply=self._flow_reply, header=wire.status(100, "FlowControl Request")
            )

    def flow_answered(self, subject: str) -> None:
        """The client has taken what was sent before the request."""
        if subject == self._flow_reply:
            self._flow_reply = ""
            self._flow_bytes = max(0, self._flow_bytes - self._flow_asked)
            self.pump()

    # --- acks ------------------------------------------------------------------------------------------------------

    def acked(self, ack: Ack, sequence: int, reply: str) -> None:
        """What a client says about a delivery. With a reply, it is answered once it is durable."""
        now = self.stream.log.now_ns()
        self.used_ns = now
        self.acked_ns = now
        match ack.kind:
            case "ack" | "term" | "next":
                settled = self.state.ack(sequence)
                if settled:
                    self._acked += settled
                    for each in settled:
                        self.stream.settled(each - 1)
                if reply and ack.kind != "next":
                    self._ack_replies.append(reply)
                self._note_floor()
                if ack.pull is not None and reply:
                    self.pull(ack.pull, reply)
            case "nak":
                if self.state.nak(sequence, now, ack.delay_ns):
                    self._wait_changed(sequence)
            case "progress":
                if self.state.progress(sequence, now):
                    self._wait_changed(sequence)
        if reply and ack.kind in ("nak", "progress"):
            self.stream.js.router.send(reply)
        self.pump()

    def _wait_changed(self, sequence: int) -> None:
        if self.is_stored:
            self._sent[sequence] = None
            self._note_floor()

    def _note_floor(self) -> None:
        self.stream.js.wants_store(self)

    def take_update(self) -> ConsumerUpdate | None:
        """What was delivered and acked since the last time, for the log; None if it need not know."""
        state = self.state
        _, floor = state.raise_floor()
        acked, self._acked = self._acked, []
        sent, self._sent = self._sent, {}
        replies, self._ack_replies = self._ack_replies, []
        self.stream.removed_all()
        if not self.is_stored:
            self._answer(replies)
            return None
        ranges: list[int] = []
        if floor > self._floor:
            ranges += (self._floor, floor)
        for sequence in sorted(each for each in acked if each > floor):
            if ranges and ranges[-1] == sequence - 1:
                ranges[-1] = sequence
            elif not ranges or ranges[-1] < sequence:
                ranges += (sequence - 1, sequence)
        deliver: list[int] = []
        for sequence in sent:
            held = state.pending.get(sequence)
            if held is not None:
                deliver += (sequence - 1, held.count, held.deadline_ns, held.consumer_sequence)
        self._floor = max(self._floor, floor)
        if not ranges and not sent:
            if not self._in_flight:
                self._answer(replies)
            else:
                self._in_flight[-1] += replies
            return None
        self._in_flight.append(replies)
        stream = self.stream
        name = CURSOR_SCOPE + self.name
        delivered, number = state.delivered_stream, state.delivered_consumer
        return ConsumerUpdate(name, stream.topic, stream.partition, ranges, deliver, delivered, number)

    def on_stored(self) -> None:
        """The oldest update is durable."""
        self._answer(self._in_flight.popleft())

    def reset(self) -> None:
        """Another state, from another place on."""
        self._floor = self.state.floor_stream
        self._acked.clear()
        self._sent.clear()
        self.skip.clear()
        self._resume = 0
        self.recount()

    def _answer(self, replies: list[str]) -> None:
        for reply in replies:
            self.stream.js.router.send(reply)

    # --- time ------------------------------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> None:
        """Redeliveries, requests whose time is up, heartbeats."""
        for sequence, consumer_sequence, count in self.state.expire(now_ns):
            self.stream.js.advise_max_deliveries(self, sequence, consumer_sequence, count)
        if self.waiting:
            self._expire_requests(now_ns)
        if self._beat_ns and self._beat_ns <= now_ns:
            self._beat_ns = now_ns + self.config.idle_heartbeat
            fields = self._beat_fields()
            if self._flow_reply:
                fields.append(("Nats-Consumer-Stalled", self._flow_reply))
            self._status(self.config.deliver_subject, 100, "Idle Heartbeat", fields)
        if self.state.due_count or self.config.is_push or self.waiting:
            self.pump()

    def _beat_fields(self) -> header_blocks.Headers:
        state = self.state
        return [
            ("Nats-Last-Consumer", str(state.delivered_consumer)),
            ("Nats-Last-Stream", str(state.delivered_stream)),
        ]

    def _expire_requests(self, now_ns: int) -> None:
        for request in list(self.waiting):
            if request.expires_ns and request.expires_ns <= now_ns:
                self.waiting.remove(request)
                self._status(request.reply, 408, "Request Timeout", request.pending_fields())
            elif not self.stream.js.router.has_interest(request.reply):
                self.waiting.remove(request)
            elif request.beat_ns and request.beat_ns <= now_ns:
                request.beat_ns = now_ns + request.heartbeat_ns
                self._status(request.reply, 100, "Idle Heartbeat", self._beat_fields())

    def is_inactive(self, now_ns: int) -> bool:
        """Whether it is to be removed: nobody has used it for its threshold."""
        threshold = self.config.inactive_threshold
        if not threshold:
            if self.is_durable:
                return False
            threshold = consumer_config.INACTIVE_NS
        if self.config.is_push:
            if self.stream.js.router.has_interest(self.config.deliver_subject):
                self.used_ns = now_ns
        elif self.waiting:
            self.used_ns = now_ns
        return now_ns - self.used_ns > threshold

    def end(self, code: int = 409, text: str = "Consumer Deleted") -> None:
        """It is removed: requests that wait are told."""
        self.is_deleted = True
        for request in self.waiting:
            self._status(request.reply, code, text, request.pending_fields() if code == 408 else None)
        self.waiting.clear()
        self._answer(self._ack_replies)

    # --- information -----------------------------------------------------------------------------------------------

    def info(self) -> dict[str, Any]:
        """ConsumerInfo."""
        router = self.stream.js.router
        self.waiting = deque(request for request in self.waiting if router.has_interest(request.reply))
        state, now = self.state, self.stream.log.now_ns()
        delivered: dict[str, Any] = {"consumer_seq": state.delivered_consumer, "stream_seq": state.delivered_stream}
        floor: dict[str, Any] = {"consumer_seq": state.floor_consumer, "stream_seq": state.floor_stream}
        if self.delivered_ns:
            delivered["last_active"] = json_time(self.delivered_ns)
        if self.acked_ns:
            floor["last_active"] = json_time(self.acked_ns)
        fields: dict[str, Any] = {
            "stream_name": self.stream.name,
            "name": self.name,
            "created": json_time(self.created_ns),
            "config": consumer_config.as_json(self.config),
            "delivered": delivered,
            "ack_floor": floor,
            "num_ack_pending": len(state.pending),
            "num_redelivered": state.redelivered_count,
            "num_waiting": len(self.waiting),
            "num_pending": max(0, self.num_pending),
            "ts": json_time(now),
        }
        if self.config.is_push and self.stream.js.router.has_interest(self.config.deliver_subject):
            fields["push_bound"] = True
        if self.is_paused():
            until = consumer_config.time_ns(self.config.pause_until or "") or now
            fields["paused"], fields["pause_remaining"] = True, until - now
        return fields
