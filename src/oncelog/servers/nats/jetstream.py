"""JetStream on the engine: the streams in use, who stores a subject, consumers at a start, advisories, time.

A stream made through NATS is a topic of one partition whose JetStream configuration is kept, word for word, among the
topic's attributes. A topic made through another face becomes a stream when somebody asks for it by name or subject.
"""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from oncelog import limits as bounds
from oncelog.core.command import GetStream
from oncelog.core.outcome import Outcome
from oncelog.core.rows import Topic, TopicConfig
from oncelog.protocols.nats import batch as batches
from oncelog.protocols.nats import errors, guard, publishing, stream_config
from oncelog.protocols.nats import headers as header_blocks
from oncelog.protocols.nats import subject as subjects
from oncelog.protocols.nats.batch import Accepted, Member, OpenBatches, Refused
from oncelog.protocols.nats.consumer_config import ConsumerConfig
from oncelog.protocols.nats.delivery import DeliveryState
from oncelog.protocols.nats.errors import ApiError, store_failed
from oncelog.protocols.nats.headers import Headers
from oncelog.protocols.nats.parser import Message
from oncelog.protocols.nats.stream_config import Source, StreamConfig
from oncelog.protocols.nats.sublist import Sublist
from oncelog.protocols.nats.times import json_time
from oncelog.servers.nats.consumer import Consumer
from oncelog.servers.nats.log import Log, SavedConsumer
from oncelog.servers.nats.publisher import Publisher
from oncelog.servers.nats.router import Router
from oncelog.servers.nats.stream import LiveStream, MessageCache
from oncelog.servers.nats.transfers import TRANSFER_NAME, Transfer

CONFIG_KEY: Final = "nats.config"
CACHE_BYTES: Final = 64 << 20
TICK_S: Final = 0.05
SLOW_TICKS: Final = 20
"""What need not be quick (ages, consumers without use) is looked at every so many ticks."""


