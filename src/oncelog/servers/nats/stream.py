"""One JetStream stream on a partition of a topic: what it holds by subject, kept up to date with the log.

Everything here is derived from the stream's records and its configuration. What a limit, a rollup or a time to live
removes is hidden at once and removed from the log by a command afterwards: after a crash in between, the same rule
hides it again.

Readers are isolated: records of one group of the journal appear all at once (`_reveal`), so no consumer and no answer
sees part of an atomic batch.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Any, Final, Protocol

from oncelog.core.outcome import Outcome, Refusal
from oncelog.core.rows import Topic
from oncelog.protocols.nats import headers as header_blocks
from oncelog.protocols.nats.batch import Batches, OpenBatches
from oncelog.protocols.nats.index import Index
from oncelog.protocols.nats.publishing import MESSAGE_ID, ROLLUP, TTL, ttl_of
from oncelog.protocols.nats.stored import RAW, Stored, header_of, subject_of
from oncelog.protocols.nats.stream_config import StreamConfig
from oncelog.servers.nats.log import Log, Piece, Record
from oncelog.servers.nats.router import Router

READ_BYTES: Final = 1 << 20
RANGES_MAX: Final = 20_000
KEYS_CACHED_MAX: Final = 50_000


class StreamConsumer(Protocol):
    """A consumer, as far as its stream needs it."""

    def arrived(self, offset: int, subject: str) -> None: ...
    def removed(self, offset: int, subject: str) -> None: ...
    def pump(self) -> None: ...
    def wants(self, subject: str) -> bool: ...
    def needs(self, offset: int) -> bool: ...
    def has_settled(self, offset: int) -> bool: ...


class Streams(Protocol):
    """All streams (`jetstream.py`), as far as one of them and its consumers need them."""

    log: Log
    loop: asyncio.AbstractEventLoop
    router: Router
    cache: "MessageCache"
    open_batches: OpenBatches
    batch_msg_id_refused: bool
    is_in_turn: bool

    def vanished(self, stream: "LiveStream") -> None: ...
    def loaded(self, stream: "LiveStream") -> None: ...
    def barrier(self, stream: "LiveStream", done: Callable[[], None]) -> None: ...
    def wants_store(self, consumer: Any) -> None: ...
    def store_soon(self) -> None: ...
    def advise_max_deliveries(self, consumer: Any, sequence: int, consumer_sequence: int, count: int) -> None: ...


class LiveStream:
    """One stream in use."""

    def __init__(
        self, js: Streams, name: str, row: Topic, partition: int, config: StreamConfig, *, is_native: bool
    ) -> None:
        self.js = js
        self.log = js.log
        self.name = name
        self.topic = row.name
        self.topic_id = row.topic_id
        self.partition = partition
        self.stream_id = row.stream_ids[partition]
        self.created_ns = row.created_ns
        self.config = config
        self.is_native = is_native
        """Made through NATS: keys are subjects."""
        self.prefix = "" if is_native else f"{name}."
        self._raw = f"{name}.{RAW}"
        self.index = Index(self.log.floor(self.stream_id))
        self.batches = Batches(js.open_batches)
        self.consumers: dict[str, StreamConsumer] = {}
        self.followers: list[Callable[[], None]] = []
        """Called when there is more: streams that copy from this one."""
        self.last_msg_id = ""
        self.last_time_ns = 0
        self.is_ready = False
        """Everything that was there at the start is known."""
        self.is_deleted = False
        self._waiting: list[Callable[[], object]] = []
        self._buffer: list[Record] = []
        self._read_to = self.index.next
        self._target = 0
        self._waiter: Any = None
        self._keys: dict[bytes, str] = {}
        self._removed: list[int] = []
        self._is_removing = False
        self._on_removed: list[Callable[[], None]] = []
        self._expiries: list[tuple[int, int]] = []

    # --- following the log -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Learn what is there, then follow."""
        self._target = self.log.stable(self.stream_id)
        self._read()

    def stop(self) -> None:
        """Follow no more."""
        self.is_deleted = True
        if self._waiter is not None:
            self.log.cancel(self._waiter)
            self._waiter = None
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def _read(self) -> None:
        self._waiter = None
        if not self.is_deleted:
            self.log.read(self.topic, self.partition, self._read_to, READ_BYTES, self._found)

    def _found(self, piece: Piece | Refusal) -> None:
        if self.is_deleted:
            return
        if isinstance(piece, Refusal):
            if self.log.topic(self.topic) is None:
                self.js.vanished(self)
            else:
                self.js.loop.call_later(1.0, self._read)
            return
        self._read_to = max(self._read_to, piece.next if piece.records or piece.next > piece.floor else piece.floor)
        self._buffer += piece.records
        if self._read_to >= self._target:
            self._reveal()
        elif not self.is_ready:
            self._apply(self._read_to)  # nobody sees it yet
        if self._read_to < self.log.stable(self.stream_id):
            self._target = self.log.stable(self.stream_id)
            self.js.loop.call_soon(self._read)
        else:
            self._follow()

    def _follow(self) -> None:
        if not self.is_ready:
            self.is_ready = True
            self.js.loaded(self)
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()
        waiter = self.log.wait(self.topic, self.partition, self._read_to, self._woken)
        if waiter is None:
            self._woken()
        elif isinstance(waiter, Refusal):
            self.js.vanished(self)
        else:
            self._waiter = waiter

    def _woken(self) -> None:
        self._waiter = None
        if not self.is_deleted:
            if self.log.topic(self.topic) is None:
                self.js.vanished(self)
                return
            self._target = self.log.stable(self.stream_id)
            if self._target <= self._read_to:
                self.js.loop.call_later(0.05, self._read)  # closed: nothing more comes
                return
            self._read()

    def _reveal(self) -> None:
        """Records up to a point where a group of the journal ends."""
        self._apply(self._target)
        if self.is_ready:
            for consumer in self.consumers.values():
                consumer.pump()
            for follow in self.followers:
                follow()

    def _apply(self, until: int) -> None:
        buffer, self._buffer = self._buffer, []
        for at, record in enumerate(buffer):
            if record.offset >= until:
                self._buffer = buffer[at:]
                break
            self._add(record)
        self.index.skip_to(min(until, self._read_to))
        self._remove_from_log()

    def _add(self, record: Record) -> None:
        key = record.key or b""
        subject = self._keys.get(key)
        if subject is None:
            subject = subject_of(record.key, self.prefix, self._raw)
            if len(self._keys) >= KEYS_CACHED_MAX:
                self._keys.clear()
            self._keys[key] = subject
        header = header_of(record.headers, record.key, is_raw=subject == self._raw)
        stored = Stored(record.offset + 1, subject, header, record.value, record.time_ns)
        self.index.add(record.offset, subject, stored.size, record.time_ns)
        self.js.cache.keep(self.stream_id, record.offset, stored)
        self.last_time_ns = record.time_ns
        self.last_msg_id = ""
        for consumer in self.consumers.values():
            consumer.arrived(record.offset, subject)
        # Limits first: a message that rolls up also pushed out the oldest one of a full stream, as in the real server.
        self._limit(subject)
        if header and b"Nats-" in header:
            self._obey(record.offset, subject, header)
        if self.config.retention == "interest" and self.is_ready and not self._is_wanted(subject):
            self.remove(record.offset)

    def _obey(self, offset: int, subject: str, header: bytes) -> None:
        """Headers that change what else is there."""
        fields = header_blocks.parse(header) or []
        self.last_msg_id = header_blocks.first(fields, MESSAGE_ID) or ""
        rollup = header_blocks.first(fields, ROLLUP)
        if rollup and self.config.allow_rollup_hdrs and not self.config.deny_purge:
            filters = [subject] if rollup == "sub" else []
            for each in self.index.live(self.index.floor, offset, filters):
                self.remove(each)
        ttl = header_blocks.first(fields, TTL)
        if ttl and self.config.allow_msg_ttl:
            ttl_ns = ttl_of(ttl)
            if ttl_ns is not None and ttl_ns > 0:
                heapq.heappush(self._expiries, (self.last_time_ns + ttl_ns, offset))

    def _limit(self, subject: str) -> None:
        config, index = self.config, self.index
        if config.max_msgs_per_subject > 0:
            row = index.rows.get(subject)
            while row is not None and row.count > config.max_msgs_per_subject:
                self.remove(index.first_of(row))
        if config.discard == "old":
            while 0 < config.max_msgs < index.count or (0 < config.max_bytes < index.bytes and index.count > 0):
                self.remove(index.next_live(index.floor, []))

    def _is_wanted(self, subject: str) -> bool:
        return any(consumer.wants(subject) for consumer in self.consumers.values())

    def apply_limits(self) -> None:
        """After a new configuration: what it no longer allows is removed."""
        for subject in list(self.index.rows):
            self._limit(subject)
        self.tick(self.log.now_ns())

    # --- removing --------------------------------------------------------------------------------------------------

    def remove(self, offset: int) -> bool:
        """Hide a record now; `_remove_from_log` removes it. False if it was not there."""
        row = self.index.remove(offset)
        if row is None:
            return False
        self._removed.append(offset)
        for consumer in self.consumers.values():
            consumer.removed(offset, row.name)
        return True

    def removed_all(self) -> None:
        """Some `remove` calls are done: have the log remove them too."""
        self._remove_from_log()

    def _remove_from_log(self) -> None:
        if self._is_removing or not self._removed or self.is_deleted:
            return
        floor = self.index.floor if self.index.count else self.index.next
        offsets = sorted(offset for offset in self._removed if offset >= floor)
        self._removed.clear()
        if floor > self.log.floor(self.stream_id):
            self.log.trim(self.topic, self.partition, floor, lambda _outcome: None)
        ranges: list[int] = []
        for at, offset in enumerate(offsets):
            if ranges and ranges[-1] == offset:
                ranges[-1] = offset + 1
            elif len(ranges) >= RANGES_MAX:
                self._removed = offsets[at:]
                break
            else:
                ranges += (offset, offset + 1)
        if ranges:
            self._is_removing = True
            self.log.delete(self.topic, self.partition, ranges, self._removal_done)

    def _removal_done(self, _outcome: Outcome) -> None:
        self._is_removing = False
        self._remove_from_log()
        if not self._is_removing:
            calls, self._on_removed = self._on_removed, []
            for call in calls:
                call()

    def when_removed(self, call: Callable[[], None]) -> None:
        """Call once everything that is hidden is removed from the log, durably."""
        self._remove_from_log()
        if self._is_removing or self._removed:
            self._on_removed.append(call)
        else:
            self.js.barrier(self, call)

    def settled(self, offset: int) -> None:
        """A consumer has acked a record: a work queue, or an interest stream that nobody else waits for, removes it."""
        if self.config.retention == "limits":
            return
        if self.config.retention == "interest" and any(each.needs(offset) for each in self.consumers.values()):
            return
        self.remove(offset)

    def sweep_interest(self) -> None:
        """Interest streams, after a start or the end of a consumer: records that nobody waits for any more. Work
        queues, after a start: records that were acked and not removed yet."""
        if self.config.retention == "limits":
            return
        for offset in self.index.live(self.index.floor, self.index.next):
            if self.config.is_work_queue:
                done = any(each.has_settled(offset) for each in self.consumers.values())
            else:
                done = not any(each.needs(offset) for each in self.consumers.values())
            if done:
                self.remove(offset)
        self._remove_from_log()

    def tick(self, now_ns: int) -> None:
        """Time passes: age, times to live."""
        if not self.is_ready:
            return
        if self.config.max_age > 0 and self.index.count:
            until = self.index.older_than(now_ns - self.config.max_age)
            if until > self.index.floor:
                for offset in self.index.live(self.index.floor, until):
                    self.remove(offset)
        while self._expiries and self._expiries[0][0] <= now_ns:
            self.remove(heapq.heappop(self._expiries)[1])
        self._remove_from_log()

    def sync_floor(self) -> None:
        """Records that another face has trimmed."""
        floor = self.log.floor(self.stream_id)
        if self.index.count and floor > self.index.floor:
            for offset in self.index.live(self.index.floor, floor):
                self.remove(offset)
            self._remove_from_log()

    # --- reading ---------------------------------------------------------------------------------------------------

    def when_current(self, call: Callable[[], object]) -> None:
        """Call once everything that is durable now is known here."""
        if self.is_ready and self.index.next >= self.log.stable(self.stream_id):
            self.sync_floor()
            call()
        else:
            self._waiting.append(call)

    def fetch(self, offset: int, found: Callable[[Stored | None], None]) -> None:
        """A message; None if it is gone or cannot be read."""
        kept = self.js.cache.get(self.stream_id, offset)
        if kept is not None:
            found(kept)
            return

        def read(piece: Piece | Refusal) -> None:
            if isinstance(piece, Refusal):
                found(None)
                return
            wanted: Stored | None = None
            for record in piece.records:
                stored = self._stored(record)
                self.js.cache.keep(self.stream_id, record.offset, stored)
                if record.offset == offset:
                    wanted = stored
            found(wanted)

        self.log.read(self.topic, self.partition, offset, READ_BYTES // 4, read)

    def _stored(self, record: Record) -> Stored:
        subject = subject_of(record.key, self.prefix, self._raw)
        header = header_of(record.headers, record.key, is_raw=subject == self._raw)
        return Stored(record.offset + 1, subject, header, record.value, record.time_ns)

    @property
    def last_sequence(self) -> int:
        return self.index.next


class MessageCache:
    """Decoded messages, oldest dropped first: what was just written is delivered without a read."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: dict[tuple[int, int], Stored] = {}

    def keep(self, stream_id: int, offset: int, stored: Stored) -> None:
        """Remember one."""
        key = (stream_id, offset)
        if key in self._kept:
            return
        self._kept[key] = stored
        self._bytes += len(stored.payload) + len(stored.header) + 400
        while self._bytes > self._bytes_max:
            oldest = self._kept.pop(next(iter(self._kept)))
            self._bytes -= len(oldest.payload) + len(oldest.header) + 400

    def get(self, stream_id: int, offset: int) -> Stored | None:
        """One that is remembered."""
        return self._kept.get((stream_id, offset))
