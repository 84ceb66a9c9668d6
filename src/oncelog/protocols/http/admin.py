"""Everything that is not a stream of records: commits, receipts, producers, cursors, topics, stages. JSON both ways.

Each function takes a request and gives an action; what an outcome looks like in JSON stands beside the path it belongs
to. Names of members are the ones of `docs/protocols/http.md` and of the OpenAPI description.
"""

import base64
from collections.abc import Callable
from typing import Any, Final

import msgspec

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core import command as c
from oncelog.core import outcome as o
from oncelog.core.content_type import ANY, BATCHES
from oncelog.core.message_id import content_digest
from oncelog.core.names import ROW_ID_MAX
from oncelog.core.rows import Cursor, Topic, TopicConfig
from oncelog.protocols.http import answers
from oncelog.protocols.http.actions import (
    Action,
    ListCursors,
    ListProducers,
    ListStreams,
    PublishNamed,
    Receipt,
    Submit,
)
from oncelog.protocols.http.append import content_type_of, raw_batch
from oncelog.protocols.http.claims import HeaderInvalid, refuse_of_one_append, text_of
from oncelog.protocols.http.commit_body import CursorBody, commit_of, move_of, parsed, publish_of
from oncelog.protocols.http.refusal_map import problem_of
from oncelog.protocols.http.request import Request
from oncelog.protocols.http.target import Query, TargetInvalid, digits

NameOf = Callable[[int], tuple[str, int]]
"""Topic and partition of a stream id."""

SCOPES: Final = ("http", "x", "kafka", "commit")
MS: Final = 1_000_000


def rendered(kind: type[o.Done], render: Callable[[Any], bytes]) -> Callable[[o.Outcome], bytes]:
    """The answer of an outcome of this kind; any other is a refusal."""

    def answer(outcome: o.Outcome) -> bytes:
        if isinstance(outcome, kind):
            return render(outcome)
        assert isinstance(outcome, o.Refusal), outcome
        return problem_of(outcome)

    return answer


def partition_of(query: Query) -> int:
    """Which partition; 0 if none is named."""
    return query.number("partition", 0, low=0, high=limits.PARTITIONS_MAX - 1)


def _page(query: Query) -> tuple[str, str, int]:
    """(prefix, after, limit) of a listing."""
    texts = []
    for name in ("prefix", "after"):
        text = query.text(name) or ""
        if "\0" in text or len(text.encode()) > limits.TOPIC_NAME_BYTES_MAX + 20:
            raise TargetInvalid(f"{name} is longer than any name, or holds a NUL")
        texts.append(text)
    limit = query.number("limit", limits.HTTP_LIST_DEFAULT, low=1, high=limits.HTTP_LIST_MAX)
    return texts[0], texts[1], limit


# --- commits and publishes -----------------------------------------------------------------------------------------


def commit(request: Request, now_ms: int, name_of: NameOf) -> Action:
    """`POST /v1/commit`. Its claims and conditions are in its body: one in a header would be lost, and its retry be
    written again. Only Idempotency-Key, which is no word of ours, means what its sender expects: the commit id."""
    headers = request.headers
    refuse_of_one_append(headers, "of a commit it stands in the body")
    command = commit_of(request.body, now_ms)
    key = text_of(headers, b"idempotency-key")
    if key == "":
        raise HeaderInvalid("Idempotency-Key is empty: a retry would be another commit")
    if key is not None and command.commit_id not in ("", key):
        raise HeaderInvalid("Idempotency-Key is the commit's id, and the body names another one as commit_id")
    command.commit_id = command.commit_id or key or ""
    return Submit(command, rendered(o.CommitConfirmed, lambda done: _committed(done, name_of)))


def publish(request: Request, name_of: NameOf) -> Action:
    """`POST /v1/publish`."""
    command = publish_of(request.body)
    kind = PublishNamed if any(item.named for item in command.stages) else Submit
    return kind(command, rendered(o.CommitConfirmed, lambda done: _committed(done, name_of)))


