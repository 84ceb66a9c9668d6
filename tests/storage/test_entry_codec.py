"""Entries as bytes: every operation round-trips, places are right, and damaged bytes are named, never stumbled over."""

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core import entry as e
from oncelog.core.flat import ProducerClaim
from oncelog.core.row_codec import encode_row
from oncelog.core.rows import Application, Cursor, Table, TopicConfig
from oncelog.core.txn import Txn, TxnState
from oncelog.errors import Corruption
from oncelog.storage.entry_codec import GROUP_HEADER, decode_group, encode_entry

TIME_NS = 1_700_000_000_000_000_000
CLAIM = ProducerClaim("http:p", 3, 5, 7, 1, b"d" * 16, True, "session", True)

OPERATIONS: list[e.Operation] = [
    e.Appended(2, 5, 3, b"batch", TIME_NS),
    e.Appended(2, 5, 3, b"batch", TIME_NS, 15, CLAIM, 4, b"i" * 80, "key é", "txn é"),
    e.TopicCreated(1, "t", [2, 3], TopicConfig(attributes={"a": "b"})),
    e.PartitionsAdded("t", [4]),
    e.TopicConfigured("t", [2], TopicConfig(id_zone="z")),
    e.TopicDeleted("t", [2]),
    e.StreamClosed(2),
    e.Trimmed(2, 9),
    e.HolesAdded(2, [1, 3, 5, 6], 1, 7),
    e.Claimed(0, CLAIM, 4, [2, 0, 1, 3, 0, 2], True),
    e.ProducerFenced(2, "kafka:1", 3, 0),
    e.CursorSet("c", 2, Cursor(5, [7, 9], "note", True, TIME_NS)),
    e.CursorDeleted("c", 2),
    e.ClaimRemembered("commit", "id", b"d" * 16, [2, 0, 1], -1),
    e.IdsUsed(b"h" * 16, b"v" * 40),
    e.StageOpened(9, "app", 1, 1000),
    e.StageAppended(9, 0, 2, b"batch", b"d" * 16),
    e.StageDropped(9),
    e.StagePublished(9, 2, 5, 2),
    e.ApplicationSet("app", Application(1, "q", 2, b"end", [2, 5, 7], TIME_NS)),
    e.TxnSet("x", Txn("x", 1, 0, -1, -1, 1000, TxnState.ONGOING, 1, 2, {2: [0, 1]}, ["g"], [("c", 2, 1, "m")])),
    e.TxnSet("x", None),
    e.TxnReleased(2, 1),
    e.ProducerIdsTaken(7),
    e.Moved(2, 5, 3, b"batch", TIME_NS - 5),
    e.Carried(Table.CURSOR, ("c", 2), encode_row(Cursor(1, []))),
    e.Carried(Table.TOPIC, "t", b""),
    e.CarriedIds(b"h" * 32, b"v" * 80),
    e.CarriedCounters(7, 8),
    e.TxnAdded("x", [2, 4], ["g"], 1000, True),
    e.TxnOffsets("x", [("g", 2, 150, "m")]),
    e.TxnOffsetsDropped("x", [("g", 2)]),
    e.CursorMoved("g", 2, 150, "m", True, True),
    e.ConsumerChanged("nats:d", 2, 5, [7, 9], True, 12, 40, [10, 2, TIME_NS, 39, 11, 0, 0, 0]),
    e.SubjectsWritten(2, 5, 9, [("a.b", 3, 5, 8), ("$raw", 1, 6, 6)]),
    e.SubjectsSet(2, [("a.b", 0, 0, 0)]),
    e.ConsumerSet("nats:d", 2, 5, b"{}", "closed", "note", True),
]


def group(*entries: e.Entry, number: int = 1) -> bytes:
    return GROUP_HEADER.pack(number, len(entries)) + b"".join(b"".join(encode_entry(entry)) for entry in entries)


