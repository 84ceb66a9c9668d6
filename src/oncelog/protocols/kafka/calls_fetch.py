"""Fetch: wait until there is enough, then read partition after partition up to the client's bounds.

Sessions are not kept: the answer names session 0, and clients then name all their partitions every time.
"""

from functools import partial

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.outcome import Refusal
from oncelog.protocols.kafka.broker import LEADER_EPOCH, Broker
from oncelog.protocols.kafka.codes import Code
from oncelog.protocols.kafka.fetch import FetchAnswer, FetchPartition, FetchRequest, read_fetch, write_fetch
from oncelog.protocols.kafka.log import Found, Place
from oncelog.protocols.kafka.refusal_map import code_of
from oncelog.protocols.kafka.session import Call
from oncelog.protocols.kafka.wire import Buffer


def fetch(broker: Broker, call: Call) -> None:
    """Begins when the answers before it are out."""
    request = read_fetch(call.head.reader, call.version)
    if request.session_id != 0:
        call.answer_body(write_fetch(call.version, [], Code.FETCH_SESSION_ID_NOT_FOUND))
        return
    fetching = _Fetching(broker, call, request)
    call.session.when_first(call, fetching.begin)


class _Fetching:
    """One request in progress."""

    def __init__(self, broker: Broker, call: Call, request: FetchRequest) -> None:
        self._log = broker.log
        self._call = call
        self._request = request
        self._bytes_max = min(max(request.max_bytes, 1), limits.KAFKA_FETCH_BYTES_MAX)
        self._answers: list[FetchAnswer] = []
        self._size = 0

    def begin(self) -> None:
        """Wait until there is enough, then read."""
        request = self._request
        places = [Place(each.topic, each.partition, each.offset) for each in request.partitions]
        self._call.waits_for = self._log.wait(
            places,
            committed=request.committed,
            bytes_min=max(request.min_bytes, 0),
            wait_ms=min(max(request.max_wait_ms, 0), limits.KAFKA_FETCH_WAIT_MS_MAX),
            wake=self._woken,
        )
        if self._call.waits_for is None:
            self._read_next()

    def _woken(self) -> None:
        self._call.waits_for = None
        self._read_next()

    def _read_next(self) -> None:
        """The partition after those that are answered. Reads that are answered at once make a loop, not a recursion."""
        partitions = self._request.partitions
        while len(self._answers) < len(partitions):
            at = len(self._answers)
            wanted = partitions[at]
            refused = self._refused(wanted)
            if refused is not None:
                self._add(refused)
                continue
            if self._size >= self._bytes_max:
                self._add(self._standing(wanted))
                continue
            room = min(self._bytes_max - self._size, max(wanted.bytes_max, 1))
            place = Place(wanted.topic, wanted.partition, wanted.offset)
            is_now = _Now()
            reading = self._log.read(
                place, room, committed=self._request.committed, found=partial(self._found, wanted, is_now)
            )
            if not is_now.is_done:
                is_now.is_late = True
                self._call.waits_for = reading
                return
        self._call.answer_body(write_fetch(self._call.version, self._answers))

    def _found(self, wanted: FetchPartition, is_now: "_Now", found: Found | Refusal) -> None:
        is_now.is_done = True
        self._call.waits_for = None
        self._add(_failed(wanted, found) if isinstance(found, Refusal) else self._answer_of(wanted, found))
        if is_now.is_late:
            self._read_next()

    def _add(self, answer: FetchAnswer) -> None:
        self._answers.append(answer)
        self._size += sum(len(piece) for piece in answer.records)

    def _refused(self, wanted: FetchPartition) -> FetchAnswer | None:
        if wanted.leader_epoch > LEADER_EPOCH:
            return FetchAnswer(wanted.topic, wanted.partition, Code.UNKNOWN_LEADER_EPOCH)
        return None

    def _standing(self, wanted: FetchPartition) -> FetchAnswer:
        """Where a partition stands for which there is no room in this answer."""
        row = self._log.topic(wanted.topic)
        stream = None
        if row is not None and 0 <= wanted.partition < len(row.stream_ids):
            stream = self._log.stream(row.stream_ids[wanted.partition])
        if stream is None:
            return FetchAnswer(wanted.topic, wanted.partition, Code.UNKNOWN_TOPIC_OR_PARTITION)
        aborted = () if self._request.committed else None
        return FetchAnswer(wanted.topic, wanted.partition, Code.NONE, stream.tail, stream.stable, stream.floor, aborted)

    def _answer_of(self, wanted: FetchPartition, found: Found) -> FetchAnswer:
        records: list[Buffer] = []
        for base_offset, batch in found.batches:
            # The leader epoch stands behind the length, outside the checksum like the base offset.
            records += (
                base_offset.to_bytes(8, "big") + batch[8:12] + _LEADER_EPOCH,
                memoryview(batch)[codec.MAGIC_AT :],
            )
        aborted = found.aborted if self._request.committed else None
        return FetchAnswer(
            wanted.topic,
            wanted.partition,
            Code.NONE,
            found.tail,
            found.stable,
            found.floor,
            aborted,
            tuple(records),
        )


_LEADER_EPOCH = LEADER_EPOCH.to_bytes(4, "big")


class _Now:
    """Whether a read was answered before the call that asked for it returned."""

    def __init__(self) -> None:
        self.is_done = False
        self.is_late = False


def _failed(wanted: FetchPartition, refusal: Refusal) -> FetchAnswer:
    return FetchAnswer(wanted.topic, wanted.partition, code_of(refusal))
