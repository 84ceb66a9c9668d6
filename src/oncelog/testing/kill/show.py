"""Kill rounds for a person to watch: progress while they run, one table at the end. The directory is gone afterwards,
unless something was found or the run was cut short: then it stays, and is named.
"""

import os
import shutil
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from oncelog.testing.kill.rounds import KillRounds, Report

_MUST_BE_ZERO = {
    "lost": "confirmed, and now absent or elsewhere",
    "doubled": "one record at two places",
    "torn": "part of a commit, txn or publish",
    "refused": "a correct request or retry turned down",
    "aborted_visible": "refused, aborted or unpublished, yet readable",
    "misordered": "not in its producer's order",
    "changed": "other bytes than were sent",
}


def run_and_show(rounds: int, seed: int, console: Console, parent: Path | None = None) -> bool:
    """Whether the log came through all rounds. Its directory is made in `parent`, or where the system puts such."""
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="oncelog-kill-", dir=parent))
    sound = False
    try:
        report = _run(KillRounds(directory / "log", seed), rounds, console)
        sound = report.sound
        show(report, console)
    finally:
        if sound:
            shutil.rmtree(directory)
        else:
            console.print(f"[bold red]kept for a look:[/] {os.fspath(directory)} (seed {seed})", soft_wrap=True)
    return sound


def _run(kill_rounds: KillRounds, rounds: int, console: Console) -> Report:
    columns = (
        SpinnerColumn(),
        TextColumn("[bold]killing[/]"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=rounds)

        def show_progress(report: Report) -> None:
            found = sum(report.findings.values())
            progress.update(
                task,
                completed=report.rounds,
                description=f"{report.confirmed:,} confirmed, {report.retried:,} retried, "
                + (f"[bold red]{found} found[/]" if found else "[green]0 found[/]"),
            )

        return kill_rounds.run(rounds, show_progress)


def show(report: Report, console: Console) -> None:
    """The table, and what was found."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(justify="right", style="bold")
    table.add_column()
    table.add_column(style="dim")
    kills = f"{report.killed_in_recovery} in recovery, {report.killed_at_work} with requests in flight"
    table.add_row(f"{report.rounds:,}", "kills", kills)
    table.add_row(f"{report.in_flight:,}", "unanswered", "requests whose answer a kill cut off")
    table.add_row(f"{report.retried:,}", "retried", "sent again with the same claim; some clients start anew")
    table.add_row(
        f"{report.duplicates:,}", "duplicates", "recognised (some sent on purpose): answered with their first outcome"
    )
    table.add_row(f"{report.confirmed:,}", "confirmed", "requests")
    table.add_row(f"{report.records:,}", "records", f"read back and compared (audits: {report.audits})")
    table.add_row()
    for kind, meaning in _MUST_BE_ZERO.items():
        count = report.findings[kind]
        table.add_row(f"[{'bold red' if count else 'bold green'}]{count}[/]", kind.replace("_", " "), meaning)
    damages = len(report.damages)
    table.add_row(f"[{'bold red' if damages else 'bold green'}]{damages}[/]", "damages", "found by verify when stopped")
    console.print(table)
    for line in (*report.examples, *report.damages):
        console.print(f"[red]{line}[/]", markup=True, soft_wrap=True)
    if not report.clean_stop:
        console.print("[bold red]a process was left behind[/]")
    console.print(report.closing_line, highlight=False, soft_wrap=True)
