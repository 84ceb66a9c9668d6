"""Kill rounds over HTTP: start a server, let eight writers and a follower work on it, kill it, start it again.

    start -> (sometimes: killed before it is ready) -> look -> send the unanswered again -> work -> SIGKILL

Every `AUDIT_EVERY` rounds and at the end the writers finish what they have begun and everything is audited. With the
proxy, writers reach the server only through a network that loses answers; the audit goes straight. What is sent, and
when the kill comes, follow from the seed; how far the server has got by then does not.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from oncelog.demo.network import FaultyProxy
from oncelog.storage.verify import verify
from oncelog.testing.http_kill.audit import Audit
from oncelog.testing.http_kill.client_writers import AsyncClientWriter, ClientWriter, ThreadClientWriter
from oncelog.testing.http_kill.commit_writer import CommitWriter
from oncelog.testing.http_kill.lanes import Network
from oncelog.testing.http_kill.ledger import TOPICS, HttpLedger
from oncelog.testing.http_kill.server import Server, ServerDied
from oncelog.testing.http_kill.stream_writers import (
    IdWriter,
    OvertakingWriter,
    ProducerWriter,
    SessionlessWriter,
    SessionWriter,
)
from oncelog.testing.http_kill.wire import Asker, ServerGone
from oncelog.testing.kill.engine_client import PATIENCE_S, wait_for_processes

KILL_WITHIN_S: Final = 0.4
AUDIT_EVERY: Final = 25

_RECOVERY_SHARE: Final = 0.15
"""Rounds that kill the server before it is ready."""
_LOOK_SHARE: Final = 0.4
"""Rounds that look before the writers come. In the others requests meet a server that has only just recovered."""
_FOLLOW_PAUSE_S: Final = 0.02
_TICK_S: Final = 0.1


class AnyWriter(Protocol):
    """What the rounds ask of a writer, see `lanes.Writer`."""

    name: str

    @property
    def label(self) -> str: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def unsettled(self) -> int: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def begin(self) -> None: ...
    async def settle(self) -> None: ...
    async def wait_down(self) -> None: ...


Kind = Callable[[str, Network], AnyWriter]

KINDS: Final[dict[str, Kind]] = {
    "producer": ProducerWriter,
    "overtaking": OvertakingWriter,
    "session": SessionWriter,
    "sessionless": SessionlessWriter,
    "ids": IdWriter,
    "commits": CommitWriter,
    "async-client": AsyncClientWriter,
    "thread-client": ThreadClientWriter,
}


class WriterReport(msgspec.Struct):
    """How one writer fared."""

    label: str
    confirmed: int
    retried: int
    duplicates: int
    retries_by_itself: bool
    """How often the project's own client sends again is not known here."""


class Report(msgspec.Struct):
    """How the rounds went."""

    rounds: int = 0
    killed_in_recovery: int = 0
    killed_at_work: int = 0
    """Kills that hit at least one request in flight."""
    requests: int = 0
    unanswered: int = 0
    """Requests whose connection ended before their answer came."""
    confirmed: int = 0
    retried: int = 0
    duplicates: int = 0
    gaps: int = 0
    """Early requests that were told so because one before them was cut off."""
    rightly_refused: int = 0
    """Requests that were sent in order to be refused, and were."""
    dropped: int = 0
    cut: int = 0
    delayed: int = 0
    """What the proxy did: answers dropped, connections cut in a request, pieces held."""
    auditing: bool = False
    """Just now."""
    audits: int = 0
    looks: int = 0
    records: int = 0
    """Read at the last audit."""
    findings: dict[str, int] = {}
    examples: list[str] = []
    writers: list[WriterReport] = []
    clean_stop: bool = False
    """The last server ended with code 0, and no process was left."""
    damages: list[str] = []
    """What `verify` found in the stopped log."""

    @property
    def sound(self) -> bool:
        return self.clean_stop and not self.damages and not any(self.findings.values())

    @property
    def closing_line(self) -> str:
        counts = (f"{kind}={self.findings[kind]}" for kind in ("lost", "doubled", "torn", "refused"))
        proxy = f"dropped={self.dropped} cut={self.cut} " if self.delayed else ""
        return (
            f"rounds={self.rounds} confirmed={self.confirmed} retried={self.retried} "
            f"duplicates={self.duplicates} {proxy}{' '.join(counts)}"
        )


