"""What the Kafka face asks of the log: one interface, carried out by `servers/kafka`, and the words around it.

Everything is called and answered on one thread. A callback is called once, possibly before the call that took it
returns.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from oncelog.core.command import Command
from oncelog.core.flat import Producer, Stream
from oncelog.core.outcome import Outcome, Refusal
from oncelog.core.rows import Cursor, Topic
from oncelog.core.txn import Txn

Reply = Callable[[Outcome], None]


class Cancellable(Protocol):
    """Something that was asked for and may not be wanted any more."""

    def cancel(self) -> None:
        """Do not call back."""
        ...


class StreamPlace(Protocol):
    """Where a stream stands for readers."""

    @property
    def stream_id(self) -> int: ...
    @property
    def floor(self) -> int: ...
    @property
    def stable(self) -> int: ...
    @property
    def tail(self) -> int: ...


class Place(NamedTuple):
    """A place that somebody reads from."""

    topic: str
    partition: int
    offset: int


class StoredBatch(NamedTuple):
    """A batch and the offset that its first record has; the header holds another one."""

    base_offset: int
    batch: bytes


class Found(NamedTuple):
    """What a read found."""

    batches: list[StoredBatch]
    next_offset: int
    stable: int
    tail: int
    floor: int
    aborted: tuple[tuple[int, int], ...]
    """(producer id, first offset) of aborted txns that have records among the batches."""


class SavedOffset(NamedTuple):
    """A consumer's saved place."""

    name: str
    topic: str
    partition: int
    cursor: Cursor


class Log(Protocol):
    """The log, as this face sees it."""

    def submit(self, command: Command, reply: Reply) -> object:
        """Carry out a command; `reply` gets the outcome once it is durable."""
        ...

    def topic(self, name: str) -> Topic | None:
        """A topic as readers see it."""
        ...

    def topics(self) -> list[Topic]:
        """All of them, by name."""
        ...

    def stream(self, stream_id: int) -> StreamPlace | None:
        """Where a stream stands for readers."""
        ...

    def stream_row(self, stream_id: int) -> Stream | None:
        """The writer's own row: its open txns."""
        ...

    def read(
        self, place: Place, bytes_max: int, *, committed: bool, found: Callable[[Found | Refusal], None]
    ) -> Cancellable | None:
        """Batches from a place on, at least one if there is one."""
        ...

    def wait(
        self, places: list[Place], *, committed: bool, bytes_min: int, wait_ms: int, wake: Callable[[], None]
    ) -> Cancellable | None:
        """Call `wake` when the places together have so many bytes, when one of them cannot be read, or when the time is
        up; None if it is so already."""
        ...

    def offsets_at(
        self, topic: str, partition: int, time_ms: int, told: Callable[[tuple[int, int] | None], None]
    ) -> None:
        """(offset, time) of the first record whose own time is at or after `time_ms`; None if there is none."""
        ...

    def offset_of_latest_time(self, topic: str, partition: int, told: Callable[[tuple[int, int] | None], None]) -> None:
        """(offset, time) of the record with the largest time of its own."""
        ...

    def saved_offsets(self, prefix: str, told: Callable[[list[SavedOffset]], None]) -> None:
        """Saved places of consumers whose names begin with `prefix`."""
        ...

    def producers(self, stream_id: int, told: Callable[[list[tuple[str, Producer]]], None]) -> None:
        """Kafka producers of a stream, by scoped name."""
        ...

    def txns(self, told: Callable[[list[Txn]], None]) -> None:
        """All transactional ids that are known."""
        ...

    def now_ns(self) -> int:
        """The log's own time."""
        ...

    def later(self, delay_ms: float, call: Callable[[], None]) -> Cancellable:
        """Call after a while."""
        ...

    def unique(self) -> str:
        """A word that nobody has been given before."""
        ...
