"""`oncelog append STREAM`: one record from the command line, or one per line of a file or of stdin."""

import asyncio
import contextlib
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from oncelog.cli import exits
from oncelog.cli.importing import Digest, Import, OtherInput, Stored, checked, encoded, last_batch, progress_of
from oncelog.cli.input_lines import InputLost, LineInvalid, SoFar, Source, is_stdin
from oncelog.cli.lines import BATCH_LINES_MAX, BATCH_VALUE_BYTES_MAX, Batch, batches_of
from oncelog.cli.listing import PartitionOption, StreamArgument
from oncelog.cli.patience import Patience
from oncelog.cli.remote import TIMEOUTS, URL, Remote, UrlOption, end_if_missing, failure, reached, stream_path
from oncelog.cli.screen import counted, end, print_json, progress, say
from oncelog.client.batches import BatchResult
from oncelog.client.calls import Caller, placed
from oncelog.client.connection import parse_address
from oncelog.client.errors import (
    ClientError,
    Conflict,
    NotFound,
    ProducerStopped,
    leaves_open,
)
from oncelog.client.stream import AsyncStream
from oncelog.client.sync import IdempotentProducer, LoopThread, Stream
from oncelog.client.wire import BATCHES
from oncelog.core.content_type import is_json, json_flaw
from oncelog.limits import KIB

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
OCTETS: Final = "application/octet-stream"
"""Lines travel in raw batches, which go to a stream of any type."""

DELIVERY_S: Final = 120
"""How long a batch of lines that have no name is tried."""


PRODUCER_HELP: Final = (
    "Name this import, so that it can be resumed. A name belongs to one input. What comes through a pipe is stored "
    f"{BATCH_LINES_MAX:,} lines or {BATCH_VALUE_BYTES_MAX // KIB} KiB at a time, the rest at its end."
)
PIPE_NOTE: Final = (
    f"nothing is stored before {BATCH_LINES_MAX:,} lines, {BATCH_VALUE_BYTES_MAX // KIB} KiB or the end of the input: "
    "an import that has a name stores full batches"
)
RESUME_HELP: Final = (
    "With --producer: go on behind the lines that are stored; all that are passed over must be those. A last line "
    "without a line end is stored too: if it was still being written, this import can never go on."
)
CREATE_HELP: Final = "Make the stream if it does not exist: of text/plain, with --json-lines of application/json."


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
    """The lowest offset of a new record; -1 without one."""
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
    topic: StreamArgument,
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
        str | None,
        typer.Option(
            "--producer",
            metavar="NAME",
            help=PRODUCER_HELP,
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help=RESUME_HELP)] = False,
    create: Annotated[bool, typer.Option("--create", help=CREATE_HELP)] = False,
    partition: PartitionOption = 0,
    json: Annotated[bool, typer.Option("--json", help="Print what was done as one JSON object.")] = False,
) -> None:
    """Append records, each once.

    Every one is on disk when this ends with 0. A request without an answer is sent again under the same claim, so that
    it takes effect once. An import that may be cut off gets a name: run it as `--producer NAME --file FILE`, and after
    a crash again with `--resume`.
    """
    _check_usage(value, file, message_id, producer, resume=resume)
    summary, so_far = Summary(topic, partition), SoFar()
    create_hint = "" if create else "--create makes a new one"
    with reached(url) as log:
        if create:
            _create(log, topic, partition, JSON if json_lines else TEXT)
        if value is not None:
            try:
                _append_value(log, summary, value, key, message_id, is_json=json_lines)
            except NotFound:
                end_if_missing(log, topic, partition, create_hint)
                raise
            except KeyboardInterrupt:
                end(exits.REFUSED, "interrupted; the record may be stored")
        else:
            with _early_end_told(url, so_far, is_named=producer is not None):
                settings = end_if_missing(log, topic, partition, create_hint)
                with Source(file, skips_blank=json_lines) as source:
                    # Better told here, by the line, than by the server, which knows batches.
                    source.is_json = source.is_json or is_json(settings.content_type)
                    if producer is not None:
                        _append_import(log, summary, source, so_far, producer, key, resume=resume)
                    else:
                        _append_lines(url, summary, source, so_far, key)
    _show(summary, json=json, one=value is not None)