class JetStream:
    """All streams of the server."""

    def __init__(
        self,
        log: Log,
        router: Router,
        loop: asyncio.AbstractEventLoop,
        limits: batches.Limits,
        *,
        batch_msg_id_refused: bool = False,
    ) -> None:
        self.log = log
        self.router = router
        self.loop = loop
        self.open_batches = OpenBatches(limits)
        self.batch_msg_id_refused = batch_msg_id_refused
        self.cache = MessageCache(CACHE_BYTES)
        self.streams: dict[str, LiveStream] = {}
        self.publishers: dict[str, Publisher] = {}
        self.by_subject: Sublist[LiveStream] = Sublist()
        self.dirty: dict[Consumer, None] = {}
        """Consumers whose acks are to be stored at the end of this turn."""
        self.transfers: dict[int, dict[tuple[str, str], Transfer]] = {}
        """By id of the stream that copies, then by origin and filter."""
        self._touched: dict[Publisher, None] = {}
        self._saved: dict[tuple[str, int], list[SavedConsumer]] = {}
        self._numbers = itertools.count(1)
        self._ticks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._loading = 0
        self._on_loaded: Callable[[], None] = lambda: None
        self.is_in_turn = False
        """A socket is being read: `turn_over` follows."""
        self.is_stopping = False

    # --- start and stop --------------------------------------------------------------------------------------------

    def start(self, loaded: Callable[[], None]) -> None:
        """Bring back streams and consumers; `loaded` is called once all of them stand as they stood."""
        self._on_loaded = loaded
        self._timer = self.loop.call_later(TICK_S, self._tick)
        self.log.consumers(self._begin)

    def _begin(self, saved: list[SavedConsumer]) -> None:
        for each in saved:
            self._saved.setdefault((each.topic, each.partition), []).append(each)
        self._loading = 1
        for row in self.log.topics():
            config = native_config(row)
            if config is not None:
                self._loading += 1
                self.adopt(row, config)
        for topic, partition in list(self._saved):
            row_ = self.log.topic(topic)
            if row_ is not None and native_config(row_) is None:
                self._loading += 1
                self._use_foreign(row_, partition)
        self._one_loaded()

    def _one_loaded(self) -> None:
        self._loading -= 1
        if self._loading == 0:
            call, self._on_loaded = self._on_loaded, lambda: None
            call()

    def loaded(self, stream: LiveStream) -> None:
        """A stream knows what it holds: its consumers come back."""
        for saved in self._saved.pop((stream.topic, stream.partition), []):
            if saved.name.startswith(TRANSFER_NAME):
                continue
            consumer = restored(stream, saved)
            if consumer is not None:
                stream.consumers[saved.name] = consumer
        stream.sweep_interest()
        stream.apply_limits()
        for consumer in consumers_of(stream).values():
            consumer.pump()
        self._follow_origins(stream)
        for other in list(self.streams.values()):
            if other.is_ready and any(source.name == stream.name for source in sources_of(other.config)):
                self._follow_origins(other)
        if self._loading:
            self._one_loaded()

    def _follow_origins(self, stream: LiveStream) -> None:
        """Copy what the configuration says, from streams that are there."""
        transfers = self.transfers.setdefault(stream.stream_id, {})
        wanted = {(source.name, source.filter_subject): source for source in sources_of(stream.config)}
        for key, transfer in list(transfers.items()):
            if key not in wanted or transfer.origin.is_deleted:
                transfer.end()
                del transfers[key]
        for key, source in wanted.items():
            origin = self.streams.get(source.name)
            if key not in transfers and origin is not None and origin.is_ready:
                transfers[key] = Transfer(origin, stream, source, is_mirror=stream.config.mirror is not None)

    def stop(self) -> None:
        """Drop open batches, with an advisory each, and tell who waits."""
        self.is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
        for stream in self.streams.values():
            for batch_id in stream.batches.drop_all():
                self.advise_batch(stream, batch_id, batches.INCOMPLETE)
            for consumer in consumers_of(stream).values():
                consumer.end(409, "Server Shutdown")
        self.turn_over()

    # --- streams ---------------------------------------------------------------------------------------------------

    def adopt(self, row: Topic, config: StreamConfig) -> LiveStream:
        """Use a topic that was made through NATS."""
        known = self.streams.get(row.name)
        if known is not None and known.topic_id == row.topic_id:
            return known
        stream = LiveStream(self, row.name, row, 0, config, is_native=True)
        self._use(stream)
        return stream

    def _use(self, stream: LiveStream) -> None:
        self.streams[stream.name] = stream
        self.publishers[stream.name] = Publisher(stream, self.reply)
        if stream.is_native:
            for pattern in stream.config.subjects or ():
                self.by_subject.add(pattern, "", stream)
        else:
            self.by_subject.add(f"{stream.prefix}>", "", stream)
        stream.start()

    def reply(self, reply: str, payload: bytes) -> None:
        """An answer to a publisher."""
        self.router.send(reply, payload)

    def vanished(self, stream: LiveStream) -> None:
        """The topic was deleted, through whichever face."""
        if self.streams.get(stream.name) is not stream:
            return
        del self.streams[stream.name]
        self.publishers[stream.name].flush()
        del self.publishers[stream.name]
        patterns = (stream.config.subjects or []) if stream.is_native else [f"{stream.prefix}>"]
        for pattern in patterns:
            self.by_subject.remove(pattern, "", stream)
        for batch_id in stream.batches.drop_all():
            self.advise_batch(stream, batch_id, batches.INCOMPLETE)
        for consumer in consumers_of(stream).values():
            consumer.end()
        stream.consumers.clear()
        for transfer in self.transfers.pop(stream.stream_id, {}).values():
            transfer.end()
        stream.stop()

    def reconfigure(self, stream: LiveStream, config: StreamConfig) -> None:
        """A new configuration is durable."""
        for pattern in stream.config.subjects or ():
            self.by_subject.remove(pattern, "", stream)
        had_atomic = stream.config.allow_atomic
        stream.config = config
        for pattern in config.subjects or ():
            self.by_subject.add(pattern, "", stream)
        if had_atomic and not config.allow_atomic:
            for batch_id in stream.batches.drop_all():
                self.advise_batch(stream, batch_id, batches.INCOMPLETE)
        for consumer in consumers_of(stream).values():
            consumer.recount()
        stream.apply_limits()
        self._follow_origins(stream)

    def find(self, name: str) -> LiveStream | None:
        """The stream of a name; a topic of another face is taken into use."""
        stream = self.streams.get(name)
        if stream is not None:
            row = self.log.topic(stream.topic)
            if row is not None and row.topic_id == stream.topic_id:
                return stream
            self.vanished(stream)
        place = self._foreign_place(name)
        return None if place is None else self._use_foreign(*place)

    def _foreign_place(self, name: str) -> tuple[Topic, int] | None:
        row = self.log.topic(name)
        if row is not None:
            config = native_config(row)
            if config is not None:
                self.adopt(row, config)
                return row, 0
            if len(row.stream_ids) == 1 and nats_name(row.name) == name:
                return row, 0
        return next(((row, part) for row, part, each in self.foreign() if each == name), None)

    def foreign(self) -> list[tuple[Topic, int, str]]:
        """Topics of other faces: (topic, partition, JetStream name)."""
        found: list[tuple[Topic, int, str]] = []
        for row in self.log.topics():
            if CONFIG_KEY in row.config.attributes:
                continue
            name = nats_name(row.name)
            if len(row.stream_ids) == 1:
                found.append((row, 0, name))
            else:
                found += [(row, number, f"{name}-{number}") for number in range(len(row.stream_ids))]
        return found

    def _use_foreign(self, row: Topic, partition: int) -> LiveStream:
        config = native_config(row)
        if config is not None:
            return self.adopt(row, config)
        name = nats_name(row.name)
        if len(row.stream_ids) > 1:
            name = f"{name}-{partition}"
        known = self.streams.get(name)
        if known is not None:
            return known
        prefix = f"{name}."
        if self.overlapping([f"{prefix}>"], None) is not None:
            prefix = f"$topic.{name}."
        stream = LiveStream(self, name, row, partition, foreign_config(name, prefix), is_native=False)
        stream.prefix = prefix
        self._use(stream)
        return stream

    def overlapping(self, patterns: list[str], but: LiveStream | None) -> LiveStream | None:
        """A stream made through NATS that would store the same subjects."""
        for stream in self.streams.values():
            if stream is not but and stream.is_native:
                for mine in patterns:
                    if any(subjects.overlaps(mine, other) for other in stream.config.subjects or ()):
                        return stream
        return None

    # --- publishing ------------------------------------------------------------------------------------------------

    def store(self, message: Message) -> bool:
        """Take a message for the stream that stores its subject; False if there is none."""
        subject = message.subject
        found = self.by_subject.match(subject).plain
        if not found:
            if subject[0] in "_$" or "." not in subject:
                return False
            foreign = self._foreign_stream(subject[: subject.index(".")])
            if foreign is None:
                return False
            found = [foreign]
        stream = found[0]
        publisher = self.publishers[stream.name]
        self._touched[publisher] = None
        reply = "" if stream.config.no_ack else message.reply
        if len(subject) > bounds.NATS_STREAM_SUBJECT_BYTES_MAX // 4:
            size, most = len(subject.encode()), bounds.NATS_STREAM_SUBJECT_BYTES_MAX
            if size > most:
                self._refuse(
                    stream, reply, store_failed(f"the subject has {size} bytes; a stored one has at most {most}")
                )
                return True
        if message.header or stream.config.sealed or stream.config.max_msg_size >= 0:
            self._take(stream, publisher, message, reply)
        else:
            publisher.put(stream_key(stream, subject), message.payload, [], reply, publishing.PLAIN)
        return True

    def _foreign_stream(self, name: str) -> LiveStream | None:
        """The stream of a topic of another face, by the first token of a subject. Looked up by name alone: a message
        that nobody stores must not cost a search."""
        row, partition = self.log.topic(name), 0
        if row is None:
            head, dash, number = name.rpartition("-")
            if not dash or not (number.isascii() and number.isdigit() and len(number) < 6):
                return None
            row, partition = self.log.topic(head), int(number)
            if row is None or not 1 < len(row.stream_ids) > partition:
                return None
        elif len(row.stream_ids) != 1:
            return None
        if native_config(row) is not None:
            return None
        stream = self._use_foreign(row, partition)
        return None if stream.prefix[0] == "$" else stream

    def _take(self, stream: LiveStream, publisher: Publisher, message: Message, reply: str) -> None:
        config = stream.config
        headers: Headers | None = []
        if message.header:
            headers = header_blocks.parse(message.header)
        error: ApiError | None = None
        if config.sealed:
            error = errors.STREAM_SEALED
        elif headers is None:
            error = errors.BAD_REQUEST
        elif 0 <= config.max_msg_size < len(message.header) + len(message.payload):
            error = errors.MESSAGE_TOO_LARGE
        elif len(message.header) > bounds.NATS_HEADER_BYTES_MAX:
            error = errors.HEADER_TOO_LARGE
        assert headers is not None or error is not None
        if error is not None:
            batch_id = header_blocks.first(headers or [], batches.ID)
            if batch_id is not None and stream.batches.abandon(batch_id):
                self.advise_batch(stream, batch_id, batches.INCOMPLETE)
            self._refuse(stream, reply, error)
            return
        assert headers is not None
        if batches.names_batch(headers):
            self._take_member(
                stream, publisher, Member(stream_key(stream, message.subject), headers, message.payload), reply
            )
            return
        wishes = publishing.wishes_of(headers, allows_ttl=config.allow_msg_ttl)
        if isinstance(wishes, ApiError):
            self._refuse(stream, reply, wishes)
            return
        error = guard.rollup_refused(config, wishes.rollup)
        if wishes.expected_stream is not None and wishes.expected_stream != stream.name:
            error = errors.EXPECTED_STREAM
        if error is not None:
            self._refuse(stream, reply, error)
            return
        kept = [each for each in headers if each[0].lower() != batches.REQUIRED_LEVEL.lower()]
        publisher.put(stream_key(stream, message.subject), message.payload, kept, reply, wishes)

    def _take_member(self, stream: LiveStream, publisher: Publisher, member: Member, reply: str) -> None:
        if not stream.config.allow_atomic:
            self._refuse(stream, reply, errors.BATCH_DISABLED)
            return
        taken = stream.batches.take(member, self.log.now_ns())
        match taken:
            case Accepted():
                if reply:
                    self.router.send(reply)
            case Refused(error, reason):
                if reason:
                    self.advise_batch(stream, header_blocks.first(member.headers, batches.ID) or "", reason)
                self._refuse(stream, reply, error)
            case _:
                publisher.put_batch(taken, reply)

    def _refuse(self, stream: LiveStream, reply: str, error: ApiError) -> None:
        if reply:
            self.router.send(reply, publishing.refusal(stream.name, error))

    def turn_over(self) -> None:
        """One read of a socket is done: send what it brought."""
        self.is_in_turn = False
        if self._touched:
            touched, self._touched = self._touched, {}
            for publisher in touched:
                publisher.flush()
        if self.dirty:
            self._store_consumers()

    def _store_consumers(self) -> None:
        """Deliveries and acks of this turn, of all consumers, in one command."""
        dirty, self.dirty = self.dirty, {}
        changed = [(consumer, update) for consumer in dirty if (update := consumer.take_update()) is not None]
        if not changed:
            return

        def told(_outcome: Outcome) -> None:
            for consumer, _ in changed:
                consumer.on_stored()

        self.log.update_consumers([update for _, update in changed], told)

    def wants_store(self, consumer: Consumer) -> None:
        """A consumer has acks to store at the end of this turn."""
        self.dirty[consumer] = None

    def store_soon(self) -> None:
        """Acks wait although no socket is being read."""
        self.loop.call_soon(self.turn_over)

    # --- time ------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._timer = self.loop.call_later(TICK_S, self._tick)
        now = self.log.now_ns()
        self._ticks += 1
        slow = self._ticks % SLOW_TICKS == 0
        for stream in list(self.streams.values()):
            for consumer in list(consumers_of(stream).values()):
                consumer.tick(now)
            if len(stream.batches):
                for batch_id in stream.batches.expired(now):
                    self.advise_batch(stream, batch_id, batches.TIMEOUT)
            if slow or stream.config.max_age:
                stream.tick(now)
            if slow:
                for consumer in list(consumers_of(stream).values()):
                    if consumer.is_inactive(now):
                        self.remove_consumer(consumer)
        self.turn_over()

    # --- consumers -------------------------------------------------------------------------------------------------

    def remove_consumer(self, consumer: Consumer, done: Callable[[], None] = lambda: None) -> None:
        """Forget a consumer; `done` is called once that is durable."""
        stream = consumer.stream
        stream.consumers.pop(consumer.name, None)
        consumer.end()
        if stream.config.retention == "interest":
            stream.sweep_interest()

        def told(_outcome: Outcome) -> None:
            done()

        stream.log.delete_consumer(consumer.name, stream.topic, stream.partition, told)

    def barrier(self, stream: LiveStream, done: Callable[[], None]) -> None:
        """Call once everything that was decided so far is durable."""
        self.log.submit(GetStream(stream.topic, stream.partition), lambda _outcome: done())

    # --- advisories ------------------------------------------------------------------------------------------------

    def advise_batch(self, stream: LiveStream, batch_id: str, reason: str) -> None:
        """An atomic batch was abandoned (seed 000)."""
        fields = {"stream": stream.name, "batch": batch_id, "reason": reason}
        subject = f"$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.{stream.name}"
        self.advise(subject, "io.nats.jetstream.advisory.v1.batch_abandoned", fields)

    def advise_max_deliveries(self, consumer: Consumer, sequence: int, consumer_sequence: int, count: int) -> None:
        """A message was delivered as often as it may be."""
        stream = consumer.stream.name
        fields = {
            "stream": stream,
            "consumer": consumer.name,
            "stream_seq": sequence,
            "consumer_seq": consumer_sequence,
            "deliveries": count,
        }
        subject = f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream}.{consumer.name}"
        self.advise(subject, "io.nats.jetstream.advisory.v1.max_deliver", fields)

    def advise(self, subject: str, kind: str, fields: dict[str, Any]) -> None:
        """Publish an advisory, if somebody listens."""
        if self.router.has_interest(subject):
            now = self.log.now_ns()
            event = {"type": kind, "id": f"{now:x}{next(self._numbers):06x}", "timestamp": json_time(now), **fields}
            self.router.send(subject, msgspec.json.encode(event))


