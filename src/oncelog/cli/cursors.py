"""`oncelog cursors`: how far consumers have come."""

from collections.abc import Sequence

from oncelog.cli.listing import (
    AfterOption,
    JsonOption,
    Kind,
    LimitOption,
    Listing,
    PrefixOption,
    chosen_limit,
    none_of,
    show,
)
from oncelog.cli.remote import URL, UrlOption, reached
from oncelog.cli.screen import Column, age, number
from oncelog.client.models import CursorInfo


def _ranges(confirmed: Sequence[tuple[int, int]]) -> str:
    said = [f"{first:,}–{next_ - 1:,}" if next_ > first + 1 else f"{first:,}" for first, next_ in confirmed[:3]]
    return ", ".join(said) + (f" and {len(confirmed) - 3} more" if len(confirmed) > 3 else "")


KIND = Kind("/v1/cursors", "cursors", CursorInfo)
COLUMNS = (
    Column("cursor", "name"),
    Column("topic", "topic"),
    number("part", "partition"),
    number("frontier", "frontier"),
    Column("beyond it", "confirmed", _ranges),
    Column("", "pinned", lambda pinned: "pinned" if pinned else ""),
    age("used", "used_ms"),
)


def cursors_command(
    url: UrlOption = URL,
    prefix: PrefixOption = "",
    limit: LimitOption = None,
    after: AfterOption = None,
    json: JsonOption = False,
) -> None:
    """List the consumers' cursors.

    Everything below the frontier is processed. A pinned cursor holds back trimming.
    """
    with reached(url) as log:
        query = {"prefix": prefix or None}
        listing = Listing(log, KIND, query, after=after, limit=chosen_limit(limit, json=json))
        show(listing, COLUMNS, json=json, empty=none_of("there are no cursors", prefix, after))
