"""How a zone stands: its streams, its consumers, what they have not confirmed; and the gate of a consumer."""

from typing import Any, Final

from oncelog.core import batch as codec
from oncelog.core import facts
from oncelog.core.command import GetStream, SetConsumer
from oncelog.core.outcome import CursorDone, StreamDone, TopicMissing
from oncelog.core.rows import Cursor
from oncelog.protocols.bsfg import messages
from oncelog.protocols.bsfg.calls import consumer_of
from oncelog.protocols.bsfg.connect import RpcError
from oncelog.protocols.bsfg.messages import Malformed, Message
from oncelog.protocols.bsfg.policy import Caller, may_consume
from oncelog.protocols.bsfg.refusal_map import error_of
from oncelog.protocols.bsfg.zone import CLOSED, CONSUMER_SCOPE, Find, ListConsumers, Steps, Zone

GAPS_MAX: Final = 100
"""Gaps of one consumer that are listed; their number is whole."""


def status(zone: Zone) -> Steps:
    """Everything at one moment, or nearly: each part is asked for by itself."""
    streams: dict[str, StreamDone] = {}
    for topic in facts.TOPICS:
        found = yield GetStream(topic, 0)
        if isinstance(found, StreamDone):
            streams[topic] = found
        elif not isinstance(found, TopicMissing):
            raise error_of(found, f"{topic} cannot be looked at")
    consumers: list[Message] = []
    for listed in (yield ListConsumers(CONSUMER_SCOPE)):
        if listed.topic in streams:
            consumers.append((yield from _consumer(zone, listed, streams[listed.topic])))
    return {
        "zone": zone.name,
        "streams": [
            {"stream": topic, "first_sequence": found.floor + 1, "last_sequence": found.stable}
            for topic, found in streams.items()
        ],
        "consumers": consumers,
    }


def _consumer(zone: Zone, listed: Any, stream: StreamDone) -> Any:
    cursor: Cursor = listed.cursor
    gaps = gaps_of(cursor)
    above = sum(last - first + 1 for first, last in _ranges(cursor))
    unconfirmed = max(0, stream.stable - cursor.frontier - above)
    backlog = zone.backlog_bytes(listed.topic, cursor.frontier) if unconfirmed else 0
    lag_ms = 0
    if unconfirmed:
        produced_ms = yield from _produced_ms(listed.topic, cursor.frontier)
        lag_ms = max(0, zone.now_ms() - produced_ms) if produced_ms else 0
    return {
        "consumer_name": listed.name.removeprefix(CONSUMER_SCOPE),
        "stream": listed.topic,
        "frontier": cursor.frontier,
        "unconfirmed": unconfirmed,
        "backlog_bytes": backlog,
        "fill_percent": round(100 * backlog / zone.backlog_bytes_max, 3) if zone.backlog_bytes_max else 0.0,
        "gap_count": len(gaps),
        "gaps": [{"first": first, "last": last} for first, last in gaps[:GAPS_MAX]],
        "lag_ms": lag_ms,
        "gate": cursor.gate or "open",
    }


def _ranges(cursor: Cursor) -> list[tuple[int, int]]:
    """Confirmed out of order, as first and last sequence."""
    flat = cursor.confirmed
    return [(flat[at] + 1, flat[at + 1]) for at in range(0, len(flat), 2)]


def gaps_of(cursor: Cursor) -> list[tuple[int, int]]:
    """What lies between the frontier and confirmed sequences, as first and last sequence."""
    gaps: list[tuple[int, int]] = []
    before = cursor.frontier
    for first, last in _ranges(cursor):
        gaps.append((before + 1, first - 1))
        before = last
    return gaps


def _produced_ms(topic: str, offset: int) -> Any:
    """Steps that return when the fact at an offset was produced; 0 if that cannot be read."""
    found = yield Find(topic, offset, 1)
    if not getattr(found, "batches", ()):
        return 0
    base_offset, batch = found.batches[0]
    offsets, timestamps, _, _, _ = codec.decode_columns(batch, base_offset=base_offset)
    return next((time for at, time in zip(offsets, timestamps, strict=True) if at >= offset), 0)


# --- the gate ------------------------------------------------------------------------------------------------------


def gate_request(body: bytes) -> Message:
    """`{"consumer_name": ..., "gate": "open" or "closed"}`. Raises RpcError."""
    try:
        request = messages.json_object(body)
    except Malformed as malformed:
        raise RpcError("invalid_argument", str(malformed)) from None
    if request.keys() != {"consumer_name", "gate"} or request["gate"] not in ("open", CLOSED):
        raise RpcError("invalid_argument", 'the body is {"consumer_name": "...", "gate": "open" or "closed"}.')
    if not isinstance(request["consumer_name"], str):
        raise RpcError("invalid_argument", "consumer_name is a string.")
    return request


def set_gate(_zone: Zone, caller: Caller, request: Message) -> Steps:
    """Open or close the gate of a consumer in every stream that is there."""
    consumer = consumer_of(request)
    may_consume(caller, request["consumer_name"], "")
    gate = CLOSED if request["gate"] == CLOSED else ""
    streams: list[str] = []
    for topic in facts.TOPICS:
        done = yield SetConsumer(consumer, topic, 0, gate=gate, pinned=True)
        if isinstance(done, CursorDone):
            streams.append(topic)
        elif not isinstance(done, TopicMissing):
            raise error_of(done, "the gate was not set")
    if not streams:
        raise RpcError("not_found", "this zone has no fact yet, so it has no consumer whose gate could be set.")
    return {"consumer_name": request["consumer_name"], "gate": request["gate"], "streams": streams}
