"""`oncelog verify DIRECTORY`: check a stopped log against its promises."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from oncelog.cli import exits
from oncelog.errors import StorageError
from oncelog.storage.verify import Damage, Report, verify


def verify_command(
    directory: Annotated[Path, typer.Argument(help="The data directory of a stopped log.")],
    json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Check a stopped log: every frame, every entry, the index. Exit code 4 if damage was found."""
    console = Console(stderr=True)
    try:
        report = _verified(directory, console)
    except StorageError as error:
        console.print(f"cannot verify: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(exits.REFUSED) from error
    if json:
        typer.echo(msgspec.json.encode(report).decode())
    else:
        _show(report, Console())
    if not report.is_sound:
        raise typer.Exit(exits.DAMAGED)


def _verified(directory: Path, console: Console) -> Report:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    # Not on a terminal, and for what takes a moment, there is nothing to show.
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reading the journal", total=None)
        return verify(directory, lambda done, total: progress.update(task, completed=done, total=total))


def _show(report: Report, console: Console) -> None:
    for note in report.notes:
        console.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    for damage in report.damages:
        console.print(f"damage: {_described(damage)}", style="red", markup=False, highlight=False, soft_wrap=True)
    table = Table(title=report.directory, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name in ("entries", "groups", "topics", "streams", "records", "ids", "journal_bytes"):
        table.add_row(name.replace("_", " "), f"{getattr(report, name):,}")
    table.add_row("seconds", f"{report.seconds:.2f}")
    table.add_row("verdict", "sound" if report.is_sound else f"damaged ({len(report.damages)})")
    console.print(table)


def _described(damage: Damage) -> str:
    where = f" in {damage.file}" if damage.file else ""
    where += f" at byte {damage.position}" if damage.position >= 0 else ""
    return damage.what + where + (f" ({damage.hint})" if damage.hint else "")
