"""JSON Schema, as much of it as our OpenAPI description uses. A keyword that is not known here is a failure."""

from collections.abc import Iterator
from typing import Any

ANNOTATIONS = {"description", "default", "contentEncoding", "example"}
KNOWN = ANNOTATIONS | {
    "$ref", "type", "properties", "required", "additionalProperties", "items", "enum", "anyOf", "minimum", "maximum",
    "minItems", "maxItems", "minLength",
}  # fmt: skip

TYPES: dict[str, Any] = {
    "string": str, "integer": int, "boolean": bool, "object": dict, "array": list, "null": type(None),
}  # fmt: skip


def resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """What a `$ref` stands for."""
    while "$ref" in schema:
        start, *parts = schema["$ref"].split("/")
        assert start == "#", schema
        schema = document
        for part in parts:
            schema = schema[part]
    return schema


def flaws(value: Any, schema: dict[str, Any], document: dict[str, Any], place: str = "$") -> list[str]:
    """What keeps a value from being what the schema says."""
    return list(_flaws(value, schema, document, place))


def _flaws(value: Any, schema: dict[str, Any], document: dict[str, Any], place: str) -> Iterator[str]:
    schema = resolved(schema, document)
    assert set(schema) <= KNOWN, f"{place}: {set(schema) - KNOWN}"
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if type(value) not in [TYPES[name] for name in names]:
            yield f"{place} is {type(value).__name__}, not {names}"
            return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place} is {value!r}, not one of {schema['enum']}"
    if "anyOf" in schema and all(flaws(value, option, document, place) for option in schema["anyOf"]):
        yield f"{place} is none of {len(schema['anyOf'])} things"
    if isinstance(value, int) and not isinstance(value, bool):
        if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            yield f"{place} is {value}, out of range"
    if isinstance(value, str) and len(value) < schema.get("minLength", 0):
        yield f"{place} has {len(value)} characters"
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield f"{place} has {len(value)} items"
        for number, item in enumerate(value):
            yield from _flaws(item, schema.get("items", {}), document, f"{place}[{number}]")
    if isinstance(value, dict):
        yield from _member_flaws(value, schema, document, place)


def _member_flaws(value: dict[str, Any], schema: dict[str, Any], document: dict[str, Any], place: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", []):
        assert name in properties, f"{place}.{name} is required and not described"
        if name not in value:
            yield f"{place}.{name} is missing"
    others = schema.get("additionalProperties", {})
    for name, member in value.items():
        if name in properties:
            yield from _flaws(member, properties[name], document, f"{place}.{name}")
        elif others is False:
            yield f"{place}.{name} is unknown"
        else:
            yield from _flaws(member, others, document, f"{place}.{name}")
