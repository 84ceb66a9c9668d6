"""Records to request bodies, and raw batches back to records.

Three forms of a body. ARRAY: a JSON array, one record per element, always an array, so that a record that is itself a
list stays one record. VALUE: the record's bytes alone, one request each, for every other content type. RAW: a record
batch with keys, headers and timestamps, for any content type.

A record without extras travels through the producer as plain `bytes`, which saves an object per record; a
`ProducerRecord` is made only for those that have a key, headers, a timestamp or a message id.
"""

import json
import operator
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

import msgspec

from oncelog.client.errors import AnswerUnreadable, RecordTooLarge
from oncelog.client.json_values import json_of
from oncelog.client.wire import BATCHES, JSON, header_line
from oncelog.core import batch as codec
from oncelog.errors import BatchInvalid
from oncelog.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, KIB, MESSAGE_ID_BYTES_MAX

RECORD_BYTES_MAX: Final = BATCH_BYTES_MAX - 8 * KIB
"""Value, key and headers of one record: what stands around them must fit the server's largest batch too."""

RECORD_COST_BYTES: Final = 48
"""What a record costs beside its content: a Python object here, up to 20 bytes of framing in the server's batch."""

HeadersGiven = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]

_check_json: Final = msgspec.json.Decoder(msgspec.Raw).decode


class ProducerRecord(msgspec.Struct, frozen=True, gc=False):
    """One record on its way to the server, encoded."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1
    """-1: none was given."""
    message_id: str = ""

    @property
    def plain(self) -> bool:
        """Whether the value says all."""
        return self.key is None and not self.headers and self.timestamp_ms < 0 and self.value is not None


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of a stream."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def json(self) -> Any:
        """The value, read as Python's `json` would; None if the record has none. ValueError if it is not JSON."""
        if self.value is None:
            return None
        try:
            return msgspec.json.decode(self.value)
        except msgspec.DecodeError:
            # msgspec, which is faster, refuses a number like 1E400. The server does not, and readers must get past it.
            return json.loads(self.value)


Item = bytes | ProducerRecord
"""A record in the producer's queue: its value alone, or with all it has."""


class Form(IntEnum):
    """How a body holds its records."""

    ARRAY = 0
    VALUE = 1
    RAW = 2


def is_json(content_type: str) -> bool:
    """Whether records of this type are JSON values."""
    return content_type.partition(";")[0].strip().lower() == JSON


def now_ms() -> int:
    """The wall clock, for records whose sender gave no time."""
    return time.time_ns() // 1_000_000


class Packer:
    """Items and bodies of one content type."""

    def __init__(self, content_type: str, *, raw_batches: bool = False) -> None:
        self._json = is_json(content_type)
        self._plain_form = Form.RAW if raw_batches else Form.ARRAY if self._json else Form.VALUE
        self._types = {Form.ARRAY: content_type, Form.VALUE: content_type, Form.RAW: BATCHES}

    def value_of(self, data: object) -> bytes | None:
        """The bytes of a record. Bytes of any kind are taken as they are: for a JSON stream, as one JSON value."""
        if self._json:
            # msgspec would make base64 of a bytearray, which nobody means who may hand over bytes.
            if not isinstance(data, bytes | bytearray | memoryview | msgspec.Raw):
                return json_of(data)
            value = bytes(data)
            if (flaw := _json_flaw(value)) is not None:
                raise ValueError(f"these bytes are not one JSON value: {flaw}")
            return value
        return _bytes_of("a record of this stream", data)

    def item(
        self,
        data: object,
        key: str | bytes | None = None,
        headers: HeadersGiven | None = None,
        timestamp_ms: int | None = None,
        message_id: str | None = None,
    ) -> Item:
        """A record, encoded once. Raises ValueError, TypeError or RecordTooLarge; then nothing was taken."""
        if message_id is not None:
            check_id(message_id)
        value = self.value_of(data)
        if key is None and headers is None and timestamp_ms is None and not message_id and value:
            if len(value) > RECORD_BYTES_MAX:
                raise RecordTooLarge(len(value), RECORD_BYTES_MAX)
            return value
        if timestamp_ms is not None:
            timestamp_ms = _timestamp(timestamp_ms)
        if timestamp_ms is None and (key is not None or headers is not None or not value):
            # A record that travels in a raw batch needs a time; an empty one can travel in no other way.
            timestamp_ms = now_ms()
        record = ProducerRecord(
            value,
            _bytes_of("a key", key),
            _headers(headers),
            -1 if timestamp_ms is None else timestamp_ms,
            message_id or "",
        )
        if (size := cost(record) - RECORD_COST_BYTES) > RECORD_BYTES_MAX:
            raise RecordTooLarge(size, RECORD_BYTES_MAX)
        return record

    def form(self, item: Item) -> Form:
        """How the record travels."""
        return self._plain_form if isinstance(item, bytes) or item.plain else Form.RAW

    def alone(self, item: Item) -> bool:
        """Whether it needs a request of its own."""
        if isinstance(item, bytes):
            return self._plain_form is Form.VALUE
        return item.message_id != "" or self.form(item) is Form.VALUE

    def content_type(self, form: Form) -> str:
        """What a body of this form is called."""
        return self._types[form]

    def body(self, form: Form, items: Sequence[Item]) -> bytes:
        """The request body of items that all have this form."""
        if form is Form.RAW:
            return _raw_batch(items)
        values = [item if isinstance(item, bytes) else item.value or b"" for item in items]
        if form is Form.ARRAY:
            return b"[%b]" % b",".join(values)
        assert len(values) == 1
        return values[0]


