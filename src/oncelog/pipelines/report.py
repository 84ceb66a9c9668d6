"""The audit as one page of HTML that needs nothing else: no network, no script, drawings inside.

The verdict comes first and large. What it rests on follows: counts for each topic, and what happened while they came to
be. The page is written beside its name and renamed, so that whoever looks at it never sees a half.
"""

import datetime
import importlib.metadata
import os
import platform
import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import msgspec

from oncelog.pipelines import charts
from oncelog.pipelines.report_style import STYLE
from oncelog.pipelines.running import BatchDone, PipelineRefused
from oncelog.pipelines.writers import Run

WIDE: Final = 812
"""The width of the text on a screen."""
NARROW: Final = 343
"""And on a phone."""

BARS_MAX: Final = 160
"""Batches drawn for one pipeline; of more, the last ones."""

WORDS: Final = {
    "lost": "lost",
    "doubled": "doubled",
    "torn": "torn",
    "out_of_order": "out of order",
    "conflicting": "conflicting",
    "unexpected": "unexpected",
}

KINDS: Final = ("server killed", "producer killed", "Spark driver killed")
"""What the demo marks, in the order of the legend. Each has one mark in every report, whatever a run met first."""

_LOG: Final = ("lost", "doubled", "torn", "out_of_order", "conflicting", "unexpected")
_TABLE: Final = ("table_lost", "table_doubled", "table_conflicting", "table_unexpected")


class Event(msgspec.Struct):
    """Something that happened from outside: a kill, a cut connection."""

    time_ms: int
    kind: str
    label: str = ""


class Latency(msgspec.Struct):
    """From sending to confirmation, for one face, in milliseconds."""

    face: str
    count: int
    median: float
    p95: float
    p99: float
    longest: float


class ReportData(msgspec.Struct):
    """All that the page shows."""

    title: str
    sound: bool
    counts: dict[str, int]
    records: int
    topics: list[dict[str, Any]]
    """Fields of `audit.TopicAudit`."""
    examples: list[str]
    seed: str
    command: str
    confirms: dict[str, dict[int, int]] = {}
    """Face → beginning of a step → confirmations."""
    step_ms: int = 1000
    latencies: list[Latency] = []
    events: list[Event] = []
    batches: dict[str, list[BatchDone]] = {}
    spark_version: str = ""
    duration_s: float = 0.0
    """Of the audit."""
    run: Run | None = None
    not_judged: list[str] = []
    """Topics that there was nothing to compare with."""

    def faces(self) -> list[str]:
        """All that were written through, in one order for the whole page: colours go by it."""
        told = [writers.face for writers in self.run.writers] if self.run is not None else []
        found = {*self.confirms, *(latency.face for latency in self.latencies)}
        return [*(face for face in told if face in found), *sorted(found.difference(told))]

    def label(self, face: str) -> str:
        """What people call it."""
        writers = self.run.writers if self.run is not None else []
        return next((one.label for one in writers if one.face == face), face)


def events_of(path: Path) -> list[Event]:
    """A file of JSON lines. PipelineRefused says which line is not one, or why there is no file."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise PipelineRefused(f"cannot read {path}: {error.strerror or error}") from error
    events = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                events.append(msgspec.json.decode(line, type=Event))
            except msgspec.DecodeError as error:
                raise PipelineRefused(f"{path}, line {number}, is no event: {error}") from error
    return sorted(events, key=lambda event: event.time_ms)


def write_report(path: Path, data: ReportData) -> None:
    """The page, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(page(data), encoding="utf-8")
    draft.replace(path)


def page(data: ReportData) -> str:
    """The text of the page."""
    parts = [_verdict(data), _topics(data.topics), _examples(data.examples)]
    if data.confirms:
        parts.append(_over_time(data))
    if data.run is not None:
        parts.append(_writers(data, data.run))
    if data.latencies:
        parts.append(_latency(data))
    if data.batches:
        parts.append(_batches(data.batches))
    parts.append(_foot(data))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(data.title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main>\n{chr(10).join(part for part in parts if part)}\n</main></body></html>\n"
    )


