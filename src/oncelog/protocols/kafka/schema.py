"""Messages as tables: what a request and its response hold, version by version, and the codec made from it.

A table is text, one field in a line: name, type, and what else there is to say.

    topics [] ?1+                an array of structs, null allowed from version 1 on; its fields are indented below
        name string
        partitions []int32
    rack string 1+ ? =null       there from version 1 on, null allowed, null where a version does not have it
    cursor {} ? =null            one struct
    features [] 3+ tag=0         a tagged field of the flexible versions

Versions are written `3+`, `2-5` or `4`; a field without any is in all versions that its parent is in. A message is a
plain dict of the field names. Decoding gives every field of the table, those of other versions with their default;
encoding takes what is there and defaults for the rest. Tagged fields that a table does not know are skipped.
"""

import re
from functools import cache
from typing import Any, Final, NamedTuple

from oncelog.protocols.kafka.wire import (
    COMPACT,
    LONG,
    NUMBERS,
    SHORT,
    Codec,
    Reader,
    WireError,
    array_codec,
    sized_codec,
    write_unsigned_varint,
)

Message = dict[str, Any]

_VERSIONS: Final = re.compile(r"(\d+)(\+|-(\d+))?")
VERSION_LAST: Final = 32_767


class Field(NamedTuple):
    """One line of a table."""

    name: str
    type: str
    is_array: bool
    versions: tuple[int, int]
    nullable: tuple[int, int] | None
    default: Any
    tag: int | None
    fields: tuple["Field", ...]
    """Of a struct, or of the structs in an array."""


def _span(text: str) -> tuple[int, int]:
    match = _VERSIONS.fullmatch(text)
    assert match is not None, text
    first = int(match[1])
    if match[2] is None:
        return first, first
    return first, VERSION_LAST if match[3] is None else int(match[3])


def _within(span: tuple[int, int], outer: tuple[int, int]) -> tuple[int, int]:
    return max(span[0], outer[0]), min(span[1], outer[1])


_ZEROS: Final[dict[str, Any]] = {"bool": False, "string": "", "bytes": b"", "uuid": bytes(16), "float64": 0.0}


def _default(type_: str, is_array: bool, text: str | None) -> Any:
    if text == "null":
        return None
    if is_array:
        return ()
    if type_ == "{}":
        return {}
    if text is None:
        return _ZEROS.get(type_, 0)
    return text == "true" if type_ == "bool" else int(text)


