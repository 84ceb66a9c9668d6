"""A zone: its name, where its facts go, and what the calls ask of the server that runs them."""

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from oncelog.core import facts
from oncelog.core.command import Append, Columns, Command, CreateTopic
from oncelog.core.content_type import JSON
from oncelog.core.outcome import Confirmed, TopicMissing
from oncelog.core.rows import FOREVER, TopicConfig
from oncelog.protocols.bsfg.messages import Message
from oncelog.protocols.bsfg.policy import Peer

CONSUMER_SCOPE: Final = "bsfg:"
"""Before the name of every consumer of this face."""

CLOSED: Final = "closed"
"""The gate of a consumer that gets no facts until it is opened. Empty is open."""

FULL_SHARE: Final = 0.8
"""Of the backlog that is allowed: above it new facts are refused, so that what is under way still fits."""

FACT_CONFIG: Final = TopicConfig(content_type=JSON, dedupe_floor_ms=FOREVER, id_zone=facts.ID_ZONE, digest="jcs")
"""What fact topics are made with."""


class Find(NamedTuple):
    """Ask for the records of a stream from an offset on. The reply has `batches`, `next_offset` and `stable`, as the
    engine's reads have, or is a refusal."""

    topic: str
    offset: int
    bytes_max: int


class ListConsumers(NamedTuple):
    """Ask for the consumers whose names begin so. The reply is a list with `name`, `topic` and `cursor`."""

    prefix: str


class Prepared(NamedTuple):
    """Submit one command right behind another one, whose reply nobody wants. Between two replies another call could
    come in: what is pipelined would be stored in another order than it was sent."""

    before: Command
    command: Command


Ask: TypeAlias = Command | Find | ListConsumers | Prepared
"""What a call asks the server for: a command, or records."""

Steps: TypeAlias = Generator[Ask, Any, Message]
"""A call in progress: it yields what it asks, is sent the reply, and returns its answer. Raises RpcError."""


class Route(msgspec.Struct, frozen=True):
    """Facts whose subject begins with `prefix` go to `stream`."""

    prefix: str
    stream: str


class Zone:
    """This server's zone, as the calls see it."""

    def __init__(
        self,
        name: str,
        name_of: Callable[[int], tuple[str, int]],
        routes: tuple[Route, ...] = (),
        now_ms: Callable[[], int] = lambda: 0,
        peers: tuple[Peer, ...] = (),
        backlog_bytes: Callable[[str, int], int] = lambda _topic, _frontier: 0,
        backlog_bytes_max: int = 0,
    ) -> None:
        self.backlog_bytes = backlog_bytes
        """Bytes of a topic from an offset on."""
        self.backlog_bytes_max = backlog_bytes_max
        """What one consumer may leave unconfirmed; 0 for any amount."""
        self.is_full_because = ""
        """Why new facts are refused; empty while they are taken."""
        self.name = name
        self.peers = peers
        self.now_ms = now_ms
        """The log's own time."""
        self.name_of = name_of
        """The topic and partition of a stream id."""
        self.topics_made: set[str] = set()
        """Topics that are known to be there."""
        self._routes = tuple(sorted(routes, key=lambda route: len(route.prefix), reverse=True))

    def look_at_backlog(self, consumers: Iterable[Any]) -> None:
        """Refuse new facts while a consumer of this face leaves more than `FULL_SHARE` of the bound unconfirmed."""
        self.is_full_because = ""
        for listed in consumers if self.backlog_bytes_max else ():
            if listed.topic in facts.TOPICS and listed.cursor.pinned:
                backlog = self.backlog_bytes(listed.topic, listed.cursor.frontier)
                if backlog > self.backlog_bytes_max * FULL_SHARE:
                    name = listed.name.removeprefix(CONSUMER_SCOPE)
                    has = f"consumer {name!r} has {backlog:,} unconfirmed bytes in {listed.topic}"
                    self.is_full_because = f"{has}; the limit is {FULL_SHARE:.0%} of {self.backlog_bytes_max:,}"

    def stream_for(self, subject: str) -> str:
        """The topic of facts about a subject: that of the longest prefix, else `facts.operational`."""
        return next((route.stream for route in self._routes if subject.startswith(route.prefix)), facts.OPERATIONAL)


def appended(zone: Zone, command: Append | Columns, config: TopicConfig) -> Any:
    """Steps that return the outcome of an append to a topic that is made when it is first needed."""
    topic = command.topic
    if topic in zone.topics_made:
        outcome = yield command
        if not isinstance(outcome, TopicMissing):
            return outcome
    outcome = yield Prepared(CreateTopic(topic, config=config), command)
    if isinstance(outcome, Confirmed):
        zone.topics_made.add(topic)
    return outcome
