"""Writers that go step by step: a transactional producer, and a Spark-like driver that stages and publishes.

A script is a generator: it yields the commands of one step and is sent their outcomes when all are there. After a
crash the unanswered commands of the step are sent again. Or the client itself starts anew, which must be just as safe:
its script is thrown away and it finds out from the log how things stand.
"""

from collections.abc import Generator
from typing import ClassVar, TypeVar, cast

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import (
    AddToTxn,
    Append,
    AppendStage,
    Command,
    CursorMove,
    EndTxn,
    InitProducer,
    OpenApplication,
    OpenStage,
    Publish,
    PublishItem,
    TxnCursors,
)
from oncelog.core.flat import ProducerClaim
from oncelog.core.outcome import (
    ApplicationDone,
    CommitConfirmed,
    Confirmed,
    OffsetsCommitted,
    Outcome,
    StageDone,
    TxnDone,
    TxnRefused,
)
from oncelog.core.producer import SequenceMode
from oncelog.core.txn import TxnRefusal
from oncelog.testing.kill.ledger import CursorMoved, Fate, Identity, Ledger, Unit, value_of
from oncelog.testing.kill.writers import (
    PUBLISHED,
    SEQUENCES,
    TIMESTAMP_MS,
    TOPICS,
    TXNS,
    Request,
    Writer,
    batch_of,
)

Wanted = TypeVar("Wanted")

Script = Generator[list[Command], list[Outcome], None]


class ScriptWriter(Writer):
    """Runs `script` again and again."""

    depth = limits.PRODUCER_BATCHES_REMEMBERED
    restart_share: ClassVar[float] = 0.25
    """How often the client starts anew after a crash of the engine."""

    def __init__(self, name: str, ledger: Ledger, seed: int) -> None:
        super().__init__(name, ledger, seed)
        self._script: Script | None = None
        self._unsent: list[Request] = []
        self._step: list[Request] = []
        self._outcomes: dict[int, Outcome] = {}
        self._broken = False
        """A correct request was refused: there is no sensible next step, and the finding stands."""

    def script(self) -> Script:
        """One unit of work from its beginning, or from where the log says that it stands."""
        raise NotImplementedError

    def started_anew(self) -> None:
        """The client forgot what it was doing."""

    def next_request(self) -> Request | None:
        while not self._unsent:
            if self._broken or len(self._outcomes) < len(self._step) or not self._advance():
                return None
        return self._unsent.pop(0)

    def _advance(self) -> bool:
        """The script's next step; False if there is none to take now."""
        outcomes = [self._outcomes[id(request)] for request in self._step]
        self._step, self._outcomes = [], {}
        try:
            if self._script is None:
                if self.finishing and not self.half_done:
                    return False
                self._script = self.script()
                commands = next(self._script)
            else:
                commands = self._script.send(outcomes)
        except StopIteration:
            self._script = None
            return True
        self._step = [Request(command, None) for command in commands]
        assert 0 < len(self._step) <= self.depth
        self._unsent = list(self._step)
        return True

    def answered(self, request: Request, outcome: Outcome) -> None:
        self._outcomes[id(request)] = outcome

    def engine_died(self, waiting: list[Request]) -> list[Request]:
        if self._script is None or self.random.random() >= self.restart_share:
            return waiting
        self._script.close()
        self._script = None
        self._unsent, self._step, self._outcomes = [], [], {}
        self.started_anew()
        return []

    @property
    def idle(self) -> bool:
        return self._broken or (self._script is None and not self.half_done)

    @property
    def half_done(self) -> bool:
        """Without a script: is there something that a new one would go on with?"""
        return False

    def succeeded(self, what: str, outcome: Outcome, wanted: type[Wanted]) -> Wanted | None:
        """The outcome if it is the one that a correct request gets."""
        if not isinstance(outcome, wanted):
            self.ledger.refused(f"{self.name} {what}", outcome)
            self._broken = True
            return None
        self.ledger.confirmed += 1
        self.ledger.duplicates += getattr(outcome, "duplicate", False)
        return outcome


