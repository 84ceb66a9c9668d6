"""Rows and their keys as bytes: what the index stores and what `carried` entries hold.

A row is positional MessagePack with sorted maps, so equal rows have equal bytes. A key is unique within its
table and sorts as its parts do; text parts end with a NUL, which names may not contain.
"""

import struct
from copy import copy
from typing import Any, Final

import msgspec

from oncelog.core.flat import Producer, ProducerClaim, Stream, Written
from oncelog.core.rows import (
    Application,
    Cursor,
    Holder,
    HoleChunk,
    Key,
    Named,
    Pending,
    Remembered,
    Stage,
    Subject,
    Table,
    Topic,
    TopicConfig,
)
from oncelog.core.state import Row
from oncelog.core.txn import Txn
from oncelog.limits import PRODUCER_BATCHES_REMEMBERED


class ClaimFields(msgspec.Struct, gc=False, array_like=True):
    """The fields of a `ProducerClaim` as they are stored."""

    name: str
    epoch: int
    first: int
    last: int
    mode: int
    digest: bytes = b""
    managed: bool = False
    session: str = ""
    start_any: bool = False


def claim_of_fields(fields: ClaimFields) -> ProducerClaim:
    """The claim of what is stored."""
    return ProducerClaim(*msgspec.structs.astuple(fields))


class _StreamFields(msgspec.Struct, gc=False, array_like=True):
    """The fields of a `Stream` as they are stored."""

    stream_id: int
    topic_id: int
    partition: int
    config: TopicConfig
    tail: int = 0
    floor: int = 0
    closed: bool = False
    deleted_ns: int = 0
    shard: int = 0
    time_ns: int = 0
    order_key: str = ""
    hole_count: int = 0
    open_txns: dict[int, int] | None = None
    trim_marks: list[int] | None = None
    pins: dict[str, int] | None = None
    topic: str = ""
    stored_bytes: int = 0
    byte_marks: list[int] | None = None
    subjects_next: int = -1


class _ProducerFields(msgspec.Struct, gc=False, array_like=True):
    """The fields of a `Producer` as they are stored: its batches flat, five fields each (first sequence, last sequence,
    digest, and first and next offset, or an outcome and 0)."""

    epoch: int
    mode: int
    last: int
    used_ns: int
    batches: tuple[int | bytes | tuple[int, ...], ...]
    session: str = ""
    epoch_first_digest: bytes = b""
    epoch_batch_count: int = 0
    displaced: tuple[str, ...] = ()
    early_digests: tuple[bytes, ...] = ()


_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_encode_as_is: Final = msgspec.msgpack.Encoder().encode
_DECODERS: Final[dict[Table, Any]] = {
    Table.TOPIC: msgspec.msgpack.Decoder(Topic),
    Table.STREAM: msgspec.msgpack.Decoder(_StreamFields),
    Table.PRODUCER: msgspec.msgpack.Decoder(_ProducerFields),
    Table.CURSOR: msgspec.msgpack.Decoder(Cursor),
    Table.TXN: msgspec.msgpack.Decoder(Txn),
    Table.STAGE: msgspec.msgpack.Decoder(Stage),
    Table.APPLICATION: msgspec.msgpack.Decoder(Application),
    Table.REMEMBERED: msgspec.msgpack.Decoder(Remembered),
    Table.HOLES: msgspec.msgpack.Decoder(HoleChunk),
    Table.PENDING: msgspec.msgpack.Decoder(Pending),
    Table.HOLDER: msgspec.msgpack.Decoder(Holder),
    Table.NATS_NAME: msgspec.msgpack.Decoder(Named),
    Table.SUBJECT: msgspec.msgpack.Decoder(Subject),
}
_BATCH_SHAPES: Final = ((int, int, bytes, int, int), (int, int, bytes, tuple, int))
_BATCH_FIELDS: Final = 5
_NUMBER: Final = struct.Struct(">Q")


