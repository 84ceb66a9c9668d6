"""`oncelog doctor`: is this machine fit to run a log?"""

import http.client
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from oncelog.cli import exits, machine
from oncelog.cli.machine import Check
from oncelog.cli.screen import notes, print_json, print_table, printable, results
from oncelog.cli.verb import directory

STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "bold red"}
ADDRESS: Final = "127.0.0.1:4437"


def doctor_command(
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="DIR",
            parser=directory,
            help="The data directory, there or to be made.",
            show_default="here",
        ),
    ] = Path(),
    address: Annotated[
        str, typer.Option("--http", metavar="HOST:PORT", help="Where the server is to listen.")
    ] = ADDRESS,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check whether this machine is fit to run a log.

    Python, processors, memory, open files, clock, disk, port, Java, PySpark. Writes one scratch file to the data
    directory, to time the disk, and removes it. Exit code 1 if something fails.
    """
    console = notes()
    checks: list[Check] = []
    with console.status("looking around") as status:
        for doing, check in _questions(data, address):
            status.update(doing)
            checks.append(check())
    worst = next((status for status in ("fail", "warn") if any(check.status == status for check in checks)), "ok")
    if json:
        print_json({"verdict": worst, "checks": checks})
    else:
        _show(checks)
    if worst == "fail":
        raise typer.Exit(exits.REFUSED)


def _questions(data: Path, address: str) -> Iterator[tuple[str, Callable[[], Check]]]:
    """(what to say while it runs, the check)."""
    from oncelog.servers.face_settings import parse_address

    try:
        host, port = parse_address(address)
    except ValueError as error:
        raise typer.BadParameter(f"{address!r}: {error}", param_hint="--http") from error
    yield "looking around", machine.python
    yield "looking around", machine.codec
    yield "looking around", machine.event_loop
    yield "looking around", machine.processors
    yield "looking around", machine.memory
    yield "looking around", machine.open_files
    yield "looking around", lambda: machine.clock(data, time.time_ns() // 1_000_000)
    yield "looking around", lambda: machine.data_directory(data)
    yield "looking around", lambda: machine.free_space(data)
    yield "looking around", lambda: machine.file_system(data)
    yield "timing the disk", lambda: machine.sync_latency(data)
    yield "trying the port", lambda: machine.port(host, port, lambda: _version_at(host, port))
    yield "asking Java", machine.java
    yield "looking for PySpark", machine.pyspark


def _version_at(host: str, port: int) -> str | None:
    """The version of the server that answers there, None if it is another program."""
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/health")
        health = msgspec.json.decode(connection.getresponse().read())
    except (OSError, http.client.HTTPException, msgspec.DecodeError):
        return None
    finally:
        connection.close()
    return str(health["version"]) if isinstance(health, dict) and "version" in health else None


def _show(checks: list[Check]) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        found = Text(printable(check.found))
        if check.hint:
            found.append(f"\n→ {printable(check.hint)}", style="dim" if check.status == "ok" else STYLES[check.status])
        table.add_row(Text(check.status, style=STYLES[check.status]), check.name, found)
    print_table(table)
    fails = sum(check.status == "fail" for check in checks)
    warns = sum(check.status == "warn" for check in checks)
    said = [f"{fails} failed"] * bool(fails) + [f"{warns} to look at"] * bool(warns)
    verdict = " and ".join(said) or "fit to run a log"
    results().print(Text(f"\n{verdict}", style=STYLES["fail" if fails else "warn" if warns else "ok"]))
