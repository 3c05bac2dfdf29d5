"""Results: what a run found, and the questions that targets and reports ask of it.

A value stands under workload, peer, metric and round. JSON, as `bench.kept` keeps it:

    {"sizes": {"scale", "seconds", "rounds"}, "durable": [peer, ..],
     "rounds": {workload: {peer: {metric: [value of each round]}}},
     "failures": [{"workload", "peer", "error"}]}
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

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
    machine: dict[str, str]
    rounds: Rounds = field(default_factory=dict[str, dict[str, dict[str, list[float]]]])
    durable: set[str] = field(default_factory=set[str])
    failures: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    @classmethod
    def of(cls, found: dict[str, Any], command: str = "", limits: Metrics | None = None) -> Results:
        """Return the run that `found` is of; of the machine only the limits."""
        return cls(
            command,
            Sizes(**found["sizes"]),
            limits or {},
            {},
            found["rounds"],
            set(found["durable"]),
            found["failures"],
        )

    def of_round(self, number: int) -> Results:
        """Return what one round found, by itself."""
        one = {
            workload: {
                peer: {m: values[number : number + 1] for m, values in metrics.items()}
                for peer, metrics in found.items()
            }
            for workload, found in self.rounds.items()
        }
        return replace(self, rounds=one)

    def found(self) -> dict[str, Any]:
        """Return it as `bench.kept` keeps it."""
        return {
            "sizes": asdict(self.sizes),
            "durable": sorted(self.durable),
            "rounds": self.rounds,
            "failures": self.failures,
        }

    def add(self, workload: str, peer: str, found: Metrics) -> None:
        metrics = self.rounds.setdefault(workload, {}).setdefault(peer, {})
        for metric, value in found.items():
            metrics.setdefault(metric, []).append(value)

    def fail(self, workload: str, peer: str, error: BaseException) -> None:
        text = f"{type(error).__name__}: {error}"
        self.failures.append({"workload": workload, "peer": peer, "error": text[:300]})

    @property
    def most_rounds(self) -> int:
        """How many rounds the workload with the most of them had."""
        lists = [v for found in self.rounds.values() for m in found.values() for v in m.values()]
        return max(map(len, lists), default=0)

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
