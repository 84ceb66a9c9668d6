"""Topics, cursors, cuts, health and metrics over HTTP."""

import msgspec
import pytest

from tests.servers.running import Running, running
from tests.servers.talking import Headers, request

TYPE: Headers = {"Content-Type": "text/plain"}


# --- topics --------------------------------------------------------------------------------------------------------


def test_topic_is_made_agreed_with_and_told(shared: Running, topic: str) -> None:
    path = f"/v1/topics/{topic}"
    body = b'{"partitions": 3, "content_type": "text/plain", "dedupe_floor_ms": -1, "id_zone": "z"}'
    assert shared.ask("GET", path).code == "topic_missing"
    assert shared.ask("PUT", path, body).status == 201
    assert shared.ask("PUT", path, body).status == 200
    other = shared.ask("PUT", path, b'{"partitions": 2}')
    assert (other.status, other.code, other.json["topic"]) == (409, "topic_exists", topic)
    assert "it has content_type 'text/plain', dedupe_floor_ms -1, id_zone 'z', not " in other.json["detail"]
    told = shared.ask("GET", path).json
    assert told.pop("created_ms") > 1_700_000_000_000
    assert told == {
        "name": topic, "partitions": 3, "content_type": "text/plain", "dedupe_floor_ms": -1, "duplicate_window_ms": 0,
        "id_zone": "z", "retention_ms": 0, "retention_bytes": 0, "retention_records": 0,
    }  # fmt: skip


def test_topic_grows_and_never_shrinks(shared: Running, topic: str) -> None:
    path = f"/v1/topics/{topic}"
    shared.ask("PUT", path, b'{"partitions": 2}')
    assert shared.ask("PATCH", path, b'{"partitions": 4}').json == {"name": topic, "partitions": 4}
    fewer = shared.ask("PATCH", path, b'{"partitions": 3}')
    assert (fewer.status, fewer.json["least"], fewer.json["received"]) == (400, 4, 3)
    assert shared.ask("GET", f"/v1/stream/{topic}?partition=3").status == 200
    assert shared.ask("PATCH", "/v1/topics/nobody", b'{"partitions": 3}').status == 404


def test_settings_are_changed_one_by_one_and_none_is_lost(shared: Running, topic: str) -> None:
    path = f"/v1/topics/{topic}"
    with shared.client() as client:
        client.send(
            request("PUT", path)
            + request("PATCH", path, b'{"duplicate_window_ms": 5000}')
            + request("PATCH", path, b'{"dedupe_floor_ms": 8000}')
            + request("PATCH", path, b'{"content_type": "text/plain"}')
            + request("GET", path)
        )
        assert [client.answer().status for _ in range(4)] == [201, 200, 200, 200]
        told = client.answer().json
    assert (told["duplicate_window_ms"], told["dedupe_floor_ms"], told["content_type"]) == (5000, 8000, "text/plain")


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"",
        b'{"partitions": 2, "dedupe_floor_ms": 1}',
        b'{"id_zone": "x"}',
        b'{"content_type": "a\\r\\nb"}',
        b'{"what": 1}',
    ],
)
def test_change_that_makes_no_sense_is_400(shared: Running, topic: str, body: bytes) -> None:
    shared.ask("PUT", f"/v1/topics/{topic}")
    assert shared.ask("PATCH", f"/v1/topics/{topic}", body).status == 400


def test_trim_and_delete_records_say_where_the_stream_stands(shared: Running, topic: str) -> None:
    path = f"/v1/stream/{topic}"
    shared.ask("PUT", path, headers=TYPE)
    for value in b"abcdef":
        shared.ask("POST", path, bytes([value]))
    answer = shared.ask("POST", f"/v1/topics/{topic}/delete-records", b'{"ranges": [[1, 2], [3, 5]]}')
    assert answer.json == {"topic": topic, "partition": 0, "floor": 0, "stable": 6, "tail": 6, "closed": False}
    assert shared.ask("GET", path).body == b"acf"
    assert shared.ask("POST", f"/v1/topics/{topic}/trim", b'{"floor": 2}').json["floor"] == 2
    assert shared.ask("GET", path).body == b"cf"
    assert shared.ask("POST", f"/v1/topics/{topic}/trim", b'{"floor": 7}').code == "offset_ahead"
    nothing = shared.ask("POST", f"/v1/topics/{topic}/delete-records", b'{"ranges": []}')
    assert (nothing.status, nothing.code) == (400, "claim_invalid")
    assert "no range is named" in nothing.json["detail"]
    assert "expected" not in nothing.json
    for body in (
        b'{"ranges": [[4, 3]]}',
        b'{"ranges": [[3, 4], [2, 3]]}',
        b'{"ranges": [[-1, 1]]}',
        b'{"ranges": [[1]]}',
    ):
        assert shared.ask("POST", f"/v1/topics/{topic}/delete-records", body).status == 400


