"""The producer of the demo's plant: facts about pumps, appended over BSFG, many of them twice on purpose.

A process of its own, so that it may be killed; `python -m oncelog.demo.plant '{"url": …, …}'`. It writes a ledger as
all producers of the demo do. The value that it notes is the one that the log stores: both zones hold the same bytes.
"""

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from oncelog.demo import lifeline
from oncelog.demo.faces.face import Contradiction
from oncelog.demo.faces.insistent import Insistent
from oncelog.errors import OncelogError
from oncelog.pipelines.ledger import Ledger, lines_of

FACTS: Final = "facts.operational"
FACE: Final = "bsfg"
LABEL: Final = "BSFG, from a plant"
FACTS_AT_SCALE_1: Final = 400

APPEND: Final = "/bsfg.v1.BoundaryService/AppendFact"
PREDICATE: Final = "was_measured"
PRODUCED_MS: Final = 1_767_603_600_000
"""When the shift began, in the facts' own time."""

SENT_TWICE: Final = 0.25
"""Share of the facts that are sent again although they were answered."""


def facts_of(scale: float) -> int:
    """How many facts a plant has at this scale."""
    return max(40, round(FACTS_AT_SCALE_1 * scale))


class Told(msgspec.Struct, frozen=True):
    """What the producer is told."""

    url: str
    from_zone: str
    to_zone: str
    facts: int
    ledger: str


class Said(msgspec.Struct, omit_defaults=True):
    """What it says on stdout. The first by its ledger, over all its lives; the others since the line before."""

    confirmed: int = 0
    retried: int = 0
    duplicates: int = 0


class Reading(msgspec.Struct, frozen=True):
    """One fact: the number gives all of it, in every life of the producer."""

    reading_id: str
    subject: str
    object_json: str
    produced_ms: int

    @property
    def value(self) -> bytes:
        """The record that the log stores."""
        return f'{{"object":{self.object_json},"predicate":"{PREDICATE}","subject":"{self.subject}"}}'.encode()

    def request(self, from_zone: str, to_zone: str) -> dict[str, object]:
        """The call that appends it."""
        envelope = {
            "message_id": self.reading_id,
            "from_zone": from_zone,
            "to_zone": to_zone,
            "produced_at_unix_ms": self.produced_ms,
        }
        fact = {"subject": self.subject, "predicate": PREDICATE, "object_json": self.object_json}
        return {"envelope": envelope, "fact": fact}


def reading_of(zone: str, number: int) -> Reading:
    """The fact of this number."""
    chance = random.Random(f"{zone}/{number}")
    reading_id = f"{zone}-{number}"
    celsius = chance.randrange(200, 900) / 10
    object_json = msgspec.json.encode({"reading_id": reading_id, "celsius": celsius}).decode()
    return Reading(reading_id, f"pump:{zone}/{chance.randrange(12)}", object_json, PRODUCED_MS + 1_000 * number)


def readings(zone: str, count: int) -> Iterator[Reading]:
    """All facts of a plant."""
    return (reading_of(zone, number) for number in range(count))


def produce(told: Told) -> None:
    """Append every fact that is not confirmed yet, one after the other."""
    path = Path(told.ledger)
    confirmed = {line.id for line in lines_of(path) if line.state == "confirmed"} if path.exists() else set()
    chance = random.Random(f"{told.from_zone}/copies/{len(confirmed)}")
    sender = Insistent(told.url)
    with Ledger(path, writer=FACE, face=FACE) as ledger:
        for reading in readings(told.from_zone, told.facts):
            if reading.reading_id in confirmed:
                continue
            said = Said(len(confirmed))
            ledger.sent(FACTS, reading.reading_id, reading.value, partition=0)
            ledger.sync()
            request = reading.request(told.from_zone, told.to_zone)
            reply = sender.post(APPEND, request)
            answer = msgspec.json.decode(reply.body)
            said.retried += reply.attempts - 1
            said.duplicates += answer["duplicate"]
            # Where it lies in the other zone is not known here.
            ledger.confirmed(FACTS, reading.reading_id, -1, partition=0)
            confirmed.add(reading.reading_id)
            if chance.random() < SENT_TWICE:
                again = sender.post(APPEND, request)
                told_again = msgspec.json.decode(again.body)
                said.retried += again.attempts
                said.duplicates += 1
                if not told_again["duplicate"] or told_again["sequence"] != answer["sequence"]:
                    raise Contradiction(f"{reading.reading_id}, sent again: {told_again} after {answer}")
            said.confirmed = len(confirmed)
            sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
            sys.stdout.flush()


def main() -> int:
    lifeline.hold()
    try:
        produce(msgspec.json.decode(sys.argv[1], type=Told))
    except OncelogError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
