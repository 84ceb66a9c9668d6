"""Stories over several requests, each of which went wrong once."""

import json
from pathlib import Path

from oncelog.core import batch as codec
from tests.servers.running import Running, running
from tests.servers.talking import Answer

TEXT = {"Content-Type": "text/plain"}


def produced(server: Running, path: str, sequence: int, body: bytes, message_id: str = "", **more: str) -> Answer:
    headers: dict[str, str | int] = {**TEXT, "Producer-Id": "p", "Producer-Epoch": 0, "Producer-Seq": sequence, **more}
    if message_id:
        headers["Stream-Message-Id"] = message_id
    return server.ask("POST", path, body, headers=headers)


def test_known_id_with_an_early_sequence_is_used_up_in_its_turn() -> None:
    with running(early_hold_ms=50) as server:
        path = "/v1/stream/t"
        server.ask("PUT", path, headers=TEXT)
        server.ask("POST", path, b"k", headers={**TEXT, "Stream-Message-Id": "k"})
        assert produced(server, path, 0, b"0").status == 200
        early = produced(server, path, 2, b"k", "k")
        assert (early.status, early.json["code"]) == (409, "sequence_gap")
        assert produced(server, path, 1, b"1").status == 200
        again = produced(server, path, 2, b"k", "k")
        assert (again.status, again.headers["producer-seq"], again.next_offset) == (204, "2", 1)
        assert produced(server, path, 3, b"3").status == 200


def test_id_that_comes_with_a_written_sequence_is_used_up() -> None:
    with running() as server:
        path = "/v1/stream/t"
        server.ask("PUT", path, headers=TEXT)
        assert produced(server, path, 0, b"x", "a").status == 200
        assert produced(server, path, 0, b"x", "b").status == 204
        alone = server.ask("POST", path, b"x", headers={**TEXT, "Stream-Message-Id": "b"})
        assert (alone.headers.get("stream-duplicate"), alone.next_offset) == ("true", 1)
        assert server.tail("t") == 1


def test_early_request_is_not_told_that_its_condition_fails() -> None:
    with running(early_hold_ms=50) as server:
        path = "/v1/stream/t"
        server.ask("PUT", path, headers=TEXT)
        early = produced(server, path, 1, b"b", **{"If-Match": "1"})
        assert (early.status, early.json["code"]) == (409, "sequence_gap")
        assert produced(server, path, 0, b"a", **{"If-Match": "0"}).status == 200
        assert produced(server, path, 1, b"b", **{"If-Match": "1"}).status == 200


def test_trimmed_records_leave_kept_answers_and_etags() -> None:
    raw = {"Accept": "application/vnd.oncelog.batches"}
    with running(read_bytes_max=1024) as server:
        path = "/v1/stream/t"
        server.ask("PUT", path, headers=TEXT)
        batch = codec.encode_values([b"secret%d" % number for number in range(10)], 1)
        server.ask("POST", path, batch, headers={"Content-Type": "application/vnd.oncelog.batches"})
        server.ask("POST", path, bytes(2048), headers=TEXT)
        first = server.ask("GET", f"{path}?offset=5", headers=raw)
        assert b"secret0" in first.body
        server.ask("POST", "/v1/topics/t/trim", json.dumps({"floor": 5}).encode())
        for offset in ("5", "-1"):
            found = server.ask("GET", f"{path}?offset={offset}", headers=raw)
            assert b"secret4" not in found.body
            assert b"secret5" in found.body
        again = server.ask("GET", f"{path}?offset=5", headers={**raw, "If-None-Match": first.headers["etag"]})
        assert again.status == 200


def test_late_answer_of_the_old_epoch_does_not_bring_it_back() -> None:
    with running() as server, server.client() as client:
        path = "/v1/stream/t"
        client.ask("PUT", path, headers=TEXT)

        def x(sequence: int, body: bytes) -> bytes:
            head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nX-Producer-Id: p\r\n"
            return f"{head}X-Producer-Seq: {sequence}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

        client.send(x(0, b"a"))
        assert client.answer().status == 201
        client.send(x(1, b"b") + x(0, b"new run"))
        assert [client.answer().status for _ in range(2)] == [201, 201]
        client.send(x(1, b"goes on"))
        answer = client.answer()
        assert (answer.status, answer.headers["x-producer-epoch"]) == (201, "2")


def test_a_delete_names_no_partition() -> None:
    with running() as server:
        server.ask("PUT", "/v1/stream/t", headers={**TEXT, "Stream-Partitions": 3})
        assert server.ask("DELETE", "/v1/stream/t?partition=2").status == 400
        assert server.ask("HEAD", "/v1/stream/t").status == 200


def test_forgotten_producers_are_not_listed() -> None:
    with running() as server:
        server.ask("PUT", "/v1/topics/t", b'{"dedupe_floor_ms": 0}')
        headers: dict[str, str | int] = {
            "Content-Type": "application/octet-stream",
            "Producer-Id": "p",
            "Producer-Epoch": 0,
            "Producer-Seq": 0,
        }
        server.ask("POST", "/v1/stream/t", b"x", headers=headers)
        assert len(server.ask("GET", "/v1/producers?topic=t").json["producers"]) == 1
        server.ask("POST", "/v1/topics/t/trim", b'{"floor": 1}')
        assert server.ask("GET", "/v1/producers/t/p").status == 404
        assert server.ask("GET", "/v1/producers?topic=t").json["producers"] == []


def test_commits_wait_for_their_turn_too() -> None:
    with running(early_hold_ms=5_000) as server, server.client() as one, server.client() as other:
        server.ask("PUT", "/v1/stream/t", headers=TEXT)

        def commit(sequence: int) -> bytes:
            body = {
                "appends": [{"topic": "t", "records": [{"value": str(sequence)}]}],
                "producer": {"name": "c", "epoch": 0, "sequence": sequence},
            }
            data = json.dumps(body).encode()
            return b"POST /v1/commit HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data)

        one.send(commit(1))
        server.until(lambda: bool(server.server.early.held))
        other.send(commit(0))
        assert other.answer().json["outcome"][0]["first"] == 0
        assert one.answer().json["outcome"][0]["first"] == 1


def test_damage_is_told_to_its_reader_and_the_rest_goes_on(tmp_path: Path) -> None:
    with running(directory=tmp_path) as server:
        for name in ("bad", "good"):
            server.ask("PUT", f"/v1/stream/{name}", headers=TEXT)
            server.ask("POST", f"/v1/stream/{name}", f"a value of {name}".encode() * 20, headers=TEXT)
    (segment,) = (tmp_path / "journal").glob("segment-*")
    with segment.open("r+b") as file:
        at = file.read().find(b"a value of bad")
        file.seek(at)
        file.write(b"A")
    with running(directory=tmp_path) as server:
        damaged = server.ask("GET", "/v1/stream/bad")
        assert (damaged.status, damaged.json["code"]) == (500, "damaged")
        assert damaged.json["position"] > 0
        assert server.ask("GET", "/v1/stream/good").status == 200
        assert server.ask("POST", "/v1/stream/good", b"on", headers=TEXT).status == 204
