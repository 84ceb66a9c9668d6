"""One stream by its name: create, append, close, look, delete. Appends are idempotent without being asked.

An append without a message id gets a random one, so that its retries are recognised; a given id is recognised for as
long as the server remembers it, whoever sends it again.
"""

import uuid
from typing import Final

import msgspec

from oncelog.client.calls import Caller, done, placed
from oncelog.client.dialect import confirmed
from oncelog.client.errors import NotFound, naming_appends, refusal_of
from oncelog.client.packing import HeadersGiven, Packer
from oncelog.client.wire import JSON, PROBLEM, header_line, topic_path

OFFSET_DIGITS: Final = 16


class AppendResult(msgspec.Struct, frozen=True):
    """Where a record is."""

    offset: int
    """-1 if the server did not tell."""
    next_offset: int
    duplicate: bool
    """It was written before, by an earlier attempt or by somebody with the same id."""
    gone: bool
    """It was written, and removed since."""
    message_id: str


class StreamHead(msgspec.Struct, frozen=True):
    """Where a partition stands."""

    content_type: str
    next_offset: int
    floor: int
    closed: bool


class AsyncStream:
    """A handle; making one asks the server nothing."""

    def __init__(self, caller: Caller, topic: str, content_type: str = JSON) -> None:
        if not topic:
            raise ValueError("a stream has a name")
        header_line("the content type", content_type)
        self.caller = caller
        self.topic = topic
        self.content_type = content_type
        self.path = f"/v1/stream/{topic_path(topic)}"
        self._packer = Packer(content_type)

    async def create(self, *, partitions: int = 1, closed: bool = False) -> bool:
        """Creates the stream; False if the same one is there already. `Conflict` if another one is."""
        headers: dict[str, str | int] = {"Content-Type": self.content_type}
        if partitions != 1:
            headers["Stream-Partitions"] = partitions
        if closed:
            headers["Stream-Closed"] = "true"
        answer = await self.caller.call("PUT", self.path, headers=headers, body=b"")
        return placed(answer).status == 201

    async def append(
        self,
        data: object,
        *,
        key: str | bytes | None = None,
        headers: HeadersGiven | None = None,
        timestamp_ms: int | None = None,
        message_id: str | None = None,
        partition: int = 0,
        expected_tail: int | None = None,
        order_key: str | None = None,
        close: bool = False,
    ) -> AppendResult:
        """Writes one record and waits until it is on disk.

        `expected_tail`: only if the stream ends there, else `ConditionFailed`. `order_key`: only if it is higher than
        the last one. `close`: this is the last record.
        """
        if message_id is None:
            message_id = uuid.uuid4().hex
        item = self._packer.item(data, key, headers, timestamp_ms, message_id)
        form = self._packer.form(item)
        lines: dict[str, str | int] = {
            "Content-Type": self._packer.content_type(form),
            "Stream-Message-Id": message_id,
        }
        if expected_tail is not None:
            lines["If-Match"] = f'"{expected_tail:0{OFFSET_DIGITS}d}"'
        if order_key is not None:
            lines["Stream-Seq"] = order_key
        if close:
            lines["Stream-Closed"] = "true"
        body = self._packer.body(form, [item])
        with naming_appends(self.topic, partition, message_id):
            answer = await self.caller.call("POST", self.path, {"partition": partition}, headers=lines, body=body)
            next_offset = confirmed(answer).number("stream-next-offset")
        return AppendResult(
            max(-1, next_offset - 1),
            next_offset,
            answer.flag("stream-duplicate"),
            answer.flag("stream-gone"),
            message_id,
        )

    async def close(self, *, partition: int = 0) -> int:
        """Ends the stream: nothing can follow. Returns its end."""
        headers = {"Stream-Closed": "true"}
        answer = await self.caller.call("POST", self.path, {"partition": partition}, headers=headers, body=b"")
        return placed(answer).number("stream-next-offset")

    async def head(self, *, partition: int = 0) -> StreamHead:
        """Where the stream stands. `NotFound` if there is none."""
        answer, _ = await self.caller.answer("HEAD", self.path, {"partition": partition})
        if answer.status == 404 and answer.headers.get("content-type", "").startswith(PROBLEM):
            # Ours, and the answer to HEAD has no body that would say more.
            missing = f"partition {partition} of {self.topic!r}" if partition else f"stream {self.topic!r}"
            raise NotFound(404, "topic_missing", f"there is no {missing}", {})
        if answer.status >= 400:
            raise refusal_of(answer)
        placed(answer)
        return StreamHead(
            answer.headers.get("content-type", ""),
            answer.number("stream-next-offset"),
            max(0, answer.number("stream-floor")),
            answer.flag("stream-closed"),
        )

    async def delete(self) -> None:
        """Unlinks the name, all partitions. `NotFound` if there is no such stream."""
        try:
            done(await self.caller.call("DELETE", self.path))
        except NotFound as refusal:
            # A first attempt whose answer was lost may have unlinked it. Only our server's own word: a page that a
            # proxy does not have says nothing about a stream.
            if not (refusal.maybe_done and refusal.code == "topic_missing"):
                raise
