"""The single writer, without I/O: commands in, groups out, answers when a group is durable.

    submit -> load what is missing of what `needs` asks -> decide -> encode into the open group -> apply to the state
    next_group -> seal the open group; the shell writes and syncs it
    written -> reveal the group's changes
    answer -> tell everyone who waited for it

A group is everything that arrived while the one before it was being written; group n+1 leaves only after group n is
durable. The second door is here: an answer goes out when the last entry appended before it was decided is durable,
whatever the answer is (P12). No rule decides whether an answer "depends".

`decide` changes nothing, so a command whose entry does not fit is simply decided again for the next group.
"""

from collections import deque
from collections.abc import Callable
from sys import getsizeof
from typing import Final

import msgspec

from oncelog import limits
from oncelog.core import needs
from oncelog.core.apply import apply
from oncelog.core.command import Append, Command
from oncelog.core.decide import decide
from oncelog.core.entry import Appended, Entry
from oncelog.core.memory import only_prolongs
from oncelog.core.message_id import id_hash
from oncelog.core.outcome import NoRoom, NotFound, Outcome, Overloaded, TooLarge
from oncelog.core.state import State
from oncelog.engine.read_view import ReadView, ViewChanges, take_changes
from oncelog.storage.entry_codec import GROUP_HEADER, encode_entry
from oncelog.storage.index.interface import Index
from oncelog.storage.index.places import Places
from oncelog.storage.journal import Journal, OpenGroup

Reply = Callable[[Outcome], None]

JOIN_BYTES_MAX: Final = 16 * limits.KIB
"""Batches up to this size are copied into one buffer per group; larger ones are written from where they are."""

_INT_BYTES: Final = getsizeof(2**59)


class Group:
    """What one fdatasync will cover, and who waits for it."""

    __slots__ = (
        "answers",
        "buffers",
        "changes",
        "entry_count",
        "last_entry",
        "number",
        "open",
        "payload_bytes",
        "reserved",
        "room",
        "time_ns",
    )

    def __init__(self, open_group: OpenGroup, time_ns: int) -> None:
        self.open = open_group
        self.number = open_group.group
        self.reserved = open_group.reserved
        self.room = open_group.room - GROUP_HEADER.size
        """Bytes that may still join."""
        self.time_ns = time_ns
        """When it was opened."""
        self.buffers: list[bytes] = []
        self.payload_bytes = GROUP_HEADER.size
        self.entry_count = 0
        self.last_entry = 0
        self.answers: list[tuple[Reply, Outcome]] = []
        self.changes: ViewChanges | None = None


