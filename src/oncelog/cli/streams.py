"""`oncelog streams`: which streams there are, and where each stands; `oncelog streams set`: how long records stay."""

import re
from typing import Annotated

import msgspec
import typer

from oncelog.cli.listing import (
    AfterOption,
    JsonOption,
    Kind,
    Listing,
    PrefixOption,
    chosen_limit,
    none_of,
    show,
)
from oncelog.cli.remote import URL, UrlOption, reached
from oncelog.cli.screen import ROWS_SHOWN, Column, age, number, say
from oncelog.cli.verb import Verb, VerbGroup
from oncelog.client.models import StreamInfo
from oncelog.client.wire import topic_path

app = typer.Typer(cls=VerbGroup, invoke_without_command=True, rich_markup_mode="markdown")

TopicLimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=0,
        help="At most so many topics, each with all of its partitions; 0 for all. "
        f"By default {ROWS_SHOWN}, with --json all.",
    ),
]
"""Pages are cut between topics: a row of a page could not be gone on from in the middle of one."""

KIND = Kind("/v1/streams", "streams", StreamInfo)
COLUMNS = (
    Column("topic", "topic"),
    number("part", "partition"),
    number("floor", "floor"),
    number("stable", "stable"),
    number("tail", "tail"),
    Column("", "closed", lambda closed: "closed" if closed else ""),
    Column("type", "content_type", lambda kind: kind.partition(";")[0]),
    age("written", "time_ms"),
)


@app.callback()
def streams_command(
    context: typer.Context,
    url: UrlOption = URL,
    prefix: PrefixOption = "",
    limit: TopicLimitOption = None,
    after: AfterOption = None,
    json: JsonOption = False,
) -> None:
    """List the streams.

    floor is the first offset kept, tail the next to be given, and readers see what is below stable.
    """
    if context.invoked_subcommand is not None:
        return
    with reached(url) as log:
        query = {"prefix": prefix or None}
        listing = Listing(log, KIND, query, after=after, limit=chosen_limit(limit, json=json))
        show(listing, COLUMNS, json=json, empty=none_of("there are no streams", prefix, after))


_AMOUNT = re.compile(r"([0-9]{1,15})\s*([a-zA-Z]*)")
_MS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_BYTES = {"": 1, "b": 1, "kb": 1_000, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def _amount(units: dict[str, int], example: str, text: str) -> int:
    """A number with a unit; 0 for no limit."""
    if text == "none":
        return 0
    match = _AMOUNT.fullmatch(text)
    if match is None or (unit := units.get(match[2].lower())) is None:
        raise typer.BadParameter(f"{text!r} is not an amount like {example}, or none")
    return int(match[1]) * unit


def _age(text: str) -> int:
    return _amount(_MS, "7d or 36h", text)


def _size(text: str) -> int:
    return _amount(_BYTES, "10GB or 512MiB", text)


def _count(text: str) -> int:
    return _amount({"": 1}, "100000", text)


@app.command("set", cls=Verb)
def set_command(
    topic: Annotated[str, typer.Argument(help="The topic; all of its partitions.")],
    max_age: Annotated[
        int | None, typer.Option(parser=_age, metavar="AGE", help="Records stay for so long: 7d, 36h, 90m, none.")
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            parser=_size, metavar="SIZE", help="So many stored bytes of a partition stay: 10GB, 512MiB, none."
        ),
    ] = None,
    max_records: Annotated[
        int | None,
        typer.Option(parser=_count, metavar="N", help="So many records of a partition stay: 100000, none."),
    ] = None,
    url: UrlOption = URL,
) -> None:
    """Set how long records of a topic stay.

    The oldest go first, within about a second; never what an open transaction or a pinned consumer still needs.
    """
    chosen = {"retention_ms": max_age, "retention_bytes": max_bytes, "retention_records": max_records}
    changes = {name: value for name, value in chosen.items() if value is not None}
    if not changes:
        raise typer.BadParameter("nothing to set: give --max-age, --max-bytes or --max-records")
    with reached(url) as log:
        log.request("PATCH", f"/v1/topics/{topic_path(topic)}", body=msgspec.json.encode(changes))
    say(f"{topic}: set")
