"""`POST /v1/commit`: all of it or none; conditions that hold and that fail; retries; and what Spark stages."""

import base64
from typing import Any

import msgspec
import pytest

from oncelog.core import batch as codec
from oncelog.limits import BATCH_BYTES_MAX
from tests.servers.running import Running
from tests.servers.talking import Answer, Headers, request

TIME_MS = 1_700_000_000_000
BATCH: Headers = {"Content-Type": "application/vnd.oncelog.batches"}


def commit(server: Running, **body: Any) -> Answer:
    return server.ask("POST", "/v1/commit", msgspec.json.encode(body), {"Content-Type": "application/json"})


def append(topic: str, *values: str, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "records": [{"value": value} for value in values], **more}


@pytest.fixture
def topics(shared: Running, topic: str) -> tuple[str, str]:
    """Two streams of text; the first has a record with the id `known` by `http:p` of epoch 1, and a cursor at 1."""
    one, two = f"{topic}-1", f"{topic}-2"
    for name in (one, two):
        shared.ask("PUT", f"/v1/stream/{name}", headers={"Content-Type": "text/plain"})
    headers: Headers = {
        "Producer-Id": "p",
        "Producer-Epoch": 1,
        "Producer-Seq": 0,
        "Stream-Message-Id": "known",
    }
    assert shared.ask("POST", f"/v1/stream/{one}", b"first", headers).status == 200
    assert shared.ask("PUT", f"/v1/cursors/c/{one}", b'{"frontier": 1}').status == 204
    return one, two


def test_commit_writes_everything_at_once(shared: Running, topics: tuple[str, str]) -> None:
    one, two = topics
    entry = shared.entry()
    answer = commit(
        shared,
        appends=[append(one, "a", "b", message_id="m"), append(two, "c")],
        cursors=[{"name": "c", "topic": one, "frontier": 3, "metadata": "m", "pinned": True}],
        producer={"name": f"shop-{one}", "epoch": 4, "sequence": 0},
    )
    assert answer.status == 200
    assert answer.json == {
        "outcome": [
            {"topic": one, "partition": 0, "first": 1, "next": 3},
            {"topic": two, "partition": 0, "first": 0, "next": 1},
        ],
        "duplicate": False,
        "producer": {"epoch": 4, "sequence": 0},
    }
    assert shared.entry() == entry + 1, "one entry: it cannot be torn"
    assert shared.ask("GET", f"/v1/stream/{one}").body == b"firstab"
    assert shared.ask("GET", f"/v1/stream/{two}").body == b"c"
    cursor = shared.ask("GET", f"/v1/cursors/c/{one}").json
    assert (cursor["frontier"], cursor["metadata"], cursor["pinned"]) == (3, "m", True)
    found = shared.ask("GET", f"/v1/commit/producers/shop-{one}").json
    assert (found["name"], found["scope"], found["epoch"], found["last_sequence"]) == (f"shop-{one}", "commit", 4, 0)