def _committed(done: o.CommitConfirmed, name_of: NameOf) -> bytes:
    # A duplicate may name its streams in another order, or none if it is too old: names come from the outcome alone.
    flat = done.outcome
    outcome = []
    for at in range(0, len(flat), 3):
        topic, partition = name_of(flat[at])
        outcome.append({"topic": topic, "partition": partition, "first": flat[at + 1], "next": flat[at + 2]})
    body: dict[str, object] = {"outcome": outcome, "duplicate": done.duplicate, "producer": None}
    if done.epoch >= 0:
        body["producer"] = {"epoch": done.epoch, "sequence": done.sequence}
    return answers.json(body)


# --- receipts and producers ----------------------------------------------------------------------------------------


def receipt(topic: str, message_id: str, query: Query) -> Action:
    """`GET /v1/receipts/<topic>/<id>`."""
    return Receipt(topic, partition_of(query), message_id.encode())


def receipt_answer(topic: str, partition: int, found: o.ReceiptFound, producer: tuple[str, int, int] | None) -> bytes:
    """What became of an id. `producer` is (scoped name, epoch, sequence)."""
    written_by = None
    if producer is not None:
        written_by = {"name": producer[0], "epoch": producer[1], "sequence": producer[2]}
    return answers.json(
        {
            "topic": topic,
            "partition": partition,
            "first": found.first,
            "next": found.next,
            "digest": found.digest.hex(),
            "time_ms": found.time_ms,
            "removed": found.gone,
            "producer": written_by,
        }
    )


def producer(topic: str, name: str, query: Query) -> Action:
    """`GET /v1/producers/<topic>/<name>`."""
    scope = query.text("scope") or "http"
    if scope not in SCOPES:
        raise TargetInvalid(f"scope is one of {', '.join(SCOPES)}, not {scope[:40]!r}")
    command = c.GetProducer(topic, partition_of(query), f"{scope}:{name}")
    return Submit(command, rendered(o.ProducerFound, lambda found: answers.json(producer_row(command.name, found))))


def commit_producer(name: str) -> Action:
    """`GET /v1/commit/producers/<name>`."""
    command = c.GetProducer("", 0, f"commit:{name}")
    return Submit(command, rendered(o.ProducerFound, lambda found: answers.json(producer_row(command.name, found))))


def producer_row(scoped: str, found: o.ProducerFound) -> dict[str, object]:
    """A producer in JSON."""
    scope, _, name = scoped.partition(":")
    return {
        "name": name,
        "scope": scope,
        "epoch": found.epoch,
        "last_sequence": found.last_sequence,
        "first": found.first,
        "next": found.next,
        "used_ms": found.used_ns // MS,
    }


# --- listings ------------------------------------------------------------------------------------------------------


def list_streams(query: Query) -> Action:
    """`GET /v1/streams`."""
    return ListStreams(*_page(query))


def list_producers(query: Query) -> Action:
    """`GET /v1/producers`."""
    topic = query.text("topic")
    if not topic:
        raise TargetInvalid("topic names the stream whose producers are listed")
    return ListProducers(topic, partition_of(query), *_page(query))


def list_cursors(query: Query) -> Action:
    """`GET /v1/cursors`."""
    prefix, after, limit = _page(query)
    name, _, number = after.rpartition("/")
    stream_id = digits(number)
    if after and (not name or stream_id is None or stream_id > ROW_ID_MAX):
        raise TargetInvalid("after is the next of the page before")
    return ListCursors(prefix, (name, stream_id) if stream_id is not None else None, limit)


def listed(what: str, rows: list[dict[str, object]], next_: str | None) -> bytes:
    """A page and where the next one begins; None behind the last."""
    return answers.json({what: rows, "next": next_})


def cursor_row(name: str, topic: str, partition: int, cursor: Cursor) -> dict[str, object]:
    """A cursor in JSON."""
    flat = cursor.confirmed
    return {
        "name": name,
        "topic": topic,
        "partition": partition,
        "frontier": cursor.frontier,
        "confirmed": [[flat[at], flat[at + 1]] for at in range(0, len(flat), 2)],
        "metadata": cursor.metadata,
        "pinned": cursor.pinned,
        "used_ms": cursor.used_ns // MS,
    }


# --- cursors -------------------------------------------------------------------------------------------------------


class _CursorPut(msgspec.Struct, forbid_unknown_fields=True):
    frontier: int
    metadata: str = ""
    pinned: bool = False


