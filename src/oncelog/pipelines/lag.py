"""How far a query is behind: in records, as Spark reports it, and in seconds, as the log tells.

Seconds are counted from the oldest record that is not processed yet. That record is asked for in each partition that is
behind, so the question is put now and then and not with every report.
"""

import time
from typing import Any, Final

from oncelog.client import OffsetGone
from oncelog.client.errors import ClientError
from oncelog.core import batch as codec
from oncelog.spark.link import Link
from oncelog.spark.options import CREATED

ASKED_S: Final = 10.0
"""How often the log is asked. An answer may bring a megabyte of records along for each partition that is behind."""

ANSWER_TIMEOUT_MS: Final = 5_000
"""It is for display, so nobody waits long for it."""

PARTITIONS_MAX: Final = 64
"""That are asked for: with more of them behind, the oldest of the first ones is near enough."""

Offsets = dict[str, dict[str, int]]
"""As a progress report has them: topic → partition → offset."""


def behind(latest: Offsets, end: Offsets) -> list[tuple[str, int, int, int]]:
    """Topic, partition, first offset that is not processed, and how many there are."""
    found = []
    for topic, partitions in latest.items():
        for partition, offset in partitions.items():
            if partition == CREATED:
                continue
            done = end.get(topic, {}).get(partition, 0)
            if offset > done:
                found.append((topic, int(partition), done, offset - done))
    return found


class LagClock:
    """Says how many seconds a query is behind; -1.0 where nobody knows."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._asked_s = 0.0
        self._oldest_ms = -1

    def seconds(self, places: list[tuple[str, int, int, int]]) -> float:
        """Of what `behind` found."""
        if not places:
            self._oldest_ms = -1
            return 0.0
        if not self._url:
            return -1.0
        now_s = time.monotonic()
        if self._oldest_ms < 0 or now_s - self._asked_s >= ASKED_S:
            self._asked_s = now_s
            self._oldest_ms = self._oldest_of(places)
        return max(0.0, time.time() - self._oldest_ms / 1000) if self._oldest_ms >= 0 else -1.0

    def _oldest_of(self, places: list[tuple[str, int, int, int]]) -> int:
        times: list[int] = []
        try:
            with Link(self._url, ANSWER_TIMEOUT_MS) as link:
                for topic, partition, offset, _ in places[:PARTITIONS_MAX]:
                    times += self._time_of(link, topic, partition, offset)
        except ClientError:
            return -1  # a server that is away makes nothing fail here: the query itself will say it
        return min(times, default=-1)

    def _time_of(self, link: Any, topic: str, partition: int, offset: int) -> list[int]:
        try:
            body = link.read_raw(topic, partition, offset).body
        except OffsetGone:
            return []
        return [codec.read_header(body).base_timestamp] if body else []
