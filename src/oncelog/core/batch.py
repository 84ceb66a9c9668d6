"""The record batch, Kafka's format 2: encode, read the header, skim, decode, drop records. All big-endian.

    byte  0  base offset 8      not trusted, readers stamp it    27  base timestamp 8, ms
          8  batch length 4     bytes that follow this field     35  max timestamp 8, ms
         12  leader epoch 4     not used, -1                     43  producer id 8, -1 = none
         16  magic 1            2                                51  producer epoch 2
         17  CRC32C 4           of everything from byte 21 on    53  base sequence 4
         21  attributes 2       bits below                       57  record count 4
         23  last offset delta 4                                 61  records, together compressed or not

    record: length, attributes 1 (unused), timestamp delta, offset delta, key length, key, value length, value,
            header count, then per header: key length, key (UTF-8), value length, value

Numbers in a record are zigzag varints; length -1 is null. Offsets and timestamps are deltas to the header's, so a
record keeps its bytes when others around it are dropped.

Invariants: bytes 0 to 15 are outside the CRC and carry no meaning but the length. A batch that `skim` accepted can be
decoded by every function here. Every reading function takes arbitrary bytes and raises `BatchInvalid`, nothing else;
positions count as if the batch were stored uncompressed. Only `skim` and `check_crc` look at the CRC.

This module is compiled by mypyc when a C compiler is there and runs as it stands otherwise. Hence plain `int` (its
meaning is the same in both, unlike `i64`), varints with the one-byte case inline, and no clever objects in loops.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, TypeAlias, final

from crc32c import crc32c

from oncelog.core.compression import inflate
from oncelog.errors import BatchInvalid
from oncelog.limits import BATCH_INFLATED_BYTES_MAX, BATCH_RECORDS_MAX, RUN_VALUE_BYTES_MAX

Buffer: TypeAlias = bytes | bytearray | memoryview
Value: TypeAlias = bytes | bytearray | None
Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
Record: TypeAlias = tuple[int, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""(offset delta, timestamp in ms, key, value, headers). Decoding gives the headers as a tuple."""

Columns: TypeAlias = tuple[list[int], list[int], list[bytes | None], list[bytes | None], list[Headers]]
"""The fields of `Record`, a list each."""

BASE_OFFSET_AT: Final = 0
BATCH_LENGTH_AT: Final = 8
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
LAST_OFFSET_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
BASE_SEQUENCE_AT: Final = 53
RECORD_COUNT_AT: Final = 57
HEADER_BYTES: Final = 61

MAGIC: Final = 2
LENGTH_SKIPPED_BYTES: Final = 12  # the batch length leaves out the base offset and itself

CODEC_MASK: Final = 0x07
TIMESTAMP_LOG_APPEND: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
ATTRIBUTES_KNOWN: Final = CODEC_MASK | TIMESTAMP_LOG_APPEND | TRANSACTIONAL | CONTROL
CODEC_LAST: Final = 4

RECORD_BYTES_MIN: Final = 7  # seven fields of one byte: no key, no value, no headers
VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10
TIMESTAMP_MAX: Final = 2**63 - 1
TIMESTAMP_TAME_MAX: Final = 2**61
"""Two numbers below it add up to a 64-bit timestamp without looking."""

_HEADER: Final = Struct(">qiibIhiqqqhii")
_UINT32: Final = Struct(">I")
_AFTER_CRC: Final = Struct(">hiqqqhii")
assert _HEADER.size == HEADER_BYTES
assert _AFTER_CRC.size == HEADER_BYTES - ATTRIBUTES_AT

_OFFSET_ZERO: Final = bytes(8)
_EPOCH_AND_MAGIC: Final = b"\xff\xff\xff\xff\x02"


# --- encoding --------------------------------------------------------------------------------------------------


def _zigzag_varint(number: int) -> bytes:
    """Any number of at most 64 bits, signed."""
    rest = number * 2 if number >= 0 else -number * 2 - 1
    assert rest >> 64 == 0
    out: list[int] = []
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_VARINTS: Final = [_zigzag_varint(number) for number in range(8192)]
"""The numbers that take one or two bytes: nearly every length and delta there is."""


