"""`oncelog txns`: which transactions there are, which of them hold readers back, and an administrator's abort."""

import time
from collections.abc import Mapping, Sequence
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
    PrefixOption,
    chosen_limit,
    none_of,
    show,
)
from oncelog.cli.live_check import shaped
from oncelog.cli.remote import URL, UrlOption, reached
from oncelog.cli.screen import Column, end, number, print_json, print_table, say, table_of
from oncelog.cli.verb import Verb, VerbGroup
from oncelog.client.errors import NotFound
from oncelog.client.models import TxnInfo
from oncelog.client.wire import name_path

app = typer.Typer(
    cls=VerbGroup, help="List transactions, and end one that hangs.", no_args_is_help=True, rich_markup_mode="markdown"
)

TxnArgument = Annotated[str, typer.Argument(metavar="TXN", help="The transactional id.")]

KIND = Kind("/v1/txns", "txns", TxnInfo)


def _seconds_ago(time_ms: int | None) -> str:
    return "" if time_ms is None else f"{max(0.0, time.time() - time_ms / 1000):,.0f} s"


def _seconds_left(time_ms: int | None) -> str:
    return "" if time_ms is None else f"in {max(0.0, time_ms / 1000 - time.time()):,.0f} s"


def _places(holds: Sequence[Mapping[str, Any]]) -> str:
    said = [f"{each['topic']}/{each['partition']} from {each['offset']:,}" for each in holds[:3]]
    return ", ".join(said) + (f" and {len(holds) - 3} more" if len(holds) > 3 else "")


COLUMNS = (
    Column("transaction", "txn_id"),
    Column("state", "state"),
    number("producer", "producer_id"),
    number("epoch", "epoch"),
    Column("open for", "started_ms", _seconds_ago),
    Column("ends", "ends_ms", _seconds_left),
    Column("holds back", "holds", _places),
)


@app.command("list", cls=Verb)
def list_command(
    url: UrlOption = URL,
    prefix: PrefixOption = "",
    limit: LimitOption = None,
    after: AfterOption = None,
    json: JsonOption = False,
) -> None:
    """List the transactions.

    One that is open holds its streams back: readers of committed records see nothing behind its first record.
    """
    with reached(url) as log:
        listing = Listing(log, KIND, {"prefix": prefix or None}, after=after, limit=chosen_limit(limit, json=json))
        show(listing, COLUMNS, json=json, empty=none_of("there are no transactions", prefix, after))


@app.command("describe", cls=Verb)
def describe_command(
    txn_id: TxnArgument,
    url: UrlOption = URL,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show one transaction. Exit code 1 if it is unknown."""
    with reached(url) as log:
        try:
            found = log.get(f"/v1/txns/{name_path(txn_id)}", {})
        except NotFound:
            end(exits.REFUSED, f"there is no transaction {txn_id!r}; `oncelog txns list` shows those that there are")
    row = shaped(found, TxnInfo)
    if json:
        print_json(found)
        return
    print_table(table_of(COLUMNS, [msgspec.structs.asdict(row)]))
    for group in row.groups:
        say(f"commits offsets of group {group}", "dim")


@app.command("hanging", cls=Verb)
def hanging_command(
    url: UrlOption = URL,
    older_than_s: Annotated[
        float, typer.Option("--older-than", metavar="SECONDS", min=0, help="Only those that are open for so long.")
    ] = 0,
    json: JsonOption = False,
) -> None:
    """Show who holds back which stream, since when, and until when. Exit code 1 if there is any."""
    now_ms = time.time() * 1000
    with reached(url) as log:
        rows = [
            row
            for row in Listing(log, KIND, {}, after=None, limit=0)
            if row["holds"] and now_ms - row["started_ms"] >= older_than_s * 1000
        ]
    if json:
        for row in rows:
            print_json(row)
    elif rows:
        print_table(table_of(COLUMNS, [msgspec.structs.asdict(shaped(row, TxnInfo)) for row in rows]))
    else:
        say("no transaction holds a stream back", "dim")
    if rows:
        raise typer.Exit(exits.REFUSED)


@app.command("abort", cls=Verb)
def abort_command(txn_id: TxnArgument, url: UrlOption = URL) -> None:
    """Abort an open transaction. What it wrote is never read; its producer has to begin anew."""
    with reached(url) as log:
        try:
            row = shaped(log.get(f"/v1/txns/{name_path(txn_id)}", {}), TxnInfo)
        except NotFound:
            end(exits.REFUSED, f"there is no transaction {txn_id!r}; `oncelog txns list` shows those that there are")
        if row.state != "ongoing":
            end(exits.REFUSED, f"{txn_id} is not open: its state is {row.state}")
        holder = msgspec.json.encode({"producer_id": row.producer_id, "epoch": row.epoch})
        log.request("POST", f"/v1/txns/{name_path(txn_id)}/abort", body=holder)
    say(f"{txn_id}: aborted")
