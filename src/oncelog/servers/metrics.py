"""Counters of the server, and how a monitor reads them.

Counting is adding to plain numbers on the loop's thread; prometheus-client only spells them when it is asked.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from oncelog import __version__
from oncelog.engine.statistics import Statistics
from oncelog.servers.face import Face

CONFLICTS = ("id_conflict", "sequence_conflict", "claim_conflict", "partly_duplicate")
FENCES = ("fenced", "application_fenced")


class Now(NamedTuple):
    """What neither the counters nor the engine tell: how it is at this moment."""

    writes_refused: bool
    """For want of room."""
    free_bytes: int | None
    """Of the disk that holds the log; None if there is no such disk."""


class _Collector(Collector):
    def __init__(self, statistics: Statistics, faces: Sequence[Face], now: Now) -> None:
        self._statistics = statistics
        self._faces = faces
        self._now = now

    def collect(self) -> Iterator[Metric]:
        yield from self._of_commands()
        for face in self._faces:
            yield from _of_face(face)
        stand = self._statistics
        build = GaugeMetricFamily("oncelog_build_info", "Which oncelog runs here; always 1.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        yield GaugeMetricFamily("oncelog_waiting_readers", "Readers that wait for records.", stand.waiting_readers)
        yield CounterMetricFamily("oncelog_reads", "Reads of records.", stand.reads)
        yield CounterMetricFamily("oncelog_groups", "Groups written: one fdatasync each.", stand.groups)
        yield SummaryMetricFamily(
            "oncelog_fsync_seconds",
            "Write and fdatasync of one group.",
            count_value=stand.write_count,
            sum_value=stand.write_seconds,
        )
        yield GaugeMetricFamily(
            "oncelog_index_lag_bytes", "Journal bytes that the index has not seen.", stand.index_lag_bytes
        )
        yield GaugeMetricFamily("oncelog_waiting_commands", "Commands that wait for room.", stand.waiting_commands)
        yield GaugeMetricFamily("oncelog_entry", "The last entry that readers see.", stand.entry)
        stats = stand.journal
        yield GaugeMetricFamily("oncelog_journal_bytes", "Bytes of the journal in use.", stats.used_bytes)
        yield GaugeMetricFamily("oncelog_journal_segments", "Segments of the journal.", stats.segments)
        yield GaugeMetricFamily("oncelog_journal_spares", "Further segments, written in advance.", stats.spares)
        yield GaugeMetricFamily(
            "oncelog_retention_held_back",
            "Partitions that keep more than their topic allows, since a pinned consumer needs it.",
            stand.retention_held_back,
        )
        yield CounterMetricFamily("oncelog_read_bytes", "Stored bytes fetched for readers.", stand.bytes_read)
        yield GaugeMetricFamily(
            "oncelog_segments_missing",
            "Files of the journal that were missing at the start.",
            len(stand.missing_segments),
        )
        yield CounterMetricFamily(
            "oncelog_index_restarts", "How often the index builder had to be started again.", stand.index_restarts
        )
        yield GaugeMetricFamily(
            "oncelog_clock_skew_seconds",
            "How far the log's time is ahead of this machine's clock; below 0 if it is behind.",
            stand.clock_skew_ns / 1e9,
        )
        yield CounterMetricFamily(
            "oncelog_clock_steps", "How often the log was set forward to a clock that stayed ahead.", stand.clock_steps
        )
        refused_now = int(self._now.writes_refused)
        yield GaugeMetricFamily("oncelog_writes_refused", "1 while writes are refused for want of room.", refused_now)
        if self._now.free_bytes is not None:
            free = self._now.free_bytes
            yield GaugeMetricFamily("oncelog_disk_free_bytes", "Free room of the disk that holds the journal.", free)

    def _of_commands(self) -> Iterator[Metric]:
        """What came of commands, whichever face brought them."""
        faces = [face.counts for face in self._faces]
        refusals: dict[str, int] = {}
        for counts in faces:
            for code, count in counts.refusals.items():
                refusals[code] = refusals.get(code, 0) + count
        confirms = sum(counts.confirms for counts in faces)
        yield CounterMetricFamily("oncelog_confirms", "Appends confirmed as new.", confirms)
        records = sum(counts.records for counts in faces)
        yield CounterMetricFamily("oncelog_records", "Records of confirmed appends.", records)
        commits = sum(counts.commits for counts in faces)
        yield CounterMetricFamily("oncelog_commits", "Commits and publishes confirmed as new.", commits)
        duplicates = sum(counts.duplicates for counts in faces)
        yield CounterMetricFamily("oncelog_duplicates", "Retries answered with their first outcome.", duplicates)
        conflicts = sum(refusals.get(code, 0) for code in CONFLICTS)
        yield CounterMetricFamily("oncelog_conflicts", "Ids or sequences used again for other content.", conflicts)
        fences = sum(refusals.get(code, 0) for code in FENCES)
        yield CounterMetricFamily("oncelog_fences", "Writes of fenced producers and drivers refused.", fences)
        by_code = CounterMetricFamily("oncelog_refusals", "Commands refused, by code.", labels=["code"])
        for code, count in sorted(refusals.items()):
            by_code.add_metric([code], count)
        yield by_code


def _of_face(face: Face) -> Iterator[Metric]:
    """What happened on the connections of one face."""
    counts, prefix = face.counts, f"oncelog_{face.name}"
    yield CounterMetricFamily(f"{prefix}_malformed", "Requests that could not be read.", counts.malformed)
    yield CounterMetricFamily(f"{prefix}_stalled", "Clients cut because they did not read.", counts.cut_stalled)
    refused = counts.connections_refused
    yield CounterMetricFamily(f"{prefix}_connections_refused", "Over connections_max.", refused)
    yield GaugeMetricFamily(f"{prefix}_connections", "Open connections.", face.connection_count)


def exposition(statistics: Statistics, faces: Sequence[Face], now: Now) -> bytes:
    """All of it in the text that Prometheus reads."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)  # memory, processor time, descriptors, the time of the start
    registry.register(_Collector(statistics, faces, now))
    return generate_latest(registry)
