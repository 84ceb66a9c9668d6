"""`oncelog demo`: the whole promise in a few minutes, on this machine."""

import os
import secrets
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from oncelog.cli import exits
from oncelog.cli.screen import end, print_json
from oncelog.demo.plan import SCALE_MAX, SCALE_MIN

REPORT: Final = Path("oncelog-report.html")
SEED_BELOW: Final = 1_000_000
"""Short enough to be read aloud."""


def demo_command(
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", min=0, help="What goes wrong, and when. The same seed, the same plan."),
    ] = None,
    scale: Annotated[
        float,
        typer.Option(
            "--scale",
            metavar="X",
            min=SCALE_MIN,
            max=SCALE_MAX,
            help="How much is written; 1 is about 10,000 orders.",
        ),
    ] = 1.0,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Leave out the pipelines: writers, kills and the audit of the log.")
    ] = False,
    report: Annotated[Path, typer.Option("--report", metavar="FILE", help="Where the HTML report goes.")] = REPORT,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the directory: log, tables, ledgers, what the processes said.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Write through every face while servers, producers and Spark drivers are killed; then prove that nothing is lost.

    Starts a server in a temporary directory. Producers write orders, payments and audit events over a network that
    drops answers and cuts connections; meanwhile Spark joins them, adds them up and lands them in Delta tables. Server,
    producers and the Spark driver are killed with SIGKILL. An audit then compares log, tables and producers' ledgers.

    Takes about two minutes, or less than one with --no-spark. Exit code 0 only if nothing is lost, doubled, torn, out
    of order or in conflict; 4 if something is, 1 if the run failed or did not show all that was planned. Needs PySpark
    and Java 17 (`make run` installs both), except with --no-spark.
    """
    # Imported here: no other verb should pay for it.
    from oncelog.demo.needs import missing, missing_for_faces
    from oncelog.demo.run import DemoFailed, run_demo
    from oncelog.demo.verdict import show

    if lacking := missing_for_faces():
        end(exits.USAGE, lacking)
    if not no_spark and (lacking := missing()):
        end(exits.USAGE, lacking)
    folder = report.absolute().parent
    if (not no_spark and not os.access(folder, os.W_OK)) or report.is_dir():
        # Better now than after two minutes.
        end(exits.USAGE, f"--report: {report} cannot be written; name a file in a directory that is there and yours")
    chosen = secrets.randbelow(SEED_BELOW) if seed is None else seed
    console = Console(stderr=json, highlight=False)
    try:
        verdict = run_demo(chosen, scale, report, spark=not no_spark, keep=keep, console=console)
    except DemoFailed as error:
        end(exits.REFUSED, f"the demo failed (seed {chosen}): {error}")
    except KeyboardInterrupt:
        end(exits.REFUSED, "interrupted; everything that was started is gone")
    if json:
        print_json(verdict)
    else:
        show(verdict, console)
    raise typer.Exit(exits.DONE if verdict.sound else exits.DAMAGED)
