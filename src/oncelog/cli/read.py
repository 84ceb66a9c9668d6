"""`oncelog read STREAM`: records to stdout."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from oncelog.cli import exits
from oncelog.cli.listing import PartitionOption, StreamArgument
from oncelog.cli.output import discard
from oncelog.cli.patience import PatientCaller
from oncelog.cli.record_json import line_for_terminal, record_json
from oncelog.cli.remote import LISTED, TIMEOUTS, URL, UrlOption, end_if_missing, failure, probe, reached
from oncelog.cli.screen import end, json_line, progress
from oncelog.client.calls import Caller
from oncelog.client.errors import ClientError, Damaged, NotFound, OffsetGone, StreamReplaced
from oncelog.client.models import Cut
from oncelog.client.packing import Record
from oncelog.client.reader import NOW, START, AsyncReader, OnGone

PLACES: Final = {"start": START, "end": NOW, "-1": START, "now": NOW}
"""The last two are the protocol's own words for the same."""

_COLUMNS: Final = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


def read_command(
    topic: StreamArgument,
    url: UrlOption = URL,
    begin: Annotated[str, typer.Option("--from", metavar="OFFSET|start|end", help="Where to begin.")] = "start",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written from now on.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="N", min=1, help="Stop after so many records.")
    ] = None,
    partition: PartitionOption = 0,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object per record: offset, time, key, headers, value or base64.")
    ] = False,
) -> None:
    """Print the records of a stream, one per line.

    Values go out byte for byte, except to a terminal, where control characters are escaped, in JSON too. Without
    --follow it ends where the stream ends, and Ctrl-C before that is exit code 1. An error that ends it
    early names the offset to go on from.
    """
    place, printed = _place_of(begin), Printed()
    write = _writer(json=json)
    with _interrupt_told(printed, follow=follow), _quiet_when_unheard(), _early_end_told(url, printed):
        try:
            # In the main thread, whose event loop turns Ctrl-C into an orderly end.
            asyncio.run(_read(url, topic, partition, place, write, printed, follow=follow, left=count or sys.maxsize))
        except OffsetGone as gone:
            asked = begin if printed.next < 0 else printed.next
            end(exits.REFUSED, f"offset {asked} is no longer kept: {topic} begins at {gone.floor} (--from start)")
        except NotFound:
            with reached(url) as log:
                end_if_missing(log, topic, partition, LISTED)
            raise


class Printed:
    """How far the output goes, for the message when it ends early."""

    def __init__(self) -> None:
        self.next = -1
        """Behind what was printed; -1 while nothing was."""

    def goes_on(self) -> str:
        """What to say next, to miss nothing and to have nothing twice."""
        return f"; --from {self.next} goes on behind what is printed" if self.next >= 0 else ""


async def _read(
    url: str,
    topic: str,
    partition: int,
    place: int,
    write: Callable[[Record], None],
    printed: Printed,
    *,
    follow: bool,
    left: int,
) -> None:
    await probe(url)
    caller = PatientCaller(url, TIMEOUTS)
    try:
        on_gone: OnGone = "raise"
        # The records themselves show the progress.
        bar = progress(*_COLUMNS, hidden=follow or sys.stdout.isatty())
        stable = 0
        if place == START or not bar.disable:
            floor, stable = await _bounds(caller, topic, partition)
            if place == START:
                # A batch may begin before the floor: asked for by its number, what is trimmed stays out.
                place, on_gone = floor, "skip"
        reader = AsyncReader(caller, topic, offset=place, partition=partition, live=follow, on_gone=on_gone)
        with bar:
            task = bar.add_task("reading", total=max(0, min(stable - place, left)))
            async with reader:
                while left > 0 and (records := await reader.read()):
                    for record in records[:left]:
                        write(record)
                    sys.stdout.flush()
                    left -= len(records)
                    printed.next = reader.offset
                    bar.update(task, completed=reader.offset - place)
    finally:
        await caller.close()


async def _bounds(caller: Caller, topic: str, partition: int) -> tuple[int, int]:
    """Where the partition begins and ends; START and 0 if it does not exist; the read reports that."""
    cut = await caller.json(Cut, "GET", "/v1/cut", {"topic": topic})
    found = ((stream.floor, stream.stable) for stream in cut.streams if stream.partition == partition)
    return next(found, (START, 0))


def _place_of(begin: str) -> int:
    if begin in PLACES:
        return PLACES[begin]
    if begin.isascii() and begin.isdigit():
        return int(begin)
    raise typer.BadParameter(f"{begin!r} is neither an offset nor start nor end", param_hint="--from")


@contextlib.contextmanager
def _early_end_told(url: str, printed: Printed) -> Iterator[None]:
    """What went wrong with the server, and from where another run prints what this one did not."""
    try:
        yield
    except StreamReplaced as replaced:
        # An offset of the stream that is gone is a place in no other one.
        end(*failure(url, replaced))
    except ClientError as error:
        code, said = failure(url, error)
        behind = error.number("next") if isinstance(error, Damaged) else -1
        end(code, said + (f"; --from {behind} reads on behind it" if behind >= 0 else printed.goes_on()))


@contextlib.contextmanager
def _interrupt_told(printed: Printed, *, follow: bool) -> Iterator[None]:
    """Ctrl-C is the normal end of --follow. Otherwise it is a failure: the output ends before the stream does."""
    try:
        yield
    except KeyboardInterrupt:
        if not follow:
            end(exits.REFUSED, f"interrupted; the output may lack records{printed.goes_on()}")


@contextlib.contextmanager
def _quiet_when_unheard() -> Iterator[None]:
    """`| head` ends it by going away, which is no failure."""
    try:
        yield
    except BrokenPipeError:
        discard()


def _writer(*, json: bool) -> Callable[[Record], None]:
    stdout = sys.stdout.buffer
    if json:

        def write_json(record: Record) -> None:
            said = record_json(record.offset, record.timestamp_ms, record.key, record.value, record.headers)
            stdout.write(json_line(said) + b"\n")

        return write_json
    if sys.stdout.isatty():
        return lambda record: typer.echo(line_for_terminal(record.value))

    def write_bytes(record: Record) -> None:
        stdout.write((record.value or b"") + b"\n")

    return write_bytes
