"""A lane against the rules of core over a network that loses, cuts, repeats late, and a server that is busy or refuses.

Copies of requests on dead connections stay alive and may be worked on at any later moment. Whatever happens, the stream
holds every record once and in order, acks are true and in order, and dead letters are not in the stream.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncelog.client.batches import BatchResult, Confirmation, Failure, PendingBatch
from oncelog.client.dialect import Identity, dialect_of
from oncelog.client.errors import DeadLettered, Malformed, Overloaded, Refused, SequenceGap
from oncelog.client.errors import Fenced as FencedError
from oncelog.client.lane import NEVER, Lane
from oncelog.client.options import DialectName, ProducerSettings
from oncelog.client.packing import Packer, cost
from oncelog.core.flat import Producer, ProducerClaim
from oncelog.core.producer import SequenceMode, advance, judge
from oncelog.core.verdict import Accept, Duplicate, Fenced, Gap

BAD_VALUES = frozenset(range(3, 1000, 5))
BUSY = Overloaded(503, "overloaded", "", {"retryable": True})
BAD = Malformed(400, "batch_refused", "", {})

Act = Literal["put", "burst", "send", "work", "busy", "work-cut", "cut", "late"]
ACTS: list[Act] = ["put", "burst", "send", "work", "work", "work", "busy", "work-cut", "cut", "late"]


@dataclass
class Copy:
    """One request on its way."""

    batch: PendingBatch
    attempt: int
    claim: ProducerClaim
    values: list[int]


@dataclass
class World:
    """The lane, the wire and the server."""

    dialect: DialectName
    buries: bool
    row: Producer | None = None
    log: list[int] = field(default_factory=list)
    wire: deque[Copy] = field(default_factory=deque)
    dead_wires: list[deque[Copy]] = field(default_factory=list)
    acked: list[BatchResult] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    put_count: int = 0

    def __post_init__(self) -> None:
        options = ProducerSettings(
            dialect=self.dialect,
            max_batch_records=1,
            retry_backoff_ms=0,
            retry_backoff_max_ms=0,
            dead_letter="dead" if self.buries else None,
        )
        self.lane = Lane(0, Packer("application/json"), options, dialect_of(options))

    def put(self) -> None:
        if not self.lane.ended:
            value = b"%d" % self.put_count
            self.put_count += 1
            self.lane.put(value, cost(value), 0)

    def send(self) -> None:
        self.lane.fill(0, eager=True)
        while (batch := self.lane.take(0)) is not None:
            claim = claim_of(self.dialect, self.lane.identity, batch)
            self.wire.append(Copy(batch, batch.attempts, claim, msgspec.json.decode(batch.body)))

    def decide(self, copy: Copy) -> Confirmation | Refused:
        """The server works on a copy."""
        if BAD_VALUES & set(copy.values):
            return BAD
        claim = copy.claim
        verdict = judge(self.row, claim)
        match verdict:
            case Accept():
                first = len(self.log)
                self.log += copy.values
                self.row = advance(self.row, claim, verdict.epoch, first, len(self.log), 0)
                return Confirmation(verdict.epoch, len(self.log), False)
            case Duplicate():
                return Confirmation(verdict.epoch, verdict.next_offset, True)
            case Gap():
                numbers = {"expected": verdict.expected, "received": verdict.received}
                return SequenceGap(409, "sequence_gap", "", numbers)
            case Fenced():
                return FencedError(403, "fenced", "", {"current": verdict.current_epoch})
        return Malformed(400, "claim_invalid", repr(verdict), {})

    def work(self, *, busy: bool = False, tell: bool = True) -> None:
        """The server takes the next request of the living connection."""
        if not self.wire:
            return
        copy = self.wire[0] if not tell else self.wire.popleft()
        told = BUSY if busy else self.decide(copy)
        if not tell:
            self.wire.popleft()
            self._lose(copy)
            self.cut()
        elif isinstance(told, Refused):
            self.lane.refused(copy.batch, told, 0)
        else:
            self.lane.confirmed(copy.batch, told, 0)
        self.listen()

    def cut(self) -> None:
        """The connection ends; what was on it may still reach the server."""
        dead, self.wire = self.wire, deque()
        for copy in dead:
            self._lose(copy)
        if dead:
            self.dead_wires.append(dead)
        self.listen()

    def late(self, choice: int) -> None:
        """The server takes a request of a connection that ended. Nobody hears the answer."""
        if self.dead_wires:
            wire = self.dead_wires[choice % len(self.dead_wires)]
            self.decide(wire.popleft())
            if not wire:
                self.dead_wires.remove(wire)

    def expire(self) -> None:
        """Time is up. What is on the wire may still reach the server."""
        self.lane.expire(NEVER)
        if self.wire:
            self.dead_wires.append(self.wire)
            self.wire = deque()
        self.listen()

    def _lose(self, copy: Copy) -> None:
        self.lane.lost(copy.batch, sent=True, now=0)

    def listen(self) -> None:
        if self.lane.burial is not None:
            self.lane.buried("dead", 0)
        for settled in self.lane.drain()[0]:
            if isinstance(settled, Failure):
                self.failures.append(settled)
            else:
                self.acked.append(settled)


def claim_of(dialect: DialectName, identity: Identity, batch: PendingBatch) -> ProducerClaim:
    digest = batch.body.ljust(16)[:16]
    mode = int(SequenceMode.REQUESTS)
    if dialect == "x":
        return ProducerClaim("x:p", identity.epoch, batch.seq, batch.seq, mode, digest, True, identity.session, True)
    return ProducerClaim("http:p", identity.epoch, batch.seq, batch.seq, mode, digest)


dialects = st.sampled_from(["x", "durable-streams"])
lists_of_acts = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 9)), max_size=60)


def after(dialect: DialectName, buries: bool, acts: list[tuple[Act, int]]) -> World:
    world = World(dialect, buries)
    for act, choice in acts:
        match act:
            case "put":
                world.put()
            case "burst":
                for _ in range(6):
                    world.put()
                world.send()
            case "send":
                world.send()
            case "work" | "busy":
                world.work(busy=act == "busy")
                world.send()
            case "work-cut":
                world.work(tell=False)
            case "cut":
                world.cut()
            case "late":
                world.late(choice)
        check(world)
    return world


@settings(max_examples=600)
@given(dialect=dialects, buries=st.booleans(), acts=lists_of_acts)
def test_every_record_is_written_once_and_in_order_whatever_the_wire_does(
    dialect: DialectName, buries: bool, acts: list[tuple[Act, int]]
) -> None:
    world = after(dialect, buries, acts)
    # Then the network is calm; late copies still come in between.
    for _ in range(1000):
        if not world.lane.pending_count and not world.dead_wires:
            break
        world.late(0)
        world.send()
        world.work()
        check(world)
    assert world.lane.pending_count == 0
    refused = {value for failure in world.failures for value in values_of(failure.batch)}
    if world.lane.ended:
        assert world.failures, "a lane ends with an error"
        assert isinstance(world.failures[0].error, Malformed | DeadLettered)
    else:
        assert sorted(world.log) == [n for n in range(world.put_count) if n not in refused]
        assert all(BAD_VALUES & set(values_of(failure.batch)) for failure in world.failures)
    for failure in world.failures:
        assert not failure.batch.maybe_written or not isinstance(failure.error, DeadLettered)


@settings(max_examples=600)
@given(dialect=dialects, buries=st.booleans(), acts=lists_of_acts, last_are_busy=st.lists(st.booleans(), max_size=5))
@example("x", False, [(act, 0) for act in ("put", "send", "work", "burst", "cut", "send")], [True, False])
def test_what_is_told_as_not_written_when_time_is_up_never_is(
    dialect: DialectName, buries: bool, acts: list[tuple[Act, int]], last_are_busy: list[bool]
) -> None:
    world = after(dialect, buries, acts)
    for busy in last_are_busy:
        world.work(busy=busy)  # and nothing is sent again: what is on its way would be open anyhow
    world.expire()
    if world.lane.batches:
        return  # a dead letter was in the way
    while world.dead_wires:
        world.late(0)
    certain = [failure.batch for failure in world.failures if not failure.batch.maybe_written]
    assert not {value for batch in certain for value in values_of(batch)} & set(world.log)


def check(world: World) -> None:
    """True at every moment."""
    assert world.log == sorted(set(world.log)), "each once, in order"
    offsets = [result.first_offset for result in world.acked if result.first_offset >= 0]
    assert offsets == sorted(set(offsets))
    for result in world.acked:
        if result.first_offset >= 0:
            assert result.next_offset <= len(world.log)
    dead = {value for failure in world.failures for value in values_of(failure.batch)}
    assert not dead & set(world.log), "what failed for certain is not in the stream"


def values_of(batch: PendingBatch) -> list[int]:
    return [int(record.value or b"") for record in batch.records]


def test_a_copy_of_the_first_batch_is_fenced_by_a_new_identity() -> None:
    # 1. Batch 0 is sent, the connection ends, the server has not read it yet. 2. It is sent again and confirmed.
    # 3. A batch is refused while a later one is lost: the rest goes on under a new session. 4. The old copy of batch 0
    # names no epoch; it must not look like one more restart. Core remembers the sessions that were displaced.
    world = World("x", buries=True)
    world.put()
    world.send()
    world.cut()
    world.send()
    world.work()
    for _ in range(5):
        world.put()
    world.send()
    for _ in range(3):  # 1 and 2 are written, 3 is refused
        world.work()
    world.cut()
    assert isinstance(world.failures[0].error, DeadLettered)
    world.send()
    world.work()
    while world.dead_wires:
        world.late(0)
    world.send()
    world.work()
    assert world.log == [0, 1, 2, 4, 5]


def test_a_copy_of_a_later_batch_is_fenced_by_the_new_identity() -> None:
    world = World("x", buries=True)
    world.put()
    world.send()
    world.work()
    for _ in range(5):
        world.put()
    world.send()
    for _ in range(3):
        world.work()
    world.cut()
    assert isinstance(world.failures[0].error, DeadLettered)
    world.send()
    world.work()
    while world.dead_wires:
        world.late(0)
    world.send()
    world.work()
    assert world.log == [0, 1, 2, 4, 5]
    assert world.row is not None
    assert world.row.epoch == 2