def sources_of(config: StreamConfig) -> list[Source]:
    """Where a stream copies from."""
    return [config.mirror] if config.mirror is not None else config.sources or []


def consumers_of(stream: LiveStream) -> dict[str, Consumer]:
    """A stream knows its consumers by what it needs of them; here they are what they are."""
    return cast(dict[str, Consumer], stream.consumers)


# --- configurations as the log keeps them --------------------------------------------------------------------------


def native_config(row: Topic) -> StreamConfig | None:
    """The JetStream configuration of a topic that was made through NATS."""
    text = row.config.attributes.get(CONFIG_KEY)
    return None if text is None else msgspec.json.decode(text, type=StreamConfig)


def topic_config(config: StreamConfig) -> TopicConfig:
    """What core needs of a configuration, and the configuration itself."""
    text = msgspec.json.encode(stream_config.as_json(config, dynamic=False)).decode()
    return TopicConfig(duplicate_window_ms=config.exact_window_ms, attributes={CONFIG_KEY: text})


def foreign_config(name: str, prefix: str) -> StreamConfig:
    """How a topic of another face looks to NATS."""
    asked = StreamConfig(name=name, subjects=[f"{prefix}>"], allow_direct=True, allow_atomic=True, no_ack=True)
    config = stream_config.checked(asked)
    assert isinstance(config, StreamConfig), "its name and subjects are valid"
    config.no_ack = False
    return config