def cost(item: Item) -> int:
    """What the record counts against `max_batch_bytes` and `max_pending_bytes`."""
    if isinstance(item, bytes):
        return len(item) + RECORD_COST_BYTES
    headers = sum(len(name.encode()) + len(content or b"") + 8 for name, content in item.headers)
    return len(item.value or b"") + len(item.key or b"") + headers + RECORD_COST_BYTES


def check_id(message_id: object) -> None:
    """Raises TypeError or ValueError for what the server would refuse. An empty one is none, and whoever gives it means
    one: under a random one the retry would be written again."""
    if not isinstance(message_id, str):
        raise TypeError(f"a message id is text, not {type(message_id).__name__}")
    if not message_id:
        raise ValueError("a message id is not empty: leave it out, or give None, for a random one")
    header_line("message_id", message_id)  # it travels as one, so it must be able to
    if len(message_id.encode()) > MESSAGE_ID_BYTES_MAX:
        raise ValueError(f"a message id has at most {MESSAGE_ID_BYTES_MAX:,} bytes")


def _headers(given: HeadersGiven | None) -> tuple[tuple[str, bytes | None], ...]:
    if given is None:
        return ()
    pairs = given.items() if isinstance(given, Mapping) else given
    return tuple((_header_name(name), _bytes_of("a header's value", content)) for name, content in pairs)


def _header_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a header's name is text, not {type(name).__name__}")
    name.encode()  # what cannot be encoded is refused here, while the caller listens
    return name


def _bytes_of(what: str, given: object) -> bytes | None:
    """Bytes that nobody changes any more. Raises TypeError, or ValueError for text that is no UTF-8."""
    if given is None or type(given) is bytes:
        return given
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"{what} is bytes or text, not {type(given).__name__}")


def _timestamp(given: object) -> int:
    try:
        timestamp_ms = operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"a timestamp is a whole number of milliseconds, not {type(given).__name__}") from None
    if not 0 <= timestamp_ms <= codec.TIMESTAMP_TAME_MAX:
        raise ValueError(f"a timestamp is in milliseconds since 1970, not {timestamp_ms}")
    return timestamp_ms


def _json_flaw(value: bytes) -> str | None:
    """What keeps these bytes from being one JSON value; None if nothing does. The server's check is the same."""
    try:
        str(value, "utf-8")
        _check_json(value)
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        return str(error)
    except RecursionError:
        return "nested too deeply"
    return None


def _raw_batch(items: Sequence[Item]) -> bytes:
    assert len(items) <= BATCH_RECORDS_MAX
    time_ms = now_ms()
    values = [item for item in items if isinstance(item, bytes)]
    if len(values) == len(items):
        return codec.encode_values(values, time_ms)
    records: list[codec.Record] = []
    for number, item in enumerate(items):
        if isinstance(item, bytes):
            records.append((number, time_ms, None, item, ()))
        else:
            stamp = item.timestamp_ms if item.timestamp_ms >= 0 else time_ms
            records.append((number, stamp, item.key, item.value, item.headers))
    return codec.encode(records)


def records_of(body: bytes, first: int) -> list[Record]:
    """The records of an answer from offset `first` on. Raises AnswerUnreadable."""
    records: list[Record] = []
    at = 0
    try:
        while at < len(body):
            header = codec.read_header(body, at)
            batch = body[at : at + header.batch_bytes]
            if not codec.check_crc(batch):
                raise AnswerUnreadable(f"the batch at offset {header.base_offset} was damaged on its way")
            at += header.batch_bytes
            if header.attributes & codec.CONTROL:
                continue
            columns = codec.decode_columns(batch, base_offset=header.base_offset)
            records += map(Record, *columns)
    except BatchInvalid as error:
        raise AnswerUnreadable(f"the answer holds no record batches: {error}") from None
    # The first batch may begin before the offset asked for.
    skip = 0
    while skip < len(records) and records[skip].offset < first:
        skip += 1
    return records[skip:] if skip else records
