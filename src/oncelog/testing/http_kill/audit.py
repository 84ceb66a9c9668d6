"""The audit over HTTP: read every stream and compare with the ledger.

Two looks, as in the kill rounds. `look` reads what is new up to one cut, also while writers write: below a cut every
unit is whole or absent, and what was once seen must stay. `audit` is for when everything is answered: every stream is
read from its beginning, as record batches and as plain bodies, and holds exactly what was confirmed.
"""

import asyncio
import random
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import quote

from oncelog.core import batch as codec
from oncelog.testing.http_kill.ledger import IDS, STREAM_IDS, TOPICS, HttpLedger, StreamName, Topic, identity_in
from oncelog.testing.http_kill.wire import BATCHES, JSON, Answer, Asker
from oncelog.testing.kill.ledger import Fate, Identity, Place, Unit

_TOPIC_OF: Final = {topic.name: topic for topic in TOPICS}
_RECEIPTS_ASKED: Final = 20

Found = dict[Identity, Place]


class StreamRead(NamedTuple):
    """Part of a stream: records with their offsets, and where to go on."""

    records: list[tuple[int, bytes]]
    next_offset: int


class Audit:
    """Compares what is in the log with what the ledger says."""

    def __init__(self, ledger: HttpLedger, asker: Asker, seed: int, unordered: Iterable[str]) -> None:
        self._ledger = ledger
        self._findings = ledger.findings
        self._asker = asker
        self._random = random.Random(f"{seed}/audit")
        self._unordered = {name.encode() for name in unordered}
        """Writers whose records may come in any order."""
        self._offsets = dict.fromkeys(STREAM_IDS, 0)
        self._revealed: Found = {}
        self._unchecked: set[Unit] = set()
        """Units of which something was revealed since the last whole look."""
        self.records = 0
        self.looks = 0

    # --- looking along -------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Read what is new up to one cut, and see that no unit is visible in part (P4). Raises ServerGone."""
        cut = await self._cut()
        # All at once, pipelined: a look that takes long is cut short by a kill.
        await asyncio.gather(*(self._look_at(stream, stable) for stream, stable in cut.items()))
        for unit in self._unchecked:
            self._check_whole(unit, self._revealed)
        self._unchecked.clear()
        self.looks += 1

    async def _look_at(self, stream: StreamName, stable: int) -> None:
        """Read a stream on up to here."""
        while self._offsets[stream] < stable:
            read = await self._read(stream, self._offsets[stream])
            if read is None or read.next_offset <= self._offsets[stream]:
                self._findings.add("lost", f"{stream} ends at {self._offsets[stream]}, the cut says {stable}")
                return
            self._reveal(stream, [record for record in read.records if record[0] < stable])
            self._offsets[stream] = min(read.next_offset, stable)

    async def _cut(self) -> dict[StreamName, int]:
        """Where every stream is stable, at one instant."""
        answer = await self._asker.ask("GET", "/v1/cut")
        if answer.status != 200:
            self._findings.add("refused", f"a cut: {answer}")
            return {}
        return {
            (row["topic"], row["partition"]): row["stable"]
            for row in answer.json()["streams"]
            if (row["topic"], row["partition"]) in STREAM_IDS
        }

    def _reveal(self, stream: StreamName, records: list[tuple[int, bytes]]) -> None:
        for offset, value in records:
            identity = identity_in(value)
            place = (STREAM_IDS[stream], offset)
            if self._revealed.setdefault(identity, place) != place:
                self._findings.add("doubled", f"{identity!r} at {self._revealed[identity]} and at {place}")
            unit = self._ledger.unit_of.get(identity)
            if unit is not None:
                self._unchecked.add(unit)

    def _check_whole(self, unit: Unit, found: Found) -> int:
        """How many records of the unit there are; all or none, else it is torn."""
        count = sum(identity in found for identity in unit.identities)
        if 0 < count < len(unit.identities):
            self._findings.add("torn", f"{unit.name}: {count} of {len(unit.identities)} records are visible")
        return count

    # --- everything ----------------------------------------------------------------------------------------------

    async def audit(self) -> None:
        """While nothing is in flight and everything is answered: the log holds what was confirmed and nothing else."""
        await self.look()
        found: Found = {}
        for stream in STREAM_IDS:
            values = await self._read_from_start(stream, found)
            await self._compare_plain(stream, values)
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
        await self._check_cursors(found)
        await self._check_receipts(found)

    async def _read_from_start(self, stream: StreamName, found: Found) -> dict[int, bytes]:
        """Offset -> value, all of the stream; every record is checked on its way."""
        values: dict[int, bytes] = {}
        topic = _TOPIC_OF[stream[0]]
        newest: dict[bytes, tuple[int, int]] = {}
        offset = 0
        while (read := await self._read(stream, offset)) is not None and read.next_offset > offset:
            for place, value in read.records:
                self._check_record(topic, (STREAM_IDS[stream], place), value, found, newest)
                values[place] = value
            offset = read.next_offset
        if sorted(values) != list(range(offset)):
            self._findings.add("lost", f"{stream} has {len(values)} records below {offset}")
        return values

    def _check_record(
        self, topic: Topic, place: Place, value: bytes, found: Found, newest: dict[bytes, tuple[int, int]]
    ) -> None:
        identity = identity_in(value)
        if value != self._ledger.value(topic, identity):
            self._findings.add("changed", f"{identity!r} at {place} in {topic.name}")
            return
        if identity in found:
            self._findings.add("doubled", f"{identity!r} at {found[identity]} and at {place}")
        found[identity] = place
        name, number, part = identity.split(b":")
        order = (int(number), int(part))
        if order <= newest.get(name, (0, -1)) and name not in self._unordered:
            self._findings.add("misordered", f"{identity!r} after {newest[name]} in {topic.name}")
        newest[name] = order

    async def _compare_plain(self, stream: StreamName, values: dict[int, bytes]) -> None:
        """The same stream as any HTTP client reads it: a JSON array, or the bytes one after another."""
        topic, partition = _TOPIC_OF[stream[0]], stream[1]
        offset = "-1"
        position = 0
        while True:
            answer = await self._get(topic, partition, offset, {})
            if answer is None:
                return
            offset = answer.headers["stream-next-offset"]
            expected = [values[at] for at in range(position, int(offset)) if at in values]
            position = int(offset)
            joined = b"[%b]" % b",".join(expected) if topic.content_type == JSON else b"".join(expected)
            if answer.body != joined or answer.headers["content-type"] != topic.content_type:
                self._findings.add("changed", f"{stream} before {offset}: a plain GET says something else")
            if answer.flag("stream-up-to-date"):
                return

    def _check_fate(self, unit: Unit, count: int) -> None:
        if unit.fate is Fate.ABSENT and count:
            self._findings.add("aborted_visible", f"{unit.name}: {count} records of a refused unit")
        elif unit.fate is Fate.VISIBLE and count < len(unit.identities):
            self._findings.add("lost", f"{unit.name}: {count} of {len(unit.identities)} records")
        elif unit.fate is Fate.OPEN and not self._findings.refused:
            self._findings.add("refused", f"{unit.name} was never answered")

    async def _check_cursors(self, found: Found) -> None:
        """Each cursor stands where the last unit that took effect has put it."""
        frontiers: dict[tuple[str, str, int], int] = {}
        for move in self._ledger.cursor_moves:
            if move.unit.identities[0] in found:
                frontiers[move.cursor] = move.frontier
        for (name, topic, partition), frontier in frontiers.items():
            answer = await self._asker.ask("GET", f"/v1/cursors/{name}/{topic}?partition={partition}")
            actual = answer.json()["frontier"] if answer.status == 200 else answer
            if actual != frontier:
                self._findings.add("torn", f"cursor {name} is at {actual}, its last unit has put it to {frontier}")

    async def _check_receipts(self, found: Found) -> None:
        """What the server says of a message id is where its first record is."""
        streams = {STREAM_IDS[IDS.name, partition]: partition for partition in range(IDS.partitions)}
        known = [identity for identity, place in found.items() if place[0] in streams and identity.endswith(b":0")]
        for identity in self._random.sample(known, min(_RECEIPTS_ASKED, len(known))):
            stream_id, offset = found[identity]
            target = f"/v1/receipts/{IDS.name}/{quote(identity.decode(), safe='')}?partition={streams[stream_id]}"
            answer = await self._asker.ask("GET", target)
            if answer.status != 200 or answer.json()["first"] != offset:
                self._findings.add("lost", f"the receipt of {identity!r}, which is at {offset}, says {answer}")

    # --- reading -------------------------------------------------------------------------------------------------

    async def _get(self, topic: Topic, partition: int, offset: str, headers: dict[str, str | int]) -> Answer | None:
        target = topic.target(partition)
        answer = await self._asker.ask("GET", f"{target}{'&' if '?' in target else '?'}offset={offset}", headers)
        if answer.status != 200:
            self._findings.add("refused", f"reading {topic.name}/{partition} from {offset}: {answer}")
            return None
        return answer

    async def _read(self, stream: StreamName, offset: int) -> StreamRead | None:
        """Record batches from an offset on; None if that was refused."""
        answer = await self._get(_TOPIC_OF[stream[0]], stream[1], f"{offset:016d}", {"Accept": BATCHES})
        if answer is None:
            return None
        records: list[tuple[int, bytes]] = []
        at = 0
        while at < len(answer.body):
            header = codec.read_header(answer.body, at)
            batch = answer.body[at : at + header.batch_bytes]
            if not codec.check_crc(batch):
                self._findings.add("changed", f"the batch at {header.base_offset} of {stream} has a wrong checksum")
            for delta, _, _, value, _ in codec.decode(batch):
                if header.base_offset + delta >= offset:
                    records.append((header.base_offset + delta, value or b""))
            at += header.batch_bytes
        return StreamRead(records, answer.number("stream-next-offset"))
