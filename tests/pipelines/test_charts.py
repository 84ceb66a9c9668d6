"""What the charts draw of very little."""

import re

from oncelog.pipelines import charts


def sides(drawing: str, shape: str) -> list[tuple[float, float]]:
    """Width and height of its bars."""
    found = re.findall(rf'<rect class="{shape}"[^>]* width="([\d.]+)"[^>]* height="([\d.]+)"', drawing)
    return [(float(width), float(height)) for width, height in found]


def test_column_of_a_very_small_batch_can_be_seen_and_one_of_an_empty_batch_is_none() -> None:
    drawing = charts.columns([100_000, 1, 0], ["large", "small", "empty"], 812)
    heights = [height for _, height in sides(drawing, "plain")]
    assert heights[1:] == [charts.BAR_LEAST, 0.0]
    assert heights[0] > 50
    many = sides(charts.columns([1] * 160, [""] * 160, 343), "plain")
    assert {width for width, _ in many} == {charts.BAR_LEAST}


def test_few_confirmations_of_a_face_can_be_seen_beside_many_of_another() -> None:
    series = {"many": dict.fromkeys(range(0, 300_000, 1_000), 50_000), "few": {0: 1}}
    ((width, height),) = sides(charts.stacked(series, 1_000, [], 343), "c1")
    assert (width, height) == (charts.BAR_LEAST, charts.BAR_LEAST)


def test_spread_of_nothing_can_be_seen() -> None:
    ((width, _),) = sides(charts.spreads([charts.Spread("face", 5, 5, 5, 900)], 343), "c0")
    assert width == charts.BAR_LEAST