def cursor(request: Request, name: str, topic: str, query: Query) -> Action:
    """`GET | PUT | DELETE /v1/cursors/<name>/<topic>`."""
    partition = partition_of(query)

    def found(done: o.CursorDone) -> bytes:
        if done.cursor is None:
            return problem_of(o.NotFound("cursor"))
        return answers.json(cursor_row(name, topic, partition, done.cursor))

    if request.method == b"PUT":
        body: _CursorPut = parsed(request.body, _CursorPut)
        move = move_of(CursorBody(name, topic, body.frontier, partition, body.metadata, body.pinned))
        return Submit(c.MoveCursors([move]), rendered(o.CommitConfirmed, lambda _: answers.empty(204)))
    if request.method == b"DELETE":
        command = c.DeleteCursor(name, topic, partition)
        return Submit(command, rendered(o.CursorDone, lambda _: answers.empty(204)))
    return Submit(c.GetCursor(name, topic, partition), rendered(o.CursorDone, found))


# --- topics --------------------------------------------------------------------------------------------------------


class _TopicPut(msgspec.Struct, forbid_unknown_fields=True):
    partitions: int = 1
    content_type: str = ANY
    dedupe_floor_ms: int = limits.DEDUPE_FLOOR_MS_DEFAULT
    duplicate_window_ms: int = 0
    id_zone: str = ""
    retention_ms: int = 0
    retention_bytes: int = 0
    retention_records: int = 0


class _TopicPatch(msgspec.Struct, forbid_unknown_fields=True):
    partitions: int | None = None
    content_type: str | None = None
    dedupe_floor_ms: int | None = None
    duplicate_window_ms: int | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    retention_records: int | None = None


class _Trim(msgspec.Struct, forbid_unknown_fields=True):
    floor: int
    partition: int = 0
    force: bool = False


class _DeleteRecords(msgspec.Struct, forbid_unknown_fields=True):
    ranges: list[tuple[int, int]]
    partition: int = 0


_CHANGEABLE: Final = tuple(name for name in _TopicPatch.__struct_fields__ if name != "partitions")


def topic_row(topic: Topic) -> dict[str, object]:
    """A topic in JSON."""
    config = topic.config
    return {
        "name": topic.name,
        "partitions": len(topic.stream_ids),
        "content_type": config.content_type,
        "dedupe_floor_ms": config.dedupe_floor_ms,
        "duplicate_window_ms": config.duplicate_window_ms,
        "id_zone": config.id_zone,
        "retention_ms": config.retention_ms,
        "retention_bytes": config.retention_bytes,
        "retention_records": config.retention_records,
        "created_ms": topic.created_ns // MS,
    }


def get_topic(name: str) -> Action:
    """`GET /v1/topics/<topic>`."""
    return Submit(c.GetTopic(name), rendered(o.TopicFound, lambda found: answers.json(topic_row(found.topic))))


def put_topic(request: Request, name: str) -> Action:
    """`PUT /v1/topics/<topic>`."""
    body: _TopicPut = parsed(request.body or b"{}", _TopicPut)
    config = TopicConfig(
        body.content_type,
        body.dedupe_floor_ms,
        body.duplicate_window_ms,
        body.id_zone,
        retention_ms=body.retention_ms,
        retention_bytes=body.retention_bytes,
        retention_records=body.retention_records,
    )
    command = c.CreateTopic(name, body.partitions, config)
    return Submit(
        command,
        rendered(
            o.TopicDone,
            lambda done: answers.json({"name": name, "partitions": len(done.stream_ids)}, 201 if done.changed else 200),
        ),
    )


def patch_topic(request: Request, name: str) -> Action:
    """`PATCH /v1/topics/<topic>`: grow it, or replace settings. One or the other: each is a change of its own."""
    body: _TopicPatch = parsed(request.body, _TopicPatch)
    settings = {field: value for field in _CHANGEABLE if (value := getattr(body, field)) is not None}
    if body.partitions is None and not settings:
        raise TargetInvalid(f"nothing is named to change: partitions, or some of {', '.join(_CHANGEABLE)}")
    if body.partitions is not None and settings:
        raise TargetInvalid("a PATCH names partitions, or other settings, not both")
    command: c.Command
    if body.partitions is not None:
        command = c.AddPartitions(name, body.partitions)
    else:
        command = c.ConfigureTopic(name, changes=settings)
    return Submit(
        command, rendered(o.TopicDone, lambda done: answers.json({"name": name, "partitions": len(done.stream_ids)}))
    )


