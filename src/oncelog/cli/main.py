"""`oncelog`: collects the verbs."""

from typing import Annotated

import typer

from oncelog import __version__
from oncelog.cli.verify import verify_command

app = typer.Typer(
    help="A log that every write reaches exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("verify")(verify_command)


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
    app()
