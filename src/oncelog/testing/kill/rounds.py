"""Kill rounds: start an engine, let eight writers and a follower work on it, kill it at a random moment, start again.

    start -> (sometimes: killed while it recovers) -> look -> send the unanswered again -> work -> SIGKILL

Every `AUDIT_EVERY` rounds and at the end the writers finish what they have begun and everything is audited. What is
sent, and when the kill comes, follow from the seed; how far the engine has got by then does not.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from oncelog.core.command import CreateTopic
from oncelog.core.outcome import TopicDone
from oncelog.storage.verify import verify
from oncelog.testing.kill.audit import Audit, StreamName
from oncelog.testing.kill.engine_client import PATIENCE_S, EngineDied, EngineProcess, wait_for_processes
from oncelog.testing.kill.ledger import Ledger
from oncelog.testing.kill.messages import Read
from oncelog.testing.kill.scripted import Publisher, TxnWriter
from oncelog.testing.kill.writers import (
    SEQUENCES,
    TOPICS,
    Committer,
    IdWriter,
    Request,
    RisingWriter,
    SequenceWriter,
    Writer,
)

SEGMENT_BYTES: Final = 256 * 1024
CHECKPOINT_BYTES: Final = 128 * 1024
"""Both small, so that segments change and the index is committed many times between two kills."""

KILL_WITHIN_S: Final = 0.2
AUDIT_EVERY: Final = 25

_RECOVERY_SHARE: Final = 0.2
"""Rounds that kill the engine before it is ready."""
_LOOK_SHARE: Final = 0.4
"""Rounds that look before they send anything. In the others requests meet an engine that has only just recovered."""


class Report(msgspec.Struct):
    """How the rounds went."""

    rounds: int = 0
    killed_in_recovery: int = 0
    killed_at_work: int = 0
    """Kills that hit at least one request in flight."""
    in_flight: int = 0
    """Requests whose answer a kill cut off."""
    confirmed: int = 0
    retried: int = 0
    duplicates: int = 0
    audits: int = 0
    records: int = 0
    """Read at the last audit."""
    findings: dict[str, int] = {}
    examples: list[str] = []
    clean_stop: bool = False
    """The last engine ended with code 0, and no process was left."""
    damages: list[str] = []
    """What `verify` found in the stopped log."""

    @property
    def sound(self) -> bool:
        return self.clean_stop and not self.damages and not any(self.findings.values())

    @property
    def closing_line(self) -> str:
        counts = (f"{kind}={self.findings[kind]}" for kind in ("lost", "doubled", "torn", "refused"))
        return (
            f"rounds={self.rounds} confirmed={self.confirmed} retried={self.retried} "
            f"duplicates answered={self.duplicates} {' '.join(counts)}"
        )


class Follower(Writer):
    """Reads along, one stream after another. Its reads need no retry."""

    depth = 1

    def __init__(self, name: str, ledger: Ledger, seed: int, audit: Audit) -> None:
        super().__init__(name, ledger, seed)
        self._audit = audit
        self._streams = list(audit.offsets)

    def next_request(self) -> Request | None:
        if self.finishing:
            return None
        topic, partition = self.random.choice(self._streams)
        return Request(Read(topic, partition, self._audit.offsets[topic, partition]), None)

    def answered(self, request: Request, outcome: object) -> None:
        assert isinstance(request.command, Read)
        self._audit.revealed(request.command, outcome)

    def engine_died(self, waiting: list[Request]) -> list[Request]:
        return waiting[:0]


class KillRounds:
    """The loop. `run` may be called once."""

    def __init__(self, directory: Path, seed: int, *, script: str = "") -> None:
        """`script` is Python that runs the engine process in its own way: with a bug, say."""
        self._directory = directory
        self._arguments = ("-c", script) if script else ()
        self._seed = seed
        self._random = random.Random(seed)
        self._ledger = Ledger()
        self._writers: list[Writer] = []
        self._in_flight: dict[int, tuple[Writer, Request]] = {}
        self._unsent: list[tuple[Writer, Request]] = []
        """Requests that a crash left unanswered, in the order in which they were first sent."""
        self._load: dict[Writer, int] = {}
        self._number = 1
        self._engine: EngineProcess | None = None
        self._start_s = 1.0
        """How long the last start took: kills during recovery come within that time."""
        self.report = Report()

    def run(self, rounds: int, progress: Callable[[Report], None] = lambda _report: None) -> Report:
        """All rounds. Raises EngineDied, with what the engine said, if one ends or hangs by itself."""
        try:
            audit = self._prepare()
            for number in range(1, rounds + 1):
                if not self._round():
                    self.report.killed_in_recovery += 1
                self.report.rounds = number
                if number % AUDIT_EVERY == 0 or number == rounds:
                    self._settle(audit)
                self._count()
                progress(self.report)
            self._stop()
            self.report.damages = [str(damage) for damage in verify(self._directory).damages]
        finally:
            if self._engine is not None:
                self._engine.discard()
                wait_for_processes(self._directory)
        return self.report

    # --- engines -------------------------------------------------------------------------------------------------

    def _start(self, within_s: float = PATIENCE_S) -> EngineProcess | None:
        """A recovered engine, or None if that took longer: then it was killed on the way."""
        began = time.monotonic()
        engine = self._engine = EngineProcess(
            self._directory, SEGMENT_BYTES, CHECKPOINT_BYTES, arguments=self._arguments
        )
        if engine.wait_ready(began + within_s):
            self._start_s = time.monotonic() - began
            return engine
        if within_s == PATIENCE_S:
            raise EngineDied(f"the engine was not ready after {PATIENCE_S} s: {engine.stderr}")
        engine.kill()
        return None

    def _stop(self) -> None:
        engine = self._engine or self._start()
        assert engine is not None
        code = engine.stop()
        if code != 0:
            raise EngineDied(f"a clean stop ended with code {code}: {engine.stderr}")
        self._engine = None
        self.report.clean_stop = wait_for_processes(self._directory)

    def _prepare(self) -> Audit:
        """Topics, writers and the follower."""
        engine = self._start()
        assert engine is not None
        streams: dict[StreamName, int] = {}
        for topic, partitions in TOPICS.items():
            made = engine.ask(CreateTopic(topic, partitions))
            assert isinstance(made, TopicDone), made
            streams.update({(topic, number): stream_id for number, stream_id in enumerate(made.stream_ids)})
        ledger, seed = self._ledger, self._seed
        audit = Audit(ledger, streams)
        self._writers = [
            SequenceWriter("sequence-a", ledger, seed, 0),
            SequenceWriter("sequence-b", ledger, seed, 1),
            RisingWriter("rising", ledger, seed),
            IdWriter("id-a", ledger, seed),
            IdWriter("id-b", ledger, seed),
            Committer("commit", ledger, seed),
            TxnWriter("txn", ledger, seed, streams[SEQUENCES, 0]),
            Publisher("publish", ledger, seed, streams[SEQUENCES, 1]),
            Follower("follower", ledger, seed, audit),
        ]
        self._load = dict.fromkeys(self._writers, 0)
        self._audit = audit
        return audit

    # --- rounds --------------------------------------------------------------------------------------------------

    def _round(self) -> bool:
        """One life of an engine; False if it was killed before it was ready."""
        engine = self._engine
        if engine is None:
            recovery = self._random.random() < _RECOVERY_SHARE
            engine = self._start(self._start_s * self._random.random() if recovery else PATIENCE_S)
            if engine is None:
                self._engine = None
                return False
            if self._random.random() < _LOOK_SHARE:
                self._audit.look(engine)
        self._send_again(engine)
        self._work(engine, time.monotonic() + KILL_WITHIN_S * self._random.random())
        self._killed(engine.kill())
        self._engine = None
        return True

    def _work(self, engine: EngineProcess, until: float) -> None:
        """Keep every writer busy until then, or until nothing is left to do."""
        self._refill(engine)
        while self._in_flight and time.monotonic() < until:
            self._answer(engine.receive(until))
            self._refill(engine)

    def _refill(self, engine: EngineProcess) -> None:
        for writer in self._writers:
            while self._load[writer] < writer.depth and (request := writer.next_request()) is not None:
                self._send(engine, writer, request)

    def _send(self, engine: EngineProcess, writer: Writer, request: Request) -> None:
        self._number += 1
        self._in_flight[self._number] = (writer, request)
        self._load[writer] += 1
        engine.send(self._number, request.command)

    def _send_again(self, engine: EngineProcess) -> None:
        for writer, request in self._unsent:
            self._ledger.retried += 1
            self._send(engine, writer, request)
        self._unsent = []

    def _answer(self, answers: list[tuple[int, object]]) -> None:
        for number, answer in answers:
            writer, request = self._in_flight.pop(number)
            self._load[writer] -= 1
            writer.answered(request, answer)  # type: ignore[arg-type]

    def _killed(self, answers: list[tuple[int, object]]) -> None:
        """The engine is dead; these answers had left before."""
        self._answer(answers)
        self.report.killed_at_work += bool(self._in_flight)
        self.report.in_flight += len(self._in_flight)
        for writer in self._writers:
            waiting = [request for owner, request in self._in_flight.values() if owner is writer]
            self._unsent += [(writer, request) for request in writer.engine_died(waiting)]
            self._load[writer] = 0
        self._in_flight = {}

    def _settle(self, audit: Audit) -> None:
        """Let every writer finish what it has begun, and compare everything."""
        engine = self._start()
        assert engine is not None
        audit.look(engine)
        for writer in self._writers:
            writer.finishing = True
        self._send_again(engine)
        self._work(engine, time.monotonic() + PATIENCE_S)
        if self._in_flight or not all(writer.idle for writer in self._writers):
            raise EngineDied(f"{len(self._in_flight)} requests got no answer for {PATIENCE_S} s: {engine.stderr}")
        audit.audit(engine)
        for writer in self._writers:
            writer.finishing = False
        self.report.audits += 1

    def _count(self) -> None:
        report, ledger = self.report, self._ledger
        report.confirmed = ledger.confirmed
        report.retried = ledger.retried
        report.duplicates = ledger.duplicates
        report.records = self._audit.records
        report.findings = ledger.findings.counts()
        report.examples = ledger.findings.examples
