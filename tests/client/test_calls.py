"""Single calls: appends that are idempotent without being asked, every path and what it sends."""

import math
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from oncelog.client import (
    AsyncClient,
    CommitAppend,
    CommitProducer,
    CommitRecord,
    ConditionFailed,
    CursorEquals,
    CursorMove,
    EpochEquals,
    ExpectedTail,
    IdKnown,
    NotFound,
    PublishStage,
    StreamNew,
)
from tests.client.peer import CUT, FakeLog, Reply, Request, answer, calling, json_answer, problem

# --- appends -----------------------------------------------------------------------------------------------------


def test_an_append_without_an_id_gets_one_and_is_written_once() -> None:
    log = FakeLog()
    lost = iter([True, True])

    def script(request: Request) -> Reply:
        told = log(request)
        return CUT if next(lost, False) else told

    result, requests = calling(script, lambda client: client.append("a", {"x": 1}))
    assert len(requests) == 3
    assert len({request.headers["stream-message-id"] for request in requests}) == 1
    assert log.values("a") == [b'{"x":1}']
    assert (result.offset, result.next_offset, result.duplicate) == (0, 1, True)  # type: ignore[attr-defined]


def test_every_append_has_an_id_of_its_own() -> None:
    log = FakeLog()

    async def twice(client: AsyncClient) -> object:
        return [await client.append("a", 1), await client.append("a", 1)]

    calling(log, twice)
    assert log.values("a") == [b"1", b"1"]


def test_an_append_carries_what_it_is_told() -> None:
    async def call(client: AsyncClient) -> object:
        stream = client.stream("a/b c", "text/plain")
        return await stream.append(
            "hello", message_id="m", partition=3, expected_tail=41, order_key="k1", close=True
        )  # fmt: skip

    _, (request,) = calling(lambda request: answer(204, Stream_Next_Offset="0000000000000042"), call)
    assert (request.method, request.path, request.query) == ("POST", "/v1/stream/a/b c", {"partition": "3"})
    assert request.body == b"hello"
    wanted = {
        "content-type": "text/plain",
        "stream-message-id": "m",
        "if-match": '"0000000000000041"',
        "stream-seq": "k1",
        "stream-closed": "true",
    }
    assert wanted.items() <= request.headers.items()


def test_an_append_with_a_key_is_a_raw_batch() -> None:
    log = FakeLog()
    _, (request,) = calling(log, lambda client: client.append("a", 1, key="k", headers={"h": b"v"}, timestamp_ms=5))
    assert request.headers["content-type"] == "application/vnd.oncelog.batches"
    assert log.values("a") == [b"1"]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda client: client.append("a", 1, message_id=5), TypeError),
        (lambda client: client.append("a", 1, message_id=0), TypeError),
        (lambda client: client.append("a", [math.nan]), ValueError),
        (lambda client: client.commit([CommitAppend("a", [{"x": math.inf}])]), ValueError),
        (lambda client: client.commit([CommitAppend("a", [CommitRecord(math.nan)])]), ValueError),
    ],
)
def test_what_cannot_be_meant_is_refused_before_it_is_sent(
    call: Callable[[AsyncClient], Awaitable[object]], error: type[Exception]
) -> None:
    async def refused(client: AsyncClient) -> object:
        with pytest.raises(error, match=r"a message id is text|no NaN and no infinity"):
            await call(client)
        return None

    _, requests = calling(FakeLog(), refused)
    assert requests == []


def test_a_failed_condition_is_told_with_its_numbers() -> None:
    async def call(client: AsyncClient) -> object:
        with pytest.raises(ConditionFailed) as caught:
            await client.stream("a").append(1, expected_tail=4)
        return caught.value.number("tail")

    tail, _ = calling(lambda request: problem(412, "tail_mismatch", expected=4, tail=9), call)
    assert tail == 9


# --- streams -----------------------------------------------------------------------------------------------------


