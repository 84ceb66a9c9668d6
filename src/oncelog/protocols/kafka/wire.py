"""Kafka's primitive types: fixed numbers, strings, bytes and arrays in the old and in the compact (flexible) encoding.

A `Reader` walks over the bytes of one request. Bytes that are not what the protocol says raise `WireError`, nothing
else. It allocates no more than the bytes that really came justify: a length is compared with what is left before it
is used, and all arrays of one request share a budget of elements.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from oncelog import limits
from oncelog.errors import OncelogError

Buffer = bytes | bytearray | memoryview


class WireError(OncelogError):
    """The peer's bytes break the protocol. `at` is the byte within the request."""

    def __init__(self, problem: str, at: int = -1) -> None:
        self.problem = problem
        self.at = at
        super().__init__(f"{problem} (byte {at} of the request)" if at >= 0 else problem)


_INT16: Final = Struct(">h")
_UINT16: Final = Struct(">H")
_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_INT64: Final = Struct(">q")
_FLOAT64: Final = Struct(">d")


class Reader:
    """The bytes of one request, read from the front."""

    __slots__ = ("at", "data", "elements_left", "end")

    def __init__(self, data: Buffer, at: int = 0, elements_max: int = limits.KAFKA_ELEMENTS_MAX) -> None:
        self.data = data
        self.at = at
        self.end = len(data)
        self.elements_left = elements_max

    def fixed(self, struct: Struct) -> Any:
        """One number of fixed size."""
        at = self.at
        next_ = at + struct.size
        if next_ > self.end:
            raise WireError(f"the request ends inside a number of {struct.size} bytes", at)
        self.at = next_
        return struct.unpack_from(self.data, at)[0]

    def byte(self) -> int:
        """One unsigned byte."""
        at = self.at
        if at >= self.end:
            raise WireError("the request ends where another byte is expected", at)
        self.at = at + 1
        return self.data[at]

    def unsigned_varint(self) -> int:
        """At most 32 bits, seven in a byte."""
        number = self.byte()
        if number < 128:
            return number
        number &= 127
        for shift in (7, 14, 21, 28):
            byte = self.byte()
            number |= (byte & 127) << shift
            if byte < 128:
                if number >> 32:
                    raise WireError("a varint is above 32 bits", self.at)
                return number
        raise WireError("a varint has more than 5 bytes", self.at)

    def take(self, length: int) -> Buffer:
        """The next `length` bytes, a view if the data is one."""
        at = self.at
        if length > self.end - at:
            raise WireError(f"a length of {length} bytes, but {self.end - at} are left", at)
        self.at = at + length
        return self.data[at : at + length]

    def text(self, length: int) -> str:
        """The next `length` bytes as UTF-8."""
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError:
            raise WireError("a string is not UTF-8", self.at - length) from None

    def count(self, count: int) -> int:
        """A number of elements that the bytes left, and the budget of the request, allow."""
        if count > self.end - self.at:
            raise WireError(f"an array of {count} elements, but {self.end - self.at} bytes are left", self.at)
        self.elements_left -= count
        if self.elements_left < 0:
            limit = limits.KAFKA_ELEMENTS_MAX
            raise WireError(f"the arrays of one request hold more than {limit:,} elements; send less at once", self.at)
        return count

    def skip_tags(self) -> None:
        """Steps over a section of tagged fields."""
        for _ in range(self.count(self.unsigned_varint())):
            self.unsigned_varint()
            self.take(self.unsigned_varint())


ReadValue = Callable[[Reader], Any]
WriteValue = Callable[[bytearray, Any], None]


def _length_16(reader: Reader) -> int:
    return int(reader.fixed(_INT16))


def _length_32(reader: Reader) -> int:
    return int(reader.fixed(_INT32))


def _length_compact(reader: Reader) -> int:
    return reader.unsigned_varint() - 1


def _no_null(length: int, reader: Reader) -> None:
    if length < 0:
        raise WireError("null where a value is required" if length == -1 else f"a length of {length}", reader.at)


def write_unsigned_varint(out: bytearray, number: int) -> None:
    """Seven bits in a byte."""
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def _write_length_16(out: bytearray, length: int) -> None:
    out += _INT16.pack(length)


def _write_length_32(out: bytearray, length: int) -> None:
    out += _INT32.pack(length)


def _write_length_compact(out: bytearray, length: int) -> None:
    write_unsigned_varint(out, length + 1)


ReadLength = Callable[[Reader], int]
WriteLength = Callable[[bytearray, int], None]

SHORT: Final[tuple[ReadLength, WriteLength]] = (_length_16, _write_length_16)
LONG: Final[tuple[ReadLength, WriteLength]] = (_length_32, _write_length_32)
COMPACT: Final[tuple[ReadLength, WriteLength]] = (_length_compact, _write_length_compact)

Codec = tuple[ReadValue, WriteValue]


def number_codec(struct: Struct) -> Codec:
    """A number of fixed size."""

    def write(out: bytearray, value: Any) -> None:
        out += struct.pack(value)

    return (lambda reader: reader.fixed(struct)), write


def _read_bool(reader: Reader) -> bool:
    return reader.byte() != 0


def _write_bool(out: bytearray, value: Any) -> None:
    out.append(1 if value else 0)


def _read_uuid(reader: Reader) -> bytes:
    return bytes(reader.take(16))


def _write_uuid(out: bytearray, value: Any) -> None:
    assert len(value) == 16
    out += value


NUMBERS: Final[dict[str, Codec]] = {
    "bool": (_read_bool, _write_bool),
    "int8": number_codec(Struct(">b")),
    "int16": number_codec(_INT16),
    "uint16": number_codec(_UINT16),
    "int32": number_codec(_INT32),
    "uint32": number_codec(_UINT32),
    "int64": number_codec(_INT64),
    "float64": number_codec(_FLOAT64),
    "uuid": (_read_uuid, _write_uuid),
}
"""Types whose size never depends on the value or the version."""


def sized_codec(
    read_length: ReadLength,
    write_length: WriteLength,
    read_content: Callable[[Reader, int], Any],
    write_content: Callable[[Any], bytes],
    *,
    nullable: bool,
) -> Codec:
    """A length and as many bytes; the length of null is -1."""

    def read(reader: Reader) -> Any:
        length = read_length(reader)
        if length == -1 and nullable:
            return None
        _no_null(length, reader)
        return read_content(reader, length)

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            assert nullable, "null where the protocol requires a value"
            write_length(out, -1)
            return
        content = write_content(value)
        write_length(out, len(content))
        out += content

    return read, write


def array_codec(read_length: ReadLength, write_length: WriteLength, element: Codec, *, nullable: bool) -> Codec:
    """A count and as many elements; the count of null is -1."""
    read_element, write_element = element

    def read(reader: Reader) -> Any:
        count = read_length(reader)
        if count == -1 and nullable:
            return None
        _no_null(count, reader)
        return [read_element(reader) for _ in range(reader.count(count))]

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            assert nullable, "null where the protocol requires an array"
            write_length(out, -1)
            return
        write_length(out, len(value))
        for each in value:
            write_element(out, each)

    return read, write
