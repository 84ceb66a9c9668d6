"""A turn: appends of one record that are decided together, by their streams: those of one stream may share a batch
(`core/run.py`). It ends when their group leaves or, while another group is being written, with a turn of the loop."""

from typing import Final

from oncelog.core.command import AppendValue
from oncelog.engine.group import Reply

Queued = tuple[AppendValue, Reply]
"""An append of one record that waits for its turn to end."""

StreamKey = tuple[str, int]
"""Topic and partition."""

NO_HASHES: Final[list[bytes]] = []
"""Of a turn without message ids."""


class Line:
    """Appends of one record that came in one turn for one stream, in their order."""

    __slots__ = ("commands", "hashes", "replies")

    def __init__(self, queued: Queued, hashes: list[bytes] | None) -> None:
        command, reply = queued
        self.commands = [command]
        self.replies = [reply]
        self.hashes = hashes
        """Of their message ids (`core.run.hashes_of`); None if they are not looked up yet, since the stream was not
        loaded when the turn began."""


def by_stream_of(queued: list[Queued]) -> tuple[dict[StreamKey, Queued | Line], bool]:
    """The appends of a turn by their streams, a line where there are several; and whether one has a message id."""
    by_stream: dict[StreamKey, Queued | Line] = {}
    named = False
    for one in queued:
        command, reply = one
        if command.message_id:
            named = True
        key = (command.topic, command.partition)
        line = by_stream.get(key)
        if line is None:
            by_stream[key] = one
            continue
        if not isinstance(line, Line):
            line = by_stream[key] = Line(line, NO_HASHES)
        line.commands.append(command)
        line.replies.append(reply)
    return by_stream, named
