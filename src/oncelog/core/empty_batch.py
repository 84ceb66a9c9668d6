"""A record batch without records that stands for a range of offsets.

A Kafka client takes its next offset from the batches that it is sent. If a read ends with offsets that are never
delivered, a batch without records says so; Kafka itself leaves such batches behind when it compacts a topic.
"""

from typing import Final

from crc32c import crc32c

from oncelog.core.batch import ATTRIBUTES_AT, HEADER_BYTES, LENGTH_SKIPPED_BYTES, MAGIC

_DELTA_MAX: Final = (1 << 31) - 1
_NO_PRODUCER: Final = b"\xff" * 8 + b"\xff" * 2 + b"\xff" * 4


def empty_batch(first: int, next_: int) -> tuple[bytes, int]:
    """(a batch from `first` to `next_`, where it ends): a batch covers no more than 2^31 offsets."""
    assert 0 <= first < next_
    delta = min(next_ - first - 1, _DELTA_MAX)
    no_time = b"\xff" * 16  # first and last timestamp: -1
    checked = b"\x00\x00" + delta.to_bytes(4, "big") + no_time + _NO_PRODUCER + bytes(4)
    assert len(checked) == HEADER_BYTES - ATTRIBUTES_AT
    length = HEADER_BYTES - LENGTH_SKIPPED_BYTES
    head = first.to_bytes(8, "big") + length.to_bytes(4, "big") + b"\x00\x00\x00\x00" + bytes([MAGIC])
    return head + crc32c(checked).to_bytes(4, "big") + checked, first + delta + 1
