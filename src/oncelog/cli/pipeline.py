"""`oncelog pipeline ingest | transform | land | audit`: the pipelines of `oncelog.pipelines` from the command line."""

import errno
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from json import loads as json_of
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.cli import exits
from oncelog.cli.pipeline_run import INTERRUPTED, running
from oncelog.cli.remote import URL, UrlOption
from oncelog.cli.screen import Column, counted, end, number, print_json, print_table, results, say, table_of
from oncelog.cli.user_function import loaded
from oncelog.cli.verb import Group, Verb
from oncelog.pipelines.source_path import is_missing

if TYPE_CHECKING:
    from oncelog.pipelines.audit_result import AuditResult, TopicAudit
    from oncelog.pipelines.ingesting import Ingested
    from oncelog.pipelines.running import PipelineResult

app = typer.Typer(
    cls=Group,
    help="Bring data in, change it, land it in a lake table, prove it. Runs on Spark.",
    no_args_is_help=True,
)

MasterOption = Annotated[
    str, typer.Option("--master", envvar="ONCELOG_SPARK_MASTER", metavar="MASTER", help="Where Spark runs.")
]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
]
ArchivesOption = Annotated[
    str | None,
    typer.Option("--archives", metavar="FILE[#NAME]", help="Unpacked beside every worker, as Spark's option is."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print what was done as one JSON object.")]
CheckpointOption = Annotated[
    str | None, typer.Option("--checkpoint", metavar="DIR", help="Where Spark keeps its place.")
]
TriggerOption = Annotated[
    str,
    typer.Option(
        "--trigger",
        metavar="WHEN",
        help="available_now: to the end and stop. Or a time, such as '10 seconds': for ever.",
    ),
]
BadOption = Annotated[
    str,
    typer.Option(
        "--bad", metavar="HOW", help="Lines that do not fit: fail, keep, dead-letter:TOPIC, dead-letter:FOLDER."
    ),
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option("--storage-option", metavar="NAME=VALUE", help="Of a table in an object store, as delta-rs names it."),
]
LimitOption = Annotated[
    int | None,
    typer.Option("--max-offsets", min=1, metavar="N", help="Offsets of one batch; without it, all there are."),
]
PartitionsOption = Annotated[
    int, typer.Option("--partitions", min=0, metavar="N", help="Make a missing topic with so many; 0 refuses.")
]


# --- ingest ----------------------------------------------------------------------------------------------------


@app.command("ingest", cls=Verb)
def ingest_command(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where the rows go.")],
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A file, a folder, a pattern.")],
    url: UrlOption = URL,
    format: Annotated[str, typer.Option("--format", help="As Spark names it.")] = "text",  # noqa: A002
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="An option of the format; may be repeated."),
    ] = None,
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="DDL", help="Of the rows, where it is not in them.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="EXPR", help="Column or SQL expression.")] = None,
    value: Annotated[
        str | None, typer.Option("--value", metavar="EXPR", help="The same; else the line, or JSON.")
    ] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", metavar="EXPR", help="The same: a row is stored once for each id.")
    ] = None,
    producer: Annotated[
        str, typer.Option("--producer", metavar="NAME", help="By which files are remembered.")
    ] = "ingest",
    version: Annotated[
        int, typer.Option("--version", metavar="N", min=0, help="For a source that is no files: written once each.")
    ] = 0,
    checkpoint: CheckpointOption = None,
    partitions: PartitionsOption = 0,
    content_type: Annotated[str, typer.Option("--content-type", help="Of a new topic.")] = "application/octet-stream",
    bad: BadOption = "fail",
    trigger: TriggerOption = "available_now",
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    archives: ArchivesOption = None,
    json: JsonOption = False,
) -> None:
    """Bring files into a topic, each row once.

    Run it again after a crash, or when the files have grown: what is there is not added again. With --checkpoint the
    folder is followed.
    """
    options, settings = _pairs(option, "--option"), _settings(conf, archives)
    reads_here = _reads_this_machine(master, settings)
    if reads_here and is_missing(source, format):
        end(exits.USAGE, f"cannot read {source}: {os.strerror(errno.ENOENT)}")
    with running(url, master, settings) as run:
        done = run.pipelines.ingest(
            # With a session, and not a way to one, no path is looked for on this machine.
            run.spark if reads_here else run.spark(),
            url=url,
            topic=topic,
            source=source,
            format=format,
            options=options,
            schema=schema,
            key=key,
            value=value,
            message_id=message_id,
            producer=producer,
            version=version,
            checkpoint=checkpoint,
            partitions=partitions,
            content_type=content_type,
            bad=bad,
            trigger=trigger,
            progress=run.line.told("ingesting"),
        )
    _show_ingested(done, json=json, endless=trigger != "available_now")