def _varint(number: int) -> bytes:
    return _VARINTS[number] if 0 <= number < 8192 else _zigzag_varint(number)


LENGTHS_TABLED_MAX: Final = 8192
"""Value lengths for which an encoder remembers the bytes around a value. A full table starts over: evicting costs."""

_ONE: Final[dict[int, tuple[bytes, bytes]]] = {}
"""Value length → (bytes 0 to 16, bytes from the producer id up to the value) of a batch of this one value."""

_MANY: Final[list[dict[int, tuple[bytes, bytes]]]] = [{}, {}, {}]
"""Per width of the offset delta: value length → (end of the previous record up to the offset delta, from there up to
the value) inside a batch without keys."""

_ONE_ATTRIBUTES: Final = bytes(6)  # and last offset delta 0
_ONE_PRODUCER: Final = b"\xff" * 14 + b"\x00\x00\x00\x01"  # none, and record count 1


def encode_one(
    value: Value, timestamp_ms: int, key: bytes | None = None, headers: Sequence[tuple[str, bytes | None]] = ()
) -> bytes:
    """A batch of one record: base offset 0, no producer, CreateTime, not compressed."""
    if value is None or key is not None or len(headers) > 0:
        return encode([(0, timestamp_ms, key, None if value is None else bytes(value), headers)])
    front, middle = _ONE.get(len(value)) or _around_one(len(value))
    time = timestamp_ms.to_bytes(8, "big", signed=True)
    if len(value) > RUN_VALUE_BYTES_MAX:  # copied once, and the checksum taken piece by piece
        head = b"".join((_ONE_ATTRIBUTES, time, time, middle))
        crc = crc32c(b"\x00", crc32c(value, crc32c(head)))
        return b"".join((front, _UINT32.pack(crc), head, value, b"\x00"))
    checked = b"".join((_ONE_ATTRIBUTES, time, time, middle, value, b"\x00"))
    return b"".join((front, _UINT32.pack(crc32c(checked)), checked))


def _around_one(value_bytes: int) -> tuple[bytes, bytes]:
    head, tail = _around_many(value_bytes, 1)
    record = head[1:] + b"\x00" + tail
    middle = _ONE_PRODUCER + record
    length = HEADER_BYTES - LENGTH_SKIPPED_BYTES + len(record) + value_bytes + 1
    around = (_OFFSET_ZERO + _UINT32.pack(length) + _EPOCH_AND_MAGIC, middle)
    if len(_ONE) >= LENGTHS_TABLED_MAX:
        _ONE.clear()
    _ONE[value_bytes] = around
    return around


def encode_values(values: Sequence[bytes], timestamp_ms: int) -> bytes:
    """A batch of many values of one time: no keys, no headers, otherwise as `encode_one`."""
    count = len(values)
    assert count > 0
    assert count <= BATCH_RECORDS_MAX
    pieces = [_AFTER_CRC.pack(0, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count)]
    first = 0
    # Records whose offset deltas take the same number of bytes look alike: 64 of one byte, 8,128 of two, then three.
    for width, next_ in ((1, 64), (2, 8192), (3, BATCH_RECORDS_MAX)):
        if first < count:
            _add_values(pieces, values[first:next_], first, width)
        first = next_
    pieces.append(b"\x00")
    # Every piece before a record ends the record before it; the first has none before it.
    pieces[1] = pieces[1][1:]
    return _seal(pieces)


def _add_values(pieces: list[bytes], values: Sequence[bytes], first: int, width: int) -> None:
    table = _MANY[width - 1]
    count = len(values)
    next_ = first + count
    deltas = _VARINTS[first:next_] if next_ <= 8192 else [_varint(delta) for delta in range(first, next_)]
    lengths = [len(value) for value in values]
    if lengths.count(lengths[0]) == count:
        # Equal lengths, the usual case of measurements and of fixed rows: filled in column by column.
        head, tail = table.get(lengths[0]) or _around_many(lengths[0], width)
        rows = [head, b"", tail, b""] * count
        rows[1::4] = deltas
        rows[3::4] = values
        pieces += rows
        return
    for delta, length, value in zip(deltas, lengths, values, strict=True):
        around = table.get(length)
        if around is None:
            around = _around_many(length, width)
        pieces += (around[0], delta, around[1], value)


