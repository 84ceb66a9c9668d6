"""A face of lines, for tests: it proves that a face is a value. Nothing outside this module knows it; one line in the
list of faces gives it its flags, its limits, back-pressure, TLS, counts, metrics and an orderly stop.

    make TOPIC               -> ok
    append TOPIC TEXT        -> ok OFFSET, once the record is on disk
    read TOPIC OFFSET        -> ok COUNT, then one line for each record
"""

from collections import deque
from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta

from oncelog.core import batch as codec
from oncelog.core.command import Columns, Command, CreateTopic
from oncelog.core.outcome import Confirmed, Outcome, Refusal
from oncelog.engine.reads import ReadResult
from oncelog.servers.counts import Counts
from oncelog.servers.face import FaceContext
from oncelog.servers.face_connection import FaceConnection
from oncelog.servers.face_settings import ADDRESS, Address, FaceSettings
from oncelog.servers.faces import FaceKind
from oncelog.servers.listener import Listener

LINE = FaceKind("line", "127.0.0.1:4438", "tests.servers.line_face:LineSettings", "tests.servers.line_face:LineServer")
"""The one line in the list of faces."""


class LineSettings(FaceSettings, frozen=True, kw_only=True):
    """Where it listens, and how long a line may be."""

    address: Annotated[str, ADDRESS] = "127.0.0.1:4438"
    line_bytes_max: Annotated[int, Meta(ge=16, le=1 << 20, description="Bytes of one line")] = 4096
    pipelined_max: Annotated[int, Meta(ge=1, le=1_000, description="Lines in progress on one connection")] = 16


class LineServer:
    """The face."""

    name = "line"

    def __init__(self, context: FaceContext, settings: FaceSettings) -> None:
        assert isinstance(settings, LineSettings)
        self.engine = context.engine
        self.settings = settings
        self.counts = Counts()
        self.listener = Listener(context, settings, self.counts, lambda: LineConnection(self))

    @property
    def connection_count(self) -> int:
        return len(self.listener.connections)

    async def start(self) -> Address:
        return await self.listener.start()

    async def stop(self) -> None:
        await self.listener.stop()


class LineConnection(FaceConnection):
    """One client: its lines, and the answers that they wait for, in their order."""

    def __init__(self, server: LineServer) -> None:
        self.attach(server.listener)
        self.server = server
        self._unfinished = b""
        self._answers: deque[list[bytes]] = deque()

    def data_received(self, data: bytes) -> None:
        self.active_at = self.listener.loop.time()
        if self.is_closing:
            return
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            answer: list[bytes] = []
            self._answers.append(answer)
            self._begin(line.decode(), answer)
        if len(self._unfinished) > self.server.settings.line_bytes_max:
            self._malformed(self._next_answer(), "the line is too long")
            self.finish()
        self.hold_back()

    def may_read_on(self) -> bool:
        return len(self._answers) < self.server.settings.pipelined_max

    def has_work(self) -> bool:
        return bool(self._answers)

    def on_lost(self) -> None:
        self._answers.clear()

    def _next_answer(self) -> list[bytes]:
        self._answers.append([])
        return self._answers[-1]

    def _begin(self, line: str, answer: list[bytes]) -> None:
        match line.split(" ", 2):
            case ["make", topic]:
                self._submit(CreateTopic(topic), answer, lambda _: "ok")
            case ["append", topic, text]:
                self._submit(Columns(topic, 0, [text.encode()]), answer, lambda done: f"ok {done.first}", topic)
            case ["read", topic, offset] if offset.isdigit():
                self.server.engine.read(topic, 0, int(offset), 1 << 20, lambda found: self._found(found, answer))
            case _:
                self._malformed(answer, "make TOPIC, append TOPIC TEXT or read TOPIC OFFSET")

    def _submit(self, command: Command, answer: list[bytes], spell: Callable[[Any], str], topic: str = "") -> None:
        def answered(outcome: Outcome) -> None:
            if isinstance(outcome, Confirmed):
                self.server.counts.confirmed(outcome)
            else:
                self.server.counts.other(outcome, topic)
            refused = outcome.code if isinstance(outcome, Refusal) else ""
            self._say(answer, f"refused {refused}" if refused else spell(outcome))

        self.server.engine.submit(command, answered)

    def _found(self, found: ReadResult | Refusal, answer: list[bytes]) -> None:
        if isinstance(found, Refusal):
            self._say(answer, f"refused {found.code}")
            return
        values = [value or b"" for _, batch in found.batches for value in codec.decode_values(batch)]
        self._say(answer, "\n".join((f"ok {len(values)}", *(value.decode() for value in values))))

    def _malformed(self, answer: list[bytes], text: str) -> None:
        self.server.counts.malformed += 1
        self._say(answer, f"malformed: {text}")

    def _say(self, answer: list[bytes], text: str) -> None:
        answer.append(text.encode() + b"\n")
        while self._answers and self._answers[0]:
            self.send(self._answers.popleft()[0])
        self.resume()
        if self.is_closing and not self._answers:
            self.transport.close()
