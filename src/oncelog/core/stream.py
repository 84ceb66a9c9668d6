"""Topics and streams: create, grow, configure, close, delete, trim, delete single records."""

import msgspec

from oncelog import limits
from oncelog.core import holes
from oncelog.core.append import append_refused, judged_against
from oncelog.core.command import (
    AddPartitions,
    CloseStream,
    ConfigureTopic,
    CreateTopic,
    DeleteRecords,
    DeleteTopic,
    Trim,
)
from oncelog.core.content_type import batch_refused, is_json, is_same_type
from oncelog.core.cursor import ranges_refused
from oncelog.core.entry import (
    Appended,
    Claimed,
    Compound,
    Entry,
    HolesAdded,
    Operation,
    PartitionsAdded,
    StreamClosed,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    Trimmed,
)
from oncelog.core.flat import Stream
from oncelog.core.jetstream_name import base_name, taken
from oncelog.core.names import config_refused
from oncelog.core.outcome import (
    ClaimInvalid,
    CursorPinned,
    OffsetAhead,
    OffsetGone,
    Outcome,
    Refusal,
    StreamDone,
    TooLarge,
    TopicDone,
    TopicExists,
    TopicMissing,
)
from oncelog.core.producer import judge
from oncelog.core.refuse import refusal_of
from oncelog.core.rows import JCS, Cause, Topic
from oncelog.core.state import State
from oncelog.core.subjects import deleted
from oncelog.core.verdict import Accept, Duplicate

Decision = tuple[Entry | None, Outcome]


def stands(stream: Stream, *, changed: bool = False) -> StreamDone:
    """Where a stream stands now."""
    return StreamDone(stream.stream_id, stream.floor, stream.stable, stream.tail, stream.closed, changed)


def decide_create(state: State, command: CreateTopic, now_ns: int) -> Decision:
    """A new topic, or agreement with the one that is there: creating twice is a retry."""
    if not 1 <= command.partitions <= limits.PARTITIONS_MAX:
        return None, TooLarge("partitions", limits.PARTITIONS_MAX, command.partitions, least=1)
    if command.batch and command.config.digest == JCS:
        return None, ClaimInvalid("facts are appended to a topic after it is made, so that their ids are looked up")
    if command.batch:
        refusal = append_refused(command.batch, command.count)
        refusal = refusal or batch_refused(command.config.content_type, command.batch)
        if refusal is not None:
            return None, refusal
    topic = state.topics[command.name]
    if topic is not None:
        return None, _agreed(state, topic, command)
    if (refusal := taken(state, command.name, base_name(command.name, command.config), command.partitions)) is not None:
        return None, refusal
    topic_id = state.next_id
    stream_ids = list(range(topic_id + 1, topic_id + 1 + command.partitions))
    operations: list[Operation] = [TopicCreated(topic_id, command.name, stream_ids, command.config)]
    if command.batch:
        operations.append(Appended(stream_ids[0], 0, command.count, command.batch, now_ns))
    if command.close:
        operations += [StreamClosed(stream_id) for stream_id in stream_ids]
    tail = command.count if command.batch else 0
    return Compound(now_ns, operations), TopicDone(topic_id, list(stream_ids), True, tail, command.close)


def _agreed(state: State, topic: Topic, command: CreateTopic) -> Outcome:
    """Whether the topic that is there is the one asked for: settings, partitions, and whether it is closed."""
    config = command.config
    if is_same_type(config.content_type, topic.config.content_type):
        config = msgspec.structs.replace(config, content_type=topic.config.content_type)
    if topic.config != config:
        differ = [name for name in config.__struct_fields__ if getattr(config, name) != getattr(topic.config, name)]
        there, asked = ({name: getattr(one, name) for name in differ} for one in (topic.config, config))
        return TopicExists(command.name, f"it has {told(there)}, not {told(asked)}")
    if len(topic.stream_ids) != command.partitions:
        return TopicExists(command.name, f"it has {len(topic.stream_ids)} partitions")
    first = state.streams[topic.stream_ids[0]]
    assert first is not None, "a topic's streams are there"
    if first.closed != command.close:
        return TopicExists(command.name, TopicExists.CLOSED if first.closed else TopicExists.OPEN)
    return TopicDone(topic.topic_id, list(topic.stream_ids), False, first.tail, first.closed)