def _show_ingested(done: "Ingested", *, json: bool, endless: bool) -> None:
    if json:
        print_json(done)
    else:
        files = f" from {counted(done.files, 'file')}" if done.files else ""
        before = f", {done.duplicates:,} were there before" if done.duplicates else ""
        typer.echo(f"{counted(done.records, 'record')}{files} stored in {done.duration_s:.1f} s{before}")
        if done.bad:
            kinds = ", ".join(f"{kind} {lines:,}" for kind, lines in sorted(done.bad.items()))
            where = "in the dead letter" if done.dead_letters else "kept with the header oncelog.bad"
            say(f"{counted(sum(done.bad.values()), 'line')} that do not fit are {where}: {kinds}", "yellow")
    if done.stopped and not endless:
        end(exits.REFUSED, INTERRUPTED)


# --- transform -------------------------------------------------------------------------------------------------


@app.command("transform", cls=Verb)
def transform_command(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The topic that is written.")],
    topic: Annotated[
        list[str], typer.Option("--topic", "-t", metavar="TOPIC", help="One that is read; may be repeated.")
    ],
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", metavar="DIR", help="Where Spark keeps its place and state.")
    ],
    application: Annotated[str, typer.Option("--application", metavar="NAME", help="By which the server knows it.")],
    url: UrlOption = URL,
    sql: Annotated[str | None, typer.Option("--sql", help="A query, or @FILE; every topic is a view.")] = None,
    function: Annotated[
        str | None, typer.Option("--function", metavar="MODULE:NAME", help="Or of a file, as path/to/file.py:name.")
    ] = None,
    schema: Annotated[
        list[str] | None,
        typer.Option("--schema", metavar="TOPIC=DDL", help="Of a topic's JSON values; may be repeated."),
    ] = None,
    event_time: Annotated[str | None, typer.Option("--event-time", metavar="COLUMN", help="When it happened.")] = None,
    watermark: Annotated[str | None, typer.Option("--watermark", metavar="TIME", help="How late it may come.")] = None,
    starting: Annotated[
        str, typer.Option("--starting", metavar="WHERE", help="group, earliest, latest, or offsets in JSON.")
    ] = "group",
    max_offsets: LimitOption = None,
    output_mode: Annotated[
        str, typer.Option("--output-mode", metavar="MODE", help="append, or complete: the whole result each time.")
    ] = "append",
    partitions: PartitionsOption = 0,
    trigger: TriggerOption = "available_now",
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    archives: ArchivesOption = None,
    json: JsonOption = False,
) -> None:
    """Turn topics into another one, by SQL or a Python function, every row once."""
    if sql is not None and sql.startswith("@"):
        sql = _text_of(Path(sql[1:]))
    called = loaded(function) if function is not None else None
    _check_starting(starting, "group", "earliest", "latest", "group:<application>", "cut:<entry>")
    with running(url, master, _settings(conf, archives)) as run:
        done = run.pipelines.transform(
            run.spark,
            url=url,
            topics=topic,
            target=target,
            application=application,
            checkpoint=checkpoint,
            sql=sql,
            function=called,
            schemas=_pairs(schema, "--schema"),
            event_time=event_time,
            watermark=watermark,
            starting=starting,
            max_offsets_per_trigger=max_offsets,
            output_mode=output_mode,
            trigger=trigger,
            partitions=partitions,
            progress=run.line.told("transforming"),
        )
    _show(done, json=json, endless=trigger != "available_now")


# --- land ------------------------------------------------------------------------------------------------------


