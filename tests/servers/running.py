"""A real HTTP server for tests: its own thread and loop, real sockets, any settings, always stopped.

    with running(long_poll_ms=200) as server:
        with server.client() as client:
            assert client.ask("PUT", "/v1/stream/a").status == 201

Every face of the list is started, on a free port: `server.addresses["kafka"]`, `server.face("kafka")`. Settings given
as keywords are those of HTTP; `faces={"kafka": {"idle_ms": 100}}` sets those of others.

It runs in this process, so a test can look at the engine behind it (`server.on_loop`). An exception that would end a
server process ends the block with that exception instead.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar
from unittest import mock

import uvloop
from prometheus_client.parser import text_string_to_metric_families

from oncelog.engine.engine import Engine, Settings
from oncelog.engine.open import open_engine, open_in_memory
from oncelog.limits import MIB
from oncelog.servers import listener
from oncelog.servers.assembly import Assembly
from oncelog.servers.face import Face, FaceContext
from oncelog.servers.face_settings import Address, FaceSettings
from oncelog.servers.http.server import HttpServer
from oncelog.servers.settings import FACE_SETTINGS
from oncelog.storage.index.child import journal_directory
from tests.servers.talking import PATIENCE_S, Answer, Client

Result = TypeVar("Result")

SETTINGS: Final = Settings(segment_bytes=8 * MIB, checkpoint_bytes=1 * MIB)
"""Segments of the least size that takes the largest batch."""


class Running:
    """A server that listens."""

    def __init__(
        self, directory: Path | None, engine_settings: Settings, settings: Mapping[str, FaceSettings], zone: str
    ) -> None:
        self._zone = zone
        self._directory = directory
        self._engine_settings = engine_settings
        self._settings = settings
        self._bugs: list[BaseException] = []
        self._ready: Future[dict[str, Address]] = Future()
        self._thread = threading.Thread(target=self._run, name="server under test", daemon=True)
        self._stop: asyncio.Event
        self.loop: asyncio.AbstractEventLoop
        self.engine: Engine
        self.assembly: Assembly
        self.server: HttpServer
        self._thread.start()
        self.addresses = self._ready.result(PATIENCE_S)
        self.port = self.addresses["http"].port

    def client(self, *, receive_bytes: int | None = None) -> Client:
        """A connection of its own."""
        return Client(self.port, receive_bytes=receive_bytes)

    def face(self, name: str) -> Face:
        """One of its faces."""
        return next(face for face in self.assembly.faces if face.name == name)

    def ask(
        self, method: str, target: str, body: bytes = b"", /, headers: Mapping[str, str | int] | None = None
    ) -> Answer:
        """One request on a connection of its own: what any other client sees meanwhile."""
        with self.client() as client:
            return client.ask(method, target, body, headers)

    def metrics(self) -> dict[str, float]:
        """What a monitor reads, by name; labels stand behind it in brackets."""
        answer = self.ask("GET", "/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(answer.body.decode()):
            assert family.documentation
            for sample in family.samples:
                labels = "".join(f"[{value}]" for value in sample.labels.values())
                found[sample.name + labels] = sample.value
        return found

    def on_loop(self, look: Callable[[], Result]) -> Result:
        """What `look` says on the loop's thread, where the engine may be looked at."""
        result: Future[Result] = Future()
        self.loop.call_soon_threadsafe(_answer, result, look)
        return result.result(PATIENCE_S)

    def until(self, holds: Callable[[], bool]) -> None:
        """Give way on the loop until it holds."""

        async def wait() -> None:
            async with asyncio.timeout(PATIENCE_S):
                while not holds():  # noqa: ASYNC110 - a server has no event for what tests wait for
                    await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(wait(), self.loop).result(PATIENCE_S + 1)

    def tail(self, topic: str, partition: int = 0) -> int:
        """Where the stream ends; -1 if there is none."""

        def look() -> int:
            row = self.engine.view.topic(topic)
            stream = None if row is None else self.engine.view.stream(row.stream_ids[partition])
            return -1 if stream is None else stream.tail

        return self.on_loop(look)

    def entry(self) -> int:
        """The last entry: it moves with everything that is written, whatever it is."""
        return self.on_loop(lambda: self.engine.view.entry_number)

    def waiters(self) -> int:
        """Readers that wait for something to come."""
        return self.on_loop(lambda: sum(map(len, self.engine.follow._waiters.values())))

    def checkpoint(self) -> None:
        """Bring the index up to now, and drop what it then has from memory."""
        generations = self.engine.generations
        commits = self.engine.commits

        def quiet() -> bool:
            return commits.idle and not generations.building and not generations.cleaning

        def seal() -> None:
            generations.seal()
            generations.group_durable()

        self.until(quiet)
        self.on_loop(seal)
        self.until(quiet)

    @contextlib.contextmanager
    def slow_disk(self) -> Iterator[None]:
        """Nothing becomes durable within the block."""
        writer: Any = self.engine._pacing._writer
        poller: Any = self.engine._pacing._poller
        held: list[Any] = []

        def hold() -> None:
            poller.write = lambda _group: False  # the kernel takes none: all go by the writer
            writer.write = held.append

        def go_on() -> None:
            del poller.write, writer.write
            for group in held:
                writer.write(group)

        self.on_loop(hold)
        try:
            yield
        finally:
            self.on_loop(go_on)

    def begin_stop(self) -> None:
        """As SIGTERM does."""
        self.loop.call_soon_threadsafe(self._stop.set)

    def stop(self) -> None:
        """Stop in order, and raise what went wrong meanwhile."""
        if self._thread.is_alive():
            self.begin_stop()
            self._thread.join(PATIENCE_S)
            assert not self._thread.is_alive(), "the server does not stop"
        if self._bugs:
            raise self._bugs[0]

    # --- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with contextlib.closing(uvloop.new_event_loop()) as loop:
            loop.set_exception_handler(self._went_wrong)
            try:
                loop.run_until_complete(self._serve(loop))
            except BaseException as error:
                self._bugs.append(error)
                if not self._ready.done():
                    self._ready.set_exception(error)
                raise

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._stop = asyncio.Event()
        if self._directory is None:
            self.engine = open_in_memory(loop, settings=self._engine_settings, fatal=self._bugs.append)
        else:
            self.engine = open_engine(self._directory, loop, settings=self._engine_settings, fatal=self._bugs.append)
        journal = None if self._directory is None else journal_directory(self._directory)
        self.assembly = Assembly(FaceContext(self.engine, loop, journal=journal, zone=self._zone), self._settings)
        await self.assembly.start()
        http = self.face("http")
        assert isinstance(http, HttpServer)
        self.server = http
        self._ready.set_result(self.assembly.addresses)
        await self._stop.wait()
        await self.assembly.stop()
        await self.engine.close()

    def _went_wrong(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """As `servers.process` does: a socket may fail as it likes, anything else would end the process."""
        error = context.get("exception")
        if isinstance(error, OSError):
            return
        self._bugs.append(error or AssertionError(context["message"]))
        self._stop.set()


def _answer(result: "Future[Result]", look: Callable[[], Result]) -> None:
    try:
        result.set_result(look())
    except BaseException as error:  # noqa: BLE001 - whoever asked gets it
        result.set_exception(error)


@contextlib.contextmanager
def running(
    directory: Path | None = None,
    *,
    engine: Settings = SETTINGS,
    sweep_s: float | None = None,
    zone: str = "local",
    faces: Mapping[str, Mapping[str, Any]] | None = None,
    **settings: Any,
) -> Iterator[Running]:
    """A server over a directory, or in memory if there is none, for as long as the block. `settings` are those of
    `HttpSettings`, `faces` those of other faces; `sweep_s` is how often it looks for clients that are too slow, if not
    as they say."""
    chosen = {
        name: struct(
            **{"address": "127.0.0.1:0", **(faces or {}).get(name, {}), **(settings if name == "http" else {})}
        )
        for name, struct in FACE_SETTINGS.items()
    }
    with contextlib.nullcontext() if sweep_s is None else mock.patch.object(listener, "sweep_s", return_value=sweep_s):
        server = Running(directory, engine, chosen, zone)
        try:
            yield server
        finally:
            server.stop()