def test_trim_stops_at_a_pinned_cursor_unless_forced(shared: Running, topic: str) -> None:
    shared.ask("PUT", f"/v1/stream/{topic}", b"a", TYPE)
    shared.ask("POST", f"/v1/stream/{topic}", b"b")
    shared.ask("PUT", f"/v1/cursors/keep/{topic}", b'{"frontier": 1, "pinned": true}')
    answer = shared.ask("POST", f"/v1/topics/{topic}/trim", b'{"floor": 2}')
    assert (answer.status, answer.code) == (409, "cursor_pinned")
    assert (answer.json["cursor"], answer.json["frontier"], answer.json["asked"]) == ("keep", 1, 2)
    assert shared.ask("POST", f"/v1/topics/{topic}/trim", b'{"floor": 2, "force": true}').json["floor"] == 2


# --- cursors -------------------------------------------------------------------------------------------------------


def test_cursor_is_put_told_and_forgotten(shared: Running, topic: str) -> None:
    shared.ask("PUT", f"/v1/stream/{topic}", b"a", TYPE)
    path = f"/v1/cursors/my%2Fcursor/{topic}"
    assert shared.ask("GET", path).code == "not_found"
    assert shared.ask("PUT", path, b'{"frontier": 1, "metadata": "\xc3\xbc", "pinned": true}').status == 204
    told = shared.ask("GET", path).json
    assert (told["name"], told["frontier"], told["metadata"], told["pinned"]) == ("my/cursor", 1, "ü", True)
    assert shared.ask("PUT", path, b'{"frontier": 0}').status == 204
    assert shared.ask("GET", path).json["frontier"] == 0
    assert shared.ask("DELETE", path).status == 204
    assert shared.ask("GET", path).status == 404
    assert shared.ask("PUT", "/v1/cursors/c/nobody", b'{"frontier": 0}').code == "topic_missing"
    assert shared.ask("PUT", path, b'{"metadata": ""}').code == "body_invalid"


# --- cuts ----------------------------------------------------------------------------------------------------------


def test_cut_is_one_instant_of_all_that_is_asked_for(topic: str) -> None:
    with running() as server:
        for name in ("a", "b", "c"):
            server.ask("PUT", f"/v1/stream/{name}", b"x" if name != "c" else b"", TYPE)
        body = (
            b'{"appends": [{"topic": "a", "records": [{"value": "1"}]}, {"topic": "b", "records": [{"value": "2"}]}]}'
        )
        server.ask("POST", "/v1/commit", body)
        cut = server.ask("GET", "/v1/cut?topic=b&topic=a").json
        assert cut["entry"] == server.entry()
        assert cut["time_ms"] > 1_700_000_000_000
        assert sorted(
            (row["topic"], row["floor"], row["stable"], row["tail"], row["closed"]) for row in cut["streams"]
        ) == [
            ("a", 0, 2, 2, False),
            ("b", 0, 2, 2, False),
        ]
        made = server.ask("GET", "/v1/topics/a").json["created_ms"]
        assert [row["created_ms"] for row in cut["streams"] if row["topic"] == "a"] == [made]
        listed = server.ask("GET", "/v1/streams?prefix=a").json["streams"]
        assert [row["created_ms"] for row in listed] == [made]
        every = server.ask("GET", "/v1/cut").json
        assert sorted(row["topic"] for row in every["streams"]) == ["a", "b", "c"]
        some = server.ask("GET", "/v1/cut?topic=a&topic=nobody").json
        assert [row["topic"] for row in some["streams"]] == ["a"], "what is not there is left out"


