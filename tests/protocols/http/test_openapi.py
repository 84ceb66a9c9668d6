"""The OpenAPI description: sound in itself, and about exactly what the router routes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncelog.protocols.http import admin, commit_body, routes, txns
from oncelog.protocols.http.actions import Done
from oncelog.protocols.http.openapi import DESCRIPTION
from tests.protocols.http.json_schema import KNOWN, flaws, resolved
from tests.protocols.http.requests import made, routed

METHODS = {"get", "put", "post", "patch", "delete"}
DOCS = Path(__file__).resolve().parents[3] / "docs" / "protocols" / "http.md"

OPERATIONS = [
    (path, method, operation) for path, methods in DESCRIPTION["paths"].items() for method, operation in methods.items()
]


def everything(node: Any, place: str = "#") -> Iterator[tuple[str, Any]]:
    yield place, node
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, below in inner:
        yield from everything(below, f"{place}/{key}")


def schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in the document, at any depth, but for what stands in examples."""

    def below(place: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        yield place, schema
        for name, member in schema.get("properties", {}).items():
            yield from below(f"{place}.{name}", member)
        for number, option in enumerate(schema.get("anyOf", [])):
            yield from below(f"{place}|{number}", option)
        for key in ("items", "additionalProperties"):
            if isinstance(schema.get(key), dict):
                yield from below(f"{place}.{key}", schema[key])

    for name, schema in DESCRIPTION["components"]["schemas"].items():
        yield from below(name, schema)
    for path, method, operation in OPERATIONS:
        for content in contents(operation):
            yield from below(f"{method} {path}", content["schema"])
        for parameter in operation["parameters"]:
            yield from below(f"{method} {path} ?{parameter['name']}", parameter["schema"])


def contents(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from operation.get("requestBody", {}).get("content", {}).values()
    for response in operation["responses"].values():
        yield from resolved(response, DESCRIPTION).get("content", {}).values()


# --- sound ---------------------------------------------------------------------------------------------------------


def test_document_is_openapi_3_1_and_json() -> None:
    assert DESCRIPTION["openapi"] == "3.1.0"
    assert DESCRIPTION["info"]["title"]
    assert DESCRIPTION["info"]["version"]
    assert msgspec.json.decode(msgspec.json.encode(DESCRIPTION)) == DESCRIPTION


def test_all_references_lead_somewhere() -> None:
    found = [
        (place, node["$ref"]) for place, node in everything(DESCRIPTION) if isinstance(node, dict) and "$ref" in node
    ]
    assert found
    for place, reference in found:
        assert resolved({"$ref": reference}, DESCRIPTION), place
        parent = place.rpartition("/")[2]
        assert parent, place


def test_every_component_is_used() -> None:
    used = {node["$ref"] for _, node in everything(DESCRIPTION) if isinstance(node, dict) and "$ref" in node}
    for kind, components in DESCRIPTION["components"].items():
        assert {f"#/components/{kind}/{name}" for name in components} <= used


def test_schemas_use_known_words_and_describe_what_they_require() -> None:
    found = list(schemas())
    assert len(found) > 150
    for place, schema in found:
        assert set(schema) <= KNOWN, place
        assert set(schema.get("required", [])) <= set(schema.get("properties", {})), place
        assert schema.get("type") != "array" or "items" in schema, place


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS, ids=[f"{m} {p}" for p, m, _ in OPERATIONS])
def test_operation_is_whole(path: str, method: str, operation: dict[str, Any]) -> None:
    assert method in METHODS
    assert operation["summary"]
    parameters = operation["parameters"]
    places = [(parameter["in"], parameter["name"]) for parameter in parameters]
    assert len(set(places)) == len(places)
    assert {name for place, name in places if place == "path"} == set(re.findall(r"{(\w+)}", path))
    assert all(parameter["required"] for parameter in parameters if parameter["in"] == "path")
    assert all(parameter["description"] for parameter in parameters)
    responses = dict(operation["responses"])
    assert responses.pop("default") == {"$ref": "#/components/responses/default"}
    assert any(200 <= int(status) < 300 for status in responses)
    for status, response in responses.items():
        described = resolved(response, DESCRIPTION)
        assert described["description"], status
        types = set(described.get("content", {}))
        assert types == {"application/problem+json"} if int(status) >= 400 else "application/problem+json" not in types
    assert ("requestBody" in operation) <= (method in ("post", "put", "patch"))


def test_operation_ids_differ() -> None:
    names = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("path", "method", "operation"),
    [found for found in OPERATIONS if "application/json" in found[2].get("requestBody", {}).get("content", {})],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_example_is_what_its_schema_says_and_what_the_router_takes(
    path: str, method: str, operation: dict[str, Any]
) -> None:
    content = operation["requestBody"]["content"]["application/json"]
    assert flaws(content["example"], content["schema"], DESCRIPTION) == []
    action = routed(made(method.upper(), concrete(path), msgspec.json.encode(content["example"])))
    assert not isinstance(action, Done), action.answer


def test_commit_of_the_documentation_is_what_the_schema_says() -> None:
    examples = re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.DOTALL)
    bodies = [msgspec.json.decode(example) for example in examples if "commit_id" in example]
    assert bodies
    for body in bodies:
        assert flaws(body, {"$ref": "#/components/schemas/Commit"}, DESCRIPTION) == []
    content = DESCRIPTION["paths"]["/v1/commit"]["post"]["requestBody"]["content"]["application/json"]
    assert content["example"] in bodies


