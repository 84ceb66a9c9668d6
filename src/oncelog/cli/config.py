"""`oncelog config show`: the settings of a server, and where each of them comes from."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from oncelog.cli import exits
from oncelog.cli.screen import end, print_json, results
from oncelog.cli.serve import assignments
from oncelog.cli.verb import Group, Verb

app = typer.Typer(cls=Group, help="Show the settings of a server.", no_args_is_help=True)


@app.callback()
def _verbs() -> None:
    """A callback keeps the single verb from becoming the whole program."""


@app.command("show", cls=Verb)
def show_command(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A TOML file, see docs/config.md.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting, as for serve; repeatable.")
    ] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that do not have their default.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Show every setting with its value and its source.

    The command line wins over the environment (ONCELOG_HTTP_ADDRESS=127.0.0.1:8080 for http.address), the environment
    over the file, the file over the defaults. Give the same --config and --set as to serve.
    """
    from oncelog.servers.chosen_settings import choose
    from oncelog.servers.settings import SETTINGS, SettingsInvalid, spelled

    try:
        chosen = choose(config, assignments(settings or []), os.environ)
    except SettingsInvalid as error:
        end(exits.USAGE, str(error))
    rows: list[dict[str, Any]] = []
    for key in [*SETTINGS, *(key for key in chosen if key not in SETTINGS)]:
        given = chosen.get(key)
        value = SETTINGS[key].default if given is None else given.value
        rows.append({"key": key, "value": value, "source": "default" if given is None else given.source})
    if changed:
        rows = [row for row in rows if row["source"] != "default"]
    if json:
        print_json(rows)
        return
    width = max((len(row["key"]) for row in rows), default=0)
    for row in rows:
        value = "" if row["value"] is None else spelled(row["value"])
        results().print(f"{row['key']:<{width}}  {value}  ({row['source']})", markup=False, soft_wrap=True)
