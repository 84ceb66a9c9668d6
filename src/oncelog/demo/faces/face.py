"""What a face is, and what its producers are given. A new face is one module like its neighbours and one line in FACES.

A producer is a process. It writes its orders in their order, under claims that it would use again: it may be killed at
any instant and started anew with the same words, and then goes on from its ledger. It notes each record before it
leaves and after it was confirmed; the audit knows nothing else of it.
"""

import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from oncelog.demo.orders import PARTITIONS, TOPICS, Order, order_of
from oncelog.errors import OncelogError
from oncelog.pipelines.ledger import Ledger, lines_of


class Contradiction(OncelogError):
    """The server said one thing and then another about the same write."""


class Face(Protocol):
    """A way to write."""

    name: str
    """Short, for names of producers."""
    label: str
    """For tables, at most 20 letters."""
    producers: int
    """How many processes write so."""
    orders: int
    """Of each of them, at scale 1: as many as take about as long as those of the other faces."""
    tells_retries: bool
    """Whether it knows how often it sent again; a client that does so by itself does not tell."""

    def run(self, context: "Context") -> None:
        """Writes every order that is not confirmed yet. Returns when all are."""


class Told(msgspec.Struct, frozen=True):
    """What a producer is told."""

    addresses: dict[str, str]
    """By protocol, HOST:PORT of the server, or of the network before it."""
    face: str
    producer: str
    seed: int
    number: int
    """Among the producers of its face."""
    orders: int
    ledger: str


class Said(msgspec.Struct, omit_defaults=True):
    """What a producer says on stdout, a line at a time.

    The first two are what its ledger says, over all its lives: a kill must not make anybody count less than is there.
    The others are what happened since the line before.
    """

    orders: int = 0
    """That are confirmed in all their topics."""
    records: int = 0
    """That are confirmed."""
    retried: int = 0
    duplicates: int = 0


class Written(NamedTuple):
    """An answer: where the records of a request are."""

    offsets: dict[str, int]
    """By topic."""
    duplicate: bool


class Context:
    """One life of one producer: what it has to write, and its ledger. For several threads."""

    def __init__(self, told: Told) -> None:
        self.addresses = told.addresses
        self.producer = told.producer
        self.seed = told.seed
        self.orders = told.orders
        self.partition = told.number % PARTITIONS
        path = Path(told.ledger)
        self._confirmed: dict[str, set[str]] = defaultdict(set)
        """By order: the topics where it is."""
        if path.exists():
            for line in lines_of(path):
                if line.state == "confirmed":
                    self._confirmed[line.id].add(line.topic)
        self._ledger = Ledger(path, writer=told.producer, face=told.face)
        self._said = Said(
            orders=sum(len(topics) == len(TOPICS) for topics in self._confirmed.values()),
            records=sum(len(topics) for topics in self._confirmed.values()),
        )
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Of the HTTP face."""
        return f"http://{self.addresses['http']}"

    def order(self, number: int) -> Order:
        """The same in every life."""
        return order_of(self.seed, self.producer, number, self.orders)

    def open_orders(self) -> Iterator[int]:
        """The orders that are not confirmed in every topic; after a kill the first of them may have been sent."""
        for number in range(self.orders):
            if len(self._confirmed.get(self.order(number).order_id, ())) < len(TOPICS):
                yield number

    def sending(self, order: Order, topics: Sequence[str], *, commit: str = "") -> None:
        """About to leave, for the first time in this life. On disk when it returns."""
        with self._lock:
            for topic in topics:
                self._ledger.sent(topic, order.order_id, order.value(topic), partition=self.partition, commit=commit)
            # Confirmations of what came before are on disk with it, for the same price.
            self._ledger.sync()
            self._say()

    def confirmed(self, order: Order, offsets: Mapping[str, int], *, duplicate: bool, attempts: int) -> None:
        """On the server's disk, at these offsets by topic; -1 where the server does not know the place any more."""
        with self._lock:
            self._said.retried += attempts - 1
            self._said.duplicates += duplicate
            for topic, offset in offsets.items():
                self._note(topic, order.order_id, offset)

    def confirmed_before(self, topic: str, count: int) -> None:
        """The server has the first `count` orders of this producer, whether or not an earlier life heard of it."""
        with self._lock:
            for number in range(count):
                order_id = self.order(number).order_id
                if topic not in self._confirmed[order_id]:
                    self._note(topic, order_id, -1)

    def sent_again(self, attempts: int) -> None:
        """A copy was sent on purpose and recognised."""
        with self._lock:
            self._said.retried += attempts - 1
            self._said.duplicates += 1

    def close(self) -> None:
        """Everything is told."""
        with self._lock:
            self._ledger.close()
            self._say()

    def _note(self, topic: str, order_id: str, offset: int) -> None:
        self._ledger.confirmed(topic, order_id, offset, partition=self.partition)
        topics = self._confirmed[order_id]
        if topic not in topics:
            topics.add(topic)
            self._said.records += 1
            self._said.orders += len(topics) == len(TOPICS)

    def _say(self) -> None:
        sys.stdout.write(msgspec.json.encode(self._said).decode() + "\n")
        sys.stdout.flush()
        self._said = Said(self._said.orders, self._said.records)
