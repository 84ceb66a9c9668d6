"""Record batches to Arrow columns, as raw buffers: whoever has pyarrow wraps them, core does not import it.

Rows come in the order of `add`. The buffers follow the Arrow columnar format, little-endian, without padding: 64-bit
integers for offsets and timestamps; for binary columns, 32-bit end positions (count + 1 of them), the bytes, and a
validity bitmap that is left out when nothing is null.

A batch that turns out to be invalid adds nothing. The caller knows what may be read: it passes only committed batches
and cuts at `stable`. Control batches add no rows, they are holes. The checksum is not looked at.

Compiled by mypyc like `core.batch`; plain lists are the fastest accumulators
there, and are packed once per batch so that a row costs bytes, not objects. (`array` would take four times as long as
`struct` for that: it parses every item like an argument.)
"""

import struct
import sys
from typing import Final, final

from oncelog.core.batch import ATTRIBUTES_AT, CONTROL, Buffer, Headers, decode_columns
from oncelog.limits import BATCH_INFLATED_BYTES_MAX

_INT32: Final = struct.Struct("<i")

_INT64_NATIVE: Final = sys.byteorder == "little" and struct.calcsize("l") == 8
"""Whether the machine's own long is what Arrow wants; CPython packs it three times as fast as the explicit form."""

COLUMN_BYTES_MAX: Final = 2**31 - 1
"""End positions are signed 32-bit numbers. The caller calls `finish` before a column grows beyond it."""

TIMESTAMP_MAX: Final = 2**63 - 1
"""A later time, one after the year 294,000 told in microseconds, becomes this one: no record may stop a reader."""


@final
class BinaryColumn:
    """One finished column of bytes or text."""

    __slots__ = ("data", "ends", "null_count", "validity")

    def __init__(self, ends: bytes, data: bytes, validity: bytes | None, null_count: int) -> None:
        self.ends = ends
        """Arrow's value offsets: 0, then where each value ends."""
        self.data = data
        self.validity = validity
        self.null_count = null_count


@final
class ArrowBuffers:
    """Finished columns of equal length. Header columns have a row per header, `header_ends` groups them by record."""

    __slots__ = ("header_ends", "header_key", "header_value", "key", "offset", "row_count", "timestamp", "value")

    def __init__(
        self,
        row_count: int,
        offset: bytes,
        timestamp: bytes,
        key: BinaryColumn,
        value: BinaryColumn,
        header_ends: bytes | None,
        header_key: BinaryColumn | None,
        header_value: BinaryColumn | None,
    ) -> None:
        self.row_count = row_count
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.header_ends = header_ends
        self.header_key = header_key
        self.header_value = header_value


@final
class _Binary:
    """A column of bytes being built. Invariant: `ends` holds row_count + 1 positions, the last is `size_bytes`."""

    __slots__ = ("ends", "null_runs", "pieces", "row_count", "size_bytes")

    def __init__(self) -> None:
        self.row_count = 0
        self.size_bytes = 0
        """Bytes in `pieces`."""
        self.pieces: list[bytes] = []
        self.ends = [bytes(4)]
        """Packed, a piece per batch."""
        self.null_runs: list[tuple[int, int]] = []
        """Rows [first, next), ascending, never touching."""

    def extend(self, contents: list[bytes | None]) -> None:
        row = self.row_count
        end = self.size_bytes
        self.row_count += len(contents)
        if len(contents) > 0 and contents[0] is None and contents.count(None) == len(contents):
            # Streams without keys are the usual case. (Counting is fast for nulls only, hence the look at the first.)
            self.ends.append(_INT32.pack(end) * len(contents))
            self._add_nulls(row, self.row_count)
            return
        ends: list[int] = []
        pieces = self.pieces
        for content in contents:
            if content is None:
                self._add_nulls(row, row + 1)
            else:
                end += len(content)
                pieces.append(content)
            ends.append(end)
            row += 1
        assert end <= COLUMN_BYTES_MAX
        self.size_bytes = end
        self.ends.append(struct.pack(f"<{len(ends)}i", *ends))

    def _add_nulls(self, first: int, next_: int) -> None:
        if len(self.null_runs) > 0 and self.null_runs[-1][1] == first:
            first = self.null_runs.pop()[0]
        self.null_runs.append((first, next_))

    def finish(self) -> BinaryColumn:
        null_count = sum([next_ - first for first, next_ in self.null_runs])
        validity = _bitmap(self.row_count, self.null_runs) if null_count > 0 else None
        return BinaryColumn(b"".join(self.ends), b"".join(self.pieces), validity, null_count)


