"""The record-batch codec against itself, against vectors, and against damage; the pure and the compiled one alike."""

import random
import struct
from types import ModuleType

import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncelog.core.compression import deflate
from oncelog.errors import BatchInvalid
from oncelog.limits import BATCH_RECORDS_MAX
from tests.core.batch_codecs import CODECS

TIME = 1_700_000_000_123

pytestmark = pytest.mark.parametrize("codec", CODECS)

contents = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=20), contents), max_size=3).map(tuple)
times = st.integers(-(2**62), 2**62 - 1)


@st.composite
def record_lists(draw: st.DrawFn) -> list[tuple[object, ...]]:
    steps = draw(st.lists(st.integers(1, 100), min_size=1, max_size=12))
    delta = -1
    records: list[tuple[object, ...]] = []
    for step in steps:
        delta += step
        records.append((delta, draw(times), draw(contents), draw(contents), draw(headers)))
    return records


def resealed(batch: bytes) -> bytes:
    """The batch with its length and checksum made right again, so that only what is inside can be wrong."""
    batch = batch[:8] + struct.pack(">i", len(batch) - 12) + batch[12:]
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


def compressed(batch: bytes, codec_number: int) -> bytes:
    packed = batch[:21] + struct.pack(">h", codec_number) + batch[23:61] + deflate(codec_number, batch[61:])
    return resealed(packed)


def with_records(codec: ModuleType, records: bytes, count: int = 1, *, base_timestamp: int = 0) -> bytes:
    """A batch around hand-made record bytes."""
    batch = codec.encode_one(b"", base_timestamp)
    return resealed(batch[:23] + struct.pack(">i", count - 1) + batch[27:57] + struct.pack(">i", count) + records)


# --- encoding --------------------------------------------------------------------------------------------------


@given(records=record_lists(), tail=st.integers(0, 5))
def test_records_come_back_as_they_went_in(codec: ModuleType, records: list[tuple[object, ...]], tail: int) -> None:
    last = int(str(records[-1][0])) + tail
    batch = codec.encode(records, producer_id=7, producer_epoch=3, base_sequence=11, last_offset_delta=last)
    assert codec.decode(batch) == records
    assert codec.decode_values(batch) == [record[3] for record in records]
    header = codec.skim(batch, dense=False)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 11)
    assert (header.base_offset, header.leader_epoch, header.attributes) == (0, -1, 0)
    assert (header.last_offset_delta, header.record_count, header.batch_bytes) == (last, len(records), len(batch))
    assert header.base_timestamp == records[0][1]
    assert header.max_timestamp == max(int(str(record[1])) for record in records)


@given(value=contents, time=times, key=contents, headers=headers)
def test_one_record_batch_equals_the_general_encoding(
    codec: ModuleType, value: bytes | None, time: int, key: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    batch = codec.encode_one(value, time, key, headers)
    assert batch == codec.encode([(0, time, key, value, headers)])
    assert codec.encode_one(value, time) == codec.encode([(0, time, None, value, ())])
    codec.skim(batch)


@pytest.mark.parametrize("value_bytes", [0, 1, 57, 58, 59, 63, 64, 8184, 8185, 8191, 8192, 2**20, 2**20 + 1])
def test_one_record_batch_is_right_where_a_varint_grows(codec: ModuleType, value_bytes: int) -> None:
    value = b"v" * value_bytes
    assert codec.encode_one(value, TIME) == codec.encode([(0, TIME, None, value, ())])
    assert codec.decode_values(codec.encode_one(value, TIME)) == [value]


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200, 8191, 8192, 8193, 9000])
@pytest.mark.parametrize("spread", [1, 7])
def test_many_values_equal_the_general_encoding(codec: ModuleType, count: int, spread: int) -> None:
    values = [bytes(58 + row % spread) for row in range(count)]
    batch = codec.encode_values(values, TIME)
    assert batch == codec.encode([(row, TIME, None, value, ()) for row, value in enumerate(values)])