def trim(request: Request, name: str) -> Action:
    """`POST /v1/topics/<topic>/trim`."""
    body: _Trim = parsed(request.body, _Trim)
    command = c.Trim(name, body.partition, body.floor, body.force)
    return Submit(command, rendered(o.StreamDone, lambda done: _stream_done(name, body.partition, done)))


def delete_records(request: Request, name: str) -> Action:
    """`POST /v1/topics/<topic>/delete-records`."""
    body: _DeleteRecords = parsed(request.body, _DeleteRecords)
    flat = [number for pair in body.ranges for number in pair]
    command = c.DeleteRecords(name, body.partition, flat)
    return Submit(command, rendered(o.StreamDone, lambda done: _stream_done(name, body.partition, done)))


def _stream_done(topic: str, partition: int, done: o.StreamDone) -> bytes:
    return answers.json(
        {
            "topic": topic,
            "partition": partition,
            "floor": done.floor,
            "stable": done.stable,
            "tail": done.tail,
            "closed": done.closed,
        }
    )


# --- stages and applications ---------------------------------------------------------------------------------------


class _StagePost(msgspec.Struct, forbid_unknown_fields=True):
    application: str = ""
    fence: int = 0
    ttl_ms: int = 0
    content_type: str = ""


class _Drop(msgspec.Struct, forbid_unknown_fields=True):
    stage_ids: list[int]


def open_application(name: str) -> Action:
    """`POST /v1/applications/<name>`."""

    def opened(done: o.ApplicationDone) -> bytes:
        return _application(done.fence, done.query, done.batch, done.source_end)

    return Submit(c.OpenApplication(name), rendered(o.ApplicationDone, opened))


def get_application(name: str) -> Action:
    """`GET /v1/applications/<name>`."""

    def found(done: o.ApplicationFound) -> bytes:
        row = done.application
        return _application(row.fence, row.query, row.batch, row.source_end)

    return Submit(c.GetApplication(name), rendered(o.ApplicationFound, found))


def _application(fence: int, query: str, batch: int, source_end: bytes) -> bytes:
    end = base64.b64encode(source_end).decode()
    return answers.json({"fence": fence, "query": query, "batch": batch, "source_end": end})


def open_stage(request: Request) -> Action:
    """`POST /v1/stages`."""
    body: _StagePost = parsed(request.body or b"{}", _StagePost)
    command = c.OpenStage(body.application, body.fence, body.ttl_ms, body.content_type)
    return Submit(command, rendered(o.StageDone, _stage_done))


def append_stage(request: Request, stage_id: int, query: Query) -> Action:
    """`POST /v1/stages/<id>?at=<count>`."""
    if query.text("at") is None:
        raise TargetInvalid("at is the number of records that the stage holds: so a retry is recognised")
    at = query.number("at", 0, low=0, high=limits.SEQUENCE_MAX)
    if content_type_of(request.headers)[1] != BATCHES:
        raise HeaderInvalid(f"a stage takes record batches: Content-Type is {BATCHES}")
    batch, count = raw_batch(request.body)
    # By the records as they were sent: nobody but this sender knows the stage, so no value need be taken out. Without
    # the times in front of them: who encodes the same records again, a moment later, sends a retry.
    digest = content_digest(memoryview(batch)[codec.PRODUCER_ID_AT :])
    command = c.AppendStage(stage_id, at, batch, count, digest)
    return Submit(command, rendered(o.StageDone, _stage_done))


def drop_stages(request: Request) -> Action:
    """`POST /v1/stages/drop`."""
    body: _Drop = parsed(request.body, _Drop)
    return Submit(c.DropStages(body.stage_ids), rendered(o.CommitConfirmed, lambda _: answers.empty(204)))


def _stage_done(done: o.StageDone) -> bytes:
    return answers.json(
        {
            "stage_id": done.stage_id,
            "count": done.count,
            "expires_ms": done.expires_ns // MS,
            "duplicate": done.duplicate,
        }
    )
