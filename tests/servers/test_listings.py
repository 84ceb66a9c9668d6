"""Listings: every row once, whatever the page size, what was deleted meanwhile, and where the rows are kept."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from oncelog.engine.engine import Settings
from oncelog.limits import KIB, MIB
from tests.servers.running import Running, running
from tests.servers.talking import Headers, request

TYPE: Headers = {"Content-Type": "text/plain"}
TOPICS = [f"list/{number:03d}" for number in range(250)]


@pytest.fixture(scope="module", params=["memory", "memory, checkpoint", "disk", "disk, checkpoint"])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with many topics, producers and cursors, some removed again; rows in the index, newer, or both."""
    directory: Path | None = tmp_path_factory.mktemp("log") if request.param.startswith("disk") else None
    engine = Settings(segment_bytes=8 * MIB, checkpoint_bytes=32 * KIB if "checkpoint" in request.param else 8 * MIB)
    with running(directory, engine=engine) as server:
        _fill(server, checkpoint=server.checkpoint if "checkpoint" in request.param else lambda: None)
        yield server


def _fill(server: Running, checkpoint: Any) -> None:
    with server.client() as client:
        _all(client, [request("PUT", f"/v1/stream/{name}", headers=TYPE) for name in TOPICS])
        _all(client, [request("PUT", f"/v1/stream/other{number}", headers=TYPE) for number in range(3)])
        _all(client, [_append(number) for number in range(250)])
        _all(client, [_cursor(name, "list/000") for name in _cursor_names()])
        _all(client, [_cursor("c/shared", name) for name in TOPICS[:20]])
        _all(client, [request("DELETE", f"/v1/stream/{name}") for name in TOPICS[10:20]])
        checkpoint()
        # Newer than the index: more of everything, and some of it gone.
        _all(client, [request("DELETE", f"/v1/stream/{name}") for name in TOPICS[100:210]])
        _all(client, [request("PUT", f"/v1/stream/{name}", headers=TYPE) for name in TOPICS[10:15]])
        _all(client, [_append(number) for number in range(250, 260)])
        _all(
            client,
            [request("DELETE", f"/v1/cursors/{quote(name, safe='')}/list/000") for name in _cursor_names()[5:130]],
        )


def _all(client: Any, requests: list[bytes]) -> None:
    client.send(b"".join(requests))
    for _ in requests:
        answer = client.answer()
        assert answer.status < 300, answer


def _append(number: int) -> bytes:
    dialect = "X-" if number % 2 else ""
    headers: Headers = {f"{dialect}Producer-Id": f"p{number:03d}", f"{dialect}Producer-Seq": 0}
    if not dialect:
        headers["Producer-Epoch"] = 3
    return request("POST", "/v1/stream/list/000", b"x", headers)


def _cursor(name: str, topic: str) -> bytes:
    return request("PUT", f"/v1/cursors/{quote(name, safe='')}/{topic}", b'{"frontier": 0, "metadata": "m"}')


def _cursor_names() -> list[str]:
    return [f"c/{number:03d}" for number in range(150)]


LIVE = TOPICS[:15] + TOPICS[20:100] + TOPICS[210:]


def pages(server: Running, what: str, query: str = "", limit: int | None = None) -> list[list[dict[str, Any]]]:
    """All pages of a listing, each asked for with the `next` of the one before."""
    found, after = [], ""
    while True:
        target = f"/v1/{what}?{query}" + (f"&limit={limit}" if limit else "")
        answer = server.ask("GET", target + (f"&after={quote(after, safe='')}" if after else ""))
        assert answer.status == 200, answer
        found.append(answer.json[what])
        after = answer.json["next"]
        if after is None:
            return found
        assert len(found) < 400


@pytest.mark.parametrize("limit", [1, 7, 100, None, 1000])
def test_topics_are_listed_once_each(kept: Running, limit: int | None) -> None:
    listed = pages(kept, "streams", "prefix=list/", limit)
    assert [row["topic"] for page in listed for row in page] == LIVE
    assert all(len(page) <= (limit or 100) for page in listed)


def test_prefix_and_after_cut_the_listing(kept: Running) -> None:
    assert [row["topic"] for page in pages(kept, "streams", "prefix=other") for row in page] == [
        "other0",
        "other1",
        "other2",
    ]
    assert [row["topic"] for page in pages(kept, "streams") for row in page] == [*LIVE, "other0", "other1", "other2"]
    behind = kept.ask("GET", "/v1/streams?prefix=list/&after=list/240").json
    assert [row["topic"] for row in behind["streams"]] == TOPICS[241:]
    assert kept.ask("GET", "/v1/streams?prefix=nothing").json == {"streams": [], "next": None}
    assert kept.ask("GET", "/v1/streams?after=zzz").json == {"streams": [], "next": None}
    assert kept.ask("GET", "/v1/streams?prefix=list/000&limit=1").json["next"] is None


def test_stream_is_listed_with_where_it_stands(kept: Running) -> None:
    (row,) = kept.ask("GET", "/v1/streams?prefix=list/000").json["streams"]
    assert row.pop("time_ms") >= row.pop("created_ms") > 1_700_000_000_000
    assert row == {
        "topic": "list/000", "partition": 0, "content_type": "text/plain", "floor": 0, "stable": 260, "tail": 260,
        "closed": False,
    }  # fmt: skip