def told(settings: dict[str, object]) -> str:
    """Settings in words."""
    return ", ".join(f"{name} {value!r}" for name, value in settings.items())


def decide_add_partitions(state: State, command: AddPartitions, now_ns: int) -> Decision:
    """Topics only grow: a partition that vanished would take its records along."""
    topic = state.topics[command.name]
    if topic is None:
        return None, TopicMissing(command.name)
    have = len(topic.stream_ids)
    if not have <= command.partitions <= limits.PARTITIONS_MAX:
        what = f"partitions (it has {have}; a topic only grows)"
        return None, TooLarge(what, limits.PARTITIONS_MAX, command.partitions, least=have)
    if command.partitions == have:
        return None, TopicDone(topic.topic_id, list(topic.stream_ids), changed=False)
    if (refusal := taken(state, command.name, base_name(command.name, topic.config), command.partitions)) is not None:
        return None, refusal
    added = list(range(state.next_id, state.next_id + command.partitions - have))
    entry = Compound(now_ns, [PartitionsAdded(command.name, added)])
    return entry, TopicDone(topic.topic_id, topic.stream_ids + added, changed=True)


def decide_configure(state: State, command: ConfigureTopic, now_ns: int) -> Decision:
    """New settings for a topic and all its streams."""
    topic = state.topics[command.name]
    if topic is None:
        return None, TopicMissing(command.name)
    config = command.config or msgspec.structs.replace(topic.config, **command.changes)
    if (refusal := config_refused(config)) is not None:
        return None, refusal
    if topic.config == config:
        return None, TopicDone(topic.topic_id, list(topic.stream_ids), changed=False)
    base = base_name(command.name, config)
    if base != base_name(command.name, topic.config):
        if (refusal := taken(state, command.name, base, len(topic.stream_ids))) is not None:
            return None, refusal
    if topic.config.digest != config.digest:
        return None, TopicExists(command.name, "what its ids are compared by cannot change")
    if topic.config.id_zone != config.id_zone:
        return None, TopicExists(command.name, "message ids cannot move to another zone")
    if is_json(config.content_type) and not is_json(topic.config.content_type):
        if any((stream := state.streams[stream_id]) is not None and stream.tail for stream_id in topic.stream_ids):
            return None, TopicExists(command.name, "it holds records that nobody has seen to be JSON")
    operation = TopicConfigured(command.name, list(topic.stream_ids), config)
    return Compound(now_ns, [operation]), TopicDone(topic.topic_id, list(topic.stream_ids), True)


def decide_delete(state: State, command: DeleteTopic, now_ns: int) -> Decision:
    """Unlink the name. A name that is not there is refused: a client that retries gets told what it wants to know."""
    topic = state.topics[command.name]
    if topic is None:
        return None, TopicMissing(command.name)
    operation = TopicDeleted(command.name, list(topic.stream_ids))
    return Compound(now_ns, [operation]), TopicDone(topic.topic_id, list(topic.stream_ids), True)


def decide_close(state: State, command: CloseStream, now_ns: int) -> Decision:
    """Close for good. Closing twice succeeds; with a producer claim the claim is used up like an append's."""
    stream = state.stream(command.topic, command.partition)
    if stream is None:
        return None, TopicMissing(command.topic, command.partition)
    operations: list[Operation] = [] if stream.closed else [StreamClosed(stream.stream_id)]
    claim = command.claim
    epoch = sequence = -1
    if claim is not None:
        producer, renews = judged_against(state, stream, claim, now_ns)
        verdict = judge(producer, claim)
        if isinstance(verdict, Accept):
            epoch, sequence = verdict.epoch, claim.last
            place = [stream.stream_id, stream.tail, stream.tail]
            operations.append(Claimed(stream.stream_id, claim, verdict.epoch, place, renews))
        elif isinstance(verdict, Duplicate):
            epoch, sequence = verdict.epoch, verdict.last
            operations = []  # of the close that closed it, or of an append that did not: the answer says which
        elif not stream.closed:
            return None, refusal_of(verdict)
    entry = Compound(now_ns, operations) if operations else None
    answer = stands(stream, changed=entry is not None)
    answer.closed = stream.closed or entry is not None
    answer.epoch, answer.sequence = epoch, sequence
    return entry, answer


