"""Entries as bytes, and groups of them: the payload of one frame. Format in `docs/format/entries.md`.

Group payload: first entry number u64, entry count u32, then the entries end to end.

Entry: length u32 (of what follows), append time u64 ns, shape u8.
  shape 1, flat:      one Appended body.
  shape 2, compound:  operation count u32, then per operation: tag u8, length u32, body.

Body of Appended: stream u64, first u64, count u32, flags u16, claim bytes u16, order key bytes u16, txn id bytes u16,
id count u32, batch bytes u32; then claim (epoch accepted i64, then MessagePack), order key, txn id, ids, batch. With
the flag MANY_CLAIMS the claim is MessagePack alone: an array of [record number, epoch accepted, claim].
Body of StageAppended and Moved: fixed fields, then the batch. Every other body is positional MessagePack.

Integrity is the frame's business: its CRC covers every byte here. Decoding still checks every length, because verify
must name damage instead of stumbling over it.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from oncelog.core.entry import (
    ID_BYTES,
    MANY_CLAIMS,
    OPERATIONS,
    Appended,
    Compound,
    Entry,
    Moved,
    Operation,
    StageAppended,
    StagePublished,
    TxnSet,
)
from oncelog.core.flat import ProducerClaim
from oncelog.core.row_codec import ClaimFields, claim_of_fields, encode_row
from oncelog.errors import Corruption

GROUP_HEADER: Final = struct.Struct("<QI")
_ENTRY_HEADER: Final = struct.Struct("<IQB")
ENTRY_HEADER_BYTES: Final = _ENTRY_HEADER.size
_APPENDED: Final = struct.Struct("<QQIHHHHII")
_STAGE_APPENDED: Final = struct.Struct("<QQIB")
_MOVED: Final = struct.Struct("<QQIQ")
_OPERATION: Final = struct.Struct("<BI")
_EPOCH: Final = struct.Struct("<q")
_COUNT: Final = struct.Struct("<I")

FLAT: Final = 1
COMPOUND: Final = 2

_EPOCH_BYTES: Final = _EPOCH.size
_pack_epoch: Final = _EPOCH.pack
_pack_appended: Final = _APPENDED.pack


def _told(value: Any) -> tuple[Any, ...]:
    """What msgspec does not know is a claim inside of an operation."""
    assert type(value) is ProducerClaim
    return value.fields()


def _claim_read(kind: type, value: Any) -> ProducerClaim:
    assert kind is ProducerClaim
    # Without its own word for bytes, a text in their place would be taken for base64.
    return claim_of_fields(msgspec.convert(value, ClaimFields, builtin_types=(bytes,)))


_encode: Final = msgspec.msgpack.Encoder(order="deterministic", enc_hook=_told).encode
_decode_claim: Final = msgspec.msgpack.Decoder(ClaimFields).decode
_decode_claims: Final = msgspec.msgpack.Decoder(tuple[tuple[int, int, ClaimFields], ...]).decode
_DECODERS: Final[dict[int, Any]] = {
    tag: msgspec.msgpack.Decoder(kind, dec_hook=_claim_read).decode
    for tag, kind in OPERATIONS.items()
    if kind not in (Appended, StageAppended, Moved)
}


def encode_entry(entry: Entry) -> list[bytes]:
    """The entry as buffers. Sets `batch_at` of every operation that carries a batch."""
    if type(entry) is Appended:
        body = _appended_body(entry)
        entry.batch_at = ENTRY_HEADER_BYTES + len(body)
        length = entry.batch_at - 4 + len(entry.batch)
        return [_ENTRY_HEADER.pack(length, entry.time_ns, FLAT) + body, entry.batch]
    assert type(entry) is Compound
    buffers: list[bytes] = [b""]
    at = _ENTRY_HEADER.size + _COUNT.size
    for operation in entry.operations:
        body, batch = _operation_parts(operation)
        buffers.append(_OPERATION.pack(operation.tag, len(body) + len(batch)) + body)
        at += len(buffers[-1])
        if batch:
            operation.batch_at = at  # type: ignore[union-attr]
            buffers.append(batch)
            at += len(batch)
    head_bytes = _ENTRY_HEADER.pack(at - 4, entry.time_ns, COMPOUND) + _COUNT.pack(len(entry.operations))
    buffers[0] = head_bytes
    return buffers


def _appended_body(op: Appended) -> bytes:
    """The body of an append without its batch."""
    claim = b""
    if op.claim is not None:
        claim = _pack_epoch(op.epoch) + _encode(op.claim.fields())
    elif op.claims:
        claim = _encode([(number, epoch, claim.fields()) for number, epoch, claim in op.claims])
    order_key, txn_id, ids = op.order_key.encode(), op.txn_id.encode(), op.ids
    head = _pack_appended(
        op.stream_id,
        op.first,
        op.count,
        op.flags,
        len(claim),
        len(order_key),
        len(txn_id),
        len(ids) // ID_BYTES,
        len(op.batch),
    )
    return head + claim + order_key + txn_id + ids


def _operation_parts(operation: Operation) -> tuple[bytes, bytes]:
    """(body without its batch, batch)."""
    match operation:
        case Appended():
            return _appended_body(operation), operation.batch
        case StageAppended():
            fixed = _STAGE_APPENDED.pack(operation.stage_id, operation.first, operation.count, len(operation.digest))
            return fixed + operation.digest, operation.batch
        case Moved():
            fixed = _MOVED.pack(operation.extent_id, operation.first, operation.count, operation.time_ns)
            return fixed, operation.batch
        case TxnSet() if operation.txn is not None:
            # A row is encoded by its own codec: it alone knows how to sort its maps.
            return _encode((operation.txn_id, msgspec.Raw(encode_row(operation.txn)))), b""
        case _:
            return _encode(operation), b""


def decode_group(payload: bytes) -> Iterator[tuple[int, int, Entry]]:
    """(entry number, byte in the payload where the entry begins, entry). An empty payload is a proof frame."""
    if not payload:
        return
    try:
        number, count = GROUP_HEADER.unpack_from(payload, 0)
        at = GROUP_HEADER.size
        for _ in range(count):
            length, time_ns, shape = _ENTRY_HEADER.unpack_from(payload, at)
            end = at + 4 + length
            if end > len(payload):
                raise ValueError("the entry ends outside its group")
            if shape == FLAT:
                entry: Entry = _decode_appended(payload, at + _ENTRY_HEADER.size, end, time_ns, at)
            elif shape == COMPOUND:
                entry = _decode_compound(payload, at, end, time_ns)
            else:
                raise ValueError(f"no entry has the shape {shape}")
            yield number, at, entry
            number += 1
            at = end
        if at != len(payload):
            raise ValueError(f"{len(payload) - at} bytes after the last entry")
    except (ValueError, struct.error, msgspec.DecodeError, KeyError) as error:
        raise Corruption(f"a group does not decode: {error}") from error


def _decode_appended(payload: bytes, at: int, end: int, time_ns: int, entry_at: int) -> Appended:
    stream_id, first, count, flags, claim_bytes, key_bytes, txn_bytes, id_count, batch_bytes = _APPENDED.unpack_from(
        payload, at
    )
    at += _APPENDED.size
    batch_at = end - batch_bytes
    if at + claim_bytes + key_bytes + txn_bytes + ID_BYTES * id_count != batch_at:
        raise ValueError("the lengths of an append do not add up")
    op = Appended(stream_id, first, count, payload[batch_at:end], time_ns, flags)
    if flags & MANY_CLAIMS:
        claims = _decode_claims(payload[at : at + claim_bytes])
        op.claims = tuple((number, epoch, claim_of_fields(claim)) for number, epoch, claim in claims)
    elif claim_bytes:
        if claim_bytes < _EPOCH_BYTES:
            raise ValueError("a claim is too short for its epoch")
        op.epoch = _EPOCH.unpack_from(payload, at)[0]
        op.claim = claim_of_fields(_decode_claim(payload[at + _EPOCH_BYTES : at + claim_bytes]))
    if key_bytes or txn_bytes or id_count:
        at += claim_bytes
        op.order_key = payload[at : at + key_bytes].decode()
        op.txn_id = payload[at + key_bytes : at + key_bytes + txn_bytes].decode()
        op.ids = payload[at + key_bytes + txn_bytes : batch_at]
    op.batch_at = batch_at - entry_at
    return op


def _decode_compound(payload: bytes, entry_at: int, end: int, time_ns: int) -> Compound:
    at = entry_at + _ENTRY_HEADER.size
    (count,) = _COUNT.unpack_from(payload, at)
    at += _COUNT.size
    operations: list[Operation] = []
    for _ in range(count):
        tag, length = _OPERATION.unpack_from(payload, at)
        at += _OPERATION.size
        if at + length > end:
            raise ValueError("an operation ends outside its entry")
        operations.append(_decode_operation(payload, tag, at, at + length, time_ns, entry_at))
        at += length
    if at != end:
        raise ValueError(f"{end - at} bytes after the last operation")
    return Compound(time_ns, operations)


def _decode_operation(payload: bytes, tag: int, at: int, end: int, time_ns: int, entry_at: int) -> Operation:
    if tag == Appended.tag:
        return _decode_appended(payload, at, end, time_ns, entry_at)
    if tag == StageAppended.tag:
        stage_id, first, count, digest_bytes = _STAGE_APPENDED.unpack_from(payload, at)
        at += _STAGE_APPENDED.size
        batch_at = at + digest_bytes
        if batch_at > end:
            raise ValueError("the digest of a stage append ends outside it")
        digest = payload[at:batch_at]
        return StageAppended(stage_id, first, count, payload[batch_at:end], digest, batch_at - entry_at)
    if tag == Moved.tag:
        extent_id, first, count, moved_ns = _MOVED.unpack_from(payload, at)
        at += _MOVED.size
        if at > end:
            raise ValueError("the numbers of a moved batch end outside it")
        return Moved(extent_id, first, count, payload[at:end], moved_ns, at - entry_at)
    operation: Operation = _DECODERS[tag](payload[at:end])
    if type(operation) is StagePublished and len(operation.ids) % ID_BYTES:
        raise ValueError(f"the ids of a publish are {len(operation.ids)} bytes, each has {ID_BYTES}")
    return operation
