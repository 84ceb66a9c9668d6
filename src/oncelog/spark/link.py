"""The client as Spark's tasks and drivers use it, with the one call that the client itself does not have.

A task makes its own link and closes it: a Spark worker process outlives its tasks, and a thread or a connection left
behind in it belongs to nobody.
"""

from typing import Final, NamedTuple

from oncelog.client import AnswerUnreadable, AsyncClient, Client
from oncelog.client.sync import blocking
from oncelog.client.wire import BATCHES, topic_path

ANSWER_TIMEOUT_MS: Final = 60_000
"""Silence of the server. A publish of many stages, or a disk under load, may take seconds."""


class RawAnswer(NamedTuple):
    """Record batches, one after another."""

    body: bytes
    next_offset: int
    """Where to go on."""
    up_to_date: bool
    created_ms: int
    """When the topic was made; 0 if the server does not tell."""


async def _read_raw(client: AsyncClient, topic: str, partition: int, offset: int) -> RawAnswer:
    query: dict[str, str | int | None] = {"partition": partition, "offset": f"{offset:016d}"}
    answer = await client.call("GET", f"/v1/stream/{topic_path(topic)}", query, headers={"Accept": BATCHES})
    next_offset = answer.number("stream-next-offset")
    if next_offset < 0 or (answer.body and answer.headers.get("content-type") != BATCHES):
        raise AnswerUnreadable("the server does not answer with record batches: is it oncelog?")
    return RawAnswer(
        answer.body, next_offset, answer.flag("stream-up-to-date"), max(0, answer.number("stream-created"))
    )


class Link(Client):
    """A client of the server named by an option."""

    def __init__(self, url: str, request_timeout_ms: float) -> None:
        super().__init__(url, request_timeout_ms=request_timeout_ms, answer_timeout_ms=ANSWER_TIMEOUT_MS)

    read_raw = blocking(_read_raw)
    """Stored batches of one stream from an offset on. `OffsetGone` if it was trimmed."""

    def __enter__(self) -> "Link":
        return self
