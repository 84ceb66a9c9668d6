"""Fetch, by hand: the request, and the response as a list of pieces, so that records are not copied."""

from struct import Struct
from typing import Final, NamedTuple

from oncelog.protocols.kafka.wire import Buffer, Reader, WireError, write_unsigned_varint

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_PAIR: Final = Struct(">qq")

FLEXIBLE_FROM: Final = 12


class FetchPartition(NamedTuple):
    """Where a consumer wants to go on reading."""

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    bytes_max: int


class FetchRequest(NamedTuple):
    """The whole request, partitions in their order. Kafka gives the first of them the room that there is."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    committed: bool
    session_id: int
    session_epoch: int
    partitions: list[FetchPartition]
    forgotten: list[tuple[str, int]]


def read_fetch(reader: Reader, version: int) -> FetchRequest:
    """Versions 4 to 12."""
    flexible = version >= FLEXIBLE_FROM
    reader.fixed(_INT32)  # replica id: nobody replicates from here
    max_wait_ms = int(reader.fixed(_INT32))
    min_bytes = int(reader.fixed(_INT32))
    max_bytes = int(reader.fixed(_INT32))
    committed = reader.fixed(_INT8) == 1
    session_id, session_epoch = (reader.fixed(_INT32), reader.fixed(_INT32)) if version >= 7 else (0, -1)
    partitions: list[FetchPartition] = []
    for _ in range(_count(reader, flexible)):
        topic = _string(reader, flexible)
        for _ in range(_count(reader, flexible)):
            partitions.append(_read_partition(reader, topic, version))
            if flexible:
                reader.skip_tags()
        if flexible:
            reader.skip_tags()
    forgotten = _read_forgotten(reader, flexible) if version >= 7 else []
    if version >= 11:
        _string(reader, flexible)  # rack
    if flexible:
        reader.skip_tags()
    return FetchRequest(max_wait_ms, min_bytes, max_bytes, committed, session_id, session_epoch, partitions, forgotten)


def _read_partition(reader: Reader, topic: str, version: int) -> FetchPartition:
    partition = int(reader.fixed(_INT32))
    leader_epoch = int(reader.fixed(_INT32)) if version >= 9 else -1
    offset = int(reader.fixed(_INT64))
    if version >= 12:
        reader.fixed(_INT32)  # the last fetched epoch: there is one leader epoch only
    if version >= 5:
        reader.fixed(_INT64)  # the follower's log start
    return FetchPartition(topic, partition, leader_epoch, offset, int(reader.fixed(_INT32)))


def _read_forgotten(reader: Reader, flexible: bool) -> list[tuple[str, int]]:
    forgotten: list[tuple[str, int]] = []
    for _ in range(_count(reader, flexible)):
        topic = _string(reader, flexible)
        forgotten += [(topic, int(reader.fixed(_INT32))) for _ in range(_count(reader, flexible))]
        if flexible:
            reader.skip_tags()
    return forgotten


def _string(reader: Reader, flexible: bool) -> str:
    length = reader.unsigned_varint() - 1 if flexible else int(reader.fixed(_INT16))
    if length < 0:
        raise WireError("null where a string is required", reader.at)
    return reader.text(length)


def _count(reader: Reader, flexible: bool) -> int:
    count = reader.unsigned_varint() - 1 if flexible else int(reader.fixed(_INT32))
    if count < 0:
        raise WireError("null where an array is required", reader.at)
    return reader.count(count)


class FetchAnswer(NamedTuple):
    """What one partition has."""

    topic: str
    partition: int
    code: int
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1
    aborted: tuple[tuple[int, int], ...] | None = None
    """(producer id, first offset) of the aborted transactions among these records; None: not asked for."""
    records: tuple[Buffer, ...] = ()
    """Batches in pieces, ready to be sent."""


def write_fetch(version: int, answers: list[FetchAnswer], code: int = 0, session_id: int = 0) -> list[Buffer]:
    """The response body in pieces. Neighbours of one topic are written together."""
    flexible = version >= FLEXIBLE_FROM
    groups: list[tuple[str, list[FetchAnswer]]] = []
    for answer in answers:
        if not groups or groups[-1][0] != answer.topic:
            groups.append((answer.topic, []))
        groups[-1][1].append(answer)
    pieces: list[Buffer] = []
    out = bytearray(4)  # never throttled
    if version >= 7:
        out += _INT16.pack(code) + _INT32.pack(session_id)
    _write_count(out, len(groups), flexible)
    for topic, of_topic in groups:
        _write_string(out, topic, flexible)
        _write_count(out, len(of_topic), flexible)
        for answer in of_topic:
            _write_head(out, answer, version, flexible)
            if answer.records:
                pieces.append(bytes(out))
                pieces.extend(answer.records)
                out = bytearray()
            if flexible:
                out.append(0)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    pieces.append(bytes(out))
    return pieces


def _write_head(out: bytearray, answer: FetchAnswer, version: int, flexible: bool) -> None:
    """All of a partition up to its records."""
    out += _INT32.pack(answer.partition) + _INT16.pack(answer.code)
    out += _PAIR.pack(answer.high_watermark, answer.last_stable)
    if version >= 5:
        out += _INT64.pack(answer.log_start)
    if answer.aborted is None:
        out += b"\x00" if flexible else b"\xff\xff\xff\xff"
    else:
        _write_count(out, len(answer.aborted), flexible)
        for producer_id, first_offset in answer.aborted:
            out += _PAIR.pack(producer_id, first_offset)
            if flexible:
                out.append(0)
    if version >= 11:
        out += _INT32.pack(-1)  # no preferred replica
    _write_count(out, sum(len(piece) for piece in answer.records), flexible)


def _write_count(out: bytearray, count: int, flexible: bool) -> None:
    if flexible:
        write_unsigned_varint(out, count + 1)
    else:
        out += _INT32.pack(count)


def _write_string(out: bytearray, text: str, flexible: bool) -> None:
    content = text.encode()
    if flexible:
        write_unsigned_varint(out, len(content) + 1)
    else:
        out += _INT16.pack(len(content))
    out += content