class CommitLoop:
    """Everything that decides and applies happens here, on one thread, in one order."""

    def __init__(
        self, state: State, journal: Journal, index: Index, places: Places, view: ReadView, clock: Callable[[], int]
    ) -> None:
        self.state = state
        self.view = view
        self._journal = journal
        self._index = index
        self._places = places
        self._clock = clock
        self._open: Group | None = None
        self._in_flight: Group | None = None
        self._waiting: deque[tuple[Command, Reply, int]] = deque()
        self._waiting_bytes = 0
        self.held = False
        """The index is too far behind: commands wait, so that memory stays bounded."""
        self.index_full = False
        """It is behind because it has no room. Waiting would not end, so writes are refused; all else goes on."""
        self.disk_full = False
        """No further segment can be made ready. Commands that need one are refused instead of waiting."""
        self.on_applied: Callable[[Entry], None] | None = None
        """Told of every compound entry, so that timers know what will fall due."""
        self.groups_total = 0

    # --- in --------------------------------------------------------------------------------------------------------

    def submit(self, command: Command, reply: Reply) -> None:
        """Take a command. `reply` is called once, never before its outcome is durable, possibly before this returns."""
        if self._waiting or not self._take(command, reply):
            self._wait(command, reply)

    def _wait(self, command: Command, reply: Reply) -> None:
        size = _size_of(command)
        if self._waiting_bytes + size > limits.WAITING_BYTES_MAX and self._waiting:
            self._answer(reply, Overloaded(self._waiting_bytes, limits.WAITING_BYTES_MAX))
            return
        self._waiting_bytes += size
        self._waiting.append((command, reply, size))

    def _take(self, command: Command, reply: Reply) -> bool:
        """Decide and append one command; False if it has to wait for the next group."""
        if self.held and not self.index_full:
            return False
        group = self._open
        # One time for all that joins a group: it is open for a millisecond or two, and a clock costs as much as a look
        # into three tables. Not for timers: a group stays open while the disk hangs, and the overdue would seem early.
        now_ns = self._clock() if group is None or command.urgent else group.time_ns
        entry, outcome = self._decided(command, now_ns)
        if entry is None:
            self._answer(reply, outcome)
            return True
        buffers = encode_entry(entry)
        size = entry.batch_at + len(entry.batch) if type(entry) is Appended else sum(map(len, buffers))
        if self.held and not command.urgent:
            self._answer(reply, outcome if only_prolongs(self.state, entry) else NoRoom(size))
            return True
        if group is None:
            if size + GROUP_HEADER.size > self._journal.payload_bytes_max:
                self._answer(reply, TooLarge("entry bytes", self._journal.payload_bytes_max, size))
                return True
            open_group = self._journal.begin(size + GROUP_HEADER.size, urgent=command.urgent)
            if open_group is None:
                if not self.disk_full:
                    return False
                self._answer(reply, outcome if only_prolongs(self.state, entry) else NoRoom(size))
                return True
            group = self._open = Group(open_group, now_ns)
        elif group.reserved and not command.urgent:
            if not self.disk_full:
                return False  # a spare is on its way
            self._answer(reply, outcome if only_prolongs(self.state, entry) else NoRoom(size))
            return True
        elif size > group.room:
            return False
        self._append(group, entry, buffers, size)
        group.answers.append((reply, outcome))
        return True

    def _append(self, group: Group, entry: Entry, buffers: list[bytes], size: int) -> None:
        apply(self.state, entry)
        self._places.add_entry(entry, group.number, group.payload_bytes)
        group.buffers += buffers
        group.payload_bytes += size
        group.room -= size
        group.entry_count += 1
        if type(entry) is not Appended and self.on_applied is not None:
            self.on_applied(entry)

    def _decided(self, command: Command, now_ns: int) -> tuple[Entry | None, Outcome]:
        """Decide. An append nearly always finds its rows loaded, and asking `needs` would cost more than deciding: it
        is tried at once, and a row that is missing after all is a KeyError. `decide` changes nothing."""
        if type(command) is Append and (not command.message_id or self._is_new_id(command)):
            try:
                return decide(self.state, command, now_ns)
            except KeyError:
                pass
        self._load(command)
        return decide(self.state, command, now_ns)

    def _is_new_id(self, command: Append) -> bool:
        """Whether nobody knows the message id. Ids that are not found count as absent, so the index must be asked
        first; of a known one, `needs` lists the rows that it leads to. False also if the stream is not loaded."""
        state = self.state
        topic = state.topics.get(command.topic)
        if topic is None or not 0 <= command.partition < len(topic.stream_ids):
            return False
        stream = state.streams.get(topic.stream_ids[command.partition])
        if stream is None:
            return False
        hash_ = id_hash(stream, command.message_id)
        if hash_ in state.ids or hash_ in state.ids_sealing or self._index.find_ids([hash_]):
            return False
        state.ids_loaded.clear()
        return True

    def _load(self, command: Command) -> None:
        """Bring in every row and id that the command needs."""
        state = self.state
        index = self._index
        while missing := needs.needs(state, command):
            for table, key in missing:
                state.tables[table][key] = index.get(table, key)
        hashes = needs.ids(state, command)
        if not hashes:
            return
        state.ids_loaded.clear()
        unknown = [hash_ for hash_ in hashes if hash_ not in state.ids and hash_ not in state.ids_sealing]
        if unknown:
            state.ids_loaded.update(index.find_ids(unknown))
        while missing := needs.needs(state, command):
            for table, key in missing:
                state.tables[table][key] = index.get(table, key)

    def gate(self, reveal: Callable[[], None]) -> None:
        """Call `reveal` once everything that was appended so far is durable: for what was looked up, not decided."""
        self._answer(lambda _: reveal(), NotFound("outcome"))

    def _answer(self, reply: Reply, outcome: Outcome) -> None:
        """The gate: behind whatever was appended before this was decided."""
        if self._open is not None:
            self._open.answers.append((reply, outcome))
        elif self._in_flight is not None:
            self._in_flight.answers.append((reply, outcome))
        else:
            reply(outcome)

    # --- out -------------------------------------------------------------------------------------------------------

    @property
    def wants_write(self) -> bool:
        """A group is ready to be written."""
        return self._open is not None and self._in_flight is None

    @property
    def open_count(self) -> int:
        """Answers that the open group will give."""
        return 0 if self._open is None else len(self._open.answers)

    @property
    def idle(self) -> bool:
        """Nothing is open, being written, or waiting."""
        return self._open is None and self._in_flight is None and not self._waiting

    @property
    def waiting(self) -> int:
        """Commands that could not be taken yet: a server stops reading from its sockets while there are any."""
        return len(self._waiting)

    @property
    def last_group(self) -> int:
        """The newest group that holds what was applied so far."""
        if self._open is not None:
            return self._open.open.group
        if self._in_flight is not None:
            return self._in_flight.open.group
        return self._journal.durable_group

    def next_group(self) -> Group | None:
        """Seal the open group. The caller writes `group.buffers` under `group.open` and then calls `written`."""
        group = self._open
        if group is None or self._in_flight is not None:
            return None
        last_entry = self.state.entry_number
        head = GROUP_HEADER.pack(last_entry - group.entry_count + 1, group.entry_count)
        group.buffers = _joined(head, group.buffers)
        group.last_entry = last_entry
        group.changes = take_changes(self.state)
        self._journal.seal(group.open, group.payload_bytes)
        self._open = None
        self._in_flight = group
        return group

    def proof_group(self) -> Group | None:
        """An empty group, when nothing else is going on: it proves the one before it. None if there is no room."""
        assert self.idle
        open_group = self._journal.prove()
        if open_group is None:
            return None
        group = Group(open_group, self.state.time_ns)
        group.payload_bytes = 0
        group.last_entry = self.state.entry_number
        group.changes = take_changes(self.state)
        self._in_flight = group
        return group

    def written(self, group: Group) -> None:
        """The group is on disk: let readers see it. The next one may leave; then call `answer`."""
        assert group is self._in_flight
        assert group.changes is not None
        self._journal.durable(group.open)
        self._in_flight = None
        self.groups_total += 1
        self.view.reveal(group.changes, group.last_entry)

    def answer(self, group: Group) -> None:
        """Tell everyone who waited for this group.

        After `written`, and best after the next group has left: the disk works while answers bring in new commands.
        """
        assert group.last_entry <= self.view.entry_number
        for reply, outcome in group.answers:
            reply(outcome)

    def take_waiting(self) -> None:
        """Take commands that waited, in their order, as far as they fit. Called when something has changed."""
        waiting = self._waiting
        while waiting:
            command, reply, size = waiting[0]
            if not self._take(command, reply):
                return
            waiting.popleft()
            self._waiting_bytes -= size


