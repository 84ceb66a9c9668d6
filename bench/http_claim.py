"""`bench http_claim`: what producer headers cost an append, in short slices that take turns.

`bench http` measures its rows one after another, seconds apart, and on a shared machine the price of a request drifts
by more in that time than a claim costs. Here each pair of rows, without and with producer headers, is measured slice by
slice on one server, the other one first in every second slice; the ratio is taken within each pair of slices. CPU is
that of the server's process; the index builder's, which comes in lumps, is a mean over all slices. "raw" is pwrite of
1 KB and fdatasync right before and after a slice with one connection.
"""

import argparse
import shutil
import tempfile
from pathlib import Path
from statistics import mean, median

from rich.console import Console
from rich.table import Table

from bench.http import CASES, FULL, Bench, Case
from bench.http_report import AppendRow, span
from bench.http_server import start_ours

PAIRS = tuple(
    (case._replace(name=case.name.removesuffix(", producer"), producer=False), case) for case in CASES if case.producer
)
"""Each row with producer headers, behind the same one without."""

GOAL = 1.1


def measure(slices: int, seconds: float, directory: Path) -> dict[Case, list[AppendRow]]:
    rows: dict[Case, list[AppendRow]] = {case: [] for pair in PAIRS for case in pair}
    server = start_ours(directory / "oncelog")
    try:
        bench = Bench([server], FULL, directory)
        for pair in PAIRS:
            for case in pair:
                bench.appends(server, case, seconds)  # only warms up
        for number in range(slices):
            for pair in PAIRS:
                for case in pair if number % 2 == 0 else pair[::-1]:
                    rows[case].append(bench.appends(server, case, seconds))
    finally:
        server.close()
    return rows


def table_of(rows: dict[Case, list[AppendRow]]) -> Table:
    table = Table(title="appends of 1 KB, without and with producer headers")
    table.add_column("case")
    for column in ("CPU-µs", "with", "× CPU", "", "+ index", "with", "p50 ms", "with", "× raw", "with"):
        table.add_column(column, justify="right")
    for pair in PAIRS:
        ratios = [
            claimed.figures.cpu_us / plain.figures.cpu_us
            for plain, claimed in zip(rows[pair[0]], rows[pair[1]], strict=True)
        ]
        cells = [pair[0].name]
        cells += [f"{median(row.figures.cpu_us for row in rows[case]):.1f}" for case in pair]
        cells += [span(ratios), "met" if median(ratios) <= GOAL else "missed"]
        cells += [f"{mean(row.figures.children_cpu_us for row in rows[case]):.1f}" for case in pair]
        cells += [f"{median(row.figures.load.p50_ms for row in rows[case]):.3f}" for case in pair]
        for case in pair:
            by_raw = [row.figures.load.p50_ms / mean(row.raw_ms) for row in rows[case] if row.raw_ms]
            cells.append(span(by_raw))
        table.add_row(*cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench http_claim", description=__doc__)
    parser.add_argument("--slices", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one slice")
    parser.add_argument("--directory", type=Path, help="on the disk to measure; a temporary one if not given")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="oncelog-claim-", dir=options.directory))
    try:
        rows = measure(options.slices, options.seconds, directory)
    finally:
        shutil.rmtree(directory)
    Console(width=160).print(table_of(rows))


if __name__ == "__main__":
    main()
