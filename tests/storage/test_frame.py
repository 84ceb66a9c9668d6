"""Frames: golden bytes, and that every byte of one is under its checksum."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from oncelog.limits import FRAME_ALIGN_BYTES
from oncelog.storage.frame import (
    FRAME_HEADER_BYTES,
    Frame,
    claimed_bytes,
    frame_bytes,
    header_crc,
    incarnation_of,
    may_follow,
    pack_frame,
    unpack_frame,
)

IDENTITY_CRC = crc32c(bytes(range(16)))


def frame_of(payload: bytes, *, group: int = 7, incarnation: int = incarnation_of(3, 0xA1B2C3D4)) -> bytes:
    header, padding = pack_frame(IDENTITY_CRC, incarnation, group, 0x01020304, len(payload), [payload])
    return header + payload + padding


def test_golden_header_with_payload() -> None:
    assert frame_of(b"hello")[:40].hex(" ", 4) == (
        "4f4c4746 05000000 d4c3b2a1 03000000 07000000 00000000 04030201 eb1751c5 68656c6c 6f000000"
    )


def test_golden_header_of_an_empty_frame() -> None:
    header, padding = pack_frame(IDENTITY_CRC, incarnation_of(1, 0), 1, 0, 0, [])
    assert header.hex(" ", 4) == "4f4c4746 00000000 00000000 01000000 01000000 00000000 00000000 3ddb4902"
    assert padding == bytes(480)


def test_checksum_can_be_recomputed_from_the_prose() -> None:
    """By the words at the top of frame.py alone, over one joined buffer."""
    frame = frame_of(b"x" * 600)
    whole = bytes(range(16)) + frame[:28] + bytes(4) + frame[32:]
    assert int.from_bytes(frame[28:32], "little") == crc32c(whole)


@pytest.mark.parametrize(("payload_bytes", "size"), [(0, 512), (1, 512), (480, 512), (481, 1024), (992, 1024)])
def test_frame_ends_on_a_sector(payload_bytes: int, size: int) -> None:
    assert frame_bytes(payload_bytes) == size
    assert len(frame_of(bytes(payload_bytes))) == size


@given(st.lists(st.binary(max_size=700), max_size=5), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_round_trip_over_any_buffers(buffers: list[bytes], incarnation: int, group: int) -> None:
    payload = b"".join(buffers)
    header, padding = pack_frame(IDENTITY_CRC, incarnation, group, 5, len(payload), [memoryview(b) for b in buffers])
    frame = header + payload + padding
    assert claimed_bytes(frame[:FRAME_ALIGN_BYTES], group, len(frame)) == len(frame)
    assert unpack_frame(frame, IDENTITY_CRC) == Frame(group, incarnation, len(payload), 5, header_crc(header))


def test_flip_of_any_bit_is_found() -> None:
    frame = bytearray(frame_of(b"some payload"))
    for position in range(len(frame)):
        for bit in range(8):
            frame[position] ^= 1 << bit
            stands = claimed_bytes(frame, 7, FRAME_ALIGN_BYTES) is not None
            assert not (stands and unpack_frame(frame, IDENTITY_CRC)), f"byte {position} bit {bit}"
            frame[position] ^= 1 << bit


def test_frame_cut_short_at_any_byte_does_not_stand() -> None:
    frame = frame_of(b"y" * 500)
    for length in range(FRAME_HEADER_BYTES, len(frame)):
        assert unpack_frame(frame[:length], IDENTITY_CRC) is None
    for length in range(FRAME_HEADER_BYTES):
        assert claimed_bytes(frame[:length], 7, len(frame)) is None


def test_frame_at_another_address_does_not_stand() -> None:
    assert claimed_bytes(frame_of(b""), 8, FRAME_ALIGN_BYTES) is None


def test_frame_longer_than_its_segment_does_not_stand() -> None:
    assert claimed_bytes(frame_of(b"z" * 600), 7, 1024) == 1024
    assert claimed_bytes(frame_of(b"z" * 600), 7, 1023) is None


def test_frame_of_another_journal_does_not_stand() -> None:
    assert unpack_frame(frame_of(b"abc"), crc32c(b"another identity")) is None


@pytest.mark.parametrize(
    ("last", "incarnation", "follows"),
    [
        ((2, 9), (2, 9), True),
        ((2, 9), (2, 8), False),
        ((2, 9), (3, 0), True),
        ((2, 9), (1, 9), False),
    ],
)
def test_incarnation_follows_itself_or_a_lower_counter(
    last: tuple[int, int], incarnation: tuple[int, int], follows: bool
) -> None:
    assert may_follow(incarnation_of(*last), incarnation_of(*incarnation)) is follows
