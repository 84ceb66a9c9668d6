"""What `bench spark` prints: one table, ratios to the peers within each round, and the goals."""

from collections.abc import Callable
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.http_report import OTHERS_CORES_MAX, Goal, goal_table, judged, span
from bench.spark_load import BATCH_READ, KAFKA, OURS, PARQUET, STREAM_READ, WRITE, Figures

Measure = Callable[[Figures], float]

READ_CPU_MAX = 2.5
"""Times what Parquet takes."""


def series(rows: list[Figures], case: str, side: str, measure: Measure) -> list[float]:
    """Round by round."""
    return [measure(row) for row in rows if (row.case, row.side) == (case, side)]


def ratios(rows: list[Figures], case: str, measure: Measure, above: str, below: str) -> list[float]:
    """Within each round; empty if one of the two was not measured."""
    return [
        one / other
        for one, other in zip(series(rows, case, above, measure), series(rows, case, below, measure), strict=False)
        if other
    ]


def speed(row: Figures) -> float:
    return row.mb_per_s


def spark_cpu(row: Figures) -> float:
    return row.spark_cpu_per_gb


def all_cpu(row: Figures) -> float:
    return row.cpu_per_gb


def figures_table(rows: list[Figures]) -> Table:
    table = Table(title="Spark, local[2]; CPU-s per GB of keys and values")
    table.add_column("case")
    table.add_column("side")
    columns = (
        "rows/s",
        "MB/s",
        "JVM",
        "Python",
        "server",
        "all",
        "ours ×, MB/s",
        "ours ×, CPU of Spark",
        "… and server",
    )
    for column in columns:
        table.add_column(column, justify="right")
    seen: set[str] = set()
    for case, side in dict.fromkeys((row.case, row.side) for row in rows):

        def middle(measure: Measure, case: str = case, side: str = side) -> float:
            return median(series(rows, case, side, measure))

        peer = [] if side == OURS else [span(ratios(rows, case, measure, OURS, side)) for measure in
                                        (speed, spark_cpu, all_cpu)]  # fmt: skip
        table.add_row(
            "" if case in seen else case,
            f"{side} (rows only)" if (case, side) == (WRITE, PARQUET) else side,
            f"{middle(lambda row: row.rows_per_s):,.0f}",
            f"{middle(speed):,.0f}",
            f"{middle(lambda row: row.jvm_s / row.total_bytes * 1e9):.2f}",
            f"{middle(lambda row: row.python_s / row.total_bytes * 1e9):.2f}",
            f"{middle(lambda row: row.server_s / row.total_bytes * 1e9):.2f}",
            f"{middle(all_cpu):.2f}",
            *peer,
        )
        seen.add(case)
    return table


def goals(rows: list[Figures]) -> list[Goal]:
    """A peer that was not there is not judged."""
    found: list[Goal] = []
    for case in (BATCH_READ, STREAM_READ, WRITE):
        values = ratios(rows, case, speed, OURS, KAFKA)
        found += judged("≥ 1 × Spark's Kafka connector, MB/s", case, values, lambda seen: seen >= 1)
    values = ratios(rows, BATCH_READ, spark_cpu, OURS, PARQUET)
    goal = f"≤ {READ_CPU_MAX:g} × the CPU of Parquet, JVM and Python"
    return found + judged(goal, BATCH_READ, values, lambda seen: seen <= READ_CPU_MAX)


def report(rows: list[Figures], others_cores: float, peer: str) -> dict[str, object]:
    """Prints everything; returns it as plain values."""
    console = Console(width=170)
    console.print(figures_table(rows))
    console.print(f"peer: {peer}")
    console.print(goal_table(goals(rows)))
    quiet = others_cores < OTHERS_CORES_MAX
    verdict = "quiet enough" if quiet else "BUSY: rates mean little, ratios within a round something, CPU figures more"
    console.print(f"other processes took {others_cores:.2f} cores meanwhile: {verdict}")
    return {
        "peer": peer,
        "others_cores": others_cores,
        "rows": [row._asdict() for row in rows],
        "goals": [goal._asdict() for goal in goals(rows)],
    }
