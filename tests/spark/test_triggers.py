"""How much a batch of a stream takes, and when it begins: options of Spark's Kafka source, judged without Spark."""

from typing import Any

import pytest

from oncelog.spark.options import OptionError, read_options
from oncelog.spark.reader import StreamReader


def reading(**options: str) -> StreamReader:
    return StreamReader(read_options({"url": "http://x", "subscribe": "t", **options}, "streaming read"))


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900.0), ("30s", 30.0), ("500ms", 0.5), ("2h", 7200.0), ("1 min", 60.0), ("250", 0.25)]
)
def test_delay_is_a_time_as_spark_spells_it(text: str, seconds: float) -> None:
    given = {"url": "http://x", "subscribe": "t", "maxTriggerDelay": text}
    assert read_options(given, "streaming read").trigger_delay_s_max == seconds


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is a time"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "no batch can be both"),
        ({"minOffsetsPerTrigger": "-1"}, "minOffsetsPerTrigger is between"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        reading(**options)


def test_batch_waits_for_its_least_number_of_offsets_and_no_longer_than_its_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("oncelog.spark.reader.time.monotonic", lambda: now[0])
    stream = reading(minOffsetsPerTrigger="10", maxTriggerDelay="60s")

    def waits(first: int, next_: int) -> bool:
        return stream._waits({"t": {0: first}}, {"t": {0: next_}})

    assert not waits(0, 1), "the first batch of a run begins at once, as with Kafka"
    assert waits(1, 10)
    assert not waits(1, 11)
    now[0] += 59.9
    assert waits(11, 12)
    now[0] += 0.2
    assert not waits(11, 12)
    stream.prepareForTriggerAvailableNow()
    assert not waits(12, 13), "a run to the end waits for nothing: no more may come"


def test_lag_counts_what_lies_between_end_and_latest() -> None:
    from oncelog.pipelines.running import _behind

    def report(latest: Any, end: Any) -> dict[str, Any]:
        return {"sources": [{"latestOffset": latest, "endOffset": end}]}

    latest = {"t": {"0": 10, "1": 5, "created": 1_700_000_000_000}, "u": {"0": 3}}
    assert _behind(report(latest, {"t": {"0": 4, "1": 5}})) == [("t", 0, 4, 6), ("u", 0, 0, 3)]
    assert _behind(report(latest, latest)) == []
    assert _behind(report(None, latest)) is None
