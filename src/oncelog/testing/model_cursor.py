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
        self.cursors[(name, stream["id"])] = {
            "frontier": frontier,
            "confirmed": set(),
            "metadata": metadata,
            "pinned": pinned,
            "used": self.now,
            "given": given,
        }

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
            row = {
                "frontier": frontier,
                "confirmed": confirmed,
                "metadata": row["metadata"] if row else "",
                "pinned": command.pinned,
                "used": self.now,
                "given": row["given"] if row else False,
            }
            self.cursors[(command.name, stream["id"])] = row
        return o.CursorDone(shown(row))

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
        stream = self.stream(command.topic, command.partition)
        if stream is None:
            return o.TopicMissing(command.topic, command.partition)
        row = self.cursors.get((command.name, stream["id"]))
        waits = self.waiting_txns(command.name, stream["id"])
        if row is None or row["given"]:
            return o.CursorDone(None if row is None else shown(row), waits)
        frontier, confirmed = self.settled(stream, row["frontier"], row["confirmed"])
        return o.CursorDone(shown({**row, "frontier": frontier, "confirmed": confirmed}), waits)

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
    return Cursor(row["frontier"], ranges, row["metadata"], row["pinned"], row["used"], row["given"])