def first_pin(state: State, stream: Stream) -> tuple[str, int] | None:
    """The pinned cursor that is furthest behind and its frontier, past the holes that it may step over."""
    if not stream.pins:
        return None
    cursor, frontier = min(stream.pins.items(), key=lambda pin: (pin[1], pin[0]))
    return cursor, holes.step_over(state, stream, max(frontier, stream.floor))


def allowed_floor(state: State, stream: Stream, command: Trim) -> int:
    """The floor that a trim names; clamped at `stable` and at the first pinned cursor if it goes as far as allowed."""
    if not command.as_far_as_allowed:
        return command.floor
    wanted = min(command.floor, stream.stable)
    pin = None if wanted <= stream.floor else first_pin(state, stream)
    return wanted if pin is None else min(wanted, pin[1])


def decide_trim(state: State, command: Trim, now_ns: int) -> Decision:
    """Raise the floor, over holes that follow; never lowers it. Holes cannot carry it past `stable`: what lies there is
    an open record, so no hole."""
    stream = state.stream(command.topic, command.partition)
    if stream is None:
        return None, TopicMissing(command.topic, command.partition)
    if command.floor > stream.stable and not command.as_far_as_allowed:
        return None, OffsetAhead(stream.stream_id, command.floor, stream.stable)
    wanted = allowed_floor(state, stream, command)
    if wanted <= stream.floor:
        return None, stands(stream)
    floor = holes.step_over(state, stream, wanted)
    if not command.force and (pin := first_pin(state, stream)) is not None and pin[1] < wanted:
        return None, CursorPinned(pin[0], pin[1], command.floor)
    answer = stands(stream, changed=True)
    answer.floor = floor
    return Compound(now_ns, [Trimmed(stream.stream_id, floor)]), answer


def deletion_refused(stream: Stream, ranges: list[int]) -> Refusal | None:
    """What is wrong with the ranges of a delete. Looks at no chunk: `needs` asks for none then."""
    if (refusal := ranges_refused(ranges, stream.stable, stream.stream_id)) is not None:
        return refusal
    if ranges[0] < stream.floor:
        return OffsetGone(stream.stream_id, ranges[0], stream.floor)
    offsets = sum(ranges[1::2]) - sum(ranges[::2])
    if offsets > limits.DELETE_OFFSETS_MAX:
        return TooLarge("offsets in one delete", limits.DELETE_OFFSETS_MAX, offsets)
    return None


def decide_delete_records(state: State, command: DeleteRecords, now_ns: int) -> Decision:
    """Turn records into holes. What is a hole already stays one: deleting twice is a retry."""
    stream = state.stream(command.topic, command.partition)
    if stream is None:
        return None, TopicMissing(command.topic, command.partition)
    if (refusal := deletion_refused(stream, command.ranges)) is not None:
        return None, refusal
    live: list[int] = []
    for at in range(0, len(command.ranges), 2):
        live += holes.deletable_parts(state, stream, command.ranges[at], command.ranges[at + 1])
    rows, refusal = deleted(stream, command)
    if refusal is not None:
        return None, refusal
    if not live:
        return None, stands(stream)
    operations: list[Operation] = [HolesAdded(stream.stream_id, live, Cause.DELETED)]
    if rows is not None:
        operations.append(rows)
    return Compound(now_ns, operations), stands(stream, changed=True)
