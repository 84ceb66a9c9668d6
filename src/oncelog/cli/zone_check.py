"""`oncelog verify URL --against URL`: two zones compared, fact by fact."""

import asyncio
from typing import Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from oncelog.cli import exits
from oncelog.cli.remote import failures_told, probe
from oncelog.cli.screen import end, print_json, print_table, printable, progress, results
from oncelog.client.client import AsyncClient
from oncelog.core.facts import FactInvalid
from oncelog.forward.compare import Comparison, compare
from oncelog.forward.daemon import carried, consumer_of
from oncelog.forward.link import CallRefused, Link

COUNTED = ("confirmed", "other_zones", "target_facts", "missing", "doubled", "different", "out_of_order")


def verify_zones(source: str, target: str, consumer: str, *, json: bool) -> None:
    """Compare, show, and end with 4 if the target lacks or doubles a fact that is confirmed at the source."""
    with failures_told(source):
        asyncio.run(probe(source))
    with failures_told(target):
        asyncio.run(probe(target))
        try:
            found = asyncio.run(_compared(source, target, consumer))
        except CallRefused as refused:
            end(exits.REFUSED, str(refused))
        except FactInvalid as invalid:
            end(exits.DAMAGED, f"a record of a fact stream is not a fact: {invalid}")
    if json:
        print_json(msgspec.structs.asdict(found) | {"verdict": "sound" if found.is_sound else "damaged"})
    else:
        _show(found)
    if not found.is_sound:
        raise typer.Exit(exits.DAMAGED)


async def _compared(source: str, target: str, consumer: str) -> Comparison:
    zones = await _zone_of(source), await _zone_of(target)

    def carries(from_zone: str, to_zone: str) -> bool:
        return carried(zones[1], (), from_zone, to_zone)

    with progress("{task.description}", "{task.completed:,}") as bar:
        tasks = {side: bar.add_task(f"facts of the {side}", total=None) for side in ("source", "target")}
        async with AsyncClient(source) as ours, AsyncClient(target) as theirs:
            name = consumer or consumer_of(zones[1])
            return await compare(
                ours, theirs, zones, name, carries, lambda side, count: bar.update(tasks[side], completed=count)
            )


async def _zone_of(url: str) -> str:
    link = Link(url)
    try:
        answer: Any = await link.get("/bsfg/zone")
        return str(answer["zone"])
    finally:
        await link.close()


def _show(found: Comparison) -> None:
    console = results()
    for example in found.examples:
        console.print(Text(f"damage: {printable(example)}", style="red"), soft_wrap=True)
    title = f"zone {found.source_zone} against zone {found.target_zone}, by the consumer {found.consumer}"
    console.print(Text(title, style="bold"), soft_wrap=True)
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name in COUNTED:
        table.add_row(name.replace("_", " "), f"{getattr(found, name):,}")
    style = "green" if found.is_sound else "red"
    table.add_row("verdict", Text("sound" if found.is_sound else "damaged", style=style))
    print_table(table)