def holding(one: str, two: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(a condition that holds, the same when it fails)"""
    return [
        ({"kind": "expected_tail", "topic": one, "tail": 1}, {"kind": "expected_tail", "topic": one, "tail": 0}),
        ({"kind": "stream_new", "topic": two}, {"kind": "stream_new", "topic": one}),
        ({"kind": "stream_new", "topic": f"{one}-nobody"}, {"kind": "stream_new", "topic": one}),
        (
            {"kind": "cursor_equals", "name": "c", "topic": one, "frontier": 1},
            {"kind": "cursor_equals", "name": "c", "topic": one, "frontier": 0},
        ),
        (
            {"kind": "cursor_equals", "name": "nobody", "topic": one, "frontier": 0},
            {"kind": "cursor_equals", "name": "nobody", "topic": one, "frontier": 1},
        ),
        (
            {"kind": "id", "topic": one, "message_id": "known", "present": True},
            {"kind": "id", "topic": one, "message_id": "known", "present": False},
        ),
        (
            {"kind": "id", "topic": one, "message_id": "unknown", "present": False},
            {"kind": "id", "topic": one, "message_id": "unknown", "present": True},
        ),
        (
            {"kind": "epoch_equals", "topic": one, "producer": "http:p", "epoch": 1},
            {"kind": "epoch_equals", "topic": one, "producer": "http:p", "epoch": 0},
        ),
        (
            {"kind": "epoch_equals", "topic": one, "producer": "http:nobody", "epoch": -1},
            {"kind": "epoch_equals", "topic": one, "producer": "http:p", "epoch": -1},
        ),
    ]


@pytest.mark.parametrize("number", range(9))
def test_condition_that_holds_lets_it_pass_and_one_that_fails_names_itself(
    shared: Running, topics: tuple[str, str], number: int
) -> None:
    one, two = topics
    holds, fails = holding(one, two)[number]
    entry = shared.entry()
    answer = commit(shared, appends=[append(two, "x")], conditions=[holds, fails], commit_id=f"id-{one}")
    assert (answer.status, answer.code) == (409, "condition_failed")
    assert (answer.json["condition"], answer.json["number"]) == (fails["kind"], 1)
    assert answer.json["expected"] != answer.json["actual"]
    assert shared.entry() == entry, "nothing was done"
    passed = commit(shared, appends=[append(two, "x")], conditions=[holds], commit_id=f"id-{one}")
    assert passed.json["duplicate"] is False, "a refused commit takes no id"
    assert passed.json["outcome"] == [{"topic": two, "partition": 0, "first": 0, "next": 1}]


def test_retry_is_the_success_it_was_whatever_its_conditions_say_now(shared: Running, topics: tuple[str, str]) -> None:
    one, two = topics
    body: dict[str, Any] = {
        "commit_id": f"id-{one}",
        "producer": {"name": f"shop-{one}", "epoch": 2, "sequence": 0},
        "appends": [append(one, "x"), append(two, "y")],
        "conditions": [{"kind": "expected_tail", "topic": one, "tail": 1}],
    }
    first = commit(shared, **body).json
    shared.ask("POST", f"/v1/stream/{one}", b"more")
    again = commit(shared, **body).json
    assert first["producer"] == {"epoch": 2, "sequence": 0}
    assert again == {**first, "duplicate": True}
    assert shared.ask("GET", f"/v1/stream/{two}").body == b"y"


def test_commit_id_with_other_content_is_409_with_both_digests(shared: Running, topics: tuple[str, str]) -> None:
    one, _ = topics
    assert commit(shared, commit_id=f"id-{one}", appends=[append(one, "x")]).status == 200
    answer = commit(shared, commit_id=f"id-{one}", appends=[append(one, "y")])
    assert (answer.status, answer.code, answer.json["claim_id"]) == (409, "claim_conflict", f"id-{one}")
    assert len(answer.json["stored_digest"]) == len(answer.json["claimed_digest"]) == 32
    assert "outcome" not in answer.json


def test_producer_of_commits_new_duplicate_gap_and_fence(shared: Running, topics: tuple[str, str]) -> None:
    one, _ = topics
    name = f"shop-{one}"

    def sent(epoch: int, sequence: int, value: str) -> Answer:
        return commit(
            shared, appends=[append(one, value)], producer={"name": name, "epoch": epoch, "sequence": sequence}
        )

    assert sent(0, 0, "a").json["outcome"][0]["first"] == 1
    again = sent(0, 0, "a").json
    assert (again["duplicate"], again["outcome"][0]["first"]) == (True, 1)
    gap = sent(0, 5, "x")
    assert (gap.status, gap.code, gap.json["expected"], gap.json["received"]) == (409, "sequence_gap", 1, 5)
    assert sent(1, 0, "b").status == 200
    fenced = sent(0, 1, "x")
    assert (fenced.status, fenced.code, fenced.json["current"]) == (403, "fenced", 1)
    assert shared.ask("GET", f"/v1/stream/{one}").body == b"firstab"


def test_retry_that_names_its_streams_in_another_order_is_told_each_ones_own_offsets(
    shared: Running, topics: tuple[str, str]
) -> None:
    one, two = topics
    claim = {"name": f"shop-{one}", "epoch": 0, "sequence": 0}
    commit(shared, appends=[append(one, "x"), append(two, "y")], producer=claim)
    again = commit(shared, appends=[append(two, "y"), append(one, "x")], producer=claim)
    if again.status == 200:
        places = {row["topic"]: (row["first"], row["next"]) for row in again.json["outcome"]}
        assert places == {one: (1, 2), two: (0, 1)}
    else:
        assert again.code == "sequence_conflict"


def test_commit_with_some_known_ids_is_refused_whole(shared: Running, topics: tuple[str, str]) -> None:
    one, two = topics
    answer = commit(shared, appends=[append(one, "first", message_id="known"), append(two, "y", message_id="new")])
    assert (answer.status, answer.code) == (409, "partly_duplicate")
    assert (answer.json["known"], answer.json["new"], answer.json["first_known_offset"]) == (1, 1, 0)
    assert answer.json["append_number"] == 0
    assert shared.ask("HEAD", f"/v1/stream/{two}").next_offset == 0


def test_commit_to_an_unknown_or_closed_stream_is_refused_whole(shared: Running, topics: tuple[str, str]) -> None:
    one, two = topics
    missing = commit(shared, appends=[append(one, "x"), append("nobody", "y")])
    assert (missing.status, missing.code) == (404, "topic_missing")
    assert missing.json["append_number"] == 1
    assert missing.json["detail"].endswith("; it is append 1 of the commit")
    ahead = commit(
        shared, cursors=[{"name": "c", "topic": topic, "frontier": at} for topic, at in ((one, 0), (two, 9))]
    )
    assert (ahead.status, ahead.json["cursor_number"]) == (400, 1)
    shared.ask("PUT", f"/v1/stream/{one}-json", headers={"Content-Type": "application/json"})
    wrong = commit(shared, appends=[append(one, "x"), append(f"{one}-json", "{")])
    assert (wrong.code, wrong.json["append_number"]) == ("batch_refused", 1)
    shared.ask("POST", f"/v1/stream/{two}", headers={"Stream-Closed": "true"})
    closed = commit(shared, appends=[append(one, "x"), append(two, "y")])
    assert (closed.status, closed.code) == (409, "stream_closed")
    assert shared.ask("HEAD", f"/v1/stream/{one}").next_offset == 1


def test_commit_of_nothing_is_400(shared: Running) -> None:
    assert commit(shared).status == 400
    empty = commit(shared, appends=[], cursors=[])
    assert (empty.status, empty.code) == (400, "claim_invalid")
    assert "nothing is named" in empty.json["detail"]
    assert "expected" not in empty.json


def test_commit_that_cannot_fit_one_entry_is_413(shared: Running, topics: tuple[str, str]) -> None:
    one, two = topics
    answer = commit(shared, appends=[append(one, "x" * 100)] * 9_000 + [append(two, "y" * 2_000_000)])
    assert (answer.status, answer.code, answer.json["limit"]) == (413, "too_large", BATCH_BYTES_MAX)
    many = commit(shared, appends=[append(one, "x")], conditions=[{"kind": "stream_new", "topic": "n"}] * 10_000)
    assert (many.status, many.json["limit"], many.json["received"]) == (413, 10_000, 10_001)


# --- receipts ------------------------------------------------------------------------------------------------------


def test_receipt_says_what_became_of_an_id_and_who_wrote_it(shared: Running, topics: tuple[str, str]) -> None:
    one, _ = topics
    receipt = shared.ask("GET", f"/v1/receipts/{one}/known").json
    assert receipt.pop("time_ms") > 1_700_000_000_000
    assert len(receipt.pop("digest")) == 32
    assert receipt == {
        "topic": one,
        "partition": 0,
        "first": 0,
        "next": 1,
        "removed": False,
        "producer": {"name": "http:p", "epoch": 1, "sequence": 0},
    }
    shared.ask("POST", f"/v1/stream/{one}", b"x", {"Stream-Message-Id": "a/ü?"})
    assert shared.ask("GET", f"/v1/receipts/{one}/a%2F%C3%BC%3F").json["producer"] is None
    assert shared.ask("GET", f"/v1/receipts/{one}/nobody").code == "not_found"
    assert shared.ask("GET", "/v1/receipts/nobody/known").code == "topic_missing"
    shared.ask("POST", f"/v1/topics/{one}/trim", b'{"floor": 1}')
    removed = shared.ask("GET", f"/v1/receipts/{one}/known").json
    assert (removed["removed"], removed["producer"], removed["first"]) == (True, None, 0)


# --- stages --------------------------------------------------------------------------------------------------------


def asked(server: Running, target: str, **body: Any) -> Answer:
    return server.ask("POST", target, msgspec.json.encode(body), {"Content-Type": "application/json"})


def staged(server: Running, stage_id: int, at: int, *values: bytes, time_ms: int = TIME_MS) -> Answer:
    batch = codec.encode_values(values, time_ms)
    return server.ask("POST", f"/v1/stages/{stage_id}?at={at}", batch, BATCH)


def test_driver_stages_and_publishes_exactly_once(shared: Running, topics: tuple[str, str]) -> None:
    one, two = topics
    name = f"app-{one}"
    opened = shared.ask("POST", f"/v1/applications/{name}").json
    assert opened == {"fence": 1, "query": "", "batch": -1, "source_end": ""}
    stages: list[dict[str, Any]] = []
    for values in ((b"a", b"b"), (b"c",)):
        stage = asked(shared, "/v1/stages", application=name, fence=1, ttl_ms=60_000).json
        assert (stage["count"], stage["duplicate"]) == (0, False)
        done = staged(shared, stage["stage_id"], 0, *values)
        assert (done.json["count"], done.json["duplicate"]) == (len(values), False)
        again = staged(shared, stage["stage_id"], 0, *values)
        assert (again.json["count"], again.json["duplicate"]) == (len(values), True)
        stages.append({"stage_id": stage["stage_id"], "topic": (one, two)[len(stages)], "count": len(values)})
    assert shared.ask("GET", f"/v1/stream/{two}").body == b"", "durable and invisible"
    publish = {
        "application": name, "fence": 1, "query": "q", "batch": 0, "stages": stages,
        "source_end": base64.b64encode(b"offsets").decode(), "cursors": [{"name": "c", "topic": one, "frontier": 2}],
    }  # fmt: skip
    first = asked(shared, "/v1/publish", **publish)
    assert first.json["outcome"] == [
        {"topic": one, "partition": 0, "first": 1, "next": 3},
        {"topic": two, "partition": 0, "first": 0, "next": 1},
    ]
    again = asked(shared, "/v1/publish", **publish)
    assert again.json == {**first.json, "duplicate": True}
    assert shared.ask("GET", f"/v1/stream/{one}").body == b"firstab"
    known = shared.ask("GET", f"/v1/applications/{name}").json
    assert known == {"fence": 1, "query": "q", "batch": 0, "source_end": base64.b64encode(b"offsets").decode()}


def test_newer_driver_fences_the_one_before(shared: Running, topics: tuple[str, str]) -> None:
    one, _ = topics
    name = f"app-{one}"
    for fence in (1, 2):
        assert shared.ask("POST", f"/v1/applications/{name}").json["fence"] == fence
    for answer in (
        asked(shared, "/v1/stages", application=name, fence=1),
        asked(shared, "/v1/publish", application=name, fence=1, query="q", batch=0),
    ):
        assert (answer.status, answer.code, answer.json["current"]) == (403, "application_fenced", 2)


def test_batch_out_of_turn_is_409(shared: Running, topics: tuple[str, str]) -> None:
    one, _ = topics
    name = f"app-{one}"
    shared.ask("POST", f"/v1/applications/{name}")
    assert asked(shared, "/v1/publish", application=name, fence=1, query="q", batch=0).status == 200
    answer = asked(shared, "/v1/publish", application=name, fence=1, query="q", batch=5)
    assert (answer.status, answer.code) == (409, "application_batch_refused")
    assert (answer.json["expected_batch"], answer.json["received_batch"]) == (1, 5)


def test_stage_that_is_not_what_its_owner_believes_is_refused(shared: Running, topics: tuple[str, str]) -> None:
    one, _ = topics
    name = f"app-{one}"
    shared.ask("POST", f"/v1/applications/{name}")
    stage_id = asked(shared, "/v1/stages", application=name, fence=1).json["stage_id"]
    assert staged(shared, stage_id, 3, b"x").code == "stage_count_mismatch"
    assert staged(shared, stage_id, 0, b"x").status == 200
    stages = [{"stage_id": stage_id, "topic": one, "count": 9}]
    wrong = asked(shared, "/v1/publish", application=name, fence=1, query="q", batch=0, stages=stages)
    assert (wrong.status, wrong.code) == (409, "stage_count_mismatch")
    assert (wrong.json["expected"], wrong.json["actual"]) == (9, 1)
    assert shared.ask("HEAD", f"/v1/stream/{one}").next_offset == 1


def test_same_records_encoded_again_later_are_a_retry_and_others_are_none(shared: Running) -> None:
    stage_id = asked(shared, "/v1/stages").json["stage_id"]
    assert not staged(shared, stage_id, 0, b"a", b"b").json["duplicate"]
    again = staged(shared, stage_id, 0, b"a", b"b", time_ms=TIME_MS + 5).json
    assert (again["duplicate"], again["count"]) == (True, 2)
    assert staged(shared, stage_id, 0, b"a", b"c").code == "claim_invalid"


def test_stage_takes_sound_batches_only(shared: Running) -> None:
    stage_id = asked(shared, "/v1/stages").json["stage_id"]
    records: list[codec.Record] = [(0, TIME_MS, None, b"x", ())]
    of_a_txn = codec.encode(records, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    sound = codec.encode(records)
    for batch in (b"no batch", of_a_txn, sound[:-1], sound + b"x", sound[:-1] + b"\xff"):
        answer = shared.ask("POST", f"/v1/stages/{stage_id}?at=0", batch, BATCH)
        assert (answer.status, answer.code) == (400, "batch_invalid")
    assert shared.ask("POST", f"/v1/stages/{stage_id}?at=0", sound, BATCH).json["count"] == 1


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "application/json"}])
def test_stage_takes_nothing_but_record_batches(shared: Running, headers: Headers) -> None:
    stage_id = asked(shared, "/v1/stages").json["stage_id"]
    sound = codec.encode([(0, TIME_MS, None, b"x", ())])
    answer = shared.ask("POST", f"/v1/stages/{stage_id}?at=0", sound, headers)
    assert (answer.status, answer.code) == (400, "header_invalid")
    assert BATCH["Content-Type"] in answer.json["detail"]


@pytest.mark.parametrize(
    ("place", "body"),
    [
        ("commit_id", {"commit_id": ""}),
        ("appends[0].message_id", {"message_id": ""}),
        ("producer.name", {"producer": {"name": "", "epoch": 0, "sequence": 0}}),
    ],
)
def test_empty_name_that_a_retry_would_be_known_by_is_refused(
    shared: Running, topics: tuple[str, str], place: str, body: dict[str, Any]
) -> None:
    one, _ = topics
    of_append = {name: body.pop(name) for name in list(body) if name == "message_id"}
    answer = commit(shared, appends=[append(one, "x", **of_append)], **body)
    assert (answer.status, answer.code) == (400, "body_invalid")
    assert f"{place} is empty: a retry would not be recognised" in answer.json["detail"]
    assert shared.ask("GET", f"/v1/stream/{one}").body == b"first"


def test_unknown_condition_is_told_by_its_kind_and_a_known_one_by_its_topic(shared: Running) -> None:
    unknown = commit(shared, appends=[append("t", "x")], conditions=[{"kind": "bogus"}])
    assert "not 'bogus'" in unknown.json["detail"]
    nowhere = commit(shared, appends=[append("t", "x")], conditions=[{"kind": "stream_new"}])
    assert nowhere.json["detail"] == "conditions[0] names no topic"


def test_dropped_and_unknown_stages_are_404(shared: Running) -> None:
    stage_id = asked(shared, "/v1/stages").json["stage_id"]
    assert asked(shared, "/v1/stages/drop", stage_ids=[stage_id, 10**9]).status == 204
    for number in (stage_id, 10**9, 2**63):
        answer = staged(shared, number, 0, b"x")
        assert (answer.status, answer.code) == (404, "stage_missing")
    assert asked(shared, "/v1/stages/drop", stage_ids=[stage_id]).status == 204


def test_unknown_application_is_404(shared: Running) -> None:
    assert shared.ask("GET", "/v1/applications/nobody").code == "not_found"


def test_stage_for_a_stream_of_json_says_so(shared: Running, topic: str) -> None:
    shared.ask("PUT", f"/v1/stream/{topic}", headers={"Content-Type": "application/json"})
    name = f"app-{topic}"
    shared.ask("POST", f"/v1/applications/{name}")
    silent = asked(shared, "/v1/stages", application=name, fence=1).json["stage_id"]
    staged(shared, silent, 0, b"no json")
    told = asked(shared, "/v1/stages", application=name, fence=1, content_type="application/json").json["stage_id"]
    assert staged(shared, told, 0, b"no json").code == "batch_refused"
    assert staged(shared, told, 0, b"1").status == 200

    def publish(stage_id: int) -> Answer:
        stages = [{"stage_id": stage_id, "topic": topic, "count": 1}]
        return asked(shared, "/v1/publish", application=name, fence=1, query="q", batch=0, stages=stages)

    assert publish(silent).code == "content_type_mismatch"
    assert publish(told).status == 200
    assert shared.ask("GET", f"/v1/stream/{topic}").body == b"[1]"


def test_published_records_with_known_ids_are_left_out(shared: Running, topic: str) -> None:
    shared.ask("PUT", f"/v1/stream/{topic}", b"", {"Content-Type": "application/octet-stream"})
    name = f"app-{topic}"
    shared.ask("POST", f"/v1/applications/{name}")

    def publish(number: int, *named: tuple[bytes, bytes]) -> Answer:
        stage_id = asked(shared, "/v1/stages", application=name, fence=1).json["stage_id"]
        records = [(at, TIME_MS, None, value, (("oncelog.message-id", id_),)) for at, (id_, value) in enumerate(named)]
        target = f"/v1/stages/{stage_id}?at=0"
        assert shared.ask("POST", target, codec.encode(records), BATCH).status == 200
        stage = {"stage_id": stage_id, "topic": topic, "count": len(named), "message_ids": True}
        return asked(shared, "/v1/publish", application=name, fence=1, query="q", batch=number, stages=[stage])

    assert publish(0, (b"1", b"a"), (b"2", b"b"), (b"1", b"a")).status == 200
    assert publish(1, (b"2", b"b"), (b"3", b"c")).status == 200
    assert shared.ask("GET", f"/v1/stream/{topic}").body == b"abc"
    assert shared.ask("GET", f"/v1/receipts/{topic}/3").json["first"] == 4
    refused = publish(2, (b"4", b"d"), (b"3", b"other"))
    assert (refused.status, refused.json["code"]) == (409, "id_conflict")
    assert shared.ask("GET", f"/v1/stream/{topic}").body == b"abc"


def test_publish_with_ids_behind_a_read_is_carried_out_when_its_client_goes(shared: Running, topic: str) -> None:
    """As every command that was accepted: only its answer goes nowhere."""
    shared.ask("PUT", f"/v1/stream/{topic}", b"", {"Content-Type": "application/octet-stream"})
    name = f"app-{topic}"
    shared.ask("POST", f"/v1/applications/{name}")
    stage_id = asked(shared, "/v1/stages", application=name, fence=1).json["stage_id"]
    batch = codec.encode([(0, TIME_MS, None, b"a", (("oncelog.message-id", b"1"),))])
    shared.ask("POST", f"/v1/stages/{stage_id}?at=0", batch, BATCH)
    stage = {"stage_id": stage_id, "topic": topic, "count": 1, "message_ids": True}
    publish = {"application": name, "fence": 1, "query": "q", "batch": 0, "stages": [stage]}
    client = shared.client()
    wait = request("GET", f"/v1/stream/{topic}?offset=now&live=long-poll")
    client.send(wait + request("POST", "/v1/publish", msgspec.json.encode(publish)))
    shared.until(lambda: any(len(connection.slots) == 2 for connection in shared.server.connections))
    client.reset()
    # Idle: it is on disk as well, and readers see it.
    shared.until(lambda: shared.engine.lookups.stage_row(stage_id) is None and shared.engine.commits.idle)
    assert shared.ask("GET", f"/v1/stream/{topic}").body == b"a"