@contextlib.contextmanager
def _early_end_told(url: str, so_far: SoFar, *, is_named: bool) -> Iterator[None]:
    """Reports an error that ends an import, together with what is already stored."""
    try:
        yield
    except LineInvalid as invalid:
        end(exits.REFUSED, f"{invalid}; {so_far.told(invalid.line, is_sure=not so_far.waits)}")
    except InputLost as lost:
        end(exits.REFUSED, f"{lost}; {so_far.told(is_sure=not so_far.waits)}")
    except OtherInput as other:
        end(exits.REFUSED, f"{other}; nothing was stored by this run (another input takes another --producer)")
    except ClientError as error:
        code, said = failure(url, error)
        end(code, f"{said}; {so_far.told(is_sure=not leaves_open(error))}")
    except KeyboardInterrupt:
        end(exits.REFUSED, f"interrupted; {so_far.interrupted(is_named=is_named)}")


def _check_usage(
    value: str | None, file: Path | None, message_id: str | None, producer: str | None, *, resume: bool
) -> None:
    if value is not None and file is not None:
        raise typer.BadParameter("a VALUE and a file are two sources: give one", param_hint="--file")
    if value is None and is_stdin(file) and sys.stdin is None:
        raise typer.BadParameter("stdin is closed: give a VALUE or a --file", param_hint="VALUE")
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


def _create(log: Remote, topic: str, partition: int, content_type: str) -> None:
    """A stream that is there in another form is good enough."""
    if partition:
        # A new one would have partition 0 alone: nothing is made that the record then does not fit.
        hint = f"--create makes one that has partition 0 alone, PUT /v1/topics/{topic} one that has more"
        end_if_missing(log, topic, partition, hint)
        return
    with contextlib.suppress(Conflict):
        placed(log.request("PUT", stream_path(topic), None, {"Content-Type": content_type}, b""))


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
    answer = log.append(summary.topic, summary.partition, headers, body)
    next_ = answer.number("stream-next-offset")
    summary.add(next_ - 1, next_, 1, duplicate=answer.flag("stream-duplicate"))


# --- lines -----------------------------------------------------------------------------------------------------


def _append_lines(url: str, summary: Summary, source: Source, so_far: SoFar, key: str | None) -> None:
    """Lines that come when they come: several batches are under way at a time, and none waits to be full."""
    patience = Patience(url, DELIVERY_S)
    with _bar(source) as advance:

        def stored(batch: BatchResult) -> None:
            patience.progress()
            summary.add(batch.first_offset, batch.next_offset, batch.count, duplicate=batch.duplicate)
            so_far.stored += batch.count
            so_far.record_stored(so_far.stored)
            advance(so_far.stored)

        records = 0
        try:
            with _producing(url, summary.topic, patience, stored) as producer:
                for line in source:
                    if source.skips_blank and not line.strip():
                        so_far.left_out(records)
                        continue
                    producer.append(line, key=key, partition=summary.partition)
                    records += 1
        except ProducerStopped as stopped:
            raise (stopped.cause or stopped) from None
        finally:
            # Neither confirmed nor refused: they may have been sent, and be stored.
            so_far.waits = records > so_far.stored
            so_far.record_stored(so_far.stored)


@contextlib.contextmanager
def _producing(
    url: str, topic: str, patience: Patience, stored: Callable[[BatchResult], object]
) -> Iterator[IdempotentProducer]:
    """A producer in a thread of its own, which also looks whether anything comes of what it sends."""
    thread = LoopThread()
    try:
        caller = Caller(parse_address(url), {}, TIMEOUTS, patience.put_off)
        producer = IdempotentProducer(
            Stream(thread, AsyncStream(caller, topic, OCTETS)),
            producer_id=f"cli-{uuid.uuid4().hex}",
            raw_batches=True,
            delivery_timeout_ms=DELIVERY_S * 1000,
            on_batch_ack=stored,
        )

        def look() -> None:
            if producer.pending_count:
                patience.wait()
            asyncio.get_running_loop().call_later(1, look)

        thread.call(look)
        try:
            with producer:
                yield producer
        finally:
            # After a Ctrl-C, records that are not confirmed by now fail; the verb reports them.
            thread.run(producer.end())
            with contextlib.suppress(ClientError):
                producer.tell()
    finally:
        thread.stop()


