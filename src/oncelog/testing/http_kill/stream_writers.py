"""Writers that append to streams: by producer sequence in both dialects, and by message id.

A correct client, and nothing more: what it sends again has the same claim and the same bytes, and any refusal of that
is a finding. One refusal is not: on several connections a sequence may arrive before the one below it. The server waits
for that one 500 ms; if its connection was cut, that may not be enough, and the early one is told about the gap.
"""

from collections import deque
from typing import ClassVar, Final

from oncelog.core import batch as codec
from oncelog.testing.http_kill.lanes import Lane, Network, Request, Writer
from oncelog.testing.http_kill.ledger import IDS, OPAQUE, SHARED, SOLE, STREAM_IDS, Topic
from oncelog.testing.http_kill.wire import BATCHES, JSON, Answer, request_bytes
from oncelog.testing.kill.ledger import Identity, Unit
from oncelog.testing.kill.writers import TIMESTAMP_MS

RECORDS_MAX: Final = 3

EARLY: Final = frozenset(("sequence_gap", "epoch_not_at_zero"))
"""Refusals of a request that came before its turn; `expected` is the sequence that is missing."""

Headers = dict[str, str | int]


class StreamWriter(Writer):
    """Appends, each confirmed by a status and the offset behind its last record."""

    status_new: ClassVar[int]

    def append(
        self, topic: Topic, partition: int, claim: Headers, identities: list[Identity], unit: Unit | None
    ) -> Request:
        """The request that appends these records: several as a JSON array, one also as it is, now and then a batch."""
        values = [self.ledger.value(topic, identity) for identity in identities]
        content_type, body = topic.content_type, values[0]
        if topic.content_type == JSON:
            form = self.random.random()
            if form < 0.2:
                content_type, body = BATCHES, codec.encode_values(values, TIMESTAMP_MS)
            elif len(values) > 1 or form < 0.6:
                body = b"[%b]" % b",".join(values)
        data = request_bytes("POST", topic.target(partition), {"Content-Type": content_type, **claim}, body)
        return Request(data, unit, topic, partition)

    def count_for(self, topic: Topic) -> int:
        """How many records the next request has: only JSON arrays hold several."""
        return self.random.randint(1, RECORDS_MAX) if topic.content_type == JSON else 1

    def confirmed(self, request: Request, answer: Answer) -> None:
        unit = request.unit
        assert unit is not None
        duplicate = answer.flag("stream-duplicate")
        if answer.status != (204 if duplicate else self.status_new) or answer.flag("stream-gone"):
            self.ledger.refused(unit.name, f"{answer} {answer.headers}")
            return
        self.ledger.succeeded(self.name, unit, duplicate=duplicate, again=request.again)
        next_ = answer.number("stream-next-offset")
        if next_ >= 0:
            stream_id = STREAM_IDS[request.topic.name, request.partition]
            self.ledger.placed(unit, unit.identities, stream_id, next_ - len(unit.identities), next_)
        elif not request.again:  # five later ones may have been in flight before one that is sent again on purpose
            self.ledger.findings.add("lost", f"{unit.name}: its retry was not told the offset")