def _bitmap(row_count: int, null_runs: list[tuple[int, int]]) -> bytes:
    """Bit set = valid, least significant bit first; the bits after the last row are zero."""
    bits = [255] * (row_count // 8)
    if row_count & 7:
        bits.append((1 << (row_count & 7)) - 1)
    for first, next_ in null_runs:
        while first < next_:
            if first & 7 == 0 and first + 8 <= next_:
                bits[first >> 3] = 0
                first += 8
            else:
                bits[first >> 3] -= 1 << (first & 7)
                first += 1
    return bytes(bits)


@final
class ArrowColumns:
    """Accumulates batches; `finish` gives the columns of all rows added so far and starts over."""

    __slots__ = ("_header_ends", "_header_key", "_header_value", "_key", "_offset", "_per_ms", "_timestamp", "_value",
                 "_with_headers")  # fmt: skip

    def __init__(self, *, timestamp_unit: str = "ms", headers: bool = False) -> None:
        assert timestamp_unit in ("ms", "us")
        self._per_ms = 1000 if timestamp_unit == "us" else 1
        self._with_headers = headers
        self._start()

    def _start(self) -> None:
        self._offset: list[bytes] = []
        self._timestamp: list[bytes] = []
        self._key = _Binary()
        self._value = _Binary()
        self._header_ends = [bytes(4)]
        self._header_key = _Binary()
        self._header_value = _Binary()

    @property
    def row_count(self) -> int:
        return self._key.row_count

    @property
    def size_bytes(self) -> int:
        """The bytes of all columns of bytes: what to watch when deciding to finish."""
        headers = self._header_key.size_bytes + self._header_value.size_bytes
        return self._key.size_bytes + self._value.size_bytes + headers

    def add(
        self,
        batch: Buffer,
        base_offset: int,
        first: int = 0,
        next: int | None = None,  # noqa: A002
        *,
        inflated_bytes_max: int = BATCH_INFLATED_BYTES_MAX,
    ) -> int:
        """Adds the records with offsets in [first, next); says how many they were."""
        with_headers = self._with_headers
        offsets, timestamps, keys, values, headers = decode_columns(
            batch,
            base_offset=base_offset,
            timestamps_per_ms=self._per_ms,
            headers=with_headers,
            inflated_bytes_max=inflated_bytes_max,
        )
        if batch[ATTRIBUTES_AT + 1] & CONTROL:
            return 0
        # Only the batches at the two ends of a read lie partly outside its range.
        if offsets[0] < first or (next is not None and offsets[-1] >= next):
            kept = [row for row, offset in enumerate(offsets) if offset >= first and (next is None or offset < next)]
            offsets = [offsets[row] for row in kept]
            timestamps = [timestamps[row] for row in kept]
            keys = [keys[row] for row in kept]
            values = [values[row] for row in kept]
            headers = [headers[row] for row in kept] if with_headers else []
            if len(kept) == 0:
                return 0
        packing = f"{len(offsets)}l" if _INT64_NATIVE else f"<{len(offsets)}q"
        try:
            times = struct.pack(packing, *timestamps)
        except struct.error:
            times = struct.pack(packing, *[max(-TIMESTAMP_MAX, min(TIMESTAMP_MAX, time)) for time in timestamps])
        self._offset.append(struct.pack(packing, *offsets))
        self._timestamp.append(times)
        self._key.extend(keys)
        self._value.extend(values)
        if with_headers:
            self._add_headers(headers)
        return len(offsets)

    def _add_headers(self, headers: list[Headers]) -> None:
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        ends: list[int] = []
        before = self._header_key.row_count
        for of_record in headers:
            for key, value in of_record:
                keys.append(key.encode())
                values.append(value)
            ends.append(before + len(keys))
        self._header_ends.append(struct.pack(f"<{len(ends)}i", *ends))
        self._header_key.extend(keys)
        self._header_value.extend(values)

    def finish(self) -> ArrowBuffers:
        with_headers = self._with_headers
        buffers = ArrowBuffers(
            self.row_count,
            b"".join(self._offset),
            b"".join(self._timestamp),
            self._key.finish(),
            self._value.finish(),
            b"".join(self._header_ends) if with_headers else None,
            self._header_key.finish() if with_headers else None,
            self._header_value.finish() if with_headers else None,
        )
        self._start()
        return buffers