def test_every_operation_is_in_the_list() -> None:
    assert {type(operation) for operation in OPERATIONS} == set(e.OPERATIONS.values())


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: type(operation).__name__)
def test_operation_comes_back_from_its_bytes(operation: e.Operation) -> None:
    entry = e.Compound(TIME_NS, [operation])
    (found,) = decode_group(group(entry, number=41))
    assert found == (41, GROUP_HEADER.size, entry)


def test_flat_append_comes_back_from_its_bytes() -> None:
    for operation in OPERATIONS[:2]:
        assert isinstance(operation, e.Appended)
        (found,) = decode_group(group(operation))
        assert found[2] == operation


def test_places_point_at_the_batches() -> None:
    batches: list[e.Operation] = [
        e.Appended(2, 0, 1, b"first", TIME_NS, claim=CLAIM),
        e.Moved(2, 0, 1, b"second", TIME_NS),
    ]
    entries: list[e.Entry] = [
        e.Appended(2, 0, 1, b"flat", TIME_NS, ids=b"i" * 40),
        e.Compound(TIME_NS, [e.StreamClosed(2), *batches, e.StageAppended(9, 0, 1, b"third", b"d" * 16)]),
    ]
    payload = group(*entries)
    for (_, entry_at, decoded), entry in zip(decode_group(payload), entries, strict=True):
        assert decoded == entry, "the codec tells the same places when it writes and when it reads"
        for operation in decoded.operations if isinstance(decoded, e.Compound) else (decoded,):
            if isinstance(operation, e.Appended | e.Moved | e.StageAppended):
                begin = entry_at + operation.batch_at
                assert payload[begin : begin + len(operation.batch)] == operation.batch


def test_entries_of_a_group_are_numbered_in_order() -> None:
    entries = [e.Appended(2, number, 1, b"x" * number, TIME_NS + number) for number in range(1, 5)]
    assert [found[0] for found in decode_group(group(*entries, number=9))] == [9, 10, 11, 12]
    assert list(decode_group(b"")) == [], "a proof frame"


def test_texts_at_the_end_of_their_length_fields_survive() -> None:
    long = e.Appended(2, 0, 1, b"x", TIME_NS, order_key="k" * 65_535, txn_id="t" * 65_535)
    (found,) = decode_group(group(long))
    assert found[2] == long


PAYLOAD = group(*OPERATIONS[:2], e.Compound(TIME_NS, OPERATIONS))  # type: ignore[arg-type]


def test_group_cut_short_anywhere_is_told() -> None:
    for end in range(1, len(PAYLOAD)):
        with pytest.raises(Corruption):
            list(decode_group(PAYLOAD[:end]))


def test_group_with_bytes_behind_it_is_told() -> None:
    with pytest.raises(Corruption, match="after the last entry"):
        list(decode_group(PAYLOAD + b"\0"))


@given(st.integers(0, len(PAYLOAD) - 1), st.integers(1, 255))
def test_flipped_byte_decodes_to_something_or_is_told_but_nothing_else(at: int, flip: int) -> None:
    damaged = bytearray(PAYLOAD)
    damaged[at] ^= flip
    try:
        found = list(decode_group(bytes(damaged)))
    except Corruption:
        return
    # The frame's checksum is what finds this; here it must only not stumble, and must not gain or lose an entry.
    assert len(found) == 3


@pytest.mark.parametrize("shape", [0, 3, 255])
def test_entry_of_an_unknown_shape_is_told(shape: int) -> None:
    payload = bytearray(group(OPERATIONS[0]))  # type: ignore[arg-type]
    payload[GROUP_HEADER.size + 12] = shape
    with pytest.raises(Corruption, match="shape"):
        list(decode_group(bytes(payload)))


def test_operation_of_an_unknown_tag_is_told() -> None:
    payload = bytearray(group(e.Compound(TIME_NS, [e.StreamClosed(2)])))
    payload[GROUP_HEADER.size + 17] = 200
    with pytest.raises(Corruption):
        list(decode_group(bytes(payload)))


