"""A turn: columns that are decided together, by their streams: the values of one stream share a batch
(`core/columns.py`). It ends when their group leaves or, while another group is being written, with a turn of the
loop."""

from collections.abc import Iterable
from typing import Final

from oncelog import limits
from oncelog.core.columns import bytes_of
from oncelog.core.command import Columns
from oncelog.core.rows import JCS
from oncelog.core.state import State
from oncelog.engine.group import Reply

Queued = tuple[Columns, Reply]
"""Values that wait for their turn to end."""

StreamKey = tuple[str, int]
"""Topic and partition."""

_RUN_BYTES_MAX: Final = limits.RUN_BYTES_MAX
_RUN_RECORDS_MAX: Final = limits.RUN_RECORDS_MAX


class Line:
    """What came in one turn for one stream, in its order."""

    __slots__ = ("commands", "replies")

    def __init__(self) -> None:
        self.commands: list[Columns] = []
        self.replies: list[Reply] = []

    def end_of_run(self, at: int) -> int:
        """Where a run ends that begins with the command at `at`: together they make a batch that is not too large for
        its readers. Values that come together are a batch of their own."""
        commands = self.commands
        bytes_ = records = 0
        for number in range(at, len(commands)):
            command = commands[number]
            values = command.values
            count = len(values)
            records += count
            for value in values:
                if value is not None:
                    bytes_ += len(value)
            if bytes_ > _RUN_BYTES_MAX or records > _RUN_RECORDS_MAX or (command.together and count > 1):
                return max(number, at + 1)
        return len(commands)


def room_for(command: Columns) -> int:
    """What columns may need in a group, at most."""
    values = command.values
    if len(values) == 1 and command.keys is None and command.headers is None:
        value = values[0]
        return limits.TURN_RECORD_BYTES + (0 if value is None else len(value))
    return limits.TURN_RECORD_BYTES + bytes_of(command)


def by_stream_of(queued: list[Queued]) -> tuple[dict[StreamKey, Line], bool]:
    """What came in a turn by its streams; and whether something of it has a message id."""
    by_stream: dict[StreamKey, Line] = {}
    named = False
    for command, reply in queued:
        if command.message_ids is not None:
            named = True
        key = (command.topic, command.partition)
        line = by_stream.get(key)
        if line is None:
            line = by_stream[key] = Line()
        line.commands.append(command)
        line.replies.append(reply)
    return by_stream, named


def one_by_one(queued: list[Queued]) -> list[Line]:
    """The same where their order counts across streams."""
    lines: list[Line] = []
    for command, reply in queued:
        line = Line()
        line.commands.append(command)
        line.replies.append(reply)
        lines.append(line)
    return lines


def shares_ids(state: State, commands: Iterable[Columns], *, named: bool) -> bool:
    """Whether an id may mean the same in two of the streams of these commands: which of two came first then counts.
    `named`: some of them name ids. Facts have theirs in themselves."""
    for command in commands:
        topic = state.topics.get(command.topic)
        if topic is None:
            if named:
                return True  # not loaded: it may be
        elif topic.config.id_zone and (named or topic.config.digest == JCS):
            return True
    return False
