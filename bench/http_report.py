"""What `bench http` prints: tables with ratios to the peers, the goals beside them, and the same for machines."""

import operator
from collections.abc import Callable, Iterable
from functools import partial
from statistics import mean, median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.http_load import LoadResult

OURS, NODE_FILE, NODE_MEMORY, BARE = "oncelog", "node file", "node memory", "bare loop"
KIB = 1024

# Beyond this other processes decide what is measured.
OTHERS_CORES_MAX = 0.2


class Figures(NamedTuple):
    """One measurement of one server."""

    name: str
    server: str
    load: LoadResult
    cpu_s: float
    children_cpu_s: float

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / max(1, self.load.requests) * 1e6

    @property
    def children_cpu_us(self) -> float:
        return self.children_cpu_s / max(1, self.load.requests) * 1e6

    @property
    def cpu_us_per_mb(self) -> float:
        return (self.cpu_s + self.children_cpu_s) / max(1, self.load.total_bytes) * 1e12

    @property
    def load_cpu_us(self) -> float:
        return self.load.cpu_s / max(1, self.load.requests) * 1e6

    def short(self) -> str:
        refused = f", REFUSED {self.load.refused}" if self.load.refused else ""
        return f"{self.name}, {self.server}: {self.load.per_s:,.0f}/s, {self.load.mb_per_s:,.1f} MB/s{refused}"


class AppendRow(NamedTuple):
    figures: Figures
    connections: int
    body_bytes: int
    producer: bool
    # Resident memory of the server's process after it.
    memory_bytes: int
    # p50 of a raw write and sync before and after; empty where it was not looked at.
    raw_ms: list[float]


class ReadRow(NamedTuple):
    figures: Figures
    body_bytes: int
    stream_bytes: int


Rounds = list[list[Figures]]
Measure = Callable[[Figures], float]


def series(rounds: Rounds, name: str, server: str, measure: Measure) -> list[float]:
    """What one row says on one server, round by round."""
    return [
        measure(figures) for rows in rounds for figures in rows if figures.name == name and figures.server == server
    ]


def ratios(rounds: Rounds, measure: Measure, above: tuple[str, str], below: tuple[str, str]) -> list[float]:
    """`above` by `below`, each a row and a server, within every round; empty if one of them was not measured."""
    ours, theirs = series(rounds, *above, measure), series(rounds, *below, measure)
    return [one / other for one, other in zip(ours, theirs, strict=True) if other] if ours and theirs else []


def rate(figures: Figures) -> float:
    return figures.load.per_s


def speed(figures: Figures) -> float:
    return figures.load.mb_per_s


def server_cpu(figures: Figures) -> float:
    return figures.cpu_us


def children_cpu(figures: Figures) -> float:
    """Comes in lumps, one for every so many megabytes: the mean says what it costs, the median would say nothing."""
    return figures.children_cpu_us


def span(values: list[float]) -> str:
    """Median, and the range if there is one."""
    if not values:
        return "–"
    if len(values) == 1:
        return number(values[0])
    return f"{number(median(values))} ({number(min(values))}–{number(max(values))})"


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def names(rounds: Rounds) -> list[str]:
    return list(dict.fromkeys(figures.name for rows in rounds for figures in rows))


def servers(rounds: Rounds, name: str) -> list[str]:
    there = {figures.server for rows in rounds for figures in rows if figures.name == name}
    return [server for server in (OURS, NODE_FILE, NODE_MEMORY, BARE) if server in there]


def append_table(rounds: Rounds) -> Table:
    table = Table(title="appends")
    table.add_column("case")
    table.add_column("server")
    for column in ("req/s", "MB/s", "p50 ms", "p99 ms", "CPU-µs", "+ index", "load CPU-µs", "ours ×", "refused"):
        table.add_column(column, justify="right")
    for name in names(rounds):
        for server in servers(rounds, name):

            def middle(measure: Measure, name: str = name, server: str = server) -> float:
                return median(series(rounds, name, server, measure))

            refused = sum(series(rounds, name, server, lambda figures: sum(figures.load.refused.values())))
            table.add_row(
                name if server == OURS or OURS not in servers(rounds, name) else "",
                server,
                f"{middle(rate):,.0f}",
                f"{middle(speed):,.1f}",
                f"{middle(lambda figures: figures.load.p50_ms):.2f}",
                f"{middle(lambda figures: figures.load.p99_ms):.2f}",
                f"{middle(lambda figures: figures.cpu_us):,.1f}",
                f"{mean(series(rounds, name, server, children_cpu)):,.1f}" if server == OURS else "",
                f"{middle(lambda figures: figures.load_cpu_us):,.1f}",
                "" if server == OURS else span(ratios(rounds, rate, (name, OURS), (name, server))),
                f"{refused:.0f}" if refused else "",
            )
        table.add_section()
    return table


