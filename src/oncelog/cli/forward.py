"""`oncelog forward`: carry facts from one zone's log into another's; how that stands; the gate."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from oncelog.cli import exits
from oncelog.cli.screen import Column, end, number, print_json, print_table, results, say, table_of
from oncelog.cli.verb import Group, Verb
from oncelog.client.connection import with_scheme
from oncelog.client.errors import ConnectionLost
from oncelog.forward.configuration import RoutesInvalid, routes_of, token_of
from oncelog.forward.daemon import RATE_DEFAULT, Forwarder, Route, ZonesAlike
from oncelog.forward.link import CallRefused, Link
from oncelog.forward.metrics import serve_metrics

app = typer.Typer(cls=Group, invoke_without_command=True, no_args_is_help=True, rich_markup_mode="markdown")

Result = TypeVar("Result")

FromOption = Annotated[
    str, typer.Option("--from", metavar="URL", help="The zone that has the facts.", callback=with_scheme)
]
TokenOption = Annotated[
    Path | None, typer.Option("--from-token", metavar="FILE", help="The token that the source knows us by.")
]


@app.callback()
def forward_command(
    context: typer.Context,
    source: FromOption = "",
    target: Annotated[
        str, typer.Option("--to", metavar="URL", help="The zone that gets them.", callback=with_scheme)
    ] = "",
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Several routes, as [[route]] tables in TOML.")
    ] = None,
    consumer: Annotated[
        str, typer.Option(metavar="NAME", help="The consumer at the source; else `forward:` and the target's zone.")
    ] = "",
    to_zone: Annotated[
        list[str] | None,
        typer.Option(metavar="ZONE", help="Carry facts for this zone as well: the target passes them on."),
    ] = None,
    rate: Annotated[
        int, typer.Option(metavar="N", min=1, max=1_000_000, help="Facts per second and stream, at most.")
    ] = RATE_DEFAULT,
    from_token: TokenOption = None,
    to_token: Annotated[
        Path | None, typer.Option("--to-token", metavar="FILE", help="The token that the target knows us by.")
    ] = None,
    metrics: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Serve Prometheus metrics there, at /metrics.")
    ] = "",
) -> None:
    """Carry facts from one zone's log into another's (BSFG), each once and in their order.

    Runs until it is stopped. Its state is the consumer at the source: it may be killed and started anew anywhere, and
    either side may be cut off for days.
    """
    if context.invoked_subcommand is not None:
        return
    try:
        if config is not None:
            routes = routes_of(config)
        elif source and target:
            tokens = (token_of(from_token), token_of(to_token))
            routes = [Route(source, target, consumer, tuple(to_zone or ()), rate, *tokens)]
        else:
            raise typer.BadParameter("both --from URL and --to URL are needed, or --config FILE")
    except RoutesInvalid as invalid:
        end(exits.USAGE, str(invalid))
    try:
        asyncio.run(_forwarded(routes, metrics))
    except* ZonesAlike as alike:
        end(exits.USAGE, str(_first(alike)))
    except* OSError as failed:
        end(exits.REFUSED, f"cannot serve metrics at {metrics}: {_first(failed)}")


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _forwarded(routes: list[Route], metrics: str) -> None:
    loop = asyncio.get_running_loop()
    forwarders = [Forwarder(route, say) for route in routes]
    server = serve_metrics(metrics, forwarders) if metrics else None

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            for forwarder in forwarders:
                tasks.create_task(forwarder.run())

    task = asyncio.ensure_future(run())
    for number_ in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number_, task.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    finally:
        if server is not None:
            server.shutdown()


# --- how it stands -------------------------------------------------------------------------------------------------

COLUMNS = (
    Column("consumer", "consumer_name"),
    Column("stream", "stream"),
    number("frontier", "frontier"),
    number("unconfirmed", "unconfirmed"),
    number("gaps", "gap_count"),
    Column("lag", "lag_ms", lambda lag_ms: f"{lag_ms / 1000:,.1f} s" if lag_ms else ""),
    Column("gate", "gate"),
)


@app.command("status", cls=Verb)
def status_command(
    source: FromOption,
    target: Annotated[
        str, typer.Option("--to", metavar="URL", help="Tell the target's side as well.", callback=with_scheme)
    ] = "",
    from_token: TokenOption = None,
    to_token: Annotated[Path | None, typer.Option("--to-token", metavar="FILE")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the consumers of a zone: frontier, what is not confirmed, gaps, lag and gate."""
    told = {"source": _asked(source, from_token, lambda link: link.get("/bsfg/status"))}
    if target:
        told["target"] = _asked(target, to_token, lambda link: link.get("/bsfg/status"))
    if json:
        print_json(told)
        return
    for side, status in told.items():
        last = ", ".join(f"{row['stream']} {row['last_sequence']:,}" for row in status["streams"])
        results().print(f"{side}: zone {status['zone']}; last sequences: {last or 'no fact yet'}", markup=False)
    if told["source"]["consumers"]:
        print_table(table_of(COLUMNS, told["source"]["consumers"]))
    else:
        results().print("no consumer has asked for facts yet")


gate_app = typer.Typer(cls=Group, no_args_is_help=True, help="Open or close the gate of a consumer at the source.")
app.add_typer(gate_app, name="gate")

ConsumerOption = Annotated[str, typer.Option("--consumer", metavar="NAME", help="The consumer at the source.")]


@gate_app.command("open", cls=Verb)
def open_command(source: FromOption, consumer: ConsumerOption, from_token: TokenOption = None) -> None:
    """Let the consumer get facts again, from where it stands."""
    _set_gate(source, consumer, "open", from_token)


@gate_app.command("close", cls=Verb)
def close_command(source: FromOption, consumer: ConsumerOption, from_token: TokenOption = None) -> None:
    """Give the consumer no facts until the gate is opened. Its backlog waits, and nothing is dropped."""
    _set_gate(source, consumer, "closed", from_token)


def _set_gate(source: str, consumer: str, gate: str, token: Path | None) -> None:
    message = {"consumer_name": consumer, "gate": gate}
    done = _asked(source, token, lambda link: link.post("/bsfg/gate", message))
    results().print(f"the gate of {consumer} is {gate} in {', '.join(done['streams'])}", markup=False)


def _asked(url: str, token: Path | None, ask: Any) -> Any:
    """The answer of a zone; ends the verb if there is none."""

    async def once() -> Any:
        link = Link(url, token=token_of(token))
        try:
            return await ask(link)
        finally:
            await link.close()

    return _ended_well(url, once())


def _ended_well(url: str, asked: Coroutine[Any, Any, Result]) -> Result:
    try:
        return asyncio.run(asked)
    except CallRefused as refused:
        end(exits.REFUSED, str(refused))
    except ConnectionLost as lost:
        end(exits.UNREACHABLE, f"cannot reach {url}: {lost}")
    except RoutesInvalid as invalid:
        end(exits.USAGE, str(invalid))
