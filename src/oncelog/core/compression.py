"""Inflating and deflating the records of a batch: Kafka's codecs 1 to 4 (gzip, snappy, lz4, zstd).

Owns the cap: `inflate` never produces more than `bytes_max` bytes, also while it works, whatever the compressed bytes
claim. It must never allocate by a size that a peer wrote without comparing that size with the cap first, and it raises
nothing but `BatchInvalid` on arbitrary bytes.

Snappy comes in two shapes. Java clients write the framing of the xerial library (a 16-byte head, then blocks of a
32-bit length and a raw snappy block each); others write one raw block. Both are read, the first is written.
"""

from collections.abc import Callable
from typing import Final

import cramjam

from oncelog.errors import BatchInvalid

CODEC_NONE: Final = 0
CODEC_GZIP: Final = 1
CODEC_SNAPPY: Final = 2
CODEC_LZ4: Final = 3
CODEC_ZSTD: Final = 4

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEAD: Final = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
"""Magic, version 1, compatible with version 1."""

XERIAL_BLOCK_BYTES: Final = 32 * 1024
"""What the xerial library puts into one block by default; readers take any size."""

ROOM_BYTES_MIN: Final = 64 * 1024
ROOM_RATIO: Final = 8
"""First guess of the inflated size. Room costs its zeroing, a guess that was too small costs another pass."""

ROOM_GROWTH: Final = 4
"""Growing by four keeps all failed passes together below a third of the last one."""

SNAPPY_RATIO_MAX: Final = 22
"""Snappy's densest element turns 3 bytes into 64; a block that states more is not worth allocating for."""

RECORDS_AT: Final = 61
"""Compressed records follow the batch header; errors count bytes from the start of the batch."""

Buffer = bytes | bytearray | memoryview


def inflate(codec: int, data: Buffer, bytes_max: int) -> bytes:
    """The inflated bytes of `data`, at most `bytes_max` of them; else `BatchInvalid`."""
    if codec == CODEC_SNAPPY:
        return _inflate_snappy(data, bytes_max)
    if codec == CODEC_GZIP:
        return _inflate_stream(cramjam.gzip.decompress_into, data, bytes_max)
    if codec == CODEC_LZ4:
        return _inflate_stream(cramjam.lz4.decompress_into, data, bytes_max)
    if codec == CODEC_ZSTD:
        return _inflate_stream(cramjam.zstd.decompress_into, data, bytes_max)
    raise BatchInvalid(f"compression codec {codec} is unknown")


def deflate(codec: int, data: Buffer) -> bytes:
    """`data` compressed in the shape that Kafka's own clients read."""
    if codec == CODEC_GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == CODEC_SNAPPY:
        return _deflate_xerial(data)
    if codec == CODEC_LZ4:
        # Java clients refuse frames whose blocks refer to earlier blocks.
        compressor = cramjam.lz4.Compressor(block_linked=False)
        compressor.compress(data)
        return bytes(compressor.finish())
    assert codec == CODEC_ZSTD
    return bytes(cramjam.zstd.compress(data))


def _full_text() -> str:
    """What the library says when the output is full: the only thing that tells it from damage."""
    try:
        cramjam.zstd.decompress_into(bytes(cramjam.zstd.compress(b"x")), bytearray(0))
    except cramjam.DecompressionError as error:
        return str(error)
    raise AssertionError("one byte was inflated into no room")


FULL_TEXT: Final = _full_text()
"""Asked once instead of written down, so that a new version of the library may change it."""


def _inflate_stream(into: Callable[[Buffer, bytearray], int], data: Buffer, bytes_max: int) -> bytes:
    """Inflates into a buffer of fixed size: the library stops when it is full, so the cap holds at every moment.

    Only a full buffer is worth a larger one. Trying again after damage as well would let a peer buy the zeroing of
    the whole cap, many milliseconds, with a few bytes of nonsense.
    """
    room = min(bytes_max, max(ROOM_BYTES_MIN, ROOM_RATIO * len(data)))
    while True:
        out = bytearray(room)
        try:
            inflated_bytes = into(data, out)
        except cramjam.DecompressionError as error:
            if room == bytes_max or str(error) != FULL_TEXT:
                raise BatchInvalid(f"records do not inflate within {bytes_max} bytes: {error}", RECORDS_AT) from error
            room = min(bytes_max, ROOM_GROWTH * room)
        else:
            return bytes(memoryview(out)[:inflated_bytes])


def _inflate_snappy(data: Buffer, bytes_max: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return bytes(_inflate_snappy_block(view, bytes_max))
    blocks: list[bytearray] = []
    at = len(XERIAL_HEAD)
    if len(view) < at:
        raise BatchInvalid("snappy head is cut short", RECORDS_AT)
    while at < len(view):
        if len(view) < at + 4:
            raise BatchInvalid("snappy block length is cut short", RECORDS_AT + at)
        block_bytes = int.from_bytes(view[at : at + 4], "big")
        at += 4
        if block_bytes > len(view) - at:
            raise BatchInvalid("snappy block is cut short", RECORDS_AT + at)
        block = _inflate_snappy_block(view[at : at + block_bytes], bytes_max)
        bytes_max -= len(block)
        blocks.append(block)
        at += block_bytes
    return b"".join(blocks)


def _inflate_snappy_block(block: memoryview, bytes_max: int) -> bytearray:
    """One raw block. It states its own inflated size, which is compared with the cap before anything is allocated."""
    try:
        inflated_bytes = cramjam.snappy.decompress_raw_len(block)
        if inflated_bytes > min(bytes_max, SNAPPY_RATIO_MAX * len(block)):
            raise BatchInvalid(f"snappy block of {inflated_bytes} bytes, {bytes_max} allowed", RECORDS_AT)
        out = bytearray(inflated_bytes)
        written_bytes = cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as error:
        raise BatchInvalid(f"snappy block cannot be inflated: {error}", RECORDS_AT) from error
    if written_bytes != inflated_bytes:
        raise BatchInvalid(f"snappy block holds {written_bytes} bytes, states {inflated_bytes}", RECORDS_AT)
    return out


def _deflate_xerial(data: Buffer) -> bytes:
    pieces = [XERIAL_HEAD]
    view = memoryview(data)
    for first in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[first : first + XERIAL_BLOCK_BYTES]))
        pieces += (len(block).to_bytes(4, "big"), block)
    return b"".join(pieces)
