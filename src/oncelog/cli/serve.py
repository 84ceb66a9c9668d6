"""`oncelog serve`: run a server until it is told to stop."""

import contextlib
import errno
import os
import shutil
import socket
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from oncelog import limits
from oncelog.cli import exits
from oncelog.cli.machine import FILE_SYSTEMS_VOLATILE, NOT_OURS, existing, file_system, size
from oncelog.cli.screen import end
from oncelog.cli.verb import directory
from oncelog.errors import Corruption, DiskFull, StorageError


def serve_command(
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", parser=directory, help="The data directory; made if it is missing."),
    ] = None,
    in_memory: Annotated[
        bool, typer.Option("--in-memory", help="Keep everything in memory: nothing survives the process.")
    ] = False,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="Where to listen [127.0.0.1:4437]; port 0 is any free one."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A TOML file, see docs/config.md.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any other setting, as in --set http.idle_ms=60000; repeatable."
        ),
    ] = None,
) -> None:
    """Run a server until Ctrl-C or SIGTERM.

    It prints one line, `ready http=… durability=… data=…`, when it takes requests. A stop finishes the requests in
    progress first. Every setting is in docs/config.md.
    """
    # Imported here: the engine takes a quarter of a second that no other verb should pay.
    from oncelog.servers.process import run
    from oncelog.servers.settings import SettingsInvalid, load
    from oncelog.storage.disk import NO_SPACE

    options: dict[str, tuple[str, object]] = {
        "data": ("--data", data),
        "in_memory": ("--in-memory", in_memory or None),
        "http.address": ("--http", http),
    }
    overrides = {key: value for key, (_, value) in options.items() if value is not None}
    for assignment in settings or []:
        key, value = _assignment(assignment)
        if key in options and options[key][1] is not None:
            raise typer.BadParameter(f"{assignment!r} stands beside {options[key][0]}: say it once", param_hint="--set")
        overrides[key] = value
    try:
        chosen = load(config, overrides)
    except SettingsInvalid as error:
        hint = " – say --data DIR or --in-memory" if error.key == "data" and not error.given else ""
        end(exits.USAGE, f"{error}{hint}")
    try:
        code = run(chosen, partial(_ready, chosen.data))
    except DiskFull as error:
        end(exits.REFUSED, _no_room(error.what, chosen.data, chosen.storage.segment_bytes))
    except StorageError as error:
        end(exits.DAMAGED if isinstance(error, Corruption) else exits.REFUSED, f"cannot open {chosen.data}: {error}")
    except OSError as error:
        if error.errno in NO_SPACE:
            end(exits.REFUSED, _no_room(os.strerror(error.errno), chosen.data, chosen.storage.segment_bytes))
        end(exits.REFUSED, _os_error(error, chosen.data, chosen.http.address))
    if code == exits.DONE and sys.stderr.isatty():
        typer.echo("oncelog: stopped; every request that was accepted is answered", err=True)
    raise typer.Exit(code)


def _ready(data: Path | None, line: str) -> None:
    # Whoever waited for the line may have gone; the server stays.
    with contextlib.suppress(BrokenPipeError):
        typer.echo(line)
    if data is None or (place := file_system(data)).found not in FILE_SYSTEMS_VOLATILE:
        return
    # Syncs succeed there too, so the line above says what it says of a disk.
    with contextlib.suppress(BrokenPipeError):
        typer.echo(f"oncelog: {data} is on {place.found}: {place.hint}", err=True)


def _assignment(text: str) -> tuple[str, object]:
    """`http.idle_ms=60000`: the value as TOML says it; what is no TOML is text, so that addresses need no quotes."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    try:
        document = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()
    return key.strip(), document["value"] if len(document) == 1 else value


def _no_room(what: str, data: Path | None, segment_bytes: int) -> str:
    """What is free, what is needed, what to do. Of a log that is there only the journal knows what it lacks."""
    from oncelog.servers.room import has_segments

    assert data is not None, "memory is no disk"
    free = shutil.disk_usage(existing(data)).free
    if has_segments(data) or free >= segment_bytes:
        way = "make room for a whole segment, and some for the index"
        return f"cannot open {data}: {what}; {size(free)} are free there ({way})"
    soon = (limits.SPARES_WANTED + 1) * segment_bytes
    begins = f"a new log begins with {size(segment_bytes)} and soon takes {size(soon)}"
    ways = "make room, name another --data, or set a smaller storage.segment_bytes"
    return f"cannot open {data}: {size(free)} are free there, and {begins} ({ways})"


def _os_error(error: OSError, data: Path | None, address: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on {address}: another process does (--http 127.0.0.1:0 takes any free port)"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"cannot listen on {address}: {NOT_OURS}"
    if data is not None and isinstance(error, NotADirectoryError | FileExistsError):
        file = next((path for path in (data, *data.parents) if path.exists() and not path.is_dir()), None)
        if file is not None:
            return f"cannot open {data}: {'it' if file == data else file} is a file; --data names a directory"
    if isinstance(error, PermissionError) and error.filename is not None:
        return f"cannot open {error.filename}: {error.strerror} (a log belongs to the user who serves it: chown it)"
    if error.filename is not None:
        return f"cannot open {error.filename}: {error.strerror}"
    if isinstance(error, socket.gaierror):
        return f"cannot listen on {address}: {error.strerror}"
    reason = os.strerror(error.errno) if error.errno is not None else str(error)
    return f"cannot listen on {address}: {reason}"
