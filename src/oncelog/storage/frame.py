"""The frame: the envelope of one group on disk. Owns its bytes; opens no file and keeps no state.

A frame is a header of 32 bytes, the payload, and zero bytes up to the next multiple of 512. All numbers are little
endian.

    byte  size  field
       0     4  magic, b"OLGF"
       4     4  payload bytes
       8     8  incarnation: counter in the high 32 bits, random salt in the low 32
      16     8  group number: the frame's address in the journal, divided by 512
      24     4  CRC32C of the previous frame's 32 header bytes; 0 in the first frame of a journal
      28     4  CRC32C of the journal's 16 identity bytes, then the header with this field zero, payload, padding

A frame *stands* at an address if and only if

 (1) its magic is right,
 (2) its group number is that address divided by 512,
 (3) its end, padding included, is not beyond the end of the segment, and
 (4) its last field equals the checksum computed over all of it.

Whether a frame that stands also *follows* the one before it is recovery's question (`recovery.py`).

Why the address is in it: a recycled file is full of frames that were once true; each of them names another address.
Why the identity is under the checksum: a client chooses the payload, so it could put there something that looks like
a frame at its own address. It cannot know the identity, and without it the checksum comes out right once in 2**32.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from oncelog.limits import FRAME_ALIGN_BYTES
from oncelog.storage.disk import Buffer

FRAME_MAGIC: Final = b"OLGF"
FRAME_HEADER: Final = Struct("<4sIQQII")
FRAME_HEADER_BYTES: Final = 32
FRAME_CRC_POSITION: Final = 28
FIRST_PREVIOUS_CRC: Final = 0
"""What the first frame of a journal carries in place of a predecessor's checksum."""

COUNTER_SHIFT: Final = 32
SALT_MASK: Final = (1 << COUNTER_SHIFT) - 1

_ZEROS: Final = bytes(FRAME_ALIGN_BYTES)
_NO_CRC: Final = bytes(4)

assert FRAME_HEADER.size == FRAME_HEADER_BYTES
assert FRAME_CRC_POSITION + len(_NO_CRC) == FRAME_HEADER_BYTES
assert FRAME_HEADER_BYTES < FRAME_ALIGN_BYTES, "a header must never span two sectors"


class Frame(NamedTuple):
    """A frame that stands. Its payload is read separately: recovery mostly needs only this."""

    group: int
    incarnation: int
    payload_bytes: int
    previous_crc: int
    header_crc: int
    """CRC32C of this frame's header: what the next frame carries as `previous_crc`."""

    @property
    def counter(self) -> int:
        return self.incarnation >> COUNTER_SHIFT


def frame_bytes(payload_bytes: int) -> int:
    """Bytes on disk of a frame with this payload, padding included."""
    return -(-(FRAME_HEADER_BYTES + payload_bytes) // FRAME_ALIGN_BYTES) * FRAME_ALIGN_BYTES


def incarnation_of(counter: int, salt: int) -> int:
    return counter << COUNTER_SHIFT | salt & SALT_MASK


def may_follow(last: int, incarnation: int) -> bool:
    """Whether a frame of `incarnation` can have been written after one of `last`.

    An equal counter with another salt is a leftover of an opening that a crash undid: that opening's counter was
    given out again.
    """
    return incarnation == last or incarnation >> COUNTER_SHIFT > last >> COUNTER_SHIFT


def pack_frame(
    identity_crc: int, incarnation: int, group: int, previous_crc: int, payload_bytes: int, buffers: Sequence[Buffer]
) -> tuple[bytes, bytes]:
    """Header and padding around `buffers`, which hold exactly `payload_bytes` bytes. The payload is not copied."""
    header = FRAME_HEADER.pack(FRAME_MAGIC, payload_bytes, incarnation, group, previous_crc, 0)
    padding = _ZEROS[: frame_bytes(payload_bytes) - FRAME_HEADER_BYTES - payload_bytes]
    crc = crc32c(header, identity_crc)
    for buffer in buffers:
        crc = crc32c(buffer, crc)
    crc = crc32c(padding, crc)
    return header[:FRAME_CRC_POSITION] + crc.to_bytes(4, "little"), padding


def header_crc(header: Buffer) -> int:
    """The link to this frame, as the next frame carries it."""
    return crc32c(header)


def claimed_bytes(sector: Buffer, group: int, room_bytes: int) -> int | None:
    """Size of the frame whose header opens `sector`, by conditions (1) to (3); None if there is none."""
    if len(sector) < FRAME_HEADER_BYTES:
        return None
    magic, payload_bytes, _, own_group, _, _ = FRAME_HEADER.unpack_from(sector)
    size = frame_bytes(payload_bytes)
    return size if magic == FRAME_MAGIC and own_group == group and size <= room_bytes else None


def unpack_frame(frame: Buffer, identity_crc: int) -> Frame | None:
    """The frame in `frame`, which has the size that `claimed_bytes` named, by condition (4); None if it is torn."""
    view = memoryview(frame)
    _, payload_bytes, incarnation, group, previous_crc, whole_crc = FRAME_HEADER.unpack_from(view)
    if len(view) != frame_bytes(payload_bytes):
        return None
    crc = crc32c(view[:FRAME_CRC_POSITION], identity_crc)
    crc = crc32c(_NO_CRC, crc)
    if crc32c(view[FRAME_HEADER_BYTES:], crc) != whole_crc:
        return None
    return Frame(group, incarnation, payload_bytes, previous_crc, header_crc(view[:FRAME_HEADER_BYTES]))