def read_table(read_rounds: list[list[ReadRow]]) -> Table:
    rounds = plain(read_rounds)
    table = Table(title="catch-up read, one connection")
    table.add_column("stream")
    table.add_column("server")
    for column in ("MB/s", "ms for all", "CPU-µs per MB", "load CPU-µs per MB", "ours ×"):
        table.add_column(column, justify="right")
    for row in read_rounds[0]:
        name, server = row.figures.name, row.figures.server
        ours = next((other.figures.name for other in read_rounds[0] if is_ours(other, row.body_bytes)), "")
        load_cpu = median(series(rounds, name, server, lambda f: f.load.cpu_s / f.load.total_bytes * 1e12))
        table.add_row(
            name,
            server,
            f"{median(series(rounds, name, server, speed)):,.0f}",
            f"{median(series(rounds, name, server, lambda figures: figures.load.p50_ms)):,.1f}",
            f"{median(series(rounds, name, server, lambda figures: figures.cpu_us_per_mb)):,.0f}",
            f"{load_cpu:,.0f}",
            "" if server == OURS else span(ratios(rounds, speed, (ours, OURS), (name, server))),
        )
    return table


def client_table(rounds: Rounds) -> Table:
    table = Table(title="our Python client, one connection, records of 1 KB, idempotent producer")
    table.add_column("case")
    for column in ("records/s", "req/s", "MB/s", "p50 ms", "p99 ms", "CPU-µs per record", "+ index", "client CPU-µs"):
        table.add_column(column, justify="right")
    for name in names(rounds):

        def middle(measure: Measure, name: str = name) -> float:
            return median(series(rounds, name, OURS, measure))

        p50, p99 = middle(lambda figures: figures.load.p50_ms), middle(lambda figures: figures.load.p99_ms)
        table.add_row(
            name,
            f"{middle(lambda figures: figures.load.total_bytes / KIB / figures.load.wall_s):,.0f}",
            f"{middle(rate):,.0f}",
            f"{middle(speed):,.1f}",
            f"{p50:.2f}" if p50 else "",
            f"{p99:.2f}" if p99 else "",
            f"{middle(lambda figures: per_record(figures, figures.cpu_s)):.1f}",
            f"{mean(series(rounds, name, OURS, lambda figures: per_record(figures, figures.children_cpu_s))):.1f}",
            f"{middle(lambda figures: per_record(figures, figures.load.cpu_s)):.1f}",
        )
    return table


