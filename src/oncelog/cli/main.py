"""`oncelog`: collects the verbs."""

from typing import Annotated

import typer

from oncelog import __version__
from oncelog.cli.append import append_command
from oncelog.cli.config import app as config_app
from oncelog.cli.consumers import app as consumers_app
from oncelog.cli.cursors import cursors_command
from oncelog.cli.demo import demo_command
from oncelog.cli.doctor import doctor_command
from oncelog.cli.explain import explain_command
from oncelog.cli.forward import app as forward_app
from oncelog.cli.output import output_told
from oncelog.cli.pipeline import app as pipeline_app
from oncelog.cli.producers import producers_command
from oncelog.cli.read import read_command
from oncelog.cli.receipts import receipts_command
from oncelog.cli.serve import serve_command
from oncelog.cli.streams import app as streams_app
from oncelog.cli.txns import app as txns_app
from oncelog.cli.verb import Group, Verb
from oncelog.cli.verify import verify_command

app = typer.Typer(
    cls=Group,
    help="A log that every write reaches exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("serve", cls=Verb)(serve_command)
app.command("append", cls=Verb)(append_command)
app.command("read", cls=Verb)(read_command)
app.add_typer(streams_app, name="streams")
app.command("producers", cls=Verb)(producers_command)
app.command("receipts", cls=Verb)(receipts_command)
app.command("cursors", cls=Verb)(cursors_command)
app.add_typer(txns_app, name="txns")
app.add_typer(consumers_app, name="consumers")
app.command("verify", cls=Verb)(verify_command)
app.command("doctor", cls=Verb)(doctor_command)
app.command("explain", cls=Verb)(explain_command)
app.add_typer(config_app, name="config")
app.add_typer(pipeline_app, name="pipeline")
app.add_typer(forward_app, name="forward")
app.command("demo", cls=Verb)(demo_command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the program itself. A callback also keeps a single verb from becoming the whole program."""


def main() -> None:
    with output_told():
        app()
