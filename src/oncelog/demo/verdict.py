"""What the run has shown: one table, and the result that programs read.

A row for each face says what its producers did and met; a row for each topic what the audit found there. Sent and
confirmed are counted from the ledgers, in records, each once; not from what producers said while they lived.
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from oncelog.demo.board import Board, clock
from oncelog.demo.flows import REVENUE, SALES
from oncelog.demo.places import Places
from oncelog.demo.plan import Plan
from oncelog.demo.screen import bare_table
from oncelog.pipelines.audit import AuditResult, TopicAudit
from oncelog.pipelines.ledger import lines_of


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
    audit: AuditResult
    server_kills: int
    producer_kills: int
    driver_kills: int
    dropped: int
    cut: int
    report: str
    folder: str = ""
    """Where everything lies, if it was to be kept."""


def verdict_of(plan: Plan, board: Board, audit: AuditResult, places: Places, report: Path) -> Verdict:
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

NOTES = {SALES: "join", REVENUE: "aggregate"}


def show(verdict: Verdict, console: Console) -> None:
    """The table, and what it says in one line."""
    console.print(_table(verdict))
    console.print(_words(verdict), soft_wrap=True)


def _table(verdict: Verdict) -> Table:
    table = bare_table()
    table.add_column("face, topic", no_wrap=True)
    headings = ("sent", "con-\nfirmed", "re-\ntried", "dupli-\ncates", "kill\n-9")
    for title in (*headings, "lost", "dou-\nbled", "torn", "out of\norder", "con-\nflict"):
        table.add_column(title, justify="right", vertical="bottom", no_wrap=True)
    for face in verdict.faces:
        retried = f"{face.retried:,}" if face.retried >= 0 else "·"
        told = (f"{face.sent:,}", f"{face.confirmed:,}", retried, f"{face.duplicates:,}", str(face.killed))
        table.add_row(face.face, *told)
    table.add_section()
    for topic in verdict.audit.topics:
        table.add_row(_name(topic), f"{topic.sent:,}", f"{topic.confirmed:,}", "", "", "", *map(_fault, _faults(topic)))
        if topic.table_rows >= 0:
            faults = (topic.table_lost, topic.table_doubled, 0, 0, topic.table_conflicting)
            rows = f"{topic.table_rows:,}"
            table.add_row(f"  Delta table {topic.topic}", "", rows, "", "", "", *map(_fault, faults))
    return table


def _name(topic: TopicAudit) -> str:
    note = NOTES.get(topic.topic)
    return f"{topic.topic} ({note})" if note else topic.topic


def _faults(topic: TopicAudit) -> tuple[int, int, int, int, int]:
    return topic.lost, topic.doubled, topic.torn, topic.out_of_order, topic.conflicting


def _fault(count: int) -> Text:
    return Text(f"{count:,}", "green" if count == 0 else "bold red")


def _words(verdict: Verdict) -> RenderableType:
    audit = verdict.audit
    lines = [
        Text(
            f"\nkill -9: server {verdict.server_kills}, producers {verdict.producer_kills}, Spark driver "
            f"{verdict.driver_kills}; {verdict.dropped:,} answers dropped, {verdict.cut:,} connections cut"
        ),
        Text.assemble(
            (f"lost {audit.lost}, doubled {audit.doubled}", "bold green" if verdict.sound else "bold red"),
            f", torn {audit.torn}, out of order {audit.out_of_order}, conflicting {audit.conflicting}, "
            f"unexpected {audit.unexpected}",
        ),
        *(Text(f"  {example}", "red") for example in audit.examples),
        Text(f"{clock(verdict.elapsed_s)} min, seed {verdict.seed}; report: {_short(verdict.report)}"),
    ]
    return Group(*lines)


def _short(report: str) -> str:
    """Relative to where one is, if it is there."""
    path = Path(report)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else report