@app.command("land", cls=Verb)
def land_command(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic that is landed.")],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A folder, or for Delta s3://… and the like.")],
    url: UrlOption = URL,
    format: Annotated[str, typer.Option("--format", help="delta or parquet.")] = "delta",  # noqa: A002
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="DDL", help="Of the JSON values; else the table's, else inferred.")
    ] = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option("--partition-by", metavar="COLUMN", help="Folders of the table; may be repeated."),
    ] = None,
    evolve: Annotated[
        str, typer.Option("--evolve", metavar="HOW", help="add: columns that the table lacks are added to it.")
    ] = "",
    storage_option: StorageOption = None,
    application: Annotated[str | None, typer.Option("--application", metavar="NAME", help="The query's name.")] = None,
    checkpoint: CheckpointOption = None,
    starting: Annotated[
        str, typer.Option("--starting", metavar="WHERE", help="earliest, latest, or JSON; for a new table.")
    ] = "earliest",
    max_offsets: LimitOption = None,
    trigger: TriggerOption = "available_now",
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    archives: ArchivesOption = None,
    json: JsonOption = False,
) -> None:
    """Land a topic in a Delta or Parquet table, every record once.

    It goes on where the table ends, whatever became of the checkpoint. No jars are needed.
    """
    if format not in ("delta", "parquet"):
        raise typer.BadParameter(f"{format!r} is neither delta nor parquet", param_hint="--format")
    _check_starting(starting, "earliest", "latest")
    with running(url, master, _settings(conf, archives)) as run:
        done = run.pipelines.land(
            run.spark,
            url=url,
            topic=topic,
            table=table,
            format=format,
            schema=schema,
            application=application,
            checkpoint=checkpoint,
            partition_by=partition_by or [],
            storage_options=_pairs(storage_option, "--storage-option"),
            evolve=evolve,
            starting=starting,
            max_offsets_per_trigger=max_offsets,
            trigger=trigger,
            progress=run.line.told("landing"),
        )
    _show(done, json=json, endless=trigger != "available_now")


# --- audit -----------------------------------------------------------------------------------------------------


@app.command("audit", cls=Verb)
def audit_command(
    topic: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics to audit.")],
    url: UrlOption = URL,
    table: Annotated[
        list[str] | None, typer.Option("--table", metavar="[TOPIC=]TABLE", help="A landed table; may be repeated.")
    ] = None,
    storage_option: StorageOption = None,
    ledger: Annotated[
        list[Path] | None, typer.Option("--ledger", metavar="FILE", help="What a producer says; may be repeated.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", metavar="FILE", help="Write a page of HTML.")] = None,
    identity: Annotated[
        str | None,
        typer.Option("--identity", metavar="EXPR", help="A record's id, by SQL; else the field id of its JSON."),
    ] = None,
    events: Annotated[
        Path | None, typer.Option("--events", metavar="FILE", help="Kills and the like, marked in the report.")
    ] = None,
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    archives: ArchivesOption = None,
    json: JsonOption = False,
) -> None:
    """Compare log, table and the producers' ledgers.

    Ends with 0 if nothing is lost, doubled, torn, out of order or conflicting, and with 4 otherwise.
    """
    for path in [*(ledger or []), *([events] if events is not None else [])]:
        _end_unless_file(path)
    with running(url, master, _settings(conf, archives)) as run:
        done = run.pipelines.audit(
            url=url,
            topics=topic,
            table=_tables(table),
            storage_options=_pairs(storage_option, "--storage-option"),
            ledgers=ledger or [],
            report=report,
            events=events,
            command=" ".join(["oncelog", *sys.argv[1:]]),
            spark=run.spark,
            progress=run.line.say,
            **({"identity": identity} if identity is not None else {}),
        )
    if json:
        print_json(done)
    else:
        show_audit(done)
    if not done.sound:
        raise typer.Exit(exits.DAMAGED)


