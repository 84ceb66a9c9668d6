"""How large a stream is: bytes of its batches, in all and from the floor on; and producers that are idle."""

import pytest

from oncelog import limits
from oncelog.core.command import Trim
from oncelog.core.flat import Stream
from oncelog.core.outcome import Confirmed
from oncelog.core.row_codec import decode_row, encode_key
from oncelog.core.rows import Table, TopicConfig
from oncelog.testing.core_harness import CoreHarness, requests


def row(log: CoreHarness, stream_id: int) -> Stream:
    stream = decode_row(Table.STREAM, log.rows.tables[Table.STREAM][encode_key(Table.STREAM, stream_id)])
    assert isinstance(stream, Stream)
    return stream


def test_live_bytes_fall_with_the_floor() -> None:
    log = CoreHarness()
    (stream_id,) = log.create("a")
    for _ in range(12):
        log.append("a", b"x" * (1 << 19))
    whole = row(log, stream_id)
    assert 12 << 19 < whole.stored_bytes == whole.live_bytes < (12 << 19) + 12 * 100
    log.run(Trim("a", 0, 6))
    half = row(log, stream_id)
    assert abs(half.live_bytes - whole.stored_bytes // 2) < 1 << 19
    log.run(Trim("a", 0, 12))
    assert row(log, stream_id).live_bytes == 0
    log.replay_all()


@pytest.mark.parametrize("count", [1, 2, 127, 128, 129, 1_000, 5_000])
def test_bytes_below_an_offset_are_known_to_a_hundredth(count: int) -> None:
    stream = Stream(1, 1, 0, TopicConfig())
    exact = [0]
    for number in range(count):
        stream.tail += 1
        stream.add_bytes((1 << 18) + 4_096 * (number % 7))
        exact.append(stream.stored_bytes)
    assert len(stream.byte_marks or []) <= 2 * limits.BYTE_MARKS_MAX
    for offset in range(0, count + 1, max(1, count // 50)):
        error = abs(stream.bytes_below(offset) - exact[offset])
        assert error <= max(2 << limits.BYTE_MARK_BITS, exact[-1] // 50)
    assert (stream.bytes_below(0), stream.bytes_below(count)) == (0, exact[-1])


def test_idle_producer_is_forgotten_although_its_records_are_there() -> None:
    log = CoreHarness()
    log.create("a", config=TopicConfig(producer_idle_ms=60_000))
    log.append("a", claim=requests("http:p", 0, epoch=5))
    log.pass_ms(59_999)
    again = log.append("a", claim=requests("http:p", 0, epoch=5))
    assert isinstance(again, Confirmed)
    assert again.duplicate
    log.append("a", claim=requests("http:p", 1, epoch=5))
    log.pass_ms(60_000)
    anew = log.append("a", claim=requests("http:p", 0, epoch=1))
    assert isinstance(anew, Confirmed)
    assert (anew.duplicate, anew.first) == (False, 2)
    log.replay_all()