def test_a_stream_is_created_looked_at_closed_and_deleted() -> None:
    def script(request: Request) -> Reply:
        match request.method:
            case "PUT":
                return answer(201, Stream_Next_Offset="0000000000000000")
            case "HEAD":
                head = {"Content_Type": "text/plain", "Stream_Next_Offset": "0000000000000042", "Stream_Floor": 7}
                return answer(200, Stream_Closed="true", **head)  # type: ignore[arg-type]
            case "POST":
                return answer(204, Stream_Next_Offset="0000000000000042")
        return answer(204)

    async def call(client: AsyncClient) -> object:
        stream = client.stream("a", "text/plain")
        assert await stream.create(partitions=4, closed=True)
        head = await stream.head(partition=1)
        assert (head.content_type, head.next_offset, head.floor, head.closed) == ("text/plain", 42, 7, True)
        assert await stream.close() == 42
        await stream.delete()
        return None

    _, requests = calling(script, call)
    assert [request.method for request in requests] == ["PUT", "HEAD", "POST", "DELETE"]
    created = requests[0].headers
    assert (created["stream-partitions"], created["stream-closed"], created["content-type"]) == (
        "4",
        "true",
        "text/plain",
    )


def test_looking_at_a_missing_stream_says_so() -> None:
    async def call(client: AsyncClient) -> object:
        with pytest.raises(NotFound, match="there is no stream 'a'"):
            await client.stream("a").head()
        with pytest.raises(NotFound, match="there is no partition 3 of 'a'"):
            await client.stream("a").head(partition=3)
        return None

    calling(lambda request: answer(404, Content_Type="application/problem+json"), call)


# --- every path ----------------------------------------------------------------------------------------------------

STREAM = {"topic": "a", "partition": 0, "floor": 0, "stable": 5, "tail": 5, "closed": False}
STOOD = {"topic": "a", "partition": 0, "offset": 3, "floor": 0, "stable": 5}
PRODUCER = {"name": "p", "scope": "x", "epoch": 1, "last_sequence": 4, "first": 0, "next": 5, "used_ms": 9}
CURSOR = {
    "name": "c",
    "topic": "a",
    "partition": 0,
    "frontier": 5,
    "confirmed": [[7, 9]],
    "metadata": "",
    "pinned": False,
}
STAGE = {"stage_id": 3, "count": 2, "expires_ms": 9, "duplicate": False}
APPLICATION = {"fence": 2, "query": "q", "batch": 4, "source_end": "AAE="}
COMMITTED = {"outcome": [{"topic": "a", "partition": 0, "first": 1, "next": 2}], "duplicate": False, "producer": None}
RECEIPT = {"topic": "a", "partition": 0, "first": 1, "next": 2, "digest": "ab", "time_ms": 9, "removed": False}

CHANGED = {"name": "a", "partitions": 1}
NOTHING = answer(204)

Call = Callable[[AsyncClient], Awaitable[object]]

