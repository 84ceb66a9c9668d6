"""Consumers: what a face keeps of a reader besides its place. The place itself is a cursor (`core.cursor`).

A consumer is a row of the cursor table: a frontier, ranges confirmed above it, and optionally settings of the face that
made it, a gate, and the records that were delivered and are not confirmed yet, each with its delivery count and its
deadline. Its name begins with the scope of its face (`SCOPES`), so that consumers of two faces never meet. One that
belongs to no stream, such as a Kafka group itself, is kept under `NO_STREAM`.

Stored as what changed: an entry carries the new frontier, the ranges that are new above it, and the deliveries, never
the whole row (`core.consumer_row`).

Invariants that `core.audit` checks: whatever waits lies at or above the frontier, in no confirmed range, and below
`delivered`.
"""

from typing import Any, Final

from oncelog import limits
from oncelog.core.command import (
    ConfirmCursor,
    ConsumerUpdate,
    DeleteConsumer,
    SetConsumer,
    UpdateConsumers,
)
from oncelog.core.consumer_row import change_row, copied, folded, pairs, settle
from oncelog.core.cursor import OFFSET_MAX, as_told, confirmed_after, ranges_refused
from oncelog.core.entry import Compound, ConsumerChanged, ConsumerSet, CursorDeleted, Entry, Operation
from oncelog.core.flat import Stream
from oncelog.core.names import consumer_refused
from oncelog.core.outcome import (
    ClaimInvalid,
    CommitConfirmed,
    ConsumerExists,
    ConsumerPlace,
    ConsumersUpdated,
    CursorDone,
    NotFound,
    OffsetAhead,
    Outcome,
    Refusal,
    TooLarge,
    TopicMissing,
)
from oncelog.core.rows import Cursor
from oncelog.core.state import NO_STREAM, State

Decision = tuple[Entry | None, Outcome]
Key = tuple[str, int]

SCOPES: Final = {"kafka": "kafka:", "nats": "nats:", "bsfg": "bsfg:", "spark": "spark:"}
"""What the names of a face's consumers begin with. Cursors of HTTP have plain names."""


def key_of(state: State, name: str, topic: str, partition: int) -> tuple[Key, Stream | None, Refusal | None]:
    """The key of a consumer and its stream; with an empty topic it has none."""
    if not topic:
        return (name, NO_STREAM), None, None
    stream = state.stream(topic, partition)
    if stream is None:
        return (name, NO_STREAM), None, TopicMissing(topic, partition)
    return (name, stream.stream_id), stream, None


# --- settings ------------------------------------------------------------------------------------------------------


def decide_set(state: State, command: SetConsumer, now_ns: int) -> Decision:
    """Make a consumer, or change its settings. Its place is given when it is made, and moved by others."""
    key, stream, refusal = key_of(state, command.name, command.topic, command.partition)
    if refusal is not None:
        return None, refusal
    cursor = state.cursors[key]
    if cursor is None and command.how == "update":
        return None, NotFound("consumer")
    if cursor is not None and command.how == "create" and command.config not in (None, cursor.config):
        return None, ConsumerExists(command.name)
    if cursor is None and stream is not None and not 0 <= command.start <= stream.stable:
        return None, OffsetAhead(stream.stream_id, command.start, stream.stable)
    before = cursor if cursor is not None else Cursor(command.start, [], created_ns=now_ns, delivered=command.start)
    operation = ConsumerSet(
        command.name,
        key[1],
        before.frontier,
        _or(command.config, before.config),
        _or(command.gate, before.gate),
        _or(command.metadata, before.metadata),
        before.pinned if command.pinned is None else command.pinned,
    )
    after = copied(before)
    settle(after, operation, now_ns)
    same = (after.config, after.gate, after.metadata, after.pinned) == (
        before.config,
        before.gate,
        before.metadata,
        before.pinned,
    )
    if cursor is not None and (same or command.how == "create"):
        return None, CursorDone(_shown(state, stream, cursor))
    return Compound(now_ns, [operation]), CursorDone(_shown(state, stream, after))


def _or(value: Any, other: Any) -> Any:
    return other if value is None else value


def _shown(state: State, stream: Stream | None, cursor: Cursor) -> Cursor:
    """As every answer shows it."""
    return copied(cursor) if stream is None else as_told(state, stream, cursor)


def decide_delete_consumer(state: State, command: DeleteConsumer, now_ns: int) -> Decision:
    """Forget a consumer in some streams, all at once. Where it is not, it is already forgotten."""
    operations: list[Operation] = []
    for topic, partition in dict.fromkeys(command.streams):
        key, _, refusal = key_of(state, command.name, topic, partition)
        if refusal is None and state.cursors[key] is not None:
            operations.append(CursorDeleted(*key))
    return (Compound(now_ns, operations) if operations else None), CommitConfirmed([])


# --- deliveries and confirms ---------------------------------------------------------------------------------------


