"""Our batches read by other people's code, and theirs by ours: kafka-python and aiokafka, every codec they have."""

import warnings
from types import ModuleType
from typing import Any

import aiokafka.codec
import aiokafka.record.default_records as aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.batch_codecs import CODECS
from tests.core.test_batch import TIME, compressed

with warnings.catch_warnings():
    # kafka-python reads its schemas through a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec
    import kafka.record.default_records as kp

NAMES = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
KAFKA_PYTHON_HAS = [0] + [number for number in (1, 2, 3, 4) if getattr(kafka.codec, f"has_{NAMES[number]}")()]
AIOKAFKA_HAS = [0] + [number for number in (1, 2, 3, 4) if getattr(aiokafka.codec, f"has_{NAMES[number]}")()]
ORACLES = [pytest.param(kp, number, id=f"kafka-python-{NAMES[number]}") for number in KAFKA_PYTHON_HAS] + [
    pytest.param(aio, number, id=f"aiokafka-{NAMES[number]}") for number in AIOKAFKA_HAS
]

Record = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

pytestmark = pytest.mark.parametrize("codec", CODECS)


def test_aiokafka_brings_every_codec(codec: ModuleType) -> None:
    assert AIOKAFKA_HAS == [0, 1, 2, 3, 4]


contents = st.none() | st.binary(max_size=300)
record_lists = st.lists(
    st.tuples(
        st.integers(0, 10_000),
        contents,
        contents,
        st.lists(st.tuples(st.text(max_size=10), contents), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=20,
).map(lambda drawn: [(delta, TIME + late, *rest) for delta, (late, *rest) in enumerate(drawn)])


def read_by(oracle: Any, batch: bytes) -> list[Record]:
    reader = oracle.DefaultRecordBatch(bytearray(batch))
    assert reader.validate_crc()
    base = reader.base_offset
    return [
        (record.offset - base, record.timestamp, record.key, record.value, tuple(record.headers)) for record in reader
    ]


def written_by(oracle: Any, records: list[Record], number: int) -> bytes:
    builder = oracle.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=number,
        is_transactional=False,
        producer_id=21,
        producer_epoch=2,
        base_sequence=5,
        batch_size=1 << 20,
    )
    for delta, time, key, value, headers in records:
        builder.append(delta, time, key, value, list(headers))
    return bytes(builder.build())


@pytest.mark.parametrize(("oracle", "number"), ORACLES)
@settings(max_examples=25)
@given(records=record_lists)
def test_oracle_reads_what_we_write(codec: ModuleType, oracle: Any, number: int, records: list[Record]) -> None:
    batch = codec.encode(records, producer_id=21, producer_epoch=2, base_sequence=5)
    if number:
        batch = compressed(batch, number)
    assert read_by(oracle, b"".join(codec.stamp(batch, 777))) == records


@pytest.mark.parametrize(("oracle", "number"), ORACLES)
@settings(max_examples=25)
@given(records=record_lists)
def test_we_read_what_oracle_writes(codec: ModuleType, oracle: Any, number: int, records: list[Record]) -> None:
    batch = written_by(oracle, records, number)
    header = codec.skim(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (21, 2, 5)
    assert header.record_count == len(records)
    assert codec.decode(batch) == records


@pytest.mark.parametrize("oracle", [kp, aio], ids=["kafka-python", "aiokafka"])
def test_uncompressed_bytes_equal_the_oracles(codec: ModuleType, oracle: Any) -> None:
    records: list[Record] = [(row, TIME + row, b"k", bytes(row), (("h", b"x"),)) for row in range(100)]
    ours = codec.encode(records, producer_id=21, producer_epoch=2, base_sequence=5)
    theirs = written_by(oracle, records, 0)
    # Bytes 12 to 15, the leader epoch, are the broker's to set.
    assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]


@pytest.mark.parametrize("oracle", [kp, aio], ids=["kafka-python", "aiokafka"])
def test_oracle_reads_batches_with_holes_and_markers(codec: ModuleType, oracle: Any) -> None:
    batch = codec.without(codec.encode_values([bytes([row]) for row in range(10)], TIME), [(0, 1), (4, 9)])
    assert [record[0] for record in read_by(oracle, b"".join(codec.stamp(batch, 50)))] == [1, 2, 3, 9]
    reader = oracle.DefaultRecordBatch(bytearray(codec.encode_marker(21, 2, True, 0, TIME)))
    assert reader.validate_crc()
    assert reader.is_control_batch
    assert reader.is_transactional
    assert reader.producer_id == 21
