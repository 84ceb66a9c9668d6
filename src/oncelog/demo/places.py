"""Where everything of a run lies: one folder, which goes when the run ends."""

from pathlib import Path


class Places:
    """The folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        """Of the server."""
        self.ledger_folder = folder / "ledgers"
        self.expected = folder / "expected.jsonl"
        """What the pipelines owe. Not among the ledgers: those are what producers did, and are counted as such."""
        self.said = folder / "said"
        """What the processes complained about."""
        self.scratch = folder / "spark"
        self.events = folder / "events.jsonl"
        """Kills, for the report."""
        self.batches = folder / "batches.jsonl"
        self.run = folder / "run.json"
        """What the writers met, for the report."""
        self.writing_done = folder / "writing-done"
        """There when every writer has ended."""
        self.audit_wanted = folder / "audit-wanted"
        """There when everything that the audit reads is."""

    def make(self) -> None:
        for folder in (self.ledger_folder, self.said, self.folder / "checkpoints", self.folder / "tables"):
            folder.mkdir()
        self.batches.touch()
        self.events.touch()

    def ledger(self, writer: str) -> Path:
        return self.ledger_folder / f"{writer}.jsonl"

    def ledgers(self) -> list[Path]:
        return sorted(self.ledger_folder.glob("*.jsonl"))

    def complaints(self, process: str) -> Path:
        return self.said / f"{process}.txt"

    def checkpoint(self, flow: str) -> Path:
        return self.folder / "checkpoints" / flow

    def table(self, topic: str) -> Path:
        return self.folder / "tables" / topic
