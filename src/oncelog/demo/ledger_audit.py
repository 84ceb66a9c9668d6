"""The audit of the log against the producers' ledgers, in memory and without Spark.

It asks what `pipelines.audit_queries` asks of a log of any size, and gives the same counts: see there for what each of
them means. It is for the demo, whose log fits into memory.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from oncelog.client import Client
from oncelog.pipelines.audit_result import EXAMPLES_MAX, AuditResult, TopicAudit
from oncelog.pipelines.ledger import Line, hash_of, lines_of

IdentityOf = Callable[[str, bytes], str]
"""Finds the identity of a record of a topic in its value."""


class Stored(NamedTuple):
    """One record of the log."""

    partition: int
    offset: int
    hash: str


class Identity:
    """One record: where the log has it, and what the ledgers say of it."""

    def __init__(self) -> None:
        self.stored: list[Stored] = []
        self.lines: list[Line] = []

    def of(self, state: str) -> list[Line]:
        """The lines in one state."""
        return [line for line in self.lines if line.state == state]

    @property
    def contents(self) -> set[str]:
        """Hashes of what the log has."""
        return {stored.hash for stored in self.stored}

    @property
    def is_lost(self) -> bool:
        """A confirmation names a place where the log does not have it."""
        return any(not any(_is_at(line, stored) for stored in self.stored) for line in self.of("confirmed"))

    @property
    def is_conflicting(self) -> bool:
        """Two contents, or another content than was sent."""
        sent = {line.hash for line in self.of("sent")}
        return len(self.contents) > 1 or bool(sent and self.contents - sent)

    @property
    def unexpected(self) -> int:
        """Copies that no ledger names, or that were refused."""
        if not self.of("sent"):
            return len(self.stored)
        return len(self.contents & {line.hash for line in self.of("refused")})

    @property
    def orders(self) -> tuple[int, int] | None:
        """First and last attempt, in the order of its writer; None if nobody promises its place."""
        orders = [line.order for line in self.of("sent") if line.order >= 0]
        return (min(orders), max(orders)) if orders else None


def _is_at(line: Line, stored: Stored) -> bool:
    return line.partition in (-1, stored.partition) and line.offset in (-1, stored.offset)


Log = Mapping[str, Mapping[str, Identity]]
"""Records by topic and identity."""


def audit_ledgers(url: str, topics: Sequence[str], ledgers: Iterable[Path], identity_of: IdentityOf) -> AuditResult:
    """Reads the topics and the ledgers, and compares."""
    log: dict[str, dict[str, Identity]] = {topic: defaultdict(Identity) for topic in topics}
    with Client(url) as client:
        for stream in client.cut(*topics).streams:
            with client.reader(stream.topic, partition=stream.partition, live=False) as reader:
                for record in reader:
                    value = record.value or b""
                    name = identity_of(stream.topic, value) if value else f"offset {record.offset}"
                    stored = Stored(stream.partition, record.offset, hash_of(value))
                    log[stream.topic][name].stored.append(stored)
    for path in ledgers:
        for line in lines_of(path):
            if line.topic in log:
                log[line.topic][line.id].lines.append(line)
    return compared(log)


def compared(log: Log) -> AuditResult:
    """The verdict."""
    examples: list[str] = []
    topics = [_counted(topic, identities, examples) for topic, identities in log.items()]
    torn = list(_torn(log))
    for commit, parts, present in torn:
        for topic in topics:
            topic.torn += topic.topic in {name for name, _ in parts}
        examples.append(f"{present} of {len(parts)} records of the commit {commit} are there")
    return AuditResult(
        topics,
        lost=sum(topic.lost for topic in topics),
        doubled=sum(topic.doubled for topic in topics),
        torn=len(torn),
        out_of_order=sum(topic.out_of_order for topic in topics),
        conflicting=sum(topic.conflicting for topic in topics),
        unexpected=sum(topic.unexpected for topic in topics),
        records=sum(topic.records for topic in topics),
        examples=examples[: 4 * EXAMPLES_MAX],
        not_judged=[topic.topic for topic in topics if not topic.judged],
    )


def _counted(topic: str, identities: Mapping[str, Identity], examples: list[str]) -> TopicAudit:
    found = TopicAudit(topic)
    for name, identity in identities.items():
        extra = len(identity.stored) - len(identity.contents)
        found.records += len(identity.stored)
        found.sent += bool(identity.of("sent"))
        found.confirmed += bool(identity.of("confirmed"))
        found.lost += identity.is_lost
        found.doubled += extra
        found.conflicting += identity.is_conflicting
        found.unexpected += identity.unexpected
        if identity.is_lost or extra or identity.is_conflicting or identity.unexpected:
            examples.append(f"{topic}: {name} is not in the log once, where and as its ledger says")
    found.out_of_order = sum(1 for _ in _out_of_order(identities))
    return found


def _torn(log: Log) -> Iterator[tuple[str, list[tuple[str, bool]], int]]:
    """Commits of which the log has some records and not others: (commit, (topic, is there) of each, how many are)."""
    commits: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for topic, identities in log.items():
        for identity in identities.values():
            refused = {line.hash for line in identity.of("refused")}
            named = {line.commit for line in identity.of("sent") if line.commit and line.hash not in refused}
            if named:
                commits[max(named)].append((topic, bool(identity.stored)))
    for commit, parts in commits.items():
        present = sum(is_there for _, is_there in parts)
        if 0 < present < len(parts):
            yield commit, parts, present


def _out_of_order(identities: Mapping[str, Identity]) -> Iterator[str]:
    """Records behind one that the same writer first sent after their last attempt."""
    placed: dict[tuple[int, str], list[tuple[int, int, int, str]]] = defaultdict(list)
    for name, identity in identities.items():
        writers = {line.writer for line in identity.of("sent")}
        if identity.stored and len(writers) == 1 and identity.orders is not None:
            place = min(identity.stored)
            placed[place.partition, writers.pop()].append((place.offset, *identity.orders, name))
    for records in placed.values():
        latest = -1
        for _, first, last, name in sorted(records):
            if latest > last:
                yield name
            latest = max(latest, first)
