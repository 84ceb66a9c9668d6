"""A consumer's deliveries: what was delivered, what is confirmed, what comes again. Pure; sequences are NATS's.

States of one stream sequence:

    new ──deliver──► pending ──ack, term──► settled
                      │  ▲
        nak, ack_wait ▼  │ deliver again (count + 1)
                     due again ──max_deliver reached──► given up (pending until acked, as in the real server)

Invariants: `pending` is in ascending order of sequences; everything below `next_sequence` that is not pending is
settled; the floor is just under the first pending sequence.
"""

import heapq
from bisect import bisect_right
from typing import Final, NamedTuple

from oncelog.protocols.nats.consumer_config import ConsumerConfig

DEADLINE_NS_MAX: Final = 2**62
"""The year 2116: a wait may be as long as a client likes, and its end must fit a row of the log."""


class Pending:
    """Delivered and not acked."""

    __slots__ = ("consumer_sequence", "count", "deadline_ns", "is_due", "is_given_up")

    def __init__(self, consumer_sequence: int, deadline_ns: int) -> None:
        self.consumer_sequence = consumer_sequence
        self.count = 1
        self.deadline_ns = deadline_ns
        self.is_due = False
        self.is_given_up = False


class Delivered(NamedTuple):
    """One delivery."""

    consumer_sequence: int
    deliveries: int


