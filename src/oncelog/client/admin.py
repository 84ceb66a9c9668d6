"""Every call that is not a stream of records: topics, listings, cursors, receipts, commits, stages. One method a path.

Each may be repeated safely and is, see `oncelog.client.calls`. A commit without a claim of its own gets a random commit
id for that. Lookups of things that may not exist answer None; a missing topic is always `NotFound`.
"""

import uuid
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from oncelog.client.calls import Caller, decoded, done
from oncelog.client.errors import NotFound, naming_commits, refusal_of
from oncelog.client.models import (
    Application,
    CommitAppend,
    CommitProducer,
    CommitResult,
    Condition,
    CursorInfo,
    CursorMove,
    CursorPage,
    Cut,
    Health,
    ProducerInfo,
    ProducerPage,
    PublishStage,
    Receipt,
    Scope,
    Stage,
    StoodAt,
    StoodPage,
    StreamInfo,
    StreamPage,
    TopicInfo,
    record_members,
)
from oncelog.client.packing import Packer, check_id
from oncelog.client.stream import AsyncStream
from oncelog.client.wire import BATCHES, name_path, target, topic_path
from oncelog.limits import BATCH_RECORDS_MAX

Shape = TypeVar("Shape")


def _given(**members: object) -> dict[str, object]:
    return {name: value for name, value in members.items() if value is not None}


