"""The mirror: what was laid out is read back until it is overwritten, and nothing before it is durable."""

import os
import random
from typing import Any

import pytest

from oncelog.limits import CHECKPOINT_BYTES, GROUP_BYTES_MAX, MIRROR_BYTES
from oncelog.storage.mirror import Mirror

SIZE = 8192
FIRST = 5 * SIZE + 512


def put(mirror: Mirror, address: int, data: bytes) -> None:
    mirror.lay_out(address, [data[:7], bytearray(data[7:100]), memoryview(data)[100:]])
    mirror.set_durable(address + len(data))


def test_everything_of_the_last_lap_is_read_back_and_nothing_older() -> None:
    chance = random.Random(7)
    mirror = Mirror.made(FIRST, SIZE)
    other = Mirror(os.dup(mirror.fileno()), read_only=True)
    written: list[tuple[int, bytes]] = []
    end = FIRST
    for _ in range(300):
        address = end + 512 * chance.choice([0, 0, 0, 1, 5])  # the end of a segment leaves a gap
        data = chance.randbytes(512 * chance.randint(1, 6))
        put(mirror, address, data)
        assert b"".join(mirror.pieces(address, len(data))) == data
        written.append((address, data))
        end = address + len(data)
        for reader in (mirror, other):
            for address, data in written:
                held = data if address >= end - SIZE else None
                assert reader.read(address, len(data)) == held
                assert reader.holds(address) == (held is not None)
                assert reader.read(address + 3, 200) == (data[3:203] if address + 3 >= end - SIZE else None)


def test_frame_that_wraps_is_two_pieces() -> None:
    mirror = Mirror.made(SIZE - 512, SIZE)
    mirror.lay_out(SIZE - 512, [b"x" * 512, b"y" * 512])
    assert [bytes(piece) for piece in mirror.pieces(SIZE - 512, 1024)] == [b"x" * 512, b"y" * 512]


def test_nothing_is_read_before_it_is_durable() -> None:
    mirror = Mirror.made(FIRST, SIZE)
    put(mirror, FIRST, b"a" * 512)
    mirror.lay_out(FIRST + 512, [b"b" * 512])
    assert mirror.read(FIRST + 512, 1) is None
    assert mirror.read(FIRST, 513) is None, "not even the part that is durable, of what was asked for in one"
    assert mirror.read(FIRST, 512) == b"a" * 512
    mirror.set_durable(FIRST + 1024)
    assert mirror.read(FIRST, 1024) == b"a" * 512 + b"b" * 512


def test_what_was_written_before_the_mirror_was_made_is_not_in_it() -> None:
    mirror = Mirror.made(FIRST, SIZE)
    put(mirror, FIRST, b"a" * 512)
    assert mirror.read(FIRST - 512, 512) is None
    assert not mirror.holds(FIRST - 1)


@pytest.mark.parametrize("over", [512, 1024])
def test_bytes_that_are_overwritten_while_they_are_copied_count_as_not_there(over: int) -> None:
    mirror = Mirror.made(0, SIZE)
    put(mirror, 0, bytes(512))
    put(mirror, 512, b"a" * (SIZE - 512))
    ring = mirror._ring

    class Overtaking:
        """The writer lays out its next group when the reader has begun."""

        def __getitem__(self, place: slice) -> memoryview:
            mirror._ring = ring
            mirror.lay_out(SIZE, [b"b" * over])
            return ring[place]

    hooked: Any = mirror
    hooked._ring = Overtaking()
    # What is a lap behind the first new sector is lost, the sector after it is not.
    assert mirror.read(512, 512) == (None if over > 512 else b"a" * 512)


def test_reader_cannot_write() -> None:
    mirror = Mirror.made(0, SIZE)
    other = Mirror(os.dup(mirror.fileno()), read_only=True)
    with pytest.raises(TypeError):
        other.lay_out(0, [b"x"])


def test_checkpoint_is_still_held_when_the_index_is_asked_for_it() -> None:
    assert MIRROR_BYTES >= CHECKPOINT_BYTES + 2 * GROUP_BYTES_MAX