class TxnWriter(ScriptWriter):
    """A transactional producer: add, write, move a cursor, commit or abort. Two streams, one txn after another."""

    txn_id: ClassVar[str] = "kill-txn"
    group: ClassVar[str] = "kill-group"
    commit_share: ClassVar[float] = 0.7
    cursor: ClassVar[tuple[str, str, int]] = ("kill-group", SEQUENCES, 0)

    def __init__(self, name: str, ledger: Ledger, seed: int, source_id: int) -> None:
        """`source_id` is the stream of `cursor`."""
        super().__init__(name, ledger, seed)
        self._source_id = source_id
        self._producer: TxnDone | None = None
        self._sequences = [0] * TOPICS[TXNS]
        self._unit: Unit | None = None
        self._committing = False

    def started_anew(self) -> None:
        self._producer = None
        if self._unit is not None and self._unit.fate is Fate.OPEN:
            # Initialising again aborts what is open. Only a commit that may have arrived leaves a doubt.
            self._unit.fate = Fate.EITHER if self._committing else Fate.ABSENT

    def script(self) -> Script:
        if self._producer is None:
            yield from self._initialise()
        if self._producer is not None:
            yield from self._one_txn(self._producer)

    def _initialise(self) -> Script:
        """A newcomer with this txn id fences whoever held it, and aborts what that one had open."""
        while True:
            (outcome,) = yield [InitProducer(self.txn_id, limits.TXN_TIMEOUT_MS_MAX)]
            if not isinstance(outcome, TxnRefused) or outcome.reason != TxnRefusal.CONCURRENT.name:
                break
        self._producer = self.succeeded("init", outcome, TxnDone)
        self._sequences = [0] * TOPICS[TXNS]

    def _one_txn(self, producer: TxnDone) -> Script:
        self._committing = False
        count = self.random.randint(2, self.depth)
        identities = self.identities(count)
        self._unit = unit = self.ledger.unit(f"{self.name} {self.number}", identities)
        streams = [(TXNS, partition) for partition in range(TOPICS[TXNS])]
        who = (self.txn_id, producer.producer_id, producer.epoch)
        (outcome,) = yield [AddToTxn(*who, streams, [self.group])]
        if self.succeeded("add", outcome, TxnDone) is None:
            return
        targets = [self.random.randrange(TOPICS[TXNS]) for _ in identities]
        writes = [self._write(producer, *write) for write in zip(identities, targets, strict=True)]
        places = []
        for written in (yield cast(list[Command], writes)):
            confirmed = self.succeeded("write", written, Confirmed)
            if confirmed is None:
                return
            places.append(confirmed)
        frontier = min(self.number, self.ledger.tails.get(self._source_id, 0))
        (outcome,) = yield [TxnCursors(*who, self.group, [CursorMove(*self.cursor, frontier)])]
        if self.succeeded("cursors", outcome, OffsetsCommitted) is None:
            return
        commit = self.random.random() < self.commit_share
        if commit:
            self._committing = True
            self.ledger.cursor_moves.append(CursorMoved(self.cursor, frontier, unit))
        (outcome,) = yield [EndTxn(*who, commit)]
        if self.succeeded("end", outcome, TxnDone) is None:
            return
        if not commit:
            unit.fate = Fate.ABSENT
            return
        for identity, place in zip(identities, places, strict=True):
            self.ledger.placed(unit, [identity], place.stream_id, place.first, place.next)

    def _write(self, producer: TxnDone, identity: Identity, partition: int) -> Append:
        sequence = self._sequences[partition]
        self._sequences[partition] += 1
        batch = codec.encode(
            [(0, TIMESTAMP_MS, None, value_of(identity), ())],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        name = f"kafka:{producer.producer_id}"
        claim = ProducerClaim(name, producer.epoch, sequence, sequence, SequenceMode.RECORDS)
        return Append(TXNS, partition, batch, 1, claim=claim, txn_id=self.txn_id)


class Publisher(ScriptWriter):
    """A Spark-like driver: tasks stage their part of a batch, the driver publishes all of them at once.

    A driver that starts anew asks the log which batch was published last. If it was not this one, it stages the same
    records again: the stages of its predecessor are never published.
    """

    application: ClassVar[str] = "kill-application"
    query: ClassVar[str] = "kill-query"
    cursor: ClassVar[tuple[str, str, int]] = ("kill-application", SEQUENCES, 1)

    def __init__(self, name: str, ledger: Ledger, seed: int, source_id: int) -> None:
        """`source_id` is the stream of `cursor`."""
        super().__init__(name, ledger, seed)
        self._source_id = source_id
        self._fence = 0
        self._batch = 0
        self._unit: Unit | None = None
        self._frontier = 0

    def started_anew(self) -> None:
        self._fence = 0

    @property
    def half_done(self) -> bool:
        return self._unit is not None

    def script(self) -> Script:
        if not self._fence:
            (outcome,) = yield [OpenApplication(self.application)]
            opened = self.succeeded("open", outcome, ApplicationDone)
            if opened is None:
                return
            self._fence = opened.fence
            if self._unit is not None and opened.batch == self._batch:
                self._published(self._unit)
                return
        yield from self._one_batch()

    def _one_batch(self) -> Script:
        if self._unit is None:
            identities = self.identities(self.random.randint(2, 8))
            self._unit = self.ledger.unit(f"{self.name} {self.number}", identities)
            self._frontier = min(self.number, self.ledger.tails.get(self._source_id, 0))
            self.ledger.cursor_moves.append(CursorMoved(self.cursor, self._frontier, self._unit))
        unit = self._unit
        half = len(unit.identities) // 2
        # The third task's stage is written and forgotten, as by an attempt that lost a race.
        parts = [list(unit.identities[:half]), list(unit.identities[half:])]
        stage_ids: list[int] = []
        for opened in (yield [OpenStage(self.application, self._fence) for _ in range(3)]):
            stage = self.succeeded("open stage", opened, StageDone)
            if stage is None:
                return
            stage_ids.append(stage.stage_id)
        appends: list[Command] = []
        for stage_id, part in zip(stage_ids, [*parts, parts[0]], strict=True):
            batch, digest = batch_of(part)
            appends.append(AppendStage(stage_id, 0, batch, len(part), digest))
        for appended in (yield appends):
            if self.succeeded("append to stage", appended, StageDone) is None:
                return
        partitions = self.random.choice([(0, 1), (0, 0), (1, 0)])
        items = [
            PublishItem(stage_id, PUBLISHED, partition, len(part))
            for stage_id, partition, part in zip(stage_ids, partitions, parts, strict=False)
        ]
        move = CursorMove(*self.cursor, self._frontier)
        publish = Publish(items, self.application, self._fence, self.query, self._batch, cursors=[move])
        (outcome,) = yield [publish]
        done = self.succeeded("publish", outcome, CommitConfirmed)
        if done is not None:
            # Stages of one stream lie end to end, and their outcome is one range.
            self._place(unit, parts if len(set(partitions)) > 1 else [list(unit.identities)], done.outcome)
            self._published(unit)

    def _place(self, unit: Unit, parts: list[list[Identity]], outcome: list[int]) -> None:
        for part, at in zip(parts, range(0, len(outcome), 3), strict=True):
            stream_id, first, next_ = outcome[at : at + 3]
            self.ledger.placed(unit, part, stream_id, first, next_)

    def _published(self, unit: Unit) -> None:
        unit.fate = Fate.VISIBLE
        self._unit = None
        self._batch += 1
