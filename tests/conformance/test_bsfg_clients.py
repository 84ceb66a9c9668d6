"""The public Connect client libraries call the boundary in JSON and in protobuf: connectrpc (PyPI), @connectrpc/connect
(npm). Canonical forms are compared with npm's canonicalize."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from connectrpc.client import ConnectClientSync
from connectrpc.code import Code
from connectrpc.compat import google_protobuf_binary_codec, google_protobuf_json_codec
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.http_node import find_node, install
from oncelog.core import canonical
from oncelog.protocols.bsfg import messages
from tests.cli.running import serving
from tests.core.test_canonical import VALUES

FOLDER = Path(__file__).with_name("connect_npm")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving("--in-memory", "--any-port", "--zone", "a") as server:
        yield server.url


@pytest.mark.timeout(300)  # the first run installs the packages
def test_connect_of_npm_calls_every_method(url: str, tmp_path: Path) -> None:
    directory = install(FOLDER)
    file = descriptor_pb2.FileDescriptorProto()
    messages.DESCRIPTOR.CopyToProto(file)
    (tmp_path / "set").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    command = [*find_node().node, "calls.mjs", url, str(tmp_path / "set"), "npm"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for result in json.loads(done.stdout):
        assert result["duplicate"] is True
        assert result["againSequence"] == result["sequence"] == result["conflict"]["sequence"]
        assert result["conflict"]["code"] == "AlreadyExists"
        assert "conflicting_duplicate" in result["conflict"]["message"]
        assert (result["produced"], result["label"], result["object"]) == ("1780000000000", "3", '{"value": 21.5}')
        assert result["frontier"] == "1"
        assert (result["digest"][:7], result["blob"]) == ("sha256:", "a report")


@pytest.mark.parametrize("codec", [google_protobuf_binary_codec, google_protobuf_json_codec], ids=["protobuf", "json"])
def test_connectrpc_of_pypi_calls_the_boundary(url: str, codec: Any) -> None:
    def call(method: str, message: dict[str, Any]) -> Any:
        info = MethodInfo(
            name=method,
            service_name="bsfg.v1.BoundaryService",
            input=messages.CLASSES[f"{method}Request"],
            output=messages.CLASSES[f"{method}Response"],
            idempotency_level=IdempotencyLevel.IDEMPOTENT,
            stream_type=StreamType.UNARY,
        )
        with ConnectClientSync(url, codec=codec()) as client:
            return client.execute_unary(request=messages.CLASSES[f"{method}Request"](**message), method=info)

    message_id = f"pypi-{codec.__name__}"
    envelope = {"message_id": message_id, "from_zone": "a", "to_zone": "b", "produced_at_unix_ms": 1}
    fact = {"subject": "pump:a/1", "predicate": "was_measured", "object_json": '{"value": 21.5}'}
    first = call("AppendFact", {"envelope": envelope, "fact": fact})
    again = call("AppendFact", {"envelope": envelope, "fact": fact})
    assert (again.sequence, again.duplicate) == (first.sequence, True)
    with pytest.raises(ConnectError) as caught:
        call("AppendFact", {"envelope": envelope, "fact": fact | {"object_json": "{}"}})
    assert caught.value.code == Code.ALREADY_EXISTS
    page = call("FetchFacts", {"consumer_name": message_id, "limit": 1_000})
    assert message_id in [each.envelope.message_id for each in page.facts]
    assert call("ConfirmReceipt", {"consumer_name": message_id, "sequence": 1}).frontier == 1
    put = call("PutObject", {"bucket": "b", "key": message_id, "blob": b"x"})
    assert call("GetObject", {"bucket": "b", "key": message_id}).digest == put.digest
    assert call("GetReceipt", {"message_id": message_id}).sequence == first.sequence


@pytest.mark.timeout(300)
def test_canonical_forms_are_those_of_npm_s_canonicalize() -> None:
    command = [*find_node().node, "canonical.mjs"]
    directory = install(FOLDER)

    @settings(max_examples=40, deadline=None)
    @given(st.lists(VALUES, min_size=1, max_size=30))
    def agree(values: list[Any]) -> None:
        texts = [json.dumps(value) for value in values]
        done = subprocess.run(
            command,
            cwd=directory,
            input="\n".join(texts) + "\n",
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        theirs = done.stdout.removesuffix("\n").split("\n")
        assert theirs == [canonical.form(canonical.read(text)).decode() for text in texts]

    agree()