class SequenceWriter(StreamWriter):
    """A producer that counts its requests. Now and then it starts over, and its former self tries to go on."""

    topic: ClassVar[Topic]
    partition: ClassVar[int] = 0
    again_share: ClassVar[float] = 0.05
    zombie_share: ClassVar[float] = 0.05
    run_max: ClassVar[int] = 400
    """Requests before it starts over, at most."""

    def __init__(self, name: str, network: Network) -> None:
        super().__init__(name, network)
        self.run = 0
        """How often it has started over."""
        self.next_sequence = 0
        self._run_end = self.random.randint(1, self.run_max)
        self._open: set[int] = set()
        self._parked: list[tuple[int, Lane, Request]] = []
        """Early ones that wait for the sequence named first."""
        self._last: Request | None = None

    @property
    def floor(self) -> int:
        """Every sequence below it is confirmed."""
        return min(self._open, default=self.next_sequence)

    @property
    def unsettled(self) -> int:
        return super().unsettled + len(self._parked)

    @property
    def has_begun(self) -> bool:
        """Whether the present run is known to have displaced the one before."""
        return self.next_sequence > 0 and 0 not in self._open

    def claim(self, run: int, sequence: int) -> Headers:
        """The headers of a sequence."""
        raise NotImplementedError

    def next_request(self) -> Request | None:
        if self.finishing or self.next_sequence - self.floor >= self.depth:
            return None
        chance = self.random.random()
        if self._last is not None and chance < self.again_share and self.may_repeat(self._last.sequence):
            again = Request(self._last.data, self._last.unit, self._last.topic, self._last.partition)
            again.again = True
            return again
        if self.run and self.has_begun and chance > 1 - self.zombie_share:
            return self._zombie()
        if self.next_sequence >= self._run_end:
            if self.unsettled:
                return None  # what is unknown can be settled only by this run
            self._start_over()
        return self._fresh()

    def _fresh(self) -> Request:
        sequence = self.next_sequence
        identities = self.identities(self.count_for(self.topic))
        unit = self.ledger.unit(f"{self.name} run {self.run} sequence {sequence}", identities)
        claim = self.claim(self.run, sequence) | self.condition(len(identities))
        request = self.append(self.topic, self.partition, claim, identities, unit)
        request.sequence = sequence
        self.next_sequence += 1
        self._open.add(sequence)
        return request

    def may_repeat(self, _sequence: int) -> bool:
        """Whether a sequence that was confirmed may be sent again on purpose."""
        return True

    def condition(self, _count: int) -> Headers:
        """More headers of a request with so many new records."""
        return {}

    def _start_over(self) -> None:
        self.run += 1
        self.next_sequence = 0
        self._run_end = self.random.randint(1, self.run_max)
        self._last = None

    def _zombie(self) -> Request | None:
        """A request of the run before."""
        identities = self.identities(self.count_for(self.topic))
        claim = self.claim(self.run - 1, self.random.choice((0, self.run_max)))
        unit = self.doomed_unit(f"zombie of run {self.run - 1}", identities)
        request = self.append(self.topic, self.partition, claim, identities, unit)
        request.refusal = "fenced"
        return request

    def sending(self, request: Request) -> None:
        super().sending(request)
        request.floor = self.floor

    def answered(self, lane: Lane, request: Request, answer: Answer) -> None:
        if answer.code in EARLY and self._is_early(request, answer):
            self.ledger.gaps += 1
            self._parked.append((answer.json()["expected"], lane, request))
        else:
            super().answered(lane, request, answer)
        self._release()

    def _is_early(self, request: Request, answer: Answer) -> bool:
        """Whether the gap is one that overtaking explains: a sequence is missing that was not confirmed either."""
        expected: int = answer.json()["expected"]
        return self.lane_count > 1 and request.floor <= expected < request.sequence

    def _release(self) -> None:
        for parked in list(self._parked):
            missing, lane, request = parked
            if self.floor > missing:
                self._parked.remove(parked)
                lane.queue.append(request)

    def confirmed(self, request: Request, answer: Answer) -> None:
        if request.sequence >= 0:
            self._open.discard(request.sequence)
            self._last = request
        super().confirmed(request, answer)


class ProducerWriter(SequenceWriter):
    """durable-streams headers, pipelined on one connection; half of its requests also say where the stream ends."""

    label = "Producer-*, If-Match"
    topic = SOLE
    status_new = 200

    def __init__(self, name: str, network: Network) -> None:
        super().__init__(name, network)
        self._tail = 0

    def claim(self, run: int, sequence: int) -> Headers:
        return {"Producer-Id": self.name, "Producer-Epoch": run, "Producer-Seq": sequence}

    def condition(self, count: int) -> Headers:
        tail, self._tail = self._tail, self._tail + count
        return {"If-Match": f'"{tail:016d}"'} if self.random.random() < 0.5 else {}


class OvertakingWriter(SequenceWriter):
    """durable-streams headers, five in flight over several connections, so that they overtake each other; half of its
    requests carry a message id as well: two claims, one effect."""

    label = "Producer-*, 3 connections"
    topic = SHARED
    lane_count = 3
    run_max = 60
    status_new = 200

    def claim(self, run: int, sequence: int) -> Headers:
        return {"Producer-Id": self.name, "Producer-Epoch": run, "Producer-Seq": sequence}

    def condition(self, _count: int) -> Headers:
        if self.random.random() < 0.5:
            return {}
        return {"Stream-Message-Id": f"{self.name}-{self.random.getrandbits(64):x}"}


