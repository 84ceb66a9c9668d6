"""The audit: read every stream and compare with the ledger.

Two looks. After a recovery, before anything is sent again, whatever became visible must be whole: `look`. When every
request has been answered, every stream is read from its beginning and must hold exactly what was confirmed: `audit`.
In between a follower reads along while the engine is killed: what it has once seen must stay (P12).
"""

from collections.abc import Iterator

from oncelog.core.command import GetCursor
from oncelog.core.outcome import CursorDone
from oncelog.testing.kill.engine_client import EngineProcess
from oncelog.testing.kill.ledger import Fate, Identity, Ledger, Place, Unit, identity_of, value_of
from oncelog.testing.kill.messages import Read, ReadDone

StreamName = tuple[str, int]
"""(topic, partition)"""


class Audit:
    """Compares what is in the log with what the ledger says."""

    def __init__(self, ledger: Ledger, streams: dict[StreamName, int]) -> None:
        self._ledger = ledger
        self._findings = ledger.findings
        self._streams = streams
        self.offsets = dict.fromkeys(streams, 0)
        """How far the follower has read."""
        self._revealed: dict[Identity, Place] = {}
        self._unchecked: set[Unit] = set()
        """Units of which something was revealed since the last look."""
        self.records = 0

    # --- reading along -------------------------------------------------------------------------------------------

    def revealed(self, asked: Read, answer: object) -> None:
        """The follower has read something."""
        stream = (asked.topic, asked.partition)
        if not isinstance(answer, ReadDone):
            self._findings.add("refused", f"{asked}: {answer}")
            return
        if asked.offset != self.offsets[stream]:
            return  # read twice, because a crash came in between
        self.offsets[stream] = answer.next_offset
        for offset, value in answer.records:
            identity = identity_of(value)
            place = (self._streams[stream], offset)
            if self._revealed.setdefault(identity, place) != place:
                self._findings.add("doubled", f"{identity!r} at {self._revealed[identity]} and at {place}")
            unit = self._ledger.unit_of.get(identity)
            if unit is not None:
                self._unchecked.add(unit)

    def look(self, engine: EngineProcess) -> None:
        """While nothing is in flight: read what is new to its end, and see that no unit is visible in part (P4)."""
        for topic, partition in self._streams:
            while True:
                asked = Read(topic, partition, self.offsets[topic, partition])
                answer = engine.ask(asked)
                self.revealed(asked, answer)
                if not isinstance(answer, ReadDone) or answer.next_offset >= answer.stable:
                    break
        for unit in self._unchecked:
            self._check_whole(unit, self._revealed)
        self._unchecked.clear()

    def _check_whole(self, unit: Unit, found: dict[Identity, Place]) -> int:
        """How many records of the unit there are; all or none, else it is torn."""
        count = sum(identity in found for identity in unit.identities)
        if 0 < count < len(unit.identities):
            self._findings.add("torn", f"{unit.name}: {count} of {len(unit.identities)} records are visible")
        return count

    # --- everything ----------------------------------------------------------------------------------------------

    def audit(self, engine: EngineProcess) -> None:
        """While nothing is in flight and everything is answered: the log holds what was confirmed and nothing else."""
        self.look(engine)
        found = self._read_everything(engine)
        self.records = len(found)
        for identity, place in self._revealed.items():
            if found.get(identity) != place:
                self._findings.add("lost", f"{identity!r} was read at {place}, now it is at {found.get(identity)}")
        for identity, place in self._ledger.place_of.items():
            if found.get(identity) != place:
                self._findings.add("lost", f"{identity!r} was confirmed at {place}, it is at {found.get(identity)}")
        for unit in set(self._ledger.unit_of.values()):
            self._check_fate(unit, self._check_whole(unit, found))
        for identity in found.keys() - self._ledger.unit_of.keys():
            self._findings.add("aborted_visible", f"{identity!r} was never sent")
        self._check_cursors(engine, found)

    def _read_everything(self, engine: EngineProcess) -> dict[Identity, Place]:
        found: dict[Identity, Place] = {}
        for (topic, partition), stream_id in self._streams.items():
            newest: dict[bytes, tuple[int, int]] = {}
            for offset, value in _records(engine, topic, partition):
                identity = identity_of(value)
                if value != value_of(identity):
                    self._findings.add("changed", f"{identity!r} at offset {offset} of {topic}/{partition}")
                if identity in found:
                    self._findings.add("doubled", f"{identity!r} at {found[identity]} and at {(stream_id, offset)}")
                found[identity] = (stream_id, offset)
                name, number, part = identity.split(b":")
                order = (int(number), int(part))
                # Ids that several writers send come in whatever order those writers reach them.
                if order <= newest.get(name, (0, -1)) and name != b"shared":
                    self._findings.add("misordered", f"{identity!r} after {newest[name]} in {topic}/{partition}")
                newest[name] = order
        return found

    def _check_fate(self, unit: Unit, count: int) -> None:
        if unit.fate is Fate.ABSENT and count:
            self._findings.add("aborted_visible", f"{unit.name}: {count} records of an aborted unit")
        elif unit.fate is Fate.VISIBLE and count < len(unit.identities):
            self._findings.add("lost", f"{unit.name}: {count} of {len(unit.identities)} records")
        assert unit.fate is not Fate.OPEN or self._findings.refused, f"{unit.name} was never answered"

    def _check_cursors(self, engine: EngineProcess, found: dict[Identity, Place]) -> None:
        """Each cursor stands where the last unit that took effect has put it."""
        frontiers: dict[tuple[str, str, int], int] = {}
        for move in self._ledger.cursor_moves:
            if move.unit.identities[0] in found:
                frontiers[move.cursor] = move.frontier
        for cursor, frontier in frontiers.items():
            answer = engine.ask(GetCursor(*cursor))
            actual = answer.cursor.frontier if isinstance(answer, CursorDone) and answer.cursor is not None else -1
            if actual != frontier:
                self._findings.add("torn", f"cursor {cursor} is at {actual}, its last unit has put it to {frontier}")


def _records(engine: EngineProcess, topic: str, partition: int) -> Iterator[tuple[int, bytes]]:
    """Every record of a stream, in order."""
    offset = 0
    while True:
        answer = engine.ask(Read(topic, partition, offset))
        assert isinstance(answer, ReadDone), answer
        yield from answer.records
        if answer.next_offset >= answer.stable:
            return
        offset = answer.next_offset
