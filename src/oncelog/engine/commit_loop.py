"""The single writer, without I/O: commands in, groups out, answers when a group is durable.

    submit -> load what is missing of what `needs` asks -> decide -> encode into the open group -> apply to the state
              (columns wait until the group leaves, or for the end of the turn if one is being written,
              `take_queued`: the values of one stream share a batch)
    next_group -> seal the open group; the shell gives it to whoever writes and syncs it
    handed_over -> note what it will change for readers, while the disk is at work
    written -> reveal the group's changes
    answer -> tell everyone who waited for it

A group is everything that arrived while the one before it was being written; group n+1 leaves only after group n is
durable. The second door is here: an answer goes out when the last entry appended before it was decided is durable,
whatever the answer is (P12). No rule decides whether an answer "depends".

`decide` changes nothing, so a command whose entry does not fit is simply decided again for the next group.
"""

from collections import deque
from collections.abc import Callable
from typing import Literal

from mypy_extensions import mypyc_attr

from oncelog import limits
from oncelog.core import needs
from oncelog.core.append import as_entry
from oncelog.core.apply import apply
from oncelog.core.columns import decide_columns, hashes_of, stream_of
from oncelog.core.command import Append, Columns, Command
from oncelog.core.decide import decide
from oncelog.core.entry import Appended, Entry, Operation
from oncelog.core.memory import only_prolongs
from oncelog.core.message_id import id_hash
from oncelog.core.outcome import NoRoom, NotFound, Outcome, Overloaded, TooLarge
from oncelog.core.rows import JCS
from oncelog.core.state import State
from oncelog.engine.damage import damaged
from oncelog.engine.group import Group, Reply, joined, writers_of
from oncelog.engine.read_view import ReadView, take_changes
from oncelog.engine.turn import Line, Queued, by_stream_of, one_by_one, room_for, shares_ids
from oncelog.engine.weight import size_of
from oncelog.errors import StorageError
from oncelog.storage.entry_codec import GROUP_HEADER, encode_entry
from oncelog.storage.index.interface import Index
from oncelog.storage.index.places import Places
from oncelog.storage.journal import Journal


