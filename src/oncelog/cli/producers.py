"""`oncelog producers TOPIC`: who writes to a stream, and how far each has come."""

from typing import Annotated

import typer

from oncelog.cli.listing import (
    AfterOption,
    JsonOption,
    LimitOption,
    Listing,
    PartitionOption,
    PrefixOption,
    Query,
    chosen_limit,
    show,
)
from oncelog.cli.remote import URL, UrlOption, reached
from oncelog.cli.screen import Column, age, number

COLUMNS = (
    Column("producer", "name"),
    Column("scope", "scope"),
    number("epoch", "epoch"),
    number("sequence", "last_sequence"),
    number("first", "first"),
    number("next", "next"),
    age("used", "used_ms"),
)


def producers_command(
    topic: Annotated[str, typer.Argument(help="The stream's topic.")],
    url: UrlOption = URL,
    partition: PartitionOption = 0,
    prefix: PrefixOption = "",
    limit: LimitOption = None,
    after: AfterOption = None,
    json: JsonOption = False,
) -> None:
    """List the producers of a stream.

    sequence is the last one stored; first and next are the offsets of its batch. A dash: none, or no longer known.
    """
    with reached(url) as log:
        query: Query = {"topic": topic, "partition": partition, "prefix": prefix or None}
        listing = Listing(log, "/v1/producers", "producers", query, after=after, limit=chosen_limit(limit, json=json))
        show(listing, COLUMNS, json=json, empty=f"{topic} has no producers")