def show_audit(done: "AuditResult") -> None:
    """The verdict, the topics, some of the faults. Also for a demo that ends with an audit."""
    import msgspec

    # What was not compared has no column: zeros there would look like a result. Titles are broken to fit 80 columns.
    by_ledger = any(topic.sent or topic.confirmed for topic in done.topics)
    by_table = any(topic.table_rows >= 0 for topic in done.topics)
    columns = [
        Column("topic", "topic"),
        number("records", "records"),
        *((number("sent", "sent"), number("con-\nfirmed", "confirmed")) if by_ledger else ()),
        *((number("in its\ntable", "table_rows"),) if by_table else ()),
        number("lost", "lost"),
        number("dou-\nbled", "doubled"),
        *((number("torn", "torn"), number("out of\norder", "out_of_order")) if by_ledger else ()),
        number("con-\nflict", "conflicting"),
        number("unex-\npected", "unexpected"),
    ]
    console = results()
    print_table(table_of(columns, [msgspec.structs.asdict(topic) | _both(topic) for topic in done.topics]))
    for example in done.examples:
        console.print(f"  {example}", style="red", markup=False)
    if not by_ledger:
        console.print("no ledger was given: the log was compared with its table alone", style="yellow")
    if done.not_judged:
        named = ", ".join(done.not_judged)
        console.print(f"not judged, as no ledger and no table is about it: {named}", style="yellow", markup=False)
    for topic in done.topics:
        if topic.table_unparsed:
            console.print(f"{topic.topic}: {_unparsed(topic.table_unparsed)}", style="yellow", markup=False)
    said = f"lost {done.lost:,}, doubled {done.doubled:,}, torn {done.torn:,}, out of order {done.out_of_order:,}, "
    said += f"conflicting {done.conflicting:,}, unexpected {done.unexpected:,} of {done.records:,} records"
    console.print(said, style="bold green" if done.sound else "bold red")
    if done.report:
        console.print(f"report: {done.report}", markup=False, soft_wrap=True)


def _both(topic: "TopicAudit") -> dict[str, int]:
    """Faults of log and table together, as one column each."""
    return {
        "lost": topic.lost + topic.table_lost,
        "doubled": topic.doubled + topic.table_doubled,
        "conflicting": topic.conflicting + topic.table_conflicting,
        "unexpected": topic.unexpected + topic.table_unexpected,
    }


# --- what the verbs share --------------------------------------------------------------------------------------


def _show(done: "PipelineResult", *, json: bool, endless: bool) -> None:
    if json:
        print_json(done)
    else:
        age = f", the oldest {done.lag_s:,.0f} s old" if done.lag_s >= 0 else ""
        left = f", {done.lag:,} offsets are left{age}" if done.lag > 0 else ""
        typer.echo(
            f"{counted(done.input_rows, 'row')} in, {done.output_rows:,} out, "
            f"{counted(done.batches, 'batch', 'batches')}, {done.duration_s:.1f} s{left}"
        )
        if done.late_rows:
            say(f"{counted(done.late_rows, 'row')} came behind the watermark and were dropped", "yellow")
        if done.unparsed:
            say(_unparsed(done.unparsed), "yellow")
    if done.stopped and not endless:
        end(exits.REFUSED, INTERRUPTED)


def _unparsed(rows: int) -> str:
    return f"{counted(rows, 'row')} with a value that is not JSON of the table's schema: the bytes are in _unparsed"


def _settings(conf: Sequence[str] | None, archives: str | None) -> dict[str, str]:
    settings = _pairs(conf, "--conf")
    return settings if archives is None else {**settings, "spark.archives": archives}


def _pairs(given: Sequence[str] | None, option: str) -> dict[str, str]:
    pairs = {}
    for text in given or ():
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
        pairs[name] = value
    return pairs


def _check_starting(text: str, *words: str) -> None:
    """What is surely no place is told at once. Whether it is one in these topics is the pipeline's to say."""
    prefixes = tuple(word.partition(":")[0] + ":" for word in words if ":" in word)
    if text in ("group", *words) or text.startswith(prefixes):
        return
    try:
        told = json_of(text)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise typer.BadParameter(f"{text!r} is none of {', '.join(words)}, or offsets in JSON", param_hint="--starting")


def _tables(given: Sequence[str] | None) -> str | dict[str, str] | None:
    if not given:
        return None
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    return _pairs(given, "--table")


def _reads_this_machine(master: str, settings: Mapping[str, str]) -> bool:
    """Whether a path without an address is one of this machine: a cluster, or settings kept elsewhere, may name another
    file system."""
    return master.startswith("local") and "spark.hadoop.fs.defaultFS" not in settings


def _end_unless_file(path: Path) -> None:
    """Looked at and not opened: what is read only once, such as a pipe, is left to who reads it."""
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except OSError as error:
        end(exits.USAGE, f"cannot read {path}: {error.strerror or error}")
    if is_folder:
        end(exits.USAGE, f"cannot read {path}: {os.strerror(errno.EISDIR)}")


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        end(exits.USAGE, f"cannot read {path}: {error.strerror or error}")