def test_problem_of_the_documentation_is_what_the_schema_says() -> None:
    examples = [
        example for example in re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.DOTALL) if '"urn:' in example
    ]
    assert examples
    for example in examples:
        assert flaws(msgspec.json.decode(example), {"$ref": "#/components/schemas/Problem"}, DESCRIPTION) == []


# --- the bodies that are taken -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "struct"),
    [
        ("Commit", commit_body._Commit),
        ("Publish", commit_body._Publish),
        ("Record", commit_body.RecordBody),
        ("CursorMove", commit_body.CursorBody),
        ("CursorPut", admin._CursorPut),
        ("TopicPut", admin._TopicPut),
        ("TopicPatch", admin._TopicPatch),
        ("Trim", admin._Trim),
        ("DeleteRecords", admin._DeleteRecords),
        ("StagePost", admin._StagePost),
        ("StagesDrop", admin._Drop),
        ("TxnBegin", txns._Begin),
        ("TxnPlace", txns._Place),
        ("TxnPartitions", txns._Partitions),
        ("TxnGroups", txns._Groups),
        ("TxnOffset", txns._Offset),
        ("TxnOffsets", txns._Offsets),
        ("TxnAppend", txns._Append),
        ("TxnEnd", txns._End),
        ("TxnAbort", txns._Holder),
    ],
)
def test_body_has_the_members_that_are_taken(name: str, struct: type[msgspec.Struct]) -> None:
    schema = DESCRIPTION["components"]["schemas"][name]
    fields = msgspec.structs.fields(struct)
    assert set(schema["properties"]) == {field.name for field in fields}
    assert set(schema["required"]) == {field.name for field in fields if field.required}
    assert schema["additionalProperties"] is False


# --- the router ----------------------------------------------------------------------------------------------------


def concrete(path: str) -> str:
    """A path with something in each of its holes."""
    return re.sub(r"{(\w+)}", lambda match: "7" if match[1] == "id" else "x", path)


def is_routed(method: str, path: str) -> bool:
    action = routed(made(method.upper(), concrete(path)))
    return not (isinstance(action, Done) and action.answer[9:12] in (b"404", b"405"))


@pytest.mark.parametrize(("path", "method"), [(path, method) for path, method, _ in OPERATIONS])
def test_what_is_described_is_routed(path: str, method: str) -> None:
    assert is_routed(method, path)


@pytest.mark.parametrize("path", list(DESCRIPTION["paths"]))
def test_what_is_routed_is_described(path: str) -> None:
    """Of each path that is described, every method that is taken."""
    taken = {method for method in METHODS if is_routed(method, path)}
    if path == "/v1/topics/{topic}":
        taken.discard("post")  # goes to the paths below it
    elif path.startswith("/v1/topics/{topic}/"):
        taken -= set(DESCRIPTION["paths"]["/v1/topics/{topic}"])  # a topic may be called x/trim
    assert taken == set(DESCRIPTION["paths"][path])


def test_every_route_of_the_router_is_described() -> None:
    described = list(DESCRIPTION["paths"])
    for fixed in routes._FIXED:
        assert fixed.decode() in described
    source = Path(routes.__file__).read_text()
    prefixes = set(re.findall(r'\(b"(/v1/[\w/]+/)", ', source))
    assert len(prefixes) >= 7
    for prefix in prefixes:
        assert any(path.startswith(prefix) for path in described), prefix


def test_every_path_of_the_documentation_is_described() -> None:
    rows = re.findall(r"^\| `((?:GET|PUT|POST|PATCH|DELETE)[^`]*)` \|", DOCS.read_text(), re.MULTILINE)
    told = [row for row in rows if " /" in row]
    assert len(told) >= 18
    for row in told:
        methods, _, target = row.replace("\\|", "|").partition(" ")
        path, _, query = target.partition("?")
        path = path.replace("<id>", "{id}").replace("<topic>", "{topic}").replace("<name>", "{name}")
        operations = DESCRIPTION["paths"][path]
        for method in methods.lower().split("|"):
            named = {parameter["name"] for parameter in operations[method]["parameters"]}
            assert set(re.findall(r"(\w+)=", query)) <= named, row
