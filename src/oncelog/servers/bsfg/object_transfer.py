"""Objects of any size over HTTP: PUT and GET /bsfg/objects/<bucket>/<key>, with ranges, in bounded memory.

An upload of at most `CALL_BYTES_MAX` is stored like one of PutObject. A larger one goes into a stage as it comes, one
chunk in flight, and the client is read no faster than the log writes; the manifest with size and digest is the last
record of the stage, and one entry publishes all of it. A client that goes away leaves nothing: its stage is dropped.
"""

import hashlib
import re
from typing import Final
from urllib.parse import unquote_to_bytes

from oncelog.core import batch as codec
from oncelog.core.command import AppendStage, DropStages, OpenStage
from oncelog.core.content_type import media_type
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import StageDone
from oncelog.protocols.bsfg import connect, objects
from oncelog.protocols.bsfg.connect import Answer, RpcError
from oncelog.protocols.bsfg.messages import Message
from oncelog.protocols.bsfg.objects import CALL_BYTES_MAX, CHUNK_BYTES, Manifest
from oncelog.protocols.bsfg.policy import Caller, caller_of
from oncelog.protocols.bsfg.refusal_map import error_of
from oncelog.protocols.bsfg.zone import Steps
from oncelog.servers.bsfg.boundary import Boundary
from oncelog.servers.bsfg.object_publisher import APPLICATION, ObjectPublisher
from oncelog.servers.mount import MountedRequest, Sink, Turn

PREFIX: Final = b"/bsfg/objects/"
STAGE_TTL_MS: Final = 10 * 60 * 1_000
"""How long an upload may pause between two chunks."""
PENDING_BYTES_MAX: Final = CALL_BYTES_MAX + CHUNK_BYTES
"""What one upload holds in memory."""

_RANGE: Final = re.compile(rb"bytes=(\d*)-(\d*)")


def send(turn: Turn, answer: Answer) -> None:
    """A whole answer."""
    lines = [f"Content-Type: {answer.content_type}\r\n"]
    lines += [f"{name}: {value}\r\n" for name, value in answer.headers]
    turn.done(answer.status, "".join(lines).encode("latin-1", "replace"), answer.body)


class Transfers:
    """All uploads and downloads of one server."""

    def __init__(self, boundary: Boundary, object_bytes_max: int) -> None:
        self.boundary = boundary
        self.publisher = ObjectPublisher(boundary)
        self.object_bytes_max = object_bytes_max

    def begin(self, request: MountedRequest, turn: Turn) -> Sink:
        """A request below `PREFIX` has begun."""
        bucket, _, key = unquote_to_bytes(request.path[len(PREFIX) :]).decode("utf-8", "replace").partition("/")
        zone = self.boundary.zone
        try:
            objects.checked_name(bucket, key)
            caller_of(zone.name, zone.peers, request.headers.get(b"authorization"))
            if request.method == b"PUT":
                return Upload(self, request, turn, bucket, key)
        except RpcError as error:
            answer = connect.error_answer(error)
            self.boundary.refusals.note("PutObject", "", answer)
            return Refusal(turn, answer, request.content_length)
        if request.method not in (b"GET", b"HEAD"):
            allowed = (("Allow", "GET, HEAD, PUT"),)
            return Refusal(turn, Answer(405, "text/plain", b"an object takes GET and PUT\n", allowed), 0)
        return Download(self, request, turn, bucket, key)


class Refusal:
    """Answers at the end of the request, or at once if its body is large: then the connection is closed instead."""

    def __init__(self, turn: Turn, answer: Answer, content_length: int | None) -> None:
        self._turn = turn
        self._answer: Answer | None = answer
        if content_length is None or content_length > CHUNK_BYTES:
            self.end()

    def data(self, _piece: bytes) -> bool:
        return True

    def end(self) -> None:
        if self._answer is not None:
            send(self._turn, self._answer)
            self._answer = None

    def lost(self) -> None:
        """Nothing is kept of it."""