def _append_import(
    log: Remote, summary: Summary, source: Source, so_far: SoFar, name: str, key: str | None, *, resume: bool
) -> None:
    known = progress_of(log, summary.topic, summary.partition, name)
    if known.last_line >= 0 and not resume:
        end(
            exits.REFUSED,
            f"import {name!r} has stored {counted(known.last_line + 1, 'line')} of {summary.topic}: --resume goes on "
            "behind that, another import takes another --producer",
        )
    so_far.before = known.last_line + 1
    so_far.next_line = known.last_line + 2
    if source.is_pipe:
        say(PIPE_NOTE, "dim")
    digest = Digest()
    key_bytes = key.encode() if key is not None else None
    writer = Import(log, summary.topic, summary.partition, name, known, key_bytes, digest)
    with _bar(source, skipped=known.last_line + 1) as advance:

        def stored(batch: Stored) -> None:
            summary.add(batch.first, batch.next, batch.records, duplicate=batch.duplicate)
            so_far.stored += batch.records
            so_far.next_line = batch.last_line + 2
            so_far.waits = False
            advance(batch.last_line + 1)

        last = last_batch(log, summary.topic, summary.partition, known)
        lines = checked(source, known, last, digest, skip_blank=source.skips_blank)
        batches = batches_of(lines, after=known.last_line, skip_blank=source.skips_blank)
        writer.store(_about_to_be_sent(batches, so_far), stored)
    if source.lines < known.last_line + 1:
        before = counted(known.last_line + 1, "line")
        raise OtherInput(f"this import had stored {before}, this input has only {source.lines:,}")
    summary.skipped = known.last_line + 1
    # Of lines that end none changes any more.
    if source.is_open and so_far.next_line == source.lines + 1 and source.lines > summary.skipped:
        what = f"line {source.lines:,} has no line end, and is stored as it is"
        say(f"{what}: if more of it comes, --resume refuses the input", "yellow")


def _about_to_be_sent(batches: Iterable[Batch], so_far: SoFar) -> Iterator[Batch]:
    for batch in batches:
        so_far.waits = True
        yield batch


@contextlib.contextmanager
def _bar(source: Source, skipped: int = 0) -> Iterator[Callable[[int], None]]:
    """A bar over the bytes of a file, or a count of lines if their number is not known."""
    columns = [TextColumn("{task.description}"), TimeElapsedColumn()]
    if source.total_bytes is not None:
        columns[1:1] = [BarColumn(), TaskProgressColumn()]
    # It would lie under what is being typed.
    with progress(*columns, hidden=source.is_typed) as bar:
        task = bar.add_task("storing", total=source.total_bytes)

        def advance(lines: int) -> None:
            said = f"{counted(lines, 'line')} on disk" + (f", {skipped:,} of them before" if skipped else "")
            bar.update(task, completed=source.bytes, description=said)

        yield advance


def _show(summary: Summary, *, json: bool, one: bool) -> None:
    if json:
        print_json(summary)
        return
    if one:
        typer.echo(summary.first if summary.first >= 0 else "–")
        if summary.duplicates:
            say("it was stored before, at this offset", "dim")
        return
    said = f"{counted(summary.records, 'line')} stored"
    if summary.first >= 0 and summary.records:
        # Others may write at the same time: their records then lie in between.
        dense = summary.next - summary.first == summary.records + summary.duplicates
        first, last = f"{summary.first:,}", f"{summary.next - 1:,}"
        if first == last:
            said += f" at offset {first}"
        else:
            said += f" at offsets {first} to {last}" if dense else f" between offsets {first} and {last}"
    if summary.duplicates:
        said += f", {summary.duplicates:,} stored before"
    if summary.skipped:
        said += f", {summary.skipped:,} skipped"
    typer.echo(said)
