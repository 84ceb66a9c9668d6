"""What the verbs share on the screen: the two consoles, the line that ends a verb, listings that are also JSON.

Results go to stdout, everything else (progress, notes, errors) to stderr, so that a pipe carries results alone. Text
from a log is never read as markup, and its control characters never reach the terminal.
"""

import datetime
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, NoReturn

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.progress import Progress, ProgressColumn
from rich.table import Table
from rich.text import Text

PIPE_COLUMNS: Final = 200
"""How wide a table may be that nobody looks at: a pipe has no width, and cutting names at 80 would lose them."""

ROWS_SHOWN: Final = 100
"""Rows of a listing on a terminal unless more are asked for."""


class _Notes(Console):
    """If the reader of the notes is gone, the verb goes on. Rich would end it, and close stdout first."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


def results() -> Console:
    return _sized(Console(highlight=False))


def notes() -> Console:
    return _sized(_Notes(stderr=True, highlight=False))


def _sized(console: Console) -> Console:
    if not console.is_terminal:
        console.width = PIPE_COLUMNS
    return console


def say(text: str, style: str = "") -> None:
    """A note beside the results."""
    notes().print(Text(text, style=style), soft_wrap=True)


def end(code: int, text: str) -> NoReturn:
    """Say in one line what is wrong, and leave with that exit code."""
    say(f"oncelog: {text}", "red")
    raise typer.Exit(code)


def progress(*columns: str | ProgressColumn, hidden: bool = False) -> Progress:
    """A progress bar on stderr that is gone afterwards, and that nobody sees where stderr is no terminal."""
    console = notes()
    return Progress(*columns, console=console, transient=True, disable=hidden or not console.is_terminal)


def print_json(value: object) -> None:
    """One value, one line."""
    typer.echo(json_line(value))


def json_line(value: object) -> bytes:
    """A value for stdout, without the end of the line. What a terminal would obey is escaped for one: JSON has an
    escape for every character, so it says the same."""
    encoded = msgspec.json.encode(value)
    return _escaped(encoded.decode()).encode() if sys.stdout.isatty() else encoded


def _escaped(text: str) -> str:
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


def counted(count: int, one: str, many: str = "") -> str:
    """A number and what it counts: 1 file, 2 files."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


# --- listings --------------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """One column of a listing: where it comes from and how it is spelled."""

    title: str
    field: str
    spell: Callable[[Any], str] = str
    justify: Literal["left", "right"] = "left"


def number(title: str, field: str) -> Column:
    return Column(title, field, lambda value: f"{value:,}" if value >= 0 else "–", "right")


def age(title: str, field: str) -> Column:
    return Column(title, field, ago, "right")


def ago(time_ms: int) -> str:
    """How long ago, as people say it: a listing is to be glanced at. `--json` has the time itself."""
    if time_ms <= 0:
        return "–"
    seconds = max(0, time.time_ns() // 1_000_000 - time_ms) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:,} {unit} ago"
    return f"{seconds} s ago"


def when(time_ms: int) -> str:
    """A time as everybody reads it, in UTC; a dash for none."""
    if time_ms <= 0:
        return "–"
    try:
        moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def table_of(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> Table:
    """Columns in which no row says anything are left out."""
    lines = [[printable(column.spell(row[column.field])) for column in columns] for row in rows]
    shown = [number for number in range(len(columns)) if any(line[number] for line in lines)]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in (columns[number] for number in shown):
        # A name may be as long as it likes: it goes on in the next line. A number is never broken.
        table.add_column(column.title, justify=column.justify, overflow="fold", no_wrap=column.justify == "right")
    for line in lines:
        table.add_row(*(Text(line[number]) for number in shown))
    return table


def print_table(table: Table) -> None:
    """A table on stdout. The blanks that fill its last column are for eyes: a pipe gets lines without them."""
    console = results()
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in captured.get().removesuffix("\n").split("\n")))


def printable(text: str) -> str:
    """Control characters as escapes: a record must not control the terminal that shows it."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