def _around_many(value_bytes: int, delta_bytes: int) -> tuple[bytes, bytes]:
    tail = b"\x01" + _varint(value_bytes)
    record_bytes = 2 + delta_bytes + len(tail) + value_bytes + 1
    around = (b"\x00" + _varint(record_bytes) + b"\x00\x00", tail)
    table = _MANY[delta_bytes - 1]
    if len(table) >= LENGTHS_TABLED_MAX:
        table.clear()
    table[value_bytes] = around
    return around


def encode(
    records: Sequence[Record],
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    last_offset_delta: int | None = None,
) -> bytes:
    """A batch of any records. Offset deltas increase strictly and may leave holes, also before and after."""
    assert len(records) > 0
    base_timestamp = max_timestamp = records[0][1]
    previous = -1
    pieces = [b""]
    for record in records:
        assert record[0] > previous
        previous = record[0]
        max_timestamp = max(max_timestamp, record[1])
        _add_record(pieces, record, base_timestamp)
    if last_offset_delta is None:
        last_offset_delta = previous
    assert last_offset_delta >= previous
    attributes = (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    times = (base_timestamp, max_timestamp)
    producer = (producer_id, producer_epoch, base_sequence)
    pieces[0] = _AFTER_CRC.pack(attributes, last_offset_delta, *times, *producer, len(records))
    return _seal(pieces)


def _add_record(pieces: list[bytes], record: Record, base_timestamp: int) -> None:
    delta, timestamp_ms, key, value, headers = record
    slot = len(pieces)
    front = b"\x00" + _varint(timestamp_ms - base_timestamp) + _varint(delta)
    # The first piece is replaced by the record's length once that is known.
    pieces += (b"", front)
    record_bytes = len(front) + _add_bytes(pieces, key) + _add_bytes(pieces, value)
    count = _varint(len(headers))
    pieces.append(count)
    record_bytes += len(count)
    for name, content in headers:
        record_bytes += _add_bytes(pieces, name.encode()) + _add_bytes(pieces, content)
    pieces[slot] = _varint(record_bytes)


def _add_bytes(pieces: list[bytes], content: bytes | None) -> int:
    if content is None:
        pieces.append(b"\x01")
        return 1
    length = _varint(len(content))
    pieces += (length, content)
    return len(length) + len(content)


def _seal(pieces: list[bytes]) -> bytes:
    """A batch at base offset 0 from the header behind the checksum, which is the first piece, and the records."""
    checked = b"".join(pieces)
    length = _UINT32.pack(ATTRIBUTES_AT - LENGTH_SKIPPED_BYTES + len(checked))
    return b"".join((_OFFSET_ZERO, length, _EPOCH_AND_MAGIC, _UINT32.pack(crc32c(checked)), checked))


def encode_marker(
    producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """The control batch that ends a txn on one stream: 78 bytes, one offset."""
    key = b"\x00\x00\x00\x01" if commit else b"\x00\x00\x00\x00"
    value = b"\x00\x00" + coordinator_epoch.to_bytes(4, "big", signed=True)
    records = [(0, timestamp_ms, key, value, ())]
    return encode(records, producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True)


# --- reading ---------------------------------------------------------------------------------------------------


@final
class BatchHeader:
    """What the first 61 bytes say."""

    __slots__ = ("attributes", "base_offset", "base_sequence", "base_timestamp", "batch_bytes", "last_offset_delta",
                 "leader_epoch", "max_timestamp", "producer_epoch", "producer_id", "record_count")  # fmt: skip

    def __init__(self, batch: Buffer, at: int) -> None:
        fields = _HEADER.unpack_from(batch, at)
        self.base_offset: int = fields[0]
        self.batch_bytes: int = LENGTH_SKIPPED_BYTES + int(fields[1])
        """The whole batch, from byte 0."""
        self.leader_epoch: int = fields[2]
        self.attributes: int = fields[5]
        self.last_offset_delta: int = fields[6]
        self.base_timestamp: int = fields[7]
        self.max_timestamp: int = fields[8]
        self.producer_id: int = fields[9]
        self.producer_epoch: int = fields[10]
        self.base_sequence: int = fields[11]
        self.record_count: int = fields[12]


def read_header(batch: Buffer, at: int = 0) -> BatchHeader:
    """The header of the batch that starts at `at`; what follows it need not be there yet. Checks no checksum."""
    if len(batch) - at < HEADER_BYTES:
        raise BatchInvalid(f"{len(batch) - at} bytes, a batch header has {HEADER_BYTES}", at)
    if batch[at + MAGIC_AT] != MAGIC:
        raise BatchInvalid(f"magic {batch[at + MAGIC_AT]}, only {MAGIC} is known", at + MAGIC_AT)
    header = BatchHeader(batch, at)
    if header.batch_bytes < HEADER_BYTES:
        raise BatchInvalid(f"batch of {header.batch_bytes} bytes ends inside its header", at + BATCH_LENGTH_AT)
    return header


def check_crc(batch: Buffer) -> bool:
    """Whether the batch, which is all of `batch`, still is what was written."""
    if len(batch) < HEADER_BYTES:
        return False
    view = memoryview(batch)
    stated: int = _UINT32.unpack_from(view, CRC_AT)[0]
    computed: int = crc32c(view[ATTRIBUTES_AT:])
    return stated == computed


def stamp(batch: Buffer, base_offset: int) -> tuple[bytes, memoryview]:
    """The batch at its offset, in two pieces, without a copy: the CRC does not cover the base offset."""
    return base_offset.to_bytes(8, "big"), memoryview(batch)[BATCH_LENGTH_AT:]


def skim(batch: Buffer, *, dense: bool = True, inflated_bytes_max: int = BATCH_INFLATED_BYTES_MAX) -> BatchHeader:
    """Accepts the batch if it is whole and every record in it can be decoded; else `BatchInvalid`.

    A dense batch, all that a producer may send, has the offset deltas 0 to count - 1. One that is not dense may have
    holes. Who wrote it, and whether it may, is not looked at.
    """
    header = read_header(batch)
    _check_header(header, len(batch))
    if not check_crc(batch):
        raise BatchInvalid("checksum does not match", CRC_AT)
    if dense and header.last_offset_delta != header.record_count - 1:
        raise _offsets_invalid(header)
    data = _plain(batch, header, inflated_bytes_max)
    try:
        _skim_records(data, header)
    except IndexError:
        raise BatchInvalid("records end inside a record", len(data)) from None
    return header


def _check_header(header: BatchHeader, batch_bytes: int) -> None:
    if header.batch_bytes != batch_bytes:
        raise BatchInvalid(f"{batch_bytes} bytes, the length field says {header.batch_bytes}", BATCH_LENGTH_AT)
    if header.attributes & ~ATTRIBUTES_KNOWN:
        raise BatchInvalid(f"attributes {header.attributes:#x} have unknown bits", ATTRIBUTES_AT)
    if header.attributes & CODEC_MASK > CODEC_LAST:
        raise BatchInvalid(f"compression codec {header.attributes & CODEC_MASK} is unknown", ATTRIBUTES_AT)
    if header.record_count < 1:
        raise BatchInvalid(f"record count {header.record_count}", RECORD_COUNT_AT)
    if header.record_count > BATCH_RECORDS_MAX:
        raise BatchInvalid(f"{header.record_count} records, {BATCH_RECORDS_MAX} allowed", RECORD_COUNT_AT)
    if header.last_offset_delta < header.record_count - 1:
        raise _offsets_invalid(header)


def _offsets_invalid(header: BatchHeader) -> BatchInvalid:
    reason = f"last offset delta {header.last_offset_delta} with {header.record_count} records"
    return BatchInvalid(reason, LAST_OFFSET_DELTA_AT)


def _plain(batch: Buffer, header: BatchHeader, inflated_bytes_max: int) -> bytes:
    """The batch with its records not compressed from byte 61 on; the header before them is left as it was."""
    codec = header.attributes & CODEC_MASK
    if codec == 0:
        data = batch if isinstance(batch, bytes) else bytes(batch)
    else:
        view = memoryview(batch)
        data = bytes(view[:HEADER_BYTES]) + inflate(codec, view[HEADER_BYTES:], inflated_bytes_max)
    # A hostile count ends here, before a loop has begun.
    if (len(data) - HEADER_BYTES) // RECORD_BYTES_MIN < header.record_count:
        raise BatchInvalid(f"{header.record_count} records in {len(data) - HEADER_BYTES} bytes", RECORD_COUNT_AT)
    return data


def _opened(batch: Buffer, inflated_bytes_max: int) -> tuple[BatchHeader, bytes]:
    header = read_header(batch)
    _check_header(header, len(batch))
    return header, _plain(batch, header, inflated_bytes_max)


def _long_varint(data: bytes, at: int, number: int, bytes_max: int) -> tuple[int, int]:
    """Goes on after a first byte `number` above 127, `at` being the next: (unsigned number, byte after it).

    `IndexError` at the end of the data, as from the inline case.
    """
    number &= 127
    shift = 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift == 7 * bytes_max:
            raise BatchInvalid(f"varint of more than {bytes_max} bytes", at)
    if number >> (32 if bytes_max == VARINT_BYTES_MAX else 64):
        raise BatchInvalid("varint is out of range", at)
    return number, at


def _record_end(data: bytes, at: int, length: int) -> int:
    """Where a record ends that starts at `at` and has the zigzag `length`; never beyond the data."""
    if length & 1:
        raise BatchInvalid("record length is negative", at)
    end = at + (length >> 1)
    if end > len(data):
        raise BatchInvalid(f"record of {length >> 1} bytes, {len(data) - at} are left", at)
    return end


def _skip_bytes(data: bytes, at: int, end: int) -> int:
    """The byte after a nullable length with its content, which must lie before `end`."""
    length = data[at]
    at += 1
    if length > 127:
        length, at = _long_varint(data, at, length, VARINT_BYTES_MAX)
    if length & 1:
        if length != 1:
            raise BatchInvalid("length below -1", at)
        return at
    at += length >> 1
    if at > end:
        raise BatchInvalid("content runs past its record", at)
    return at


def _skim_records(data: bytes, header: BatchHeader) -> None:
    at = HEADER_BYTES
    previous = -1
    last_offset_delta = header.last_offset_delta
    base_timestamp = header.base_timestamp
    tame = -TIMESTAMP_TAME_MAX < base_timestamp < TIMESTAMP_TAME_MAX
    for _ in range(header.record_count):
        number = data[at]
        at += 1
        if number > 127:
            number, at = _long_varint(data, at, number, VARINT_BYTES_MAX)
        end = _record_end(data, at, number)
        number = data[at + 1]
        at += 2
        if number > 127:
            number, at = _long_varint(data, at, number, VARLONG_BYTES_MAX)
        if not tame or number > TIMESTAMP_TAME_MAX:
            if not -TIMESTAMP_MAX - 1 <= base_timestamp + ((number >> 1) ^ -(number & 1)) <= TIMESTAMP_MAX:
                raise BatchInvalid("timestamp does not fit 64 bits", at)
        number = data[at]
        at += 1
        if number > 127:
            number, at = _long_varint(data, at, number, VARINT_BYTES_MAX)
        delta = number >> 1
        # With strict increase, the density follows from last offset delta = count - 1, which was checked before.
        if number & 1 or delta <= previous or delta > last_offset_delta:
            raise BatchInvalid(f"offset delta {delta} after {previous}, last is {last_offset_delta}", at)
        previous = delta
        at = _skip_bytes(data, _skip_bytes(data, at, end), end)
        # Most records have no headers; those that have are rare enough to be decoded and thrown away.
        if data[at] == 0:
            at += 1
        else:
            _, at = _decode_headers(data, at, end)
        if at != end:
            raise BatchInvalid(f"record ends at byte {at}, its length says {end}", at)
    if at != len(data):
        raise BatchInvalid(f"{len(data) - at} bytes after the last record", at)


def _header_key(data: bytes, at: int, end: int) -> tuple[str, int]:
    """Header keys are text in every face, so other bytes are refused at the door."""
    length = data[at]
    at += 1
    if length > 127:
        length, at = _long_varint(data, at, length, VARINT_BYTES_MAX)
    if length & 1:
        raise BatchInvalid("header key length is negative", at)
    next_ = at + (length >> 1)
    if next_ > end:
        raise BatchInvalid("header key runs past its record", at)
    try:
        return data[at:next_].decode(), next_
    except UnicodeDecodeError:
        raise BatchInvalid("header key is not UTF-8", at) from None


def _nullable_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length = data[at]
    at += 1
    if length > 127:
        length, at = _long_varint(data, at, length, VARINT_BYTES_MAX)
    if length & 1:
        if length != 1:
            raise BatchInvalid("length below -1", at)
        return None, at
    next_ = at + (length >> 1)
    if next_ > end:
        raise BatchInvalid("content runs past its record", at)
    return data[at:next_], next_


def decode(batch: Buffer, *, inflated_bytes_max: int = BATCH_INFLATED_BYTES_MAX) -> list[Record]:
    """All records. With LogAppendTime, every record has the batch's time."""
    deltas, timestamps, keys, values, headers = decode_columns(batch, inflated_bytes_max=inflated_bytes_max)
    return list(zip(deltas, timestamps, keys, values, headers, strict=True))


def decode_columns(
    batch: Buffer,
    *,
    base_offset: int = 0,
    timestamps_per_ms: int = 1,
    headers: bool = True,
    inflated_bytes_max: int = BATCH_INFLATED_BYTES_MAX,
) -> Columns:
    """All records, field by field, timestamps in the unit asked for. Without `headers` the last list is empty."""
    header, data = _opened(batch, inflated_bytes_max)
    try:
        return _decode_columns(data, header, base_offset, timestamps_per_ms, headers)
    except IndexError:
        raise BatchInvalid("records end inside a record", len(data)) from None


def _decode_columns(
    data: bytes, header: BatchHeader, base_offset: int, timestamps_per_ms: int, with_headers: bool
) -> Columns:
    offsets: list[int] = []
    timestamps: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[Headers] = []
    base_timestamp = header.base_timestamp * timestamps_per_ms
    next_ = HEADER_BYTES
    for _ in range(header.record_count):
        number = data[next_]
        at = next_ + 1
        if number > 127:
            number, at = _long_varint(data, at, number, VARINT_BYTES_MAX)
        next_ = _record_end(data, at, number)
        number = data[at + 1]
        at += 2
        if number == 0:
            timestamps.append(base_timestamp)
        else:
            if number > 127:
                number, at = _long_varint(data, at, number, VARLONG_BYTES_MAX)
            timestamps.append(base_timestamp + ((number >> 1) ^ -(number & 1)) * timestamps_per_ms)
        number = data[at]
        at += 1
        if number > 127:
            number, at = _long_varint(data, at, number, VARINT_BYTES_MAX)
        offsets.append(base_offset + (number >> 1))
        if data[at] == 1:
            keys.append(None)
            at += 1
        else:
            key, at = _nullable_bytes(data, at, next_)
            keys.append(key)
        value, at = _nullable_bytes(data, at, next_)
        values.append(value)
        if with_headers:
            of_record, at = _decode_headers(data, at, next_)
            headers.append(of_record)
            if at != next_:
                raise BatchInvalid(f"record ends at byte {at}, its length says {next_}", at)
    if header.attributes & TIMESTAMP_LOG_APPEND:
        timestamps = [header.max_timestamp * timestamps_per_ms] * header.record_count
    return offsets, timestamps, keys, values, headers


def _decode_headers(data: bytes, at: int, end: int) -> tuple[Headers, int]:
    number = data[at]
    at += 1
    if number == 0:
        return (), at
    if number > 127:
        number, at = _long_varint(data, at, number, VARINT_BYTES_MAX)
    # A header has at least two bytes, so the loop is bounded by bytes that were really sent.
    if number & 1 or number > end - at:
        raise BatchInvalid("header count is out of range", at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(number >> 1):
        key, at = _header_key(data, at, end)
        value, at = _nullable_bytes(data, at, end)
        headers.append((key, value))
    return tuple(headers), at


def decode_values(batch: Buffer, *, inflated_bytes_max: int = BATCH_INFLATED_BYTES_MAX) -> list[bytes | None]:
    """The values alone, for faces that show nothing else."""
    header, data = _opened(batch, inflated_bytes_max)
    try:
        return _decode_values(data, header.record_count)
    except IndexError:
        raise BatchInvalid("records end inside a record", len(data)) from None


def _decode_values(data: bytes, record_count: int) -> list[bytes | None]:
    out: list[bytes | None] = []
    next_ = HEADER_BYTES
    for _ in range(record_count):
        number = data[next_]
        at = next_ + 1
        if number > 127:
            number, at = _long_varint(data, at, number, VARINT_BYTES_MAX)
        next_ = _record_end(data, at, number)
        at += 1
        while data[at] > 127:  # the timestamp delta
            at += 1
        at += 1
        while data[at] > 127:  # the offset delta
            at += 1
        at += 1
        if data[at] == 1:  # no key
            at += 1
        else:
            at = _skip_bytes(data, at, next_)
        number = data[at]
        at += 1
        if number > 127:
            number, at = _long_varint(data, at, number, VARINT_BYTES_MAX)
        if number & 1:
            out.append(None)
        else:
            end = at + (number >> 1)
            out.append(data[at:end])
            at = end
        # The header count stands at `at`, inside the record; headers themselves are stepped over.
        if at >= next_:
            raise BatchInvalid("content runs past its record", at)
    return out


# --- holes -----------------------------------------------------------------------------------------------------


def without(
    batch: Buffer, dead: Sequence[tuple[int, int]], *, inflated_bytes_max: int = BATCH_INFLATED_BYTES_MAX
) -> bytes | None:
    """The batch without the records whose offset deltas lie in `dead`, sorted ranges [first, next).

    Everything else stays, the bytes of the other records included; only compression is undone. None if no record is
    left; the batch itself, the same object if it is `bytes`, if none is dead.
    """
    header = read_header(batch)
    _check_header(header, len(batch))
    whole = batch if isinstance(batch, bytes) else bytes(batch)
    if len(dead) == 0 or dead[0][0] > header.last_offset_delta or dead[-1][1] <= 0:
        return whole
    data = _plain(whole, header, inflated_bytes_max)
    try:
        live, count = _live_runs(data, header.record_count, dead)
    except IndexError:
        raise BatchInvalid("records end inside a record", len(data)) from None
    if count == header.record_count:
        return whole
    if count == 0:
        return None
    attributes = (header.attributes & ~CODEC_MASK).to_bytes(2, "big")
    after_crc = attributes + whole[LAST_OFFSET_DELTA_AT:RECORD_COUNT_AT] + count.to_bytes(4, "big")
    sealed = _seal([after_crc, *live])
    # Base offset and leader epoch are outside the CRC, and are kept as well.
    length = sealed[BATCH_LENGTH_AT:LEADER_EPOCH_AT]
    return b"".join((whole[:BATCH_LENGTH_AT], length, whole[LEADER_EPOCH_AT:MAGIC_AT], sealed[MAGIC_AT:]))


def _live_runs(data: bytes, record_count: int, dead: Sequence[tuple[int, int]]) -> tuple[list[bytes], int]:
    """The bytes of the records outside `dead`, a piece per run of neighbours, and how many records they are."""
    runs: list[bytes] = []
    count = 0
    range_ = 0
    run_first = next_ = HEADER_BYTES
    for _ in range(record_count):
        first = next_
        number = data[first]
        at = first + 1
        if number > 127:
            number, at = _long_varint(data, at, number, VARINT_BYTES_MAX)
        next_ = _record_end(data, at, number)
        at += 1
        while data[at] > 127:  # the timestamp delta
            at += 1
        at += 1
        number = data[at]
        if number > 127:
            number, at = _long_varint(data, at + 1, number, VARINT_BYTES_MAX)
        delta = number >> 1
        while range_ < len(dead) and dead[range_][1] <= delta:
            range_ += 1
        if range_ < len(dead) and dead[range_][0] <= delta:
            if run_first < first:
                runs.append(data[run_first:first])
            run_first = next_
        else:
            count += 1
    if run_first < next_:
        runs.append(data[run_first:next_])
    return runs, count
