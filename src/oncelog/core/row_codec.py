"""Rows and their keys as bytes: what the index stores and what `carried` entries hold.

A row is positional MessagePack with sorted maps, so equal rows have equal bytes. A key is unique within its
table and sorts as its parts do; text parts end with a NUL, which names may not contain.
"""

import struct
from copy import copy
from typing import Any, Final

import msgspec

from oncelog.core.producer import Producer
from oncelog.core.rows import Application, Cursor, HoleChunk, Key, Remembered, Stage, Stream, Table, Topic
from oncelog.core.state import Row
from oncelog.core.txn import Txn

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_encode_as_is: Final = msgspec.msgpack.Encoder().encode
_DECODERS: Final[dict[Table, Any]] = {
    Table.TOPIC: msgspec.msgpack.Decoder(Topic),
    Table.STREAM: msgspec.msgpack.Decoder(Stream),
    Table.PRODUCER: msgspec.msgpack.Decoder(Producer),
    Table.CURSOR: msgspec.msgpack.Decoder(Cursor),
    Table.TXN: msgspec.msgpack.Decoder(Txn),
    Table.STAGE: msgspec.msgpack.Decoder(Stage),
    Table.APPLICATION: msgspec.msgpack.Decoder(Application),
    Table.REMEMBERED: msgspec.msgpack.Decoder(Remembered),
    Table.HOLES: msgspec.msgpack.Decoder(HoleChunk),
}
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
}
assert set(_SHAPES) == set(_DECODERS) == set(Table)


def encode_row(row: Row) -> bytes:
    """The bytes of a row."""
    # msgspec sorts maps by text keys only; maps by id are sorted here, in a copy.
    if type(row) is Stream and (open_txns := row.open_txns):
        row = copy(row)
        row.open_txns = _sorted(open_txns)
    elif type(row) is Txn and row.streams:
        row = copy(row)
        row.streams = _sorted(row.streams)
    return _encoder.encode(row)


def _sorted(by_id: dict[int, Any]) -> Any:
    """A map by id as bytes to be copied into the row's."""
    return msgspec.Raw(_encode_as_is(dict(sorted(by_id.items()))))


def decode_row(table: Table, data: bytes) -> Row:
    """The row of these bytes. Raises msgspec.ValidationError or DecodeError on anything else."""
    row: Row = _DECODERS[table].decode(data)
    return row


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
