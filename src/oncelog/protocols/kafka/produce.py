"""Produce, by hand: the request without copying records, the response as prebuilt bytes.

The records of a partition stay a view of the request's frame until the door (`door.py`) has looked at them.
"""

from struct import Struct
from typing import Final, NamedTuple

from oncelog.protocols.kafka.wire import Buffer, Reader, WireError, write_unsigned_varint

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_ANSWER: Final = Struct(">ihqqq")
_ANSWER_4: Final = Struct(">ihqq")

VERSIONS_SERVED: Final = (3, 11)
FLEXIBLE_FROM: Final = 9
RECORD_ERRORS_FROM: Final = 8
LOG_START_FROM: Final = 5


class PartitionData(NamedTuple):
    """What is to be written to one partition."""

    topic: str
    partition: int
    records: Buffer | None


class ProduceRequest(NamedTuple):
    """The whole request, partitions in their order."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[PartitionData]


def read_produce(reader: Reader, version: int) -> ProduceRequest:
    """Versions 3 to 11."""
    flexible = version >= FLEXIBLE_FROM
    transactional_id = _string(reader, flexible=flexible, nullable=True)
    acks = int(reader.fixed(_INT16))
    timeout_ms = int(reader.fixed(_INT32))
    partitions: list[PartitionData] = []
    for _ in range(_count(reader, flexible)):
        topic = _string(reader, flexible=flexible, nullable=False)
        assert topic is not None
        for _ in range(_count(reader, flexible)):
            partition = int(reader.fixed(_INT32))
            length = reader.unsigned_varint() - 1 if flexible else int(reader.fixed(_INT32))
            if length < -1:
                raise WireError(f"records of {length} bytes", reader.at)
            partitions.append(PartitionData(topic, partition, None if length < 0 else reader.take(length)))
            if flexible:
                reader.skip_tags()
        if flexible:
            reader.skip_tags()
    if flexible:
        reader.skip_tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def _string(reader: Reader, *, flexible: bool, nullable: bool) -> str | None:
    length = reader.unsigned_varint() - 1 if flexible else int(reader.fixed(_INT16))
    if length < 0:
        if nullable and length == -1:
            return None
        raise WireError("null where a string is required", reader.at)
    return reader.text(length)


def _count(reader: Reader, flexible: bool) -> int:
    count = reader.unsigned_varint() - 1 if flexible else int(reader.fixed(_INT32))
    if count < 0:
        raise WireError("null where an array is required", reader.at)
    return reader.count(count)


class PartitionAnswer(NamedTuple):
    """What became of one partition's records."""

    topic: str
    partition: int
    code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[tuple[int, str], ...] = ()
    """(number of the record in its batch, what is wrong with it)."""
    message: str | None = None


def write_produce(version: int, answers: list[PartitionAnswer]) -> bytes:
    """The response body. Neighbours of one topic are written together."""
    flexible = version >= FLEXIBLE_FROM
    groups: list[tuple[str, list[PartitionAnswer]]] = []
    for answer in answers:
        if not groups or groups[-1][0] != answer.topic:
            groups.append((answer.topic, []))
        groups[-1][1].append(answer)
    out = bytearray()
    _write_count(out, len(groups), flexible)
    for topic, of_topic in groups:
        _write_string(out, topic, flexible)
        _write_count(out, len(of_topic), flexible)
        for answer in of_topic:
            _write_answer(out, answer, version, flexible)
        if flexible:
            out.append(0)
    out += _INT32.pack(0)  # never throttled
    if flexible:
        out.append(0)
    return bytes(out)


def _write_answer(out: bytearray, answer: PartitionAnswer, version: int, flexible: bool) -> None:
    _, partition, code, base_offset, time_ms, log_start, record_errors, message = answer
    if version >= LOG_START_FROM:
        out += _ANSWER.pack(partition, code, base_offset, time_ms, log_start)
    else:
        out += _ANSWER_4.pack(partition, code, base_offset, time_ms)
    if version >= RECORD_ERRORS_FROM:
        _write_count(out, len(record_errors), flexible)
        for number, problem in record_errors:
            out += _INT32.pack(number)
            _write_string(out, problem, flexible)
            if flexible:
                out.append(0)
        _write_string(out, message, flexible)
    if flexible:
        out.append(0)


def _write_count(out: bytearray, count: int, flexible: bool) -> None:
    if flexible:
        write_unsigned_varint(out, count + 1)
    else:
        out += _INT32.pack(count)


def _write_string(out: bytearray, text: str | None, flexible: bool) -> None:
    if text is None:
        out += b"\x00" if flexible else b"\xff\xff"
        return
    content = text.encode()
    if flexible:
        write_unsigned_varint(out, len(content) + 1)
    else:
        out += _INT16.pack(len(content))
    out += content
