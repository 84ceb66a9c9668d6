"""The dumb model, cursors: a frontier and a set of every offset confirmed above it."""

from itertools import pairwise

from oncelog.core import command as c
from oncelog.core import outcome as o
from oncelog.core.rows import Cursor
from oncelog.testing.model_memory import HOLES, MemoryModel, Thing, offsets_of


class CursorModel(MemoryModel):
    """Consumers and where they stand."""

    def move_cursors(self, command: c.MoveCursors) -> o.Outcome:
        """All or none."""
        for move in command.moves:
            refusal = self.move_refused(move, {}, uncommitted=command.uncommitted)
            if refusal is not None:
                return refusal
        for move in command.moves:
            self.set_cursor(move.name, move.topic, move.partition, move.frontier, move.metadata, move.pinned)
        return o.CommitConfirmed([])

    def set_cursor(
        self, name: str, topic: str, partition: int, frontier: int, metadata: str, pinned: bool, *, given: bool = False
    ) -> None:
        """Put a cursor somewhere."""
        stream = self.stream(topic, partition)
        assert stream is not None
        row = self.cursors.setdefault((name, stream["id"]), self.new_consumer(frontier))
        row |= {"frontier": frontier, "confirmed": set(), "metadata": metadata, "pinned": pinned, "used": self.now}
        row |= {"given": given, "delivered": frontier, "waiting": {}}

    def new_consumer(self, start: int) -> Thing:
        """A consumer that has done nothing yet."""
        place: Thing = {"frontier": start, "confirmed": set(), "metadata": "", "pinned": False, "used": self.now}
        face: Thing = {"created": self.now, "config": b"", "gate": "", "delivered": start, "sequence": 0, "waiting": {}}
        return {**place, "given": False, **face}

    def confirm_cursor(self, command: c.ConfirmCursor) -> o.Outcome:
        """Offsets, in any order."""
        stream = self.stream(command.topic, command.partition)
        if stream is None:
            return o.TopicMissing(command.topic, command.partition)
        if command.ranges[-1] > self.stable(stream):
            return o.OffsetAhead(stream["id"], command.ranges[-1], self.stable(stream))
        row = self.cursors.get((command.name, stream["id"]))
        confirmed = set(offsets_of(command.ranges)) | (row["confirmed"] if row else set())
        frontier, confirmed = self.settled(stream, row["frontier"] if row else 0, confirmed)
        if row is None or (row["frontier"], row["confirmed"], row["pinned"]) != (frontier, confirmed, command.pinned):
            row = row or self.new_consumer(0)
            self.cursors[(command.name, stream["id"])] = row
            row["pinned"] = command.pinned
            self.confirmed(row, frontier, confirmed)
        return o.CursorDone(shown(row))

    def confirmed(self, row: Thing, frontier: int, confirmed: set[int]) -> None:
        """The consumer stands here now, and nothing waits that was confirmed."""
        row |= {"frontier": frontier, "confirmed": confirmed, "used": self.now}
        row["delivered"] = max(row["delivered"], frontier)
        row["waiting"] = {at: w for at, w in row["waiting"].items() if at >= frontier and at not in confirmed}

    # --- what a face keeps with a consumer -------------------------------------------------------------------------

    def place_of(self, name: str, topic: str, partition: int) -> tuple[tuple[str, int], o.Refusal | None]:
        """The key of a consumer; with an empty topic it has no stream."""
        stream = self.stream(topic, partition) if topic else None
        if topic and stream is None:
            return (name, 0), o.TopicMissing(topic, partition)
        return (name, stream["id"] if stream else 0), None

    def set_consumer(self, command: c.SetConsumer) -> o.Outcome:
        """Settings."""
        key, refusal = self.place_of(command.name, command.topic, command.partition)
        if refusal is not None:
            return refusal
        row = self.cursors.get(key)
        if row is None and command.how == "update":
            return o.NotFound("consumer")
        if row is not None and command.how == "create":
            if command.config is not None and command.config != row["config"]:
                return o.ConsumerExists(command.name)
            return self.told(row, key[1])
        if row is None:
            if command.topic and command.start > self.stable(self.streams[key[1]]):
                return o.OffsetAhead(key[1], command.start, self.stable(self.streams[key[1]]))
            row = self.cursors[key] = self.new_consumer(command.start)
        for name in ("config", "gate", "metadata", "pinned"):
            asked = getattr(command, name)
            if asked is not None and asked != row[name]:
                row |= {name: asked, "used": self.now}
        return self.told(row, key[1])

    def told(self, row: Thing, stream_id: int) -> o.CursorDone:
        """A consumer as answers show it."""
        if stream_id and not row["given"]:
            frontier, confirmed = self.settled(self.streams[stream_id], row["frontier"], row["confirmed"])
            row = {**row, "frontier": frontier, "confirmed": confirmed}
        return o.CursorDone(shown(row))

    def update_consumers(self, command: c.UpdateConsumers) -> o.Outcome:
        """One after another."""
        return o.ConsumersUpdated([self.update_consumer(update) for update in command.updates])

    def update_consumer(self, update: c.ConsumerUpdate) -> o.ConsumerPlace | o.Refusal:
        """Confirm, then deliver."""
        key, refusal = self.place_of(update.name, update.topic, update.partition)
        row = self.cursors.get(key)
        if refusal is not None or row is None:
            return refusal or o.NotFound("consumer")
        stream = self.streams[key[1]]
        last = max([*update.deliver[::4], update.delivered - 1])
        stable = self.stable(stream)
        if update.confirm and update.confirm[-1] > stable:
            return o.OffsetAhead(stream["id"], update.confirm[-1], stable)
        if last >= stable:
            return o.OffsetAhead(stream["id"], last, stable)
        before = {**row, "used": 0}
        frontier, confirmed = self.settled(stream, row["frontier"], row["confirmed"] | set(offsets_of(update.confirm)))
        used = row["used"]
        self.confirmed(row, frontier, confirmed)
        row["delivered"] = max(row["delivered"], last + 1)
        row["sequence"] = max(row["sequence"], update.sequence, *update.deliver[3::4])
        for at in range(0, len(update.deliver), 4):
            offset, count, deadline, sequence = update.deliver[at : at + 4]
            row["waiting"].pop(offset, None)
            if count and offset >= frontier and offset not in confirmed:
                row["waiting"][offset] = (count, deadline, sequence)
        if {**row, "used": 0} == before:
            row["used"] = used
        place = shown(row)
        return o.ConsumerPlace(place.frontier, place.delivered, len(place.waiting), len(place.confirmed) // 2)

    def delete_consumer(self, command: c.DeleteConsumer) -> o.Outcome:
        """Wherever it is."""
        for topic, partition in command.streams:
            key, refusal = self.place_of(command.name, topic, partition)
            if refusal is None:
                self.cursors.pop(key, None)
        return o.CommitConfirmed([])

    def settled(self, stream: Thing, frontier: int, confirmed: set[int]) -> tuple[int, set[int]]:
        """Offset by offset: go on while the next one is confirmed or a hole. Holes between two confirmed offsets, and
        nothing else there, are confirmed with them."""
        frontier = max(frontier, stream["floor"])
        while frontier < len(stream["records"]):
            if frontier not in confirmed and stream["records"][frontier]["status"] not in HOLES:
                break
            frontier += 1
        above = sorted(offset for offset in confirmed if offset >= frontier)
        settled = set(above)
        for before, after in pairwise(above):
            between = range(before + 1, after)
            if all(stream["records"][offset]["status"] in HOLES for offset in between):
                settled |= set(between)
        return frontier, settled

    def get_cursor(self, command: c.GetCursor) -> o.Outcome:
        """Where a consumer stands."""
        key, refusal = self.place_of(command.name, command.topic, command.partition)
        if refusal is not None:
            return refusal
        row = self.cursors.get(key)
        done = o.CursorDone(None) if row is None else self.told(row, key[1])
        done.pending = self.waiting_txns(*key) if command.topic else ()
        return done

    def waiting_txns(self, name: str, stream_id: int) -> tuple[str, ...]:
        """The open txns that will move a cursor."""
        raise NotImplementedError

    def delete_cursor(self, command: c.DeleteCursor) -> o.Outcome:
        """Forget a consumer."""
        stream = self.stream(command.topic, command.partition)
        if stream is None:
            return o.TopicMissing(command.topic, command.partition)
        self.cursors.pop((command.name, stream["id"]), None)
        return o.CursorDone(None)

    def move_refused(self, move: c.CursorMove, added: dict[int, int], *, uncommitted: bool = False) -> o.Refusal | None:
        """Nobody moves past what is open or not there; `added` is what the same commit appends."""
        stream = self.stream(move.topic, move.partition)
        if stream is None:
            return o.TopicMissing(move.topic, move.partition)
        tail = len(stream["records"])
        limit = tail if uncommitted else self.stable(stream)
        if limit == tail:
            limit += added.get(stream["id"], 0)
        return None if 0 <= move.frontier <= limit else o.OffsetAhead(stream["id"], move.frontier, limit)


def shown(row: Thing) -> Cursor:
    """A cursor as an answer shows it: its set of offsets as ranges."""
    ranges: list[int] = []
    for offset in sorted(row["confirmed"]):
        if ranges and ranges[-1] == offset:
            ranges[-1] = offset + 1
        else:
            ranges += [offset, offset + 1]
    return Cursor(
        row["frontier"],
        ranges,
        row["metadata"],
        row["pinned"],
        row["used"],
        row["given"],
        row["created"],
        row["config"],
        row["gate"],
        row["delivered"],
        row["sequence"],
        row["waiting"].copy(),
    )