PATHS: list[tuple[Call, str, object, object]] = [
    (
        lambda c: c.create_topic("a/b", content_type=""),
        "PUT /v1/topics/a/b",
        {"partitions": 1, "content_type": ""},
        CHANGED,
    ),
    (lambda c: c.topic("a"), "GET /v1/topics/a", None, {"name": "a", "partitions": 1}),
    (lambda c: c.grow_topic("a", 4), "PATCH /v1/topics/a", {"partitions": 4}, CHANGED),
    (lambda c: c.configure_topic("a", dedupe_floor_ms=-1), "PATCH /v1/topics/a", {"dedupe_floor_ms": -1}, CHANGED),
    (lambda c: c.trim("a", 5), "POST /v1/topics/a/trim", {"partition": 0, "floor": 5, "force": False}, STREAM),
    (
        lambda c: c.delete_records("a", [(1, 2)]),
        "POST /v1/topics/a/delete-records",
        {"partition": 0, "ranges": [[1, 2]]},
        STREAM,
    ),
    (lambda c: c.streams("a", limit=5), "GET /v1/streams?prefix=a&limit=5", None, {"streams": [STREAM], "next": "b"}),
    (lambda c: c.cut(), "GET /v1/cut", None, {"entry": 1, "time_ms": 2, "streams": [STREAM]}),
    (lambda c: c.cut("a", "ä&"), "GET /v1/cut?topic=ä&", None, {"entry": 1, "time_ms": 2, "streams": []}),
    (lambda c: c.call("GET", "/v1/any", {"partition": 2}), "GET /v1/any?partition=2", None, {}),
    (lambda c: c.offsets_at("a", entry=7), "GET /v1/offsets?entry=7&topic=a", None, {"streams": [STOOD]}),
    (lambda c: c.offsets_at(time_ms=7), "GET /v1/offsets?time_ms=7", None, {"streams": []}),
    (lambda c: c.receipt("a", "id/1"), "GET /v1/receipts/a/id/1?partition=0", None, RECEIPT),
    (lambda c: c.producer_info("a", "p"), "GET /v1/producers/a/p?partition=0&scope=x", None, PRODUCER),
    (lambda c: c.commit_producer_info("p"), "GET /v1/commit/producers/p", None, PRODUCER),
    (lambda c: c.producers("a"), "GET /v1/producers?topic=a&partition=0", None, {"producers": [], "next": None}),
    (lambda c: c.cursors(after="b"), "GET /v1/cursors?after=b", None, {"cursors": [CURSOR], "next": None}),
    (lambda c: c.cursor("c", "a"), "GET /v1/cursors/c/a?partition=0", None, CURSOR),
    (
        lambda c: c.move_cursor("c", "a", 5, metadata="m"),
        "PUT /v1/cursors/c/a?partition=0",
        {"frontier": 5, "metadata": "m", "pinned": False},
        NOTHING,
    ),
    (lambda c: c.delete_cursor("c", "a"), "DELETE /v1/cursors/c/a?partition=0", None, NOTHING),
    (lambda c: c.open_application("app"), "POST /v1/applications/app", {}, APPLICATION),
    (lambda c: c.application("app"), "GET /v1/applications/app", None, APPLICATION),
    (
        lambda c: c.open_stage("app", 2, content_type="application/json"),
        "POST /v1/stages",
        {"application": "app", "fence": 2, "ttl_ms": 0, "content_type": "application/json"},
        STAGE,
    ),
    (lambda c: c.drop_stages([3]), "POST /v1/stages/drop", {"stage_ids": [3]}, NOTHING),
    (
        lambda c: c.publish("app", 2, "q", 5, [PublishStage(3, "a", 2)], source_end=b"\x00\x01"),
        "POST /v1/publish",
        {
            "application": "app",
            "fence": 2,
            "query": "q",
            "batch": 5,
            "stages": [{"stage_id": 3, "topic": "a", "count": 2, "partition": 0, "message_ids": False}],
            "source_start": "",
            "source_end": "AAE=",
            "accept_new_query": False,
            "cursors": [],
        },
        COMMITTED,
    ),
    (lambda c: c.health(), "GET /health", None, {"status": "ok", "durability": "none", "version": "1", "entry": 2}),
    (lambda c: c.metrics(), "GET /metrics", None, {}),
    (lambda c: c.openapi(), "GET /v1/openapi.json", None, {"openapi": "3.1.0"}),
]  # fmt: skip


@pytest.mark.parametrize(("call", "target", "body", "reply"), PATHS, ids=[path[1] for path in PATHS])
def test_a_call_is_its_path_and_its_members(call: Call, target: str, body: object, reply: object) -> None:
    _, (request,) = calling(lambda request: reply if isinstance(reply, bytes) else json_answer(reply), call)
    query = "&".join(f"{name}={value}" for name, value in request.query.items())
    assert f"{request.method} {request.path}" + (f"?{query}" if query else "") == target
    assert (msgspec.json.decode(request.body) if request.body else None) == body


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.receipt("a", "m"),
        lambda c: c.producer_info("a", "p"),
        lambda c: c.cursor("c", "a"),
        lambda c: c.application("x"),
        lambda c: c.delete_cursor("c", "a"),
    ],
)
def test_what_may_not_exist_is_none_if_our_server_says_so(call: Call) -> None:
    result, _ = calling(lambda request: problem(404, "not_found"), call)
    assert result is None
    with pytest.raises(NotFound):
        calling(lambda request: answer(404), call)


def test_a_missing_topic_is_always_an_error() -> None:
    with pytest.raises(NotFound):
        calling(lambda request: problem(404, "topic_missing"), lambda client: client.receipt("a", "m"))