def _size_of(command: Command) -> int:
    """Roughly what a waiting command keeps in memory, whatever kind it is."""
    return limits.ENTRY_OVERHEAD_BYTES + _bytes_of(command)


def _bytes_of(value: object) -> int:
    """All that hangs on it. What several share counts for each."""
    size = getsizeof(value)
    if isinstance(value, msgspec.Struct):
        size += sum(_bytes_of(getattr(value, name)) for name in value.__struct_fields__)
    elif isinstance(value, list) and value and type(value[0]) is int:
        size += len(value) * _INT_BYTES  # of stages or offsets, and there may be a great many
    elif isinstance(value, list | tuple):
        size += sum(map(_bytes_of, value))
    elif isinstance(value, dict):
        size += sum(map(_bytes_of, value)) + sum(map(_bytes_of, value.values()))
    return size


def _joined(head: bytes, buffers: list[bytes]) -> list[bytes]:
    """Neighbouring small buffers as one: the kernel takes 1,024 pieces at most, and each costs."""
    out: list[bytes] = []
    run: list[bytes] = [head]
    for buffer in buffers:
        if len(buffer) <= JOIN_BYTES_MAX:
            run.append(buffer)
        else:
            out.append(b"".join(run))
            out.append(buffer)
            run = []
    if run:
        out.append(b"".join(run))
    return out
