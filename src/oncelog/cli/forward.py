"""`oncelog forward`: carry facts from one zone's log into another's, until it is stopped."""

import asyncio
import contextlib
import signal
from typing import Annotated

import typer

from oncelog.cli import exits
from oncelog.cli.screen import end, say
from oncelog.cli.verb import Group
from oncelog.client.connection import with_scheme
from oncelog.forward.daemon import RATE_DEFAULT, Forwarder, Route, ZonesAlike

app = typer.Typer(cls=Group, invoke_without_command=True, no_args_is_help=True, rich_markup_mode="markdown")


@app.callback()
def forward_command(
    context: typer.Context,
    source: Annotated[
        str, typer.Option("--from", metavar="URL", help="The zone that has the facts.", callback=with_scheme)
    ] = "",
    target: Annotated[
        str, typer.Option("--to", metavar="URL", help="The zone that gets them.", callback=with_scheme)
    ] = "",
    consumer: Annotated[
        str, typer.Option(metavar="NAME", help="The consumer at the source; else forward:<name of the target zone>.")
    ] = "",
    to_zone: Annotated[
        list[str] | None,
        typer.Option(metavar="ZONE", help="Carry facts for this zone as well: the target passes them on."),
    ] = None,
    rate: Annotated[
        int, typer.Option(metavar="N", min=1, max=1_000_000, help="Facts per second and stream, at most.")
    ] = RATE_DEFAULT,
) -> None:
    """Carry facts from one zone's log into another's (BSFG), each once and in their order.

    Runs until it is stopped. Its state is the consumer at the source: it may be killed and started anew anywhere, and
    either side may be cut off for days.
    """
    if context.invoked_subcommand is not None:
        return
    if not source or not target:
        raise typer.BadParameter("both --from URL and --to URL are needed")
    route = Route(source, target, consumer, tuple(to_zone or ()), rate)
    try:
        asyncio.run(_forwarded(route))
    except* ZonesAlike as alike:
        end(exits.USAGE, str(alike.exceptions[0]))


async def _forwarded(route: Route) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(Forwarder(route, say).run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