def per_record(figures: Figures, cpu_s: float) -> float:
    return cpu_s / max(1, figures.load.total_bytes // KIB) * 1e6


def is_ours(row: ReadRow, body_bytes: int) -> bool:
    return row.figures.server == OURS and row.body_bytes == body_bytes


def plain(rounds: Iterable[Iterable[AppendRow | ReadRow]]) -> Rounds:
    return [[row.figures for row in rows] for rows in rounds]


# --- goals -----------------------------------------------------------------------------------------------------


class Goal(NamedTuple):
    goal: str
    # The row that is judged.
    row: str
    seen: str
    met: bool


def judged(goal: str, row: str, values: list[float], meets: Callable[[float], bool]) -> list[Goal]:
    """Nothing if it was not measured."""
    return [Goal(goal, row, span(values), meets(median(values)))] if values else []


def append_goals(append_rounds: list[list[AppendRow]]) -> list[Goal]:
    rounds = plain(append_rounds)
    goals: list[Goal] = []
    first = append_rounds[0] if append_rounds else []
    for row in first:
        name = row.figures.name
        if row.figures.server != OURS:
            continue
        if row.connections == 64:
            for peer, least in ((NODE_FILE, 20.0), (NODE_MEMORY, 1.2)):
                values = ratios(rounds, rate, (name, OURS), (name, peer)) if peer in servers(rounds, name) else []
                goals += judged(f"≥ {least:g} × {peer}", name, values, partial(operator.le, least))
        if row.connections == 1:
            values = [
                other.figures.load.p50_ms / mean(other.raw_ms)
                for rows in append_rounds
                for other in rows
                if other.figures.name == name and other.raw_ms
            ]
            goals += judged("p50 ≤ 2 × raw fdatasync", name, values, lambda seen: seen <= 2)
        if row.body_bytes == KIB and row.connections == 64 and not row.producer:
            index = mean(series(rounds, name, OURS, children_cpu))
            values = [cpu + index for cpu in series(rounds, name, OURS, server_cpu)]
            goals += judged("≤ 30 CPU-µs per append, index and all", name, values, lambda seen: seen <= 30)
        without = name.removesuffix(", producer")
        if row.producer and without in names(rounds):
            values = ratios(rounds, server_cpu, (name, OURS), (without, OURS))
            goals += judged("producer ≤ 1.1 × the CPU without", name, values, lambda seen: seen <= 1.1)
    return sorted(goals, key=lambda goal: goal.goal)


def read_goals(read_rounds: list[list[ReadRow]]) -> list[Goal]:
    rounds = plain(read_rounds)
    goals: list[Goal] = []
    for row in read_rounds[0] if read_rounds else []:
        if row.figures.server == OURS:
            values = series(rounds, row.figures.name, OURS, speed)
            goals += judged("catch-up ≥ 1,000 MB/s", row.figures.name, values, lambda seen: seen >= 1000)
    return goals


def goal_table(goals: list[Goal]) -> Table:
    table = Table(title="goals")
    for column in ("goal", "row", "seen", ""):
        table.add_column(column)
    for goal in goals:
        table.add_row(goal.goal, goal.row, goal.seen, "met" if goal.met else "missed")
    return table


def report(
    append_rounds: list[list[AppendRow]], read_rounds: list[list[ReadRow]], client_rounds: Rounds, others_cores: float
) -> dict[str, object]:
    """Prints everything; returns it as plain values."""
    console = Console(width=150)
    goals = append_goals(append_rounds) + read_goals(read_rounds)
    console.print(append_table(plain(append_rounds)))
    if raw := [value for rows in append_rounds for row in rows for value in row.raw_ms]:
        console.print(f"raw pwrite of 1 KB + fdatasync, p50 ms: {span(raw)}\n")
    if any(read_rounds):
        console.print(read_table(read_rounds))
    if any(client_rounds):
        console.print(client_table(client_rounds))
    console.print(goal_table(goals))
    quiet = others_cores < OTHERS_CORES_MAX
    verdict = "quiet enough" if quiet else "BUSY: neither rates nor goals mean much, CPU figures a little"
    console.print(f"other processes took {others_cores:.2f} cores meanwhile: {verdict}")
    return {
        "others_cores": others_cores,
        "raw_fdatasync_p50_ms": raw,
        "appends": [flat(row, at) for at, rows in enumerate(append_rounds) for row in rows],
        "reads": [flat(row, at) for at, rows in enumerate(read_rounds) for row in rows],
        "clients": [flat_figures(figures, at) for at, rows in enumerate(client_rounds) for figures in rows],
        "goals": [goal._asdict() for goal in goals],
    }


def flat(row: AppendRow | ReadRow, at: int) -> dict[str, object]:
    values = flat_figures(row.figures, at) | row._asdict()
    del values["figures"]
    return values


def flat_figures(figures: Figures, at: int) -> dict[str, object]:
    load = figures.load
    values: dict[str, object] = {"round": at, "name": figures.name, "server": figures.server}
    values |= load._asdict() | {"per_s": load.per_s, "mb_per_s": load.mb_per_s, "load_cpu_s": load.cpu_s}
    return values | {"cpu_s": figures.cpu_s, "children_cpu_s": figures.children_cpu_s}
