"""What the listing verbs have in common: pages are fetched until there are enough rows; a table, or JSON."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer

from oncelog.cli.live_check import Log, page_of, shaped
from oncelog.cli.screen import ROWS_SHOWN, Column, print_json, print_table, say, table_of

PAGE_ROWS_MAX: Final = 1_000

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit", metavar="N", min=0, help=f"At most so many; 0 for all. By default {ROWS_SHOWN}, with --json all."
    ),
]
AfterOption = Annotated[
    str | None, typer.Option("--after", metavar="NAME", help="Go on where a listing said it ended.")
]
PrefixOption = Annotated[str, typer.Option("--prefix", metavar="NAME", help="Only names that begin so.")]
StreamArgument = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's topic.")]
PartitionOption = Annotated[int, typer.Option("--partition", metavar="N", min=0, help="Of a topic that has several.")]

Query = Mapping[str, str | int | None]


class Kind(NamedTuple):
    """What is listed."""

    path: str
    member: str
    """Of a page: its rows."""
    row: type[msgspec.Struct]


class Listing:
    """Rows of a paged path, in the server's order. Once iterated, `next` says where to go on, None if that was all."""

    def __init__(self, log: Log, kind: Kind, query: Query, *, after: str | None, limit: int) -> None:
        self._log = log
        self.kind = kind
        self._query = query
        self._limit = limit
        self.next = after

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        left = self._limit
        while True:
            asked = min(left, PAGE_ROWS_MAX) if self._limit else PAGE_ROWS_MAX
            query = {**self._query, "after": self.next, "limit": asked}
            rows, after = page_of(self._log, self.kind.path, self.kind.member, query)
            for row in rows:
                shaped(row, self.kind.row)
                yield row
            self.next = after
            left -= len(rows)
            if self.next is None or (self._limit and left <= 0):
                return


def show(listing: Listing, columns: Sequence[Column], *, json: bool, empty: str) -> None:
    """JSON row by row; a table when all rows are there."""
    if json:
        for row in listing:
            print_json(row)
    else:
        rows = [msgspec.structs.asdict(shaped(row, listing.kind.row)) for row in listing]
        if rows:
            print_table(table_of(columns, rows))
        else:
            say(empty, "dim")
    if listing.next is not None:
        say(f"there is more: --after {listing.next!r}, or --limit 0 for all", "dim")


def none_of(what: str, prefix: str, after: str | None) -> str:
    """What an empty listing says: "there are no streams", and which were asked for."""
    return what + (f" that begin with {prefix!r}" if prefix else "") + (f" behind {after!r}" if after else "")


def chosen_limit(limit: int | None, *, json: bool) -> int:
    """0 is no limit."""
    if limit is None:
        return 0 if json else ROWS_SHOWN
    return limit
