"""Every API and version: our codec against itself, kafka-python's and kio's protocol modules, and against damage."""

import contextlib
import importlib
import io
import pkgutil
import random
import re
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from oncelog.protocols.kafka import offered
from oncelog.protocols.kafka.schema import Api, Field
from oncelog.protocols.kafka.wire import Reader, WireError
from tests.protocols.kafka_face.data_tables import FETCH, PRODUCE
from tests.protocols.kafka_face.kafka_python import message_classes
from tests.protocols.kafka_face.random_messages import message_of

APIS = [*offered.TABLED.values(), PRODUCE, FETCH]
CASES = [
    pytest.param(api, kind, version, id=f"{api.name}-{('request', 'response')[kind]}-{version}")
    for api in APIS
    for kind in (0, 1)
    for version in range(api.versions[0], api.versions[1] + 1)
]


def encode(api: Api, kind: int, version: int, message: dict[str, Any]) -> bytes:
    return (api.encode_request, api.encode_response)[kind](version, message)


def decode(api: Api, kind: int, version: int, data: bytes) -> dict[str, Any]:
    return (api.decode_request, api.decode_response)[kind](version, Reader(data))


def messages(api: Api, kind: int, version: int) -> list[dict[str, Any]]:
    return [message_of(api.fields(kind), version, random.Random(f"{api.name} {kind} {seed}")) for seed in range(8)]


@pytest.mark.parametrize(("api", "kind", "version"), CASES)
def test_what_is_encoded_is_decoded_again(api: Api, kind: int, version: int) -> None:
    for message in messages(api, kind, version):
        assert decode(api, kind, version, encode(api, kind, version, message)) == message


KAFKA_PYTHON = message_classes()


def seen_by_kafka_python(value: Any) -> Any:
    """As plain values, under the names that the protocol has in both."""
    if hasattr(value, "to_dict"):
        value = value.to_dict(json=False)
    if isinstance(value, dict):
        return {re.sub("[^a-z0-9]", "", name.lower()): seen_by_kafka_python(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set):
        return [seen_by_kafka_python(each) for each in value]
    if hasattr(value, "bytes"):
        return value.bytes
    return bytes(value) if isinstance(value, memoryview) else value


def of_version(message: dict[str, Any], fields: tuple[Field, ...], version: int) -> dict[str, Any]:
    """Only the fields that the version has, names as above."""
    out = {}
    for field in fields:
        if not field.versions[0] <= version <= field.versions[1]:
            continue
        if field.name.endswith("authorized_operations"):
            continue  # they make a set of the bits
        value = message[field.name]
        if field.fields and value is not None:
            inner = value if field.is_array else [value]
            value = [of_version(each, field.fields, version) for each in inner]
            value = value if field.is_array else value[0]
        out[field.name.replace("_", "")] = value
    return out


def subset(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, dict):
        return all(name in theirs and subset(value, theirs[name]) for name, value in ours.items())
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(subset(mine, other) for mine, other in zip(ours, theirs, strict=True))
    return bool(ours == theirs)


@pytest.mark.parametrize(("api", "kind", "version"), CASES)
def test_kafka_python_reads_the_same_names_and_values(api: Api, kind: int, version: int) -> None:
    theirs = KAFKA_PYTHON.get(api.name + ("Request", "Response")[kind])
    assert theirs is not None
    if not theirs.min_version <= version <= theirs.max_version:
        assert version < theirs.min_version  # removed in Kafka 4
        return
    for message in messages(api, kind, version):
        if api.key == offered.API_VERSIONS:
            message["error_code"] = 0  # else they read the answer as that of version 0
        read = seen_by_kafka_python(theirs.decode(encode(api, kind, version, message), version=version))
        mine = of_version(message, api.fields(kind), version)
        assert subset(mine, read), (mine, read)


def kio_class(api: Api, kind: int, version: int) -> Any:
    folder = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api.name).lower()
    name = f"kio.schema.{folder}.v{version}.{('request', 'response')[kind]}"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        family = importlib.import_module(f"kio.schema.{folder}")
        versions = [int(found.name[1:]) for found in pkgutil.iter_modules(family.__path__) if found.ispkg]
        assert version < min(versions)
        return None
    return getattr(module, api.name + ("Request", "Response")[kind])


def plausible(message: Any, name: str = "") -> Any:
    """kio takes error codes and times for what they mean, so they must be some."""
    if isinstance(message, dict):
        return {key: plausible(value, key) for key, value in message.items()}
    if isinstance(message, list):
        return [plausible(value, name) for value in message]
    if isinstance(message, int) and not isinstance(message, bool):
        if "error_code" in name:
            return message % 90
        if name.endswith(("_ms", "_time", "timestamp", "timeout")):
            return message % 1_000_000
    return message


@pytest.mark.parametrize(("api", "kind", "version"), CASES)
def test_kio_reads_and_writes_the_same_bytes(api: Api, kind: int, version: int) -> None:
    theirs = kio_class(api, kind, version)
    if theirs is None:
        return
    for message in messages(api, kind, version):
        data = encode(api, kind, version, plausible(message))
        read, size = entity_reader(theirs)(data, 0)
        assert size == len(data)
        out = io.BytesIO()
        entity_writer(theirs)(out, read)
        assert out.getvalue() == data


@pytest.mark.parametrize("api", APIS, ids=[api.name for api in APIS])
def test_damaged_requests_raise_wire_errors_and_nothing_else(api: Api) -> None:
    rng = random.Random(api.name)
    for version in range(api.versions[0], api.versions[1] + 1):
        whole = encode(api, 0, version, messages(api, 0, version)[0])
        for length in range(len(whole)):
            with pytest.raises(WireError):
                decode(api, 0, version, whole[:length])
        for _ in range(200):
            broken = bytearray(whole or b"\x00")
            broken[rng.randrange(len(broken))] = rng.randrange(256)
            with contextlib.suppress(WireError):
                decode(api, 0, version, bytes(broken))


def test_unknown_tagged_fields_are_skipped() -> None:
    api = offered.TABLED[12]  # Heartbeat: no tagged fields of its own
    plain = api.encode_request(4, {"group_id": "g", "generation_id": 7, "member_id": "m"})
    assert plain.endswith(b"\x00")
    tagged = plain[:-1] + b"\x02" + b"\x00\x03abc" + b"\xc8\x01\x01z"
    assert api.decode_request(4, Reader(tagged)) == api.decode_request(4, Reader(plain))


def test_an_array_larger_than_its_bytes_allocates_nothing() -> None:
    api = Api(0, "Numbers", versions=(0, 1), flexible=1, request="numbers []int32", response="")
    with pytest.raises(WireError, match="an array of 2147483647 elements"):
        api.decode_request(0, Reader(b"\x7f\xff\xff\xff" + bytes(100)))
    with pytest.raises(WireError, match="null where a value"):
        api.decode_request(0, Reader(b"\xff\xff\xff\xff"))


def test_arrays_in_arrays_share_one_budget() -> None:
    api = Api(0, "Deep", versions=(0, 0), flexible=None, request="a []\n    b []int8", response="")
    message = {"a": [{"b": [1] * 50}] * 50}
    data = api.encode_request(0, message)
    assert api.decode_request(0, Reader(data, elements_max=50 + 50 * 50)) == message
    with pytest.raises(WireError, match="elements"):
        api.decode_request(0, Reader(data, elements_max=50 + 50 * 50 - 1))