class Admin:
    """Calls to one server."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def _found(
        self, shape: type[Shape], path: str, query: dict[str, str | int | None] | None = None
    ) -> Shape | None:
        try:
            return await self._caller.json(shape, "GET", path, query)
        except NotFound as error:
            # Only our server's own word. A page that a proxy does not have says nothing about a cursor, and a reader
            # that believed it would begin anew.
            if error.code != "not_found":
                raise
            return None

    # --- topics ---------------------------------------------------------------------------------------------------

    async def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        content_type: str = "application/json",
        dedupe_floor_ms: int | None = None,
        duplicate_window_ms: int | None = None,
        id_zone: str | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_records: int | None = None,
    ) -> bool:
        """Creates the topic; False if the same one is there already. `Conflict` if another one is."""
        settings = _given(
            dedupe_floor_ms=dedupe_floor_ms,
            duplicate_window_ms=duplicate_window_ms,
            id_zone=id_zone,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            retention_records=retention_records,
        )
        body = {"partitions": partitions, "content_type": content_type, **settings}
        path = f"/v1/topics/{topic_path(topic)}"
        answer = await self._caller.call("PUT", path, body=msgspec.json.encode(body))
        decoded(answer, TopicInfo)
        return answer.status == 201

    async def topic(self, topic: str) -> TopicInfo:
        """The settings of a topic."""
        return await self._caller.json(TopicInfo, "GET", f"/v1/topics/{topic_path(topic)}")

    async def grow_topic(self, topic: str, partitions: int) -> None:
        """Adds partitions until there are so many."""
        await self._change_topic(topic, {"partitions": partitions})

    async def configure_topic(
        self,
        topic: str,
        *,
        content_type: str | None = None,
        dedupe_floor_ms: int | None = None,
        duplicate_window_ms: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_records: int | None = None,
    ) -> None:
        """Replaces the settings that are given. A retention of 0 is no limit."""
        settings = _given(
            content_type=content_type,
            dedupe_floor_ms=dedupe_floor_ms,
            duplicate_window_ms=duplicate_window_ms,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            retention_records=retention_records,
        )
        await self._change_topic(topic, settings)

    async def _change_topic(self, topic: str, changes: dict[str, object]) -> None:
        path = f"/v1/topics/{topic_path(topic)}"
        decoded(await self._caller.call("PATCH", path, body=msgspec.json.encode(changes)), TopicInfo)

    async def delete_topic(self, topic: str) -> None:
        """Unlinks the name, all partitions. `NotFound` if there is no such topic."""
        await AsyncStream(self._caller, topic).delete()

    async def trim(self, topic: str, floor: int, *, partition: int = 0, force: bool = False) -> StreamInfo:
        """Removes every record below `floor`. Pinned cursors forbid it unless it is forced."""
        body = {"partition": partition, "floor": floor, "force": force}
        return await self._caller.json(StreamInfo, "POST", f"/v1/topics/{topic_path(topic)}/trim", body=body)

    async def delete_records(
        self, topic: str, ranges: Sequence[tuple[int, int]], *, partition: int = 0
    ) -> StreamInfo:  # fmt: skip
        """Removes single records: offsets in [first, next) of each range."""
        body = {"partition": partition, "ranges": [list(pair) for pair in ranges]}
        path = f"/v1/topics/{topic_path(topic)}/delete-records"
        return await self._caller.json(StreamInfo, "POST", path, body=body)

    # --- what is there ------------------------------------------------------------------------------------------------

    async def streams(self, prefix: str = "", *, after: str | None = None, limit: int | None = None) -> StreamPage:
        """Partitions of the topics whose names begin so, a page at a time."""
        query = {"prefix": prefix or None, "after": after, "limit": limit}
        return await self._caller.json(StreamPage, "GET", "/v1/streams", query)

    async def cut(self, *topics: str) -> Cut:
        """Where these topics, or all, stand at one instant."""
        return await self._caller.json(Cut, "GET", f"/v1/cut{_named(topics)}")

    async def offsets_at(self, *topics: str, entry: int | None = None, time_ms: int | None = None) -> list[StoodAt]:
        """Where these topics, or all, stood behind an entry (of a `cut`), or before what came from a time on."""
        moment = {"entry": entry} if entry is not None else {"time_ms": time_ms}
        query = _named(topics, **moment)
        return (await self._caller.json(StoodPage, "GET", f"/v1/offsets{query}")).streams

    async def receipt(self, topic: str, message_id: str, *, partition: int = 0) -> Receipt | None:
        """What became of a message id; None if it is unknown."""
        path = f"/v1/receipts/{topic_path(topic)}/{name_path(message_id)}"
        return await self._found(Receipt, path, {"partition": partition})

    async def producer_info(
        self, topic: str, name: str, *, partition: int = 0, scope: Scope = "x"
    ) -> ProducerInfo | None:  # fmt: skip
        """What the server remembers of a producer; None if nothing."""
        path = f"/v1/producers/{topic_path(topic)}/{name_path(name)}"
        return await self._found(ProducerInfo, path, {"partition": partition, "scope": scope})

    async def commit_producer_info(self, name: str) -> ProducerInfo | None:
        """The same for a producer of commits."""
        return await self._found(ProducerInfo, f"/v1/commit/producers/{name_path(name)}")

    async def producers(
        self, topic: str, *, partition: int = 0, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> ProducerPage:
        """The producers of a stream, a page at a time."""
        query: dict[str, str | int | None] = {"topic": topic, "partition": partition, "prefix": prefix or None}
        query |= {"after": after, "limit": limit}
        return await self._caller.json(ProducerPage, "GET", "/v1/producers", query)

    # --- cursors ------------------------------------------------------------------------------------------------------

    async def cursors(self, prefix: str = "", *, after: str | None = None, limit: int | None = None) -> CursorPage:
        """Cursors whose names begin so, a page at a time."""
        query = {"prefix": prefix or None, "after": after, "limit": limit}
        return await self._caller.json(CursorPage, "GET", "/v1/cursors", query)

    async def cursor(self, name: str, topic: str, *, partition: int = 0) -> CursorInfo | None:
        """Where a cursor stands; None if there is none."""
        return await self._found(CursorInfo, _cursor_path(name, topic), {"partition": partition})

    async def move_cursor(
        self, name: str, topic: str, frontier: int, *, partition: int = 0, metadata: str = "", pinned: bool = False
    ) -> None:
        """Says that everything below `frontier` is processed. A pinned cursor keeps records from being trimmed."""
        body = {"frontier": frontier, "metadata": metadata, "pinned": pinned}
        path = target(_cursor_path(name, topic), {"partition": partition})
        done(await self._caller.call("PUT", path, body=msgspec.json.encode(body)))

    async def delete_cursor(self, name: str, topic: str, *, partition: int = 0) -> None:
        """Forgets a cursor; it need not be there."""
        path = _cursor_path(name, topic)
        answer, _ = await self._caller.answer("DELETE", path, {"partition": partition})
        if answer.status < 400:
            done(answer)
        elif (refusal := refusal_of(answer)).code not in ("not_found", "topic_missing"):
            raise refusal

    # --- commits ------------------------------------------------------------------------------------------------------

    async def commit(
        self,
        appends: Sequence[CommitAppend] = (),
        *,
        cursors: Sequence[CursorMove] = (),
        conditions: Sequence[Condition] = (),
        commit_id: str | None = None,
        producer: CommitProducer | None = None,
    ) -> CommitResult:
        """All of it at one instant, or none. `ConditionFailed` names the condition that does not hold."""
        for append in appends:
            if append.message_id is not None:
                check_id(append.message_id)
        if commit_id is None and producer is None:
            commit_id = uuid.uuid4().hex
        body: dict[str, object] = {
            "appends": [
                _given(
                    topic=append.topic,
                    partition=append.partition,
                    message_id=append.message_id,
                    records=[record_members(record) for record in append.records],
                )
                for append in appends
            ],
            "cursors": cursors,
            "conditions": conditions,
            **_given(commit_id=commit_id, producer=producer),
        }
        name, sequence = (None, None) if producer is None else (producer.name, producer.sequence)
        with naming_commits(commit_id, name, sequence):
            return await self._caller.json(CommitResult, "POST", "/v1/commit", body=body)

    # --- stages -------------------------------------------------------------------------------------------------------

    async def open_application(self, name: str) -> Application:
        """A driver starts: every driver before it is fenced. A retry fences its own first attempt, which is nobody."""
        return await self._caller.json(Application, "POST", f"/v1/applications/{name_path(name)}", body={})

    async def application(self, name: str) -> Application | None:
        """The same without fencing; None if it never started."""
        return await self._found(Application, f"/v1/applications/{name_path(name)}")

    async def open_stage(
        self, application: str = "", fence: int = 0, *, ttl_ms: int = 0, content_type: str = ""
    ) -> Stage:  # fmt: skip
        """A place to upload records to. One that is never published goes by itself.

        The content type is that of the streams it will be published into; JSON streams take only stages of JSON.
        """
        body = {"application": application, "fence": fence, "ttl_ms": ttl_ms, "content_type": content_type}
        return await self._caller.json(Stage, "POST", "/v1/stages", body=body)

    async def append_stage(self, stage_id: int, at: int, batch: bytes) -> Stage:
        """Adds one raw batch to a stage that holds `at` records, so that a retry is recognised."""
        headers = {"Content-Type": BATCHES}
        answer = await self._caller.call("POST", f"/v1/stages/{stage_id}", {"at": at}, headers=headers, body=batch)
        return decoded(answer, Stage)

    async def stage_records(self, stage_id: int, at: int, values: Sequence[bytes]) -> Stage:
        """`append_stage` for values without keys."""
        if len(values) > BATCH_RECORDS_MAX:
            what = f"{len(values):,} values are more than one batch holds, {BATCH_RECORDS_MAX:,}"
            raise ValueError(f"{what}: stage them in several calls, each at the count of the one before")
        packer = Packer("application/octet-stream", raw_batches=True)
        return await self.append_stage(stage_id, at, packer.body(packer.form(b""), [bytes(value) for value in values]))

    async def drop_stages(self, stage_ids: Sequence[int]) -> None:
        """Frees stages that will not be published."""
        body = msgspec.json.encode({"stage_ids": list(stage_ids)})
        done(await self._caller.call("POST", "/v1/stages/drop", body=body))

    async def publish(
        self,
        application: str,
        fence: int,
        query: str,
        batch: int,
        stages: Sequence[PublishStage],
        *,
        source_start: bytes = b"",
        source_end: bytes = b"",
        accept_new_query: bool = False,
        cursors: Sequence[CursorMove] = (),
    ) -> CommitResult:
        """Makes stages visible, all at one instant, once per batch of the query."""
        body = {
            "application": application,
            "fence": fence,
            "query": query,
            "batch": batch,
            "stages": stages,
            "source_start": source_start,
            "source_end": source_end,
            "accept_new_query": accept_new_query,
            "cursors": cursors,
        }
        return await self._caller.json(CommitResult, "POST", "/v1/publish", body=body)

    # --- the server -------------------------------------------------------------------------------------------------

    async def health(self) -> Health:
        """The server's word about itself."""
        return await self._caller.json(Health, "GET", "/health")

    async def metrics(self) -> str:
        """Prometheus text."""
        return (await self._caller.call("GET", "/metrics")).body.decode()

    async def openapi(self) -> dict[str, Any]:
        """The server's description of its own paths."""
        return await self._caller.json(dict[str, Any], "GET", "/v1/openapi.json")


def _named(topics: Sequence[str], **members: int | None) -> str:
    """A query that names topics, and numbers that are given."""
    pairs = [f"{name}={value}" for name, value in members.items() if value is not None]
    pairs += [f"topic={name_path(topic)}" for topic in topics]
    return f"?{'&'.join(pairs)}" if pairs else ""


def _cursor_path(name: str, topic: str) -> str:
    return f"/v1/cursors/{name_path(name)}/{topic_path(topic)}"
