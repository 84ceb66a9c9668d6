"""The forwarder's numbers for Prometheus: what it carried, where it stands, what keeps it."""

from collections.abc import Iterator, Sequence
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from oncelog.forward.daemon import Forwarder

LABELS = ("source", "target", "stream")

COUNTERS = (
    ("oncelog_forward_facts", "Facts that were new in the target.", "carried"),
    ("oncelog_forward_duplicates", "Facts that the target had already.", "duplicates"),
    ("oncelog_forward_passed_by", "Facts for other zones, confirmed without being carried.", "passed_by"),
)
GAUGES = (
    ("oncelog_forward_frontier", "Contiguous frontier of the consumer at the source.", "frontier"),
    ("oncelog_forward_target_sequence", "Sequence in the target of the fact that was carried last.", "target_sequence"),
    ("oncelog_forward_backlog_facts", "Facts of the source that are not confirmed, when last asked.", "backlog"),
    ("oncelog_forward_lag_seconds", "Age of the oldest fact that is not confirmed, when last asked.", "lag_s"),
    ("oncelog_forward_gap_count", "Gaps behind the frontier, when last asked.", "gap_count"),
)


class ForwardCollector(Collector):
    """Reads the progress of the carriers when it is asked."""

    def __init__(self, forwarders: Sequence[Forwarder]) -> None:
        self._forwarders = forwarders

    def collect(self) -> Iterator[Metric]:
        """One family after the other."""
        carriers = [
            ((forwarder.source_zone, forwarder.target_zone, carrier.progress.stream), carrier.progress)
            for forwarder in self._forwarders
            for carrier in list(forwarder.carriers)
        ]
        for name, meaning, field in COUNTERS:
            counter = CounterMetricFamily(name, meaning, labels=LABELS)
            for labels, progress in carriers:
                counter.add_metric(labels, getattr(progress, field))
            yield counter
        for name, meaning, field in GAUGES:
            gauge = GaugeMetricFamily(name, meaning, labels=LABELS)
            for labels, progress in carriers:
                gauge.add_metric(labels, getattr(progress, field))
            yield gauge
        refused = GaugeMetricFamily("oncelog_forward_refused_facts", "Facts that the target refuses.", labels=LABELS)
        cut = GaugeMetricFamily("oncelog_forward_cut", "1 while something keeps facts from going on.", labels=LABELS)
        for labels, progress in carriers:
            refused.add_metric(labels, len(progress.refused))
            cut.add_metric(labels, bool(progress.cut))
        yield refused
        yield cut


def serve_metrics(address: str, forwarders: Sequence[Forwarder]) -> WSGIServer:
    """Serve them at HOST:PORT, on a thread of their own. Raises OSError."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise OSError(f"{address!r} is not HOST:PORT")
    registry = CollectorRegistry()
    registry.register(ForwardCollector(forwarders))
    server, _thread = start_http_server(int(port), host or "127.0.0.1", registry)
    return server