def test_publish_whose_ids_do_not_come_out_even_is_told() -> None:
    published = next(operation for operation in OPERATIONS if isinstance(operation, e.StagePublished))
    torn = msgspec.structs.replace(published, ids=bytes(e.ID_BYTES + 1))
    with pytest.raises(Corruption, match="ids of a publish"):
        list(decode_group(group(e.Compound(TIME_NS, [torn]))))


def test_claim_that_is_shorter_than_its_epoch_is_told() -> None:
    payload = bytearray(group(e.Appended(2, 0, 1, b"batch", TIME_NS)))
    claim_bytes_at, batch_bytes_at = GROUP_HEADER.size + 13 + 22, GROUP_HEADER.size + 13 + 32
    for claim_bytes in range(1, 6):
        payload[claim_bytes_at], payload[batch_bytes_at] = claim_bytes, 5 - claim_bytes
        with pytest.raises(Corruption, match="too short for its epoch"):
            list(decode_group(bytes(payload)))


def test_moved_batch_that_ends_before_its_numbers_is_told() -> None:
    operations = struct.pack("<BI", e.Moved.tag, 5) + b"short" + struct.pack("<BI", e.TopicDeleted.tag, 60) + bytes(60)
    entry = struct.pack("<QBI", TIME_NS, 2, 2) + operations
    with pytest.raises(Corruption, match="moved batch"):
        list(decode_group(GROUP_HEADER.pack(1, 1) + struct.pack("<I", len(entry)) + entry))


@pytest.mark.parametrize(
    "fields", [["p", 3, 4, 4, 1], ["p", 3, 4, 4, 1, b"d" * 16, False, "", False, "of a later version"]]
)
def test_claim_with_fewer_or_more_fields_is_read(fields: list[object]) -> None:
    """A field may be added at the end with a default."""
    claim = struct.pack("<q", 3) + msgspec.msgpack.encode(fields)
    head = struct.pack("<QQIHHHHII", 2, 0, 1, 0, len(claim), 0, 0, 0, 5)
    entry = struct.pack("<QB", TIME_NS, 1) + head + claim + b"batch"
    ((_, _, found),) = decode_group(GROUP_HEADER.pack(1, 1) + struct.pack("<I", len(entry)) + entry)
    assert isinstance(found, e.Appended)
    assert found.claim == ProducerClaim("p", 3, 4, 4, 1, b"d" * 16 if len(fields) > 5 else b"")


CLAIMED_FIELDS: list[tuple[object, bool]] = [
    (["p", 3, 4, 4, 1, b"d" * 16], True),
    (["p", 3, 4, 4, 1, "ZGRkZA=="], False),
    (["p", 3, 4, 4.0, 1], False),
    ([b"p", 3, 4, 4, 1], False),
    (["p", 3, 4, 4, 1, b"", 1], False),
    (["p", 3, 4, 4], False),
    (None, False),
]


@pytest.mark.parametrize(("fields", "is_claim"), CLAIMED_FIELDS)
def test_claim_inside_of_an_operation_is_of_its_types_or_told(fields: object, is_claim: bool) -> None:
    body = msgspec.msgpack.encode([2, fields, 0, [2, 0, 1], False])
    operation = struct.pack("<BI", e.Claimed.tag, len(body)) + body
    entry = struct.pack("<QBI", TIME_NS, 2, 1) + operation
    payload = GROUP_HEADER.pack(1, 1) + struct.pack("<I", len(entry)) + entry
    if is_claim:
        assert len(list(decode_group(payload))) == 1
    else:
        with pytest.raises(Corruption):
            list(decode_group(payload))


def test_append_whose_lengths_leave_bytes_over_is_told() -> None:
    payload = bytearray(group(e.Appended(2, 0, 1, b"batch", TIME_NS)))
    payload[GROUP_HEADER.size + 13 + 32] -= 1
    with pytest.raises(Corruption, match="do not add up"):
        list(decode_group(bytes(payload)))
