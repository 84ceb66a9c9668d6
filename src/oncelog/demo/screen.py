"""The run as people see it: on a terminal a picture that moves, elsewhere a line for each thing that happens.

Everything fits 80 columns, and the picture 24 lines. Events are printed above it and stay: the story of the run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from oncelog.demo.board import Board, Phase, Step, clock

COLUMNS: Final = 80
FRAMES_PER_S: Final = 4
"""Each costs a few milliseconds of the two cores that the demo is about."""

BAR_CELLS: Final = 24

_SIGNS: Final = {
    Step.WAITING: ("·", "dim"),
    Step.RUNNING: ("▸", "bold cyan"),
    Step.DONE: ("✓", "green"),
    Step.FAILED: ("✗", "bold red"),
}


@contextmanager
def shown(board: Board, console: Console) -> Iterator[None]:
    """Shows the board until the end of the block."""
    if not console.is_terminal:
        board.on_event = board.on_note = lambda time, text: console.print(Text(f"{time:>5}  {text}"), soft_wrap=True)
        yield
        return
    console.width = min(console.width, COLUMNS)

    def event(time: str, text: str) -> None:
        console.print(Text.assemble((f"{time:>5}  ", "dim"), (text, _style(text))))

    board.on_event = event
    live = Live(
        get_renderable=lambda: picture(board), console=console, refresh_per_second=FRAMES_PER_S, transient=True
    )  # fmt: skip
    with live:
        yield


def _style(text: str) -> str:
    return "yellow" if text.startswith("kill -9") else ""


def picture(board: Board) -> RenderableType:
    """One frame."""
    return Group(
        Text(""),
        _phases(board),
        Text(""),
        _faces(board),
        Text(
            f"network: {board.dropped:,} answers dropped, {board.cut:,} connections cut, {board.delayed:,} delays",
            style="dim",
        ),
        *((Text(""), _flows(board)) if board.flows else ()),
    )


def _phases(board: Board) -> Table:
    table = Table.grid(padding=(0, 1))
    details = {id(phase): phase.detail for phase in board.phases}
    if board.writing.step is Step.RUNNING:
        done = board.orders_confirmed / max(1, board.orders)
        filled = int(done * BAR_CELLS)
        bar = "━" * filled + "─" * (BAR_CELLS - filled)
        details[id(board.writing)] = f"{bar} {board.orders_confirmed:,} of {board.orders:,} orders"
    for phase in board.phases:
        sign, style = _SIGNS[phase.step]
        table.add_row(
            Text(sign, style), Text(phase.title, style if phase.step is Step.RUNNING else ""), _detail(phase, details)
        )
    table.add_row(Text(" "), Text(clock(board.elapsed_s), "dim"), Text(_kills(board), "dim"))
    return table


def _detail(phase: Phase, details: dict[int, str]) -> Text:
    return Text(details[id(phase)], "dim" if phase.step is Step.WAITING else "")


def _kills(board: Board) -> str:
    spark = f", Spark driver {board.driver_kills}" if board.flows else ""
    return f"kill -9 so far: server {board.server_kills}, producers {board.producer_kills}{spark}"


def bare_table() -> Table:
    """As few lines as a table needs."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")


def _faces(board: Board) -> Table:
    table = bare_table()
    table.add_column("face", width=26, no_wrap=True)
    for title in ("orders", "records", "retried", "duplicates", "killed"):
        table.add_column(title, justify="right", min_width=8)
    for tally in board.tallies.values():
        table.add_row(
            tally.label,
            f"{tally.orders_confirmed:,}",
            f"{tally.confirmed:,}",
            f"{tally.retried:,}" if tally.retries_told else "itself",
            f"{tally.duplicates:,}",
            f"{tally.killed}",
        )
    return table


def _flows(board: Board) -> Table:
    table = bare_table()
    table.add_column("Spark pipeline", width=44, no_wrap=True)
    for title in ("batches", "rows"):
        table.add_column(title, justify="right", min_width=8)
    for flow in board.flows.values():
        table.add_row(flow.label, f"{flow.batches:,}", f"{flow.rows:,}")
    return table