class ManagedWriter(SequenceWriter):
    """The X- dialect: the server counts the epochs, one for every time that the producer starts over."""

    topic = SHARED
    status_new = 201

    def confirmed(self, request: Request, answer: Answer) -> None:
        epoch = answer.number("x-producer-epoch")
        if epoch != self.run + 1:
            # Sequence 0 was taken for a restart when it was a retry, or the other way round.
            self.ledger.refused(f"{self.name} run {self.run} sequence {request.sequence}", f"epoch {epoch}: {answer}")
        elif answer.number("x-stream-offset") + 1 != max(0, answer.number("stream-next-offset")):
            self.ledger.refused(f"{self.name} sequence {request.sequence}", f"two offsets: {answer.headers}")
        super().confirmed(request, answer)


class SessionWriter(ManagedWriter):
    """X- with a session, five in flight over several connections."""

    label = "X-*, session, 3 connections"
    partition = 1
    lane_count = 3
    run_max = 60

    def claim(self, run: int, sequence: int) -> Headers:
        claim: Headers = {"X-Producer-Id": self.name, "X-Producer-Seq": sequence, "X-Producer-Session": f"run-{run}"}
        # It is known only from an answer.
        if (run < self.run or self.has_begun) and self.random.random() < 0.3:
            claim["X-Producer-Epoch"] = run + 1
        return claim


class SessionlessWriter(ManagedWriter):
    """X- without a session, on one connection. It starts over often: a lost sequence 0 is what is hard here."""

    label = "X-*, no session"
    topic = OPAQUE
    zombie_share = 0.0  # without a session a former self looks like one more restart
    run_max = 20
    needs_order = True  # a copy of sequence 0 that comes late looks like one too

    def claim(self, _run: int, sequence: int) -> Headers:
        return {"X-Producer-Id": self.name, "X-Producer-Seq": sequence}

    def may_repeat(self, sequence: int) -> bool:
        # A 0 with more than five batches behind it is a restart: one that nobody waits for may be retried that late.
        return sequence > 0


class IdWriter(StreamWriter):
    """Message ids on several connections: sent again freely, twice at once, long after, with other content."""

    label = "message ids, 3 connections"
    depth = 6
    lane_count = 3
    status_new = 204
    again_share: ClassVar[float] = 0.15
    twin_share: ClassVar[float] = 0.1
    conflict_share: ClassVar[float] = 0.04
    doomed_share: ClassVar[float] = 0.04

    def __init__(self, name: str, network: Network) -> None:
        super().__init__(name, network)
        self._known: deque[Request] = deque(maxlen=5_000)
        self._twin: Request | None = None

    def next_request(self) -> Request | None:
        if self.finishing:
            return None
        if self._twin is not None:
            twin, self._twin = self._twin, None
            return self._copy(twin)
        chance = self.random.random()
        if self._known and chance < self.again_share:
            again = self._copy(self.random.choice(self._known))
            again.again = True
            return again
        chance -= self.again_share
        if self._known and chance < self.conflict_share:
            return self._conflict()
        chance -= self.conflict_share
        if chance < self.doomed_share:
            return self._doomed()
        request = self._fresh()
        if self.random.random() < self.twin_share:
            self._twin = request
        return request

    def _fresh(self) -> Request:
        identities = self.identities(self.count_for(IDS))
        unit = self.ledger.unit(f"{self.name} {self.number}", identities)
        return self.identified(identities[0].decode(), identities, unit, self.number % IDS.partitions)

    def identified(
        self,
        message_id: str,
        identities: list[Identity],
        unit: Unit | None,
        partition: int,
        more: Headers | None = None,
    ) -> Request:
        """The request that appends these records under a message id."""
        header = self.random.choice(("Stream-Message-Id", "Idempotency-Key"))
        return self.append(IDS, partition, {header: message_id, **(more or {})}, identities, unit)

    def _copy(self, request: Request) -> Request:
        return Request(request.data, request.unit, request.topic, request.partition)

    def _conflict(self) -> Request:
        """Other content under a known id (P3)."""
        known = self.random.choice(self._known)
        assert known.unit is not None
        identities = self.identities(1)
        unit = self.doomed_unit("other content under a known id", identities)
        message_id = known.unit.identities[0].decode()
        request = self.identified(message_id, identities, unit, known.partition)
        request.refusal = "id_conflict"
        return request

    def _doomed(self) -> Request:
        """A new id, and a condition that is false."""
        identities = self.identities(1)
        unit = self.doomed_unit("a false If-Match", identities)
        request = self.identified(identities[0].decode(), identities, unit, 0, {"If-Match": f'"{1 << 40}"'})
        request.refusal = "tail_mismatch"
        return request

    def confirmed(self, request: Request, answer: Answer) -> None:
        super().confirmed(request, answer)
        if not request.again:
            self._known.append(request)
