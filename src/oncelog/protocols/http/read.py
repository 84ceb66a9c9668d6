"""GET and HEAD on a stream: what is asked, and how records become an answer. Catch-up, long-poll and SSE share it.

Bytes: the records' values one after another; JSON: one array; raw: record batches. A read that reaches the end says so
(`Stream-Up-To-Date`), and whether anything can follow (`Stream-Closed`). A cache may keep any answer and must ask
before it uses it again: a record that was deleted is hidden at once.
"""

import base64
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from oncelog.core import batch as codec
from oncelog.core.content_type import BATCHES, is_json, media_type
from oncelog.errors import BatchInvalid, OncelogError
from oncelog.protocols.http import answers, offsets
from oncelog.protocols.http.actions import Action, Read
from oncelog.protocols.http.request import Request
from oncelog.protocols.http.target import Query, TargetInvalid, digits

CURSOR_EPOCH_S: Final = 1_728_432_000
"""9 October 2024: the protocol counts its intervals from here."""
CURSOR_INTERVAL_S: Final = 20
CURSOR_JITTER_MAX: Final = 3600 // CURSOR_INTERVAL_S
"""Intervals that a cursor is moved on by, at most, when a client comes back within one."""

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")


class Standing(NamedTuple):
    """Where a stream stands for readers."""

    stream_id: int
    content_type: str
    floor: int
    stable: int
    tail: int
    closed: bool
    hole_count: int = 0
    created_ms: int = 0
    """When the topic was made."""


class Found(NamedTuple):
    """What a read found: batches with their base offsets, from `start` on, and where the next read begins."""

    start: int
    batches: Sequence[tuple[int, bytes]]
    next_offset: int
    values: list[bytes | None] | None = None
    """Of the records from `start` on, if they were taken out already."""

    def is_up_to_date(self, standing: Standing) -> bool:
        return self.next_offset >= standing.stable

    def is_end(self, standing: Standing) -> bool:
        """Nothing can follow."""
        return standing.closed and self.next_offset >= standing.tail


def wish(request: Request, topic: str, partition: int, query: Query) -> Action:
    """What a GET asks for."""
    live = query.text("live") or ""
    if live not in ("", "long-poll", "sse"):
        raise TargetInvalid(f"live is long-poll or sse, not {live[:40]!r}")
    text = query.text("offset")
    if live and text is None:
        raise TargetInvalid("a live read names its offset; -1 is the start, now the end")
    headers = request.headers
    return Read(
        topic,
        partition,
        offsets.parsed(text),
        live=live,
        cursor=query.text("cursor") or "",
        raw=BATCHES.encode() in headers.get(b"accept", b""),
        if_none_match=headers.get(b"if-none-match", b"").decode("latin-1"),
        bare=not request.takes_chunks,
    )


def start_of(offset: int, standing: Standing) -> int:
    """The offset that a read begins at."""
    if offset == offsets.START:
        return standing.floor
    return standing.stable if offset == offsets.NOW else offset


def cursor_after(sent: str, now_s: int, jitter: int) -> str:
    """The number of the interval; beyond the one that was sent, so that no cache gives the same answer twice."""
    interval = (now_s - CURSOR_EPOCH_S) // CURSOR_INTERVAL_S
    known = digits(sent)
    if known is not None and known >= interval:
        return str(known + 1 + jitter % CURSOR_JITTER_MAX)
    return str(interval)


# --- bodies --------------------------------------------------------------------------------------------------------


class Undecodable(OncelogError):
    """A stored batch whose records cannot be told apart: damage, whoever asked for it."""

    def __init__(self, base_offset: int, error: BatchInvalid) -> None:
        self.base_offset = base_offset
        super().__init__(str(error))


def decoded(found: Found, bytes_max: int) -> Found:
    """The same with its values taken out. Of compressed batches, which are larger than they look, no more than hold
    `bytes_max` bytes of values, and one at least: a megabyte of them may be gigabytes. Raises Undecodable."""
    values: list[bytes | None] = []
    inflated = 0
    for number, (base_offset, batch) in enumerate(found.batches):
        if number and inflated >= bytes_max:
            return found._replace(batches=found.batches[:number], next_offset=base_offset, values=values)
        of_batch = _decoded(found.start, base_offset, batch)
        if batch[codec.ATTRIBUTES_AT + 1] & codec.CODEC_MASK:
            inflated += sum(len(value) for value in of_batch if value is not None)
        values += of_batch
    return found._replace(values=values)


def _decoded(start: int, base_offset: int, batch: bytes) -> list[bytes | None]:
    """The values of a batch from `start` on."""
    try:
        if base_offset < start:
            return [record[3] for record in codec.decode(batch) if record[0] >= start - base_offset]
        return codec.decode_values(batch)
    except BatchInvalid as error:
        raise Undecodable(base_offset, error) from error


def values_of(found: Found) -> list[bytes]:
    """The values from `start` on; a record without one is left out. Raises Undecodable."""
    values = found.values
    if values is None:
        values = []
        for base_offset, batch in found.batches:
            values += _decoded(found.start, base_offset, batch)
    return [value for value in values if value is not None] if None in values else values  # type: ignore[return-value]


def body_of(found: Found, content_type: str, *, raw: bool) -> bytes:
    """The records as the answer's body."""
    if raw:
        pieces: list[bytes | memoryview] = []
        for base_offset, batch in found.batches:
            pieces += codec.stamp(batch, base_offset)
        return b"".join(pieces)
    values = values_of(found)
    if is_json(content_type):
        return b"[" + b",".join(values) + b"]"
    return values[0] if len(values) == 1 else b"".join(values)