@pytest.mark.parametrize("limit", [1, 7, 100, None, 1000])
def test_producers_are_listed_once_each(kept: Running, limit: int | None) -> None:
    listed = [row for page in pages(kept, "producers", "topic=list/000", limit) for row in page]
    names = [f"{row['scope']}:{row['name']}" for row in listed]
    expected = [f"http:p{number:03d}" for number in range(0, 260, 2)] + [
        f"x:p{number:03d}" for number in range(1, 260, 2)
    ]
    assert names == expected


def test_producer_is_listed_as_it_is_told_alone(kept: Running) -> None:
    (row,) = kept.ask("GET", "/v1/producers?topic=list/000&prefix=http:p100").json["producers"]
    assert row == kept.ask("GET", "/v1/producers/list/000/p100").json
    assert {key: row[key] for key in ("name", "scope", "epoch", "last_sequence", "first", "next")} == {
        "name": "p100", "scope": "http", "epoch": 3, "last_sequence": 0, "first": 100, "next": 101,
    }  # fmt: skip
    assert kept.ask("GET", "/v1/producers/list/000/p101?scope=x").json["epoch"] == 1
    assert kept.ask("GET", "/v1/producers/list/000/p101").status == 404


def test_producers_of_a_stream_are_its_own(kept: Running) -> None:
    assert kept.ask("GET", "/v1/producers?topic=list/001").json == {"producers": [], "next": None}
    assert kept.ask("GET", "/v1/producers?topic=gone").code == "topic_missing"
    assert kept.ask("GET", "/v1/producers?topic=list/000&partition=1").code == "topic_missing"


CURSORS = [(name, "list/000") for name in _cursor_names()[:5] + _cursor_names()[130:]]
SHARED = [("c/shared", name) for name in TOPICS[:10]]


@pytest.mark.parametrize("limit", [1, 7, 100, None, 1000])
def test_cursors_are_listed_once_each_and_not_those_of_deleted_topics(kept: Running, limit: int | None) -> None:
    listed = [(row["name"], row["topic"]) for page in pages(kept, "cursors", "", limit) for row in page]
    assert listed == CURSORS + SHARED
    assert [
        (row["name"], row["topic"]) for page in pages(kept, "cursors", "prefix=c/s", limit) for row in page
    ] == SHARED


def test_cursor_is_listed_as_it_is_told_alone(kept: Running) -> None:
    (row,) = kept.ask("GET", "/v1/cursors?prefix=c/004").json["cursors"]
    assert (row.pop("lag"), row.pop("lag_ms") >= 0) == (260, True)
    assert row == kept.ask("GET", "/v1/cursors/c%2F004/list/000").json
    used_ms = row.pop("used_ms")
    assert used_ms > 1_700_000_000_000
    assert row == {
        "name": "c/004", "topic": "list/000", "partition": 0, "frontier": 0, "confirmed": [], "metadata": "m",
        "pinned": False,
    }  # fmt: skip
    assert kept.ask("GET", "/v1/cursors/c%2F005/list/000").code == "not_found"


def test_cursors_are_listed_as_they_are_told_alone_after_a_trim_and_holes(tmp_path: Path) -> None:
    """A listing and a look at one cursor follow one rule, also when the holes on the way are in the index alone."""
    stands = {"behind": 2, "hole": 5, "end": 6}

    def check(server: Running) -> None:
        (listed,) = pages(server, "cursors")
        assert {row["name"]: row["frontier"] for row in listed} == stands
        for row in listed:
            del row["lag"], row["lag_ms"]  # a listing tells them, too
            assert row == server.ask("GET", f"/v1/cursors/{row['name']}/t").json

    with running(tmp_path) as server:
        server.ask("PUT", "/v1/stream/t", headers=TYPE)
        for _ in range(6):
            server.ask("POST", "/v1/stream/t", b"x")
        for name, frontier in (("behind", 0), ("hole", 3), ("end", 6)):
            server.ask("PUT", f"/v1/cursors/{name}/t", b'{"frontier": %d}' % frontier)
        server.ask("POST", "/v1/topics/t/delete-records", b'{"ranges": [[3, 5]]}')
        server.ask("POST", "/v1/topics/t/trim", b'{"floor": 2}')
        check(server)
    with running(tmp_path) as server:
        check(server)


@pytest.mark.parametrize("after", ["x", "c/x", "/1", "c/-1", "c/99999999999999999999999", "c/9223372036854775808"])
def test_token_that_no_page_gave_is_400(kept: Running, after: str) -> None:
    answer = kept.ask("GET", f"/v1/cursors?after={quote(after, safe='')}")
    assert (answer.status, answer.code) == (400, "target_invalid")


def test_all_partitions_of_a_topic_are_on_one_page(shared: Running, topic: str) -> None:
    shared.ask("PUT", f"/v1/topics/{topic}", b'{"partitions": 5}')
    answer = shared.ask("GET", f"/v1/streams?prefix={topic}&limit=1").json
    assert [row["partition"] for row in answer["streams"]] == list(range(5))


def test_listing_shows_only_what_is_durable(topic: str) -> None:
    path = f"/v1/stream/{topic}"
    with running() as server, server.client() as client:
        server.ask("PUT", path, headers=TYPE)
        with server.client() as lister, server.slow_disk():
            client.send(request("POST", path, b"x", {"Producer-Id": "p", "Producer-Epoch": 0, "Producer-Seq": 0}))
            server.until(lambda: any(connection.slots for connection in server.server.connections))
            lister.send(request("GET", f"/v1/producers?topic={topic}"))
            server.until(lambda: sum(len(connection.slots) for connection in server.server.connections) == 2)
            assert server.ask("GET", "/v1/streams").json["streams"][0]["tail"] == 0
        assert client.answer().status == 200