def test_tables_of_lengths_start_over_when_full_and_stay_right(codec: ModuleType) -> None:
    for value_bytes in range(0, 2 * codec.LENGTHS_TABLED_MAX + 10, 2):
        codec.encode_one(bytes(value_bytes), TIME)
    assert len(codec._ONE) <= codec.LENGTHS_TABLED_MAX
    assert codec.encode_one(b"abc", TIME) == codec.encode([(0, TIME, None, b"abc", ())])
    assert codec.decode_values(codec.encode_values([b"abc", b"de"], TIME)) == [b"abc", b"de"]


def test_encode_refuses_offsets_that_do_not_increase(codec: ModuleType) -> None:
    with pytest.raises(AssertionError):
        codec.encode([(1, TIME, None, b"a", ()), (1, TIME, None, b"b", ())])
    with pytest.raises(AssertionError):
        codec.encode([(5, TIME, None, b"a", ())], last_offset_delta=4)
    with pytest.raises(AssertionError):
        codec.encode([])


def checked(hexadecimal: str) -> bytes:
    """The bytes of a vector, the checksum in bytes 17 to 20 filled in."""
    vector = bytes.fromhex(hexadecimal)
    return vector[:17] + struct.pack(">I", crc32c(vector[21:])) + vector[21:]


def test_one_record_batch_has_the_documented_bytes(codec: ModuleType) -> None:
    expected = """
        0000000000000000 0000003b ffffffff 02 00000000 0000 00000000 000000000000002a 000000000000002a
        ffffffffffffffff ffff ffffffff 00000001   12 00 00 00 01 06 616263 00
    """
    assert codec.encode_one(b"abc", 42) == checked(expected)


@pytest.mark.parametrize(("commit", "kind"), [(True, "0001"), (False, "0000")])
def test_txn_marker_has_the_documented_bytes(codec: ModuleType, commit: bool, kind: str) -> None:
    expected = f"""
        0000000000000000 00000042 ffffffff 02 00000000 0030 00000000 000000000000002a 000000000000002a
        0000000000001234 0005 ffffffff 00000001   20 00 00 00 08 0000{kind} 0c 000000000009 00
    """
    marker = codec.encode_marker(0x1234, 5, commit, 9, 42)
    assert marker == checked(expected)
    assert len(marker) == 78
    assert codec.skim(marker).attributes == codec.CONTROL | codec.TRANSACTIONAL


# --- reading ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_is_read(codec: ModuleType, kind: type) -> None:
    plain = codec.encode([(0, TIME, b"k", b"v", (("h", None),)), (1, TIME + 1, None, None, ())])
    for whole in (plain, compressed(plain, 4)):
        batch = kind(whole)
        assert codec.decode(batch) == codec.decode(plain)
        assert codec.decode_values(batch) == [b"v", None]
        assert codec.skim(batch).record_count == 2
        assert codec.check_crc(batch)
        assert codec.without(batch, [(1, 2)]) == codec.without(plain, [(1, 2)])


def test_header_is_read_in_the_middle_of_a_buffer_before_its_records_arrived(codec: ModuleType) -> None:
    first, second = codec.encode_one(b"abc", TIME), codec.encode_one(b"defgh", TIME)
    both = first + second[: codec.HEADER_BYTES]
    assert codec.read_header(both).batch_bytes == len(first)
    assert codec.read_header(both, len(first)).batch_bytes == len(second)
    with pytest.raises(BatchInvalid):
        codec.read_header(both[:-1], len(first))


def test_stamp_moves_the_batch_and_leaves_the_checksum_right(codec: ModuleType) -> None:
    batch = codec.encode_values([b"a", b"b"], TIME)
    front, rest = codec.stamp(batch, 2**40 + 1)
    assert rest.obj is batch
    stamped = front + bytes(rest)
    assert codec.skim(stamped).base_offset == 2**40 + 1
    assert codec.decode(stamped) == codec.decode(batch)


