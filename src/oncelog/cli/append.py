"""`oncelog append STREAM`: one record from the command line, or one per line of a file or of stdin."""

import contextlib
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Self

import msgspec
import typer
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from oncelog.cli import exits
from oncelog.cli.importing import Import, Stored, encoded, progress_of
from oncelog.cli.lines import batches_of, lines_of
from oncelog.cli.listing import PartitionOption
from oncelog.cli.remote import URL, Remote, UrlOption, reached, stream_path
from oncelog.cli.screen import end, print_json, progress, say
from oncelog.client.batches import BatchResult
from oncelog.client.errors import Conflict, NotFound, ProducerStopped
from oncelog.client.packing import RECORD_BYTES_MAX
from oncelog.client.sync import Client
from oncelog.client.wire import BATCHES
from oncelog.core.content_type import json_flaw

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
OCTETS: Final = "application/octet-stream"
"""Lines travel in raw batches, which go to a stream of any type."""


class Summary(msgspec.Struct):
    """What an append did."""

    topic: str
    partition: int
    records: int = 0
    """New ones."""
    duplicates: int = 0
    """Stored before, by another run or another attempt."""
    skipped: int = 0
    """Lines that a continued import did not send again."""
    first: int = -1
    """The lowest offset of a new record; -1 if there is none."""
    next: int = -1
    """Behind the highest one."""

    def add(self, first: int, next_: int, count: int, *, duplicate: bool) -> None:
        if duplicate:
            self.duplicates += count
        else:
            self.records += count
        # A duplicate has the offset it got first: also an answer to "where is it?".
        if first >= 0:
            self.first = first if self.first < 0 else min(self.first, first)
            self.next = max(self.next, next_)


def append_command(
    topic: Annotated[str, typer.Argument(metavar="STREAM", help="The stream's topic.")],
    value: Annotated[
        str | None, typer.Argument(metavar="VALUE", help="One record. Without it, every line of stdin is one.")
    ] = None,
    url: UrlOption = URL,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Every line of this file is a record; - is stdin."),
    ] = None,
    json_lines: Annotated[
        bool, typer.Option("--json-lines", help="Every record must be JSON; blank lines are left out.")
    ] = False,
    key: Annotated[str | None, typer.Option("--key", help="The key of the record, or of all of them.")] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The message id of VALUE: the same id is stored once.")
    ] = None,
    producer: Annotated[
        str | None, typer.Option("--producer", metavar="NAME", help="Name this import, so that it can be resumed.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="With --producer: go on behind the lines that are stored.")
    ] = False,
    create: Annotated[bool, typer.Option("--create", help="Make the stream if there is none.")] = False,
    partition: PartitionOption = 0,
    json: Annotated[bool, typer.Option("--json", help="Print what was done as one JSON object.")] = False,
) -> None:
    """Append records, each once.

    Every one is on disk when this ends with 0. A request without an answer is sent again under the same claim, so that
    it takes effect once. An import that may be cut off gets a name: run it as `--producer NAME --file FILE`, and after
    a crash again with `--resume`.
    """
    _check_usage(value, file, message_id, producer, resume=resume)
    summary = Summary(topic, partition)
    with reached(url) as log:
        if create:
            _create(log, topic, JSON if json_lines else TEXT)
        try:
            if value is not None:
                _append_value(log, summary, value, key, message_id, is_json=json_lines)
            else:
                with _Source(file, is_json=json_lines) as source:
                    if producer is not None:
                        _append_import(log, summary, source, producer, key, resume=resume)
                    else:
                        _append_lines(url, summary, source, key)
        except NotFound:
            missing = f"partition {partition} of {topic!r}" if partition else f"stream {topic!r}"
            end(exits.REFUSED, f"there is no {missing} (--create makes a new one)")
        except LineInvalid as invalid:
            end(exits.REFUSED, f"{invalid}; {_so_far(summary)}")
        except KeyboardInterrupt:
            resumable = ", --resume goes on behind them" if producer is not None else ""
            end(exits.REFUSED, f"interrupted; {_so_far(summary)}{resumable}")
    _show(summary, json=json, one=value is not None)


def _check_usage(
    value: str | None, file: Path | None, message_id: str | None, producer: str | None, *, resume: bool
) -> None:
    if value is not None and file is not None:
        raise typer.BadParameter("a VALUE and a file are two sources: give one", param_hint="--file")
    if message_id is not None and value is None:
        raise typer.BadParameter("a message id belongs to one record: give a VALUE", param_hint="--id")
    if producer is not None and value is not None:
        raise typer.BadParameter("it names an import of many lines; one VALUE takes --id", param_hint="--producer")
    for option, name in (("--id", message_id), ("--producer", producer)):
        if name is not None and not (name and name.isprintable() and name == name.strip()):
            message = f"{name!r} is empty, has control characters, or begins or ends with a blank"
            raise typer.BadParameter(message, param_hint=option)
    if resume and producer is None:
        raise typer.BadParameter("which import? give its --producer NAME", param_hint="--resume")


def _create(log: Remote, topic: str, content_type: str) -> None:
    """A stream that is there in another form is good enough."""
    with contextlib.suppress(Conflict):
        log.request("PUT", stream_path(topic), None, {"Content-Type": content_type}, b"")


# --- one value -------------------------------------------------------------------------------------------------


