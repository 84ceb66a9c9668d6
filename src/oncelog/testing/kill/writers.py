"""Writers that keep several independent requests in flight: by producer sequence, by message id, by commit id.

A writer never changes a request once it was sent: after a crash the same command goes out again, with the same claim,
until it is answered. Some requests are deliberate mistakes or repetitions, whose answers are known beforehand.
"""

import random
from collections import deque
from typing import ClassVar, Final

from oncelog.core import batch as codec
from oncelog.core.command import (
    Append,
    Columns,
    Command,
    Commit,
    CommitAppend,
    CursorMove,
    ExpectCursor,
    ExpectTail,
    one_value,
)
from oncelog.core.flat import ProducerClaim
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import CommitConfirmed, ConditionFailed, Confirmed, IdConflict, Outcome
from oncelog.core.producer import SequenceMode
from oncelog.core.verdict import OFFSET_UNKNOWN
from oncelog.testing.kill.ledger import CursorMoved, Fate, Identity, Ledger, Unit, value_of
from oncelog.testing.kill.messages import Read

SEQUENCES: Final = "sequences"
RISING: Final = "rising"
IDS: Final = "ids"
COMMITS: Final = "commits"
TXNS: Final = "txns"
PUBLISHED: Final = "published"

TOPICS: Final[dict[str, int]] = {SEQUENCES: 2, RISING: 1, IDS: 1, COMMITS: 3, TXNS: 2, PUBLISHED: 2}
"""Topic -> partitions."""

TIMESTAMP_MS: Final = 1_700_000_000_000
"""Records of one identity must be the same bytes in every run."""

_RECORDS_MAX: Final = 3


class Request:
    """A command in flight, and what its answer is about."""

    __slots__ = ("again", "command", "unit")

    def __init__(self, command: Command | Read, unit: Unit | None, *, again: bool = False) -> None:
        self.command = command
        self.unit = unit
        self.again = again
        """Sent a second time on purpose, although it was confirmed: the answer must say so."""


def batch_of(identities: list[Identity]) -> tuple[bytes, bytes]:
    """(batch, digest of its content)"""
    values = [value_of(identity) for identity in identities]
    return codec.encode_values(values, TIMESTAMP_MS), content_digest(b"".join(values))


class Writer:
    """One client of the log."""

    depth: ClassVar[int]
    """Requests in flight at most."""

    def __init__(self, name: str, ledger: Ledger, seed: int) -> None:
        self.name = name
        self.ledger = ledger
        self.random = random.Random(f"{seed}/{name}")
        self.number = 0
        self.finishing = False
        """Begin nothing new."""

    def identities(self, count: int) -> list[Identity]:
        """Names for the records of the next unit."""
        self.number += 1
        return [f"{self.name}:{self.number}:{part}".encode() for part in range(count)]

    def next_request(self) -> Request | None:
        """What to send now, if anything. Asked whenever fewer than `depth` are in flight."""
        raise NotImplementedError

    def answered(self, request: Request, outcome: Outcome) -> None:
        raise NotImplementedError

    def engine_died(self, waiting: list[Request]) -> list[Request]:
        """Which of the unanswered requests to send again, in this order."""
        return waiting

    @property
    def idle(self) -> bool:
        """With nothing in flight: is there nothing half done either?"""
        return True


class FlatWriter(Writer):
    """Batches to one stream, each with a claim. Now and then one that was confirmed is sent again."""

    again_share: ClassVar[float] = 0.1

    def __init__(self, name: str, ledger: Ledger, seed: int) -> None:
        super().__init__(name, ledger, seed)
        self._confirmed: deque[Request] = deque(maxlen=1)

    def next_request(self) -> Request | None:
        if self.finishing:
            return None
        if self._confirmed and self.random.random() < self.again_share:
            known = self.random.choice(self._confirmed)
            return Request(known.command, known.unit, again=True)
        return self.fresh_request()

    def fresh_request(self) -> Request:
        raise NotImplementedError

    def answered(self, request: Request, outcome: Outcome) -> None:
        unit = request.unit
        assert unit is not None
        if not isinstance(outcome, Confirmed) or (request.again and not outcome.duplicate):
            self.ledger.refused(unit.name, outcome)
            return
        self.ledger.confirmed += 1
        self.ledger.duplicates += outcome.duplicate
        if request.again and outcome.first == OFFSET_UNKNOWN:
            return  # five later ones were in flight: still a duplicate, its place is no longer remembered
        self.ledger.placed(unit, unit.identities, outcome.stream_id, outcome.first, outcome.next)
        if not request.again:
            self._confirmed.append(request)


class SequenceWriter(FlatWriter):
    """A producer that counts its requests: five in flight, as many as the log remembers."""

    depth = 5

    def __init__(self, name: str, ledger: Ledger, seed: int, partition: int) -> None:
        super().__init__(name, ledger, seed)
        self._partition = partition
        self._sequence = -1

    def fresh_request(self) -> Request:
        self._sequence += 1
        return self.claimed(SEQUENCES, self._partition, SequenceMode.REQUESTS, self._sequence)

    def claimed(self, topic: str, partition: int, mode: SequenceMode, sequence: int) -> Request:
        identities = self.identities(self.random.randint(1, _RECORDS_MAX))
        batch, digest = batch_of(identities)
        claim = ProducerClaim(f"http:{self.name}", 0, sequence, sequence, mode, digest)
        command: Append | Columns = Append(topic, partition, batch, len(identities), digest, claim)
        if len(identities) == 1:
            command = one_value(topic, partition, value_of(identities[0]), digest, claim)
        return Request(command, self.ledger.unit(f"{self.name} sequence {sequence}", identities))


