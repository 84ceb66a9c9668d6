"""Inflating: what was deflated comes back, and the cap holds while it works, whatever the bytes claim."""

import contextlib
import gzip
import random
import subprocess
import sys
from pathlib import Path

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.compression import ROOM_BYTES_MIN, XERIAL_HEAD, deflate, inflate
from oncelog.errors import BatchInvalid

CODEC_NUMBERS = [1, 2, 3, 4]
MIB = 1024 * 1024


@pytest.mark.parametrize("codec", CODEC_NUMBERS)
@pytest.mark.parametrize("size", [0, 1, 1000, 32 * 1024, 32 * 1024 + 1, ROOM_BYTES_MIN, 9 * ROOM_BYTES_MIN, 5 * MIB])
@pytest.mark.parametrize("kind", ["zeros", "noise"])
def test_deflated_bytes_come_back_at_exactly_the_cap(codec: int, size: int, kind: str) -> None:
    data = bytes(size) if kind == "zeros" else random.Random(size).randbytes(size)
    packed = deflate(codec, data)
    assert inflate(codec, packed, size) == data
    assert inflate(codec, memoryview(packed), size + 1) == data
    if size > 0:
        with pytest.raises(BatchInvalid):
            inflate(codec, packed, size - 1)


def test_raw_snappy_comes_back() -> None:
    data = b"raw snappy, as librdkafka writes it " * 1000
    assert inflate(2, bytes(cramjam.snappy.compress_raw(data)), len(data)) == data


def test_several_members_count_together_against_the_cap() -> None:
    two = gzip.compress(bytes(1000)) + gzip.compress(bytes(1000))
    assert inflate(1, two, 2000) == bytes(2000)
    with pytest.raises(BatchInvalid):
        inflate(1, two, 1999)


def test_snappy_blocks_count_together_against_the_cap() -> None:
    block = bytes(cramjam.snappy.compress_raw(bytes(1000)))
    framed = XERIAL_HEAD + (len(block).to_bytes(4, "big") + block) * 3
    assert inflate(2, framed, 3000) == bytes(3000)
    with pytest.raises(BatchInvalid, match="allowed"):
        inflate(2, framed, 2999)


@pytest.mark.parametrize("codec", [0, 5, 6, 7, -1])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(BatchInvalid, match="unknown"):
        inflate(codec, b"", 100)


@pytest.mark.parametrize("codec", CODEC_NUMBERS)
def test_cut_bytes_are_refused(codec: int) -> None:
    packed = deflate(codec, random.Random(1).randbytes(500) + bytes(500))
    whole_blocks = {len(XERIAL_HEAD)} if codec == 2 else set()
    for size in range(len(packed)):
        if size not in whole_blocks:
            with pytest.raises(BatchInvalid):
                inflate(codec, packed[:size], 10_000)


@settings(max_examples=200)
@given(data=st.binary(max_size=200), codec=st.sampled_from(CODEC_NUMBERS), framed=st.booleans())
def test_arbitrary_bytes_raise_nothing_else(data: bytes, codec: int, framed: bool) -> None:
    heads = {1: b"\x1f\x8b\x08\0\0\0\0\0\0\0", 2: XERIAL_HEAD, 3: b"\x04\x22\x4d\x18", 4: b"\x28\xb5\x2f\xfd"}
    with contextlib.suppress(BatchInvalid):
        assert len(inflate(codec, (heads[codec] if framed else b"") + data, 5000)) <= 5000


@pytest.mark.parametrize("codec", CODEC_NUMBERS)
def test_nonsense_never_buys_the_zeroing_of_the_cap(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer once made every damaged batch cost 25 ms: each was tried again with ever more room, up to the cap."""
    made: list[int] = []

    def counted(size: int) -> bytearray:
        made.append(size)
        return bytearray(size)

    monkeypatch.setattr("oncelog.core.compression.bytearray", counted, raising=False)
    packed = bytearray(deflate(codec, random.Random(2).randbytes(3000)))
    packed[len(packed) // 2 :] = b"nonsense"
    with pytest.raises(BatchInvalid):
        inflate(codec, bytes(packed), 64 * MIB)
    assert sum(made) <= ROOM_BYTES_MIN


BOMB = """
import resource, sys
from oncelog.core.compression import inflate
from oncelog.errors import BatchInvalid
packed = open(sys.argv[2], "rb").read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    inflate(int(sys.argv[1]), packed, 4 * 1024 * 1024)
except BatchInvalid:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("codec", CODEC_NUMBERS)
def test_a_bomb_stops_at_the_cap(codec: int, tmp_path: Path) -> None:
    """64 MiB of zeros against a cap of 4: a fresh process never grows by what the bomb holds."""
    bomb = tmp_path / "bomb"
    if codec == 2:
        bomb.write_bytes(bytes(cramjam.snappy.compress_raw(bytes(64 * MIB))))
    else:
        bomb.write_bytes(deflate(codec, bytes(64 * MIB)))
    source = str(Path(__file__).resolve().parents[2] / "src")
    grown = subprocess.run(
        [sys.executable, "-c", BOMB, str(codec), str(bomb)],
        env={"PYTHONPATH": source},
        capture_output=True,
        check=True,
        text=True,
    )
    assert int(grown.stdout) * 1024 < 16 * MIB