def test_log_append_time_gives_every_record_the_time_of_the_batch(codec: ModuleType) -> None:
    batch = codec.encode([(0, 5, None, b"a", ()), (1, 9, None, b"b", ())])
    stamped = resealed(batch[:21] + struct.pack(">h", codec.TIMESTAMP_LOG_APPEND) + batch[23:])
    assert [record[1] for record in codec.decode(stamped)] == [9, 9]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_compressed_records_are_read(codec: ModuleType, number: int) -> None:
    records = [(row, TIME + row, b"key", bytes([row]) * 300, (("h", b"x"),)) for row in range(100)]
    batch = compressed(codec.encode(records), number)
    assert codec.skim(batch).attributes == number
    assert codec.decode(batch) == records
    assert codec.decode_values(batch) == [record[3] for record in records]


def test_records_that_inflate_beyond_the_cap_are_refused(codec: ModuleType) -> None:
    batch = compressed(codec.encode_one(bytes(10_000), TIME), 1)
    codec.skim(batch, inflated_bytes_max=10_011)
    for read in (codec.skim, codec.decode, codec.decode_values):
        with pytest.raises(BatchInvalid):
            read(batch, inflated_bytes_max=10_010)


# --- refusing --------------------------------------------------------------------------------------------------

RECORD = bytes.fromhex("0c 00 00 00 01 01 00")
"""Null key, null value, no headers."""

DAMAGED = {
    "record length negative": ("01 00 00 00 01 01 00", "negative"),
    "record length too long": ("0e 00 00 00 01 01 00", "are left"),
    "record length too short": ("0a 00 00 00 01 01 00", "length says"),
    "bytes after the last record": ("0c 00 00 00 01 01 00 00", "after the last"),
    "offset delta negative": ("0c 00 00 01 01 01 00", "offset delta"),
    "offset delta beyond the last": ("0c 00 00 02 01 01 00", "offset delta"),
    "key length below -1": ("0c 00 00 00 03 01 00", "below -1"),
    "value length below -1": ("0c 00 00 00 01 03 00", "below -1"),
    "key runs past the record": ("0c 00 00 00 7e 01 00", "past its record"),
    "value runs past the record": ("0c 00 00 00 01 7e 00", "past its record"),
    "header count negative": ("0c 00 00 00 01 01 01", "header count"),
    "header count beyond the bytes": ("10 00 00 00 01 01 7e 00 01", "header count"),
    "header key null": ("10 00 00 00 01 01 02 01 01", "header key length"),
    "header key runs past": ("10 00 00 00 01 01 02 7e 01", "header key runs"),
    "header key not UTF-8": ("12 00 00 00 01 01 02 02 ff 01", "UTF-8"),
    "header value runs past": ("10 00 00 00 01 01 02 00 7e", "past its record"),
    "varint of six bytes": ("8c 80 80 80 80 00 00 00 00 01 01 00", "more than 5"),
    "varint of 35 bits": ("8c 80 80 80 7f 00 00 00 01 01 00", "out of range"),
    "varlong of eleven bytes": ("20 00 80 80 80 80 80 80 80 80 80 80 00 00 01 01 00", "more than 10"),
    "varlong of 70 bits": ("1e 00 80 80 80 80 80 80 80 80 80 7f 00 01 01 00", "out of range"),
    "ends inside a varint": ("0c 00 00 00 01 01 80", "inside a record"),
}  # fmt: skip


def test_the_smallest_record_is_accepted(codec: ModuleType) -> None:
    batch = with_records(codec, RECORD)
    codec.skim(batch)
    assert codec.decode(batch) == [(0, 0, None, None, ())]


@pytest.mark.parametrize("name", DAMAGED)
def test_skim_refuses_a_damaged_record(codec: ModuleType, name: str) -> None:
    records, reason = DAMAGED[name]
    with pytest.raises(BatchInvalid, match=reason):
        codec.skim(with_records(codec, bytes.fromhex(records)))


def test_skim_refuses_offsets_out_of_order(codec: ModuleType) -> None:
    twice = RECORD + RECORD
    for dense in (True, False):
        with pytest.raises(BatchInvalid, match="offset delta"):
            codec.skim(with_records(codec, twice, 2), dense=dense)