def etag_of(found: Found, standing: Standing, *, raw: bool) -> str:
    """Names this stretch of this stream in this form, as long as none of it is deleted, and whether it is the end."""
    form = f"r{standing.floor}" if raw else "j" if is_json(standing.content_type) else ""
    end = "c" if found.is_end(standing) else ""
    return f'"{standing.stream_id}:{found.start}:{found.next_offset}:{standing.hole_count}{form}{end}"'


def is_known(etag: str, if_none_match: str) -> bool:
    """Whether the client has it already."""
    if not if_none_match:
        return False
    return if_none_match == "*" or etag in (part.strip().removeprefix("W/") for part in if_none_match.split(","))


# --- answers -------------------------------------------------------------------------------------------------------


def catch_up(read: Read, standing: Standing, found: Found, body: bytes | None = None) -> tuple[bytes, bytes]:
    """(head, body) of a catch-up read. `body` is what `body_of` gave for it before, if that was kept."""
    headers = _standing_headers(standing, found)
    if read.offset == offsets.NOW:
        headers["Cache-Control"] = "no-store"
    else:
        etag = etag_of(found, standing, raw=read.raw)
        headers["ETag"] = etag
        headers["Cache-Control"] = "no-cache"
        if is_known(etag, read.if_none_match):
            return answers.empty(304, answers.lines(headers)), b""
    return _with_body(read, standing, found, headers, body)


def polled(read: Read, standing: Standing, found: Found, cursor: str) -> tuple[bytes, bytes]:
    """(head, body) of a long-poll that found something, or waited in vain."""
    headers = _standing_headers(standing, found)
    headers["Cache-Control"] = "no-store"
    if not found.is_end(standing):
        headers["Stream-Cursor"] = cursor
    if not found.batches:
        return answers.empty(204, answers.lines(headers)), b""
    return _with_body(read, standing, found, headers)


def _with_body(
    read: Read, standing: Standing, found: Found, headers: dict[str, str | int], body: bytes | None = None
) -> tuple[bytes, bytes]:
    if body is None:
        body = body_of(found, standing.content_type, raw=read.raw)
    content_type = BATCHES if read.raw else standing.content_type
    if read.raw:
        # Who reads a range that was planned earlier must see that the topic was not made anew since.
        headers["Stream-Created"] = standing.created_ms
    told = answers.full_head(content_type, len(body)) + answers.lines(headers)
    return answers.head(200, told) + b"\r\n", body


def _standing_headers(standing: Standing, found: Found) -> dict[str, str | int]:
    headers: dict[str, str | int] = {"Stream-Next-Offset": offsets.spelled(found.next_offset), "Vary": "Accept"}
    if found.is_up_to_date(standing):
        headers["Stream-Up-To-Date"] = "true"
    if found.is_end(standing):
        headers["Stream-Closed"] = "true"
    return headers


def stands(standing: Standing) -> bytes:
    """The answer to HEAD."""
    headers: dict[str, str | int] = {
        "Content-Type": standing.content_type,
        "Stream-Next-Offset": offsets.spelled(standing.stable),
        "Stream-Floor": offsets.spelled(standing.floor),
        "Cache-Control": "no-store",
    }
    if standing.closed:
        headers["Stream-Closed"] = "true"
    return answers.empty(200, answers.lines(headers))


# --- SSE -----------------------------------------------------------------------------------------------------------


def is_text(content_type: str) -> bool:
    """Whether events carry the records as they are; otherwise they carry base64."""
    return is_json(content_type) or media_type(content_type).startswith("text/")


def sse_head(standing: Standing, *, bare: bool = False) -> bytes:
    """Before the first event; if they are `bare`, they end with the connection."""
    headers: dict[str, str | int] = {
        "Content-Type": "text/event-stream",
        "Cache-Control": "no-cache",
        # nginx collects an answer before it passes it on, unless the answer says that it must not.
        "X-Accel-Buffering": "no",
    }
    if not is_text(standing.content_type):
        headers["Stream-SSE-Data-Encoding"] = "base64"
    framing = b"Connection: close\r\n\r\n" if bare else b"Transfer-Encoding: chunked\r\n\r\n"
    return answers.head(200, answers.lines(headers)) + framing


def sse_comment(*, bare: bool = False) -> bytes:
    """Says nothing to the reader, and to a proxy in between that the connection is in use."""
    return b":\n\n" if bare else chunk(b":\n\n")


def sse_events(standing: Standing, found: Found, cursor: str, *, bare: bool = False) -> bytes:
    """The data that was found, if any, and where the reader stands behind it, as one chunk unless `bare`."""
    events = b""
    if found.batches:
        body = body_of(found, standing.content_type, raw=False)
        if not is_text(standing.content_type):
            body = base64.b64encode(body)
        events = b"event: data\n" + b"".join(map(_data_line, _LINE_END.split(body))) + b"\n"
    control: dict[str, object] = {"streamNextOffset": offsets.spelled(found.next_offset)}
    if found.is_end(standing):
        control["streamClosed"] = True
    else:
        control["streamCursor"] = cursor
    if found.is_up_to_date(standing):
        control["upToDate"] = True
    events = b"%bevent: control\ndata:%b\n\n" % (events, msgspec.json.encode(control))
    return events if bare else chunk(events)


def _data_line(line: bytes) -> bytes:
    """One line of an event. Readers drop one space behind the colon: a line that begins with one gets another."""
    return b"data: %b\n" % line if line.startswith(b" ") else b"data:%b\n" % line


def chunk(data: bytes) -> bytes:
    """One piece of a body of unknown length."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK: Final = b"0\r\n\r\n"
