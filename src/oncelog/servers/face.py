"""What a server process needs of a face, and what it gives to each: a face is a value in a list.

A face turns bytes of clients into commands of core and outcomes into bytes. It has its rules in `protocols/<face>` and
its sockets in `servers/<face>`. Everything that faces share is outside them: the listener with its bounds, deadlines
and stop (`listener.py`), what every connection has (`face_connection.py`), back-pressure (`back_pressure.py`).
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from oncelog import limits
from oncelog.engine.engine import Engine
from oncelog.servers.back_pressure import BackPressure
from oncelog.servers.bsfg_settings import BsfgSettings
from oncelog.servers.counts import Counts
from oncelog.servers.face_settings import Address, FaceSettings
from oncelog.servers.peers import PeerSettings
from oncelog.servers.unsent import UnsentBytes


class Face(Protocol):
    """One protocol's door to the log."""

    name: str
    """As in the list of faces."""
    counts: Counts
    """What has happened on this face; metrics add up those of all faces."""

    @property
    def connection_count(self) -> int:
        """Connections that are open now."""
        ...

    async def start(self) -> Address:
        """Listen; returns the address, with the port that was chosen. Raises OSError."""
        ...

    async def stop(self) -> None:
        """Take no more, answer what was accepted, cut what does not end within `stop_ms`. Nothing of this face reaches
        the engine afterwards."""
        ...


class FaceContext:
    """What a server gives to each of its faces."""

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        *,
        backlog: int = limits.BACKLOG_MAX,
        journal: Path | None = None,
        say: Callable[[str], None] = lambda _note: None,
        zone: str = "local",
        peers: tuple[PeerSettings, ...] = (),
        bsfg: BsfgSettings | None = None,
    ) -> None:
        self.engine = engine
        self.loop = loop
        self.backlog = backlog
        """Connections that may wait to be accepted, per listener."""
        self.journal = journal
        """The directory of the journal, for whoever asks how much room there is; None if the log is in memory."""
        self.say = say
        """Writes one line to whoever runs the server."""
        self.zone = zone
        """The name of the zone that this server is, for what carries facts between zones."""
        self.peers = peers
        """The other zones that may call."""
        self.bsfg = bsfg or BsfgSettings()
        self.back_pressure = BackPressure(engine)
        self.unsent = UnsentBytes(limits.UNSENT_BYTES_MAX)
        """Bytes of answers that clients have not taken: reads of every face enter here."""
        self.faces: list[Face] = []
        """All faces of this server, in the order in which they start."""

    @property
    def cluster_id(self) -> str:
        """The name of the log that clients are told: made at its first start, the same after every other one."""
        return self.engine.log_id


MakeFace = Callable[[FaceContext, FaceSettings], Face]
