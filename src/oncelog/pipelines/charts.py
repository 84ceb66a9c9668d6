"""Charts as SVG, drawn for a width: a page shows one drawing on a screen and another on a phone, each in its own size.

Colours are the page's (`report_style`), by class, so one drawing serves light and dark. Nothing here knows what the
numbers mean.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

COLOURS: Final = 6
"""Classes c0 … c5 of the page."""
MARK_COLOURS: Final = 3
"""Classes m0 … m2, which no series has. With the four shapes they tell twelve kinds of marks apart."""

LEFT: Final = 46
"""Room for the numbers of the vertical axis."""
RIGHT: Final = 10
TOP: Final = 22
BOTTOM: Final = 24

BAR_LEAST: Final = 2.0
"""Of anything that is drawn as a bar, each way: what is there at all can be seen."""

NAME_CHARACTERS: Final = 20
"""Of a name beside its line; the rest is in the legend."""


class Mark(NamedTuple):
    """An event on the time axis."""

    time_ms: int
    kind: int
    """Number of its kind, for the shape."""
    label: str


class Spread(NamedTuple):
    """One line of a chart of spreads."""

    name: str
    low: float
    middle: float
    high: float
    most: float


def stacked(
    series: Mapping[str, Mapping[int, int]], step_ms: int, marks: Sequence[Mark], width: int, height: int = 220
) -> str:
    """Columns over time, one colour for each series, with marks above them."""
    times = [time for points in series.values() for time in points]
    marks = [mark for mark in marks if times]
    first = min([*times, *(mark.time_ms for mark in marks)], default=0)
    last = max([*(time + step_ms for time in times), *(mark.time_ms for mark in marks)], default=1)
    totals: dict[int, int] = {}
    for points in series.values():
        for time, count in points.items():
            totals[time] = totals.get(time, 0) + count
    per_s = 1000 / step_ms
    top = nice(max(totals.values(), default=1) * per_s)
    across = (width - LEFT - RIGHT) / max(1, last - first)
    down = (height - TOP - BOTTOM) / top
    base = height - BOTTOM
    body = [_rules(top, width, height)]
    heights: dict[int, float] = {}
    bar = max(BAR_LEAST, step_ms * across - 0.6)
    for number, (name, points) in enumerate(series.items()):
        for time, count in sorted(points.items()):
            tall = _tall(count * per_s * down)
            under = heights.get(time, 0.0)
            heights[time] = under + tall
            x, y = LEFT + (time - first) * across, base - under - tall
            tip = escape(f"{name}: {count:,} in {step_ms / 1000:g} s, from {(time - first) / 1000:.1f} s on")
            body.append(
                f'<rect class="c{number % COLOURS}" x="{x:.1f}" y="{y:.1f}" width="{bar:.1f}" height="{tall:.1f}">'
                f"<title>{tip}</title></rect>"
            )
    for mark in marks:
        x = LEFT + (mark.time_ms - first) * across
        tip = escape(f"{mark.label}, at {(mark.time_ms - first) / 1000:.1f} s")
        body.append(
            f'<g class="mark m{mark.kind % MARK_COLOURS}"><title>{tip}</title>'
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{base}"/>{_shape(mark.kind, x, TOP - 10)}</g>'
        )
    body.append(_seconds(first, last, across, base, width))
    return _svg(width, height, body)


def columns(values: Sequence[int], tips: Sequence[str], width: int, height: int = 120) -> str:
    """One column for each value."""
    top = nice(max(values, default=1))
    room = (width - LEFT - RIGHT) / max(1, len(values))
    bar = min(28.0, max(BAR_LEAST, room - 2))
    down = (height - TOP - BOTTOM) / top
    base = height - BOTTOM
    body = [_rules(top, width, height)]
    for number, (value, tip) in enumerate(zip(values, tips, strict=True)):
        x, tall = LEFT + number * room, _tall(value * down)
        body.append(
            f'<rect class="plain" x="{x:.1f}" y="{base - tall:.1f}" width="{bar:.1f}" '
            f'height="{tall:.1f}"><title>{escape(tip)}</title></rect>'
        )
    every = max(1, math.ceil(len(values) / (width / 60)))
    for number in range(0, len(values), every):
        x = LEFT + number * room + bar / 2
        body.append(f'<text class="tick" x="{x:.1f}" y="{base + 15}" text-anchor="middle">{number}</text>')
    return _svg(width, height, body)


def spreads(lines: Sequence[Spread], width: int) -> str:
    """On a logarithmic axis of milliseconds: a bar from the low to the high quantile, a dot, a tick for the most."""
    row = 30
    names = 12 + 7 * min(NAME_CHARACTERS, max((len(line.name) for line in lines), default=0))
    height = TOP + row * len(lines) + BOTTOM
    low = max(0.1, min((line.low for line in lines), default=1))
    high = max((line.most for line in lines), default=10)
    first, last = math.floor(math.log10(low)), max(math.ceil(math.log10(max(high, 1))), math.floor(math.log10(low)) + 1)
    across = (width - names - RIGHT - 18) / (last - first)

    def at(value: float) -> float:
        return names + (math.log10(max(value, low)) - first) * across

    body = []
    for power in range(first, last + 1):
        x = names + (power - first) * across
        body.append(f'<line class="rule" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - BOTTOM}"/>')
        body.append(
            f'<text class="tick" x="{x:.1f}" y="{height - 8}" text-anchor="middle">{duration(10.0**power)}</text>'
        )
    for number, line in enumerate(lines):
        y = TOP + row * number + row / 2
        tip = escape(
            f"{line.name}: median {duration(line.low)}, 95 % {duration(line.middle)}, 99 % {duration(line.high)}, "
            f"longest {duration(line.most)}"
        )
        body.append(
            f'<g class="spread"><title>{tip}</title>'
            f'<text class="name" x="0" y="{y + 4:.1f}">{escape(line.name[:NAME_CHARACTERS])}</text>'
            f'<line class="thin" x1="{at(line.low):.1f}" x2="{at(line.most):.1f}" y1="{y}" y2="{y}"/>'
            f'<rect class="c{number % COLOURS}" x="{at(line.low):.1f}" y="{y - 5}" '
            f'width="{max(BAR_LEAST, at(line.high) - at(line.low)):.1f}" height="10" rx="2"/>'
            f'<line class="most" x1="{at(line.most):.1f}" x2="{at(line.most):.1f}" y1="{y - 6}" y2="{y + 6}"/>'
            f'<line class="middle" x1="{at(line.middle):.1f}" x2="{at(line.middle):.1f}" y1="{y - 5}" y2="{y + 5}"/>'
            f"</g>"
        )
    return _svg(width, height, body)


def _tall(height: float) -> float:
    return max(BAR_LEAST, height) if height > 0 else 0.0


def nice(value: float) -> float:
    """The next round number that is not below: 1, 2, 2.5, 5 or 10 times a power of ten."""
    if value <= 0:
        return 1
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * 0.999999)


def duration(ms: float) -> str:
    """As people say it."""
    if ms >= 60_000:
        return f"{ms / 60_000:.3g} min"
    return f"{ms / 1000:.3g} s" if ms >= 1000 else f"{ms:.3g} ms"


def short(value: float) -> str:
    """A number for an axis."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _rules(top: float, width: int, height: int) -> str:
    base = height - BOTTOM
    lines = []
    for part in (0.0, 0.5, 1.0):
        y = base - part * (base - TOP)
        lines.append(f'<line class="rule" x1="{LEFT}" x2="{width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{short(top * part)}</text>')
    return "".join(lines)


