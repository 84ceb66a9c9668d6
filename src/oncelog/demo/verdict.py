"""What the run has shown: one table, and the result that programs read.

A row for each face says what its producers did and met; a row for each topic what the audit found there. Sent and
confirmed are counted from the ledgers, in records, each once; not from what producers said while they lived.

A run in which nothing was written, nobody died and nothing was compared has no fault either. So the plan says what must
have happened, and what did not is named: such a run has shown nothing, whatever the audit says.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from rich.console import Console, Group
from rich.text import Text

from oncelog.demo.board import Board, clock
from oncelog.demo.expected import records_planned
from oncelog.demo.flows import AUDITED, LANDED, REVENUE, SALES, WRITTEN
from oncelog.demo.network import DRIZZLE, STORM, Weather
from oncelog.demo.orders import CLOSING_FACE, TOPICS
from oncelog.demo.places import Places
from oncelog.demo.plan import DRIVER, PRODUCER, SERVER, Plan
from oncelog.demo.plant import FACE, FACTS, facts_of
from oncelog.demo.zones import STRIKES
from oncelog.pipelines.ledger import lines_of

if TYPE_CHECKING:
    from oncelog.pipelines.audit_result import AuditResult


class FaceResult(msgspec.Struct, frozen=True):
    """How the producers of one face fared."""

    face: str
    planned: int
    """Records: what the plan has for its producers."""
    sent: int
    confirmed: int
    retried: int
    """-1: its client retries by itself and does not tell."""
    duplicates: int
    killed: int


class Verdict(msgspec.Struct):
    """The result."""

    sound: bool
    """The audit found no fault, and everything happened that was planned."""
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
    """The HTML page; empty without Spark, which draws it."""
    not_shown: list[str] = []
    """What was planned and did not happen, in words."""
    folder: str = ""
    """Where everything lies, if it was to be kept."""
    zone_strikes: int = 0
    """Kills and cuts in the other zone and on the way to it."""


def verdict_of(
    plan: Plan,
    board: Board,
    audit: "AuditResult",
    places: Places,
    report: Path,
    *,
    weathers: Sequence[Weather] = (STORM, DRIZZLE),
) -> Verdict:
    """From what is known at the end. `weathers` are those of the networks that stood before the server."""
    sent, confirmed = _records_by_face(places.ledgers())
    faces = [
        FaceResult(
            tally.label, _records_of(plan, name), sent[name], confirmed[name],
            tally.retried if tally.retries_told else -1, tally.duplicates, tally.killed,
        )
        for name, tally in board.tallies.items()
    ]  # fmt: skip
    not_shown = [*_unwritten(faces), *_unstruck(plan, board, weathers), *_uncompared(plan, audit)]
    return Verdict(
        sound=audit.sound and not not_shown,
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
        report=str(report) if plan.spark else "",
        not_shown=not_shown,
        zone_strikes=board.zone_strikes,
    )


def _records_of(plan: Plan, face: str) -> int:
    if face == FACE:
        return facts_of(plan.scale)
    return plan.orders_of(face) * len(TOPICS) + (face == CLOSING_FACE)


def _unwritten(faces: Iterable[FaceResult]) -> Iterator[str]:
    for face in faces:
        for done, count in (("sent", face.sent), ("confirmed", face.confirmed)):
            if count != face.planned:
                yield f"{face.face}: {count:,} records {done}, {face.planned:,} planned"


def _unstruck(plan: Plan, board: Board, weathers: Sequence[Weather]) -> Iterator[str]:
    kills = {SERVER: board.server_kills, PRODUCER: board.producer_kills, DRIVER: board.driver_kills}
    for victim, count in kills.items():
        if count != plan.kills[victim]:
            yield f"{victim}: {count} times killed, {plan.kills[victim]} planned"
    if board.zone_strikes != len(STRIKES):
        yield f"other zone: {board.zone_strikes} kills and cuts, {len(STRIKES)} planned"
    if any(weather.drop for weather in weathers) and not board.dropped:
        yield "network: no answer was dropped"
    if any(weather.cut for weather in weathers) and not board.cut:
        yield "network: no connection was cut"


def _uncompared(plan: Plan, audit: "AuditResult") -> Iterator[str]:
    """A topic or a table that the audit did not look at in full has no faults that it could have found."""
    planned = records_planned(plan)
    compared = {topic.topic: topic.confirmed for topic in audit.topics}
    rows = {topic.topic: max(0, topic.table_rows) for topic in audit.topics}
    for topic in AUDITED if plan.spark else WRITTEN:
        if (count := compared.get(topic, 0)) != planned[topic]:
            yield f"audit: {count:,} records of {topic} compared, {planned[topic]:,} planned"
    for topic in LANDED if plan.spark else ():
        if (count := rows.get(topic, 0)) != planned[topic]:
            yield f"audit: {count:,} rows in the table of {topic}, {planned[topic]:,} planned"


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

NOTES: Final = {SALES: "sales (join)", REVENUE: "revenue (aggregate)", FACTS: "facts (other zone)"}

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
    spark = f", Spark driver {verdict.driver_kills}" if verdict.driver_kills else ""
    yield Text(f"killed with kill -9: server {verdict.server_kills} times, producers {verdict.producer_kills}{spark}")
    yield Text(f"other zone: {verdict.zone_strikes} strikes (server killed, forwarder killed, link cut)")
    yield Text(f"network: {verdict.dropped:,} answers dropped, {verdict.cut:,} connections cut")
    yield Text.assemble(
        (f"lost {audit.lost}, doubled {audit.doubled}", "bold green" if verdict.sound else "bold red"),
        f", torn {audit.torn}, out of order {audit.out_of_order}, conflicting {audit.conflicting}, "
        f"unexpected {audit.unexpected}",
    )
    yield from (Text(f"  {example}", "red") for example in audit.examples)
    if verdict.sound:
        yield Text("Everything that was confirmed is there, once, in its order, and whole.", "green")
    if verdict.not_shown:
        yield Text("this run did not show what it should:", "bold red")
        yield from (Text(f"  {one}", "red") for one in verdict.not_shown)
    yield Text(
        f"{clock(verdict.elapsed_s)} min, seed {verdict.seed}"
        + (f"; report: {_short(verdict.report)}" if verdict.report else "")
    )
    if verdict.folder:
        yield Text(f"kept: {verdict.folder}")


def _short(report: str) -> str:
    """Relative to where one is, if it is there."""
    path = Path(report)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else report
