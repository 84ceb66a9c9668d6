"""The messages of `boundary.proto`, in one table, and their two encodings: protobuf and proto3's JSON.

Between the layers a message is a dict: names in snake_case, 64-bit numbers as int, bytes as bytes, fields that were
not sent left out. A test holds the table against `boundary.proto`; the descriptors are made from it, so that no
generated code has to match the version of the protobuf library.

JSON in: names in snake_case or lowerCamelCase, 64-bit numbers as numbers or strings, null as "not sent", unknown names
refused. `object_json` is a string that holds JSON text, or the object itself. JSON out: snake_case, 64-bit numbers as
strings, bytes in base64.
"""

import base64
import binascii
from typing import Any, Final, NamedTuple, TypeAlias, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf

from oncelog.core import canonical

PACKAGE: Final = "bsfg.v1"

Message: TypeAlias = dict[str, Any]


class Malformed(Exception):
    """The bytes are not the message that the method takes."""


class Field(NamedTuple):
    """One field of a message."""

    name: str
    number: int
    kind: str
    """string, bytes, bool, uint32, int64, uint64, `map` (of strings), or the name of a message."""
    is_repeated: bool = False


def _fields(*rows: tuple[str, int, str]) -> tuple[Field, ...]:
    return tuple(Field(name, number, kind.removeprefix("repeated "), kind != kind.removeprefix("repeated "))
                 for name, number, kind in rows)  # fmt: skip


MESSAGES: Final[dict[str, tuple[Field, ...]]] = {
    "Envelope": _fields(
        ("message_id", 1, "string"),
        ("from_zone", 2, "string"),
        ("to_zone", 3, "string"),
        ("produced_at_unix_ms", 4, "int64"),
        ("correlation_id", 5, "string"),
        ("causation_id", 6, "string"),
        ("labels", 7, "map"),
        ("object_media_type", 8, "string"),
        ("object_schema", 9, "string"),
    ),
    "Fact": _fields(("subject", 1, "string"), ("predicate", 2, "string"), ("object_json", 3, "string")),
    "Attachment": _fields(
        ("bucket", 1, "string"),
        ("key", 2, "string"),
        ("digest", 3, "string"),
        ("size", 4, "int64"),
        ("media_type", 5, "string"),
        ("file_name", 6, "string"),
    ),
    "AppendFactRequest": _fields(
        ("envelope", 1, "Envelope"), ("fact", 2, "Fact"), ("attachments", 3, "repeated Attachment")
    ),
    "AppendFactResponse": _fields(
        ("stream", 1, "string"),
        ("sequence", 2, "uint64"),
        ("duplicate", 3, "bool"),
        ("envelope_differences", 4, "repeated string"),
    ),
    "FetchFactsRequest": _fields(("consumer_name", 1, "string"), ("limit", 2, "uint32"), ("stream", 3, "string")),
    "StoredFact": _fields(
        ("sequence", 1, "uint64"),
        ("envelope", 2, "Envelope"),
        ("fact", 3, "Fact"),
        ("attachments", 4, "repeated Attachment"),
    ),
    "FetchFactsResponse": _fields(("facts", 1, "repeated StoredFact")),
    "ConfirmReceiptRequest": _fields(
        ("consumer_name", 1, "string"),
        ("sequence", 2, "uint64"),
        ("stream", 3, "string"),
        ("sequences", 4, "repeated uint64"),
    ),
    "ConfirmReceiptResponse": _fields(("frontier", 1, "uint64")),
    "PutObjectRequest": _fields(
        ("bucket", 1, "string"), ("key", 2, "string"), ("blob", 3, "bytes"), ("media_type", 4, "string")
    ),
    "PutObjectResponse": _fields(("digest", 1, "string"), ("size", 2, "int64"), ("duplicate", 3, "bool")),
    "GetObjectRequest": _fields(("bucket", 1, "string"), ("key", 2, "string")),
    "GetObjectResponse": _fields(
        ("blob", 1, "bytes"), ("digest", 2, "string"), ("size", 3, "int64"), ("media_type", 4, "string")
    ),
    "GetReceiptRequest": _fields(("message_id", 1, "string")),
    "GetReceiptResponse": _fields(
        ("stream", 1, "string"),
        ("sequence", 2, "uint64"),
        ("content_sha256", 3, "string"),
        ("digest", 4, "string"),
        ("appended_at_unix_ms", 5, "int64"),
        ("removed", 6, "bool"),
    ),
    "ConflictDetail": _fields(
        ("message_id", 1, "string"),
        ("stream", 2, "string"),
        ("sequence", 3, "uint64"),
        ("stored_digest", 4, "string"),
        ("received_digest", 5, "string"),
    ),
}

