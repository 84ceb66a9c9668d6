"""Objects over PUT and GET: any size, ranges, digests, and nothing left of an upload that ends early."""

import hashlib
import json
from collections.abc import Iterator

import pytest

from oncelog.core.command import GetStream
from oncelog.core.outcome import Outcome, StreamDone
from tests.servers.running import Running, running

MIB = 1 << 20
LARGE = hashlib.sha256(b"seed").digest() * (5 * MIB // 32) + b"the end"
PATH = "/bsfg/objects/reports/2026%2Fa.bin"


def digest_of(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


@pytest.fixture
def server() -> Iterator[Running]:
    with running() as server:
        yield server


@pytest.mark.parametrize("size", [0, 1, 3 * MIB, 3 * MIB + 1, 4 * MIB, len(LARGE)])
def test_an_object_of_any_size_comes_back_as_it_was_put(server: Running, size: int) -> None:
    blob = LARGE[:size]
    with server.client() as client:
        put = client.ask("PUT", PATH, blob, {"Content-Type": "application/x-report"})
        assert json.loads(put.body) == {"digest": digest_of(blob), "size": str(size), "duplicate": False}
        again = client.ask("PUT", PATH, blob, {"Content-Type": "application/x-report"})
        assert json.loads(again.body)["duplicate"] is True
        got = client.ask("GET", PATH)
        assert (got.status, got.body) == (200, blob)
        assert got.headers["bsfg-digest"] == digest_of(blob)
        assert got.headers["content-type"] == "application/x-report"
        assert client.ask("HEAD", PATH).headers["bsfg-digest"] == digest_of(blob)


@pytest.mark.parametrize("size", [100, len(LARGE)])
@pytest.mark.parametrize(("header", "first", "next_"), [("0-9", 0, 10), ("-5", -5, None), ("50-", 50, None)])
def test_a_range_is_served(server: Running, size: int, header: str, first: int, next_: int | None) -> None:
    blob = LARGE[-size:]
    with server.client() as client:
        client.ask("PUT", PATH, blob)
        got = client.ask("GET", PATH, b"", {"Range": f"bytes={header}"})
        assert (got.status, got.body) == (206, blob[first:next_])


def test_a_range_across_chunks_is_served_and_one_beyond_the_end_is_416(server: Running) -> None:
    with server.client() as client:
        client.ask("PUT", PATH, LARGE)
        got = client.ask("GET", PATH, b"", {"Range": f"bytes={MIB - 3}-{2 * MIB + 4}"})
        assert (got.status, got.body) == (206, LARGE[MIB - 3 : 2 * MIB + 5])
        assert got.headers["content-range"] == f"bytes {MIB - 3}-{2 * MIB + 4}/{len(LARGE)}"
        assert client.ask("GET", PATH, b"", {"Range": f"bytes={len(LARGE)}-"}).status == 416


def test_other_content_is_refused_and_the_first_stays(server: Running) -> None:
    with server.client() as client:
        client.ask("PUT", PATH, LARGE)
        for blob in (b"small", LARGE[1:] + b"!"):
            answer = client.ask("PUT", PATH, blob)
            assert (answer.status, json.loads(answer.body)["code"]) == (409, "already_exists")
        assert client.ask("GET", PATH).body == LARGE


@pytest.mark.parametrize("blob", [b"small", LARGE], ids=["small", "large"])
def test_bytes_that_are_not_those_of_the_digest_are_refused(server: Running, blob: bytes) -> None:
    with server.client() as client:
        answer = client.ask("PUT", PATH, blob, {"Bsfg-Digest": digest_of(b"other")})
        assert (answer.status, json.loads(answer.body)["code"]) == (400, "invalid_argument")
        assert client.ask("GET", PATH).status == 404


def test_an_upload_that_is_cut_leaves_no_object(server: Running) -> None:
    with server.client() as client:
        client.send(b"PUT %b HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (PATH.encode(), len(LARGE)))
        client.send(LARGE[: 4 * MIB])
    with server.client() as client:
        assert client.ask("GET", PATH).status == 404
        assert json.loads(client.ask("PUT", PATH, LARGE).body)["duplicate"] is False
    found: list[Outcome] = []
    server.on_loop(lambda: server.engine.submit(GetStream("objects.reports"), found.append))
    server.until(lambda: bool(found))
    assert isinstance(found[0], StreamDone)
    assert found[0].tail == 7, "six chunks and the manifest of the second upload"


@pytest.mark.parametrize("path", ["/bsfg/objects/Upper/k", "/bsfg/objects/b/", "/bsfg/objects/b"])
def test_a_name_that_cannot_be_is_refused(server: Running, path: str) -> None:
    with server.client() as client:
        assert client.ask("PUT", path, b"x").status == 400


def test_an_object_takes_get_and_put_alone(server: Running) -> None:
    with server.client() as client:
        answer = client.ask("DELETE", PATH)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, PUT")


def test_a_fact_may_refer_to_a_large_object(server: Running) -> None:
    envelope = {"message_id": "m", "from_zone": "a", "to_zone": "b", "produced_at_unix_ms": 1}
    attachment = {"bucket": "reports", "key": "2026/a.bin", "digest": digest_of(LARGE), "size": len(LARGE)}
    fact = {"subject": "report:1", "predicate": "was_written", "object_json": "{}"}
    body = json.dumps({"envelope": envelope, "fact": fact, "attachments": [attachment]}).encode()
    with server.client() as client:
        headers = {"Content-Type": "application/json"}
        assert client.ask("POST", "/bsfg.v1.BoundaryService/AppendFact", body, headers).status == 400
        client.ask("PUT", PATH, LARGE)
        assert client.ask("POST", "/bsfg.v1.BoundaryService/AppendFact", body, headers).status == 200
