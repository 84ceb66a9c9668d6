"""What a request asks the server to do: the answers of `routes`. The server carries them out; it decides nothing."""

from collections.abc import Callable

from oncelog.core.command import Command, Publish
from oncelog.core.outcome import Outcome

Render = Callable[[Outcome], bytes]


class Done:
    """Nothing to carry out: this is the answer."""

    __slots__ = ("answer",)

    def __init__(self, answer: bytes) -> None:
        self.answer = answer


class Submit:
    """A command for the engine; `render` makes the answer of its outcome."""

    __slots__ = ("command", "render")

    def __init__(self, command: Command, render: Render) -> None:
        self.command = command
        self.render = render


class PublishNamed:
    """A publish whose records carry message ids, which have to be read first."""

    __slots__ = ("command", "render")

    def __init__(self, command: Publish, render: Render) -> None:
        self.command = command
        self.render = render


class Read:
    """Records of a stream, now or once they are there."""

    __slots__ = ("bare", "cursor", "if_none_match", "live", "offset", "partition", "raw", "topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        live: str,
        cursor: str,
        raw: bool,
        if_none_match: str,
        bare: bool = False,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.live = live
        """"" for a catch-up read, "long-poll" or "sse"."""
        self.cursor = cursor
        self.raw = raw
        self.if_none_match = if_none_match
        self.bare = bare
        """Events are sent without chunks around them, and the end of the connection is theirs."""


class Stand:
    """HEAD: where a stream stands."""

    __slots__ = ("partition", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition


class Cut:
    """One instant of several topics; None for all."""

    __slots__ = ("topics",)

    def __init__(self, topics: list[str] | None) -> None:
        self.topics = topics


class Stood:
    """Where several topics stood at an entry, or else at a time; None for all topics."""

    __slots__ = ("entry", "time_ms", "topics")

    def __init__(self, topics: list[str] | None, entry: int | None, time_ms: int) -> None:
        self.topics = topics
        self.entry = entry
        self.time_ms = time_ms


class ListStreams:
    """A page of streams, by topic."""

    __slots__ = ("after", "limit", "prefix")

    def __init__(self, prefix: str, after: str, limit: int) -> None:
        self.prefix = prefix
        self.after = after
        self.limit = limit


class ListProducers:
    """A page of a stream's producers."""

    __slots__ = ("after", "limit", "partition", "prefix", "topic")

    def __init__(self, topic: str, partition: int, prefix: str, after: str, limit: int) -> None:
        self.topic = topic
        self.partition = partition
        self.prefix = prefix
        self.after = after
        self.limit = limit


class ListTxns:
    """Transactions by id."""

    __slots__ = ("after", "limit", "prefix")

    def __init__(self, prefix: str, after: str, limit: int) -> None:
        self.prefix = prefix
        self.after = after
        self.limit = limit


class ListCursors:
    """A page of cursors, by name and stream."""

    __slots__ = ("after", "limit", "prefix")

    def __init__(self, prefix: str, after: tuple[str, int] | None, limit: int) -> None:
        self.prefix = prefix
        self.after = after
        self.limit = limit


class Receipt:
    """What became of a message id, and who wrote it."""

    __slots__ = ("message_id", "partition", "topic")

    def __init__(self, topic: str, partition: int, message_id: bytes) -> None:
        self.topic = topic
        self.partition = partition
        self.message_id = message_id


class Health:
    """Is it alive, and how safe are its confirmations?"""

    __slots__ = ()


class Metrics:
    """Counters for a monitor."""

    __slots__ = ()


Action = (
    Done
    | Submit
    | PublishNamed
    | Read
    | Stand
    | Cut
    | Stood
    | ListStreams
    | ListProducers
    | ListCursors
    | ListTxns
    | Receipt
    | Health
    | Metrics
)
