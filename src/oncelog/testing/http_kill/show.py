"""Kill rounds over HTTP for a person to watch: counts while they run, two tables at the end. The directory is gone
afterwards, unless something was found or the run was cut short: then it stays, and is named.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from oncelog.testing.http_kill.rounds import KILL_WITHIN_S, HttpKillRounds, Report

_MUST_BE_ZERO = {
    "lost": "confirmed, and now absent or elsewhere",
    "doubled": "one record at two places",
    "torn": "part of a request, or of a commit",
    "refused": "a correct request or retry turned down",
    "aborted_visible": "refused, yet readable",
    "misordered": "not in its producer's order",
    "changed": "other bytes than were sent",
}


def run_and_show(
    rounds: int,
    seed: int,
    console: Console,
    parent: Path | None = None,
    *,
    proxy: bool = False,
    kill_within_s: float = KILL_WITHIN_S,
) -> bool:
    """Whether the log came through all rounds. Its directory is made in `parent`, or where the system puts such."""
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="oncelog-http-kill-", dir=parent))
    kill_rounds = HttpKillRounds(directory / "log", seed, proxy=proxy, kill_within_s=kill_within_s)
    sound = False
    try:
        report = _run(kill_rounds, rounds, console)
        sound = report.sound
        show(report, console)
    finally:
        if sound:
            shutil.rmtree(directory)
        else:
            for line in kill_rounds.ledger.findings.examples:
                console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
            console.print(f"[bold red]kept for a look:[/] {os.fspath(directory)} (seed {seed})", soft_wrap=True)
    return sound


def _run(kill_rounds: HttpKillRounds, rounds: int, console: Console) -> Report:
    if not console.is_terminal:
        return kill_rounds.run(rounds, _line_per_kill(console))
    columns = (
        SpinnerColumn(),
        TextColumn("[bold]{task.description}[/]"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    progress = Progress(*columns, console=console)
    task = progress.add_task("starting", total=rounds)
    with Live(progress, console=console, transient=True, refresh_per_second=10) as live:

        def update(report: Report) -> None:
            progress.update(task, completed=report.rounds, description="auditing" if report.auditing else "killing ")
            style = "red" if sum(report.findings.values()) else "dim"
            live.update(Group(progress, Text(f"  {_counts(report)}", style)))

        return kill_rounds.run(rounds, update)


def _line_per_kill(console: Console) -> Callable[[Report], None]:
    """For a file or a pipe, which nothing can be drawn over."""
    shown = 0

    def line(report: Report) -> None:
        nonlocal shown
        if report.rounds > shown:
            shown = report.rounds
            console.print(f"kill {shown:>3}: {_counts(report)}", highlight=False, soft_wrap=True)

    return line


def _counts(report: Report) -> str:
    dropped = f"{report.dropped:,} answers dropped, " if report.delayed else ""
    found = sum(report.findings.values())
    return f"{report.confirmed:,} confirmed, {dropped}{report.retried:,} retried, {found} found"


def show(report: Report, console: Console) -> None:
    """Who wrote, what happened to them, and what was found."""
    console.print(_writers(report))
    console.print()
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(justify="right", style="bold")
    table.add_column()
    table.add_column(style="dim")
    kills = f"{report.killed_in_recovery} in recovery, {report.killed_at_work} with requests in flight"
    table.add_row(f"{report.rounds:,}", "kills", kills)
    if report.delayed:
        table.add_row(f"{report.dropped:,}", "dropped", "answers that the network lost")
        table.add_row(f"{report.cut:,}", "cut", "connections that ended within a request")
        table.add_row(f"{report.delayed:,}", "delayed", "held on their way")
    table.add_row(f"{report.unanswered:,}", "unanswered", "requests that went out and got no answer")
    table.add_row(f"{report.retried:,}", "retried", "sent again with the same claim")
    if report.gaps:
        table.add_row(f"{report.gaps:,}", "early", "told that one before was missing; sent again")
    table.add_row(f"{report.duplicates:,}", "duplicates", "recognised: answered with their first outcome")
    table.add_row(f"{report.rightly_refused:,}", "turned down", "as they should: zombies, false conditions")
    table.add_row(f"{report.confirmed:,}", "confirmed", "requests")
    table.add_row(
        f"{report.records:,}", "records", f"read back and compared (audits: {report.audits}, cuts: {report.looks})"
    )
    table.add_row()
    for kind, meaning in _MUST_BE_ZERO.items():
        table.add_row(_judged(report.findings[kind]), kind.replace("_", " "), meaning)
    table.add_row(_judged(len(report.damages)), "damages", "found by verify when stopped")
    console.print(table)
    for damage in report.damages:
        console.print(damage, style="red", markup=False, soft_wrap=True)
    if not report.clean_stop:
        console.print("[bold red]a process was left behind[/]")
    console.print(report.closing_line, highlight=False, soft_wrap=True)


def _judged(count: int) -> str:
    return f"[{'bold red' if count else 'bold green'}]{count}[/]"


def _writers(report: Report) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column("writer")
    for name in ("confirmed", "retried", "duplicates"):
        table.add_column(name, justify="right")
    for writer in report.writers:
        # How often the client retries is its own affair.
        retried = "by itself" if writer.retries_by_itself else f"{writer.retried:,}"
        table.add_row(writer.label, f"{writer.confirmed:,}", retried, f"{writer.duplicates:,}")
    return table
