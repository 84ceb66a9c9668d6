"""Random messages of a table, for round trips. The same seed gives the same message."""

import random
from typing import Any

from oncelog.protocols.kafka.schema import Field, Message

BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 62}


def message_of(fields: tuple[Field, ...], version: int, rng: random.Random) -> Message:
    """All fields that the version has, in the order of the table; those of other versions with their default."""
    message: Message = {}
    for field in fields:
        if field.versions[0] <= version <= field.versions[1]:
            message[field.name] = _value(field, version, rng)
        else:
            message[field.name] = field.default
    return message


def _value(field: Field, version: int, rng: random.Random) -> Any:
    nullable = field.nullable is not None and field.nullable[0] <= version <= field.nullable[1]
    if nullable and rng.random() < 0.3 and (field.tag is None or field.default is None):
        return None
    if field.is_array:
        return [_one(field, version, rng) for _ in range(rng.randint(1, 3))]
    return _one(field, version, rng)


def _one(field: Field, version: int, rng: random.Random) -> Any:
    if field.type == "{}":
        return message_of(field.fields, version, rng)
    if field.type == "string":
        return "".join(rng.choice("abcdefgäöü-._") for _ in range(rng.randint(1, 12)))
    if field.type == "bytes":
        return rng.randbytes(rng.randint(1, 200))
    if field.type == "uuid":
        return rng.randbytes(16)
    if field.type == "bool":
        return rng.random() < 0.5
    return rng.randint(1, 2 ** BITS[field.type] - 1)
