"""The line of one connection: requests that wait for their answers, in their order; and the short way of an append.

Nearly every request is an append like the one before it (`protocols/http/template.py`): it is read by comparison,
submitted, and answered on its own. That way is here, compiled with the rest of the path of an append
(`tools/compiled.py`). Whatever is not plain about a request or an answer is the connection's (`connection.py`),
which is a `Line` with everything else.
"""

import asyncio
from collections import deque

from mypy_extensions import mypyc_attr

from oncelog.core.command import Command
from oncelog.core.outcome import Confirmed, Outcome
from oncelog.engine.engine import Engine
from oncelog.protocols.http.actions import Action, Render
from oncelog.protocols.http.parser import BodyBudget, RequestParser
from oncelog.protocols.http.routes import Router
from oncelog.protocols.http.template import AppendTemplate
from oncelog.servers.counts import Counts
from oncelog.servers.http.early import Early, EarlyRequests
from oncelog.servers.http.reads import Reading
from oncelog.servers.http.settings import HttpSettings
from oncelog.servers.unsent import UnsentBytes


@mypyc_attr(allow_interpreted_subclasses=True)
class Shared:
    """What all connections have in common: the server, as far as one of them needs it."""

    def __init__(
        self,
        engine: Engine,
        settings: HttpSettings,
        loop: asyncio.AbstractEventLoop,
        counts: Counts,
        router: Router,
        early: EarlyRequests,
        body_budget: BodyBudget,
        scratch: memoryview,
        unsent: UnsentBytes,
    ) -> None:
        self.engine = engine
        self.submit = engine.submit
        self.settings = settings
        self.loop = loop
        self.counts = counts
        self.router = router
        self.early = early
        self.body_budget = body_budget
        self.scratch = scratch
        """For bytes that nobody wants any more."""
        self.unsent = unsent
        self.pipelined_max = settings.pipelined_max

    def now_ms(self) -> int:
        """The time that records get."""
        return self.engine.now_ns() // 1_000_000


@mypyc_attr(allow_interpreted_subclasses=True)
class AppendSlot:
    """An append that waits for its answer, in its place in line: what nearly every request is."""

    __slots__ = ("answer", "command", "connection", "render")

    # What any other request may have besides.
    body: bytes = b""
    is_head: bool = False
    is_last: bool = False
    is_read: bool = False
    later: Action | None = None
    reading: Reading | None = None

    def __init__(self, connection: "Line", command: Command, render: Render) -> None:
        self.connection = connection
        self.command = command
        self.render = render
        self.answer: bytes | None = None

    def answered(self, outcome: Outcome) -> None:
        """The engine's reply to the command."""
        if type(outcome) is not Confirmed and isinstance(outcome, Early):
            if self.connection.server.early.hold(self.command, outcome, self.answered, self.answered_at_last):
                return
        self.answered_at_last(outcome)

    def answered_at_last(self, outcome: Outcome) -> None:
        """The same of a command that waits no longer for those before it."""
        connection = self.connection
        server = connection.server
        if type(outcome) is Confirmed:
            server.counts.confirmed(outcome)
        else:
            command = self.command
            server.counts.other(outcome, getattr(command, "topic", ""), getattr(command, "partition", 0))
        if server.early.held:
            server.early.taken(self.command, outcome)
        answer = self.render(outcome)
        if not connection.sent_alone(self, answer):
            self.done(answer)

    def done(self, answer: bytes, body: bytes = b"") -> None:
        """The answer is known; it leaves when it is its turn."""
        assert not body, "the answer to an append is its head"
        self.answer = answer
        self.connection.flush()


@mypyc_attr(allow_interpreted_subclasses=True)
class Line:
    """One client's requests in line."""

    def __init__(self, server: Shared, parser: RequestParser) -> None:
        self.server = server
        self.slots: deque[AppendSlot] = deque()
        self.is_closing = False
        """What comes is thrown away; what is in line is still answered."""
        self.active_at = 0.0
        self.sent_bytes = 0
        self.is_paused = False
        """Nothing is read from the client."""
        self.is_flushing = False
        self.reads_in_line = 0
        self.parser = parser
        self.template: AppendTemplate | None = None
        """What the last append was like."""
        self.transport: asyncio.Transport

    def data_received(self, data: bytes) -> None:
        """Bytes of the client, as they were read. Appends that are like the one before them are submitted at once."""
        server = self.server
        self.active_at = server.loop.time()
        if self.is_closing:
            return
        template = self.template
        if template is None or self.parser.in_request or self.reads_in_line:
            self.take(data)
            self.hold_back()
            return
        slots, submit = self.slots, server.submit
        at, size = 0, len(data)
        is_overloaded = False
        while at < size and (command := template.command(data, at)) is not None:
            slot = AppendSlot(self, command, template.render)
            slots.append(slot)
            is_overloaded = submit(command, slot.answered)
            at = template.next_at
        if at < size:
            self.take(data[at:] if at else data)
            self.hold_back()
        elif is_overloaded or len(slots) >= server.pipelined_max:
            self.pause()

    def hold_back(self) -> None:
        """Read nothing more for now if there is too much in line, or too much for the engine."""
        raise NotImplementedError

    def sent_alone(self, slot: AppendSlot, answer: bytes) -> bool:
        """Send the answer of the only one in line, if there is nothing else to do: the short way of `flush`."""
        slots = self.slots
        if len(slots) != 1 or slots[0] is not slot or self.is_closing or self.is_paused or self.is_flushing:
            return False
        transport = self.transport
        if slot.is_last or slot.is_head or self.parser.expects_continue or transport.is_closing():
            return False
        slots.popleft()
        self.sent_bytes += len(answer)
        transport.write(answer)
        return True

    def take(self, data: bytes) -> None:
        """Bytes that are not, or may not be, an append like the one before."""
        raise NotImplementedError

    def pause(self) -> None:
        """Read nothing more for now."""
        raise NotImplementedError

    def flush(self) -> None:
        """Send every answer whose turn it is."""
        raise NotImplementedError
