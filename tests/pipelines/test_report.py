"""The page says what a run met by the names that people know, and whose time is whose."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the report lies beside the pipelines, which need Spark")

from oncelog.pipelines import charts
from oncelog.pipelines.report import Event, Latency, ReportData, page
from oncelog.pipelines.report_style import STYLE
from oncelog.pipelines.running import BatchDone
from oncelog.pipelines.writers import Run, Writers

COUNTS = dict.fromkeys(("lost", "doubled", "torn", "out_of_order", "conflicting", "unexpected"), 0)


class Rows(HTMLParser):
    """The cells of every table row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "tr":
            self.rows.append([])

    def handle_data(self, data: str) -> None:
        if self.lasttag in ("td", "th") and data.strip():
            self.rows[-1].append(data)


def report(run: Run | None) -> ReportData:
    latencies = [Latency(face, 2, 1, 2, 3, 4) for face in ("client", "commits", "other")]
    confirms = {"client": {0: 900, 1000: 600}, "commits": {0: 70}, "other": {0: 1}}
    data = ReportData("t", True, COUNTS, 3, [], [], "7", "", confirms, 1000, latencies, duration_s=11.2)
    data.run = run
    return data


RUN = Run(
    78.8,
    [Writers("commits", "HTTP commits", 264, 447, 1), Writers("client", "IdempotentProducer", -1, 1_457, 2)],
    dropped=821,
    cut=422,
)


def test_writers_have_the_names_and_the_numbers_of_the_terminal() -> None:
    text = page(report(RUN))
    assert Rows(text).rows == [
        ["face", "confirmed", "retried", "duplicates", "kill -9"],
        ["HTTP commits", "70", "264", "447", "1"],
        ["IdempotentProducer", "1,500", "by itself", "1,457", "2"],
    ]
    assert "The network dropped 821 answers and cut 422 connections." in text
    assert "commits</li>" not in text
    assert not re.search(r">(client|commits)[ :<]", text), "the ledgers' own names are nobody else's"


def test_face_has_one_colour_in_every_chart() -> None:
    text = page(report(RUN))
    for name, colour in (("HTTP commits", "c0"), ("IdempotentProducer", "c1"), ("other", "c2")):
        assert f'<i class="{colour}"></i>{name} ' in text
        assert re.search(rf'>{name}</text><line [^>]*/><rect class="{colour}"', text)


def test_marks_mean_the_same_in_every_run() -> None:
    data = report(None)
    kinds = ("server killed", "producer killed", "Spark driver killed", "a cable cut", "power lost")
    drawn = set()
    for order in (kinds, kinds[::-1], kinds[1:]):
        data.events = [Event(number, kind) for number, kind in enumerate(order)]
        found = re.findall(r'<svg class="mark (m\d)"[^>]*>(<[^>]+/>)</svg>([^<]*) ', page(data))
        assert [kind for _, _, kind in found] == [kind for kind in kinds if kind in order]
        drawn |= set(found)
    assert len(drawn) == len(kinds)
    assert len({(colour, shape) for colour, shape, _ in drawn}) == len(kinds)


def test_mark_has_a_colour_that_no_face_has() -> None:
    marks = dict(re.findall(r"\.(m\d) \{ color: var\(--(\w+)\)", STYLE))
    assert sorted(marks) == [f"m{number}" for number in range(charts.MARK_COLOURS)]
    faces = {f"c{number}" for number in range(charts.COLOURS)}
    assert not faces.intersection(marks.values())
    assert len(set(marks.values())) == charts.MARK_COLOURS


def test_time_of_the_run_and_of_the_audit_are_told_apart() -> None:
    text = page(report(RUN))
    assert "<dt>run</dt><dd>1:18 min before the audit</dd><dt>audit</dt><dd>11.2 s</dd>" in text
    assert re.search(r"<dt>made</dt><dd>[-0-9]+ [:0-9]+ UTC</dd>", text)


@pytest.mark.parametrize(("count", "said"), [(1, "1 batch, 7 rows in"), (2, "2 batches, 14 rows in")])
def test_batches_are_counted_as_people_count(count: int, said: str) -> None:
    data = report(None)
    data.batches = {"land": [BatchDone(number, 7, 7, 0.5, 0) for number in range(count)]}
    assert f"<span>{said}, " in page(data)


def test_report_of_an_audit_alone_tells_of_no_run() -> None:
    text = page(report(None))
    assert "The writers" not in text
    assert "<dt>run</dt>" not in text
    assert '<i class="c0"></i>client ' in text