def _seconds(first: int, last: int, across: float, base: float, width: int) -> str:
    step_s = nice((last - first) / 1000 / max(2, width / 110))
    ticks = []
    second = 0.0
    while first + second * 1000 <= last:
        x = LEFT + second * 1000 * across
        anchor = "start" if second == 0 else "middle"
        if x <= width - RIGHT - 8:
            ticks.append(
                f'<text class="tick" x="{x:.1f}" y="{base + 15}" text-anchor="{anchor}">{second:g}&#8202;s</text>'
            )
        second += step_s
    return "".join(ticks)


def _shape(kind: int, x: float, y: float) -> str:
    """Kinds are told apart by shape as well as by colour."""
    shapes = (
        f'<path d="M{x - 5:.1f} {y - 4:.1f}h10l-5 8z"/>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/>',
        f'<rect x="{x - 3.6:.1f}" y="{y - 3.6:.1f}" width="7.2" height="7.2"/>',
        f'<path d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z"/>',
    )
    return shapes[kind % len(shapes)]


def key_shape(kind: int) -> str:
    """The shape of a kind, for a legend."""
    colour = f"m{kind % MARK_COLOURS}"
    return f'<svg class="mark {colour}" width="12" height="12" viewBox="0 0 12 12">{_shape(kind, 6, 6)}</svg>'


def _svg(width: int, height: int, body: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-hidden="false">{"".join(body)}</svg>'
    )
