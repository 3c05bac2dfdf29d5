"""What a version of a stock client costs, and its syncs alone: `python -m bench.version_cost`.

    python -m bench.version_cost [--rounds N] [--versions N]

A stock client stages a version of a table; timed is `create_table_version`, in this process. Beside
it stands how long at least one of its syncs ran: what it would take if nothing else was to be done,
in the same run and on the same disk. Then the same, as a batch of two tables, in a store with few
versions and in one with `--versions` of each table, in turns. Shown is the median of the rounds,
the lowest and the highest.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.syncs import Syncs, noted_syncs
from bench.workloads import versions

_A_ROUND = 20


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser("python -m bench.version_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--versions", type=int, default=500)
    given = parser.parse_args()
    found: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="siltstone-versions-") as folder,
        ExitStack() as opened,
        noted_syncs() as syncs,
    ):
        stores = {
            name: opened.enter_context(versions.opened(Path(folder) / name))
            for name in ("new", "many")
        }
        for _ in range(given.versions):
            versions.commit(stores["many"], _both(stores["many"]))
        for _ in range(given.rounds):
            for name, value in _round(stores, syncs).items():
                found.setdefault(name, []).append(value)
    for name, values in found.items():
        print(f"{name:45} {median(values):7.2f}   {min(values):.2f} to {max(values):.2f}")


def _both(ns: Any) -> list[dict[str, Any]]:
    return [versions.stage(ns, name) for name in versions.TABLES]


def _round(stores: dict[str, Any], syncs: Syncs) -> dict[str, float]:
    single: list[tuple[float, float, int]] = []
    batches: dict[str, list[float]] = {name: [] for name in stores}
    for _ in range(_A_ROUND):
        one = versions.stage(stores["new"], "a")
        single.append(_timed(lambda one=one: stores["new"].create_table_version(one), syncs))
        for name, ns in stores.items():
            both = _both(ns)
            work = _timed(lambda ns=ns, both=both: versions.commit(ns, both), syncs)
            batches[name].append(work[0])
    took, synced, count = zip(*single, strict=True)
    return {
        "create, ms": 1e3 * median(took),
        "its syncs alone, ms": 1e3 * median(synced),
        "create / its syncs alone": median(took) / median(synced),
        "syncs of it": median(count),
        "batch of two, new, ms": 1e3 * median(batches["new"]),
        "batch of two, many, ms": 1e3 * median(batches["many"]),
        "many / new": median(batches["many"]) / median(batches["new"]),
    }


def _timed(work: Callable[[], object], syncs: Syncs) -> tuple[float, float, int]:
    syncs.clear()
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun, syncs.seconds(), len(syncs.times)


if __name__ == "__main__":
    main()
