"""`oncelog serve`: run a server until a signal ends it."""

import contextlib
import errno
import os
import shutil
import socket
import ssl
import sys
from collections.abc import Callable
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from oncelog import limits
from oncelog.cli import exits
from oncelog.cli.machine import FILE_SYSTEMS_VOLATILE, NOT_OURS, existing, file_system, size
from oncelog.cli.screen import end
from oncelog.cli.verb import directory
from oncelog.errors import Corruption, DiskFull, StorageError
from oncelog.servers.faces import FACES

ANY_PORT: Final = "127.0.0.1:0"

FLAGS: Final = {f"{kind.name}.address": f"--{kind.name}" for kind in FACES} | {
    f"{kind.name}.enabled": f"--no-{kind.name}" for kind in FACES
}
"""The settings of faces that have a flag of their own."""


def with_face_flags(command: Callable[..., None]) -> Callable[..., None]:
    """`--<face> HOST:PORT` and `--no-<face>` for each face of the list, given to `command` as `faces`."""

    def whole(**given: Any) -> None:
        faces: dict[str, object] = {}
        for kind in FACES:
            address, left_out = given.pop(f"{kind.name}_address"), given.pop(f"no_{kind.name}")
            if address is not None and left_out:
                raise typer.BadParameter("say one of them", param_hint=f"--{kind.name} and --no-{kind.name}")
            faces[f"{kind.name}.address"] = address
            faces[f"{kind.name}.enabled"] = False if left_out else None
        command(**given, faces=faces)

    parameters = []
    for parameter in signature(command).parameters.values():
        if parameter.name != "faces":
            parameters.append(parameter)
            continue
        for kind in FACES:
            where = f"Where {kind.name} listens [{kind.address}]; port 0 is any free one."
            option = typer.Option(f"--{kind.name}", metavar="HOST:PORT", help=where)
            parameters.append(
                Parameter(
                    f"{kind.name}_address",
                    Parameter.KEYWORD_ONLY,
                    default=None,
                    annotation=Annotated[str | None, option],
                )
            )
        for kind in FACES:
            flag = typer.Option(f"--no-{kind.name}", help=f"Do not start {kind.name}.")
            name = f"no_{kind.name}"
            parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, flag]))
    whole.__doc__ = command.__doc__
    whole.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    whole.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    return whole


