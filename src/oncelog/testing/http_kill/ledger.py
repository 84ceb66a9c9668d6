"""What is written where, and the ledger of it: that of the kill rounds, and what only HTTP answers can say.

Every record is the value that belongs to its identity (`oncelog.testing.kill.ledger`), on JSON streams as a string.
"""

from collections import Counter, defaultdict
from typing import Final, NamedTuple

from oncelog.testing.http_kill.wire import JSON, OCTETS
from oncelog.testing.kill.ledger import Fate, Identity, Ledger, Unit, value_of


class Topic(NamedTuple):
    """A topic that the writers write to."""

    name: str
    content_type: str = JSON
    partitions: int = 1

    def target(self, partition: int) -> str:
        query = f"?partition={partition}" if self.partitions > 1 else ""
        return f"/v1/stream/{self.name}{query}"


SOLE: Final = Topic("sole")
"""One writer alone, so that it knows where the stream ends."""
SHARED: Final = Topic("shared", partitions=2)
OPAQUE: Final = Topic("opaque", OCTETS)
IDS: Final = Topic("ids", partitions=2)
COMMITS: Final = (Topic("commits/a"), Topic("commits/b"), Topic("commits/c"))
CLIENTS: Final = Topic("clients", partitions=2)

TOPICS: Final = (SOLE, SHARED, OPAQUE, IDS, *COMMITS, CLIENTS)

StreamName = tuple[str, int]
"""(topic, partition)"""

STREAM_IDS: Final[dict[StreamName, int]] = {
    stream: number
    for number, stream in enumerate(
        (topic.name, partition) for topic in TOPICS for partition in range(topic.partitions)
    )
}
"""Over HTTP streams have names alone; the ledger wants numbers."""


class Tally:
    """How one writer fared."""

    __slots__ = ("confirmed", "duplicates", "retried")

    def __init__(self) -> None:
        self.confirmed = 0
        self.duplicates = 0
        self.retried = 0


class HttpLedger(Ledger):
    """Everything that the writers know."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.salt = b"%d~" % seed
        """A record of another run is not taken for one of this."""
        self.tallies: dict[str, Tally] = defaultdict(Tally)
        self.requests = 0
        self.unanswered = 0
        """Requests that were sent and whose connection ended before their answer came."""
        self.gaps = 0
        """Requests that came early and were told so, because one before them was cut off on its way."""
        self.rightly_refused = 0
        self._sends: Counter[Unit] = Counter()
        self._made: set[Unit] = set()

    def value(self, topic: Topic, identity: Identity) -> bytes:
        """The record of an identity."""
        value = value_of(identity, self.salt)
        return b'"%b"' % value if topic.content_type == JSON else value

    def sent(self, writer: str, unit: Unit | None, *, retry: bool) -> None:
        """A request leaves."""
        self.requests += 1
        if unit is not None:
            self._sends[unit] += 1
        if retry:
            self.retried += 1
            self.tallies[writer].retried += 1

    def succeeded(self, writer: str, unit: Unit, *, duplicate: bool, again: bool) -> None:
        """A write was confirmed. Which of its answers may be the first, and which must be a duplicate?"""
        self.counted(writer, duplicate=duplicate)
        if duplicate and self._sends[unit] == 1:
            self.findings.add("lost", f"{unit.name} was sent once and answered as a duplicate")
        if not duplicate and (again or unit in self._made):
            self.findings.add("doubled", f"{unit.name} was confirmed before and is now answered as new")
        if not duplicate:
            self._made.add(unit)
        unit.fate = Fate.VISIBLE

    def counted(self, writer: str, *, duplicate: bool) -> None:
        """A write was confirmed."""
        tally = self.tallies[writer]
        self.confirmed += 1
        tally.confirmed += 1
        self.duplicates += duplicate
        tally.duplicates += duplicate


def identity_in(value: bytes) -> Identity:
    """Whose record it is."""
    return value.removeprefix(b'"').partition(b"|")[0]
