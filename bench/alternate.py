"""This checkout against another one of the project, in turn: `python -m bench.alternate OTHER`.

    python -m bench.alternate ../before --workloads W1,W2,W3,W4,W9

A machine that is shared is faster in one minute than in the next. So the two checkouts run one
after the other, several times over, the one that begins changing with each round, and each pair
gives one ratio. Shown is the median of the ratios of each workload, and of each of its metrics:
above 1 this checkout does more in a second, or waits for less time. Each checkout is run by its own
`.venv/bin/python`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import geometric_mean, median

from bench.results import OURS

HERE = Path(__file__).resolve().parent.parent
Measured = dict[tuple[str, str], float]
Ratios = dict[tuple[str, str], list[float]]


def measured(checkout: Path, workloads: str, seconds: float) -> Measured:
    """Return what a checkout's own bench finds, by workload and metric."""
    with tempfile.NamedTemporaryFile(suffix=".json") as found:
        command = [checkout / ".venv/bin/python", "-m", "bench", "--workloads", workloads]
        command += ["--peers", OURS, "--seconds", str(seconds), "--json", found.name]
        subprocess.run(command, cwd=checkout, check=True, capture_output=True, timeout=3600)
        rounds = json.loads(Path(found.name).read_bytes())["rounds"]
    return {
        (workload, metric): median(values)
        for workload, peers in rounds.items()
        for metric, values in peers[OURS].items()
    }


def ratio(metric: str, here: float, other: float) -> float:
    """Return by how much this checkout is ahead; a time is the better, the shorter it is."""
    return other / here if metric.endswith((" ms", " s")) else here / other


def alternate(other: Path, workloads: str, seconds: float, rounds: int) -> Ratios:
    """Run both checkouts `rounds` times and return the ratios of each metric that both have."""
    ratios: Ratios = {}
    for number in range(rounds):
        order = [HERE, other] if number % 2 else [other, HERE]
        found = {checkout: measured(checkout, workloads, seconds) for checkout in order}
        for key in found[HERE].keys() & found[other].keys():
            if found[HERE][key] and found[other][key]:
                one = ratio(key[1], found[HERE][key], found[other][key])
                ratios.setdefault(key, []).append(one)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return ratios


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser("python -m bench.alternate", description=__doc__)
    parser.add_argument("other", type=Path, help="a checkout of the project, installed")
    parser.add_argument("--workloads", default="W1,W2,W3,W4,W9")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    ratios = alternate(asked.other.resolve(), asked.workloads, asked.seconds, asked.rounds)
    for workload in dict.fromkeys(workload for workload, _ in sorted(ratios)):
        own = {metric: found for (of, metric), found in sorted(ratios.items()) if of == workload}
        whole = median(geometric_mean(one) for one in zip(*own.values(), strict=False))
        print(f"{workload}: {whole:.2f}")
        for metric, found in own.items():
            print(f"    {metric}: {median(found):.2f} ({min(found):.2f} to {max(found):.2f})")


if __name__ == "__main__":
    main()