def _append_value(
    log: Remote, summary: Summary, text: str, key: str | None, message_id: str | None, *, is_json: bool
) -> None:
    value = text.encode()
    if is_json and (problem := json_flaw(value)):
        end(exits.REFUSED, f"the value is not JSON: {problem}")
    # Without an id it gets one of its own: an attempt that is repeated takes effect once.
    headers = {"Content-Type": BATCHES, "Stream-Message-Id": message_id or f"cli-{uuid.uuid4().hex}"}
    body = encoded([value], key.encode() if key is not None else None)
    answer = log.request("POST", stream_path(summary.topic), {"partition": summary.partition}, headers, body)
    next_ = answer.number("stream-next-offset")
    summary.add(next_ - 1, next_, 1, duplicate=answer.flag("stream-duplicate"))


# --- lines -----------------------------------------------------------------------------------------------------


class LineInvalid(Exception):
    """A line that cannot be a record: says which, and why."""


class _Source:
    """Lines of a file or of stdin, counted for the progress bar as they are read."""

    def __init__(self, path: Path | None, *, is_json: bool) -> None:
        self.is_json = is_json
        self.total_bytes: int | None = None
        self.bytes = 0
        self.lines = 0
        self._path = path
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        if self._path is None or str(self._path) == "-":
            self._file = sys.stdin.buffer
            if sys.stdin.isatty():
                say("every line is a record; Ctrl-D ends", "dim")
            return self
        try:
            self._file = self._path.open("rb")
            self.total_bytes = os.fstat(self._file.fileno()).st_size or None
        except OSError as error:
            end(exits.USAGE, f"cannot read {self._path}: {error.strerror or error}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None and self._file is not sys.stdin.buffer:
            self._file.close()

    def __iter__(self) -> Iterator[bytes]:
        assert self._file is not None
        for line in lines_of(self._file):
            self.bytes += len(line) + 1
            self.lines += 1
            if len(line) > RECORD_BYTES_MAX:
                raise LineInvalid(
                    f"line {self.lines:,} has {len(line):,} bytes, a record has at most {RECORD_BYTES_MAX:,}"
                )
            if self.is_json and line.strip() and (problem := json_flaw(line)):
                raise LineInvalid(f"line {self.lines:,} is not JSON: {problem}")
            yield line


def _append_lines(url: str, summary: Summary, source: _Source, key: str | None) -> None:
    """Lines that come when they come: several batches are under way at a time, and none waits to be full."""
    with _bar(source) as advance, Client(url) as client:

        def stored(batch: BatchResult) -> None:
            summary.add(batch.first_offset, batch.next_offset, batch.count, duplicate=batch.duplicate)
            advance(summary.records + summary.duplicates)

        name = f"cli-{uuid.uuid4().hex}"
        producer = client.producer(summary.topic, OCTETS, producer_id=name, raw_batches=True, on_batch_ack=stored)
        try:
            with producer:
                for line in source:
                    if line.strip() or not source.is_json:
                        producer.append(line, key=key, partition=summary.partition)
        except ProducerStopped as stopped:
            raise (stopped.cause or stopped) from None


def _append_import(log: Remote, summary: Summary, source: _Source, name: str, key: str | None, *, resume: bool) -> None:
    known = progress_of(log, summary.topic, summary.partition, name)
    if known.last_line >= 0 and not resume:
        end(
            exits.REFUSED,
            f"import {name!r} has stored {known.last_line + 1:,} lines of {summary.topic}: --resume goes on behind "
            "them, another import takes another --producer",
        )
    writer = Import(log, summary.topic, summary.partition, name, known, key.encode() if key is not None else None)
    with _bar(source, skipped=known.last_line + 1) as advance:

        def stored(batch: Stored) -> None:
            summary.add(batch.first, batch.next, batch.records, duplicate=batch.duplicate)
            advance(batch.last_line + 1)

        writer.store(batches_of(source, after=known.last_line, skip_blank=source.is_json), stored)
    summary.skipped = min(source.lines, known.last_line + 1)
    if source.lines < known.last_line + 1:
        say(f"note: {known.last_line + 1:,} lines were stored before, this input has only {source.lines:,}", "yellow")


@contextlib.contextmanager
def _bar(source: _Source, skipped: int = 0) -> Iterator[Callable[[int], None]]:
    """A bar over the bytes of a file, or a count of lines where nobody knows how many will come."""
    columns = [TextColumn("{task.description}"), TimeElapsedColumn()]
    if source.total_bytes is not None:
        columns[1:1] = [BarColumn(), TaskProgressColumn()]
    with progress(*columns) as bar:
        task = bar.add_task("storing", total=source.total_bytes)

        def advance(lines: int) -> None:
            said = f"{lines:,} lines on disk" + (f", {skipped:,} of them before" if skipped else "")
            bar.update(task, completed=source.bytes, description=said)

        yield advance


def _so_far(summary: Summary) -> str:
    count = summary.records + summary.duplicates
    return f"{_lines(count)} {'is' if count == 1 else 'are'} stored" if count else "nothing was stored"


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count:,} lines"


def _show(summary: Summary, *, json: bool, one: bool) -> None:
    if json:
        print_json(summary)
        return
    if one:
        typer.echo(summary.first if summary.first >= 0 else "–")
        if summary.duplicates:
            say("it was stored before, at this offset", "dim")
        return
    said = f"{_lines(summary.records)} stored"
    if summary.first >= 0 and summary.records:
        # Others may write at the same time: their records then lie in between.
        dense = summary.next - summary.first == summary.records + summary.duplicates
        first, last = f"{summary.first:,}", f"{summary.next - 1:,}"
        said += f" at offsets {first} to {last}" if dense else f" between offsets {first} and {last}"
    if summary.duplicates:
        said += f", {summary.duplicates:,} stored before"
    if summary.skipped:
        said += f", {summary.skipped:,} skipped"
    typer.echo(said)
