"""The dumb model, what is remembered: records with all that became of them, ids, and producers with all they wrote."""

from collections.abc import Iterable
from typing import Any

from xxhash import xxh3_128_digest

from oncelog.core import outcome as o
from oncelog.core.flat import ProducerClaim
from oncelog.core.producer import SequenceMode

FOREVER = -1
HOLES = ("aborted", "deleted", "control", "duplicate")
MS = 1_000_000
WEEK_MS = 7 * 24 * 3600 * 1000

Thing = dict[str, Any]


class MemoryModel:
    """All that the model holds, and the questions that every command asks."""

    def __init__(self) -> None:
        self.now = 0
        self.ids_given = 0
        self.producer_ids_given = 0
        self.moves_given = 0
        self.topics: dict[str, Thing] = {}
        self.streams: dict[int, Thing] = {}
        self.ids: dict[object, Thing] = {}
        self.producers: dict[tuple[int, str], Thing] = {}
        self.cursors: dict[tuple[str, int], Thing] = {}
        self.commits: dict[tuple[str, str], Thing] = {}
        self.txns: dict[str, Thing] = {}
        self.stages: dict[int, Thing] = {}
        self.applications: dict[str, Thing] = {}

    def take_id(self) -> int:
        """The next number for a topic, a stream or a stage."""
        self.ids_given += 1
        return self.ids_given

    # --- streams and their records ---------------------------------------------------------------------------------

    def stream(self, topic: str, partition: int) -> Thing | None:
        """The stream of a name."""
        row = self.topics.get(topic)
        if row is None or not 0 <= partition < len(row["streams"]):
            return None
        return self.streams[row["streams"][partition]]

    def stable(self, stream: Thing) -> int:
        """The first open record; the end if none is."""
        for offset, record in enumerate(stream["records"]):
            if record["status"] == "open":
                return offset
        return len(stream["records"])

    def past_holes(self, stream: Thing, offset: int) -> int:
        """The first offset from here on that is no hole."""
        while offset < len(stream["records"]) and stream["records"][offset]["status"] in HOLES:
            offset += 1
        return offset

    def add_records(self, stream: Thing, count: int, txn_id: str) -> tuple[int, int]:
        """New records at the end: (first, next)."""
        first = len(stream["records"])
        for _ in range(count):
            record = {"status": "open", "txn": txn_id} if txn_id else {"status": "committed"}
            stream["records"].append(record)
        return first, first + count

    def removed(self, outcome: Iterable[int]) -> int | None:
        """When the last record of an outcome was removed; None while any is there."""
        numbers = list(outcome)
        last = 0
        for at in range(0, len(numbers), 3):
            stream_id, first, next_ = numbers[at : at + 3]
            if first == next_:
                continue
            stream = self.streams[stream_id]
            when = stream["records"][next_ - 1].get("removed", stream["deleted"])
            if when is None:
                return None
            last = max(last, when)
        return last

    def floor_of(self, outcome: list[int]) -> int:
        """The longest memory that any of the streams asks for."""
        floors = [self.streams[stream_id]["config"].dedupe_floor_ms for stream_id in outcome[::3]]
        return FOREVER if FOREVER in floors else max(floors, default=WEEK_MS)

    # --- ids ---------------------------------------------------------------------------------------------------------

    @staticmethod
    def digest(content: bytes) -> bytes:
        """What two contents are compared by."""
        return xxh3_128_digest(content)

    def id_key(self, stream: Thing, message_id: bytes) -> object:
        """Ids belong to a zone or to a stream."""
        zone = stream["config"].id_zone
        return (zone, message_id) if zone else (stream["id"], message_id)

    def known_id(self, stream: Thing, message_id: bytes) -> Thing | None:
        """What is remembered of an id, if it still counts."""
        known = self.ids.get(self.id_key(stream, message_id))
        if known is None:
            return None
        config = stream["config"]
        now_ms = self.now // MS
        if config.duplicate_window_ms:
            return known if now_ms - known["ms"] < config.duplicate_window_ms else None
        if config.dedupe_floor_ms == FOREVER:
            return known
        removed = self.removed([known["stream"], known["first"], known["first"] + known["count"]])
        if removed is None or now_ms - max(removed // MS, known["ms"]) < config.dedupe_floor_ms:
            return known
        return None

    def remember_id(self, stream: Thing, message_id: bytes, digest: bytes, first: int, count: int) -> None:
        """An id was taken."""
        self.ids[self.id_key(stream, message_id)] = {
            "stream": stream["id"],
            "first": first,
            "count": count,
            "digest": digest,
            "ms": self.now // MS,
            "time": self.now,
        }

    def is_gone(self, known: Thing) -> bool:
        """Deleted with its topic, trimmed, or a hole."""
        stream = self.streams[known["stream"]]
        record = stream["records"][known["first"]]
        return stream["deleted"] is not None or "removed" in record or record["status"] in HOLES

    def use_id(self, stream: Thing, known: Thing) -> None:
        """A use of an id whose record is gone starts its memory anew, unless a window or eternity rules."""
        config = stream["config"]
        if self.is_gone(known) and not config.duplicate_window_ms and config.dedupe_floor_ms != FOREVER:
            known["ms"] = self.now // MS
            known["time"] = -1

    # --- producers ---------------------------------------------------------------------------------------------------

    def known_producer(self, stream_id: int, name: str) -> Thing | None:
        """A producer, unless it is forgotten. Stream 0: the producer of commits."""
        row = self.producers.get((stream_id, name))
        if row is None:
            return None
        batches = row["history"][-5:]
        places = [batch["place"] for batch in batches if stream_id and batch["place"][0] == stream_id]
        if batches:
            places.append(batches[-1]["place"])
        outcome = [number for place in places for number in place]
        if stream_id:
            stream = self.streams[stream_id]
            floor = stream["config"].dedupe_floor_ms
            if any(record["status"] == "open" for record in stream["records"]) and stream["deleted"] is None:
                return row
        else:
            floor = self.floor_of(outcome)
        if floor == FOREVER:
            return row
        removed = self.removed(outcome)
        return row if removed is None or self.now - max(removed, row["used"]) < floor * MS else None

    def judge(self, stream_id: int, claim: ProducerClaim, digest: object = None) -> tuple[str, Any]:
        """("accept" | "duplicate" | "refuse", its numbers)."""
        verdict, numbers = judged(self.known_producer(stream_id, claim.name), claim, digest or claim.digest)
        if verdict == "duplicate" and numbers["place"] is None:
            numbers["place"] = [stream_id, -1, -1] if stream_id else []
        return verdict, numbers

    def is_early(self, stream_id: int, claim: ProducerClaim, digest: object = None) -> bool:
        """Others of its producer are missing before it, and that is not because the producer was forgotten."""
        forgotten = (stream_id, claim.name) in self.producers and self.known_producer(stream_id, claim.name) is None
        _, numbers = self.judge(stream_id, claim, digest)
        return isinstance(numbers, o.SequenceGap | o.EpochNotAtZero) and not forgotten

    def claim(self, stream_id: int, claim: ProducerClaim, place: list[int], digest: object = None) -> None:
        """The claim is used up: one more line in its producer's history."""
        row = self.known_producer(stream_id, claim.name)
        if row is None or row["epoch"] != claim.epoch:
            row = self.producers[(stream_id, claim.name)] = {"epoch": claim.epoch, "history": []}
        batch = {"first": claim.first, "last": claim.last, "digest": digest or claim.digest, "place": list(place)}
        row["history"].append(batch)
        row["mode"] = claim.mode
        row["used"] = self.now


def offsets_of(ranges: list[int]) -> Iterable[int]:
    """Every offset of flat ranges."""
    for at in range(0, len(ranges), 2):
        yield from range(ranges[at], ranges[at + 1])


def judged(row: Thing | None, claim: ProducerClaim, digest: object) -> tuple[str, Any]:
    """A claim against a producer's whole history: ("accept" | "duplicate" | "refuse", its numbers)."""
    mode = claim.mode
    if row is None:
        if mode == SequenceMode.REQUESTS and claim.first > 0 and not claim.start_any:
            return "refuse", o.SequenceGap(0, claim.first)
        return "accept", None
    if claim.epoch < row["epoch"]:
        return "refuse", o.Fenced(row["epoch"], claim.epoch)
    if claim.epoch > row["epoch"]:
        if claim.first == 0 or mode == SequenceMode.RISING:
            return "accept", None
        if mode == SequenceMode.RECORDS:
            return "refuse", o.SequenceGap(0, claim.first)
        return "refuse", o.EpochNotAtZero(0, claim.first)
    written = row["history"]
    if written and mode != row["mode"]:
        words = ("records", "requests", "rising")
        reason = f"an epoch has one mode: this one's is {words[row['mode']]}, the claim's is {words[mode]}"
        return "refuse", o.ClaimInvalid(reason)
    last = written[-1]["last"] if written else -1
    for batch in written[-5:]:
        if (batch["first"], batch["last"]) == (claim.first, claim.last):
            if mode != SequenceMode.RECORDS and digest and batch["digest"] and digest != batch["digest"]:
                return "refuse", o.SequenceConflict(claim.first, b"", b"")
            return "duplicate", {"place": batch["place"], "epoch": row["epoch"], "last": last}
    if claim.first == last + 1:
        return "accept", None
    if mode == SequenceMode.RECORDS:
        return "refuse", o.SequenceGap(last + 1, claim.first)
    if claim.last <= last:
        return "duplicate", {"place": None, "epoch": row["epoch"], "last": last}
    if claim.first <= last:
        return "refuse", o.ClaimInvalid("the range is partly written", last + 1, claim.first)
    return ("accept", None) if mode == SequenceMode.RISING else ("refuse", o.SequenceGap(last + 1, claim.first))
