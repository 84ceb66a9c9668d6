"""`oncelog consumers`: how far each consumer has come, and how much is left; reset and delete."""

from typing import Annotated, Any

import msgspec
import typer

from oncelog.cli import exits
from oncelog.cli.listing import (
    AfterOption,
    JsonOption,
    Kind,
    LimitOption,
    Listing,
    PartitionOption,
    PrefixOption,
    chosen_limit,
    none_of,
    show,
)
from oncelog.cli.live_check import shaped
from oncelog.cli.remote import URL, UrlOption, reached
from oncelog.cli.screen import Column, age, end, number, print_json, print_table, say, table_of
from oncelog.cli.verb import Verb, VerbGroup
from oncelog.client.models import CursorInfo
from oncelog.client.wire import name_path, topic_path

app = typer.Typer(
    cls=VerbGroup,
    help="List consumers with their lag, and move or delete them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

ConsumerArgument = Annotated[
    str, typer.Argument(metavar="CONSUMER", help="With its face, as in kafka:GROUP, nats:DURABLE or bsfg:NAME.")
]

KIND = Kind("/v1/cursors", "cursors", CursorInfo)


def _seconds(lag_ms: int | None) -> str:
    return f"{lag_ms / 1000:,.1f} s" if lag_ms else ""


COLUMNS = (
    Column("consumer", "name"),
    Column("topic", "topic"),
    number("part", "partition"),
    number("offset", "frontier"),
    number("left", "lag"),
    Column("behind", "lag_ms", _seconds),
    age("used", "used_ms"),
)


@app.command("list", cls=Verb)
def list_command(
    url: UrlOption = URL,
    prefix: PrefixOption = "",
    limit: LimitOption = None,
    after: AfterOption = None,
    json: JsonOption = False,
) -> None:
    """List the consumers and what is left for each.

    left counts records that are committed and not processed; transaction markers and removed records do not count.
    behind is the age of the oldest of them.
    """
    with reached(url) as log:
        query = {"prefix": prefix or None}
        listing = Listing(log, KIND, query, after=after, limit=chosen_limit(limit, json=json))
        show(listing, COLUMNS, json=json, empty=none_of("there are no consumers", prefix, after))


@app.command("describe", cls=Verb)
def describe_command(name: ConsumerArgument, url: UrlOption = URL, json: JsonOption = False) -> None:
    """Show one consumer in every partition that it reads. Exit code 1 if it is unknown."""
    with reached(url) as log:
        rows = _places(log, name)
    if not rows:
        end(exits.REFUSED, f"there is no consumer {name!r}; `oncelog consumers list` shows those that there are")
    if json:
        for row in rows:
            print_json(row)
    else:
        print_table(table_of(COLUMNS, [msgspec.structs.asdict(shaped(row, CursorInfo)) for row in rows]))


@app.command("reset", cls=Verb)
def reset_command(
    name: ConsumerArgument,
    topic: Annotated[str, typer.Argument(metavar="STREAM", help="The topic that it reads.")],
    to: Annotated[str, typer.Option("--to", metavar="PLACE", help="earliest, latest, or an offset.")],
    url: UrlOption = URL,
    partition: PartitionOption = 0,
) -> None:
    """Put a consumer somewhere else. Stop its members first: they would put it back."""
    with reached(url) as log:
        if to in ("earliest", "latest"):
            streams = log.get("/v1/cut", {"topic": topic})["streams"]
            found = [each for each in streams if each["partition"] == partition]
            if not found:
                end(exits.REFUSED, f"{topic} has no partition {partition}")
            offset = found[0]["floor" if to == "earliest" else "stable"]
        elif to.isdecimal():
            offset = int(to)
        else:
            raise typer.BadParameter(f"{to!r} is not earliest, latest or an offset", param_hint="--to")
        body = msgspec.json.encode({"frontier": offset})
        log.request("PUT", f"/v1/cursors/{name_path(name)}/{topic_path(topic)}", {"partition": partition}, body=body)
    say(f"{name}: at offset {offset:,} of {topic}, partition {partition}")


@app.command("delete", cls=Verb)
def delete_command(name: ConsumerArgument, url: UrlOption = URL) -> None:
    """Forget a consumer in every partition. Exit code 1 if it is unknown."""
    with reached(url) as log:
        rows = _places(log, name)
        for row in rows:
            path = f"/v1/cursors/{name_path(name)}/{topic_path(row['topic'])}"
            log.request("DELETE", path, {"partition": row["partition"]})
    if not rows:
        end(exits.REFUSED, f"there is no consumer {name!r}; `oncelog consumers list` shows those that there are")
    say(f"{name}: forgotten in {len(rows)} partitions")


def _places(log: Any, name: str) -> list[Any]:
    listing = Listing(log, KIND, {"prefix": name}, after=None, limit=0)
    return [row for row in listing if row["name"] == name]