@mypyc_attr(allow_interpreted_subclasses=True)
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
        self._waiting: deque[tuple[Command, Reply, int, int]] = deque()
        """With their sizes, and since when they wait."""
        self._waiting_bytes = 0
        self._queued: list[Queued] = []
        """The turn that is not decided yet (`turn.py`), in its order; nothing was decided after the first of them."""
        self._queued_bytes = 0
        self._turn_bytes = 0
        """What the turn that is being decided may need: a group that it opens has room for all of it."""
        self._turn_ns = 0
        """When it was decided: one time for all of its runs."""
        self._told: list[tuple[Reply, Outcome]] | None = None
        """While a turn is being decided, the answers that nothing holds back."""
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
        if type(command) is Columns and (size := room_for(command)) <= limits.TURN_BYTES_MAX:
            self._queued.append((command, reply))
            self._queued_bytes += size
            if self._queued_bytes > limits.TURN_BYTES_MAX:
                self.take_queued()
            return
        told = self._decide_queued() if self._queued else ()
        if self._waiting or not self._take(command, reply):
            self._wait(command, reply)
        for told_reply, outcome in told:
            told_reply(outcome)

    def _wait(self, command: Command, reply: Reply) -> None:
        size = size_of(command)
        if self._waiting_bytes + size > limits.WAITING_BYTES_MAX and self._waiting:
            self._answer(reply, Overloaded(self._waiting_bytes, limits.WAITING_BYTES_MAX))
            return
        self._waiting_bytes += size
        self._waiting.append((command, reply, size, self._clock()))

    def take_queued(self) -> None:
        """Decide the columns of this turn."""
        if self._queued:
            for reply, outcome in self._decide_queued():
                reply(outcome)

    def _decide_queued(self) -> list[tuple[Reply, Outcome]]:
        """Decide the columns of this turn; returns the answers that nothing holds back. They are given when all are
        decided: whoever gets one may submit at once, and must find no turn half done.

        Values for one stream are taken together, before those for others that came in between. Nobody can tell, since
        all of them are in one group; where there is no room for that, or where an id means the same in several streams,
        they are taken as they came.
        """
        queued, self._queued = self._queued, []
        turn_bytes, self._queued_bytes = self._queued_bytes, 0
        told: list[tuple[Reply, Outcome]] = []
        self._told = told
        if self._waiting or self.held or not self._has_room(turn_bytes):
            for command, reply in queued:
                self._take_alone(command, reply)
        else:
            self._turn_bytes = turn_bytes
            self._turn_ns = max(self._clock(), self.state.time_ns)
            by_stream, named = by_stream_of(queued)
            lines = list(by_stream.values())
            if len(lines) > 1 and shares_ids(self.state, [line.commands[0] for line in lines], named=named):
                lines = one_by_one(queued)
            for line in lines:
                self._take_line(line)
            self._turn_bytes = 0
        self._told = None
        return told

    def _has_room(self, turn_bytes: int) -> bool:
        """Whether all of a turn surely fits the open group, or the next one."""
        group = self._open
        if group is not None:
            return turn_bytes <= group.room and not group.reserved
        return self._journal.has_room(turn_bytes + GROUP_HEADER.size)

    def _take_alone(self, command: Command, reply: Reply) -> None:
        if self._waiting or not self._take(command, reply):
            self._wait(command, reply)

    def _take_line(self, line: Line) -> None:
        """Columns for one stream, in their order, run by run."""
        at, count = 0, len(line.commands)
        while at < count:
            end = line.end_of_run(at)
            commands, replies = line.commands, line.replies
            if at or end < count:
                commands, replies = commands[at:end], replies[at:end]
            if self._waiting or not self._take_run(commands, replies):
                for command, reply in zip(commands, replies, strict=True):
                    self._take_alone(command, reply)
            at = end

    def _take_run(self, commands: list[Columns], replies: list[Reply]) -> bool:
        """Decide and append columns that make one entry; False if each of them is to be taken alone."""
        try:
            decided = self._decided_run(commands)
        except StorageError:
            return False  # a row or an id cannot be read: the command that needs it is told, and no other
        if decided is None:
            return False
        operations, answers = decided
        entry = as_entry(operations, self._turn_ns)
        if entry is None:
            for reply, answer in zip(replies, answers, strict=True):
                self._answer(reply, answer)
            return True
        buffers = encode_entry(entry)
        size = sum([len(buffer) for buffer in buffers])
        group = self._open or self._group_for(size, urgent=False)
        if group is None or size > group.room:
            return False
        self._append(group, entry, buffers, size)
        group.answers.extend(zip(replies, answers, strict=True))
        return True

    def _decided_run(self, commands: list[Columns]) -> tuple[list[Operation], list[Outcome]] | None:
        """Decide, and load what is missing if it is not there as it nearly always is. None if the stream's name is one
        that no table can hold."""
        state = self.state
        hashes: list[list[bytes]] | None = None
        known: dict[bytes, bytes] = {}
        try:
            hashes, known = self._looked_up(commands)
            state.ids_loaded = known
            return decide_columns(state, commands, hashes, self._turn_ns)
        except KeyError:
            pass
        for command in commands:
            self._load_rows(command)
        if commands[0].topic not in state.topics:
            return None
        if hashes is None:
            hashes, known = self._looked_up(commands)
        state.ids_loaded = known
        for command in commands:
            self._load_rows(command)
        return decide_columns(state, commands, hashes, self._turn_ns)

    def _looked_up(self, commands: list[Columns]) -> tuple[list[list[bytes]], dict[bytes, bytes]]:
        """The hashes of the ids of columns for one stream, and what the index knows of them."""
        stream = stream_of(self.state, commands[0].topic, commands[0].partition)
        if stream is None:
            return [[] for _ in commands], {}
        hashes = [hashes_of(stream, command) for command in commands]
        ids = [id_hash for of_command in hashes for id_hash in of_command]
        return hashes, self._found(ids) if ids else {}

    def _take(self, command: Command, reply: Reply) -> bool:
        """Decide and append one command; False if it has to wait for the next group."""
        if self.held and not self.index_full:
            return False
        group = self._open
        # Not the time when the group was opened, which may be long ago while the disk is slow: nothing is stamped
        # earlier than it was sent, so that a seek by time misses nothing.
        try:
            entry, outcome = self._decided(command, self._clock())
        except StorageError as error:
            entry, outcome = None, damaged(error)  # a row or an id cannot be read: nothing was decided on it
        if entry is None:
            self._answer(reply, outcome)
            return True
        buffers = encode_entry(entry)
        size = sum([len(buffer) for buffer in buffers])
        if self.held and not command.urgent:
            self._answer(reply, outcome if only_prolongs(self.state, entry) else NoRoom(size))
            return True
        room = self._group_for(size, urgent=command.urgent)
        if room is not None:
            self._append(room, entry, buffers, size)
            room.answers.append((reply, outcome))
            return True
        if size + GROUP_HEADER.size > self._journal.payload_bytes_max:
            self._answer(reply, TooLarge("entry bytes", self._journal.payload_bytes_max, size))
            return True
        fits_no_group = group is None or (group.reserved and not command.urgent)
        if not (self.disk_full and fits_no_group):
            return False  # the next group will do, or a spare is on its way
        self._answer(reply, outcome if only_prolongs(self.state, entry) else NoRoom(size))
        return True

    def _group_for(self, size: int, *, urgent: bool) -> Group | None:
        """The open group, or a new one, if an entry of this size may join it."""
        group = self._open
        if group is not None:
            return None if size > group.room or (group.reserved and not urgent) else group
        # The changes of the group before were noted: what is applied from now on is not among them (P12).
        assert self._in_flight is None or self._in_flight.changes is not None
        needed = max(size, self._turn_bytes) + GROUP_HEADER.size
        if needed > self._journal.payload_bytes_max:
            return None
        open_group = self._journal.begin(needed, urgent=urgent)
        if open_group is not None:
            self._open = Group(open_group)
        return self._open

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
        if isinstance(command, Append) and not self._brings_ids(command) and self._is_new_id(command):
            try:
                return decide(self.state, command, now_ns)
            except KeyError:
                pass
        self._load(command)
        return decide(self.state, command, now_ns)

    def _brings_ids(self, command: Append) -> bool:
        """Whether its records have ids by themselves, as facts do. A topic that is not loaded is a KeyError later."""
        topic = self.state.topics.get(command.topic)
        return topic is not None and topic.config.digest == JCS

    def _is_new_id(self, command: Append) -> bool:
        """Whether nobody knows the message id, if there is one. Ids that are not found count as absent, so the index
        must be asked first; of a known one, `needs` lists the rows that it leads to. False also if the stream is not
        loaded."""
        if not command.message_id:
            return True
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
        state.ids_loaded = {}
        return True

    def _load(self, command: Command) -> None:
        """Bring in every row and id that the command needs."""
        self._load_rows(command)
        hashes = needs.ids(self.state, command)
        if hashes:
            self.state.ids_loaded = self._found(hashes)
            self._load_rows(command)

    def _load_rows(self, command: Command) -> None:
        """Bring in every row that the command needs, as far as its ids are looked up."""
        state, index = self.state, self._index
        while missing := needs.needs(state, command):
            for table, key in missing:
                state.tables[table][key] = index.get(table, key)

    def _found(self, hashes: list[bytes]) -> dict[bytes, bytes]:
        """What the index knows of these ids; those that are newer are in memory. Empty ones are none."""
        ids, sealing = self.state.ids, self.state.ids_sealing
        unknown = [hash_ for hash_ in hashes if hash_ and hash_ not in ids and hash_ not in sealing]
        return self._index.find_ids(unknown) if unknown else {}

    def gate(self, reveal: Callable[[], None]) -> None:
        """Call `reveal` once everything that was appended so far is durable: for what was looked up, not decided."""
        self._answer(lambda _: reveal(), NotFound("outcome"))

    def _answer(self, reply: Reply, outcome: Outcome) -> None:
        """The gate: behind whatever was appended before this was decided."""
        group = self._open or self._in_flight
        if group is not None:
            group.gated_count += 1
            group.answers.append((reply, outcome))
        elif self._told is not None:
            self._told.append((reply, outcome))
        else:
            reply(outcome)

    # --- out -------------------------------------------------------------------------------------------------------

    @property
    def wants_write(self) -> bool:
        """A group is ready to be written."""
        return self._open is not None and self._in_flight is None

    @property
    def wants_turn(self) -> bool:
        """There is something to do at the end of this turn: appends to decide, or a group to be written."""
        return bool(self._queued) or self.wants_write

    @property
    def is_writing(self) -> bool:
        """A group has left and is not known to be durable yet."""
        return self._in_flight is not None

    @property
    def joined_count(self) -> int:
        """How many writers the next group will answer: those in the open one, and the appends that are not decided yet.
        Who only asks is not expected to write, so nobody waits for it."""
        return len(self._queued) + (0 if self._open is None else writers_of(self._open))

    @property
    def idle(self) -> bool:
        """Nothing is open, being written, or waiting."""
        return self._open is None and self._in_flight is None and not self._waiting and not self._queued

    @property
    def waiting(self) -> int:
        """Commands that could not be taken yet: a server stops reading from its sockets while there are any."""
        return len(self._waiting)

    @property
    def full(self) -> Literal["disk", "index"] | None:
        """What has no room, so that the largest write would be refused; a smaller one may still fit what is left, and
        segments that were made ready before the disk was full are used up first."""
        if self.held and self.index_full:
            return "index"
        largest = min(limits.BATCH_BYTES_MAX, self._journal.payload_bytes_max)
        return "disk" if self.disk_full and not self._journal.has_room(largest) else None

    @property
    def last_group(self) -> int:
        """The newest group that holds what was applied so far."""
        if self._open is not None:
            return self._open.open.group
        if self._in_flight is not None:
            return self._in_flight.open.group
        return self._journal.durable_group

    def next_group(self) -> Group | None:
        """Seal the open group. The caller has `group.buffers` written under `group.open`, calls `handed_over` at once,
        and `written` when it is on disk."""
        self.take_queued()
        group = self._open
        if group is None or self._in_flight is not None:
            return None
        last_entry = self.state.entry_number
        head = GROUP_HEADER.pack(last_entry - group.entry_count + 1, group.entry_count)
        group.buffers = joined(head, group.buffers)
        group.last_entry = last_entry
        self._journal.seal(group.open, group.payload_bytes)
        self._open = None
        self._in_flight = group
        return group

    def handed_over(self, group: Group) -> None:
        """Note what the group will change for readers: they need it when it is durable, and the disk is at work
        meanwhile. Nothing was applied since it was sealed."""
        assert group is self._in_flight
        group.changes = take_changes(self.state, self.view)

    def proof_group(self) -> Group | None:
        """An empty group, when nothing else is going on: it proves the one before it. None if there is no room."""
        assert self.idle
        open_group = self._journal.prove()
        if open_group is None:
            return None
        group = Group(open_group)
        group.payload_bytes = 0
        group.last_entry = self.state.entry_number
        group.changes = take_changes(self.state, self.view)
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

    def waiting_ms(self) -> int:
        """How long the oldest of the commands that wait has waited."""
        return (self._clock() - self._waiting[0][3]) // 1_000_000 if self._waiting else 0

    def refuse_waiting(self, before_ns: int) -> int:
        """Refuse the commands that have waited since before this time: nobody knows when they could be taken, and none
        of them will be written. Those of timers stay. Returns how many were refused."""
        waiting = self._waiting
        refused: list[tuple[Reply, int]] = []
        kept: list[tuple[Command, Reply, int, int]] = []
        while waiting and waiting[0][3] < before_ns:
            held = waiting.popleft()
            if held[0].urgent:
                kept.append(held)
            else:
                refused.append((held[1], held[2]))
        waiting.extendleft(reversed(kept))
        for reply, size in refused:
            self._waiting_bytes -= size
            self._answer(reply, Overloaded(self._waiting_bytes + size, limits.WAITING_BYTES_MAX))
        return len(refused)

    def take_waiting(self) -> None:
        """Take commands that waited, in their order, as far as they fit. Called when something has changed."""
        self.take_queued()  # behind those that wait
        waiting = self._waiting
        while waiting:
            command, reply, size, _ = waiting[0]
            if not self._take(command, reply):
                return
            waiting.popleft()
            self._waiting_bytes -= size
