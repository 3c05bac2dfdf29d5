"""Exposition: the families with their values, as `prometheus_client` writes them.

A scrape reads all parts of the store, which takes time that writers need. So there is an allowance:
`SHARE_MAX` of a processor, of which at most `ALLOWANCE_S` are saved up. A client that asks when
nothing is left gets the last text again.

Lock: one, held while a text is made.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from siltstone.process.latency import Latency
from siltstone.server.metrics.families import FAMILIES, Family
from siltstone.server.metrics.sources import Value

SHARE_MAX = 0.02
ALLOWANCE_S = 0.5


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

    def __init__(
        self,
        values: Callable[[], Mapping[str, Value]],
        *,
        clock_s: Callable[[], float] = time.monotonic,
        processor_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(StoreCollector(values))
        ProcessCollector(registry=self._registry)
        self._clock_s, self._processor_s = clock_s, processor_s
        self._lock = threading.Lock()
        self._allowance_s, self._asked_s = ALLOWANCE_S, clock_s()
        self._text = b""

    def text(self) -> bytes:
        """Return the text format, version 0.0.4."""
        with self._lock:
            now_s = self._clock_s()
            earned_s = SHARE_MAX * (now_s - self._asked_s)
            self._allowance_s = min(ALLOWANCE_S, self._allowance_s + earned_s)
            self._asked_s = now_s
            if self._allowance_s > 0 or not self._text:
                begun_s = self._processor_s()
                self._text = generate_latest(self._registry)
                self._allowance_s -= self._processor_s() - begun_s
            return self._text


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
    bounds = (*map(str, latency.bounds_s), "+Inf")
    made = HistogramMetricFamily(family.name, family.help)
    made.add_metric((), list(zip(bounds, accumulate(buckets), strict=True)), seconds)
    return made