@with_face_flags
def serve_command(
    *,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", parser=directory, help="The data directory; made if it is missing."),
    ] = None,
    in_memory: Annotated[
        bool, typer.Option("--in-memory", help="Keep everything in memory: nothing survives the process.")
    ] = False,
    faces: dict[str, object],
    zone: Annotated[
        str | None, typer.Option("--zone", metavar="NAME", help="The name of this zone, for BSFG [local].")
    ] = None,
    accept_clock: Annotated[
        bool,
        typer.Option("--accept-clock", help="Start also if this machine's clock is far ahead of the log, once."),
    ] = False,
    any_port: Annotated[
        bool, typer.Option("--any-port", help="Every face without an address here takes any free port of 127.0.0.1.")
    ] = False,
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

    It prints one line, `ready http=… durability=… data=…`, when it takes requests: every face with its address. A stop
    finishes the requests in progress first. Every setting is in docs/config.md.
    """
    # Imported here: the engine takes a quarter of a second that no other verb should pay.
    from oncelog.servers.assembly import CannotListen
    from oncelog.servers.chosen_settings import load
    from oncelog.servers.process import run
    from oncelog.servers.settings import SettingsInvalid
    from oncelog.storage.disk import NO_SPACE

    flags = {"data": "--data", "in_memory": "--in-memory", "zone": "--zone", "clock.accept": "--accept-clock"} | FLAGS
    given: dict[str, object] = {"data": data, "in_memory": in_memory or None, "zone": zone} | faces
    given["clock.accept"] = accept_clock or None
    overrides = _overrides(given, flags, settings or [])
    if any_port:
        overrides = {f"{kind.name}.address": ANY_PORT for kind in FACES} | overrides
    try:
        chosen = load(config, overrides, os.environ)
    except SettingsInvalid as error:
        hint = " – say --data DIR or --in-memory" if error.key == "data" and not error.given else ""
        end(exits.USAGE, f"{error}{hint}")
    try:
        code = run(chosen, partial(_ready, chosen.data))
    except CannotListen as error:
        end(exits.REFUSED, _cannot_listen(error.face, error.settings.address, error.cause))
    except DiskFull as error:
        end(exits.REFUSED, _no_room(error.what, chosen.data, chosen.storage.segment_bytes))
    except StorageError as error:
        end(exits.DAMAGED if isinstance(error, Corruption) else exits.REFUSED, f"cannot open {chosen.data}: {error}")
    except OSError as error:
        if error.errno in NO_SPACE:
            end(exits.REFUSED, _no_room(os.strerror(error.errno), chosen.data, chosen.storage.segment_bytes))
        end(exits.REFUSED, _os_error(error, chosen.data))
    if code == exits.DONE and sys.stderr.isatty():
        typer.echo("oncelog: stopped; every request that was accepted is answered", err=True)
    raise typer.Exit(code)


def _overrides(given: dict[str, object], flags: dict[str, str], settings: list[str]) -> dict[str, object]:
    """What the options say, and what `--set` says beside them."""
    overrides = {key: value for key, value in given.items() if value is not None}
    for key, value in assignments(settings).items():
        if given.get(key) is not None:
            raise typer.BadParameter(f"{key!r} stands beside {flags[key]}: say it once", param_hint="--set")
        overrides[key] = value
    return overrides


def _ready(data: Path | None, line: str) -> None:
    # If the program that waited for the line is gone, the server stays.
    with contextlib.suppress(BrokenPipeError):
        typer.echo(line)
    if data is None or (place := file_system(data)).found not in FILE_SYSTEMS_VOLATILE:
        return
    # Syncs succeed there too, so the line above says what it says of a disk.
    with contextlib.suppress(BrokenPipeError):
        typer.echo(f"oncelog: {data} is on {place.found}: {place.hint}", err=True)


def assignments(texts: list[str]) -> dict[str, object]:
    """What `--set` says, each KEY=VALUE."""
    from oncelog.servers.chosen_settings import parse_value

    found: dict[str, object] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
        found[key.strip()] = parse_value(value)
    return found


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


def _cannot_listen(face: str, address: str, error: OSError) -> str:
    """Why a face cannot be started. A file that is named belongs to a certificate."""
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on {address}: another process does (--{face} 127.0.0.1:0 takes any free port)"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"cannot listen on {address}: {NOT_OURS}"
    if isinstance(error, ssl.SSLError):
        return f"cannot use the files of {face}.tls_certificate and {face}.tls_key: {error.reason or error}"
    if error.filename is not None:
        return f"cannot open {error.filename}: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return f"cannot open the files of {face}.tls_certificate and {face}.tls_key: {error.strerror}"
    if isinstance(error, socket.gaierror):
        return f"cannot listen on {address}: {error.strerror}"
    reason = os.strerror(error.errno) if error.errno is not None else str(error)
    return f"cannot listen on {address}: {reason}"


def _os_error(error: OSError, data: Path | None) -> str:
    if data is not None and isinstance(error, NotADirectoryError | FileExistsError):
        file = next((path for path in (data, *data.parents) if path.exists() and not path.is_dir()), None)
        if file is not None:
            return f"cannot open {data}: {'it' if file == data else file} is a file; --data names a directory"
    if isinstance(error, PermissionError) and error.filename is not None:
        return f"cannot open {error.filename}: {error.strerror} (a log belongs to the user who serves it: chown it)"
    reason = error.strerror or (os.strerror(error.errno) if error.errno is not None else str(error))
    return f"cannot open {data if error.filename is None else error.filename}: {reason}"
