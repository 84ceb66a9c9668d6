"""`$JS.API.DIRECT.GET.*`: messages as they are, without JSON around them; one, or a batch of them."""

from typing import Any

import msgspec

from oncelog.protocols.nats import consumer_config, wire
from oncelog.protocols.nats import headers as header_blocks
from oncelog.protocols.nats.stored import Stored
from oncelog.protocols.nats.times import json_time
from oncelog.servers.nats.api_streams import find_offset
from oncelog.servers.nats.jetstream import JetStream
from oncelog.servers.nats.stream import LiveStream

MULTI_MAX = 1_024
"""Subjects of one `multi_last`: the real server's bound."""
BATCH_MAX = 10_000
BATCH_BYTES_MAX = 16 << 20


class DirectRequest(msgspec.Struct, kw_only=True):
    """The body of a direct get."""

    seq: int = 0
    last_by_subj: str = ""
    next_by_subj: str = ""
    batch: int = 0
    max_bytes: int = 0
    start_time: str | None = None
    multi_last: list[str] | None = None
    up_to_seq: int = 0
    up_to_time: str | None = None
    no_hdr: bool = False


def direct_get(js: JetStream, stream: LiveStream, subject: str, body: bytes, reply: str) -> None:
    """DIRECT.GET.<stream>[.<subject>]."""
    if subject:
        request = DirectRequest(last_by_subj=subject)
    else:
        try:
            request = msgspec.json.decode(body, type=DirectRequest)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            js.router.send(reply, header=wire.status(408, "Malformed Request" if body else "Empty Request"))
            return
    start_ns = consumer_config.time_ns(request.start_time) if request.start_time else None
    wrong = _refused(request, has_time=start_ns is not None)
    if wrong:
        js.router.send(reply, header=wire.status(408, wrong))
        return

    def go() -> None:
        if request.start_time:
            request.seq = stream.index.first_at_time(start_ns or 0) + 1
        if request.multi_last:
            _multi(js, stream, request, reply)
        elif request.batch:
            _batch(js, stream, request, reply)
        else:
            _one(js, stream, request, reply)

    stream.when_current(go)


def _refused(request: DirectRequest, *, has_time: bool) -> str:
    if request.batch < 0 or request.max_bytes < 0 or request.seq < 0 or request.up_to_seq < 0:
        return "Bad Request"
    if request.start_time and not has_time:
        return "Bad Request"
    if request.multi_last:
        if request.seq or request.last_by_subj or request.next_by_subj:
            return "Bad Request"
        return ""
    if request.last_by_subj and (request.next_by_subj or request.seq or request.batch):
        return "Bad Request"
    if not (request.seq or request.last_by_subj or request.next_by_subj or request.start_time):
        return "Empty Request"
    return ""


def _one(js: JetStream, stream: LiveStream, request: DirectRequest, reply: str) -> None:
    offset = find_offset(stream, request.seq, request.last_by_subj, request.next_by_subj)
    if request.start_time and not request.next_by_subj:
        offset = stream.index.next_live(request.seq - 1, [])
        offset = -1 if offset >= stream.index.next else offset

    def found(stored: Stored | None) -> None:
        if stored is None:
            _missing(js, reply)
        else:
            js.router.send(reply, stored.payload, header=_header(stream, stored, []))

    if offset < 0:
        _missing(js, reply)
    else:
        stream.fetch(offset, found)


def _missing(js: JetStream, reply: str) -> None:
    js.router.send(reply, header=wire.status(404, "Message Not Found"))


def _header(stream: LiveStream, stored: Stored, more: header_blocks.Headers) -> bytes:
    fields = (header_blocks.parse(stored.header) or []) if stored.header else []
    added = [
        ("Nats-Stream", stream.name),
        ("Nats-Subject", stored.subject),
        ("Nats-Sequence", str(stored.sequence)),
        ("Nats-Time-Stamp", json_time(stored.time_ns)),
    ]
    return header_blocks.encode([*fields, *added, *more])


def _batch(js: JetStream, stream: LiveStream, request: DirectRequest, reply: str) -> None:
    filters = [request.next_by_subj] if request.next_by_subj else []
    index = stream.index
    most = min(request.batch, BATCH_MAX)
    offsets: list[int] = []
    offset = index.next_live(max(0, request.seq - 1), filters)
    while offset < index.next and len(offsets) < most:
        offsets.append(offset)
        offset = index.next_live(offset + 1, filters)
    if not offsets:
        _missing(js, reply)
        return
    pending = index.count_from(offsets[0], filters)
    _Sending(js, stream, offsets, pending, request, reply).go_on()


def _multi(js: JetStream, stream: LiveStream, request: DirectRequest, reply: str) -> None:
    index = stream.index
    below = -1
    if request.up_to_seq:
        below = request.up_to_seq
    elif request.up_to_time:
        below = index.first_at_time(consumer_config.time_ns(request.up_to_time) or 0)
    offsets = index.last_per_subject(request.multi_last or [], below)
    if len(offsets) > MULTI_MAX:
        js.router.send(reply, header=wire.status(413, "Too Many Results"))
        return
    if not offsets:
        js.router.send(reply, header=wire.status(404, "No Results"))
        return
    chosen = offsets[: request.batch] if request.batch else offsets
    _Sending(js, stream, chosen, len(offsets), request, reply, below if below >= 0 else index.next).go_on()


class _Sending:
    """A batch on its way: one message after the other, each read when it is its turn."""

    def __init__(
        self,
        js: JetStream,
        stream: LiveStream,
        offsets: list[int],
        pending: int,
        request: DirectRequest,
        reply: str,
        up_to: int = 0,
    ) -> None:
        self._js = js
        self._stream = stream
        self._offsets = offsets
        self._pending = pending
        self._bytes = min(request.max_bytes or BATCH_BYTES_MAX, BATCH_BYTES_MAX)
        self._reply = reply
        self._up_to = up_to
        self._at = 0
        self._last = 0
        self._is_running = False

    def go_on(self) -> None:
        if self._is_running:
            return
        self._is_running = True
        while self._at < len(self._offsets):
            before = self._at
            self._stream.fetch(self._offsets[self._at], self._found)
            if self._at == before:
                self._is_running = False
                return
        self._is_running = False
        self._end()

    def _found(self, stored: Stored | None) -> None:
        self._at += 1
        if stored is not None:
            size = len(stored.payload) + len(stored.header) + len(stored.subject)
            if self._last and size > self._bytes:
                self._offsets = self._offsets[: self._at]  # no room for this one and the rest
            else:
                self._bytes -= size
                self._pending -= 1
                more: Any = [("Nats-Num-Pending", str(self._pending)), ("Nats-Last-Sequence", str(self._last))]
                self._js.router.send(self._reply, stored.payload, header=_header(self._stream, stored, more))
                self._last = stored.sequence
        if not self._is_running:
            self.go_on()

    def _end(self) -> None:
        fields = [("Nats-Num-Pending", str(max(0, self._pending))), ("Nats-Last-Sequence", str(self._last))]
        if self._up_to:
            fields.append(("Nats-UpTo-Sequence", str(self._up_to)))
        self._js.router.send(self._reply, header=wire.status(204, "EOB", fields))
