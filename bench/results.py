"""Results: what a run found, and the questions that targets and reports ask of it.

A value stands under workload, peer, metric and round. JSON, as `--json` writes it:

    {"command", "machine": {..}, "limits": {..}, "sizes": {..},
     "rounds": {workload: {peer: {metric: [value of each round]}}},
     "medians": the same with one value, "failures": [{"workload", "peer", "error"}],
     "targets": [{"name", "value", "bound", "is_ceiling", "is_met"}]}
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from bench.measure import median
from bench.workload import Metrics, Sizes

OURS = "siltstone"
Rounds = dict[str, dict[str, dict[str, list[float]]]]


@dataclass(slots=True)
class Results:
    """One run. Filled by the runner, read by all others."""

    command: str
    sizes: Sizes
    limits: Metrics
    rounds: Rounds = field(default_factory=dict[str, dict[str, dict[str, list[float]]]])
    durable: set[str] = field(default_factory=set[str])
    failures: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def add(self, workload: str, peer: str, found: Metrics) -> None:
        metrics = self.rounds.setdefault(workload, {}).setdefault(peer, {})
        for metric, value in found.items():
            metrics.setdefault(metric, []).append(value)

    def fail(self, workload: str, peer: str, error: BaseException) -> None:
        text = f"{type(error).__name__}: {error}"
        self.failures.append({"workload": workload, "peer": peer, "error": text[:300]})

    def value(self, workload: str, metric: str, peer: str = OURS) -> float | None:
        """Return the median over the rounds, or None where nothing was measured."""
        values = self.rounds.get(workload, {}).get(peer, {}).get(metric)
        return median(values) if values else None

    def worst(self, workload: str, metric: str, peer: str = OURS) -> float | None:
        values = self.rounds.get(workload, {}).get(peer, {}).get(metric)
        return max(values) if values else None

    def ratio(
        self, workload: str, metric: str, against: list[str], *, less_is_more: bool = False
    ) -> float | None:
        """Return the median over the rounds of ours / the best of `against` in that round."""
        peers = self.rounds.get(workload, {})
        ours = peers.get(OURS, {}).get(metric, [])
        others = [peers[name][metric] for name in against if metric in peers.get(name, {})]
        if not ours or not others:
            return None
        best = min if less_is_more else max
        return median([mine / best(theirs) for mine, *theirs in zip(ours, *others, strict=False)])

    def peers(self, *, durable: bool = False) -> list[str]:
        """Return the peers that were measured anywhere, ours left out."""
        seen = {peer for found in self.rounds.values() for peer in found} - {OURS}
        return sorted(seen & self.durable if durable else seen)

    def medians(self) -> dict[str, dict[str, Metrics]]:
        return {
            workload: {
                peer: {metric: median(values) for metric, values in metrics.items()}
                for peer, metrics in found.items()
            }
            for workload, found in self.rounds.items()
        }


def machine() -> dict[str, str]:
    """Return what a reader must know of the machine to judge the numbers."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
    }


def _field(path: str, name: str) -> str:
    lines = Path(path).read_text().splitlines() if Path(path).exists() else []
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(found, "unknown")