def test_offsets_of_a_moment_that_has_passed(topic: str) -> None:
    with running() as server:
        for name in ("a", "b"):
            server.ask("PUT", f"/v1/stream/{name}", b"", TYPE)
        server.ask("POST", "/v1/stream/a", b"first", TYPE)
        then = server.ask("GET", "/v1/cut").json["entry"]
        server.ask("POST", "/v1/stream/a", b"second", TYPE)
        server.ask("POST", "/v1/stream/b", b"third", TYPE)
        by_entry = server.ask("GET", f"/v1/offsets?entry={then}&topic=a&topic=b").json
        assert by_entry == {
            "streams": [
                {"topic": "a", "partition": 0, "offset": 1, "is_floor": False, "floor": 0, "stable": 2},
                {"topic": "b", "partition": 0, "offset": 0, "is_floor": False, "floor": 0, "stable": 1},
            ]
        }
        assert [row["offset"] for row in server.ask("GET", "/v1/offsets?time_ms=0").json["streams"]] == [0, 0]
        in_a_century = 4_900_000_000_000
        late = server.ask("GET", f"/v1/offsets?time_ms={in_a_century}").json["streams"]
        assert [row["offset"] for row in late] == [2, 1]
        ahead = server.ask("GET", "/v1/offsets?entry=1000000")
        assert ahead.status == 400
        assert ahead.json["code"] == "entry_ahead"


def test_cut_never_tears_a_commit(topic: str) -> None:
    """Every commit writes to both streams: whatever is cut, both have the same number of records."""
    body = b'{"appends": [{"topic": "a", "records": [{"value": "1"}]}, {"topic": "b", "records": [{"value": "2"}]}]}'
    with running() as server, server.client() as writer, server.client() as reader:
        for name in ("a", "b"):
            server.ask("PUT", f"/v1/stream/{name}", headers=TYPE)
        writer.send(request("POST", "/v1/commit", body) * 300)
        for _ in range(50):
            one, two = (row["stable"] for row in reader.ask("GET", "/v1/cut").json["streams"])
            assert one == two
        for _ in range(300):
            assert writer.answer().status == 200


# --- health and metrics --------------------------------------------------------------------------------------------


def test_health_says_how_safe_it_is(shared: Running) -> None:
    health = shared.ask("GET", "/health").json
    assert (health["status"], health["durability"], health["entry"]) == ("ok", "none", shared.entry())
    assert (health["writes"], health["reason"]) == ("accepted", None)
    assert health["version"]


def test_counters_move(topic: str) -> None:
    path = f"/v1/stream/{topic}"
    with running(early_hold_ms=0) as server:
        before = server.metrics()
        server.ask("PUT", path, headers={"Content-Type": "application/json"})
        json_type: Headers = {"Content-Type": "application/json"}
        producer: Headers = {"Producer-Id": "p", "Producer-Epoch": 1, "Producer-Seq": 0, **json_type}
        server.ask("POST", path, b"[1,2,3]", producer)
        server.ask("POST", path, b"[1,2,3]", producer)
        server.ask("POST", path, b"4", producer)
        server.ask("POST", path, b"5", producer | {"Producer-Epoch": 0})
        server.ask("POST", path, b"5", producer | {"Producer-Seq": 3})
        server.ask("POST", path, b"1", json_type | {"Stream-Message-Id": "m"})
        server.ask("POST", path, b"2", json_type | {"Stream-Message-Id": "m"})
        server.ask("POST", path, b"{", json_type)
        server.ask("GET", "/nowhere")
        server.ask("POST", "/v1/commit", msgspec.json.encode({"appends": [{"topic": topic, "records": [{"json": 1}]}]}))
        with server.client() as client:
            client.send(b"no http\r\n\r\n")
            assert client.answer().status == 400
            after = server.metrics()
    moved = {name: after[name] - before.get(name, 0) for name in after}
    assert moved["oncelog_confirms_total"] == 2
    assert moved["oncelog_records_total"] == 4
    assert moved["oncelog_duplicates_total"] == 1
    assert moved["oncelog_conflicts_total"] == 2
    assert moved["oncelog_fences_total"] == 1
    assert moved["oncelog_commits_total"] == 1
    assert moved["oncelog_refusals_total[sequence_gap]"] == 1
    assert moved["oncelog_refusals_total[fenced]"] == 1
    assert moved["oncelog_http_malformed_total"] == 3
    assert moved["oncelog_entry"] == 4
    assert moved["oncelog_groups_total"] >= 4
    assert moved["oncelog_fsync_seconds_count"] >= 4
    assert after["oncelog_http_connections"] >= 1
    assert after["oncelog_journal_bytes"] > 0
