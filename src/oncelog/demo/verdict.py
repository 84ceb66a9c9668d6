"""What the run has shown: one table, and the result that programs read.

A row for each face says what its producers did and met; a row for each topic what the audit found there. Sent and
confirmed are counted from the ledgers, in records, each once; not from what producers said while they lived.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from rich.console import Console, Group
from rich.text import Text

from oncelog.demo.board import Board, clock
from oncelog.demo.flows import REVENUE, SALES
from oncelog.demo.places import Places
from oncelog.demo.plan import Plan
from oncelog.pipelines.ledger import lines_of

if TYPE_CHECKING:
    from oncelog.pipelines.auditing import AuditResult


class FaceResult(msgspec.Struct, frozen=True):
    """How the producers of one face fared."""

    face: str
    sent: int
    confirmed: int
    retried: int
    """-1: its client retries by itself and does not tell."""
    duplicates: int
    killed: int


class Verdict(msgspec.Struct):
    """The result."""

    sound: bool
    seed: int
    scale: float
    elapsed_s: float
    faces: list[FaceResult]
    audit: "AuditResult"
    server_kills: int
    producer_kills: int
    driver_kills: int
    dropped: int
    cut: int
    report: str
    folder: str = ""
    """Where everything lies, if it was to be kept."""


def verdict_of(plan: Plan, board: Board, audit: "AuditResult", places: Places, report: Path) -> Verdict:
    """From what is known at the end."""
    sent, confirmed = _records_by_face(places.ledgers())
    faces = [
        FaceResult(
            tally.label, sent[name], confirmed[name], tally.retried if tally.retries_told else -1, tally.duplicates,
            tally.killed,
        )
        for name, tally in board.tallies.items()
    ]  # fmt: skip
    all_written = all(face.sent == face.confirmed for face in faces) and board.driver_kills > 0
    return Verdict(
        sound=audit.sound and all_written,
        seed=plan.seed,
        scale=plan.scale,
        elapsed_s=board.elapsed_s,
        faces=faces,
        audit=audit,
        server_kills=board.server_kills,
        producer_kills=board.producer_kills,
        driver_kills=board.driver_kills,
        dropped=board.dropped,
        cut=board.cut,
        report=str(report),
    )


def _records_by_face(ledgers: Iterable[Path]) -> tuple[dict[str, int], dict[str, int]]:
    """Different records that were sent, and those of them that were confirmed."""
    found: dict[str, dict[str, set[tuple[str, str]]]] = {"sent": defaultdict(set), "confirmed": defaultdict(set)}
    for path in ledgers:
        for line in lines_of(path):
            if line.state in found:
                found[line.state][line.face].add((line.topic, line.id))
    sent, confirmed = (
        defaultdict(int, {face: len(records) for face, records in of.items()}) for of in found.values()
    )  # fmt: skip
    return sent, confirmed


# --- for people ------------------------------------------------------------------------------------------------

LABEL_COLUMNS: Final = 20
COLUMNS: Final = (
    ("", "sent", 7), ("con-", "firmed", 7), ("re-", "tried", 6), ("dupli-", "cates", 7), ("kill", "-9", 5),
    ("", "lost", 5), ("dou-", "bled", 5), ("", "torn", 5), ("out of", "order", 7), ("con-", "flict", 6),
)  # fmt: skip
"""Heading in two lines, and the width: 80 together with the label."""

NOTES: Final = {SALES: "sales (join)", REVENUE: "revenue (aggregate)"}

Cell = int | None


def show(verdict: Verdict, console: Console) -> None:
    """The table, and what it says in a few lines."""
    console.print(Group(Text(""), *_table(verdict), Text(""), *_words(verdict)), soft_wrap=True)


def _table(verdict: Verdict) -> Iterator[Text]:
    for line in (0, 1):
        label = "face, then topic" if line else ""
        titles = "".join(f"{column[line]:>{column[2]}}" for column in COLUMNS)
        yield Text(f"{label:{LABEL_COLUMNS}}{titles}", "bold")
    rule = Text("─" * (LABEL_COLUMNS + sum(width for _, _, width in COLUMNS)), "dim")
    yield rule
    for face in verdict.faces:
        retried = face.retried if face.retried >= 0 else None
        yield _row(face.face, (face.sent, face.confirmed, retried, face.duplicates, face.killed))
    yield rule
    for topic in verdict.audit.topics:
        faults = (topic.lost, topic.doubled, topic.torn, topic.out_of_order, topic.conflicting)
        yield _row(NOTES.get(topic.topic, topic.topic), (topic.sent, topic.confirmed, None, None, None), faults)
        if topic.table_rows >= 0:
            faults = (topic.table_lost, topic.table_doubled, 0, 0, topic.table_conflicting)
            yield _row("  in its Delta table", (None, topic.table_rows, None, None, None), faults)


def _row(label: str, counts: tuple[Cell, ...], faults: tuple[int, ...] = ()) -> Text:
    row = Text(f"{label:{LABEL_COLUMNS}}")
    widths = iter(width for _, _, width in COLUMNS)
    for count in counts:
        width = next(widths)
        row.append(" " * width if count is None else _fitted(count, width))
    for fault in faults:
        row.append(_fitted(fault, next(widths)), "green" if fault == 0 else "bold red")
    row.rstrip()
    return row


def _fitted(count: int, width: int) -> str:
    """With commas if there is room."""
    spelled = next((text for text in (f"{count:,}", str(count)) if len(text) < width), f"{count / 1e6:.1f}M")
    return f"{spelled:>{width}}"


def _words(verdict: Verdict) -> Iterator[Text]:
    audit = verdict.audit
    yield Text(
        f"killed with kill -9: server {verdict.server_kills} times, producers {verdict.producer_kills}, "
        f"Spark driver {verdict.driver_kills}"
    )
    yield Text(f"network: {verdict.dropped:,} answers dropped, {verdict.cut:,} connections cut")
    yield Text.assemble(
        (f"lost {audit.lost}, doubled {audit.doubled}", "bold green" if verdict.sound else "bold red"),
        f", torn {audit.torn}, out of order {audit.out_of_order}, conflicting {audit.conflicting}, "
        f"unexpected {audit.unexpected}",
    )
    yield from (Text(f"  {example}", "red") for example in audit.examples)
    yield Text(f"{clock(verdict.elapsed_s)} min, seed {verdict.seed}; report: {_short(verdict.report)}")
    if verdict.folder:
        yield Text(f"kept: {verdict.folder}")


def _short(report: str) -> str:
    """Relative to where one is, if it is there."""
    path = Path(report)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else report