def test_skim_accepts_holes_only_when_told(codec: ModuleType) -> None:
    for batch in (
        codec.encode([(0, TIME, None, b"a", ()), (2, TIME, None, b"b", ())]),
        codec.encode([(0, TIME, None, b"a", ())], last_offset_delta=1),
        codec.encode([(1, TIME, None, b"a", ())]),
    ):
        codec.skim(batch, dense=False)
        with pytest.raises(BatchInvalid, match="last offset delta"):
            codec.skim(batch)


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 1), (-(2**63), -1), (2**62, 2**62), (-5, -(2**63))])
def test_skim_refuses_a_timestamp_beyond_64_bits(codec: ModuleType, base: int, delta: int) -> None:
    varint = codec._zigzag_varint(delta)
    record = b"\x00" + varint + b"\x00\x01\x01\x00"
    with pytest.raises(BatchInvalid, match="64 bits"):
        codec.skim(with_records(codec, codec._varint(len(record)) + record, base_timestamp=base))


@pytest.mark.parametrize(
    ("at", "packed", "reason"),
    [
        (8, struct.pack(">i", -1), "inside its header"),
        (8, struct.pack(">i", 48), "inside its header"),
        (8, struct.pack(">i", 2**31 - 1), "length field"),
        (16, b"\x01", "magic"),
        (17, b"\0\0\0\0", "checksum"),
        (21, struct.pack(">h", 5), "codec 5"),
        (21, struct.pack(">h", 0x40), "unknown bits"),
        (21, struct.pack(">h", -1), "unknown bits"),
        (23, struct.pack(">i", 1), "last offset delta"),
        (23, struct.pack(">i", -1), "last offset delta"),
        (57, struct.pack(">i", 0), "record count 0"),
        (57, struct.pack(">i", -1), "record count -1"),
        (57, struct.pack(">i", BATCH_RECORDS_MAX + 1), "allowed"),
    ],
)
def test_skim_refuses_a_damaged_header(codec: ModuleType, at: int, packed: bytes, reason: str) -> None:
    batch = codec.encode_one(b"abc", TIME)
    damaged = batch[:at] + packed + batch[at + len(packed) :]
    if at > 17:
        damaged = resealed(damaged)
    with pytest.raises(BatchInvalid, match=reason):
        codec.skim(damaged)


def test_a_hostile_count_is_refused_before_any_loop(codec: ModuleType) -> None:
    batch = with_records(codec, RECORD, BATCH_RECORDS_MAX)
    for read in (codec.skim, codec.decode, codec.decode_values):
        with pytest.raises(BatchInvalid, match="records in 7 bytes"):
            read(batch)


def test_a_batch_cut_anywhere_is_refused(codec: ModuleType) -> None:
    batch = codec.encode([(0, TIME, b"k", b"v", (("h", b"x"),)), (1, TIME, None, b"w", ())])
    for size in range(len(batch)):
        for read in (codec.skim, codec.decode, codec.decode_values):
            with pytest.raises(BatchInvalid):
                read(batch[:size])
        if size > codec.HEADER_BYTES:
            # Also when length and checksum agree with what is left.
            for read in (codec.skim, codec.decode, codec.decode_values):
                with pytest.raises(BatchInvalid):
                    read(resealed(batch[:size]))


def test_any_changed_byte_is_found_or_means_nothing(codec: ModuleType) -> None:
    batch = codec.encode([(0, TIME, b"k", b"v", (("h", b"x"),)), (1, TIME + 1, None, b"w", ())])
    records = codec.decode(batch)
    for at in range(len(batch)):
        for flip in range(1, 256):
            damaged = batch[:at] + bytes([batch[at] ^ flip]) + batch[at + 1 :]
            if at < 8 or 12 <= at < 16:
                header = codec.skim(damaged)
                assert (header.record_count, header.batch_bytes) == (2, len(batch))
                assert codec.decode(damaged) == records
            else:
                with pytest.raises(BatchInvalid):
                    codec.skim(damaged)


