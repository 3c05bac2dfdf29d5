"""Exposition: the families with their values, as `prometheus_client` writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from siltstone.process.latency import BOUNDS_S, Latency
from siltstone.server.metrics.families import FAMILIES, Family
from siltstone.server.metrics.sources import Value


class StoreCollector(Collector):
    """The metrics of one store; any registry of `prometheus_client` takes it."""

    def __init__(self, values: Callable[[], Mapping[str, Value]]) -> None:
        self._values = values

    def collect(self) -> Iterator[Metric]:
        """Yield the families, in the order of their table."""
        values = self._values()
        for family in FAMILIES:
            yield _filled(family, values[family.name.removeprefix("siltstone_")])


class Exposition:
    """See the module. Any thread."""

    def __init__(self, values: Callable[[], Mapping[str, Value]]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(StoreCollector(values))

    def text(self) -> bytes:
        """Return the text format, version 0.0.4."""
        return generate_latest(self._registry)


def _filled(family: Family, value: Value) -> Metric:
    if isinstance(value, Latency):
        return _histogram(family, value)
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    made = kind(family.name, family.help, labels=family.labels)
    for labels, number in value.items() if isinstance(value, Mapping) else [((), value)]:
        made.add_metric(labels, number)
    return made


def _histogram(family: Family, latency: Latency) -> Metric:
    buckets, seconds, _ = latency.taken()
    bounds = (*map(str, BOUNDS_S), "+Inf")
    made = HistogramMetricFamily(family.name, family.help)
    made.add_metric((), list(zip(bounds, accumulate(buckets), strict=True)), seconds)
    return made