def test_stages_take_raw_batches_at_a_count() -> None:
    _, (request,) = calling(lambda request: json_answer(STAGE), lambda client: client.stage_records(3, 0, [b"a", b"b"]))
    assert (request.path, request.query) == ("/v1/stages/3", {"at": "0"})
    assert request.headers["content-type"] == "application/vnd.oncelog.batches"


def test_more_values_than_a_batch_holds_are_told_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="1,048,577 values are more than one batch holds, 1,048,576: stage them in se"):
        calling(lambda request: json_answer(STAGE), lambda client: client.stage_records(3, 0, [b""] * (2**20 + 1)))


# --- commits -----------------------------------------------------------------------------------------------------


def test_a_commit_says_everything_by_the_names_of_the_protocol() -> None:
    async def call(client: AsyncClient) -> object:
        return await client.commit(
            [
                CommitAppend("a", [{"n": 1}, "text", b"\x00\x01"], message_id="m"),
                CommitAppend(
                    "b", [CommitRecord(7, key=b"\x00", headers={"h": "v", "n": None}, timestamp_ms=5)], partition=2
                ),
            ],
            cursors=[CursorMove("c", "a", 42)],
            conditions=[
                ExpectedTail("a", 41),
                StreamNew("x"),
                CursorEquals("c", "a", 40),
                IdKnown("a", "m0"),
                EpochEquals("a", "http:p", 1),
            ],
            producer=CommitProducer("shop", 1, 12),
        )

    result, (request,) = calling(lambda request: json_answer(COMMITTED), call)
    assert result.outcome[0].next == 2  # type: ignore[attr-defined]
    assert msgspec.json.decode(request.body) == {
        "appends": [
            {
                "topic": "a",
                "partition": 0,
                "message_id": "m",
                "records": [{"json": {"n": 1}}, {"value": "text"}, {"base64": "AAE="}],
            },
            {
                "topic": "b",
                "partition": 2,
                "records": [
                    {"json": 7, "key": {"base64": "AA=="}, "headers": {"h": "v", "n": None}, "timestamp_ms": 5}
                ],
            },
        ],
        "cursors": [{"name": "c", "topic": "a", "frontier": 42, "partition": 0, "metadata": "", "pinned": False}],
        "conditions": [
            {"kind": "expected_tail", "topic": "a", "tail": 41, "partition": 0},
            {"kind": "stream_new", "topic": "x", "partition": 0},
            {"kind": "cursor_equals", "name": "c", "topic": "a", "frontier": 40, "partition": 0},
            {"kind": "id", "topic": "a", "message_id": "m0", "present": True, "partition": 0},
            {"kind": "epoch_equals", "topic": "a", "producer": "http:p", "epoch": 1, "partition": 0},
        ],
        "producer": {"name": "shop", "epoch": 1, "sequence": 12},
    }  # fmt: skip


def test_a_commit_without_a_claim_gets_an_id_and_keeps_it_over_retries() -> None:
    lost = iter([CUT, CUT])
    _, requests = calling(
        lambda request: next(lost, json_answer(COMMITTED)), lambda client: client.commit([CommitAppend("a", [1])])
    )
    ids = {msgspec.json.decode(request.body)["commit_id"] for request in requests}
    assert (len(requests), len(ids), ids.pop() != "") == (3, 1, True)


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.append("a", 1, message_id=""),
        lambda c: c.commit([CommitAppend("a", [1], message_id="")]),
        lambda c: c.producer("a", producer_id="p").append(1, message_id=""),
        lambda c: c.producer("a", producer_id="").append(1),
        lambda c: c.producer("a", producer_id="p", session="").append(1),
        lambda c: c.producer("a", producer_id="p", dead_letter="").append(1),
    ],
)
def test_empty_id_or_name_is_refused_and_not_taken_for_none(call: Call) -> None:
    """It comes from a row that lacks it. Under a random id the retry would be written a second time."""

    async def main(client: AsyncClient) -> object:
        with pytest.raises(ValueError, match="not empty"):
            await call(client)
        return None

    _, requests = calling(lambda request: answer(204), main)
    assert not requests