def _verdict(data: ReportData) -> str:
    if data.sound:
        whole = "Everything" if not data.not_judged else "Everything that was judged"
        said, colour = f"{whole} is there, once.", "good"
    else:
        wrong = [f"{data.counts[name]:,} {WORDS[name]}" for name in WORDS if data.counts[name]]
        said, colour = f"Not sound: {', '.join(wrong)}.", "bad"
    large = "".join(_count(data.counts[name], WORDS[name]) for name in ("lost", "doubled"))
    rest = [name for name in WORDS if name not in ("lost", "doubled")]
    small = "".join(_count(data.counts[name], WORDS[name]) for name in rest)
    small += f'<div><div class="count">{data.records:,}</div><div class="word">records audited</div></div>'
    return (
        f'<p class="title">{escape(data.title)}</p><h1 class="{colour}">{escape(said)}</h1>\n'
        f'<div class="verdict">{large}</div>\n<div class="others">{small}</div>{_not_judged(data.not_judged)}'
    )


def _not_judged(topics: Sequence[str]) -> str:
    if not topics:
        return ""
    return f'\n<p class="note">Not judged: {escape(", ".join(topics))}. No ledger and no table is about them.</p>'


def _count(count: int, word: str) -> str:
    fault = " fault" if count else ""
    return f'<div><div class="count{fault}">{count:,}</div><div class="word">{word}</div></div>'


def _topics(topics: Sequence[Mapping[str, Any]]) -> str:
    parts = []
    sent = [topic for topic in topics if topic["sent"]]
    if sent:
        heads = ["topic", "sent", "confirmed", "in the log", *(WORDS[name] for name in _LOG)]
        rows = [
            [_cell(topic[name]) for name in ("sent", "confirmed", "records")]
            + [_cell(topic[name], fault=True) for name in _LOG]
            for topic in sent
        ]
        note = "What producers wrote down before they sent it, against what is there. What was confirmed must be there."
        parts.append(_section("The log, by its producers' ledgers", note, heads, _names(sent), rows))
    landed = [topic for topic in topics if topic["table_rows"] >= 0]
    if landed:
        heads = ["topic", "in the log", "in the table", "lost", "doubled", "differing", "unexpected"]
        rows = [
            [_cell(topic[name]) for name in ("records", "table_rows")]
            + [_cell(topic[name], fault=True) for name in _TABLE]
            for topic in landed
        ]
        note = "Every record against its row, column by column."
        unparsed = sum(topic["table_unparsed"] for topic in landed)
        if unparsed:
            note += f" {unparsed:,} of the values are not JSON of the table's schema: their bytes are in _unparsed."
        parts.append(_section("The table, by the log", note, heads, _names(landed), rows))
    return "\n".join(parts)


def _names(topics: Sequence[Mapping[str, Any]]) -> list[str]:
    return [topic["topic"] for topic in topics]


def _writers(data: ReportData, run: Run) -> str:
    rows = [
        [
            _cell(sum(data.confirms.get(writers.face, {}).values())),
            _cell(writers.retried) if writers.retried >= 0 else "<td>by itself</td>",
            _cell(writers.duplicates),
            _cell(writers.killed),
        ]
        for writers in run.writers
    ]
    note = (
        "Retried: requests that were sent again, by whoever tells. Duplicates: answers that said it is there already. "
        f"The network dropped {run.dropped:,} answers and cut {run.cut:,} connections."
    )
    heads = ["face", "confirmed", "retried", "duplicates", "kill -9"]
    return _section("The writers", note, heads, [writers.label for writers in run.writers], rows)