def read_all(codec: ModuleType, batch: bytes) -> None:
    """Reads arbitrary bytes in every way: whatever is wrong is `BatchInvalid`, and skim's word binds the others."""
    try:
        codec.skim(batch, dense=False, inflated_bytes_max=100_000)
    except BatchInvalid:
        accepted = False
    else:
        accepted = True
    for read in (
        codec.decode,
        codec.decode_values,
        lambda damaged: codec.without(damaged, [(0, 1)]),
        codec.read_header,
        codec.check_crc,
    ):
        try:
            read(batch)
        except BatchInvalid:
            assert not accepted


@settings(max_examples=300)
@given(data=st.binary(max_size=300), count=st.integers(-1, 5), number=st.integers(0, 5))
@example(data=RECORD, count=1, number=0)
def test_arbitrary_records_behind_a_right_header_raise_nothing_else(
    codec: ModuleType, data: bytes, count: int, number: int
) -> None:
    head = codec.encode_one(b"", TIME)[:61]
    batch = head[:21] + struct.pack(">hi", number, max(count - 1, 0)) + head[27:57] + struct.pack(">i", count) + data
    read_all(codec, resealed(batch))
    read_all(codec, data)


def test_batches_with_random_damage_raise_nothing_else(codec: ModuleType) -> None:
    rng = random.Random(20240229)
    records = [(row, TIME + row * 40, b"key", bytes(row), (("h", b"x"), ("é", None))) for row in range(8)]
    whole = [codec.encode(records)]
    whole += [compressed(whole[0], number) for number in (1, 2, 3, 4)]
    for _ in range(1500):
        batch = bytearray(rng.choice(whole))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(21, len(batch))
            batch[at] = rng.choice((0, 1, 127, 128, 255, batch[at] ^ (1 << rng.randrange(8))))
        if rng.random() < 0.2:
            del batch[rng.randrange(62, len(batch)) :]
        read_all(codec, resealed(bytes(batch)))


# --- holes -----------------------------------------------------------------------------------------------------

KEPT_FIELDS = (
    "base_offset leader_epoch last_offset_delta base_timestamp max_timestamp producer_id producer_epoch base_sequence"
).split()


@given(records=record_lists(), cuts=st.sets(st.integers(0, 400)).map(sorted), number=st.integers(0, 4))
def test_without_drops_the_dead_and_nothing_else(
    codec: ModuleType, records: list[tuple[object, ...]], cuts: list[int], number: int
) -> None:
    dead = list(zip(cuts[0::2], cuts[1::2], strict=False))
    plain = codec.encode(records, producer_id=9, producer_epoch=1, base_sequence=4, transactional=True)
    batch = compressed(plain, number) if number else plain
    stamped = b"".join(codec.stamp(batch, 1234))
    live = [record for record in records if not any(first <= int(str(record[0])) < next_ for first, next_ in dead)]
    left = codec.without(stamped, dead)
    if not live:
        assert left is None
    elif live == records:
        assert left is stamped
    else:
        assert codec.decode(left) == live
        old, new = codec.read_header(stamped), codec.skim(left, dense=False)
        assert new.attributes == old.attributes & ~codec.CODEC_MASK
        assert new.record_count == len(live)
        for field in KEPT_FIELDS:
            assert getattr(new, field) == getattr(old, field)


def test_without_twice_equals_without_both(codec: ModuleType) -> None:
    batch = codec.encode_values([bytes([row]) for row in range(10)], TIME)
    assert codec.without(codec.without(batch, [(0, 2)]), [(5, 7)]) == codec.without(batch, [(0, 2), (5, 7)])
    assert codec.without(batch, []) is batch
    assert codec.without(batch, [(10, 20)]) is batch
    assert codec.without(batch, [(0, 10)]) is None


@pytest.mark.parametrize("size", [0, 1, 16 * 1024, 16 * 1024 + 1, 300_000])
def test_one_value_of_any_size_is_the_batch_of_any_one_record(codec: ModuleType, size: int) -> None:
    value = random.Random(size).randbytes(size)
    batch = codec.encode_one(value, TIME)
    assert batch == codec.encode([(0, TIME, None, value, ())]) == codec.encode_one(bytearray(value), TIME)
    assert codec.check_crc(batch)