class HttpKillRounds:
    """The loop. `run` may be called once."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        proxy: bool = False,
        kinds: dict[str, Kind] | None = None,
        kill_within_s: float = KILL_WITHIN_S,
        script: str = "",
    ) -> None:
        """`kinds` are the writers, by name; `script` is Python that runs in the server first: a bug, say."""
        self._directory = directory
        self._seed = seed
        self._random = random.Random(seed)
        self._with_proxy = proxy
        self._kinds = kinds or KINDS
        self._kill_within_s = kill_within_s
        self._script = script
        self._server: Server
        self._proxies: Sequence[FaultyProxy] = ()
        self._network: Network
        self._writers: list[AnyWriter] = []
        self._audit: Audit
        self.ledger = HttpLedger(seed)
        self.report = Report()

    def run(self, rounds: int, progress: Callable[[Report], None] = lambda _report: None) -> Report:
        """All rounds. Raises ServerDied, with what the server said, if it ends or hangs by itself."""
        try:
            asyncio.run(self._run(rounds, progress))
            self.report.clean_stop = wait_for_processes(self._directory)
            self.report.damages = [str(damage) for damage in verify(self._directory).damages]
        finally:
            wait_for_processes(self._directory)
        return self.report

    async def _run(self, rounds: int, progress: Callable[[Report], None]) -> None:
        async with contextlib.AsyncExitStack() as stack:
            await self._prepare(stack)
            await stack.enter_async_context(self._ticking(progress))
            for number in range(1, rounds + 1):
                if not await self._round():
                    self.report.killed_in_recovery += 1
                self.report.rounds = number
                self._count()
                progress(self.report)
                if number % AUDIT_EVERY == 0 or number == rounds:
                    self.report.auditing = True
                    await self._settle(more=number < rounds)
                    self.report.auditing = False
                    self._count()
                    progress(self.report)
            code = await self._server.stop()
            if code != 0:
                raise ServerDied(f"a clean stop ended with code {code}: {self._server.stderr}")

    async def _prepare(self, stack: contextlib.AsyncExitStack) -> None:
        """Server, proxies, topics and writers. The stack ends them."""
        server = self._server = Server(self._directory, self._script)
        stack.callback(server.close)
        await server.start()
        asker = Asker(server.port)
        stack.push_async_callback(asker.close)
        for topic in TOPICS:
            made = await asker.ask(
                "PUT",
                f"/v1/stream/{topic.name}",
                {"Content-Type": topic.content_type, "Stream-Partitions": topic.partitions},
            )
            assert made.status == 201, made
        ports = (server.port, server.port)
        if self._with_proxy:
            self._proxies = (
                FaultyProxy(f"{self._seed}/proxy", server.port),
                FaultyProxy(f"{self._seed}/orderly", server.port, orderly=True),
            )
            for proxy in self._proxies:
                await proxy.start()
                stack.push_async_callback(proxy.stop)
            ports = (self._proxies[0].port, self._proxies[1].port)
        self._network = Network(self.ledger, self._seed, *ports)
        self._audit = Audit(self.ledger, asker, self._seed, unordered=("ids",))
        for name, kind in self._kinds.items():
            writer = kind(name, self._network)
            self._writers.append(writer)
            stack.push_async_callback(writer.stop)
            await writer.start()
            await writer.begin()

    # --- rounds --------------------------------------------------------------------------------------------------

    async def _round(self) -> bool:
        """One life of a server; False if it was killed before it was ready."""
        server = self._server
        if not server.is_running:
            recovery = self._random.random() < _RECOVERY_SHARE
            if not await server.start(server.start_s * self._random.random() if recovery else PATIENCE_S):
                return False
            if self._random.random() < _LOOK_SHARE:
                await self._audit.look()
        self._network.up.set()
        async with self._following():
            await asyncio.sleep(self._kill_within_s * self._random.random())
            self._network.up.clear()
            in_flight = sum(writer.in_flight for writer in self._writers)
            server.kill()
        self.report.killed_at_work += in_flight > 0
        for writer in self._writers:
            await writer.wait_down()
        return True

    @contextlib.asynccontextmanager
    async def _ticking(self, progress: Callable[[Report], None]) -> AsyncIterator[None]:
        """Whoever watches is told now and then."""

        async def tick() -> None:
            while True:
                await asyncio.sleep(_TICK_S)
                self._count()
                progress(self.report)

        ticker = asyncio.create_task(tick())
        try:
            yield
        finally:
            ticker.cancel()

    @contextlib.asynccontextmanager
    async def _following(self) -> AsyncIterator[None]:
        """A follower looks along until its connection ends."""

        async def follow() -> None:
            with contextlib.suppress(ServerGone):
                while True:
                    await self._audit.look()
                    await asyncio.sleep(_FOLLOW_PAUSE_S)

        follower = asyncio.create_task(follow())
        try:
            yield
            await follower
        finally:
            follower.cancel()

    async def _settle(self, *, more: bool) -> None:
        """Let every writer finish what it has begun, and compare everything."""
        if not self._server.is_running:
            await self._server.start()
        await self._audit.look()
        self._network.up.set()
        try:
            async with asyncio.timeout(PATIENCE_S):
                for writer in self._writers:
                    await writer.settle()
        except TimeoutError:
            waiting = {writer.name: writer.unsettled for writer in self._writers if writer.unsettled}
            raise ServerDied(f"no answer for {PATIENCE_S} s to {waiting}: {self._server.stderr}") from None
        await self._audit.audit()
        self.report.audits += 1
        if more:
            for writer in self._writers:
                await writer.begin()

    def _count(self) -> None:
        report, ledger = self.report, self.ledger
        for name in ("requests", "unanswered", "confirmed", "retried", "duplicates", "gaps", "rightly_refused"):
            setattr(report, name, getattr(ledger, name))
        for name in ("dropped", "cut", "delayed"):
            setattr(report, name, sum(getattr(proxy, name) for proxy in self._proxies))
        report.records = self._audit.records
        report.looks = self._audit.looks
        report.findings = ledger.findings.counts()
        report.examples = ledger.findings.examples
        report.writers = []
        for writer in self._writers:
            tally = ledger.tallies[writer.name]
            by_itself = isinstance(writer, ClientWriter)
            counts = (tally.confirmed, tally.retried, tally.duplicates)
            report.writers.append(WriterReport(writer.label, *counts, retries_by_itself=by_itself))