class RisingWriter(SequenceWriter):
    """A producer whose sequences only rise, with gaps: positions in a file, say."""

    depth = 3

    def __init__(self, name: str, ledger: Ledger, seed: int) -> None:
        super().__init__(name, ledger, seed, 0)

    def fresh_request(self) -> Request:
        self._sequence += self.random.randint(1, 1_000)
        return self.claimed(RISING, 0, SequenceMode.RISING, self._sequence)


class IdWriter(FlatWriter):
    """Records with message ids. Some ids are sent by every such writer, some again long after, some with other content
    (P3)."""

    depth = 6
    again_share = 0.2
    shared_share: ClassVar[float] = 0.2
    conflict_share: ClassVar[float] = 0.05

    def __init__(self, name: str, ledger: Ledger, seed: int) -> None:
        super().__init__(name, ledger, seed)
        self._confirmed = deque(maxlen=5_000)
        self._shared = 0

    def fresh_request(self) -> Request:
        chance = self.random.random()
        if chance < self.conflict_share and self._confirmed:
            known = self.random.choice(self._confirmed)
            assert known.unit is not None
            return Request(self._append(known.unit.identities[0], b"other"), None)
        if chance < self.conflict_share + self.shared_share:
            self._shared += 1
            identity = b"shared:%d:0" % self._shared
        else:
            identity = self.identities(1)[0]
        return Request(self._append(identity), self.ledger.unit(identity.decode(), [identity]))

    def _append(self, identity: Identity, salt: bytes = b"") -> Columns:
        value = value_of(identity, salt) + salt
        return one_value(IDS, 0, value, content_digest(value), message_id=identity)

    def answered(self, request: Request, outcome: Outcome) -> None:
        if request.unit is not None:
            super().answered(request, outcome)
        elif not isinstance(outcome, IdConflict):
            self.ledger.findings.add("changed", f"{self.name}: other content under a known id: {outcome}")


class Committer(Writer):
    """Commits over three streams. Each moves a cursor, and expects it where the one before has put it."""

    depth = 3
    doomed_share: ClassVar[float] = 0.1
    again_share: ClassVar[float] = 0.1
    cursor: ClassVar[tuple[str, str, int]] = ("committer", COMMITS, 0)

    def __init__(self, name: str, ledger: Ledger, seed: int) -> None:
        super().__init__(name, ledger, seed)
        self._frontier = 0
        self._last: Request | None = None

    def next_request(self) -> Request | None:
        if self.finishing:
            return None
        if self._last is not None and self.random.random() < self.again_share:
            return Request(self._last.command, self._last.unit, again=True)
        counts = [self.random.randint(1, 2) for _ in range(TOPICS[COMMITS])]
        identities = self.identities(sum(counts))
        unit = self.ledger.unit(f"{self.name} {self.number}", identities)
        appends: list[CommitAppend] = []
        at = 0
        for partition, count in enumerate(counts):
            batch, digest = batch_of(identities[at : at + count])
            appends.append(CommitAppend(COMMITS, partition, batch, count, digest))
            at += count
        commit_id = f"{self.name}-{self.number}"
        if self.random.random() < self.doomed_share:
            unit.fate = Fate.ABSENT
            return Request(Commit(appends, [ExpectTail(COMMITS, 0, 1 << 40)], commit_id=commit_id), unit)
        expected = ExpectCursor(*self.cursor, self._frontier)
        # Nobody else writes to this stream, so the writer knows where its records will end.
        self._frontier += counts[0]
        self.ledger.cursor_moves.append(CursorMoved(self.cursor, self._frontier, unit))
        move = CursorMove(*self.cursor, self._frontier)
        return Request(Commit(appends, [expected], [move], commit_id), unit)

    def answered(self, request: Request, outcome: Outcome) -> None:
        unit, command = request.unit, request.command
        assert unit is not None
        assert isinstance(command, Commit)
        if unit.fate is Fate.ABSENT:
            if not isinstance(outcome, ConditionFailed):
                self.ledger.findings.add("aborted_visible", f"{unit.name}: a false condition gave {outcome}")
            return
        if not isinstance(outcome, CommitConfirmed) or (request.again and not outcome.duplicate):
            self.ledger.refused(unit.name, outcome)
            return
        self.ledger.confirmed += 1
        self.ledger.duplicates += outcome.duplicate
        at = 0
        for append, number in zip(command.appends, range(0, len(outcome.outcome), 3), strict=True):
            stream_id, first, next_ = outcome.outcome[number : number + 3]
            self.ledger.placed(unit, unit.identities[at : at + append.count], stream_id, first, next_)
            at += append.count
        if not request.again:
            self._last = request