_SHAPES: Final[dict[Table, tuple[type, ...]]] = {
    Table.TOPIC: (str,),
    Table.STREAM: (int,),
    Table.PRODUCER: (int, str),
    Table.CURSOR: (str, int),
    Table.TXN: (str,),
    Table.STAGE: (int,),
    Table.APPLICATION: (str,),
    Table.REMEMBERED: (str, str),
    Table.HOLES: (int, int),
    Table.PENDING: (str, int),
    Table.HOLDER: (int,),
    Table.NATS_NAME: (str,),
    Table.SUBJECT: (int, str),
}
assert set(_SHAPES) == set(_DECODERS) == set(Table)


def encode_row(row: Row) -> bytes:
    """The bytes of a row."""
    # msgspec sorts maps by text keys only; maps by id are sorted here, in a copy.
    if isinstance(row, Stream | Producer):
        return _encoder.encode(tuple(_stored(row, field) for field in row.fields()))
    if type(row) is Txn and row.streams:
        row = copy(row)
        row.streams = _sorted(row.streams)
    elif type(row) is Cursor and row.waiting:
        row = copy(row)
        row.waiting = _sorted(row.waiting)
    return _encoder.encode(row)


def _stored(row: Stream | Producer, field: Any) -> Any:
    """A field of a row as it is stored."""
    if type(row) is Stream and field is row.open_txns and field:
        return _sorted(field)
    if type(field) is tuple and field and type(field[0]) is Written:
        flat: list[Any] = []
        for batch in field:
            place = batch.first_offset if batch.outcome is None else batch.outcome
            flat += (batch.first, batch.last, batch.digest, place, batch.next_offset)
        return flat
    return field


def _remembered(fields: _ProducerFields) -> Producer:
    """The row of what is stored."""
    flat: tuple[Any, ...] = fields.batches
    if len(flat) > _BATCH_FIELDS * PRODUCER_BATCHES_REMEMBERED:
        raise msgspec.ValidationError(f"a producer's row remembers {len(flat)} fields")
    batches: list[Written] = []
    for at in range(0, len(flat), _BATCH_FIELDS):
        shape = tuple(map(type, flat[at : at + _BATCH_FIELDS]))
        if shape not in _BATCH_SHAPES:
            raise msgspec.ValidationError(f"field {at} of what a producer wrote is the first of no batch")
        first, last, digest, place, next_ = flat[at : at + _BATCH_FIELDS]
        outcome = place if shape[3] is tuple else None
        batches.append(Written(first, last, digest, place if outcome is None else 0, next_, outcome))
    _, mode, last, used_ns, _, *more = msgspec.structs.astuple(fields)
    return Producer(fields.epoch, mode, last, used_ns, tuple(batches), *more)


def _sorted(by_id: dict[int, Any]) -> Any:
    """A map by id as bytes to be copied into the row's."""
    return msgspec.Raw(_encode_as_is(dict(sorted(by_id.items()))))


def decode_row(table: Table, data: bytes) -> Row:
    """The row of these bytes. Raises msgspec.ValidationError or DecodeError on anything else."""
    try:
        row: Any = _DECODERS[table].decode(data)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"a text is not UTF-8: {error}") from error
    if type(row) is _StreamFields:
        return Stream(*msgspec.structs.astuple(row))
    if type(row) is _ProducerFields:
        return _remembered(row)
    stored: Row = row
    return stored


def encode_key(table: Table, key: Key) -> bytes:
    """The bytes of a key, within its table."""
    parts = key if isinstance(key, tuple) else (key,)
    assert tuple(map(type, parts)) == _SHAPES[table], f"{key!r} is no key of table {table.name}"
    return b"".join(_NUMBER.pack(part) if isinstance(part, int) else part.encode() + b"\0" for part in parts)


def decode_key(table: Table, data: bytes) -> Key:
    """The key of these bytes. Raises ValueError on anything else."""
    parts: list[int | str] = []
    at = 0
    for shape in _SHAPES[table]:
        if shape is int:
            if at + 8 > len(data):
                raise ValueError(f"a key of table {table.name} is too short")
            parts.append(_NUMBER.unpack_from(data, at)[0])
            at += 8
        else:
            end = data.index(b"\0", at)
            parts.append(data[at:end].decode())
            at = end + 1
    if at != len(data):
        raise ValueError(f"a key of table {table.name} has trailing bytes")
    return parts[0] if len(parts) == 1 else tuple(parts)  # type: ignore[return-value]
