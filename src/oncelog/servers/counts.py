"""What has happened on a face since the start: plain numbers, added to on the loop's thread. `metrics` tells them."""

import sys
import time
from typing import Final

from oncelog.core.outcome import CommitConfirmed, Confirmed, Damaged, Outcome, Refusal

DAMAGE_SAID_AGAIN_S: Final = 600.0
"""How long nothing is said about a place whose damage was said."""

DAMAGE_PLACES_MAX: Final = 10_000
"""Places that are remembered for that."""


class Counts:
    """What has happened on one face since the start."""

    def __init__(self) -> None:
        self.confirms = 0
        self.records = 0
        self.duplicates = 0
        self.commits = 0
        self.refusals: dict[str, int] = {}
        self.malformed = 0
        """Requests that could not be read, or were mistakes by themselves."""
        self.cut_stalled = 0
        self.connections_refused = 0
        self._damage_said: dict[str, float] = {}
        """When the damage at each place was said last."""

    def confirmed(self, outcome: Confirmed) -> None:
        """An append took effect, or had before."""
        if outcome.duplicate:
            self.duplicates += 1
        else:
            self.confirms += 1
            self.records += outcome.next - outcome.first

    def other(self, outcome: Outcome, topic: str = "", partition: int = 0) -> None:
        """Any other answer of the engine. Damage is said aloud, too: whoever runs the server must hear of it, and whose
        it is if the one who met it knows."""
        if isinstance(outcome, Refusal):
            self.refusals[outcome.code] = self.refusals.get(outcome.code, 0) + 1
            if isinstance(outcome, Damaged):
                whose = f"stream {topic!r}, partition {partition}: " if topic else ""
                if self._is_news(outcome):
                    sys.stderr.write(f"oncelog: {whose}{told_of(outcome)}\n")
        elif isinstance(outcome, CommitConfirmed):
            if outcome.duplicate:
                self.duplicates += 1
            else:
                self.commits += 1

    def _is_news(self, damaged: Damaged) -> bool:
        """Whether this place was not said for a while: a reader that comes back says nothing new."""
        place = f"{damaged.file} {damaged.position} {damaged.next}"
        now = time.monotonic()
        said_at = self._damage_said.get(place, -DAMAGE_SAID_AGAIN_S)
        if now - said_at < DAMAGE_SAID_AGAIN_S:
            return False
        if len(self._damage_said) >= DAMAGE_PLACES_MAX:
            self._damage_said.clear()
        self._damage_said[place] = now
        return True


def told_of(damaged: Damaged) -> str:
    """What is damaged, and where as far as that is known."""
    where = f" in {damaged.file}" if damaged.file else ""
    return damaged.what + where + (f" at byte {damaged.position}" if damaged.position >= 0 else "")