def decide_update(state: State, command: UpdateConsumers, now_ns: int) -> Decision:
    """Deliveries and confirms of one read of a socket: each is answered alone, those of one consumer fold into one
    change."""
    rows: dict[Key, Cursor] = {}
    changes: dict[Key, ConsumerChanged] = {}
    answers: list[ConsumerPlace | Refusal] = []
    for update in command.updates:
        key, change, refusal = _changed(state, rows, update, now_ns)
        if refusal is not None:
            answers.append(refusal)
            continue
        row = rows[key]
        if change is not None:
            change_row(row, change, now_ns)
            changes[key] = change if key not in changes else folded(changes[key], change)
        answers.append(ConsumerPlace(row.frontier, row.delivered, len(row.waiting), len(row.confirmed) // 2))
    operations: list[Operation] = list(changes.values())
    return (Compound(now_ns, operations) if operations else None), ConsumersUpdated(answers)


def _changed(
    state: State, rows: dict[Key, Cursor], update: ConsumerUpdate, now_ns: int
) -> tuple[Key, ConsumerChanged | None, Refusal | None]:
    """The change of one update against what the updates before it left in `rows`; None if it changes nothing."""
    refusal = consumer_refused(update.name, update.topic, update.partition)
    if refusal is not None:
        return ("", NO_STREAM), None, refusal
    key, stream, refusal = key_of(state, update.name, update.topic, update.partition)
    if refusal is None and stream is None:
        refusal = ClaimInvalid("a consumer of no stream is not delivered to; name a topic")
    if refusal is not None or stream is None:
        return key, None, refusal
    row = rows.get(key)
    if row is None:
        stored = state.cursors[key]
        if stored is None:
            return key, None, NotFound("consumer")
        row = rows[key] = copied(stored)
    if update.confirm and (refusal := ranges_refused(update.confirm, stream.stable, stream.stream_id)) is not None:
        return key, None, refusal
    if (refusal := _deliveries_refused(stream, update)) is not None:
        return key, None, refusal
    change = difference(state, stream, row, update.confirm)
    change.name, change.pinned = update.name, row.pinned
    change.waiting = list(update.deliver)
    change.delivered = max(update.delivered, row.delivered, *(offset + 1 for offset in update.deliver[::4]))
    change.sequence = max(update.sequence, row.sequence, *update.deliver[3::4])
    trial = copied(row)
    change_row(trial, change, now_ns)
    trial.used_ns = row.used_ns
    if trial == row:
        return key, None, None
    for what, limit, count in (
        ("ranges above the frontier", limits.CURSOR_CONFIRMED_RANGES_MAX, len(trial.confirmed) // 2),
        ("records that wait to be confirmed", limits.CONSUMER_WAITING_MAX, len(trial.waiting)),
    ):
        if count > limit:
            return key, None, TooLarge(what, limit, count)
    return key, change, None


def _deliveries_refused(stream: Stream, update: ConsumerUpdate) -> Refusal | None:
    """Only what readers may see is delivered (P6)."""
    deliver = update.deliver
    if len(deliver) % 4:
        return ClaimInvalid("deliveries are offset, count, deadline and sequence, four numbers each")
    last = max((*deliver[::4], update.delivered - 1))
    if last >= stream.stable:
        return OffsetAhead(stream.stream_id, last, stream.stable)
    if any(not 0 <= number <= OFFSET_MAX for number in deliver) or update.sequence > OFFSET_MAX:
        return TooLarge("number of a delivery", OFFSET_MAX, max(*deliver, update.sequence), least=0)
    return None


def difference(state: State, stream: Stream, cursor: Cursor | None, ranges: list[int]) -> ConsumerChanged:
    """What confirming `ranges` changes: the frontier, and the ranges above it that were not there as they are now."""
    frontier, above = confirmed_after(state, stream, cursor, ranges)
    if cursor is not None and cursor.given:
        frontier = max(frontier, cursor.frontier)
    before = set() if cursor is None else set(pairs(cursor.confirmed))
    new: list[int] = []
    for pair in pairs(above):
        if pair not in before:
            new += pair
    return ConsumerChanged("", stream.stream_id, frontier, new)


def decide_confirm(state: State, command: ConfirmCursor, now_ns: int) -> Decision:
    """Processed by the consumer, in any order. A cursor that nobody made begins with its first confirm."""
    stream = state.stream(command.topic, command.partition)
    if stream is None:
        return None, TopicMissing(command.topic, command.partition)
    if (refusal := ranges_refused(command.ranges, stream.stable, stream.stream_id)) is not None:
        return None, refusal
    cursor = state.cursors[(command.name, stream.stream_id)]
    change = difference(state, stream, cursor, command.ranges)
    change.name, change.pinned = command.name, command.pinned
    after = Cursor(0, [], created_ns=now_ns) if cursor is None else copied(cursor)
    change_row(after, change, now_ns)
    after.pinned = command.pinned
    if len(after.confirmed) // 2 > limits.CURSOR_CONFIRMED_RANGES_MAX:
        return None, TooLarge(
            "ranges above the frontier", limits.CURSOR_CONFIRMED_RANGES_MAX, len(after.confirmed) // 2
        )
    if cursor is not None:
        after.used_ns = cursor.used_ns
        if after == cursor:
            return None, CursorDone(copied(cursor))
        after.used_ns = now_ns
    return Compound(now_ns, [change]), CursorDone(after)