def _section(heading: str, note: str, heads: Sequence[str], names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in heads)
    lines = (f"<tr><td>{escape(name)}</td>{''.join(cells)}</tr>" for name, cells in zip(names, rows, strict=True))
    return (
        f'<h2>{heading}</h2>\n<p class="note">{note}</p>\n<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _cell(value: int, *, fault: bool = False) -> str:
    if fault:
        return f'<td class="{"fault" if value else "none"}">{value:,}</td>'
    return f"<td>{value:,}</td>"


def _examples(examples: Sequence[str]) -> str:
    if not examples:
        return ""
    items = "".join(f"<li>{escape(example)}</li>" for example in examples)
    return f'<h2>Some of the faults</h2>\n<ul class="examples">{items}</ul>'


def _over_time(data: ReportData) -> str:
    series = {data.label(face): data.confirms.get(face, {}) for face in data.faces()}
    met = {event.kind for event in data.events}
    kinds = [*KINDS, *sorted(met.difference(KINDS))]
    marks = [charts.Mark(event.time_ms, kinds.index(event.kind), event.label or event.kind) for event in data.events]
    keys = [
        f'<li><i class="c{number % charts.COLOURS}"></i>{escape(face)} '
        f'<span class="of">{sum(points.values()):,}</span></li>'
        for number, (face, points) in enumerate(series.items())
    ]
    for number, kind in enumerate(kinds):
        if kind in met:
            times = sum(event.kind == kind for event in data.events)
            keys.append(f'<li>{charts.key_shape(number)}{escape(kind)} <span class="of">{times:,}</span></li>')
    note = "Records confirmed per second, by the face they were written through."
    if met:
        note += " Marks show where something was killed or cut."
    return _figure("Confirmed over time", note, keys, lambda width: charts.stacked(series, data.step_ms, marks, width))


def _latency(data: ReportData) -> str:
    latencies = sorted(data.latencies, key=lambda one: data.faces().index(one.face))
    lines = [charts.Spread(data.label(one.face), one.median, one.p95, one.p99, one.longest) for one in latencies]
    note = (
        "From the first attempt to the confirmation, retries and restarts of the server included. The bar goes from "
        "the median to 99 %, the gap in it is 95 %, the tick at the end is the longest."
    )
    return _figure("Time to confirm", note, [], lambda width: charts.spreads(lines, width))


def _batches(batches: Mapping[str, Sequence[BatchDone]]) -> str:
    parts = ["<h2>Batches of the pipelines</h2>", '<p class="note">Rows of each batch, in their order.</p>']
    for name, history in batches.items():
        shown = history[-BARS_MAX:]
        rows = [batch.input_rows for batch in shown]
        tips = [
            f"batch {batch.batch}: {batch.input_rows:,} in, {batch.output_rows:,} out, {batch.duration_s:.2f} s"
            for batch in shown
        ]
        seconds = sorted(batch.duration_s for batch in history)
        said = (
            f"{len(history):,} {'batch' if len(history) == 1 else 'batches'}, "
            f"{sum(batch.input_rows for batch in history):,} rows in, "
            f"{sum(batch.output_rows for batch in history):,} out, median {seconds[len(seconds) // 2]:.2g} s"
        )
        parts.append(f"<h3>{escape(name)} <span>{said}</span></h3>")
        wide, narrow = (charts.columns(rows, tips, width) for width in (WIDE, NARROW))
        parts.append(f'<figure><div class="wide">{wide}</div><div class="narrow">{narrow}</div></figure>')
    return "\n".join(parts)


def _figure(heading: str, note: str, keys: Sequence[str], draw: Any) -> str:
    legend = f'<ul class="legend">{"".join(keys)}</ul>' if keys else ""
    return (
        f'<h2>{heading}</h2>\n<p class="note">{note}</p>{legend}'
        f'<figure><div class="wide">{draw(WIDE)}</div><div class="narrow">{draw(NARROW)}</div></figure>'
    )


def _foot(data: ReportData) -> str:
    made = datetime.datetime.fromtimestamp(time.time(), datetime.UTC)
    lines = {
        "made": f"{made:%Y-%m-%d %H:%M:%S} UTC",
        "run": f"{_clock(data.run.duration_s)} min before the audit" if data.run is not None else "",
        "audit": f"{data.duration_s:.1f} s",
        "seed": escape(data.seed),
        "command": f"<code>{escape(data.command)}</code>" if data.command else "",
        "versions": escape(", ".join(_versions(data.spark_version))),
    }
    items = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in lines.items() if text)
    return f"<footer><dl>{items}</dl></footer>"


def _clock(seconds: float) -> str:
    """1:05"""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _versions(spark: str) -> list[str]:
    found = [f"oncelog {importlib.metadata.version('oncelog')}", f"Python {platform.python_version()}"]
    if spark:
        found.append(f"Spark {spark}")
    for name in ("deltalake", "pyarrow"):
        found.append(f"{name} {importlib.metadata.version(name)}")
    return found
