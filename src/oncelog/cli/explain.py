"""`oncelog explain`: what an error code means, and what to do about it."""

import difflib
from collections.abc import Callable, Iterator
from typing import Annotated, Final

import typer

from oncelog.cli import exits
from oncelog.cli.screen import notes, print_json, results
from oncelog.protocols.bsfg import catalogue as bsfg_catalogue
from oncelog.protocols.explained import Explained
from oncelog.protocols.http import catalogue as http_catalogue
from oncelog.protocols.kafka import catalogue as kafka_catalogue
from oncelog.protocols.nats import catalogue as nats_catalogue

CATALOGUES: Final[tuple[Callable[[], Iterator[Explained]], ...]] = (
    http_catalogue.explained,
    kafka_catalogue.explained,
    bsfg_catalogue.explained,
    nats_catalogue.explained,
)
"""One list for each face."""


def all_errors() -> list[Explained]:
    """Every error of every face."""
    return [row for catalogue in CATALOGUES for row in catalogue()]


def explain_command(
    code: Annotated[str, typer.Argument(metavar="CODE", help="The code that the answer has.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Explain an error code of any face.

    CODE is a word such as sequence_gap (HTTP) or a number such as 47 (Kafka) or 10071 (NATS). Exit code 1 if no face
    has it.
    """
    wanted = code.strip().lower()
    rows = all_errors()
    found = [row for row in rows if wanted in (row.code.lower(), row.status.lower())]
    if json:
        print_json([row._asdict() for row in found])
    for row in () if json else found:
        status = f" ({row.status})" if row.status else ""
        results().print(f"{row.face} {row.code}{status}\n  {row.meaning}\n  → {row.what_to_do}", markup=False)
    if not found:
        near = difflib.get_close_matches(wanted, [row.code for row in rows], n=3)
        hint = f" Did you mean {', '.join(near)}?" if near else " docs/errors.md lists them all."
        notes().print(f"oncelog: no face answers the code {code!r}.{hint}", markup=False)
        raise typer.Exit(exits.REFUSED)