class DeliveryState:
    """Of one consumer."""

    def __init__(self, config: ConsumerConfig, floor: int, settled: list[int] | None = None, below: int = 0) -> None:
        """Begins after sequence `floor`. After a restart: `settled` are ranges (first, next) acked above it, and
        sequences under `below` may have been delivered before."""
        self.config = config
        self.next_sequence = floor + 1
        """The next stream sequence to look at."""
        self.delivered_consumer = floor if below else 0
        self.delivered_stream = floor
        self.floor_consumer = floor if below else 0
        self.floor_stream = floor
        """Every sequence up to here is settled, as far as this consumer is concerned."""
        self.pending: dict[int, Pending] = {}
        self._settled = settled or []
        self._below = below
        self._early: set[int] = set()
        """Acked after a restart, before they were delivered again."""
        self._due: list[int] = []
        self.due_count = 0
        self.given_up_count = 0
        self.redelivered_count = 0
        """Pending sequences that were delivered more than once."""
        self._deadlines: list[tuple[int, int]] = []

    def restore(self, waiting: dict[int, tuple[int, int, int]], delivered: int, sequence: int) -> None:
        """After a restart: what waits by stream sequence, (deliveries, deadline, consumer sequence); the last stream
        sequence that was delivered, and the last consumer sequence."""
        self.delivered_stream = max(self.delivered_stream, delivered)
        self.next_sequence = self.delivered_stream + 1
        self.delivered_consumer = sequence
        for each in sorted(waiting):
            count, deadline_ns, number = waiting[each]
            held = self.pending[each] = Pending(number, deadline_ns)
            held.count = count
            self.redelivered_count += count > 1
            heapq.heappush(self._deadlines, (deadline_ns, each))
        first = next(iter(self.pending.values()), None)
        self.floor_consumer = sequence if first is None else max(0, first.consumer_sequence - 1)

    # --- delivering ------------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether one more may be pending."""
        most = self.config.max_ack_pending
        return self.config.ack_policy == "none" or most <= 0 or len(self.pending) < most

    def next_due(self) -> int | None:
        """The first sequence that comes again; it stays due until it is delivered."""
        while self._due:
            held = self.pending.get(self._due[0])
            if held is not None and held.is_due:
                return self._due[0]
            heapq.heappop(self._due)
        return None

    def is_settled(self, sequence: int) -> bool:
        """Whether a sequence that was not delivered since the start was acked before it."""
        if sequence <= self.floor_stream or sequence in self._early:
            return True
        at = bisect_right(self._settled, sequence)
        return at % 2 == 1

    def skip(self, sequence: int) -> None:
        """A sequence is not delivered: settled before, or of no interest."""
        self.next_sequence = max(self.next_sequence, sequence + 1)
        self._early.discard(sequence)

    def deliver(self, sequence: int, now_ns: int) -> Delivered:
        """A delivery, first or again."""
        self.delivered_consumer += 1
        held = self.pending.get(sequence)
        if held is not None:
            if held.is_due:
                held.is_due = False
                self.due_count -= 1
            held.count += 1
            if held.count == 2:
                self.redelivered_count += 1
        else:
            self.next_sequence = sequence + 1
            self.delivered_stream = max(self.delivered_stream, sequence)
            if self.config.ack_policy == "none":
                self.floor_consumer, self.floor_stream = self.delivered_consumer, sequence
                return Delivered(self.delivered_consumer, 1)
            held = self.pending[sequence] = Pending(self.delivered_consumer, 0)
        self._set_deadline(sequence, held, now_ns + self._wait_ns(held.count))
        return Delivered(self.delivered_consumer, held.count)

    def _wait_ns(self, count: int) -> int:
        backoff = self.config.backoff
        return backoff[min(count, len(backoff)) - 1] if backoff else self.config.ack_wait

    def _set_deadline(self, sequence: int, held: Pending, deadline_ns: int) -> None:
        held.deadline_ns = min(deadline_ns, DEADLINE_NS_MAX)
        heapq.heappush(self._deadlines, (held.deadline_ns, sequence))

    # --- what clients say ------------------------------------------------------------------------------------------

    def ack(self, sequence: int) -> list[int]:
        """Processed. With ack policy `all`, everything before it as well. Returns what this settles."""
        if self.config.ack_policy == "all":
            settled = [each for each in self.pending if each <= sequence]
        elif sequence in self.pending:
            settled = [sequence]
        elif self.next_sequence <= sequence < self._below and not self.is_settled(sequence):
            self._early.add(sequence)  # delivered before a restart: its ack counts
            return [sequence]
        else:
            return []
        for each in settled:
            self._settle(each)
        return settled

    def _settle(self, sequence: int) -> None:
        held = self.pending.pop(sequence)
        self.due_count -= held.is_due
        self.given_up_count -= held.is_given_up
        self.redelivered_count -= held.count > 1

    def nak(self, sequence: int, now_ns: int, delay_ns: int = 0) -> bool:
        """Not processed: it comes again, after `delay_ns`."""
        held = self.pending.get(sequence)
        if held is None or held.is_due:
            return False
        if delay_ns:
            self._set_deadline(sequence, held, now_ns + delay_ns)
        else:
            self._again(sequence, held)
        return True

    def progress(self, sequence: int, now_ns: int) -> bool:
        """Still being processed."""
        held = self.pending.get(sequence)
        if held is None:
            return False
        if held.is_due:
            held.is_due = False
            self.due_count -= 1
        self._set_deadline(sequence, held, now_ns + self._wait_ns(held.count))
        return True

    def gone(self, sequence: int) -> bool:
        """The message was removed from the stream; True if it was pending."""
        if sequence in self.pending:
            self._settle(sequence)
            return True
        return False

    # --- time ------------------------------------------------------------------------------------------------------

    def expire(self, now_ns: int) -> list[tuple[int, int, int]]:
        """Deliveries whose time is up become due again. Returns (stream sequence, consumer sequence, deliveries) of
        those that are given up."""
        given_up: list[tuple[int, int, int]] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_ns:
            deadline_ns, sequence = heapq.heappop(deadlines)
            held = self.pending.get(sequence)
            if held is None or held.deadline_ns != deadline_ns or held.is_due or held.is_given_up:
                continue
            if self._is_used_up(held):
                held.is_given_up = True
                self.given_up_count += 1
                given_up.append((sequence, held.consumer_sequence, held.count))
            else:
                self._again(sequence, held)
        return given_up

    def _is_used_up(self, held: Pending) -> bool:
        return 0 < self.config.max_deliver <= held.count

    def _again(self, sequence: int, held: Pending) -> None:
        if self._is_used_up(held):
            self._set_deadline(sequence, held, 0)  # given up when time is looked at next
            return
        held.is_due = True
        self.due_count += 1
        heapq.heappush(self._due, sequence)

    # --- the floor -------------------------------------------------------------------------------------------------

    def raise_floor(self) -> tuple[int, int]:
        """Step the floor over what is settled; (old, new). Sequences that this consumer does not receive lie between
        deliveries, so the floor is just under the first that is pending."""
        before = self.floor_stream
        for first, held in self.pending.items():
            self.floor_stream = max(before, first - 1)
            self.floor_consumer = max(self.floor_consumer, held.consumer_sequence - 1)
            break
        else:
            self.floor_stream = max(before, self.delivered_stream)
            self.floor_consumer = self.delivered_consumer
        return before, self.floor_stream
