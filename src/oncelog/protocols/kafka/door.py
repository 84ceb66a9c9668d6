"""The door: whether the bytes that a producer sent for one partition may be stored, and with which code not.

What passes is one batch of format 2 that every reader can decode. It is stored untouched, except that a topic with
LogAppendTime gets the server's time in the header, and the checksum that follows from it.
"""

from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from oncelog.core import batch as codec
from oncelog.core.append import kafka_name
from oncelog.core.batch import BatchHeader
from oncelog.core.flat import ProducerClaim
from oncelog.core.producer import SequenceMode
from oncelog.errors import BatchInvalid
from oncelog.limits import KAFKA_SEQUENCE_MAX
from oncelog.protocols.kafka.codes import Code
from oncelog.protocols.kafka.topic_settings import Rules
from oncelog.protocols.kafka.wire import Buffer

ZSTD: Final = 4
ZSTD_FROM: Final = 7
"""The version of Produce from which on zstd is allowed: older consumers could not read it."""

_UINT32: Final = Struct(">I")
_MODE: Final = int(SequenceMode.RECORDS)


class Refused(NamedTuple):
    """The batch stays outside."""

    code: Code
    message: str


class Admitted(NamedTuple):
    """The batch as it will be stored."""

    batch: bytes
    header: BatchHeader
    claim: ProducerClaim | None


def admit(records: Buffer | None, version: int, rules: Rules, now_ms: int) -> Admitted | Refused:
    """Look at everything about a batch that needs no state."""
    if records is None or len(records) == 0:
        return Refused(Code.INVALID_RECORD, "a partition without records")
    try:
        header = codec.read_header(records)
        if header.batch_bytes < len(records):
            return Refused(Code.INVALID_RECORD, "more than one batch for one partition; send one")
        if len(records) > rules.bytes_max:
            what = f"a batch of {len(records):,} bytes; the limit is {rules.bytes_max:,}"
            return Refused(Code.MESSAGE_TOO_LARGE, what)
        header = codec.skim(records)
    except BatchInvalid as error:
        return Refused(_code_of(error), str(error))
    attributes = header.attributes
    if attributes & codec.CONTROL:
        return Refused(Code.INVALID_RECORD, "control batches are written by the server alone")
    if attributes & codec.CODEC_MASK == ZSTD and version < ZSTD_FROM:
        return Refused(Code.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {ZSTD_FROM}; this is {version}")
    if attributes & codec.TIMESTAMP_LOG_APPEND:
        return Refused(Code.INVALID_TIMESTAMP, "only the server sets LogAppendTime; send CreateTime")
    if attributes & codec.TRANSACTIONAL and header.producer_id < 0:
        return Refused(Code.INVALID_RECORD, "a transactional batch without a producer id")
    claim = None
    if header.producer_id >= 0:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            numbers = f"epoch {header.producer_epoch}, sequence {header.base_sequence}"
            return Refused(Code.INVALID_RECORD, f"a producer id with {numbers}; both are 0 or more")
        claim = _claim(header)
    batch = bytes(records)
    return Admitted(with_append_time(batch, now_ms) if rules.log_append_time else batch, header, claim)


def _claim(header: BatchHeader) -> ProducerClaim:
    """Sequences count records and wrap to 0."""
    first = header.base_sequence
    last = first + header.record_count - 1
    if last > KAFKA_SEQUENCE_MAX:
        last -= KAFKA_SEQUENCE_MAX + 1
    return ProducerClaim(kafka_name(header.producer_id), header.producer_epoch, first, last, _MODE)


def _code_of(error: BatchInvalid) -> Code:
    """By the place in the batch that is wrong."""
    if "does not match" in error.reason or "inflate" in error.reason or "snappy" in error.reason:
        return Code.CORRUPT_MESSAGE
    if "codec" in error.reason:
        return Code.UNSUPPORTED_COMPRESSION_TYPE
    return Code.INVALID_RECORD


def with_append_time(batch: bytes, now_ms: int) -> bytes:
    """The batch with the server's time as that of all its records."""
    attributes = int.from_bytes(batch[codec.ATTRIBUTES_AT : codec.LAST_OFFSET_DELTA_AT], "big")
    checked = b"".join(
        (
            (attributes | codec.TIMESTAMP_LOG_APPEND).to_bytes(2, "big"),
            batch[codec.LAST_OFFSET_DELTA_AT : codec.MAX_TIMESTAMP_AT],
            now_ms.to_bytes(8, "big"),
            batch[codec.PRODUCER_ID_AT :],
        )
    )
    return batch[: codec.CRC_AT] + _UINT32.pack(crc32c(checked)) + checked
