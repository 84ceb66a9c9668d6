"""What has happened on a face since the start: plain numbers, added to on the loop's thread. `metrics` tells them."""

import sys

from oncelog.core.outcome import CommitConfirmed, Confirmed, Damaged, Outcome, Refusal


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
                sys.stderr.write(f"oncelog: {whose}{told_of(outcome)}\n")
        elif isinstance(outcome, CommitConfirmed):
            if outcome.duplicate:
                self.duplicates += 1
            else:
                self.commits += 1


def told_of(damaged: Damaged) -> str:
    """What is damaged, and where as far as that is known."""
    where = f" in {damaged.file}" if damaged.file else ""
    return damaged.what + where + (f" at byte {damaged.position}" if damaged.position >= 0 else "")