def parse_table(text: str) -> tuple[Field, ...]:
    """The fields of a table."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return ()
    fields, rest = _block(lines, len(lines[0]) - len(lines[0].lstrip()), (0, VERSION_LAST))
    assert not rest, rest
    return fields


def _block(lines: list[str], indent: int, outer: tuple[int, int]) -> tuple[tuple[Field, ...], list[str]]:
    """The fields at this indent, and the lines after them."""
    fields: list[Field] = []
    while lines and len(lines[0]) - len(lines[0].lstrip()) == indent:
        name, type_, *words = lines.pop(0).split()
        span, nullable, default, tag = outer, None, None, None
        for word in words:
            if word.startswith("?"):
                nullable = outer if word == "?" else _span(word[1:])
            elif word.startswith("="):
                default = word[1:]
            elif word.startswith("tag="):
                tag = int(word[4:])
            else:
                span = _within(_span(word), outer)
        is_array = type_.startswith("[]")
        base = type_.removeprefix("[]") or "{}"
        inner: tuple[Field, ...] = ()
        if lines and len(lines[0]) - len(lines[0].lstrip()) > indent:
            inner, lines = _block(lines, len(lines[0]) - len(lines[0].lstrip()), span)
        assert (base == "{}") == bool(inner), name
        fields.append(Field(name, base, is_array, span, nullable, _default(base, is_array, default), tag, inner))
    return tuple(fields), lines


# --- codecs of one version -------------------------------------------------------------------------------------


def _str_bytes(value: Any) -> bytes:
    return bytes(value.encode())


def _raw_bytes(value: Any) -> bytes:
    return bytes(value)


def _codec_of(field: Field, version: int, flexible: bool) -> Codec:
    nullable = field.nullable is not None and field.nullable[0] <= version <= field.nullable[1]
    if not field.is_array:
        return _value_codec(field, version, flexible, nullable=nullable)
    element = _value_codec(field, version, flexible, nullable=False)
    return array_codec(*(COMPACT if flexible else LONG), element, nullable=nullable)


def _value_codec(field: Field, version: int, flexible: bool, *, nullable: bool) -> Codec:
    if field.type in NUMBERS:
        return NUMBERS[field.type]
    if field.type == "string":
        return sized_codec(*(COMPACT if flexible else SHORT), Reader.text, _str_bytes, nullable=nullable)
    if field.type == "bytes":
        return sized_codec(*(COMPACT if flexible else LONG), _take_bytes, _raw_bytes, nullable=nullable)
    assert field.type == "{}", field.type
    plain = struct_codec(field.fields, version, flexible)
    return _nullable_struct(plain) if nullable else plain


def _take_bytes(reader: Reader, length: int) -> bytes:
    return bytes(reader.take(length))


def _nullable_struct(plain: Codec) -> Codec:
    """One byte before it: -1 for null, 1 for a struct."""

    def read(reader: Reader) -> Any:
        mark = reader.byte()
        return None if mark == 255 else plain[0](reader)

    def write(out: bytearray, value: Any) -> None:
        out.append(255 if value is None else 1)
        if value is not None:
            plain[1](out, value)

    return read, write


def struct_codec(fields: tuple[Field, ...], version: int, flexible: bool) -> Codec:
    """All fields of a struct that this version has, and the section of tagged fields in flexible versions."""
    here = [field for field in fields if field.versions[0] <= version <= field.versions[1]]
    plain = [(field, _codec_of(field, version, flexible)) for field in here if field.tag is None]
    tagged = {field.tag: (field, _codec_of(field, version, True)) for field in here if field.tag is not None}
    assert flexible or not tagged
    steps = [(field.name, codec[0]) for field, codec in plain]
    absent = {field.name: field.default for field in fields if field not in here or field.tag is not None}

    def read(reader: Reader) -> Message:
        message: Message = absent.copy()
        for name, read_value in steps:
            message[name] = read_value(reader)
        if flexible:
            _read_tags(reader, tagged, message)
        return message

    def write(out: bytearray, message: Any) -> None:
        for field, codec in plain:
            codec[1](out, message.get(field.name, field.default))
        if flexible:
            _write_tags(out, tagged, message)

    return read, write


def _read_tags(reader: Reader, tagged: dict[int, tuple[Field, Codec]], message: Message) -> None:
    for _ in range(reader.count(reader.unsigned_varint())):
        tag = reader.unsigned_varint()
        length = reader.unsigned_varint()
        known = tagged.get(tag)
        if known is None:
            reader.take(length)
            continue
        end = reader.at + length
        message[known[0].name] = known[1][0](reader)
        if reader.at != end:
            raise WireError(f"tagged field {tag} states {length} bytes and holds others", reader.at)


def _write_tags(out: bytearray, tagged: dict[int, tuple[Field, Codec]], message: Message) -> None:
    present = []
    for tag, (field, codec) in sorted(tagged.items(), key=lambda item: item[0]):
        value = message.get(field.name, field.default)
        if value is None or value == field.default or (field.is_array and len(value) == 0):
            continue
        content = bytearray()
        codec[1](content, value)
        present.append((tag, content))
    write_unsigned_varint(out, len(present))
    for tag, content in present:
        write_unsigned_varint(out, tag)
        write_unsigned_varint(out, len(content))
        out += content


# --- APIs ------------------------------------------------------------------------------------------------------


class Api:
    """One pair of request and response."""

    def __init__(
        self, key: int, name: str, *, versions: tuple[int, int], flexible: int | None, request: str, response: str
    ) -> None:
        self.key = key
        self.name = name
        self.versions = versions
        self.flexible_from = VERSION_LAST if flexible is None else flexible
        self._tables = (request, response)
        self._codecs: dict[tuple[int, int], Codec] = {}

    def is_flexible(self, version: int) -> bool:
        """Whether this version uses the compact encoding and tagged fields."""
        return version >= self.flexible_from

    @cache  # noqa: B019 - APIs are module constants, which live as long as the process
    def fields(self, kind: int) -> tuple[Field, ...]:
        """The table of the request (0) or the response (1)."""
        return parse_table(self._tables[kind])

    def _codec(self, kind: int, version: int) -> Codec:
        codec = self._codecs.get((kind, version))
        if codec is None:
            assert self.versions[0] <= version <= self.versions[1]
            codec = struct_codec(self.fields(kind), version, self.is_flexible(version))
            self._codecs[kind, version] = codec
        return codec

    def decode_request(self, version: int, reader: Reader) -> Message:
        """The request's fields. Bytes behind them are ignored, as Kafka does: librdkafka sends three of them in a
        Metadata request for all topics."""
        message: Message = self._codec(0, version)[0](reader)
        return message

    def encode_request(self, version: int, message: Message) -> bytes:
        """What a client would send; for tests and for our own client."""
        return self._encoded(0, version, message)

    def decode_response(self, version: int, reader: Reader) -> Message:
        """What a client would read."""
        message: Message = self._codec(1, version)[0](reader)
        return message

    def encode_response(self, version: int, message: Message) -> bytes:
        """The response without its header."""
        return self._encoded(1, version, message)

    def _encoded(self, kind: int, version: int, message: Message) -> bytes:
        out = bytearray()
        self._codec(kind, version)[1](out, message)
        return bytes(out)
