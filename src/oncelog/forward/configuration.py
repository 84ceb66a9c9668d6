"""The file of `oncelog forward --config`: several routes, and the files that tokens are in.

[[route]]
from = "http://127.0.0.1:4437"
to = "http://10.0.0.7:4437"
consumer = "forward:head-office"      # optional, as are those below
to_zones = ["archive"]
rate = 5000
from_token_file = "/etc/oncelog/plant.token"
to_token_file = "/etc/oncelog/office.token"
"""

import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

from oncelog.client.connection import parse_address, with_scheme
from oncelog.errors import OncelogError
from oncelog.forward.daemon import RATE_DEFAULT, Route

RATE_MAX: Final = 1_000_000


class RoutesInvalid(OncelogError):
    """The file cannot be used: which file, and what is wrong with it."""


class RouteTable(msgspec.Struct, forbid_unknown_fields=True, rename={"source": "from", "target": "to"}):
    """One [[route]]."""

    source: str
    target: str
    consumer: str = ""
    to_zones: list[str] = []
    rate: int = RATE_DEFAULT
    from_token_file: str = ""
    to_token_file: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    route: list[RouteTable]


def routes_of(path: Path) -> list[Route]:
    """The routes that a file names. Raises RoutesInvalid."""
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        found = msgspec.convert(document, _File)
    except OSError as error:
        raise RoutesInvalid(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RoutesInvalid(f"{path}: is not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise RoutesInvalid(f"{path}: {error}") from None
    if not found.route:
        raise RoutesInvalid(f"{path}: it has no [[route]]. Write at least one, with from and to.")
    routes: list[Route] = []
    for number, table in enumerate(found.route):
        source, target = with_scheme(table.source), with_scheme(table.target)
        try:
            parse_address(source)
            parse_address(target)
        except ValueError as error:
            raise RoutesInvalid(f"{path}: route {number + 1}: {error}") from None
        if not 1 <= table.rate <= RATE_MAX:
            raise RoutesInvalid(f"{path}: route {number + 1}: rate is {table.rate}; it is 1 to {RATE_MAX:,}.")
        tokens = [token_of(Path(file) if file else None) for file in (table.from_token_file, table.to_token_file)]
        routes.append(Route(source, target, table.consumer, tuple(table.to_zones), table.rate, *tokens))
    return routes


def token_of(path: Path | None) -> str:
    """The token in a file, without the line end; empty without a file. Raises RoutesInvalid."""
    if path is None:
        return ""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RoutesInvalid(f"the token file {path} cannot be read: {error}") from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise RoutesInvalid(f"the token file {path} holds no token. A token is one line of printable ASCII, no blanks.")
    return token
