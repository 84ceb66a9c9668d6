"""`oncelog streams`: which streams there are, and where each stands."""

from typing import Annotated

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
from oncelog.cli.screen import ROWS_SHOWN, Column, age, number
from oncelog.client.models import StreamInfo

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


def streams_command(
    url: UrlOption = URL,
    prefix: PrefixOption = "",
    limit: TopicLimitOption = None,
    after: AfterOption = None,
    json: JsonOption = False,
) -> None:
    """List the streams.

    floor is the first offset kept, tail the next to be given, and readers see what is below stable.
    """
    with reached(url) as log:
        query = {"prefix": prefix or None}
        listing = Listing(log, KIND, query, after=after, limit=chosen_limit(limit, json=json))
        show(listing, COLUMNS, json=json, empty=none_of("there are no streams", prefix, after))
