"""Which stream a row goes to: the partition it names, else its key's hash, else wherever the task spreads to.

The hash is murmur2 with Kafka's seed, over all keys of a record batch at once: the same key comes to the same partition
from here and from any Kafka producer.
"""

from typing import Any, Final

import numpy as np

_M: Final = np.uint32(0x5BD1E995)
_SEED: Final = np.uint32(0x9747B28C)
_R: Final = np.uint32(24)


def murmur2(data: Any, starts: Any, lengths: Any) -> Any:
    """Hashes of many keys: `data` all bytes, and where in it each key starts and how long it is. 32 bits, unsigned."""
    with np.errstate(over="ignore"):
        hashes = _SEED ^ lengths.astype(np.uint32)
        words = lengths >> 2
        for word in range(int(words.max(initial=0))):
            rows = np.nonzero(words > word)[0]
            at = starts[rows] + 4 * word
            k = _word(data, at, 4) * _M
            k = (k ^ (k >> _R)) * _M
            hashes[rows] = (hashes[rows] * _M) ^ k
        for left in (1, 2, 3):
            rows = np.nonzero((lengths & 3) == left)[0]
            if len(rows):
                at = starts[rows] + (lengths[rows] & ~np.int64(3))
                hashes[rows] = (hashes[rows] ^ _word(data, at, left)) * _M
        hashes ^= hashes >> np.uint32(13)
        hashes *= _M
        hashes ^= hashes >> np.uint32(15)
    return hashes


def _word(data: Any, at: Any, count: int) -> Any:
    """The next bytes of each key as a little-endian number."""
    word = data[at].astype(np.uint32)
    for byte in range(1, count):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def hashed_partitions(keys: Any, partition_count: int) -> Any:
    """The partition of every key of an Arrow array of 32-bit binary, as Kafka's default partitioner; -1 for null."""
    rows = len(keys)
    _, ends_buffer, data_buffer = keys.buffers()
    if ends_buffer is None or rows == 0:
        return np.full(rows, -1, dtype=np.int64)
    ends = np.frombuffer(ends_buffer, dtype=np.int32)[keys.offset : keys.offset + rows + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    hashes = murmur2(data, ends[:-1], np.diff(ends))
    found = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % partition_count
    if keys.null_count:
        found[np.asarray(keys.is_null())] = -1
    return found
