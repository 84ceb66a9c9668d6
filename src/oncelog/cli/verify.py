"""`oncelog verify DIR|URL`: check a stopped or a running log against its promises."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from oncelog.cli import exits, live_check
from oncelog.cli.remote import reached
from oncelog.cli.screen import end, print_json, print_table, printable, progress, results
from oncelog.client.connection import with_scheme
from oncelog.errors import StorageError

COUNTED_ON_DISK: Final = ("entries", "groups", "topics", "streams", "records", "ids", "journal_bytes")
COUNTED_LIVE: Final = (
    "entry", "topics", "streams", "records", "holes", "batches", "bytes", "producers", "cursors",
)  # fmt: skip


def verify_command(
    place: Annotated[
        str,
        typer.Argument(
            metavar="DIR|URL", help="The data directory of a stopped log, or http://host:port of a live one."
        ),
    ],
    against: Annotated[
        str,
        typer.Option(metavar="URL", help="Compare two zones (BSFG): what is confirmed here must be there, once."),
    ] = "",
    consumer: Annotated[
        str,
        typer.Option(metavar="NAME", help="With --against: the consumer here; else that of oncelog forward."),
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Check a log against its promises; exit code 4 if damage was found.

    A stopped log, by its directory: every frame, every entry, the index. A running one, by its address: every batch of
    every stream as a reader gets it, offsets, producers, cursors; it goes on meanwhile.
    """
    if not place:
        raise typer.BadParameter("it is empty, and names no log", param_hint="DIR|URL")
    if against:
        # Imported here: numpy takes a tenth of a second that no other check should pay.
        from oncelog.cli.zone_check import verify_zones

        verify_zones(with_scheme(place), with_scheme(against), consumer, json=json)
        return
    if place.startswith(("http://", "https://")):
        _verify_live(place, json=json)
    elif (url := with_scheme(place)) != place and not Path(place).exists():
        _verify_live(url, json=json)
    else:
        _verify_directory(Path(place), json=json)


def _verify_directory(directory: Path, *, json: bool) -> None:
    # Imported here: storage takes a quarter of a second that no other verb should pay.
    from oncelog.storage.index.child import index_directory, journal_directory
    from oncelog.storage.index.lmdb_index import DATA_NAME
    from oncelog.storage.verify import Damage, verify

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    try:
        with progress(*columns) as bar:
            task = bar.add_task("reading the journal", total=None)
            report = verify(directory, lambda done, total: bar.update(task, completed=done, total=total))
    except StorageError as error:
        end(exits.REFUSED, f"cannot verify: {error}")

    def path_of(file: str) -> str:
        """As it can be opened from here. Storage knows a file of the journal by its name alone."""
        if not file or "/" in file:
            return file
        return str((index_directory(directory) if file == DATA_NAME else journal_directory(directory)) / file)

    for damage in report.damages:
        damage.file = path_of(damage.file)

    def described(damage: Damage) -> str:
        where = f" in {damage.file}" if damage.file else ""
        where += f" at byte {damage.position}" if damage.position >= 0 else ""
        return damage.what + where + (f" ({damage.hint})" if damage.hint else "")

    if json:
        _print(report, is_sound=report.is_sound)
    else:
        counted = {name: getattr(report, name) for name in COUNTED_ON_DISK}
        _show(report.directory, report.notes, [described(damage) for damage in report.damages], counted, report.seconds)
    if not report.is_sound:
        raise typer.Exit(exits.DAMAGED)


def _verify_live(url: str, *, json: bool) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with reached(url) as log, progress(*columns) as bar:
        task = bar.add_task("reading every stream", total=None)
        report = live_check.check(log, url, lambda done, total: bar.update(task, completed=done, total=total))

    def described(damage: live_check.Damage) -> str:
        where = f"{damage.topic}, partition {damage.partition}: " if damage.partition >= 0 else ""
        return where + damage.what

    if json:
        _print(report, is_sound=report.is_sound)
    else:
        counted = {name: getattr(report, name) for name in COUNTED_LIVE}
        title = f"{url}  oncelog {report.version}, durability {report.durability}"
        _show(title, report.notes, [described(damage) for damage in report.damages], counted, report.seconds)
    if not report.is_sound:
        raise typer.Exit(exits.DAMAGED)


def _print(report: msgspec.Struct, *, is_sound: bool) -> None:
    print_json(msgspec.structs.asdict(report) | {"verdict": "sound" if is_sound else "damaged"})


def _show(title: str, notes: list[str], damages: list[str], counted: Mapping[str, int | None], seconds: float) -> None:
    console = results()
    for note in notes:
        console.print(Text(f"note: {printable(note)}"), soft_wrap=True)
    for damage in damages:
        console.print(Text(f"damage: {printable(damage)}", style="red"), soft_wrap=True)
    console.print(Text(title, style="bold"), soft_wrap=True)
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, count in counted.items():
        table.add_row(name.replace("_", " "), "not counted" if count is None else f"{count:,}")
    table.add_row("seconds", f"{seconds:.2f}")
    style = "red" if damages else "green"
    table.add_row("verdict", Text(f"damaged ({len(damages)})" if damages else "sound", style=style))
    print_table(table)