METHODS: Final = ("AppendFact", "FetchFacts", "ConfirmReceipt", "PutObject", "GetObject", "GetReceipt")

RANGES: Final = {"uint32": (0, 2**32 - 1), "int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1)}


def camel(name: str) -> str:
    """`message_id` as proto3's JSON spells it: `messageId`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


# --- protobuf ------------------------------------------------------------------------------------------------------

_Proto = descriptor_pb2.FieldDescriptorProto
_KINDS: Final = {
    "string": _Proto.TYPE_STRING,
    "bytes": _Proto.TYPE_BYTES,
    "bool": _Proto.TYPE_BOOL,
    "uint32": _Proto.TYPE_UINT32,
    "int64": _Proto.TYPE_INT64,
    "uint64": _Proto.TYPE_UINT64,
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="bsfg/v1/boundary.proto", package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            label = _Proto.LABEL_REPEATED if field.is_repeated or field.kind == "map" else _Proto.LABEL_OPTIONAL
            added = message.field.add(name=field.name, number=field.number, label=label, json_name=camel(field.name))
            if field.kind == "map":
                entry = message.nested_type.add(name="LabelsEntry")
                entry.options.map_entry = True
                for number, part in enumerate(("key", "value"), start=1):
                    entry.field.add(name=part, number=number, type=_Proto.TYPE_STRING, label=_Proto.LABEL_OPTIONAL)
                added.type, added.type_name = _Proto.TYPE_MESSAGE, f".{PACKAGE}.{name}.LabelsEntry"
            elif field.kind in _KINDS:
                added.type = _KINDS[field.kind]
            else:
                added.type, added.type_name = _Proto.TYPE_MESSAGE, f".{PACKAGE}.{field.kind}"
    service = file.service.add(name="BoundaryService")
    for method in METHODS:
        messages = (f".{PACKAGE}.{method}Request", f".{PACKAGE}.{method}Response")
        service.method.add(name=method, input_type=messages[0], output_type=messages[1])
    return file


_POOL: Final = descriptor_pool.DescriptorPool()
_POOL.Add(_file())
DESCRIPTOR: Final = _POOL.FindFileByName("bsfg/v1/boundary.proto")
CLASSES: Final[dict[str, type[Protobuf]]] = {
    name: message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES
}


def from_protobuf(name: str, body: bytes) -> Message:
    """The message that these bytes are. Raises Malformed."""
    try:
        return _from_protobuf(name, CLASSES[name].FromString(body))
    except DecodeError as error:
        raise Malformed(f"the body is not a protobuf {PACKAGE}.{name}: {error}") from None


def _from_protobuf(name: str, given: Protobuf) -> Message:
    found: Message = {}
    for field in MESSAGES[name]:
        value = getattr(given, field.name)
        if field.kind == "map":
            if value:
                found[field.name] = dict(value)
        elif field.is_repeated:
            if value:
                nested = field.kind in MESSAGES
                found[field.name] = [_from_protobuf(field.kind, each) for each in value] if nested else list(value)
        elif field.kind in MESSAGES:
            if given.HasField(field.name):
                found[field.name] = _from_protobuf(field.kind, value)
        elif value:
            found[field.name] = value
    return found


def to_protobuf(name: str, message: Message) -> bytes:
    """The bytes of a message of ours."""
    return CLASSES[name](**message).SerializeToString()


# --- JSON ----------------------------------------------------------------------------------------------------------


_NAMES: Final = {
    name: {spelled: field for field in fields for spelled in (field.name, camel(field.name))}
    for name, fields in MESSAGES.items()
}


def from_json(name: str, body: bytes) -> Message:
    """The message that this JSON is. Raises Malformed."""
    try:
        value = canonical.read(body)
    except canonical.JsonRefused as refused:
        raise Malformed(f"the body: {refused}") from None
    return _from_json(name, value, "")


def json_object(body: bytes) -> Message:
    """A JSON object that is no message of the contract. Raises Malformed."""
    try:
        value = canonical.read(body)
    except canonical.JsonRefused as refused:
        raise Malformed(f"the body: {refused}") from None
    if not isinstance(value, dict):
        raise Malformed(f"the body is a JSON object, not {_shown(value)}")
    return value


def _from_json(name: str, value: object, place: str) -> Message:
    if not isinstance(value, dict):
        raise Malformed(f"{place or 'the body'} is a JSON object, not {_shown(value)}")
    names = _NAMES[name]
    found: Message = {}
    for spelled, given in value.items():
        field = names.get(spelled)
        at = f"{place}.{spelled}" if place else spelled
        if field is None:
            known = ", ".join(each.name for each in MESSAGES[name])
            raise Malformed(f"there is no field {at!r}; {name} has {known}")
        if given is None:
            continue
        if field.name in found:
            raise Malformed(f"{at} is given twice, in both spellings")
        if field.is_repeated:
            if not isinstance(given, list):
                raise Malformed(f"{at} is a JSON array, not {_shown(given)}")
            found[field.name] = [_one(field, each, f"{at}[{number}]") for number, each in enumerate(given)]
        else:
            found[field.name] = _one(field, given, at)
    return found


def _one(field: Field, given: object, at: str) -> object:
    kind = field.kind
    if kind == "string":
        if isinstance(given, str):
            return given
        if field.name == "object_json":
            if isinstance(given, dict):
                return canonical.written(given)
            raise Malformed(f"{at} is a JSON object, or a string that holds JSON text, not {_shown(given)}")
        raise Malformed(f"{at} is a string, not {_shown(given)}")
    if kind in RANGES:
        return _number(kind, given, at)
    if kind in MESSAGES:
        return _from_json(kind, given, at)
    if kind == "bytes":
        if not isinstance(given, str):
            raise Malformed(f"{at} is a string of base64, not {_shown(given)}")
        try:
            # Both alphabets, with or without padding, as proto3's JSON takes them.
            return base64.b64decode(given.translate(_URL_SAFE) + "=" * (-len(given) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise Malformed(f"{at} is not base64") from None
    if kind == "map":
        if isinstance(given, dict) and all(isinstance(text, str) for text in given.values()):
            return given
        raise Malformed(f"{at} is a JSON object of strings, not {_shown(given)}")
    assert kind == "bool"
    if not isinstance(given, bool):
        raise Malformed(f"{at} is true or false, not {_shown(given)}")
    return given


_URL_SAFE: Final = str.maketrans("-_", "+/")


def _number(kind: str, given: object, at: str) -> int:
    number = given
    if isinstance(given, str) and len(given) <= 20 and given.isascii() and given.removeprefix("-").isdigit():
        number = int(given)
    if type(number) is not int:
        raise Malformed(f"{at} is a whole number, as a number or as a string of digits, not {_shown(given)}")
    least, most = RANGES[kind]
    if not least <= number <= most:
        raise Malformed(f"{at} is {number}; it is {least} to {most}")
    return number


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    text = repr(value) if isinstance(value, str) else canonical.written(cast(canonical.Json, value))
    return text if len(text) <= 80 else f"{text[:80]}..."


def json_ready(name: str, message: Message, *, whole: bool = True) -> Message:
    """A message of ours as JSON's own types. Of a `whole` one, which is an answer, fields without a value are there as
    well; of those inside of it only what was given."""
    ready: Message = {}
    for field in MESSAGES[name]:
        value: Any = message.get(field.name)
        if not value and not whole:
            continue
        if value is None:
            value = [] if field.is_repeated else _EMPTY[field.kind]
        if field.is_repeated:
            ready[field.name] = [_ready(field.kind, each) for each in value]
        else:
            ready[field.name] = _ready(field.kind, value)
    return ready


_EMPTY: Final[dict[str, object]] = {
    "string": "", "bytes": b"", "bool": False, "uint32": 0, "int64": 0, "uint64": 0, "map": {}
}  # fmt: skip


def _ready(kind: str, value: Any) -> object:
    if kind in ("int64", "uint64"):
        return str(value)
    if kind == "bytes":
        return base64.b64encode(value).decode()
    if kind in MESSAGES:
        return json_ready(kind, value, whole=False)
    return cast(object, value)
