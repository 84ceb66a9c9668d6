"""`oncelog producers STREAM`: who writes to a stream, and how far each has come."""

from collections.abc import Iterator, Mapping
from typing import Any

from oncelog.cli.listing import (
    AfterOption,
    JsonOption,
    Kind,
    LimitOption,
    Listing,
    PartitionOption,
    PrefixOption,
    Query,
    StreamArgument,
    chosen_limit,
    none_of,
    show,
)
from oncelog.cli.remote import LISTED, URL, UrlOption, end_if_missing, reached
from oncelog.cli.screen import Column, age, number
from oncelog.client.errors import NotFound
from oncelog.client.models import ProducerInfo

KIND = Kind("/v1/producers", "producers", ProducerInfo)
COLUMNS = (
    Column("producer", "name"),
    Column("scope", "scope"),
    number("epoch", "epoch"),
    number("sequence", "last_sequence"),
    number("first", "first"),
    number("next", "next"),
    age("used", "used_ms"),
)


SCOPES = ("commit:", "http:", "kafka:", "x:")
"""The server lists by scope and name, in this order."""


class _WithPrefix(Listing):
    """Producers whose own names begin so, whatever their scope."""

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        prefix, left, last = self._query["prefix"], self._limit, self.next
        for scope in SCOPES:
            is_enough = self._limit > 0 and left == 0
            query = {**self._query, "prefix": f"{scope}{prefix}"}
            part = Listing(self._log, self.kind, query, after=last, limit=1 if is_enough else left)
            for row in part:
                if is_enough:
                    self.next = last
                    return
                yield row
                last = f"{scope}{row['name']}"
                left -= self._limit > 0
            if part.next is not None:
                self.next = part.next
                return
        self.next = None


def producers_command(
    topic: StreamArgument,
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
        query: Query = {"topic": topic, "partition": partition}
        rows_max = chosen_limit(limit, json=json)
        chosen = _WithPrefix if prefix else Listing
        listing = chosen(log, KIND, {**query, "prefix": prefix or None}, after=after, limit=rows_max)
        try:
            show(listing, COLUMNS, json=json, empty=none_of(f"{topic} has no producers", prefix, after))
        except NotFound:
            end_if_missing(log, topic, partition, LISTED)
            raise