class Upload:
    """One object on its way in."""

    def __init__(self, transfers: Transfers, request: MountedRequest, turn: Turn, bucket: str, key: str) -> None:
        self._transfers = transfers
        self._turn = turn
        self._name = (bucket, key)
        self._media_type = media_type(request.headers.get(b"content-type", b"").decode("latin-1"))
        self._stated = request.headers.get(b"bsfg-digest", b"").decode("latin-1")
        self._sha256 = hashlib.sha256()
        self._size = 0
        self._buffer = bytearray()
        self._stage_id = -1
        self._chunks = 0
        self._is_busy = False
        self._is_whole = False
        self._is_over = False
        self._is_paused = False
        self._check_size(request.content_length or 0)

    def data(self, piece: bytes) -> bool:
        if self._is_over:
            return True
        self._size += len(piece)
        try:
            self._check_size(self._size)
        except RpcError as error:
            self._fail(connect.error_answer(error))
            return True
        self._sha256.update(piece)
        self._buffer += piece
        self._go_on()
        self._is_paused = len(self._buffer) >= PENDING_BYTES_MAX
        return not self._is_paused

    def end(self) -> None:
        self._is_whole = True
        self._go_on()

    def lost(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._drop()

    def _check_size(self, size: int) -> None:
        most = self._transfers.object_bytes_max
        if size > most:
            raise RpcError("invalid_argument", f"{size:,} bytes; the limit is {most:,} (bsfg.object_bytes_max).")

    @property
    def _digest(self) -> str:
        return f"sha256:{self._sha256.hexdigest()}"

    def _go_on(self) -> None:
        """Take the next step, unless one is being taken."""
        if self._is_busy or self._is_over:
            return
        boundary, publisher = self._transfers.boundary, self._transfers.publisher
        if self._is_whole and self._stated and self._stated != self._digest:
            text = f"Bsfg-Digest says {self._stated[:80]}, the content has {self._digest}. Nothing was stored."
            self._fail(connect.error_answer(RpcError("invalid_argument", text)))
        elif self._stage_id < 0 and self._is_whole and self._size <= CALL_BYTES_MAX:
            bucket, key = self._name
            request: Message = {
                "bucket": bucket,
                "key": key,
                "blob": bytes(self._buffer),
                "media_type": self._media_type,
            }
            self._buffer.clear()
            self._is_busy = True
            steps = objects.put_object(boundary.zone, Caller(boundary.zone.name), request)
            boundary.run("PutObject", steps, self._stored, self._fail)
        elif self._stage_id < 0 and len(self._buffer) > CALL_BYTES_MAX:
            self._is_busy = True
            publisher.enqueue(publisher.opened(), lambda _: self._run(self._open_stage()), self._fail)
        elif self._stage_id >= 0 and (len(self._buffer) >= CHUNK_BYTES or (self._is_whole and self._buffer)):
            chunk = bytes(self._buffer[:CHUNK_BYTES])
            del self._buffer[:CHUNK_BYTES]
            self._run(self._append(chunk, [("bsfg.chunk", b"%d" % self._chunks)]))
        elif self._stage_id >= 0 and self._is_whole:
            self._is_busy = True
            stated = (self._digest, self._size)
            steps = publisher.published(self._stage_id, self._chunks, self._name, stated)

            def publish(_result: Message) -> None:
                publisher.enqueue(steps, self._stored, self._fail)

            boundary.run("PutObject", self._manifest(), publish, self._fail)

    def _run(self, steps: Steps) -> None:
        self._is_busy = True
        self._transfers.boundary.run("PutObject", steps, self._stepped, self._fail)

    def _stepped(self, _result: Message) -> None:
        self._is_busy = False
        if self._is_over:
            self._drop()
            return
        self._go_on()
        if self._is_paused and len(self._buffer) < PENDING_BYTES_MAX:
            self._is_paused = False
            self._turn.resume()

    def _open_stage(self) -> Steps:
        done = yield OpenStage(APPLICATION, self._transfers.publisher.fence, STAGE_TTL_MS)
        if not isinstance(done, StageDone):
            raise error_of(done, "the object cannot be staged")
        self._stage_id = done.stage_id
        return {}

    def _append(self, value: bytes, headers: list[tuple[str, bytes | None]]) -> Steps:
        batch = codec.encode([(0, 0, self._name[1].encode(), value, headers)])
        done = yield AppendStage(self._stage_id, self._chunks, batch, 1, content_digest(value))
        if not isinstance(done, StageDone):
            raise error_of(done, "the object was not stored")
        self._chunks += 1
        return {}

    def _manifest(self) -> Steps:
        headers = objects.manifest_headers(self._digest, self._size, self._media_type, self._chunks)
        yield from self._append(b"", headers)
        self._chunks -= 1  # the manifest is none
        return {}

    def _stored(self, message: Message) -> None:
        self._is_over = True
        send(self._turn, connect.answer("PutObject", True, message))

    def _fail(self, answer: Answer) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._buffer.clear()
        self._drop()
        self._transfers.boundary.refusals.note("PutObject", "", answer)
        send(self._turn, answer)

    def _drop(self) -> None:
        """Let go of the stage; of one that was published nothing happens."""
        self._buffer.clear()
        if self._stage_id >= 0 and not self._is_busy:
            self._transfers.boundary.engine.submit(DropStages([self._stage_id]), lambda _outcome: None)


class Download:
    """One object, or a part of it, on its way out."""

    def __init__(self, transfers: Transfers, request: MountedRequest, turn: Turn, bucket: str, key: str) -> None:
        self._boundary = transfers.boundary
        self._turn = turn
        self._bucket = bucket
        self._is_head = request.method == b"HEAD"
        self._range = b"" if self._is_head else request.headers.get(b"range", b"")
        self._manifest: Manifest
        self._at = 0
        """The next byte of the object to send, and the first that is not sent."""
        self._next = 0
        self._is_busy = False
        self._is_over = False
        self._is_writable = True
        self._name = (bucket, key)

    def data(self, _piece: bytes) -> bool:
        return True

    def end(self) -> None:
        # Not before: an answer that comes before the end of its request closes the connection.
        steps = objects.manifest_of(*self._name)
        self._boundary.run("GetObject", steps, self._found, lambda answer: send(self._turn, answer))

    def lost(self) -> None:
        self._is_over = True

    def _found(self, manifest: Manifest) -> None:
        self._manifest = manifest
        size = manifest.size
        ranges = asked_range(self._range, size)
        if ranges is None:
            headers = (("Content-Range", f"bytes */{size}"),)
            send(self._turn, Answer(416, "text/plain", b"no byte of the object lies in this range\n", headers))
            return
        self._at, self._next = ranges
        status = 206 if (self._at, self._next) != (0, size) else 200
        lines = f"Content-Type: {manifest.media_type or 'application/octet-stream'}\r\nAccept-Ranges: bytes\r\n"
        lines += f'ETag: "{manifest.digest}"\r\nBsfg-Digest: {manifest.digest}\r\n'
        if status == 206:
            lines += f"Content-Range: bytes {self._at}-{self._next - 1}/{size}\r\n"
        if self._is_head:
            # Without a length, as all answers to HEAD here: a parser cannot know that no body follows.
            self._turn.done(200, f"{lines}Bsfg-Size: {size}\r\n".encode("latin-1", "replace"))
            return
        self._turn.on_writable = self._writable
        self._turn.head(status, lines.encode("latin-1", "replace"), self._next - self._at)
        self._go_on()

    def _writable(self) -> None:
        self._is_writable = True
        self._go_on()

    def _go_on(self) -> None:
        if self._is_busy or self._is_over or not self._is_writable or self._at >= self._next:
            return
        manifest = self._manifest
        if not manifest.chunks:
            self._send(manifest.value[self._at : self._next])
            return
        chunk = self._at // CHUNK_BYTES
        self._is_busy = True
        steps = objects.chunks_of(self._name[0], manifest, chunk, chunk + 1)
        self._boundary.run("GetObject", steps, self._read, lambda _answer: self._turn.cut())

    def _read(self, parts: list[bytes]) -> None:
        self._is_busy = False
        if self._is_over:
            return
        first = self._at // CHUNK_BYTES * CHUNK_BYTES
        self._send(parts[0][self._at - first : self._next - first])

    def _send(self, data: bytes) -> None:
        self._at += len(data)
        self._is_writable = self._turn.piece(data)
        self._go_on()


def asked_range(header: bytes, size: int) -> tuple[int, int] | None:
    """The bytes [first, next) that a Range header asks for; all of them without one, or with one that is not a single
    range of bytes; None if the object has none of them."""
    match = _RANGE.fullmatch(header)
    if match is None or match[1] == match[2] == b"" or len(header) > 60:
        return 0, size
    if not match[1]:
        first, next_ = max(0, size - int(match[2])), size
    else:
        first, next_ = int(match[1]), min(size, int(match[2]) + 1 if match[2] else size)
    return (first, next_) if first < next_ else None