def nats_name(topic: str) -> str:
    """A topic's name with every character that JetStream cannot spell as `_`."""
    return "".join("_" if mark in ".*>\\/ \t\r\n\f\0" else mark for mark in topic)


def stream_key(stream: LiveStream, subject: str) -> str:
    """The key under which a subject is stored."""
    return subject.removeprefix(stream.prefix) if stream.prefix else subject


def consumer_text(config: ConsumerConfig, created_ns: int) -> bytes:
    """What the log keeps of a consumer beside its place."""
    fields = {name: value for name in config.__struct_fields__ if (value := getattr(config, name))}
    return msgspec.json.encode({"config": fields, "created": created_ns})


class _Text(msgspec.Struct):
    config: ConsumerConfig
    created: int


def restored(stream: LiveStream, saved: SavedConsumer) -> Consumer | None:
    """A consumer from what the log kept of it; None of one that another face made."""
    try:
        kept = msgspec.json.decode(saved.row.config, type=_Text)
    except msgspec.DecodeError:
        return None
    row = saved.row
    settled = [edge + 1 for edge in row.confirmed]
    state = DeliveryState(kept.config, row.frontier, settled, stream.index.next + 1)
    state.restore({offset + 1: numbers for offset, numbers in row.waiting.items()}, row.delivered, row.sequence)
    return Consumer(stream, saved.name, kept.config, state, kept.created)
